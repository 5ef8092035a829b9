//! What the parent knows of its children: the reported writes of each thread, and what a child was doing when it died.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;

/// The progress of a thread.
#[derive(Clone, Copy, Default)]
pub(super) struct Progress {
    /// The last write that must have survived.
    pub promised: u64,
    /// The last write that was reported.
    pub reported: u64,
}

/// As a number of reported writes: it is not known how many there are.
pub(super) const ANY: u64 = u64::MAX - 1;

/// The progress of all threads, by number.
pub(super) type Reports = BTreeMap<u32, Progress>;

/// What children were doing when they were killed, counted over all jobs that share this.
#[derive(Debug, Default)]
pub struct KillCounts {
    /// Opening the database, before the first write.
    pub opening: AtomicU64,
    /// A flush, a compaction or a recovery, which left tables that no manifest names.
    pub tables: AtomicU64,
    /// Creating a manifest: it has a temporary name, or the old one still exists.
    pub manifests: AtomicU64,
    /// Tellers whose transfers by transactions were found, and the sum of the bank unchanged.
    pub banks: AtomicU64,
    /// Checkpoints and restored backups that were whole after kills.
    pub copies: AtomicU64,
    /// Bulk loads that were found whole in all their keyspaces.
    pub loads: AtomicU64,
    /// Moments that a reader in another process has verified.
    pub moments: AtomicU64,
    /// A chosen operation.
    pub kill_points: AtomicU64,
}
