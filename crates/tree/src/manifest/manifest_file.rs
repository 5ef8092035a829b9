//! The manifest: the state of the database, as a log of edits.
//!
//! A manifest is one segment. Its first record is the whole state as an edit to nothing; each further record is one
//! edit. Switching to a new manifest is atomic: it is written under a temporary name, synced and renamed, then the
//! directory is synced; only then is the old one removed. So the manifest with the highest number is the valid one.
//!
//! After every synced edit an empty record, the *sync mark*, is appended without a sync. It proves that the edit before
//! it was synced, so that damage even to the newest edit is recognised as damage and not taken for a torn tail.

use crate::version::edit::VersionEdit;
use crate::version::{LiveTable, Version};
use base::codec::{Reader, put_bytes, put_varint};
use base::limits::{MAX_BATCH_LEN, MAX_KEYSPACE_NAME_LEN, MAX_LEVELS};
use base::planted::{Bug, planted};
use base::{Error, ErrorKind, Result, Seq};
use env::Env;
use record::{SegmentKind, SegmentReader, SegmentWriter};
use std::collections::BTreeMap;
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

/// A closed log: all of it is synced, and nothing is appended to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogClosed {
    /// Its number.
    pub number: u64,
    /// Its length, in bytes.
    pub len: u64,
}

/// The creation of a keyspace.
#[derive(Clone, Debug, PartialEq)]
pub struct KeyspaceCreated {
    /// Its number, which is never reused.
    pub id: u64,
    /// Its name.
    pub name: String,
    /// The number of levels of guards of its tree.
    pub levels: usize,
    /// Its options, as names and texts.
    pub options: Vec<(String, String)>,
}

/// One edit of the whole database. Applied whole or not at all.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DatabaseEdit {
    /// Created keyspaces.
    pub created: Vec<KeyspaceCreated>,
    /// Dropped keyspaces, by number.
    pub dropped: Vec<u64>,
    /// Edits of trees, by keyspace number.
    pub trees: Vec<(u64, VersionEdit)>,
    /// File numbers below this one may be in use.
    pub next_file: u64,
    /// Keyspace numbers below this one have been used.
    pub next_keyspace: u64,
    /// Sequence numbers up to this one have been used.
    pub last_seq: Seq,
    /// Logs with smaller numbers are not needed any more.
    pub min_log: u64,
    /// The log with this number exists.
    pub newest_log: u64,
    /// Closed logs.
    pub closed: Vec<LogClosed>,
}

const TAG_CREATED: u64 = 1;
const TAG_DROPPED: u64 = 2;
const TAG_TREE: u64 = 3;
const TAG_NEXT_FILE: u64 = 4;
const TAG_NEXT_KEYSPACE: u64 = 5;
const TAG_LAST_SEQ: u64 = 6;
const TAG_MIN_LOG: u64 = 7;
const TAG_NEWEST_LOG: u64 = 8;
const TAG_CLOSED: u64 = 9;

/// The maximal number of options of a keyspace, and the maximal length of one, that the decoder accepts.
const MAX_OPTIONS: usize = 1024;
const MAX_OPTION_LEN: usize = 4096;

