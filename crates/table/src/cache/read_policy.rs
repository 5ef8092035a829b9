//! The policy for data blocks that are not in the block cache: which of them it admits, and what is read beside the block.
//!
//! | rule | state | measured (`docs/adr/0015-memory-for-seeks.md`) |
//! | --- | --- | --- |
//! | [`Admission`]: a block is cached at its third recent request | one for each cache | without it, seeks take 1.1 to 1.25 times as long |
//! | [`Prefetch`]: where all tables fit in memory, the second wait in a MiB loads the MiB | one for each table | without it, reads of a database that was just opened take 1.9 to 3.0 times as long |
//! | [`ReadOn`]: a seek reads the following block along, if recent seeks were followed by steps | one for each table | without it, seeks with 50 steps take 1.4 times as long where the data exceed the memory |
//!
//! The rules count and decide; `nonblocking_read.rs` and `readahead.rs` report to them and act. All counters are hints: concurrent
//! updates may be lost.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

/// How often data blocks were requested recently: one slot for each block that fits the budget of a cache. See [`Slot`].
///
/// A block that was just read is also in the operating system's page cache, which serves a second read almost as fast, and a block
/// cached twice wastes memory. So the block cache holds blocks that are used often, and the page cache blocks that were used recently.
pub(super) struct Admission(Box<[AtomicU32]>);

impl Admission {
    /// For a cache of `blocks` blocks.
    pub(super) fn new(blocks: u64) -> Admission {
        Admission((0..blocks.clamp(1, 1 << 24)).map(|_| AtomicU32::new(0)).collect())
    }

    /// Counts a request of the block whose key has this hash. Returns whether it is to be cached.
    #[inline]
    pub(super) fn admits(&self, hash: u64) -> bool {
        let place = &self.0[((u128::from(hash) * self.0.len() as u128) >> 64) as usize];
        let slot = Slot(place.load(Ordering::Relaxed)).then(hash);
        // An admitted block frees its slot.
        place.store(slot.map_or(0, |slot| slot.0), Ordering::Relaxed);
        slot.is_none()
    }
}

/// The content of a slot: the fingerprint of one block's key, and a count. A request of this block adds two; a request of another block
/// that maps to the slot takes one off, and takes the slot over when the count is 0. So few of many equally hot blocks that share a slot
/// are admitted (of seven: at one miss in fifty), but two blocks that are requested alternately are both admitted.
#[derive(Clone, Copy)]
struct Slot(u32);

impl Slot {
    const COUNT: u32 = 0xf;
    /// What a request adds, and the count that admits a block: its third request, with at most one of another block in between.
    const USE: u32 = 2;
    const ENOUGH: u32 = 5;

    /// The slot after a request of the block with this hash; `None` when the block is admitted.
    fn then(self, hash: u64) -> Option<Slot> {
        let print = hash as u32 & !Self::COUNT;
        let own = self.0 & !Self::COUNT == print;
        match self.0 & Self::COUNT {
            count if own && count + Self::USE >= Self::ENOUGH => None,
            count if own => Some(Slot(print | (count + Self::USE))),
            0 => Some(Slot(print | Self::USE)),
            _ => Some(Slot(self.0 - 1)),
        }
    }
}

/// The number of waits for the disk in each piece of a table, up to [`WAITS`].
///
/// A block that is read from a fast disk costs 60 to 100 microseconds, a block from the page cache one or two. Where all tables of a
/// database fit into the memory that the process may use, all of them could be cached. After an open, and after compactions, whose
/// reads and writes evict pages, some are not, and reads would load them block by block, each with a wait. So the second wait in a
/// piece makes the operating system load it, once in the life of the table. Where the tables do not fit, nothing is prefetched: it
/// would evict pages that are needed more.
#[derive(Default)]
pub(crate) struct Prefetch(OnceLock<Box<[AtomicU8]>>);

/// Bytes of a piece: the unit of counting and loading.
pub(crate) const PIECE: u64 = 1 << 20;

/// Waits in a piece after which it is loaded. One wait may be a single random read.
const WAITS: u8 = 2;

impl Prefetch {
    /// The count of the piece at `offset`.
    #[inline]
    fn waits(&self, file_size: u64, offset: u64) -> Option<&AtomicU8> {
        let pieces = || (0..file_size.div_ceil(PIECE)).map(|_| AtomicU8::new(0)).collect();
        self.0.get_or_init(pieces).get((offset / PIECE) as usize)
    }

    /// Whether the piece at `offset` was not loaded yet, so that a wait there is to be reported. Ask only where the tables fit.
    #[inline]
    pub(crate) fn counts(&self, file_size: u64, offset: u64) -> bool {
        self.waits(file_size, offset).is_some_and(|waits| waits.load(Ordering::Relaxed) < WAITS)
    }

    /// Counts a wait for a block at `offset`. Returns the offset of the piece to load, at its second wait.
    #[cold]
    pub(crate) fn note_waited(&self, file_size: u64, offset: u64) -> Option<u64> {
        let one_more = |waits: u8| (waits < WAITS).then_some(waits + 1);
        let waits = self.waits(file_size, offset)?;
        let before = waits.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more);
        (before == Ok(WAITS - 1)).then_some(offset / PIECE * PIECE)
    }
}

/// How often recent seeks in a table were followed by a step to the next block: from 0 to [`MAX_WALKED`].
#[derive(Default)]
pub(crate) struct ReadOn(AtomicU8);

/// Maximum of the count. From half of it on, a seek reads the next block along.
const MAX_WALKED: u8 = 8;

impl ReadOn {
    /// Counts whether a seek that had to read its block was followed by a step to the next one.
    #[inline]
    pub(crate) fn note(&self, walked: bool) {
        let before = self.0.load(Ordering::Relaxed);
        let after = if walked { (before + 1).min(MAX_WALKED) } else { before.saturating_sub(1) };
        // Avoids writing a shared cache line when nothing changes.
        if after != before {
            self.0.store(after, Ordering::Relaxed);
        }
    }

    /// Whether a seek is likely to be followed by a step to the next block, judging by recent ones.
    #[inline]
    pub(crate) fn is_likely(&self) -> bool {
        self.0.load(Ordering::Relaxed) >= MAX_WALKED / 2
    }
}
