//! What value files consist of: the record of an entry, and the maps at the end.

use super::batch_record::{BatchHead, Entry};
use super::read_batches::MAPS_RECORD;
use base::checksum::checksum_of;
use base::planted::{Bug, planted};
use base::{Result, Seq, Time};
use record::{ChunkPlace, SegmentWriter, chunk_place, payload_offset};
use values::{Maps, ValueFile};

/// Where an entry is in a value file.
pub(crate) struct AppendedEntry {
    /// Where it begins.
    pub at: ChunkPlace,
    /// The offset of its value.
    pub value_at: u64,
}

/// Appends an entry as a batch of its own. `record` is a buffer.
pub(crate) fn append_entry(
    writer: &mut SegmentWriter,
    record: &mut Vec<u8>,
    (seq, time): (Seq, Option<Time>),
    entry: &Entry<'_>,
) -> Result<AppendedEntry> {
    record.clear();
    BatchHead { ranges: false, all: entry.expiry.is_some(), first_seq: seq, count: 1, time }.put(record);
    let at = chunk_place(writer.len(), record.len() as u64);
    entry.encode(record);
    let value_at = payload_offset(writer.len(), (record.len() - entry.value.len()) as u64);
    writer.append(&[record])?;
    Ok(AppendedEntry { at, value_at })
}

/// Appends the maps, syncs the file, and describes it. `value_bytes`: those of its values, and of the entries of keyspaces without order,
/// each of which counts one more.
pub(crate) fn end_value_file(writer: &mut SegmentWriter, maps: &Maps, value_bytes: u64) -> Result<ValueFile> {
    let mut encoded = Vec::new();
    maps.encode(&mut encoded);
    let maps_at = payload_offset(writer.len(), 1);
    writer.append(&[&[MAPS_RECORD], &encoded])?;
    writer.flush()?;
    if !planted(Bug::SkipValueSync) {
        writer.sync().map_err(|e| e.sync_failed())?;
    }
    Ok(ValueFile {
        number: writer.number(),
        len: writer.len(),
        // Entries may have neither a key nor a value, and no file is empty.
        value_bytes: value_bytes.max(1),
        maps_at,
        maps_len: encoded.len() as u32,
        maps_checksum: checksum_of(&encoded),
        segments: maps.segments(),
    })
}
