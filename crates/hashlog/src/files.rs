//! [`Files`]: the list of files in which entries of an index are, with what is alive in each.

use base::{Error, ErrorKind, Result};
use std::collections::HashMap;
use values::SegmentFile;

/// A file with entries of a keyspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileUse {
    /// The file.
    pub file: SegmentFile,
    /// Its length, in bytes.
    pub len: u64,
    /// Slots of the index whose entries are in it.
    pub slots: u64,
    /// Those of them that count as alive: the newest of their tags, but for deletes that hide nothing.
    pub live: u64,
    /// Bytes of all entries of the keyspace that were added to the index from this file.
    pub bytes: u64,
    /// Their number.
    pub count: u64,
    /// The number of chunks in which they begin.
    pub chunks: u64,
    /// The offset of the chunk in which the last of them begins: what is behind it is needed for nothing.
    pub last_chunk: u64,
}

impl FileUse {
    /// The mean length of its entries.
    pub fn mean_len(&self) -> u64 {
        self.bytes.checked_div(self.count).unwrap_or(0)
    }

    /// The mean length of the entries that begin in one chunk, together: more than that of one where batches have many.
    pub fn mean_chunk_len(&self) -> u64 {
        self.bytes.checked_div(self.chunks).unwrap_or(0)
    }

    /// Bytes of so many of its entries, about.
    pub fn bytes_of(&self, entries: u64) -> u64 {
        let bytes = u128::from(self.bytes) * u128::from(entries.min(self.count));
        bytes.checked_div(u128::from(self.count)).unwrap_or(0) as u64
    }
}

/// Entries that are added to a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Added {
    /// Their bytes.
    pub bytes: u64,
    /// The number of chunks in which they begin.
    pub chunks: u64,
}

/// A list of files; the position of a file in it is part of [`crate::Place`].
#[derive(Default)]
pub(crate) struct Files {
    slots: Vec<Option<FileUse>>,
    positions: HashMap<SegmentFile, u32>,
    free: Vec<u32>,
}

impl Files {
    /// The position of `file`, of `len` bytes, which is added if it is not there, and fewer than `most` are. A file that is added is used by nothing yet.
    pub(crate) fn position(&mut self, file: SegmentFile, len: u64, most: usize) -> Result<u32> {
        if let Some(position) = self.positions.get(&file) {
            return Ok(*position);
        }
        if self.positions.len() >= most {
            let what = format!("an index has entries in {most} files, and more are not possible: {file:?}");
            return Err(Error::new(ErrorKind::Io, what));
        }
        let position = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() as u32 - 1
        });
        self.slots[position as usize] =
            Some(FileUse { file, len, slots: 0, live: 0, bytes: 0, count: 0, chunks: 0, last_chunk: 0 });
        self.positions.insert(file, position);
        Ok(position)
    }

    pub(crate) fn get(&self, position: u32) -> Option<&FileUse> {
        self.slots.get(position as usize)?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, position: u32) -> Option<&mut FileUse> {
        self.slots.get_mut(position as usize)?.as_mut()
    }

    pub(crate) fn find(&self, file: SegmentFile) -> Option<u32> {
        self.positions.get(&file).copied()
    }

    /// Applies `change` to the file at `position`; one that no slot uses any more is taken from the list.
    pub(crate) fn update(&mut self, position: u32, change: impl FnOnce(&mut FileUse)) {
        let Some(file) = self.slots.get_mut(position as usize).and_then(Option::as_mut) else { return };
        change(file);
        if file.slots == 0 {
            self.positions.remove(&file.file);
            self.slots[position as usize] = None;
            self.free.push(position);
        }
    }

    /// Adds entries to the sums of a file, whose slots are changed apart.
    pub(crate) fn note_added(&mut self, position: u32, count: u64, added: Added) {
        if let Some(file) = self.slots.get_mut(position as usize).and_then(Option::as_mut) {
            (file.count, file.chunks) = (file.count + count, file.chunks + added.chunks);
            file.bytes = file.bytes.saturating_add(added.bytes);
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &FileUse> {
        self.slots.iter().flatten()
    }

    pub(crate) fn memory(&self) -> usize {
        self.slots.capacity() * size_of::<Option<FileUse>>()
            + self.positions.capacity() * 2 * size_of::<(SegmentFile, u32)>()
    }
}
