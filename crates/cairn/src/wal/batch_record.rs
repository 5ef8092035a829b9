//! The record of a batch in the log: `docs/format/log.md` describes it.

use base::codec::{MAX_VARINT_LEN, Reader, put_varint};
use base::expiry::{EXPIRY_LEN, MAX_EXPIRING_LEN, expiry_bytes};
use base::limits::{MAX_KEY_LEN, MAX_VALUE_LEN};
use base::{EntryKind, Error, ErrorKind, RangeTombstone, Seq, Time, Trailer};
use history::PRIMARY_SUFFIX;
use memtable::Memtable;
use std::path::Path;

/// Version of the batch record.
const BATCH_PLAIN: u8 = 0;

/// Version of a batch with range tombstones: an older Cairn refuses it, instead of reporting damage.
const BATCH_WITH_RANGES: u8 = 1;

/// Version of a batch with a time, because it has entries of keyspaces with history. It may have range tombstones, and entries with times of
/// their own.
const BATCH_WITH_TIME: u8 = 2;

/// Version of a batch with entries that expire, or with operands of merges. It may have all that others have.
const BATCH_WITH_ALL: u8 = 3;

/// Added to the code of an entry that has a time of its own.
const HAS_TIME: u8 = 0x10;

/// Added to the code of a put that expires.
const HAS_EXPIRY: u8 = 0x20;

/// The head of a batch record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BatchHead {
    /// Whether range tombstones are allowed.
    pub ranges: bool,
    /// Whether expiries and operands are allowed.
    pub all: bool,
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

    /// Appends the head: version, sequence number, number of entries, and the time if there is one. With expiries or operands a field says whether
    /// there is.
    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        out.push(match (self.time, self.ranges) {
            _ if self.all => BATCH_WITH_ALL,
            (Some(_), _) => BATCH_WITH_TIME,
            (None, true) => BATCH_WITH_RANGES,
            (None, false) => BATCH_PLAIN,
        });
        put_varint(out, self.first_seq);
        put_varint(out, self.count);
        if self.all {
            out.push(self.time.is_some().into());
        }
        if let Some(time) = self.time {
            put_varint(out, time.micros());
        }
    }
}

/// Maximum bytes of an encoded entry beside key and value.
pub(crate) const MAX_ENTRY_OVERHEAD: usize = 1 + 5 * MAX_VARINT_LEN;

/// One entry of a batch.
#[derive(Clone, Copy)]
pub(crate) struct Entry<'a> {
    pub kind: EntryKind,
    pub keyspace: u64,
    /// The time that the caller gave to it; `None`: it has that of the batch.
    pub time: Option<Time>,
    /// From when on a put counts as a delete.
    pub expiry: Option<Time>,
    pub key: &'a [u8],
    /// For a range tombstone, the end of the range: empty for the end of all keys.
    pub value: &'a [u8],
}

