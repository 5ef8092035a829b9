//! The memtable compared with a sorted map: random operations, forward and backward, at any sequence number.

use base::{Cursor, EntryKind, MAX_SEQ, Seq, Trailer, hash};
use memtable::{Memtable, MemtableCursor, Order};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

const OPERATIONS: usize = if cfg!(miri) { 120 } else { 4_000 };
const CAPACITY: usize = if cfg!(miri) { 64 << 10 } else { 4 << 20 };
const SEEDS: u64 = if cfg!(miri) { 1 } else { 24 };

const ORDERS: [Order; 2] = [Order::Key, Order::Hash];

/// The place of the key, the key, and the version.
type Key = (u64, Vec<u8>, Reverse<Trailer>);
type Model = BTreeMap<Key, Vec<u8>>;

fn new(capacity: usize, order: Order) -> Arc<Memtable> {
    let table = Memtable::try_new_in(capacity, order, &Arc::default()).unwrap();
    assert_eq!(table.order(), order);
    table
}

fn place(table: &Memtable, key: &[u8], trailer: Trailer) -> Key {
    (table.place_of(key), key.to_vec(), Reverse(trailer))
}

/// A small random generator. Tests print its seed, which replays them.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        (hash(&self.0.to_le_bytes()) % bound as u64) as usize
    }

    /// Keys that collide, share prefixes, end early, contain zeros, or are long.
    fn key(&mut self) -> Vec<u8> {
        match self.below(10) {
            0..3 => format!("{:016}", self.below(300)).into_bytes(),
            3..5 => (0..self.below(4)).map(|_| self.below(3) as u8).collect(),
            5 => vec![0; self.below(12)],
            6 => [&[b'p'; 20][..], &[self.below(256) as u8, self.below(2) as u8][..self.below(3)]].concat(),
            7 => [&vec![b'l'; 240 + self.below(30)][..], &[self.below(4) as u8]].concat(),
            8 => (0..8).map(|_| self.below(256) as u8).collect(),
            _ => (0..self.below(40)).map(|_| 254 + self.below(2) as u8).collect(),
        }
    }
}

fn insert(table: &Memtable, model: &mut Model, key: Vec<u8>, trailer: Trailer, value: Vec<u8>) {
    assert!(table.reserve(Memtable::entry_cost(key.len(), value.len())));
    match trailer.seq() % 2 {
        0 => table.insert(&key, trailer, &value),
        _ => {
            let (value, tail) = value.split_at(value.len().saturating_sub(8));
            table.insert_with_tail(&key, trailer, value, tail);
        }
    }
    assert!(model.insert(place(table, &key, trailer), value).is_none());
}

fn current(cursor: &MemtableCursor) -> Option<(Vec<u8>, Trailer, Vec<u8>)> {
    assert!(!cursor.valid() || cursor.value_slice() == *cursor.value());
    cursor.valid().then(|| (cursor.key().to_vec(), cursor.trailer(), cursor.value().to_vec()))
}

fn owned(entry: Option<(&Key, &Vec<u8>)>) -> Option<(Vec<u8>, Trailer, Vec<u8>)> {
    entry.map(|((_, key, trailer), value)| (key.clone(), trailer.0, value.clone()))
}

/// All reads of the table agree with the model.
fn check_at(table: &Arc<Memtable>, model: &Model, key: &[u8], seq: Seq) {
    let start = place(table, key, Trailer::seek(seq));
    let expected = model.range(&start..).next();
    let got = table.get(key, seq).map(|(trailer, value)| (key.to_vec(), trailer, value.to_vec()));
    assert_eq!(got, owned(expected.filter(|((_, found, _), _)| found == key)), "get {key:?} at {seq}");

    let mut cursor = table.cursor();
    cursor.seek(key, seq).unwrap();
    assert_eq!(current(&cursor), owned(expected), "seek {key:?} at {seq}");
    for expected in model.range(&start..).skip(1).take(3) {
        cursor.next().unwrap();
        assert_eq!(current(&cursor), owned(Some(expected)), "next after {key:?} at {seq}");
    }

    // Turns around where a seek has just landed.
    if let (Some(here), Some(before)) = (model.range(&start..).next(), model.range(..&start).next_back()) {
        cursor.seek(key, seq).unwrap();
        cursor.prev().unwrap();
        assert_eq!(current(&cursor), owned(Some(before)), "prev after seek {key:?} at {seq}");
        cursor.next().unwrap();
        assert_eq!(current(&cursor), owned(Some(here)), "and next");
    }

    let end = place(table, key, Trailer(u64::MAX));
    cursor.seek_before(key).unwrap();
    assert_eq!(current(&cursor), owned(model.range(..&end).next_back()), "seek before {key:?}");
    for expected in model.range(..&end).rev().skip(1).take(3) {
        cursor.prev().unwrap();
        assert_eq!(current(&cursor), owned(Some(expected)), "prev before {key:?}");
    }
}

