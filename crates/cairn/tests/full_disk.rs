//! A disk that fills up, at every point, with and without a reserve: errors are temporary, reads go on, no acknowledged write is lost,
//! and deletes and compactions free space.

use cairn::env::{Env, Fault, OpInfo, OpKind, Phase, Repeat, SimEnv, Survival};
use cairn::{Database, Durability, Error, ErrorKind, Keyspace, KeyspaceOptions, Options, Preset};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const RESERVE: u64 = 48 << 10;

type Model = BTreeMap<String, Vec<u8>>;

fn options(threads: usize) -> Options {
    Options::default()
        .background_threads(threads)
        .memory_budget(1 << 20)
        .disk_reserve(RESERVE)
        .manifest_cap(4 << 10)
        .durability(Durability::Sync)
}

fn small() -> KeyspaceOptions {
    KeyspaceOptions::default().memtable_bytes(8 << 10).top_level_bits(6).bit_decrement(1).levels(3)
}

fn open(sim: &Arc<SimEnv>, threads: usize) -> cairn::Result<Database> {
    Database::open_in(sim.clone(), "/db", options(threads))
}

fn fresh(seed: u64, threads: usize) -> (Arc<SimEnv>, Database, Keyspace) {
    let sim = SimEnv::new(seed);
    let db = open(&sim, threads).unwrap();
    let keyspace = db.create_keyspace("k", small()).unwrap();
    (sim, db, keyspace)
}

fn key(i: u32) -> String {
    format!("key/{:05}", i.wrapping_mul(2_654_435_761) % 100_000)
}

/// A hundred bytes that do not compress.
fn value(i: u32) -> Vec<u8> {
    let mix = |n: u32| (n ^ n >> 15).wrapping_mul(0x2c1b_3c6d).rotate_right(12).wrapping_mul(0x297a_2d39);
    (0..25).flat_map(|n| mix(i * 25 + n + 1).to_le_bytes()).collect()
}

fn assert_no_space(error: &Error) {
    assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
}

fn compare(keyspace: &Keyspace, model: &Model, when: &str) {
    let found: Model = keyspace
        .iter()
        .map(|entry| entry.map(|(k, v)| (String::from_utf8(k.to_vec()).unwrap(), v.to_vec())).unwrap())
        .collect();
    assert_eq!(found.keys().collect::<Vec<_>>(), model.keys().collect::<Vec<_>>(), "{when}");
    assert!(found == *model, "{when}: a value is wrong");
    for (key, value) in model.iter().step_by(7) {
        assert_eq!(keyspace.get(key).unwrap().unwrap(), value[..], "{when}: {key}");
    }
}

/// Opens the files that a power cut at this moment leaves, on a disk that is as full, and compares the content with the model.
fn compare_after_crash(sim: &SimEnv, model: &Model, seed: u64, when: &str) {
    let kind = Survival::ALL[seed as usize % Survival::ALL.len()];
    let survivor = sim.crash_clone(kind, seed);
    survivor.set_capacity(Some(survivor.used().max(sim.used())));
    let when = format!("{when}, after a crash ({kind:?})");
    let db = open(&survivor, 0).unwrap_or_else(|e| panic!("{when}: {e}"));
    compare(&db.open_keyspace("k").unwrap(), model, &when);
}

fn fill(keyspace: &Keyspace, model: &mut Model, from: u32) -> u32 {
    let mut refused = 0;
    for i in from.. {
        match keyspace.put(key(i), value(i)) {
            Ok(()) => drop(model.insert(key(i), value(i))),
            Err(e) => {
                assert_no_space(&e);
                refused += 1;
            }
        }
        if refused == 5 {
            return i;
        }
    }
    unreachable!()
}

