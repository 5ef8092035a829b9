//! The part of collections that concerns keyspaces without order: which of their entries are copied, and what their indexes and hint files
//! become.

use crate::state::{DbInner, HashLog, KeyspaceInner, Moved};
use crate::wal::Entry;
use base::{Error, Result, Time};
use hashlog::{Change, Hint, HintFile, HintReader, HintWriter, Place, Resolved, Slot, resolve};
use record::ChunkPlace;
use std::collections::HashSet;
use std::iter::Peekable;
use std::sync::Arc;
use std::vec::IntoIter;
use tree::DatabaseEdit;
use values::{SegmentFile, own_segment};

/// A keyspace with entries in the files of a collection.
pub(super) struct HashedPart {
    pub keyspace: Arc<KeyspaceInner>,
    resolved: Resolved,
    /// Entries whose expiry is not after this have expired for all readers.
    expired_by: Time,
    /// The places of the dead ones, when an expired entry asks for them.
    gone: Option<HashSet<Place>>,
    /// The entries of the file that is read.
    left: Peekable<IntoIter<Slot>>,
    /// Begun with the first entry that is copied.
    pub hints: Option<HintWriter>,
    moved: Moved,
}

/// The same when all is copied.
pub(super) struct CopiedPart {
    keyspace: Arc<KeyspaceInner>,
    resolved: Resolved,
    moved: Moved,
    /// `None`: nothing was copied.
    hints: Option<HintFile>,
}

impl DbInner {
    /// Finds out which entries of the files keyspaces without order still need. It writes nothing. `step` is called with the bytes of each key that
    /// was read.
    pub(super) fn hashed_parts(
        &self,
        keyspaces: &[Arc<KeyspaceInner>],
        files: &[SegmentFile],
        step: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<Vec<HashedPart>> {
        let reader = HintReader { env: self.env.clone(), dir: self.dir.clone() };
        let mut parts = Vec::new();
        for keyspace in keyspaces {
            let log = log_of(keyspace);
            // Before the readers are listed: one that begins later sees everything that these hint files have.
            let (known, now) = (log.hints(), self.moment());
            let readers = self.readers_of(keyspace);
            let expired_by = self.expired_by(keyspace, now, readers.first().copied());
            let resolved = resolve(&log.index, &known, &reader, files, &readers, step)?;
            let left = Vec::new().into_iter().peekable();
            parts.push(HashedPart {
                keyspace: keyspace.clone(),
                resolved,
                expired_by,
                gone: None,
                left,
                hints: None,
                moved: Moved::default(),
            });
        }
        Ok(parts)
    }

    /// Begins a hint file of a keyspace, whose number is added to `hint_files` before.
    pub(super) fn begin_hints(
        &self,
        keyspace: &KeyspaceInner,
        hint_files: &mut Vec<u64>,
    ) -> Result<HintWriter> {
        let number = self.new_number();
        hint_files.push(number);
        HintWriter::create(&self.env, &self.dir, number, &keyspace.hint_owner())
    }

    /// Adds what becomes of hint files to the edit of a collection. The manifest is locked.
    pub(super) fn note_hashed(&self, parts: &[CopiedPart], files: &[SegmentFile], edit: &mut DatabaseEdit) {
        let files: HashSet<SegmentFile> = files.iter().copied().collect();
        for part in parts.iter().filter(|part| !part.keyspace.is_dropped()) {
            let id = part.keyspace.id;
            for mut hints in log_of(&part.keyspace).hints() {
                let before = hints.shares.len();
                hints.shares.retain(|share| !files.contains(&share.file));
                match hints.shares.len() {
                    0 => edit.hints_removed.push((id, hints.number)),
                    len if len < before => edit.hints.push((id, hints)),
                    _ => {}
                }
            }
            edit.hints.extend(part.hints.iter().map(|hints| (id, hints.clone())));
        }
    }

    /// The edit is durable: indexes refer to the new file. Returns the hint files that can be removed.
    pub(super) fn apply_hashed(
        &self,
        parts: Vec<CopiedPart>,
        number: u64,
        len: u64,
        edit: &DatabaseEdit,
    ) -> Result<Vec<u64>> {
        let mut removed = Vec::new();
        // Before a dropped one gives its share of the new file up: then nothing would hold the file.
        let (live, dropped): (Vec<_>, Vec<_>) =
            parts.into_iter().partition(|part| !part.keyspace.is_dropped());
        for part in live.into_iter().chain(dropped) {
            let CopiedPart { keyspace, resolved, moved, hints, .. } = part;
            if keyspace.is_dropped() {
                removed.extend(hints.map(|hints| hints.number));
                log_of(&keyspace).give_up(&self.tables.segments, own_segment(number));
                continue;
            }
            let log = log_of(&keyspace);
            let of_keyspace = |(id, _): &&(u64, HintFile)| *id == keyspace.id;
            let added = edit.hints.iter().filter(of_keyspace).map(|(_, hints)| hints.clone()).collect();
            let gone =
                edit.hints_removed.iter().filter(|(id, _)| *id == keyspace.id).map(|(_, number)| *number);
            let gone: Vec<u64> = gone.collect();
            log.moved((SegmentFile::Values(number), len), resolved, &moved, added, &gone)?;
            self.tables.share(log, self.oldest_reader(&keyspace));
            removed.extend(gone);
        }
        Ok(removed)
    }
}

impl HashedPart {
    /// The file that is read next.
    pub(super) fn begin_file(&mut self, file: SegmentFile) {
        self.left = self.resolved.live.remove(&file).unwrap_or_default().into_iter().peekable();
    }

