//! Flushes: the immutable memtables of a keyspace become one table of level 0; one manifest edit adds the tables of many keyspaces.
//!
//! Order: the tables are synced, then their directory, then the older parts of the log that other keyspaces need, then one manifest edit
//! names all tables; only then are the memtables and their logs released. `docs/recovery.md` argues each step. So each table costs one
//! sync, and a flush a few more, however many tables it writes.

use super::flush_hints::FlushedHints;
use super::outcome::concerns_one;
use crate::events;
use crate::parts::WithReferences;
use crate::state::{DbInner, FlushedCounts, ImmutableMemtable, KeyspaceInner, PanicGuard};
use crate::sync::Ordering;
use crate::wal::LogSync;
use base::planted::{Bug, planted};
use base::{Cursor, Error, ErrorKind, RangeSet, Result, Seq};
use hashlog::HintFile;
use memtable::LogPlace;
use std::sync::Arc;
use std::time::Duration;
use tree::{DatabaseEdit, FoldedCursor, JobContext, JobOutput, MergeCursor};

/// Maximum number of keyspaces in a flush: the first of them waits until the last has its table.
const MAX_TABLES: usize = 256;

/// No more keyspaces are added to a flush of this many bytes.
const MAX_BYTES: u64 = 16 << 20;

/// A unit of flush work. Without parts it only frees logs that no keyspace needs.
pub(crate) struct FlushJob(Vec<Part>);

/// The part of one keyspace.
struct Part {
    keyspace: Arc<KeyspaceInner>,
    /// Oldest first.
    memtables: Vec<ImmutableMemtable>,
}

impl Part {
    fn last_seq(&self) -> Seq {
        self.memtables.last().map_or(0, |sealed| sealed.last_seq)
    }
}

/// A part whose table is written.
struct Written<'a> {
    part: &'a Part,
    flushed: JobOutput,
    /// In place of tables, if the keyspace has no order.
    hints: FlushedHints,
    time: Duration,
}

impl DbInner {
    /// Takes the immutable memtables of keyspaces, those first that hold the oldest log.
    pub(crate) fn next_flush(&self) -> Option<FlushJob> {
        let mut state = self.state.lock();
        let mut waiting: Vec<(Option<Seq>, u64)> = (state.waiting().filter(|k| !k.flushing))
            .map(|k| (k.immutable.front().and_then(|sealed| sealed.memtable.min_seq()), k.inner.id))
            .collect();
        if waiting.is_empty() && !state.logs_to_free {
            return None;
        }
        waiting.sort_unstable();
        let (mut parts, mut bytes, number) = (Vec::new(), 0, state.flush_number + 1);
        for (_, id) in waiting {
            let Some(k) = state.keyspaces.get_mut(&id) else { continue };
            let more: u64 = k.immutable.iter().map(ImmutableMemtable::bytes).sum();
            if !parts.is_empty() && (parts.len() == MAX_TABLES || bytes + more > MAX_BYTES) {
                break;
            }
            bytes += more;
            (k.flushing, k.flush_number) = (true, number);
            parts.push(Part { keyspace: k.inner.clone(), memtables: k.immutable.iter().cloned().collect() });
        }
        state.jobs += 1;
        state.flushes += 1;
        state.flush_number = number;
        state.logs_to_free = false;
        Some(FlushJob(parts))
    }

    pub(crate) fn run_flush(&self, FlushJob(parts): FlushJob) -> Result<()> {
        let _watch = PanicGuard::new(self, "a flush");
        if !parts.is_empty() {
            // At the first flush, because a database that never flushes is too small for a reserve; and before this flush needs it.
            self.disk_reserve.establish(self.log_bytes());
        }
        let mut result = self.flush_by_all_means(&parts);
        self.stop_if_sync_failed(&result);
        let mut state = self.state.lock();
        state.jobs -= 1;
        state.flushes -= 1;
        for part in &parts {
            if let Some(k) = state.keyspaces.get_mut(&part.keyspace.id) {
                k.flushing = false;
            }
        }
        if let Err(e) = &result
            && e.kind() != ErrorKind::ReadOnly
        {
            state.logs_to_free |= parts.is_empty();
            if !parts.is_empty() && parts.iter().all(|part| part.keyspace.is_dropped()) {
                // The keyspaces were dropped: the error concerns no caller any more.
                result = Ok(());
            }
        }
        self.note_outcome(state, &result, |state| &mut state.flush_error);
        result
    }

