//! Keyspaces without order: the entries of the log that is replayed go to value files, whole, because an opening relies on no file that it has
//! not synced.

use super::recovery::Recovery;
use super::replayed::Replayed;
use crate::state::{FlushedSlot, HashLog, split_value};
use crate::sync::Ordering;
use crate::wal::{Entry, append_entry, end_value_file};
use base::{Cursor as _, EntryKind, Result, Seq};
use hashlog::{Hint, HintOwner, HintWriter, Place};
use memtable::Memtable;
use record::{SegmentKind, SegmentWriter};
use std::sync::Arc;
use tree::VersionEdit;
use values::{Maps, SegmentFile, own_segment, value_file_name};

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
        let next_number = || self.parts.next_file.fetch_add(1, Ordering::Relaxed);
        let (number, hint_number, id) = (next_number(), next_number(), keyspace.id);
        let file = SegmentFile::Values(number);
        let path = self.parts.dir.join(value_file_name(number));
        let mut writer = SegmentWriter::create(&self.parts.env, &path, SegmentKind::Values, number, &[])?;
        let mut hints = HintWriter::create(
            &self.parts.env,
            &self.parts.dir,
            hint_number,
            &HintOwner { keyspace: id, name: keyspace.name.clone() },
        )?;
        let (mut slots, mut record, mut value_bytes) = (Vec::new(), Vec::new(), 0);
        let mut entries = memtable.cursor();
        entries.seek_to_first()?;
        let mut last: Option<Vec<u8>> = None;
        while entries.valid() {
            let (key, trailer) = (entries.key(), entries.trailer());
            let (value, expiry) = split_value(trailer, entries.value())?;
            if last.as_deref() != Some(key) {
                let seq: Seq = trailer.seq();
                let kind = if trailer.is_delete() { EntryKind::Delete } else { EntryKind::Put };
                let entry = Entry { keyspace: id, ..Entry::new(kind, key, value).until(expiry) };
                let at = append_entry(&mut writer, &mut record, (seq, None), &entry)?.at;
                if writer.buffered() >= PORTION {
                    writer.flush()?;
                }
                let bytes = (key.len() + value.len()) as u64;
                hints.push(&Hint { file, at, seq, is_delete: trailer.is_delete(), key }, bytes)?;
                let place = Place::new(0, at, trailer.is_delete())?;
                slots.push(FlushedSlot { tag: log.index.tag_of(key), file, place, seq, bytes });
                value_bytes += bytes + 1;
                last = Some(key.to_vec());
            }
            entries.next()?;
        }
        let mut maps = Maps::default();
        maps.add_own(own_segment(number));
        let described = end_value_file(&mut writer, &maps, value_bytes)?;
        let hints = hints.finish()?;
        log.index.add_file(file, described.len)?;
        log.add(hints.as_slice(), &slots)?;
        self.parts.tables.segments.add_value_file(described);
        self.parts.tables.share(log, None);
        let edit = VersionEdit { flushed_seq: Some(newest), ..VersionEdit::default() };
        keyspace.tree.apply(&edit, &mut |meta| self.parts.tables.open(meta)).map(|_| ())
    }
}
