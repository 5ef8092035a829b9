//! Clones of keyspaces.

use cairn::env::{Env, Fault, Repeat, SimEnv, Survival};
use cairn::{
    Backups, Database, Error, ErrorKind, FilterDecision, FilterEntry, Keyspace, KeyspaceOptions, Merge,
    Options, Preset, Result, Retention, Time, salvage_in,
};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Keys, and of each value its length and the byte that it consists of.
type Map = BTreeMap<String, (usize, u8)>;

fn options() -> Options {
    Options::default().background_threads(0).memory_budget(1 << 20).value_garbage_percent(10)
}

fn open(sim: &Arc<SimEnv>) -> Database {
    Database::open_in(sim.clone(), "/db", options()).unwrap()
}

fn small(preset: Preset) -> KeyspaceOptions {
    KeyspaceOptions::preset(preset).memtable_bytes(8 << 10).block_size(512).levels(3)
}

/// Puts entries `keys`, in this round, some of them large.
fn fill(keyspace: &Keyspace, keys: std::ops::Range<usize>, round: usize) {
    for i in keys {
        let len = if i % 7 == 0 { 2_000 } else { 40 };
        keyspace.put(format!("key/{i:04}"), vec![(i + round) as u8; len]).unwrap();
    }
}

fn content(keyspace: &Keyspace) -> Map {
    let entry = |entry: Result<(cairn::Slice, cairn::Slice)>| {
        let (key, value) = entry.unwrap();
        assert!(value.iter().all(|byte| *byte == value[0]), "{key:?}");
        (String::from_utf8(key.to_vec()).unwrap(), (value.len(), value[0]))
    };
    keyspace.iter().map(entry).collect()
}

fn kind<T>(result: Result<T>) -> Option<ErrorKind> {
    result.err().map(|e: Error| e.kind())
}

/// The tables and value files in the directory.
fn data_files(sim: &SimEnv) -> usize {
    let ends = |name: &String| name.ends_with(".tbl") || name.ends_with(".val");
    sim.list(Path::new("/db")).unwrap().iter().filter(|name| ends(name)).count()
}

fn check(db: &Database) {
    let problems = db.check(&mut |_| ()).unwrap().problems;
    assert!(problems.is_empty(), "{problems:?}");
}

/// The presets with order.
fn presets() -> impl Iterator<Item = Preset> {
    Preset::ALL.into_iter().filter(|preset| *preset != Preset::HashLog)
}

#[test]
fn a_clone_has_the_content_and_the_options_and_is_independent() {
    for (preset, drop_source) in presets().flat_map(|preset| [(preset, false), (preset, true)]) {
        let sim = SimEnv::new(1);
        let db = open(&sim);
        let source = db.create_keyspace("source", small(preset)).unwrap();
        fill(&source, 0..300, 0);
        source.delete_range("key/0100".."key/0110").unwrap();
        source.delete("key/0120").unwrap();
        let before = content(&source);
        let clone = db.clone_keyspace("source", "clone").unwrap();
        assert_eq!((db.keyspaces(), clone.name()), (vec!["clone".into(), "source".into()], "clone".into()));
        assert_eq!((content(&clone), clone.options()), (before.clone(), source.options()), "{preset}");
        // In common, until compactions of one of them replace the tables.
        assert!(clone.stats().shared_bytes > 0 && clone.stats().shared_bytes == source.stats().shared_bytes);
        let (mut of_source, mut of_clone) = (before.clone(), before);
        for round in 1..4 {
            fill(&source, 0..100, round);
            fill(&clone, 200..350, round + 10);
            source.delete_range("key/0050".."key/0060").unwrap();
            clone.delete_range("key/0250".."key/0260").unwrap();
            (of_source, of_clone) = (content(&source), content(&clone));
            source.compact().unwrap();
            db.wait_idle().unwrap();
            assert_eq!(
                (content(&source), content(&clone)),
                (of_source.clone(), of_clone.clone()),
                "{preset}"
            );
            check(&db);
        }
        assert_eq!((of_source.len(), of_clone.len()), (279, 329), "{preset}");
        drop((source, clone));
        db.close().unwrap();
        let db = open(&sim);
        let (gone, kept, map) = match drop_source {
            true => ("source", "clone", of_clone),
            false => ("clone", "source", of_source),
        };
        db.drop_keyspace(gone).unwrap();
        let kept = db.open_keyspace(kept).unwrap();
        assert_eq!(content(&kept), map, "{preset}");
        kept.compact().unwrap();
        db.wait_idle().unwrap();
        assert_eq!((content(&kept), kept.stats().shared_bytes), (map.clone(), 0), "{preset}");
        check(&db);
        let name = kept.name();
        drop(kept);
        db.close().unwrap();
        let db = open(&sim);
        assert_eq!(content(&db.open_keyspace(&name).unwrap()), map, "{preset}");
        db.drop_keyspace(&name).unwrap();
        db.wait_idle().unwrap();
        assert_eq!(data_files(&sim), 0, "{preset}");
    }
}

