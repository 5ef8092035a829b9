//! Keyspaces that are renamed, and whose options change.

use cairn::env::{Fault, Repeat, SimEnv, Survival};
use cairn::{
    Backups, Compression, Database, Durability, Engine, Error, ErrorKind, FilterDecision, FilterEntry,
    Keyspace, KeyspaceOptions, Merge, Options, PlacementPolicy, Preset, Result, Retention, Time, Ttl,
    salvage_in,
};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

fn options() -> Options {
    Options::default().background_threads(0).memory_budget(1 << 20)
}

/// A change of options.
type Change = fn(KeyspaceOptions) -> KeyspaceOptions;

fn open(sim: &Arc<SimEnv>) -> Database {
    Database::open_in(sim.clone(), "/db", options()).unwrap()
}

fn small() -> KeyspaceOptions {
    KeyspaceOptions::default().memtable_bytes(8 << 10).block_size(512).levels(3)
}

/// Puts `keys` entries whose values compress well.
fn fill(keyspace: &Keyspace, keys: usize, value: &str) {
    (0..keys).for_each(|i| keyspace.put(format!("key/{i:04}"), value.repeat(30)).unwrap());
}

fn holds(keyspace: &Keyspace, keys: usize, value: &str) -> bool {
    let value = value.repeat(30);
    let mut entries = keyspace.iter().map(|entry| entry.unwrap());
    let fits = (0..keys).all(|i| {
        entries
            .next()
            .is_some_and(|(k, v)| k[..] == *format!("key/{i:04}").as_bytes() && v[..] == *value.as_bytes())
    });
    fits && entries.next().is_none()
}

fn kind<T>(result: Result<T>) -> Option<ErrorKind> {
    result.err().map(|e: Error| e.kind())
}

#[test]
fn a_renamed_keyspace_has_its_content_its_handles_and_its_options() {
    for preset in Preset::ALL {
        let sim = SimEnv::new(1);
        let db = open(&sim);
        let old = db.create_keyspace("old", KeyspaceOptions::preset(preset).memtable_bytes(8 << 10)).unwrap();
        let has_order = old.options().engine == Engine::Tree;
        (0..200).for_each(|i| old.put(format!("{i:03}"), "v".repeat(100)).unwrap());
        let (snapshot, begun) = (db.snapshot(), has_order.then(|| old.iter()));
        db.rename_keyspace("old", "new").unwrap();
        db.rename_keyspace("new", "new").unwrap();
        assert_eq!(
            (db.keyspaces(), old.name(), old.stats().name),
            (vec!["new".into()], "new".into(), "new".into())
        );
        assert_eq!(format!("{old:?}"), "Keyspace(\"new\")");
        old.put("after", "1").unwrap();
        assert_eq!(kind(db.open_keyspace("old")), Some(ErrorKind::NotFound), "{preset}");
        assert!(begun.is_none_or(|begun| begun.count() == 200), "{preset}");
        assert_eq!(snapshot.get(&old, "after").unwrap(), None);
        // The name is free again, for another keyspace.
        let other = db.create_keyspace("old", KeyspaceOptions::default()).unwrap();
        other.put("x", "of the other one").unwrap();
        drop((other, old, snapshot));
        for _ in 0..2 {
            db.flush().unwrap();
            assert!(db.check(&mut |_| ()).unwrap().problems.is_empty());
            let new = db.open_keyspace("new").unwrap();
            assert_eq!(new.options(), KeyspaceOptions::preset(preset).memtable_bytes(8 << 10));
            assert_eq!((new.get("after").unwrap().unwrap(), new.get("x").unwrap()), ("1".into(), None));
            assert!((0..200).all(|i| new.get(format!("{i:03}")).unwrap().is_some()), "{preset}");
            assert_eq!(db.open_keyspace("old").unwrap().get("x").unwrap().unwrap(), "of the other one");
        }
        db.close().unwrap();
        let db = open(&sim);
        assert_eq!(db.keyspaces(), ["new", "old"]);
        let new = db.open_keyspace("new").unwrap();
        assert!((0..200).all(|i| new.get(format!("{i:03}")).unwrap().is_some()), "{preset}");
        assert_eq!(new.options(), KeyspaceOptions::preset(preset).memtable_bytes(8 << 10));
    }
}

