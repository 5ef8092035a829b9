//! Seals the memtables that are due although they are not full: those whose read charges have reached their price, and on a full disk
//! those with deletes, which free no space before a flush moves their tombstones into a table.
//!
//! A flush moves tombstones into a table: tables that a range tombstone hides completely are then dropped, others are compacted. On a
//! disk with free space a memtable is flushed when it is full, which is soon enough. On a full one, where puts are refused, it does not
//! fill: so memtables with tombstones are sealed while the reserve is spent.

use crate::events;
use crate::parts::is_due;
use crate::state::{DbInner, KeyspaceState, Writer};
use crate::sync::Ordering;

/// With this many immutable memtables in a keyspace, its active one is sealed only if it has a range tombstone: flushed together they may
/// shrink to nothing, where the others alone do not fit.
const MAX_WAITING: usize = 16;

impl DbInner {
    /// [`DbInner::seal_due`], unless the writer is busy: then the next group commit leader does it.
    pub(crate) fn try_seal_due(&self) {
        if self.signals.memtables_due.load(Ordering::Relaxed)
            && let Some(mut writer) = self.try_writer_briefly()
        {
            self.seal_due(&mut writer);
        }
    }

    /// Seals the memtables whose read charges have reached their price, all at once; on a full disk also those with deletes. A memtable
    /// stays active while an older one of its keyspace waits for its flush, or the memory budget has no room for its successor. The next
    /// charge sets `memtables_due` again.
    #[cold]
    pub(crate) fn seal_due(&self, writer: &mut Writer) {
        self.seal_deletes(writer);
        let keyspaces: Vec<_> = {
            let mut state = self.state.lock();
            let mut successors = 0;
            let due = |k: &&KeyspaceState| {
                let charged = k.immutable.is_empty() && is_due(&k.inner.read_state.load().memtable);
                let fits =
                    charged && !self.is_over_budget(&state, successors + k.inner.for_writes.memtable_bytes());
                successors += if fits { k.inner.for_writes.memtable_bytes() } else { 0 };
                fits
            };
            let due: Vec<_> = state.dirty().filter(due).map(|k| k.inner.clone()).collect();
            // `wait_idle` checks both under the lock.
            self.signals.memtables_due.store(false, Ordering::Release);
            if due.is_empty() {
                return;
            }
            state.jobs += 1;
            due
        };
        if let Err(e) = self.seal(writer, &keyspaces) {
            events::warn!(error = %e, memtables = keyspaces.len(), "memtables were not sealed");
            // Retried when they are due again.
            for keyspace in &keyspaces {
                keyspace.read_state.load().memtable.charges().store(0, Ordering::Relaxed);
            }
        }
        self.state.lock().jobs -= 1;
        self.signals.progress.notify_all();
    }

    /// While the reserve is spent: seals every memtable with tombstones, so that it is flushed. Returns whether there was any.
    #[cold]
    pub(crate) fn seal_deletes(&self, writer: &mut Writer) -> bool {
        if !self.disk_reserve.take_deletes() {
            return false;
        }
        // A recorded delete may still be on its way into a memtable.
        self.visible.wait_for(writer.next_seq - 1);
        let (now, later): (Vec<_>, Vec<_>) = {
            let mut state = self.state.lock();
            let with_deletes = state.dirty().filter(|k| k.inner.read_state.load().memtable.has_deletes());
            let (now, later) =
                with_deletes.map(|k| (may_seal(k), k.inner.clone())).partition(|(may, _)| *may);
            // Counted as a job, so that a thread waiting for idleness waits for it.
            state.jobs += 1;
            (now, later)
        };
        let now: Vec<_> = now.into_iter().map(|(_, keyspace)| keyspace).collect();
        let sealed = self.seal(writer, &now);
        if let Err(e) = &sealed {
            events::warn!(error = %e, "a memtable was not switched");
        }
        if sealed.is_err() || !later.is_empty() {
            self.disk_reserve.note_deletes();
        }
        self.state.lock().jobs -= 1;
        self.signals.progress.notify_all();
        !now.is_empty()
    }
}

/// Whether the active memtable of a keyspace may be added to those that wait for a flush.
fn may_seal(keyspace: &KeyspaceState) -> bool {
    let memtable = &keyspace.inner.read_state.load().memtable;
    let waiting: usize = keyspace.immutable.iter().map(|sealed| sealed.memtable.used_bytes()).sum();
    match memtable.ranges() {
        Some(_) => keyspace.immutable.len() < MAX_WAITING,
        // A memtable much smaller than the waiting ones does not help them.
        None => memtable.used_bytes() >= waiting / 8,
    }
}
