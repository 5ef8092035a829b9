//! The end of a background job: its edit is applied to the trees and published to readers, and its outcome is reported to threads that
//! wait for it.

use crate::parts::surplus;
use crate::state::{DbInner, FlushedCounts, State};
use crate::sync::{MutexGuard, Ordering};
use base::planted::{Bug, planted};
use base::{Error, ErrorKind, Result};
use std::sync::Arc;

/// Slowdown per KiB and unit of debt. At a debt of 1 a write of 1 KiB waits 2 us longer, at 4 it waits 32 us: the square.
const SLOWDOWN_NANOS: f64 = 2_000.0;

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
                tracing::warn!(error = %e, "background work failed");
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
            let version = k.tree.version().clone();
            self.disk_reserve.note_tables(before, version.bytes());
            let flushed = state.take_flushed(*id, flushed.get(id).copied().unwrap_or(0));
            let charges = flushed.iter().map(|sealed| surplus(&sealed.memtable)).sum();
            let is_new =
                |t: &&Arc<tree::LiveTable>| edit.added.iter().any(|(_, m)| m.number == t.meta.number);
            if let Some(table) = version.level0.iter().find(is_new) {
                tree::charge(&table.charges, charges);
            }
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

    /// Sets the slowdown of writers: none up to a debt of 1, then with the square of the excess.
    fn update_slowdown(&self, state: &State) {
        let excess = (state.largest_debt() - 1.0).max(0.0);
        self.slowdown.store((SLOWDOWN_NANOS * excess * excess) as u64, Ordering::Relaxed);
    }
}