/// P5, and trap 31: the disk fills up during flushes and compactions. Deletes and compactions go on with the reserve, and free so much
/// space that puts are accepted again, without a restart.
#[test]
fn deletes_and_compactions_run_on_the_reserve_until_puts_go_on() {
    let (mut spent, mut rounds) = (0, 0);
    for room in (20_000..400_000u64).step_by(9_973) {
        rounds += 1;
        let when = |what: &str| format!("room {room}, {what}");
        let (sim, db, keyspace) = fresh(room, 0);
        sim.set_capacity(Some(sim.used() + room));
        let mut model = Model::new();
        let next = fill(&keyspace, &mut model, 0);
        compare(&keyspace, &model, &when("full"));
        compare_after_crash(&sim, &model, room, &when("full"));
        if !db.stats().reserve.spent {
            continue;
        }
        spent += 1;
        // Deletes nine of ten keys.
        for (n, key) in model.clone().into_keys().enumerate() {
            if n % 10 != 0 {
                keyspace.delete(&key).unwrap_or_else(|e| panic!("{}: {e}", when("deleting")));
                model.remove(&key);
            }
            if n % 100 == 50 {
                compare_after_crash(&sim, &model, room + n as u64, &when("deleting"));
            }
        }
        db.compact().unwrap_or_else(|e| panic!("{}: {e}", when("compacting")));
        compare(&keyspace, &model, &when("compacted"));
        compare_after_crash(&sim, &model, room, &when("compacted"));
        keyspace.put("again", "1").unwrap_or_else(|e| panic!("{}: {e}", when("putting again")));
        model.insert("again".into(), b"1".to_vec());
        let stats = db.stats().reserve;
        assert!(stats.held_bytes == RESERVE && !stats.spent, "{}: {stats:?}", when("afterwards"));
        // The disk fills up a second time.
        fill(&keyspace, &mut model, next);
        compare(&keyspace, &model, &when("full again"));
        assert!(db.check(&mut |_| ()).unwrap().problems.is_empty());
        compare_after_crash(&sim, &model, room, &when("full again"));
        sim.set_capacity(None);
        keyspace.put("at last", "2").unwrap();
        model.insert("at last".into(), b"2".to_vec());
        drop(keyspace);
        db.close().unwrap();
        compare(&open(&sim, 0).unwrap().open_keyspace("k").unwrap(), &model, &when("opened again"));
    }
    assert!(spent > rounds / 2, "the reserve was used in {spent} rounds of {rounds} only");
}

/// The same with threads: many write at once, and no thread waits forever.
#[test]
fn with_threads_a_full_disk_passes_as_well() {
    for room in [120_000, 200_000, 300_000] {
        let (sim, db, keyspace) = fresh(room, 2);
        sim.set_capacity(Some(sim.used() + room));
        let written: Vec<Vec<u32>> = std::thread::scope(|scope| {
            let fill = |thread: u32| {
                let keyspace = &keyspace;
                move || {
                    let (mut taken, mut refused) = (Vec::new(), 0);
                    for i in (thread..).step_by(4) {
                        match keyspace.put(key(i), value(i)) {
                            Ok(()) => taken.push(i),
                            Err(e) => {
                                assert_no_space(&e);
                                refused += 1;
                                std::thread::sleep(Duration::from_millis(5));
                            }
                        }
                        if refused == 20 {
                            break;
                        }
                    }
                    taken
                }
            };
            let threads: Vec<_> = (0..4).map(|t| scope.spawn(fill(t))).collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        });
        let mut model: Model = written.into_iter().flatten().map(|i| (key(i), value(i))).collect();
        compare(&keyspace, &model, "full");
        compare_after_crash(&sim, &model, room, "full");
        for key in model.clone().into_keys().skip(3) {
            // Background jobs also use the reserve, and may have used all of it.
            match keyspace.delete(&key) {
                Ok(()) => drop(model.remove(&key)),
                Err(e) => {
                    assert_no_space(&e);
                    break;
                }
            }
        }
        let begun = Instant::now();
        loop {
            // A background job may find the disk full at any time; it is then retried.
            let made_room = db.compact().and_then(|()| keyspace.put("again", "1"));
            match made_room {
                Ok(()) => break,
                Err(e) => assert_no_space(&e),
            }
            // The remaining space may be too small for any compaction. Waiting does not help then, so the disk is enlarged.
            if begun.elapsed() > Duration::from_secs(3) {
                sim.set_capacity(None);
            }
            assert!(begun.elapsed() < Duration::from_secs(30), "puts are still refused: {}", db.stats());
            std::thread::sleep(Duration::from_millis(20));
        }
        model.insert("again".into(), b"1".to_vec());
        compare(&keyspace, &model, "afterwards");
        sim.set_capacity(None);
        drop(keyspace);
        let _ = db.close();
        compare(&open(&sim, 0).unwrap().open_keyspace("k").unwrap(), &model, "opened again");
    }
}

fn files(sim: &SimEnv) -> Vec<PathBuf> {
    sim.list_files()
}

fn has_reserve(sim: &SimEnv) -> bool {
    files(sim).iter().any(|path| path.ends_with("RESERVE"))
}

