//! The promises of `docs/recovery.md` about failing disks and damaged files, one per test. Crashes are in `crates/sim`.

use cairn::env::{Env, Fault, OpInfo, OpKind, Phase, Repeat, SimEnv, Survival};
use cairn::{Database, Durability, ErrorKind, Keyspace, KeyspaceOptions, Options};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

fn options() -> Options {
    Options::default().background_threads(0).memory_budget(1 << 20)
}

/// Small memtables: a few hundred writes cause flushes, compactions and switches of the log.
fn small() -> KeyspaceOptions {
    KeyspaceOptions::default().memtable_bytes(8 << 10).top_level_bits(6).bit_decrement(1).levels(3)
}

fn open(sim: &Arc<SimEnv>) -> cairn::Result<Database> {
    Database::open_in(sim.clone(), "/db", options())
}

fn fresh(seed: u64) -> (Arc<SimEnv>, Database, Keyspace) {
    let sim = SimEnv::new(seed);
    let db = open(&sim).unwrap();
    let keyspace = db.create_keyspace("k", small()).unwrap();
    (sim, db, keyspace)
}

/// The files of the database with `part` in their names.
fn files(sim: &SimEnv, part: &str) -> Vec<PathBuf> {
    sim.list_files().into_iter().filter(|path| path.to_string_lossy().contains(part)).collect()
}

fn key(i: u32) -> String {
    format!("key/{:05}", i.wrapping_mul(2_654_435_761) % 100_000)
}

/// A hundred bytes that do not compress.
fn value(i: u32) -> Vec<u8> {
    let mix = |n: u32| (n ^ n >> 15).wrapping_mul(0x2c1b_3c6d).rotate_right(12).wrapping_mul(0x297a_2d39);
    (0..25).flat_map(|n| mix(i * 25 + n + 1).to_le_bytes()).collect()
}

/// From now on, every operation of this kind fails on files with `part` in their names.
fn fail(sim: &SimEnv, kind: OpKind, part: &'static str, fault: Fault) {
    sim.set_hook(Some(Box::new(move |op: OpInfo<'_>| {
        let meant = op.kind == kind && op.path.to_string_lossy().contains(part);
        match (meant, op.phase) {
            (true, Phase::Before) => Some(fault),
            _ => None,
        }
    })));
}

#[test]
fn a_failed_sync_ends_writing_for_good() {
    let (sim, db, keyspace) = fresh(1);
    keyspace.put("before", "1").unwrap();
    fail(&sim, OpKind::Sync, "", Fault::EIO);
    let error = keyspace.put_with("during", "2", Durability::Sync).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ReadOnly, "{error}");
    sim.set_hook(None);
    for result in
        [keyspace.put("after", "3"), db.sync(), keyspace.flush(), db.write(db.batch(), Durability::Os)]
    {
        let error = result.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ReadOnly, "{error}");
        assert!(error.to_string().contains("wal-000001.log"), "{error}");
    }
    assert_eq!(keyspace.get("before").unwrap().unwrap(), "1");
    assert!(keyspace.get("during").unwrap().is_none());
    assert_eq!(db.close().unwrap_err().kind(), ErrorKind::ReadOnly);
    drop(keyspace);
    assert!(open(&sim).unwrap().open_keyspace("k").unwrap().put("again", "4").is_ok());
}

/// The disk fills up at each of many points of a history: acknowledged writes are present, and writes work again when there is space.
#[test]
fn a_full_disk_is_an_error_and_passes() {
    for room in (0..60_000).step_by(997) {
        let (sim, db, keyspace) = fresh(room);
        sim.set_capacity(Some(sim.used() + room));
        let mut acknowledged = Vec::new();
        let mut refused = 0;
        for i in 0..600 {
            match keyspace.put(key(i), value(i)) {
                Ok(()) => acknowledged.push(key(i)),
                Err(e) => {
                    assert_eq!(e.kind(), ErrorKind::NoSpace, "{e}");
                    refused += 1;
                }
            }
            if refused > 20 {
                break;
            }
        }
        assert!(refused > 0, "room for {room} bytes was enough for all");
        let all_there = |keyspace: &Keyspace| {
            for key in &acknowledged {
                assert!(keyspace.contains(key).unwrap(), "{key} is missing, room {room}");
            }
        };
        all_there(&keyspace);
        sim.set_capacity(None);
        keyspace.put("afterwards", "1").unwrap();
        // The log contains the acknowledged writes and no refused one.
        let replayed = open(&sim.process_clone()).unwrap().open_keyspace("k").unwrap();
        assert_eq!(replayed.iter().count(), acknowledged.len() + 1, "room {room}, replayed");
        db.flush().unwrap();
        db.wait_idle().unwrap();
        all_there(&keyspace);
        assert_eq!(keyspace.iter().count(), acknowledged.len() + 1, "room {room}");
        assert!(db.check(&mut |_| ()).unwrap().problems.is_empty());
        db.close().unwrap();
        drop(keyspace);
        let keyspace = open(&sim).unwrap().open_keyspace("k").unwrap();
        all_there(&keyspace);
        assert_eq!(keyspace.iter().count(), acknowledged.len() + 1, "room {room}");
    }
}

