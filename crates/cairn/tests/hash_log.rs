//! Keyspaces without order: against a map, through flushes, collections, snapshots and openings; what is refused; and what an index takes.

use cairn::env::{Env, Fault, OpInfo, OpKind, Phase, Rng, SimEnv};
use cairn::{Database, Durability, ErrorKind, Keyspace, KeyspaceOptions, Options, Preset, Slice, Snapshot};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

fn options() -> Options {
    Options::default().background_threads(0).memory_budget(1 << 20).log_cap(4 << 20)
}

fn hash_log() -> KeyspaceOptions {
    KeyspaceOptions::preset(Preset::HashLog).memtable_bytes(16 << 10)
}

fn key(i: u64) -> Vec<u8> {
    match i % 50 {
        0 => Vec::new(),
        n => format!("key {i} {}", "x".repeat(n as usize % 7)).into_bytes(),
    }
}

fn value(rng: &mut Rng) -> Vec<u8> {
    let len = match rng.below(40) {
        0 => 0,
        // Over several chunks of the log.
        1 => 30_000 + rng.below(80_000),
        _ => rng.below(200),
    };
    let mut value = vec![0; len as usize];
    rng.fill(&mut value);
    value
}

/// What both a keyspace and a snapshot of it can do.
enum Reads<'a> {
    Now(&'a Keyspace),
    Then(&'a Snapshot, &'a Keyspace),
}

impl Reads<'_> {
    fn get(&self, key: &[u8]) -> Option<Slice> {
        match self {
            Reads::Now(keyspace) => keyspace.get(key).unwrap(),
            Reads::Then(snapshot, keyspace) => snapshot.get(keyspace, key).unwrap(),
        }
    }

    fn multi_get(&self, keys: &[Vec<u8>]) -> Vec<Option<Slice>> {
        match self {
            Reads::Now(keyspace) => keyspace.multi_get(keys).unwrap(),
            Reads::Then(snapshot, keyspace) => snapshot.multi_get(keyspace, keys).unwrap(),
        }
    }

    fn entries(&self) -> Map {
        let entries = match self {
            Reads::Now(keyspace) => keyspace.entries(),
            Reads::Then(snapshot, keyspace) => snapshot.entries(keyspace),
        };
        let mut map = Map::new();
        for entry in entries {
            let (key, value) = entry.unwrap();
            assert!(
                map.insert(key.to_vec(), value.to_vec()).is_none(),
                "{} is shown twice",
                key.escape_ascii()
            );
        }
        map
    }

    fn compare(&self, map: &Map) {
        let keys: Vec<Vec<u8>> = (0..120).map(key).collect();
        let found = self.multi_get(&keys);
        for (key, found) in keys.iter().zip(&found) {
            assert!(*found == self.get(key), "{}", key.escape_ascii());
            assert!(found.as_deref() == map.get(key).map(Vec::as_slice), "{}", key.escape_ascii());
        }
        assert!(self.entries() == *map);
    }
}

struct Store {
    env: Arc<SimEnv>,
    db: Database,
    hashed: Keyspace,
    tree: Keyspace,
}

fn open(env: &Arc<SimEnv>) -> Store {
    open_with(env, options())
}

fn open_with(env: &Arc<SimEnv>, options: Options) -> Store {
    let db = Database::open_in(env.clone(), "/db", options).unwrap();
    let hashed = db.keyspace("hashed", hash_log()).unwrap();
    let tree =
        db.keyspace("tree", KeyspaceOptions::preset(Preset::Parallax).memtable_bytes(16 << 10)).unwrap();
    Store { env: env.clone(), db, hashed, tree }
}

