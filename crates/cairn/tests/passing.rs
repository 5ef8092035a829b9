//! Entries that cursors skip: read charges cause their compaction, and keys with many versions are read correctly.

use cairn::env::{Fault, OpKind, Phase, Rng, SimEnv};
use cairn::{Database, Keyspace, KeyspaceOptions, Options, Result, Slice, Snapshot};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

fn open(threads: usize, seek_cost: u32) -> Result<(Database, Keyspace)> {
    open_in(SimEnv::new(1), threads, seek_cost)
}

fn open_in(env: Arc<SimEnv>, threads: usize, seek_cost: u32) -> Result<(Database, Keyspace)> {
    // Entries in dead ranges are not charged.
    let options = Options::default().background_threads(threads).dead_range_entries(0);
    let db = Database::open_in(env, "/db", options)?;
    // No other reason causes a compaction of the tombstones.
    let options = KeyspaceOptions::default().tombstone_percent(0).space_target(10.0);
    let keyspace = db.keyspace("k", options.seek_cost(seek_cost))?;
    Ok((db, keyspace))
}

fn key(i: u64) -> [u8; 8] {
    i.to_be_bytes()
}

/// 10,000 keys in tables, and tombstones for the first 9,000.
fn deleted(keyspace: &Keyspace) -> Result<()> {
    (0..10_000).try_for_each(|i| keyspace.put(key(i), [1; 20]))?;
    keyspace.flush()?;
    keyspace.compact()?;
    (0..9_000).try_for_each(|i| keyspace.delete(key(i)))
}

/// Number of entries in all tables, and in level 0.
fn entries(keyspace: &Keyspace) -> (u64, u64) {
    let guards = keyspace.guards();
    let of = |level0: bool| {
        let guards = guards.iter().filter(|g| g.level == 0 || !level0);
        guards.flat_map(|g| &g.tables).map(|t| t.entries).sum()
    };
    (of(false), of(true))
}

fn scan(keyspace: &Keyspace) -> Result<()> {
    assert_eq!(keyspace.range::<&[u8]>(..).count(), 1_000);
    let (first, last) =
        (keyspace.range::<&[u8]>(..).next().unwrap()?, keyspace.range::<&[u8]>(..).next_back().unwrap()?);
    assert_eq!((&first.0[..], &last.0[..]), (&key(9_000)[..], &key(9_999)[..]));
    Ok(())
}

/// First the memtable is due, then level 0, then the guard.
fn scan_some_times(db: &Database, keyspace: &Keyspace) -> Result<()> {
    (0..6).try_for_each(|_| {
        scan(keyspace)?;
        db.wait_idle()
    })
}

#[test]
fn scans_over_deleted_keys_have_them_compacted_away() -> Result<()> {
    for threads in [0, 1, 2] {
        // A skipped entry charges 64 KiB, so 9,000 of them make any run due.
        let (db, keyspace) = open(threads, 512 << 10)?;
        deleted(&keyspace)?;
        db.wait_idle()?;
        assert_eq!(entries(&keyspace), (10_000, 0), "nothing was charged");
        scan_some_times(&db, &keyspace)?;
        assert_eq!(entries(&keyspace), (1_000, 0), "{threads} threads");
        scan(&keyspace)?;
    }
    Ok(())
}

#[test]
fn going_back_charges_too_and_without_a_cost_nothing_is_charged() -> Result<()> {
    let (db, keyspace) = open(1, 512 << 10)?;
    deleted(&keyspace)?;
    for _ in 0..6 {
        let mut cursor = keyspace.cursor();
        cursor.seek_for_prev(key(8_999))?;
        assert!(!cursor.valid());
        drop(cursor);
        db.wait_idle()?;
    }
    assert_eq!(entries(&keyspace), (1_000, 0));

    let (db, keyspace) = open(1, 0)?;
    deleted(&keyspace)?;
    for _ in 0..10 {
        scan(&keyspace)?;
    }
    db.wait_idle()?;
    assert_eq!(entries(&keyspace), (10_000, 0));
    Ok(())
}

/// Without background threads, a call that waits for another thread's compaction also runs what becomes due meanwhile: no later call would.
#[test]
fn what_reads_make_due_while_a_thread_waits_for_idleness_is_run_by_that_thread() -> Result<()> {
    reads_beside_a_thread_that_waits(true)?;
    reads_beside_a_thread_that_waits(false)
}

