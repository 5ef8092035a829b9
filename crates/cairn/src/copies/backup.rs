//! Backups: a generation of a [`backup::Store`] with the files of one moment.

use super::moment::Part;
use super::new_directory::check_apart;
use crate::state::DbInner;
use crate::types::{BackupGeneration, BackupOptions, CopyProgress};
use backup::{Added, Generation, NewGeneration, SourceFile, Store};
use base::{Error, Result};
use record::SegmentReader;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;
use tree::LiveTable;

impl DbInner {
    /// See `Database::backup_with`.
    pub(crate) fn backup(
        &self,
        dir: &Path,
        options: &BackupOptions,
        progress: &mut dyn FnMut(&CopyProgress),
    ) -> Result<BackupGeneration> {
        if options.keep == Some(0) {
            return Err(Error::invalid("keep: a backup keeps at least one generation"));
        }
        let _call = self.begin_call()?;
        let generation = self.make_generation(dir, options, progress);
        // What became obsolete meanwhile.
        self.run_pending();
        self.collect_obsolete();
        generation
    }

    fn make_generation(
        &self,
        dir: &Path,
        options: &BackupOptions,
        progress: &mut dyn FnMut(&CopyProgress),
    ) -> Result<BackupGeneration> {
        check_apart(&self.env, dir, &self.dir)?;
        let store = Store::open_or_create(&self.env, dir)?;
        let moment = self.capture()?;
        let parts = moment.parts();
        let files = parts.iter().map(|part| SourceFile { name: part.name.clone(), len: part.len }).collect();
        let mut copied = Copied {
            db: self,
            tables: moment.tables(),
            bytes_total: parts.iter().map(|part| part.len).sum(),
            parts: parts.into_iter().map(|part| (part.name.clone(), part)).collect(),
            progress,
        };
        let new = NewGeneration {
            time: self.env.wall_clock(),
            seq: moment.seq(),
            dir: self.dir.clone(),
            state: moment.state().encode(),
            files,
        };
        let generation = store.add(new, &mut copied)?;
        if let Some(keep) = options.keep {
            store.keep_newest(keep)?;
        }
        Ok(BackupGeneration::of(&generation))
    }
}

/// The files of a backup while they are copied.
struct Copied<'a> {
    db: &'a DbInner,
    tables: BTreeMap<u64, Arc<LiveTable>>,
    parts: HashMap<String, Part>,
    bytes_total: u64,
    progress: &'a mut dyn FnMut(&CopyProgress),
}

impl Added for Copied<'_> {
    /// Reads the file with all its checksums: a damaged one must not replace what an older generation has.
    fn check(&mut self, file: &SourceFile) -> Result<()> {
        let part = &self.parts[&file.name];
        let path = self.db.dir.join(&part.name);
        let Some((kind, number, len)) = part.segment() else {
            let Some(table) = part.table().and_then(|number| self.tables.get(&number)) else { return Ok(()) };
            let found = table.table.verify(&mut |_| self.db.status.check_not_closed())?;
            return match found == table.meta_of_file() {
                true => Ok(()),
                false => Err(Error::corruption(&path, 0, "the table is not the one that the manifest names")),
            };
        };
        let mut reader = SegmentReader::open(&self.db.env, &path, kind, number, len)?;
        let mut record = Vec::new();
        while reader.next(&mut record)?.is_some() {
            self.db.status.check_not_closed()?;
        }
        Ok(())
    }

    fn step(&mut self, bytes_done: u64, file: &SourceFile) -> Result<()> {
        (self.progress)(&CopyProgress { bytes_done, bytes_total: self.bytes_total, file: file.name.clone() });
        self.db.status.check_not_closed()
    }
}

impl BackupGeneration {
    pub(super) fn of(generation: &Generation) -> BackupGeneration {
        BackupGeneration {
            number: generation.number,
            time: generation.time,
            seq: generation.seq,
            source: generation.source.clone().into(),
            files: generation.files.len(),
            bytes: generation.bytes(),
            new_bytes: generation.new_bytes,
        }
    }
}
