//! Which logs are needed, and how long they are.

use crate::state::{DbInner, FlushedCounts, State};
use crate::sync::Ordering;
use base::planted::{Bug, planted};

impl DbInner {
    /// Number of the oldest log that is needed once `flushed` is in tables.
    pub(crate) fn min_log(&self, state: &State, flushed: &FlushedCounts) -> u64 {
        // Read first: concurrent writes go to this log or a newer one.
        let current = self.logs.counters.current.load(Ordering::Acquire);
        if planted(Bug::FreeLogEarly) {
            return current;
        }
        let oldest = state.oldest_unflushed(flushed);
        oldest.and_then(|seq| self.logs.closed.holding(seq)).unwrap_or(current).min(current)
    }

    /// Bytes of all needed logs.
    pub(crate) fn log_bytes(&self) -> u64 {
        self.logs.closed.bytes() + self.logs.counters.current_len.load(Ordering::Relaxed)
    }
}
