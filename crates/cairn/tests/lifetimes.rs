//! Guarantees of closing: it waits for running calls, nothing uses the directory after it, and every handle that outlives it returns
//! `Closed`. Random programs of handles are in `crates/sim/src/lifetime`.

use cairn::env::{OpInfo, OpKind, Phase, SimEnv, Survival};
use cairn::{Database, Durability, ErrorKind, Keyspace, KeyspaceOptions, Options};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

fn open(sim: &Arc<SimEnv>, threads: usize) -> Database {
    let options = Options::default().background_threads(threads).memory_budget(1 << 20);
    Database::open_in(sim.clone(), "/db", options).unwrap()
}

fn small() -> KeyspaceOptions {
    KeyspaceOptions::default().memtable_bytes(8 << 10)
}

fn fill(keyspace: &Keyspace, keys: std::ops::Range<u32>) {
    keys.into_iter().for_each(|i| keyspace.put(i.to_be_bytes(), [7; 100]).unwrap());
}

fn keys(keyspace: &Keyspace) -> usize {
    keyspace.iter().inspect(|entry| assert!(entry.is_ok(), "{entry:?}")).count()
}

/// Blocks the first operation of a kind on a file with `part` in its name, until it is released or 200 ms have passed. After the timeout,
/// the thread that should release it is itself waiting for this operation.
struct Stop {
    reached: mpsc::Receiver<()>,
    go: Arc<AtomicBool>,
    /// Whether the operation was released, and did not time out.
    was_released: Arc<AtomicBool>,
}