#[test]
fn nothing_is_copied_and_files_go_with_the_last_keyspace_that_has_them() {
    let sim = SimEnv::new(1);
    let db = open(&sim);
    let source = db.create_keyspace("0", small(Preset::Parallax)).unwrap();
    fill(&source, 0..500, 0);
    db.flush().unwrap();
    db.wait_idle().unwrap();
    let (files, map) = (data_files(&sim), content(&source));
    // Clones of clones, also after the manifest was written anew by openings.
    for n in 1..6 {
        db.clone_keyspace(&(n - 1).to_string(), &n.to_string()).unwrap();
    }
    assert_eq!(data_files(&sim), files);
    drop(source);
    db.close().unwrap();
    let mut db = open(&sim);
    for (n, gone) in [3, 0, 5, 1, 4].into_iter().enumerate() {
        db.drop_keyspace(&gone.to_string()).unwrap();
        db.wait_idle().unwrap();
        if n == 2 {
            db.close().unwrap();
            db = open(&sim);
        }
        assert_eq!(data_files(&sim), files, "without {gone}");
        for name in db.keyspaces() {
            assert_eq!(content(&db.open_keyspace(&name).unwrap()), map, "{name} without {gone}");
        }
    }
    assert_eq!(db.open_keyspace("2").unwrap().stats().shared_bytes, 0);
    db.drop_keyspace("2").unwrap();
    db.wait_idle().unwrap();
    assert_eq!(data_files(&sim), 0);
}

/// A table is in the manifest of both; edits since then have taken it from one of them or from both.
#[test]
fn openings_count_the_keyspaces_of_a_table_as_the_manifest_has_them() {
    for gone in [vec![], vec!["source"], vec!["clone"], vec!["source", "clone"]] {
        let sim = SimEnv::new(1);
        let db = open(&sim);
        let source = db.create_keyspace("source", small(Preset::Balanced)).unwrap();
        fill(&source, 0..200, 0);
        let map = content(&source);
        db.clone_keyspace("source", "clone").unwrap();
        // Other tables for one, or for both.
        gone.iter().for_each(|name| db.open_keyspace(name).unwrap().rewrite().unwrap());
        drop(source);
        // Without closing, which changes nothing here.
        let sim = sim.crash_clone(Survival::ALL[0], 1);
        drop(db);
        let db = open(&sim);
        for name in ["source", "clone"] {
            let keyspace = db.open_keyspace(name).unwrap();
            assert_eq!(keyspace.stats().shared_bytes > 0, gone.is_empty(), "{gone:?}");
        }
        for name in ["source", "clone"] {
            let keyspace = db.open_keyspace(name).unwrap();
            assert_eq!(content(&keyspace), map, "{gone:?}");
            keyspace.rewrite().unwrap();
            assert_eq!(content(&keyspace), map, "{gone:?}");
        }
        check(&db);
        db.drop_keyspace("source").unwrap();
        db.wait_idle().unwrap();
        assert_eq!(content(&db.open_keyspace("clone").unwrap()), map);
        db.drop_keyspace("clone").unwrap();
        assert_eq!(data_files(&sim), 0, "{gone:?}");
    }
}

