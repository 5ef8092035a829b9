//! Memory for nodes: one reservation, handed out from the front, never moved and never given back before the end.
//!
//! The reservation is virtual: a page costs memory from its first write on. Offsets count units of eight bytes, so
//! that 32 bits reach far enough.

#![allow(unsafe_code)]

use crate::sync::{AtomicU64, OwnLine};
use std::alloc::{self, Layout};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64 as PlainAtomicU64, Ordering};

/// Bytes in a unit: what offsets count, and what all nodes are aligned to.
pub(crate) const UNIT: usize = 8;

/// Size of a huge page.
const HUGE_PAGE: usize = 2 << 20;

/// See the module.
pub(crate) struct Arena {
    base: NonNull<u8>,
    layout: Layout,
    /// Bytes handed out. May pass the end, when an allocation fails.
    used: OwnLine<PlainAtomicU64>,
    #[cfg(loom)]
    words: Box<[AtomicU64]>,
}

// SAFETY: the arena owns its memory, which moves with it; nothing in it belongs to a thread.
unsafe impl Send for Arena {}
// SAFETY: `used` is atomic and hands out every byte once. Who may read or write the bytes behind the raw pointers
// is the business of the callers of the unsafe methods.
unsafe impl Sync for Arena {}

impl Arena {
    /// Reserves `size` bytes. Writes none of them. `None` where the process gets no more memory, or address space.
    pub(crate) fn new(size: usize) -> Option<Arena> {
        let huge = size >= 2 * HUGE_PAGE && !cfg!(miri);
        let align = if huge { HUGE_PAGE } else { 64 };
        let layout = Layout::from_size_align(size.next_multiple_of(UNIT), align).expect("size of an arena");
        assert!(layout.size() > 0 && layout.size() / UNIT <= u32::MAX as usize);
        // SAFETY: the layout's size is not zero.
        let memory = unsafe { alloc::alloc(layout) };
        let base = NonNull::new(memory)?;
        if huge {
            advise_huge_pages(base, layout.size());
        }
        Some(Arena {
            base,
            layout,
            used: OwnLine(PlainAtomicU64::new(0)),
            #[cfg(loom)]
            words: (0..layout.size() / UNIT).map(|_| AtomicU64::new(0)).collect(),
        })
    }

    /// Hands out `size` bytes, a multiple of [`UNIT`]: their offset in units.
    ///
    /// # Panics
    /// When the arena is full.
    #[inline]
    pub(crate) fn allocate(&self, size: usize) -> u32 {
        debug_assert!(size.is_multiple_of(UNIT));
        let start = self.used.0.fetch_add(size as u64, Ordering::Relaxed);
        assert!(start + size as u64 <= self.layout.size() as u64, "memtable: insert without reservation");
        (start / UNIT as u64) as u32
    }

    /// Bytes handed out.
    pub(crate) fn used(&self) -> usize {
        self.used.0.load(Ordering::Relaxed).min(self.layout.size() as u64) as usize
    }

    /// The address of a unit.
    ///
    /// # Safety
    /// The unit was handed out by this arena.
    #[inline]
    pub(crate) unsafe fn at(&self, unit: u32) -> *mut u8 {
        // SAFETY: offsets that were handed out lie inside the reservation.
        unsafe { self.base.as_ptr().add(unit as usize * UNIT) }
    }

    /// Some units as atomic integers.
    ///
    /// # Safety
    /// The units were handed out by this arena. Nobody uses them in any other way than as these atomics while the
    /// reference lives, and the first store to each happened before.
    #[cfg(not(loom))]
    #[inline]
    pub(crate) unsafe fn words(&self, unit: u32, count: usize) -> &[AtomicU64] {
        // SAFETY: inside the reservation, initialised, and aligned: the base is aligned to more than a unit. An
        // atomic integer has the layout of a plain one, and may change behind a shared reference.
        unsafe { std::slice::from_raw_parts(self.at(unit).cast::<AtomicU64>(), count) }
    }

    /// Gives units their first value as atomic integers.
    ///
    /// # Safety
    /// The units were handed out by this arena, and nobody else knows them yet.
    #[cfg(not(loom))]
    #[inline]
    pub(crate) unsafe fn init_words(&self, unit: u32, values: impl Iterator<Item = u64>) {
        for (i, value) in values.enumerate() {
            // SAFETY: inside the reservation, aligned, and ours alone.
            unsafe { self.at(unit).cast::<u64>().add(i).write(value) };
        }
    }

    #[cfg(loom)]
    pub(crate) unsafe fn words(&self, unit: u32, count: usize) -> &[AtomicU64] {
        &self.words[unit as usize..unit as usize + count]
    }

    #[cfg(loom)]
    pub(crate) unsafe fn init_words(&self, unit: u32, values: impl Iterator<Item = u64>) {
        for (i, value) in values.enumerate() {
            self.words[unit as usize + i].store(value, crate::sync::Ordering::Relaxed);
        }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout; `&mut self` says that nobody looks at it any more.
        unsafe { alloc::dealloc(self.base.as_ptr(), self.layout) }
    }
}

/// Asks for huge pages from the second one on: random inserts miss the TLB much less, and page faults get rare.
/// The first 2 MiB stay on small pages, so that a small memtable costs little. Best effort.
#[cfg(all(target_os = "linux", not(miri), not(loom)))]
fn advise_huge_pages(base: NonNull<u8>, size: usize) {
    let len = (size - HUGE_PAGE) / HUGE_PAGE * HUGE_PAGE;
    // SAFETY: the range lies inside our own allocation, and this advice changes no contents.
    unsafe {
        let start = base.as_ptr().add(HUGE_PAGE).cast();
        let _ = rustix::mm::madvise(start, len, rustix::mm::Advice::LinuxHugepage);
    }
}

#[cfg(not(all(target_os = "linux", not(miri), not(loom))))]
fn advise_huge_pages(_: NonNull<u8>, _: usize) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hands_out_every_byte_once() {
        let arena = Arena::new(64).unwrap();
        assert_eq!((arena.allocate(24), arena.allocate(8), arena.allocate(32)), (0, 3, 4));
        assert_eq!(arena.used(), 64);
    }

    #[test]
    #[should_panic(expected = "without reservation")]
    fn a_full_arena_panics() {
        let arena = Arena::new(64).unwrap();
        arena.allocate(40);
        arena.allocate(32);
    }
}
