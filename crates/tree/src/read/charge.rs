//! Read charges: what reads cost, and which compactions they make worthwhile (ADR 5).
//!
//! A cursor that searches several sorted runs of a guard, or skips deleted entries, *charges* the run that causes this: it adds a
//! number of bytes to a counter of the run, and does nothing else. The bytes are those that a compaction reads and writes in the
//! time of the additional work.
//!
//! | cost to a cursor | charge in bytes | charged run |
//! | --- | --- | --- |
//! | a seek in a guard with *r* > 1 runs | (*r* - 1) × `seek_cost`, and (*r* - 1) / *r* of the bytes read from files | the guard |
//! | a deleted entry is skipped | `seek_cost` / 8 | the guard, table of level 0 or memtable with the entry |
//! | a scan waits for a value outside of the tree | 32 × `seek_cost` | the guard or table of level 0 with the reference |
//!
//! Each run has a *price*: the bytes that the compaction or flush reads and writes that removes the cost. A run is *due* when its charges
//! have reached its price (the ski rental rule), so reads and compactions together cost at most twice the minimum.
//!
//! | run | price in bytes |
//! | --- | --- |
//! | a guard with several runs | twice its size |
//! | a guard with one run, where a compaction sheds tombstones or expired entries | twice its size, twice that of the guards below, [`JOB_COST`] |
//! | a table of level 0, with all older ones | twice their size, [`JOB_COST`] |
//! | a memtable | its size, [`JOB_COST`] |
//!
//! Values outside of the tree have a counter and a price of their own: a compaction for them (`Reason::Scans`, ADR 22) writes the values
//! into its tables.
//!
//! | run | price of its values in bytes |
//! | --- | --- |
//! | a guard | twice its size, twice the bytes of the values, 32 × `seek_cost` for each of them, [`JOB_COST`] |
//! | a table of level 0, with all older ones | the same of all of them together, [`JOB_COST`] once |
//!
//! A compaction *sheds* tombstones when it moves them down or, in the last level, drops them.
//!
//! A merge begins with no charges, and so does the table of a flushed memtable.
//!
//! `compaction/read_triggered.rs` compares charges and prices when the scheduler picks a compaction. [`ReadCharges::take_due`] tells
//! the scheduler which trees to check. The library compares memtables with their price (`crates/cairn/src/seal/due.rs`).

use crate::version::{Guard, LiveTable, ValueSum};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The fixed cost of a flush or a compaction, in bytes that it could read and write in the same time: creating and syncing files, and an
/// edit of the manifest.
pub(crate) const JOB_COST: u64 = 4 << 20;

/// The charge of one table of level 0 at which the scheduler checks level 0. The price is that of several tables
/// together: even with the maximal `level0_tables`, a check comes before the sum of their charges reaches the price.
pub(crate) const LEVEL0_CHECK: u64 = JOB_COST / 64;

/// Reading a value outside of the tree from the disk takes as long as searching so many more runs: one random read, of many in flight,
/// against the bytes that a compaction reads and writes in this time.
const RUNS_PER_VALUE: u64 = 32;

/// Longer values stay outside of the tree: reading them takes about as long from there as from a table.
pub(crate) const MAX_INLINE_LEN: u32 = 64 << 10;

/// Skipping this many deleted entries takes as long as searching one more run.
const SKIPPED_PER_RUN: u64 = 8;

/// A cursor charges deleted entries in portions of this many bytes: 61 entries at the default `seek_cost`. 61 is prime, so entries that
/// alternate between runs are charged to all of these runs.
const SKIP_PORTION: u64 = 61 * 32;

/// Adds a charge to the counter of a run. Returns the sum.
#[inline]
pub fn charge(run: &AtomicU64, bytes: u64) -> u64 {
    run.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes)
}

/// The price of a memtable with this many bytes.
pub fn flush_price(bytes: u64) -> u64 {
    bytes + JOB_COST
}

/// The costs of reads of one tree. Cursors and the scheduler share it.
#[derive(Debug, Default)]
pub struct ReadCharges {
    /// The option `seek_cost`; 0 is off.
    seek_cost: AtomicU64,
    /// Charges for skipped entries that closed cursors have left.
    uncharged: AtomicU64,
    /// A charge of the tree has reached a price since the last [`ReadCharges::take_due`].
    due: AtomicBool,
    /// The same for any tree of the database.
    any_due: Arc<AtomicBool>,
}

impl ReadCharges {
    /// `any_due` is shared by all trees of a database: a charge that may make a run due sets it.
    pub fn new(seek_cost: u32, any_due: Arc<AtomicBool>) -> Arc<ReadCharges> {
        Arc::new(ReadCharges { seek_cost: u64::from(seek_cost).into(), any_due, ..ReadCharges::default() })
    }