#[test]
fn values_stay_until_neither_keyspace_refers_to_them() {
    let sim = SimEnv::new(1);
    let db = open(&sim);
    let source = db.create_keyspace("source", small(Preset::Parallax)).unwrap();
    for round in 0..4 {
        fill(&source, 0..200, round);
        source.flush().unwrap();
    }
    let map = content(&source);
    let clone = db.clone_keyspace("source", "clone").unwrap();
    // Much of what the source refers to is dead, and is collected; what the clone refers to is not.
    for round in 4..8 {
        fill(&source, 0..200, round);
        source.compact().unwrap();
        db.wait_idle().unwrap();
        assert_eq!(content(&clone), map);
    }
    assert!(db.stats().values.collections.jobs > 0);
    let newer = content(&source);
    db.drop_keyspace("source").unwrap();
    db.wait_idle().unwrap();
    assert_eq!(content(&clone), map);
    let again = db.clone_keyspace("clone", "source").unwrap();
    fill(&clone, 0..200, 8);
    clone.compact().unwrap();
    db.wait_idle().unwrap();
    assert!(content(&again) == map && content(&clone) != newer);
    check(&db);
    drop((source, clone, again));
    db.close().unwrap();
    let db = open(&sim);
    assert_eq!(content(&db.open_keyspace("source").unwrap()), map);
    check(&db);
}

#[test]
fn older_versions_are_cloned_and_snapshots_from_before_show_the_past_of_both() {
    let sim = SimEnv::new(1);
    let db = open(&sim);
    let source = db.create_keyspace("source", small(Preset::Balanced).history(Retention::All)).unwrap();
    let time = Time::from_micros;
    for t in 1..=20 {
        source.put_at("k", t.to_string(), time(t)).unwrap();
        if t % 6 == 0 {
            source.compact().unwrap();
        }
    }
    let plain = db.create_keyspace("plain", small(Preset::Balanced)).unwrap();
    plain.put("a", "1").unwrap();
    let snapshot = db.snapshot();
    plain.put("a", "2").unwrap();
    source.put_at("k", "21", time(21)).unwrap();
    let clone = db.clone_keyspace("source", "clone").unwrap();
    let of_plain = db.clone_keyspace("plain", "of_plain").unwrap();
    clone.put_at("k", "of the clone", time(22)).unwrap();
    source.put_at("k", "of the source", time(23)).unwrap();
    for keyspace in [&plain, &of_plain] {
        keyspace.put("a", "3").unwrap();
        keyspace.compact().unwrap();
        assert_eq!(snapshot.get(keyspace, "a").unwrap().unwrap(), "1");
    }
    drop(snapshot);
    let at = |keyspace: &Keyspace, t| keyspace.get_at("k", time(t)).unwrap().unwrap().value.unwrap();
    let inspect = |db: &Database| {
        let [source, clone] = ["source", "clone"].map(|name| db.open_keyspace(name).unwrap());
        for t in 1..=21 {
            assert_eq!([at(&source, t), at(&clone, t)], [t.to_string(), t.to_string()]);
        }
        assert_eq!([at(&source, 23), at(&clone, 23)], ["of the source", "of the clone"]);
        check(db);
    };
    inspect(&db);
    source.compact().unwrap();
    clone.compact().unwrap();
    inspect(&db);
    drop((source, clone, plain, of_plain));
    db.close().unwrap();
    let db = open(&sim);
    inspect(&db);
    for name in db.keyspaces() {
        db.drop_keyspace(&name).unwrap();
    }
    assert_eq!(data_files(&sim), 0);
}

