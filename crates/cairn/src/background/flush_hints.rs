//! Flushes of keyspaces without order: the entries stay in the log, and a hint file gets their keys and places.

use crate::state::{DbInner, FlushedSlot, HashLog, ImmutableMemtable, KeyspaceInner};
use crate::wal::log_file_name;
use base::planted::{Bug, planted};
use base::{Cursor as _, Error, ErrorKind, MAX_SEQ, Result, Seq, Trailer};
use hashlog::{Hint, HintFile, HintWriter, MAX_FILES_OF_HINTS, Place, is_seen, unpack};
use memtable::LogPlace;
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

/// The entries of memtables, oldest first, that readers at `readers` or later ones see, in the order of their sequence numbers, which is that of their
/// places; and their keys.
fn entries_of(memtables: &[ImmutableMemtable], readers: &[Seq]) -> Result<(Vec<Flushed>, Vec<u8>)> {
    let (mut entries, mut keys): (Vec<Flushed>, Vec<u8>) = (Vec::new(), Vec::new());
    let readers = if planted(Bug::FlushDespiteReaders) { &[] } else { readers };
    for (i, sealed) in memtables.iter().enumerate() {
        // Memtables without order cannot be merged.
        let is_in_newer = |key: &[u8], reader: Seq| {
            memtables[i + 1..].iter().any(|newer| newer.memtable.get(key, reader).is_some())
        };
        let first = entries.len();
        let mut cursor = sealed.memtable.cursor();
        cursor.seek_to_first()?;
        while cursor.valid() {
            let (key, trailer): (&[u8], Trailer) = (cursor.key(), cursor.trailer());
            let seq = trailer.seq();
            let last = entries[first..].last();
            let same = last.filter(|last| keys[last.key_at..last.key_at + last.key_len] == *key);
            let (key_at, is_needed) = match same {
                Some(newer) => (newer.key_at, is_seen(readers, seq, newer.seq)),
                // The first reader that may see it is the one that sees the fewest newer ones.
                None => {
                    let reader = readers.get(readers.partition_point(|reader| *reader < seq));
                    let is_seen = reader.is_some_and(|reader| !is_in_newer(key, *reader));
                    (keys.len(), is_seen || !is_in_newer(key, MAX_SEQ))
                }
            };
            if is_needed {
                if key_at == keys.len() {
                    keys.extend_from_slice(key);
                }
                let bytes = (key.len() + cursor.value().len()) as u64;
                entries.push(Flushed {
                    seq,
                    is_delete: trailer.is_delete(),
                    bytes,
                    key_at,
                    key_len: key.len(),
                });
            }
            cursor.next()?;
        }
    }
    entries.sort_unstable_by_key(|entry| entry.seq);
    Ok((entries, keys))
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::EntryKind;
    use env::Rng;
    use memtable::{Memtable, Order};
    use std::collections::BTreeMap;
    use std::sync::Arc;

    #[test]
    fn a_flush_takes_the_versions_that_are_newest_or_that_a_reader_sees() {
        let mut dropped = 0;
        for seed in 0..200 {
            let mut rng = Rng::new(seed);
            let (mut memtables, mut model) = (Vec::new(), BTreeMap::<Vec<u8>, Vec<Seq>>::new());
            let mut seq = 0;
            for _ in 0..=rng.below(3) {
                let (capacity, order) =
                    (4096 << (4 * rng.below(3)), [Order::Hash, Order::Key][rng.below(2) as usize]);
                let memtable = Memtable::try_new_in(capacity, order, &Arc::default()).unwrap();
                for _ in 0..rng.below(50) {
                    seq += 1 + rng.below(3);
                    let key = vec![b'k'; rng.below(20) as usize];
                    let kind = if rng.below(4) == 0 { EntryKind::Delete } else { EntryKind::Put };
                    assert!(memtable.reserve(Memtable::entry_cost(key.len(), 0)));
                    memtable.insert(&key, Trailer::new(seq, kind), &[]);
                    model.entry(key).or_default().push(seq);
                }
                memtables.push(ImmutableMemtable { memtable, last_seq: seq });
            }
            let mut readers: Vec<Seq> = (0..rng.below(4)).map(|_| rng.below(seq + 2)).collect();
            readers.sort_unstable();
            readers.dedup();

            let mut expected = Vec::new();
            for (key, versions) in &model {
                for (i, seq) in versions.iter().enumerate() {
                    let next = versions.get(i + 1);
                    let is_seen = readers.iter().any(|r| r >= seq && next.is_none_or(|next| r < next));
                    match next.is_none() || is_seen {
                        true => expected.push((*seq, key.clone())),
                        false => dropped += 1,
                    }
                }
            }
            expected.sort_unstable();
            let (entries, keys) = entries_of(&memtables, &readers).unwrap();
            let found = entries.iter().map(|e| (e.seq, keys[e.key_at..e.key_at + e.key_len].to_vec()));
            assert_eq!(found.collect::<Vec<_>>(), expected, "seed {seed}, readers {readers:?}");
        }
        assert!(dropped > 1000, "{dropped}");
    }
}