#[test]
fn older_versions_go_with_the_name() {
    let sim = SimEnv::new(1);
    let db = open(&sim);
    let old = db.create_keyspace("old", small().history(Retention::All)).unwrap();
    (1..=3).for_each(|time| old.put_at("k", format!("{time}"), Time::from_micros(time)).unwrap());
    db.rename_keyspace("old", "new").unwrap();
    old.alter(|options| options.compression(Compression::None)).unwrap();
    old.put_at("k", "4", Time::from_micros(4)).unwrap();
    drop(old);
    db.close().unwrap();
    let db = open(&sim);
    let new = db.open_keyspace("new").unwrap();
    for time in 1..=4 {
        assert_eq!(
            new.get_at("k", Time::from_micros(time)).unwrap().unwrap().value.unwrap(),
            format!("{time}")
        );
    }
    db.drop_keyspace("new").unwrap();
    assert!(db.keyspaces().is_empty());
}

#[test]
fn renames_that_are_refused_change_nothing() {
    let sim = SimEnv::new(1);
    let db = Database::builder().options(options()).env(sim.clone());
    let db =
        db.compaction_filter("filtered", |_: &FilterEntry<'_>| Ok(FilterDecision::Keep)).open("/db").unwrap();
    let names = ["a", "b", "filtered"];
    let spaces = names.map(|name| db.create_keyspace(name, KeyspaceOptions::default()).unwrap());
    for (from, to, wanted) in [
        ("missing", "c", ErrorKind::NotFound),
        ("missing", "missing", ErrorKind::NotFound),
        ("a", "b", ErrorKind::AlreadyExists),
        ("a", "", ErrorKind::InvalidArgument),
        ("a", &"n".repeat(cairn::limits::MAX_KEYSPACE_NAME_LEN + 1), ErrorKind::InvalidArgument),
        ("filtered", "c", ErrorKind::InvalidArgument),
    ] {
        assert_eq!(kind(db.rename_keyspace(from, to)), Some(wanted), "{from} to {to}");
    }
    db.drop_keyspace("filtered").unwrap();
    let refused = db.rename_keyspace("a", "filtered").unwrap_err();
    assert!(refused.to_string().contains("compaction filter"), "{refused}");
    assert_eq!((db.keyspaces(), spaces[0].name()), (vec!["a".into(), "b".into()], "a".into()));
    assert_eq!(kind(spaces[2].alter(|options| options.levels(3))), Some(ErrorKind::Closed));
    let reader = Database::builder().options(options()).env(sim.clone()).open_read_only("/db").unwrap();
    assert_eq!(kind(reader.rename_keyspace("a", "c")), Some(ErrorKind::ReadOnly));
    let of_reader = reader.open_keyspace("a").unwrap();
    assert_eq!(kind(of_reader.alter(|options| options.block_size(512))), Some(ErrorKind::ReadOnly));
    db.rename_keyspace("a", "c").unwrap();
    spaces[0].alter(|options| options.block_size(512)).unwrap();
    // A moment stays what it was; the next one has the new name.
    assert_eq!((reader.keyspaces(), of_reader.name()), (vec!["a".into(), "b".into()], "a".into()));
    let reader = reader.refresh().unwrap();
    assert_eq!(reader.keyspaces(), ["b", "c"]);
    assert_eq!(reader.open_keyspace("c").unwrap().options().block_size, 512);
    db.close().unwrap();
    assert_eq!(kind(spaces[0].alter(|options| options.block_size(1024))), Some(ErrorKind::Closed));
}

/// Every option but those that are fixed and `history`, with two values.
const CHANGES: [(&str, [&str; 2]); 20] = [
    ("table_format", ["size_class", "btree"]),
    ("compression", ["none", "zstd"]),
    ("block_size", ["1024", "8192"]),
    ("filter_bits_per_key", ["0", "16"]),
    ("memtable_bytes", ["4096", "32768"]),
    ("level0_tables", ["1", "4"]),
    ("max_tables_per_guard", ["1", "3"]),
    ("guard_policy", ["hash", "adaptive"]),
    ("top_level_bits", ["4", "10"]),
    ("bit_decrement", ["1", "2"]),
    ("guards_by_size", ["false", "true"]),
    ("level_size_percent", ["10", "100"]),
    ("seek_cost", ["0", "4096"]),
    ("last_level_merge_factor", ["1", "100"]),
    ("tombstone_percent", ["0", "10"]),
    ("space_target", ["1.05", "4"]),
    ("skip_levels", ["false", "true"]),
    ("placement", ["hybrid", "in_place"]),
    ("large_up_to", ["0.2", "1"]),
    ("ttl", ["1h", "none"]),
];

#[test]
fn each_option_changes_and_stays_so_or_is_refused_by_its_name() {
    let sim = SimEnv::new(1);
    let db = open(&sim);
    let keyspace = db.create_keyspace("k", small()).unwrap();
    let mut wanted = small();
    let mut seen = vec![];
    for (name, values) in CHANGES {
        for value in values {
            seen.push(name);
            wanted.set(name, value).unwrap();
            let text = seen.len().to_string();
            fill(&keyspace, 40, &text);
            keyspace
                .alter(|mut options| {
                    options.set(name, value).unwrap();
                    options
                })
                .unwrap();
            assert_eq!(keyspace.options(), wanted, "{name}");
            assert!(holds(&keyspace, 40, &text), "{name}");
            fill(&keyspace, 40, "after");
            keyspace.flush().unwrap();
            assert!(holds(&keyspace, 40, "after"), "{name}");
            assert!(db.check(&mut |_| ()).unwrap().problems.is_empty(), "{name}");
        }
    }
    drop(keyspace);
    db.close().unwrap();
    let db = open(&sim);
    let keyspace = db.open_keyspace("k").unwrap();
    assert_eq!(keyspace.options(), wanted);
    assert!(holds(&keyspace, 40, "after"));
    let refused: [(&str, Change); 4] = [
        ("engine", |o| o.engine(Engine::HashLog)),
        ("levels", |o| o.levels(5)),
        ("history", |o| o.history(Retention::All)),
        ("merge", |o| o.merge(Merge::Append)),
    ];
    for (name, change) in refused {
        let error = keyspace.alter(|options| change(options).ttl(Ttl::None)).unwrap_err();
        assert!(error.kind() == ErrorKind::InvalidArgument && error.to_string().contains(name), "{error}");
        seen.push(name);
    }
    let error = keyspace.alter(|options| options.block_size(1)).unwrap_err();
    assert!(
        error.kind() == ErrorKind::InvalidArgument && error.to_string().contains("block_size"),
        "{error}"
    );
    assert_eq!(keyspace.options(), wanted);
    // No option is left out here.
    let missing: Vec<_> = KeyspaceOptions::specs()
        .into_iter()
        .map(|spec| spec.name)
        .filter(|name| !seen.contains(name))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
    // What is the same is no write.
    db.wait_idle().unwrap();
    let begin = sim.op_count();
    keyspace.alter(|options| options).unwrap();
    assert_eq!(sim.op_count(), begin);
    let with_history = db.create_keyspace("h", small().history(Retention::All)).unwrap();
    with_history.alter(|options| options.ttl(Duration::from_secs(1).into())).unwrap();
}

#[test]
fn options_hold_from_when_the_documents_say() {
    let sim = SimEnv::new(1);
    let mut now = Time::from_micros(1 << 50);
    sim.set_wall_clock(now);
    let mut pass_a_minute = || {
        now = now.saturating_add(Duration::from_secs(61));
        sim.set_wall_clock(now);
    };
    let db = open(&sim);
    let k = db.create_keyspace("k", small().compression(Compression::None)).unwrap();
    // Tables: those that are written later.
    fill(&k, 100, "compressible");
    k.flush().unwrap();
    let before = k.stats().table_bytes;
    k.alter(|options| options.compression(Compression::Lz4)).unwrap();
    assert_eq!(k.stats().table_bytes, before);
    k.compact().unwrap();
    assert_eq!(k.stats().table_bytes, before, "a table in its place stays");
    k.rewrite().unwrap();
    assert!(k.stats().table_bytes < before / 4, "{} of {before}", k.stats().table_bytes);
    // Puts: from the next one on.
    assert_eq!(db.stats().values.bytes, 0);
    k.alter(|options| options.placement(PlacementPolicy::Hybrid).ttl(Duration::from_secs(60).into()))
        .unwrap();
    k.put("large", "v".repeat(4000)).unwrap();
    k.flush().unwrap();
    assert!(db.stats().values.bytes >= 4000);
    pass_a_minute();
    assert!(k.get("large").unwrap().is_none() && k.get("key/0000").unwrap().is_some());
    k.alter(|options| options.ttl(Ttl::None)).unwrap();
    k.put("stays", "1").unwrap();
    pass_a_minute();
    assert!(k.get("stays").unwrap().is_some());
    // Compactions: a tree becomes a leveled one.
    k.alter(|options| options.placement(PlacementPolicy::InPlace).max_tables_per_guard(8).level0_tables(64))
        .unwrap();
    for round in 0..10 {
        fill(&k, 100, &round.to_string());
        k.flush().unwrap();
    }
    let level0 = |k: &Keyspace| k.stats().levels[0].tables;
    assert!(level0(&k) > 1, "{}", level0(&k));
    k.alter(|options| options.level0_tables(1).max_tables_per_guard(1)).unwrap();
    // Without a further write.
    assert_eq!(level0(&k), 0);
    assert!(k.get("key/0099").unwrap().unwrap() == "9".repeat(30));
}

#[test]
fn alterations_of_several_threads_are_all_there() {
    let db = Database::open_in(SimEnv::new(1), "/db", options()).unwrap();
    let keyspace = db.create_keyspace("k", small()).unwrap();
    let calls = AtomicUsize::new(0);
    let changes: [Change; 4] = [
        |o| {
            let more = o.block_size + 1;
            o.block_size(more)
        },
        |o| {
            let more = o.level0_tables + 1;
            o.level0_tables(more)
        },
        |o| {
            let more = o.seek_cost + 1;
            o.seek_cost(more)
        },
        |o| {
            let more = o.tombstone_percent + 1;
            o.tombstone_percent(more)
        },
    ];
    std::thread::scope(|scope| {
        for change in changes {
            let (keyspace, calls) = (&keyspace, &calls);
            scope.spawn(move || {
                for _ in 0..20 {
                    keyspace
                        .alter(|options| {
                            calls.fetch_add(1, Ordering::Relaxed);
                            std::thread::yield_now();
                            change(options)
                        })
                        .unwrap();
                }
            });
        }
        scope.spawn(|| (0..20).for_each(|i| db.rename_keyspace(&keyspace.name(), &format!("k{i}")).unwrap()));
    });
    let (before, after) = (small(), keyspace.options());
    let grown = [
        after.block_size - before.block_size,
        after.level0_tables - before.level0_tables,
        (after.seek_cost - before.seek_cost) as usize,
        (after.tombstone_percent - before.tombstone_percent) as usize,
    ];
    assert_eq!((grown, db.keyspaces()), ([20; 4], vec!["k19".into()]));
    assert!(calls.load(Ordering::Relaxed) >= 80);
}

/// A name and an option change together, or not at all, whatever happens.
#[test]
fn a_crash_or_a_failure_leaves_a_keyspace_as_it_was_or_as_it_is_to_be() {
    let prepare = |seed| {
        let sim = SimEnv::new(seed);
        let db = Database::open_in(sim.clone(), "/db", options().manifest_cap(1 << 10)).unwrap();
        let keyspace = db.create_keyspace("old", small().history(Retention::All)).unwrap();
        fill(&keyspace, 50, "v");
        db.sync().unwrap();
        (sim, db, keyspace)
    };
    let change = |db: &Database, keyspace: &Keyspace| {
        (db.rename_keyspace("old", "new"), keyspace.alter(|options| options.block_size(1024)))
    };
    let operations = {
        let (sim, db, keyspace) = prepare(1);
        let begin = sim.op_count();
        let (renamed, altered) = change(&db, &keyspace);
        renamed.and(altered).unwrap();
        sim.op_count() - begin
    };
    let mut met = [0; 4];
    let mut inspect = |sim: &Arc<SimEnv>, renamed: bool, altered: bool, what: &str| {
        let db = open(sim);
        let names = db.keyspaces();
        let keyspace = db.open_keyspace(&names[0]).unwrap();
        let state = (&names[0][..], keyspace.options().block_size);
        met[[("old", 512), ("new", 512), ("new", 1024), ("old", 1024)]
            .iter()
            .position(|s| *s == state)
            .expect(what)] += 1;
        assert!(!renamed || state.0 == "new", "{what}");
        assert!(!altered || state.1 == 1024, "{what}");
        assert!(names.len() == 1 && holds(&keyspace, 50, "v"), "{what}");
    };
    for n in 0..=operations {
        let (sim, db, keyspace) = prepare(n);
        sim.crash_at(sim.op_count() + n);
        let (renamed, altered) = change(&db, &keyspace);
        for kind in Survival::ALL {
            let what = format!("crash at operation {n}, {kind:?}, {renamed:?}, {altered:?}");
            inspect(&sim.crash_clone(kind, n), renamed.is_ok(), altered.is_ok(), &what);
        }
    }
    for (n, fault) in (0..operations).flat_map(|n| [Fault::EIO, Fault::ENOSPC].map(|fault| (n, fault))) {
        let (sim, db, keyspace) = prepare(n);
        sim.fail_op(sim.op_count() + n, fault, Repeat::Once);
        let (renamed, altered) = change(&db, &keyspace);
        sim.clear_faults();
        let what = format!("{fault:?} at operation {n}, {renamed:?}, {altered:?}");
        // What failed is not there, and the database goes on or refuses writes.
        let name = if renamed.is_ok() { "new" } else { "old" };
        assert_eq!((keyspace.name(), db.keyspaces()), (name.into(), vec![name.into()]), "{what}");
        assert_eq!(keyspace.options().block_size, if altered.is_ok() { 1024 } else { 512 }, "{what}");
        drop((db, keyspace));
        inspect(&sim, renamed.is_ok(), altered.is_ok(), &what);
    }
    assert!(met.iter().all(|times| *times > 0), "{met:?}");
}

#[test]
fn salvage_knows_the_new_name_and_the_new_options() {
    let sim = SimEnv::new(1);
    let db = open(&sim);
    let keyspace = db.create_keyspace("old", small()).unwrap();
    fill(&keyspace, 200, "v");
    db.flush().unwrap();
    db.rename_keyspace("old", "new").unwrap();
    keyspace.alter(|options| options.block_size(1024)).unwrap();
    keyspace.rewrite().unwrap();
    drop(keyspace);
    db.close().unwrap();
    let with_manifest = sim.crash_clone(Survival::ALL[0], 1);
    let mut manifests = 0;
    for path in sim.list_files() {
        if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("manifest")) {
            cairn::env::Env::remove(&*sim, &path).unwrap();
            manifests += 1;
        }
    }
    assert!(manifests > 0);
    for (sim, options) in [(with_manifest, small().block_size(1024)), (sim, KeyspaceOptions::default())] {
        salvage_in(sim.clone(), "/db", "/out", self::options()).unwrap();
        let db = Database::open_in(sim, Path::new("/out"), self::options()).unwrap();
        let keyspace = db.open_keyspace("new").unwrap();
        assert!(holds(&keyspace, 200, "v"));
        assert_eq!(keyspace.options(), options);
    }
}

