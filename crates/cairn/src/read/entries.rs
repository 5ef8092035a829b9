//! [`Entries`]: all entries of a keyspace, in the order in which it has them.
//!
//! A keyspace without order has them in its files, in the order of their writes or of a collection. Each file is read from front to back. An
//! entry is shown if it is the newest that the reader sees: the index tells, unless another entry of its tag is newer; then the key is looked
//! up. What is in memtables comes last.

use super::range::Range;
use super::read_view::HeldSeq;
use crate::state::{HashLog, Hold, KeyspaceInner, ReadState, Reader};
use crate::wal::{Entries as Decoded, MAPS_RECORD, decode_batch};
use base::{Cursor as _, EntryKind, Error, Result, Seq, Slice};
use hashlog::Place;
use memtable::MemtableCursor;
use record::{SegmentKind, SegmentReader, Tail, chunk_place};
use std::sync::Arc;
use tree::MergeCursor;
use values::SegmentFile;

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
        // Before the files are listed: none of them is collected from now on.
        let hold = log.hold(&keyspace.segments);
        let read_state = keyspace.read_state.load_full();
        if let Err(e) = keyspace.check_of(db.identity()) {
            return Entries(Kind::Failed(Some(e)));
        }
        let mut files: Vec<(SegmentFile, u64)> =
            log.index.files().iter().map(|file| (file.file, file.len)).collect();
        files.sort_unstable();
        files.reverse();
        let (memtables, current) = (None, None);
        Entries(Kind::Hashed(Box::new(Hashed { files, current, memtables, read_state, hold, keyspace, db })))
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
                    Ok(entry) => entry.map(Ok),
                    Err(e) => {
                        // The files of a keyspace that was dropped are gone.
                        let e = hashed.keyspace.check_open().err().unwrap_or_else(|| hashed.db.read_error(e));
                        self.0 = Kind::Failed(None);
                        Some(Err(e))
                    }
                }
            }
        }
    }
}

struct Hashed {
    /// The files that are left, the next one last.
    files: Vec<(SegmentFile, u64)>,
    current: Option<OpenFile>,
    /// The memtables of `read_state`, when the files are read.
    memtables: Option<MergeCursor<MemtableCursor>>,
    read_state: Arc<ReadState>,
    hold: Hold,
    keyspace: HeldSeq,
    db: Reader,
}

/// A file that is read.
struct OpenFile {
    file: SegmentFile,
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
                let Some((file, len)) = self.files.pop() else { return self.next_in_memory() };
                self.current = Some(OpenFile::open(&self.keyspace, &self.db, file, len)?);
                continue;
            };
            let file = current.file;
            let Some((at, seq, entry)) = current.next()? else {
                self.current = None;
                continue;
            };
            let keyspace: &KeyspaceInner = &self.keyspace;
            if entry.keyspace != keyspace.id || (entry.kind == EntryKind::Delete) || seq > self.keyspace.seq {
                continue;
            }
            let is_newer = self
                .read_state
                .memtables()
                .any(|memtable| memtable.get(entry.key, self.keyspace.seq).is_some());
            if !is_newer && shows(keyspace, &self.hold, file, at, entry.key, self.keyspace.seq)? {
                return Ok(Some((Slice::copy_from(entry.key), Slice::copy_from(entry.value))));
            }
        }
    }

    fn next_in_memory(&mut self) -> Result<Option<(Slice, Slice)>> {
        let memtables = match &mut self.memtables {
            Some(memtables) => memtables,
            None => {
                let cursors = self.read_state.memtables().map(|memtable| memtable.cursor()).collect();
                let cursor = self.memtables.insert(MergeCursor::new(cursors, 0));
                cursor.seek_to_first()?;
                cursor
            }
        };
        while memtables.valid() {
            if memtables.trailer().seq() > self.keyspace.seq {
                memtables.next()?;
                continue;
            }
            let (key, is_delete) = (Slice::copy_from(memtables.key()), memtables.trailer().is_delete());
            let value = Slice::copy_from(memtables.value());
            while memtables.valid() && memtables.key() == &key[..] {
                memtables.next()?;
            }
            if !is_delete {
                return Ok(Some((key, value)));
            }
        }
        Ok(None)
    }
}

/// Whether the entry of `key` at this place is the newest that a reader at `seq` sees.
fn shows(
    keyspace: &KeyspaceInner,
    log: &HashLog,
    file: SegmentFile,
    at: record::ChunkPlace,
    key: &[u8],
    seq: Seq,
) -> Result<bool> {
    let Some(place): Option<Place> = log.index.place_in(file, at) else { return Ok(false) };
    let mut group = Vec::new();
    log.index.group(log.index.tag_of(key), &mut group);
    match group.iter().position(|other| *other == place) {
        None => Ok(false),
        Some(0) => Ok(true),
        Some(_) => Ok(keyspace.place_by_hash(log, key, seq)? == Some(place)),
    }
}

impl OpenFile {
    fn open(keyspace: &KeyspaceInner, db: &Reader, file: SegmentFile, len: u64) -> Result<OpenFile> {
        let (kind, number, len) = match file {
            // A log may be longer than its records.
            SegmentFile::Log(number) => (SegmentKind::Wal, number, None),
            SegmentFile::Values(number) => (SegmentKind::Values, number, Some(len)),
        };
        let path = keyspace.segments.dir().join(keyspace.segments.file_name(file));
        let reader = SegmentReader::open(db.env(), &path, kind, number, len)?;
        Ok(OpenFile { file, reader, record: Vec::new(), start: 0, at: 0, seq: 0, left: 0 })
    }

    /// The next put or delete: where it is, and its sequence number.
    fn next(&mut self) -> Result<Option<(record::ChunkPlace, Seq, crate::wal::Entry<'_>)>> {
        while self.left == 0 {
            let Some(span) = self.reader.next(&mut self.record)? else {
                // The file was closed: what cannot be read to its end is damaged.
                return match self.reader.tail() {
                    Some(Tail::Clean) => Ok(None),
                    _ => Err(self.malformed(self.reader.valid_len())),
                };
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
