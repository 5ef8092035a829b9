//! Whole tables: arbitrary bytes, and valid tables that were damaged.

use crate::Source;
use base::limits::MAX_KEY_LEN;
use base::{Cursor, EntryKind, Error, ErrorKind, MAX_SEQ, Slice, Time, Trailer, compare, hash};
use env::{Env, SimEnv};
use std::cmp::{Ordering, Reverse};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use table::{
    BlockCache, Compression, Table, TableCache, TableFormat, TableMeta, TableOptions, TableWriter,
    TimesWanted, Wanted,
};

pub(crate) const NUMBER: u64 = 1;
const PATH: &str = "/000001.tbl";

/// Maximum number of steps of a cursor in a hostile table, whose index may contain loops.
const STEPS: usize = 2000;

/// Key, trailer and value.
pub(crate) type Entry = (Vec<u8>, Trailer, Vec<u8>);

fn open(bytes: &[u8], file_size: u64, cache: u64) -> Result<Arc<Table>, Error> {
    let sim = SimEnv::new(1);
    sim.write_file(PATH, bytes);
    let cache = Arc::new(BlockCache::new(cache));
    TableCache::new(sim, "/".into(), cache, 16).open(&TableMeta::empty(NUMBER, file_size))
}

/// An error of a table names its file; corruption also names an offset.
fn check_error(error: &Error) {
    match error.kind() {
        ErrorKind::Corruption => {
            assert!(error.place().is_some_and(|(path, _)| path == Path::new(PATH)), "{error}");
        }
        ErrorKind::Unsupported => assert!(error.to_string().contains(PATH), "{error}"),
        _ => panic!("an unexpected error: {error:?}"),
    }
}

/// The entries that a cursor visits, forward or back, and the error that ended the walk.
fn walk(cursor: &mut impl Cursor, back: bool) -> (Vec<Entry>, Option<Error>) {
    let mut entries = Vec::new();
    let mut moved = if back { cursor.seek_to_last() } else { cursor.seek_to_first() };
    loop {
        if let Err(error) = moved {
            check_error(&error);
            assert!(!cursor.valid(), "a cursor that failed stands nowhere");
            let again = if back { cursor.prev() } else { cursor.next() };
            assert!(again.is_err(), "an error is not an end");
            return (entries, Some(error));
        }
        if !cursor.valid() || entries.len() == STEPS {
            return (entries, None);
        }
        assert!(cursor.key().len() <= MAX_KEY_LEN);
        assert_eq!(&cursor.value_slice()[..], cursor.value());
        entries.push((cursor.key().to_vec(), cursor.trailer(), cursor.value().to_vec()));
        moved = if back { cursor.prev() } else { cursor.next() };
    }
}

/// Arbitrary bytes as a table. With flag 1, its checksums are made right first.
///
/// If [`Table::verify`] accepts the table, all reads must agree. Otherwise reads may return anything, but must not
/// hang or panic.
pub(crate) fn hostile(data: &[u8]) -> bool {
    let mut source = Source::new(data);
    let flags = source.u8();
    let probe = source.bytes();
    let mut bytes = source.rest().to_vec();
    if flags & 1 != 0 {
        table::fuzzing::fix_table(&mut bytes, NUMBER);
    }
    let cache = if flags & 2 != 0 { 1 << 16 } else { 0 };
    let table = match open(&bytes, bytes.len() as u64, cache) {
        Ok(table) => table,
        Err(error) => {
            check_error(&error);
            return false;
        }
    };
    let mut step = |done| {
        assert!(done <= bytes.len() as u64);
        Ok(())
    };
    let verified = table.verify(&mut step).inspect_err(check_error);
    let (forward, _) = walk(&mut table.cursor(), false);
    let (mut backward, _) = walk(&mut table.cursor(), true);
    let (scanned, _) = walk(&mut table.scan(), false);
    let times = times_wanted(flags);
    let wanted = Wanted { times, ..Wanted::default() };
    let (some, _) = walk(&mut table.cursor_for(Some(wanted.clone())), false);
    let (some_back, _) = walk(&mut table.cursor_for(Some(wanted.clone())), true);
    let before = Wanted { to: Some(Slice::copy_from(probe)), ..wanted.clone() };
    let after = Wanted { from: Slice::copy_from(probe), ..wanted };
    let (before, _) = walk(&mut table.cursor_for(Some(before)), false);
    let (after, _) = walk(&mut table.cursor_for(Some(after)), true);
    for seq in [MAX_SEQ, 0, u64::from(flags)] {
        let _ = table.get(probe, hash(probe), seq).inspect_err(check_error);
        let _ = table.cursor().seek(probe, seq).inspect_err(check_error);
    }
    let _ = table.cursor().seek_before(probe).inspect_err(check_error);
    let _ = table.meta().inspect_err(check_error);
    let Ok(meta) = verified else { return false };
    if meta.entries as usize <= STEPS {
        backward.reverse();
        assert!(forward.len() == meta.entries as usize && forward == backward && forward == scanned);
        assert!(some.iter().eq(some_back.iter().rev()));
        let is_before = |entry: &&Entry| entry.0[..] < *probe;
        let is_after = |entry: &&Entry| entry.0[..] >= *probe;
        assert!(some.iter().filter(is_before).eq(before.iter().filter(is_before)));
        assert!(some_back.iter().filter(is_after).eq(after.iter().filter(is_after)));
        let mut all = forward.iter();
        assert!(some.iter().all(|entry| all.any(|e| e == entry)), "a walk shows no other entries");
        check_sound(&table, &meta, &forward, probe);
    }
    true
}

