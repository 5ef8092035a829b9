//! Memory of freed memtables, for the next ones.
//!
//! The first write to a page of new memory waits while the kernel finds and zeroes the page: 0.1 ms and more for a huge page, and 6 ms in
//! some virtual machines. The memory of a memtable that was flushed has its pages already. Which bytes are in them does not matter: no
//! byte of an arena is read before it is written.

use crate::arena::Memory;
use parking_lot::Mutex;
use std::alloc::Layout;

/// Maximum number of pieces of memory. The smallest ones are freed first.
const MAX_PIECES: usize = 4;

/// A piece is freed after so many calls of [`SpareMemory::age`] without use.
const MAX_AGE: u32 = 60;

/// The memory of a few freed memtables: see [`Memtable::try_new_in`](crate::Memtable::try_new_in).
#[derive(Default)]
pub struct SpareMemory {
    pieces: Mutex<Vec<Piece>>,
    /// Maximum of the bytes of all pieces that have pages.
    limit: u64,
}

struct Piece {
    memory: Memory,
    /// The bytes that were used at some time: they have pages.
    touched: u64,
    age: u32,
}

impl SpareMemory {
    /// Keeps at most this number of bytes.
    pub fn new(limit: u64) -> SpareMemory {
        SpareMemory { pieces: Mutex::default(), limit }
    }

    /// The bytes that are kept.
    pub fn bytes(&self) -> u64 {
        self.pieces.lock().iter().map(|piece| piece.touched).sum()
    }

    /// Called about once a second: frees what was not needed for a minute.
    pub fn age(&self) {
        let mut pieces = self.pieces.lock();
        pieces.iter_mut().for_each(|piece| piece.age += 1);
        let old: Vec<Piece> = pieces.extract_if(.., |piece| piece.age >= MAX_AGE).collect();
        drop(pieces);
        // To free memory takes long.
        drop(old);
    }

    /// Frees everything, because memory is short.
    pub fn clear(&self) {
        let pieces = std::mem::take(&mut *self.pieces.lock());
        drop(pieces);
    }

    /// Takes a piece with this layout, the one with the most pages, and the number of bytes that have them.
    pub(crate) fn take(&self, layout: Layout) -> Option<(Memory, u64)> {
        let mut pieces = self.pieces.lock();
        let fits = pieces.iter().enumerate().filter(|(_, piece)| piece.memory.layout() == layout);
        let (index, _) = fits.max_by_key(|(_, piece)| piece.touched)?;
        let piece = pieces.swap_remove(index);
        Some((piece.memory, piece.touched))
    }

    /// Keeps a piece, or frees it where the limits do not allow more, or the smallest of the others.
    pub(crate) fn keep(&self, memory: Memory, touched: u64) {
        if touched > self.limit {
            return;
        }
        let mut pieces = self.pieces.lock();
        pieces.push(Piece { memory, touched, age: 0 });
        let mut freed = Vec::new();
        while pieces.len() > MAX_PIECES || pieces.iter().map(|piece| piece.touched).sum::<u64>() > self.limit
        {
            let of_all = pieces.iter().enumerate();
            let Some((smallest, _)) = of_all.min_by_key(|(_, piece)| piece.touched) else { break };
            freed.push(pieces.swap_remove(smallest));
        }
        drop(pieces);
        drop(freed);
    }
}
