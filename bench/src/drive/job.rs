//! The input of a run of one workload, and the counts of its operations.

use crate::engine::{Engine, Error, Result};
use crate::generate::{Shape, Shuffle, Values, is_value};
use crate::workload::{Rates, Workload};
use std::hint::black_box;
use std::time::Duration;

/// One of this many values read is compared completely with the value written.
const VERIFY_EVERY: u64 = 64;

/// A workload with all its parameters.
pub struct Job<'a> {
    /// The engine.
    pub engine: &'a dyn Engine,
    /// The workload.
    pub workload: Workload,
    /// Seed of all random choices of this run.
    pub seed: u64,
    /// Seed of the threads that write beside readers. With the seed of an earlier `overwrite`, they do not change
    /// the content of the database.
    pub writer_seed: u64,
    /// Number of operations of all threads.
    pub ops: u64,
    /// First key number ...
    pub first: u64,
    /// ... and end of the key numbers (exclusive).
    pub num: u64,
    /// The existing keys, if a `fillrandom` was cut short: this many from the start of a permutation.
    pub present: Option<(Shuffle, u64)>,
    /// First number of new keys.
    pub insert_from: u64,
    /// How numbers map to keys.
    pub shape: Shape,
    /// Length of a key in bytes.
    pub key_size: usize,
    /// The values to put.
    pub values: &'a Values,
    /// Entries that a seek reads after the first.
    pub seek_nexts: u64,
    /// Threads that share the operations.
    pub threads: usize,
    /// Threads that write beside them, in `readwhilewriting`.
    pub writers: usize,
    /// The schedule of a history.
    pub rates: Option<Rates>,
    /// Whether each write is synced.
    pub sync: bool,
    /// Time limit; the run is cut short after it.
    pub time_max: Option<Duration>,
    /// The length of all files of the database now.
    pub space: &'a (dyn Fn() -> u64 + Sync),
    /// Length of a sample interval.
    pub sample: Duration,
}

/// Counts of operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Operations.
    pub ops: u64,
    /// Reads that found their key.
    pub found: u64,
    /// Bytes of keys and values put, and of keys deleted.
    pub bytes_put: u64,
    /// Bytes of keys and values returned by reads.
    pub bytes_got: u64,
    /// Values compared with the written ones.
    pub verified: u64,
    /// Operations sampled for disk reads.
    pub probed: u64,
    /// Sampled operations whose thread read from the disk.
    pub from_disk: u64,
    /// Conflicts that transactions have met.
    pub conflicts: u64,
}

impl Tally {
    /// Adds the counts of another thread.
    pub(crate) fn add(&mut self, other: &Tally) {
        self.ops += other.ops;
        self.found += other.found;
        self.bytes_put += other.bytes_put;
        self.bytes_got += other.bytes_got;
        self.verified += other.verified;
        self.probed += other.probed;
        self.from_disk += other.from_disk;
        self.conflicts += other.conflicts;
    }

    /// Counts an entry that was read. Verifies the value of one in [`VERIFY_EVERY`] operations.
    #[inline]
    pub(crate) fn got(&mut self, op: u64, key: &[u8], value: &[u8]) -> Result<()> {
        self.bytes_got += (key.len() + value.len()) as u64;
        black_box(value);
        if op.is_multiple_of(VERIFY_EVERY) {
            self.verified += 1;
            if !is_value(value) {
                return Err(Error::corruption(format!(
                    "the value of {:?} is not one that was written",
                    key.escape_ascii().to_string()
                )));
            }
        }
        Ok(())
    }
}
