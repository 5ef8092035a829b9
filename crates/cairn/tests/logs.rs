//! The chain of logs: durably acknowledged writes cannot be lost from it undetected, whichever of its files is damaged.

use cairn::env::{Fault, OpInfo, OpKind, Phase, SimEnv, Survival};
use cairn::{Database, Durability, ErrorKind, Keyspace, KeyspaceOptions, Options, SalvageReport};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread::ThreadId;

fn open(sim: &Arc<SimEnv>) -> cairn::Result<Database> {
    let options = Options::default().background_threads(0).memory_budget(1 << 20);
    Database::open_in(sim.clone(), "/db", options)
}

/// A database on a disk on which no table can be created: all writes stay in its logs.
fn without_tables() -> (Arc<SimEnv>, Database, Keyspace) {
    let sim = SimEnv::new(1);
    let db = open(&sim).unwrap();
    let keyspace = db.create_keyspace("k", KeyspaceOptions::default().memtable_bytes(8 << 10)).unwrap();
    sim.set_hook(Some(Box::new(|op: OpInfo<'_>| {
        let table = op.kind == OpKind::Create && op.path.extension().is_some_and(|e| e == "tbl");
        if table && op.phase == Phase::Before { Some(Fault::EIO) } else { None }
    })));
    (sim, db, keyspace)
}

fn logs(sim: &SimEnv) -> Vec<PathBuf> {
    sim.list_files().into_iter().filter(|path| path.extension().is_some_and(|e| e == "log")).collect()
}

/// Writes until there are `count` logs.
fn fill_until(sim: &SimEnv, keyspace: &Keyspace, count: usize) {
    for i in 0..1_000u32 {
        if logs(sim).len() == count {
            return;
        }
        keyspace.put(format!("filler/{i}"), [1; 100]).unwrap();
    }
    panic!("the log was not switched");
}

fn put_synced(keyspace: &Keyspace, from: u32) {
    (from..from + 10).for_each(|i| keyspace.put_with(i.to_be_bytes(), "synced", Durability::Sync).unwrap());
}

fn salvage(sim: &Arc<SimEnv>) -> SalvageReport {
    let options = Options::default().background_threads(0);
    cairn::salvage_in(sim.process_clone(), "/db", "/new", options).unwrap()
}

/// Opening the database finds every acknowledged write, or reports damage.
fn is_damaged(sim: &Arc<SimEnv>, what: &str) {
    let error = open(sim).map(drop).expect_err(what);
    assert_eq!(error.kind(), ErrorKind::Corruption, "{what}: {error}");
    let report = cairn::check_in(sim.clone(), "/db", &mut |_| {}).unwrap();
    assert!(!report.problems.is_empty(), "{what}: check finds nothing");
}

#[test]
fn the_newest_log_cannot_vanish_unseen() {
    let (sim, _db, keyspace) = without_tables();
    for count in [2, 3] {
        fill_until(&sim, &keyspace, count);
        put_synced(&keyspace, 10 * count as u32);
        let newest = logs(&sim).pop().unwrap();
        for survival in [Survival::Everything, Survival::Nothing] {
            let clone = || sim.crash_clone(survival, 1);
            let whole = open(&clone()).unwrap().open_keyspace("k").unwrap();
            assert!(whole.get((10 * count as u32 + 9).to_be_bytes()).unwrap().is_some());
            let removed = clone();
            removed.remove_file(&newest);
            is_damaged(&removed, "the newest log is gone");
            let emptied = clone();
            emptied.write_file(&newest, []);
            is_damaged(&emptied, "the newest log is empty");
        }
    }
}

#[test]
fn the_synced_end_of_a_closed_log_cannot_vanish_unseen() {
    let (sim, _db, keyspace) = without_tables();
    put_synced(&keyspace, 0);
    let first = logs(&sim).pop().unwrap();
    let synced = sim.read_file(&first).len();
    fill_until(&sim, &keyspace, 2);
    let whole = sim.crash_clone(Survival::Everything, 1);
    assert!(open(&whole).unwrap().open_keyspace("k").unwrap().get(9u32.to_be_bytes()).unwrap().is_some());
    // The unsynced end of the newest log may be lost in a power cut: a prefix is found.
    let cut = |len: usize| {
        let sim = sim.crash_clone(Survival::Everything, 1);
        let bytes = sim.read_file(&first);
        sim.write_file(&first, &bytes[..len]);
        sim
    };
    for len in [synced, synced + 50] {
        let shorter = cut(len);
        let db = open(&shorter).unwrap();
        assert!(db.open_keyspace("k").unwrap().get(9u32.to_be_bytes()).unwrap().is_some());
    }
    // The mark after the last sync is not synced itself. It has 11 bytes.
    for len in [synced - 12, synced / 2, 40] {
        is_damaged(&cut(len), "the end of the closed log is gone");
    }
}