#[test]
fn a_keyspace_without_order_answers_like_a_map() {
    for seed in 0..12 {
        let mut rng = Rng::new(seed);
        let env = SimEnv::new(seed);
        let mut store = open(&env);
        let (mut map, mut in_tree) = (Map::new(), Map::new());
        let mut snapshots: Vec<(Snapshot, Map)> = Vec::new();
        for round in 0..60 {
            for _ in 0..rng.below(120) {
                let key = key(rng.below(120));
                match rng.below(8) {
                    0 => {
                        store.hashed.delete(&key).unwrap();
                        map.remove(&key);
                    }
                    1 => {
                        // A batch over both kinds of keyspaces.
                        let mut batch = store.db.batch();
                        for _ in 0..1 + rng.below(60) {
                            let (key, value) = (self::key(rng.below(120)), value(&mut rng));
                            match rng.below(5) {
                                0 => {
                                    batch.delete(&store.hashed, &key);
                                    map.remove(&key);
                                }
                                1 => {
                                    batch.put(&store.tree, &key, &value);
                                    in_tree.insert(key, value);
                                }
                                _ => {
                                    batch.put(&store.hashed, &key, &value);
                                    map.insert(key, value);
                                }
                            }
                        }
                        store.db.write(batch, Durability::Os).unwrap();
                    }
                    _ => {
                        let value = value(&mut rng);
                        store.hashed.put(&key, &value).unwrap();
                        map.insert(key, value);
                    }
                }
            }
            match rng.below(8) {
                0 => store.hashed.flush().unwrap(),
                1 => store.db.wait_idle().unwrap(),
                2 => snapshots.push((store.db.snapshot(), map.clone())),
                3 => snapshots.clear(),
                4 if round > 10 => {
                    snapshots.clear();
                    let Store { env, db, hashed, tree } = store;
                    drop((hashed, tree));
                    match rng.below(2) {
                        0 => db.close().unwrap(),
                        _ => drop(db),
                    }
                    store = open(&env);
                }
                _ => {}
            }
            Reads::Now(&store.hashed).compare(&map);
            for (snapshot, map) in &snapshots {
                Reads::Then(snapshot, &store.hashed).compare(map);
            }
            for key in (0..120).map(key) {
                assert!(store.tree.get(&key).unwrap().as_deref() == in_tree.get(&key).map(Vec::as_slice));
            }
        }
        drop(snapshots);
        store.db.wait_idle().unwrap();
        Reads::Now(&store.hashed).compare(&map);
        let report = store.db.check(&mut |_| ()).unwrap();
        assert!(report.problems.is_empty(), "{:?}", report.problems);
        store.db.drop_keyspace("hashed").unwrap();
        assert_eq!(store.hashed.get("key 1 x").unwrap_err().kind(), ErrorKind::Closed);
        store.db.wait_idle().unwrap();
        let hints = store.env.list("/db".as_ref()).unwrap().into_iter().filter(|name| name.ends_with(".hnt"));
        assert_eq!(hints.count(), 0, "a dropped keyspace leaves nothing");
    }
}

#[test]
fn what_needs_an_order_is_refused() {
    let env = SimEnv::new(1);
    let Store { db, hashed, .. } = open(&env);
    hashed.put("a", "1").unwrap();
    let refused = |error: cairn::Error| {
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.to_string().contains("no order"), "{error}");
    };
    refused(hashed.range("a".."b").next().unwrap().unwrap_err());
    refused(hashed.iter().next_back().unwrap().unwrap_err());
    refused(hashed.prefix("a").keys().next().unwrap().unwrap_err());
    refused(hashed.cursor().seek("a").unwrap_err());
    refused(hashed.delete_range("a".."b").unwrap_err());
    refused(hashed.delete_prefix("a").unwrap_err());
    refused(hashed.compact_range("a".."b").unwrap_err());
    refused(hashed.compact_range(..="b").unwrap_err());
    let mut batch = db.batch();
    batch.delete_range(&hashed, "a".."b");
    refused(db.write(batch, Durability::Os).unwrap_err());
    let with_history = hash_log().history(cairn::Retention::All);
    assert_eq!(db.keyspace("versions", with_history).unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert_eq!(hashed.get("a").unwrap().unwrap(), "1");
}

/// Overwrites do not let the files grow without bound, and what is written once is not copied.
#[test]
fn collections_bound_the_space_of_overwrites() {
    let env = SimEnv::new(1);
    let Store { env, db, hashed, .. } = open(&env);
    let mut rng = Rng::new(5);
    let mut newest = Map::new();
    for i in 0..40_000u64 {
        let (key, value) = (format!("key{}", rng.below(2000)).into_bytes(), i.to_le_bytes().repeat(16));
        hashed.put(&key, &value).unwrap();
        newest.insert(key, value);
    }
    db.wait_idle().unwrap();
    let live: usize = newest.iter().map(|(key, value)| key.len() + value.len()).sum();
    let files = env.list("/db".as_ref()).unwrap();
    let bytes: u64 = files.iter().map(|name| env.len(format!("/db/{name}").as_ref()).unwrap_or(0)).sum();
    assert!(bytes < 4 * live as u64 + (4 << 20), "{bytes} bytes for {live} live ones");
    assert!(Reads::Now(&hashed).entries() == newest);
}

/// A full disk or a lack of file handles is no reason to leave files alone.
#[test]
fn collections_go_on_after_errors_that_say_nothing_about_files() {
    for fault in [Fault::ENOSPC, Fault::EMFILE] {
        let env = SimEnv::new(1);
        let Store { env, db, hashed, .. } = open(&env);
        let (fails, failed) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicU64::new(0)));
        let (fail, count, reads) = (fails.clone(), failed.clone(), AtomicBool::new(false));
        // A collection reads hint files before it begins one, a flush reads none.
        env.set_hook(Some(Box::new(move |op: OpInfo<'_>| {
            if op.phase != Phase::Before || !op.path.to_string_lossy().ends_with(".hnt") {
                return None;
            }
            match op.kind {
                OpKind::Open => reads.store(true, Ordering::Relaxed),
                OpKind::Create if reads.swap(false, Ordering::Relaxed) && fail.load(Ordering::Relaxed) => {
                    count.fetch_add(1, Ordering::Relaxed);
                    return Some(fault);
                }
                _ => {}
            }
            None
        })));
        let mut newest = Map::new();
        for i in 0..10_000u64 {
            let (key, value) = ((i % 500).to_be_bytes().to_vec(), i.to_le_bytes().repeat(16));
            hashed.put(&key, &value).unwrap();
            newest.insert(key, value);
        }
        let of_fault = db.wait_idle();
        assert!(failed.load(Ordering::Relaxed) > 5, "{fault:?}: {failed:?} {of_fault:?}");
        fails.store(false, Ordering::Relaxed);
        db.wait_idle().unwrap();
        let names = env.list("/db".as_ref()).unwrap();
        let bytes: u64 = names.iter().map(|name| env.len(format!("/db/{name}").as_ref()).unwrap_or(0)).sum();
        let live: usize = newest.iter().map(|(key, value)| key.len() + value.len()).sum();
        assert!(bytes < 4 * live as u64 + (1 << 20), "{fault:?}: {bytes} bytes for {live} live ones");
        assert!(Reads::Now(&hashed).entries() == newest);
    }
}

