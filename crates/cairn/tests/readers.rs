//! Databases that are opened for reading only, beside the one that writes: each moment shows what was there, for as long as it is held.

use cairn::env::{Env, Fault, OpInfo, Phase, Repeat, Rng, SimEnv};
use cairn::{
    BackupOptions, Database, Durability, Engine, ErrorKind, IngestOptions, Keyspace, KeyspaceOptions, Merge,
    Options, Preset, Range, Result, Retention,
};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

type Map = BTreeMap<Vec<u8>, Vec<u8>>;
type Maps = BTreeMap<String, Map>;

/// Memtables, logs and tables are so small that a few hundred entries reach all levels.
fn options() -> Options {
    Options::default()
        .background_threads(0)
        .memory_budget(1 << 20)
        .manifest_cap(16 << 10)
        .durability(Durability::Os)
}

fn small(preset: Preset) -> KeyspaceOptions {
    KeyspaceOptions::preset(preset).memtable_bytes(32 << 10).block_size(512)
}

/// A keyspace of each kind.
fn kinds() -> Vec<(&'static str, KeyspaceOptions)> {
    vec![
        ("tree", small(Preset::Balanced)),
        ("values", small(Preset::Parallax)),
        ("rows", small(Preset::SsTable)),
        ("history", small(Preset::Mneme).history(Retention::All)),
        ("hash log", small(Preset::HashLog)),
        ("appends", small(Preset::PebblesDb).merge(Merge::Append)),
    ]
}

fn open(env: &Arc<SimEnv>) -> Database {
    Database::open_in(env.clone(), "/db", options()).unwrap()
}

fn open_read_only(env: &Arc<SimEnv>) -> Result<Database> {
    Database::builder().env(env.clone()).options(options()).open_read_only("/db")
}

fn content(keyspace: &Keyspace) -> Map {
    keyspace
        .entries()
        .map(|entry| entry.map(|(key, value)| (key.to_vec(), value.to_vec())).unwrap())
        .collect()
}

/// Differing maps are too long to be printed.
#[track_caller]
fn assert_same(found: &Map, expected: &Map, what: &str) {
    let differ = |(key, value): (&Vec<u8>, &Vec<u8>), other: &Map| other.get(key) != Some(value);
    let lost = expected.iter().filter(|entry| differ(*entry, found)).count();
    let wrong = found.iter().filter(|entry| differ(*entry, expected)).count();
    assert!(
        lost + wrong == 0,
        "{what}: of {} entries {lost} are not found, {wrong} others are",
        expected.len()
    );
}

/// The database that writes, and what it has.
struct Writer {
    env: Arc<SimEnv>,
    db: Database,
    maps: Maps,
    rng: Rng,
}

impl Writer {
    fn new(seed: u64) -> Writer {
        let env = SimEnv::new(seed);
        let db = open(&env);
        let mut maps = Maps::new();
        for (name, options) in kinds() {
            db.create_keyspace(name, options).unwrap();
            maps.insert(name.to_owned(), Map::new());
        }
        Writer { env, db, maps, rng: Rng::new(seed) }
    }

    fn key(&mut self) -> Vec<u8> {
        format!("key {:04}", self.rng.below(600)).into_bytes()
    }

    fn value(&mut self) -> Vec<u8> {
        let mut value = vec![0; [10, 60, 100, 1_500][self.rng.below(4) as usize]];
        self.rng.fill(&mut value);
        value
    }

    fn any(&mut self) -> (String, Keyspace) {
        let names: Vec<&String> = self.maps.keys().collect();
        let name = names[self.rng.below(names.len() as u64) as usize].clone();
        let keyspace = self.db.open_keyspace(&name).unwrap();
        (name, keyspace)
    }