impl Stop {
    fn at(sim: &SimEnv, kind: OpKind, part: &'static str) -> Stop {
        let (reach, reached) = mpsc::channel();
        let (go, was_released) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let stop = Stop { reached, go: go.clone(), was_released: was_released.clone() };
        let first = AtomicBool::new(true);
        sim.set_hook(Some(Box::new(move |op: OpInfo<'_>| {
            let meant =
                op.kind == kind && op.phase == Phase::Before && op.path.to_string_lossy().contains(part);
            // Only calls of the application are blocked: closing joins the threads of the database.
            let meant =
                meant && !std::thread::current().name().is_some_and(|name| name.starts_with("cairn-"));
            if meant && first.swap(false, Ordering::SeqCst) {
                let _ = reach.send(());
                for _ in 0..200 {
                    if go.load(Ordering::SeqCst) {
                        was_released.store(true, Ordering::SeqCst);
                        break;
                    }
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
            None
        })));
        stop
    }
}

/// A call that uses the directory is running when another thread closes the database, or drops its last handle.
fn close_beside(
    threads: usize,
    kind: OpKind,
    part: &'static str,
    call: fn(&Database, &Keyspace) -> cairn::Result<()>,
) {
    let sim = SimEnv::new(1);
    let db = open(&sim, threads);
    let keyspace = db.keyspace("k", small()).unwrap();
    fill(&keyspace, 0..2_000);
    let snapshot = db.snapshot();
    let stop = Stop::at(&sim, kind, part);
    let (beside, in_thread) = (db.clone(), keyspace.clone());
    let thread = std::thread::spawn(move || call(&beside, &in_thread));
    stop.reached.recv_timeout(Duration::from_secs(60)).expect("the call does such an operation");
    db.close().unwrap();
    stop.go.store(true, Ordering::SeqCst);
    let ended = thread.join().unwrap();
    assert!(!stop.was_released.load(Ordering::SeqCst), "closing returned while the call was under way");
    sim.set_hook(None);
    if let Err(e) = ended {
        assert_eq!(e.kind(), ErrorKind::Closed, "{e}");
    }
    let files = sim.list_files();
    let again = open(&sim, threads);
    let reopened = again.open_keyspace("k").unwrap();
    assert_eq!(keys(&reopened), 2_000);
    let after = sim.list_files();
    drop((snapshot, keyspace));
    assert_eq!(sim.list_files(), after, "a late handle changed the directory; closed with {files:?}");
    again.compact().unwrap();
    assert_eq!(keys(&reopened), 2_000);
    again.close().unwrap();
}

#[test]
fn closing_waits_for_a_compaction_of_the_application() {
    // With background threads, the work might be done before the call.
    close_beside(0, OpKind::Create, ".tbl", |_, k| k.compact());
    close_beside(0, OpKind::Sync, ".tbl", |_, k| k.compact_range("\0"..));
    close_beside(0, OpKind::Sync, "manifest", |db, _| db.compact());
}

#[test]
fn closing_waits_for_a_flush_of_the_application() {
    close_beside(0, OpKind::Create, ".tbl", |db, _| db.flush());
    close_beside(0, OpKind::Sync, "manifest", |_, k| k.flush());
    close_beside(0, OpKind::Create, ".tbl", |db, _| db.wait_idle().and_then(|()| db.flush()));
}

#[test]
fn closing_waits_for_a_keyspace_that_is_being_created_or_dropped() {
    for threads in [0, 1] {
        close_beside(threads, OpKind::Sync, "manifest", |db, _| db.create_keyspace("new", small()).map(drop));
        close_beside(threads, OpKind::Sync, "manifest", |db, _| {
            db.create_keyspace("new", small())?;
            db.drop_keyspace("new")
        });
    }
}

/// An acknowledged write is present, however late its call came.
#[test]
fn no_keyspace_is_created_once_closing_has_begun() {
    let sim = SimEnv::new(1);
    let db = open(&sim, 1);
    let keyspace = db.keyspace("k", small()).unwrap();
    fill(&keyspace, 0..10);
    // Closing is blocked while it syncs the log: no call may begin from then on.
    let stop = Stop::at(&sim, OpKind::Sync, "wal");
    let late = db.clone();
    let closing = std::thread::spawn(move || db.close());
    stop.reached.recv().unwrap();
    let mut created = late.create_keyspace("late", small()).map(drop).unwrap_err();
    assert_eq!(created.kind(), ErrorKind::Closed, "{created}");
    created = late.drop_keyspace("k").unwrap_err();
    assert_eq!(created.kind(), ErrorKind::Closed, "{created}");
    stop.go.store(true, Ordering::SeqCst);
    closing.join().unwrap().unwrap();
    assert_eq!(open(&sim, 1).keyspaces(), ["k"]);
}

/// Handles that outlive their database return `Closed`, even if the files that they would read are gone.
#[test]
fn what_outlives_its_database_says_closed() {
    for explicit in [true, false] {
        let sim = SimEnv::new(1);
        let db = open(&sim, 1);
        let keyspace = db.keyspace("k", small()).unwrap();
        fill(&keyspace, 0..2_000);
        db.flush().unwrap();
        let snapshot = db.snapshot();
        let (mut range, mut cursor) = (keyspace.iter(), keyspace.cursor());
        cursor.seek_to_first().unwrap();
        let first = range.next().unwrap().unwrap();
        let mut unused = snapshot.iter(&keyspace);
        let mut back = keyspace.iter();
        back.next_back().unwrap().unwrap();
        let value = cursor.value_slice();
        let late = explicit.then(|| keyspace.clone());
        match explicit {
            true => db.close().unwrap(),
            false => drop(db),
        }
        drop(keyspace);
        // Another opening replaces and removes the files.
        let again = open(&sim, 1);
        fill(&again.open_keyspace("k").unwrap(), 0..2_000);
        again.compact().unwrap();
        let closed = |result: cairn::Result<()>| {
            let error = result.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
        };
        closed(range.next().unwrap().map(drop));
        assert!(range.next().is_none(), "an iterator that has failed ends");
        closed(unused.next().unwrap().map(drop));
        closed(back.next_back().unwrap().map(drop));
        closed(cursor.next());
        closed(cursor.prev());
        closed(cursor.seek("x"));
        closed(cursor.seek_for_prev("x"));
        closed(cursor.seek_to_first());
        closed(cursor.seek_to_last());
        assert!(!cursor.valid());
        if let Some(late) = late {
            closed(late.get("x").map(drop));
            closed(late.multi_get(&["x"]).map(drop));
            closed(snapshot.get(&late, "x").map(drop));
            closed(snapshot.multi_get(&late, &["x"]).map(drop));
            closed(late.iter().next().unwrap().map(drop));
            closed(late.compact());
            closed(late.flush());
        }
        assert_eq!((&first.1[..], &value[..]), (&[7; 100][..], &[7; 100][..]), "what was handed out stays");
        again.close().unwrap();
    }
}

/// A check or a scrub concurrent with closing ends with `Closed`, and reports no damage.
#[test]
fn a_check_ends_when_the_database_is_closed() {
    let sim = SimEnv::new(1);
    let db = open(&sim, 1);
    let keyspace = db.keyspace("k", small()).unwrap();
    fill(&keyspace, 0..2_000);
    db.flush().unwrap();
    let mut handle = Some(db.clone());
    let error = db.check(&mut |_| drop(handle.take().map(Database::close))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
    assert_eq!(db.scrub(0).unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(db.check(&mut |_| {}).unwrap_err().kind(), ErrorKind::Closed);
}

#[test]
fn an_empty_batch_is_a_barrier_of_its_durability() {
    let sim = SimEnv::new(1);
    let db = open(&sim, 0);
    let keyspace = db.keyspace("k", small()).unwrap();
    keyspace.put_with("a", "1", Durability::Buffered).unwrap();
    db.write(db.batch(), Durability::Os).unwrap();
    let found = sim.process_clone();
    assert!(open(&found, 0).open_keyspace("k").unwrap().get("a").unwrap().is_some());
    keyspace.put_with("b", "2", Durability::Buffered).unwrap();
    let mut batch = db.batch();
    batch.delete_range(&keyspace, "z".."z");
    db.write(batch, Durability::Sync).unwrap();
    let found = sim.crash_clone(Survival::Nothing, 1);
    assert!(open(&found, 0).open_keyspace("k").unwrap().get("b").unwrap().is_some());
    keyspace.put_with("c", "3", Durability::Buffered).unwrap();
    db.write(db.batch(), Durability::Buffered).unwrap();
    let found = sim.process_clone();
    assert!(open(&found, 0).open_keyspace("k").unwrap().get("c").unwrap().is_none());
}

/// Dropping a keyspace during a compaction of the whole database is not an error of the compaction, and its work stays counted.
#[test]
fn all_keyspaces_are_compacted_though_one_is_dropped() {
    let sim = SimEnv::new(1);
    let db = open(&sim, 0);
    let spaces = ["a", "b"].map(|name| db.keyspace(name, small()).unwrap());
    spaces.iter().for_each(|space| fill(space, 0..500));
    db.flush().unwrap();
    spaces.iter().for_each(|space| fill(space, 0..500));
    let before = db.stats();
    let stop = Stop::at(&sim, OpKind::Create, ".tbl");
    let beside = db.clone();
    let thread = std::thread::spawn(move || beside.compact());
    stop.reached.recv_timeout(Duration::from_secs(60)).expect("there is something to be compacted");
    db.drop_keyspace("a").unwrap();
    stop.go.store(true, Ordering::SeqCst);
    thread.join().unwrap().unwrap();
    sim.set_hook(None);
    let tables: Vec<usize> = spaces[1].guards().iter().map(|guard| guard.tables.len()).collect();
    assert_eq!(tables[0], 0, "the other keyspace is compacted: {tables:?}");
    let after = db.stats();
    assert!(after.flush.jobs >= before.flush.jobs && after.flush.bytes_written >= before.flush.bytes_written);
    assert!(after.compaction.bytes_written >= before.compaction.bytes_written);
    db.close().unwrap();
}