#[test]
fn expiries_and_operands_are_those_of_the_clone_too() {
    let sim = SimEnv::new(1);
    let mut now = Time::from_micros(1 << 50);
    sim.set_wall_clock(now);
    let db = open(&sim);
    let source = db.create_keyspace("source", small(Preset::Balanced).merge(Merge::I64Add)).unwrap();
    let number = |n: i64| n.to_le_bytes();
    source.put_with_ttl("goes", number(1), Duration::from_secs(60)).unwrap();
    source.merge("sum", number(1)).unwrap();
    source.flush().unwrap();
    source.merge("sum", number(2)).unwrap();
    let clone = db.clone_keyspace("source", "clone").unwrap();
    clone.merge("sum", number(10)).unwrap();
    source.merge("sum", number(20)).unwrap();
    let sums = || [&source, &clone].map(|keyspace| keyspace.get("sum").unwrap().unwrap().to_vec());
    assert_eq!(sums(), [number(23).to_vec(), number(13).to_vec()]);
    clone.compact().unwrap();
    source.compact().unwrap();
    assert_eq!(sums(), [number(23).to_vec(), number(13).to_vec()]);
    assert!(clone.get("goes").unwrap().is_some());
    now = now.saturating_add(Duration::from_secs(61));
    sim.set_wall_clock(now);
    assert!([&source, &clone].iter().all(|keyspace| keyspace.get("goes").unwrap().is_none()));
    assert_eq!((clone.iter().count(), source.iter().count()), (1, 1));
}

#[test]
fn clones_that_are_refused_change_nothing() {
    let sim = SimEnv::new(1);
    let db = Database::builder().options(options()).env(sim.clone());
    let keep = |_: &FilterEntry<'_>| Ok(FilterDecision::Keep);
    let db = db.compaction_filter("filtered", keep).open("/db").unwrap();
    let source = db.create_keyspace("a", small(Preset::Balanced)).unwrap();
    db.create_keyspace("b", small(Preset::Balanced)).unwrap();
    db.create_keyspace("hashed", KeyspaceOptions::preset(Preset::HashLog)).unwrap();
    db.create_keyspace("old", small(Preset::Balanced).history(Retention::All)).unwrap();
    let names = db.keyspaces();
    for (from, to, wanted) in [
        ("missing", "c", ErrorKind::NotFound),
        ("a", "a", ErrorKind::AlreadyExists),
        ("a", "b", ErrorKind::AlreadyExists),
        ("a", "", ErrorKind::InvalidArgument),
        ("a", &"n".repeat(cairn::limits::MAX_KEYSPACE_NAME_LEN + 1), ErrorKind::InvalidArgument),
        ("hashed", "c", ErrorKind::InvalidArgument),
        ("hashed", "filtered", ErrorKind::InvalidArgument),
    ] {
        assert_eq!(kind(db.clone_keyspace(from, to)), Some(wanted), "{from} to {to}");
    }
    assert_eq!(db.keyspaces(), names);
    let reader = Database::builder().options(options()).env(sim.clone()).open_read_only("/db").unwrap();
    assert_eq!(kind(reader.clone_keyspace("a", "c")), Some(ErrorKind::ReadOnly));
    // A clone has the filter of its own name.
    let filtered = db.clone_keyspace("a", "filtered").unwrap();
    assert_eq!([source.stats().has_filter, filtered.stats().has_filter], [false, true]);
    let other = db.clone();
    db.close().unwrap();
    assert_eq!(kind(other.clone_keyspace("a", "c")), Some(ErrorKind::Closed));
}

