//! Tables compared with a sorted list: all read functions, over random shapes of keys, values, blocks and caches.

use crate::common::*;
use base::{Cursor, MAX_SEQ, Trailer};
use env::Rng;
use std::sync::Arc;
use table::{Compression, Table, TableFormat, TableOptions};

fn random_options(rng: &mut Rng) -> TableOptions {
    TableOptions {
        format: FORMATS[rng.below(2) as usize],
        block_size: [64, 128, 512, 4096, 65_536][rng.below(5) as usize],
        compression: Compression::AVAILABLE[rng.below(Compression::AVAILABLE.len() as u64) as usize],
        filter_bits_per_key: [0, 5, 10, 20][rng.below(4) as usize],
        ..TableOptions::default()
    }
}

/// A key of the table, or one between, before or after its keys.
fn probe(rng: &mut Rng, entries: &[Entry], keys: Keys) -> Vec<u8> {
    let mut key = match rng.below(3) {
        0 => random_key(rng, keys),
        _ => entries[rng.below(entries.len() as u64) as usize].key.clone(),
    };
    match rng.below(6) {
        0 => key.push(0),
        1 => drop(key.pop()),
        2 => {
            if let Some(last) = key.last_mut() {
                *last = last.wrapping_add(1);
            }
        }
        _ => {}
    }
    key
}

fn check_gets(rng: &mut Rng, table: &Table, entries: &[Entry], keys: Keys) {
    for _ in 0..300 {
        let key = probe(rng, entries, keys);
        let seq = [rng.below(1002), MAX_SEQ][rng.below(2) as usize];
        let expected = entries.get(lower_bound(entries, &key, Trailer::seek(seq))).filter(|e| e.key == key);
        let got = table.get(&key, base::hash(&key), seq).unwrap();
        assert_eq!(
            got.as_ref().map(|(trailer, value)| (*trailer, &value[..])),
            expected.map(|e| (e.trailer, &e.value[..])),
            "get {key:?} at {seq}"
        );
        if expected.is_some() {
            assert!(table.may_contain(base::hash(&key)).unwrap());
        }
    }
}

fn check_forward(cursor: &mut impl Cursor, entries: &[Entry]) {
    cursor.seek_to_first().unwrap();
    for e in entries {
        assert_eq!(current(cursor).as_ref(), Some(e));
        cursor.next().unwrap();
    }
    assert!(!cursor.valid());
}

fn check_whole(cursor: &mut impl Cursor, entries: &[Entry]) {
    check_forward(cursor, entries);
    cursor.seek_to_last().unwrap();
    for e in entries.iter().rev() {
        assert_eq!(current(cursor).as_ref(), Some(e));
        cursor.prev().unwrap();
    }
    assert!(!cursor.valid());
}

/// A random walk of seeks and steps in both directions.
fn check_walk(rng: &mut Rng, cursor: &mut impl Cursor, entries: &[Entry], keys: Keys, steps: u64) {
    let mut at: Option<usize> = None;
    for _ in 0..steps {
        match rng.below(12) {
            0 => {
                cursor.seek_to_first().unwrap();
                at = Some(0);
            }
            1 => {
                cursor.seek_to_last().unwrap();
                at = Some(entries.len() - 1);
            }
            2 | 3 => {
                let (key, seq) =
                    (probe(rng, entries, keys), [rng.below(1002), MAX_SEQ][rng.below(2) as usize]);
                cursor.seek(&key, seq).unwrap();
                at = Some(lower_bound(entries, &key, Trailer::seek(seq))).filter(|i| *i < entries.len());
            }
            4 => {
                let key = probe(rng, entries, keys);
                cursor.seek_before(&key).unwrap();
                at = lower_bound(entries, &key, Trailer(u64::MAX)).checked_sub(1);
            }
            n => {
                let forward = n % 2 == 0;
                for _ in 0..rng.below(20) {
                    let Some(i) = at else { break };
                    if forward {
                        cursor.next().unwrap();
                        at = Some(i + 1).filter(|i| *i < entries.len());
                    } else {
                        cursor.prev().unwrap();
                        at = i.checked_sub(1);
                    }
                }
            }
        }
        assert_eq!(current(cursor).as_ref(), at.map(|i| &entries[i]));
        if at.is_some() {
            assert_eq!(cursor.value_slice(), cursor.value());
        }
    }
}