    /// The option `seek_cost`.
    pub(crate) fn seek_cost(&self) -> u32 {
        self.seek_cost.load(Ordering::Relaxed) as u32
    }

    /// Sets it for the reads that begin later.
    pub fn set_seek_cost(&self, seek_cost: u32) {
        self.seek_cost.store(u64::from(seek_cost), Ordering::Relaxed);
    }

    /// The charge for a value outside of the tree that a scan waits for.
    pub(crate) fn value_cost(&self) -> u64 {
        RUNS_PER_VALUE * u64::from(self.seek_cost())
    }

    /// The charge for so many skipped entries.
    pub fn of_skipped(&self, entries: u64) -> u64 {
        entries * u64::from(self.seek_cost()).div_ceil(SKIPPED_PER_RUN)
    }

    /// Whether some run may have become due since the last call. Must be called after `any_due` was reset.
    pub fn take_due(&self) -> bool {
        self.due.load(Ordering::Relaxed) && self.due.swap(false, Ordering::Relaxed)
    }

    /// Charges `run`, which is not due below `price`.
    #[inline]
    pub(crate) fn charge(&self, run: &AtomicU64, bytes: u64, price: u64) {
        if charge(run, bytes) >= price && !self.due.load(Ordering::Relaxed) {
            self.set_due();
        }
    }

    #[cold]
    fn set_due(&self) {
        self.due.store(true, Ordering::Relaxed);
        // A thread that resets this flag sees the other one.
        self.any_due.store(true, Ordering::Release);
    }

    /// Charges a seek that has searched the runs of `guard`, and read `read` bytes from files.
    #[inline]
    pub(crate) fn charge_seek(&self, guard: &Guard, read: u64) {
        let runs = guard.runs as u64;
        let seek_cost = u64::from(self.seek_cost());
        if runs > 1 && seek_cost > 0 {
            let extra = runs - 1;
            let read = if read == 0 { 0 } else { read / runs * extra };
            self.charge(&guard.charges, extra * seek_cost + read, guard.price(0));
        }
    }
}

/// The charge of one cursor for deleted entries that it has skipped and not charged yet, in bytes.
#[derive(Default)]
pub struct SkipCharge(u64);

impl SkipCharge {
    /// The cursor skips an entry. Returns the bytes to charge to the run where it stands; mostly none.
    #[inline]
    pub fn skip(&mut self, charges: &ReadCharges) -> Option<u64> {
        if self.0 == 0 && charges.uncharged.load(Ordering::Relaxed) > 0 {
            // Cursors that skip few entries are charged by the next one.
            self.0 = charges.uncharged.load(Ordering::Relaxed);
            charges.uncharged.store(0, Ordering::Relaxed);
        }
        self.0 += u64::from(charges.seek_cost()).div_ceil(SKIPPED_PER_RUN);
        (self.0 >= SKIP_PORTION).then(|| std::mem::take(&mut self.0))
    }

    /// The cursor is closed. If several cursors are closed at the same time, only the charge of the last is kept: less
    /// than a portion is lost for each.
    #[inline]
    pub fn leave(&self, charges: &ReadCharges) {
        if self.0 > 0 {
            charges.uncharged.store(self.0, Ordering::Relaxed);
        }
    }
}

/// What it costs to write values outside of the tree into tables, beside what the merge of these costs.
fn inline_cost(values: &ValueSum, seek_cost: u32) -> u64 {
    let each = RUNS_PER_VALUE * u64::from(seek_cost);
    values.bytes.saturating_mul(2).saturating_add(values.count.saturating_mul(each))
}

impl LiveTable {
    /// The part of this table in the price at which level 0 is due for its values outside of the tree.
    pub(crate) fn inline_cost(&self, seek_cost: u32) -> u64 {
        inline_cost(&self.values, seek_cost).saturating_add(2 * self.meta.file_size)
    }
}

impl Guard {
    /// The price of its values outside of the tree.
    pub(crate) fn inline_price(&self, seek_cost: u32) -> u64 {
        inline_cost(&self.values, seek_cost).saturating_add(self.merge_cost + JOB_COST)
    }

    /// Its price, with `below` bytes in the guards of the next level that a compaction may have to merge along.
    #[inline]
    pub(crate) fn price(&self, below: u64) -> u64 {
        match self.runs > 1 {
            true => self.merge_cost,
            false => self.merge_cost + 2 * below + JOB_COST,
        }
    }
}