/// All of it, or nothing; and nothing is left of it.
#[test]
fn a_crash_or_a_failure_leaves_a_whole_clone_or_none() {
    let prepare = |seed| {
        let sim = SimEnv::new(seed);
        let db = Database::open_in(sim.clone(), "/db", options().manifest_cap(1 << 10)).unwrap();
        let source = db.create_keyspace("source", small(Preset::Parallax).history(Retention::All)).unwrap();
        fill(&source, 0..60, 0);
        fill(&source, 0..30, 1);
        db.sync().unwrap();
        let map = content(&source);
        (sim, db, source, map)
    };
    let operations = {
        let (sim, db, ..) = prepare(1);
        let begin = sim.op_count();
        db.clone_keyspace("source", "clone").unwrap();
        sim.op_count() - begin
    };
    let mut met = [0; 2];
    let mut inspect = |sim: &Arc<SimEnv>, cloned: bool, map: &Map, what: &str| {
        let db = open(sim);
        let names = db.keyspaces();
        assert!(names.len() == 2 || !cloned && names == ["source"], "{what}: {names:?}");
        met[names.len() - 1] += 1;
        for name in &names {
            assert_eq!(content(&db.open_keyspace(name).unwrap()), *map, "{what}: {name}");
        }
        check(&db);
        if names.len() == 2 {
            db.drop_keyspace("source").unwrap();
            assert_eq!(content(&db.open_keyspace("clone").unwrap()), *map, "{what}");
        }
        db.keyspaces().iter().for_each(|name| db.drop_keyspace(name).unwrap());
        db.wait_idle().unwrap();
        assert_eq!(data_files(sim), 0, "{what}");
    };
    for n in 0..=operations {
        let (sim, db, _source, map) = prepare(n);
        sim.crash_at(sim.op_count() + n);
        let cloned = db.clone_keyspace("source", "clone");
        for kind in Survival::ALL {
            let what = format!("crash at operation {n}, {kind:?}, {:?}", cloned.as_ref().err());
            inspect(&sim.crash_clone(kind, n), cloned.is_ok(), &map, &what);
        }
    }
    for (n, fault) in (0..operations).flat_map(|n| [Fault::EIO, Fault::ENOSPC].map(|fault| (n, fault))) {
        let (sim, db, source, map) = prepare(n);
        sim.fail_op(sim.op_count() + n, fault, Repeat::Once);
        let cloned = db.clone_keyspace("source", "clone");
        sim.clear_faults();
        let what = format!("{fault:?} at operation {n}, {:?}", cloned.as_ref().err());
        // What failed is not there, and the database goes on or refuses writes.
        assert_eq!(db.keyspaces().len(), 1 + usize::from(cloned.is_ok()), "{what}");
        assert_eq!(content(&source), map, "{what}");
        let is_cloned = cloned.is_ok();
        drop((db, source, cloned));
        inspect(&sim, is_cloned, &map, &what);
    }
    assert!(met.iter().all(|times| *times > 0), "{met:?}");
}

#[test]
fn readers_in_other_processes_see_clones_and_keep_their_tables() {
    let sim = SimEnv::new(1);
    let db = open(&sim);
    let source = db.create_keyspace("source", small(Preset::Parallax)).unwrap();
    fill(&source, 0..300, 0);
    let map = content(&source);
    let open_reader =
        || Database::builder().options(options()).env(sim.clone()).open_read_only("/db").unwrap();
    let reader = open_reader();
    let clone = db.clone_keyspace("source", "clone").unwrap();
    assert_eq!(reader.keyspaces(), ["source"]);
    let second = reader.refresh().unwrap();
    let of = |reader: &Database, name: &str| content(&reader.open_keyspace(name).unwrap());
    assert_eq!([of(&second, "source"), of(&second, "clone")], [map.clone(), map.clone()]);
    // One of them gives the tables up; then the other one, under a reader of the moment before.
    source.rewrite().unwrap();
    fill(&source, 0..300, 1);
    let newer = content(&source);
    let third = second.refresh().unwrap();
    assert_eq!([of(&third, "source"), of(&third, "clone")], [newer.clone(), map.clone()]);
    db.drop_keyspace("clone").unwrap();
    assert_eq!(of(&third, "clone"), map);
    assert_eq!(of(&second, "clone"), map);
    let fourth = third.refresh().unwrap();
    assert_eq!((fourth.keyspaces(), of(&fourth, "source")), (vec!["source".to_string()], newer.clone()));
    // One that reads the manifest from its beginning, and one that reads a new manifest.
    db.clone_keyspace("source", "again").unwrap();
    assert_eq!([of(&open_reader(), "source"), of(&open_reader(), "again")], [newer.clone(), newer.clone()]);
    drop((source, clone));
    db.close().unwrap();
    let db = open(&sim);
    let fifth = fourth.refresh().unwrap();
    assert_eq!([of(&fifth, "source"), of(&fifth, "again")], [newer.clone(), newer.clone()]);
    db.drop_keyspace("source").unwrap();
    let sixth = fifth.refresh().unwrap();
    assert_eq!(of(&sixth, "again"), newer);
    drop((reader, second, third, fourth, fifth, sixth));
    db.drop_keyspace("again").unwrap();
    db.wait_idle().unwrap();
    assert_eq!(data_files(&sim), 0);
}