    fn step(&mut self) {
        let (name, keyspace) = self.any();
        let is_ordered = keyspace.options().engine == Engine::Tree;
        match self.rng.below(100) {
            0..60 => {
                let mut batch = self.db.batch();
                for _ in 0..=self.rng.below(20) {
                    let (name, keyspace) = self.any();
                    let (key, value) = (self.key(), self.value());
                    batch.put(&keyspace, &key, &value);
                    self.maps.get_mut(&name).unwrap().insert(key, value);
                }
                self.db.write(batch, Durability::Os).unwrap();
            }
            60..75 => {
                let key = self.key();
                keyspace.delete(&key).unwrap();
                self.maps.get_mut(&name).unwrap().remove(&key);
            }
            75..80 if keyspace.options().merge == Merge::Append => {
                let key = self.key();
                keyspace.merge(&key, "more").unwrap();
                self.maps.get_mut(&name).unwrap().entry(key).or_default().extend(b"more");
            }
            80..85 if is_ordered => {
                let from = self.key();
                let to = [&from[..], b"~"].concat();
                let to = if self.rng.chance(1, 4) { b"key 03".to_vec().max(from.clone()) } else { to };
                keyspace.delete_range(&from[..]..&to[..]).unwrap();
                self.maps.get_mut(&name).unwrap().retain(|key, _| *key < from || *key >= to);
            }
            85..90 => keyspace.compact().unwrap(),
            90..92 => self.db.wait_idle().unwrap(),
            92 if is_ordered && keyspace.options().history == Retention::None => {
                let mut load = self.db.ingest(IngestOptions::default().unsorted(0));
                for _ in 0..50 {
                    let (key, value) = (self.key(), self.value());
                    load.put(&keyspace, &key, &value).unwrap();
                    self.maps.get_mut(&name).unwrap().insert(key, value);
                }
                load.commit().unwrap();
            }
            93 => {
                let name = format!("other {}", self.rng.below(3));
                match self.maps.remove(&name) {
                    Some(_) => self.db.drop_keyspace(&name).unwrap(),
                    None => {
                        self.db.create_keyspace(&name, small(Preset::Balanced)).unwrap();
                        self.maps.insert(name, Map::new());
                    }
                }
            }
            94 => {
                drop(keyspace);
                self.db.clone().close().unwrap();
                self.db = open(&self.env);
            }
            _ => self.db.flush().unwrap(),
        }
    }
}

/// A moment that is held, with what it shows.
struct Held {
    db: Database,
    maps: Maps,
    seq: u64,
    iterator: Option<(String, Range, Vec<Vec<u8>>)>,
}

impl Held {
    fn new(db: Database, maps: Maps) -> Held {
        let seq = db.stats().last_seq;
        Held { db, maps, seq, iterator: None }
    }

    fn check(&mut self, rng: &mut Rng) {
        let names = self.db.keyspaces();
        assert!(names.iter().eq(self.maps.keys()), "{names:?}");
        for (name, expected) in &self.maps {
            let keyspace = self.db.open_keyspace(name).unwrap();
            assert_same(&content(&keyspace), expected, name);
            for _ in 0..5 {
                let key = format!("key {:04}", rng.below(600)).into_bytes();
                assert!(
                    keyspace.get(&key).unwrap().as_deref() == expected.get(&key).map(|v| &v[..]),
                    "{name}"
                );
            }
        }
        assert_eq!(self.db.stats().last_seq, self.seq);
        if rng.chance(1, 4) {
            let report = self.db.check(&mut |_| ()).unwrap();
            assert!(report.problems.is_empty(), "{:?}", report.problems);
        }
        // An iterator goes on where it was.
        if let Some((name, iterator, left)) = &mut self.iterator {
            for _ in 0..10 {
                let found = iterator.next().map(|entry| entry.unwrap().0.to_vec());
                assert_eq!(found, (!left.is_empty()).then(|| left.remove(0)), "{name}");
            }
        } else {
            let mut ordered = self.maps.iter().filter(|(name, _)| *name != "hash log");
            let (name, map) = ordered.next_back().unwrap();
            let keyspace = self.db.open_keyspace(name).unwrap();
            self.iterator = Some((name.clone(), keyspace.iter(), map.keys().cloned().collect()));
        }
    }
}