fn check(seed: u64) {
    let rng = &mut Rng::new(seed);
    let keys = SHAPES[rng.below(5) as usize];
    let options = random_options(rng);
    let count = [1, 2, 30, 1000, 3000][rng.below(5) as usize];
    let entries = random_entries(rng, keys, count);
    let cache = [0, 10_000, 64 << 20][rng.below(3) as usize];
    println!("seed {seed}: {keys:?}, {} entries, {options:?}, cache {cache}", entries.len());

    let (_, env) = sim();
    let meta = write(&env, 7, &options, &entries);
    assert_eq!(meta, meta_of(7, meta.file_size, &entries));
    assert_eq!(meta.file_size, env.len(&path(7)).unwrap());
    let table = open(&env, &meta, cache);
    check_gets(rng, &table, &entries, keys);
    check_whole(&mut table.cursor(), &entries);
    check_forward(&mut table.scan(), &entries);
    check_walk(rng, &mut table.cursor(), &entries, keys, 300);
    assert_eq!(table.meta().unwrap(), meta);
    let mut done = 0;
    let mut note = |bytes| {
        done = bytes;
        Ok(())
    };
    assert_eq!(table.verify(&mut note).unwrap(), meta);
    assert_eq!(done, meta.file_size);
}

#[test]
fn random_tables_agree_with_a_sorted_list() {
    for seed in 0..300 {
        check(seed);
    }
}

#[test]
fn many_versions_of_one_key_span_blocks() {
    let (_, env) = sim();
    let mut entries: Vec<Entry> =
        (1..=3000).map(|seq| entry(b"k", seq * 2, format!("{seq}").as_bytes())).collect();
    entries.push(entry(b"j", 5, b"before"));
    entries.push(entry(b"l", 5, b"after"));
    sort(&mut entries);
    let options = TableOptions { block_size: 128, ..TableOptions::default() };
    let meta = write(&env, 1, &options, &entries);
    let table = open(&env, &meta, 1 << 20);
    for seq in 0..6010 {
        let expected = entries.get(lower_bound(&entries, b"k", Trailer::seek(seq))).filter(|e| e.key == b"k");
        let got = table.get(b"k", base::hash(b"k"), seq).unwrap();
        assert_eq!(
            got.map(|(t, v)| (t, v.to_vec())),
            expected.map(|e| (e.trailer, e.value.clone())),
            "{seq}"
        );
    }
    // Each get reads one data block, because the bounds in the index include sequence numbers.
    let stats = table_stats(&table);
    assert_eq!(stats.0, 6010, "one data block per get");
    assert_eq!(table.verify(&mut |_| Ok(())).unwrap(), meta);
}

fn table_stats(table: &Arc<Table>) -> (u64, u64) {
    let stats = table.tables().cache().stats();
    (stats.data.hits + stats.data.misses, stats.index.hits + stats.index.misses)
}

#[test]
fn two_entries_of_one_commit_are_two_versions() {
    let (_, env) = sim();
    let mut entries =
        vec![entry(b"k", 5, b"v"), tombstone(b"k", 5), entry(b"k", 4, b"w"), tombstone(b"k", 4)];
    sort(&mut entries);
    let options = TableOptions { block_size: 64, ..TableOptions::default() };
    let meta = write(&env, 1, &options, &entries);
    let table = open(&env, &meta, 0);
    check_whole(&mut table.cursor(), &entries);
    assert_eq!(table.get(b"k", base::hash(b"k"), 4).unwrap().unwrap().1, "w");
    assert_eq!(table.verify(&mut |_| Ok(())).unwrap(), meta);
}