/// A valid table finds each of its entries, and the neighbours of `probe`.
fn check_sound(table: &Arc<Table>, meta: &TableMeta, entries: &[Entry], probe: &[u8]) {
    let ordered = entries.windows(2).all(|w| compare(&w[0].0, w[0].1, &w[1].0, w[1].1) == Ordering::Less);
    assert!(ordered && meta.smallest == entries[0].0 && Some(&meta.largest) == entries.last().map(|e| &e.0));
    for (key, trailer, value) in entries.iter().step_by(entries.len().div_ceil(64)) {
        let found = table.get(key, hash(key), trailer.seq()).expect("the table is sound");
        // Of two entries with the same sequence number, the one with the larger kind comes first.
        let first = entries.iter().find(|e| e.0 == *key && e.1.seq() == trailer.seq());
        let (_, trailer, value) = first.unwrap_or(&(Vec::new(), *trailer, value.clone())).clone();
        assert_eq!(found.map(|(t, v)| (t, v.to_vec())), Some((trailer, value)));
    }
    let mut cursor = table.cursor();
    let at = entries.partition_point(|e| e.0.as_slice() < probe);
    let stands = |cursor: &dyn Cursor| cursor.valid().then(|| (cursor.key().to_vec(), cursor.trailer()));
    let entry = |i: Option<usize>| i.and_then(|i| entries.get(i)).map(|e| (e.0.clone(), e.1));
    cursor.seek(probe, MAX_SEQ).expect("the table is sound");
    assert!(stands(&cursor) == entry(Some(at)));
    cursor.seek_before(probe).expect("the table is sound");
    assert!(stands(&cursor) == entry(at.checked_sub(1)));
}

/// Sorted entries from an input: keys share prefixes, and some have several versions.
pub(crate) fn entries(source: &mut Source<'_>, most: usize) -> Vec<Entry> {
    let mut map = BTreeMap::new();
    let mut key = Vec::new();
    while !source.is_empty() && map.len() < most {
        let shape = source.u8();
        key.truncate(usize::from(shape & 15).min(key.len()));
        key.extend_from_slice(source.take(usize::from(shape >> 4)));
        let seq = u64::from(source.u16()) + 1;
        let kind = if seq % 5 == 0 { EntryKind::Delete } else { EntryKind::Put };
        let value = match (kind, source.u8()) {
            (EntryKind::Delete, _) => Vec::new(),
            // A few long values that fill blocks, of repeated bytes.
            (_, long @ 250..) => {
                source.take(4).iter().copied().cycle().take(usize::from(long) * 20).collect()
            }
            (_, len) => source.take(usize::from(len % 32)).to_vec(),
        };
        map.insert((key.clone(), Reverse(seq)), (Trailer::new(seq, kind), value));
    }
    map.into_iter().map(|((key, _), (trailer, value))| (key, trailer, value)).collect()
}

/// Times of entries: their sequence numbers, and as much later as their values have bytes.
fn times_of(trailer: Trailer, value: &[u8]) -> (Time, Time) {
    let ends = if value.len() % 7 == 6 { u64::MAX } else { trailer.seq() + value.len() as u64 };
    (Time::from_micros(trailer.seq()), Time::from_micros(ends))
}

