//! Attaches the tables of a bulk load: the entries get their sequence number, and become durable and visible as a whole.
//!
//! The number is the next one after everything that was written before, so the tables must come above all of that. What is in memory is therefore
//! flushed first: once while writers go on, and what was written meanwhile by the holder of the writer, who also begins a log. So, as for a
//! flush, tables have only what was committed before the log was switched: a checkpoint relies on this (`copies/moment.rs`). The log before is synced:
//! the load is durable, and so must be everything before it.

use crate::state::{DbInner, FlushedCounts, KeyspaceInner, State, Writer};
use crate::wal::LogSync;
use base::planted::{Bug, planted};
use base::{Error, ErrorKind, Result, Seq, Time};
use std::sync::Arc;
use std::time::Duration;
use table::TableMeta;
use tree::{DatabaseEdit, JobOutput, VersionEdit};

/// How long a thread that waits for a flush of another one sleeps at most.
const PAUSE: Duration = Duration::from_millis(50);

/// The tables of one keyspace.
pub(super) struct Built {
    pub keyspace: Arc<KeyspaceInner>,
    /// In the order of their keys. All entries of a table have one sequence number in its file.
    pub output: JobOutput,
    /// With history: the earliest and the latest time of its versions. Loads that were joined have times of their own.
    pub times: Option<(Time, Time)>,
    pub user_bytes: u64,
}

impl Built {
    /// The tables when their entries have the sequence number `seq`.
    fn tables_at(&self, seq: Seq) -> impl Iterator<Item = TableMeta> {
        let shifted = move |meta: &TableMeta| meta.clone().shifted(seq - meta.max_seq);
        self.output.added.iter().map(move |meta| shifted(meta).expect("it becomes `seq`"))
    }

    /// Checks that no version of a keyspace with history is as late as these, which get a later sequence number. Holds as long as the caller has the writer.
    ///
    /// # Errors
    /// `Conflict`.
    fn check_times(&self) -> Result<()> {
        match self.times {
            Some((earliest, _))
                if self.keyspace.has_versions_at(earliest) && !planted(Bug::AttachBelowVersions) =>
            {
                let what = "keeps its versions by time, and was written to, or was to be, since the bulk load began there: load again";
                Err(Error::new(ErrorKind::Conflict, format!("keyspace {:?} {what}", self.keyspace.name())))
            }
            _ => Ok(()),
        }
    }
}

impl DbInner {
    /// Attaches the tables, whose files are synced. Returns their sequence number. They are removed if this fails, unless it is not known
    /// whether the manifest has them.
    ///
    /// # Errors
    /// `Closed` if a keyspace was dropped; `Conflict` if one with history was written to; those of flushes and of the manifest.
    pub(super) fn attach(&self, parts: &[Built]) -> Result<Seq> {
        let attached = self.try_attach(parts);
        if attached.is_err() {
            parts.iter().for_each(|part| self.discard(&part.output.added));
        }
        attached
    }

    fn try_attach(&self, parts: &[Built]) -> Result<Seq> {
        // Establishing a log syncs the directory, too, but for another purpose.
        let synced = self.env.sync_dir(&self.dir).map_err(|e| e.sync_failed());
        synced.map_err(|e| self.poison_on_sync_error(e))?;
        let keyspaces: Vec<_> = parts.iter().map(|part| part.keyspace.clone()).collect();
        // Most of what is in memory, while writers go on.
        self.flush_keyspaces(&keyspaces)?;
        let synced = self.logs.closed.sync_up_to(Seq::MAX, &self.logs.counters, LogSync::InPortions);
        synced.map_err(|e| self.stop(&e))?;
        let mut writer = self.writer();
        self.status.check_running()?;
        keyspaces.iter().try_for_each(|keyspace| keyspace.check_open())?;
        parts.iter().try_for_each(Built::check_times)?;
        let beside = planted(Bug::AttachBesideMemtables);
        // Tables have only what was committed before a log was begun.
        if !beside && !self.flush_held(&mut writer, &keyspaces)? {
            self.free_logs(&mut writer)?;
        }
        if !planted(Bug::AttachBeforeLogSync) {
            self.sync_log(&mut writer)?;
        }
        let seq = self.log_attach(&mut writer, parts)?;
        drop(writer);
        self.signals.compact_work.notify_all();
        self.run_pending();
        self.collect_obsolete();
        Ok(seq)
    }