/// While `full` is set, operations of this kind fail with `NoSpace` on files with `part` in their names.
fn fill_up(
    sim: &Arc<SimEnv>,
    (kind, part): (OpKind, &'static str),
    full: impl Fn(&SimEnv) -> bool + Send + Sync + 'static,
) {
    let disk = Arc::downgrade(sim);
    sim.set_hook(Some(Box::new(move |op: OpInfo<'_>| {
        let path = op.path.to_string_lossy();
        let meant = op.kind == kind && path.contains(part);
        // Recycling is prevented, because a log that overwrites a recycled one needs no space.
        let spare =
            kind == OpKind::Create && part == "wal" && op.kind == OpKind::Open && path.ends_with(".spare");
        let meant = (meant || spare) && op.phase == Phase::Before;
        match meant && disk.upgrade().is_some_and(|sim| full(&sim)) {
            true => Some(Fault::ENOSPC),
            false => None,
        }
    })));
}

/// The operations of trap 32, and the creation of tables.
const OPERATIONS: [(OpKind, &str); 6] = [
    (OpKind::Append, "manifest"),
    (OpKind::Create, "manifest"),
    (OpKind::Create, "wal"),
    (OpKind::Append, "wal"),
    (OpKind::Create, ".tbl"),
    (OpKind::Append, ".tbl"),
];

/// Puts until the reserve is complete.
fn prepare(seed: u64) -> (Arc<SimEnv>, Database, Keyspace, Model) {
    let (sim, db, keyspace) = fresh(seed, 0);
    let mut model = Model::new();
    for i in 0..200 {
        keyspace.put(key(i), value(i)).unwrap();
        model.insert(key(i), value(i));
    }
    assert!(has_reserve(&sim));
    (sim, db, keyspace, model)
}

#[test]
fn the_reserve_lets_a_flush_switch_log_and_manifest() {
    for (n, place) in OPERATIONS.into_iter().enumerate() {
        let (sim, db, keyspace, mut model) = prepare(n as u64);
        let met = Arc::new(AtomicUsize::new(0));
        let count = met.clone();
        fill_up(&sim, place, move |sim| {
            let full = has_reserve(sim);
            count.fetch_add(usize::from(full), Ordering::SeqCst);
            full
        });
        for i in 0..30 {
            keyspace.delete(key(i)).unwrap_or_else(|e| panic!("{place:?}: {e}"));
            model.remove(&key(i));
            db.flush().unwrap_or_else(|e| panic!("{place:?}: {e}"));
        }
        db.compact().unwrap_or_else(|e| panic!("{place:?}: {e}"));
        compare(&keyspace, &model, &format!("{place:?}"));
        assert!(met.load(Ordering::SeqCst) > 0, "{place:?}: the disk was never full");
        compare_after_crash(&sim, &model, n as u64, &format!("{place:?}"));
        sim.set_hook(None);
        keyspace.put("again", "1").unwrap();
        assert!(has_reserve(&sim));
    }
}

/// Trap 32: the disk stays full while the manifest or the log is written or switched; then there is space again.
#[test]
fn a_disk_that_is_full_at_the_manifest_or_the_switch_of_a_log_passes() {
    for (n, place) in OPERATIONS.into_iter().enumerate() {
        let (sim, db, keyspace, mut model) = prepare(n as u64);
        fill_up(&sim, place, |_| true);
        let mut errors = 0;
        for i in 200..400 {
            match keyspace.put(key(i), value(i)) {
                Ok(()) => drop(model.insert(key(i), value(i))),
                Err(e) => assert_no_space(&e),
            }
            if i % 20 == 0 {
                errors += u32::from(db.flush().inspect_err(assert_no_space).is_err());
                compare(&keyspace, &model, &format!("{place:?}"));
                compare_after_crash(&sim, &model, u64::from(i), &format!("{place:?}"));
            }
        }
        assert!(errors > 0 || place == (OpKind::Create, "manifest"), "{place:?}");
        sim.set_hook(None);
        keyspace.put("again", "1").unwrap_or_else(|e| panic!("{place:?}: {e}"));
        model.insert("again".into(), b"1".to_vec());
        db.flush().unwrap();
        db.wait_idle().unwrap();
        compare(&keyspace, &model, &format!("{place:?}, with space again"));
        compare_after_crash(&sim, &model, n as u64, &format!("{place:?}, with space again"));
    }
}

