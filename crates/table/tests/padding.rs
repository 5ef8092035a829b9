//! Padding: data blocks end at page boundaries, with zeros after them. The zeros are few, and padding and blocks are told apart.

use crate::common::*;
use base::checksum::{Place, checksum};
use base::{Cursor, ErrorKind, MAX_SEQ, hash};
use env::{Env, SimEnv};
use std::path::Path;
use std::sync::Arc;
use table::{Compression, SalvageCursor, TableMeta, TableOptions};

fn entries(count: u32, value_len: usize) -> Vec<Entry> {
    let value = |i: u32| -> Vec<u8> {
        // Every second byte is constant, so that the value compresses to about half.
        (0..value_len)
            .map(|at| if at % 2 == 0 { 7 } else { (i.wrapping_mul(at as u32 + 77) >> 3) as u8 })
            .collect()
    };
    (0..count).map(|i| entry(format!("{i:016}").as_bytes(), u64::from(i) + 1, &value(i))).collect()
}

fn table_of(entries: &[Entry], compression: Compression) -> (Arc<SimEnv>, Arc<dyn Env>, TableMeta, Vec<u8>) {
    let (sim, env) = sim();
    let meta = write(&env, 1, &TableOptions { compression, ..TableOptions::default() }, entries);
    let bytes = sim.read_file(path(1));
    (sim, env, meta, bytes)
}

/// Begin and end of runs of bytes.
type Runs = Vec<(usize, usize)>;

/// The data blocks, and the runs of zeros after them.
fn layout(bytes: &[u8]) -> (Runs, Runs) {
    let blocks: Vec<_> =
        frames(bytes, 1).iter().filter(|f| f.2 == 1).map(|(at, len, _)| (*at, at + len)).collect();
    let zeros = blocks.windows(2).map(|w| (w[0].1, w[1].0)).filter(|(from, to)| from < to).collect();
    (blocks, zeros)
}

#[test]
fn blocks_straddle_pages_where_entries_are_large_only_and_zeros_are_few() {
    for (count, value_len, straddling) in
        [(20_000, 10, 0.01), (4000, 128, 0.01), (3000, 400, 0.35), (2000, 1000, 0.6)]
    {
        let entries = entries(count, value_len);
        let (_, env, meta, bytes) = table_of(&entries, Compression::None);
        let (blocks, zeros) = layout(&bytes);
        let share = zeros.iter().map(|(from, to)| to - from).sum::<usize>() as f64 / bytes.len() as f64;
        let crossing = blocks.iter().filter(|(from, to)| from / 4096 != (to - 1) / 4096).count();
        let crossing = crossing as f64 / blocks.len() as f64;
        assert!(share < 0.045 && crossing <= straddling, "{value_len}: {share} zeros, {crossing} straddle");
        assert!(zeros.iter().all(|(from, to)| to % 4096 == 0 && to - from < 4096));
        let table = open(&env, &meta, 0);
        assert_eq!(table.verify(&mut |_| Ok(())).unwrap(), meta);
        for e in entries.iter().step_by(37) {
            assert_eq!(table.get(&e.key, hash(&e.key), MAX_SEQ).unwrap().unwrap().1, e.value);
        }
    }
}

#[test]
fn compressed_blocks_waste_no_more_and_straddle_less_than_by_chance() {
    let entries = entries(8000, 128);
    for &compression in &Compression::AVAILABLE[1..] {
        let (_, env, meta, bytes) = table_of(&entries, compression);
        let (blocks, zeros) = layout(&bytes);
        let share = zeros.iter().map(|(from, to)| to - from).sum::<usize>() as f64 / bytes.len() as f64;
        let crossing = blocks.iter().filter(|(from, to)| from / 4096 != (to - 1) / 4096).count();
        let by_chance = blocks.iter().map(|(from, to)| (to - from - 1) as f64 / 4096.0).sum::<f64>();
        assert!(share < 0.045 && (crossing as f64) < 0.8 * by_chance, "{share}, {crossing} of {by_chance}");
        assert_eq!(open(&env, &meta, 0).verify(&mut |_| Ok(())).unwrap(), meta);
    }
}

/// Walks over the table, and asserts that each entry is right. Returns whether the walk ended with an error.
fn walk(cursor: &mut impl Cursor, entries: &[Entry], back: bool) -> bool {
    let mut moved = if back { cursor.seek_to_last() } else { cursor.seek_to_first() };
    let mut seen = 0;
    loop {
        if let Err(error) = moved {
            assert_eq!(error.kind(), ErrorKind::Corruption);
            return true;
        }
        if !cursor.valid() {
            assert_eq!(seen, entries.len(), "entries are missing without an error");
            return false;
        }
        let expected = if back { &entries[entries.len() - 1 - seen] } else { &entries[seen] };
        assert_eq!(current(cursor).as_ref(), Some(expected));
        seen += 1;
        moved = if back { cursor.prev() } else { cursor.next() };
    }
}

