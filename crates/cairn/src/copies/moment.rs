//! [`Moment`]: a moment of an open database, with the files that have its content. The database may be open for reading only, beside the process that
//! writes.

use super::new_directory::of_part;
use crate::state::{DbInner, FlushedCounts, KeyspaceState, MomentLogs, State, segment_of};
use crate::wal::{ListedLogs, log_file_name};
use base::planted::{Bug, planted};
use base::{Error, ErrorKind, Result, Seq};
use hashlog::hint_file_name;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use table::table_file_name;
use tree::{DatabaseEdit, LiveTable, LogClosed, Version, tables_of};
use values::{Walk, value_file_name};

/// A file that is part of a copy.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub name: String,
    /// Bytes of it that are needed.
    pub len: u64,
    pub kind: PartKind,
    /// It is durable, and no more is written to it: another name for it is a copy.
    pub is_final: bool,
}

/// The kinds of files, and their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PartKind {
    Table(u64),
    Values(u64),
    Hints(u64),
    /// A log that recovery needs, of which exactly these bytes were written.
    Log(u64),
    /// A log with values. Behind its end there may be others.
    Segment(u64),
}

/// A moment between two commits. Nothing that it has is removed or changed while it lives.
pub(super) struct Moment {
    /// Keeps logs, value files and hint files of a database that is open for writing. Those of a moment that was opened for reading stay while it is
    /// open.
    kept: Option<(Walk, ListedLogs)>,
    /// Keep tables.
    versions: Versions,
    /// The logs that recovery needs, ascending.
    logs: Vec<LogClosed>,
    /// No entry of these logs has a larger sequence number.
    last_seq: Seq,
    /// The logs with values of entries in tables.
    segments: Vec<LogPart>,
    /// Without the trees.
    state: DatabaseEdit,
}

/// Trees, by keyspace.
type Versions = Vec<(u64, Arc<Version>)>;

struct LogPart {
    number: u64,
    len: u64,
}

impl Moment {
    /// The newest sequence number in it.
    pub(super) fn seq(&self) -> Seq {
        let in_tables = self.versions.iter().map(|(_, version)| version.flushed_seq).max();
        self.last_seq.max(in_tables.unwrap_or(0))
    }

    /// The number of a manifest beside these files.
    pub(super) fn manifest_number(&self) -> u64 {
        self.state.next_file
    }

    /// The state, as the first edit of a manifest of [`Moment::manifest_number`].
    pub(super) fn state(&self) -> DatabaseEdit {
        DatabaseEdit {
            next_file: self.manifest_number() + 1,
            closed: self.logs.clone(),
            ..self.state.clone()
        }
        .with_trees(self.versions.iter().map(|(id, version)| (*id, &**version)))
    }

    /// All tables, by number.
    pub(super) fn tables(&self) -> BTreeMap<u64, Arc<LiveTable>> {
        let all = tables_of(self.versions.iter().map(|(_, version)| &**version));
        all.into_iter().map(|table| (table.meta.number, table.clone())).collect()
    }

    /// The files.
    pub(super) fn parts(&self) -> Vec<Part> {
        let part = |name, len, kind| Part { name, len, kind, is_final: true };
        let table = |(number, table): (u64, Arc<LiveTable>)| {
            part(table_file_name(number), table.meta.file_size, PartKind::Table(number))
        };
        let values = self.state.value_files.iter();
        let values =
            values.map(|file| part(value_file_name(file.number), file.len, PartKind::Values(file.number)));
        let hints = self.state.hints.iter();
        let hints =
            hints.map(|(_, file)| part(hint_file_name(file.number), file.len, PartKind::Hints(file.number)));
        let segment =
            |of: &LogPart| (of.number, part(log_file_name(of.number), of.len, PartKind::Segment(of.number)));
        let mut logs: BTreeMap<u64, Part> = self.segments.iter().map(segment).collect();
        // Of those of another process it is not known what is synced, and the last one may be written to.
        let is_final = self.kept.is_some();
        let log = |of: &LogClosed| {
            let of_log = part(log_file_name(of.number), of.len, PartKind::Log(of.number));
            (of.number, Part { is_final, ..of_log })
        };
        logs.extend(self.logs.iter().map(log));
        self.tables().into_iter().map(table).chain(values).chain(hints).chain(logs.into_values()).collect()
    }
}

impl DbInner {
    /// Runs a call that makes a copy: closing waits for it, and what it has kept from being removed is removed afterwards.
    pub(super) fn copying<T>(&self, copy: impl FnOnce() -> Result<T>) -> Result<T> {
        if self.is_moment() {
            let _call = self.begin_reading()?;
            return copy().map_err(|e| match self.taken_back() {
                // Then a log that lacks its end is no damage.
                Ok(Some(taken_back)) if e.kind() == ErrorKind::Corruption => taken_back,
                _ => e,
            });
        }
        let _call = self.begin_call()?;
        let made = copy();
        self.run_pending();
        self.collect_obsolete();
        made
    }

    /// The moment that is copied.
    pub(super) fn moment_to_copy(&self) -> Result<Moment> {
        match &self.moment {
            None => self.capture(),
            Some(logs) => self.opened_moment(logs),
        }
    }

