//! The options of a writer, the description of a finished table, and the names of table files.

use crate::format::compression::Compression;
use base::{MAX_SEQ, Reference, SegmentShare, Seq, Trailer};
use std::sync::Arc;

/// How a table is written. Readers do not need the options: the file describes itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableOptions {
    /// Bytes of keys and values per data block, before compression. A block holds at least one entry, however large.
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
}

impl Default for TableOptions {
    fn default() -> Self {
        TableOptions {
            block_size: 4096,
            compression: Compression::None,
            filter_bits_per_key: 10,
            owner: None,
        }
    }
}

/// The description of a finished table. All fields but `cleared_seq` are also stored in the file.
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
    /// Bytes of keys and values, before prefix sharing and compression.
    pub user_bytes: u64,
    /// The table has no entry that a range tombstone with this sequence number or a smaller one deletes: they were dropped when the table
    /// was written. Stored in the manifest; 0 when read from the file.
    pub cleared_seq: Seq,
    /// The value segments that entries refer to, ascending.
    pub segments: Vec<SegmentShare>,
}

impl TableMeta {
    /// The description of a table to which entries are [counted](TableMeta::count).
    pub(crate) fn empty(number: u64, file_size: u64) -> TableMeta {
        TableMeta {
            number,
            file_size,
            entries: 0,
            tombstones: 0,
            smallest: Vec::new(),
            largest: Vec::new(),
            min_seq: MAX_SEQ,
            max_seq: 0,
            user_bytes: 0,
            cleared_seq: 0,
            segments: Vec::new(),
        }
    }

    /// Counts the reference of an entry that was [counted](TableMeta::count). Returns `false` if it is malformed.
    #[cold]
    pub(crate) fn count_reference(&mut self, value: &[u8]) -> bool {
        let reference = Reference::decode(value);
        reference.inspect(|reference| SegmentShare::count(&mut self.segments, reference)).is_some()
    }

    /// Counts an entry. Smallest and largest key are set by the caller.
    #[inline]
    pub(crate) fn count(&mut self, trailer: Trailer, key_len: usize, value_len: usize) {
        self.entries += 1;
        self.tombstones += u64::from(trailer.is_delete());
        self.min_seq = self.min_seq.min(trailer.seq());
        self.max_seq = self.max_seq.max(trailer.seq());
        self.user_bytes += (key_len + value_len) as u64;
    }
}

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
}
