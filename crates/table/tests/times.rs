//! Tables whose entries have times: walks that need some times leave blocks out, and show all entries that they need.

use crate::common::*;
use base::{Cursor, EntryKind, MAX_SEQ, Slice, Time, Trailer};
use env::{Env, Rng, SimEnv};
use std::path::Path;
use std::sync::Arc;
use table::{
    Table, TableMeta, TableOptions, TableTimes, TableWriter, TimesWanted, Wanted, bytes_read_by_this_thread,
};

fn at(micros: u64) -> Time {
    Time::from_micros(micros)
}

/// An entry whose value begins with its times.
fn timed(key: &[u8], seq: u64, (from, to): (Time, Time), rest: &[u8]) -> Entry {
    let mut value = [from.micros().to_le_bytes(), to.micros().to_le_bytes()].concat();
    value.extend_from_slice(rest);
    entry(key, seq, &value)
}

fn times_of(_: &[u8], _: Trailer, value: &[u8]) -> Option<(Time, Time)> {
    let (from, rest) = value.split_first_chunk()?;
    Some((at(u64::from_le_bytes(*from)), at(u64::from_le_bytes(*rest.first_chunk()?))))
}

/// Entries the first of which are old and have ended, and the last of which are late. Some have no end.
fn random_timed(rng: &mut Rng, count: u64) -> Vec<Entry> {
    let shape = SHAPES[rng.below(5) as usize];
    let mut entries = random_entries(rng, shape, count);
    sort(&mut entries);
    for (i, entry) in entries.iter_mut().enumerate() {
        let from = 10 * i as u64 + rng.below(200);
        let to = if rng.below(20) == 0 { Time::MAX } else { at(from + rng.below(300)) };
        entry.value = timed(b"", 1, (at(from), to), &entry.value).value;
        entry.trailer = Trailer::new(entry.trailer.seq(), EntryKind::Put);
    }
    entries.dedup_by(|a, b| a.key == b.key && a.trailer == b.trailer);
    entries
}

fn write_timed(env: &Arc<dyn Env>, options: &TableOptions, entries: &[Entry]) -> TableMeta {
    let mut writer = TableWriter::create(env, Path::new(DIR), 1, options).unwrap();
    for Entry { key, trailer, value } in entries {
        let times = times_of(key, *trailer, value);
        writer.add_timed(key, options.filter_hash(key), *trailer, value, times).unwrap();
    }
    writer.finish().unwrap()
}

/// A table of entries of 220 bytes. Every run of `period` entries ends with `late` that are of the second half of the time.
fn halves(period: u64, late: u64) -> (Arc<SimEnv>, Arc<Table>) {
    let (sim, env) = sim();
    let entry_of = |i: u64| {
        let from = if i % period < period - late { 10 } else { 5000 };
        timed(format!("user{i:06}").as_bytes(), i + 1, (at(from), at(from + 10)), &[7; 190])
    };
    let meta = write_timed(&env, &TableOptions::default(), &(0..4000).map(entry_of).collect::<Vec<_>>());
    let table = open(&env, &meta, 8 << 20);
    // Loads footer and index.
    table.cursor().seek_to_first().unwrap();
    (sim, table)
}

fn all_keys(times: TimesWanted) -> Wanted {
    Wanted { times, ..Wanted::default() }
}

fn since(time: u64) -> TimesWanted {
    TimesWanted { since: Some(at(time)), until: None }
}

/// The entries from a position on, up to the end of the range.
fn rest(cursor: &mut impl Cursor, to: Option<&[u8]>) -> Vec<Entry> {
    let mut found = Vec::new();
    while let Some(entry) = current(cursor).filter(|e| to.is_none_or(|to| e.key[..] < *to)) {
        found.push(entry);
        cursor.next().unwrap();
    }
    found
}

/// The entries from a position backward, down to the beginning of the range, in order.
fn rest_back(cursor: &mut impl Cursor, from: &[u8]) -> Vec<Entry> {
    let mut found = Vec::new();
    while let Some(entry) = current(cursor).filter(|e| e.key[..] >= *from) {
        found.push(entry);
        cursor.prev().unwrap();
    }
    found.reverse();
    found
}

