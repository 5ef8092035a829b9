//! Large values stay in the log: every read finds them, flushes and compactions do not move them, and their logs go when they do.

use cairn::env::{Env, OpInfo, OpKind, Phase, Rng, SimEnv, Survival};
use cairn::{Database, Keyspace, KeyspaceOptions, Options, PlacementPolicy, Result};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn open(env: &Arc<SimEnv>, threads: usize) -> Result<(Database, Keyspace)> {
    let options = Options::default().background_threads(threads).memory_budget(8 << 20);
    let db = Database::open_in(env.clone(), "/db", options)?;
    let options = KeyspaceOptions::default().placement(PlacementPolicy::Hybrid).memtable_bytes(256 << 10);
    let keyspace = db.keyspace("k", options)?;
    Ok((db, keyspace))
}

/// A value of a random size class: from nothing to several blocks of the log.
fn value(rng: &mut Rng) -> Vec<u8> {
    let len = match rng.below(8) {
        0 => 0,
        1..4 => rng.below(100),
        4..7 => 500 + rng.below(2000),
        _ => rng.below(100_000),
    };
    let mut value = vec![0; len as usize];
    rng.fill(&mut value);
    value
}

fn key(i: u64) -> Vec<u8> {
    format!("key{i:05}").into_bytes()
}

fn compare(keyspace: &Keyspace, model: &Model) -> Result<()> {
    for i in 0..400 {
        let (key, expected) = (key(i), model.get(&key(i)));
        assert!(keyspace.get(&key)?.as_deref() == expected.map(|v| &v[..]), "key {i}");
    }
    let keys: Vec<Vec<u8>> = (0..400).map(key).collect();
    let values = keyspace.multi_get(&keys)?;
    assert!(keys.iter().zip(&values).all(|(key, value)| value.as_deref() == model.get(key).map(|v| &v[..])));
    let forward: Result<Vec<_>> = keyspace.iter().collect();
    let forward = forward?;
    assert!(
        forward.len() == model.len()
            && forward.iter().zip(model).all(|(a, b)| a.0[..] == b.0[..] && a.1[..] == b.1[..])
    );
    let keys: Result<Vec<_>> = keyspace.iter().keys().collect();
    assert!(keys?.iter().map(|key| &key[..]).eq(model.keys().map(|key| &key[..])));
    let backward: Result<Vec<_>> = keyspace.iter().rev().collect();
    let backward = backward?;
    assert!(backward.iter().rev().zip(model).all(|(a, b)| a.0[..] == b.0[..] && a.1[..] == b.1[..]));
    assert_eq!(backward.len(), model.len());
    Ok(())
}

/// The bytes of the logs.
fn log_bytes(env: &SimEnv) -> u64 {
    let names = env.list(Path::new("/db")).unwrap();
    let logs = names.iter().filter(|name| name.ends_with(".log"));
    logs.map(|name| env.open(&Path::new("/db").join(name)).unwrap().len().unwrap()).sum()
}

#[test]
fn values_of_all_sizes_are_found_by_all_reads() -> Result<()> {
    for threads in [0, 2] {
        let mut env = SimEnv::new(1);
        let (mut db, mut keyspace) = open(&env, threads)?;
        let (mut rng, mut model) = (Rng::new(5), Model::new());
        for round in 0..12 {
            for _ in 0..150 {
                let key = key(rng.below(400));
                match rng.below(10) {
                    0 => {
                        keyspace.delete(&key)?;
                        model.remove(&key);
                    }
                    1 => {
                        let mut batch = db.batch();
                        for _ in 0..5 {
                            let (key, value) = (self::key(rng.below(400)), value(&mut rng));
                            batch.put(&keyspace, &key, &value);
                            model.insert(key, value);
                        }
                        db.write(batch, cairn::Durability::Os)?;
                    }
                    _ => {
                        let value = value(&mut rng);
                        keyspace.put(&key, &value)?;
                        model.insert(key, value);
                    }
                }
            }
            compare(&keyspace, &model)?;
            match round % 4 {
                0 => keyspace.flush()?,
                1 => keyspace.compact()?,
                2 => {
                    drop(keyspace);
                    db.close()?;
                    (db, keyspace) = open(&env, threads)?;
                }
                _ => {
                    // A power cut that leaves nothing but what was synced.
                    db.sync()?;
                    let after = env.crash_clone(Survival::Nothing, round);
                    drop(keyspace);
                    drop(db);
                    env = after;
                    (db, keyspace) = open(&env, threads)?;
                }
            }
            compare(&keyspace, &model)?;
        }
    }
    Ok(())
}