/// Collections move entries under an iterator, which shows what there was; their files stay until it ends. Over a keyspace that was dropped it goes
/// on.
#[test]
fn iterators_keep_the_files_that_they_read() {
    let env = SimEnv::new(1);
    let Store { env, db, hashed, .. } = open(&env);
    let put_all = |round: u64| {
        (0..400u64).for_each(|i| hashed.put(key(i), (round + i).to_le_bytes().repeat(30)).unwrap())
    };
    put_all(0);
    hashed.flush().unwrap();
    let mut entries = hashed.entries();
    let expected: Map = (0..400).map(|i| (key(i), i.to_le_bytes().repeat(30))).collect();
    let mut found = Map::new();
    for round in 1..30 {
        put_all(round);
        hashed.flush().unwrap();
        db.wait_idle().unwrap();
        for entry in entries.by_ref().take(10) {
            let (key, value) = entry.unwrap();
            assert!(found.insert(key.to_vec(), value.to_vec()).is_none());
        }
    }
    entries.by_ref().for_each(|entry| {
        let (key, value) = entry.unwrap();
        assert!(found.insert(key.to_vec(), value.to_vec()).is_none());
    });
    assert!(found == expected);
    assert!(db.stats().values.collections.jobs > 0, "collections ran beside the iterator");
    let index = hashed.stats().hash_log.unwrap();
    assert!(index.entries < 5 * 400, "{index:?}");
    let bytes = |env: &Arc<SimEnv>| -> u64 {
        let names = env.list("/db".as_ref()).unwrap();
        names.iter().map(|name| env.len(format!("/db/{name}").as_ref()).unwrap_or(0)).sum()
    };
    let held = bytes(&env);
    drop(entries);
    put_all(99);
    hashed.flush().unwrap();
    db.wait_idle().unwrap();
    assert!(bytes(&env) < held / 2, "{} of {held} bytes are left", bytes(&env));
    let mut entries = hashed.entries();
    entries.next().unwrap().unwrap();
    let snapshot = db.snapshot();
    db.drop_keyspace("hashed").unwrap();
    assert_eq!(entries.map(Result::unwrap).count(), expected.len() - 1);
    assert_eq!(snapshot.get(&hashed, key(3)).unwrap_err().kind(), ErrorKind::Closed);
}

/// What is intact comes back, and a deleted key does not.
#[test]
fn salvage_finds_what_is_there() {
    let env = SimEnv::new(3);
    let Store { db, hashed, tree, .. } = open(&env);
    let (mut rng, mut map) = (Rng::new(4), Map::new());
    for i in 0..6000u64 {
        let key = format!("key{}", rng.below(700)).into_bytes();
        if rng.below(4) == 0 {
            hashed.delete(&key).unwrap();
            map.remove(&key);
        } else {
            let value = value(&mut rng);
            hashed.put(&key, &value).unwrap();
            map.insert(key, value);
        }
        if i % 500 == 0 {
            tree.put(i.to_le_bytes(), vec![1; 3000]).unwrap();
            tree.flush().unwrap();
        }
    }
    drop((hashed, tree));
    db.close().unwrap();
    let report = cairn::salvage_in(env.clone(), "/db", "/new", options()).unwrap();
    assert!(report.is_complete(), "{:?}", report.losses);
    let db = Database::open_in(env.clone(), "/new", options()).unwrap();
    let hashed = db.open_keyspace("hashed").unwrap();
    assert!(Reads::Now(&hashed).entries() == map);
    db.close().unwrap();
    // Without a manifest all that is in the files counts: every key that is there is found.
    for name in env.list("/db".as_ref()).unwrap().into_iter().filter(|name| name.starts_with("manifest")) {
        env.remove(format!("/db/{name}").as_ref()).unwrap();
    }
    let report = cairn::salvage_in(env.clone(), "/db", "/other", options()).unwrap();
    assert!(!report.is_complete());
    let db = Database::open_in(env.clone(), "/other", options()).unwrap();
    let found = Reads::Now(&db.open_keyspace("hashed").unwrap()).entries();
    // A deleted key may reappear, which the report says.
    assert!(map.iter().all(|(key, value)| found.get(key) == Some(value)));
}