    /// Flushes what some keyspaces have in memory. The caller holds the writer: they have nothing there on return. Returns whether they had, and
    /// a log was begun.
    pub(crate) fn flush_held(&self, writer: &mut Writer, keyspaces: &[Arc<KeyspaceInner>]) -> Result<bool> {
        self.await_inserts(writer);
        let has_entries = |keyspace: &Arc<KeyspaceInner>| !keyspace.read_state.load().memtable.is_empty();
        let switches = keyspaces.iter().any(has_entries);
        // An empty memtable is replaced, too: what reads find in it next comes after the load.
        self.seal(writer, keyspaces)?;
        let is_flushed = |state: &State| {
            let of = |keyspace: &Arc<KeyspaceInner>| state.keyspaces.get(&keyspace.id);
            keyspaces.iter().filter_map(of).all(|k| k.immutable.is_empty())
        };
        // Not by waiting for background threads alone: there may be none, and they may be flushing others first.
        loop {
            if is_flushed(&self.state.lock()) {
                return Ok(switches);
            }
            if self.status.ends() {
                return Err(self.status.stop_reason());
            }
            if let Some(job) = self.next_flush() {
                let flushed = self.run_flush(job);
                // An error may be another keyspace's.
                if !is_flushed(&self.state.lock()) {
                    flushed?;
                }
                continue;
            }
            let mut state = self.state.lock();
            if is_flushed(&state) {
                return Ok(switches);
            }
            if let Some(error) = &state.flush_error {
                return Err(error.clone());
            }
            self.signals.progress.wait_for(&mut state, PAUSE);
        }
    }

    /// Gives the entries the next sequence number, logs the edit, and publishes what it says. The caller holds the writer, and the keyspaces
    /// have nothing in memory.
    fn log_attach(&self, writer: &mut Writer, parts: &[Built]) -> Result<Seq> {
        let mut manifest = self.manifest.lock();
        let seq = writer.next_seq;
        let mut edit = {
            let state = self.state.lock();
            let tree = |part: &Built| Ok((part.keyspace.id, self.ingested(&state, part, seq)?));
            DatabaseEdit {
                trees: parts.iter().map(tree).collect::<Result<_>>()?,
                last_seq: seq,
                last_time: self.last_time(),
                retention_time: self.retention_time(),
                min_log: self.min_log(&state, &FlushedCounts::default()),
                closed: self.logs.closed.synced(),
                ..DatabaseEdit::default()
            }
        };
        self.log_edit(&mut manifest, &mut edit)?;
        writer.next_seq = seq + 1;
        let mut entries = 0;
        for Built { keyspace, output, times, user_bytes } in parts {
            keyspace.dead.note_ingest(seq);
            if let Some((_, latest)) = times {
                self.note_time_of_load(keyspace, *latest);
            }
            if output.added.iter().any(|meta| meta.expiry.is_some()) {
                keyspace.note_expiries();
            }
            entries += output.added.iter().map(|meta| meta.entries).sum::<u64>();
            self.counters.note_writes(0, *user_bytes);
        }
        self.counters.note_writes(entries, 0);
        self.apply(&edit.trees, &FlushedCounts::default())?;
        self.visible.publish(seq, seq);
        self.update_slowdown(&self.state.lock());
        self.renew_manifest(&mut manifest);
        Ok(seq)
    }

    fn ingested(&self, state: &State, part: &Built, seq: Seq) -> Result<VersionEdit> {
        let keyspace = state.keyspaces.get(&part.keyspace.id);
        let tree = &keyspace.ok_or_else(|| dropped(&part.keyspace))?.tree;
        let tables: Result<Vec<_>> = part.tables_at(seq).map(|meta| self.tables.open(&meta)).collect();
        Ok(tree.install_ingested(&tables?, &part.output, seq))
    }
}

fn dropped(keyspace: &KeyspaceInner) -> Error {
    keyspace.check_open().err().unwrap_or_else(|| Error::invalid("the keyspace is not open"))
}
