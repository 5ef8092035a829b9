//! [`Manifest`]: creates, appends to and reads the file of a manifest.

use super::database_edit::DatabaseEdit;
use super::state::ManifestState;
use crate::version::LiveTable;
use base::planted::{Bug, planted};
use base::{Error, ErrorKind, Result};
use env::Env;
use record::{SegmentKind, SegmentReader, SegmentWriter};
use std::path::Path;
use std::sync::Arc;
use table::TableMeta;

/// The file name of manifest `number`.
pub fn manifest_file_name(number: u64) -> String {
    format!("manifest-{number:06}")
}

/// The number in a manifest's file name.
pub fn parse_manifest_file_name(name: &str) -> Option<u64> {
    let digits = name.strip_prefix("manifest-")?;
    let number = digits.parse().ok()?;
    (manifest_file_name(number) == name).then_some(number)
}

/// Why an edit is not in effect.
#[derive(Debug)]
pub enum ManifestError {
    /// The edit is not in the manifest. Later edits may succeed (the disk may have been full).
    Rejected(Error),
    /// The edit may or may not be in the manifest. Nothing may be written any more, and no file deleted.
    Unknown(Error),
}

/// An open manifest, to which edits are appended.
pub struct Manifest {
    writer: SegmentWriter,
    number: u64,
    snapshot_len: u64,
}

impl Manifest {
    /// Writes manifest `number`, whose first record is `state`, and makes it the valid one. The caller may remove older
    /// manifests afterwards.
    ///
    /// After `Unknown`, the next opening may find either manifest to be the valid one, so nothing may be appended to
    /// the older one.
    pub fn create(
        env: &Arc<dyn Env>,
        dir: &Path,
        number: u64,
        state: &DatabaseEdit,
    ) -> std::result::Result<Manifest, ManifestError> {
        let temporary = dir.join(format!("{}.tmp", manifest_file_name(number)));
        let write = || -> Result<SegmentWriter> {
            if env.exists(&temporary)? {
                env.remove(&temporary)?;
            }
            let mut writer = SegmentWriter::create(env, &temporary, SegmentKind::Manifest, number, &[])?;
            writer.append(&[&state.encode()])?;
            writer.flush()?;
            writer.sync().map_err(|e| e.sync_failed())?;
            Ok(writer)
        };
        let writer = write().map_err(|e| {
            // Best effort: the next opening of the database removes files with this suffix.
            let _ = env.remove(&temporary);
            match e.kind() {
                ErrorKind::ReadOnly => ManifestError::Unknown(e),
                _ => ManifestError::Rejected(e),
            }
        })?;
        let named = env.rename(&temporary, &dir.join(manifest_file_name(number)));
        let synced = |()| match planted(Bug::SkipDirectorySync) {
            true => Ok(()),
            false => env.sync_dir(dir),
        };
        named.and_then(synced).map_err(ManifestError::Unknown)?;
        let mut manifest = Manifest { snapshot_len: writer.len(), writer, number };
        manifest.mark_synced();
        Ok(manifest)
    }

    /// A manifest that refuses writes: every edit fails with `error`.
    pub fn refusing(dir: &Path, number: u64, error: Error) -> Manifest {
        let path = dir.join(manifest_file_name(number));
        let writer = SegmentWriter::refusing(&path, SegmentKind::Manifest, number, error);
        Manifest { writer, number, snapshot_len: 0 }
    }

    /// Appends an edit and makes it durable.
    pub fn log(&mut self, edit: &DatabaseEdit) -> std::result::Result<(), ManifestError> {
        let appended = self.writer.append(&[&edit.encode()]).and_then(|()| self.writer.flush());
        if let Err(e) = appended {
            self.writer.rollback(self.writer.flushed_len());
            // The writer has truncated the file, or tries again now. Only if that fails, too, is the outcome unknown.
            return Err(match self.writer.flush() {
                Ok(()) => ManifestError::Rejected(e),
                Err(_) => ManifestError::Unknown(e),
            });
        }
        self.writer.sync().map_err(ManifestError::Unknown)?;
        self.mark_synced();
        Ok(())
    }

    /// Appends the sync mark, the proof that all records before it are synced. If this fails, only the proof is
    /// missing.
    fn mark_synced(&mut self) {
        let _ = self.writer.append(&[]).and_then(|()| self.writer.flush());
    }