/// A database opened with little free space can be read, and can be written as soon as there is space.
#[test]
fn a_database_opens_on_a_full_disk() {
    let (mut read_only, mut writable) = (0, 0);
    for seed in 0..6 {
        for (with_reserve, room) in [true, false].into_iter().flat_map(|r| (0..40).map(move |n| (r, n * 700)))
        {
            let (sim, _db, keyspace, mut model) = prepare(seed);
            for i in 1000..1060 {
                keyspace.put(key(i), value(i)).unwrap();
                model.insert(key(i), value(i));
            }
            let disk = sim.process_clone();
            let spares: Vec<_> =
                disk.list_files().into_iter().filter(|f| f.to_string_lossy().ends_with(".spare")).collect();
            // The space of recycled logs counts as free; some databases have none.
            assert!(!spares.is_empty());
            if seed % 3 > 0 {
                spares.iter().for_each(|spare| disk.remove(spare).unwrap());
            }
            if !with_reserve {
                disk.remove(Path::new("/db/RESERVE")).unwrap();
            }
            disk.set_capacity(Some(disk.used() + room));
            let when = format!("reserve {with_reserve}, room {room}");
            let before = files(&disk);
            for _ in 0..2 {
                let db = open(&disk, 0).unwrap_or_else(|e| panic!("{when}: {e}"));
                let keyspace = db.open_keyspace("k").unwrap();
                compare(&keyspace, &model, &when);
                match keyspace.delete(key(0)) {
                    Ok(()) => {
                        model.remove(&key(0));
                        writable += 1;
                    }
                    Err(e) if e.kind() == ErrorKind::ReadOnly => {
                        assert!(e.to_string().contains("the disk was full when"), "{e}");
                        assert!(!with_reserve, "{when}: {e}");
                        let error = db.flush().unwrap_err();
                        assert_eq!(error.kind(), ErrorKind::ReadOnly);
                        assert!(disk.used() <= sim.used() + room, "{when}");
                        read_only += 1;
                    }
                    Err(e) => {
                        assert_no_space(&e);
                        assert!(!with_reserve, "{when}: {e}");
                    }
                }
                compare(&keyspace, &model, &when);
                let _ = db.close();
                compare_after_crash(&disk, &model, room + seed, &when);
            }
            assert!(read_only + writable > 0 && !before.is_empty());
            disk.set_capacity(None);
            let db = open(&disk, 0).unwrap();
            let keyspace = db.open_keyspace("k").unwrap();
            keyspace.put("again", "1").unwrap();
            model.insert("again".into(), b"1".to_vec());
            db.flush().unwrap();
            compare(&keyspace, &model, &when);
            assert!(db.check(&mut |_| ()).unwrap().problems.is_empty());
        }
    }
    assert!(read_only > 20 && writable > 20, "{read_only} times read-only, {writable} times writable");
}

/// Foreign files, and a reserve of another length, never keep a database from opening; foreign files are left alone.
#[test]
fn leftovers_do_not_keep_a_database_from_opening() {
    let (sim, db, keyspace, model) = prepare(1);
    drop(keyspace);
    db.close().unwrap();
    for name in ["notes.txt", "RESERVE.old", "manifest-7", "wal-x.log", "000001.tbl.bak", "core"] {
        sim.write_file(Path::new("/db").join(name), *b"whatever");
    }
    sim.remove(Path::new("/db/RESERVE")).unwrap();
    sim.write_file("/db/RESERVE", *b"too short");
    let db = open(&sim, 0).unwrap();
    compare(&db.open_keyspace("k").unwrap(), &model, "with leftovers");
    assert!(!has_reserve(&sim), "it was not what we hold back");
    db.open_keyspace("k").unwrap().put("a", "1").unwrap();
    db.flush().unwrap();
    assert_eq!(db.stats().reserve.held_bytes, RESERVE);
    db.close().unwrap();
    assert_eq!(sim.read_file("/db/core"), b"whatever");
    let without = Database::open_in(sim.clone(), "/db", options(0).disk_reserve(0)).unwrap();
    assert!(!has_reserve(&sim));
    without.flush().unwrap();
    assert_eq!(without.stats().reserve, cairn::ReserveStats::default());
}

/// Trap 35: closing hands `Buffered` writes to the operating system, with the space of the reserve if necessary; when that fails, closing
/// returns the error.
#[test]
fn closing_hands_over_what_is_buffered_or_says_that_it_could_not() {
    for out_of_space in [false, true] {
        let (sim, db, keyspace, mut model) = prepare(3);
        for i in 500..520 {
            keyspace.put_with(key(i), value(i), Durability::Buffered).unwrap();
            model.insert(key(i), value(i));
        }
        if out_of_space {
            fill_up(&sim, (OpKind::Append, "wal"), |_| true);
        } else {
            sim.set_capacity(Some(sim.used()));
        }
        drop(keyspace);
        let closed = db.close();
        sim.set_hook(None);
        if out_of_space {
            let error = closed.unwrap_err();
            assert_no_space(&error);
            assert!(error.to_string().contains("wal-"), "{error}");
        } else {
            closed.unwrap();
            compare(&open(&sim, 0).unwrap().open_keyspace("k").unwrap(), &model, "closed on a full disk");
        }
    }
}

