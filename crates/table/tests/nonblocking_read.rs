//! Nonblocking reads: a read that would block is never mistaken for an answer, and is completed later without starting anew.

use crate::common::*;
use base::{Cursor, MAX_SEQ, hash};
use env::{Fault, OpKind, Repeat, SimEnv};
use std::sync::{Arc, Mutex};
use table::{Compression, Table, TableFormat, TableOptions};

fn entries() -> Vec<Entry> {
    let mut entries: Vec<Entry> = (0..2000u32)
        .map(|i| entry(format!("{i:07}").as_bytes(), u64::from(i) + 1, &[i as u8; 300]))
        .collect();
    sort(&mut entries);
    entries
}

fn table(compression: Compression, cache_bytes: u64) -> (Arc<SimEnv>, Arc<Table>, Vec<Entry>) {
    table_of(TableFormat::BTree, compression, cache_bytes)
}

fn table_of(
    format: TableFormat,
    compression: Compression,
    cache_bytes: u64,
) -> (Arc<SimEnv>, Arc<Table>, Vec<Entry>) {
    let ((sim, env), entries) = (sim(), entries());
    sim.set_memory(0);
    let meta = write(&env, 1, &TableOptions { format, compression, ..TableOptions::default() }, &entries);
    let table = open(&env, &meta, cache_bytes);
    // Loads the footer and the index.
    table.get(&entries[0].key, hash(&entries[0].key), MAX_SEQ).unwrap();
    (sim, table, entries)
}

#[test]
fn blocks_outside_memory_are_requested_and_read_later() {
    for (format, compression) in formats_and_compressions() {
        for cache_bytes in [0, 16 << 10, 8 << 20] {
            let (sim, table, entries) = table_of(format, compression, cache_bytes);
            sim.set_cached_percent(0);
            let (mut waiting, mut at_once) = (Vec::new(), 0);
            for e in entries.iter().step_by(97) {
                let (asked, read) = (sim.will_need_calls(), sim.op_count());
                let mut wanted = None;
                let found = table.try_get(&e.key, hash(&e.key), MAX_SEQ, &mut wanted).unwrap();
                assert_eq!(found.is_none(), wanted.is_some());
                assert_eq!(sim.will_need_calls() - asked, u64::from(wanted.is_some()));
                // With a small cache, filter and index are not pinned, and reading them may block; reading pages of rows always may.
                let may_block = cache_bytes < 8 << 20 || format == TableFormat::SizeClass;
                assert!(sim.op_count() == read || may_block, "the read must not block");
                at_once += usize::from(found.is_some());
                waiting.extend(wanted.map(|wanted| (e, wanted)));
            }
            assert!(waiting.len() > 15 && at_once <= 1, "{} wait, {at_once} do not", waiting.len());
            for (e, wanted) in waiting {
                let (trailer, value) = table.get_wanted(wanted, &e.key, MAX_SEQ).unwrap().unwrap();
                assert_eq!((trailer, &value[..]), (e.trailer, &e.value[..]));
            }
        }
    }
}

#[test]
fn blocks_in_memory_are_read_at_once() {
    let (sim, table, entries) = table(Compression::None, 0);
    sim.set_cached_percent(100);
    let before = table.tables().stats();
    for e in entries.iter().step_by(97) {
        let mut wanted = None;
        let found = table.try_get(&e.key, hash(&e.key), MAX_SEQ, &mut wanted).unwrap();
        assert!(found.unwrap().1[..] == e.value[..] && wanted.is_none());
    }
    let stats = table.tables().stats();
    assert!(stats.reads > before.reads && stats.bytes_read > before.bytes_read);
    assert_eq!(sim.will_need_calls(), 0);
    let mut wanted = None;
    assert!(table.try_get(b"no", hash(b"no"), MAX_SEQ, &mut wanted).unwrap().is_none() && wanted.is_none());
}

#[test]
fn a_failing_read_is_an_error_in_either_step() {
    FORMATS.into_iter().for_each(fail_either_step);
}

fn fail_either_step(format: TableFormat) {
    let (sim, table, entries) = table_of(format, Compression::None, 8 << 20);
    let key = &entries[1000].key;
    sim.set_cached_percent(100);
    sim.fail_op(sim.op_count(), Fault::EIO, Repeat::Once);
    let error = table.try_get(key, hash(key), MAX_SEQ, &mut None).unwrap_err();
    assert!(error.to_string().contains("000001.tbl"), "{error}");
    sim.set_cached_percent(0);
    let mut wanted = None;
    assert!(table.try_get(key, hash(key), MAX_SEQ, &mut wanted).unwrap().is_none());
    sim.fail_op(sim.op_count(), Fault::EIO, Repeat::Once);
    let error = table.get_wanted(wanted.unwrap(), key, MAX_SEQ).unwrap_err();
    assert!(error.to_string().contains("000001.tbl"), "{error}");
    let mut bytes = sim.read_file(path(1));
    let data_end = bytes.len() / 2;
    bytes[..data_end].iter_mut().for_each(|byte| *byte ^= 1);
    sim.write_file(path(1), bytes);
    assert_eq!(
        table.get_wanted(wanted.unwrap(), key, MAX_SEQ).unwrap_err().kind(),
        base::ErrorKind::Corruption
    );
}

