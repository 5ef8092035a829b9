//! Values outside of the tree that scans wait for move into tables: when, which ones, and what every reader sees meanwhile.

use cairn::env::{SimEnv, Survival};
use cairn::{Database, ErrorKind, Keyspace, KeyspaceOptions, Options, PlacementPolicy, Result};
use std::path::PathBuf;
use std::sync::Arc;

const KEYS: usize = 200;
const LEN: usize = 2000;

fn key(i: usize) -> Vec<u8> {
    format!("key{i:05}").into_bytes()
}

fn value(i: usize, version: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at / 7 + i + 100 * version) as u8).collect()
}

fn open(env: &Arc<SimEnv>, threads: usize) -> Result<(Database, Keyspace)> {
    open_with(env, threads, |options| options)
}

fn open_with(
    env: &Arc<SimEnv>,
    threads: usize,
    change: impl FnOnce(KeyspaceOptions) -> KeyspaceOptions,
) -> Result<(Database, Keyspace)> {
    let options = Options::default().background_threads(threads).memory_budget(8 << 20);
    let db = Database::open_in(env.clone(), "/db", options)?;
    let options = KeyspaceOptions::default().placement(PlacementPolicy::Hybrid).memtable_bytes(256 << 10);
    let keyspace = db.keyspace("k", change(options))?;
    Ok((db, keyspace))
}

/// `KEYS` values of `len` bytes, in logs, none of them in memory. Background threads: none.
fn on_disk(len: usize) -> Result<(Arc<SimEnv>, Database, Keyspace)> {
    let env = SimEnv::new(1);
    let (db, keyspace) = open(&env, 0)?;
    for i in 0..KEYS {
        keyspace.put(key(i), value(i, 0, len))?;
    }
    db.flush()?;
    db.wait_idle()?;
    env.set_cached_percent(0);
    Ok((env, db, keyspace))
}

/// The number of compactions for scans.
fn compactions(db: &Database) -> u64 {
    let reasons = &db.stats().keyspaces[0].compactions_by_reason;
    reasons.iter().find(|(reason, _)| reason == "scans").map_or(0, |(_, n)| *n)
}

/// Scans, back and forth, until a compaction for scans has run, at most 20 times. Returns the number of scans.
fn scan_until_compacted(db: &Database, keyspace: &Keyspace) -> Result<usize> {
    let before = compactions(db);
    for scan in 1..=20 {
        match scan % 2 {
            1 => keyspace.iter().try_for_each(|entry| entry.map(drop))?,
            _ => keyspace.iter().rev().try_for_each(|entry| entry.map(drop))?,
        }
        // Without background threads the next write compacts.
        keyspace.put("write", "")?;
        if compactions(db) > before {
            return Ok(scan);
        }
    }
    Ok(usize::MAX)
}

/// Values outside of the tree, and in it.
fn outside(db: &Database) -> u64 {
    db.stats().values.live_bytes
}

