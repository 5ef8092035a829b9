//! `write_async` and `try_get`: with a runtime of two threads, without one, beside closing, failures, panics and dropped futures.

use cairn::env::{Fault, OpInfo, OpKind, Phase, SimEnv, Survival};
use cairn::{
    Batch, Database, Durability, ErrorKind, Keyspace, KeyspaceOptions, Options, Preset, Retention, Time,
    WriteFuture,
};
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// Waits for a future in this thread.
fn wait<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let waited = runtime.block_on(async { tokio::time::timeout(PATIENCE, future).await });
    waited.expect("the task is woken")
}

fn put(keyspace: &Keyspace, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Batch {
    let mut batch = Batch::default();
    batch.put(keyspace, key, value);
    batch
}

fn open(sim: &Arc<SimEnv>, threads: usize) -> (Database, Keyspace) {
    let options = Options::default().background_threads(threads);
    let db = Database::open_in(sim.clone(), "/db", options).unwrap();
    let keyspace = db.keyspace("k", KeyspaceOptions::default()).unwrap();
    (db, keyspace)
}

/// Holds the sync of the log until it is released, and counts those that have begun.
struct HeldSync {
    begun: Arc<AtomicUsize>,
    release: mpsc::Sender<()>,
}

fn hold_syncs(sim: &SimEnv) -> HeldSync {
    let (release, released) = mpsc::channel();
    let (begun, released) = (Arc::new(AtomicUsize::new(0)), Mutex::new(released));
    let counter = begun.clone();
    sim.set_hook(Some(Box::new(move |op: OpInfo<'_>| {
        let is_log = op.path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("wal-"));
        if op.kind == OpKind::Sync && op.phase == Phase::Before && is_log {
            counter.fetch_add(1, Ordering::SeqCst);
            // Without the sender all go on.
            let _ = released.lock().unwrap().recv_timeout(PATIENCE);
        }
        None
    })));
    HeldSync { begun, release }
}

impl HeldSync {
    fn await_sync(&self, n: usize) {
        let begun = std::time::Instant::now();
        while self.begun.load(Ordering::SeqCst) < n {
            assert!(begun.elapsed() < PATIENCE);
            std::thread::yield_now();
        }
    }
}

#[test]
fn many_tasks_on_two_threads_share_the_syncs() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let db = Database::open(&path).unwrap();
    let keyspace = db.keyspace("k", KeyspaceOptions::default()).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    let (tasks, writes) = (64u32, 20u32);
    runtime.block_on(async {
        let running: Vec<_> = (0..tasks)
            .map(|task| {
                let (db, keyspace) = (db.clone(), keyspace.clone());
                tokio::spawn(async move {
                    for n in 0..writes {
                        let key = (task * writes + n).to_be_bytes();
                        db.write_async(put(&keyspace, key, key), Durability::Sync).await.unwrap();
                        assert_eq!(keyspace.get(key).unwrap().unwrap(), key);
                    }
                })
            })
            .collect();
        for task in running {
            task.await.unwrap();
        }
    });
    let stats = db.stats();
    assert_eq!(stats.user_writes, u64::from(tasks * writes));
    assert!(stats.log.syncs < u64::from(tasks * writes) / 4, "{} syncs", stats.log.syncs);
    drop((runtime, keyspace));
    db.close().unwrap();
    let db = Database::open(&path).unwrap();
    assert_eq!(db.open_keyspace("k").unwrap().iter().count(), (tasks * writes) as usize);
}

