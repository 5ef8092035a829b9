//! Shared by the tests: tables on a simulated disk, and the sorted list of entries as a model.
#![allow(dead_code, unreachable_pub, missing_docs)]

use base::checksum::{Place, checksum};
use base::{Cursor, EntryKind, Seq, Trailer};
use env::{Env, Rng, SimEnv};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use table::{
    BlockCache, Compression, Table, TableCache, TableFormat, TableMeta, TableOptions, TableWriter,
    table_file_name,
};

pub const DIR: &str = "/db";

/// One entry of the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub key: Vec<u8>,
    pub trailer: Trailer,
    pub value: Vec<u8>,
}

pub fn entry(key: &[u8], seq: Seq, value: &[u8]) -> Entry {
    Entry { key: key.to_vec(), trailer: Trailer::new(seq, EntryKind::Put), value: value.to_vec() }
}

pub fn tombstone(key: &[u8], seq: Seq) -> Entry {
    Entry { key: key.to_vec(), trailer: Trailer::new(seq, EntryKind::Delete), value: Vec::new() }
}

pub fn sort(entries: &mut Vec<Entry>) {
    entries.sort_by(|a, b| base::compare(&a.key, a.trailer, &b.key, b.trailer));
    entries.dedup_by(|a, b| a.key == b.key && a.trailer == b.trailer);
}

pub fn sim() -> (Arc<SimEnv>, Arc<dyn Env>) {
    let sim = SimEnv::new(1);
    let env: Arc<dyn Env> = sim.clone();
    env.create_dir(Path::new(DIR)).unwrap();
    (sim, env)
}

pub fn path(number: u64) -> PathBuf {
    Path::new(DIR).join(table_file_name(number))
}

pub fn write(env: &Arc<dyn Env>, number: u64, options: &TableOptions, entries: &[Entry]) -> TableMeta {
    let mut writer = TableWriter::create(env, Path::new(DIR), number, options).unwrap();
    for e in entries {
        writer.add(&e.key, e.trailer, &e.value).unwrap();
    }
    writer.finish().unwrap()
}

pub fn tables(env: &Arc<dyn Env>, cache_bytes: u64) -> Arc<TableCache> {
    TableCache::new(Arc::clone(env), DIR.into(), Arc::new(BlockCache::new(cache_bytes)), 10)
}

pub fn open(env: &Arc<dyn Env>, meta: &TableMeta, cache_bytes: u64) -> Arc<Table> {
    tables(env, cache_bytes).open(meta).unwrap()
}

/// The metadata of a table with these entries.
pub fn meta_of(number: u64, file_size: u64, entries: &[Entry]) -> TableMeta {
    TableMeta {
        number,
        file_size,
        entries: entries.len() as u64,
        tombstones: entries.iter().filter(|e| e.trailer.is_delete()).count() as u64,
        smallest: entries[0].key.clone(),
        largest: entries[entries.len() - 1].key.clone(),
        min_seq: entries.iter().map(|e| e.trailer.seq()).min().unwrap(),
        max_seq: entries.iter().map(|e| e.trailer.seq()).max().unwrap(),
        seq_shift: 0,
        user_bytes: entries.iter().map(|e| (e.key.len() + e.value.len()) as u64).sum(),
        cleared_seq: 0,
        shadowed: entries.windows(2).filter(|pair| pair[0].key == pair[1].key).count() as u64,
        times: None,
        expiry: None,
        segments: Vec::new(),
    }
}

pub fn current(cursor: &impl Cursor) -> Option<Entry> {
    cursor.valid().then(|| Entry {
        key: cursor.key().to_vec(),
        trailer: cursor.trailer(),
        value: cursor.value().to_vec(),
    })
}

/// The index of the entry at which a seek must stop.
pub fn lower_bound(entries: &[Entry], key: &[u8], trailer: Trailer) -> usize {
    entries.partition_point(|e| base::compare(&e.key, e.trailer, key, trailer).is_lt())
}

pub const FORMATS: [TableFormat; 2] = [TableFormat::BTree, TableFormat::SizeClass];

