use super::*;
use base::ErrorKind;
use env::Rng;

/// Slots by tag, the newest first, as they should be; and the file and the offset of each.
type Model = BTreeMap<u32, Vec<Place>>;

/// The place of an entry, every third of which is a delete.
fn place(file: u32, offset: u64) -> Place {
    let at = ChunkPlace { chunk: offset, within: (offset % 100) as u16 };
    Place::new(file, at, offset.is_multiple_of(3)).unwrap()
}

/// Which slot of a tag counts as alive.
fn alive(places: &[Place]) -> Option<Place> {
    match places {
        [only] if only.is_delete() => None,
        places => places.first().copied(),
    }
}

fn compare(index: &HashIndex, model: &Model, seed: u64) {
    let (mut group, mut slots, mut live) = (Vec::new(), 0, 0);
    for (tag, places) in model {
        index.group(*tag, &mut group);
        assert_eq!(group, *places, "seed {seed}, tag {tag:x}");
        slots += places.len() as u64;
        live += u64::from(alive(places).is_some());
    }
    assert_eq!((index.slots(), index.live()), (slots, live), "seed {seed}");
    let mut uses: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    for places in model.values() {
        for place in places {
            let file = uses.entry(place.file()).or_default();
            *file = (file.0 + 1, file.1 + u64::from(alive(places) == Some(*place)));
        }
    }
    let found: BTreeMap<u32, (u64, u64)> = (0..64)
        .filter_map(|position| index.file(position).map(|file| (position, (file.slots, file.live))))
        .filter(|(_, (slots, _))| *slots > 0)
        .collect();
    assert_eq!(found, uses, "seed {seed}");
}

/// Tags of all kinds: spread, in few groups, with a common beginning, and all the same.
fn tag(rng: &mut Rng, kind: u64) -> u32 {
    match kind {
        0 => rng.next_u64() as u32,
        1 => (rng.below(300) as u32).wrapping_mul(0x9e37_79b9),
        2 => rng.below(5000) as u32,
        _ => 7,
    }
}

#[test]
fn an_index_is_a_map_from_tags_to_places_in_order() {
    for seed in 0..24 {
        let (mut rng, index) = (Rng::new(seed), HashIndex::default());
        let (mut model, mut seq) = (Model::new(), 0);
        for round in 0..24u64 {
            let file = index.add_file(SegmentFile::Log(round + 1), 1 << 20).unwrap();
            let mut new = Vec::new();
            for i in 0..rng.below(2000) {
                seq += 1;
                let slot = NewSlot { tag: tag(&mut rng, seed % 4), place: place(file, 40 * i), seq };
                model.entry(slot.tag).or_default().insert(0, slot.place);
                new.push(slot);
            }
            index.insert(&mut new, &BTreeMap::new());
            // A collection: some slots move to a new file, others go.
            let to = index.add_file(SegmentFile::Values(round + 1), 1 << 20).unwrap();
            let (mut changes, mut at) = (Vec::new(), 0);
            for (tag, places) in &mut model {
                places.retain_mut(|place| {
                    if rng.below(12) > 0 {
                        return true;
                    }
                    at += 50;
                    let moved = (rng.below(2) == 0).then(|| self::place(to, at));
                    changes.push(Change { tag: *tag, from: *place, to: moved });
                    *place = moved.unwrap_or(*place);
                    moved.is_some()
                });
            }
            let count = changes.len() as u64;
            // One that is not there changes nothing.
            changes.push(Change { tag: 99, from: place(file, 1 << 30), to: None });
            assert_eq!(index.change(&mut changes), count);
            compare(&index, &model, seed);
        }
    }
}

#[test]
fn loading_in_any_order_gives_the_order_of_sequence_numbers() {
    for seed in 0..16 {
        let mut rng = Rng::new(seed);
        let mut slots: Vec<NewSlot> = (1..6000)
            .map(|seq| NewSlot {
                tag: tag(&mut rng, seed % 4),
                place: place(rng.below(5) as u32, 9 * seq),
                seq,
            })
            .collect();
        let mut model = Model::new();
        slots.iter().for_each(|slot| model.entry(slot.tag).or_default().insert(0, slot.place));
        for i in (1..slots.len()).rev() {
            slots.swap(i, rng.below(i as u64 + 1) as usize);
        }
        // The number is about right, or not at all.
        let about = [slots.len() as u64, 0, 10, 1 << 17][seed as usize / 4];
        let mut loader = HashIndex::default().load(about);
        (0..5).for_each(|file| {
            assert_eq!(loader.add_file(SegmentFile::Log(file + 1), 9, 7).unwrap(), file as u32)
        });
        slots.iter().for_each(|slot| loader.push(*slot).unwrap());
        let index = loader.finish();
        compare(&index, &model, seed);
        // It goes on as any other.
        let mut new: Vec<NewSlot> = (6000..9000)
            .map(|seq| NewSlot { tag: tag(&mut rng, seed % 4), place: place(2, 9 * seq), seq })
            .collect();
        new.iter().for_each(|slot| model.entry(slot.tag).or_default().insert(0, slot.place));
        index.insert(&mut new, &BTreeMap::new());
        compare(&index, &model, seed);
    }
}

