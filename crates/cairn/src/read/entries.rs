//! [`Entries`]: all entries of a keyspace, in the order in which it has them.
//!
//! A keyspace without order has them in its files, in the order of their writes or of a collection. Each file is read from front to back. An
//! entry is shown if it is the newest that the reader sees: the index tells, unless another entry of its tag is newer, or a collection has moved it
//! meanwhile; then the key is looked up. What is in memtables comes last.

use super::range::Range;
use super::read_view::HeldSeq;
use crate::state::{HashLog, KeyspaceInner, ReadState, Reader, split_value};
use crate::wal::{Entries as Decoded, MAPS_RECORD, decode_batch};
use base::planted::{Bug, planted};
use base::{Cursor as _, EntryKind, Error, ErrorKind, Result, Seq, Slice};
use hashlog::{FileUse, Place};
use memtable::MemtableCursor;
use record::{ChunkPlace, SegmentKind, SegmentReader, chunk_place};
use std::sync::Arc;
use values::{SegmentFile, Walk};

/// An iterator over all entries of a keyspace, in the order in which it has them: by key, or without order. An error is yielded once; then the
/// iterator ends.
pub struct Entries(Kind);

enum Kind {
    Ordered(Box<Range>),
    Hashed(Box<Hashed>),
    Failed(Option<Error>),
}

impl Entries {
    pub(crate) fn ordered(range: Range) -> Entries {
        Entries(Kind::Ordered(Box::new(range)))
    }

    /// The entries of a keyspace without order.
    pub(crate) fn hashed(keyspace: HeldSeq, db: Reader, log: &Arc<HashLog>) -> Entries {
        // Before the files are listed: none of them is removed from now on.
        let walk = keyspace.segments.begin_walk();
        let read_state = keyspace.read_state.load_full();
        if let Err(e) = keyspace.check_of(db.identity()) {
            return Entries(Kind::Failed(Some(e)));
        }
        let mut files = log.list_files();
        files.sort_unstable_by_key(|file| std::cmp::Reverse(file.file));
        let (memtable, begun, current) = (None, 0, None);
        let (log, keeps) = (log.clone(), walk);
        let hashed = Hashed { files, current, memtable, begun, read_state, log, _keeps: keeps, keyspace, db };
        Entries(Kind::Hashed(Box::new(hashed)))
    }
}

impl Iterator for Entries {
    type Item = Result<(Slice, Slice)>;

    fn next(&mut self) -> Option<Self::Item> {
        match &mut self.0 {
            Kind::Ordered(range) => range.next(),
            Kind::Failed(error) => error.take().map(Err),
            Kind::Hashed(hashed) => {
                let step = hashed.db.check_not_closed().and_then(|()| hashed.step());
                match step {
                    Ok(Some(entry)) => Some(Ok(entry)),
                    Ok(None) => {
                        self.0 = Kind::Failed(None);
                        None
                    }
                    Err(e) => {
                        let e = hashed.db.read_error(e);
                        self.0 = Kind::Failed(None);
                        Some(Err(e))
                    }
                }
            }
        }
    }
}

impl std::iter::FusedIterator for Entries {}

struct Hashed {
    /// The files that are left, the next one last.
    files: Vec<FileUse>,
    current: Option<OpenFile>,
    /// After the files: the memtable of `read_state` that is read.
    memtable: Option<MemtableCursor>,
    /// The number of memtables whose reading has begun, the newest first.
    begun: usize,
    read_state: Arc<ReadState>,
    log: Arc<HashLog>,
    _keeps: Walk,
    keyspace: HeldSeq,
    db: Reader,
}

/// A file that is read.
struct OpenFile {
    file: SegmentFile,
    /// See [`FileUse`].
    last_chunk: u64,
    reader: SegmentReader,
    record: Vec<u8>,
    /// Where the record begins in the file, and the next entry in the record.
    start: u64,
    at: usize,
    /// The sequence number of the next entry.
    seq: Seq,
    /// Entries that are left in the record.
    left: u64,
}

impl Hashed {
    fn step(&mut self) -> Result<Option<(Slice, Slice)>> {
        loop {
            let Some(current) = &mut self.current else {
                let Some(file) = self.files.pop() else { return self.next_in_memory() };
                self.current = Some(OpenFile::open(&self.keyspace, &self.db, &file)?);
                continue;
            };
            let file = current.file;
            let Some((at, seq, entry)) = current.next()? else {
                self.current = None;
                continue;
            };
            let keyspace: &KeyspaceInner = &self.keyspace;
            let has_expired = entry.expiry.is_some_and(|expiry| expiry <= self.keyspace.now);
            let is_delete = entry.kind == EntryKind::Delete || has_expired;
            if entry.keyspace != keyspace.id || is_delete || seq > self.keyspace.seq {
                continue;
            }
            let is_newer = self
                .read_state
                .memtables()
                .any(|memtable| memtable.get(entry.key, self.keyspace.seq).is_some());
            if !is_newer && shows(keyspace, &self.log, (file, at), entry.key, (seq, self.keyspace.seq))? {
                return Ok(Some((Slice::copy_from(entry.key), Slice::copy_from(entry.value))));
            }
        }
    }

