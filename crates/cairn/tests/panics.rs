//! A panicking thread (which only a bug can cause) ends writing, with an error that says so: no thread waits forever, reads go on, and
//! every acknowledged write is present at the next opening. Trap 33.

use cairn::env::{OpInfo, OpKind, Phase, SimEnv};
use cairn::{Database, Durability, ErrorKind, Keyspace, KeyspaceOptions, Options};
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);

fn small() -> KeyspaceOptions {
    KeyspaceOptions::default().memtable_bytes(4 << 10).top_level_bits(6).bit_decrement(1).levels(3)
}

fn options(threads: usize) -> Options {
    Options::default().background_threads(threads).memory_budget(1 << 20)
}

fn fresh(threads: usize) -> (Arc<SimEnv>, Database, Keyspace) {
    let sim = SimEnv::new(1);
    let db = Database::open_in(sim.clone(), "/db", options(threads)).unwrap();
    let keyspace = db.create_keyspace("k", small()).unwrap();
    (sim, db, keyspace)
}

/// Panics once, at the first matching operation, in its thread.
fn panic_at(sim: &SimEnv, meant: impl Fn(&OpInfo<'_>) -> bool + Send + Sync + 'static) -> Arc<AtomicBool> {
    let done = Arc::new(AtomicBool::new(false));
    let panicked = done.clone();
    sim.set_hook(Some(Box::new(move |op: OpInfo<'_>| {
        if op.phase == Phase::Before && meant(&op) && !panicked.swap(true, Ordering::SeqCst) {
            panic!("a bug, on purpose");
        }
        None
    })));
    done
}

fn is_table(op: &OpInfo<'_>) -> bool {
    op.path.extension().is_some_and(|end| end == "tbl")
}

fn thread_is(name: &str) -> bool {
    std::thread::current().name().is_some_and(|n| n.starts_with(name))
}

type Work<'a> = Box<dyn FnOnce() -> cairn::Result<()> + Send + 'a>;

/// Runs each call in its own thread. All of them have to end, or to panic.
fn all_end<'a>(what: &str, works: Vec<(&'static str, Work<'a>)>) -> Vec<String> {
    let (ends, ended) = mpsc::channel();
    let names: BTreeSet<&str> = works.iter().map(|(name, _)| *name).collect();
    assert_eq!(names.len(), works.len());
    std::thread::scope(|scope| {
        for (name, work) in works {
            let ends = ends.clone();
            scope.spawn(move || {
                let said = match catch_unwind(AssertUnwindSafe(work)) {
                    Ok(Ok(())) => "done".to_owned(),
                    Ok(Err(e)) => {
                        let right =
                            matches!(e.kind(), ErrorKind::ReadOnly) && e.to_string().contains("panicked");
                        assert!(right || e.kind() == ErrorKind::Closed, "{name}: {e}");
                        format!("{:?}", e.kind())
                    }
                    Err(_) => "panicked".to_owned(),
                };
                ends.send((name, said)).unwrap();
            });
        }
        let mut waiting = names;
        let mut said = Vec::new();
        while !waiting.is_empty() {
            let Ok((name, how)) = ended.recv_timeout(PATIENCE) else {
                eprintln!("{what}: {waiting:?} wait for ever");
                std::process::abort();
            };
            waiting.remove(name);
            said.push(how);
        }
        said
    })
}

fn put_for_ever(keyspace: &Keyspace, durability: Durability) -> cairn::Result<()> {
    for i in 0u32.. {
        keyspace.put_with(format!("{durability}/{i:06}"), [7; 100], durability)?;
    }
    Ok(())
}

