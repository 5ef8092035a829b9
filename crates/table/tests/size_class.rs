//! Size-class tables: borders between classes, what reads cost, and what is read of damaged ones. The other suites
//! run with tables of both formats.

use crate::common::*;
use base::{Cursor, ErrorKind, MAX_SEQ, hash};
use env::{Env, SimEnv};
use std::path::Path;
use std::sync::Arc;
use table::{SalvageCursor, Survey, TableFormat, TableMeta, TableOptions};

fn options() -> TableOptions {
    TableOptions { format: TableFormat::SizeClass, block_size: 512, ..TableOptions::default() }
}

/// Keys of two classes in turn, with values of 20 bytes.
fn two_classes(count: u32) -> Vec<Entry> {
    let key = |i: u32| match i % 2 {
        0 => format!("{i:07}"),
        _ => format!("{i:07}-and-more"),
    };
    (0..count).map(|i| entry(key(i).as_bytes(), u64::from(i) + 1, &[i as u8; 20])).collect()
}

fn table_of(entries: &[Entry]) -> (Arc<SimEnv>, Arc<dyn Env>, TableMeta) {
    let (sim, env) = sim();
    let meta = write(&env, 1, &options(), entries);
    (sim, env, meta)
}

#[test]
fn keys_at_the_borders_of_classes_are_found_in_order() {
    let mut entries = Vec::new();
    let small = [0, 1, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129];
    let borders = (9..16).flat_map(|bits| [1 << bits, (1 << bits) + 1]);
    for len in small.into_iter().chain(borders).chain([65_535, 65_536]) {
        for (byte, seq) in [(0, 1), (7, 2), (255, 3)] {
            let key = vec![byte; len];
            entries.push(entry(&key, seq, format!("{len} {byte}").as_bytes()));
            entries.push(tombstone(&key, 10 + seq));
        }
    }
    sort(&mut entries);
    let (_, env, meta) = table_of(&entries);
    let table = open(&env, &meta, 1 << 20);
    for e in &entries {
        let (trailer, value) = table.get(&e.key, hash(&e.key), e.trailer.seq()).unwrap().unwrap();
        assert_eq!((trailer, &value[..]), (e.trailer, &e.value[..]), "{:?}", e.key);
        let mut cursor = table.cursor();
        cursor.seek(&e.key, e.trailer.seq()).unwrap();
        assert_eq!(current(&cursor).as_ref(), Some(e));
        cursor.seek_before(&e.key).unwrap();
        let before = lower_bound(&entries, &e.key, base::Trailer(u64::MAX)).checked_sub(1);
        assert_eq!(current(&cursor).as_ref(), before.map(|i| &entries[i]));
    }
    for absent in [vec![7; 10], vec![0; 2000], b"x".to_vec()] {
        assert!(table.get(&absent, hash(&absent), MAX_SEQ).unwrap().is_none());
    }
    assert_eq!(table.verify(&mut |_| Ok(())).unwrap(), meta);
}

#[test]
fn a_cursor_turns_between_classes() {
    let entries = two_classes(500);
    let (_, env, meta) = table_of(&entries);
    for cache in [0, 1 << 20] {
        let mut cursor = open(&env, &meta, cache).cursor();
        for at in [1usize, 2, 90, 91, 92, 93, 183, 184, 185, 250, 498] {
            cursor.seek(&entries[at].key, MAX_SEQ).unwrap();
            for step in [1i64, 1, -1, -1, -1, 1] {
                let here = entries.iter().position(|e| e.key == cursor.key()).unwrap() as i64;
                if step > 0 { cursor.next() } else { cursor.prev() }.unwrap();
                let expected = usize::try_from(here + step).ok().and_then(|i| entries.get(i));
                assert_eq!(current(&cursor).as_ref(), expected, "{at}");
                if !cursor.valid() {
                    cursor.seek(&entries[at].key, MAX_SEQ).unwrap();
                }
            }
        }
    }
}

