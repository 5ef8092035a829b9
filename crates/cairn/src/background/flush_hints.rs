//! Flushes of keyspaces without order: the entries stay in the log, and a hint file gets their keys and places.

use crate::state::{DbInner, FlushedSlot, HashLog, ImmutableMemtable, KeyspaceInner};
use crate::wal::log_file_name;
use base::{Cursor as _, Error, ErrorKind, Result, Seq, Trailer};
use hashlog::{Hint, HintFile, HintWriter, MAX_FILES_OF_HINTS, Place, is_seen, unpack};
use memtable::LogPlace;
use tree::MergeCursor;
use values::SegmentFile;

/// The hint files of a flush, and the slots that the index gets.
#[derive(Default)]
pub(super) struct FlushedHints {
    pub files: Vec<HintFile>,
    pub slots: Vec<FlushedSlot>,
}

/// An entry of memtables that a hint file gets. Its key is in a buffer with those of the others.
struct Flushed {
    seq: Seq,
    is_delete: bool,
    bytes: u64,
    key_at: usize,
    key_len: usize,
}

impl DbInner {
    /// Writes and syncs the hint files for immutable memtables of a keyspace, oldest first, but not their directory.
    pub(super) fn write_hints(
        &self,
        keyspace: &KeyspaceInner,
        log: &HashLog,
        memtables: &[ImmutableMemtable],
    ) -> Result<FlushedHints> {
        let mut numbers = Vec::new();
        let written = self.try_write_hints(keyspace, log, memtables, &mut numbers);
        if written.is_err() {
            self.remove_hints(numbers.into_iter());
        }
        written
    }

    /// The same; an error may leave hint files, whose numbers are in `numbers`.
    fn try_write_hints(
        &self,
        keyspace: &KeyspaceInner,
        log: &HashLog,
        memtables: &[ImmutableMemtable],
        numbers: &mut Vec<u64>,
    ) -> Result<FlushedHints> {
        let (entries, keys) = entries_of(memtables, &self.readers_of(keyspace))?;
        let mut hints = FlushedHints::default();
        let mut position = 0;
        let mut writer: Option<HintWriter> = None;
        let mut places = memtables.iter().flat_map(|sealed| sealed.memtable.places()).peekable();
        let mut logs = 0;
        let mut last = None;
        for entry in entries {
            let noted = std::iter::from_fn(|| places.next_if(|place| place.seq <= entry.seq)).last();
            let LogPlace { log: number, offset, .. } =
                noted.filter(|place| place.seq == entry.seq).ok_or_else(|| no_place(keyspace, entry.seq))?;
            if last != Some(number) {
                let len = self.env.len(&self.dir.join(log_file_name(number)))?;
                let file = SegmentFile::Log(number);
                let of_keyspace = |e: Error| e.context(format_args!("keyspace {:?}", keyspace.name()));
                position = log.index.add_flushed_file(file, len).map_err(of_keyspace)?;
                (last, logs) = (Some(number), logs + 1);
                if logs % MAX_FILES_OF_HINTS == 0 {
                    hints.files.extend(writer.take().map(HintWriter::finish).transpose()?.flatten());
                }
            }
            let key = &keys[entry.key_at..entry.key_at + entry.key_len];
            let (file, at, seq) = (SegmentFile::Log(number), unpack(offset), entry.seq);
            // Before the manifest names it: a place that the index cannot have is an error.
            let place = Place::new(position, at, entry.is_delete)?;
            let writer = match &mut writer {
                Some(writer) => writer,
                None => {
                    numbers.push(self.new_number());
                    let number = *numbers.last().expect("one was pushed");
                    writer.insert(HintWriter::create(&self.env, &self.dir, number, &keyspace.hint_owner())?)
                }
            };
            writer.push(&Hint { file, at, seq, is_delete: entry.is_delete, key }, entry.bytes)?;
            let tag = log.index.tag_of(key);
            hints.slots.push(FlushedSlot { tag, file, place, seq, bytes: entry.bytes });
        }
        hints.files.extend(writer.map(HintWriter::finish).transpose()?.flatten());
        Ok(hints)
    }
}

fn no_place(keyspace: &KeyspaceInner, seq: Seq) -> Error {
    let what = format!("keyspace {:?}: the log has no place of entry {seq}", keyspace.name());
    Error::new(ErrorKind::Corruption, what)
}

/// The entries of memtables that readers at `readers` or later ones see, in the order of their sequence numbers, which is that of their places; and
/// their keys.
fn entries_of(memtables: &[ImmutableMemtable], readers: &[Seq]) -> Result<(Vec<Flushed>, Vec<u8>)> {
    let mut merged = MergeCursor::new(memtables.iter().map(|sealed| sealed.memtable.cursor()).collect(), 0);
    let (mut entries, mut keys): (Vec<Flushed>, Vec<u8>) = (Vec::new(), Vec::new());
    merged.seek_to_first()?;
    while merged.valid() {
        let (key, trailer): (&[u8], Trailer) = (merged.key(), merged.trailer());
        let seq = trailer.seq();
        let same = entries.last().filter(|last| keys[last.key_at..last.key_at + last.key_len] == *key);
        let (key_at, is_needed) = match same {
            Some(newer) => (newer.key_at, is_seen(readers, seq, newer.seq)),
            None => (keys.len(), true),
        };
        if is_needed {
            if key_at == keys.len() {
                keys.extend_from_slice(key);
            }
            let bytes = (key.len() + merged.value().len()) as u64;
            entries.push(Flushed { seq, is_delete: trailer.is_delete(), bytes, key_at, key_len: key.len() });
        }
        merged.next()?;
    }
    entries.sort_unstable_by_key(|entry| entry.seq);
    Ok((entries, keys))
}