    /// Flushes; on a full disk with the space of the reserve, and then one memtable at a time: each frees space for the next, because its
    /// part of the log is removed.
    fn flush_by_all_means(&self, parts: &[Part]) -> Result<()> {
        match self.flush_parts(parts) {
            Err(e) if e.kind() == ErrorKind::NoSpace => match parts {
                [] => Err(e),
                [only] if only.memtables.len() == 1 => Err(e),
                [Part { keyspace, memtables }, ..] => {
                    let (keyspace, memtables) = (keyspace.clone(), memtables[..1].to_vec());
                    self.flush_parts(&[Part { keyspace, memtables }])
                }
            },
            flushed => flushed,
        }
    }

    /// Flushes as many parts as possible: a failed one does not prevent the others. Returns the error of the first that failed; on a full
    /// disk none if any part succeeded, because that frees space.
    fn flush_parts(&self, parts: &[Part]) -> Result<()> {
        self.check_place()?;
        let mut written = Vec::with_capacity(parts.len());
        let mut error = None;
        for part in parts {
            let admitted = match self.disk_reserve.is_spent() {
                true => self.check_flush_space(part),
                false => Ok(()),
            };
            match admitted.and_then(|()| self.disk_reserve.retry_after_freeing(|| self.write_table(part))) {
                Ok(table) => written.push(table),
                // It was dropped meanwhile, and its logs may be gone: the error concerns no caller any more, unless it concerns all.
                Err(e) if part.keyspace.is_dropped() && concerns_one(&e) => {}
                Err(e) => {
                    error.get_or_insert(e.clone());
                    if !concerns_one(&e) {
                        break;
                    }
                }
            }
        }
        let ends = |e: &Error| matches!(e.kind(), ErrorKind::ReadOnly | ErrorKind::Closed);
        let in_vain = written.is_empty() && !parts.is_empty();
        let installed = match &error {
            Some(e) if in_vain || ends(e) => Err(e.clone()),
            _ => self.install_tables(&written),
        };
        if installed.is_err() {
            let hints: Vec<_> = written.iter().flat_map(|w| w.hints.files.clone()).collect();
            let tables: Vec<_> = written.into_iter().flat_map(|w| w.flushed.added).collect();
            self.discard(&tables);
            self.discard_hints(&hints);
        }
        installed?;
        match error {
            Some(e) if e.kind() != ErrorKind::NoSpace => Err(e),
            _ => Ok(()),
        }
    }

    /// While the reserve is spent: refuses a flush that frees no log, deletes nothing, and takes more than half of the free space.
    /// Several keyspaces share a log: flushing only some of them frees nothing and would leave no room for deletes.
    fn check_flush_space(&self, part: &Part) -> Result<()> {
        if part.memtables.iter().any(|sealed| sealed.memtable.has_deletes()) {
            return Ok(());
        }
        let gives_log_back = {
            let state = self.state.lock();
            let flushed = FlushedCounts::from([(part.keyspace.id, part.memtables.len())]);
            self.min_log(&state, &flushed) > self.min_log(&state, &FlushedCounts::default())
        };
        let bytes: u64 = part.memtables.iter().map(|sealed| sealed.memtable.user_bytes()).sum();
        match self.env.free_space(&self.dir) {
            Some(free) if !gives_log_back && bytes > free / 2 => {
                let message = format!(
                    "{}: {bytes} bytes wait to be flushed, which would give no log back, and {free} are free",
                    self.dir.display()
                );
                Err(Error::new(ErrorKind::NoSpace, message))
            }
            _ => Ok(()),
        }
    }

