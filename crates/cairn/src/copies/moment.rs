//! [`Moment`]: a moment of an open database, with the files that have its content.

use crate::state::{DbInner, FlushedCounts, KeyspaceState};
use crate::wal::{ListedLogs, log_file_name};
use base::planted::{Bug, planted};
use base::{Result, Seq};
use hashlog::hint_file_name;
use std::collections::BTreeMap;
use std::sync::Arc;
use table::table_file_name;
use tree::{DatabaseEdit, LiveTable, Version, tables_of};
use values::{Walk, value_file_name};

/// A file that is part of a copy.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub name: String,
    /// Bytes of it that are needed.
    pub len: u64,
    pub kind: PartKind,
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

/// A moment between two commits. None of its files is removed or changed while it lives.
pub(super) struct Moment {
    /// Keeps logs, value files and hint files.
    _walk: Walk,
    /// Keep tables. By keyspace.
    versions: Vec<(u64, Arc<Version>)>,
    /// The logs that recovery needs.
    logs: ListedLogs,
    /// The logs with values of entries in tables.
    segments: Vec<LogPart>,
    /// Without the trees.
    state: DatabaseEdit,
}

struct LogPart {
    number: u64,
    len: u64,
}

impl Moment {
    /// The newest sequence number in it.
    pub(super) fn seq(&self) -> Seq {
        let in_tables = self.versions.iter().map(|(_, version)| version.flushed_seq).max();
        self.logs.last_seq().max(in_tables.unwrap_or(0))
    }

    /// The number of a manifest beside these files.
    pub(super) fn manifest_number(&self) -> u64 {
        self.state.next_file
    }

    /// The state, as the first edit of a manifest of [`Moment::manifest_number`].
    pub(super) fn state(&self) -> DatabaseEdit {
        DatabaseEdit {
            next_file: self.manifest_number() + 1,
            closed: self.logs.closed(),
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
        let table = |(number, table): (u64, Arc<LiveTable>)| Part {
            name: table_file_name(number),
            len: table.meta.file_size,
            kind: PartKind::Table(number),
        };
        let values = self.state.value_files.iter().map(|file| Part {
            name: value_file_name(file.number),
            len: file.len,
            kind: PartKind::Values(file.number),
        });
        let hints = self.state.hints.iter().map(|(_, file)| Part {
            name: hint_file_name(file.number),
            len: file.len,
            kind: PartKind::Hints(file.number),
        });
        let log = |number, len, kind| (number, Part { name: log_file_name(number), len, kind });
        let segments = self.segments.iter().map(|of| log(of.number, of.len, PartKind::Segment(of.number)));
        let mut logs: BTreeMap<u64, Part> = segments.collect();
        logs.extend(self.logs.closed().iter().map(|of| log(of.number, of.len, PartKind::Log(of.number))));
        let logs = logs.into_values();
        self.tables().into_iter().map(table).chain(values).chain(hints).chain(logs).collect()
    }
}

impl DbInner {
    /// Runs a call that makes a copy: closing waits for it, and what it has kept from being removed is removed afterwards.
    pub(super) fn copying<T>(&self, copy: impl FnOnce() -> Result<T>) -> Result<T> {
        let _call = self.begin_call()?;
        let made = copy();
        self.run_pending();
        self.collect_obsolete();
        made
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
    pub(super) fn capture(&self) -> Result<Moment> {
        // Before anything is listed: no file is removed from now on.
        let walk = self.tables.segments.begin_walk();
        self.free_logs(&mut self.writer())?;
        let early = planted(Bug::ListLogsBeforeTables).then(|| self.list_logs_early());
        let moment = {
            // Edits are made and installed under this lock.
            let manifest = self.manifest.lock();
            let state = self.state.lock();
            let mut logs = early.unwrap_or_else(|| self.logs.closed.list());
            let min_log = self.min_log(&state, &FlushedCounts::default());
            logs.keep_from(min_log);
            // If recovery needs none, the manifest names none, as that of a new database.
            let newest_log = logs.closed().last().map_or(0, |log| log.number);
            let edit = DatabaseEdit { newest_log, min_log, ..self.state_without_trees(&state) };
            let version = |(id, k): (&u64, &KeyspaceState)| (*id, k.tree.version().clone());
            let versions = state.keyspaces.iter().map(version).collect();
            drop(state);
            // A compaction that is installed later may leave tables of these versions, and their segments, without another holder.
            let segments = self.segment_logs()?;
            drop(manifest);
            Moment { _walk: walk, versions, logs, segments, state: edit }
        };
        // Without a lock: with many bytes that are not synced this takes a while.
        let synced = match planted(Bug::CopyUnsyncedLogs) {
            true => Ok(()),
            false => moment.logs.sync(&self.logs.counters),
        };
        synced.map_err(|e| self.poison_on_sync_error(e.sync_failed()))?;
        self.status.check_running()?;
        Ok(moment)
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