impl DatabaseEdit {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for keyspace in &self.created {
            put_varint(&mut out, TAG_CREATED);
            put_varint(&mut out, keyspace.id);
            put_bytes(&mut out, keyspace.name.as_bytes());
            put_varint(&mut out, keyspace.levels as u64);
            put_varint(&mut out, keyspace.options.len() as u64);
            for (name, value) in &keyspace.options {
                put_bytes(&mut out, name.as_bytes());
                put_bytes(&mut out, value.as_bytes());
            }
        }
        for id in &self.dropped {
            put_varint(&mut out, TAG_DROPPED);
            put_varint(&mut out, *id);
        }
        let mut body = Vec::new();
        for (id, edit) in &self.trees {
            body.clear();
            edit.encode(&mut body);
            put_varint(&mut out, TAG_TREE);
            put_varint(&mut out, *id);
            put_bytes(&mut out, &body);
        }
        for log in &self.closed {
            put_varint(&mut out, TAG_CLOSED);
            put_varint(&mut out, log.number);
            put_varint(&mut out, log.len);
        }
        for (tag, number) in [
            (TAG_NEXT_FILE, self.next_file),
            (TAG_NEXT_KEYSPACE, self.next_keyspace),
            (TAG_LAST_SEQ, self.last_seq),
            (TAG_MIN_LOG, self.min_log),
            (TAG_NEWEST_LOG, self.newest_log),
        ] {
            if number > 0 {
                put_varint(&mut out, tag);
                put_varint(&mut out, number);
            }
        }
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<DatabaseEdit> {
        let mut edit = DatabaseEdit::default();
        let mut reader = Reader::new(bytes);
        let text = |bytes: &[u8]| std::str::from_utf8(bytes).ok().map(str::to_owned);
        while !reader.is_empty() {
            match reader.varint()? {
                TAG_CREATED => {
                    let id = reader.varint()?;
                    let name = text(reader.bytes(MAX_KEYSPACE_NAME_LEN)?)?;
                    let levels = reader.len(MAX_LEVELS)?;
                    let count = reader.len(MAX_OPTIONS)?;
                    let mut options = Vec::new();
                    for _ in 0..count {
                        options.push((
                            text(reader.bytes(MAX_OPTION_LEN)?)?,
                            text(reader.bytes(MAX_OPTION_LEN)?)?,
                        ));
                    }
                    if levels == 0 {
                        return None;
                    }
                    edit.created.push(KeyspaceCreated { id, name, levels, options });
                }
                TAG_DROPPED => edit.dropped.push(reader.varint()?),
                TAG_TREE => {
                    let id = reader.varint()?;
                    edit.trees.push((id, VersionEdit::decode(reader.bytes(MAX_BATCH_LEN)?)?));
                }
                TAG_CLOSED => edit.closed.push(LogClosed { number: reader.varint()?, len: reader.varint()? }),
                TAG_NEXT_FILE => edit.next_file = reader.varint()?,
                TAG_NEXT_KEYSPACE => edit.next_keyspace = reader.varint()?,
                TAG_LAST_SEQ => edit.last_seq = reader.varint().filter(|&seq| seq <= base::MAX_SEQ)?,
                TAG_MIN_LOG => edit.min_log = reader.varint()?,
                TAG_NEWEST_LOG => edit.newest_log = reader.varint()?,
                _ => return None,
            }
        }
        Some(edit)
    }
}

/// The state of one keyspace in a manifest.
#[derive(Debug)]
pub struct KeyspaceState {
    /// How it was created.
    pub created: KeyspaceCreated,
    /// Its tables and guards.
    pub version: Version,
}

/// The state of a database: the sum of all edits of a manifest.
#[derive(Debug, Default)]
pub struct ManifestState {
    /// Keyspaces, by number.
    pub keyspaces: BTreeMap<u64, KeyspaceState>,
    /// See [`DatabaseEdit::next_file`].
    pub next_file: u64,
    /// See [`DatabaseEdit::next_keyspace`].
    pub next_keyspace: u64,
    /// See [`DatabaseEdit::last_seq`].
    pub last_seq: Seq,
    /// See [`DatabaseEdit::min_log`].
    pub min_log: u64,
    /// See [`DatabaseEdit::newest_log`].
    pub newest_log: u64,
    /// The length of each closed log that may still be needed, by number.
    pub closed: BTreeMap<u64, u64>,
}

