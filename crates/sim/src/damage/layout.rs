//! Where the chunks of a segment lie, read from its intact bytes: an account of `docs/format/segment.md` that shares no code with the
//! reader that is tested.

/// Length of a block: no chunk spans two.
const BLOCK_LEN: usize = 32 << 10;
/// Bytes in front of a chunk's payload.
const CHUNK_HEADER_LEN: usize = 11;
/// Bytes of a segment's header before what the caller put there, and of the checksum behind that.
const FIXED_LEN: usize = 24;
const SUM_LEN: usize = 4;

/// One chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Chunk {
    pub(super) start: usize,
    pub(super) end: usize,
    /// Everything below this offset was synced before it was written.
    pub(super) proves: usize,
    /// Whether its record ends with it.
    ends: bool,
}

/// A segment's chunks.
#[derive(Clone, Debug, Default)]
pub(super) struct Layout {
    pub(super) header_len: usize,
    /// Of a log: so much of the log before was synced when it began.
    pub(super) previous_synced: usize,
    pub(super) chunks: Vec<Chunk>,
}

impl Layout {
    /// Of a segment in which everything is intact; whatever comes behind the last whole chunk is left out.
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
        // In version 2 the number of the older log comes before what the log says.
        let caller = FIXED_LEN + if number(8, 2) == 2 { 8 } else { 0 };
        let previous_synced = third_varint(&bytes[caller..header_len - SUM_LEN]);
        Layout { header_len, previous_synced, chunks }
    }

    /// Records that are not empty and end at or before `offset`: batches of a log, edits of a manifest.
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

    /// The start of what `offset` is a part of: a chunk with the padding before it, the header, or the end.
    pub(super) fn start_of(&self, offset: usize) -> usize {
        if offset < self.header_len {
            return 0;
        }
        let holder = self.chunks.iter().find(|chunk| offset < chunk.end);
        let end = self.chunks.last().map_or(self.header_len, |chunk| chunk.end);
        holder.map_or(end, |chunk| chunk.start)
    }

    /// The furthest offset that the chunks from `offset` on prove to have been synced.
    pub(super) fn proven_from(&self, offset: usize) -> usize {
        self.chunks.iter().filter(|c| c.start >= offset).map(|c| c.proves).max().unwrap_or(0)
    }
}

/// The third of some integers of seven bits a byte, the lowest first; 0 when there are not so many.
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