/// Puts are refused when the index has no room in the memory budget; deletes are not, and a larger budget ends it.
#[test]
fn an_index_that_does_not_fit_refuses_puts() {
    let env = SimEnv::new(1);
    let Store { db, hashed, tree, .. } = open(&env);
    let put = |i: u64| hashed.put(i.to_be_bytes(), "v");
    let refused = (0..1_000_000).find_map(|i| put(i).err().map(|e| (i, e)));
    let (count, error) = refused.expect("a budget of 1 MiB is too small for a million keys");
    assert_eq!(error.kind(), ErrorKind::NoMemory, "{error}");
    assert!(count > 20_000, "{count}");
    hashed.delete(0u64.to_be_bytes()).unwrap();
    tree.put("other keyspaces", "go on").unwrap();
    assert_eq!(hashed.get(1u64.to_be_bytes()).unwrap().unwrap(), "v");
    drop((hashed, tree));
    db.close().unwrap();
    let db = Database::open_in(env.clone(), "/db", options().memory_budget(8 << 20)).unwrap();
    let hashed = db.open_keyspace("hashed").unwrap();
    hashed.put("more", "fits").unwrap();
    let stats = hashed.stats().hash_log.unwrap();
    assert!(
        !stats.is_full && stats.newest >= count - 1 && stats.index_bytes / stats.entries < 20,
        "{stats:?}"
    );
    // With the smaller budget again, the index has what it needs, and puts are refused at once, batches as a whole.
    (0..2 * count).for_each(|i| hashed.put(i.to_be_bytes(), "w").unwrap());
    drop(hashed);
    db.close().unwrap();
    let db = Database::open_in(env.clone(), "/db", options()).unwrap();
    let (hashed, tree) = (db.open_keyspace("hashed").unwrap(), db.open_keyspace("tree").unwrap());
    assert!(hashed.stats().hash_log.unwrap().is_full);
    assert_eq!(hashed.get("more").unwrap().unwrap(), "fits");
    assert_eq!(hashed.put("more", "again").unwrap_err().kind(), ErrorKind::NoMemory);
    let mut batch = db.batch();
    batch.put(&tree, "of a batch", "1");
    batch.put(&hashed, "of a batch", "1");
    assert_eq!(db.write(batch, Durability::Os).unwrap_err().kind(), ErrorKind::NoMemory);
    assert!(tree.get("of a batch").unwrap().is_none() && hashed.get("of a batch").unwrap().is_none());
    let refused = db.transaction(|tx| tx.put(&hashed, "of a transaction", "1")).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::NoMemory);
    hashed.delete("more").unwrap();
    assert!(hashed.get("more").unwrap().is_none());
    db.close().unwrap();
}

/// Where the keys fit and their overwritten entries would not, puts wait for collections instead of being refused: with background threads and
/// without.
#[test]
fn puts_wait_for_collections_when_overwritten_entries_fill_the_index() {
    for threads in [0, 2] {
        let dir = tempfile::tempdir().unwrap();
        // There is room for about 34,000 entries, and space alone would allow ten of each key.
        let options = Options::default()
            .background_threads(threads)
            .memory_budget(1 << 20)
            .log_cap(4 << 20)
            .value_garbage_percent(90);
        let db = Database::open_with(dir.path(), options).unwrap();
        let hashed = db.keyspace("hashed", hash_log()).unwrap();
        for n in 0..150_000u64 {
            hashed.put((n * 7 % 12_000).to_be_bytes(), n.to_be_bytes()).unwrap();
        }
        for n in 138_000..150_000u64 {
            let found = hashed.get((n * 7 % 12_000).to_be_bytes()).unwrap().unwrap();
            assert_eq!(found, n.to_be_bytes(), "{threads} threads");
        }
        db.wait_idle().unwrap();
        assert!(db.stats().values.collections.jobs > 0);
        // New keys are refused at last: nothing of them can be collected.
        let refused = (0..1_000_000u64).find_map(|n| hashed.put(n.to_le_bytes(), "new").err());
        assert_eq!(refused.unwrap().kind(), ErrorKind::NoMemory);
        db.close().unwrap();
    }
}

/// Sets a flag when it is dropped, also by a panic.
struct SetAtEnd<'a>(&'a std::sync::atomic::AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, std::sync::atomic::Ordering::Relaxed);
    }
}

/// Closes a database when it is dropped, also by a panic.
struct CloseAtEnd(Option<Database>);

impl Drop for CloseAtEnd {
    fn drop(&mut self) {
        let _ = self.0.take().map(Database::close);
    }
}

