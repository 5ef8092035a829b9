use super::*;
use crate::hints::{HintOwner, HintWriter};
use crate::leaf::NewSlot;
use env::{Env, Rng, SimEnv};
use record::ChunkPlace;
use std::collections::BTreeMap;
use std::sync::Arc;

/// An entry as it was written.
#[derive(Clone, Debug)]
struct Written {
    key: Vec<u8>,
    seq: Seq,
    is_delete: bool,
    file: SegmentFile,
    at: ChunkPlace,
}

/// A keyspace whose values are not written at all: its index, its hint files, and what is in each file.
struct Keyspace {
    env: Arc<dyn Env>,
    index: HashIndex,
    hints: Vec<HintFile>,
    entries: Vec<Written>,
    next_file: u64,
    next_seq: Seq,
}

impl Keyspace {
    fn new(tag_bits: u32) -> Keyspace {
        let index = HashIndex::with_tag_bits(tag_bits);
        let env: Arc<dyn Env> = SimEnv::new(1);
        Keyspace { env, index, hints: Vec::new(), entries: Vec::new(), next_file: 1, next_seq: 1 }
    }

    fn reader(&self) -> HintReader {
        HintReader { env: self.env.clone(), dir: "/".into() }
    }

    /// Writes a hint file over `entries`, which are in one file, and returns their slots.
    fn hint(&mut self, entries: &[Written]) -> Vec<NewSlot> {
        let number = self.next_file;
        self.next_file += 1;
        let mut writer = HintWriter::create(
            &self.env,
            "/".as_ref(),
            number,
            &HintOwner { keyspace: 1, name: "k".to_owned() },
        )
        .unwrap();
        let position = self.index.add_file(entries[0].file, 1 << 20).unwrap();
        let mut slots = Vec::new();
        for Written { key, seq, is_delete, file, at } in entries {
            let hint = Hint { file: *file, at: *at, seq: *seq, is_delete: *is_delete, key };
            writer.push(&hint, 10).unwrap();
            let place = Place::new(position, *at, *is_delete).unwrap();
            slots.push(NewSlot { tag: self.index.tag_of(key), place, seq: *seq });
        }
        self.hints.extend(writer.finish().unwrap());
        slots
    }

    fn flush(&mut self, rng: &mut Rng, keys: u64) {
        let file = SegmentFile::Log(self.next_file);
        let mut newest = BTreeMap::new();
        for _ in 0..1 + rng.below(60) {
            newest.insert(rng.below(keys), (self.next_seq, rng.below(4) == 0));
            self.next_seq += 1;
        }
        let mut entries: Vec<Written> = newest
            .into_iter()
            .map(|(key, (seq, is_delete))| {
                let at = ChunkPlace { chunk: 100 + 40 * seq, within: 7 };
                Written { key: format!("key{key}").into_bytes(), seq, is_delete, file, at }
            })
            .collect();
        entries.sort_by_key(|entry| entry.at);
        let mut slots = self.hint(&entries);
        self.index.insert(&mut slots, &BTreeMap::new());
        self.entries.extend(entries);
    }

    /// The entry that a reader at `seq` finds.
    fn get(&self, key: &[u8], seq: Seq) -> Option<Seq> {
        let mut found = Vec::new();
        self.index.candidates(self.index.tag_of(key), &mut found);
        let read = |candidate: &crate::Candidate| {
            let at = |e: &&Written| (e.file, e.at) == (candidate.file, candidate.at);
            self.entries.iter().find(at).expect("each slot has an entry")
        };
        let entry = found.iter().map(read).find(|entry| entry.key == key && entry.seq <= seq)?;
        (!entry.is_delete).then_some(entry.seq)
    }