#[test]
fn walks_show_all_entries_of_the_times_that_they_want() {
    for round in 0..60u64 {
        let mut rng = Rng::new(round);
        let (_sim, env) = sim();
        let entries = random_timed(&mut rng, 400);
        let options = TableOptions { block_size: 128, ..TableOptions::default() };
        let meta = write_timed(&env, &options, &entries);
        // With and without pinned index nodes.
        let table = open(&env, &meta, if round % 2 == 0 { 0 } else { 8 << 20 });
        let found = table.verify_with(Some(times_of), &mut |_| Ok(())).unwrap();
        let times = entries.iter().map(|e| times_of(&e.key, e.trailer, &e.value).unwrap());
        let times = times.map(|(from, to)| TableTimes::of_version(from, to, false));
        assert_eq!(found, TableMeta { times: times.reduce(TableTimes::and), ..meta });
        for _ in 0..20 {
            check_walks(&table, &entries, &mut rng);
        }
    }
}

/// Compares walks over a range and a time with what the entries say.
fn check_walks(table: &Arc<Table>, entries: &[Entry], rng: &mut Rng) {
    let mut time = || (rng.below(3) > 0).then(|| at(rng.below(4500)));
    let times = TimesWanted { since: time(), until: time() };
    let whole = rng.chance(1, 3);
    let mut key = || entries[rng.below(entries.len() as u64) as usize].key.clone();
    let (from, to) = if whole { (Vec::new(), None) } else { (key(), Some(key())) };
    let is_right = |e: &Entry| {
        let (begun, ended) = times_of(&e.key, e.trailer, &e.value).unwrap();
        e.key >= from
            && to.as_ref().is_none_or(|to| e.key < *to)
            && times.since.is_none_or(|since| ended >= since)
            && times.until.is_none_or(|until| begun <= until)
    };
    let right: Vec<&Entry> = entries.iter().filter(|e| is_right(e)).collect();
    let bounds = (Slice::copy_from(&from), to.as_deref().map(Slice::copy_from));
    let mut cursor = table.cursor_for(Some(Wanted { times, from: bounds.0, to: bounds.1 }));
    if whole {
        cursor.seek_to_first().unwrap()
    } else {
        cursor.seek(&from, MAX_SEQ).unwrap()
    }
    let found = rest(&mut cursor, to.as_deref());
    assert!(found.is_sorted_by(|a, b| base::compare(&a.key, a.trailer, &b.key, b.trailer).is_lt()));
    assert_eq!(found.iter().filter(|e| is_right(e)).collect::<Vec<_>>(), right, "{times:?}");
    match &to {
        Some(to) => cursor.seek_before(to).unwrap(),
        None => cursor.seek_to_last().unwrap(),
    }
    // An empty range begins after its end.
    if to.as_ref().is_none_or(|to| from < *to) {
        assert_eq!(rest_back(&mut cursor, &from), found, "{times:?}, backward");
    }
    // Seeks to keys in the range, there or not, and turns.
    for _ in 0..20 {
        let key = &entries[rng.below(entries.len() as u64) as usize].key;
        if *key < from || to.as_ref().is_some_and(|to| key >= to) {
            continue;
        }
        let place = found.partition_point(|e| e.key < *key);
        let (before, after) = (place.checked_sub(1).map(|i| &found[i]), found.get(place));
        let in_range = |found: Option<Entry>| {
            found.filter(|e| e.key >= from && to.as_ref().is_none_or(|to| e.key < *to))
        };
        cursor.seek(key, MAX_SEQ).unwrap();
        assert_eq!(in_range(current(&cursor)).as_ref(), after, "{times:?}, {key:?}");
        if cursor.valid() && after.is_some() {
            cursor.prev().unwrap();
            assert_eq!(in_range(current(&cursor)).as_ref(), before, "{times:?}, before {key:?}");
        }
        cursor.seek_before(key).unwrap();
        assert_eq!(in_range(current(&cursor)).as_ref(), before, "{times:?}, back to {key:?}");
        if cursor.valid() && before.is_some() {
            cursor.next().unwrap();
            assert_eq!(in_range(current(&cursor)).as_ref(), after, "{times:?}, again {key:?}");
        }
    }
}