#[test]
fn compactions_do_not_move_large_values_and_logs_go_with_them() -> Result<()> {
    let env = SimEnv::new(1);
    let (db, keyspace) = open(&env, 0)?;
    let value = vec![7; 10_000];
    for _ in 0..4 {
        for i in 0..200 {
            keyspace.put(key(i), &value)?;
        }
        keyspace.flush()?;
    }
    let stats = db.stats();
    let tables = stats.keyspaces[0].table_bytes;
    assert!(tables < 200_000, "tables have {tables} bytes for values of 8 MB");
    assert!(log_bytes(&env) >= 2_000_000, "the logs have the values");
    keyspace.compact()?;
    let logs = log_bytes(&env);
    assert!((2_000_000..3_500_000).contains(&logs), "200 of 800 values are left, in logs of {logs} bytes");
    let snapshot = db.snapshot();
    db.drop_keyspace("k")?;
    drop(snapshot);
    db.wait_idle()?;
    assert!(log_bytes(&env) < 10_000, "nothing refers to the logs");
    Ok(())
}

/// Databases whose values are collected as soon as a twentieth of them is dead.
fn open_collecting(env: &Arc<SimEnv>, threads: usize) -> Result<(Database, Keyspace)> {
    let options = Options::default()
        .background_threads(threads)
        .memory_budget(4 << 20)
        .manifest_cap(4 << 10)
        .value_garbage_percent(5);
    let db = Database::open_in(env.clone(), "/db", options)?;
    let options = KeyspaceOptions::default().placement(PlacementPolicy::Hybrid).memtable_bytes(64 << 10);
    let keyspace = db.keyspace("k", options)?;
    Ok((db, keyspace))
}

#[test]
fn collections_keep_what_anyone_can_read_and_free_the_rest() -> Result<()> {
    for threads in [0, 2] {
        let mut env = SimEnv::new(1);
        let (mut db, mut keyspace) = open_collecting(&env, threads)?;
        let (mut rng, mut model, mut collections) = (Rng::new(6), Model::new(), 0);
        for round in 0..16 {
            let (snapshot, mut before) = (db.snapshot(), keyspace.iter());
            let seen = model.clone();
            for _ in 0..200 {
                let (key, value) = (key(rng.below(400)), value(&mut rng));
                match rng.below(8) {
                    0 => {
                        keyspace.delete(&key)?;
                        model.remove(&key);
                    }
                    _ => {
                        keyspace.put(&key, &value)?;
                        model.insert(key, value);
                    }
                }
            }
            if round % 3 == 0 {
                keyspace.compact()?;
            }
            db.wait_idle()?;
            compare(&keyspace, &model)?;
            let old: Result<Vec<_>> = snapshot.iter(&keyspace).collect();
            for old in [old?, before.by_ref().collect::<Result<Vec<_>>>()?] {
                assert!(
                    old.len() == seen.len()
                        && old.iter().zip(&seen).all(|(a, b)| a.0[..] == b.0[..] && a.1[..] == b.1[..])
                );
            }
            drop((snapshot, before));
            keyspace.compact()?;
            db.wait_idle()?;
            let values = db.stats().values;
            assert!(values.bytes <= values.live_bytes + values.live_bytes / 8 + 100_000, "{values:?}");
            assert_eq!(values.waiting_bytes, 0);
            collections += values.collections.jobs;
            compare(&keyspace, &model)?;
            if round % 2 == 0 {
                db.sync()?;
                let survival = if round % 4 == 0 { Survival::Nothing } else { Survival::Everything };
                let after = env.crash_clone(survival, round);
                drop(keyspace);
                drop(db);
                env = after;
            } else {
                drop(keyspace);
                db.close()?;
            }
            (db, keyspace) = open_collecting(&env, threads)?;
            compare(&keyspace, &model)?;
        }
        assert!(collections > 16, "{collections} collections");
        keyspace.delete_range::<&[u8]>(..)?;
        keyspace.compact()?;
        db.wait_idle()?;
        let values = db.stats().values;
        assert_eq!((values.logs, values.files), (0, 0), "nothing is alive");
        assert!(!env.list(Path::new("/db"))?.iter().any(|name| name.ends_with(".val")));
    }
    Ok(())
}

