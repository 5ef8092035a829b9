//! Finds the chunks of an intact segment: an implementation of `docs/format/segment.md` that shares no code with the
//! reader under test.

use std::ops::Range;

/// Length of a block. No chunk spans two blocks.
const BLOCK_LEN: usize = 32 << 10;
/// Length of a chunk header.
const CHUNK_HEADER_LEN: usize = 11;
/// Length of a segment header before the caller's header, and of the checksum behind it.
const FIXED_LEN: usize = 24;
const SUM_LEN: usize = 4;

/// A chunk of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Chunk {
    pub(super) start: usize,
    pub(super) end: usize,
    /// All bytes before this offset were synced before the chunk was written.
    pub(super) proves: usize,
    /// Whether the chunk ends its record.
    ends: bool,
}

/// The chunks of a segment.
#[derive(Clone, Debug, Default)]
pub(super) struct Layout {
    pub(super) header_len: usize,
    /// For a log: the synced length of the previous log when this one started.
    pub(super) previous_synced: usize,
    pub(super) chunks: Vec<Chunk>,
}

impl Layout {
    /// The layout of an intact segment. Ignores bytes behind the last complete chunk.
    pub(super) fn of(bytes: &[u8]) -> Layout {
        let number = |at: usize, len: usize| {
            bytes[at..at + len].iter().rev().fold(0usize, |sum, &b| sum << 8 | usize::from(b))
        };
        if bytes.len() < FIXED_LEN + SUM_LEN {
            return Layout::default();
        }
        let header_len = FIXED_LEN + number(12, 4) + SUM_LEN;
        let (mut at, mut chunks) = (header_len, Vec::new());
        loop {
            let room = BLOCK_LEN - at % BLOCK_LEN;
            if room < CHUNK_HEADER_LEN {
                at += room;
            }
            if at + CHUNK_HEADER_LEN > bytes.len() {
                break;
            }
            let (end, kind) = (at + CHUNK_HEADER_LEN + number(at + 4, 2), bytes[at + 6]);
            if end > bytes.len() || !(1..=4).contains(&kind) {
                break;
            }
            let ends = matches!(kind, 1 | 4);
            chunks.push(Chunk { start: at, end, proves: at - number(at + 7, 4).min(at), ends });
            at = end;
        }
        // In version 2, the number of the old log precedes the caller's header.
        let caller = FIXED_LEN + if number(8, 2) == 2 { 8 } else { 0 };
        let previous_synced = third_varint(&bytes[caller..header_len - SUM_LEN]);
        Layout { header_len, previous_synced, chunks }
    }

    /// Number of nonempty records that end at or before `offset`: batches of a log, edits of a manifest.
    pub(super) fn records_up_to(&self, offset: usize) -> usize {
        let (mut count, mut payload) = (0, 0);
        for chunk in self.chunks.iter().take_while(|chunk| chunk.end <= offset) {
            payload += chunk.end - chunk.start - CHUNK_HEADER_LEN;
            if chunk.ends {
                count += usize::from(payload > 0);
                payload = 0;
            }
        }
        count
    }

    /// The nonempty records in `bytes`, which are those of the segment.
    fn records(&self, bytes: &[u8]) -> Vec<Vec<u8>> {
        let (mut records, mut record) = (Vec::new(), Vec::new());
        for chunk in &self.chunks {
            record.extend_from_slice(&bytes[chunk.start + CHUNK_HEADER_LEN..chunk.end]);
            if chunk.ends {
                records.push(std::mem::take(&mut record));
            }
        }
        records.retain(|record| !record.is_empty());
        records
    }

    /// The start of the part that contains `offset`: a chunk with the padding before it, the header, or the end.
    pub(super) fn start_of(&self, offset: usize) -> usize {
        if offset < self.header_len {
            return 0;
        }
        let holder = self.chunks.iter().find(|chunk| offset < chunk.end);
        let end = self.chunks.last().map_or(self.header_len, |chunk| chunk.end);
        holder.map_or(end, |chunk| chunk.start)
    }

    /// The largest offset that chunks from `offset` on prove to be synced.
    pub(super) fn proven_from(&self, offset: usize) -> usize {
        self.chunks.iter().filter(|c| c.start >= offset).map(|c| c.proves).max().unwrap_or(0)
    }

    /// The largest offset that chunks prove to be synced which have no byte in `changed`.
    pub(super) fn proven_beside(&self, changed: Range<usize>) -> usize {
        let intact = self.chunks.iter().filter(|c| c.end <= changed.start || c.start >= changed.end);
        intact.map(|c| c.proves).max().unwrap_or(0)
    }
}

/// The number of the first log that an opening replays, according to an intact manifest: the largest field 7 of its edits
/// (`docs/format/manifest.md`). Logs before it hold nothing but values.
pub(super) fn first_replayed_log(manifest: &[u8]) -> u64 {
    let records = Layout::of(manifest).records(manifest);
    records.iter().filter_map(|edit| min_log(&mut &edit[..])).max().unwrap_or(0)
}

/// The largest field 7 of an edit.
fn min_log(edit: &mut &[u8]) -> Option<u64> {
    let mut min_log = None;
    while !edit.is_empty() {
        match varint(edit) {
            1 => {
                varint(edit);
                skip_bytes(edit);
                varint(edit);
                (0..2 * varint(edit)).for_each(|_| skip_bytes(edit));
            }
            3 => {
                varint(edit);
                skip_bytes(edit);
            }
            7 => min_log = min_log.max(Some(varint(edit))),
            9 | 15 => {
                varint(edit);
                varint(edit);
            }
            14 => {
                varint(edit);
                skip_bytes(edit);
            }
            10 => skip_bytes(edit),
            2 | 4 | 5 | 6 | 8 | 11 | 12 | 13 => _ = varint(edit),
            tag => panic!("docs/format/manifest.md has no field {tag}"),
        }
    }
    min_log
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let end = bytes.iter().position(|byte| *byte < 0x80).expect("an intact varint ends");
    let number = bytes[..=end].iter().rev().fold(0, |sum, &byte| sum << 7 | u64::from(byte & 0x7f));
    *bytes = &bytes[end + 1..];
    number
}

fn skip_bytes(bytes: &mut &[u8]) {
    let len = varint(bytes) as usize;
    *bytes = &bytes[len..];
}

/// The third varint in `bytes`; 0 if there are fewer.
fn third_varint(bytes: &[u8]) -> usize {
    let ends = bytes.iter().enumerate().filter(|(_, byte)| **byte < 0x80).map(|(at, _)| at);
    let ends: Vec<usize> = ends.collect();
    match ends[..] {
        [_, second, third, ..] => {
            bytes[second + 1..=third].iter().rev().fold(0, |sum, &b| sum << 7 | usize::from(b & 0x7f))
        }
        _ => 0,
    }
}
