//! Compactions leave the disk to reads that wait for it, and end all the same.

use cairn::env::{Env, OpKind, Phase, Rng, SimEnv};
use cairn::{Database, KeyspaceOptions, Options, PlacementPolicy, Result};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

/// How long the disk takes for an append to a table.
const APPEND: Duration = Duration::from_millis(1);

#[derive(Clone, Copy, PartialEq)]
enum Beside {
    Nothing,
    /// A get that waits for the disk from the first output table to the end of the compaction.
    Get,
    /// Such a get, and the keyspace is dropped once it waits.
    GetAndDrop,
}

/// The time that `compact` takes.
fn compaction(threads: usize, beside: Beside) -> Result<Duration> {
    let env = SimEnv::new(1);
    let options = Options::default().background_threads(threads).memory_budget(32 << 20);
    let db = Database::open_in(env.clone(), "/db", options)?;
    let keyspace = db.keyspace("k", KeyspaceOptions::default())?;
    let (mut rng, mut value) = (Rng::new(1), [0; 4096]);
    // Two tables of 4 MiB that overlap.
    for _ in 0..2 {
        for i in 0..1024_u32 {
            rng.fill(&mut value);
            keyspace.put(i.to_be_bytes(), value)?;
        }
        keyspace.flush()?;
    }
    env.set_cached_percent(0);
    // Loads what tables need in memory.
    keyspace.get(1_u32.to_be_bytes())?;

    let (begin, begins) = mpsc::channel::<()>();
    let (waits, is_waiting) = mpsc::channel::<()>();
    let (go_on, goes_on) = mpsc::channel::<()>();
    let (of_reader, of_compaction) =
        (Mutex::new(Some((waits, goes_on))), Mutex::new(Some((begin, is_waiting))));
    let (clock, to_drop) = (env.clone(), db.clone());
    env.set_hook(Some(Box::new(move |op| {
        if op.phase != Phase::Before || op.path.extension().is_none_or(|extension| extension != "tbl") {
            return None;
        }
        match op.kind {
            OpKind::Create if beside != Beside::Nothing => {
                if let Some((begin, is_waiting)) = of_compaction.lock().unwrap().take() {
                    begin.send(()).unwrap();
                    is_waiting.recv().unwrap();
                    if beside == Beside::GetAndDrop {
                        let db = to_drop.clone();
                        std::thread::spawn(move || db.drop_keyspace("k")).join().unwrap().unwrap();
                    }
                }
            }
            OpKind::Append => clock.sleep(APPEND),
            OpKind::Read if std::thread::current().name() == Some("reader") => {
                let held = of_reader.lock().unwrap().take();
                if let Some((waits, goes_on)) = held {
                    waits.send(()).unwrap();
                    goes_on.recv().unwrap();
                }
            }
            _ => {}
        }
        None
    })));
    let read = keyspace.clone();
    let reader = std::thread::Builder::new().name("reader".into());
    let reader = reader.spawn(move || match begins.recv() {
        Ok(()) => read.get(500_u32.to_be_bytes()).map(|value| value.is_some()),
        // The hook is gone: nothing shall wait.
        Err(_) => Ok(true),
    });
    let reader = reader.expect("a thread");
    let before = env.monotonic();
    let compacted = keyspace.compact();
    let took = env.monotonic() - before;
    if beside != Beside::GetAndDrop {
        compacted?;
    }
    db.wait_idle()?;
    go_on.send(()).ok();
    env.set_hook(None);
    assert!(reader.join().unwrap()?, "a read that has begun ends with what it read");
    db.close()?;
    Ok(took)
}

#[test]
fn a_compaction_rests_beside_a_read_that_waits_and_ends() -> Result<()> {
    let (alone, beside) = (compaction(1, Beside::Nothing)?, compaction(1, Beside::Get)?);
    assert!(alone >= 8 * APPEND, "{alone:?}");
    assert!(beside > alone * 2 && beside < alone * 4, "{alone:?} alone, {beside:?} beside a read");
    Ok(())
}

