//! Loom tests: all interleavings of a few inserts and reads, with three slots per leaf, so that leaves split. Run
//! with `RUSTFLAGS="--cfg loom" cargo test --release -p cairn-memtable --lib loom`.

use crate::{Memtable, Order};
use base::{Cursor, EntryKind, MAX_SEQ, Trailer};
use loom::thread;
use std::sync::Arc;

fn put(table: &Memtable, key: u8) {
    assert!(table.reserve(Memtable::entry_cost(1, 1)));
    table.insert(&[key], Trailer::new(u64::from(key), EntryKind::Put), &[key]);
}

fn get(table: &Memtable, key: u8) -> bool {
    table.get(&[key], MAX_SEQ).is_some_and(|(_, value)| value == [key])
}

fn scan(table: &Arc<Memtable>) -> Vec<u8> {
    let (mut keys, mut cursor) = (Vec::new(), table.cursor());
    cursor.seek_to_first().unwrap();
    while cursor.valid() {
        assert_eq!(cursor.key(), cursor.value());
        keys.push(cursor.key()[0]);
        cursor.next().unwrap();
    }
    assert!(keys.is_sorted_by_key(|key| (table.place_of(&[*key]), *key)));
    keys
}

/// The number of preemptions is bounded: an unbounded search takes hours, and almost all bugs need only a few.
fn check(preemptions: usize, test: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.max_branches = 10_000;
    model.check(test);
}

/// A table with one full leaf.
fn full() -> Arc<Memtable> {
    let table = Memtable::new(0);
    [10, 20, 30].into_iter().for_each(|key| put(&table, key));
    table
}

#[test]
fn loom_inserts_that_split_one_leaf() {
    for (here, there, all) in [(25, 15, [10, 15, 20, 25, 30]), (5, 35, [5, 10, 20, 30, 35])] {
        check(3, move || {
            let table = full();
            let other = table.clone();
            let thread = thread::spawn(move || put(&other, there));
            put(&table, here);
            assert!(get(&table, here) && get(&table, 10) && get(&table, 20) && get(&table, 30));
            thread.join().unwrap();
            assert_eq!(scan(&table), all);
            assert!(get(&table, here) && get(&table, there));
        });
    }
}

#[test]
fn loom_a_reader_meets_a_split() {
    check(3, || {
        let table = full();
        let other = table.clone();
        let thread = thread::spawn(move || {
            put(&other, 15);
            // Takes a slot that the split has cleared.
            put(&other, 5);
        });
        assert!(get(&table, 30) && get(&table, 20) && get(&table, 10) && !get(&table, 12));
        let keys = scan(&table);
        assert!([10, 20, 30].iter().all(|key| keys.contains(key)), "{keys:?}");
        thread.join().unwrap();
        assert_eq!(scan(&table), [5, 10, 15, 20, 30]);
    });
}

#[test]
fn loom_a_seek_meets_a_split() {
    check(3, || {
        let table = full();
        let other = table.clone();
        let thread = thread::spawn(move || put(&other, 15));
        let mut cursor = table.cursor();
        cursor.seek(&[20], MAX_SEQ).unwrap();
        assert_eq!(cursor.key(), [20]);
        cursor.prev().unwrap();
        assert!(cursor.key() == [10] || cursor.key() == [15]);
        cursor.seek_before(&[30]).unwrap();
        assert_eq!(cursor.key(), [20]);
        cursor.next().unwrap();
        assert_eq!(cursor.key(), [30]);
        thread.join().unwrap();
    });
}

#[test]
fn loom_steps_after_a_seek_meet_a_split() {
    check(3, || {
        let table = full();
        let other = table.clone();
        let thread = thread::spawn(move || put(&other, 25));
        let mut cursor = table.cursor();
        cursor.seek(&[10], MAX_SEQ).unwrap();
        assert_eq!(cursor.key(), [10]);
        cursor.next().unwrap();
        assert_eq!(cursor.key(), [20]);
        cursor.next().unwrap();
        assert!(cursor.key() == [25] || cursor.key() == [30]);
        thread.join().unwrap();
    });
}

#[test]
fn loom_what_was_inserted_after_a_split_is_found() {
    check(3, || {
        let table = full();
        let other = table.clone();
        let thread = thread::spawn(move || {
            put(&other, 40);
            put(&other, 25);
        });
        let (later, earlier) = (get(&table, 25), get(&table, 40));
        assert!(!later || earlier, "25 was inserted after 40");
        thread.join().unwrap();
        assert_eq!(scan(&table), [10, 20, 25, 30, 40]);
    });
}

#[test]
fn loom_the_newest_version_is_found_while_all_move() {
    check(3, || {
        let table = Memtable::new(0);
        put(&table, 10);
        for seq in [1, 2] {
            assert!(table.reserve(Memtable::entry_cost(1, 0)));
            table.insert(&[20], Trailer::new(seq, EntryKind::Put), &[]);
        }
        let other = table.clone();
        let thread = thread::spawn(move || put(&other, 5));
        assert_eq!(table.get(&[20], MAX_SEQ).unwrap().0.seq(), 2);
        assert_eq!(table.get(&[20], 1).unwrap().0.seq(), 1);
        thread.join().unwrap();
    });
}

/// A table with two lists, and keys of the first one, in its order.
fn two_lists<const N: usize>() -> (Arc<Memtable>, [u8; N]) {
    let table = Memtable::try_new_in(0, Order::Hash, &Arc::default()).unwrap();
    let mut keys: Vec<u8> = (0..).filter(|key| table.place_of(&[*key]) >> 32 == 0).take(N).collect();
    keys.sort_unstable_by_key(|key| (table.place_of(&[*key]), *key));
    (table, keys.try_into().unwrap())
}

#[test]
fn loom_two_inserts_create_the_head_of_a_list() {
    check(3, || {
        let (table, [first, second, third]) = two_lists();
        let other = table.clone();
        let thread = thread::spawn(move || put(&other, second));
        put(&table, first);
        assert!(get(&table, first) && !get(&table, third));
        thread.join().unwrap();
        assert_eq!(scan(&table), [first, second]);
        assert!(get(&table, first) && get(&table, second));
    });
}

#[test]
fn loom_a_reader_meets_the_creation_of_a_head() {
    check(3, || {
        let (table, [first, second, _]) = two_lists();
        let other = table.clone();
        let thread = thread::spawn(move || {
            put(&other, first);
            put(&other, second);
        });
        let (later, earlier) = (get(&table, second), get(&table, first));
        assert!(!later || earlier, "the second was inserted after the first");
        let keys = scan(&table);
        assert!(keys.len() >= usize::from(earlier) && keys.iter().all(|key| [first, second].contains(key)));
        thread.join().unwrap();
        assert_eq!(scan(&table), [first, second]);
    });
}

#[test]
fn loom_a_reader_meets_a_split_in_the_order_of_hashes() {
    check(3, || {
        let (table, [first, second, third, fourth, fifth]) = two_lists();
        [first, third, fifth].into_iter().for_each(|key| put(&table, key));
        let other = table.clone();
        let thread = thread::spawn(move || put(&other, second));
        assert!(get(&table, first) && get(&table, third) && get(&table, fifth) && !get(&table, fourth));
        let keys = scan(&table);
        assert!([first, third, fifth].iter().all(|key| keys.contains(key)), "{keys:?}");
        thread.join().unwrap();
        assert_eq!(scan(&table), [first, second, third, fifth]);
    });
}