/// A write is durable when its future is ready, and neither ready nor visible before.
#[test]
fn a_future_is_ready_when_the_sync_is_done() {
    let sim = SimEnv::new(1);
    let (db, keyspace) = open(&sim, 1);
    let held = hold_syncs(&sim);
    let mut future = pin!(db.write_async(put(&keyspace, "a", "1"), Durability::Sync));
    held.await_sync(1);
    let mut context = Context::from_waker(Waker::noop());
    assert!(future.as_mut().poll(&mut context).is_pending());
    assert!(keyspace.get("a").unwrap().is_none());
    // These wait for the writer, and are committed as one group.
    let others: Vec<WriteFuture> =
        (0..50u32).map(|n| db.write_async(put(&keyspace, n.to_be_bytes(), "2"), Durability::Sync)).collect();
    held.release.send(()).unwrap();
    held.await_sync(2);
    assert!(matches!(future.as_mut().poll(&mut context), Poll::Ready(Ok(()))));
    assert_eq!(keyspace.get("a").unwrap().unwrap(), "1");
    let crashed = sim.crash_clone(Survival::Nothing, 1);
    held.release.send(()).unwrap();
    for other in others {
        wait(other).unwrap();
    }
    assert_eq!(held.begun.load(Ordering::SeqCst), 2, "one sync for the group");
    let after = sim.crash_clone(Survival::Nothing, 1);
    drop(held);
    assert_eq!(open(&crashed, 0).1.get("a").unwrap().unwrap(), "1");
    assert_eq!(open(&after, 0).1.iter().count(), 51);
    // Ready futures stay ready.
    assert!(matches!(future.as_mut().poll(&mut context), Poll::Ready(Ok(()))));
}

#[test]
fn writes_are_committed_in_the_order_of_the_calls() {
    let sim = SimEnv::new(1);
    let (db, keyspace) = open(&sim, 1);
    for durability in [Durability::Buffered, Durability::Os, Durability::Sync] {
        let futures: Vec<WriteFuture> =
            (0..1000u32).map(|n| db.write_async(put(&keyspace, "a", n.to_string()), durability)).collect();
        for future in futures.into_iter().rev() {
            wait(future).unwrap();
        }
        assert_eq!(keyspace.get("a").unwrap().unwrap(), "999");
    }
}

#[test]
fn threads_and_tasks_share_groups_and_transactions_meet_their_writes() {
    let sim = SimEnv::new(1);
    let (db, keyspace) = open(&sim, 1);
    let mut stale = db.begin();
    assert!(stale.get(&keyspace, "a").unwrap().is_none());
    wait(db.write_async(put(&keyspace, "a", "task"), Durability::Sync)).unwrap();
    stale.put(&keyspace, "b", "1").unwrap();
    assert_eq!(stale.commit().unwrap_err().kind(), ErrorKind::Conflict);
    std::thread::scope(|scope| {
        for thread in 0..3u32 {
            let (db, keyspace) = (&db, &keyspace);
            scope.spawn(move || {
                for n in 0..200u32 {
                    let key = (thread * 1000 + n).to_be_bytes();
                    match n % 2 {
                        0 => keyspace.put_with(key, "thread", Durability::Sync).unwrap(),
                        _ => wait(db.write_async(put(keyspace, key, "task"), Durability::Sync)).unwrap(),
                    }
                }
            });
        }
    });
    assert_eq!(keyspace.iter().count(), 601);
}

#[test]
fn transactions_of_tasks_are_compared_with_what_is_queued_before_them() {
    let sim = SimEnv::new(1);
    let (db, keyspace) = open(&sim, 1);
    let held = hold_syncs(&sim);
    let first = db.write_async(put(&keyspace, "x", "1"), Durability::Sync);
    held.await_sync(1);
    let begin = |reads: &[&str], writes: &str| {
        let mut transaction = db.begin();
        for key in reads {
            assert!(matches!(transaction.try_get(&keyspace, key), Ok(Poll::Ready(None))));
        }
        transaction.put(&keyspace, writes, "2").unwrap();
        assert!(matches!(transaction.try_get(&keyspace, writes), Ok(Poll::Ready(Some(own))) if own == "2"));
        transaction
    };
    // The first two read what each of them writes, and are in one group. The third has read nothing, and the fourth what no other writes.
    let transactions =
        [begin(&["a", "b"], "a"), begin(&["a", "b"], "b"), begin(&[], "b"), begin(&["c"], "c")];
    let commits = transactions.map(|transaction| transaction.commit_async(Durability::Sync));
    // Read before, by a transaction that is queued after the batch that writes it.
    let late = begin(&["d"], "e");
    let batch = db.write_async(put(&keyspace, "d", "3"), Durability::Sync);
    let late = late.commit_async(Durability::Sync);
    let empty = wait(db.begin().commit_async(Durability::Sync));
    drop(held);
    wait(first).unwrap();
    wait(batch).unwrap();
    assert!(empty.is_ok());
    let kind = |result: cairn::Result<()>| result.err().map(|error| error.kind());
    let results = commits.map(|commit| kind(wait(commit)));
    assert_eq!(results, [None, Some(ErrorKind::Conflict), None, None]);
    assert_eq!(kind(wait(late)), Some(ErrorKind::Conflict));
    // They are counted just after they are ready.
    eventually(|| (db.stats().transactions, db.stats().conflicts) == (3, 2));
    let mut transaction = db.begin();
    transaction.put(&keyspace, "a", "1").unwrap();
    db.clone().close().unwrap();
    assert_eq!(kind(wait(transaction.commit_async(Durability::Os))), Some(ErrorKind::Closed));
    assert_eq!(kind(wait(db.begin().commit_async(Durability::Os))), Some(ErrorKind::Closed));
}