/// A block is admitted at its third use. A read in two steps counts as one use.
#[test]
fn a_read_in_two_steps_is_one_use_of_the_block() {
    FORMATS.into_iter().for_each(read_in_two_steps);
}

fn read_in_two_steps(format: TableFormat) {
    let (sim, table, entries) = table_of(format, Compression::None, 8 << 20);
    sim.set_cached_percent(0);
    let inserts = || table.tables().cache().stats().data.inserts;
    let e = &entries[500];
    for expected in [0, 0, 1] {
        let mut wanted = None;
        assert!(table.try_get(&e.key, hash(&e.key), MAX_SEQ, &mut wanted).unwrap().is_none());
        assert!(table.get_wanted(wanted.unwrap(), &e.key, MAX_SEQ).unwrap().is_some());
        assert_eq!(inserts(), expected);
    }
    let mut wanted = None;
    assert!(table.try_get(&e.key, hash(&e.key), MAX_SEQ, &mut wanted).unwrap().is_some());
    assert!(wanted.is_none(), "it is cached");

    let mut cursor = table.cursor();
    // Alternates between two blocks, because a seek within the current block reads nothing.
    for (i, expected) in [(900, 1), (1500, 1), (900, 1), (1500, 1), (900, 2), (1500, 3)] {
        let e = &entries[i];
        cursor.set_nonblocking(true);
        cursor.seek(&e.key, MAX_SEQ).unwrap();
        cursor.set_nonblocking(false);
        assert!(cursor.would_block() && !cursor.valid());
        cursor.seek(&e.key, MAX_SEQ).unwrap();
        assert_eq!((current(&cursor).as_ref(), cursor.would_block()), (Some(e), false));
        assert_eq!(inserts(), expected);
    }
}

/// Compares the lengths of the reads of a walk forward.
#[test]
fn a_step_to_the_next_block_reads_ahead() {
    for percent in [100, 0] {
        let (sim, table, entries) = table(Compression::None, 0);
        sim.set_cached_percent(percent);
        let stats = || (table.tables().stats().reads, table.tables().stats().bytes_read);
        let mut cursor = table.cursor();
        cursor.seek(&entries[500].key, MAX_SEQ).unwrap();
        let (mut before, mut read) = (stats(), Vec::new());
        for e in &entries[501..600] {
            cursor.next().unwrap();
            assert_eq!(current(&cursor).as_ref(), Some(e));
            let now = stats();
            assert!(now.0 - before.0 < 2, "one read at a time");
            read.extend((now.0 > before.0).then_some(now.1 - before.1));
            before = now;
        }
        assert_eq!(read, [8 << 10, 16 << 10, 32 << 10], "{percent} % in memory");
    }
}

#[test]
fn a_second_wait_nearby_prefetches_the_neighbourhood_if_memory_suffices() {
    const MIB: u64 = 1 << 20;
    let entries: Vec<Entry> = (0..2500u32).map(|i| entry(&i.to_be_bytes(), 1, &[7; 1000])).collect();
    let run = |beyond: i64, in_memory: u64, put_off: bool| {
        let (sim, env) = sim();
        let meta =
            write(&env, 1, &TableOptions { compression: Compression::None, ..Default::default() }, &entries);
        assert!((2 * MIB..3 * MIB).contains(&meta.file_size));
        sim.set_memory(meta.file_size.checked_add_signed(beyond).unwrap());
        let table = open(&env, &meta, 0);
        table.may_contain(0).unwrap();
        sim.set_cached_percent(in_memory);
        let mut asked = Vec::new();
        // Two keys in the first MiB, then keys in the third and the second, and some of them again.
        for i in [0, 1, 500, 2499, 1500, 0, 2498, 1501] {
            let (before, blocks) = (sim.will_need_bytes(), u64::from(put_off && in_memory == 0) * 4096);
            let (key, mut wanted) = (&entries[i].key, None);
            let mut found = None;
            if put_off {
                found = table.try_get(key, hash(key), MAX_SEQ, &mut wanted).unwrap();
            }
            if !put_off || wanted.is_some() {
                found = table.get(key, hash(key), MAX_SEQ).unwrap();
            }
            assert_eq!(found.unwrap().1, entries[i].value);
            asked.push((sim.will_need_bytes() - before).saturating_sub(blocks));
        }
        let rest = meta.file_size - 2 * MIB;
        (asked, [0, MIB, 0, 0, 0, 0, rest, MIB].to_vec())
    };
    for put_off in [false, true] {
        let (asked, pieces) = run(0, 0, put_off);
        let near = |(asked, piece): (&u64, &u64)| asked.abs_diff(*piece) < 4096;
        assert!(asked.iter().zip(&pieces).all(near), "{asked:?}, each piece once: {pieces:?}");
        assert_eq!(run(0, 100, put_off).0, [0; 8], "what is there is not asked for");
    }
    assert_eq!(run(-1, 0, false).0, [0; 8], "the tables are larger than memory");
}