/// What changes the options may do anything else meanwhile, even close the database.
#[test]
fn a_database_is_closed_while_options_are_chosen() {
    let sim = SimEnv::new(1);
    let db = open(&sim);
    let keyspace = db.create_keyspace("k", small()).unwrap();
    let closed = db.clone();
    let altered = keyspace.alter(|options| {
        closed.clone().close().unwrap();
        options.block_size(1024)
    });
    assert_eq!(kind(altered), Some(ErrorKind::Closed));
    assert_eq!(open(&sim).open_keyspace("k").unwrap().options(), small());
}

#[test]
fn a_manifest_with_two_keyspaces_of_one_name_is_refused() {
    let sim = SimEnv::new(1);
    let db = open(&sim);
    db.create_keyspace("a", small()).unwrap();
    db.create_keyspace("b", small()).unwrap();
    db.close().unwrap();
    let env: Arc<dyn cairn::env::Env> = sim.clone();
    let number = 99;
    let options: Vec<(String, String)> =
        small().to_pairs().into_iter().map(|(name, value)| (name.to_string(), value)).collect();
    let described = |id, name: &str| tree::KeyspaceDescription {
        id,
        name: name.into(),
        levels: 3,
        options: options.clone(),
        history_of: None,
        kept_since: Time::MIN,
    };
    for (name, wanted) in [("b", None), ("a", Some(ErrorKind::Corruption))] {
        let created = vec![described(1, "a"), described(2, name)];
        let edit = tree::DatabaseEdit {
            created,
            next_file: 200,
            next_keyspace: 3,
            min_log: 150,
            ..Default::default()
        };
        drop(tree::Manifest::create(&env, Path::new("/db"), number, &edit).unwrap());
        let opened = Database::open_in(sim.crash_clone(Survival::ALL[0], 1), "/db", self::options());
        let error = opened.as_ref().err().map(|e| e.to_string()).unwrap_or_default();
        assert_eq!(kind(opened), wanted, "{error}");
        assert!(wanted.is_none() || error.contains("1 and 2 have the same name"), "{error}");
        cairn::env::Env::remove(&*sim, &Path::new("/db").join(tree::manifest_file_name(number))).unwrap();
    }
}