/// The deleted keys are in a table, or in the memtable.
fn reads_beside_a_thread_that_waits(flushed: bool) -> Result<()> {
    let env = SimEnv::new(1);
    let (db, keyspace) = open_in(env.clone(), 0, 512 << 10)?;
    deleted(&keyspace)?;
    if flushed {
        keyspace.flush()?;
    }
    db.wait_idle()?;
    let before = entries(&keyspace);
    let other = db.keyspace("other", KeyspaceOptions::default())?;
    for key in ["a", "b", "a"] {
        other.put(key, "1")?;
        other.flush()?;
    }
    // A compaction that has been picked, and waits at its first table until it is told to go on.
    let (picked, is_picked) = mpsc::channel();
    let (go_on, may_go_on) = mpsc::channel::<()>();
    let gate = Mutex::new(Some((picked, may_go_on)));
    env.set_hook(Some(Box::new(move |op| {
        if op.kind == OpKind::Create
            && op.path.extension().is_some_and(|extension| extension == "tbl")
            && let Some((picked, may_go_on)) = gate.lock().unwrap().take()
        {
            picked.send(()).unwrap();
            may_go_on.recv().unwrap();
        }
        None
    })));
    let compaction = std::thread::spawn(move || other.compact());
    is_picked.recv().unwrap();
    let (done, is_done) = mpsc::channel();
    let waiting = db.clone();
    std::thread::spawn(move || done.send(waiting.wait_idle()));
    // It has found nothing due, and waits for the compaction.
    assert!(is_done.recv_timeout(Duration::from_millis(100)).is_err());
    scan(&keyspace)?;
    go_on.send(()).unwrap();
    compaction.join().unwrap()?;
    is_done.recv_timeout(Duration::from_secs(60)).expect("it does not wait for ever")?;
    assert_ne!(entries(&keyspace), before, "nothing was due");
    Ok(())
}

/// A tree that reads have made due stays due until it is compacted, which comes after flushes. A flush that fails must not be tried by each
/// write meanwhile.
#[test]
fn beside_a_tree_that_is_due_a_failing_flush_is_not_tried_by_each_write() -> Result<()> {
    let env = SimEnv::new(1);
    let (_db, keyspace) = open_in(env.clone(), 0, 512 << 10)?;
    deleted(&keyspace)?;
    keyspace.flush()?;
    keyspace.put("~", "1")?;
    let tried = Arc::new(AtomicUsize::new(0));
    let count = tried.clone();
    env.set_hook(Some(Box::new(move |op| {
        let is_table = op.path.extension().is_some_and(|extension| extension == "tbl");
        match op.kind == OpKind::Create && op.phase == Phase::Before && is_table {
            true => {
                count.fetch_add(1, Ordering::SeqCst);
                Some(Fault::EIO)
            }
            false => None,
        }
    })));
    assert!(keyspace.flush().is_err());
    assert_eq!(keyspace.range::<&[u8]>(..).count(), 1_001);
    let before = tried.load(Ordering::SeqCst);
    (0..100).try_for_each(|i| keyspace.put("~", [i]))?;
    assert_eq!(tried.load(Ordering::SeqCst) - before, 1);
    env.set_hook(None);
    keyspace.flush()
}

#[test]
fn tombstones_that_a_snapshot_needs_are_not_compacted_for_ever() -> Result<()> {
    let (db, keyspace) = open(1, 512 << 10)?;
    (0..10_000).try_for_each(|i| keyspace.put(key(i), [1; 20]))?;
    keyspace.flush()?;
    db.wait_idle()?;
    let snapshot = db.snapshot();
    (0..9_000).try_for_each(|i| keyspace.delete(key(i)))?;
    scan_some_times(&db, &keyspace)?;
    let compactions = db.stats().compaction.jobs;
    scan_some_times(&db, &keyspace)?;
    assert_eq!(db.stats().compaction.jobs, compactions);
    assert_eq!(entries(&keyspace), (19_000, 0));
    assert_eq!(snapshot.range::<&[u8]>(&keyspace, ..).count(), 10_000);
    drop(snapshot);
    scan_some_times(&db, &keyspace)?;
    assert_eq!(entries(&keyspace), (1_000, 0));
    Ok(())
}

