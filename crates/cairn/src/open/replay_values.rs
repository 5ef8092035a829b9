//! Keyspaces without order: the entries of the log that is replayed go to value files, whole, because an opening relies on no file that it has
//! not synced.

use super::recovery::Recovery;
use super::replayed::Replayed;
use crate::state::{FlushedSlot, HashLog};
use crate::sync::Ordering;
use crate::wal::{BatchHead, Entry, MAPS_RECORD};
use base::checksum::checksum_of;
use base::{Cursor as _, EntryKind, Result, Seq};
use hashlog::{Hint, HintWriter};
use memtable::Memtable;
use record::{SegmentKind, SegmentWriter, chunk_place, payload_offset};
use std::sync::Arc;
use tree::VersionEdit;
use values::{Maps, SegmentFile, ValueFile, own_segment, value_file_name};

/// The file is written in portions of this many bytes.
const PORTION: usize = 256 << 10;

impl Recovery {
    /// Writes the newest entry of each key in a memtable to a value file, and their places to a hint file. No manifest names these yet.
    pub(super) fn flush_to_values(
        &self,
        keyspace: &mut Replayed,
        log: &HashLog,
        memtable: &Arc<Memtable>,
    ) -> Result<()> {
        let Some(newest) = memtable.max_seq() else { return Ok(()) };
        let next_number = || self.next_file.fetch_add(1, Ordering::Relaxed);
        let (number, hint_number, id) = (next_number(), next_number(), keyspace.id);
        let file = SegmentFile::Values(number);
        let path = self.dir.join(value_file_name(number));
        let mut writer = SegmentWriter::create(&self.env, &path, SegmentKind::Values, number, &[])?;
        let mut hints = HintWriter::create(&self.env, &self.dir, hint_number, id)?;
        let (mut slots, mut record, mut value_bytes) = (Vec::new(), Vec::new(), 0);
        let mut entries = memtable.cursor();
        entries.seek_to_first()?;
        let mut last: Option<Vec<u8>> = None;
        while entries.valid() {
            let (key, trailer, value) = (entries.key(), entries.trailer(), entries.value());
            if last.as_deref() != Some(key) {
                let seq: Seq = trailer.seq();
                let kind = if trailer.is_delete() { EntryKind::Delete } else { EntryKind::Put };
                record.clear();
                BatchHead { ranges: false, first_seq: seq, count: 1, time: None }.put(&mut record);
                let at = chunk_place(writer.len(), record.len() as u64);
                Entry { kind, keyspace: id, time: None, key, value }.put(&mut record);
                writer.append(&[&record])?;
                if writer.buffered() >= PORTION {
                    writer.flush()?;
                }
                let bytes = (key.len() + value.len()) as u64;
                hints.push(&Hint { file, at, seq, is_delete: trailer.is_delete(), key }, bytes)?;
                slots.push(FlushedSlot { tag: log.index.tag_of(key), file, at, seq, bytes });
                value_bytes += bytes;
                last = Some(key.to_vec());
            }
            entries.next()?;
        }
        let mut maps = Maps::default();
        maps.add_own(own_segment(number));
        let mut encoded = Vec::new();
        maps.encode(&mut encoded);
        let maps_at = payload_offset(writer.len(), 1);
        writer.append(&[&[MAPS_RECORD], &encoded])?;
        writer.flush()?;
        writer.sync().map_err(|e| e.sync_failed())?;
        let hints = hints.finish()?;
        let len = writer.len();
        let (maps_len, maps_checksum) = (encoded.len() as u32, checksum_of(&encoded));
        let segments = vec![own_segment(number)];
        let described = ValueFile {
            number,
            len,
            value_bytes: value_bytes.max(1),
            maps_at,
            maps_len,
            maps_checksum,
            segments,
        };
        log.index.add_file(file, len)?;
        log.add(hints.as_slice(), &slots)?;
        self.space.segments.add_value_file(described);
        self.space.share(log, None);
        let edit = VersionEdit { flushed_seq: Some(newest), ..VersionEdit::default() };
        keyspace.tree.apply(&edit, &mut |meta| self.space.open(meta)).map(|_| ())
    }
}