const SECOND: Duration = Duration::from_secs(1);

/// A clock at a number of seconds.
fn at(seconds: u32) -> Time {
    Time::from_micros(1 << 50).saturating_add(seconds * SECOND)
}

/// Runs the compactions that are due, and rewrites both trees: the second time also what the first has moved to the historical one.
fn rewrite(db: &Database, keyspace: &Keyspace) {
    for _ in 0..2 {
        keyspace.rewrite().unwrap();
        db.wait_idle().unwrap();
    }
}

fn versions(keyspace: &Keyspace) -> usize {
    keyspace.changes::<&str>(.., ..).unwrap().map(Result::unwrap).count()
}

/// Ten versions of the keys `a` and `b`, a second apart, up to second 9, in both trees.
fn ten_versions(sim: &Arc<SimEnv>, db: &Database, retention: Retention) -> Keyspace {
    let keyspace = db.create_keyspace("k", small().history(retention)).unwrap();
    for second in 0..10 {
        sim.set_wall_clock(at(second));
        ["a", "b"].iter().for_each(|key| keyspace.put(key, second.to_string()).unwrap());
    }
    keyspace.compact().unwrap();
    assert_eq!(versions(&keyspace), 20);
    keyspace
}

#[test]
fn another_retention_holds_from_the_next_compaction_on() {
    for (first, next, left) in [
        (Retention::All, Retention::Versions(3), 6),
        (Retention::All, Retention::Age(5 * SECOND), 14),
        (Retention::Age(3600 * SECOND), Retention::Age(5 * SECOND), 14),
        (Retention::Versions(20), Retention::VersionsOrAge(2, 4 * SECOND), 12),
    ] {
        let sim = SimEnv::new(1);
        let db = open(&sim);
        let keyspace = ten_versions(&sim, &db, first);
        keyspace.alter(|options| options.history(next)).unwrap();
        rewrite(&db, &keyspace);
        assert_eq!(versions(&keyspace), left, "{first} to {next}");
        // What is gone stays so, and what is there stays, too.
        keyspace.alter(|options| options.history(Retention::All)).unwrap();
        sim.set_wall_clock(at(1000));
        keyspace.put("c", "").unwrap();
        rewrite(&db, &keyspace);
        assert_eq!((versions(&keyspace), keyspace.options().history), (left + 1, Retention::All));
        drop(keyspace);
        db.close().unwrap();
        let db = open(&sim);
        let keyspace = db.open_keyspace("k").unwrap();
        rewrite(&db, &keyspace);
        assert_eq!((versions(&keyspace), keyspace.options().history), (left + 1, Retention::All));
        assert!(db.check(&mut |_| ()).unwrap().problems.is_empty());
    }
}