/// The formats, each with every compression.
pub fn formats_and_compressions() -> impl Iterator<Item = (TableFormat, Compression)> {
    FORMATS.into_iter().flat_map(|format| Compression::AVAILABLE.iter().map(move |c| (format, *c)))
}

/// The shape of the keys of a random table.
#[derive(Clone, Copy, Debug)]
pub enum Keys {
    /// Short, of few letters: many are prefixes of others, and one is empty.
    Short,
    /// Sixteen bytes with a long common prefix.
    Numbers,
    /// Eight or more equal bytes, and a short suffix that differs.
    DeepDifference,
    /// Zeros and high bytes, of all lengths.
    Zeros,
    /// Short, or thousands of bytes long.
    Long,
}

pub const SHAPES: [Keys; 5] = [Keys::Short, Keys::Numbers, Keys::DeepDifference, Keys::Zeros, Keys::Long];

pub fn random_key(rng: &mut Rng, keys: Keys) -> Vec<u8> {
    let letters = |rng: &mut Rng, len: u64, alphabet: &[u8]| -> Vec<u8> {
        (0..len).map(|_| alphabet[rng.below(alphabet.len() as u64) as usize]).collect()
    };
    match keys {
        Keys::Short => {
            let len = rng.below(5);
            letters(rng, len, b"abc")
        }
        Keys::Numbers => format!("user{:012}", rng.below(2000)).into_bytes(),
        Keys::DeepDifference => {
            let mut key = b"samesame".repeat(1 + rng.below(2) as usize);
            let len = rng.below(12);
            key.extend(letters(rng, len, b"xyz"));
            key
        }
        Keys::Zeros => {
            let len = rng.below(14);
            letters(rng, len, b"\0\xff")
        }
        Keys::Long => {
            let len = if rng.chance(1, 8) { rng.below(9000) } else { rng.below(40) };
            letters(rng, len, b"k")
        }
    }
}

/// At least `count` entries before duplicates are removed, sorted; many keys have several versions.
pub fn random_entries(rng: &mut Rng, keys: Keys, count: u64) -> Vec<Entry> {
    let mut entries = Vec::new();
    let max_value = [0, 10, 100, 1000][rng.below(4) as usize];
    while (entries.len() as u64) < count {
        let key = random_key(rng, keys);
        let versions = if rng.chance(1, 20) { 1 + rng.below(100) } else { 1 + rng.below(2) };
        for _ in 0..versions {
            let seq = 1 + rng.below(1000);
            if rng.chance(1, 5) {
                entries.push(tombstone(&key, seq));
                continue;
            }
            let big = if rng.chance(1, 200) { 100_000 } else { max_value };
            let mut value = vec![rng.below(256) as u8; rng.below(big + 1) as usize];
            let noise = rng.below(value.len() as u64 + 1) as usize;
            rng.fill(&mut value[..noise]);
            entries.push(entry(&key, seq, &value));
        }
    }
    sort(&mut entries);
    entries
}

/// The frames of the blocks of a table: offset, length and kind. The kind is the one for which the checksum is right.
pub fn frames(bytes: &[u8], file: u64) -> Vec<(usize, usize, u8)> {
    let mut frames = Vec::new();
    let mut at = 0;
    while at < bytes.len() - 80 {
        if bytes[at + 4..at + 8] == [0; 4] {
            // Zeros before the first page of rows.
            at = at.next_multiple_of(4096);
        }
        let len = 9 + u32::from_le_bytes(bytes[at + 4..at + 8].try_into().unwrap()) as usize;
        let place = |kind| Place { file, offset: at as u64, kind };
        let sum = u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
        let is = |kind: &u8| checksum(place(*kind), &bytes[at + 4..at + len]) == sum;
        let kind = [1, 2, 3, 4, 7, 8, 9].into_iter().find(is).unwrap();
        frames.push((at, len, kind));
        at += len;
        // The padding up to the next page follows.
        if [1, 7].contains(&kind) && bytes[at - len + 8] & 0x80 != 0 {
            at = at.next_multiple_of(4096);
        }
    }
    frames
}