fn times_wanted(flags: u8) -> TimesWanted {
    let time = |flag: u8| (flags & flag != 0).then(|| Time::from_micros(u64::from(flags) << 8));
    TimesWanted { since: time(16), until: time(32) }
}

/// Writes a table of `entries`, with times or not, and returns its bytes.
pub(crate) fn write(entries: &[Entry], options: &TableOptions, timed: bool) -> (Vec<u8>, TableMeta) {
    let sim = SimEnv::new(1);
    let env: Arc<dyn Env> = sim.clone();
    let mut writer = TableWriter::create(&env, Path::new("/"), NUMBER, options).expect("the disk works");
    for (key, trailer, value) in entries {
        let times = timed.then(|| times_of(*trailer, value));
        let hash = options.filter_hash(key);
        writer.add_timed(key, hash, *trailer, value, times).expect("entries come in order");
    }
    let meta = writer.finish().expect("there is an entry");
    (sim.read_file(PATH), meta)
}

/// Writes entries to a table and reads them back, then damages the file and reads again.
pub(crate) fn written(data: &[u8]) -> bool {
    let mut source = Source::new(data);
    let options = TableOptions {
        block_size: source.pick(&[64, 128, 512, 4096]),
        compression: source.pick(&[Compression::None, Compression::Lz4, Compression::Zstd]),
        filter_bits_per_key: source.pick(&[0, 1, 10, 32]),
        ..TableOptions::default()
    };
    let (how, at, probe) = (source.u8(), source.u16(), source.bytes());
    let format = if how & 4 == 0 { TableFormat::BTree } else { TableFormat::SizeClass };
    let options = TableOptions { format, ..options };
    let entries = entries(&mut source, 512);
    if entries.is_empty() {
        return false;
    }
    let (mut bytes, meta) = write(&entries, &options, how & 8 != 0);
    let table = open(&bytes, meta.file_size, 1 << 16).expect("the table was written");
    assert_eq!(table.verify(&mut |_| Ok(())).expect("the table was written"), meta);
    assert_eq!(table.meta().expect("the table was written"), meta);
    assert_eq!(walk(&mut table.cursor(), false).0, entries);
    check_sound(&table, &meta, &entries, probe);
    let times = times_wanted(how);
    let wanted = Wanted { times, ..Wanted::default() };
    let (found, _) = walk(&mut table.cursor_for(Some(wanted)), false);
    let is_wanted = |(_, trailer, value): &&Entry| {
        let (begun, ended) = times_of(*trailer, value);
        times.since.is_none_or(|since| ended >= since) && times.until.is_none_or(|until| begun <= until)
    };
    assert!(found.iter().filter(is_wanted).eq(entries.iter().filter(is_wanted)));

    let at = usize::from(at) * 11 % bytes.len();
    match how % 4 {
        0 => bytes.truncate(at),
        1 => bytes.extend_from_slice(&data[..data.len().min(1 + at)]),
        2 => bytes[at..].fill(0),
        _ => bytes[at] ^= 1 << (how >> 5),
    }
    check_damaged(&bytes, &meta, &entries, how % 4 != 2);
    true
}

/// Reads of a damaged table return the right answer or an error.
fn check_damaged(bytes: &[u8], meta: &TableMeta, entries: &[Entry], changed: bool) {
    let Ok(table) = open(bytes, meta.file_size, 0).inspect_err(check_error) else { return };
    let verified = table.verify(&mut |_| Ok(())).inspect_err(check_error);
    assert!(
        verified.is_err() || !changed && verified.is_ok_and(|found| found == *meta),
        "damage is not seen"
    );
    for (key, trailer, value) in entries.iter().step_by(entries.len().div_ceil(32)) {
        match table.get(key, hash(key), trailer.seq()) {
            Ok(found) => assert_eq!(found.map(|(t, v)| (t, v.to_vec())), Some((*trailer, value.clone()))),
            Err(error) => check_error(&error),
        }
    }
    let forward =
        [walk(&mut table.cursor(), false), walk(&mut table.scan(), false)].map(|walk| (walk, false));
    let back = [(walk(&mut table.cursor(), true), true)];
    for ((found, error), back) in forward.into_iter().chain(back) {
        let right: Vec<&Entry> = if back { entries.iter().rev().collect() } else { entries.iter().collect() };
        assert!(found.iter().eq(right[..found.len()].iter().copied()), "a wrong entry of a damaged table");
        assert!(error.is_some() || found.len() == entries.len(), "entries are missing without an error");
    }
}