#[test]
fn a_loader_counts_what_is_in_each_file() {
    let mut loader = HashIndex::default().load(7);
    let (one, two) = (SegmentFile::Log(8), SegmentFile::Values(3));
    // As two hint files say it.
    for (file, len, bytes) in [(one, 900, 50), (two, 800, 40), (one, 900, 20)] {
        loader.add_file(file, len, bytes).unwrap();
    }
    let at = |chunk, within| ChunkPlace { chunk, within };
    let places =
        [(0, at(20, 0)), (0, at(20, 5)), (0, at(60, 0)), (1, at(60, 9)), (0, at(40, 0)), (0, at(40, 1))];
    for (i, (file, at)) in places.into_iter().enumerate() {
        let place = Place::new(file, at, false).unwrap();
        loader.push(NewSlot { tag: 5, place, seq: 1 + (i as u64 ^ 3) }).unwrap();
    }
    let file = |file, len, [slots, live, bytes, chunks, last_chunk]: [u64; 5]| FileUse {
        file,
        len,
        slots,
        live,
        bytes,
        count: slots,
        chunks,
        last_chunk,
    };
    let index = loader.finish();
    assert_eq!(index.files(), [file(one, 900, [5, 1, 70, 3, 60]), file(two, 800, [1, 0, 40, 1, 60])]);
    assert_eq!(index.newest(5), Some(Place::new(0, at(40, 0), false).unwrap()));
}

#[test]
fn a_number_of_slots_that_memory_cannot_hold_is_an_error() {
    let mut loader = HashIndex::default().load(u64::MAX);
    let refused = loader.push(NewSlot { tag: 5, place: place(0, 1), seq: 1 }).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::NoMemory);
}

/// Flushes leave places in the list to those that take files away.
#[test]
fn a_list_that_is_full_for_flushes_has_room_for_collections() {
    let index = HashIndex::default();
    for file in 0..MAX_FILES as u64 {
        let added = index.add_flushed_file(SegmentFile::Log(file + 1), 9);
        assert_eq!(added.is_ok(), file < MAX_FLUSHED_FILES as u64, "{file}: {added:?}");
        if added.is_err() {
            let (values, log) = (SegmentFile::Values(file + 1), SegmentFile::Log(7));
            assert_eq!(index.add_file(values, 9).unwrap(), file as u32);
            assert_eq!(index.add_flushed_file(log, 9).unwrap(), 6, "it is in the list");
        }
    }
    assert_eq!(index.add_file(SegmentFile::Values(1), 9).unwrap_err().kind(), ErrorKind::Io);
}

/// A million entries take what is stated, and an index that has lost nearly all gives the memory back.
#[test]
fn an_entry_takes_12_to_14_bytes() {
    let (mut rng, index) = (Rng::new(1), HashIndex::default());
    let mut slots = Vec::new();
    for flush in 0..20 {
        let file = index.add_file(SegmentFile::Log(flush + 1), 1 << 20).unwrap();
        let mut new: Vec<NewSlot> = (0..50_000)
            .map(|i| NewSlot {
                tag: rng.next_u64() as u32,
                place: place(file, 99 * i),
                seq: flush * 50_000 + i + 1,
            })
            .collect();
        index.insert(&mut new, &BTreeMap::new());
        slots.extend(new);
        let bytes = index.memory() as f64 / slots.len() as f64;
        assert!((12.0..14.0).contains(&bytes), "{bytes} bytes for each of {}", slots.len());
    }
    let mut loader = HashIndex::default().load(slots.len() as u64);
    slots.iter().for_each(|slot| loader.push(*slot).unwrap());
    let loaded = loader.finish();
    let bytes = loaded.memory() as f64 / slots.len() as f64;
    assert!((12.0..13.0).contains(&bytes), "{bytes} bytes for each that is loaded");
    let directory = loaded.directory.read();
    assert!((0..u32::MAX).step_by(1 << 16).all(|tag| directory.leaf(tag).read().len() <= MAX_SLOTS));
    let mut changes: Vec<Change> =
        slots.iter().skip(1000).map(|slot| Change { tag: slot.tag, from: slot.place, to: None }).collect();
    assert_eq!(index.change(&mut changes), 999_000);
    assert!(index.memory() < 2 << 20, "{}", index.memory());
}

/// The suites of the whole store use these keys to meet two with the same tag.
#[test]
fn tags_of_known_keys_collide() {
    let index = HashIndex::default();
    for (one, other) in [(85085, 89441), (25241, 91826), (64679, 92511)] {
        let tag = |number: u64| index.tag_of(format!("same tag/{number}").as_bytes());
        assert_eq!(tag(one), tag(other), "{one} and {other}");
    }
}
