//! Bulk loads: what is in a database after them, beside what else goes on, and what failures and crashes leave.

use cairn::env::{Env, Fault, Repeat, Rng, SimEnv, Survival};
use cairn::{
    Database, Durability, ErrorKind, GuardPolicy, IngestOptions, Keyspace, KeyspaceOptions, Options, Preset,
    Result, TableBuilder, Time, Version,
};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// Memtables and tables are so small that a few hundred entries reach all levels.
fn options(threads: usize) -> Options {
    Options::default()
        .background_threads(threads)
        .memory_budget(1 << 20)
        .manifest_cap(16 << 10)
        .durability(Durability::Buffered)
}

fn small(preset: Preset) -> KeyspaceOptions {
    KeyspaceOptions::preset(preset).memtable_bytes(32 << 10).block_size(512)
}

/// A keyspace of each kind that takes bulk loads.
fn kinds() -> Vec<(&'static str, KeyspaceOptions)> {
    vec![
        ("tree", small(Preset::Balanced)),
        ("values", small(Preset::Parallax)),
        ("rows", small(Preset::SsTable)),
        ("hashed guards", small(Preset::PebblesDb)),
        ("leveled", small(Preset::Leveled)),
    ]
}

fn open(env: &Arc<SimEnv>, threads: usize) -> Result<Database> {
    Database::open_in(env.clone(), "/db", options(threads))
}

fn keyspaces(db: &Database) -> Vec<Keyspace> {
    kinds().into_iter().map(|(name, options)| db.keyspace(name, options).unwrap()).collect()
}

