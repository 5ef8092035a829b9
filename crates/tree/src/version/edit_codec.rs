//! The encoding of edits in the manifest: docs/format/manifest.md.
//!
//! The decoder takes arbitrary bytes: it checks every length and level, and returns `None` for malformed ones.

use super::edit::VersionEdit;
use super::sketch::Sketch;
use base::codec::{Reader, put_bytes, put_varint};
use base::limits::{MAX_KEY_LEN, MAX_LEVELS};
use base::{RangeTombstone, SegmentShare, Slice};
use table::TableMeta;

const TAG_ADDED: u64 = 1;
const TAG_REMOVED: u64 = 2;
const TAG_GUARD_ADDED: u64 = 3;
const TAG_GUARD_REMOVED: u64 = 4;
const TAG_UNCOMMITTED_ADDED: u64 = 5;
const TAG_UNCOMMITTED_REMOVED: u64 = 6;
const TAG_FLUSHED_SEQ: u64 = 7;
const TAG_SKETCH: u64 = 16;
const TAG_RANGE_TOMBSTONE_ADDED: u64 = 8;
const TAG_RANGE_TOMBSTONE_REMOVED: u64 = 9;
const TAG_CLEARED: u64 = 10;
const TAG_SEGMENTS: u64 = 11;

/// Maximum bytes of the encoded segments of a table.
const MAX_SEGMENTS_LEN: usize = 1 << 20;