fn check_whole(table: &Arc<Memtable>, model: &Model) {
    let mut cursor = table.cursor();
    assert!(!cursor.valid());
    cursor.seek_to_first().unwrap();
    for expected in model {
        assert_eq!(current(&cursor), owned(Some(expected)));
        cursor.next().unwrap();
    }
    assert!(!cursor.valid());
    cursor.seek_to_last().unwrap();
    for expected in model.iter().rev() {
        assert_eq!(current(&cursor), owned(Some(expected)));
        cursor.prev().unwrap();
    }
    assert!(!cursor.valid());

    assert_eq!((table.entries(), table.is_empty()), (model.len(), model.is_empty()));
    let user_bytes: usize = model.iter().map(|((_, key, _), value)| key.len() + value.len()).sum();
    assert_eq!(table.user_bytes(), user_bytes as u64);
    let seqs = || model.keys().map(|(.., trailer)| trailer.0.seq());
    assert_eq!((table.min_seq(), table.max_seq()), (seqs().min(), seqs().max()));
    assert!(table.used_bytes() >= user_bytes);
}

#[test]
fn random_operations_agree_with_the_model() {
    for (seed, order) in (0..SEEDS).flat_map(|seed| ORDERS.map(|order| (seed, order))) {
        println!("seed {seed}, {order:?}");
        let mut random = Random(seed);
        let (table, mut model) = (new(CAPACITY, order), Model::new());
        for seq in 1..=OPERATIONS as Seq {
            let key = random.key();
            match random.below(4) {
                // Mostly in the order of sequence numbers, but threads may overtake each other.
                0 | 1 => {
                    let kind = [EntryKind::Put, EntryKind::Delete][random.below(2)];
                    let value = vec![seq as u8; if kind == EntryKind::Put { random.below(30) } else { 0 }];
                    let seq = (seq ^ random.below(8) as Seq) << 13 | seq;
                    insert(&table, &mut model, key, Trailer::new(seq, kind), value);
                }
                2 => check_at(&table, &model, &key, [MAX_SEQ, 0][random.below(2)]),
                _ => check_at(&table, &model, &key, (random.below(OPERATIONS) as Seq) << 13),
            }
        }
        check_whole(&table, &model);
    }
}

#[test]
fn runs_in_both_directions_agree_with_the_model() {
    let count = if cfg!(miri) { 50 } else { 5_000 };
    for (descending, order) in [false, true].into_iter().flat_map(|run| ORDERS.map(|order| (run, order))) {
        let (table, mut model) = (new(CAPACITY, order), Model::new());
        for i in 0..count {
            let number = if descending { count - i } else { i };
            let key = format!("{number:016}").into_bytes();
            insert(&table, &mut model, key, Trailer::new(i as Seq, EntryKind::Put), vec![7; number % 50]);
        }
        check_whole(&table, &model);
        for i in (0..count).step_by(7) {
            check_at(&table, &model, format!("{i:016}").as_bytes(), MAX_SEQ);
            check_at(&table, &model, format!("{i:015}").as_bytes(), i as Seq);
        }
    }
}

#[test]
fn many_versions_of_one_key_agree_with_the_model() {
    ORDERS.into_iter().for_each(many_versions);
}