fn content(keyspace: &Keyspace) -> Map {
    keyspace.iter().map(|entry| entry.map(|(key, value)| (key.to_vec(), value.to_vec())).unwrap()).collect()
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

fn assert_intact(env: &Arc<SimEnv>) {
    let report = cairn::check_in(env.clone(), "/db", &mut |_| ()).unwrap();
    assert!(report.problems.is_empty(), "{:?}", report.problems);
}

fn value(rng: &mut Rng) -> Vec<u8> {
    let mut value = vec![0; [10, 100, 100, 2_000][rng.below(4) as usize]];
    rng.fill(&mut value);
    value
}

/// Random entries with keys from this range, in order.
fn entries(rng: &mut Rng, keys: std::ops::Range<u64>, count: usize) -> Map {
    let key =
        |rng: &mut Rng| format!("key {:05}", keys.start + rng.below(keys.end - keys.start)).into_bytes();
    (0..count).map(|_| (key(rng), value(rng))).collect()
}

#[test]
fn loads_are_as_puts_whatever_is_there_and_goes_on() {
    for (seed, threads) in [(1, 0), (2, 2), (3, 0), (4, 2), (5, 0), (6, 2)] {
        let sim = SimEnv::new(seed);
        let mut rng = Rng::new(seed);
        let mut db = open(&sim, threads).unwrap();
        let mut models = vec![Map::new(); kinds().len()];
        let mut deepest = 0;
        for round in 0..12 {
            let spaces = keyspaces(&db);
            let snapshot = db.snapshot();
            let before = models.clone();
            for _ in 0..300 {
                let at = rng.below(spaces.len() as u64) as usize;
                let key = format!("key {:05}", rng.below(3_000)).into_bytes();
                match rng.below(40) {
                    0 => spaces[at].flush().unwrap(),
                    1 => spaces[at].compact().unwrap(),
                    2 => {
                        let to = format!("key {:05}", rng.below(3_000)).into_bytes();
                        spaces[at].delete_range(&key[..]..&to[..]).unwrap();
                        models[at].retain(|k, _| !(key <= *k && *k < to));
                    }
                    3..8 => {
                        spaces[at].delete(&key).unwrap();
                        models[at].remove(&key);
                    }
                    _ => {
                        let value = value(&mut rng);
                        spaces[at].put(&key, &value).unwrap();
                        models[at].insert(key, value);
                    }
                }
            }
            // Over some of the keyspaces: in the midst of other keys, or beyond them; in order or not.
            let from = if rng.below(2) == 0 { rng.below(2_000) } else { 10_000 * (1 + round) };
            let sorted = rng.below(2) == 0;
            let with = match sorted {
                true => IngestOptions::default(),
                false => IngestOptions::default().unsorted(0),
            };
            let mut load = db.ingest(with);
            let (mut count, mut reader) = (0, None);
            for (at, space) in spaces.iter().enumerate().filter(|_| rng.below(4) > 0).collect::<Vec<_>>() {
                let many = [1, 20, 600][rng.below(3) as usize];
                let loaded = entries(&mut rng, from..from + 1_500, many);
                let mut list: Vec<_> = loaded.iter().collect();
                if !sorted {
                    // Of entries with one key the last counts.
                    list.sort_by_key(|(key, _)| cairn_hash(key));
                    let older = |n: usize| (list[n].0.clone(), b"older".to_vec());
                    let twice: Vec<_> = (0..list.len() / 3).map(older).collect();
                    twice.iter().for_each(|(key, value)| load.put(space, key, value).unwrap());
                }
                list.iter().for_each(|(key, value)| load.put(space, key, value).unwrap());
                count += loaded.len() as u64;
                reader.get_or_insert_with(|| space.iter());
                models[at].extend(loaded);
            }
            let done = load.commit().unwrap();
            assert_eq!((done.entries, done.seq > 0), (count, count > 0));
            if count > 0 {
                assert_eq!(done.seq, db.snapshot().seq());
            }
            // An iterator from before shows nothing of it, and neither does the snapshot.
            assert!(reader.into_iter().flatten().all(|entry| entry.is_ok()));
            for (at, space) in spaces.iter().enumerate() {
                let what = format!("seed {seed}, round {round}, {}", space.name());
                assert_same(&content(space), &models[at], &what);
                let old = snapshot.iter(space).map(|e| e.map(|(k, v)| (k.to_vec(), v.to_vec())).unwrap());
                assert_same(&old.collect(), &before[at], &format!("{what}, the snapshot"));
                let backwards = space.iter().rev().count();
                assert_eq!(backwards, models[at].len(), "{what}");
                for (key, value) in models[at].iter().step_by(7) {
                    assert_eq!(space.get(key).unwrap().as_deref(), Some(&value[..]), "{what}");
                }
                let levels = space.stats().levels;
                deepest = deepest.max(levels.iter().rposition(|level| level.tables > 0).unwrap_or(0));
            }
            if round % 4 == 3 {
                drop((snapshot, spaces));
                db.close().unwrap();
                assert_intact(&sim);
                db = open(&sim, threads).unwrap();
            }
        }
        assert!(deepest > 2, "{deepest}");
        for (space, model) in keyspaces(&db).iter().zip(&models) {
            space.compact().unwrap();
            assert_same(&content(space), model, &space.name());
        }
        db.close().unwrap();
        assert_intact(&sim);
    }
}

/// Orders keys as if at random.
fn cairn_hash(key: &[u8]) -> u64 {
    key.iter().fold(7, |hash: u64, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

#[test]
fn tables_go_to_the_deepest_level_that_is_free_and_are_written_once() {
    let sim = SimEnv::new(1);
    let db = open(&sim, 0).unwrap();
    for (name, options) in kinds() {
        let space = db.create_keyspace(name, options).unwrap();
        let last = space.options().levels;
        let load = |keys: std::ops::Range<u32>| {
            space.ingest(keys.map(|n| (format!("key {n:06}"), [n as u8; 100]))).unwrap()
        };
        let done = load(0..2_000);
        assert!(
            done.tables == 1 || space.options().guard_policy == GuardPolicy::Adaptive,
            "{name}: {done:?}"
        );
        load(5_000..7_000);
        load(3_000..3_010);
        let levels = space.stats().levels;
        let tables: Vec<_> = levels.iter().map(|level| (level.tables, level.guards)).collect();
        assert!(levels[..last].iter().all(|level| level.tables == 0), "{name}: {tables:?}");
        if space.options().guard_policy == GuardPolicy::Adaptive {
            assert!(levels[last].guards * 2 > levels[last].tables, "{name}: {tables:?}");
        }
        // Among keys that are there, above them: one level up, unless that would be the first table in it.
        load(1_000..1_010);
        let above = if space.options().skip_levels { 0 } else { last - 1 };
        assert_eq!(space.stats().levels[above].tables, 1, "{name}");
        // And above what was put.
        space.put("key 001005", "put").unwrap();
        load(1_003..1_006);
        assert_eq!(space.get("key 001005").unwrap().unwrap(), [1005u32 as u8; 100], "{name}");
        assert_eq!(space.iter().count(), 4_010, "{name}");
        space.put("key 001005", "put").unwrap();
        assert_eq!(space.get("key 001005").unwrap().unwrap(), "put", "{name}");
    }
    let stats = db.stats();
    assert_eq!(stats.ingest.jobs, 25);
    assert_eq!(stats.user_writes, 5 * (4_023 + 2));
}

#[test]
fn what_a_load_refuses_leaves_it_as_it_was() {
    let sim = SimEnv::new(1);
    let db = open(&sim, 0).unwrap();
    let space = db.keyspace("k", small(Preset::Balanced)).unwrap();
    let other = Database::open_in(SimEnv::new(2), "/other", options(0)).unwrap();
    let foreign = other.keyspace("k", KeyspaceOptions::default()).unwrap();
    let mut load = db.ingest(IngestOptions::default());
    load.put(&space, "b", "1").unwrap();
    for (key, value) in [("b", "2"), ("a", "2"), ("", "2")] {
        let error = load.put(&space, key, value).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.to_string().contains("cannot follow \"b\""), "{error}");
    }
    let invalid = |result: Result<()>| assert_eq!(result.unwrap_err().kind(), ErrorKind::InvalidArgument);
    invalid(load.put(&space, vec![b'x'; cairn::limits::MAX_KEY_LEN + 1], ""));
    invalid(load.put(&foreign, "c", ""));
    let refusing = db.keyspace("hashed", KeyspaceOptions::preset(Preset::HashLog)).unwrap();
    let error = load.put(&refusing, "c", "").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.to_string().contains("no order"), "{error}");
    load.put(&space, "c", "3").unwrap();
    assert_eq!(load.commit().unwrap().entries, 2);
    assert_eq!(content(&space).len(), 2);
    // The empty key is the first.
    let mut load = db.ingest(IngestOptions::default());
    load.put(&space, "", "empty").unwrap();
    invalid(load.put(&space, "", "again"));
    load.put(&space, "\0", "").unwrap();
    load.commit().unwrap();
    assert_eq!(space.get("").unwrap().unwrap(), "empty");
    // Unsorted, of entries with it the last counts, also where the first takes no byte.
    for values in [["", "last"], ["first", ""]] {
        let mut load = db.ingest(IngestOptions::default().unsorted(0));
        values.iter().for_each(|value| load.put(&space, "", value).unwrap());
        assert_eq!(load.commit().unwrap().entries, 1);
        assert_eq!(space.get("").unwrap().unwrap(), values[1]);
    }
    assert_eq!(db.ingest(IngestOptions::default()).commit().unwrap(), cairn::Ingested::default());
}

/// Without a manifest the numbers of a load are not known, but the times of its versions are.
#[test]
fn with_history_salvage_goes_by_times() {
    let at = Time::from_micros;
    for (case, has_manifest) in (0..3).flat_map(|case| [(case, true), (case, false)]) {
        let sim = SimEnv::new(1);
        sim.set_wall_clock(at(1_000_000));
        let db = open(&sim, 0).unwrap();
        let space = db.keyspace("k", small(Preset::Mneme)).unwrap();
        (0..20).for_each(|n| space.put(format!("{n:03}"), "before").unwrap());
        let fill = |mut load: cairn::Ingest| {
            (0..20).for_each(|n| load.put(&space, format!("{n:03}"), "load").unwrap());
            load
        };
        match case {
            // The newest number of all is that of a version of the same key.
            0 => {
                space.put("000", "newest").unwrap();
                space.flush().unwrap();
                fill(db.ingest(IngestOptions::default())).commit().unwrap();
            }
            // Something is written before the first entry of the load.
            1 => {
                let load = db.ingest(IngestOptions::default());
                (0..20).step_by(3).for_each(|n| space.put(format!("{n:03}"), "meanwhile").unwrap());
                fill(load).commit().unwrap();
            }
            // Something is written with an earlier time while the load is built.
            _ => {
                let load = fill(db.ingest(IngestOptions::default()));
                space.put_at("003", "meanwhile", at(1_000_010)).unwrap();
                load.commit().unwrap();
            }
        }
        let versions = |space: &Keyspace| -> Vec<Version> {
            space.changes::<&str>(.., ..).unwrap().map(Result::unwrap).collect()
        };
        let expected = versions(&space);
        assert!(expected.len() > 40 && space.get("003").unwrap().unwrap() == "load");
        drop(space);
        db.close().unwrap();
        if !has_manifest {
            let manifest =
                sim.list(Path::new("/db")).unwrap().into_iter().find(|name| name.starts_with("manifest-"));
            sim.remove(&Path::new("/db").join(manifest.unwrap())).unwrap();
        }
        let report = cairn::salvage_in(sim.clone(), "/db", "/new", options(0)).unwrap();
        assert_eq!(report.losses.len(), usize::from(!has_manifest), "case {case}: {report:?}");
        let new = Database::open_in(sim.clone(), "/new", options(0)).unwrap();
        assert!(versions(&new.open_keyspace("k").unwrap()) == expected, "case {case}, {has_manifest}");
    }
}

/// The versions of a load have the time of its beginning, so nothing may be written meanwhile that is later.
#[test]
fn with_history_nothing_is_written_beside_a_load() {
    let sim = SimEnv::new(1);
    let at = Time::from_micros;
    sim.set_wall_clock(at(1_000_000));
    let db = open(&sim, 0).unwrap();
    let prices = db.keyspace("prices", small(Preset::Mneme)).unwrap();
    let plain = db.keyspace("plain", small(Preset::Balanced)).unwrap();
    let line = |version: Version| (version.time.micros(), version.value.map(|value| value.to_vec()));
    let of = |key: &str| -> Vec<(u64, Option<Vec<u8>>)> {
        prices.history(key, ..).unwrap().map(|version| line(version.unwrap())).collect()
    };
    let put = |time: u64, value: &str| (time, Some(value.as_bytes().to_vec()));
    let load = |keys: std::ops::Range<u32>, value: &str| {
        let mut load = db.ingest(IngestOptions::default());
        for n in keys {
            load.put(&prices, format!("{n:03}"), value).unwrap();
            load.put(&plain, format!("{n:03}"), value).unwrap();
        }
        load
    };
    prices.put("005", "first").unwrap();
    let snapshot = db.snapshot();
    let first = of("005")[0].0;
    // What is written elsewhere, or as of an earlier time, does not matter.
    let begun = load(0..10, "loaded");
    plain.put("005", "other").unwrap();
    prices.put_at("006", "late", at(first - 1)).unwrap();
    let seq = begun.commit().unwrap().seq;
    let time = of("005")[0].0;
    assert!(time > first && seq > snapshot.seq());
    assert_eq!(of("005"), [put(time, "loaded"), put(first, "first")]);
    assert_eq!(of("006"), [put(time, "loaded"), put(first - 1, "late")]);
    assert_eq!(prices.get_at("005", at(time - 1)).unwrap().unwrap().value.unwrap(), "first");
    assert_eq!(snapshot.history(&prices, "005", ..).unwrap().count(), 1);
    assert_eq!(snapshot.get(&prices, "005").unwrap().unwrap(), "first");
    drop(snapshot);
    // A write as of before the load is late.
    prices.put_at("005", "late", at(time - 1)).unwrap();
    assert_eq!(prices.get("005").unwrap().unwrap(), "loaded");
    // A put, a delete, a range delete, another load: all are later.
    let nothing = load(20..20, "");
    let writes: [&dyn Fn(); 5] = [
        &|| prices.put("900", "beside").unwrap(),
        &|| prices.delete("900").unwrap(),
        &|| prices.delete_range("900".."901").unwrap(),
        &|| assert_eq!(load(900..901, "beside").commit().unwrap().entries, 2),
        &|| db.transaction(|tx| tx.put(&prices, "900", "beside")).unwrap(),
    ];
    for write in writes {
        let begun = load(0..10, "refused");
        write();
        let error = begun.commit().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict);
        assert!(error.to_string().contains("\"prices\""), "{error}");
        assert_eq!(
            (prices.get("005").unwrap().unwrap(), plain.get("005").unwrap().unwrap()),
            ("loaded".into(), "loaded".into())
        );
    }
    nothing.commit().unwrap();
    assert_eq!(files(&sim).len(), tables(&db), "those of refused loads are gone");
    // Joined loads have times of their own.
    let (mut low, high) = (load(0..5, "joined"), load(5..10, "joined"));
    low.join(high).unwrap();
    low.commit().unwrap();
    assert!(of("005")[0].0 > of("004")[0].0);
    let expected = [of("004"), of("005")];
    prices.compact().unwrap();
    assert_eq!([of("004"), of("005")], expected);
    assert_eq!(
        prices.stats().levels.iter().map(|level| level.entries).sum::<u64>(),
        prices.iter().count() as u64
    );
    assert!(db.check(&mut |_| ()).unwrap().problems.is_empty());
    db.close().unwrap();
    let db = open(&sim, 0).unwrap();
    let prices = db.keyspace("prices", small(Preset::Mneme)).unwrap();
    let found = prices.history("005", ..).unwrap().map(|version| line(version.unwrap()));
    assert!(found.eq(expected[1].clone()));
    assert_eq!(prices.get("005").unwrap().unwrap(), "joined");
    // What is written next is later.
    prices.put("005", "next").unwrap();
    assert_eq!(prices.get("005").unwrap().unwrap(), "next");
}

