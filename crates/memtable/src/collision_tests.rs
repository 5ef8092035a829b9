//! The order of hashes, compared with a sorted map, where most keys have the tags of others: in tests of this crate tags have two bits.

use crate::{Memtable, MemtableCursor, Order};
use base::{Cursor, EntryKind, MAX_SEQ, Seq, Trailer};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The place of a key, the key, and the version.
type Key = (u64, Vec<u8>, Reverse<Trailer>);

fn current(cursor: &MemtableCursor) -> Option<(Vec<u8>, Trailer)> {
    cursor.valid().then(|| (cursor.key().to_vec(), cursor.trailer()))
}

fn found(entry: Option<&Key>) -> Option<(Vec<u8>, Trailer)> {
    entry.map(|(_, key, trailer)| (key.clone(), trailer.0))
}

#[test]
fn keys_with_the_same_tag_are_told_apart() {
    for (capacity, keys, count) in [(32 << 10, 200, 300), (32 << 10, 3, 300), (1 << 20, 5000, 8000)] {
        let count = if cfg!(miri) { count / 10 } else { count };
        let table = Memtable::try_new_in(capacity, Order::Hash, &Arc::default()).unwrap();
        let key = |i: u64| (base::hash(&i.to_le_bytes()) % keys).to_string().into_bytes();
        let place = |key: &[u8], trailer| (table.place_of(key), key.to_vec(), Reverse(trailer));
        let mut model: BTreeMap<Key, ()> = BTreeMap::new();
        for i in 0..count {
            // Threads may overtake each other.
            let trailer = Trailer::new((i ^ 3) + 1, EntryKind::Put);
            assert!(table.reserve(Memtable::entry_cost(key(i).len(), 0)));
            table.insert(&key(i), trailer, &[]);
            model.insert(place(&key(i), trailer), ());
        }
        let places: Vec<u64> = model.keys().map(|(place, ..)| *place).collect();
        assert!(!table.list.is_one() && places.iter().all(|place| place & u64::from(u32::MAX) < 4));

        let mut cursor = table.cursor();
        cursor.seek_to_first().unwrap();
        for entry in model.keys() {
            assert_eq!(current(&cursor), found(Some(entry)));
            cursor.next().unwrap();
        }
        assert!(!cursor.valid());
        cursor.seek_to_last().unwrap();
        for entry in model.keys().rev() {
            assert_eq!(current(&cursor), found(Some(entry)));
            cursor.prev().unwrap();
        }
        assert!(!cursor.valid());
        for (i, seq) in (0..2 * count).flat_map(|i| [(i, i / 2), (i, MAX_SEQ)]) {
            let (key, seek): (Vec<u8>, Seq) = (key(i), seq);
            let from = place(&key, Trailer::seek(seek));
            let expected = model.range(&from..).next().map(|(entry, ())| entry);
            let of_key = expected.filter(|(_, other, _)| *other == key);
            assert_eq!(
                table.get(&key, seek).map(|(trailer, _)| (key.clone(), trailer)),
                found(of_key),
                "{key:?} at {seek}"
            );
            cursor.seek(&key, seek).unwrap();
            assert_eq!(current(&cursor), found(expected), "{key:?} at {seek}");
            cursor.seek_before(&key).unwrap();
            let before = place(&key, Trailer(u64::MAX));
            let expected = model.range(..&before).next_back().map(|(entry, ())| entry);
            assert_eq!(current(&cursor), found(expected), "before {key:?}");
        }
    }
}