#[test]
fn the_number_of_a_failed_write_is_not_used_again() {
    let (sim, db, keyspace) = fresh(1);
    keyspace.put("a", "1").unwrap();
    let before = db.stats().last_seq;
    sim.fail_op(sim.op_count(), Fault::ENOSPC, Repeat::Once);
    keyspace.put("b", "2").unwrap_err();
    keyspace.put("c", "3").unwrap();
    assert_eq!(db.stats().last_seq, before + 2);
    assert!(!keyspace.contains("b").unwrap());
}

#[test]
fn closing_tells_what_went_wrong_in_the_background() {
    let (sim, db, keyspace) = fresh(1);
    keyspace.put("a", "1").unwrap();
    fail(&sim, OpKind::Create, ".tbl", Fault::EIO);
    keyspace.flush().unwrap_err();
    assert_eq!(db.close().unwrap_err().kind(), ErrorKind::Io);
}

/// A database with tables and a log, closed.
fn closed() -> Arc<SimEnv> {
    let (sim, db, keyspace) = fresh(7);
    for i in 0..300 {
        keyspace.put(key(i), [b'v'; 50]).unwrap();
    }
    db.close().unwrap();
    sim
}

#[test]
fn nothing_is_created_over_a_database_without_its_manifest() {
    let sim = closed();
    let before: Vec<_> = sim.list_files();
    for manifest in files(&sim, "manifest") {
        sim.remove(&manifest).unwrap();
    }
    let error = open(&sim).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
    assert!(error.to_string().contains("the manifest is missing"), "{error}");
    assert_eq!(sim.list_files().len(), before.len() - 1);
}

#[test]
fn a_missing_log_is_damage() {
    let sim = closed();
    for log in files(&sim, "wal") {
        sim.remove(&log).unwrap();
    }
    let error = open(&sim).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
    assert!(error.to_string().contains("wal-"), "{error}");
}

/// The manifest records that the newest log is durable and, after closing, its length. So a lost end is not mistaken for a torn tail.
#[test]
fn a_log_that_was_closed_cannot_lose_its_end() {
    let sim = closed();
    let log = files(&sim, "wal").pop().unwrap();
    // Without the mark after the newest group, which is never synced.
    for len in 0..sim.read_file(&log).len() as u64 - 11 {
        let cut = sim.process_clone();
        cut.truncate_file(&log, len);
        let error = open(&cut).unwrap_err();
        assert!(
            error.kind() == ErrorKind::Corruption && error.to_string().contains("wal-"),
            "{len}: {error}"
        );
        let report = cairn::check_in(cut, PathBuf::from("/db"), &mut |_| {});
        assert!(!report.is_ok_and(|report| report.problems.is_empty()), "check misses the cut at {len}");
    }
}

/// Without closing, too, the newest log must have its header.
#[test]
fn a_log_that_the_manifest_knows_cannot_be_empty() {
    let (sim, _db, keyspace) = fresh(5);
    keyspace.put_with("a", "1", Durability::Sync).unwrap();
    let killed = sim.process_clone();
    killed.truncate_file(files(&killed, "wal").pop().unwrap(), 0);
    let error = open(&killed).unwrap_err();
    assert!(error.kind() == ErrorKind::Corruption && error.to_string().contains("wal-"), "{error}");
}

