//! What the history, its crash points and the recoveries share: the database, what to try, what to print.

use crate::random::{Draw, Rng};
use crate::sets::PLACEMENTS;
use cairn::{Compression, KeyspaceOptions, Merge, Preset, Retention, TableFormat};
use std::sync::{Mutex, MutexGuard};

/// Path of the database on the simulated disk.
pub(super) const PATH: &str = "/db";

/// Which kinds of crashes are tried at one crash point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coverage {
    /// All kinds: the most that one history can show.
    EveryKind,
    /// One kind per crash point, in turn, starting with this number. Tests more histories in the same time. Runs that
    /// start with 0 to 5 together cover [`Coverage::EveryKind`].
    InTurn(u64),
}

/// What to replay and print for a finding.
#[derive(Clone, Copy, Debug, Default)]
pub struct Focus {
    /// Crash only at the operation with this index.
    pub at: Option<u64>,
    /// Print each call of the history, and each operation that changes the disk with its index.
    pub trace: bool,
}

/// Options with which a hundred writes cause many flushes and compactions.
pub(super) fn draw_options(rng: &mut Rng) -> KeyspaceOptions {
    let memtable_bytes = *rng.pick(&[4 << 10, 4 << 10, 16 << 10]);
    if rng.chance(1, 4) {
        return KeyspaceOptions::preset(Preset::HashLog).memtable_bytes(memtable_bytes);
    }
    KeyspaceOptions::default()
        .memtable_bytes(memtable_bytes)
        .block_size(*rng.pick(&[128, 1024]))
        .level0_tables(rng.between(1, 3))
        .levels(rng.between(1, 4))
        .max_tables_per_guard(rng.between(1, 4))
        .top_level_bits(rng.between(2, 5) as u32)
        .bit_decrement(1)
        .skip_levels(rng.chance(1, 2))
        .compression(*rng.pick(&[Compression::None, Compression::Lz4]))
        .table_format(*rng.pick(&[TableFormat::BTree, TableFormat::BTree, TableFormat::SizeClass]))
        .filter_bits_per_key(*rng.pick(&[0, 10]))
        .placement(*rng.pick(&PLACEMENTS))
        .large_up_to(*rng.pick(&[0.02, 0.2, 1.0]))
        .merge(rng.pick(&[Merge::None, Merge::None, Merge::Append]).clone())
        .history(*rng.pick(&[Retention::None, Retention::None, Retention::All, Retention::Versions(2)]))
}

/// Locks a mutex, even if a thread panicked while it held it: the panic is reported as a finding.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}
