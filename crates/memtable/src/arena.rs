//! Memory for nodes: one reservation, allocated from the front. It never moves, and nothing is freed before the end.
//!
//! The reservation is virtual memory: a page uses memory after the first write to it. Offsets count units of eight
//! bytes, so that 32 bits can address up to 32 GiB.

#![allow(unsafe_code)]

use crate::memory::{Memory, SpareMemory};
use crate::sync::{AtomicU64, OwnLine};
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64 as PlainAtomicU64, Ordering};

/// Size of a unit, in bytes. Offsets count units, and nodes are aligned to units.
pub(crate) const UNIT: usize = 8;

/// A bump allocator over one reservation; see the module.
pub(crate) struct Arena {
    /// Taken when the arena is dropped.
    memory: ManuallyDrop<Memory>,
    /// Bytes allocated. May exceed the size after a failed allocation.
    used: OwnLine<PlainAtomicU64>,
    /// Bytes that an earlier arena in the same memory used.
    touched: u64,
    /// Gets the memory.
    spare: Arc<SpareMemory>,
    #[cfg(loom)]
    words: Box<[AtomicU64]>,
}

// SAFETY: `used` is atomic, and no byte is allocated twice. The callers of the unsafe methods guarantee that accesses
// to the bytes behind the raw pointers are synchronized.
unsafe impl Sync for Arena {}

impl Arena {
    /// Reserves `size` bytes, or takes a spare reservation of this size, and writes none of them. `None` if the process can get no more memory
    /// or address space.
    pub(crate) fn new(size: usize, spare: &Arc<SpareMemory>) -> Option<Arena> {
        let size = size.next_multiple_of(UNIT);
        assert!(size / UNIT <= u32::MAX as usize);
        let (memory, touched) = match spare.take(size) {
            Some(taken) => taken,
            None => (Memory::new(size)?, 0),
        };
        Some(Arena {
            memory: ManuallyDrop::new(memory),
            used: OwnLine(PlainAtomicU64::new(0)),
            touched,
            spare: spare.clone(),
            #[cfg(loom)]
            words: (0..size / UNIT).map(|_| AtomicU64::new(0)).collect(),
        })
    }

    /// Allocates `size` bytes, a multiple of [`UNIT`]. Returns their offset in units.
    ///
    /// # Panics
    /// If the arena is full.
    #[inline]
    pub(crate) fn allocate(&self, size: usize) -> u32 {
        debug_assert!(size.is_multiple_of(UNIT));
        let start = self.used.0.fetch_add(size as u64, Ordering::Relaxed);
        assert!(start + size as u64 <= self.size(), "memtable: insert without reservation");
        (start / UNIT as u64) as u32
    }

    /// Number of bytes.
    #[inline]
    fn size(&self) -> u64 {
        self.memory.size() as u64
    }

    /// Number of bytes allocated.
    pub(crate) fn used(&self) -> usize {
        self.used.0.load(Ordering::Relaxed).min(self.size()) as usize
    }

    /// The address of a unit.
    ///
    /// # Safety
    /// The unit was allocated by this arena.
    #[inline]
    pub(crate) unsafe fn at(&self, unit: u32) -> *mut u8 {
        // SAFETY: allocated offsets lie inside the reservation.
        unsafe { self.memory.base().as_ptr().add(unit as usize * UNIT) }
    }

    /// Units as atomic integers.
    ///
    /// # Safety
    /// The units were allocated by this arena. While the reference lives, all accesses to them use these atomics, and
    /// the first store to each happened before.
    #[cfg(not(loom))]
    #[inline]
    pub(crate) unsafe fn words(&self, unit: u32, count: usize) -> &[AtomicU64] {
        // SAFETY: inside the reservation, initialized, and aligned: the base is aligned to more than a unit. An
        // atomic integer has the layout of a plain one, and may change behind a shared reference.
        unsafe { std::slice::from_raw_parts(self.at(unit).cast::<AtomicU64>(), count) }
    }

    /// Initializes units as atomic integers.
    ///
    /// # Safety
    /// The units were allocated by this arena, and no other thread knows them yet.
    #[cfg(not(loom))]
    #[inline]
    pub(crate) unsafe fn init_words(&self, unit: u32, values: impl Iterator<Item = u64>) {
        for (i, value) in values.enumerate() {
            // SAFETY: inside the reservation, aligned, and known to this thread only.
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
        let touched = self.touched.max(self.used() as u64);
        // SAFETY: nothing uses the field after this. No reference to a part of the memory is left: they borrow the arena.
        let memory = unsafe { ManuallyDrop::take(&mut self.memory) };
        self.spare.keep(memory, touched, self.touched);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hands_out_every_byte_once() {
        let arena = Arena::new(64, &Arc::default()).unwrap();
        assert_eq!((arena.allocate(24), arena.allocate(8), arena.allocate(32)), (0, 3, 4));
        assert_eq!(arena.used(), 64);
    }

    #[test]
    fn memory_is_used_again_within_limits() {
        let spare = Arc::new(SpareMemory::new(200));
        let arena = |size: usize, used| {
            let arena = Arena::new(size, &spare).unwrap();
            arena.allocate(used);
            arena
        };
        let base = |arena: &Arena| arena.memory.base();
        let first = arena(128, 64);
        let at = base(&first);
        drop(first);
        assert_eq!(spare.bytes(), 64);
        let (other, again) = (arena(120, 8), arena(128, 8));
        assert!(base(&again) == at && base(&other) != at && again.used() == 8);
        drop((other, again));
        assert_eq!(spare.bytes(), 64 + 8, "all that was ever used");
        drop([(); 4].map(|()| arena(256, 32)));
        assert_eq!(spare.bytes(), 64 + 3 * 32, "the smallest ones are freed");
        drop(arena(512, 104));
        assert_eq!(spare.bytes(), 104 + 64 + 32, "the limit is kept");
        drop(arena(512, 208));
        assert_eq!(spare.bytes(), 64 + 32, "larger than the limit alone");
        (0..59).for_each(|_| spare.age());
        drop(arena(128, 8));
        spare.age();
        assert_eq!(spare.bytes(), 64, "used in the last minute");
        spare.clear();
        assert_eq!(spare.bytes(), 0);
        drop(arena(256, 120));
        let again = arena(256, 8);
        drop(arena(128, 64));
        assert_eq!(spare.bytes(), 64, "with 120 that are used again");
        drop(arena(512, 24));
        assert_eq!(spare.bytes(), 64, "not more than 200 in all");
        drop(again);
        assert_eq!(spare.bytes(), 64 + 120);
        let held = arena(256, 8);
        spare.close();
        drop((held, arena(64, 8)));
        assert_eq!(spare.bytes(), 0, "nothing after the end");
    }

    #[test]
    #[should_panic(expected = "without reservation")]
    fn a_full_arena_panics() {
        let arena = Arena::new(64, &Arc::default()).unwrap();
        arena.allocate(40);
        arena.allocate(32);
    }
}
