//! Damaged tables: every answer is right or an error; never wrong in silence, and never a panic.

use crate::common::*;
use base::{Cursor, ErrorKind, MAX_SEQ, Result};
use env::{Env, SimEnv};
use std::sync::Arc;
use table::{Compression, Table, TableFormat, TableMeta, TableOptions};

/// A table of a few KB with several levels of index, a filter, tombstones and old versions.
fn small() -> Vec<Entry> {
    let mut entries = Vec::new();
    for i in 0..60u64 {
        let key = format!("key{:03}", i * 3);
        entries.push(entry(key.as_bytes(), 100 + i, format!("value {i}").repeat(3).as_bytes()));
        if i % 4 == 0 {
            entries.push(tombstone(key.as_bytes(), 50));
            entries.push(entry(key.as_bytes(), 20, b"old"));
        }
    }
    sort(&mut entries);
    entries
}

fn options(format: TableFormat, compression: Compression) -> TableOptions {
    TableOptions { format, block_size: 256, compression, filter_bits_per_key: 10, ..TableOptions::default() }
}

/// Walks over the table. Asserts that every entry before an error is right; returns the error.
fn walk(cursor: &mut impl Cursor, entries: &[Entry], backward: bool) -> Result<()> {
    let moved = if backward { cursor.seek_to_last() } else { cursor.seek_to_first() };
    let mut seen = 0;
    let mut check = |cursor: &dyn Fn() -> Option<Entry>| {
        let expected = if backward { entries.len().checked_sub(seen + 1) } else { Some(seen) };
        assert_eq!(cursor().as_ref(), expected.and_then(|i| entries.get(i)));
        seen += 1;
    };
    moved?;
    loop {
        check(&|| current(cursor));
        if !cursor.valid() {
            return Ok(());
        }
        let step = if backward { cursor.prev() } else { cursor.next() };
        if step.is_err() {
            assert!(!cursor.valid());
            let again = if backward { cursor.prev() } else { cursor.next() };
            assert!(again.is_err(), "an error stays an error");
            return step;
        }
    }
}

/// Calls every read function. Returns the number of errors; panics on a wrong answer.
fn read_all(env: &Arc<dyn Env>, meta: &TableMeta, entries: &[Entry]) -> usize {
    let Ok(table) = tables(env, 1 << 20).open(meta) else { return 1 };
    let mut errors = 0;
    let mut note = |result: Result<()>| {
        if let Err(error) = result {
            assert!(matches!(error.kind(), ErrorKind::Corruption | ErrorKind::Unsupported), "{error:?}");
            let name = table::table_file_name(meta.number);
            assert!(error.to_string().contains(&name), "{error}");
            errors += 1;
        }
    };
    for e in entries.iter().step_by(5) {
        note(table.get(&e.key, base::hash(&e.key), e.trailer.seq()).map(|got| {
            let (trailer, value) = got.expect("present");
            assert!(trailer == e.trailer && value == e.value);
        }));
        let absent = [&e.key[..], b"x"].concat();
        note(table.get(&absent, base::hash(&absent), MAX_SEQ).map(|got| assert!(got.is_none())));
    }
    note(walk(&mut table.cursor(), entries, false));
    note(walk(&mut table.cursor(), entries, true));
    note(walk(&mut table.scan(), entries, false));
    note(table.meta().map(|got| assert_eq!(&got, meta)));
    // A check of the whole table finds any damage.
    note(table.verify(&mut |_| Ok(())).map(|got| assert_eq!(&got, meta)));
    errors
}

fn fixture(
    format: TableFormat,
    compression: Compression,
) -> (Arc<SimEnv>, Arc<dyn Env>, TableMeta, Vec<Entry>) {
    let (sim, env) = sim();
    let entries = small();
    let meta = write(&env, 9, &options(format, compression), &entries);
    assert_eq!(read_all(&env, &meta, &entries), 0);
    (sim, env, meta, entries)
}

#[test]
fn every_flipped_bit_is_seen() {
    let rows = (TableFormat::SizeClass, Compression::Lz4);
    let btree = Compression::AVAILABLE.iter().map(|c| (TableFormat::BTree, *c));
    for (format, compression) in btree.chain([rows]) {
        let (sim, env, meta, entries) = fixture(format, compression);
        println!("{format} {compression}: {} bytes", meta.file_size);
        for offset in 0..meta.file_size {
            for bit in 0..8 {
                sim.flip_bit(path(9), offset, bit);
                assert!(read_all(&env, &meta, &entries) > 0, "offset {offset} bit {bit}");
                sim.flip_bit(path(9), offset, bit);
            }
        }
        assert_eq!(read_all(&env, &meta, &entries), 0);
    }
}

