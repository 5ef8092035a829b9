//! The options of a writer, the description of a finished table, and the names of table files.

use crate::format::compression::Compression;
use base::codec::{Reader, put_varint};
use base::expiry::split_expiry;
use base::{MAX_SEQ, Reference, SegmentShare, Seq, Slice, Time, Trailer};
use std::sync::Arc;

/// How entries lie in a table. See `docs/format/table.md`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum TableFormat {
    /// A static B+-tree: entries in order in data blocks, with shared prefixes and an index over the blocks.
    #[default]
    BTree,
    /// Values first, then rows of one width for each class of keys by their length, which are searched by binary search (Pristupin's
    /// report, section 3.2.1).
    SizeClass,
}

base::named_enum!(TableFormat, "table format", "btree" => TableFormat::BTree, "size_class" => TableFormat::SizeClass);

/// How a table is written. Readers do not need the options: the file describes itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableOptions {
    /// How entries lie in the file.
    pub format: TableFormat,
    /// Bytes of keys and values per data block, or of values per value block, before compression. A block holds at least one entry,
    /// however large.
    pub block_size: usize,
    /// How blocks are compressed. Blocks that would shrink by less than an eighth are stored uncompressed.
    pub compression: Compression,
    /// Bits of filter per distinct key; 10 lets about one in a hundred absent keys pass. 0 writes no filter.
    pub filter_bits_per_key: u32,
    /// The owner of the table, stored in the file: salvage uses it when the manifest is lost.
    pub owner: Option<TableOwner>,
}

/// The owner of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableOwner {
    /// The owner's number.
    pub number: u64,
    /// Its name.
    pub name: Arc<str>,
    /// The number of the owner whose older versions the table has: its keys end with a time of [`KEY_TIME_LEN`] bytes.
    pub history_of: Option<u64>,
    /// Whether the owner has history: its values and tombstones have their times behind them.
    pub has_history: bool,
    /// The name of its merge operator, if it has one: its tables may have operands.
    pub merge: Option<Arc<str>>,
}

/// Bytes of the time at the end of the keys of tables with older versions.
pub const KEY_TIME_LEN: usize = 8;

impl TableOptions {
    /// Whether keys end with a time: see [`TableOwner::history_of`].
    pub fn has_times(&self) -> bool {
        self.owner.as_ref().is_some_and(|owner| owner.history_of.is_some())
    }

    /// The hash of the part of `key` that the filter of a table has: without the time, if keys end with one. So a filter tells whether the
    /// table has any version of a key, and takes no more space for many versions than for one.
    #[inline]
    pub fn filter_hash(&self, key: &[u8]) -> u64 {
        filter_hash(self.owner.as_ref(), key)
    }
}

/// [`TableOptions::filter_hash`] for a table of `owner`.
#[inline]
pub(crate) fn filter_hash(owner: Option<&TableOwner>, key: &[u8]) -> u64 {
    let timed = owner.is_some_and(|owner| owner.history_of.is_some());
    match key.split_last_chunk::<KEY_TIME_LEN>().filter(|_| timed) {
        Some((part, _)) => base::hash(part),
        None => base::hash(key),
    }
}

impl Default for TableOptions {
    fn default() -> Self {
        TableOptions {
            format: TableFormat::BTree,
            block_size: 4096,
            compression: Compression::None,
            filter_bits_per_key: 10,
            owner: None,
        }
    }
}

/// The time of an entry that is a version, by its key, trailer and value, and until when it matters to queries: when it ended, [`Time::MAX`] if it has not
/// or that is not known, or until when a delete without an end holds. `None` if it is malformed.
pub type TimesOf = fn(&[u8], Trailer, &[u8]) -> Option<(Time, Time)>;

/// The times of the versions in a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableTimes {
    /// That of the first version.
    pub earliest: Time,
    /// That of the last version.
    pub latest: Time,
    /// The end of the version that ended first.
    pub first_end: Time,
    /// The end of the version that ended last; [`Time::MAX`] if one has no end, or ends are not known.
    pub last_end: Time,
    /// Whether it may have late versions: such that were written after later ones of their keys, whose stored ends are then not the true
    /// ones.
    pub late: bool,
}

impl TableTimes {
    /// Whether the table may have versions that had not ended by `since`, and are not later than `until`.
    pub fn meet(&self, since: Option<Time>, until: Option<Time>) -> bool {
        since.is_none_or(|since| self.late || self.last_end >= since)
            && until.is_none_or(|until| self.earliest <= until)
    }

    /// The times of the blocks in which the versions for such a query are, as far as they distinguish blocks of the table.
    pub fn wanted(&self, since: Option<Time>, until: Option<Time>) -> TimesWanted {
        TimesWanted {
            since: since.filter(|since| !self.late && *since > self.first_end),
            until: until.filter(|until| *until < self.latest),
        }
    }

