//! Opening on a disk without space for tables of the logs' contents: the logs stay unchanged, their entries are replayed into memory, and
//! a new log follows them. So deletes go on, and flushes as far as there is space: each frees a part of the logs.
//!
//! This needs space for a manifest and an empty log. Only logs whose length the manifest records are kept: the process that wrote them
//! has synced them, and recorded that when it closed the database. The logs after a crash may be only in the page cache, or end in a torn
//! record: they are rewritten to tables, or the database is read-only.

use super::recovery::Recovery;
use super::replayed::{Keyspaces, Spill};
use crate::state::DbInner;
use crate::wal::{KeptLog, LogEnd, LogHeader, parse_log_file_name};
use base::{Error, ErrorKind, Result, Seq};
use std::sync::Arc;
use tree::{DatabaseEdit, LogClosed};
use values::parse_value_file_name;

impl Recovery {
    /// Opens without new tables: for writing if there is space for a manifest and a log, otherwise for reading only.
    pub(super) fn open_with_little_space(
        mut self,
        mut keyspaces: Keyspaces,
        logs: &[u64],
        cause: &Error,
    ) -> Result<Arc<DbInner>> {
        let (end, kept) = self.replay_into_memory(&mut keyspaces, logs)?;
        if !kept.is_empty() {
            self.sync_what_was_found()?;
            self.kept = kept;
            match self.create_manifest(&keyspaces, end) {
                Ok(manifest) => {
                    self.parts.disk_reserve.spend(cause);
                    return self.start(keyspaces, end, manifest);
                }
                Err(e) if e.kind() == ErrorKind::NoSpace => self.kept.clear(),
                Err(e) => return Err(e),
            }
        }
        self.start_without_space(keyspaces, end, cause)
    }

    /// Replays the logs, and returns their descriptions when all of them can be kept.
    fn replay_into_memory(&self, keyspaces: &mut Keyspaces, logs: &[u64]) -> Result<(LogEnd, Vec<KeptLog>)> {
        let closed = |number: &u64| self.state.closed.get(number).map(|&len| (*number, len));
        let closed: Option<Vec<(u64, u64)>> = logs.iter().map(closed).collect();
        let mut kept: Vec<KeptLog> = closed
            .unwrap_or_default()
            .into_iter()
            .map(|(number, len)| KeptLog { number, len, last_seq: 0 })
            .collect();
        let end = self.replay(keyspaces, logs, Spill::Nowhere, &mut |record| {
            let last = record.batch.head.last_seq();
            kept.iter_mut().filter(|log| log.number >= record.number).for_each(|log| log.last_seq = last);
        })?;
        Ok((end, kept))
    }

    /// Records the kept logs and their lengths in the first edit of a new manifest.
    pub(super) fn name_kept_logs(&self, edit: &mut DatabaseEdit) {
        let Some(last) = self.kept.last() else { return };
        edit.min_log = self.state.min_log;
        edit.newest_log = last.number;
        edit.closed = self.kept.iter().map(|log| LogClosed { number: log.number, len: log.len }).collect();
    }

    /// The header of the new log.
    pub(super) fn next_header(&self, last_seq: Seq) -> LogHeader {
        let previous_len = self.kept.last().map_or(0, |log| log.len);
        LogHeader { previous_len, last_seq, previous_synced: previous_len }
    }

    /// Whether `name` is that of a log or value file with values of entries in tables.
    pub(super) fn has_values(&self, name: &str) -> bool {
        let segments = &self.parts.tables.segments;
        parse_log_file_name(name).is_some_and(|number| segments.is_held_log(number))
            || parse_value_file_name(name).is_some_and(|number| segments.uses_value_file(number))
    }

    /// Whether `name` is that of a kept log.
    pub(super) fn keeps(&self, name: &str) -> bool {
        parse_log_file_name(name).is_some_and(|number| self.kept.iter().any(|log| log.number == number))
    }
}
