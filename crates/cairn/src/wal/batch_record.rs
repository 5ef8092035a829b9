//! The record of a batch in the log: `docs/format/log.md` describes it.

use base::codec::{MAX_VARINT_LEN, Reader, put_varint};
use base::limits::{MAX_KEY_LEN, MAX_VALUE_LEN};
use base::{EntryKind, Error, ErrorKind, RangeTombstone, Seq, Time, Trailer};
use memtable::Memtable;
use std::path::Path;

/// Version of the batch record.
const BATCH_PLAIN: u8 = 0;

/// Version of a batch with range tombstones: an older Cairn refuses it, instead of reporting damage.
const BATCH_WITH_RANGES: u8 = 1;

/// Version of a batch with a time, because it has entries of keyspaces with history. It may have range tombstones, and entries with times of
/// their own.
const BATCH_WITH_TIME: u8 = 2;

/// Added to the code of an entry that has a time of its own.
const HAS_TIME: u8 = 0x10;

/// The head of a batch record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BatchHead {
    /// Whether range tombstones are allowed.
    pub ranges: bool,
    /// The sequence number of the first entry.
    pub first_seq: Seq,
    /// The number of entries.
    pub count: u64,
    /// The time of its entries that have none of their own, if any of them is of a keyspace with history.
    pub time: Option<Time>,
}

impl BatchHead {
    /// The sequence number of the last entry; a batch without entries takes one, too.
    pub(crate) fn last_seq(&self) -> Seq {
        self.first_seq + self.count.max(1) - 1
    }

    /// Appends the head: version, sequence number, number of entries, and the time if there is one.
    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        out.push(match (self.time, self.ranges) {
            (Some(_), _) => BATCH_WITH_TIME,
            (None, true) => BATCH_WITH_RANGES,
            (None, false) => BATCH_PLAIN,
        });
        put_varint(out, self.first_seq);
        put_varint(out, self.count);
        if let Some(time) = self.time {
            put_varint(out, time.micros());
        }
    }
}

/// Maximum bytes of an encoded entry beside key and value.
pub(crate) const MAX_ENTRY_OVERHEAD: usize = 1 + 4 * MAX_VARINT_LEN;

/// One entry of a batch.
pub(crate) struct Entry<'a> {
    pub kind: EntryKind,
    pub keyspace: u64,
    /// The time that the caller gave to it; `None`: it has that of the batch.
    pub time: Option<Time>,
    pub key: &'a [u8],
    /// For a range tombstone, the end of the range: empty for the end of all keys.
    pub value: &'a [u8],
}

impl Entry<'_> {
    /// Appends the head of the entry: everything before the bytes of the key. The length of the value and its bytes follow the key.
    #[inline]
    pub(crate) fn put_head(&self, out: &mut Vec<u8>) {
        out.push(self.kind as u8 | if self.time.is_some() { HAS_TIME } else { 0 });
        put_varint(out, self.keyspace);
        if let Some(time) = self.time {
            put_varint(out, time.micros());
        }
        put_varint(out, self.key.len() as u64);
    }

    /// Appends the whole entry.
    #[inline]
    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        self.put_head(out);
        out.extend_from_slice(self.key);
        if self.kind != EntryKind::Delete {
            put_varint(out, self.value.len() as u64);
            out.extend_from_slice(self.value);
        }
    }

    /// Memtable bytes that the entry needs, with a value that is stored with so many bytes behind it.
    pub(crate) fn cost(&self, tail_len: usize) -> usize {
        match self.kind {
            EntryKind::DeleteRange => Memtable::range_cost(self.key.len(), self.value.len()),
            _ => Memtable::entry_cost(self.key.len(), self.value.len() + tail_len),
        }
    }

    /// Inserts the entry, with `tail` behind its value, into a memtable that has reserved room for it. `tail` is empty, or a time; a range
    /// tombstone has it as its time.
    #[inline]
    pub(crate) fn insert(&self, memtable: &Memtable, seq: Seq, tail: &[u8]) {
        match self.kind {
            EntryKind::DeleteRange => {
                let time =
                    tail.try_into().map_or(Time::MIN, |time| Time::from_micros(u64::from_le_bytes(time)));
                memtable.delete_range(RangeTombstone::new(self.key, self.value, seq, time));
            }
            kind => memtable.insert_with_tail(self.key, Trailer::new(seq, kind), self.value, tail),
        }
    }
}