#[test]
fn tasks_that_repeat_their_transactions_count_right() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path().join("db")).unwrap();
    let keyspace = db.keyspace("k", KeyspaceOptions::default()).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    runtime.block_on(async {
        let running: Vec<_> = (0..16u8)
            .map(|task| {
                let (db, keyspace) = (db.clone(), keyspace.clone());
                tokio::spawn(async move {
                    for n in 0..25u8 {
                        let durability = [Durability::Sync, Durability::Os][usize::from(n % 2)];
                        loop {
                            let mut transaction = db.begin();
                            let counter = [task % 2];
                            let count = transaction.get(&keyspace, counter).unwrap();
                            let count =
                                count.map_or(0, |count| u32::from_be_bytes(count[..].try_into().unwrap()));
                            transaction.put(&keyspace, counter, (count + 1).to_be_bytes()).unwrap();
                            match transaction.commit_async(durability).await {
                                Err(error) if error.kind() == ErrorKind::Conflict => {}
                                committed => break committed.unwrap(),
                            }
                        }
                    }
                })
            })
            .collect();
        for task in running {
            task.await.unwrap();
        }
    });
    for counter in [0, 1] {
        assert_eq!(keyspace.get([counter]).unwrap().unwrap(), 200u32.to_be_bytes());
    }
}

/// Without the snapshot the compaction would drop the delete with what it hides, and nothing would tell that the key had changed.
#[test]
fn the_snapshot_of_a_transaction_is_held_while_it_is_queued() {
    let sim = SimEnv::new(1);
    let (db, keyspace) = open(&sim, 1);
    keyspace.put("a", "1").unwrap();
    keyspace.flush().unwrap();
    let mut transaction = db.begin();
    assert_eq!(transaction.get(&keyspace, "a").unwrap().unwrap(), "1");
    transaction.put(&keyspace, "b", "2").unwrap();
    // In a memtable after the one that the transaction has seen.
    keyspace.put("c", "3").unwrap();
    keyspace.flush().unwrap();
    keyspace.delete("a").unwrap();
    keyspace.flush().unwrap();
    // A waker that blocks keeps the committer from the queue, and no one else from anything.
    let held = hold_syncs(&sim);
    let mut first = pin!(db.write_async(put(&keyspace, "x", "1"), Durability::Sync));
    held.await_sync(1);
    let (release, released) = mpsc::channel();
    let waker = Waker::from(Arc::new(Blocks(Mutex::new(released))));
    assert!(first.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    drop(held);
    let commit = transaction.commit_async(Durability::Sync);
    keyspace.compact().unwrap();
    release.send(()).unwrap();
    wait(first).unwrap();
    assert_eq!(wait(commit).unwrap_err().kind(), ErrorKind::Conflict);
    // Nothing holds it for long.
    eventually(|| {
        keyspace.compact().unwrap();
        keyspace.guards().iter().flat_map(|guard| &guard.tables).map(|t| t.entries).sum::<u64>() == 2
    });
}

fn eventually(mut holds: impl FnMut() -> bool) {
    let begun = std::time::Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE);
        std::thread::yield_now();
    }
}