#[test]
fn checkpoints_and_backups_have_clones() {
    let sim = SimEnv::new(1);
    let db = open(&sim);
    let source = db.create_keyspace("source", small(Preset::Parallax)).unwrap();
    fill(&source, 0..300, 0);
    let map = content(&source);
    let clone = db.clone_keyspace("source", "clone").unwrap();
    fill(&clone, 0..20, 1);
    let newer = content(&clone);
    db.checkpoint("/checkpoint").unwrap();
    let generation = db.backup("/backup").unwrap().number;
    Backups::open_in(sim.clone(), "/backup")
        .unwrap()
        .restore(Some(generation), Path::new("/restored"), &mut |_| ())
        .unwrap();
    db.drop_keyspace("source").unwrap();
    clone.rewrite().unwrap();
    for dir in ["/checkpoint", "/restored"] {
        let db = Database::open_in(sim.clone(), dir, options()).unwrap();
        assert_eq!(content(&db.open_keyspace("source").unwrap()), map, "{dir}");
        db.drop_keyspace("source").unwrap();
        db.wait_idle().unwrap();
        assert_eq!(content(&db.open_keyspace("clone").unwrap()), newer, "{dir}");
        check(&db);
    }
    assert_eq!(content(&clone), newer);
}

#[test]
fn salvage_brings_both_back_as_long_as_a_manifest_says_so() {
    let sim = SimEnv::new(1);
    let db = open(&sim);
    let source = db.create_keyspace("source", small(Preset::Balanced)).unwrap();
    fill(&source, 0..300, 0);
    let map = content(&source);
    let clone = db.clone_keyspace("source", "clone").unwrap();
    fill(&clone, 400..500, 1);
    db.flush().unwrap();
    let newer = content(&clone);
    drop((source, clone));
    db.sync().unwrap();
    let manifests = |sim: &SimEnv| -> Vec<_> {
        let is_manifest = |path: &std::path::PathBuf| path.to_string_lossy().contains("manifest");
        sim.list_files().into_iter().filter(is_manifest).collect()
    };
    let copy = || sim.crash_clone(Survival::ALL[0], 1);
    let [sound, damaged, without] = [copy(), copy(), copy()];
    drop(db);
    for path in manifests(&damaged) {
        let mut bytes = damaged.read_file(&path);
        let middle = bytes.len() - 10;
        bytes[middle] ^= 1;
        damaged.write_file(&path, bytes);
    }
    manifests(&without).iter().for_each(|path| without.remove(path).unwrap());
    for (sim, has_manifest) in [(sound, true), (damaged, true), (without, false)] {
        salvage_in(sim.clone(), "/db", "/out", options()).unwrap();
        let db = Database::open_in(sim, "/out", options()).unwrap();
        assert_eq!(content(&db.open_keyspace("source").unwrap()), map);
        let clone = content(&db.open_keyspace("clone").unwrap());
        match has_manifest {
            true => assert_eq!(clone, newer),
            // A table says whose it was when it was written.
            false => assert_eq!(clone.len(), 100),
        }
    }
}

/// Keys are put in order: a clone has a prefix of them, with all that was there before the call.
#[test]
fn clones_beside_writers_are_moments() {
    let sim = SimEnv::new(1);
    let db = Database::open_in(sim, "/db", options().background_threads(2)).unwrap();
    let source = db.create_keyspace("source", small(Preset::Balanced)).unwrap();
    let (written, ended) = (AtomicU64::new(0), AtomicBool::new(false));
    struct End<'a>(&'a AtomicBool);
    impl Drop for End<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }
    let count = |keyspace: &Keyspace| {
        let keys: Vec<_> = keyspace.iter().map(|entry| entry.unwrap().0).collect();
        assert!((0u64..).zip(&keys).all(|(n, key)| key[..] == n.to_be_bytes()), "{keys:?}");
        keys.len() as u64
    };
    std::thread::scope(|scope| {
        let _end = End(&ended);
        scope.spawn(|| {
            let _end = End(&ended);
            for n in (0u64..).take_while(|_| !ended.load(Ordering::SeqCst)) {
                source.put(n.to_be_bytes(), [1; 50]).unwrap();
                written.store(n + 1, Ordering::SeqCst);
            }
        });
        scope.spawn(|| {
            let _end = End(&ended);
            while !ended.load(Ordering::SeqCst) {
                source.compact().unwrap();
            }
        });
        for n in 0..40 {
            let before = written.load(Ordering::SeqCst);
            let clone = db.clone_keyspace("source", &format!("clone {n}")).unwrap();
            let found = count(&clone);
            assert!(found >= before, "{found} of {before}");
            if n % 3 > 0 {
                clone.compact().unwrap();
                assert_eq!(count(&clone), found);
                db.drop_keyspace(&clone.name()).unwrap();
            }
        }
    });
    db.wait_idle().unwrap();
    check(&db);
}