/// Writers, readers, iterators and snapshots beside flushes and collections: no value goes back, and none is missing.
#[test]
fn threads_read_beside_flushes_and_collections() {
    const KEYS: u64 = 300;
    let dir = tempfile::tempdir().unwrap();
    let options = Options::default().background_threads(2).memory_budget(2 << 20).log_cap(4 << 20);
    let db = Database::open_with(dir.path(), options).unwrap();
    let hashed = db.keyspace("hashed", hash_log()).unwrap();
    let key = |i: u64| format!("key{i}").into_bytes();
    let number = |value: &[u8]| u64::from_le_bytes(value[..8].try_into().unwrap());
    let value = |n: u64| [&n.to_le_bytes()[..], &[7; 120]].concat();
    (0..KEYS).for_each(|i| hashed.put(key(i), value(0)).unwrap());
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..2u64)
            .map(|reader| {
                let (db, hashed, done) = (&db, &hashed, &done);
                scope.spawn(move || {
                    let (mut rng, mut seen, mut rounds) = (Rng::new(reader), vec![0; KEYS as usize], 0);
                    while !done.load(std::sync::atomic::Ordering::Relaxed) {
                        for _ in 0..100 {
                            let i = rng.below(KEYS);
                            let found = number(&hashed.get(key(i)).unwrap().expect("no key is deleted"));
                            assert!(found >= seen[i as usize], "key {i} went back");
                            seen[i as usize] = found;
                        }
                        let snapshot = db.snapshot();
                        let all: Vec<Vec<u8>> = (0..KEYS).map(key).collect();
                        let before = snapshot.multi_get(hashed, &all).unwrap();
                        if rng.below(4) == 0 {
                            let entries: cairn::Result<Vec<_>> = snapshot.entries(hashed).collect();
                            let entries: BTreeMap<_, _> = entries.unwrap().into_iter().collect();
                            assert_eq!(entries.len() as u64, KEYS);
                            assert!(
                                all.iter()
                                    .zip(&before)
                                    .all(|(key, value)| entries.get(&key[..]) == value.as_ref())
                            );
                        }
                        assert!(
                            snapshot.multi_get(hashed, &all).unwrap() == before,
                            "a snapshot has changed"
                        );
                        // Each batch sets two neighbours to one number.
                        let now = hashed.multi_get(&all).unwrap();
                        for pair in now.chunks(2) {
                            assert!(pair[0] == pair[1], "half of a batch");
                        }
                        rounds += 1;
                    }
                    rounds
                })
            })
            .collect();
        let end = SetAtEnd(&done);
        let mut rng = Rng::new(9);
        for n in 1..60_000u64 {
            let i = rng.below(KEYS / 2) * 2;
            let mut batch = db.batch();
            batch.put(&hashed, key(i), value(n));
            batch.put(&hashed, key(i + 1), value(n));
            db.write(batch, Durability::Os).unwrap();
        }
        drop(end);
        readers.into_iter().for_each(|reader| assert!(reader.join().unwrap() > 0));
    });
    db.wait_idle().unwrap();
    let stats = hashed.stats().hash_log.unwrap();
    assert!(stats.newest >= KEYS && stats.entries < 100 * KEYS, "{stats:?}");
    assert!(db.stats().values.collections.jobs > 0, "collections ran beside the reads");
    assert!(db.check(&mut |_| ()).unwrap().problems.is_empty());
    let report = db.scrub(0).unwrap();
    assert!(report.problems.is_empty() && report.entries > 0, "{report:?}");
}

/// A keyspace is dropped while collections copy entries of it and of another one, and the database is closed under gets and iterators: the other
/// one keeps its entries, and late calls fail with `Closed`.
#[test]
fn drops_and_closes_beside_collections() {
    let dir = tempfile::tempdir().unwrap();
    let options = || Options::default().background_threads(2).memory_budget(2 << 20).log_cap(4 << 20);
    let key = |i: u64| format!("key{i}").into_bytes();
    let value = |n: u64| n.to_le_bytes().repeat(20);
    let mut expected = Map::new();
    for round in 0..12 {
        let db = Database::open_with(dir.path(), options()).unwrap();
        let kept = db.keyspace("kept", hash_log()).unwrap();
        let dropped = db.keyspace("dropped", hash_log()).unwrap();
        let found = Reads::Now(&kept).entries();
        assert!(found == expected, "round {round}: {} of {} entries", found.len(), expected.len());
        std::thread::scope(|scope| {
            let reads = || {
                let closed = |what: &str, keyspace: &Keyspace, error: cairn::Error| {
                    let name = keyspace.name();
                    assert_eq!(error.kind(), ErrorKind::Closed, "{what} of {name}: {error}");
                };
                loop {
                    for keyspace in [&kept, &dropped] {
                        if let Err(e) = keyspace.get(key(round)) {
                            closed("get", keyspace, e);
                        }
                        if let Some(e) = keyspace.entries().find_map(Result::err) {
                            closed("entries", keyspace, e);
                        }
                    }
                    if kept.get(key(round)).is_err() {
                        return;
                    }
                }
            };
            // Two requests at a time, also of one keyspace.
            let compacts = || {
                for n in 0u64.. {
                    let keyspace = if n % 4 == 0 { &dropped } else { &kept };
                    let compacted = if n % 3 == 0 { keyspace.rewrite() } else { keyspace.compact() };
                    match compacted {
                        Err(e) if e.kind() == ErrorKind::Closed && keyspace.name() == "kept" => return,
                        Err(e) => assert_eq!(e.kind(), ErrorKind::Closed, "{e}"),
                        Ok(()) => {}
                    }
                }
            };
            let others =
                [scope.spawn(reads), scope.spawn(reads), scope.spawn(compacts), scope.spawn(compacts)];
            let mut db = CloseAtEnd(Some(db));
            for n in 0..6_000u64 {
                let i = n * 7 % 200;
                kept.put(key(i), value(round * 10_000 + n)).unwrap();
                expected.insert(key(i), value(round * 10_000 + n));
                let late = dropped.put(key(i), value(n));
                assert!(n < 4_000 || late.is_err());
                if n == 3_999 {
                    db.0.as_ref().unwrap().drop_keyspace("dropped").unwrap();
                }
            }
            db.0.take().unwrap().close().unwrap();
            others.into_iter().for_each(|other| other.join().unwrap());
        });
        let report = cairn::check(dir.path(), &mut |_| ()).unwrap();
        assert!(report.problems.is_empty(), "round {round}: {:?}", report.problems);
    }
}