#[test]
fn tombstones_and_empty_values_read_no_value_block() {
    let entries: Vec<Entry> = (0..300u32)
        .map(|i| {
            let key = i.to_be_bytes();
            if i % 2 == 0 { tombstone(&key, 1) } else { entry(&key, 1, b"") }
        })
        .collect();
    let (_, env, meta) = table_of(&entries);
    let table = open(&env, &meta, 1 << 20);
    table.may_contain(0).unwrap();
    let before = table.tables().stats().reads;
    for e in &entries {
        assert_eq!(table.get(&e.key, hash(&e.key), MAX_SEQ).unwrap().unwrap().1, e.value);
    }
    assert_eq!(table.tables().stats().reads - before, 3, "the pages of rows, and nothing else");
    assert_eq!(table.verify(&mut |_| Ok(())).unwrap(), meta);
}

#[test]
fn a_get_reads_a_few_pages_of_rows_and_one_value_block() {
    let entries = two_classes(20_000);
    let (_, env, meta) = table_of(&entries);
    for cache in [0, 8 << 20] {
        let table = open(&env, &meta, cache);
        table.may_contain(0).unwrap();
        let reads = || table.tables().stats().reads;
        // 10,000 rows of a class lie in 89 or 109 pages: a search needs seven of them at most, and the row may be in the next one.
        for e in entries.iter().step_by(37) {
            let before = reads();
            assert_eq!(table.get(&e.key, hash(&e.key), MAX_SEQ).unwrap().unwrap().1, e.value);
            let filter = u64::from(cache == 0);
            assert!(reads() - before <= 7 + 1 + 1 + filter, "{}", reads() - before);
        }
        // Pages are cached at their first read, and a value block at its third.
        let e = &entries[777];
        (0..3).for_each(|_| drop(table.get(&e.key, hash(&e.key), MAX_SEQ).unwrap()));
        let before = reads();
        table.get(&e.key, hash(&e.key), MAX_SEQ).unwrap();
        assert_eq!(reads() == before, cache > 0);
    }
}

#[test]
fn a_check_reports_after_each_page_and_can_be_ended() {
    let entries: Vec<Entry> = (0..5000u32).map(|i| tombstone(&i.to_be_bytes(), 1)).collect();
    let (_, env, meta) = table_of(&entries);
    let table = open(&env, &meta, 0);
    let mut steps = Vec::new();
    let mut note = |bytes| {
        steps.push(bytes);
        Ok(())
    };
    assert_eq!(table.verify(&mut note).unwrap(), meta);
    assert!(steps.len() > 45 && steps.is_sorted() && steps.last() == Some(&meta.file_size), "{steps:?}");
    let mut left = 10;
    let mut end = |_| {
        left -= 1;
        if left == 0 { Err(base::Error::new(ErrorKind::Closed, "enough")) } else { Ok(()) }
    };
    assert_eq!(table.verify(&mut end).unwrap_err().kind(), ErrorKind::Closed);
}

#[test]
fn a_value_block_that_is_longer_than_its_rows_say_is_refused_by_every_reader() {
    // All values lie in one block, and every row names its length: changing that of one row is damage to a get of it, and to a walk.
    let entries: Vec<Entry> = (0..10u32).map(|i| entry(&i.to_be_bytes(), 1, &[7; 20])).collect();
    let (sim, env, meta) = table_of(&entries);
    let mut bytes = sim.read_file(path(1));
    let (at, len, _) = *frames(&bytes, 1).iter().find(|f| f.2 == 8).unwrap();
    // The size of the block in the sixth row.
    bytes[at + 17 + 5 * 36 + 8 + 16] -= 1;
    let place = base::checksum::Place { file: 1, offset: at as u64, kind: 8 };
    let sum = base::checksum::checksum(place, &bytes[at + 4..at + len]);
    bytes[at..at + 4].copy_from_slice(&sum.to_le_bytes());
    sim.write_file(path(1), bytes);
    let table = open(&env, &meta, 1 << 20);
    let get = |i: usize| table.get(&entries[i].key, hash(&entries[i].key), MAX_SEQ);
    assert!(get(4).is_ok() && get(6).is_ok());
    assert_eq!(get(5).unwrap_err().kind(), ErrorKind::Corruption);
    for scan in [false, true] {
        let mut cursor: Box<dyn Cursor> =
            if scan { Box::new(table.scan()) } else { Box::new(table.cursor()) };
        cursor.seek_to_first().unwrap();
        let mut moved = Ok(());
        while moved.is_ok() && cursor.valid() {
            moved = cursor.next();
        }
        assert_eq!(moved.unwrap_err().kind(), ErrorKind::Corruption, "scan: {scan}");
    }
    assert!(table.verify(&mut |_| Ok(())).is_err());
}

