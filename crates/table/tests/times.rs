//! Tables whose entries have times: walks that need some times leave blocks out, and show all entries that they need.

use crate::common::*;
use base::{Cursor, EntryKind, MAX_SEQ, Time, Trailer};
use env::Rng;
use std::path::Path;
use table::{TableOptions, TableWriter, TimesWanted, bytes_read_by_this_thread};

fn at(micros: u64) -> Time {
    Time::from_micros(micros)
}

/// Entries with their times: the first ones are old and have ended, the last ones are late. Some have no end.
fn timed(rng: &mut Rng, count: u64) -> Vec<(Entry, (Time, Time))> {
    let shape = SHAPES[rng.below(5) as usize];
    let mut entries = random_entries(rng, shape, count);
    sort(&mut entries);
    let with_times = |(i, entry): (usize, Entry)| {
        let from = 10 * i as u64 + rng.below(200);
        let to = if rng.below(20) == 0 { Time::MAX } else { at(from + rng.below(300)) };
        (entry, (at(from), to))
    };
    entries.into_iter().enumerate().map(with_times).collect()
}

#[test]
fn walks_show_all_entries_of_the_times_that_they_want() {
    for round in 0..40u64 {
        let mut rng = Rng::new(round);
        let (sim, env) = sim();
        let entries = timed(&mut rng, 400);
        let options = TableOptions { block_size: 128, ..TableOptions::default() };
        let mut writer = TableWriter::create(&env, Path::new(DIR), 1, &options).unwrap();
        for (Entry { key, trailer, value }, times) in &entries {
            let hash = options.filter_hash(key);
            writer.add_timed(key, hash, *trailer, value, Some(*times)).unwrap();
        }
        let meta = writer.finish().unwrap();
        drop(sim);
        let table = open(&env, &meta, 0);
        table.verify(&mut |_| Ok(())).unwrap();
        for _ in 0..20 {
            let mut time = || (rng.below(3) > 0).then(|| at(rng.below(4500)));
            let wanted = TimesWanted { since: time(), until: time() };
            let is_wanted = |(from, to): (Time, Time)| {
                wanted.since.is_none_or(|since| to >= since) && wanted.until.is_none_or(|until| from <= until)
            };
            let right: Vec<&Entry> = entries.iter().filter(|e| is_wanted(e.1)).map(|e| &e.0).collect();
            let is_right = |found: &Entry| right.contains(&found);
            // Forward and backward, from the ends.
            let mut cursor = table.cursor_for(wanted);
            let mut found = Vec::new();
            cursor.seek_to_first().unwrap();
            while let Some(entry) = current(&cursor) {
                found.push(entry);
                cursor.next().unwrap();
            }
            assert!(found.is_sorted_by(|a, b| base::compare(&a.key, a.trailer, &b.key, b.trailer).is_lt()));
            assert_eq!(found.iter().filter(|e| is_right(e)).collect::<Vec<_>>(), right, "{wanted:?}");
            let mut back = Vec::new();
            cursor.seek_to_last().unwrap();
            while let Some(entry) = current(&cursor) {
                back.push(entry);
                cursor.prev().unwrap();
            }
            back.reverse();
            assert_eq!(back, found, "{wanted:?}, backward");
            // Seeks to keys, there or not, and turns.
            for _ in 0..20 {
                let key = &entries[rng.below(entries.len() as u64) as usize].0.key;
                let place = found.partition_point(|e| e.key < *key);
                cursor.seek(key, MAX_SEQ).unwrap();
                assert_eq!(current(&cursor).as_ref(), found.get(place), "{wanted:?}, {key:?}");
                if cursor.valid() {
                    cursor.prev().unwrap();
                    let before = place.checked_sub(1).map(|i| &found[i]);
                    assert_eq!(current(&cursor).as_ref(), before, "{wanted:?}, before {key:?}");
                }
                cursor.seek_before(key).unwrap();
                assert_eq!(current(&cursor).as_ref(), place.checked_sub(1).map(|i| &found[i]), "{wanted:?}");
                if cursor.valid() {
                    cursor.next().unwrap();
                    assert_eq!(current(&cursor).as_ref(), found.get(place), "{wanted:?}, again {key:?}");
                }
            }
        }
    }
}

#[test]
fn a_walk_reads_no_blocks_of_other_times() {
    let (_sim, env) = sim();
    let options = TableOptions::default();
    let mut writer = TableWriter::create(&env, Path::new(DIR), 1, &options).unwrap();
    for i in 0..4000u64 {
        let key = format!("user{i:06}").into_bytes();
        // The last three of ten are of the second half of the time.
        let from = if i % 1000 < 700 { 10 } else { 5000 };
        let (trailer, times) = (Trailer::new(i + 1, EntryKind::Put), (at(from), at(from + 10)));
        writer.add_timed(&key, options.filter_hash(&key), trailer, &[7; 200], Some(times)).unwrap();
    }
    let table = open(&env, &writer.finish().unwrap(), 0);
    let read = |wanted: TimesWanted| {
        let (before, mut cursor, mut count) = (bytes_read_by_this_thread(), table.cursor_for(wanted), 0);
        cursor.seek_to_first().unwrap();
        while cursor.valid() {
            count += 1;
            cursor.next().unwrap();
        }
        (bytes_read_by_this_thread() - before, count)
    };
    let (all, count) = read(TimesWanted::default());
    assert_eq!(count, 4000);
    let (late, count) = read(TimesWanted { since: Some(at(3000)), until: None });
    assert!((1200..1400).contains(&count) && late < all * 2 / 3, "{late} of {all} bytes, {count} entries");
    for nothing in [(Some(at(9000)), None), (None, Some(at(9))), (Some(at(100)), Some(at(200)))] {
        let (none, count) = read(TimesWanted { since: nothing.0, until: nothing.1 });
        assert!(count == 0 && none < all / 20, "{none} of {all} bytes");
    }
}