impl<'a> Entry<'a> {
    /// A write of the keyspace that a batch gives to it.
    pub(crate) fn new(kind: EntryKind, key: &'a [u8], value: &'a [u8]) -> Entry<'a> {
        Entry { kind, keyspace: 0, time: None, expiry: None, key, value }
    }

    pub(crate) fn put(key: &'a [u8], value: &'a [u8]) -> Entry<'a> {
        Entry::new(EntryKind::Put, key, value)
    }

    pub(crate) fn merge(key: &'a [u8], operand: &'a [u8]) -> Entry<'a> {
        Entry::new(EntryKind::Merge, key, operand)
    }

    pub(crate) fn delete(key: &'a [u8]) -> Entry<'a> {
        Entry::new(EntryKind::Delete, key, &[])
    }

    /// The same write with a time of its own.
    pub(crate) fn at(self, time: Option<Time>) -> Entry<'a> {
        Entry { time, ..self }
    }

    /// The same put with an expiry; [`Time::MAX`] is none.
    pub(crate) fn until(self, expiry: Option<Time>) -> Entry<'a> {
        Entry { expiry: expiry.filter(|expiry| *expiry < Time::MAX), ..self }
    }

    /// Appends the head of the entry: everything before the bytes of the key. The length of the value and its bytes follow the key.
    #[inline]
    pub(crate) fn put_head(&self, out: &mut Vec<u8>) {
        let has_time = if self.time.is_some() { HAS_TIME } else { 0 };
        let has_expiry = if self.expiry.is_some() { HAS_EXPIRY } else { 0 };
        out.push(self.kind as u8 | has_time | has_expiry);
        put_varint(out, self.keyspace);
        if let Some(time) = self.time {
            put_varint(out, time.micros());
        }
        if let Some(expiry) = self.expiry {
            put_varint(out, expiry.micros());
        }
        put_varint(out, self.key.len() as u64);
    }

    /// Appends the whole entry.
    #[inline]
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
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
            _ => {
                let expiry_len = if self.expiry.is_some() { EXPIRY_LEN } else { 0 };
                Memtable::entry_cost(self.key.len(), self.value.len() + expiry_len + tail_len)
            }
        }
    }

    /// Inserts the entry, with `tail` and its expiry behind its value, into a memtable that has reserved room for it. `tail` is empty, or a time; a range
    /// tombstone has it as its time.
    #[inline]
    pub(crate) fn insert(&self, memtable: &Memtable, seq: Seq, tail: &[u8]) {
        match self.kind {
            EntryKind::DeleteRange => {
                let time =
                    tail.try_into().map_or(Time::MIN, |time| Time::from_micros(u64::from_le_bytes(time)));
                memtable.delete_range(RangeTombstone::new(self.key, self.value, seq, time));
            }
            kind => match self.expiry {
                None => memtable.insert_with_tail(self.key, Trailer::new(seq, kind), self.value, tail),
                Some(expiry) => {
                    let mut behind = [0; EXPIRY_LEN + PRIMARY_SUFFIX];
                    behind[..tail.len()].copy_from_slice(tail);
                    behind[tail.len()..tail.len() + EXPIRY_LEN].copy_from_slice(&expiry_bytes(expiry));
                    let (trailer, behind) =
                        (Trailer::new(seq, EntryKind::ExpiringPut), &behind[..tail.len() + EXPIRY_LEN]);
                    memtable.insert_with_tail(self.key, trailer, self.value, behind);
                }
            },
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
    /// Whether expiries and operands are allowed.
    all: bool,
}

impl<'a> Entries<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Entries { reader: Reader::new(bytes), ranges: true, times: true, all: true }
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
        let has_expiry = self.all && code & HAS_EXPIRY != 0;
        let known = if has_time { HAS_TIME } else { 0 } | if has_expiry { HAS_EXPIRY } else { 0 };
        let kind = match code & !known {
            code if code == EntryKind::DeleteRange as u8 && self.ranges && known == 0 => {
                EntryKind::DeleteRange
            }
            code if code == EntryKind::Merge as u8 && (!self.all || known != 0) => return None,
            code => EntryKind::from_code(code).filter(|kind| !has_expiry || *kind == EntryKind::Put)?,
        };
        let keyspace = self.reader.varint()?;
        let mut read_time = |is_there: bool| match is_there {
            true => {
                let time = self.reader.varint().map(Time::from_micros);
                time.filter(|time| *time < Time::MAX).map(Some)
            }
            false => Some(None),
        };
        let (time, expiry) = (read_time(has_time)?, read_time(has_expiry)?);
        let key = self.reader.bytes(MAX_KEY_LEN)?;
        let value = match kind {
            EntryKind::Put if has_expiry => self.reader.bytes(MAX_EXPIRING_LEN)?,
            EntryKind::Put | EntryKind::Merge => self.reader.bytes(MAX_VALUE_LEN)?,
            EntryKind::Delete => &[],
            // Only tables have these.
            EntryKind::Reference | EntryKind::ExpiringPut | EntryKind::ExpiringReference => return None,
            // An empty range is never written.
            EntryKind::DeleteRange => {
                self.reader.bytes(MAX_KEY_LEN).filter(|to| to.is_empty() || key < *to)?
            }
        };
        Some(Entry { kind, keyspace, time, expiry, key, value })
    }
}

/// How many bytes an entry has of which `bytes` are the first, as far as these tell: at least one more than there are, if its lengths are not among
/// them. Only puts, merges and deletes, which may have a time and an expiry.
pub(crate) fn least_len(bytes: &[u8]) -> usize {
    let known = |reader: &Reader<'_>| bytes.len() - reader.rest().len();
    let mut reader = Reader::new(bytes);
    let mut least = || {
        let code = reader.u8()?;
        // The keyspace, a time, and an expiry.
        let numbers = 1 + usize::from(code & HAS_TIME != 0) + usize::from(code & HAS_EXPIRY != 0);
        for _ in 0..numbers {
            reader.varint()?;
        }
        let key_len = reader.varint().filter(|len| *len <= MAX_KEY_LEN as u64)? as usize;
        let before = known(&reader);
        if reader.take(key_len).is_none() || code & !(HAS_TIME | HAS_EXPIRY) == EntryKind::Delete as u8 {
            return Some(before + key_len);
        }
        let value_len = reader.varint().filter(|len| *len <= MAX_VALUE_LEN as u64)? as usize;
        Some(known(&reader) + value_len)
    };
    least().unwrap_or(bytes.len() + 1)
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
    if version > BATCH_WITH_ALL {
        return None;
    }
    let first_seq = reader.varint().filter(|&seq| seq > 0)?;
    let count = reader.varint().filter(|&count| first_seq.saturating_add(count) <= base::MAX_SEQ)?;
    let has_time = match version {
        BATCH_WITH_ALL => reader.u8().filter(|has_time| *has_time <= 1)? == 1,
        version => version == BATCH_WITH_TIME,
    };
    let time = match has_time {
        true => Some(reader.varint().map(Time::from_micros).filter(|time| *time < Time::MAX)?),
        false => None,
    };
    let (ranges, all) = (version != BATCH_PLAIN, version == BATCH_WITH_ALL);
    Some(BatchRecord {
        head: BatchHead { ranges, all, first_seq, count, time },
        entries: Entries { ranges, times: has_time, all, ..Entries::new(reader.rest()) },
    })
}

