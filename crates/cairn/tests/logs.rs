//! The chain of logs: what was acknowledged as durable cannot vanish from it unseen, whichever of its files is damaged.

use cairn::env::{Fault, OpInfo, OpKind, Phase, SimEnv, Survival, Verdict};
use cairn::{Database, Durability, ErrorKind, Keyspace, KeyspaceOptions, Options};
use std::path::PathBuf;
use std::sync::Arc;

fn open(sim: &Arc<SimEnv>) -> cairn::Result<Database> {
    let options = Options::default().background_threads(0).memory_budget(1 << 20);
    Database::open_in(sim.clone(), "/db", options)
}

/// A database on a disk on which no table can be made: what is written stays in its logs.
fn without_tables() -> (Arc<SimEnv>, Database, Keyspace) {
    let sim = SimEnv::new(1);
    let db = open(&sim).unwrap();
    let keyspace = db.create_keyspace("k", KeyspaceOptions::default().memtable_bytes(8 << 10)).unwrap();
    sim.set_hook(Some(Box::new(|op: OpInfo<'_>| {
        let table = op.kind == OpKind::Create && op.path.extension().is_some_and(|e| e == "tbl");
        if table && op.phase == Phase::Before { Verdict::Fail(Fault::EIO) } else { Verdict::Proceed }
    })));
    (sim, db, keyspace)
}

fn logs(sim: &SimEnv) -> Vec<PathBuf> {
    sim.list_files().into_iter().filter(|path| path.extension().is_some_and(|e| e == "log")).collect()
}

/// Writes until there are so many logs.
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

/// Opening the database finds what was acknowledged, or says that it is damaged.
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
    // Its unsynced end may be gone after a power cut: then there is a prefix.
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
    // The mark behind the last sync, which was not synced, begins 11 bytes before.
    for len in [synced - 12, synced / 2, 40] {
        is_damaged(&cut(len), "the end of the closed log is gone");
    }
}

/// The edit that names a log may fail: then the log before goes on, and nothing is lost.
#[test]
fn a_log_that_cannot_be_named_is_not_begun() {
    for fault in [Fault::ENOSPC, Fault::EIO] {
        let sim = SimEnv::new(1);
        let db = open(&sim).unwrap();
        let keyspace = db.create_keyspace("k", KeyspaceOptions::default().memtable_bytes(8 << 10)).unwrap();
        sim.set_hook(Some(Box::new(move |op: OpInfo<'_>| {
            let manifest = op.kind == OpKind::Append && op.path.to_string_lossy().contains("manifest");
            if manifest && op.phase == Phase::Before { Verdict::Fail(fault) } else { Verdict::Proceed }
        })));
        let mut acknowledged = 0;
        let error = loop {
            match keyspace.put(format!("{acknowledged:05}"), [1; 100]) {
                Ok(()) => acknowledged += 1,
                Err(e) => break e,
            }
        };
        assert!(matches!(error.kind(), ErrorKind::NoSpace | ErrorKind::Io), "{error}");
        assert_eq!(logs(&sim).len(), 1, "the log that has no name is removed");
        sim.set_hook(None);
        (0..100).for_each(|i| keyspace.put(format!("again/{i}"), [1; 100]).unwrap());
        assert!(logs(&sim).len() <= 2);
        let found = open(&sim.process_clone()).unwrap().open_keyspace("k").unwrap();
        for i in 0..acknowledged {
            assert!(found.get(format!("{i:05}")).unwrap().is_some(), "{i} of {acknowledged}");
        }
        assert!(found.get("again/99").unwrap().is_some());
    }
}
