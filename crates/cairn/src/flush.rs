//! Flushing: the memtables of one keyspace that wait become one table of level 0.
//!
//! Order: the table and its directory are synced, then the older parts of the log that other keyspaces need, then the
//! manifest says so; only then do the memtables and their logs go. `docs/recovery.md` argues each step.

use crate::core::{Core, KeyspaceState, Sealed};
use crate::keyspace::KeyspaceCore;
use crate::sync::Ordering;
use crate::writer::PanicWatch;
use base::planted::{Bug, planted};
use base::{ErrorKind, RangeSet, Result, Seq};
use std::sync::Arc;
use tree::{Context, DatabaseEdit, MergeCursor};

/// What a flush has to do.
pub(crate) struct FlushJob {
    keyspace: Arc<KeyspaceCore>,
    /// Oldest first.
    memtables: Vec<Sealed>,
    rule: tree::GuardHash,
    table: table::TableOptions,
}

impl Core {
    /// Takes the memtables of one keyspace that wait to be flushed.
    pub(crate) fn next_flush(&self) -> Option<FlushJob> {
        let mut state = self.state.lock();
        let keyspace = state.keyspaces.values_mut().filter(|k| !k.busy && !k.flushing.is_empty());
        // The one that holds the oldest log first.
        let keyspace = keyspace.min_by_key(|k| k.flushing.front().and_then(|s| s.memtable.min_seq()))?;
        keyspace.busy = true;
        let job = FlushJob {
            keyspace: keyspace.core.clone(),
            memtables: keyspace.flushing.iter().cloned().collect(),
            rule: *keyspace.tree.rule(),
            table: keyspace.tree.options().table.clone(),
        };
        state.jobs += 1;
        Some(job)
    }

    pub(crate) fn run_flush(&self, mut job: FlushJob) -> Result<()> {
        let _watch = PanicWatch::new(self, "a flush");
        // Now, because a database that never gets here is too small for it, and before this flush needs it.
        self.reserve.establish(self.log_bytes());
        let mut result = self.flush_by_all_means(&mut job);
        self.stop_if_sync_failed(&result);
        let mut state = self.state.lock();
        state.jobs -= 1;
        match state.keyspaces.get_mut(&job.keyspace.id) {
            Some(k) => k.busy = false,
            // Dropped meanwhile: what failed is nobody's trouble any more, unless it was a sync.
            None if result.as_ref().is_err_and(|e| e.kind() != ErrorKind::ReadOnly) => result = Ok(()),
            None => {}
        }
        self.note_outcome(state, &result, |state| &mut state.flush_trouble);
        result
    }

    /// Flushes; on a full disk with the help of the reserve, and if that is not enough one memtable at a time: each makes room for
    /// the next, because its part of the log goes.
    fn flush_by_all_means(&self, job: &mut FlushJob) -> Result<()> {
        if self.reserve.is_spent() {
            self.check_last_room(&job.keyspace, &job.memtables)?;
        }
        match self.reserve.insist(|| self.flush_memtables(job)) {
            Err(e) if e.kind() == ErrorKind::NoSpace && job.memtables.len() > 1 => {
                job.memtables.truncate(1);
                self.flush_memtables(job)
            }
            flushed => flushed,
        }
    }