/// A queue: what is put is deleted by and by, and neither leaves an entry in the index for ever.
#[test]
fn deletes_go_with_what_they_hide() {
    let env = SimEnv::new(1);
    let Store { db, hashed, .. } = open(&env);
    let key = |round: u64, i: u64| [round.to_be_bytes(), i.to_be_bytes()].concat();
    for round in 0..60u64 {
        for i in 0..300 {
            hashed.put(key(round, i), [7; 60]).unwrap();
            if round > 0 {
                hashed.delete(key(round - 1, i)).unwrap();
            }
        }
        hashed.flush().unwrap();
    }
    db.wait_idle().unwrap();
    let stats = hashed.stats().hash_log.unwrap();
    assert!(stats.entries < 12 * 300, "{stats:?}");
    assert_eq!(hashed.entries().map(Result::unwrap).count(), 300);
    assert!(db.check(&mut |_| ()).unwrap().problems.is_empty());
}

/// Where what is put is deleted much later, the deletes are in files of their own: they go, too, when nothing is left that they hide. So do deletes of
/// what never was.
#[test]
fn deletes_in_files_of_their_own_go() {
    let env = SimEnv::new(1);
    let Store { db, hashed, .. } = open(&env);
    let key = |i: u64| i.to_be_bytes();
    let is_empty = |hashed: &Keyspace| {
        let stats = hashed.stats().hash_log.unwrap();
        assert_eq!((stats.entries, stats.newest, stats.files, stats.hint_files), (0, 0, 0, 0), "{stats:?}");
        assert_eq!(hashed.approximate_len::<&[u8]>(..).unwrap(), 0);
        assert_eq!(hashed.entries().count(), 0);
    };
    for round in 0..3 {
        let keys = 4000 * round..4000 * (round + 1);
        keys.clone().for_each(|i| hashed.put(key(i), [7; 60]).unwrap());
        hashed.flush().unwrap();
        db.wait_idle().unwrap();
        let snapshot = (round == 1).then(|| db.snapshot());
        keys.clone().for_each(|i| hashed.delete(key(i)).unwrap());
        hashed.flush().unwrap();
        db.wait_idle().unwrap();
        if let Some(snapshot) = snapshot {
            assert_eq!(hashed.stats().hash_log.unwrap().newest, 4000, "the deletes hide something");
            assert!(keys.clone().all(|i| snapshot.get(&hashed, key(i)).unwrap().is_some()));
            drop(snapshot);
            hashed.compact().unwrap();
            hashed.compact().unwrap();
        }
        is_empty(&hashed);
        assert!(keys.clone().all(|i| hashed.get(key(i)).unwrap().is_none()));
    }
    (0..20_000).for_each(|i| hashed.delete(key(1 << 40 | i)).unwrap());
    hashed.flush().unwrap();
    db.wait_idle().unwrap();
    is_empty(&hashed);
    assert!(db.check(&mut |_| ()).unwrap().problems.is_empty());
    drop(hashed);
    db.close().unwrap();
    let Store { db, hashed, .. } = open(&env);
    is_empty(&hashed);
    db.close().unwrap();
}