/// Iterates over the entries of a batch.
pub(crate) struct Entries<'a> {
    reader: Reader<'a>,
    /// Whether range tombstones are allowed.
    ranges: bool,
    /// Whether entries with times of their own are allowed.
    times: bool,
}

impl<'a> Entries<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Entries { reader: Reader::new(bytes), ranges: true, times: true }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.reader.is_empty()
    }

    /// Bytes behind the last entry that was read.
    pub(crate) fn left(&self) -> usize {
        self.reader.rest().len()
    }

    /// The next entry; `None` when it is malformed.
    pub(crate) fn next(&mut self) -> Option<Entry<'a>> {
        let code = self.reader.u8()?;
        let has_time = self.times && code & HAS_TIME != 0;
        let kind = match code & if has_time { !HAS_TIME } else { u8::MAX } {
            code if code == EntryKind::DeleteRange as u8 && self.ranges && !has_time => {
                EntryKind::DeleteRange
            }
            code => EntryKind::from_code(code)?,
        };
        let keyspace = self.reader.varint()?;
        let time = match has_time {
            true => Some(self.reader.varint().map(Time::from_micros).filter(|time| *time < Time::MAX)?),
            false => None,
        };
        let key = self.reader.bytes(MAX_KEY_LEN)?;
        let value = match kind {
            EntryKind::Put => self.reader.bytes(MAX_VALUE_LEN)?,
            EntryKind::Delete => &[],
            // Only tables have references.
            EntryKind::Reference => return None,
            // An empty range is never written.
            EntryKind::DeleteRange => {
                self.reader.bytes(MAX_KEY_LEN).filter(|to| to.is_empty() || key < *to)?
            }
        };
        Some(Entry { kind, keyspace, time, key, value })
    }
}

/// A decoded batch record.
pub(crate) struct BatchRecord<'a> {
    pub head: BatchHead,
    pub entries: Entries<'a>,
}

/// Decodes the head of a batch record; `None` when it is malformed.
pub(crate) fn decode_batch(record: &[u8]) -> Option<BatchRecord<'_>> {
    let mut reader = Reader::new(record);
    let version = reader.u8()?;
    if version > BATCH_WITH_TIME {
        return None;
    }
    let first_seq = reader.varint().filter(|&seq| seq > 0)?;
    let count = reader.varint().filter(|&count| first_seq.saturating_add(count) <= base::MAX_SEQ)?;
    let time = match version {
        BATCH_WITH_TIME => Some(reader.varint().map(Time::from_micros).filter(|time| *time < Time::MAX)?),
        _ => None,
    };
    let ranges = version != BATCH_PLAIN;
    Some(BatchRecord {
        head: BatchHead { ranges, first_seq, count, time },
        entries: Entries { ranges, times: version == BATCH_WITH_TIME, ..Entries::new(reader.rest()) },
    })
}

