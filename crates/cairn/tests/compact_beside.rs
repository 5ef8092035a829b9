//! `compact` and `flush` with a concurrent writer: they cover what was written before the call, and return.

use cairn::env::{OpKind, Phase, SimEnv};
use cairn::{Database, Keyspace, KeyspaceOptions, Options, Result};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};

/// The writer stops after this many rounds: a `compact` that also waited for newer writes would end only then.
const MAX_ROUNDS: u64 = 60;
const KEYS: u64 = 2_000;

fn key(i: u64) -> [u8; 8] {
    i.to_be_bytes()
}

/// A table in level 0 with every `step`-th key from `from` on.
fn write(keyspace: &Keyspace, from: u64, step: usize) -> Result<()> {
    (from..KEYS).step_by(step).try_for_each(|i| keyspace.put(key(i), [7; 100]))?;
    keyspace.flush()
}

/// Calls `write` in another thread, and waits for it, whenever `run` begins a table: a writer that is faster than any compaction. Returns
/// the number of calls.
fn beside(
    env: &SimEnv,
    write: impl Fn(u64) -> Result<()> + Send + 'static,
    run: impl FnOnce() -> Result<()>,
) -> Result<u64> {
    let rounds = Arc::new(AtomicU64::new(0));
    let (ask, asked) = mpsc::channel::<u64>();
    let (answer, answered) = mpsc::channel();
    let writer = std::thread::spawn(move || {
        asked.iter().for_each(|round| answer.send(write(round)).expect("the other end waits"))
    });
    let (ask, answered) = (Mutex::new(ask), Mutex::new(answered));
    let busy = AtomicBool::new(false);
    let count = rounds.clone();
    env.set_hook(Some(Box::new(move |op| {
        let begins = op.kind == OpKind::Create && op.phase == Phase::Before;
        let is_table = op.path.extension().is_some_and(|extension| extension == "tbl");
        if begins && is_table && !busy.swap(true, Ordering::SeqCst) {
            let round = count.load(Ordering::SeqCst);
            if round < MAX_ROUNDS {
                count.store(round + 1, Ordering::SeqCst);
                ask.lock().unwrap().send(round).expect("the writer lives");
                answered.lock().unwrap().recv().expect("the writer lives").unwrap();
            }
            busy.store(false, Ordering::SeqCst);
        }
        None
    })));
    run()?;
    env.set_hook(None);
    writer.join().expect("it does not panic");
    Ok(rounds.load(Ordering::SeqCst))
}

fn open(env: &Arc<SimEnv>) -> Result<(Database, Keyspace)> {
    let db = Database::open_in(env.clone(), "/db", Options::default().background_threads(0))?;
    // With these options no compaction starts unless it is requested.
    let options = KeyspaceOptions::default().level0_tables(64).max_tables_per_guard(64).seek_cost(0);
    let keyspace = db.keyspace("k", options.tombstone_percent(0).space_target(10.0))?;
    Ok((db, keyspace))
}

#[test]
fn compacting_ends_beside_a_writer_and_rewrites_what_was_there() -> Result<()> {
    let compacts: [fn(&Database, &Keyspace) -> Result<()>; 3] = [
        |_, keyspace| keyspace.compact(),
        |db, _| db.compact(),
        |_, keyspace| keyspace.compact_range(key(0)..key(KEYS)),
    ];
    for compact in compacts {
        let env = SimEnv::new(1);
        let (db, keyspace) = open(&env)?;
        (0..8).try_for_each(|from| write(&keyspace, from, 2))?;
        let owed: u64 = keyspace.guards()[0].tables.iter().map(|t| t.bytes).sum();
        let beside_it = keyspace.clone();
        let rounds = beside(&env, move |round| write(&beside_it, round % 3, 3), || compact(&db, &keyspace))?;
        assert!(rounds > 0, "the writer wrote");
        assert!(rounds < MAX_ROUNDS, "it ended before the writer did");
        let written = db.stats().compaction.bytes_written;
        assert!(written <= 2 * owed, "{written} bytes rewritten for {owed}, beside {rounds} rounds");
        assert_eq!(keyspace.iter().count() as u64, KEYS);
        assert!(db.check(&mut |_| {})?.problems.is_empty());
    }
    Ok(())
}

#[test]
fn flushing_ends_beside_a_writer() -> Result<()> {
    let env = SimEnv::new(1);
    let db = Database::open_in(env.clone(), "/db", Options::default().background_threads(1))?;
    let keyspace = db.keyspace("k", KeyspaceOptions::default().memtable_bytes(64 << 10))?;
    keyspace.put("a", "1")?;
    let beside_it = keyspace.clone();
    // Each round fills a memtable and begins another one, while the previous flush runs.
    let fill =
        move |round: u64| (0..2).try_for_each(|i| beside_it.put(key(2 * round + i), vec![7; 40 << 10]));
    let rounds = beside(&env, fill, || keyspace.flush())?;
    assert!(rounds > 0 && rounds < MAX_ROUNDS, "{rounds} rounds");
    Ok(())
}

#[test]
fn a_compaction_frees_what_a_dropped_snapshot_held_in_the_last_level() {
    let env = SimEnv::new(1);
    let db = Database::open_in(env, "/db", Options::default().background_threads(0)).unwrap();
    let keyspace = db.keyspace("k", KeyspaceOptions::default()).unwrap();
    let entries = || db.stats().keyspaces[0].levels.iter().map(|l| l.entries).sum::<u64>();
    keyspace.put("key", "old").unwrap();
    let snapshot = db.snapshot();
    keyspace.put("key", "new").unwrap();
    keyspace.compact().unwrap();
    assert_eq!(entries(), 2);
    drop(snapshot);
    keyspace.compact().unwrap();
    assert_eq!(entries(), 1);
    let written = db.stats().compaction.bytes_written;
    keyspace.compact().unwrap();
    assert_eq!(db.stats().compaction.bytes_written, written);
    assert_eq!(&*keyspace.get("key").unwrap().unwrap(), b"new");
}