#[test]
fn a_compaction_of_a_keyspace_that_is_dropped_does_not_rest_any_more() -> Result<()> {
    let (alone, dropped) = (compaction(1, Beside::Nothing)?, compaction(1, Beside::GetAndDrop)?);
    assert!(dropped < alone * 11 / 10, "{alone:?} alone, {dropped:?} when the keyspace is dropped");
    Ok(())
}

/// A writer waits for it, or the caller of `compact`.
#[test]
fn without_background_threads_a_compaction_does_not_rest() -> Result<()> {
    let (alone, beside) = (compaction(0, Beside::Nothing)?, compaction(0, Beside::Get)?);
    assert!(beside < alone * 11 / 10, "{alone:?} alone, {beside:?} beside a read");
    Ok(())
}

/// The time from the creation of a value file until its collection has ended. `beside`: a get waits for a value meanwhile.
fn collection(beside: bool) -> Result<Duration> {
    let env = SimEnv::new(1);
    let options = Options::default().background_threads(1).memory_budget(32 << 20);
    let db = Database::open_in(env.clone(), "/db", options)?;
    let keyspace = db.keyspace("k", KeyspaceOptions::default().placement(PlacementPolicy::Hybrid))?;
    let (mut rng, mut value) = (Rng::new(1), [0; 4096]);
    let mut put = |i: u32| {
        rng.fill(&mut value);
        keyspace.put(i.to_be_bytes(), value)
    };
    (0..2048).try_for_each(&mut put)?;
    keyspace.flush()?;
    (0..1024).try_for_each(|i| put(2 * i))?;
    keyspace.flush()?;
    env.set_cached_percent(0);
    keyspace.get(1_u32.to_be_bytes())?;

    let (begin, begins) = mpsc::channel::<()>();
    let (waits, is_waiting) = mpsc::channel::<()>();
    let (go_on, goes_on) = mpsc::channel::<()>();
    let of_reader = Mutex::new(Some((waits, goes_on)));
    let of_collection = Mutex::new(Some((begin, is_waiting)));
    let (clock, created) = (env.clone(), Arc::new(Mutex::new(None)));
    let noted = created.clone();
    env.set_hook(Some(Box::new(move |op| {
        let extension = op.path.extension().and_then(|extension| extension.to_str());
        match (op.kind, extension) {
            (OpKind::Create, Some("val")) if op.phase == Phase::Before => {
                if let Some((begin, is_waiting)) = of_collection.lock().unwrap().take() {
                    *noted.lock().unwrap() = Some(clock.monotonic());
                    if beside {
                        begin.send(()).unwrap();
                        is_waiting.recv().unwrap();
                    }
                }
            }
            (OpKind::Append, Some("val")) if op.phase == Phase::Before => clock.sleep(APPEND),
            (OpKind::Read, Some("log")) if std::thread::current().name() == Some("reader") => {
                let held = of_reader.lock().unwrap().take();
                if let Some((waits, goes_on)) = held {
                    waits.send(()).unwrap();
                    goes_on.recv().unwrap();
                }
            }
            _ => {}
        }
        None
    })));
    let read = keyspace.clone();
    let reader = std::thread::Builder::new().name("reader".into());
    let reader = reader.spawn(move || match begins.recv() {
        Ok(()) => read.get(501_u32.to_be_bytes()).map(|value| value.is_some()),
        Err(_) => Ok(true),
    });
    let reader = reader.expect("a thread");
    keyspace.compact()?;
    db.wait_idle()?;
    let took = env.monotonic() - created.lock().unwrap().expect("values are collected");
    assert!(db.stats().values.collections.jobs > 0);
    go_on.send(()).ok();
    env.set_hook(None);
    assert!(reader.join().unwrap()?, "a read that has begun ends with what it read");
    db.close()?;
    Ok(took)
}

#[test]
fn a_collection_rests_beside_a_read_that_waits_for_a_value() -> Result<()> {
    let (alone, beside) = (collection(false)?, collection(true)?);
    assert!(alone >= 8 * APPEND, "{alone:?}");
    assert!(beside > alone * 2 && beside < alone * 5, "{alone:?} alone, {beside:?} beside a read");
    Ok(())
}
