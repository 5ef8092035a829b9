//! Measures inserts and gets: `cargo run --release -p cairn-memtable --example memtable_bench`.

use base::{Cursor, EntryKind, MAX_SEQ, Trailer};
use memtable::{Memtable, Order};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

const VALUE: [u8; 128] = [7; 128];
const CAPACITY: usize = 64 << 20;
const ENTRIES: u64 = 350_000;
const ROUNDS: usize = 5;

#[derive(Clone, Copy, PartialEq)]
enum Keys {
    Random,
    Binary,
    Ascending,
    Descending,
}

fn mix(i: u64) -> u64 {
    let bits = (i ^ i >> 31).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ bits >> 31
}

/// All keys, 16 bytes each: decimals with leading zeros, except for `Binary`.
fn keys(kind: Keys) -> Vec<[u8; 16]> {
    let decimal = |number: u64| -> [u8; 16] { format!("{number:016}").into_bytes().try_into().unwrap() };
    (0..ENTRIES)
        .map(|i| match kind {
            Keys::Random => decimal(mix(i) % 100_000_000),
            Keys::Binary => (u128::from(mix(i)) << 64 | u128::from(mix(!i))).to_be_bytes(),
            Keys::Ascending => decimal(i),
            Keys::Descending => decimal(ENTRIES - i),
        })
        .collect()
}

/// Runs `work(thread, i)` for all entries, spread over threads; returns the mean wall-clock time of one call.
fn time(threads: usize, work: impl Fn(usize) + Sync) -> f64 {
    let share = ENTRIES as usize / threads;
    let start = Instant::now();
    thread::scope(|scope| {
        for t in 0..threads {
            let work = &work;
            scope.spawn(move || (t * share..(t + 1) * share).for_each(work));
        }
    });
    start.elapsed().as_nanos() as f64 / ENTRIES as f64
}

fn fill(table: &Memtable, keys: &[[u8; 16]], threads: usize) -> f64 {
    let cost = Memtable::entry_cost(16, VALUE.len());
    time(threads, |i| {
        assert!(table.reserve(cost));
        table.insert(&keys[i], Trailer::new(i as u64 + 1, EntryKind::Put), &VALUE);
    })
}

fn scan(table: &Arc<Memtable>) -> f64 {
    let (start, mut bytes, mut cursor) = (Instant::now(), 0, table.cursor());
    cursor.seek_to_first().unwrap();
    while cursor.valid() {
        bytes += cursor.key().len() + cursor.value().iter().map(|&b| usize::from(b)).sum::<usize>();
        cursor.next().unwrap();
    }
    assert!(bytes > 0);
    start.elapsed().as_nanos() as f64 / table.entries() as f64
}

fn main() {
    let kinds = [
        ("random", Keys::Random),
        ("binary", Keys::Binary),
        ("ascending", Keys::Ascending),
        ("descending", Keys::Descending),
    ];
    println!("{ENTRIES} entries, ns per operation, best of {ROUNDS}");
    println!(
        "{:<6}{:<12}{:>8}{:>8}{:>8}{:>8}{:>8}",
        "order", "keys", "threads", "insert", "get", "scan", "drop"
    );
    for (order, (name, kind)) in
        [Order::Key, Order::Hash].into_iter().flat_map(|order| kinds.map(|kind| (order, kind)))
    {
        let keys = keys(kind);
        // Not the order of the inserts: 170 001 and the number of entries have no common factor.
        let step = if kind == Keys::Ascending { 1 } else { 170_001 };
        let wanted: Vec<_> = (0..keys.len()).map(|i| keys[i * step % keys.len()]).collect();
        for threads in [1, 2] {
            let mut best = [f64::MAX; 4];
            for _ in 0..ROUNDS {
                let spare = Arc::default();
                let table = Memtable::try_new_in(CAPACITY + CAPACITY / 8, order, &spare).unwrap();
                let insert = fill(&table, &keys, threads);
                let get = time(threads, |i| {
                    let key = &wanted[i];
                    assert!(table.get(key, MAX_SEQ).is_some());
                });
                let scan = scan(&table);
                let start = Instant::now();
                drop(table);
                let gone: Duration = start.elapsed();
                let round = [insert, get, scan, gone.as_nanos() as f64 / ENTRIES as f64];
                best.iter_mut().zip(round).for_each(|(best, time)| *best = best.min(time));
            }
            println!(
                "{:<6}{name:<12}{threads:>8}{:>8.0}{:>8.0}{:>8.0}{:>8.1}",
                format!("{order:?}"),
                best[0],
                best[1],
                best[2],
                best[3]
            );
        }
    }
}