/// Each commit has a version of two keys: one is the newest of its key, the other is late. They go to different trees.
#[test]
fn clones_of_histories_beside_writers_are_moments_of_both_trees() {
    let sim = SimEnv::new(1);
    let db = Database::open_in(sim, "/db", options().background_threads(2)).unwrap();
    let source = db.create_keyspace("source", small(Preset::Balanced).history(Retention::All)).unwrap();
    source.put_at("late", "end", Time::from_micros(1 << 40)).unwrap();
    let ended = AtomicBool::new(false);
    struct End<'a>(&'a AtomicBool);
    impl Drop for End<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }
    std::thread::scope(|scope| {
        let _end = End(&ended);
        scope.spawn(|| {
            let _end = End(&ended);
            for n in (1u64..).take_while(|_| !ended.load(Ordering::SeqCst)) {
                let mut batch = db.batch();
                let size = [20, 600][(n / 50 % 2) as usize];
                batch.put_at(&source, "late", vec![1; size], Time::from_micros(n));
                batch.put_at(&source, "newest", vec![2; 620 - size], Time::from_micros(n));
                db.write(batch, cairn::Durability::Os).unwrap();
            }
        });
        for n in 0..60 {
            let clone = db.clone_keyspace("source", &format!("clone {n}")).unwrap();
            let count = |key: &str| clone.history(key, ..).unwrap().count();
            let (late, newest) = (count("late"), count("newest"));
            assert_eq!(late, newest + 1, "clone {n}");
            clone.put("after", "1").unwrap();
            clone.flush().unwrap();
            if n % 10 == 0 {
                check(&db);
            }
            db.drop_keyspace(&clone.name()).unwrap();
        }
    });
    check(&db);
}

/// The edit that made the clone is damaged, and a later one drops the other keyspace: nothing says any more that the tables are in use.
#[test]
fn salvage_names_the_tables_that_a_clone_may_have_had() {
    let sim = SimEnv::new(1);
    let db = open(&sim);
    let source = db.create_keyspace("source", small(Preset::Balanced)).unwrap();
    fill(&source, 0..300, 0);
    drop((db.clone_keyspace("source", "clone").unwrap(), source));
    db.drop_keyspace("source").unwrap();
    db.sync().unwrap();
    let tables = sim.list(Path::new("/db")).unwrap().into_iter().filter(|name| name.ends_with(".tbl"));
    let tables: Vec<String> = tables.collect();
    let copy = sim.crash_clone(Survival::ALL[0], 1);
    drop(db);
    let path =
        copy.list_files().into_iter().find(|path| path.to_string_lossy().contains("manifest")).unwrap();
    let mut bytes = copy.read_file(&path);
    let at = bytes.windows(5).position(|window| window == b"clone").unwrap();
    bytes[at] ^= 1;
    copy.write_file(&path, bytes);
    let report = salvage_in(copy, "/db", "/out", options()).unwrap();
    for table in tables {
        let loss = report.losses.iter().find(|loss| loss.file == table);
        assert!(loss.is_some_and(|loss| loss.what.contains("clone")), "{table}: {:?}", report.losses);
    }
}