#[test]
fn compactions_see_a_read_of_a_caller_while_it_waits_for_the_disk() {
    for (percent, expected) in [(0, true), (100, false)] {
        let (sim, table, entries) = table(Compression::None, 0);
        sim.set_cached_percent(percent);
        let (tables, waiting) = (table.tables().clone(), Arc::new(Mutex::new(Vec::new())));
        let seen = waiting.clone();
        sim.set_hook(Some(Box::new(move |op| {
            if op.kind == OpKind::Read {
                seen.lock().unwrap().push(tables.waiting_reads().any());
            }
            None
        })));
        let seen_by = |reads: &mut dyn FnMut()| {
            reads();
            assert!(!table.tables().waiting_reads().any(), "a read that has ended does not wait");
            std::mem::take(&mut *waiting.lock().unwrap())
        };
        let is = |seen: Vec<bool>, expected| !seen.is_empty() && seen.iter().all(|&s| s == expected);
        let key = &entries[700].key;
        let mut get = || _ = table.get(key, hash(key), MAX_SEQ).unwrap();
        assert!(is(seen_by(&mut get), false), "no compaction is announced");
        let _compaction = table.tables().waiting_reads().begin_job();
        assert!(is(seen_by(&mut get), expected));
        let mut cursor = table.cursor();
        assert!(is(seen_by(&mut || cursor.seek(key, MAX_SEQ).unwrap()), expected));
        let mut scan = table.scan();
        assert!(is(seen_by(&mut || scan.seek_to_first().unwrap()), false), "the scan of a compaction");
        sim.set_hook(None);
        sim.fail_op(sim.op_count(), Fault::EIO, Repeat::Once);
        assert!(table.get(key, hash(key), MAX_SEQ).is_err());
        assert!(!table.tables().waiting_reads().any(), "a read that failed does not wait");
    }
}

type Move<'a> = &'a dyn Fn(&mut dyn Cursor);

#[test]
fn a_nonblocking_cursor_is_invalid_or_at_the_right_entry() {
    let cases = [(0, Compression::None), (50, Compression::Lz4), (100, Compression::None)];
    for (format, (percent, compression)) in FORMATS.into_iter().flat_map(|format| cases.map(|c| (format, c)))
    {
        let (sim, table, entries) = table_of(format, compression, 0);
        sim.set_cached_percent(percent);
        let mut cursor = table.cursor();
        let mut waited = 0;
        for i in (1..entries.len()).step_by(7) {
            let e = &entries[i];
            let moves: [(Move<'_>, usize); 4] = [
                (&|c| c.seek(&e.key, MAX_SEQ).unwrap(), i),
                (&|c| c.seek_before(&e.key).unwrap(), i - 1),
                (&|c| c.seek_to_first().unwrap(), 0),
                (&|c| c.seek_to_last().unwrap(), entries.len() - 1),
            ];
            for (run, at) in moves {
                cursor.set_nonblocking(true);
                run(&mut cursor);
                cursor.set_nonblocking(false);
                assert_ne!(cursor.valid(), cursor.would_block());
                if cursor.would_block() {
                    waited += 1;
                    run(&mut cursor);
                }
                assert_eq!((current(&cursor).as_ref(), cursor.would_block()), (Some(&entries[at]), false));
            }
        }
        assert!(percent == 100 && waited == 0 || percent < 100 && waited > 200, "{percent}: {waited}");
    }
}

#[test]
fn a_failing_readahead_does_not_fail_the_block() {
    let (sim, table, entries) = table(Compression::None, 0);
    sim.set_cached_percent(0);
    let mut cursor = table.cursor();
    for (place, back) in [(10, false), (1500, true)] {
        cursor.seek(&entries[place].key, MAX_SEQ).unwrap();
        // The next read is a readahead of several blocks.
        let reads = sim.op_count();
        sim.fail_op(reads, Fault::EIO, Repeat::Once);
        let mut at = place;
        while sim.op_count() == reads {
            if back {
                cursor.prev().unwrap()
            } else {
                cursor.next().unwrap()
            }
            at = if back { at - 1 } else { at + 1 };
            assert_eq!(current(&cursor).as_ref(), Some(&entries[at]));
        }
        assert_eq!(sim.op_count(), reads + 2, "the block alone was read");
        // If the block itself cannot be read, the step is an error.
        sim.fail_op(sim.op_count(), Fault::EIO, Repeat::SameKind);
        let error = loop {
            match if back { cursor.prev() } else { cursor.next() } {
                Ok(()) => {}
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), base::ErrorKind::Io);
        sim.clear_faults();
    }
}
