//! Entries that cursors pass over: scans that pay have them compacted away, and keys with many versions are shown right.

use cairn::env::{Rng, SimEnv};
use cairn::{Database, Keyspace, KeyspaceOptions, Options, Result};
use std::collections::BTreeMap;

fn open(threads: usize, seek_cost: u32) -> Result<(Database, Keyspace)> {
    let options = Options::default().background_threads(threads);
    let db = Database::open_in(SimEnv::new(1), "/db", options)?;
    // Nobody compacts for the tombstones as such.
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

/// Entries of all tables, and those of level 0.
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

/// The memtable is to be paid for, then level 0, and then the guard; what is paid while a flush is under way may be lost.
fn scan_some_times(db: &Database, keyspace: &Keyspace) -> Result<()> {
    (0..6).try_for_each(|_| {
        scan(keyspace)?;
        db.wait_idle()
    })
}

#[test]
fn scans_over_deleted_keys_have_them_compacted_away() -> Result<()> {
    for threads in [0, 1, 2] {
        // An entry is worth 64 KiB: 9,000 of them pay for any of it.
        let (db, keyspace) = open(threads, 512 << 10)?;
        deleted(&keyspace)?;
        db.wait_idle()?;
        assert_eq!(entries(&keyspace), (10_000, 0), "nobody has looked");
        scan_some_times(&db, &keyspace)?;
        assert_eq!(entries(&keyspace), (1_000, 0), "{threads} threads");
        scan(&keyspace)?;
    }
    Ok(())
}

#[test]
fn going_back_pays_too_and_without_a_cost_nobody_pays() -> Result<()> {
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

/// A few keys with hundreds of versions each, among them tombstones and range tombstones, as seen by snapshots of all ages.
#[test]
fn keys_with_very_many_versions_are_shown_right() -> Result<()> {
    for seed in 0..20 {
        let mut rng = Rng::new(seed);
        let (db, keyspace) = open(0, 256)?;
        let mut model = BTreeMap::new();
        let mut snapshots = Vec::new();
        for step in 0..3_000u64 {
            // Long runs of one key, and many keys in turn.
            let i = if step / 500 % 2 == 0 { step / 500 } else { rng.below(8) };
            match rng.below(40) {
                0 => {
                    keyspace.delete_range(key(i)..key(i + 2))?;
                    model.retain(|k: &u64, _| !(i..i + 2).contains(k));
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
            if rng.chance(1, 200) {
                snapshots.push((db.snapshot(), model.clone()));
            }
            if rng.chance(1, 1_000) {
                keyspace.flush()?;
            }
        }
        snapshots.push((db.snapshot(), model));
        for (snapshot, model) in &snapshots {
            let expected: Vec<_> = model.iter().map(|(i, step)| (key(*i), step.to_be_bytes())).collect();
            let same = |(k, v): &(cairn::Slice, cairn::Slice)| {
                (k[..].try_into().unwrap(), v[..].try_into().unwrap())
            };
            let forward: Vec<_> = snapshot.range::<&[u8]>(&keyspace, ..).collect::<Result<_>>()?;
            assert!(forward.iter().map(same).eq(expected.iter().copied()), "seed {seed}");
            let back: Vec<_> = snapshot.range::<&[u8]>(&keyspace, ..).rev().collect::<Result<_>>()?;
            assert!(back.iter().rev().map(same).eq(expected.iter().copied()), "seed {seed}");
        }
    }
    Ok(())
}