/// By time alone, without a further write: tables go unread.
#[test]
fn a_retention_by_age_begins_to_remove_tables_and_ends_to() {
    let sim = SimEnv::new(1);
    let db = open(&sim);
    let keyspace = ten_versions(&sim, &db, Retention::All);
    sim.set_wall_clock(at(100));
    db.wait_idle().unwrap();
    assert_eq!(versions(&keyspace), 20);
    keyspace.alter(|options| options.history(Retention::Age(3600 * SECOND))).unwrap();
    let of = |db: &Database| db.stats().keyspaces[0].history.as_ref().map(|of| of.expired_bytes);
    sim.set_wall_clock(at(4000));
    assert!(of(&db) > Some(0), "{:?}", of(&db));
    keyspace.alter(|options| options.history(Retention::All)).unwrap();
    assert_eq!((of(&db), versions(&keyspace)), (Some(0), 20));
    db.wait_idle().unwrap();
    assert_eq!(versions(&keyspace), 20);
    keyspace.alter(|options| options.history(Retention::Age(3600 * SECOND))).unwrap();
    db.wait_idle().unwrap();
    assert_eq!(versions(&keyspace), 2, "the newest");
}

#[test]
fn a_keyspace_gets_no_history_and_loses_none() {
    let sim = SimEnv::new(1);
    let db = open(&sim);
    let with = db.create_keyspace("with", small().history(Retention::All)).unwrap();
    let without = db.create_keyspace("without", small()).unwrap();
    for (keyspace, to, words) in [
        (&with, Retention::None, "its option history is all and cannot be changed to none"),
        (&without, Retention::Age(SECOND), "its option history is none and cannot be changed to age(1s)"),
    ] {
        let error = keyspace.alter(|options| options.history(to)).unwrap_err();
        assert!(error.kind() == ErrorKind::InvalidArgument && error.to_string().contains(words), "{error}");
    }
}