/// The bytes that a walk over a whole table reads, in how many reads, and the entries that it shows.
fn walk_all(table: &Arc<Table>, wanted: Wanted) -> (u64, u64, usize) {
    let (bytes, reads) = (bytes_read_by_this_thread(), table.tables().stats().reads);
    let mut cursor = table.cursor_for(Some(wanted));
    cursor.seek_to_first().unwrap();
    let found = rest(&mut cursor, None).len();
    (bytes_read_by_this_thread() - bytes, table.tables().stats().reads - reads, found)
}

#[test]
fn a_walk_reads_no_blocks_of_other_times() {
    let (_sim, table) = halves(1000, 300);
    let (all, _, count) = walk_all(&table, all_keys(TimesWanted::default()));
    assert_eq!(count, 4000);
    let (late, _, count) = walk_all(&table, all_keys(since(3000)));
    assert!((1200..1400).contains(&count) && late < all / 2, "{late} of {all} bytes, {count} entries");
    for nothing in [since(9000), TimesWanted { since: None, until: Some(at(9)) }] {
        assert_eq!(walk_all(&table, all_keys(nothing)), (0, 0, 0));
    }
    // Only the blocks with versions of both halves have such times.
    let both = TimesWanted { since: Some(at(100)), until: Some(at(200)) };
    let (between, _, count) = walk_all(&table, all_keys(both));
    assert!((1..200).contains(&count) && between < all / 20, "{between} of {all} bytes, {count} entries");
}

/// A walk that left a few blocks out, each by itself, would make as many reads as there are blocks.
#[test]
fn blocks_that_are_left_out_are_read_through_if_they_are_few() {
    let (_sim, table) = halves(120, 60);
    let (all, reads, _) = walk_all(&table, all_keys(TimesWanted::default()));
    let (some, some_reads, count) = walk_all(&table, all_keys(since(3000)));
    assert!(count < 3200, "{count} entries: no block was left out");
    assert!(some <= all && some_reads <= reads + 2, "{some} of {all} bytes, {some_reads} and {reads} reads");
}

/// Blocks outside of the range are not looked for: a walk ends where it leaves a block out at the bound.
#[test]
fn a_walk_ends_at_the_bounds_of_its_range() {
    let (_sim, table) = halves(4000, 100);
    let (bytes, key) = (bytes_read_by_this_thread(), Slice::copy_from(b"user000100"));
    let wanted = |from: &[u8], to: &Slice| {
        let bounds = (Slice::copy_from(from), Some(to.clone()));
        Wanted { times: since(3000), from: bounds.0, to: bounds.1 }
    };
    let mut cursor = table.cursor_for(Some(wanted(b"", &key)));
    cursor.seek_to_first().unwrap();
    assert!(!cursor.valid());
    cursor.seek(b"user000050", MAX_SEQ).unwrap();
    assert!(!cursor.valid());
    cursor.seek_before(&key).unwrap();
    assert!(!cursor.valid() && bytes_read_by_this_thread() == bytes, "blocks were read");
    // Without bounds the late entries are found.
    let mut cursor = table.cursor_for(Some(all_keys(since(3000))));
    cursor.seek_to_first().unwrap();
    assert!(cursor.valid() && cursor.key() > &b"user003800"[..]);
    // Backward: the early ones lie before the range.
    let until = TimesWanted { since: None, until: Some(at(100)) };
    let end = Slice::copy_from(b"user004000");
    let bytes = bytes_read_by_this_thread();
    let mut cursor = table.cursor_for(Some(Wanted { times: until, ..wanted(b"user003950", &end) }));
    cursor.seek_to_last().unwrap();
    assert!(!cursor.valid() && bytes_read_by_this_thread() == bytes, "blocks were read");
}