impl ManifestState {
    fn apply(
        &mut self,
        edit: DatabaseEdit,
        open: &mut dyn FnMut(&TableMeta) -> Result<Arc<LiveTable>>,
    ) -> Result<()> {
        let wrong = |what: String| Error::new(ErrorKind::Corruption, what);
        for created in edit.created {
            let version = Version::empty(created.levels);
            let id = created.id;
            if self.keyspaces.insert(id, KeyspaceState { created, version }).is_some() {
                return Err(wrong(format!("an edit creates keyspace {id}, which exists")));
            }
            self.next_keyspace = self.next_keyspace.max(id.saturating_add(1));
        }
        for (id, tree) in edit.trees {
            let keyspace = self
                .keyspaces
                .get_mut(&id)
                .ok_or_else(|| wrong(format!("an edit changes keyspace {id}, which does not exist")))?;
            keyspace.version = keyspace.version.apply(&tree, open)?;
            let highest = tree.added.iter().map(|(_, meta)| meta.number.saturating_add(1)).max();
            self.next_file = self.next_file.max(highest.unwrap_or(0));
        }
        for id in edit.dropped {
            if self.keyspaces.remove(&id).is_none() {
                return Err(wrong(format!("an edit drops keyspace {id}, which does not exist")));
            }
        }
        self.next_file = self.next_file.max(edit.next_file);
        self.next_keyspace = self.next_keyspace.max(edit.next_keyspace);
        self.last_seq = self.last_seq.max(edit.last_seq);
        self.min_log = self.min_log.max(edit.min_log);
        self.newest_log = self.newest_log.max(edit.newest_log);
        self.closed.extend(edit.closed.iter().map(|log| (log.number, log.len)));
        self.closed = self.closed.split_off(&self.min_log);
        Ok(())
    }
}

impl ManifestError {
    /// The underlying error.
    pub fn into_error(self) -> Error {
        match self {
            ManifestError::Rejected(e) | ManifestError::Unknown(e) => e,
        }
    }
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
    pub fn len(&self) -> u64 {
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
        let mut reader = SegmentReader::open_closed(env, &path, SegmentKind::Manifest, number, len)?;
        let mut record = Vec::new();
        while let Some(span) = reader.next(&mut record)? {
            if !record.is_empty() && DatabaseEdit::decode(&record).is_none() {
                let what = "the record is not an edit that this version of Cairn can decode";
                return Err(Error::corruption(&path, span.start, what));
            }
            step(span.end)?;
        }
        Ok(())
    }

    /// Always false: a manifest has at least its first record.
    pub fn is_empty(&self) -> bool {
        false
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
        let path = dir.join(manifest_file_name(number));
        let mut reader = SegmentReader::open(env, &path, SegmentKind::Manifest, number)?;
        let mut state = ManifestState::default();
        let mut record = Vec::new();
        let mut edits = 0;
        while let Some(span) = reader.next(&mut record)? {
            if record.is_empty() {
                continue; // a sync mark
            }
            let edit = DatabaseEdit::decode(&record).ok_or_else(|| {
                Error::corruption(
                    &path,
                    span.start,
                    "the record is not an edit that this version of Cairn can decode",
                )
            })?;
            state
                .apply(edit, open)
                .map_err(|e| e.context(format!("{}, offset {}", path.display(), span.start)))?;
            edits += 1;
        }
        if edits == 0 {
            // The first record was synced before the file got its name.
            return Err(Error::corruption(&path, 0, "the manifest has no valid record"));
        }
        Ok(state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A regression test: the decoder computed the number after it, which overflowed (found by the fuzz target
    /// `manifest`).
    #[test]
    fn an_edit_with_an_impossible_sequence_number_is_refused() {
        for (seq, known) in [(base::MAX_SEQ, true), (base::MAX_SEQ + 1, false), (u64::MAX, false)] {
            let flushed = VersionEdit { flushed_seq: Some(seq), ..VersionEdit::default() };
            let edits = [
                DatabaseEdit { trees: vec![(1, flushed)], ..DatabaseEdit::default() },
                DatabaseEdit { last_seq: seq, ..DatabaseEdit::default() },
            ];
            for edit in edits {
                assert_eq!(DatabaseEdit::decode(&edit.encode()), known.then_some(edit), "{seq}");
            }
        }
    }
}