fn files(sim: &Arc<SimEnv>) -> Vec<String> {
    let mut names = sim.list(Path::new("/db")).unwrap();
    names.retain(|name| name.ends_with(".tbl"));
    names
}

/// The number of tables that the database names.
fn tables(db: &Database) -> usize {
    let keyspaces = db.stats().keyspaces;
    let trees = keyspaces.iter().flat_map(|keyspace| [Some(keyspace), keyspace.history.as_deref()]).flatten();
    trees.flat_map(|tree| &tree.levels).map(|level| level.tables).sum()
}

#[test]
fn joined_loads_are_one_and_refused_where_they_overlap() {
    let sim = SimEnv::new(1);
    let db = open(&sim, 0).unwrap();
    let [one, two] = ["1", "2"].map(|name| db.keyspace(name, small(Preset::Balanced)).unwrap());
    let load = |space: &Keyspace, keys: std::ops::Range<u32>, options: IngestOptions| {
        let mut load = db.ingest(options);
        keys.rev().for_each(|n| load.put(space, n.to_be_bytes(), [1; 100]).unwrap());
        load
    };
    let unsorted = IngestOptions::default().unsorted(0);
    let mut all = load(&one, 2_000..3_000, unsorted);
    all.join(load(&one, 0..1_000, unsorted)).unwrap();
    all.join(load(&two, 0..1_000, unsorted)).unwrap();
    // It goes on, in any order: what was joined is another part.
    [4_000u32, 3_500, 1_000].iter().for_each(|n| all.put(&two, n.to_be_bytes(), "own").unwrap());
    let bytes = all.bytes();
    let done = all.commit().unwrap();
    assert_eq!((done.entries, one.iter().count(), two.iter().count()), (3_003, 2_000, 1_003));
    assert!(done.bytes >= bytes);
    let kept = files(&sim);
    let mut all = load(&one, 0..1_000, unsorted);
    all.join(load(&one, 900..2_000, unsorted)).unwrap();
    let error = all.commit().unwrap_err();
    assert!(error.kind() == ErrorKind::InvalidArgument && error.to_string().contains("joined"), "{error}");
    let other = Database::open_in(SimEnv::new(2), "/other", options(0)).unwrap();
    let mut all = load(&one, 0..10, unsorted);
    let refused = all.join(other.ingest(unsorted)).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidArgument);
    drop(all);
    assert_eq!((files(&sim), one.iter().count()), (kept, 2_000));
}