fn many_versions(order: Order) {
    let (table, mut model) = (new(CAPACITY, order), Model::new());
    let count = if cfg!(miri) { 20 } else { 2_000 };
    for seq in 1..count {
        for key in [&b""[..], b"k", b"k\0"] {
            let seq = if seq % 3 == 0 { seq + 10 * count } else { seq };
            insert(
                &table,
                &mut model,
                key.to_vec(),
                Trailer::new(seq, EntryKind::Put),
                seq.to_le_bytes().to_vec(),
            );
        }
    }
    check_whole(&table, &model);
    for seq in (0..12 * count).step_by(29) {
        for key in [&b""[..], b"k", b"k\0", b"k\0\0", b"j"] {
            check_at(&table, &model, key, seq);
        }
    }
}

/// Keys whose hashes are the same but for some bits between those that choose a list, of at most 64 MiB of memtable, and the tag.
const COLLISIONS: [[u32; 2]; 9] = [
    [4_876_779, 13_905_873],
    [28_395, 14_475_049],
    [8_202_484, 12_439_084],
    [10_545_898, 10_863_699],
    [1_368_583, 11_440_645],
    [3_895_863, 6_385_417],
    [6_309_585, 15_586_489],
    [6_892_691, 10_516_587],
    [8_552_537, 13_950_937],
];

#[test]
fn keys_with_the_same_tag_are_told_apart() {
    // Versions of each, in leaves that have nothing else or share the list with others.
    for (capacity, versions) in [(16 << 10, 1), (64 << 10, 20), (CAPACITY, 200)] {
        let (table, mut model) = (new(capacity, Order::Hash), Model::new());
        let versions = if cfg!(miri) { versions.min(3) } else { versions };
        for pair in COLLISIONS {
            let keys = pair.map(|key| format!("key-{key}").into_bytes());
            assert_eq!(table.place_of(&keys[0]), table.place_of(&keys[1]));
            check_at(&table, &model, &keys[0], MAX_SEQ);
            for seq in 1..=versions {
                let trailer = Trailer::new(seq, EntryKind::Put);
                // The one or the other comes first, and may have no version at all for a while.
                let which = usize::from(seq % 3 == 0);
                insert(&table, &mut model, keys[which].clone(), trailer, vec![seq as u8; 10]);
                for key in &keys {
                    check_at(&table, &model, key, MAX_SEQ);
                    check_at(&table, &model, key, seq / 2);
                }
            }
        }
        check_whole(&table, &model);
    }
}

#[test]
fn longest_keys_and_large_values_agree_with_the_model() {
    ORDERS.into_iter().for_each(longest_keys);
}

fn longest_keys(order: Order) {
    let (table, mut model) = (new(if cfg!(miri) { 2 << 20 } else { 64 << 20 }, order), Model::new());
    let mut trailers = (1..).map(|seq| Trailer::new(seq, EntryKind::Put));
    let key = vec![b'k'; base::limits::MAX_KEY_LEN];
    for cut in
        if cfg!(miri) { [65_000; 7].map(|cut| cut + 1) } else { [0, 1, 2, 300, 65_000, 65_535, 65_536] }
    {
        insert(&table, &mut model, key[cut..].to_vec(), trailers.next().unwrap(), vec![1; cut]);
    }
    for len in [0, 1, 32_767, 32_768, 32_769, 100_000, if cfg!(miri) { 200_000 } else { 20_000_000 }] {
        insert(&table, &mut model, b"large".to_vec(), trailers.next().unwrap(), vec![len as u8; len]);
    }
    check_whole(&table, &model);
    check_at(&table, &model, &key, MAX_SEQ);
    for seq in 0..15 {
        check_at(&table, &model, b"large", seq);
    }
}

#[test]
fn an_empty_table_has_nothing() {
    for order in ORDERS {
        let table = new(if cfg!(miri) { 0 } else { 1 << 30 }, order);
        check_whole(&table, &Model::new());
        check_at(&table, &Model::new(), b"", MAX_SEQ);
        check_at(&table, &Model::new(), b"key", 0);
        assert!(table.used_bytes() < 2048);
    }
}