    /// The entry at this place of the file, if it is copied.
    pub(super) fn take(&mut self, at: ChunkPlace, keyspace: u64) -> Option<Slot> {
        match self.keyspace.id == keyspace {
            true => self.left.next_if(|slot| slot.place.at() == at),
            false => None,
        }
    }

    /// What is copied of the entry of a slot: of one that has expired a delete, if it may hide older ones, and nothing otherwise.
    pub(super) fn copied<'a>(&mut self, slot: Slot, entry: &Entry<'a>) -> Option<Entry<'a>> {
        if entry.expiry.is_none_or(|expiry| expiry > self.expired_by) {
            return Some(*entry);
        }
        let mut group = Vec::new();
        log_of(&self.keyspace).index.group(slot.tag, &mut group);
        let dead = &mut self.resolved.dead;
        let gone = self.gone.get_or_insert_with(|| dead.iter().map(|change| change.from).collect());
        let at = group.iter().position(|place| *place == slot.place);
        if at.is_some_and(|at| group[at + 1..].iter().all(|place| gone.contains(place))) {
            gone.insert(slot.place);
            dead.push(Change::removal(slot));
            return None;
        }
        Some(Entry { keyspace: entry.keyspace, ..Entry::delete(entry.key) })
    }

    /// An entry of the file that was not met.
    pub(super) fn missed(&mut self) -> Option<u64> {
        self.left.peek().map(|slot| slot.place.at().chunk)
    }

    /// An entry is copied, and `hints` begun: `hint` says where it is now, and it has `bytes` of key and value.
    pub(super) fn push(&mut self, slot: Slot, hint: &Hint<'_>, bytes: u64) -> Result<()> {
        // Before the manifest names it: a place that the index cannot have is an error.
        let place = Place::new(0, hint.at, hint.is_delete)?;
        self.hints.as_mut().expect("it is begun").push(hint, bytes)?;
        self.moved.entries.push((slot, place));
        self.moved.bytes += bytes;
        Ok(())
    }

    pub(super) fn finish(self) -> Result<CopiedPart> {
        let HashedPart { keyspace, resolved, hints, moved, .. } = self;
        let hints = hints.map(HintWriter::finish).transpose()?.flatten();
        Ok(CopiedPart { keyspace, resolved, moved, hints })
    }
}

impl CopiedPart {
    pub(super) fn has_entries(&self) -> bool {
        !self.moved.entries.is_empty()
    }
}

fn log_of(keyspace: &KeyspaceInner) -> &HashLog {
    keyspace.hash_log.as_ref().expect("only keyspaces without order are asked")
}

/// The error for an entry that a hint file names, and that is not in its file.
pub(super) fn no_entry(path: &std::path::Path, chunk: u64) -> Error {
    Error::corruption(path, chunk, "a hint file names an entry here, where none is")
}