#[test]
fn the_longest_keys_and_values_fit() {
    let (_, env) = sim();
    let mut entries: Vec<Entry> = (0..9u8)
        .map(|i| {
            let mut key = vec![b'x'; base::limits::MAX_KEY_LEN];
            *key.last_mut().unwrap() = i;
            entry(&key, 1, &[i; 10])
        })
        .collect();
    entries.push(entry(b"large", 2, &vec![9; base::limits::MAX_VALUE_LEN]));
    entries.push(entry(b"", 3, b"empty key"));
    sort(&mut entries);
    let compressions = [table::Compression::None, table::Compression::Lz4];
    for (number, (format, compression)) in
        FORMATS.into_iter().flat_map(|format| compressions.map(|c| (format, c))).enumerate()
    {
        let options = TableOptions { format, compression, ..TableOptions::default() };
        let meta = write(&env, 1 + number as u64, &options, &entries);
        let table = open(&env, &meta, 1 << 20);
        for e in &entries {
            let (trailer, value) = table.get(&e.key, base::hash(&e.key), MAX_SEQ).unwrap().unwrap();
            assert!(trailer == e.trailer && value == e.value);
        }
        check_forward(&mut table.scan(), &entries);
        assert_eq!(table.verify(&mut |_| Ok(())).unwrap(), meta);
    }
}

#[test]
fn long_bounds_make_many_levels() {
    let (_, env) = sim();
    // Bounds between two keys that differ only in their last byte cannot be shortened, so few bounds fit into a node.
    let mut entries = Vec::new();
    for i in 0..400u32 {
        let mut key = format!("{:05}", i / 2).into_bytes();
        key.resize(3000, b'.');
        key.push(i as u8);
        entries.push(entry(&key, 1, &[1; 100]));
    }
    sort(&mut entries);
    let options = TableOptions { block_size: 64, ..TableOptions::default() };
    let meta = write(&env, 1, &options, &entries);
    // The index is larger than half of the cache, so its nodes are cached one by one.
    let table = open(&env, &meta, 1 << 20);
    let e = &entries[111];
    assert_eq!(table.get(&e.key, base::hash(&e.key), 1).unwrap().unwrap().1, e.value);
    let (_, index) = table_stats(&table);
    assert!(index >= 3, "one look-up per level below the root: {index}");
    check_whole(&mut table.cursor(), &entries);
    check_forward(&mut table.scan(), &entries);
    let rng = &mut Rng::new(5);
    check_walk(rng, &mut table.cursor(), &entries, Keys::Long, 200);
    assert_eq!(table.verify(&mut |_| Ok(())).unwrap(), meta);
}

#[test]
fn filters_pass_about_one_absent_key_in_a_hundred() {
    let (_, env) = sim();
    let entries: Vec<Entry> = (0..60_000u32).map(|i| entry(&(i * 2).to_be_bytes(), 1, b"v")).collect();
    let meta = write(&env, 1, &TableOptions::default(), &entries);
    let table = open(&env, &meta, 64 << 20);
    for i in 0..60_000u32 {
        let key = (i * 2 + 1).to_be_bytes();
        assert!(table.get(&key, base::hash(&key), MAX_SEQ).unwrap().is_none());
    }
    let stats = table.tables().stats();
    assert_eq!(
        (stats.filter_probes, stats.filter_negatives + stats.filter_false_positives),
        (60_000, 60_000)
    );
    assert!((100..750).contains(&stats.filter_false_positives), "{}", stats.filter_false_positives);
    let cache = table.tables().cache().stats();
    assert_eq!(
        cache.data.hits + cache.data.misses,
        stats.filter_false_positives,
        "no other block is looked at"
    );
}

