//! A disk full of deleted data, or of a single database: the space of deletes is reclaimed without a call of the user.

use cairn::env::{Env, SimEnv};
use cairn::{Database, Durability, Error, ErrorKind, Keyspace, KeyspaceOptions, Options};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Slightly more than a memtable, as by default, so that a memtable can be flushed.
const RESERVE: u64 = 80 << 10;

fn options(threads: usize) -> Options {
    Options::default()
        .background_threads(threads)
        .memory_budget(1 << 20)
        .disk_reserve(RESERVE)
        .manifest_cap(4 << 10)
        .durability(Durability::Os)
}

/// Memtables of 64 KiB, which the deletes of these tests do not fill.
fn keyspace_options() -> KeyspaceOptions {
    KeyspaceOptions::default().memtable_bytes(64 << 10).levels(3)
}

fn open(sim: &Arc<SimEnv>, threads: usize) -> cairn::Result<Database> {
    Database::open_in(sim.clone(), "/db", options(threads))
}

fn key(i: u32) -> String {
    format!("key/{i:06}")
}

/// A hundred bytes that do not compress.
fn value(i: u32) -> Vec<u8> {
    let mix = |n: u32| (n ^ n >> 15).wrapping_mul(0x2c1b_3c6d).rotate_right(12).wrapping_mul(0x297a_2d39);
    (0..25).flat_map(|n| mix(i * 25 + n + 1).to_le_bytes()).collect()
}

fn assert_no_space(error: &Error) {
    assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
}

/// Puts from key `from` on until a put is refused. Returns the number of that key.
fn fill(keyspace: &Keyspace, from: u32) -> u32 {
    for i in from.. {
        if let Err(e) = keyspace.put(key(i), value(i)) {
            assert_no_space(&e);
            return i;
        }
    }
    unreachable!()
}

/// A database on a full disk, with no background work left. Returns also the number of its keys.
fn full(seed: u64, threads: usize, room: u64) -> (Arc<SimEnv>, Database, Keyspace, u32) {
    let sim = SimEnv::new(seed);
    let db = open(&sim, threads).unwrap();
    let keyspace = db.create_keyspace("k", keyspace_options()).unwrap();
    // The first flush creates the reserve.
    keyspace.put(key(0), value(0)).unwrap();
    db.flush().unwrap();
    assert_eq!(db.stats().reserve.held_bytes, RESERVE);
    sim.set_capacity(Some(sim.used() - RESERVE + room));
    let mut count = fill(&keyspace, 0);
    let mut before = if threads > 0 { 0 } else { count };
    while before < count {
        let _ = db.wait_idle();
        before = count;
        count = fill(&keyspace, before);
    }
    // With threads, a background job may have just freed space.
    assert!(threads > 0 || db.stats().reserve.spent, "{}", db.stats());
    (sim, db, keyspace, count)
}

fn ninety_percent(count: u32) -> std::ops::Range<String> {
    key(count / 20)..key(count - count / 20)
}

/// How nine tenths of the keys are deleted.
#[derive(Clone, Copy, Debug)]
enum Deleted {
    AsRange,
    OneByOne,
}

fn delete(keyspace: &Keyspace, count: u32, how: Deleted) {
    match how {
        Deleted::AsRange => keyspace.delete_range(ninety_percent(count)).unwrap(),
        Deleted::OneByOne => {
            (count / 20..count - count / 20).for_each(|i| keyspace.delete(key(i)).unwrap());
        }
    }
}