#[test]
fn every_truncation_and_extension_is_seen() {
    FORMATS.into_iter().for_each(truncate_and_extend);
}

fn truncate_and_extend(format: TableFormat) {
    let (sim, env, meta, entries) = fixture(format, Compression::None);
    let whole = sim.read_file(path(9));
    for len in 0..whole.len() {
        sim.write_file(path(9), &whole[..len]);
        assert!(read_all(&env, &meta, &entries) > 0, "truncated to {len}");
        // The same for a reader that expects the new length.
        let told = TableMeta { file_size: len as u64, ..meta.clone() };
        assert!(read_all(&env, &told, &entries) > 0, "truncated to {len}, and told so");
    }
    for extra in [1, 80, 4096] {
        let mut longer = whole.clone();
        longer.resize(whole.len() + extra, 0);
        sim.write_file(path(9), longer);
        assert!(read_all(&env, &meta, &entries) > 0);
        let told = TableMeta { file_size: meta.file_size + extra as u64, ..meta.clone() };
        assert!(read_all(&env, &told, &entries) > 0);
    }
}

#[test]
fn zeroed_runs_are_seen() {
    FORMATS.into_iter().for_each(zero_runs);
}

fn zero_runs(format: TableFormat) {
    let (sim, env, meta, entries) = fixture(format, Compression::None);
    let whole = sim.read_file(path(9));
    for len in [16, 80, 512] {
        for start in (0..whole.len() - len).step_by(13) {
            let mut zeroed = whole.clone();
            zeroed[start..start + len].fill(0);
            if zeroed == whole {
                continue; // Padding.
            }
            sim.write_file(path(9), zeroed);
            assert!(read_all(&env, &meta, &entries) > 0, "{len} bytes from {start} zeroed");
        }
    }
}

#[test]
fn blocks_of_another_place_or_file_are_refused() {
    let (sim, env) = sim();
    // Blocks of equal length, so that any two can be swapped.
    let entries: Vec<Entry> = (0..200u32).map(|i| entry(&i.to_be_bytes(), 1, &[7; 40])).collect();
    let meta = write(&env, 9, &options(TableFormat::BTree, Compression::None), &entries);
    let whole = sim.read_file(path(9));
    let len = 9 + u32::from_le_bytes(whole[4..8].try_into().unwrap()) as usize;
    assert_eq!(whole[4..8], whole[len + 4..len + 8], "the fixture has blocks of one length");
    let mut swapped = whole.clone();
    swapped[..len].copy_from_slice(&whole[len..2 * len]);
    swapped[len..2 * len].copy_from_slice(&whole[..len]);
    sim.write_file(path(9), swapped);
    assert!(read_all(&env, &meta, &entries) > 0);

    // The same table under another number.
    sim.write_file(path(10), whole.clone());
    let other = TableMeta { number: 10, ..meta.clone() };
    let error = open(&env, &other, 0).meta().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corruption);

    // The beginning of another table is written over this one.
    let newer: Vec<Entry> = entries.iter().map(|e| entry(&e.key, 2, &[8; 40])).collect();
    let newer_meta = write(&env, 11, &options(TableFormat::BTree, Compression::None), &newer);
    assert_eq!(newer_meta.file_size, meta.file_size);
    let mut mixed = whole.clone();
    mixed[..2 * len].copy_from_slice(&sim.read_file(path(11))[..2 * len]);
    sim.write_file(path(9), mixed);
    assert!(read_all(&env, &meta, &entries) > 0);

    sim.write_file(path(9), whole);
    assert_eq!(read_all(&env, &meta, &entries), 0);
}

#[test]
fn a_missing_file_is_an_error_on_first_use_and_forgetting_is_harmless() {
    let (sim, env, meta, entries) = fixture(TableFormat::BTree, Compression::None);
    let tables = tables(&env, 0);
    let table: Arc<Table> = tables.open(&meta).unwrap();
    assert_eq!(tables.stats().reads, 0, "opening does no I/O");
    table.meta().unwrap();
    assert_eq!(sim.open_files().0, 1);
    tables.forget(meta.number);
    assert_eq!(sim.open_files().0, 0);
    assert!(table.get(&entries[0].key, base::hash(&entries[0].key), MAX_SEQ).unwrap().is_some());
    env.remove(&path(9)).unwrap();
    tables.forget(meta.number);
    assert_eq!(table.meta().unwrap_err().kind(), ErrorKind::Corruption, "a manifest named it");
}