/// When a table is missing, the manifest may have lost the edit that replaced it, and a table without a name may be the only copy.
#[test]
fn unnamed_tables_stay_while_a_named_one_is_missing() {
    let (sim, db, keyspace) = fresh(6);
    for round in 0..2 {
        (0..50).for_each(|i| keyspace.put(key(i), value(i + round)).unwrap());
        keyspace.flush().unwrap();
    }
    drop(keyspace);
    db.close().unwrap();
    let manifest = files(&sim, "manifest").pop().unwrap();
    let tables = files(&sim, ".tbl");
    let unnamed = tables[0].with_file_name("000900.tbl");
    sim.write_file(&unnamed, sim.read_file(&tables[0]));
    sim.remove(&tables[1]).unwrap();
    drop(open(&sim).unwrap());
    let left = sim.list_files();
    assert!(left.contains(&unnamed) && left.contains(&manifest), "{left:?}");
}

/// One bit is flipped in each byte of the log and the manifest of a synced database: the answer is right, or an error that names the file.
#[test]
fn a_flipped_bit_is_never_a_wrong_answer() {
    let (sim, db, keyspace) = fresh(3);
    keyspace.put_with("first", "1", Durability::Sync).unwrap();
    keyspace.put_with("second", "2", Durability::Sync).unwrap();
    drop(keyspace);
    db.close().unwrap();
    for file in [files(&sim, "wal"), files(&sim, "manifest")].concat() {
        // The last eleven bytes are the mark after the newest group. Only the proof of its sync is lost with them.
        let len = sim.read_file(&file).len() as u64;
        for offset in 0..len {
            let damaged = sim.process_clone();
            damaged.flip_bit(&file, offset, (offset % 8) as u32);
            match open(&damaged) {
                Ok(db) => {
                    let keyspace = db.open_keyspace("k").unwrap();
                    let entries = keyspace.iter().map(|e| e.unwrap().1.to_vec()).collect::<Vec<_>>();
                    assert_eq!(entries, [b"1", b"2"], "{}, offset {offset}", file.display());
                    assert!(offset >= len - 11, "{}, offset {offset}: not noticed", file.display());
                }
                Err(e) => {
                    let named = e.to_string().contains(&*file.file_name().unwrap().to_string_lossy());
                    assert!(named, "{e}");
                }
            }
        }
    }
}

/// The manifest has lost its end, so that the log contains a keyspace that the manifest does not have.
#[test]
fn check_finds_a_log_of_a_keyspace_that_was_never_created() {
    let (sim, db, _keyspace) = fresh(9);
    let manifest = files(&sim, "manifest-").remove(0);
    let before = sim.read_file(&manifest).len() as u64;
    let late = db.create_keyspace("late", small()).unwrap();
    late.put_with("key", "value", Durability::Sync).unwrap();
    db.close().unwrap();
    sim.truncate_file(&manifest, before);
    let report = cairn::check_in(sim.clone(), "/db", &mut |_| ()).unwrap();
    assert!(report.problems.iter().any(|p| p.what.contains("was never created")), "{:?}", report.problems);
    assert_eq!(open(&sim).unwrap_err().kind(), ErrorKind::Corruption);
}

#[test]
fn a_table_that_is_gone_is_an_error_of_the_read() {
    let sim = closed();
    let db = open(&sim).unwrap();
    db.flush().unwrap();
    let keyspace = db.open_keyspace("k").unwrap();
    db.close().unwrap();
    drop(keyspace);
    for table in files(&sim, ".tbl") {
        sim.remove(&table).unwrap();
    }
    let db = open(&sim).unwrap();
    let keyspace = db.open_keyspace("k").unwrap();
    let error = keyspace.get(key(0)).unwrap_err();
    assert!(error.to_string().contains(".tbl"), "{error}");
    let mut entries = keyspace.iter();
    assert!(entries.next().unwrap().is_err());
    assert!(entries.next().is_none(), "an error is yielded once");
}

#[test]
fn a_batch_stays_whole_when_one_of_its_keyspaces_is_flushed() {
    for seed in 0..20 {
        let (sim, db, a) = fresh(seed);
        let b = db.create_keyspace("b", small()).unwrap();
        let mut batch = db.batch();
        batch.put(&a, "k", "1");
        batch.put(&b, "k", "1");
        db.write(batch, Durability::Os).unwrap();
        a.flush().unwrap();
        let db = open(&sim.crash_clone(Survival::Nothing, seed)).unwrap();
        let there = ["k", "b"].map(|name| db.open_keyspace(name).unwrap().contains("k").unwrap());
        assert_eq!(there[0], there[1], "half of the batch is there");
    }
}