/// A delete has expired, and nothing tells of it. A late write from before it would become the newest version.
#[test]
fn late_writes_from_before_what_an_earlier_retention_kept_are_refused() {
    let sim = SimEnv::new(1);
    let db = open(&sim);
    let keyspace = ten_versions(&sim, &db, Retention::Age(60 * SECOND));
    sim.set_wall_clock(at(10));
    keyspace.delete("a").unwrap();
    // It moves to the historical tree, where it stays as long as versions are kept.
    for second in [100, 200] {
        sim.set_wall_clock(at(second));
        rewrite(&db, &keyspace);
    }
    assert_eq!(versions(&keyspace), 1, "the newest one of b");
    keyspace.alter(|options| options.history(Retention::All)).unwrap();
    let refuses = |db: &Database, keyspace: &Keyspace, from: &str| {
        let late = at(20);
        let error = keyspace.put_at("a", "late", late).unwrap_err();
        let is_explained = error.to_string().contains("an earlier retention kept less");
        assert!(error.kind() == ErrorKind::Expired && is_explained, "{from}: {error}");
        let mut batch = db.batch();
        batch.put_at(keyspace, "a", "late", late);
        batch.skip_expired();
        db.write(batch, Durability::Os).unwrap();
        assert!(keyspace.get("a").unwrap().is_none(), "{from}");
    };
    refuses(&db, &keyspace, "at once");
    keyspace.alter(|options| options.history(Retention::Versions(7)).block_size(1024)).unwrap();
    refuses(&db, &keyspace, "after another alteration");
    db.rename_keyspace("k", "n").unwrap();
    let clone = db.clone_keyspace("n", "clone").unwrap();
    refuses(&db, &clone, "in a clone");
    drop((keyspace, clone));
    db.close().unwrap();
    // Twice, since an opening writes a manifest of its own.
    for _ in 0..2 {
        let db = open(&sim);
        refuses(&db, &db.open_keyspace("n").unwrap(), "after an opening");
        db.close().unwrap();
    }
    salvage_in(sim.clone(), "/db", "/out", self::options()).unwrap();
    let db = Database::open_in(sim.clone(), Path::new("/out"), self::options()).unwrap();
    refuses(&db, &db.open_keyspace("n").unwrap(), "after a salvage");
    db.close().unwrap();
    let db = open(&sim);
    let keyspace = db.open_keyspace("n").unwrap();
    // Nothing of what was the newest since then can be gone.
    keyspace.put_at("a", "late", at(141)).unwrap();
    keyspace.put_at("b", "late", at(141)).unwrap();
    assert_eq!(keyspace.get("b").unwrap().as_deref(), Some(&b"late"[..]));
    assert_eq!(keyspace.get("a").unwrap().as_deref(), Some(&b"late"[..]));
}