#[test]
fn salvage_copies_values_wherever_they_are_and_reports_those_that_are_lost() -> Result<()> {
    let env = SimEnv::new(1);
    let (db, keyspace) = open_collecting(&env, 0)?;
    let (mut rng, mut model) = (Rng::new(9), Model::new());
    for round in 0..6 {
        for _ in 0..200 {
            let (key, value) = (key(rng.below(400)), value(&mut rng));
            keyspace.put(&key, &value)?;
            model.insert(key, value);
        }
        keyspace.flush()?;
        if round < 4 {
            keyspace.compact()?;
        }
    }
    db.wait_idle()?;
    drop(keyspace);
    db.close()?;
    let dir = Path::new("/db");
    let values: Vec<_> = env.list(dir)?.into_iter().filter(|name| name.ends_with(".val")).collect();
    assert!(!values.is_empty());
    let salvaged = |env: &Arc<SimEnv>, to: &str| -> Result<_> {
        let report = cairn::salvage_in(env.clone(), dir, to, Options::default())?;
        let db = Database::open_in(env.clone(), to, Options::default())?;
        let keyspace = db.keyspace("k", KeyspaceOptions::default())?;
        let found: Result<Model> =
            keyspace.iter().map(|e| e.map(|(k, v)| (k.to_vec(), v.to_vec()))).collect();
        Ok((report, found?))
    };
    let (report, found) = salvaged(&env, "/whole")?;
    assert!(report.is_complete() && found == model, "{report}");
    // Without a manifest, the maps in the value files count.
    let manifest = env.list(dir)?.into_iter().find(|name| name.starts_with("manifest")).unwrap();
    let damaged = env.crash_clone(Survival::Everything, 1);
    damaged.remove(&dir.join(manifest))?;
    let (_, found) = salvaged(&damaged, "/without-manifest")?;
    assert!(found == model);
    // Without the value files, what is in them is lost, and nothing else.
    let damaged = env.crash_clone(Survival::Everything, 2);
    values.iter().try_for_each(|name| damaged.remove(&dir.join(name)))?;
    let (report, found) = salvaged(&damaged, "/without-values")?;
    assert!(!report.is_complete());
    assert!(found.len() < model.len() && found.iter().all(|(key, value)| model[key] == *value));
    let lost: Vec<_> = model.keys().filter(|key| !found.contains_key(*key)).collect();
    let told = |key: &&Vec<u8>| {
        report.losses.iter().any(|loss| loss.from.as_ref() <= Some(key) && Some(*key) <= loss.to.as_ref())
    };
    assert!(lost.iter().all(told), "{report}");
    Ok(())
}

/// 200 values of 2,000 bytes each, in logs, none of them in memory.
fn on_disk() -> Result<(Arc<SimEnv>, Database, Keyspace)> {
    let env = SimEnv::new(1);
    let (db, keyspace) = open(&env, 0)?;
    for i in 0..200 {
        keyspace.put(key(i), vec![i as u8; 2000])?;
    }
    db.flush()?;
    db.wait_idle()?;
    env.set_cached_percent(0);
    Ok((env, db, keyspace))
}

#[test]
fn keys_are_read_without_values() -> Result<()> {
    let (env, _db, keyspace) = on_disk()?;
    let reads = Arc::new(AtomicU64::new(0));
    let counter = reads.clone();
    env.set_hook(Some(Box::new(move |op: OpInfo<'_>| {
        let of_value = op.kind == OpKind::Read && op.path.extension().is_some_and(|e| e == "log");
        counter.fetch_add(u64::from(of_value && op.phase == Phase::Before), Ordering::SeqCst);
        None
    })));
    assert!(keyspace.contains(key(7))? && !keyspace.contains("nothing")?);
    assert_eq!((keyspace.iter().count(), keyspace.prefix("key0010").keys().rev().count()), (200, 10));
    let mut range = keyspace.range(key(10)..key(20));
    range.next().unwrap()?;
    range.next_back().unwrap()?;
    assert_eq!(reads.load(Ordering::SeqCst), 2, "both entries, and nothing for the others");
    let keys: Vec<_> = range.keys().collect::<Result<_>>()?;
    assert!(keys.iter().map(|key| key.to_vec()).eq((11..19).map(key)), "{keys:?}");
    assert_eq!(reads.load(Ordering::SeqCst), 2);
    env.set_hook(None);
    Ok(())
}