#[test]
fn values_that_scans_wait_for_move_into_tables_and_others_do_not() -> Result<()> {
    let (env, db, keyspace) = on_disk(LEN)?;
    assert_eq!(outside(&db), (KEYS * LEN) as u64);
    // Reads of single values, and scans in memory, cost no more than with values in tables.
    for round in 0..10 {
        for i in 0..KEYS {
            assert_eq!(keyspace.get(key(i))?.as_deref(), Some(&value(i, 0, LEN)[..]));
            let mut cursor = keyspace.cursor();
            cursor.seek(key(i))?;
            assert_eq!(cursor.value(), value(i, 0, LEN));
        }
        env.set_cached_percent(100);
        keyspace.iter().try_for_each(|entry| entry.map(drop))?;
        env.set_cached_percent(0);
        assert_eq!(keyspace.iter().keys().count(), KEYS + usize::from(round > 0));
        keyspace.put("write", "")?;
    }
    assert_eq!(compactions(&db), 0);

    // The price is 4 MiB for a compaction, twice the bytes, and 8 KiB for each value; a scan pays the latter.
    let (snapshot, before) = (db.snapshot(), keyspace.iter());
    let scans = scan_until_compacted(&db, &keyspace)?;
    assert!((4..=5).contains(&scans), "{scans} scans");
    assert_eq!(outside(&db), 0);
    let check = |entries: cairn::Range| {
        let entries = entries.filter(|entry| entry.as_ref().map_or(true, |(key, _)| key[..] != *b"write"));
        let found: Vec<_> = entries.collect::<Result<_>>()?;
        assert_eq!(found.len(), KEYS);
        for (i, (found, value)) in found.iter().enumerate() {
            assert!(found[..] == key(i) && value[..] == self::value(i, 0, LEN), "key {i}");
        }
        Ok::<_, cairn::Error>(())
    };
    check(keyspace.iter())?;
    check(snapshot.iter(&keyspace))?;
    check(before)?;
    drop(snapshot);
    keyspace.flush()?;
    db.wait_idle()?;
    assert_eq!(db.stats().values.logs, 0, "logs that held the values are deleted");

    // New versions are outside again, and the old ones go with the next compaction. A power cut changes nothing.
    for i in (0..KEYS).step_by(2) {
        keyspace.put(key(i), value(i, 1, LEN))?;
    }
    keyspace.flush()?;
    assert_eq!(outside(&db), (KEYS / 2 * LEN) as u64);
    assert!(scan_until_compacted(&db, &keyspace)? < 20);
    db.sync()?;
    let after = env.crash_clone(Survival::Nothing, 3);
    drop((keyspace, db));
    for env in [env, after] {
        let report = cairn::check_in(env.clone(), "/db", &mut |_| ())?;
        assert!(report.problems.is_empty(), "{:?}", report.problems);
        let (_db, keyspace) = open(&env, 0)?;
        for i in 0..KEYS {
            assert_eq!(keyspace.get(key(i))?.as_deref(), Some(&value(i, 1 - i % 2, LEN)[..]));
        }
    }
    Ok(())
}

#[test]
fn long_values_stay_where_they_are() -> Result<()> {
    // A record of the log has headers beside the value.
    let (_env, db, keyspace) = on_disk(66_000)?;
    assert_eq!(scan_until_compacted(&db, &keyspace)?, usize::MAX);
    assert_eq!(outside(&db), KEYS as u64 * 66_000);
    // Beside short ones, which make a compaction due.
    for i in 0..KEYS {
        keyspace.put([&key(i)[..], b"short"].concat(), value(i, 0, LEN))?;
    }
    keyspace.flush()?;
    assert!(scan_until_compacted(&db, &keyspace)? < 20);
    assert_eq!(outside(&db), KEYS as u64 * 66_000);
    assert_eq!(keyspace.get(key(7))?.as_deref(), Some(&value(7, 0, 66_000)[..]));
    assert_eq!(keyspace.get([&key(7)[..], b"short"].concat())?.as_deref(), Some(&value(7, 0, LEN)[..]));
    Ok(())
}

/// A compaction moves the newest version that it meets of a key: of versions in one run of tables, the newest one.
#[test]
fn old_versions_stay_and_go_with_their_snapshot() -> Result<()> {
    let (_env, db, keyspace) = on_disk(LEN)?;
    let snapshot = db.snapshot();
    for i in 0..KEYS {
        match i % 4 {
            0 => keyspace.delete(key(i))?,
            1 => keyspace.put(key(i), value(i, 1, LEN))?,
            _ => {}
        }
    }
    keyspace.flush()?;
    while scan_until_compacted(&db, &keyspace)? < 20 {}
    // Half of the keys have an old version. It moved if it was merged before the newer one came beside it.
    assert!(outside(&db) <= (KEYS / 2 * LEN) as u64, "{}", outside(&db));
    for i in 0..KEYS {
        assert_eq!(snapshot.get(&keyspace, key(i))?.as_deref(), Some(&value(i, 0, LEN)[..]));
        let newest = (i % 4 > 0).then(|| value(i, usize::from(i % 4 == 1), LEN));
        assert_eq!(keyspace.get(key(i))?.as_deref(), newest.as_deref());
    }
    drop(snapshot);
    keyspace.put(key(0), "")?;
    keyspace.compact()?;
    db.wait_idle()?;
    assert_eq!(outside(&db), 0);
    Ok(())
}