    fn flush_memtables(&self, job: &FlushJob) -> Result<()> {
        self.check_place()?;
        let started = self.env.monotonic();
        let keyspace = &job.keyspace;
        let sets: Vec<_> = job.memtables.iter().filter_map(|s| s.memtable.ranges()).collect();
        let ranges = RangeSet::union(sets.iter().map(|set| &**set));
        let snapshots = self.readers_of(keyspace);
        let next_number = || self.new_number();
        let context = Context {
            env: &self.env,
            dir: &self.dir,
            table: &job.table,
            next_number: &next_number,
            snapshots: &snapshots,
            pace: &|_| {},
            ranges: &ranges,
            cancelled: &self.cancelled,
        };
        let newest = job.memtables.iter().filter_map(|s| s.memtable.max_seq()).max().unwrap_or(0);
        let cursors = job.memtables.iter().map(|s| s.memtable.cursor()).collect();
        let flushed = tree::flush(MergeCursor::new(cursors, 0), &job.rule, &context)?;
        let installed = self
            .sync_older_logs(keyspace, job.memtables.last().map_or(0, |s| s.last_seq))
            .and_then(|()| self.install_flush(job, &flushed, newest));
        if let Some(table) = &flushed.table {
            match &installed {
                Ok(()) => keyspace.counters.flush.note(
                    0,
                    table.file_size,
                    self.env.monotonic().saturating_sub(started),
                ),
                Err(_) => self.discard(std::slice::from_ref(table)),
            }
        }
        installed
    }

    /// Before the table takes over from the log, the log must durably hold what other keyspaces wrote up to the moment when the
    /// memtable was sealed: otherwise a power cut could keep this keyspace's writes and lose older ones of others, or
    /// their parts of the same batch.
    fn sync_older_logs(&self, keyspace: &KeyspaceCore, sealed_at: Seq) -> Result<()> {
        let older = self.state.lock().oldest_unflushed(Some(keyspace.id));
        if older.is_some_and(|seq| seq <= sealed_at) && !planted(Bug::FlushWithoutOlderLogs) {
            self.closed_logs.sync_up_to(sealed_at, &self.log_counters).map_err(|e| self.stop(&e))?;
        }
        Ok(())
    }

    fn install_flush(&self, job: &FlushJob, flushed: &tree::Flushed, newest: Seq) -> Result<()> {
        let id = job.keyspace.id;
        let mut manifest = self.manifest.lock();
        let mut edit = {
            let state = self.state.lock();
            let Some(k) = state.keyspaces.get(&id) else { return self.dropped_meanwhile(flushed) };
            let min_log = self.min_log(&state, Some((id, job.memtables.len())));
            DatabaseEdit {
                trees: vec![(id, k.tree.install_flush(flushed, newest))],
                last_seq: self.visible.newest(),
                min_log,
                newest_log: self.log_counters.current.load(Ordering::Acquire),
                closed: self.closed_logs.synced(),
                ..DatabaseEdit::default()
            }
        };
        if planted(Bug::RecycleBeforeEdit) {
            self.remove_logs(edit.min_log);
        }
        self.log_edit(&mut manifest, &mut edit)?;
        self.apply(&job.keyspace, &edit.trees[0].1, job.memtables.len())?;
        self.renew_manifest(&mut manifest);
        drop(manifest);
        self.remove_logs(edit.min_log);
        self.collect_garbage();
        Ok(())
    }

    fn dropped_meanwhile(&self, flushed: &tree::Flushed) -> Result<()> {
        flushed.table.iter().for_each(|table| self.discard(std::slice::from_ref(table)));
        Ok(())
    }

    /// Flushes what is in the memtables of a keyspace, and waits for it; but not for what is written meanwhile.
    pub(crate) fn flush_keyspace(&self, keyspace: &Arc<KeyspaceCore>) -> Result<()> {
        let _call = self.begin_call()?;
        keyspace.check_open()?;
        let newest = {
            let mut writer = self.writer();
            match keyspace.view.load().memtable.is_empty() {
                true => Ok(()),
                false => self.switch_memtable(&mut writer, keyspace, 0),
            }?;
            writer.next_seq - 1
        };
        let is_flushed = |k: &KeyspaceState| k.flushing.front().is_none_or(|s| s.last_seq > newest);
        if self.is_inline() {
            self.run_pending();
        }
        self.wait_for(
            |state| state.keyspaces.get(&keyspace.id).is_none_or(is_flushed),
            |state| state.flush_trouble.clone(),
        )
    }
}