/// Without background threads the call commits; entries that expire and keyspaces that are dropped meanwhile are met as by `commit`.
#[test]
fn commits_of_tasks_without_threads_and_beside_expiry_and_dropped_keyspaces() {
    let kind = |result: cairn::Result<()>| result.err().map(|error| error.kind());
    for threads in [0, 1] {
        let sim = SimEnv::new(1);
        sim.set_wall_clock(Time::from_micros(1_000));
        let (db, keyspace) = open(&sim, threads);
        keyspace.put_until("a", "1", Time::from_micros(2_000)).unwrap();
        let mut good = db.begin();
        assert!(matches!(good.try_get(&keyspace, "a"), Ok(Poll::Ready(Some(value))) if value == "1"));
        good.put(&keyspace, "b", "1").unwrap();
        assert_eq!(kind(wait(good.commit_async(Durability::Sync))), None);
        let mut expired = db.begin();
        assert!(matches!(expired.try_get(&keyspace, "a"), Ok(Poll::Ready(Some(_)))));
        expired.put(&keyspace, "b", "2").unwrap();
        sim.set_wall_clock(Time::from_micros(2_000));
        assert_eq!(kind(wait(expired.commit_async(Durability::Sync))), Some(ErrorKind::Conflict));
        assert_eq!(keyspace.get("b").unwrap().unwrap(), "1");
        let gone = db.create_keyspace("gone", KeyspaceOptions::default()).unwrap();
        let mut late = db.begin();
        late.put(&gone, "a", "1").unwrap();
        late.put(&keyspace, "b", "3").unwrap();
        db.drop_keyspace("gone").unwrap();
        assert_eq!(kind(wait(late.commit_async(Durability::Sync))), Some(ErrorKind::Closed));
        assert_eq!(keyspace.get("b").unwrap().unwrap(), "1", "all of it, or nothing");
    }
}

struct Blocks(Mutex<mpsc::Receiver<()>>);

impl Wake for Blocks {
    fn wake(self: Arc<Self>) {
        self.0.lock().unwrap().recv_timeout(PATIENCE).unwrap();
    }
}

#[test]
fn closing_waits_for_what_is_queued_and_refuses_the_rest() {
    for close in [true, false] {
        let sim = SimEnv::new(1);
        let (db, keyspace) = open(&sim, 1);
        let other = db.clone();
        let held = hold_syncs(&sim);
        drop(db.write_async(put(&keyspace, "a", "1"), Durability::Sync));
        held.await_sync(1);
        for n in 0..100u32 {
            // Nothing waits for these.
            drop(db.write_async(put(&keyspace, n.to_be_bytes(), "2"), Durability::Buffered));
        }
        let last = db.write_async(put(&keyspace, "z", "3"), Durability::Buffered);
        drop(held);
        match close {
            true => db.close().unwrap(),
            false => drop((db, keyspace.clone())),
        }
        if close {
            wait(last).unwrap();
            let refused = wait(other.write_async(put(&keyspace, "b", "4"), Durability::Sync)).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Closed);
        }
        drop((keyspace, other));
        sim.set_hook(None);
        assert_eq!(open(&sim.crash_clone(Survival::Nothing, 1), 0).1.iter().count(), 102);
    }
}

/// Drops the last handle when it is woken: in the committer.
struct Closer(Mutex<Option<(Database, Keyspace)>>, AtomicBool);

impl Wake for Closer {
    fn wake(self: Arc<Self>) {
        drop(self.0.lock().unwrap().take());
        self.1.store(true, Ordering::SeqCst);
    }
}

#[test]
fn a_task_that_is_woken_may_close_the_database() {
    for round in 0..20 {
        let sim = SimEnv::new(round);
        let (db, keyspace) = open(&sim, 1);
        let held = hold_syncs(&sim);
        let mut future = pin!(db.write_async(put(&keyspace, "a", "1"), Durability::Sync));
        held.await_sync(1);
        let more: Vec<WriteFuture> = (0..10u32)
            .map(|n| db.write_async(put(&keyspace, n.to_be_bytes(), "2"), Durability::Sync))
            .collect();
        let closer = Arc::new(Closer(Mutex::new(Some((db, keyspace))), AtomicBool::new(false)));
        assert!(future.as_mut().poll(&mut Context::from_waker(&closer.clone().into())).is_pending());
        drop(held);
        more.into_iter().for_each(|future| wait(future).unwrap());
        while !closer.1.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        sim.set_hook(None);
        assert_eq!(open(&sim, 0).1.iter().count(), 11);
    }
}

