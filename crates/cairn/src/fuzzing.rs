//! Entry points for the fuzz targets of `crates/fuzz-targets`: the decoders of log records and of file names, on untrusted bytes, with
//! the invariants of their results. Each function returns whether the bytes were accepted.
//!
//! Not part of the public library: the feature `fuzzing` is only on for those targets.

use crate::wal::{LogHeader, decode_batch, log_file_name, parse_log_file_name};
use base::EntryKind;
use base::limits::{MAX_KEY_LEN, MAX_VALUE_LEN};
use table::{parse_table_file_name, table_file_name};
use tree::{manifest_file_name, parse_manifest_file_name};

/// Decodes the record of a batch.
pub fn batch(data: &[u8]) -> bool {
    let Some(mut batch) = decode_batch(data) else { return false };
    let head = batch.head;
    assert!(head.first_seq > 0 && head.first_seq + head.count <= base::MAX_SEQ);
    let mut encoded = Vec::new();
    head.put(&mut encoded);
    // The count is untrusted: the entries end where the bytes end.
    for _ in 0..head.count {
        let Some(entry) = batch.entries.next() else { return false };
        assert!(entry.key.len() <= MAX_KEY_LEN && entry.value.len() <= MAX_VALUE_LEN);
        if entry.kind == EntryKind::DeleteRange {
            assert!(head.ranges && entry.value.len() <= MAX_KEY_LEN);
            assert!(entry.value.is_empty() || entry.key < entry.value);
        }
        assert!(entry.time.is_none() || head.time.is_some());
        assert!(entry.expiry.is_none() || head.all && entry.kind == EntryKind::Put);
        assert!(entry.kind != EntryKind::Merge || head.all && entry.time.is_none());
        entry.encode(&mut encoded);
    }
    if !batch.entries.is_empty() {
        return false;
    }
    assert!(encoded.len() <= data.len(), "the canonical form is the shortest");
    if encoded.len() == data.len() {
        assert_eq!(encoded, data);
    }
    let again = decode_batch(&encoded).expect("what was encoded decodes");
    assert_eq!(again.head, head);
    true
}

/// Decodes the header of a log.
pub fn log_header(data: &[u8]) -> bool {
    let Some(header) = LogHeader::decode(data) else { return false };
    let encoded = header.encode();
    assert_eq!(LogHeader::decode(&encoded), Some(header));
    assert!(encoded.len() <= data.len());
    true
}

/// Parses a file name: a name that is accepted is exactly the name that its number gets.
pub fn file_name(data: &[u8]) -> bool {
    let Ok(name) = std::str::from_utf8(data) else { return false };
    let ours = [
        parse_log_file_name(name).map(log_file_name),
        parse_table_file_name(name).map(table_file_name),
        parse_manifest_file_name(name).map(manifest_file_name),
    ];
    let found: Vec<String> = ours.into_iter().flatten().collect();
    assert!(found.len() <= 1, "{name:?} is taken for two kinds of files");
    assert!(found.iter().all(|of_number| of_number == name), "{name:?} is taken for {found:?}");
    assert!(found.is_empty() || !name.contains(['/', '\\', '\0']));
    !found.is_empty()
}
