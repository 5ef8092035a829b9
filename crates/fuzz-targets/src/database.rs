//! Databases from untrusted files: logs with arbitrary records, and damaged files.

use crate::Source;
use base::codec::{Reader, put_varint};
use base::limits::{MAX_KEY_LEN, MAX_VALUE_LEN};
use base::{Error, ErrorKind, MAX_SEQ};
use cairn::{Compression, Database, Durability, Keyspace, KeyspaceOptions, Options, Preset, check_in};
use env::{Env, SimEnv};
use record::{SegmentKind, SegmentWriter};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

const DIR: &str = "/db";

/// Files with their paths.
pub(crate) type Files = Vec<(PathBuf, Vec<u8>)>;

pub(crate) type Map = BTreeMap<Vec<u8>, Vec<u8>>;

pub(crate) fn options() -> Options {
    Options::default().background_threads(0).memory_budget(1 << 20).log_cap(64 << 10).manifest_cap(1 << 10)
}

/// Options with which a few dozen writes fill memtables, tables and guards.
pub(crate) fn small() -> KeyspaceOptions {
    KeyspaceOptions::default()
        .memtable_bytes(4 << 10)
        .block_size(128)
        .level0_tables(2)
        .levels(3)
        .max_tables_per_guard(2)
        .top_level_bits(3)
        .bit_decrement(1)
        .compression(Compression::None)
}

/// Options of a keyspace without order.
fn hashed() -> KeyspaceOptions {
    KeyspaceOptions::preset(Preset::HashLog).memtable_bytes(4 << 10)
}

fn open(sim: &Arc<SimEnv>) -> Result<Database, Error> {
    Database::open_in(sim.clone(), DIR, options())
}

fn disk(files: &[(PathBuf, Vec<u8>)]) -> Arc<SimEnv> {
    let sim = SimEnv::new(1);
    sim.create_dir(Path::new(DIR)).expect("the disk works");
    for (path, bytes) in files {
        sim.write_file(path, &bytes[..]);
    }
    sim
}

fn files(sim: &SimEnv) -> Files {
    sim.list_files().into_iter().map(|path| (path.clone(), sim.read_file(&path))).collect()
}

/// All entries of a keyspace, with or without order.
pub(crate) fn contents(keyspace: &Keyspace) -> Result<Map, Error> {
    keyspace.entries().map(|entry| entry.map(|(key, value)| (key.to_vec(), value.to_vec()))).collect()
}

/// Runs the check, which must not create or remove files. Returns whether it found no problem.
fn check(sim: &Arc<SimEnv>) -> Result<bool, Error> {
    let before = sim.list_files();
    let report = check_in(sim.clone(), DIR, &mut |_| {});
    assert_eq!(sim.list_files(), before);
    Ok(report?.problems.is_empty())
}

/// The error for a damaged database must have the right kind and name a file.
fn check_error(error: &Error) {
    let said = matches!(error.kind(), ErrorKind::Corruption | ErrorKind::Unsupported);
    let text = error.to_string();
    let named = [".log", ".tbl", ".hnt", ".val", "manifest", DIR].iter().any(|part| text.contains(part));
    assert!(said && named, "{error:?}");
}

/// The files of a database with the empty keyspaces 1 and 2, of which the second has no order, without its log, and the number of the log.
fn empty() -> &'static (Files, u64) {
    static EMPTY: OnceLock<(Files, u64)> = OnceLock::new();
    EMPTY.get_or_init(|| {
        let sim = SimEnv::new(1);
        let db = open(&sim).expect("the disk works");
        for (name, options) in [("one", small()), ("two", hashed())] {
            db.create_keyspace(name, options).expect("the disk works");
        }
        let (logs, files): (Files, Files) = files(&sim.process_clone())
            .into_iter()
            .partition(|(path, _)| path.extension().is_some_and(|end| end == "log"));
        let name = logs[0].0.file_stem().expect("it has a name").to_string_lossy();
        let number = name.trim_start_matches("wal-").parse().expect("a log is called by its number");
        assert_eq!(logs.len(), 1);
        (files, number)
    })
}

/// The state that a log describes according to `docs/format/log.md`; `None` if the log must be rejected.
#[derive(Default)]
struct Expected {
    last_seq: u64,
    keyspaces: [Map; 2],
}