impl VersionEdit {
    /// Appends the encoded fields, each after its tag.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        for (level, meta) in &self.added {
            put_varint(out, TAG_ADDED);
            put_varint(out, *level as u64);
            for number in [
                meta.number,
                meta.file_size,
                meta.entries,
                meta.tombstones,
                meta.min_seq,
                meta.max_seq,
                meta.user_bytes,
            ] {
                put_varint(out, number);
            }
            put_bytes(out, &meta.smallest);
            put_bytes(out, &meta.largest);
            if meta.cleared_seq > 0 {
                put_varint(out, TAG_CLEARED);
                put_varint(out, meta.cleared_seq);
            }
            if !meta.segments.is_empty() {
                let mut segments = Vec::new();
                SegmentShare::encode(&meta.segments, &mut segments);
                put_varint(out, TAG_SEGMENTS);
                put_bytes(out, &segments);
            }
        }
        for (level, number) in &self.removed {
            put_varint(out, TAG_REMOVED);
            put_varint(out, *level as u64);
            put_varint(out, *number);
        }
        for (tag, guards) in [
            (TAG_GUARD_ADDED, &self.guards_added),
            (TAG_GUARD_REMOVED, &self.guards_removed),
            (TAG_UNCOMMITTED_ADDED, &self.uncommitted_added),
        ] {
            for (level, key) in guards {
                put_varint(out, tag);
                put_varint(out, *level as u64);
                put_bytes(out, key);
            }
        }
        for key in &self.uncommitted_removed {
            put_varint(out, TAG_UNCOMMITTED_REMOVED);
            put_bytes(out, key);
        }
        if let Some(seq) = self.flushed_seq {
            put_varint(out, TAG_FLUSHED_SEQ);
            put_varint(out, seq);
        }
        for (number, sketch) in &self.sketches {
            put_varint(out, TAG_SKETCH);
            put_varint(out, *number);
            put_bytes(out, &sketch.encode());
        }
        for (tag, range_tombstones) in [
            (TAG_RANGE_TOMBSTONE_ADDED, &self.range_tombstones_added),
            (TAG_RANGE_TOMBSTONE_REMOVED, &self.range_tombstones_removed),
        ] {
            for range in range_tombstones {
                put_varint(out, tag);
                put_varint(out, range.seq);
                put_bytes(out, &range.from);
                put_bytes(out, range.to.as_deref().unwrap_or_default());
            }
        }
    }

    /// Decodes all fields; `None` if they are malformed.
    pub(crate) fn decode(bytes: &[u8]) -> Option<VersionEdit> {
        let mut edit = VersionEdit::default();
        let mut reader = Reader::new(bytes);
        while !reader.is_empty() {
            match reader.varint()? {
                TAG_ADDED => {
                    let level = read_level(&mut reader, 0)?;
                    let mut numbers = [0u64; 7];
                    for number in &mut numbers {
                        *number = reader.varint()?;
                    }
                    let [number, file_size, entries, tombstones, min_seq, max_seq, user_bytes] = numbers;
                    let smallest = reader.bytes(MAX_KEY_LEN)?.to_vec();
                    let largest = reader.bytes(MAX_KEY_LEN)?.to_vec();
                    if smallest > largest
                        || min_seq > max_seq
                        || max_seq > base::MAX_SEQ
                        || tombstones > entries
                    {
                        return None;
                    }
                    edit.added.push((
                        level,
                        TableMeta {
                            number,
                            file_size,
                            entries,
                            tombstones,
                            smallest,
                            largest,
                            min_seq,
                            max_seq,
                            user_bytes,
                            cleared_seq: 0,
                            segments: Vec::new(),
                        },
                    ));
                }
                TAG_REMOVED => edit.removed.push((read_level(&mut reader, 0)?, reader.varint()?)),
                TAG_GUARD_ADDED => {
                    edit.guards_added.push((read_level(&mut reader, 1)?, read_key(&mut reader)?))
                }
                TAG_GUARD_REMOVED => {
                    edit.guards_removed.push((read_level(&mut reader, 1)?, read_key(&mut reader)?))
                }
                TAG_UNCOMMITTED_ADDED => {
                    edit.uncommitted_added.push((read_level(&mut reader, 1)?, read_key(&mut reader)?))
                }
                TAG_UNCOMMITTED_REMOVED => edit.uncommitted_removed.push(read_key(&mut reader)?),
                TAG_FLUSHED_SEQ => {
                    edit.flushed_seq = Some(reader.varint().filter(|&seq| seq <= base::MAX_SEQ)?);
                }
                TAG_SKETCH => {
                    let number = reader.varint()?;
                    edit.sketches.push((number, Sketch::decode(reader.bytes(Sketch::MAX_ENCODED_LEN)?)?));
                }
                TAG_CLEARED => {
                    let (_, meta) = edit.added.last_mut()?;
                    meta.cleared_seq = reader.varint().filter(|&seq| seq <= base::MAX_SEQ)?;
                }
                TAG_SEGMENTS => {
                    let (_, meta) = edit.added.last_mut()?;
                    meta.segments = SegmentShare::decode(reader.bytes(MAX_SEGMENTS_LEN)?)?;
                }
                TAG_RANGE_TOMBSTONE_ADDED => {
                    edit.range_tombstones_added.push(read_range_tombstone(&mut reader)?)
                }
                TAG_RANGE_TOMBSTONE_REMOVED => {
                    edit.range_tombstones_removed.push(read_range_tombstone(&mut reader)?)
                }
                _ => return None,
            }
        }
        Some(edit)
    }
}

fn read_level(reader: &mut Reader<'_>, min: usize) -> Option<usize> {
    let level = reader.len(MAX_LEVELS)?;
    (level >= min).then_some(level)
}

fn read_key(reader: &mut Reader<'_>) -> Option<Slice> {
    Some(Slice::copy_from(reader.bytes(MAX_KEY_LEN)?))
}

/// Reads a range tombstone. An empty end is the end of all keys.
fn read_range_tombstone(reader: &mut Reader<'_>) -> Option<RangeTombstone> {
    let seq = reader.varint().filter(|&seq| seq <= base::MAX_SEQ)?;
    let (from, to) = (reader.bytes(MAX_KEY_LEN)?, reader.bytes(MAX_KEY_LEN)?);
    let range = RangeTombstone::new(from, to, seq);
    (!range.is_empty()).then_some(range)
}