/// Two shapes: memtables and level 0 only, and levels with several runs per guard.
fn shapes() -> [KeyspaceOptions; 2] {
    let small = KeyspaceOptions::default().memtable_bytes(16 << 10).level0_tables(1).block_size(512);
    [KeyspaceOptions::default(), small.max_tables_per_guard(16).seek_cost(0)]
}

type Model = BTreeMap<u64, u64>;

/// Compares a scan of everything in both directions, and a walk over a part of the keys that turns at random.
fn compare(rng: &mut Rng, keyspace: &Keyspace, snapshot: &Snapshot, model: &Model) -> Result<()> {
    let same = |(k, v): (Slice, Slice)| {
        (u64::from_be_bytes(k[..].try_into().unwrap()), u64::from_be_bytes(v[..].try_into().unwrap()))
    };
    let all = || snapshot.range::<&[u8]>(keyspace, ..);
    let forward: Vec<_> = all().map(|entry| entry.map(same)).collect::<Result<_>>()?;
    assert!(forward.iter().copied().eq(model.iter().map(|(k, v)| (*k, *v))));
    let back: Vec<_> = all().rev().map(|entry| entry.map(same)).collect::<Result<_>>()?;
    assert!(back.iter().rev().eq(forward.iter()));

    let from = rng.below(6);
    let to = from + 1 + rng.below(8 - from);
    let mut range = snapshot.range(keyspace, key(from)..key(to));
    let mut expected = model.range(from..to);
    for _ in 0..10 {
        let (got, want) = match rng.chance(1, 2) {
            true => (range.next(), expected.next()),
            false => (range.next_back(), expected.next_back()),
        };
        assert_eq!(got.transpose()?.map(same), want.map(|(k, v)| (*k, *v)));
    }

    let mut cursor = snapshot.cursor(keyspace);
    let mut at = rng.below(8);
    cursor.seek(key(at))?;
    let mut want = model.range(at..).next();
    for _ in 0..30 {
        let got = cursor.valid().then(|| same((cursor.key().into(), cursor.value().into())));
        assert_eq!(got, want.map(|(k, v)| (*k, *v)));
        let Some((&here, _)) = want else { break };
        at = here;
        want = match rng.chance(1, 2) {
            true => {
                cursor.next()?;
                model.range(at + 1..).next()
            }
            false => {
                cursor.prev()?;
                model.range(..at).next_back()
            }
        };
    }
    Ok(())
}

/// A few keys with hundreds of versions each, among them tombstones and range tombstones, in snapshots of all ages.
#[test]
fn keys_with_very_many_versions_are_shown_right() -> Result<()> {
    let mut deep = 0;
    for seed in 0..30 {
        let mut rng = Rng::new(seed);
        let db = Database::open_in(SimEnv::new(1), "/db", Options::default().background_threads(0))?;
        let keyspace = db.keyspace("k", shapes()[seed as usize % 2].clone())?;
        let mut model = Model::new();
        let mut snapshots = Vec::new();
        for step in 0..3_000u64 {
            // Long runs of one key alternate with many keys.
            let i = if step / 500 % 2 == 0 { step / 500 } else { rng.below(8) };
            match rng.below(40) {
                0 => {
                    keyspace.delete_range(key(i)..key(i + 2))?;
                    model.retain(|k, _| !(i..i + 2).contains(k));
                }
                1..=5 => {
                    keyspace.delete(key(i))?;
                    model.remove(&i);
                }
                _ => {
                    keyspace.put(key(i), step.to_be_bytes())?;
                    model.insert(i, step);
                }
            }
            // At times every version is visible to a snapshot.
            if step % 1_000 < 200 || rng.chance(1, 200) {
                snapshots.push((db.snapshot(), model.clone()));
            }
            if rng.chance(1, 1_000) {
                keyspace.flush()?;
            }
        }
        snapshots.push((db.snapshot(), model));
        deep += keyspace.guards().iter().filter(|g| g.level > 0 && g.tables.len() > 1).count();
        for _ in 0..60 {
            let (snapshot, model) = &snapshots[rng.below(snapshots.len() as u64) as usize];
            compare(&mut rng, &keyspace, snapshot, model)?;
        }
    }
    assert!(deep > 10, "{deep} guards with several tables");
    Ok(())
}