#[test]
fn a_cursor_keeps_its_table() {
    let table = Memtable::new(0);
    let mut cursor = table.cursor();
    assert!(table.reserve(2 * Memtable::entry_cost(1, 1)));
    table.insert(b"a", Trailer::new(1, EntryKind::Put), b"1");
    table.insert(b"b", Trailer::new(2, EntryKind::Put), b"2");
    drop(table);
    cursor.seek_to_first().unwrap();
    cursor.next().unwrap();
    assert_eq!((cursor.key(), cursor.value()), (&b"b"[..], &b"2"[..]));
    cursor.next().unwrap();
    assert!(!cursor.valid());
}

#[test]
fn a_table_that_grows_agrees_with_the_model() {
    let empty = Memtable::empty();
    assert!(!empty.reserve(1) && !empty.has_room(1) && empty.is_empty() && empty.min_seq().is_none());
    for (seed, order) in (0..SEEDS).flat_map(|seed| ORDERS.map(|order| (seed, order))) {
        let mut random = Random(seed);
        let first = if order == Order::Key { empty.clone() } else { new(0, order) };
        let (mut table, mut model) = (first, Model::new());
        // Tables that were replaced by larger ones, with their content at that time.
        let mut before = Vec::new();
        for seq in 1..=OPERATIONS as Seq / 4 {
            let key = random.key();
            let len = if random.below(100) == 0 { 40_000 } else { random.below(30) };
            let need = Memtable::entry_cost(key.len(), len);
            while !table.has_room(need) {
                let grown = table.grown(table.capacity() * 2).unwrap();
                assert!(grown.capacity() >= 2 * table.capacity() && grown.reserved() == table.reserved());
                assert_eq!((grown.user_bytes(), grown.order()), (table.user_bytes(), order));
                // With more capacity there are more lists.
                let entries = model.iter().map(|((_, key, trailer), value)| (key, trailer.0, value));
                let again = entries.map(|(key, trailer, value)| (place(&grown, key, trailer), value.clone()));
                let again = again.collect();
                let model = std::mem::replace(&mut model, again);
                before.push((std::mem::replace(&mut table, grown), model));
            }
            insert(&table, &mut model, key.clone(), Trailer::new(seq, EntryKind::Put), vec![seq as u8; len]);
            if random.below(4) == 0 {
                check_at(&table, &model, &key, random.below(OPERATIONS / 4) as Seq);
            }
        }
        check_whole(&table, &model);
        assert!(before.len() > if cfg!(miri) { 0 } else { 3 }, "the table has grown often: {}", before.len());
        before.iter().for_each(|(table, model)| check_whole(table, model));
    }
}

#[test]
fn growing_takes_range_tombstones_and_charges_along() {
    let table = Memtable::new(0);
    let cost = Memtable::entry_cost(1, 1) + Memtable::range_cost(1, 1);
    assert!(table.reserve(cost));
    table.insert(b"b", Trailer::new(3, EntryKind::Put), b"1");
    let bound = base::Slice::copy_from;
    table.delete_range(base::RangeTombstone {
        from: bound(b"a"),
        to: Some(bound(b"c")),
        seq: 7,
        time: base::Time::MIN,
    });
    table.charges().store(11, Ordering::Relaxed);
    let grown = table.grown(0).unwrap();
    assert_eq!((grown.entries(), grown.min_seq(), grown.max_seq()), (2, Some(3), Some(7)));
    assert_eq!((grown.deleted_before(b"b", MAX_SEQ), grown.deleted_before(b"c", MAX_SEQ)), (7, 0));
    assert_eq!(grown.charges().load(Ordering::Relaxed), 11);
    assert_eq!((grown.reserved(), grown.capacity()), (cost, table.capacity()));
    assert_eq!(grown.get(b"b", MAX_SEQ), Some((Trailer::new(3, EntryKind::Put), &b"1"[..])));
    let deleted = Memtable::new(0);
    assert!(deleted.reserve(Memtable::entry_cost(1, 0)));
    deleted.insert(b"b", Trailer::new(9, EntryKind::Delete), b"");
    assert!(deleted.grown(0).unwrap().has_deletes());
}