fn run(seed: u64, steps: u64) {
    let mut writer = Writer::new(seed);
    let mut rng = Rng::new(seed ^ 1);
    let mut newest = open_read_only(&writer.env).unwrap();
    let mut held = vec![Held::new(newest.clone(), writer.maps.clone())];
    for _ in 0..steps {
        for _ in 0..rng.below(20) {
            writer.step();
        }
        match rng.below(10) {
            0..6 => newest = newest.refresh().unwrap(),
            6 => newest = open_read_only(&writer.env).unwrap(),
            _ => newest = held[rng.below(held.len() as u64) as usize].db.refresh().unwrap(),
        }
        assert!(newest.stats().last_seq == writer.db.stats().last_seq);
        held.push(Held::new(newest.clone(), writer.maps.clone()));
        while held.len() > 5 || rng.chance(1, 3) && held.len() > 1 {
            held.swap_remove(rng.below(held.len() as u64) as usize);
        }
        held.iter_mut().for_each(|held| held.check(&mut rng));
    }
    // When no reader is left, the writer removes what was kept for them.
    drop((held, newest));
    writer.db.flush().unwrap();
    writer.db.wait_idle().unwrap();
    writer.step();
    writer.db.clone().close().unwrap();
    writer.db = open(&writer.env);
    for (name, expected) in &writer.maps {
        assert_same(&content(&writer.db.open_keyspace(name).unwrap()), expected, name);
    }
    writer.db.clone().close().unwrap();
    let report = cairn::check_in(writer.env.clone(), "/db", &mut |_| ()).unwrap();
    assert!(report.problems.is_empty(), "{:?}", report.problems);
}

#[test]
fn moments_show_what_was_there_as_long_as_they_are_held() {
    let seed = std::env::var("SEED").map_or(1, |seed| seed.parse().unwrap());
    let runs = std::env::var("RUNS").map_or(3, |runs| runs.parse().unwrap());
    (seed..seed + runs).for_each(|seed| run(seed, 60));
}

#[test]
fn a_reader_changes_nothing_and_refuses_what_would() {
    let env = SimEnv::new(1);
    assert_eq!(open_read_only(&env).unwrap_err().kind(), ErrorKind::NotFound);
    let db = open(&env);
    let space = db.keyspace("a", small(Preset::Balanced)).unwrap();
    space.put("1", "one").unwrap();
    let list = || {
        let mut names = env.list("/db".as_ref()).unwrap();
        names.sort();
        names
    };
    let before = list();
    let reader = open_read_only(&env).unwrap();
    assert!(reader.is_read_only() && !db.is_read_only());
    let of_reader = reader.open_keyspace("a").unwrap();
    assert_eq!(of_reader.get("1").unwrap().unwrap(), "one");
    let mut batch = reader.batch();
    batch.put(&of_reader, "1", "two");
    let mut transaction = reader.begin();
    transaction.put(&of_reader, "1", "two").unwrap();
    for refused in [
        of_reader.put("1", "two"),
        of_reader.delete("1"),
        of_reader.delete_range("1".."2"),
        of_reader.compact(),
        of_reader.compare_and_swap("1", Some("one"), Some("two")).map(drop),
        reader.write(batch, Durability::Sync).map(drop),
        transaction.commit().map(drop),
        reader.sync(),
        reader.flush(),
        reader.wait_idle(),
        reader.create_keyspace("b", KeyspaceOptions::default()).map(drop),
        reader.keyspace("b", KeyspaceOptions::default()).map(drop),
        reader.drop_keyspace("a"),
        reader.ingest(IngestOptions::default()).put(&of_reader, "1", "two"),
    ] {
        let error = refused.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ReadOnly, "{error}");
        assert!(error.to_string().contains("reading only"), "{error}");
    }
    assert_eq!(reader.snapshot().get(&of_reader, "1").unwrap().unwrap(), "one");
    assert_eq!(reader.begin_read_only().get(&of_reader, "1").unwrap().unwrap(), "one");
    assert_eq!(list(), before);
    assert_eq!(reader.stats().background_error, None);
    // Nothing has changed: the same moment again.
    let other = reader.refresh().unwrap();
    other.close().unwrap();
    assert_eq!(of_reader.get("1").unwrap_err().kind(), ErrorKind::Closed);
    let reader = reader.refresh().unwrap();
    assert_eq!(reader.open_keyspace("a").unwrap().get("1").unwrap().unwrap(), "one");
    reader.close().unwrap();
    assert_eq!(list(), before);
}