    fn next_in_memory(&mut self) -> Result<Option<(Slice, Slice)>> {
        let reader = self.keyspace.seq;
        loop {
            let Some(cursor) = &mut self.memtable else {
                let Some(next) = self.read_state.memtables().nth(self.begun) else { return Ok(None) };
                self.begun += 1;
                self.memtable.insert(next.cursor()).seek_to_first()?;
                continue;
            };
            while cursor.valid() && cursor.trailer().seq() > reader {
                cursor.next()?;
            }
            if !cursor.valid() {
                self.memtable = None;
                continue;
            }
            let (key, trailer) = (Slice::copy_from(cursor.key()), cursor.trailer());
            let (value, expiry) = split_value(trailer, cursor.value())?;
            let is_delete = trailer.is_delete() || expiry.is_some_and(|expiry| expiry <= self.keyspace.now);
            let value = Slice::copy_from(value);
            while cursor.valid() && cursor.key() == &key[..] {
                cursor.next()?;
            }
            // Memtables without order cannot be merged.
            let mut newer = self.read_state.memtables().take(self.begun - 1);
            let is_newer = newer.any(|memtable| memtable.get(&key, reader).is_some());
            if !is_delete && (!is_newer || planted(Bug::ShowOlderInMemory)) {
                return Ok(Some((key, value)));
            }
        }
    }
}

/// Whether the put of `key` with the first of two sequence numbers is the newest that a reader at the second one sees. It is at this place, or was.
fn shows(
    keyspace: &KeyspaceInner,
    log: &HashLog,
    (file, at): (SegmentFile, ChunkPlace),
    key: &[u8],
    (seq, reader): (Seq, Seq),
) -> Result<bool> {
    let place = log.index.find(file).and_then(|position| Place::new(position, at, false).ok());
    if place.is_some() && log.index.newest(log.index.tag_of(key)) == place {
        return Ok(true);
    }
    // There is a newer entry of its tag, or a collection has moved it.
    let Some((found, found_at)) = keyspace.newest_by_hash(log, key, reader)? else { return Ok(false) };
    let is_there = |place: Place| {
        let mut group = Vec::new();
        log.index.group(log.index.tag_of(key), &mut group);
        group.contains(&place)
    };
    // After an opening that could not flush all that it had replayed, an entry may be there twice.
    Ok(found == seq && place.is_none_or(|place| found_at == place || !is_there(place)))
}

impl OpenFile {
    fn open(keyspace: &KeyspaceInner, db: &Reader, from: &FileUse) -> Result<OpenFile> {
        let FileUse { file, len, last_chunk, .. } = *from;
        let (kind, number, len) = match file {
            // A log may be longer than its records.
            SegmentFile::Log(number) => (SegmentKind::Wal, number, None),
            SegmentFile::Values(number) => (SegmentKind::Values, number, Some(len)),
        };
        let path = keyspace.segments.dir().join(keyspace.segments.file_name(file));
        let missing = |e: Error| match e.kind() {
            ErrorKind::NotFound => Error::corruption(&path, 0, "the file is missing"),
            _ => e,
        };
        let reader = SegmentReader::open(db.env(), &path, kind, number, len).map_err(missing)?;
        Ok(OpenFile { file, last_chunk, reader, record: Vec::new(), start: 0, at: 0, seq: 0, left: 0 })
    }

    /// The next put or delete: where it is, and its sequence number.
    fn next(&mut self) -> Result<Option<(ChunkPlace, Seq, crate::wal::Entry<'_>)>> {
        while self.left == 0 {
            if self.last_chunk < self.reader.valid_len() {
                return Ok(None);
            }
            let Some(span) = self.reader.next(&mut self.record)? else {
                return Err(self.malformed(self.reader.valid_len()));
            };
            if self.record.first().is_none_or(|first| *first == MAPS_RECORD) {
                continue;
            }
            let batch = decode_batch(&self.record).ok_or_else(|| self.malformed(span.start))?;
            (self.start, self.seq, self.left) = (span.start, batch.head.first_seq, batch.head.count);
            self.at = self.record.len() - batch.entries.left();
        }
        let (begin, seq) = (self.at, self.seq);
        let mut entries = Decoded::new(&self.record[begin..]);
        let entry = entries.next().ok_or_else(|| self.malformed(self.start))?;
        self.at = self.record.len() - entries.left();
        (self.seq, self.left) = (seq + 1, self.left - 1);
        Ok(Some((chunk_place(self.start, begin as u64), seq, entry)))
    }

    fn malformed(&self, offset: u64) -> Error {
        Error::corruption(self.reader.path(), offset, "this record is no batch")
    }
}

crate::types::debug_of! {
    [] Entries, "Entries";
}
