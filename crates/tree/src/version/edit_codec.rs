//! The encoding of edits in the manifest: docs/format/manifest.md.
//!
//! The decoder takes arbitrary bytes: it checks every length and level, and returns `None` for malformed ones.

use super::edit::VersionEdit;
use super::sketch::Sketch;
use base::codec::{Reader, put_bytes, put_varint};
use base::limits::{MAX_KEY_LEN, MAX_LEVELS};
use base::{RangeTombstone, SegmentShare, Slice, Time};
use table::{TableExpiry, TableMeta, TableTimes};

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
const TAG_TIME: u64 = 12;
const TAG_SHADOWED: u64 = 13;
const TAG_TIMES: u64 = 14;
const TAG_EXPIRY: u64 = 15;
const TAG_SEQ_SHIFT: u64 = 17;

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
            if let Some(times) = &meta.times {
                put_varint(out, TAG_TIMES);
                for time in [times.earliest, times.latest, times.first_end, times.last_end] {
                    put_varint(out, time.micros());
                }
                put_varint(out, times.late.into());
            }
            if let Some(TableExpiry { entries, first, last }) = meta.expiry {
                put_varint(out, TAG_EXPIRY);
                [entries, first.micros(), last.micros()].into_iter().for_each(|n| put_varint(out, n));
            }
            if meta.shadowed > 0 {
                put_varint(out, TAG_SHADOWED);
                put_varint(out, meta.shadowed);
            }
            if meta.seq_shift > 0 {
                put_varint(out, TAG_SEQ_SHIFT);
                put_varint(out, meta.seq_shift);
            }
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
                if range.time > Time::MIN {
                    put_varint(out, TAG_TIME);
                    put_varint(out, range.time.micros());
                }
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
        // That of the next range tombstone.
        let mut time = Time::MIN;
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
                            seq_shift: 0,
                            user_bytes,
                            cleared_seq: 0,
                            shadowed: 0,
                            times: None,
                            expiry: None,
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
                TAG_TIMES => {
                    let (_, meta) = edit.added.last_mut()?;
                    meta.times = Some(read_times(&mut reader)?);
                }
                TAG_EXPIRY => {
                    let (_, meta) = edit.added.last_mut()?;
                    let expiry = read_expiry(&mut reader)?;
                    meta.expiry =
                        Some(expiry).filter(|expiry| expiry.entries <= meta.entries - meta.tombstones);
                    meta.expiry?;
                }
                TAG_SHADOWED => {
                    let (_, meta) = edit.added.last_mut()?;
                    meta.shadowed = reader.varint().filter(|&n| 0 < n && n < meta.entries)?;
                }
                TAG_SEQ_SHIFT => {
                    let (_, meta) = edit.added.last_mut()?;
                    meta.seq_shift = reader.varint().filter(|&shift| shift > 0 && shift <= meta.min_seq)?;
                }
                TAG_SEGMENTS => {
                    let (_, meta) = edit.added.last_mut()?;
                    meta.segments = SegmentShare::decode(reader.bytes(MAX_SEGMENTS_LEN)?)?;
                }
                TAG_TIME if time == Time::MIN => {
                    time = Time::from_micros(reader.varint().filter(|&micros| micros > 0)?)
                }
                TAG_RANGE_TOMBSTONE_ADDED => edit
                    .range_tombstones_added
                    .push(read_range_tombstone(&mut reader, std::mem::take(&mut time))?),
                TAG_RANGE_TOMBSTONE_REMOVED => edit
                    .range_tombstones_removed
                    .push(read_range_tombstone(&mut reader, std::mem::take(&mut time))?),
                _ => return None,
            }
        }
        (time == Time::MIN).then_some(edit)
    }
}

fn read_times(reader: &mut Reader<'_>) -> Option<TableTimes> {
    let mut time = || reader.varint().map(Time::from_micros);
    let (earliest, latest, first_end, last_end) = (time()?, time()?, time()?, time()?);
    let late = reader.varint().filter(|&late| late <= 1)? == 1;
    let sound = earliest <= latest && earliest <= first_end && first_end <= last_end && latest <= last_end;
    sound.then_some(TableTimes { earliest, latest, first_end, last_end, late })
}

fn read_expiry(reader: &mut Reader<'_>) -> Option<TableExpiry> {
    let (entries, first, last) = (reader.varint()?, reader.varint()?, reader.varint()?);
    let (first, last) = (Time::from_micros(first), Time::from_micros(last));
    (entries > 0 && first <= last).then_some(TableExpiry { entries, first, last })
}

fn read_level(reader: &mut Reader<'_>, min: usize) -> Option<usize> {
    let level = reader.len(MAX_LEVELS)?;
    (level >= min).then_some(level)
}

fn read_key(reader: &mut Reader<'_>) -> Option<Slice> {
    Some(Slice::copy_from(reader.bytes(MAX_KEY_LEN)?))
}

/// Reads a range tombstone. An empty end is the end of all keys.
fn read_range_tombstone(reader: &mut Reader<'_>, time: Time) -> Option<RangeTombstone> {
    let seq = reader.varint().filter(|&seq| seq <= base::MAX_SEQ)?;
    let (from, to) = (reader.bytes(MAX_KEY_LEN)?, reader.bytes(MAX_KEY_LEN)?);
    let range = RangeTombstone::new(from, to, seq, time);
    (!range.is_empty()).then_some(range)
}
