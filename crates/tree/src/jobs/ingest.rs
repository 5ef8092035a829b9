//! Writes the tables of a bulk load, beside the tree.
//!
//! The entries have no sequence numbers yet: in the files all have the one that was the newest when the load began. When the tables are attached,
//! they get the next one by [`TableMeta::seq_shift`], without being written again. Should the manifest be lost, what they have in the files is
//! the load as of its beginning.

use super::job::JobOutput;
use super::output::filter_options;
use crate::TreeOptions;
use crate::guards::GuardHash;
use crate::version::{Sketch, Version};
use base::{EntryKind, Result, Seq, Slice, Trailer};
use env::Env;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use table::{TableMeta, TableWriter, UnsyncedTable, table_file_name};

/// Bytes of a table, unless guards have a size of their own.
const TABLE_BYTES: u64 = 32 << 20;

/// Finished tables are synced when there are so many, over all writers of a load. The operating system writes them to the disk meanwhile, so that few bytes are left to wait
/// for, and the first of several syncs in a row writes the metadata of all of them.
const MAX_UNSYNCED: usize = 32;

/// Writes the tables of one keyspace in a bulk load. If it is dropped without [`IngestWriter::abandon`], they stay where they are, for
/// the next opening of the database to remove.
pub struct IngestWriter {
    env: Arc<dyn Env>,
    dir: PathBuf,
    options: TreeOptions,
    rule: Option<GuardHash>,
    /// The guards of the last level when the load began, ascending; those before `passed` are not after the last key.
    guards: Vec<Slice>,
    passed: usize,
    seq: Seq,
    writer: Option<TableWriter>,
    sketch: Sketch,
    unsynced: Vec<UnsyncedTable>,
    max_unsynced: usize,
    done: JobOutput,
}

impl IngestWriter {
    /// A writer of tables for the tree with this version. `seq`: the newest sequence number.
    pub fn new(
        env: &Arc<dyn Env>,
        dir: &Path,
        options: TreeOptions,
        version: &Version,
        seq: Seq,
    ) -> IngestWriter {
        let rule = GuardHash::new(&options);
        let last = version.level(version.last_level());
        IngestWriter {
            env: env.clone(),
            dir: dir.to_owned(),
            rule,
            guards: last.guards.iter().map(|guard| guard.key.clone()).collect(),
            passed: 0,
            seq,
            writer: None,
            sketch: Sketch::default(),
            unsynced: Vec::new(),
            max_unsynced: MAX_UNSYNCED,
            done: JobOutput::default(),
            options,
        }
    }

    /// Adds a value. Its key must come after the last one. `next_number` gives a new file its number.
    ///
    /// A table ends when it has the size of a guard of the last level, and at a guard if it is large enough for a file: so it can lie at a deep
    /// level.
    pub fn add(
        &mut self,
        key: &[u8],
        kind: EntryKind,
        value: &[u8],
        next_number: impl FnOnce() -> u64,
    ) -> Result<()> {
        let mut guard_passed = false;
        while self.guards.get(self.passed).is_some_and(|guard| guard[..] <= *key) {
            (self.passed, guard_passed) = (self.passed + 1, true);
        }
        let len = self.writer.as_ref().map_or(0, TableWriter::estimated_size);
        let wanted = if self.options.guard_bytes > 0 { self.options.guard_bytes } else { TABLE_BYTES };
        if len >= wanted || guard_passed && len >= self.options.min_piece_bytes {
            self.finish_table()?;
        }
        let hash = self.options.table.filter_hash(key);
        self.sketch.add(hash);
        if let Some(level) = self.rule.as_ref().and_then(|rule| rule.level(hash, key.len() + value.len()))
            && !key.is_empty()
        {
            self.done.uncommitted.push((level, Slice::copy_from(key)));
        }
        let writer = match &mut self.writer {
            Some(writer) => writer,
            None => {
                let options = filter_options(&self.options.table, true);
                let mut writer = TableWriter::create(&self.env, &self.dir, next_number(), &options)?;
                writer.append_large_pieces();
                self.writer.insert(writer)
            }
        };
        writer.add_hashed(key, hash, Trailer::new(self.seq, kind), value)
    }

    fn finish_table(&mut self) -> Result<()> {
        if let Some(writer) = self.writer.take() {
            // After an error there is no file.
            let (meta, unsynced) = writer.finish_unsynced()?;
            self.unsynced.push(unsynced);
            let sketch = std::mem::take(&mut self.sketch).finish(false);
            self.done.sketches.extend(sketch.map(|sketch| (meta.number, sketch)));
            self.done.added.push(meta);
        }
        match self.unsynced.len() >= self.max_unsynced {
            true => self.sync(),
            false => Ok(()),
        }
    }

    /// Tells the writer that it is one of `writers`, so that together they keep few files open beside one for each of them.
    pub fn share_files(&mut self, writers: usize) -> Result<()> {
        self.max_unsynced = MAX_UNSYNCED / writers;
        if self.unsynced.len() > self.max_unsynced { self.sync() } else { Ok(()) }
    }

    /// Bytes of the tables so far.
    pub fn bytes(&self) -> u64 {
        self.done.bytes() + self.writer.as_ref().map_or(0, TableWriter::estimated_size)
    }

    /// Ends the last table. The tables are durable on return, their directory entries are not.
    pub fn end(&mut self) -> Result<()> {
        self.finish_table()?;
        self.sync()
    }

    fn sync(&mut self) -> Result<()> {
        self.unsynced.drain(..).try_for_each(UnsyncedTable::sync)
    }

    /// What was written, after [`IngestWriter::end`]. It belongs to the caller now.
    pub fn into_output(self) -> JobOutput {
        debug_assert!(self.writer.is_none());
        self.done
    }

    /// Removes the tables. Best effort: the next opening of the database removes files that remain.
    pub fn abandon(self) {
        if let Some(writer) = self.writer {
            let _ = writer.abandon();
        }
        for TableMeta { number, .. } in &self.done.added {
            let _ = self.env.remove(&self.dir.join(table_file_name(*number)));
        }
    }
}