#[test]
fn readers_from_before_keep_what_they_had() {
    let sim = SimEnv::new(1);
    let db = open(&sim);
    let keyspace = ten_versions(&sim, &db, Retention::All);
    sim.set_wall_clock(at(1000));
    let snapshot = db.snapshot();
    let mut begun = keyspace.changes::<&str>(.., ..).unwrap();
    begun.next().unwrap().unwrap();
    keyspace.alter(|options| options.history(Retention::Age(SECOND))).unwrap();
    let then = || snapshot.changes::<&str>(&keyspace, .., ..).unwrap().map(Result::unwrap).count();
    for second in 1001..1005 {
        sim.set_wall_clock(at(second));
        keyspace.put("a", "newer").unwrap();
        rewrite(&db, &keyspace);
        assert_eq!((then(), versions(&keyspace)), (20, 20 + second as usize - 1000));
    }
    drop(snapshot);
    rewrite(&db, &keyspace);
    assert_eq!((begun.count(), versions(&keyspace)), (19, 24), "an iterator is open");
    sim.set_wall_clock(at(1010));
    rewrite(&db, &keyspace);
    assert_eq!(versions(&keyspace), 2, "the newest ones");
}

/// A snapshot from before the alteration shows the same in a clone that is made after it.
#[test]
fn readers_from_before_keep_what_they_had_in_clones() {
    for next in [Retention::Age(SECOND), Retention::Versions(2)] {
        let sim = SimEnv::new(1);
        let db = open(&sim);
        let keyspace = ten_versions(&sim, &db, Retention::All);
        sim.set_wall_clock(at(1000));
        db.wait_idle().unwrap();
        keyspace.put("a", "newer").unwrap();
        let snapshot = db.snapshot();
        keyspace.alter(|options| options.history(next)).unwrap();
        let clone = db.clone_keyspace("k", "clone").unwrap();
        rewrite(&db, &clone);
        let then = || snapshot.changes::<&str>(&clone, .., ..).unwrap().map(Result::unwrap).count();
        assert_eq!(then(), 21, "{next}");
        clone.put("a", "newest").unwrap();
        rewrite(&db, &clone);
        assert_eq!(then(), 21, "{next}");
        drop(snapshot);
        sim.set_wall_clock(at(1010));
        rewrite(&db, &clone);
        assert!(versions(&clone) < 10, "{next}: {}", versions(&clone));
    }
}