#[test]
fn changed_padding_is_found_by_a_check_and_ignored_by_reads() {
    let entries = entries(200, 150);
    let (sim, env, meta, bytes) = table_of(&entries, Compression::None);
    let (_, zeros) = layout(&bytes);
    assert!(zeros.len() > 3);
    for at in zeros.iter().flat_map(|(from, to)| *from..*to) {
        sim.flip_bit(path(1), at as u64, 0);
        let table = open(&env, &meta, 0);
        let error = table.verify(&mut |_| Ok(())).unwrap_err();
        assert!(error.kind() == ErrorKind::Corruption && error.place().unwrap().1 <= at as u64, "{error}");
        sim.flip_bit(path(1), at as u64, 0);
    }
    sim.flip_bit(path(1), zeros[1].0 as u64, 0);
    let table = open(&env, &meta, 0);
    assert!(!walk(&mut table.scan(), &entries, false));
    assert!(!walk(&mut table.cursor(), &entries, false) && !walk(&mut table.cursor(), &entries, true));
}

#[test]
fn a_block_of_zeros_is_not_mistaken_for_padding() {
    let entries = entries(200, 150);
    for &compression in Compression::AVAILABLE {
        let (sim, env, meta, bytes) = table_of(&entries, compression);
        let (blocks, _) = layout(&bytes);
        let pages = (0..blocks.last().unwrap().1)
            .step_by(4096)
            .map(|at| (at, (at + 4096).min(blocks.last().unwrap().1)));
        for (from, to) in blocks.iter().copied().chain(pages) {
            let mut zeroed = bytes.clone();
            zeroed[from..to].fill(0);
            sim.write_file(path(1), zeroed);
            let table = open(&env, &meta, 0);
            assert!(walk(&mut table.scan(), &entries, false), "{from}..{to} is skipped by a scan");
            for back in [false, true] {
                assert!(walk(&mut table.cursor(), &entries, back), "{from}..{to} is skipped by a cursor");
            }
            assert!(table.verify(&mut |_| Ok(())).is_err());
        }
    }
}

#[test]
fn salvage_continues_after_padding() {
    let entries = entries(200, 150);
    for &compression in Compression::AVAILABLE {
        let (sim, env, _, bytes) = table_of(&entries, compression);
        let survey = || SalvageCursor::open(&env, Path::new(DIR), 1, 0).unwrap().survey().unwrap();
        assert_eq!((survey().entries, survey().gaps.len(), survey().other_damage), (200, 0, false));
        let (blocks, _) = layout(&bytes);
        for (i, (from, to)) in blocks.iter().enumerate() {
            sim.flip_bit(path(1), (from + to) as u64 / 2, 2);
            let found = survey();
            let lost = 200 - found.entries;
            assert!(
                found.gaps.len() == 1 && (1..200 / blocks.len() as u64 * 3).contains(&lost),
                "block {i}: {found:?}"
            );
            sim.flip_bit(path(1), (from + to) as u64 / 2, 2);
        }
    }
}

/// Changes the version in the footer.
fn set_version(bytes: &mut [u8], version: u32) {
    let footer = bytes.len() - 80;
    let at = bytes.len() - 16;
    bytes[at..at + 4].copy_from_slice(&version.to_le_bytes());
    let sum = checksum(Place { file: 1, offset: footer as u64, kind: 6 }, &bytes[at..at + 4]);
    bytes[at + 4..at + 8].copy_from_slice(&sum.to_le_bytes());
}

#[test]
fn the_first_version_is_read_and_has_no_padding() {
    let few = entries(20, 100);
    let many = entries(200, 150);
    for (entries, sound) in [(few, true), (many, false)] {
        let (sim, env, meta, mut bytes) = table_of(&entries, Compression::None);
        assert_eq!(layout(&bytes).1.is_empty(), sound);
        set_version(&mut bytes, 1);
        sim.write_file(path(1), bytes.clone());
        let table = open(&env, &meta, 0);
        assert_eq!(
            table.verify(&mut |_| Ok(())).is_ok(),
            sound,
            "no table of that version has zeros between blocks"
        );
        assert!(!walk(&mut table.scan(), &entries, false) && !walk(&mut table.cursor(), &entries, true));
        for version in [0, 2, 6] {
            set_version(&mut bytes, version);
            sim.write_file(path(1), bytes.clone());
            let error = open(&env, &meta, 0).meta().unwrap_err();
            assert!(
                error.kind() == ErrorKind::Unsupported
                    && error.to_string().contains(&format!("version {version}"))
            );
        }
    }
}