/// A row may name, as its value block, a place where the cache has a page of rows.
#[test]
fn a_page_of_rows_is_not_taken_for_a_value_block() {
    let entries: Vec<Entry> = (0..10u32).map(|i| entry(&i.to_be_bytes(), 1, b"")).collect();
    let (sim, env) = sim();
    let meta = write(&env, 1, &TableOptions { filter_bits_per_key: 0, ..options() }, &entries);
    let mut bytes = sim.read_file(path(1));
    let (at, len, _) = *frames(&bytes, 1).iter().find(|f| f.2 == 8).unwrap();
    assert_eq!(at, 0, "there are no value blocks");
    // The length of the value in the sixth row.
    bytes[at + 17 + 5 * 36 + 8 + 24] = 5;
    let place = base::checksum::Place { file: 1, offset: at as u64, kind: 8 };
    let sum = base::checksum::checksum(place, &bytes[at + 4..at + len]);
    bytes[at..at + 4].copy_from_slice(&sum.to_le_bytes());
    sim.write_file(path(1), bytes);
    for cache in [0, 1 << 20] {
        let table = open(&env, &meta, cache);
        let get = |i: usize| table.get(&entries[i].key, hash(&entries[i].key), MAX_SEQ);
        for _ in 0..4 {
            assert!(get(4).unwrap().is_some_and(|(_, value)| value.is_empty()));
            assert_eq!(get(5).unwrap_err().kind(), ErrorKind::Corruption);
        }
        let mut cursor = table.cursor();
        cursor.seek(&entries[4].key, MAX_SEQ).unwrap();
        assert_eq!(cursor.next().unwrap_err().kind(), ErrorKind::Corruption);
        assert!(table.verify(&mut |_| Ok(())).is_err());
    }
}

#[test]
fn damage_to_a_page_fails_only_reads_that_need_it() {
    let entries = two_classes(5000);
    let (sim, env, meta) = table_of(&entries);
    let frames = frames(&sim.read_file(path(1)), 1);
    let pages: Vec<_> = frames.iter().filter(|f| f.2 == 8).collect();
    // The second page of the first class is in the way of few searches.
    let (at, len, _) = *pages[1];
    sim.flip_bit(path(1), (at + len / 2) as u64, 3);
    let table = open(&env, &meta, 8 << 20);
    let (mut right, mut failed) = (0, 0);
    for e in &entries {
        match table.get(&e.key, hash(&e.key), MAX_SEQ) {
            Ok(found) => {
                assert_eq!(found.expect("it is there").1, e.value);
                right += 1;
            }
            Err(error) => {
                assert_eq!((error.kind(), error.place().unwrap().1), (ErrorKind::Corruption, at as u64));
                failed += 1;
            }
        }
    }
    assert!(failed > 50 && right > 2500, "{right} right, {failed} failed");
    let error = table.verify(&mut |_| Ok(())).unwrap_err();
    assert_eq!(error.place().unwrap().1, at as u64);
}

fn survey(env: &Arc<dyn Env>) -> Survey {
    SalvageCursor::open(env, Path::new(DIR), 1, 0).unwrap().survey().unwrap()
}

/// The entries that salvage reads.
fn salvaged(env: &Arc<dyn Env>) -> Vec<Entry> {
    let mut cursor = SalvageCursor::open(env, Path::new(DIR), 1, 0).unwrap();
    let mut entries = Vec::new();
    cursor.seek_to_first().unwrap();
    while let Some(entry) = current(&cursor) {
        entries.push(entry);
        cursor.next().unwrap();
    }
    entries
}

/// Asserts that what is read is right, and that each entry that is missing lies in a gap. Returns how many are missing.
fn check_salvage(env: &Arc<dyn Env>, entries: &[Entry], what: &str) -> usize {
    let (found, survey) = (salvaged(env), survey(env));
    assert_eq!(found.len() as u64, survey.entries, "{what}");
    assert!(found.iter().all(|e| entries.contains(e)), "{what}: an entry that never was");
    let in_gap = |key: &Vec<u8>| {
        survey.gaps.iter().any(|gap| {
            gap.after.as_ref().is_none_or(|after| key >= after)
                && gap.before.as_ref().is_none_or(|before| key <= before)
        })
    };
    let missing: Vec<_> = entries.iter().filter(|e| !found.contains(e)).collect();
    assert!(missing.iter().all(|e| in_gap(&e.key)), "{what}: lost without a word: {survey:?}");
    assert!(!missing.is_empty() || survey.gaps.is_empty() || survey.promised.is_none(), "{what}: {survey:?}");
    missing.len()
}