/// Trap 7: appends to the log that write only some of their bytes, one, or none, at each append in turn.
#[test]
fn short_writes_and_writes_of_nothing_leave_no_trace() {
    for at in 0..40 {
        for taken in [0, 1, 60] {
            let (sim, db, keyspace) = fresh(at, 0);
            let mut model = Model::new();
            let mut failures = 0;
            let first = sim.op_count();
            sim.fail_op(first + at, Fault::ShortWrite(taken), Repeat::Once);
            for i in 0..40 {
                match keyspace.put_with(key(i), value(i), Durability::Os) {
                    Ok(()) => drop(model.insert(key(i), value(i))),
                    Err(e) => {
                        assert_eq!(e.kind(), ErrorKind::Io, "{e}");
                        assert!(e.to_string().contains("wal-"), "{e}");
                        failures += 1;
                    }
                }
            }
            assert_eq!(failures, 1, "operation {at}");
            compare(&keyspace, &model, "after a short write");
            let replayed = open(&sim.process_clone(), 0).unwrap();
            compare(&replayed.open_keyspace("k").unwrap(), &model, "replayed");
            db.sync().unwrap();
            compare_after_crash(&sim, &model, at, "after a short write");
        }
    }
}

/// The limit on file lengths is a full disk for one file: others can grow, and logs are switched before they reach it.
#[test]
fn a_file_that_may_not_grow_is_an_error_that_names_it() {
    let (sim, db, keyspace, mut model) = prepare(5);
    sim.set_max_file_len(100_000);
    let mut batch = db.batch();
    for i in 0..1000 {
        batch.put(&keyspace, key(i), value(i));
    }
    let error = db.write(batch, Durability::Os).unwrap_err();
    assert_no_space(&error);
    assert!(error.is_file_too_large() && error.to_string().contains("wal-"), "{error}");
    assert!(has_reserve(&sim), "the reserve is of no use here");
    for i in 2000..4000 {
        keyspace.put(key(i), value(i)).unwrap_or_else(|e| panic!("{i}: {e}"));
        model.insert(key(i), value(i));
    }
    compare(&keyspace, &model, "with a limit on files");
    compare_after_crash(&sim, &model, 5, "with a limit on files");
}

/// What is left of the first attempt is not in the state of the second, and what a reader in another process needs is still there.
#[test]
fn an_opening_that_frees_space_and_begins_again_leaves_nothing_of_its_first_attempt() {
    for (n, place) in [(OpKind::Create, "manifest"), (OpKind::Create, "wal")].into_iter().enumerate() {
        let (sim, db, keyspace, model) = prepare(n as u64);
        let unordered = db.create_keyspace("u", KeyspaceOptions::preset(Preset::HashLog)).unwrap();
        (0..50).for_each(|i| unordered.put(key(i), value(i)).unwrap());
        let reader = Database::builder().env(sim.clone()).options(options(0)).open_read_only("/db").unwrap();
        drop((keyspace, unordered));
        db.close().unwrap();
        let met = Arc::new(AtomicUsize::new(0));
        let count = met.clone();
        fill_up(&sim, place, move |sim| has_reserve(sim) && count.fetch_add(1, Ordering::SeqCst) == 0);
        let db = open(&sim, 0).unwrap();
        sim.set_hook(None);
        assert!(met.load(Ordering::SeqCst) > 0, "{place:?}: the disk was never full");
        compare(&reader.open_keyspace("k").unwrap(), &model, &format!("{place:?}: a reader"));
        let values = |db: &Database| {
            let unordered = db.open_keyspace("u").unwrap();
            (0..50).all(|i| unordered.get(key(i)).unwrap().as_deref() == Some(&value(i)[..]))
        };
        assert!(values(&reader), "{place:?}");
        db.checkpoint("/copy").unwrap_or_else(|e| panic!("{place:?}: {e}"));
        let copy = Database::open_in(sim.clone(), "/copy", options(0)).unwrap();
        for db in [&db, &copy] {
            compare(&db.open_keyspace("k").unwrap(), &model, &format!("{place:?}"));
            assert!(values(db), "{place:?}");
        }
    }
}