    /// Its number.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Its length, in bytes.
    pub fn bytes(&self) -> u64 {
        self.writer.len()
    }

    /// The number of bytes that the operating system has: all but perhaps the newest sync mark.
    pub fn flushed_len(&self) -> u64 {
        self.writer.flushed_len()
    }

    /// Reads the first `len` bytes of manifest `number`, which must have been written, and verifies that they are
    /// edits. Calls `step` with the number of bytes verified so far; an error from `step` ends the verification.
    pub fn verify(
        env: &Arc<dyn Env>,
        dir: &Path,
        number: u64,
        len: u64,
        step: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<()> {
        let path = dir.join(manifest_file_name(number));
        let mut reader = SegmentReader::open(env, &path, SegmentKind::Manifest, number, Some(len))?;
        let mut record = Vec::new();
        while let Some(span) = reader.next(&mut record)? {
            if !record.is_empty() {
                decode(&record, &path, span.start)?;
            }
            step(span.end)?;
        }
        Ok(())
    }

    /// Whether the edits exceed both `cap` bytes and the size of the state, so that a new manifest should be written.
    pub fn is_long(&self, cap: u64) -> bool {
        self.writer.len() > cap + 2 * self.snapshot_len
    }

    /// Reads manifest `number` and applies all its edits. `open` opens tables, including those that later edits remove.
    pub fn read(
        env: &Arc<dyn Env>,
        dir: &Path,
        number: u64,
        open: &mut dyn FnMut(&TableMeta) -> Result<Arc<LiveTable>>,
    ) -> Result<ManifestState> {
        ManifestReader::open(env, dir, number, open).map(|reader| reader.state)
    }
}

/// Reads a manifest, and follows one that another process appends to.
pub struct ManifestReader {
    reader: SegmentReader,
    number: u64,
    /// The sum of all edits so far.
    pub state: ManifestState,
}

impl ManifestReader {
    /// Reads manifest `number` and applies all its edits. `open` opens tables, including those that later edits remove.
    pub fn open(
        env: &Arc<dyn Env>,
        dir: &Path,
        number: u64,
        open: &mut dyn FnMut(&TableMeta) -> Result<Arc<LiveTable>>,
    ) -> Result<ManifestReader> {
        let path = dir.join(manifest_file_name(number));
        let reader = SegmentReader::open(env, &path, SegmentKind::Manifest, number, None)?;
        let mut reader = ManifestReader { reader, number, state: ManifestState::default() };
        if !reader.apply(open)? {
            // The first record was synced before the file got its name.
            return Err(Error::corruption(&path, 0, "the manifest has no valid record"));
        }
        reader.count_trees()?;
        Ok(reader)
    }

    /// Applies the edits that were appended since. Returns whether there were any. After an error the state is not to be used.
    pub fn go_on(&mut self, open: &mut dyn FnMut(&TableMeta) -> Result<Arc<LiveTable>>) -> Result<bool> {
        self.reader.go_on(u64::MAX)?;
        let has_edits = self.apply(open)?;
        // Without clones each tree adds tables of its own.
        if has_edits && self.state.shares_tables {
            self.count_trees()?;
        }
        Ok(has_edits)
    }

    fn count_trees(&self) -> Result<()> {
        self.state.count_trees().map_err(|e| e.context(self.reader.path().display()))
    }

    fn apply(&mut self, open: &mut dyn FnMut(&TableMeta) -> Result<Arc<LiveTable>>) -> Result<bool> {
        let (mut record, mut has_edits) = (Vec::new(), false);
        while let Some(span) = self.reader.next(&mut record)? {
            if record.is_empty() {
                continue; // a sync mark
            }
            let path = self.reader.path();
            let edit = decode(&record, path, span.start)?;
            self.state
                .apply(edit, open)
                .map_err(|e| e.context(format!("{}, offset {}", path.display(), span.start)))?;
            has_edits = true;
        }
        Ok(has_edits)
    }

    /// The number of the manifest.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The end of the last edit, or of a sync mark behind it.
    pub fn end(&self) -> u64 {
        self.reader.valid_len()
    }
}

fn decode(record: &[u8], path: &Path, offset: u64) -> Result<DatabaseEdit> {
    let what = "the record is not an edit that this version of Cairn can decode";
    DatabaseEdit::decode(record).ok_or_else(|| Error::corruption(path, offset, what))
}