    /// The moment as which the database was opened for reading.
    fn opened_moment(&self, read: &MomentLogs) -> Result<Moment> {
        let state = self.state.lock();
        let mut logs = read.logs.clone();
        if planted(Bug::CopyWithoutTail) {
            logs.pop();
        }
        let (versions, mut edit) = self.with_logs(&state, read.min_log, &logs);
        drop(state);
        // The tables of a moment do not hold their segments ([`Tables::open_for_moment`](crate::state::Tables::open_for_moment)), so they are collected here.
        let tables = tables_of(versions.iter().map(|(_, version)| &**version));
        let of_tables = tables.iter().flat_map(|table| table.meta.segments.iter().map(|of| of.segment));
        let of_hints = edit.hints.iter().flat_map(|(_, file)| &file.shares).map(|of| segment_of(of.file));
        let used: BTreeSet<u64> = of_tables.chain(of_hints).collect();
        // A value file that nothing refers to may have been removed: the manifest names it until a later edit.
        if !planted(Bug::CopyUnusedValues) {
            edit.value_files.retain(|file| file.segments.iter().any(|segment| used.contains(segment)));
        }
        let part = |number: u64| {
            let path = self.dir.join(log_file_name(number));
            Ok(LogPart { number, len: self.env.len(&path).map_err(|e| of_part(e, &path))? })
        };
        let segments = used.into_iter().filter(|segment| self.tables.segments.is_log(*segment));
        let segments = segments.map(part).collect::<Result<_>>()?;
        Ok(Moment { kept: None, versions, logs, last_seq: self.visible.newest(), segments, state: edit })
    }

    /// Checks, when the files were copied, that they are those of the moment.
    pub(super) fn check_copied(&self) -> Result<()> {
        self.taken_back()?.map_or(Ok(()), Err)
    }

    /// The error of a copy if the writer has taken back what the moment has: see [`MomentLogs::last_record`].
    fn taken_back(&self) -> Result<Option<Error>> {
        let Some(moment) = &self.moment else { return Ok(None) };
        let (Some(log), Some(last)) = (moment.logs.last(), moment.last_record) else { return Ok(None) };
        let path = self.dir.join(log_file_name(log.number));
        if last.is_in(&self.env, &path).map_err(|e| of_part(e, &path))? {
            return Ok(None);
        }
        let what = "the process that writes has taken back the last commit that was read, which could not be written: open the database again";
        Ok(Some(Error::new(ErrorKind::Io, format!("{}: {what}", path.display()))))
    }

    /// The trees of a state, and the rest of it with these logs. If there are none, the manifest of a copy names none, as that of a new database.
    fn with_logs(&self, state: &State, min_log: u64, logs: &[LogClosed]) -> (Versions, DatabaseEdit) {
        let newest_log = logs.last().map_or(0, |log| log.number);
        let version = |(id, k): (&u64, &KeyspaceState)| (*id, k.tree.version().clone());
        let versions = state.keyspaces.iter().map(version).collect();
        (versions, DatabaseEdit { newest_log, min_log, ..self.state_without_trees(state) })
    }

    /// Captures the present moment, or a later one before this returns. All that was acknowledged before is in it, and it is durable. Writers wait
    /// while a log is begun, as for a flush.
    ///
    /// Commits, flushes and compactions go on beside it. That changes nothing: what is in tables was in a memtable that was sealed, and with that
    /// its log was closed. So the trees and the closed logs of any moment have all commits up to the end of the last of these logs, and
    /// none of the later ones.
    ///
    /// # Errors
    /// Those of beginning a log; a failed sync ends all writing.
    fn capture(&self) -> Result<Moment> {
        // Before anything is listed: no file is removed from now on.
        let walk = self.tables.segments.begin_walk();
        self.free_logs(&mut self.writer())?;
        let early = planted(Bug::ListLogsBeforeTables).then(|| self.list_logs_early());
        let (listed, versions, segments, edit) = {
            // Edits are made and installed under this lock.
            let manifest = self.manifest.lock();
            let state = self.state.lock();
            let mut logs = early.unwrap_or_else(|| self.logs.closed.list());
            let min_log = self.min_log(&state, &FlushedCounts::default());
            logs.keep_from(min_log);
            let (versions, edit) = self.with_logs(&state, min_log, &logs.closed());
            drop(state);
            // A compaction that is installed later may leave tables of these versions, and their segments, without another holder.
            let segments = self.segment_logs()?;
            drop(manifest);
            (logs, versions, segments, edit)
        };
        // Without a lock: with many bytes that are not synced this takes a while.
        let synced = match planted(Bug::CopyUnsyncedLogs) {
            true => Ok(()),
            false => listed.sync(&self.logs.counters),
        };
        synced.map_err(|e| self.poison_on_sync_error(e.sync_failed()))?;
        self.status.check_running()?;
        let (logs, last_seq) = (listed.closed(), listed.last_seq());
        Ok(Moment { kept: Some((walk, listed)), versions, logs, last_seq, segments, state: edit })
    }

    /// The planted bug.
    fn list_logs_early(&self) -> ListedLogs {
        let logs = self.logs.closed.list();
        self.env.sleep(std::time::Duration::from_millis(1));
        let _ = self.keyspaces().first().map(|keyspace| self.flush_keyspace(keyspace));
        logs
    }

    /// The logs with values of entries in tables, or with entries that an index has.
    fn segment_logs(&self) -> Result<Vec<LogPart>> {
        let segments = &self.tables.segments;
        let part = |number| {
            // Between its release and its retirement it has no length yet, and one whose length could not be read has 0. That of the file
            // is at least as much.
            let len = match segments.log_len(number) {
                Some(len) if len > 0 => len,
                _ => self.env.len(&self.dir.join(log_file_name(number)))?,
            };
            Ok(LogPart { number, len })
        };
        segments.logs().into_iter().map(part).collect()
    }
}