    /// Writes and syncs the table of one keyspace, but not its directory.
    fn write_table<'a>(&self, part: &'a Part) -> Result<Written<'a>> {
        let started = self.env.monotonic();
        if let Some(log) = &part.keyspace.hash_log {
            let hints = self.write_hints(&part.keyspace, log, &part.memtables)?;
            let time = self.env.monotonic().saturating_sub(started);
            return Ok(Written { part, flushed: JobOutput::default(), hints, time });
        }
        let sets: Vec<_> = part.memtables.iter().filter_map(|s| s.memtable.ranges()).collect();
        let ranges = RangeSet::union(sets.iter().map(|set| &**set));
        // Before the readers are listed.
        let now = self.moment();
        let snapshots = self.readers_of(&part.keyspace);
        let next_number = || self.new_number();
        let context = JobContext {
            env: &self.env,
            dir: &self.dir,
            options: &part.keyspace.tree_options(),
            next_number: &next_number,
            snapshots: &snapshots,
            rate_limiter: &|_| {},
            range_tombstones: &ranges,
            inline_values: false,
            joins_values: true,
            cancelled: &self.status.cancelled,
            times: part.keyspace.times_of(),
            expired_by: self.expired_by(&part.keyspace, now, snapshots.first().copied()),
            late: true,
            filter: None,
            operator: part.keyspace.operator.as_deref(),
        };
        let cursors = part.memtables.iter().map(|s| s.memtable.cursor()).collect();
        let memtables = part.memtables.iter().map(|s| &s.memtable);
        let places: Vec<_> = memtables.flat_map(|memtable| memtable.places()).collect();
        let mut entries = MergeCursor::new(cursors, 0);
        let flushed = match context.operator {
            None => flush_entries(&part.keyspace, entries, places, &context)?,
            Some(operator) => {
                let entries = FoldedCursor::of_flush(&mut entries, operator, &context);
                flush_entries(&part.keyspace, entries, places, &context)?
            }
        };
        part.keyspace.counters.expired.fetch_add(flushed.expired, Ordering::Relaxed);
        let hints = FlushedHints::default();
        Ok(Written { part, flushed, hints, time: self.env.monotonic().saturating_sub(started) })
    }

    /// Syncs the directory of the tables and the logs that must be durable with them, and adds the tables to the manifest.
    fn install_tables(&self, written: &[Written<'_>]) -> Result<()> {
        let skips = written.len() > 1 && planted(Bug::NameTablesBeforeSync);
        let has_files = |w: &Written<'_>| !w.flushed.added.is_empty() || !w.hints.files.is_empty();
        if written.iter().any(has_files) && !skips {
            self.env.sync_dir(&self.dir).map_err(|e| e.sync_failed())?;
        }
        self.sync_older_logs(written)?;
        self.install_flush(written)?;
        for w in written {
            events::debug!(
                keyspace = w.part.keyspace.name(),
                memtables = w.part.memtables.len(),
                tables_written = w.flushed.added.len(),
                hint_files_written = w.hints.files.len(),
                bytes_written = w.flushed.bytes() + w.hints.files.iter().map(|hints| hints.len).sum::<u64>(),
                seconds = w.time.as_secs_f64(),
                "flush"
            );
            let tables = w.flushed.added.iter().map(|table| table.file_size);
            for len in tables.chain(w.hints.files.iter().map(|hints| hints.len)) {
                for counter in [&self.counters.flush, &w.part.keyspace.counters.flush] {
                    counter.lock().note(0, len, w.time);
                }
            }
        }
        Ok(())
    }

    /// Before the tables replace a part of the log, the log must be durable up to the time when the newest of the memtables was sealed,
    /// for writes that are only in memory: otherwise a power cut could keep these keyspaces' writes and lose older writes of other
    /// keyspaces, or the other parts of the same batch.
    fn sync_older_logs(&self, written: &[Written<'_>]) -> Result<()> {
        let sealed_at = written.iter().map(|w| w.part.last_seq()).max().unwrap_or(0);
        let older = self.state.lock().oldest_unflushed(&counts(written));
        // A value must be durable before a table refers to it.
        let refers_to_logs = |w: &Written<'_>| {
            !w.hints.files.is_empty() && !planted(Bug::HintBeforeLog)
                || w.flushed.added.iter().any(|meta| !meta.segments.is_empty())
        };
        let refers = !planted(Bug::ReferBeforeSync) && written.iter().any(refers_to_logs);
        if (refers || older.is_some_and(|seq| seq <= sealed_at)) && !planted(Bug::FlushWithoutOlderLogs) {
            self.logs
                .closed
                .sync_up_to(sealed_at, &self.logs.counters, LogSync::InPortions)
                .map_err(|e| self.stop(&e))?;
        }
        Ok(())
    }

    fn install_flush(&self, written: &[Written<'_>]) -> Result<()> {
        let mut manifest = self.manifest.lock();
        let (mut edit, dropped) = {
            let state = self.state.lock();
            let there = |w: &&Written<'_>| state.keyspaces.contains_key(&w.part.keyspace.id);
            let (present, dropped): (Vec<_>, Vec<_>) = written.iter().partition(there);
            let tree_edit = |w: &&Written<'_>| {
                let id = w.part.keyspace.id;
                let newest = w.part.memtables.iter().filter_map(|s| s.memtable.max_seq()).max().unwrap_or(0);
                (id, state.keyspaces[&id].tree.install_flush(&w.flushed, newest))
            };
            let edit = DatabaseEdit {
                trees: present.iter().map(tree_edit).collect(),
                hints: present.iter().flat_map(|w| hints_of(w)).collect(),
                last_seq: self.visible.newest(),
                last_time: self.last_time(),
                retention_time: self.retention_time(),
                min_log: self.min_log(&state, &counts(written)),
                closed: self.logs.closed.synced(),
                ..DatabaseEdit::default()
            };
            (edit, dropped)
        };
        if planted(Bug::RecycleBeforeEdit) {
            self.remove_logs(edit.min_log);
        }
        self.log_edit(&mut manifest, &mut edit)?;
        let counts = counts(written);
        for w in written.iter().filter(|w| !w.hints.files.is_empty() && !w.part.keyspace.is_dropped()) {
            let log = w.part.keyspace.hash_log.as_ref().expect("it has hints");
            // Before readers lose the memtables, and before their logs can be removed.
            log.add(&w.hints.files, &w.hints.slots).map_err(|e| self.stop(&e))?;
            self.tables.share(log, self.oldest_reader(&w.part.keyspace));
        }
        self.apply(&edit.trees, &counts)?;
        self.renew_manifest(&mut manifest);
        drop(manifest);
        let tables: Vec<_> = dropped.iter().flat_map(|w| w.flushed.added.clone()).collect();
        self.discard(&tables);
        let hints: Vec<_> = dropped.iter().flat_map(|w| w.hints.files.clone()).collect();
        self.discard_hints(&hints);
        self.remove_logs(edit.min_log);
        self.collect_obsolete();
        Ok(())
    }
}

/// Writes the entries of memtables, in which the log has large values at `places`.
fn flush_entries(
    keyspace: &KeyspaceInner,
    entries: impl Cursor,
    places: Vec<LogPlace>,
    context: &JobContext<'_>,
) -> Result<JobOutput> {
    let kept = keyspace.kept_by_flushes();
    match places.is_empty() {
        true => tree::flush(entries, context, kept),
        false => tree::flush(WithReferences::new(entries, keyspace.tail_len, places), context, kept),
    }
}

/// The hint files of a flush, by keyspace.
fn hints_of(written: &Written<'_>) -> Vec<(u64, HintFile)> {
    written.hints.files.iter().map(|file| (written.part.keyspace.id, file.clone())).collect()
}

/// The memtables that count as flushed when these tables are in the manifest.
fn counts(written: &[Written<'_>]) -> FlushedCounts {
    written.iter().map(|w| (w.part.keyspace.id, w.part.memtables.len())).collect()
}