#[test]
fn long_walks_read_ahead_and_short_ones_do_not() {
    let (_, env) = sim();
    let entries: Vec<Entry> = (0..20_000u32).map(|i| entry(&i.to_be_bytes(), 1, &[7; 100])).collect();
    let meta = write(&env, 1, &TableOptions::default(), &entries);
    for cache in [0, 64 << 20] {
        let table = open(&env, &meta, cache);
        let reads = || (table.tables().stats().reads, table.tables().stats().bytes_read);
        table.may_contain(0).unwrap();
        let before = reads();
        let mut cursor = table.cursor();
        cursor.seek(&entries[100].key, MAX_SEQ).unwrap();
        (0..5).for_each(|_| cursor.next().unwrap());
        let short = reads();
        assert!(short.0 - before.0 <= 3 && short.1 - before.1 < 24 << 10, "one block and its index node");
        check_forward(&mut table.scan(), &entries[..]);
        let (start, blocks) = (reads(), meta.file_size / 4096);
        cursor.seek_to_first().unwrap();
        for e in &entries {
            assert_eq!(cursor.key(), e.key);
            cursor.next().unwrap();
        }
        let end = reads();
        assert!(end.0 - start.0 < blocks / 8, "{} reads of {blocks} blocks", end.0 - start.0);
        assert!(end.1 - start.1 < meta.file_size * 11 / 10, "nothing is read twice");
        // The same backward, in a table of which nothing is cached.
        let table = open(&env, &meta, cache);
        let reads = || (table.tables().stats().reads, table.tables().stats().bytes_read);
        let mut cursor = table.cursor();
        cursor.seek_to_last().unwrap();
        let start = reads();
        for e in entries.iter().rev() {
            assert_eq!(cursor.key(), e.key);
            cursor.prev().unwrap();
        }
        let end = reads();
        assert!(end.0 - start.0 < blocks / 8, "{} reads of {blocks} blocks on the way back", end.0 - start.0);
        assert!(end.1 - start.1 < meta.file_size * 12 / 10, "hardly anything is read twice");
    }
}

#[test]
fn seeks_read_ahead_where_earlier_seeks_were_followed_by_steps() {
    let (sim, env) = sim();
    sim.set_cached_percent(100);
    let entries: Vec<Entry> = (0..20_000u32).map(|i| entry(&i.to_be_bytes(), 1, &[7; 100])).collect();
    // The cache has room for the index. No data block is read often enough to be cached.
    let table = open(&env, &write(&env, 1, &TableOptions::default(), &entries), 64 << 20);
    let mut rng = Rng::new(1);
    // Reads, and pages read, of a seek with `steps` steps.
    let mut scan = |steps: usize| {
        let before = table.tables().stats();
        let at = rng.below(19_000) as usize;
        let mut cursor = table.cursor();
        cursor.seek(&entries[at].key, MAX_SEQ).unwrap();
        for entry in &entries[at..at + steps] {
            assert_eq!(cursor.key(), entry.key);
            cursor.next().unwrap();
        }
        let after = table.tables().stats();
        (after.reads - before.reads, (after.bytes_read - before.bytes_read).div_ceil(4096))
    };
    // The first use loads the index.
    scan(0);
    assert_eq!(scan(0), (1, 1));
    // 40 entries lie in two or three blocks.
    (0..4).for_each(|_| assert_eq!(scan(40), (2, 3)));
    (0..10).for_each(|_| assert_eq!(scan(40), (1, 3)));
    // After enough seeks without steps, seeks do not read ahead.
    (0..5).for_each(|_| assert_eq!(scan(0), (1, 3)));
    (0..10).for_each(|_| assert_eq!(scan(0), (1, 1)));
    assert_eq!(scan(40), (2, 3));

    // A block that is not in the page cache is read alone.
    (0..8).for_each(|_| assert_eq!(scan(40).1, 3));
    assert_eq!(scan(0), (1, 3));
    sim.set_cached_percent(0);
    assert_eq!(scan(0), (1, 1));
}