/// What a get costs when nothing is in memory: one read of the disk, or two where the entry is long; at a snapshot one more for each newer entry of
/// its key. A snapshot also keeps the slots of what it sees.
#[test]
fn gets_take_one_read_of_the_disk() {
    let env = SimEnv::new(1);
    let Store { env, db, hashed, .. } = open(&env);
    let reads = Arc::new(AtomicU64::new(0));
    let counter = reads.clone();
    env.set_cached_percent(0);
    env.set_hook(Some(Box::new(move |op: OpInfo<'_>| {
        let is_read = op.kind == OpKind::Read && op.phase == Phase::Before;
        counter.fetch_add(u64::from(is_read), Ordering::SeqCst);
        None
    })));
    let reads_of = |act: &dyn Fn()| {
        let before = reads.load(Ordering::SeqCst);
        act();
        reads.load(Ordering::SeqCst) - before
    };
    for in_batch in [1, 10, 200] {
        let key = |i: u64| format!("one of {in_batch}: {i:06}");
        for first in (0..2000).step_by(in_batch) {
            let mut batch = db.batch();
            (first..first + in_batch as u64).for_each(|i| batch.put(&hashed, key(i), [9; 128]));
            db.write(batch, Durability::Os).unwrap();
        }
        db.flush().unwrap();
        let taken = reads_of(&|| (0..2000).for_each(|i| assert!(hashed.get(key(i)).unwrap().is_some())));
        assert!((2000..2060).contains(&taken), "{taken} reads for 2,000 gets, batches of {in_batch}");
    }
    hashed.put("long", vec![7; 300_000]).unwrap();
    db.flush().unwrap();
    assert_eq!(reads_of(&|| assert_eq!(hashed.get("long").unwrap().unwrap().len(), 300_000)), 2);
    let put = |value: &str| {
        hashed.put("k", value).unwrap();
        db.flush().unwrap();
    };
    put("old");
    let snapshot = db.snapshot();
    ["newer", "newer", "new"].into_iter().for_each(put);
    let get_old = || assert_eq!(snapshot.get(&hashed, "k").unwrap().unwrap(), "old");
    assert_eq!(
        (reads_of(&get_old), reads_of(&|| assert_eq!(hashed.get("k").unwrap().unwrap(), "new"))),
        (4, 1)
    );
    let entries = || hashed.stats().hash_log.unwrap().entries;
    hashed.compact().unwrap();
    assert_eq!((reads_of(&get_old), entries()), (2, 6001 + 2));
    drop(snapshot);
    hashed.compact().unwrap();
    assert_eq!(entries(), 6001 + 1);
}

/// With background threads, too, a compaction collects what was flushed just before, also by another call.
#[test]
fn compactions_on_request_wait_for_the_logs_of_flushes() {
    let env = SimEnv::new(1);
    let Store { db, hashed, tree, .. } = open_with(&env, options().background_threads(2));
    for round in 0..150u64 {
        (0..20u64).for_each(|i| hashed.put(i.to_be_bytes(), round.to_be_bytes()).unwrap());
        tree.put("k", round.to_be_bytes()).unwrap();
        match round % 3 {
            0 => db.flush().unwrap(),
            1 => hashed.flush().unwrap(),
            _ => {}
        }
        match round % 2 {
            0 => db.compact().unwrap(),
            _ => hashed.compact().unwrap(),
        }
        assert_eq!(hashed.stats().hash_log.unwrap().entries, 20, "round {round}");
    }
}

/// An explicit compaction on a disk that is nearly full collects what fits, the deadest first, and says what did not.
#[test]
fn compactions_on_request_collect_what_fits() {
    let env = SimEnv::new(1);
    let Store { env, db, hashed, .. } = open_with(&env, options().disk_reserve(0).value_garbage_percent(90));
    let put = |keys: std::ops::Range<u64>| {
        let mut batch = db.batch();
        keys.for_each(|i| batch.put(&hashed, i.to_be_bytes(), vec![i as u8; 2000]));
        db.write(batch, Durability::Os).unwrap();
        db.flush().unwrap();
    };
    // Of one file nearly all is alive, of others nothing.
    put(0..400);
    put(1000..1100);
    put(1000..1100);
    hashed.put(0u64.to_be_bytes(), "overwritten").unwrap();
    db.flush().unwrap();
    let entries = || hashed.stats().hash_log.unwrap().entries;
    assert_eq!(entries(), 601);
    env.set_capacity(Some(env.used() + 12_000));
    let error = hashed.compact().unwrap_err();
    assert!(error.kind() == ErrorKind::NoSpace && error.to_string().contains("alive"), "{error}");
    assert_eq!(entries(), 501, "what needs no room is collected");
    env.set_capacity(None);
    hashed.compact().unwrap();
    assert_eq!(entries(), 500);
}

/// A hint file that cannot be read is in the way of the files whose entries it overwrites, and of no others.
#[test]
fn compactions_on_request_go_on_beside_a_damaged_hint_file() {
    let env = SimEnv::new(1);
    let Store { env, db, hashed, .. } = open_with(&env, options().value_garbage_percent(90));
    let hint_files = || {
        let mut names = env.list("/db".as_ref()).unwrap();
        names.retain(|name| name.ends_with(".hnt"));
        names.into_iter().map(|name| format!("/db/{name}")).collect::<Vec<_>>()
    };
    let put = |keys: std::ops::Range<u64>| {
        let before = hint_files();
        keys.for_each(|i| hashed.put(i.to_be_bytes(), [7; 100]).unwrap());
        db.flush().unwrap();
        hint_files().into_iter().find(|path| !before.contains(path)).unwrap()
    };
    put(0..30);
    put(100..120);
    put(200..220);
    let damaged = put(0..10);
    put(100..110);
    put(200..210);
    let whole = env.read_file(&damaged);
    env.flip_bit(&damaged, whole.len() as u64 / 2, 3);
    let entries = || hashed.stats().hash_log.unwrap().entries;
    assert_eq!(entries(), 100);
    for _ in 0..2 {
        let error = hashed.compact().unwrap_err();
        assert!(error.kind() == ErrorKind::Corruption && error.to_string().contains(&damaged), "{error}");
        assert_eq!(entries(), 80, "the others are collected");
    }
    env.write_file(&damaged, whole);
    hashed.compact().unwrap();
    assert_eq!(entries(), 70);
}