/// The names of the tables in the directory.
fn tables(env: &Arc<SimEnv>) -> Vec<String> {
    let mut names = env.list("/db".as_ref()).unwrap();
    names.retain(|name| name.ends_with(".tbl"));
    names.sort();
    names
}

#[test]
fn files_of_a_moment_stay_until_it_ends_also_when_the_writer_is_opened_anew() {
    let env = SimEnv::new(1);
    let db = open(&env);
    let space = db.keyspace("a", small(Preset::Balanced)).unwrap();
    let fill = |db: &Database, round: u64| {
        let space = db.open_keyspace("a").unwrap();
        (0..500u64).for_each(|n| space.put(n.to_be_bytes(), [round as u8; 100]).unwrap());
        space.compact().unwrap();
    };
    fill(&db, 1);
    let first = tables(&env);
    let reader = open_read_only(&env).unwrap();
    fill(&db, 2);
    assert!(first.iter().all(|name| tables(&env).contains(name)));
    assert!(db.stats().files_for_readers > 0);
    drop(space);
    db.close().unwrap();
    assert!(first.iter().all(|name| tables(&env).contains(name)));
    let db = open(&env);
    fill(&db, 3);
    assert!(first.iter().all(|name| tables(&env).contains(name)));
    let of_reader = reader.open_keyspace("a").unwrap();
    assert!(of_reader.iter().all(|entry| entry.unwrap().1 == [1; 100]));
    // An iterator keeps them, too, and ends with the moment.
    let mut iterator = of_reader.iter();
    iterator.next().unwrap().unwrap();
    drop((reader, of_reader));
    assert_eq!(iterator.next().unwrap().unwrap_err().kind(), ErrorKind::Closed);
    fill(&db, 4);
    assert!(first.iter().all(|name| !tables(&env).contains(name)));
    assert_eq!(db.stats().files_for_readers, 0);
    let kept = env.list("/db".as_ref()).unwrap().iter().filter(|name| name.starts_with("manifest")).count();
    assert_eq!(kept, 1);
}

/// Every operation of an opening and of a refresh fails once: the error is reported or makes no difference, the writer goes on, and the next
/// refresh shows everything.
#[test]
fn a_failed_operation_of_a_reader_is_an_error_and_passes() {
    let mut writer = Writer::new(5);
    (0..100).for_each(|_| writer.step());
    let env = writer.env.clone();
    let mut reader = open_read_only(&env).unwrap();
    let mut failures = 0;
    for opens in [true, false] {
        for k in 0.. {
            if !opens {
                (0..3).for_each(|_| writer.step());
            }
            let first = env.op_count();
            env.fail_op(first + k, Fault::EIO, Repeat::Once);
            let read = if opens { open_read_only(&env) } else { reader.refresh() };
            let count = env.op_count() - first;
            env.clear_faults();
            let (maps, mut rng) = (writer.maps.clone(), Rng::new(k));
            match read {
                Ok(read) => Held::new(read, maps).check(&mut rng),
                Err(e) => {
                    assert_eq!(e.kind(), ErrorKind::Io, "{e}");
                    failures += 1;
                    reader = reader.refresh().unwrap();
                    Held::new(reader.clone(), maps).check(&mut rng);
                }
            }
            writer.step();
            if k >= count {
                break;
            }
        }
    }
    assert!(failures > 20, "{failures}");
}

