//! Reads the batches of one file of values, a log or a value file, with the place of each value.

use super::batch_record::{Entry, batch_error, decode_batch};
use base::{EntryKind, Result, Seq, Time};
use env::Env;
use record::{ChunkPlace, SegmentKind, SegmentReader, chunk_place, payload_offset};
use std::path::Path;
use std::sync::Arc;

/// The first byte of a record that is no batch, but the maps of a value file.
pub(crate) const MAPS_RECORD: u8 = 255;

/// A put or a delete, and where it is in the file.
pub(crate) struct Placed<'a> {
    pub seq: Seq,
    /// The time of its batch, if that has one.
    pub time: Option<Time>,
    pub entry: Entry<'a>,
    /// Where the entry begins.
    pub at: ChunkPlace,
    /// The offset of the value of a put; 0 for a delete.
    pub offset: u64,
}

/// Passes the puts and deletes in a file to `visit`, in order, while it returns `true`.
///
/// # Errors
/// `Corruption`, with file and offset, if a record is damaged, or is no batch; `Io`.
pub(crate) fn read_batches(
    env: &Arc<dyn Env>,
    path: &Path,
    kind: SegmentKind,
    number: u64,
    visit: &mut dyn FnMut(Placed<'_>) -> bool,
) -> Result<()> {
    let mut reader = SegmentReader::open(env, path, kind, number, None)?;
    let mut record = Vec::new();
    while let Some(span) = reader.next(&mut record)? {
        if record.is_empty() || kind == SegmentKind::Values && record[0] == MAPS_RECORD {
            continue;
        }
        let malformed = || batch_error(&record, path, span.start);
        let mut batch = decode_batch(&record).ok_or_else(malformed)?;
        for i in 0..batch.head.count {
            let begin = record.len() - batch.entries.left();
            let entry = batch.entries.next().ok_or_else(malformed)?;
            let value_at = record.len() - batch.entries.left() - entry.value.len();
            let offset = match entry.kind {
                EntryKind::Put => payload_offset(span.start, value_at as u64),
                EntryKind::Delete => 0,
                _ => continue,
            };
            let (seq, at) = (batch.head.first_seq + i, chunk_place(span.start, begin as u64));
            let placed = Placed { seq, time: batch.head.time, entry, at, offset };
            if !visit(placed) {
                return Ok(());
            }
        }
    }
    Ok(())
}