#[test]
fn values_are_requested_ahead_of_a_cursor() -> Result<()> {
    let (env, _db, keyspace) = on_disk()?;
    let requested = |action: &mut dyn FnMut() -> Result<()>| {
        let before = env.will_need_bytes();
        action()?;
        Ok::<_, cairn::Error>((env.will_need_bytes() - before) / 2000)
    };
    let mut cursor = keyspace.cursor();
    // Blocks of tables are requested, too: some thousand bytes.
    let sought = requested(&mut || cursor.seek(key(50)))?;
    assert!(sought <= 2, "{sought} values: a seek may be all");
    let first = requested(&mut || cursor.next())?;
    assert!((16..=24).contains(&first), "{first} values at the first step");
    let next = requested(&mut || (0..32).try_for_each(|_| cursor.next()))?;
    assert!((32..=150).contains(&next), "{next} values, of which 32 were shown");
    assert_eq!(cursor.key(), key(83));
    let back = requested(&mut || (0..83).try_for_each(|_| cursor.prev()))?;
    assert!((83..=100).contains(&back), "{back} values, of which 83 were shown");
    assert_eq!(cursor.value(), [0; 2000]);
    env.set_cached_percent(100);
    assert_eq!(
        requested(&mut || keyspace.iter().try_for_each(|entry| entry.map(drop)))?,
        0,
        "all are in memory"
    );
    Ok(())
}

#[test]
fn values_of_a_batch_of_reads_are_requested_together() -> Result<()> {
    let (env, _db, keyspace) = on_disk()?;
    let keys: Vec<_> = (0..100).map(key).collect();
    let before = env.will_need_calls();
    let values = keyspace.multi_get(&keys)?;
    assert!(values.iter().enumerate().all(|(i, value)| value.as_deref() == Some(&[i as u8; 2000][..])));
    let calls = env.will_need_calls() - before;
    assert!(calls >= 200, "{calls} requests for the blocks and the values of 100 keys");
    Ok(())
}

#[test]
fn values_requested_ahead_have_few_bytes() -> Result<()> {
    const LEN: u64 = 700_000;
    let env = SimEnv::new(1);
    let (db, keyspace) = open(&env, 0)?;
    for i in 0..30 {
        keyspace.put(key(i), vec![i as u8; LEN as usize])?;
    }
    db.flush()?;
    db.wait_idle()?;
    env.set_cached_percent(0);
    let (mut cursor, before) = (keyspace.cursor(), env.will_need_bytes());
    cursor.seek_to_first()?;
    for shown in 1..30 {
        cursor.next()?;
        let ahead = (env.will_need_bytes() - before).saturating_sub(shown * LEN);
        assert!(ahead <= (2 << 20) + LEN + (64 << 10), "{ahead} bytes behind entry {shown}");
        assert!(ahead >= LEN || shown > 25, "{ahead} bytes behind entry {shown}");
    }
    Ok(())
}

#[test]
fn values_under_a_range_tombstone_do_not_end_the_requests_ahead() -> Result<()> {
    let (env, _db, keyspace) = on_disk()?;
    keyspace.delete_range(key(20)..key(160))?;
    let mut cursor = keyspace.cursor();
    cursor.seek(key(0))?;
    (0..19).try_for_each(|_| cursor.next())?;
    assert_eq!(cursor.key(), key(19));
    let before = env.will_need_bytes();
    cursor.next()?;
    assert_eq!(cursor.key(), key(160));
    let requested = (env.will_need_bytes() - before) / 2000;
    assert!((16..=130).contains(&requested), "{requested} values when the cursor has left the deleted range");
    Ok(())
}
