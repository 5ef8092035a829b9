//! Loading tables where memory suffices for all of them.
//!
//! A block that has to be read from the disk costs hundreds of times as much as one that the operating system has in its page cache. Where
//! the tables of a database together are no larger than the memory that the process may use, all of them could be there; but after
//! compactions, whose reads and writes push pages out, and after opening, some are not, and reads of single blocks would bring them
//! back one at a time, each with a wait of its own. So who has waited for a block has the operating system load what lies around
//! it, once in the life of the table for each MiB. Where the tables are larger than memory, nothing is loaded that nobody asked for: it would
//! push out what is needed more.

use crate::table::Table;
use crate::tables::Tables;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes that are loaded at a time.
const PIECE: u64 = 1 << 20;

/// Which pieces of a table were loaded.
#[derive(Default)]
pub(crate) struct Warm(OnceLock<Box<[AtomicU64]>>);

impl Warm {
    fn bits(&self, file_size: u64) -> &[AtomicU64] {
        self.0.get_or_init(|| (0..file_size.div_ceil(64 * PIECE)).map(|_| AtomicU64::new(0)).collect())
    }
}

impl Tables {
    /// Whether all tables together are no larger than memory.
    #[inline]
    fn fit_in_memory(&self) -> bool {
        self.bytes.load(Ordering::Relaxed) <= self.memory
    }
}

impl Table {
    /// Whether what lies around this place should be loaded when it is not in memory.
    #[inline]
    pub(crate) fn may_warm(&self, offset: u64) -> bool {
        let piece = offset / PIECE;
        let bits = || self.warm.bits(self.file_size()).get((piece / 64) as usize);
        self.tables().fit_in_memory()
            && bits().is_some_and(|bits| bits.load(Ordering::Relaxed) & 1 << (piece % 64) == 0)
    }

    /// Has the operating system load what lies around this place, if nobody has yet.
    #[cold]
    pub(crate) fn warm(&self, offset: u64) {
        let piece = offset / PIECE;
        let Some(bits) = self.warm.bits(self.file_size()).get((piece / 64) as usize) else { return };
        let bit = 1 << (piece % 64);
        if bits.fetch_or(bit, Ordering::Relaxed) & bit == 0 {
            self.load(piece * PIECE, PIECE);
        }
    }
}
