//! Loading tables where memory suffices for all of them.
//!
//! A block that has to be read from the disk costs many times as much as one that the operating system has in its page cache:
//! with a fast disk 60 to 100 microseconds in place of one or two. Where the tables of a database together are no larger than the memory that the process may use, all of them could be there; but after
//! compactions, whose reads and writes push pages out, and after opening, some are not, and reads of single blocks would bring them
//! back one at a time, each with a wait of its own. So who waits for a second block of a MiB has the operating system load all of
//! it, once in the life of the table. Where the tables are larger than memory, nothing is loaded that nobody asked for: it would
//! push out what is needed more.

use crate::cache::table_cache::{TableCache, TableFile};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes that are loaded at a time.
pub(crate) const PIECE: u64 = 1 << 20;

/// Waits in a piece that have it loaded: who waits there a second time is not just passing.
const WAITS: u64 = 2;

/// Pieces that a word has the counts of, and bits of a count.
const COUNTS: u64 = 32;
const BITS: u64 = 2;

/// For each piece of a table, how many times somebody has waited in it, up to [`WAITS`].
#[derive(Default)]
pub(crate) struct Prefetcher(OnceLock<Box<[AtomicU64]>>);

impl Prefetcher {
    /// The word with the count of the piece at this place, and where in it that is.
    #[inline]
    fn count(&self, file_size: u64, offset: u64) -> Option<(&AtomicU64, u64)> {
        let words = || (0..file_size.div_ceil(COUNTS * PIECE)).map(|_| AtomicU64::new(0)).collect();
        let piece = offset / PIECE;
        let word = self.0.get_or_init(words).get((piece / COUNTS) as usize)?;
        Some((word, piece % COUNTS * BITS))
    }

    /// Whether a wait at this place would be one to be noted.
    #[inline]
    pub(crate) fn may_warm(&self, tables: &TableCache, file: &TableFile, offset: u64) -> bool {
        tables.bytes.load(Ordering::Relaxed) <= tables.memory
            && (self.count(file.size, offset))
                .is_some_and(|(word, shift)| count_in(word.load(Ordering::Relaxed), shift) < WAITS)
    }

    /// Somebody has waited for a block at this place. Has the operating system load what lies around it, if he was not the first, and that fits in
    /// memory beside what the block cache holds.
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
