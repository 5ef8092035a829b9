//! The file of a log: its name, and its header, which describes the log before it.

use base::Seq;
use base::codec::{MAX_VARINT_LEN, Reader, put_varint};

/// File name of log `number`.
pub(crate) fn log_file_name(number: u64) -> String {
    format!("wal-{number:06}.log")
}

/// The number in a log's file name.
pub(crate) fn parse_log_file_name(name: &str) -> Option<u64> {
    let number = name.strip_prefix("wal-")?.strip_suffix(".log")?.parse().ok()?;
    (log_file_name(number) == name).then_some(number)
}

/// The header of a log, which describes the log before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LogHeader {
    /// Length of the previous log, in bytes; 0 when recovery does not need it.
    pub previous_len: u64,
    /// Sequence numbers up to this one were assigned before this log began.
    pub last_seq: Seq,
    /// Durable length of the previous log when this one began: if it is shorter, it is damaged. 0, and not encoded, when nothing of it
    /// was durable or an older Cairn wrote the header.
    pub previous_synced: u64,
}

impl LogHeader {
    pub(crate) fn encode(self) -> Vec<u8> {
        let mut out = Vec::with_capacity(3 * MAX_VARINT_LEN);
        put_varint(&mut out, self.previous_len);
        put_varint(&mut out, self.last_seq);
        if self.previous_synced > 0 {
            put_varint(&mut out, self.previous_synced);
        }
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<LogHeader> {
        let mut reader = Reader::new(bytes);
        let (previous_len, last_seq) = (reader.varint()?, reader.varint()?);
        let previous_synced = if reader.is_empty() { 0 } else { reader.varint()? };
        let header = LogHeader { previous_len, last_seq, previous_synced };
        let sound = header.last_seq <= base::MAX_SEQ && previous_synced <= previous_len;
        (reader.is_empty() && sound).then_some(header)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_from_numbers_only() {
        assert_eq!(parse_log_file_name(&log_file_name(12)), Some(12));
        assert_eq!(parse_log_file_name("wal-12.log"), None);
        assert_eq!(parse_log_file_name("wal-000012.log.tmp"), None);
        assert_eq!(parse_log_file_name(&log_file_name(12_345_678)), Some(12_345_678));
    }

    /// Found by the fuzz target `recovery`: computing the next sequence number overflowed.
    #[test]
    fn a_header_with_an_impossible_sequence_number_is_refused() {
        for (last_seq, known) in [(base::MAX_SEQ, true), (base::MAX_SEQ + 1, false), (u64::MAX, false)] {
            let header = LogHeader { last_seq, ..LogHeader::default() };
            assert_eq!(LogHeader::decode(&header.encode()), known.then_some(header), "{last_seq}");
        }
    }
}