/// A version with a time of its own, for which older ones are looked up, is committed by the close that waits for it. A keyspace that was dropped
/// meanwhile refuses its batch and no other.
#[test]
fn what_is_queued_meets_late_versions_dropped_keyspaces_and_a_close() {
    let sim = SimEnv::new(1);
    let (db, keyspace) = open(&sim, 1);
    let past = db.create_keyspace("past", KeyspaceOptions::default().history(Retention::All)).unwrap();
    let gone = db.create_keyspace("gone", KeyspaceOptions::default()).unwrap();
    past.put("a", "new").unwrap();
    db.flush().unwrap();
    db.drop_keyspace("gone").unwrap();
    let held = hold_syncs(&sim);
    let first = db.write_async(put(&keyspace, "a", "1"), Durability::Sync);
    held.await_sync(1);
    let dropped = db.write_async(put(&gone, "a", "1"), Durability::Buffered);
    let mut late = Batch::default();
    late.put_at(&past, "a", "old", Time::from_micros(5));
    let late = db.write_async(late, Durability::Buffered);
    std::thread::scope(|scope| {
        scope.spawn(|| db.clone().close().unwrap());
        drop(held);
    });
    wait(first).unwrap();
    wait(late).unwrap();
    assert_eq!(wait(dropped).unwrap_err().kind(), ErrorKind::Closed);
    drop((db, keyspace, past, gone));
    sim.set_hook(None);
    let (db, _) = open(&sim.crash_clone(Survival::Nothing, 1), 0);
    let past = db.open_keyspace("past").unwrap();
    assert_eq!(past.get_at("a", Time::from_micros(5)).unwrap().unwrap().value.unwrap(), "old");
}

/// Closes the database when it is woken, through a clone.
struct AlsoCloses(Database, AtomicBool);

impl Wake for AlsoCloses {
    fn wake(self: Arc<Self>) {
        let _ = self.0.clone().close();
        self.1.store(true, Ordering::SeqCst);
    }
}

/// In the committer, twice, and beside a thread that closes it.
#[test]
fn tasks_that_are_woken_may_all_close_the_database() {
    for round in 0..40 {
        let sim = SimEnv::new(round);
        let (db, keyspace) = open(&sim, 1);
        let held = hold_syncs(&sim);
        let mut futures: Vec<WriteFuture> = (0..3u32)
            .map(|n| db.write_async(put(&keyspace, n.to_be_bytes(), "1"), Durability::Sync))
            .collect();
        held.await_sync(1);
        let closers: Vec<_> =
            futures.iter().map(|_| Arc::new(AlsoCloses(db.clone(), AtomicBool::new(false)))).collect();
        for (future, closer) in futures.iter_mut().zip(&closers) {
            assert!(pin!(future).poll(&mut Context::from_waker(&closer.clone().into())).is_pending());
        }
        std::thread::scope(|scope| {
            if round % 2 == 1 {
                scope.spawn(|| db.clone().close().unwrap());
            }
            drop(held);
            while !closers.iter().all(|closer| closer.1.load(Ordering::SeqCst)) {
                std::thread::yield_now();
            }
        });
        futures.into_iter().for_each(|future| wait(future).unwrap());
        db.close().unwrap();
        drop((keyspace, closers));
        sim.set_hook(None);
        assert_eq!(open(&sim, 0).1.iter().count(), 3);
    }
}

struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        panic!("a bug of an executor, on purpose");
    }
}

