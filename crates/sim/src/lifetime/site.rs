//! Where the database of a test is, its options, and counts over many runs.

use crate::random::{Draw, Rng};
use crate::sets::PLACEMENTS;
use cairn::env::{Env, SimEnv};
use cairn::{Durability, KeyspaceOptions, Merge, Options, Preset, Retention, TableFormat};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Number of threads of an opening. The main thread closes and reopens the database.
pub const THREADS: usize = 3;

/// Counts over many runs.
#[derive(Debug, Default)]
pub struct Tally {
    /// Openings that ended while threads used them.
    pub lifetimes: AtomicU64,
    /// Calls before the close.
    pub calls: AtomicU64,
    /// Calls and moves after the close.
    pub late_calls: AtomicU64,
    /// Openings in other processes.
    pub processes: AtomicU64,
}

/// The location of a database.
pub struct Site {
    /// The disk.
    pub disk: Arc<dyn Env>,
    /// The same disk, if it is simulated.
    pub sim: Option<Arc<SimEnv>>,
    /// The directory.
    pub path: PathBuf,
    /// The program for the other process, if the disk is visible to it.
    pub program: Option<PathBuf>,
    /// Seed of the options of the shared keyspaces.
    pub seed: u64,
}

/// Small options: a few dozen writes switch memtables, logs and manifests.
pub fn options(seed: u64) -> Options {
    let mut rng = Rng::new(seed);
    Options::default()
        .memory_budget(1 << 20)
        .log_cap(64 << 10)
        .manifest_cap(*rng.pick(&[1 << 10, 1 << 10, 1 << 20]))
        .background_threads(*rng.pick(&[0, 1, 1, 2]))
        .durability(*rng.pick(&[Durability::Buffered, Durability::Os]))
        .scrub_rate(*rng.pick(&[0, 0, 0, 1 << 20]))
}

/// Options of a keyspace of one thread, which may have no order, and may have merges that keep the largest value.
pub fn own_options(rng: &mut Rng) -> KeyspaceOptions {
    let options = match rng.chance(1, 3) {
        true => KeyspaceOptions::preset(Preset::HashLog).memtable_bytes(*rng.pick(&[4 << 10, 16 << 10])),
        false => keyspace_options(rng),
    };
    options.merge(rng.pick(&[Merge::None, Merge::BytesMax]).clone())
}

/// Options of a keyspace: a few writes fill a memtable, and a few tables start a compaction.
pub fn keyspace_options(rng: &mut Rng) -> KeyspaceOptions {
    KeyspaceOptions::default()
        .memtable_bytes(*rng.pick(&[4 << 10, 8 << 10, 16 << 10]))
        .block_size(*rng.pick(&[128, 512]))
        .table_format(*rng.pick(&[TableFormat::BTree, TableFormat::BTree, TableFormat::SizeClass]))
        .levels(rng.between(1, 3))
        .level0_tables(rng.between(1, 3))
        .max_tables_per_guard(rng.between(1, 3))
        .placement(*rng.pick(&PLACEMENTS))
        .large_up_to(*rng.pick(&[0.05, 0.5]))
        .history(*rng.pick(&[Retention::None, Retention::None, Retention::All, Retention::Versions(2)]))
}