    /// Those of a version; `late`: it may be a late one.
    pub fn of_version(time: Time, end: Time, late: bool) -> TableTimes {
        TableTimes { earliest: time, latest: time, first_end: end, last_end: end, late }
    }

    /// Those of a table whose versions all have this time, and no ends that are known.
    pub fn of_newest(time: Time) -> TableTimes {
        TableTimes::of_version(time, Time::MAX, false)
    }

    /// The times of both.
    pub fn and(self, other: TableTimes) -> TableTimes {
        TableTimes {
            earliest: self.earliest.min(other.earliest),
            latest: self.latest.max(other.latest),
            first_end: self.first_end.min(other.first_end),
            last_end: self.last_end.max(other.last_end),
            late: self.late || other.late,
        }
    }
}

/// What a walk over a table needs.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// The times of the versions.
    pub times: TimesWanted,
    /// The first key.
    pub from: Slice,
    /// The key after the last one; `None` is the end of all keys.
    pub to: Option<Slice>,
}

/// The versions that a walk needs: those that had not ended by `since`, and are not later than `until`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimesWanted {
    /// `None`: however early they ended.
    pub since: Option<Time>,
    /// `None`: however late they are.
    pub until: Option<Time>,
}

impl TimesWanted {
    /// Whether a block with versions of these times may have some of them.
    #[inline]
    pub(crate) fn meet(&self, times: BlockTimes) -> bool {
        self.since.is_none_or(|since| times.last_end >= since)
            && self.until.is_none_or(|until| times.earliest <= until)
    }

    /// Whether all are needed.
    #[inline]
    pub fn is_all(&self) -> bool {
        self.since.is_none() && self.until.is_none()
    }
}

/// The times of the versions in a data block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockTimes {
    /// That of the first version.
    pub earliest: Time,
    /// The end of the version that ended last; [`Time::MAX`] if one has no end, or ends are not known.
    pub last_end: Time,
}

impl BlockTimes {
    /// The times of both.
    #[inline]
    pub(crate) fn and(self, other: BlockTimes) -> BlockTimes {
        BlockTimes {
            earliest: self.earliest.min(other.earliest),
            last_end: self.last_end.max(other.last_end),
        }
    }

    /// Appends the encoded times to `out`.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.earliest.micros());
        // One more, so that 0 is free for no end. An end is not before the first version, and not the largest number.
        let span = self.last_end.micros().saturating_sub(self.earliest.micros());
        put_varint(out, if self.last_end == Time::MAX { 0 } else { span.saturating_add(1) });
    }

    /// Decodes [`BlockTimes::encode`].
    #[inline]
    pub(crate) fn decode(reader: &mut Reader<'_>) -> Option<BlockTimes> {
        let (earliest, span) = (reader.varint()?, reader.varint()?);
        let last_end = match span.checked_sub(1) {
            None => Time::MAX,
            Some(span) => Time::from_micros(earliest.checked_add(span)?),
        };
        Some(BlockTimes { earliest: Time::from_micros(earliest), last_end })
    }
}

/// The expiries of the entries of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableExpiry {
    /// The number of entries that have one, at least 1.
    pub entries: u64,
    /// The first expiry.
    pub first: Time,
    /// The last one.
    pub last: Time,
}

/// The description of a finished table. All fields but `cleared_seq`, `times` and `seq_shift` are also stored in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableMeta {
    /// Number of the file.
    pub number: u64,
    /// Length of the file, in bytes.
    pub file_size: u64,
    /// Entries of any kind.
    pub entries: u64,
    /// Entries that are tombstones.
    pub tombstones: u64,
    /// Smallest user key.
    pub smallest: Vec<u8>,
    /// Largest user key.
    pub largest: Vec<u8>,
    /// Smallest sequence number.
    pub min_seq: Seq,
    /// Largest sequence number.
    pub max_seq: Seq,
    /// What readers add to the sequence numbers in the file: 0, unless the table was written before its entries got their numbers. Stored in
    /// the manifest; 0 when read from the file.
    pub seq_shift: u64,
    /// Bytes of keys and values, before prefix sharing and compression.
    pub user_bytes: u64,
    /// The table has no entry that a range tombstone with this sequence number or a smaller one deletes: they were dropped when the table
    /// was written. Stored in the manifest; 0 when read from the file.
    pub cleared_seq: Seq,
    /// Entries that are older versions of the key of the entry before, unless that is an operand, which needs them.
    pub shadowed: u64,
    /// The times of the versions, if the entries are versions.
    pub times: Option<TableTimes>,
    /// The expiries, if an entry has one.
    pub expiry: Option<TableExpiry>,
    /// The value segments that entries refer to, ascending.
    pub segments: Vec<SegmentShare>,
}