/// Establishing a log may fail: the log is then still in use, no other log follows it, and no write in it is acknowledged as durable.
#[test]
fn a_log_that_cannot_be_named_goes_on_and_none_follows_it() {
    for fault in [Fault::ENOSPC, Fault::EIO] {
        let sim = SimEnv::new(1);
        let db = open(&sim).unwrap();
        let keyspace = db.create_keyspace("k", KeyspaceOptions::default().memtable_bytes(8 << 10)).unwrap();
        sim.set_hook(Some(Box::new(move |op: OpInfo<'_>| {
            let manifest = op.kind == OpKind::Append && op.path.to_string_lossy().contains("manifest");
            if manifest && op.phase == Phase::Before { Some(fault) } else { None }
        })));
        let mut acknowledged = 0;
        while logs(&sim).len() < 2 {
            keyspace.put(format!("{acknowledged:05}"), [1; 100]).unwrap();
            acknowledged += 1;
        }
        let passes = |e: &cairn::Error| matches!(e.kind(), ErrorKind::NoSpace | ErrorKind::Io);
        let refused = keyspace.put_with("synced", "", Durability::Sync).unwrap_err();
        assert!(passes(&refused), "{refused}");
        let error = loop {
            match keyspace.put(format!("{acknowledged:05}"), [1; 100]) {
                Ok(()) => acknowledged += 1,
                Err(e) => break e,
            }
        };
        assert!(passes(&error), "{error}");
        assert_eq!(logs(&sim).len(), 2);
        sim.set_hook(None);
        (0..100).for_each(|i| keyspace.put(format!("again/{i}"), [1; 100]).unwrap());
        let found = open(&sim.process_clone()).unwrap().open_keyspace("k").unwrap();
        for i in 0..acknowledged {
            assert!(found.get(format!("{i:05}")).unwrap().is_some(), "{i} of {acknowledged}");
        }
        assert!(found.get("again/99").unwrap().is_some() && found.get("synced").unwrap().is_none());
    }
}

/// Successful syncs: the thread, and the file.
type Syncs = Arc<Mutex<Vec<(ThreadId, PathBuf)>>>;

/// Records every successful sync from now on.
fn note_syncs(sim: &SimEnv) -> Syncs {
    let syncs = Syncs::default();
    let noted = syncs.clone();
    sim.set_hook(Some(Box::new(move |op: OpInfo<'_>| {
        if matches!(op.kind, OpKind::Sync | OpKind::SyncDir) && op.phase == (Phase::After { ok: true }) {
            noted.lock().unwrap().push((std::thread::current().id(), op.path.to_owned()));
        }
        None
    })));
    syncs
}

/// With a flush thread, a switch makes no sync in the thread of a writer that demands none.
#[test]
fn a_switch_syncs_nothing_in_the_thread_of_the_writer() {
    let sim = SimEnv::new(1);
    let options = Options::default().background_threads(1).memory_budget(1 << 20);
    let db = Database::open_in(sim.clone(), "/db", options).unwrap();
    let keyspace = db.create_keyspace("k", KeyspaceOptions::default().memtable_bytes(8 << 10)).unwrap();
    let syncs = note_syncs(&sim);
    for round in 0..10 {
        // The newest log is established, and all of its content is synced.
        db.sync().unwrap();
        let newest = logs(&sim).pop();
        syncs.lock().unwrap().clear();
        for i in 0..1_000u32 {
            keyspace.put_with(format!("{round}/{i}"), [1; 100], Durability::Os).unwrap();
            if logs(&sim).pop() != newest {
                break;
            }
        }
        assert_ne!(logs(&sim).pop(), newest, "the log was not switched");
        let own = std::thread::current().id();
        let paid: Vec<_> =
            syncs.lock().unwrap().iter().filter(|(thread, _)| *thread == own).cloned().collect();
        assert!(paid.is_empty(), "{paid:?}");
    }
}