#[test]
fn salvage_reads_what_is_intact_and_names_what_is_not() {
    let entries = two_classes(600);
    let (sim, env, _) = table_of(&entries);
    let sound = survey(&env);
    assert_eq!((sound.entries, sound.gaps.len(), sound.other_damage), (600, 0, false));
    let whole = sim.read_file(path(1));
    for (at, len, kind) in frames(&whole, 1) {
        sim.flip_bit(path(1), (at + len / 2) as u64, 2);
        let missing = check_salvage(&env, &entries, &format!("kind {kind} at {at}"));
        match kind {
            7 => assert!((1..40).contains(&missing), "a value block: {missing}"),
            8 => assert!((20..=113).contains(&missing), "a page: {missing}"),
            _ => assert!(missing == 0 && survey(&env).other_damage, "kind {kind}: {missing}"),
        }
        sim.flip_bit(path(1), (at + len / 2) as u64, 2);
    }
    // Without a footer, and with further damage.
    let footer = whole.len() as u64 - 40;
    sim.flip_bit(path(1), footer, 0);
    assert_eq!(check_salvage(&env, &entries, "footer"), 0);
    for (at, len, kind) in frames(&whole, 1) {
        sim.flip_bit(path(1), (at + len / 2) as u64, 2);
        check_salvage(&env, &entries, &format!("footer and kind {kind} at {at}"));
        sim.flip_bit(path(1), (at + len / 2) as u64, 2);
    }
}

#[test]
fn salvage_of_a_truncated_file_says_that_entries_are_missing() {
    let entries = two_classes(600);
    let (sim, env, _) = table_of(&entries);
    let whole = sim.read_file(path(1));
    let rows = frames(&whole, 1).iter().find(|f| f.2 == 8).unwrap().0;
    for len in (0..whole.len()).step_by(1031).chain(whole.len() - 100..whole.len()) {
        sim.write_file(path(1), &whole[..len]);
        let missing = check_salvage(&env, &entries, &format!("cut to {len}"));
        assert_eq!(missing == 600, len < rows + 4096, "cut to {len}: {missing}");
    }
}

#[test]
fn salvage_of_tombstones_says_that_they_are_missing() {
    let entries: Vec<Entry> = (0..50u32).map(|i| tombstone(&i.to_be_bytes(), 1)).collect();
    let (sim, env, _) = table_of(&entries);
    let whole = sim.read_file(path(1));
    for len in [100, 5000, 8191, 8192, whole.len() - 1] {
        sim.write_file(path(1), &whole[..len]);
        let missing = check_salvage(&env, &entries, &format!("cut to {len}"));
        assert_eq!(missing, if len < 8192 { 50 } else { 0 }, "cut to {len}");
    }
}

#[test]
fn salvage_reads_the_properties_after_a_damaged_directory() {
    let entries = two_classes(600);
    let (sim, env, _) = table_of(&entries);
    let directory = frames(&sim.read_file(path(1)), 1).into_iter().find(|f| f.2 == 9).unwrap();
    sim.flip_bit(path(1), env.len(&path(1)).unwrap() - 40, 0);
    sim.flip_bit(path(1), directory.0 as u64 + 10, 3);
    let found = survey(&env);
    assert_eq!((found.entries, found.promised, found.gaps.len()), (600, Some(600), 0), "{found:?}");
}

#[test]
fn salvage_of_a_file_of_noise_reads_it_once() {
    let (sim, env) = sim();
    let mut noise = vec![0; 1 << 20];
    env::Rng::new(1).fill(&mut noise);
    sim.write_file(path(1), noise);
    let before = sim.op_count();
    let found = survey(&env);
    assert_eq!((found.entries, found.gaps.len()), (0, 1));
    // Once for the search of pages, and once for that of blocks, in reads of 64 KiB, and a few larger ones.
    assert!(sim.op_count() - before < 400, "{}", sim.op_count() - before);
}