#[test]
fn damage_of_a_table_of_both_is_told_once_and_met_by_both() {
    let sim = SimEnv::new(1);
    let db = open(&sim);
    let source = db.create_keyspace("source", small(Preset::Balanced)).unwrap();
    fill(&source, 0..300, 0);
    drop((db.clone_keyspace("source", "clone").unwrap(), source));
    db.close().unwrap();
    let mut files = sim.list_files().into_iter();
    let table = files.find(|path| path.to_string_lossy().ends_with(".tbl")).unwrap();
    sim.remove(&table).unwrap();
    let db = open(&sim);
    assert_eq!(db.stats().damage.len(), 1, "{:?}", db.stats().damage);
    for name in ["source", "clone"] {
        let keyspace = db.open_keyspace(name).unwrap();
        assert!(keyspace.iter().any(|entry| entry.is_err()), "{name}");
    }
    assert_eq!((db.stats().damage.len(), db.scrub(0).unwrap().problems.len()), (1, 1));
    let problems = db.check(&mut |_| ()).unwrap().problems;
    assert_eq!(problems.len(), 1, "{problems:?}");
}

/// Threads that clone, drop, rename, create, write and compact under the same names, until one closes the database. A write puts the same number under two keys.
#[test]
fn clones_beside_every_change_of_the_same_names_and_beside_close() {
    for round in 0..20u64 {
        let sim = SimEnv::new(round);
        let options = options().background_threads(1 + round as usize % 2);
        let db = Database::open_in(sim.clone(), "/db", options).unwrap();
        let kept = small(Preset::Balanced).history(Retention::All);
        db.create_keyspace("a", if round % 3 == 0 { kept } else { small(Preset::Parallax) }).unwrap();
        let cloned = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let (db, cloned) = (db.clone(), &cloned);
                scope.spawn(move || {
                    let mut seed = round * 4 + thread;
                    let mut draw = |most: u64| {
                        seed = seed
                            .wrapping_mul(6_364_136_223_846_793_005)
                            .wrapping_add(1_442_695_040_888_963_407);
                        (seed >> 33) % most
                    };
                    let allowed = [ErrorKind::NotFound, ErrorKind::AlreadyExists, ErrorKind::Closed];
                    for n in 0..150u64 {
                        let [from, to] = [(); 2].map(|()| ["a", "b", "c", "d"][draw(4) as usize]);
                        let done = match draw(8) {
                            0 | 1 => db
                                .clone_keyspace(from, to)
                                .map(|_| _ = cloned.fetch_add(1, Ordering::Relaxed)),
                            2 => db.drop_keyspace(from),
                            3 => db.rename_keyspace(from, to),
                            4 => db.create_keyspace(from, small(Preset::Parallax)).map(drop),
                            5 => db.open_keyspace(from).and_then(|k| k.compact()),
                            6 => db.open_keyspace(from).and_then(|k| {
                                let snapshot = db.snapshot();
                                let (x, y) = (snapshot.get(&k, "x")?, snapshot.get(&k, "y")?);
                                assert_eq!(x, y, "{from}");
                                Ok(())
                            }),
                            _ => db.open_keyspace(from).and_then(|k| {
                                let mut batch = db.batch();
                                let value = vec![n as u8; 100 + 900 * (n as usize % 2)];
                                batch.put(&k, "x", value.clone());
                                batch.put(&k, "y", value);
                                db.write(batch, cairn::Durability::Os)
                            }),
                        };
                        assert!(done.as_ref().err().is_none_or(|e| allowed.contains(&e.kind())), "{done:?}");
                    }
                    if thread == round % 4 && round % 2 == 0 {
                        db.close().unwrap();
                    }
                });
            }
        });
        assert!(cloned.load(Ordering::Relaxed) > 0, "round {round}");
        drop(db);
        let db = open(&sim);
        check(&db);
        for name in db.keyspaces() {
            let keyspace = db.open_keyspace(&name).unwrap();
            assert_eq!(keyspace.get("x").unwrap(), keyspace.get("y").unwrap(), "{name} in round {round}");
            db.drop_keyspace(&name).unwrap();
        }
        db.wait_idle().unwrap();
        assert_eq!(data_files(&sim), 0, "round {round}");
    }
}