/// Retries `work` while running flushes and compactions use the free space. The timeout is much longer than they need, so it ends only a
/// wait for work that is not scheduled.
fn retry(db: &Database, mut work: impl FnMut() -> cairn::Result<()>) {
    let begun = Instant::now();
    while let Err(e) = work() {
        assert_no_space(&e);
        assert!(begun.elapsed() < Duration::from_secs(60), "{e}\n{}", db.stats());
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn without_threads_the_next_put_takes_the_space_that_deletes_in_memory_hide() {
    for how in [Deleted::AsRange, Deleted::OneByOne] {
        for room in [300_000, 450_000, 600_000] {
            let (sim, db, keyspace, count) = full(room, 0, room);
            delete(&keyspace, count, how);
            keyspace
                .put("again", "1")
                .unwrap_or_else(|e| panic!("{how:?}, room {room}: {e}\n{}", db.stats()));
            assert!(!db.stats().reserve.spent);
            assert_eq!(keyspace.iter().count() as u32, 1 + count - (count - 2 * (count / 20)));
            drop((keyspace, db));
            let keyspace = open(&sim, 0).unwrap().open_keyspace("k").unwrap();
            assert_eq!(keyspace.iter().count() as u32, 1 + 2 * (count / 20), "opened again");
        }
    }
}

#[test]
fn with_threads_puts_go_on_by_themselves() {
    for threads in [1, 2] {
        let (_sim, db, keyspace, count) = full(7, threads, 600_000);
        // Tombstones of some keys are in memory when the range is deleted.
        (0..10).for_each(|i| retry(&db, || keyspace.delete(key(i))));
        retry(&db, || keyspace.delete_range(ninety_percent(count)));
        retry(&db, || keyspace.put("again", "1"));
        assert_eq!(keyspace.iter().count() as u32, 1 + 2 * (count / 20) - 10, "{threads} threads");
    }
}

/// When deletes free no space, not every refused put flushes the tombstones.
#[test]
fn refused_puts_do_not_flush_each_time_when_deletes_free_no_space() {
    let (sim, db, keyspace, count) = full(3, 0, 300_000);
    // The snapshot keeps all deleted entries.
    let snapshot = db.snapshot();
    let flushes = || db.stats().keyspaces[0].flush.jobs;
    let before = flushes();
    for i in 0..200 {
        keyspace.delete(key(i)).unwrap();
        assert_no_space(&keyspace.put("again", "1").unwrap_err());
    }
    assert!(flushes() - before <= 2, "{} flushes", flushes() - before);
    // After some time, a refused put flushes again.
    let before = flushes();
    for i in 200..210 {
        keyspace.delete(key(i)).unwrap();
        sim.sleep(Duration::from_secs(2));
        assert_no_space(&keyspace.put("again", "1").unwrap_err());
        assert_no_space(&keyspace.put("again", "1").unwrap_err());
    }
    assert!((5..=10).contains(&(flushes() - before)), "{} flushes", flushes() - before);
    drop(snapshot);
    keyspace.delete_range(..key(count)).unwrap();
    sim.sleep(Duration::from_secs(2));
    keyspace.put("again", "1").unwrap();
}

/// An open database with the default options, but without threads.
fn open_default(sim: &Arc<SimEnv>) -> (Database, Keyspace) {
    let db = Database::open_in(sim.clone(), "/db", Options::default().background_threads(0)).unwrap();
    let keyspace = db.keyspace("k", KeyspaceOptions::default()).unwrap();
    (db, keyspace)
}

/// Puts incompressible data of this size, and flushes it.
fn put_megabytes(db: &Database, keyspace: &Keyspace, megabytes: u32) {
    for i in 0..megabytes * 1000 {
        let value: Vec<u8> = (0..10).flat_map(|n| value(i * 10 + n)).collect();
        keyspace.put(key(i), value).unwrap();
    }
    db.flush().unwrap();
}

#[test]
fn a_small_database_is_small_on_the_disk_and_so_is_one_that_was_emptied() {
    let sim = SimEnv::new(1);
    let (db, keyspace) = open_default(&sim);
    put_megabytes(&db, &keyspace, 1);
    assert!(sim.used() < 4 << 20, "{} bytes beside 1 MB of data", sim.used());
    put_megabytes(&db, &keyspace, 70);
    assert_eq!(db.stats().reserve.held_bytes, 64 << 20);
    keyspace.delete_range::<&str>(..).unwrap();
    db.flush().unwrap();
    db.compact().unwrap();
    let files: Vec<_> = sim.list_files().into_iter().map(|file| (sim.len(&file).unwrap(), file)).collect();
    assert!(sim.used() < 2 << 20, "{files:?}\n{}", db.stats());
    drop(keyspace);
    db.close().unwrap();
    let (db, _) = open_default(&sim);
    assert_eq!(db.stats().reserve.held_bytes, 1 << 20, "the file is taken over");
    assert!(sim.used() < 2 << 20, "{} bytes, opened again", sim.used());
}

/// The reserve of a small database has room for deletes, a flush, and the compaction that frees space.
#[test]
fn a_reserve_beside_little_data_is_enough_for_it() {
    for (megabytes, held) in [(1, 2), (3, 4), (6, 8)] {
        let sim = SimEnv::new(1);
        let (db, keyspace) = open_default(&sim);
        put_megabytes(&db, &keyspace, megabytes);
        // The reserve is created before there are tables. The next flush enlarges it to the size of the tables.
        put_megabytes(&db, &keyspace, 1);
        assert_eq!(db.stats().reserve.held_bytes >> 20, held, "{}", db.stats());
        sim.set_capacity(Some(sim.used() + 200_000));
        let count = fill(&keyspace, megabytes * 1000);
        assert!(count > megabytes * 1000 + 1000 && db.stats().reserve.spent);
        (0..count).filter(|i| i % 10 != 0).for_each(|i| keyspace.delete(key(i)).unwrap());
        db.compact().unwrap();
        keyspace.put("again", "1").unwrap_or_else(|e| panic!("{megabytes} MB: {e}\n{}", db.stats()));
        assert_eq!(keyspace.iter().count() as u32, 1 + count.div_ceil(10));
    }
}

/// A database that fills its disk is closed, and its logs need more space for tables than there is: it opens, deletes, and accepts puts
/// again.
#[test]
fn a_database_that_was_closed_on_a_full_disk_can_be_emptied() {
    for threads in [0, 1] {
        let sim = SimEnv::new(5);
        let db = open(&sim, 0).unwrap();
        // Each keyspace has its own memtable; together these are larger than the reserve.
        let names = ["a", "b", "c", "d", "e", "f"];
        let keyspaces = names.map(|name| db.create_keyspace(name, keyspace_options()).unwrap());
        keyspaces[0].put("first", "1").unwrap();
        db.flush().unwrap();
        assert_eq!(db.stats().reserve.held_bytes, RESERVE);
        sim.set_capacity(Some(sim.used() + 200_000));
        let count = (0..).find(|&i| keyspaces.iter().any(|k| k.put(key(i), value(i)).is_err())).unwrap();
        assert!(db.stats().reserve.spent);
        drop(keyspaces);
        db.close().unwrap();
        let disk = sim.process_clone();
        disk.set_capacity(Some(sim.used() + RESERVE));
        for round in 0..3 {
            let db = open(&disk, threads).unwrap();
            let keyspaces = names.map(|name| db.open_keyspace(name).unwrap());
            assert!(keyspaces[1].iter().count() as u32 >= count - 1);
            let refused = keyspaces[0].put("again", "1").unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::NoSpace, "{threads} threads, round {round}: {refused}");
            keyspaces[0].delete("first").unwrap();
            let crashed = disk.crash_clone(cairn::env::Survival::Nothing, round);
            let found = open(&crashed, 0).unwrap().open_keyspace("f").unwrap().iter().count() as u32;
            assert!(found >= count - 1, "{found} of {count}");
            drop(keyspaces);
            // Closing returns the error of flushes that had no space.
            db.close().or_else(|e| if e.kind() == ErrorKind::NoSpace { Ok(()) } else { Err(e) }).unwrap();
        }
        let db = open(&disk, threads).unwrap();
        let keyspaces = names.map(|name| db.open_keyspace(name).unwrap());
        keyspaces.iter().for_each(|keyspace| delete(keyspace, count, Deleted::AsRange));
        retry(&db, || {
            disk.sleep(Duration::from_secs(2));
            keyspaces[0].put("again", "1")
        });
        let left = keyspaces.each_ref().map(|keyspace| keyspace.iter().count() as u32);
        drop(keyspaces);
        db.close().unwrap();
        let db = open(&disk, 0).unwrap();
        let found = names.map(|name| db.open_keyspace(name).unwrap().iter().count() as u32);
        assert_eq!(found, left, "{threads} threads");
        assert!(left.iter().all(|&n| n <= count / 10 + 4), "{left:?} of {count}");
        assert!(db.check(&mut |_| ()).unwrap().problems.is_empty());
    }
}
