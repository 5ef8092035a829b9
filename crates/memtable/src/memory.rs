//! Memory of memtables: [`Memory`], a reservation, and [`SpareMemory`], those of freed memtables, for the next ones.
//!
//! The first write to a page of new memory waits while the kernel finds and zeroes the page: 0.1 ms and more for a huge page, and 6 ms in
//! some virtual machines. The memory of a memtable that was flushed has its pages already. Which bytes are in them does not matter: no
//! byte of an arena is read before it is written.

#![allow(unsafe_code)]

use parking_lot::Mutex;
use std::alloc::{self, Layout};
use std::ptr::NonNull;

/// Size of a huge page.
const HUGE_PAGE: usize = 2 << 20;

/// Maximum number of pieces of memory. The smallest ones are freed first.
const MAX_PIECES: usize = 4;

/// A piece is freed after so many calls of [`SpareMemory::age`] without use.
const MAX_AGE: u32 = 60;

/// A reservation of memory, whose bytes need not be initialized.
pub(crate) struct Memory {
    base: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the memory has one owner, with which it moves; no part of it is bound to a thread.
unsafe impl Send for Memory {}

impl Memory {
    /// Reserves `size` bytes, aligned to 64 at least, and writes none of them. `None` if the process can get no more memory or address space.
    pub(crate) fn new(size: usize) -> Option<Memory> {
        assert!(size > 0);
        let align = if size >= 2 * HUGE_PAGE && !cfg!(miri) { HUGE_PAGE } else { 64 };
        let layout = Layout::from_size_align(size, align).expect("size of an arena");
        // SAFETY: the layout's size is not zero.
        let memory = unsafe { alloc::alloc(layout) };
        let base = NonNull::new(memory)?;
        if layout.align() == HUGE_PAGE {
            advise_huge_pages(base, layout.size());
        }
        Some(Memory { base, layout })
    }

    pub(crate) fn size(&self) -> usize {
        self.layout.size()
    }

    /// The address of the first byte.
    #[inline]
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout; `&mut self` proves that no reference to it is left.
        unsafe { alloc::dealloc(self.base.as_ptr(), self.layout) }
    }
}

/// Requests huge pages, except for the first 2 MiB: random inserts then have far fewer TLB misses and page faults.
/// The first 2 MiB keep small pages, so that a small memtable uses little memory. Best effort.
#[cfg(all(target_os = "linux", not(miri), not(loom)))]
fn advise_huge_pages(base: NonNull<u8>, size: usize) {
    let len = (size - HUGE_PAGE) / HUGE_PAGE * HUGE_PAGE;
    // SAFETY: the range lies inside the allocation of the arena, and this advice changes no contents.
    unsafe {
        let start = base.as_ptr().add(HUGE_PAGE).cast();
        let _ = rustix::mm::madvise(start, len, rustix::mm::Advice::LinuxHugepage);
    }
}

#[cfg(not(all(target_os = "linux", not(miri), not(loom))))]
fn advise_huge_pages(_: NonNull<u8>, _: usize) {}

/// The memory of a few freed memtables: see [`Memtable::try_new_in`](crate::Memtable::try_new_in).
#[derive(Default)]
pub struct SpareMemory {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Maximum of the bytes that have pages, in all pieces and in what was taken.
    limit: u64,
    pieces: Vec<Piece>,
    /// Bytes that had pages when they were taken, in memtables that use them now.
    taken: u64,
}

struct Piece {
    memory: Memory,
    /// The bytes that were used at some time: they have pages.
    touched: u64,
    age: u32,
}

impl State {
    fn bytes(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.touched).sum()
    }
}

impl SpareMemory {
    /// Keeps at most this number of bytes, those included that are used again.
    pub fn new(limit: u64) -> SpareMemory {
        SpareMemory { state: Mutex::new(State { limit, ..State::default() }) }
    }

    /// The bytes that are kept.
    pub fn bytes(&self) -> u64 {
        self.state.lock().bytes()
    }

    /// Called about once a second: frees what was not needed for a minute.
    pub fn age(&self) {
        let mut state = self.state.lock();
        state.pieces.iter_mut().for_each(|piece| piece.age += 1);
        let old: Vec<Piece> = state.pieces.extract_if(.., |piece| piece.age >= MAX_AGE).collect();
        drop(state);
        // To free memory takes long.
        drop(old);
    }

    /// Frees everything, because memory is short.
    pub fn clear(&self) {
        let pieces = std::mem::take(&mut self.state.lock().pieces);
        drop(pieces);
    }

    /// Frees everything, and keeps nothing more: no memtable will need it.
    pub fn close(&self) {
        self.state.lock().limit = 0;
        self.clear();
    }

    /// Takes a piece of this size, the one with the most pages, and the number of bytes that have them.
    pub(crate) fn take(&self, size: usize) -> Option<(Memory, u64)> {
        let mut state = self.state.lock();
        let fits = state.pieces.iter().enumerate().filter(|(_, piece)| piece.memory.size() == size);
        let (index, _) = fits.max_by_key(|(_, piece)| piece.touched)?;
        let piece = state.pieces.swap_remove(index);
        state.taken += piece.touched;
        Some((piece.memory, piece.touched))
    }

    /// Keeps a piece, of which `taken` bytes had pages when it was taken here, or frees it where the limits do not allow more, or the
    /// smallest of the others.
    pub(crate) fn keep(&self, memory: Memory, touched: u64, taken: u64) {
        let mut state = self.state.lock();
        state.taken -= taken;
        let mut freed = Vec::new();
        match touched <= state.limit {
            true => state.pieces.push(Piece { memory, touched, age: 0 }),
            false => freed.push(Piece { memory, touched, age: 0 }),
        }
        while state.pieces.len() > MAX_PIECES || state.bytes() + state.taken > state.limit {
            let of_all = state.pieces.iter().enumerate();
            let Some((smallest, _)) = of_all.min_by_key(|(_, piece)| piece.touched) else { break };
            freed.push(state.pieces.swap_remove(smallest));
        }
        drop(state);
        drop(freed);
    }
}