/// A synced write right after a switch is acknowledged only when the loss of the log would be detected: header, directory and manifest
/// are synced.
#[test]
fn a_synced_write_after_a_switch_waits_until_its_log_is_established() {
    for threads in [0, 1] {
        let sim = SimEnv::new(1);
        let options = Options::default().background_threads(threads).memory_budget(1 << 20);
        let db = Database::open_in(sim.clone(), "/db", options).unwrap();
        let keyspace = db.create_keyspace("k", KeyspaceOptions::default().memtable_bytes(8 << 10)).unwrap();
        let syncs = note_syncs(&sim);
        for round in 0..5u32 {
            syncs.lock().unwrap().clear();
            let before = logs(&sim).pop();
            (0..)
                .map(|i: u32| keyspace.put(format!("{i}"), [1; 100]).unwrap())
                .find(|()| logs(&sim).pop() != before);
            keyspace.put_with(round.to_be_bytes(), "synced", Durability::Sync).unwrap();
            let newest = logs(&sim).pop().unwrap();
            for file in ["/db", "manifest", newest.to_str().unwrap()] {
                let syncs = syncs.lock().unwrap();
                assert!(
                    syncs.iter().any(|(_, path)| path.to_str().unwrap().contains(file)),
                    "{file}: {syncs:?}"
                );
            }
            for survival in [Survival::Everything, Survival::Nothing] {
                let clone = || sim.crash_clone(survival, 1);
                let whole = open(&clone()).unwrap().open_keyspace("k").unwrap();
                assert!(whole.get(round.to_be_bytes()).unwrap().is_some(), "{threads} threads, {survival:?}");
                let removed = clone();
                removed.remove_file(&newest);
                is_damaged(&removed, "the newest log is gone");
                let emptied = clone();
                emptied.write_file(&newest, []);
                is_damaged(&emptied, "the newest log is empty");
            }
        }
    }
}

/// A power cut may lose the newest log, or its header, until the log is established; afterwards that is damage.
#[test]
fn the_newest_log_may_be_lost_until_it_is_established() {
    let (sim, db, keyspace) = without_tables();
    put_synced(&keyspace, 0);
    fill_until(&sim, &keyspace, 3);
    let fillers = logs(&sim);
    let (older, newest) = (&fillers[1], &fillers[2]);
    let header = &sim.read_file(newest)[..30];
    let wounds: [(&str, Option<Vec<u8>>); 6] = [
        ("gone", None),
        ("empty", Some(Vec::new())),
        ("with a torn header", Some(header[..20].to_vec())),
        ("with zeros for a header", Some([&[0; 64], &sim.read_file(newest)[64..]].concat())),
        ("with the header of an older log", Some(sim.read_file(older))),
        (
            "with half of the header of an older log",
            Some([&header[..20], &sim.read_file(older)[20..]].concat()),
        ),
    ];
    for established in [false, true] {
        for (what, content) in &wounds {
            let wounded = sim.crash_clone(Survival::Everything, 1);
            match content {
                None => wounded.remove_file(newest),
                Some(bytes) => wounded.write_file(newest, bytes.clone()),
            }
            if established {
                is_damaged(&wounded, what);
                continue;
            }
            let report = cairn::check_in(wounded.clone(), "/db", &mut |_| {}).unwrap();
            assert!(report.problems.is_empty(), "{what}: {:?}", report.problems);
            let losses = salvage(&wounded).losses;
            assert!(losses.is_empty(), "{what}: {losses:?}");
            for _ in 0..2 {
                let found = open(&wounded).unwrap().open_keyspace("k").unwrap();
                assert!(found.get(9u32.to_be_bytes()).unwrap().is_some(), "{what}");
                let fillers = found.iter().count() - 10;
                assert!(fillers > 0 && found.get(format!("filler/{fillers}")).unwrap().is_none(), "{what}");
                assert!(fillers < keyspace.iter().count() - 10, "{what}: nothing was lost");
            }
        }
        if !established {
            // With damage elsewhere, the lost header is not reported as a loss either.
            let wounded = sim.crash_clone(Survival::Everything, 1);
            wounded.write_file(newest, sim.read_file(older));
            wounded.flip_bit(&fillers[0], 60, 1);
            let losses = salvage(&wounded).losses;
            assert!(
                !losses.is_empty() && losses.iter().all(|loss| fillers[0].ends_with(&loss.file)),
                "{losses:?}"
            );
        }
        db.sync().unwrap();
    }
}

/// A full disk on which the manifest cannot name the newest log: closing reports it, and has synced the writes all the same.
#[test]
fn closing_syncs_a_log_that_it_cannot_establish() {
    let (sim, db, keyspace) = without_tables();
    fill_until(&sim, &keyspace, 3);
    keyspace.put("last", "1").unwrap();
    sim.set_hook(Some(Box::new(|op: OpInfo<'_>| {
        let manifest = op.path.to_string_lossy().contains("manifest") && op.kind == OpKind::Append;
        if manifest && op.phase == Phase::Before { Some(Fault::ENOSPC) } else { None }
    })));
    assert_eq!(db.close().unwrap_err().kind(), ErrorKind::NoSpace);
    let found = open(&sim.crash_clone(Survival::Nothing, 1)).unwrap().open_keyspace("k").unwrap();
    assert!(found.get("last").unwrap().is_some());
}