/// All kinds of callers that wait for background work, while one of its threads panics.
fn everybody_ends(what: &str, meant: impl Fn(&OpInfo<'_>) -> bool + Send + Sync + 'static) {
    let (sim, db, keyspace) = fresh(2);
    keyspace.put("before", "1").unwrap();
    let panicked = panic_at(&sim, meant);
    let flush = |db: &Database| loop {
        db.flush()?;
    };
    let (flushing, compacting, idle) = (db.clone(), db.clone(), db.clone());
    let said = all_end(
        what,
        vec![
            ("put", Box::new(|| put_for_ever(&keyspace, Durability::Os))),
            ("put buffered", Box::new(|| put_for_ever(&keyspace, Durability::Buffered))),
            ("put sync", Box::new(|| put_for_ever(&keyspace, Durability::Sync))),
            ("flush", Box::new(move || flush(&flushing))),
            (
                "compact",
                Box::new(move || {
                    loop {
                        compacting.compact()?;
                    }
                }),
            ),
            (
                "wait",
                Box::new(move || {
                    loop {
                        idle.wait_idle()?;
                    }
                }),
            ),
        ],
    );
    assert!(panicked.load(Ordering::SeqCst), "{what}: nothing panicked");
    assert_eq!(said.iter().filter(|s| *s == "ReadOnly").count(), 6, "{what}: {said:?}");
    assert_eq!(keyspace.get("before").unwrap().unwrap(), "1");
    assert!(db.stats().background_error.unwrap().contains("panicked"));
    drop(keyspace);
    all_end(what, vec![("close", Box::new(move || db.close()))]);
    sim.set_hook(None);
    let db = Database::open_in(sim, "/db", options(2)).unwrap();
    assert_eq!(db.open_keyspace("k").unwrap().get("before").unwrap().unwrap(), "1");
}

#[test]
fn a_panic_in_a_flush_ends_all_waiting() {
    everybody_ends("create", |op| thread_is("cairn-flush") && is_table(op) && op.kind == OpKind::Create);
    everybody_ends("append", |op| thread_is("cairn-flush") && is_table(op) && op.kind == OpKind::Append);
    everybody_ends("establish", |op| {
        let log = op.path.to_string_lossy().contains("wal-");
        thread_is("cairn-flush") && log && op.kind == OpKind::Sync
    });
    everybody_ends("manifest", |op| {
        thread_is("cairn-flush") && op.path.to_string_lossy().contains("manifest")
    });
}

#[test]
fn a_panic_in_a_compaction_ends_all_waiting() {
    everybody_ends("create", |op| thread_is("cairn-compact") && is_table(op) && op.kind == OpKind::Create);
    everybody_ends("read", |op| thread_is("cairn-compact") && op.kind == OpKind::Read);
    everybody_ends("remove", |op| thread_is("cairn-compact") && op.kind == OpKind::Remove);
}

/// A leader panics while it writes or syncs the log for all threads queued behind it.
#[test]
fn a_leader_that_panics_leaves_no_follower_waiting() {
    for kind in [OpKind::Append, OpKind::Sync] {
        for round in 0..5 {
            let (sim, db, keyspace) = fresh(if round % 2 == 0 { 1 } else { 0 });
            let (count, at) = (AtomicUsize::new(0), 20 + 3 * round);
            let panicked = panic_at(&sim, move |op| {
                // The flush thread syncs the headers of logs.
                let log = op.kind == kind && op.path.to_string_lossy().contains("wal-");
                let log = log && !thread_is("cairn-flush");
                if log {
                    // Gives the other threads time to queue.
                    std::thread::sleep(Duration::from_millis(2));
                }
                log && count.fetch_add(1, Ordering::SeqCst) >= at
            });
            let acknowledged = Mutex::new(Vec::new());
            let names = ["0", "1", "2", "3", "4", "5"];
            let (writing, taken) = (&keyspace, &acknowledged);
            let write = |name: &'static str| -> Work<'_> {
                Box::new(move || {
                    for i in 0.. {
                        let key = format!("{name}/{i:05}");
                        writing.put_with(&key, "v", Durability::Sync)?;
                        taken.lock().unwrap().push(key);
                    }
                    Ok(())
                })
            };
            let said = all_end("leader", names.map(|name| (name, write(name))).into());
            assert!(panicked.load(Ordering::SeqCst));
            let count = |what: &str| said.iter().filter(|s| *s == what).count();
            assert_eq!((count("panicked"), count("ReadOnly")), (1, 5), "{said:?}");
            let error = keyspace.put("later", "1").unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ReadOnly, "{error}");
            drop(keyspace);
            all_end("leader", vec![("close", Box::new(move || db.close()))]);
            sim.set_hook(None);
            let survivor = sim.crash_clone(cairn::env::Survival::Nothing, round as u64);
            let db = Database::open_in(survivor, "/db", options(0)).unwrap();
            let keyspace = db.open_keyspace("k").unwrap();
            for key in acknowledged.into_inner().unwrap() {
                assert!(keyspace.contains(&key).unwrap(), "{key} was acknowledged");
            }
        }
    }
}

/// Without background threads a writer flushes and compacts itself, while it holds the locks that others wait for.
#[test]
fn a_panic_in_a_database_without_threads_ends_all_waiting() {
    type Place = (&'static str, fn(&OpInfo<'_>) -> bool);
    let places: [Place; 4] = [
        ("flush", |op| is_table(op) && op.kind == OpKind::Append),
        ("manifest", |op| op.path.to_string_lossy().contains("manifest") && op.kind == OpKind::Sync),
        ("read", |op| op.kind == OpKind::Read),
        ("switch", |op| op.path.to_string_lossy().contains("wal-") && op.kind == OpKind::Create),
    ];
    for (what, meant) in places {
        let (sim, db, keyspace) = fresh(0);
        panic_at(&sim, meant);
        let (flushing, idle) = (db.clone(), db.clone());
        let said = all_end(
            what,
            vec![
                ("put", Box::new(|| put_for_ever(&keyspace, Durability::Os))),
                ("put sync", Box::new(|| put_for_ever(&keyspace, Durability::Sync))),
                (
                    "flush",
                    Box::new(move || {
                        loop {
                            flushing.flush()?;
                        }
                    }),
                ),
                (
                    "wait",
                    Box::new(move || {
                        loop {
                            idle.wait_idle()?;
                        }
                    }),
                ),
            ],
        );
        assert_eq!(said.iter().filter(|s| *s == "panicked").count(), 1, "{what}: {said:?}");
        drop(keyspace);
        all_end(what, vec![("close", Box::new(move || db.close()))]);
    }
}

/// A thread that unwinds because of a panic of the application may use the database meanwhile.
#[test]
fn a_thread_that_unwinds_because_of_another_panic_may_still_write() {
    struct Note<'a>(&'a Keyspace);
    impl Drop for Note<'_> {
        fn drop(&mut self) {
            self.0.put("note", "written while unwinding").unwrap();
            self.0.flush().unwrap();
        }
    }
    let (_sim, _db, keyspace) = fresh(0);
    let result = catch_unwind(AssertUnwindSafe(|| {
        let _note = Note(&keyspace);
        panic!("the application's own, on purpose");
    }));
    assert!(result.is_err());
    keyspace.put("after", "1").unwrap();
    assert!(keyspace.contains("note").unwrap());
}
