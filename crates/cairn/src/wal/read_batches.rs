//! Reads the batches of one file of values, a log or a value file, with the place of each value.

use super::batch_record::{Entry, batch_error, decode_batch};
use base::{EntryKind, Result, Seq, Time};
use env::Env;
use record::{SegmentKind, SegmentReader, payload_offset};
use std::path::Path;
use std::sync::Arc;

/// The first byte of a record that is no batch, but the maps of a value file.
pub(crate) const MAPS_RECORD: u8 = 255;

/// A put, and the offset of its value in the file.
pub(crate) struct Placed<'a> {
    pub seq: Seq,
    /// The time of its batch, if that has one.
    pub time: Option<Time>,
    pub entry: Entry<'a>,
    pub offset: u64,
}

/// Passes the puts in a file to `visit`, in order, while it returns `true`.
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
            let entry = batch.entries.next().ok_or_else(malformed)?;
            if entry.kind != EntryKind::Put {
                continue;
            }
            let index = record.len() - batch.entries.left() - entry.value.len();
            let offset = payload_offset(span.start, index as u64);
            let placed = Placed { seq: batch.head.first_seq + i, time: batch.head.time, entry, offset };
            if !visit(placed) {
                return Ok(());
            }
        }
    }
    Ok(())
}