/// An explicit compaction leaves no dead entry, however few there are; with a rewrite everything is copied.
#[test]
fn compactions_on_request_collect_what_is_dead() {
    let env = SimEnv::new(1);
    let Store { db, hashed, .. } = open(&env);
    let mut rng = Rng::new(1);
    let mut expected = Map::new();
    for i in (0..3000).chain((0..3000).step_by(9)) {
        let (key, value) = (format!("key {i}").into_bytes(), value(&mut rng));
        hashed.put(&key, &value).unwrap();
        expected.insert(key, value);
    }
    (0..3000).step_by(50).for_each(|i| {
        let key = format!("key {i}").into_bytes();
        hashed.delete(&key).unwrap();
        expected.remove(&key);
    });
    db.wait_idle().unwrap();
    let before = hashed.stats().hash_log.unwrap();
    assert!(before.entries > expected.len() as u64, "few are dead: {before:?}");
    hashed.compact().unwrap();
    let after = hashed.stats().hash_log.unwrap();
    assert_eq!((after.entries, after.newest), (expected.len() as u64, expected.len() as u64));
    let collections = || db.stats().values.collections.jobs;
    let jobs = collections();
    hashed.compact().unwrap();
    assert_eq!(collections(), jobs, "nothing is dead");
    hashed.rewrite().unwrap();
    assert!(collections() > jobs, "all is copied");
    let found: Map = hashed
        .entries()
        .map(|entry| entry.map(|(key, value)| (key.to_vec(), value.to_vec())).unwrap())
        .collect();
    assert!(found == expected);
    assert!(db.check(&mut |_| ()).unwrap().problems.is_empty());
}

/// A database is closed, or a keyspace dropped, while writers wait for collections, or run them themselves without threads: each of them ends with
/// `Closed`, and what is left is sound.
#[test]
fn closes_and_drops_beside_puts_that_wait() {
    for (threads, closes) in [(0, true), (0, false), (2, true), (2, false)] {
        let dir = tempfile::tempdir().unwrap();
        let options = || {
            let options = Options::default().background_threads(threads).memory_budget(1 << 20);
            options.log_cap(4 << 20).value_garbage_percent(90)
        };
        let db = Database::open_with(dir.path(), options()).unwrap();
        let hashed = db.keyspace("hashed", hash_log()).unwrap();
        let newest = std::thread::scope(|scope| {
            let hashed = &hashed;
            let write = |writer: u64| {
                let key = move |n: u64| [writer.to_be_bytes(), (n * 7 % 5_000).to_be_bytes()].concat();
                move || {
                    for n in 0.. {
                        if let Err(e) = hashed.put(key(n), n.to_be_bytes()) {
                            assert_eq!(e.kind(), ErrorKind::Closed, "{e}");
                            return n;
                        }
                    }
                    unreachable!("the writer goes on until it is refused")
                }
            };
            let writers: Vec<_> = (0..3).map(|writer| scope.spawn(write(writer))).collect();
            let mut db = CloseAtEnd(Some(db));
            // Writers that run collections themselves keep the index below its end.
            let goes_on = || {
                let stats = db.0.as_ref().unwrap().stats();
                stats.stalls.index_waits == 0 && stats.values.collections.jobs < 8
            };
            let begun = std::time::Instant::now();
            while goes_on() {
                assert!(begun.elapsed().as_secs() < 120, "no put has waited, and no collection has run");
                assert!(writers.iter().all(|writer| !writer.is_finished()), "no writer is refused before");
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            match closes {
                true => db.0.take().unwrap().close().unwrap(),
                false => db.0.as_ref().unwrap().drop_keyspace("hashed").unwrap(),
            }
            writers.into_iter().map(|writer| writer.join().unwrap()).collect::<Vec<u64>>()
        });
        let report = cairn::check(dir.path(), &mut |_| ()).unwrap();
        assert!(report.problems.is_empty(), "{threads} threads: {:?}", report.problems);
        let db = Database::open_with(dir.path(), options()).unwrap();
        assert_eq!(db.keyspaces().is_empty(), !closes);
        if closes {
            let hashed = db.open_keyspace("hashed").unwrap();
            for (writer, count) in (0u64..).zip(newest) {
                let last = count - 1;
                let key = [writer.to_be_bytes(), (last * 7 % 5_000).to_be_bytes()].concat();
                assert_eq!(hashed.get(key).unwrap().unwrap(), last.to_be_bytes(), "{threads} threads");
            }
        }
        db.close().unwrap();
    }
}
