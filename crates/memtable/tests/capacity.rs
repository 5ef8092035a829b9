//! Reserved entries can be inserted in any order, and take about the memory that was reserved for them.

use base::{EntryKind, Trailer};
use memtable::{MIN_CAPACITY, Memtable, Order};
use std::sync::Arc;
use std::thread;

const CAPACITY: usize = if cfg!(miri) { 4 << 10 } else { 4 << 20 };

/// Fills a table with entries of these lengths and keys in the order of `number`; returns the number of entries.
fn fill(
    order: Order,
    key_len: usize,
    value_len: usize,
    number: impl Fn(u64) -> u64,
) -> (Arc<Memtable>, usize) {
    let table = Memtable::try_new_in(CAPACITY, order, &Arc::default()).unwrap();
    let (mut key, value) = (vec![b'0'; key_len], vec![1; value_len]);
    let mut count = 0;
    while table.reserve(Memtable::entry_cost(key_len, value_len)) {
        let digits = number(count).to_be_bytes();
        let tail = key_len.min(8);
        key[key_len - tail..].copy_from_slice(&digits[8 - tail..]);
        count += 1;
        table.insert(&key, Trailer::new(count, EntryKind::Put), &value);
    }
    (table, count as usize)
}

fn mix(i: u64) -> u64 {
    (i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[test]
fn entries_take_about_what_they_cost() {
    for (key_len, value_len) in [(16, 128), (16, 0), (8, 20), (100, 1000), (300, 0), (40, 5000)] {
        for order in [mix as fn(u64) -> u64, |i| i, |i| u64::MAX - i] {
            if CAPACITY < 10 * Memtable::entry_cost(key_len, value_len) {
                continue;
            }
            let (table, count) = fill(Order::Key, key_len, value_len, order);
            assert_eq!(count, CAPACITY / Memtable::entry_cost(key_len, value_len));
            assert_eq!(
                (table.entries(), table.user_bytes()),
                (count, (count * (key_len + value_len)) as u64)
            );
            let used = table.used_bytes() as f64 / CAPACITY as f64;
            let most = if cfg!(miri) { 10.0 } else { 1.08 };
            assert!(used < most && used > 0.6, "{key_len} {value_len}: {used} of the capacity used");

            let (table, same) = fill(Order::Hash, key_len, value_len, order);
            assert_eq!((same, table.entries()), (count, count));
            let used = table.used_bytes() as f64 / CAPACITY as f64;
            // The heads of the lists.
            let most = most + 0.085;
            assert!(used < most && used > 0.6, "{key_len} {value_len}: {used} of the capacity used");
        }
    }
}

#[test]
fn adversaries_cannot_exhaust_the_arena() {
    // Ascending runs, each followed by an insert into the leaf that the run left full.
    let zigzag = |i: u64| (i / 66) << 20 | if i % 66 == 65 { 5 << 8 | 1 } else { (i % 66) << 8 };
    let towards_middle = |i: u64| if i.is_multiple_of(2) { i } else { u64::MAX - i };
    let strides = |i: u64| i % 1000 * 1_000_000 + i / 1000;
    let bits = |i: u64| i.reverse_bits();
    for order in [zigzag as fn(u64) -> u64, towards_middle, strides, bits, |_| 7] {
        for key_len in [0, 8, 200] {
            for of_table in [Order::Key, Order::Hash] {
                let (table, _) = fill(of_table, key_len, 0, order);
                let used = table.used_bytes() as f64 / CAPACITY as f64;
                println!("{of_table:?}, key length {key_len}: {used} of the capacity used");
                assert!(cfg!(miri) || used < 2.0);
            }
        }
    }
}

#[test]
fn reservations_end_at_the_capacity() {
    let table = Memtable::new(10_000);
    assert_eq!(table.capacity(), 10_000);
    assert!(!table.reserve(10_001) && !table.reserve(usize::MAX));
    assert!(table.reserve(9_000) && !table.reserve(1_001) && table.reserve(1_000) && table.reserve(0));
    assert!(!table.reserve(1));
    assert_eq!(Memtable::new(0).capacity(), MIN_CAPACITY);
    assert_eq!(Memtable::new(12_345).capacity(), 12_352);
}

#[test]
fn large_values_count_in_full() {
    let cost = Memtable::entry_cost(1, 1 << 20);
    assert!(cost > 1 << 20 && cost < (1 << 20) + 200);
    assert!(
        Memtable::entry_cost(base::limits::MAX_KEY_LEN, base::limits::MAX_VALUE_LEN) < memtable::MAX_CAPACITY
    );
    let table = Memtable::new(3 << 20);
    for key in 0..2u8 {
        assert!(table.reserve(cost));
        table.insert(&[key], Trailer::new(1, EntryKind::Put), &vec![key; 1 << 20]);
    }
    assert!(!table.reserve(cost));
    assert!(table.used_bytes() > 2 << 20 && table.used_bytes() < 3 << 20);
    assert_eq!(table.get(&[1], 1).unwrap().1, vec![1; 1 << 20]);
}

#[test]
fn threads_share_the_capacity() {
    [Order::Key, Order::Hash].into_iter().for_each(share_the_capacity);
}

fn share_the_capacity(order: Order) {
    let table = Memtable::try_new_in(CAPACITY, order, &Arc::default()).unwrap();
    let table = &table;
    let cost = Memtable::entry_cost(8, 50);
    let count: u64 = thread::scope(|scope| {
        let fill = |thread: u64| {
            move || {
                let mut count = 0;
                while table.reserve(cost) {
                    table.insert(&mix(count << 8 | thread).to_be_bytes(), Trailer(count), &[0; 50]);
                    count += 1;
                }
                count
            }
        };
        let threads: Vec<_> = (0..4).map(|thread| scope.spawn(fill(thread))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!((count, table.entries()), ((CAPACITY / cost) as u64, CAPACITY / cost));
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "without reservation")]
fn inserts_must_be_reserved() {
    let table = Memtable::new(1 << 20);
    assert!(table.reserve(Memtable::entry_cost(1, 1)));
    table.insert(b"k", Trailer(1), b"vv");
    table.insert(b"k", Trailer(2), b"vvvvvvvvvv");
}
