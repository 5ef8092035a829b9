//! The end of a background job: its edit is applied to the trees and published to readers, and its outcome is reported to threads that
//! wait for it.

use crate::events;
use crate::state::{DbInner, FlushedCounts, State};
use crate::sync::{MutexGuard, Ordering};
use base::planted::{Bug, planted};
use base::{Error, ErrorKind, Result};

/// Slowdown per KiB, times the square of the debt above 1: a write of 1 KiB waits 2 us longer at a debt of 2, and 32 us at 5.
const SLOWDOWN_NANOS: f64 = 2_000.0;
/// The debt at which an index is full, less 1: a write of 1 KiB waits 128 us.
const INDEX_DEBT: f64 = 8.0;
/// The debt up to which compactions rest for reads.
const MAX_RESTING_DEBT: f64 = 5.0;

impl DbInner {
    /// Ends all writing after a job whose sync failed. Runs before any caller that waits for the job learns of its end, so that no later
    /// write or sync of that caller succeeds.
    pub(crate) fn stop_if_sync_failed(&self, result: &Result<()>) {
        if let Err(e) = result
            && e.kind() == ErrorKind::ReadOnly
            && !planted(Bug::StopAfterTelling)
        {
            self.stop(e);
        }
    }

    /// After a job: stores a temporary error for callers that wait, and clears it when a job of the same kind succeeds.
    pub(crate) fn note_outcome(
        &self,
        mut state: MutexGuard<'_, State>,
        result: &Result<()>,
        slot: fn(&mut State) -> &mut Option<Error>,
    ) {
        match result {
            Ok(()) => *slot(&mut state) = None,
            Err(e) if e.kind() == ErrorKind::Closed => {}
            Err(e) => {
                events::warn!(error = %e, "background work failed");
                *slot(&mut state) = Some(e.clone());
            }
        }
        self.update_slowdown(&state);
        self.signals.compact_work.notify_all();
        self.signals.progress.notify_all();
        drop(state);
        if let Err(e) = result
            && e.kind() == ErrorKind::ReadOnly
            && planted(Bug::StopAfterTelling)
        {
            self.stop(e);
        }
    }

    /// Applies a durable edit and publishes the new versions to readers. `flushed`: the memtables that they now contain. An edit that
    /// does not fit is a bug, and ends all writing.
    pub(crate) fn apply(&self, trees: &[(u64, tree::VersionEdit)], flushed: &FlushedCounts) -> Result<()> {
        let mut state = self.state.lock();
        for (id, edit) in trees {
            let Some(k) = state.keyspaces.get_mut(id) else { continue };
            let before = k.tree.version().bytes();
            if let Err(e) = k.tree.apply(edit, &mut |meta| self.tables.open(meta)) {
                drop(state);
                return Err(self.stop(&e));
            }
            self.disk_reserve.note_tables(before, k.tree.version().bytes());
            let flushed = state.take_flushed(*id, flushed.get(id).copied().unwrap_or(0));
            if !flushed.is_empty()
                && let Some(k) = state.keyspaces.get(id)
            {
                // After the read state is published without them: a cursor that sees the new generation loads the new read state.
                k.inner.generation.advance();
                k.inner.readers.look(self.env.monotonic());
                self.retired.add(flushed.iter().map(|sealed| &sealed.memtable));
            }
            state.note_change(*id);
        }
        self.signals.progress.notify_all();
        Ok(())
    }

    /// Sets the slowdown of writers, and how urgent collections are. Without background threads the writers do the work themselves, so space and
    /// the memory of indexes are no reason to slow them.
    pub(crate) fn update_slowdown(&self, state: &State) {
        let dead_values = self.dead_values.load(Ordering::Relaxed);
        let spare = if self.is_inline() { u64::MAX } else { self.options.memory_budget };
        let pressure = state.index_pressure();
        self.index_pressure.store((pressure * 1000.0) as u64, Ordering::Relaxed);
        let of_index = if self.is_inline() || pressure == 0.0 { 0.0 } else { 1.0 + INDEX_DEBT * pressure };
        let debt = state.largest_debt(dead_values, spare).max(of_index);
        self.slowdown.store(slowdown(debt), Ordering::Relaxed);
    }

    /// Whether compactions are so far behind that they do not rest for reads.
    pub(super) fn is_far_behind(&self) -> bool {
        self.slowdown.load(Ordering::Relaxed) > slowdown(MAX_RESTING_DEBT)
    }
}

/// How much longer writers wait at this debt, in nanoseconds per KiB.
fn slowdown(debt: f64) -> u64 {
    (SLOWDOWN_NANOS * (debt - 1.0).max(0.0).powi(2)) as u64
}

#[cfg(test)]
mod tests {
    use super::slowdown;

    #[test]
    fn the_slowdown_begins_at_a_debt_of_1_and_grows_with_the_square() {
        assert_eq!([0.0, 1.0, 2.0, 3.0, 5.0].map(slowdown), [0, 0, 2_000, 8_000, 32_000]);
    }
}