#[test]
fn a_waker_that_panics_hinders_no_other_task() {
    let sim = SimEnv::new(1);
    let (db, keyspace) = open(&sim, 1);
    let held = hold_syncs(&sim);
    let first = db.write_async(put(&keyspace, "a", "1"), Durability::Sync);
    held.await_sync(1);
    let mut panics = pin!(db.write_async(put(&keyspace, "b", "1"), Durability::Sync));
    let waker = Waker::from(Arc::new(Panics));
    assert!(panics.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    let last = db.write_async(put(&keyspace, "c", "1"), Durability::Sync);
    drop(held);
    wait(first).unwrap();
    wait(last).unwrap();
    wait(panics).unwrap();
    wait(db.write_async(put(&keyspace, "d", "1"), Durability::Sync)).unwrap();
    assert_eq!(keyspace.iter().count(), 4);
    db.close().unwrap();
}

/// An empty batch makes durable what was queued before it, also in the same take.
#[test]
fn a_barrier_covers_what_was_queued_before_it() {
    let sim = SimEnv::new(1);
    let (db, keyspace) = open(&sim, 1);
    let held = hold_syncs(&sim);
    let first = db.write_async(put(&keyspace, "a", "1"), Durability::Sync);
    held.await_sync(1);
    let buffered = db.write_async(put(&keyspace, "b", "1"), Durability::Buffered);
    let barriers = [Durability::Os, Durability::Sync, Durability::Buffered]
        .map(|durability| db.write_async(Batch::default(), durability));
    drop(held);
    [first, buffered].into_iter().chain(barriers).for_each(|future| wait(future).unwrap());
    let crashed = sim.crash_clone(Survival::Nothing, 1);
    assert_eq!(open(&crashed, 0).1.iter().count(), 2);
}

/// More than a take has: the first tasks are woken while the last ones are still queued.
#[test]
fn a_long_queue_is_committed_in_parts() {
    let sim = SimEnv::new(1);
    let (db, keyspace) = open(&sim, 1);
    let held = hold_syncs(&sim);
    let futures: Vec<WriteFuture> = (0..40u32)
        .map(|n| db.write_async(put(&keyspace, n.to_be_bytes(), vec![7; 100_000]), Durability::Sync))
        .collect();
    let mut futures = futures.into_iter();
    held.await_sync(1);
    held.release.send(()).unwrap();
    held.await_sync(2);
    wait(futures.next().unwrap()).unwrap();
    let mut last = pin!(futures.next_back().unwrap());
    assert!(last.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    drop(held);
    futures.for_each(|future| wait(future).unwrap());
    wait(last).unwrap();
    // Forty batches of a tenth of a mebibyte, ten of them at a time; the first may have been alone.
    let syncs = db.stats().log.syncs;
    assert!((4..=6).contains(&syncs), "{syncs}");
    assert_eq!(keyspace.iter().count(), 40);
}

#[test]
fn errors_reach_the_tasks_that_they_concern() {
    let sim = SimEnv::new(1);
    let (db, keyspace) = open(&sim, 1);
    let held = hold_syncs(&sim);
    let first = db.write_async(put(&keyspace, "a", "1"), Durability::Sync);
    held.await_sync(1);
    let long = db.write_async(put(&keyspace, vec![0; 1 << 17], ""), Durability::Sync);
    let (other_sim, good) = (SimEnv::new(2), db.write_async(put(&keyspace, "b", "2"), Durability::Sync));
    let (other, elsewhere) = open(&other_sim, 1);
    let foreign = db.write_async(put(&elsewhere, "c", "3"), Durability::Sync);
    let barrier = db.write_async(Batch::default(), Durability::Sync);
    drop(held);
    assert_eq!(wait(long).unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert_eq!(wait(foreign).unwrap_err().kind(), ErrorKind::InvalidArgument);
    [first, good, barrier].into_iter().for_each(|future| wait(future).unwrap());
    drop((other, elsewhere));
    // A failed sync ends writing.
    sim.set_hook(Some(Box::new(|op: OpInfo<'_>| {
        (op.kind == OpKind::Sync && op.phase == Phase::Before).then_some(Fault::EIO)
    })));
    let failing: Vec<WriteFuture> =
        (0..5u32).map(|n| db.write_async(put(&keyspace, n.to_be_bytes(), ""), Durability::Sync)).collect();
    for future in failing {
        assert_eq!(wait(future).unwrap_err().kind(), ErrorKind::ReadOnly);
    }
    let late = wait(db.write_async(put(&keyspace, "d", ""), Durability::Buffered));
    assert_eq!(late.unwrap_err().kind(), ErrorKind::ReadOnly);
}

#[test]
fn a_full_disk_refuses_puts_and_admits_deletes() {
    let sim = SimEnv::new(1);
    let options = Options::default().background_threads(1).memory_budget(1 << 20).disk_reserve(48 << 10);
    let db = Database::open_in(sim.clone(), "/db", options).unwrap();
    let keyspace = db.create_keyspace("k", KeyspaceOptions::default()).unwrap();
    wait(db.write_async(put(&keyspace, "a", "1"), Durability::Sync)).unwrap();
    sim.set_capacity(Some(sim.used() + (100 << 10)));
    let mut refused = None;
    for n in 0..10_000u32 {
        if let Err(error) = wait(db.write_async(put(&keyspace, n.to_be_bytes(), [7; 4000]), Durability::Sync))
        {
            refused = Some(error.kind());
            break;
        }
    }
    assert_eq!(refused, Some(ErrorKind::NoSpace));
    let mut batch = Batch::default();
    batch.delete(&keyspace, "a");
    wait(db.write_async(batch, Durability::Sync)).unwrap();
    assert!(keyspace.get("a").unwrap().is_none());
}

#[test]
fn a_panic_in_the_committer_ends_all_waiting() {
    let sim = SimEnv::new(1);
    let (db, keyspace) = open(&sim, 1);
    wait(db.write_async(put(&keyspace, "a", "1"), Durability::Sync)).unwrap();
    let panics = AtomicBool::new(true);
    let (reached, goes_on) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (told, waits) = (reached.clone(), goes_on.clone());
    sim.set_hook(Some(Box::new(move |op: OpInfo<'_>| {
        if op.kind == OpKind::Sync && op.phase == Phase::Before && panics.swap(false, Ordering::SeqCst) {
            told.store(true, Ordering::SeqCst);
            while !waits.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            panic!("a bug, on purpose");
        }
        None
    })));
    let first = db.write_async(put(&keyspace, "b", "2"), Durability::Sync);
    while !reached.load(Ordering::SeqCst) {
        std::thread::yield_now();
    }
    let queued: Vec<WriteFuture> =
        (0..5u32).map(|n| db.write_async(put(&keyspace, n.to_be_bytes(), ""), Durability::Sync)).collect();
    let barrier = db.write_async(Batch::default(), Durability::Sync);
    goes_on.store(true, Ordering::SeqCst);
    for future in [first].into_iter().chain(queued).chain([barrier]) {
        let error = wait(future).unwrap_err();
        assert!(error.to_string().contains("panicked"), "{error}");
    }
    let late = wait(db.write_async(put(&keyspace, "c", ""), Durability::Sync)).unwrap_err();
    assert_eq!(late.kind(), ErrorKind::ReadOnly);
    assert!(db.close().is_err());
    drop(keyspace);
    assert_eq!(open(&sim.crash_clone(Survival::Nothing, 1), 0).1.get("a").unwrap().unwrap(), "1");
}

#[test]
fn without_background_threads_and_in_a_moment_the_call_itself_answers() {
    let sim = SimEnv::new(1);
    let (db, keyspace) = open(&sim, 0);
    let mut context = Context::from_waker(Waker::noop());
    let mut future = pin!(db.write_async(put(&keyspace, "a", "1"), Durability::Sync));
    assert!(matches!(future.as_mut().poll(&mut context), Poll::Ready(Ok(()))));
    db.flush().unwrap();
    let moment = Database::builder().env(sim.clone()).open_read_only("/db").unwrap();
    let read_only = moment.open_keyspace("k").unwrap();
    let refused = wait(moment.write_async(put(&read_only, "b", "2"), Durability::Sync)).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ReadOnly);
}

