//! Keyspaces without order that are flushed again and again with little in them: their small files are merged, in background work and at
//! openings, and nothing is lost, comes back, or is seen that a snapshot should not see.

use cairn::env::{Env, Fault, OpInfo, OpKind, Phase, SimEnv};
use cairn::{Database, Keyspace, KeyspaceOptions, Options, Preset, Snapshot};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// No more files than this are left of so small flushes: seven of each of two lengths, each with hints of two keyspaces, and what a database has.
const MOST_FILES: usize = 2 * 7 * 3 + 16;

fn open(env: &Arc<SimEnv>, threads: u32) -> Database {
    let options = Options::default().background_threads(threads as usize).memory_budget(1 << 20);
    Database::open_in(env.clone(), "/db", options.disk_reserve(0)).unwrap()
}

fn hashed(db: &Database, name: &str) -> Keyspace {
    db.keyspace(name, KeyspaceOptions::preset(Preset::HashLog)).unwrap()
}

fn files(env: &SimEnv) -> usize {
    env.list(Path::new("/db")).unwrap().len()
}

fn entries(keyspace: &Keyspace) -> Map {
    let entry = |entry: cairn::Result<(cairn::Slice, cairn::Slice)>| {
        let (key, value) = entry.unwrap();
        (key.to_vec(), value.to_vec())
    };
    keyspace.entries().map(entry).collect()
}

fn compare(keyspace: &Keyspace, map: &Map) {
    assert_eq!(entries(keyspace), *map);
    for key in 0..100u64 {
        let key = key.to_be_bytes();
        assert_eq!(keyspace.get(key).unwrap().as_deref(), map.get(&key[..]).map(Vec::as_slice), "{key:?}");
    }
}

fn compare_then(snapshot: &Snapshot, keyspace: &Keyspace, map: &Map) {
    for key in 0..100u64 {
        let key = key.to_be_bytes();
        let found = snapshot.get(keyspace, key).unwrap();
        assert_eq!(found.as_deref(), map.get(&key[..]).map(Vec::as_slice), "{key:?}");
    }
}

/// Puts and deletes a few entries of both keyspaces, and flushes them.
fn step(round: u64, keyspaces: [&Keyspace; 2], maps: &mut [Map; 2], db: &Database) {
    for (keyspace, map) in keyspaces.into_iter().zip(maps) {
        let key = (round * 7 % 100).to_be_bytes().to_vec();
        let value = format!("{} {round}", keyspace.name()).into_bytes();
        keyspace.put(&key, &value).unwrap();
        map.insert(key, value);
        let other = (round * 13 % 100).to_be_bytes().to_vec();
        if round.is_multiple_of(3) {
            keyspace.delete(&other).unwrap();
            map.remove(&other);
        }
    }
    db.flush().unwrap();
}

#[test]
fn small_files_of_many_flushes_are_merged() {
    for threads in [0, 1] {
        let env = SimEnv::new(1);
        let mut db = open(&env, threads);
        let [mut a, mut b] = ["a", "b"].map(|name| hashed(&db, name));
        let mut maps = [Map::new(), Map::new()];
        let mut then: Option<(Snapshot, [Map; 2])> = None;
        for round in 0..600 {
            step(round, [&a, &b], &mut maps, &db);
            if round.is_multiple_of(40) {
                db.wait_idle().unwrap();
                assert!(files(&env) < MOST_FILES, "round {round}: {:?}", env.list(Path::new("/db")));
                [&a, &b].into_iter().zip(&maps).for_each(|(keyspace, map)| compare(keyspace, map));
                if let Some((snapshot, maps)) = &then {
                    [&a, &b].into_iter().zip(maps).for_each(|(k, map)| compare_then(snapshot, k, map));
                }
            }
            match round % 250 {
                100 => then = Some((db.snapshot(), maps.clone())),
                230 => then = None,
                _ => {}
            }
            if round == 350 {
                then = None;
                drop((a, b));
                db.close().unwrap();
                db = open(&env, threads);
                [a, b] = ["a", "b"].map(|name| hashed(&db, name));
            }
        }
        db.wait_idle().unwrap();
        let problems = db.check(&mut |_| ()).unwrap().problems;
        assert!(problems.is_empty(), "{problems:?}");
    }
}

#[test]
fn openings_that_replay_little_do_not_leave_more_and_more_files() {
    let env = SimEnv::new(1);
    let mut map = Map::new();
    for round in 0..300u64 {
        let db = open(&env, 0);
        let keyspace = hashed(&db, "a");
        let (key, value) = ((round % 90).to_be_bytes().to_vec(), round.to_le_bytes().to_vec());
        keyspace.put(&key, &value).unwrap();
        map.insert(key, value);
        if round.is_multiple_of(50) {
            compare(&keyspace, &map);
        }
        drop((keyspace, db));
        assert!(files(&env) < MOST_FILES, "round {round}: {:?}", env.list(Path::new("/db")));
    }
    let db = open(&env, 0);
    compare(&hashed(&db, "a"), &map);
}

