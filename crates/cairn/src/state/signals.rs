//! What threads tell each other about work that is to be done, or is done.

use crate::sync::{AtomicBool, Condvar};
use std::sync::Arc;

/// Condition variables of the lock on [`State`](super::db_state::State), and flags that readers set without a lock.
#[derive(Default)]
pub(crate) struct Signals {
    /// Signalled when there may be something to flush, or to compact.
    pub flush_work: Condvar,
    pub compact_work: Condvar,
    /// Signalled when a job has ended.
    pub progress: Condvar,
    /// Signalled when writing ends: for threads that pause after a failure.
    pub end: Condvar,
    /// Set when the read charges of a memtable have reached its price, or tombstones on a full disk are to be flushed: the next leader
    /// or the flush thread seals the memtables.
    pub memtables_due: AtomicBool,
    /// The same for a guard or level 0 of some tree (`tree::ReadCharges`): a compaction is to be picked.
    pub trees_due: Arc<std::sync::atomic::AtomicBool>,
}

impl Signals {
    /// Wakes all threads that wait for anything. The caller holds the lock on the state.
    pub(crate) fn notify_all(&self) {
        for signal in [&self.flush_work, &self.compact_work, &self.progress, &self.end] {
            signal.notify_all();
        }
    }
}