    /// Copies what is alive in `files` to a new one, as the engine does.
    fn collect(&mut self, files: &[SegmentFile], readers: &[Seq]) -> usize {
        let resolved =
            resolve(&self.index, &self.hints, &self.reader(), files, readers, &mut |_| Ok(())).unwrap();
        let (mut copies, mut changes) = (Vec::new(), resolved.dead.clone());
        let file = SegmentFile::Values(self.next_file);
        let position = self.index.add_file(file, 1 << 20).unwrap();
        let live = files.iter().flat_map(|file| resolved.live[file].iter().map(|slot| (*file, *slot)));
        for (i, (from, slot)) in live.enumerate() {
            let at_slot = |e: &&Written| (e.file, e.at) == (from, slot.place.at());
            let entry = self.entries.iter().find(at_slot).unwrap().clone();
            let at = ChunkPlace { chunk: 50 + 30 * i as u64, within: 5 };
            changes.push(Change {
                tag: slot.tag,
                from: slot.place,
                to: Some(Place::new(position, at, entry.is_delete).unwrap()),
            });
            copies.push(Written { file, at, ..entry });
        }
        if !copies.is_empty() {
            self.hint(&copies);
        }
        let count = changes.len() as u64;
        assert_eq!(self.index.change(&mut changes), count);
        self.entries.retain(|entry| !files.contains(&entry.file));
        self.entries.extend(copies);
        for hints in &mut self.hints {
            hints.shares.retain(|share| !files.contains(&share.file));
        }
        self.hints.retain(|hints| !hints.shares.is_empty());
        resolved.dead.len()
    }

    /// The index of an opening.
    fn loaded(&self, tag_bits: u32) -> HashIndex {
        let mut loader =
            HashIndex::with_tag_bits(tag_bits).load(self.hints.iter().map(HintFile::count).sum());
        for hints in &self.hints {
            let mut add = |hint: Hint<'_>| {
                let position = loader.add_file(hint.file, 1 << 20, 0)?;
                let place = Place::new(position, hint.at, hint.is_delete)?;
                loader.push(NewSlot { tag: loader.tag_of(hint.key), place, seq: hint.seq })
            };
            self.reader().read(hints, &mut add).unwrap();
        }
        loader.finish()
    }
}

/// What readers at any held number see is what was written, through flushes, collections and loads, also when tags collide.
#[test]
fn collections_keep_what_a_reader_can_see_and_nothing_else() {
    for seed in 0..40 {
        let (mut rng, tag_bits) = (Rng::new(seed), [32, 6, 3][seed as usize % 3]);
        let mut keyspace = Keyspace::new(tag_bits);
        let mut written: BTreeMap<Vec<u8>, BTreeMap<Seq, bool>> = BTreeMap::new();
        let (mut readers, mut dropped) = (Vec::new(), 0);
        for round in 0..60 {
            let from = keyspace.entries.len();
            keyspace.flush(&mut rng, 80);
            for entry in &keyspace.entries[from..] {
                written.entry(entry.key.clone()).or_default().insert(entry.seq, entry.is_delete);
            }
            match rng.below(6) {
                0 => readers.push(keyspace.next_seq - 1),
                1 => readers.clear(),
                _ => {}
            }
            if rng.below(3) == 0 {
                let files: Vec<SegmentFile> = keyspace.index.files().iter().map(|file| file.file).collect();
                let files: Vec<SegmentFile> = files.into_iter().filter(|_| rng.below(2) == 0).collect();
                dropped += keyspace.collect(&files, &readers);
            }
            if rng.below(8) == 0 {
                keyspace.index = keyspace.loaded(tag_bits);
            }
            for (key, versions) in &written {
                for seq in readers.iter().copied().chain([keyspace.next_seq]) {
                    let newest = versions.range(..=seq).next_back();
                    let expected = newest.filter(|(_, is_delete)| !**is_delete).map(|(seq, _)| *seq);
                    let found = keyspace.get(key, seq);
                    assert_eq!(
                        found,
                        expected,
                        "seed {seed}, round {round}, key {}, at {seq}",
                        key.escape_ascii()
                    );
                }
            }
        }
        assert!(dropped > 300, "seed {seed}: {dropped}");
        // Collections of all files, without a reader, leave one entry of each key that has a value.
        readers.clear();
        for _ in 0..3 {
            let files: Vec<SegmentFile> = keyspace.index.files().iter().map(|file| file.file).collect();
            keyspace.collect(&files, &readers);
        }
        let alive = written
            .values()
            .filter(|versions| versions.last_key_value().is_some_and(|(_, deleted)| !*deleted));
        let (alive, slots) = (alive.count() as u64, keyspace.index.slots());
        match tag_bits {
            32 => assert_eq!(slots, alive),
            // A delete of another key of the tag may stay, and what has several newer entries of other keys.
            _ => assert!(slots >= alive, "{slots} slots of {alive}"),
        }
    }
}