/// A reader refreshes before the operations of a writer, in the midst of its calls: it sees the state before or after the call.
#[test]
fn a_refresh_in_the_midst_of_a_call_sees_the_state_before_or_after_it() {
    let mut writer = Writer::new(7);
    (0..50).for_each(|_| writer.step());
    let (asked, asks) = mpsc::channel();
    let (answers, answered) = mpsc::channel();
    let first = open_read_only(&writer.env).unwrap();
    let reader = std::thread::spawn(move || {
        for () in asks {
            if answers.send(first.refresh()).is_err() {
                break;
            }
        }
    });
    let seen: Arc<Mutex<Vec<Result<Database>>>> = Arc::default();
    // The reader has operations, too, and so have comparisons.
    let busy = Arc::new(AtomicBool::new(true));
    let (into, of_hook) = (seen.clone(), busy.clone());
    let (asked, answered, count) = (Mutex::new(asked), Mutex::new(answered), AtomicU64::new(0));
    writer.env.set_hook(Some(Box::new(move |op: OpInfo<'_>| {
        if op.phase == Phase::Before && !of_hook.swap(true, Ordering::SeqCst) {
            if count.fetch_add(1, Ordering::Relaxed).is_multiple_of(3) {
                asked.lock().unwrap().send(()).expect("the reader lives");
                into.lock().unwrap().push(answered.lock().unwrap().recv().expect("the reader lives"));
            }
            of_hook.store(false, Ordering::SeqCst);
        }
        None
    })));
    let mut compared = 0;
    for round in 0..200 {
        let before = writer.maps.clone();
        busy.store(false, Ordering::SeqCst);
        writer.step();
        busy.store(true, Ordering::SeqCst);
        let moments: Vec<_> = seen.lock().unwrap().drain(..).collect();
        for moment in moments {
            let moment = moment.unwrap();
            let shows = |maps: &Maps| {
                moment.keyspaces().iter().eq(maps.keys())
                    && maps.iter().all(|(name, map)| content(&moment.open_keyspace(name).unwrap()) == *map)
            };
            assert!(shows(&before) || shows(&writer.maps), "round {round}: a state that never was");
            compared += 1;
        }
    }
    writer.env.set_hook(None);
    reader.join().unwrap();
    assert!(compared > 200, "{compared}");
}

#[test]
fn a_check_of_a_moment_finds_damage_to_values_outside_of_tables() {
    let env = SimEnv::new(3);
    let db = open(&env);
    let space = db.keyspace("values", small(Preset::Parallax)).unwrap();
    (0..100u32).for_each(|n| space.put(n.to_be_bytes(), [7; 3_000]).unwrap());
    db.flush().unwrap();
    let problems = |reader: &Database| reader.check(&mut |_| ()).unwrap().problems.len();
    let reader = open_read_only(&env).unwrap();
    assert_eq!(problems(&reader), 0);
    let logs = env.list("/db".as_ref()).unwrap().into_iter().filter(|name| name.ends_with(".log"));
    for log in logs {
        let path = format!("/db/{log}");
        let len = env.len(path.as_ref()).unwrap();
        (100..len).step_by(1_000).for_each(|offset| env.flip_bit(&path, offset, 1));
    }
    assert!(problems(&reader) > 0);
}

#[test]
fn a_manifest_that_stays_for_a_reader_is_not_taken_for_the_newest_when_that_is_lost() {
    let env = SimEnv::new(4);
    let db = open(&env);
    db.keyspace("a", small(Preset::Balanced)).unwrap().put("1", "one").unwrap();
    let reader = open_read_only(&env).unwrap();
    db.close().unwrap();
    let db = open(&env);
    db.open_keyspace("a").unwrap().put("1", "two").unwrap();
    db.close().unwrap();
    let manifests = || {
        let mut names = env.list("/db".as_ref()).unwrap();
        names.retain(|name| name.starts_with("manifest"));
        names.sort();
        names
    };
    assert_eq!(manifests().iter().filter(|name| name.ends_with(".old")).count(), 1, "{:?}", manifests());
    let newest = manifests().into_iter().find(|name| !name.ends_with(".old")).unwrap();
    env.remove(format!("/db/{newest}").as_ref()).unwrap();
    for lost in [Database::open_in(env.clone(), "/db", options()).map(drop), open_read_only(&env).map(drop)] {
        let error = lost.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
    }
    assert_eq!(reader.open_keyspace("a").unwrap().get("1").unwrap().unwrap(), "one");
}