impl TableMeta {
    /// The description of a table without entries.
    pub fn empty(number: u64, file_size: u64) -> TableMeta {
        TableMeta {
            number,
            file_size,
            entries: 0,
            tombstones: 0,
            smallest: Vec::new(),
            largest: Vec::new(),
            min_seq: MAX_SEQ,
            max_seq: 0,
            seq_shift: 0,
            user_bytes: 0,
            cleared_seq: 0,
            shadowed: 0,
            times: None,
            expiry: None,
            segments: Vec::new(),
        }
    }

    /// Counts the reference of an entry that was [counted](TableMeta::count). Returns `false` if it is malformed.
    #[cold]
    pub(crate) fn count_reference(&mut self, value: &[u8]) -> bool {
        let reference = Reference::decode(value);
        reference.inspect(|reference| SegmentShare::count(&mut self.segments, reference)).is_some()
    }

    /// Counts the expiry of an entry that was [counted](TableMeta::count). Returns `false` if it has none.
    #[cold]
    pub(crate) fn count_expiry(&mut self, value: &[u8]) -> bool {
        let Some((_, expiry)) = split_expiry(value) else { return false };
        let TableExpiry { entries, first, last } =
            self.expiry.unwrap_or(TableExpiry { entries: 0, first: expiry, last: expiry });
        self.expiry =
            Some(TableExpiry { entries: entries + 1, first: first.min(expiry), last: last.max(expiry) });
        true
    }

    /// The same table, of which readers add `shift` to the sequence numbers in the file; `None` if they become too large.
    pub fn shifted(self, shift: u64) -> Option<TableMeta> {
        let max_seq = self.max_seq.checked_add(shift).filter(|&seq| seq <= MAX_SEQ)?;
        let (min_seq, seq_shift) = (self.min_seq + shift, self.seq_shift + shift);
        Some(TableMeta { min_seq, max_seq, seq_shift, ..self })
    }

    /// Whether all entries are tombstones or have expired at `time`.
    pub fn has_expired(&self, time: Time) -> bool {
        self.expiry
            .is_some_and(|expiry| expiry.last <= time && expiry.entries + self.tombstones == self.entries)
    }

    /// Counts an entry. `shadowed`: it is an older version of the key of the entry before, which is no operand. Smallest and largest key are set by the caller.
    #[inline]
    pub(crate) fn count(&mut self, shadowed: bool, trailer: Trailer, key_len: usize, value_len: usize) {
        self.entries += 1;
        self.shadowed += u64::from(shadowed);
        self.tombstones += u64::from(trailer.is_delete());
        self.min_seq = self.min_seq.min(trailer.seq());
        self.max_seq = self.max_seq.max(trailer.seq());
        self.user_bytes += (key_len + value_len) as u64;
    }
}

/// The number of a table outside of any directory of tables.
pub(crate) const UNNUMBERED: u64 = 0;

const SUFFIX: &str = ".tbl";

/// The file name of table `number`: at least six decimal digits and `.tbl`.
pub fn table_file_name(number: u64) -> String {
    format!("{number:06}{SUFFIX}")
}

/// The number of the table in the file called `name`, if that is what [`table_file_name`] would call it.
pub fn parse_table_file_name(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(SUFFIX)?;
    let number = digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse().ok())??;
    (table_file_name(number) == name).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_names_round_trip_and_others_are_refused() {
        for number in [0, 1, 123, 999_999, 1_000_000, u64::MAX] {
            assert_eq!(parse_table_file_name(&table_file_name(number)), Some(number));
        }
        assert_eq!(table_file_name(123), "000123.tbl");
        for name in
            ["", ".tbl", "123.tbl", "0000123.tbl", "+00123.tbl", "000123.log", "00012x.tbl", "000123.tbl.tmp"]
        {
            assert_eq!(parse_table_file_name(name), None, "{name}");
        }
    }

    #[test]
    fn times_of_blocks_round_trip() {
        let max = u64::MAX;
        let pairs =
            [(0, 0), (0, 1), (0, max), (5, 5), (5, 300), (1 << 50, (1 << 50) + 127), (max - 1, max - 1)];
        for (earliest, last_end) in pairs.into_iter().chain([(0, max - 1), (max, max)]) {
            let [earliest, last_end] = [earliest, last_end].map(Time::from_micros);
            let (times, mut bytes) = (BlockTimes { earliest, last_end }, Vec::new());
            times.encode(&mut bytes);
            let mut reader = Reader::new(&bytes);
            assert_eq!(BlockTimes::decode(&mut reader), Some(times));
            assert!(reader.is_empty());
            assert!(
                (0..bytes.len()).all(|len| BlockTimes::decode(&mut Reader::new(&bytes[..len])).is_none())
            );
        }
        // An end after all times.
        let mut bytes = Vec::new();
        [max, 3].into_iter().for_each(|number| put_varint(&mut bytes, number));
        assert_eq!(BlockTimes::decode(&mut Reader::new(&bytes)), None);
    }
}
