//! Prefetching of tables, where the memory suffices for all of them.
//!
//! A block that is read from a fast disk costs 60 to 100 microseconds, a block from the page cache one or two. Where all tables of a
//! database fit into the memory that the process may use, all of them could be cached. After an open, and after compactions, whose
//! reads and writes evict pages, some are not, and reads would load them block by block, each with a wait. So the second wait in a MiB
//! of a table makes the operating system load this MiB, once in the life of the table. Where the tables do not fit, nothing is
//! prefetched: it would evict pages that are needed more.
//!
//! This module counts waits and decides; `nonblocking_read.rs` reports them and starts the loading.

use crate::cache::table_cache::{TableCache, TableFile};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of a piece: the unit of counting and loading.
pub(crate) const PIECE: u64 = 1 << 20;

/// Waits in a piece after which it is loaded. One wait may be a single random read.
const WAITS: u64 = 2;

/// Counts per word, and bits per count.
const COUNTS: u64 = 32;
const BITS: u64 = 2;

/// The number of waits in each piece of a table, up to [`WAITS`].
#[derive(Default)]
pub(crate) struct Prefetcher(OnceLock<Box<[AtomicU64]>>);

impl Prefetcher {
    /// The word with the count of the piece at `offset`, and the position of the count in it.
    #[inline]
    fn count(&self, file_size: u64, offset: u64) -> Option<(&AtomicU64, u64)> {
        let words = || (0..file_size.div_ceil(COUNTS * PIECE)).map(|_| AtomicU64::new(0)).collect();
        let piece = offset / PIECE;
        let word = self.0.get_or_init(words).get((piece / COUNTS) as usize)?;
        Some((word, piece % COUNTS * BITS))
    }

    /// Whether a wait at `offset` is to be reported: the tables fit into memory, and the piece was not loaded yet.
    #[inline]
    pub(crate) fn may_warm(&self, tables: &TableCache, file: &TableFile, offset: u64) -> bool {
        tables.bytes.load(Ordering::Relaxed) <= tables.memory
            && (self.count(file.size, offset))
                .is_some_and(|(word, shift)| count_in(word.load(Ordering::Relaxed), shift) < WAITS)
    }

    /// Counts a wait for a block at `offset`. Returns the offset of the piece to load, at its second wait, if the tables fit into memory
    /// beside the block cache.
    #[cold]
    pub(crate) fn note_waited(&self, tables: &TableCache, file: &TableFile, offset: u64) -> Option<u64> {
        let (word, shift) = self.count(file.size, offset)?;
        let one_more = |word: u64| (count_in(word, shift) < WAITS).then_some(word + (1 << shift));
        let before = word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more);
        let fits = || tables.bytes.load(Ordering::Relaxed) + tables.cache.used_bytes() <= tables.memory;
        let loads = before.is_ok_and(|word| count_in(word, shift) + 1 == WAITS) && fits();
        loads.then_some(offset / PIECE * PIECE)
    }
}

fn count_in(word: u64, shift: u64) -> u64 {
    word >> shift & ((1 << BITS) - 1)
}