/// The error for a non-empty record that is not a batch.
pub(crate) fn batch_error(record: &[u8], log: &Path, offset: u64) -> Error {
    match record.first() {
        Some(&version) if version > BATCH_WITH_TIME => {
            let what = format!("{}, offset {offset}: a batch of version {version}", log.display());
            Error::new(ErrorKind::Unsupported, format!("{what}, which this Cairn does not know"))
        }
        _ => Error::corruption(log, offset, "this record is no batch"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_round_trip_and_hostile_ones_are_refused() {
        let mut record = Vec::new();
        let head = BatchHead { ranges: false, first_seq: 300, count: 2, time: None };
        head.put(&mut record);
        let put = Entry { kind: EntryKind::Put, keyspace: 7, time: None, key: b"key", value: b"value" };
        put.put(&mut record);
        Entry { kind: EntryKind::Delete, keyspace: 1, key: b"", value: b"", ..put }.put(&mut record);
        let mut batch = decode_batch(&record).unwrap();
        assert_eq!(batch.head, head);
        let entry = batch.entries.next().unwrap();
        assert_eq!(
            (entry.kind, entry.keyspace, entry.key, entry.value),
            (EntryKind::Put, 7, &b"key"[..], &b"value"[..])
        );
        let entry = batch.entries.next().unwrap();
        assert_eq!((entry.kind, entry.keyspace, entry.key), (EntryKind::Delete, 1, &b""[..]));
        assert!(batch.entries.is_empty());
        for cut in 0..record.len() {
            let whole = decode_batch(&record[..cut])
                .is_some_and(|mut batch| (0..batch.head.count).all(|_| batch.entries.next().is_some()));
            assert!(!whole, "cut at {cut}");
        }
        assert!(decode_batch(&[9, 1, 1]).is_none());
        let with_time = BatchHead { ranges: true, time: Some(Time::from_micros(77)), ..head };
        record.clear();
        with_time.put(&mut record);
        assert_eq!(decode_batch(&record).unwrap().head, with_time);
        assert!(decode_batch(&record[..record.len() - 1]).is_none());
        record.pop();
        put_varint(&mut record, u64::MAX);
        assert!(decode_batch(&record).is_none(), "the time that no version has");
        assert!(decode_batch(&[0, 0, 1]).is_none());
        let path = Path::new("wal");
        assert_eq!(batch_error(&[9, 1, 1], path, 7).kind(), ErrorKind::Unsupported);
        assert_eq!(batch_error(&[0, 0, 1], path, 7).kind(), ErrorKind::Corruption);
    }

    #[test]
    fn entries_have_times_of_their_own_only_in_their_version() {
        let time = Some(Time::from_micros(1 << 50));
        for of_batch in [Some(Time::from_micros(9)), None] {
            for (kind, key, value) in [(EntryKind::Put, &b"k"[..], &b"v"[..]), (EntryKind::Delete, b"k", b"")]
            {
                let mut record = Vec::new();
                BatchHead { ranges: true, first_seq: 3, count: 1, time: of_batch }.put(&mut record);
                Entry { kind, keyspace: 2, time, key, value }.put(&mut record);
                let mut batch = decode_batch(&record).unwrap();
                let entry = batch.entries.next();
                assert_eq!(entry.is_some(), of_batch.is_some());
                if let Some(entry) = entry {
                    assert_eq!((entry.kind, entry.time, entry.key, entry.value), (kind, time, key, value));
                    assert!(batch.entries.is_empty());
                }
            }
        }
        let refused = |code: u8, micros: u64| {
            let mut entry = vec![code, 2];
            put_varint(&mut entry, micros);
            entry.extend_from_slice(b"\x01k\x01v");
            Entries::new(&entry).next().is_none()
        };
        assert!(!refused(HAS_TIME | EntryKind::Put as u8, 5));
        assert!(refused(HAS_TIME | EntryKind::DeleteRange as u8, 5), "it has the time of its batch");
        assert!(refused(HAS_TIME | EntryKind::Put as u8, u64::MAX), "the time that no version has");
    }

    #[test]
    fn deleted_ranges_round_trip_and_only_sound_ones_in_their_version() {
        for (from, to, sound) in
            [("a", "b", true), ("a", "", true), ("", "", true), ("a", "a", false), ("b", "a", false)]
        {
            for ranges in [true, false] {
                let mut record = Vec::new();
                BatchHead { ranges, first_seq: 3, count: 1, time: None }.put(&mut record);
                let (key, value) = (from.as_bytes(), to.as_bytes());
                Entry { kind: EntryKind::DeleteRange, keyspace: 2, time: None, key, value }.put(&mut record);
                let mut batch = decode_batch(&record).unwrap();
                let entry = batch.entries.next();
                assert_eq!(entry.is_some(), sound && ranges, "{from} {to} {ranges}");
                if let Some(entry) = entry {
                    assert_eq!((entry.kind, entry.key), (EntryKind::DeleteRange, from.as_bytes()));
                    assert_eq!((entry.value, batch.entries.is_empty()), (to.as_bytes(), true));
                }
            }
        }
    }
}