/// All presets, with history, merges and expiries: what `try_get` says is what `get` says, and with nothing in memory it says that it would wait.
#[test]
fn try_get_answers_from_memory_or_would_wait() {
    let with_past = KeyspaceOptions::default().history(Retention::All);
    let presets = Preset::ALL.iter().map(|preset| KeyspaceOptions::preset(*preset));
    for (n, options) in presets.chain([with_past]).enumerate() {
        let sim = SimEnv::new(n as u64);
        let small = Options::default().background_threads(0).memory_budget(1 << 20);
        let db = Database::open_in(sim.clone(), "/db", small).unwrap();
        let keyspace = db.create_keyspace("k", options).unwrap();
        let key = |n: u32| format!("{n:06}");
        // Small values, and those that may be outside of the tree; more than the memory budget.
        let value = |n: u32| vec![n as u8; if n.is_multiple_of(3) { 6_000 } else { 50 }];
        (0..1000).for_each(|n| keyspace.put(key(n), value(n)).unwrap());
        assert_eq!(keyspace.try_get(key(999)).unwrap(), Poll::Ready(Some(value(999).into())));
        db.flush().unwrap();
        (0..1000).step_by(10).for_each(|n| keyspace.delete(key(n)).unwrap());
        assert_eq!(keyspace.try_get(key(990)).unwrap(), Poll::Ready(None));
        let snapshot = db.snapshot();
        keyspace.put(key(990), "new").unwrap();
        assert_eq!(snapshot.try_get(&keyspace, key(990)).unwrap(), Poll::Ready(None));
        db.flush().unwrap();
        // A table that was not used yet is pending.
        (0..1000).for_each(|n| drop(keyspace.get(key(n)).unwrap()));
        let mut pending = [0, 0, 0];
        for (round, percent) in [0, 50, 100].into_iter().enumerate() {
            sim.set_cached_percent(percent);
            for n in 0..1000 {
                match keyspace.try_get(key(n)).unwrap() {
                    Poll::Pending => pending[round] += 1,
                    Poll::Ready(found) => assert_eq!(found, keyspace.get(key(n)).unwrap(), "{n}"),
                }
            }
        }
        assert!(pending[0] > 100 && pending[0] > pending[1] && pending[2] == 0, "{n}: {pending:?}");
    }
}