impl Expected {
    fn record(&mut self, record: &[u8]) -> Option<()> {
        let mut reader = Reader::new(record);
        let (version, first, count) = (reader.u8()?, reader.varint()?, reader.varint()?);
        if version != 0 || first == 0 || first <= self.last_seq || first.checked_add(count)? > MAX_SEQ {
            return None;
        }
        self.last_seq = first + count.max(1) - 1;
        for _ in 0..count {
            let (kind, keyspace) = (reader.u8()?, reader.varint()?);
            let key = reader.bytes(MAX_KEY_LEN)?.to_vec();
            let map = match keyspace {
                0 => None, // a dropped keyspace
                1 | 2 => Some(&mut self.keyspaces[keyspace as usize - 1]),
                _ => return None,
            };
            let value = match kind {
                0 => None,
                1 => Some(reader.bytes(MAX_VALUE_LEN)?.to_vec()),
                _ => return None,
            };
            match (map, value) {
                (Some(map), Some(value)) => drop(map.insert(key, value)),
                (Some(map), None) => drop(map.remove(&key)),
                (None, _) => {}
            }
        }
        reader.is_empty().then_some(())
    }
}

/// A record from the input: its bytes, or a batch that is often valid.
fn log_record(source: &mut Source<'_>, next_seq: &mut u64) -> Vec<u8> {
    let shape = source.u8();
    if shape >= 240 {
        return source.bytes().to_vec();
    }
    let count = u64::from(shape % 8);
    *next_seq += u64::from(shape >> 6) * 100;
    let mut record = vec![0];
    put_varint(&mut record, *next_seq);
    put_varint(&mut record, count);
    for _ in 0..count {
        let what = source.u8();
        let kind = u8::from(what & 3 != 0);
        record.push(kind);
        put_varint(&mut record, if what >= 250 { u64::from(what) } else { u64::from(what >> 2) % 3 });
        let key = source.take(usize::from(what >> 5));
        base::codec::put_bytes(&mut record, key);
        if kind == 1 {
            let value = source.take(4);
            let len = if what & 3 == 3 { 600 } else { value.len() };
            let value: Vec<u8> = value.iter().copied().cycle().take(len).collect();
            base::codec::put_bytes(&mut record, &value);
        }
    }
    *next_seq += count.max(1);
    record
}

/// A database whose logs contain records from the input. It must open with the content that the format defines, or be
/// rejected. A second open must give the same content.
pub(crate) fn recovery(data: &[u8]) -> bool {
    let (files, first_log) = empty();
    let sim = disk(files);
    let env: Arc<dyn Env> = sim.clone();
    let mut source = Source::new(data);
    let mut expected = Some(Expected::default());
    let (mut next_seq, mut previous_len) = (1, 0);
    for number in *first_log..first_log + 1 + source.below(3) as u64 {
        // Some logs claim sequence numbers that no record uses.
        let last_seq = match source.u8() {
            0..=239 => next_seq - 1,
            240..=254 => u64::from(source.u16()),
            255 => u64::from(source.u32()) << 25 | u64::from(source.u32()),
        };
        let mut header = Vec::new();
        put_varint(&mut header, previous_len);
        put_varint(&mut header, last_seq);
        let path = Path::new(DIR).join(format!("wal-{number:06}.log"));
        let mut writer =
            SegmentWriter::create(&env, &path, SegmentKind::Wal, number, &header).expect("the disk works");
        expected = expected.filter(|_| last_seq <= MAX_SEQ);
        if let Some(expected) = &mut expected {
            expected.last_seq = expected.last_seq.max(last_seq);
        }
        for _ in 0..source.below(32) {
            let record = log_record(&mut source, &mut next_seq);
            writer.append(&[&record]).expect("a short record");
            if !record.is_empty() {
                expected = expected.and_then(|mut expected| expected.record(&record).map(|()| expected));
            }
        }
        writer.flush().expect("the disk works");
        previous_len = writer.len();
    }
    // Sequence numbers out of range are rejected after the log was read.
    let expected = expected.filter(|expected| expected.last_seq <= MAX_SEQ / 2);
    match (open(&sim), expected) {
        (Err(error), None) => {
            check_error(&error);
            false
        }
        (Ok(db), Some(expected)) => {
            check_recovered(&sim, db, &expected);
            true
        }
        (Ok(_), None) => panic!("an invalid log is replayed"),
        (Err(error), Some(_)) => panic!("a valid log is rejected: {error}"),
    }
}

fn check_recovered(sim: &Arc<SimEnv>, db: Database, expected: &Expected) {
    let compare = |db: &Database| {
        for (name, map) in ["one", "two"].iter().zip(&expected.keyspaces) {
            let keyspace = db.open_keyspace(name).expect("it was created");
            assert_eq!(&contents(&keyspace).expect("the disk works"), map, "keyspace {name}");
        }
    };
    compare(&db);
    drop(db);
    let again = sim.process_clone();
    assert!(check(&again).expect("the database is there"), "the recovered database is damaged");
    compare(&open(&again).expect("it was opened before"));
}