/// The file of the log that has the values, and the offset of the value of key 3.
fn place_of_3(env: &SimEnv) -> (PathBuf, u64) {
    let value = value(3, 0, LEN);
    for path in env.list_files() {
        let bytes = env.read_file(&path);
        if path.extension().is_some_and(|e| e == "log")
            && let Some(at) = bytes.windows(LEN).position(|w| w == value)
        {
            return (path, at as u64);
        }
    }
    panic!("the value is nowhere whole");
}

#[test]
fn a_damaged_value_stays_and_the_others_move() -> Result<()> {
    let (env, db, keyspace) = on_disk(LEN)?;
    let (log, offset) = place_of_3(&env);
    env.flip_bit(&log, offset + 5, 1);
    let before = compactions(&db);
    for _ in 0..20 {
        let mut cursor = keyspace.cursor();
        cursor.seek(key(4))?;
        while cursor.valid() {
            cursor.next()?;
        }
        keyspace.put("write", "")?;
    }
    assert_eq!(compactions(&db), before + 1, "and not again for the one that is left");
    assert_eq!(outside(&db), LEN as u64);
    for i in 0..KEYS {
        match keyspace.get(key(i)) {
            Ok(found) => assert!(i != 3 && found.as_deref() == Some(&value(i, 0, LEN)[..])),
            Err(e) => {
                assert!(i == 3 && e.kind() == ErrorKind::Corruption, "{e}");
                assert!(e.to_string().contains(&*log.to_string_lossy()), "{e}");
            }
        }
    }
    Ok(())
}

#[test]
fn on_a_disk_without_room_the_values_stay() -> Result<()> {
    let (env, db, keyspace) = on_disk(LEN)?;
    env.set_capacity(Some(env.used() + (KEYS * LEN) as u64));
    // The compaction runs without moving them, and is due again after as many scans.
    let jobs = |db: &Database| db.stats().compaction.jobs;
    let before = jobs(&db);
    for _ in 0..3 {
        assert!((4..=5).contains(&scan_until_compacted(&db, &keyspace)?));
        assert_eq!(outside(&db), (KEYS * LEN) as u64);
    }
    assert_eq!(jobs(&db), before + 3);
    env.set_capacity(None);
    assert!(scan_until_compacted(&db, &keyspace)? < 20);
    assert_eq!(outside(&db), 0);
    Ok(())
}

/// Scans, writes, compactions for scans and collections beside each other.
#[test]
fn scans_beside_writes_see_every_value() -> Result<()> {
    let env = SimEnv::new(1);
    // A seek costs as much as 1 MiB here, so that one value that a scan waits for pays for a compaction.
    let (db, keyspace) = open_with(&env, 2, |options| options.seek_cost(1 << 20))?;
    env.set_cached_percent(0);
    // A key always has one of its values, and later reads no older one.
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for version in 0..40 {
                (0..KEYS).try_for_each(|i| keyspace.put(key(i), value(i, version, 600)))?;
                keyspace.flush()?;
            }
            Ok::<_, cairn::Error>(())
        });
        let mut newest = [0; KEYS];
        while !writer.is_finished() || compactions(&db) == 0 {
            for entry in keyspace.iter() {
                let (found, bytes) = entry?;
                let i: usize = std::str::from_utf8(&found[3..]).unwrap().parse().unwrap();
                let version = (newest[i]..40).find(|&version| bytes[..] == value(i, version, 600));
                newest[i] = version.unwrap_or_else(|| panic!("key {i}: an older value or another"));
            }
        }
        writer.join().unwrap()
    })?;
    db.wait_idle()?;
    for i in 0..KEYS {
        assert_eq!(keyspace.get(key(i))?.as_deref(), Some(&value(i, 39, 600)[..]));
    }
    Ok(())
}