/// To find the references to values in the files of a tree, a collection would read its tables: files that it shares with a keyspace without order
/// stay until one of the two is gone.
#[test]
fn files_with_values_of_tables_are_merged_when_no_table_refers_to_them_any_more() {
    for drops_tree in [true, false] {
        let env = SimEnv::new(1);
        let db = open(&env, 0);
        let tree = db.keyspace("tree", KeyspaceOptions::preset(Preset::Parallax)).unwrap();
        let hashed = hashed(&db, "hashed");
        for round in 0..64u64 {
            // What is left of the files has more than nine tenths of the bytes: too little is dead for a collection.
            let [in_tree, in_hashed] = if drops_tree { [400, 4000] } else { [4000, 300] };
            tree.put(round.to_be_bytes(), vec![7; in_tree]).unwrap();
            hashed.put(round.to_be_bytes(), vec![8; in_hashed]).unwrap();
            db.flush().unwrap();
        }
        db.wait_idle().unwrap();
        let read = || db.stats().values.collections.bytes_read;
        assert_eq!(read(), 0);
        assert!(files(&env) > 128, "a log and a hint file for each flush");
        db.drop_keyspace(if drops_tree { "tree" } else { "hashed" }).unwrap();
        let logs = files(&env);
        db.wait_idle().unwrap();
        match drops_tree {
            true => {
                assert!(read() > 64 * 4000 && files(&env) < 20, "{} read, {} files", read(), files(&env));
                assert_eq!(hashed.entries().count(), 64);
            }
            false => {
                assert_eq!((read(), files(&env)), (0, logs));
                assert_eq!(tree.iter().count(), 64);
            }
        }
    }
}

/// A merge that fails is no error of any call, and is not tried again at once.
#[test]
fn a_merge_that_fails_is_left_for_a_while() {
    for fault in [Fault::EIO, Fault::ENOSPC, Fault::EMFILE] {
        let env = SimEnv::new(1);
        let db = open(&env, 0);
        let keyspace = hashed(&db, "a");
        let tried = Arc::new(AtomicU64::new(0));
        let count = tried.clone();
        env.set_hook(Some(Box::new(move |op: OpInfo<'_>| {
            let is_value_file = op.path.extension().is_some_and(|extension| extension == "val");
            let meant = op.phase == Phase::Before && op.kind == OpKind::Create && is_value_file;
            meant.then(|| {
                count.fetch_add(1, Ordering::Relaxed);
                fault
            })
        })));
        for round in 0..100u64 {
            keyspace.put(round.to_be_bytes(), [1; 100]).unwrap();
            db.flush().unwrap();
        }
        db.wait_idle().unwrap();
        assert_eq!(tried.load(Ordering::Relaxed), 1, "{fault:?}");
        env.set_hook(None);
        assert_eq!(entries(&keyspace).len(), 100);
        drop(keyspace);
        db.close().unwrap();
        let db = open(&env, 0);
        db.wait_idle().unwrap();
        assert!(files(&env) < 40, "{fault:?}: {} files", files(&env));
        assert_eq!(entries(&hashed(&db, "a")).len(), 100);
    }
}

/// The last of the space is for flushes and deletes.
#[test]
fn a_nearly_full_disk_stops_merges_and_nothing_else() {
    let env = SimEnv::new(1);
    let db = open(&env, 0);
    let keyspace = hashed(&db, "a");
    let put = |round: u64| {
        keyspace.put(round.to_be_bytes(), [round as u8; 15_000]).unwrap();
        db.flush().unwrap();
    };
    (0..5).for_each(put);
    let used = |env: &SimEnv| -> u64 {
        let names = env.list(Path::new("/db")).unwrap();
        names.iter().map(|name| env.len(&Path::new("/db").join(name)).unwrap_or(0)).sum()
    };
    // Room for the puts that follow, but not for four times what would be merged.
    env.set_capacity(Some(used(&env) + 400_000));
    (5..17).for_each(put);
    db.wait_idle().unwrap();
    assert_eq!(db.stats().values.collections.bytes_read, 0);
    env.set_capacity(None);
    put(17);
    db.wait_idle().unwrap();
    assert!(db.stats().values.collections.bytes_read > 0);
    assert_eq!(entries(&keyspace).len(), 18);
}