/// A database after a number of writes, each synced, and its content after each write: of a keyspace with order, or of one without.
pub(crate) fn aged(has_order: bool) -> &'static (Files, Vec<Map>) {
    static AGED: [OnceLock<(Files, Vec<Map>)>; 2] = [const { OnceLock::new() }; 2];
    AGED[usize::from(has_order)].get_or_init(|| {
        let sim = SimEnv::new(1);
        let db = open(&sim).expect("the disk works");
        let options = if has_order { small().compression(Compression::Lz4) } else { hashed() };
        let keyspace = db.create_keyspace("k", options).expect("the disk works");
        let mut states = vec![Map::new()];
        for i in 0..160u64 {
            let hash = base::hash(&i.to_le_bytes());
            let key = format!("key/{:02}", hash % 60).into_bytes();
            let mut map = states.last().expect("there is one").clone();
            if hash >> 60 == 0 {
                map.remove(&key);
                keyspace.delete_with(&key, Durability::Sync).expect("the disk works");
            } else {
                let value = format!("{i} {hash:064b}").into_bytes();
                keyspace.put_with(&key, &value, Durability::Sync).expect("the disk works");
                map.insert(key, value);
            }
            states.push(map);
            if i % 50 == 49 {
                keyspace.compact().expect("the disk works");
            }
        }
        (files(&sim.process_clone()), states)
    })
}

/// Damages files according to the input. Each read must then be right or return an error. Only a suffix of the writes
/// may be missing, since only the end of a log can be lost.
pub(crate) fn damage(data: &[u8]) -> bool {
    // The last byte tells, so that the others mean the same in both.
    let (files, states) = aged(data.last().is_none_or(|last| last & 1 == 0));
    let mut files = files.clone();
    let mut source = Source::new(data);
    for _ in 0..4 {
        if !source.is_empty() {
            damage_once(&mut files, &mut source);
        }
    }
    let sim = disk(&files);
    let sound = check(&sim);
    let db = match open(&sim) {
        Ok(db) => db,
        Err(error) if error.kind() == ErrorKind::NotFound || error.kind() == ErrorKind::Io => {
            panic!("damage is no {error:?}")
        }
        Err(error) => {
            check_error(&error);
            assert!(
                !sound.is_ok_and(|sound| sound),
                "the check accepts a database that cannot be opened: {error}"
            );
            return false;
        }
    };
    let keyspace = db.open_keyspace("k").expect("a keyspace does not vanish");
    match contents(&keyspace) {
        Ok(map) => assert!(states.contains(&map), "the database never had this content: {map:?}"),
        Err(error) => check_error(&error),
    }
    for (key, _) in states.last().expect("there is one").iter().step_by(7) {
        match keyspace.get(key) {
            Ok(found) => {
                let was = states.iter().any(|map| map.get(key).map(|v| &v[..]) == found.as_deref());
                assert!(was, "{key:?} never had {found:?}");
            }
            Err(error) => check_error(&error),
        }
    }
    true
}

fn damage_once(files: &mut Files, source: &mut Source<'_>) {
    let (how, which) = (source.u8(), source.below(files.len()));
    let other = source.below(files.len());
    let stranger = files[other].1.clone();
    let bytes = &mut files[which].1;
    let at = source.u16() as usize % bytes.len().max(1);
    match how % 8 {
        0 | 1 if !bytes.is_empty() => bytes[at] ^= 1 << (how >> 5),
        2 => bytes.truncate(at),
        3 => bytes.extend_from_slice(source.bytes()),
        4 => {
            let new = source.bytes();
            let len = new.len().min(bytes.len() - at);
            bytes[at..at + len].copy_from_slice(&new[..len]);
        }
        5 => {
            let end = (at + source.below(1024)).min(bytes.len());
            bytes[at..end].fill(0);
        }
        6 => *bytes = stranger,
        // A copy of a file under another name. Only some names belong to a database.
        7 => {
            let name = String::from_utf8_lossy(source.bytes()).replace(['/', '\0'], "");
            let taken = name.is_empty() || matches!(&name[..], "." | ".." | "LOCK");
            let path = Path::new(DIR).join(name);
            if !taken && !files.iter().any(|(known, _)| *known == path) {
                files.push((path, stranger));
            }
        }
        _ => {}
    }
}