/// Nothing is read for which a disk would have to be waited for, also not what leads to a block: of an opening that has used no table, with a cache
/// that has no room for indexes and filters, and after everything was used.
#[test]
fn try_get_never_waits_for_a_read() {
    let with_past = KeyspaceOptions::default().history(Retention::All);
    let presets = Preset::ALL.iter().map(|preset| KeyspaceOptions::preset(*preset));
    for (n, options) in presets.chain([with_past]).enumerate() {
        let sim = SimEnv::new(n as u64);
        let small = Options::default().background_threads(0).memory_budget(1 << 20);
        let key = |n: u32| format!("{n:06}");
        {
            let db = Database::open_in(sim.clone(), "/db", small.clone()).unwrap();
            let keyspace = db.create_keyspace("k", options).unwrap();
            // In each part of the keys a table of its own.
            for part in 0..4 {
                let value = |n: u32| vec![n as u8; if n.is_multiple_of(3) { 3_000 } else { 50 }];
                (0..500).for_each(|n| keyspace.put(key(4 * n + part), value(n)).unwrap());
                db.flush().unwrap();
            }
            db.close().unwrap();
        }
        let db = Database::open_in(sim.clone(), "/db", small).unwrap();
        let keyspace = db.open_keyspace("k").unwrap();
        let (snapshot, reads) = (db.snapshot(), Arc::new(AtomicUsize::new(0)));
        sim.set_cached_percent(0);
        for round in 0..3 {
            let counter = reads.clone();
            sim.set_hook(Some(Box::new(move |op: OpInfo<'_>| {
                counter.fetch_add(usize::from(op.kind == OpKind::Read), Ordering::SeqCst);
                None
            })));
            let mut pending = 0;
            for n in 0..2100 {
                for found in [keyspace.try_get(key(n)), snapshot.try_get(&keyspace, key(n))] {
                    match found.unwrap() {
                        Poll::Ready(found) => assert_eq!(found.is_some(), n < 2000, "{n}"),
                        Poll::Pending => pending += 1,
                    }
                }
            }
            assert_eq!(reads.load(Ordering::SeqCst), 0, "preset {n}, round {round}");
            sim.set_hook(None);
            assert!(pending > 0, "preset {n}, round {round}");
            // Pins what there is room for, and fills the cache.
            (0..2100).for_each(|n| drop(keyspace.get(key(n)).unwrap()));
        }
    }
}

#[test]
fn try_get_leaves_operands_to_get() {
    let sim = SimEnv::new(1);
    let db = Database::open_in(sim, "/db", Options::default().background_threads(0)).unwrap();
    let counters = db.create_keyspace("k", KeyspaceOptions::default().merge(cairn::Merge::U64Add)).unwrap();
    counters.put("a", 5u64.to_le_bytes()).unwrap();
    assert!(counters.try_get("a").unwrap().is_ready());
    counters.merge("a", 1u64.to_le_bytes()).unwrap();
    assert!(counters.try_get("a").unwrap().is_pending());
    db.flush().unwrap();
    counters.merge("b", 1u64.to_le_bytes()).unwrap();
    db.flush().unwrap();
    assert!(counters.try_get("b").unwrap().is_pending());
    assert_eq!(counters.get("b").unwrap().unwrap(), 1u64.to_le_bytes());
}