#[test]
fn a_walk_that_must_not_block_leaves_blocks_out_too() {
    let (sim, table) = halves(1000, 300);
    sim.set_memory(0);
    sim.set_cached_percent(0);
    let mut cursor = table.cursor_for(Some(all_keys(since(3000))));
    let mut waits = 0;
    for key in ["user000000", "user000650", "user000705", "user001100", "user003990"] {
        cursor.set_nonblocking(true);
        cursor.seek(key.as_bytes(), MAX_SEQ).unwrap();
        if cursor.would_block() {
            waits += 1;
            cursor.set_nonblocking(false);
            cursor.seek(key.as_bytes(), MAX_SEQ).unwrap();
        }
        assert!(cursor.valid() && !cursor.would_block() && cursor.key() >= key.as_bytes(), "{key}");
    }
    assert!(waits >= 3, "{waits} seeks waited");
    // A seek that finds nothing in memory does not wait for what an earlier one has asked for.
    let until = TimesWanted { since: None, until: Some(at(100)) };
    let mut cursor = table.cursor_for(Some(all_keys(until)));
    cursor.set_nonblocking(true);
    cursor.seek(b"user001100", MAX_SEQ).unwrap();
    assert!(cursor.would_block());
    cursor.seek(b"user003999", MAX_SEQ).unwrap();
    assert!(!cursor.would_block() && !cursor.valid());
}

#[test]
fn damage_to_a_block_that_is_left_out_fails_no_walk() {
    let (sim, table) = halves(4000, 2000);
    let mut bytes = sim.read_file(path(1));
    bytes[100_000] ^= 1;
    sim.write_file(path(1), bytes);
    let mut cursor = table.cursor_for(Some(all_keys(since(3000))));
    cursor.seek_to_first().unwrap();
    assert!(rest(&mut cursor, None).len() >= 2000);
    let mut cursor = table.cursor();
    cursor.seek_to_first().unwrap();
    let fails = |cursor: &mut dyn Cursor| {
        while cursor.valid() {
            if cursor.next().is_err() {
                return true;
            }
        }
        false
    };
    assert!(fails(&mut cursor));
}

#[test]
fn times_of_the_index_that_are_not_those_of_the_entries_are_damage() {
    let (_sim, env) = sim();
    let options = TableOptions::default();
    for (given, right) in
        [((5, 9), true), ((6, 9), false), ((5, 8), false), ((5, 10), false), ((4, 9), false)]
    {
        let mut writer = TableWriter::create(&env, Path::new(DIR), 1, &options).unwrap();
        let Entry { key, trailer, value } = timed(b"k", 1, (at(5), at(9)), b"");
        let given = Some((at(given.0), at(given.1)));
        writer.add_timed(&key, options.filter_hash(&key), trailer, &value, given).unwrap();
        let table = open(&env, &writer.finish().unwrap(), 0);
        table.verify(&mut |_| Ok(())).unwrap();
        match table.verify_with(Some(times_of), &mut |_| Ok(())) {
            Ok(_) => assert!(right),
            Err(e) => assert!(!right && e.to_string().contains("times of the index"), "{e}"),
        }
        env.remove(&path(1)).unwrap();
    }
    // An entry that is no version.
    let meta = write(&env, 1, &options, &[entry(b"k", 1, b"short")]);
    let error = open(&env, &meta, 0).verify_with(Some(times_of), &mut |_| Ok(())).unwrap_err();
    assert!(error.to_string().contains("no version"), "{error}");
}

/// A table with an entry without times is of the version without times, and walks leave nothing out.
#[test]
fn one_entry_without_times_makes_a_table_without_times() {
    let (sim, env) = sim();
    let options = TableOptions::default();
    let mut writer = TableWriter::create(&env, Path::new(DIR), 1, &options).unwrap();
    for i in 0..100u64 {
        let Entry { key, trailer, value } = timed(&i.to_be_bytes(), 1, (at(5), at(9)), &[7; 200]);
        let times = (i != 50).then(|| (at(5), at(9)));
        writer.add_timed(&key, options.filter_hash(&key), trailer, &value, times).unwrap();
    }
    let meta = writer.finish().unwrap();
    let table = open(&env, &meta, 0);
    assert_eq!(table.verify(&mut |_| Ok(())).unwrap(), meta);
    assert_eq!(walk_all(&table, all_keys(since(1000))).2, 100);
    let bytes = sim.read_file(path(1));
    assert_eq!(bytes[bytes.len() - 16..][..4], 3u32.to_le_bytes());
}