/// Threads that wait for one leader share the outcome of its sync.
#[test]
fn a_failed_sync_fails_the_whole_group() {
    let sim = SimEnv::new(1);
    let db = Database::open_in(sim.clone(), "/db", Options::default()).unwrap();
    let keyspace = db.create_keyspace("k", small()).unwrap();
    sim.set_hook(Some(Box::new(|op: OpInfo<'_>| match (op.kind, op.phase) {
        (OpKind::Sync, Phase::Before) => {
            // Gives the other threads time to queue.
            std::thread::sleep(Duration::from_millis(50));
            Some(Fault::EIO)
        }
        _ => None,
    })));
    std::thread::scope(|scope| {
        for i in 0..8 {
            let keyspace = &keyspace;
            scope.spawn(move || {
                let error = keyspace.put_with(key(i), "v", Durability::Sync).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::ReadOnly, "{error}");
            });
        }
    });
    assert_eq!(keyspace.iter().count(), 0);
}

#[test]
fn a_panic_in_the_background_stops_writing_and_no_thread_hangs() {
    let sim = SimEnv::new(1);
    let db = Database::open_in(sim.clone(), "/db", Options::default()).unwrap();
    let keyspace = db.create_keyspace("k", small()).unwrap();
    keyspace.put("a", "1").unwrap();
    sim.set_hook(Some(Box::new(|op: OpInfo<'_>| match op.path.extension() {
        Some(end) if end == "tbl" => panic!("a bug, on purpose"),
        _ => None,
    })));
    assert_eq!(keyspace.flush().unwrap_err().kind(), ErrorKind::ReadOnly);
    assert_eq!(keyspace.put("b", "2").unwrap_err().kind(), ErrorKind::ReadOnly);
    assert_eq!(keyspace.get("a").unwrap().unwrap(), "1");
    assert_eq!(db.close().unwrap_err().kind(), ErrorKind::ReadOnly);
}

#[test]
fn closing_during_writes_keeps_what_was_acknowledged() {
    for round in 0..20 {
        let sim = SimEnv::new(round);
        let db = Database::open_in(sim.clone(), "/db", Options::default()).unwrap();
        let keyspace = db.create_keyspace("k", small()).unwrap();
        let acknowledged: u32 = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..3)
                .map(|t| {
                    let keyspace = &keyspace;
                    scope.spawn(move || {
                        for i in 0.. {
                            if let Err(e) =
                                keyspace.put_with(format!("{t}/{i:06}"), "v", Durability::Buffered)
                            {
                                assert_eq!(e.kind(), ErrorKind::Closed, "{e}");
                                return i;
                            }
                        }
                        unreachable!("closing ends it")
                    })
                })
                .collect();
            std::thread::sleep(Duration::from_millis(round));
            db.close().unwrap();
            threads.into_iter().map(|t| t.join().unwrap()).sum()
        });
        // Closing syncs the log, so a power cut loses nothing.
        let db = open(&sim.crash_clone(Survival::Nothing, round)).unwrap();
        assert_eq!(db.open_keyspace("k").unwrap().iter().count(), acknowledged as usize);
    }
}

/// Found by the fuzz target `damage`: the next file number overflowed.
#[test]
fn files_with_numbers_that_no_database_reaches_are_refused() {
    for name in
        ["18446744073709551615.tbl", "manifest-18446744073709551615.tmp", "wal-18446744073709551615.log"]
    {
        let (sim, db, keyspace) = fresh(1);
        keyspace.put("k", "v").unwrap();
        db.close().unwrap();
        let path = PathBuf::from("/db").join(name);
        sim.write_file(&path, *b"anything");
        assert_eq!(open(&sim).unwrap_err().kind(), ErrorKind::Corruption, "{name}");
        // Opening changed nothing: without the stray file it succeeds.
        sim.remove(&path).unwrap();
        let keyspace = open(&sim).unwrap().open_keyspace("k").unwrap();
        assert_eq!(keyspace.get("k").unwrap().unwrap(), "v");
    }
}