#[test]
fn a_load_that_is_given_up_or_meets_its_end_leaves_nothing() {
    let sim = SimEnv::new(1);
    let db = open(&sim, 0).unwrap();
    let space = db.keyspace("k", small(Preset::Balanced)).unwrap();
    let gone = db.keyspace("gone", small(Preset::Balanced)).unwrap();
    let begin = |db: &Database, with: IngestOptions, space: &Keyspace| {
        let mut load = db.ingest(with);
        (0..3_000u32).for_each(|n| load.put(space, n.to_be_bytes(), [7; 100]).unwrap());
        assert!(files(&sim).len() > 3);
        load
    };
    drop(begin(&db, IngestOptions::default(), &space));
    assert_eq!(files(&sim), [""; 0]);
    drop(begin(&db, IngestOptions::default().unsorted(0), &space));
    assert_eq!(files(&sim), [""; 0]);
    // A keyspace that is dropped.
    let load = begin(&db, IngestOptions::default(), &gone);
    db.drop_keyspace("gone").unwrap();
    assert_eq!(load.commit().unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(files(&sim), [""; 0]);
    // A database that is closed, and opened again: its files are no longer those of the load.
    for with in [IngestOptions::default(), IngestOptions::default().unsorted(0)] {
        let sim = SimEnv::new(2);
        let db = open(&sim, 0).unwrap();
        let space = db.keyspace("k", small(Preset::Balanced)).unwrap();
        let loads = [(); 3].map(|()| {
            let mut load = db.ingest(with);
            (0..3_000u32).for_each(|n| load.put(&space, n.to_be_bytes(), [7; 100]).unwrap());
            load
        });
        db.close().unwrap();
        let again = open(&sim, 0).unwrap();
        assert_eq!(files(&sim), [""; 0]);
        let of_again = again.open_keyspace("k").unwrap();
        for _ in 0..100 {
            (0..200u32).for_each(|n| of_again.put(n.to_be_bytes(), [1; 100]).unwrap());
            of_again.flush().unwrap();
        }
        let kept = files(&sim);
        let [mut one, two, three] = loads;
        assert_eq!(one.put(&space, "x", "x").unwrap_err().kind(), ErrorKind::Closed);
        assert_eq!(one.put(&of_again, "x", "x").unwrap_err().kind(), ErrorKind::InvalidArgument);
        assert_eq!(two.commit().unwrap_err().kind(), ErrorKind::Closed);
        drop((one, three));
        assert_eq!((files(&sim), content(&of_again).len()), (kept, 200));
        drop(of_again);
        again.close().unwrap();
        assert_intact(&sim);
    }
}

#[test]
fn expiries_and_merges_hold_in_loads() {
    let sim = SimEnv::new(1);
    let db = open(&sim, 0).unwrap();
    let hour = std::time::Duration::from_secs(3600);
    let plain = db.keyspace("plain", small(Preset::Balanced)).unwrap();
    let aging = db.keyspace("aging", small(Preset::Balanced).ttl(cairn::Ttl::After(hour))).unwrap();
    let sums = db.keyspace("sums", small(Preset::Balanced).merge(cairn::Merge::U64Add)).unwrap();
    sums.merge("a", 1u64.to_le_bytes()).unwrap();
    let mut load = db.ingest(IngestOptions::default());
    load.put(&plain, "a", "for ever").unwrap();
    load.put_with_ttl(&plain, "b", "two hours", 2 * hour).unwrap();
    load.put_until(&plain, "c", "past", Time::from_micros(1_000)).unwrap();
    load.put(&aging, "a", "an hour").unwrap();
    load.put_until(&aging, "b", "for ever", Time::MAX).unwrap();
    load.put(&sums, "a", 10u64.to_le_bytes()).unwrap();
    assert_eq!(load.put(&sums, "b", "no number").unwrap_err().kind(), ErrorKind::InvalidArgument);
    load.commit().unwrap();
    sums.merge("a", 100u64.to_le_bytes()).unwrap();
    let keys = |space: &Keyspace| content(space).into_keys().map(|k| k[0] as char).collect::<String>();
    assert_eq!((keys(&plain), keys(&aging)), ("ab".into(), "ab".into()));
    assert_eq!(sums.get("a").unwrap().unwrap(), 110u64.to_le_bytes());
    let later =
        |sim: &SimEnv| sim.set_wall_clock(Time::from_micros(sim.wall_clock().micros() + 3_600_000_000));
    later(&sim);
    assert_eq!((keys(&plain), keys(&aging)), ("ab".into(), "b".into()));
    drop((plain, aging, sums));
    db.close().unwrap();
    let db = open(&sim, 0).unwrap();
    later(&sim);
    let [plain, aging, sums] = ["plain", "aging", "sums"].map(|name| db.open_keyspace(name).unwrap());
    assert_eq!((keys(&plain), keys(&aging)), ("a".into(), "b".into()));
    assert_eq!(sums.get("a").unwrap().unwrap(), 110u64.to_le_bytes());
}

#[test]
fn a_load_is_a_commit_for_transactions() {
    let db = open(&SimEnv::new(1), 0).unwrap();
    let (one, two) = (
        db.keyspace("1", small(Preset::Balanced)).unwrap(),
        db.keyspace("2", small(Preset::Balanced)).unwrap(),
    );
    for n in 0..50 {
        one.put(format!("{n:03}"), "old").unwrap();
    }
    for written in [false, true] {
        // What has read a key or a range with one of its entries conflicts, and others do not.
        for (reads, range, conflicts) in
            [("010", "", true), ("011", "", false), ("", "010", true), ("", "012", false), ("x", "", false)]
        {
            if written {
                one.put("005", "memtable").unwrap();
            }
            let mut tx = db.begin();
            if !reads.is_empty() {
                tx.get(&one, reads).unwrap();
            }
            if !range.is_empty() {
                assert!(tx.range(&one, range..&format!("{range}~")[..]).count() < 2);
            }
            tx.put(&two, "written", reads).unwrap();
            let mut load = db.ingest(IngestOptions::default());
            load.put(&one, "010", "new").unwrap();
            load.put(&one, "020", "new").unwrap();
            load.commit().unwrap();
            let result = tx.commit();
            assert_eq!(result.is_err(), conflicts, "{reads:?}, {range:?}: {result:?}");
            assert!(result.is_ok() || result.unwrap_err().kind() == ErrorKind::Conflict);
        }
    }
}

#[test]
fn files_made_elsewhere_are_loaded_and_damaged_ones_refused() {
    let sim = SimEnv::new(1);
    let db = open(&sim, 0).unwrap();
    let space = db.keyspace("k", small(Preset::Balanced)).unwrap();
    sim.create_dir(Path::new("/made")).unwrap();
    let all = entries(&mut Rng::new(1), 0..9_000, 3_000);
    let path = Path::new("/made/one");
    let mut builder = TableBuilder::create_in(sim.clone(), path).unwrap();
    for (key, value) in &all {
        builder.put(key, value).unwrap();
    }
    builder.put_until("until", "1970", Time::from_micros(1)).unwrap();
    let len = builder.finish().unwrap();
    assert_eq!(sim.len(path).unwrap(), len);
    let load = |path: &Path| {
        let mut load = db.ingest(IngestOptions::default());
        load.put_table(&space, path)?;
        load.commit()
    };
    assert_eq!(load(path).unwrap().entries, all.len() as u64 + 1);
    assert_same(&content(&space), &all, "a file");
    // A file that is there, and one that gets keys out of order, or none.
    let kind = |result: Result<TableBuilder>| result.err().map(|e| e.kind());
    assert_eq!(kind(TableBuilder::create_in(sim.clone(), path)), Some(ErrorKind::AlreadyExists));
    let two = Path::new("/made/two");
    let mut builder = TableBuilder::create_in(sim.clone(), two).unwrap();
    builder.put("b", "").unwrap();
    assert_eq!(builder.put("a", "").unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert_eq!(builder.finish().unwrap_err().kind(), ErrorKind::InvalidArgument);
    let builder = TableBuilder::create_in(sim.clone(), two).unwrap();
    assert_eq!(builder.finish().unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert!(!sim.exists(two).unwrap());
    assert_eq!(load(two).unwrap_err().kind(), ErrorKind::NotFound);
    // Damage anywhere is found, and nothing is loaded.
    let bytes = sim.read_file(path);
    let before = content(&space);
    let mut refused = 0;
    for at in (0..bytes.len()).step_by(997) {
        let mut bad = bytes.clone();
        bad[at] ^= 0x10;
        sim.write_file(two, bad);
        match load(two) {
            Err(e) => {
                assert!(e.kind() == ErrorKind::Corruption && e.to_string().contains("/made/two"), "{e}");
                refused += 1;
            }
            // Index and properties are not read.
            Ok(done) => assert_eq!(done.entries, all.len() as u64 + 1),
        }
    }
    assert!(refused * 100 > 95 * bytes.len() / 997, "{refused}");
    for len in [0, 10, 79, 80, bytes.len() / 2, bytes.len() - 1] {
        sim.write_file(two, &bytes[..len]);
        assert_eq!(load(two).unwrap_err().kind(), ErrorKind::Corruption);
    }
    // A table of the database is no such file.
    let table = files(&sim).pop().unwrap();
    assert_eq!(load(&Path::new("/db").join(table)).unwrap_err().kind(), ErrorKind::Corruption);
    assert_same(&content(&space), &before, "after refusals");
}

#[test]
fn loads_beside_writers_readers_and_other_loads_are_atomic() {
    let sim = SimEnv::new(3);
    let db = open(&sim, 2).unwrap();
    let spaces = keyspaces(&db);
    let stop = AtomicBool::new(false);
    let put_all = |load: u64, writer: &str| {
        let mut ingest = db.ingest(IngestOptions::default());
        for space in &spaces {
            for n in 0..40 {
                ingest.put(space, format!("{writer} {n:03}"), load.to_be_bytes()).unwrap();
            }
        }
        ingest.commit().unwrap();
    };
    struct Stop<'a>(&'a AtomicBool);
    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let (mut seen, last) = (0, 30);
    std::thread::scope(|scope| {
        let _stop = Stop(&stop);
        let loads: Vec<_> = ["a", "b"]
            .map(|writer| scope.spawn(move || (1..=last).for_each(|load| put_all(load, writer))))
            .into_iter()
            .collect();
        scope.spawn(|| {
            let mut n = 0u64;
            while !stop.load(Ordering::Relaxed) {
                let space = &spaces[n as usize % spaces.len()];
                space.put(format!("a {:03}x", n % 40), n.to_be_bytes()).unwrap();
                n += 1;
            }
        });
        while loads.iter().any(|load| !load.is_finished()) {
            let snapshot = db.snapshot();
            for writer in ["a", "b"] {
                let mut values = std::collections::BTreeSet::new();
                for space in &spaces {
                    let keys = format!("{writer} ")..format!("{writer}!");
                    for entry in snapshot.range(space, keys.start.as_bytes()..keys.end.as_bytes()) {
                        let (key, value) = entry.unwrap();
                        if key.len() == 5 {
                            values.insert(value);
                        }
                    }
                }
                assert!(values.len() <= 1, "a snapshot has parts of {} loads", values.len());
                seen += values.len();
            }
        }
    });
    assert!(seen > 0);
    drop(spaces);
    db.close().unwrap();
    assert_intact(&sim);
}

/// A database with unsynced writes, and the load that is to come. Returns the contents before, and with the load.
fn prepared(seed: u64) -> (Arc<SimEnv>, Database, Vec<Map>, Vec<Map>) {
    let sim = SimEnv::new(seed);
    let db = open(&sim, 0).unwrap();
    // Two are enough for what is atomic over keyspaces.
    for (name, options) in kinds().into_iter().skip(1).take(2) {
        db.create_keyspace(name, options).unwrap();
    }
    let spaces = spaces(&db);
    let mut rng = Rng::new(seed);
    let mut before = vec![Map::new(); spaces.len()];
    for (space, model) in spaces.iter().zip(&mut before) {
        model.extend(entries(&mut rng, 0..2_000, 150));
        model.iter().for_each(|(key, value)| space.put(key, value).unwrap());
        space.flush().unwrap();
    }
    db.sync().unwrap();
    for (space, model) in spaces.iter().zip(&mut before) {
        let more = entries(&mut rng, 0..2_000, 10);
        more.iter().for_each(|(key, value)| space.put(key, value).unwrap());
        model.extend(more);
    }
    let mut after = before.clone();
    after.iter_mut().for_each(|model| model.extend(entries(&mut rng, 500..9_000, 300)));
    (sim, db, before, after)
}

fn load(db: &Database, before: &[Map], after: &[Map], sorted: bool) -> Result<cairn::Ingested> {
    let mut load = db.ingest(match sorted {
        true => IngestOptions::default(),
        false => IngestOptions::default().unsorted(0),
    });
    for ((space, before), after) in spaces(db).iter().zip(before).zip(after) {
        for (key, value) in after.iter().filter(|(key, value)| before.get(*key) != Some(value)) {
            load.put(space, key, value)?;
        }
    }
    load.commit()
}

fn contents(db: &Database) -> Vec<Map> {
    spaces(db).iter().map(content).collect()
}

/// The keyspaces that there are.
fn spaces(db: &Database) -> Vec<Keyspace> {
    db.keyspaces().iter().map(|name| db.open_keyspace(name).unwrap()).collect()
}

/// Whether each keyspace has what it had before, but for writes that were not synced.
fn has_at_most_lost_the_last_writes(found: &[Map], before: &[Map]) -> bool {
    let is_old = |(found, before): (&Map, &Map)| {
        found.keys().all(|key| before.contains_key(key)) && found.len() + 10 >= before.len()
    };
    found.iter().zip(before).all(is_old)
}

#[test]
fn a_crash_leaves_the_whole_load_or_nothing_of_it() {
    for sorted in [true, false] {
        let operations = {
            let (sim, db, before, after) = prepared(5);
            let begin = sim.op_count();
            load(&db, &before, &after, sorted).unwrap();
            assert!(contents(&db) == after);
            sim.op_count() - begin
        };
        let mut whole = 0;
        for n in 0..operations {
            let (sim, db, before, after) = prepared(5);
            sim.crash_at(sim.op_count() + n);
            let result = load(&db, &before, &after, sorted);
            for kind in [n, n + 2].map(|n| Survival::ALL[n as usize % 5]) {
                let what = format!("operation {n} of {operations}, {kind:?}, {result:?}");
                let left = sim.crash_clone(kind, n);
                let db = open(&left, 0).unwrap();
                let found = contents(&db);
                if found == after {
                    whole += 1;
                } else {
                    assert!(has_at_most_lost_the_last_writes(&found, &before) && result.is_err(), "{what}");
                }
                // No litter, and the load can be repeated.
                assert_eq!(files(&left).len(), tables(&db), "{what}");
                load(&db, &before, &after, sorted).unwrap();
                for (found, after) in contents(&db).iter().zip(&after) {
                    assert!(after.iter().filter(|(k, v)| found.get(*k) != Some(v)).count() <= 10, "{what}");
                }
                drop(db);
                assert_intact(&left);
            }
        }
        assert!(whole > 5 && whole < operations * 2, "{whole} of {operations}");
    }
}

#[test]
fn a_failing_operation_leaves_nothing_and_the_database_goes_on() {
    for sorted in [true, false] {
        let operations = {
            let (sim, db, before, after) = prepared(6);
            let begin = sim.op_count();
            load(&db, &before, &after, sorted).unwrap();
            sim.op_count() - begin
        };
        let (mut failures, mut fatal, mut litters) = (0, 0, 0);
        for (n, fault) in (0..operations).flat_map(|n| [Fault::EIO, Fault::ENOSPC].map(|fault| (n, fault))) {
            let (sim, db, before, after) = prepared(6);
            sim.fail_op(sim.op_count() + n, fault, Repeat::Once);
            let result = load(&db, &before, &after, sorted);
            sim.clear_faults();
            let what = format!("operation {n} of {operations}, {fault:?}, {result:?}");
            failures += usize::from(result.is_err());
            let expected = if result.is_ok() { &after } else { &before };
            assert!(contents(&db) == *expected, "{what}");
            match spaces(&db)[0].put("more", "more") {
                Ok(()) => {
                    // A file stays that could not be removed.
                    let litter = files(&sim).len() - tables(&db);
                    assert!(litter <= 1, "{what}");
                    litters += litter;
                    load(&db, &before, &after, sorted).unwrap_or_else(|e| panic!("again: {e}, {what}"));
                    db.close().unwrap();
                }
                Err(e) => {
                    assert_eq!(e.kind(), ErrorKind::ReadOnly, "{what}: {e}");
                    fatal += 1;
                    let _ = db.close();
                    let db = open(&sim, 0).unwrap();
                    let found = contents(&db);
                    assert!(found == after || has_at_most_lost_the_last_writes(&found, &before), "{what}");
                    continue;
                }
            }
            let db = open(&sim, 0).unwrap();
            assert_eq!(files(&sim).len(), tables(&db), "{what}");
            let mut found = contents(&db);
            found[0].remove(&b"more"[..]);
            assert!(found == after, "{what}");
        }
        assert!(
            failures as u64 > operations && fatal < operations && litters < 100,
            "{failures}, {fatal}, {litters} of {operations}"
        );
    }
}

#[test]
fn salvage_knows_the_numbers_of_loads_or_takes_them_as_of_their_beginning() {
    for has_manifest in [true, false] {
        let sim = SimEnv::new(1);
        let db = open(&sim, 0).unwrap();
        let space = db.keyspace("k", small(Preset::SsTable)).unwrap();
        let put_all = |value: &str| {
            (0..300).for_each(|n| space.put(format!("{n:03}"), value).unwrap());
            space.flush().unwrap();
        };
        put_all("before");
        let mut load = db.ingest(IngestOptions::default());
        (100..200).for_each(|n| load.put(&space, format!("{n:03}"), "load").unwrap());
        (250..260).for_each(|n| space.put(format!("{n:03}"), "meanwhile").unwrap());
        space.put("150", "meanwhile").unwrap();
        load.commit().unwrap();
        space.put("199", "after").unwrap();
        let mut expected = content(&space);
        assert_eq!(expected[&b"150"[..]], b"load");
        drop(space);
        db.close().unwrap();
        if !has_manifest {
            let manifest =
                sim.list(Path::new("/db")).unwrap().into_iter().find(|name| name.starts_with("manifest-"));
            sim.remove(&Path::new("/db").join(manifest.unwrap())).unwrap();
            // What was written while the load was built is taken for newer.
            expected.insert(b"150".to_vec(), b"meanwhile".to_vec());
        }
        cairn::salvage_in(sim.clone(), "/db", "/new", options(0)).unwrap();
        let new = Database::open_in(sim.clone(), "/new", options(0)).unwrap();
        assert_same(&content(&new.open_keyspace("k").unwrap()), &expected, &format!("{has_manifest}"));
    }
}