/// The error for a non-empty record that is not a batch.
pub(crate) fn batch_error(record: &[u8], log: &Path, offset: u64) -> Error {
    match record.first() {
        Some(&version) if version > BATCH_WITH_ALL => {
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
    fn the_beginning_of_an_entry_tells_how_long_it_is() {
        let time = Some(Time::from_micros(1 << 40));
        let put = Entry { keyspace: 300, ..Entry::put(&[1; 200], &[2; 5000]) };
        let entries = [
            put,
            Entry { time, ..put },
            Entry { time, expiry: time, ..put },
            Entry { keyspace: 1, ..Entry::delete(&[3; 40]) },
            Entry { keyspace: 1, ..Entry::put(b"", b"") },
        ];
        for entry in entries {
            let mut bytes = Vec::new();
            entry.encode(&mut bytes);
            let len = bytes.len();
            // Others follow.
            bytes.extend_from_slice(&[0xff; 9]);
            assert_eq!(least_len(&bytes), len);
            for part in 0..len {
                let least = least_len(&bytes[..part]);
                assert!(least > part && least <= len, "{least} of {len} from {part}");
            }
            let behind_lengths = len - entry.value.len();
            assert!((behind_lengths..len).all(|part| least_len(&bytes[..part]) == len));
        }
    }

    #[test]
    fn batches_round_trip_and_hostile_ones_are_refused() {
        let mut record = Vec::new();
        let head = BatchHead { ranges: false, all: false, first_seq: 300, count: 2, time: None };
        head.put(&mut record);
        Entry { keyspace: 7, ..Entry::put(b"key", b"value") }.encode(&mut record);
        Entry { keyspace: 1, ..Entry::delete(b"") }.encode(&mut record);
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
                BatchHead { ranges: true, all: false, first_seq: 3, count: 1, time: of_batch }
                    .put(&mut record);
                Entry { keyspace: 2, ..Entry::new(kind, key, value).at(time) }.encode(&mut record);
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
                BatchHead { ranges, all: false, first_seq: 3, count: 1, time: None }.put(&mut record);
                let (key, value) = (from.as_bytes(), to.as_bytes());
                Entry { keyspace: 2, ..Entry::new(EntryKind::DeleteRange, key, value) }.encode(&mut record);
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

    #[test]
    fn puts_expire_only_in_their_version() {
        let expiry = Some(Time::from_micros(1 << 50));
        for (expiries, time, own) in [
            (true, None, None),
            (true, Some(Time::from_micros(9)), None),
            (true, Some(Time::from_micros(9)), Some(Time::from_micros(8))),
            (false, Some(Time::from_micros(9)), None),
            (false, None, None),
        ] {
            let mut record = Vec::new();
            let head = BatchHead { ranges: true, all: expiries, first_seq: 3, count: 1, time };
            head.put(&mut record);
            Entry { keyspace: 2, ..Entry::put(b"k", b"v").at(own).until(expiry) }.encode(&mut record);
            let mut batch = decode_batch(&record).unwrap();
            assert_eq!(batch.head, head);
            let entry = batch.entries.next();
            assert_eq!(entry.is_some(), expiries, "{head:?}");
            if let Some(entry) = entry {
                assert_eq!(
                    (entry.expiry, entry.time, entry.key, entry.value),
                    (expiry, own, &b"k"[..], &b"v"[..])
                );
                assert!(batch.entries.is_empty());
            }
            for cut in 0..record.len() {
                let whole =
                    decode_batch(&record[..cut]).is_some_and(|mut batch| batch.entries.next().is_some());
                assert!(!whole, "cut at {cut}");
            }
        }
        let refused = |code: u8, micros: u64| {
            let mut entry = vec![code, 2];
            put_varint(&mut entry, micros);
            entry.extend_from_slice(b"\x01k\x01v");
            Entries::new(&entry).next().is_none()
        };
        assert!(!refused(HAS_EXPIRY | EntryKind::Put as u8, 5));
        assert!(refused(HAS_EXPIRY | EntryKind::Put as u8, u64::MAX), "never is no expiry");
        assert!(refused(HAS_EXPIRY | EntryKind::Delete as u8, 5));
        assert!(refused(HAS_EXPIRY | EntryKind::DeleteRange as u8, 5));
        for code in [EntryKind::ExpiringPut, EntryKind::ExpiringReference, EntryKind::Reference] {
            assert!(refused(code as u8, 5), "only tables have these");
        }
        let mut head = vec![BATCH_WITH_ALL, 3, 1];
        assert!(decode_batch(&head).is_none());
        head.push(2);
        assert!(decode_batch(&head).is_none());
    }
}
