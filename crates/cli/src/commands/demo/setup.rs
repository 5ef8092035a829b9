//! What both processes of the demonstration use: the options of its database, and random numbers from a seed.

use crate::failure::Result;
use cairn::{Database, KeyspaceOptions, Options};
use std::path::Path;

/// Small memtables and guards, so that two megabytes of data fill several levels.
pub fn small_scale() -> KeyspaceOptions {
    KeyspaceOptions::default()
        .memtable_bytes(128 << 10)
        .levels(3)
        .top_level_bits(12)
        .bit_decrement(3)
        .max_tables_per_guard(2)
        .guards_by_size(false)
        .skip_levels(false)
}

/// Opens the database of the demonstration; creates it if it is missing.
pub fn open(dir: &Path) -> Result<Database> {
    Ok(Database::open_with(dir, Options::default().memory_budget(32 << 20))?)
}

/// Pseudo-random numbers (SplitMix64).
pub struct Random(pub u64);

impl Random {
    /// The next number.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `limit`, which must not be 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}