/// Threads read, refresh, copy, close and drop the same moments, and keep iterators and snapshots for too long, beside a writer.
#[test]
fn moments_that_threads_close_and_drop_beside_all_other_calls_end_with_closed_and_keep_nothing() {
    let env = SimEnv::new(6);
    let db = open(&env);
    let space = db.keyspace("a", small(Preset::Parallax)).unwrap();
    space.put("0", [0; 2_000]).unwrap();
    let shared = Mutex::new(open_read_only(&env).unwrap());
    let ended = AtomicBool::new(false);
    struct End<'a>(&'a AtomicBool);
    impl Drop for End<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }
    let closed = AtomicU64::new(0);
    let fine = |result: Result<()>| match result {
        Err(e) if e.kind() == ErrorKind::Closed => _ = closed.fetch_add(1, Ordering::Relaxed),
        result => result.unwrap(),
    };
    std::thread::scope(|scope| {
        let _end = End(&ended);
        for thread in 0..4 {
            let (env, shared, ended, fine) = (&env, &shared, &ended, &fine);
            scope.spawn(move || {
                let _end = End(ended);
                let (mut rng, mut copies) = (Rng::new(thread), 0);
                while !ended.load(Ordering::SeqCst) {
                    let moment = shared.lock().unwrap().clone();
                    fine(match rng.below(8) {
                        0 => moment.close(),
                        1 => moment.auto_refresh(Duration::from_millis(rng.below(2))).map(|refresh| {
                            let latest = refresh.latest();
                            drop(refresh);
                            drop(latest);
                        }),
                        2 => moment.open_keyspace("a").and_then(|space| {
                            let mut kept = (space.iter(), moment.snapshot());
                            drop(space);
                            drop(moment);
                            let next = kept.0.next().transpose().map(drop);
                            drop(kept);
                            next
                        }),
                        3 => moment.open_keyspace("a").and_then(|space| {
                            let found = space.get("0")?.map(|value| value.len());
                            assert_eq!(found, Some(2_000));
                            space.iter().try_for_each(|entry| entry.map(drop))
                        }),
                        4 => {
                            copies += 1;
                            let dir = format!("/copy-{thread}-{copies}");
                            let copied = moment.checkpoint(&dir).map(drop);
                            let files = env.list_files();
                            files
                                .iter()
                                .filter(|path| path.starts_with(&dir))
                                .for_each(|path| env.remove_file(path));
                            copied
                        }
                        5 => moment
                            .backup_with(
                                format!("/backup-{thread}"),
                                &BackupOptions::default().keep(1),
                                &mut |_| (),
                            )
                            .map(drop),
                        _ => moment.refresh().map(|newer| {
                            // The one before is dropped here, or by another thread.
                            drop(std::mem::replace(&mut *shared.lock().unwrap(), newer));
                        }),
                    });
                }
            });
        }
        // Until a thread has met a moment that another one had closed.
        for n in (0..100_000u32).take_while(|n| *n < 1_500 || closed.load(Ordering::Relaxed) == 0) {
            space.put((n % 300).to_string(), vec![n as u8; 2_000]).unwrap();
            if n % 50 == 0 {
                space.compact().unwrap();
            }
        }
    });
    assert!(closed.load(Ordering::Relaxed) > 0);
    drop(shared);
    space.compact().unwrap();
    space.put("end", "").unwrap();
    db.flush().unwrap();
    db.wait_idle().unwrap();
    assert_eq!(db.stats().files_for_readers, 0);
}