/// Nothing but the clock says what an age may have removed before: a database that was salvaged, or begun with a copy, has removed nothing itself.
#[test]
fn what_was_refused_before_an_alteration_stays_refused() {
    let late = |keyspace: &Keyspace, second| kind(keyspace.put_at("a", "late", at(second)));
    for next in [Retention::All, Retention::Versions(3), Retention::Age(3600 * SECOND)] {
        let sim = SimEnv::new(1);
        let db = open(&sim);
        let keyspace = db.create_keyspace("k", small().history(Retention::Age(60 * SECOND))).unwrap();
        sim.set_wall_clock(at(1000));
        keyspace.put("b", "1").unwrap();
        assert_eq!((late(&keyspace, 939), late(&keyspace, 941)), (Some(ErrorKind::Expired), None));
        keyspace.alter(|options| options.history(next)).unwrap();
        sim.set_wall_clock(at(1001));
        assert_eq!((late(&keyspace, 939), late(&keyspace, 941)), (Some(ErrorKind::Expired), None), "{next}");
        // Copies of the moment know it, too.
        db.checkpoint("/checkpoint").unwrap();
        db.backup("/backup").unwrap();
        let backups = Backups::open_in(sim.clone(), "/backup").unwrap();
        backups.restore(None, "/restored", &mut |_| ()).unwrap();
        for copy in ["/checkpoint", "/restored"] {
            let db = Database::open_in(sim.clone(), copy, options()).unwrap();
            let keyspace = db.open_keyspace("k").unwrap();
            assert_eq!(
                (late(&keyspace, 939), late(&keyspace, 941)),
                (Some(ErrorKind::Expired), None),
                "{copy}"
            );
        }
    }
}

/// The retention that was stopped for the edit holds again.
#[test]
fn a_retention_stays_if_the_edit_fails() {
    let (mut failed, mut n) = (0, 0);
    loop {
        let mut is_last = false;
        for fault in [Fault::EIO, Fault::ENOSPC] {
            let sim = SimEnv::new(1);
            let db = open(&sim);
            let keyspace = ten_versions(&sim, &db, Retention::Age(60 * SECOND));
            let first = sim.op_count();
            sim.fail_op(first + n, fault, Repeat::Once);
            let altered = keyspace.alter(|options| options.history(Retention::All));
            sim.clear_faults();
            is_last = sim.op_count() <= first + n;
            sim.set_wall_clock(at(200));
            let is_expected = match altered {
                Ok(()) => Retention::All,
                Err(_) => Retention::Age(60 * SECOND),
            };
            assert_eq!(keyspace.options().history, is_expected);
            // A failed sync ends all writing, and the edit may be there.
            let ended = keyspace.put("a", "newer").is_err();
            if !ended {
                rewrite(&db, &keyspace);
                let left = if altered.is_ok() { 21 } else { 3 };
                assert_eq!(versions(&keyspace), left, "{fault:?} at operation {n}");
                failed += u32::from(altered.is_err());
            }
            drop((keyspace, db));
            let db = open(&sim);
            let found = db.open_keyspace("k").unwrap().options().history;
            assert!(ended || found == is_expected, "{fault:?} at operation {n}: {found}");
        }
        n += 1;
        if is_last {
            break;
        }
    }
    assert!(failed > 0 && n > 2, "{failed} of {n}");
}
