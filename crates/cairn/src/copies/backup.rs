//! Backups: a generation of a [`backup::Store`] with the files of one moment.

use super::moment::{Part, PartKind};
use super::new_directory::{check_apart, of_copy, of_part};
use crate::events;
use crate::parts::RateLimiter;
use crate::state::DbInner;
use crate::types::{BackupGeneration, BackupOptions, CopyProgress};
use backup::{Added, Generation, NewGeneration, SourceFile, Store};
use base::{Error, Result};
use record::{SegmentKind, SegmentReader, salvage};
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
        self.copying(|| self.make_generation(dir, options, progress))
    }

    fn make_generation(
        &self,
        dir: &Path,
        options: &BackupOptions,
        progress: &mut dyn FnMut(&CopyProgress),
    ) -> Result<BackupGeneration> {
        check_apart(&self.env, dir, &self.dir)?;
        let store = Store::open_or_create(&self.env, dir).map_err(of_copy)?;
        let moment = self.moment_to_copy()?;
        let parts = moment.parts();
        let files = parts.iter().map(|part| SourceFile { name: part.name.clone(), len: part.len }).collect();
        let mut copied = Copied {
            db: self,
            tables: moment.tables(),
            bytes_total: parts.iter().map(|part| part.len).sum(),
            done: 0,
            parts: parts.into_iter().map(|part| (part.name.clone(), part)).collect(),
            progress: &mut *progress,
            limiter: RateLimiter::new(options.rate),
            copying: None,
        };
        let new = NewGeneration {
            time: self.env.wall_clock(),
            seq: moment.seq(),
            dir: self.dir.clone(),
            state: moment.state().encode(),
            files,
        };
        let generation = store.add(new, &mut copied).map_err(of_copy)?;
        let bytes_total = copied.bytes_total;
        progress(&CopyProgress { bytes_done: bytes_total, bytes_total, file: String::new() });
        if let Some(keep) = options.keep {
            store.keep_newest(keep)?;
        }
        let made = BackupGeneration::of(&generation);
        events::info!(to = %dir.display(), generation = made.number, seq = made.seq, files = made.files, "backup");
        Ok(made)
    }
}

/// The files of a backup while they are copied.
struct Copied<'a> {
    db: &'a DbInner,
    tables: BTreeMap<u64, Arc<LiveTable>>,
    parts: HashMap<String, Part>,
    bytes_total: u64,
    /// Bytes of them that are there.
    done: u64,
    progress: &'a mut dyn FnMut(&CopyProgress),
    limiter: RateLimiter,
    /// The file that is copied, and is not one that an earlier generation has.
    copying: Option<String>,
}

impl Added for Copied<'_> {
    /// Reads the file with all its checksums: a damaged one must not replace what an older generation has.
    fn check(&mut self, file: &SourceFile) -> Result<()> {
        let part = &self.parts[&file.name];
        let path = self.db.dir.join(&part.name);
        self.verify(part, &path).map_err(|e| of_part(e, &path))?;
        self.copying = Some(file.name.clone());
        Ok(())
    }

    fn copied(&mut self) -> Result<()> {
        self.db.check_copied()
    }

    fn step(&mut self, bytes_done: u64, file: &SourceFile) -> Result<()> {
        (self.progress)(&CopyProgress { bytes_done, bytes_total: self.bytes_total, file: file.name.clone() });
        let bytes = bytes_done - std::mem::replace(&mut self.done, bytes_done);
        let is_copied = self.copying.as_ref() == Some(&file.name);
        self.go_on(if is_copied { bytes } else { 0 })
    }
}

impl Copied<'_> {
    /// So many bytes more were read: waits until their time. Fails once the database is closed.
    fn go_on(&self, bytes: u64) -> Result<()> {
        let closed = || self.db.status.check_not_closed();
        self.limiter.take(&*self.db.env, bytes, || closed().is_err());
        closed()
    }

    fn verify(&self, part: &Part, path: &Path) -> Result<()> {
        match part.kind {
            PartKind::Table(number) => {
                let Some(table) = self.tables.get(&number) else { return Ok(()) };
                let mut before = 0;
                let found = table.table.verify(&mut |done| {
                    let bytes = done.saturating_sub(std::mem::replace(&mut before, done));
                    self.go_on(bytes)
                })?;
                match table.is_described_by(&found) {
                    true => Ok(()),
                    false => {
                        Err(Error::corruption(path, 0, "the table is not the one that the manifest names"))
                    }
                }
            }
            PartKind::Values(number) => self.verify_segment(SegmentKind::Values, number, part.len, path),
            PartKind::Hints(number) => self.verify_segment(SegmentKind::Hints, number, part.len, path),
            PartKind::Log(number) => self.verify_segment(SegmentKind::Wal, number, part.len, path),
            // Where its records end is not known: what is damaged and comes before intact ones was there.
            PartKind::Segment(number) => {
                let each = &mut |_, record: &[u8]| self.go_on(record.len() as u64);
                let found = salvage(&self.db.env, path, SegmentKind::Wal, number, each)?;
                let gap = found.gaps.iter().find(|(_, to)| *to < found.end);
                match gap.map(|(from, _)| *from).or(found.header.is_none().then_some(0)) {
                    None => Ok(()),
                    Some(from) => {
                        Err(Error::corruption(path, from, "the log is damaged before other records"))
                    }
                }
            }
        }
    }

    /// Reads a segment of which all bytes are known to be written.
    fn verify_segment(&self, kind: SegmentKind, number: u64, len: u64, path: &Path) -> Result<()> {
        let mut reader = SegmentReader::open(&self.db.env, path, kind, number, Some(len))?;
        let mut record = Vec::new();
        while reader.next(&mut record)?.is_some() {
            self.go_on(record.len() as u64)?;
        }
        Ok(())
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