#[test]
fn threads_share_a_table_and_a_cache_that_is_too_small() {
    let (_, env) = sim();
    let entries = random_entries(&mut Rng::new(3), Keys::Numbers, 4000);
    let meta = write(&env, 1, &TableOptions { block_size: 512, ..TableOptions::default() }, &entries);
    let table = open(&env, &meta, 50_000);
    std::thread::scope(|scope| {
        for seed in 0..4 {
            let (table, entries) = (&table, &entries);
            scope.spawn(move || {
                let rng = &mut Rng::new(seed);
                for _ in 0..5 {
                    check_gets(rng, table, entries, Keys::Numbers);
                    check_walk(rng, &mut table.cursor(), entries, Keys::Numbers, 50);
                    check_forward(&mut table.scan(), entries);
                }
            });
        }
    });
    assert!(table.tables().cache().used_bytes() <= 50_100);
}

#[test]
fn a_writer_refuses_what_is_out_of_order_or_too_long() {
    FORMATS.into_iter().for_each(refuses);
}

fn refuses(format: TableFormat) {
    let (_, env) = sim();
    let options = TableOptions { format, block_size: 64, ..TableOptions::default() };
    let create =
        |number| table::TableWriter::create(&env, std::path::Path::new(DIR), number, &options).unwrap();
    let put = |seq| Trailer::new(seq, base::EntryKind::Put);
    let mut writer = create(1);
    writer.add(b"b", put(5), &[0; 100]).unwrap();
    for (key, seq) in [(&b"a"[..], 9), (b"b", 5), (b"b", 6), (b"", 1)] {
        assert_eq!(writer.add(key, put(seq), b"").unwrap_err().kind(), base::ErrorKind::InvalidArgument);
    }
    assert!(writer.add(&vec![b'c'; base::limits::MAX_KEY_LEN + 1], put(1), b"").is_err());
    writer.add(b"b", put(4), b"").unwrap();
    let estimate = writer.estimated_size();
    let meta = writer.finish().unwrap();
    assert_eq!(meta.entries, 2);
    // The rows begin and end with a page.
    let pages = if format == TableFormat::SizeClass { 2 * 4096 } else { 0 };
    assert!((estimate / 2..estimate * 2 + pages).contains(&meta.file_size), "{estimate} {}", meta.file_size);
    assert_eq!(open(&env, &meta, 0).verify(&mut |_| Ok(())).unwrap(), meta);

    assert_eq!(create(2).finish().unwrap_err().kind(), base::ErrorKind::InvalidArgument);
    create(3).abandon().unwrap();
    assert!(!env.exists(&path(3)).unwrap());
}

#[test]
fn seeks_within_a_block_read_nothing() {
    let (_, env) = sim();
    let entries: Vec<Entry> = (0..2000u32).map(|i| entry(&i.to_be_bytes(), 1, &[7; 100])).collect();
    let meta = write(&env, 1, &TableOptions::default(), &entries);
    let table = open(&env, &meta, 64 << 20);
    let looks = || table.tables().cache().stats().data;
    let mut cursor = table.cursor();
    cursor.seek(&entries[1005].key, MAX_SEQ).unwrap();
    let before = looks();
    for i in [1006, 1004, 1005, 1003] {
        cursor.seek(&entries[i].key, MAX_SEQ).unwrap();
        assert_eq!(current(&cursor).as_ref(), Some(&entries[i]));
        cursor.seek_before(&entries[i].key).unwrap();
        assert_eq!(current(&cursor).as_ref(), Some(&entries[i - 1]));
    }
    assert_eq!(looks(), before);
    // After a seek inside the block, steps in both directions work, also if the cursor was invalid before.
    for end in [0, entries.len() - 1] {
        cursor.seek(&entries[end].key, MAX_SEQ).unwrap();
        if end == 0 {
            cursor.prev().unwrap()
        } else {
            cursor.next().unwrap()
        }
        assert!(!cursor.valid());
        let inner = if end == 0 { 2 } else { end - 2 };
        cursor.seek(&entries[inner].key, MAX_SEQ).unwrap();
        for step in 0..100 {
            let at = if end == 0 { inner + step } else { inner - step };
            assert_eq!(current(&cursor).as_ref(), Some(&entries[at]));
            if end == 0 { cursor.next().unwrap() } else { cursor.prev().unwrap() }
        }
    }
}
