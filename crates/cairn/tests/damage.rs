//! A damaged table while everything else goes on: the promise P3, with a database that stays in use.

use cairn::env::{Env, SimEnv};
use cairn::{Database, ErrorKind, Keyspace, KeyspaceOptions, Options};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::slice::from_ref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

type Model = BTreeMap<String, Option<Vec<u8>>>;

/// Small tables, so that thousands of writes cross many flushes and compactions.
fn small() -> KeyspaceOptions {
    KeyspaceOptions::default()
        .memtable_bytes(8 << 10)
        .block_size(512)
        .top_level_bits(7)
        .bit_decrement(1)
        .levels(3)
        .level0_tables(3)
        .max_tables_per_guard(3)
}

fn open_with(sim: &Arc<SimEnv>, threads: usize) -> cairn::Result<Database> {
    let options = Options::default().background_threads(threads).memory_budget(1 << 20);
    Database::open_in(sim.clone(), "/db", options)
}

fn open(sim: &Arc<SimEnv>) -> Database {
    open_with(sim, 0).unwrap()
}

fn tables(sim: &SimEnv) -> Vec<PathBuf> {
    sim.list_files().into_iter().filter(|path| path.to_string_lossy().ends_with(".tbl")).collect()
}

fn mix(n: u64) -> u64 {
    let n = (n ^ n >> 31).wrapping_mul(0x7fb5_d329_728e_a185);
    (n ^ n >> 27).wrapping_mul(0x81da_def4_bc2d_d44d) ^ n >> 33
}

/// Puts and deletes over `keys` keys, on the database and on the model.
fn write(keyspace: &Keyspace, model: &mut Model, range: std::ops::Range<u64>, keys: u64) {
    for i in range {
        let key = format!("key/{:05}", mix(i) % keys);
        if mix(i + 7).is_multiple_of(5) {
            keyspace.delete(&key).unwrap();
            model.insert(key, None);
        } else {
            let value = format!("{i}/{}", "x".repeat((mix(i + 3) % 60) as usize)).into_bytes();
            keyspace.put(&key, &value).unwrap();
            model.insert(key, Some(value));
        }
    }
}

/// Every key has its newest value, or its read fails with an error that names one of the damaged files. Returns the number of failures.
fn compare(keyspace: &Keyspace, model: &Model, damaged: &[PathBuf]) -> usize {
    let named = |e: &cairn::Error| {
        let known = damaged.iter().any(|path| e.to_string().contains(&*path.to_string_lossy()));
        assert!(known && e.kind() == ErrorKind::Corruption, "{e}");
        assert!(e.place().is_some(), "without file and offset: {e}");
    };
    let mut failed = 0;
    for (key, value) in model {
        match keyspace.get(key) {
            Ok(found) => assert_eq!(found.as_deref(), value.as_deref(), "{key}"),
            Err(e) => {
                named(&e);
                failed += 1;
            }
        }
    }
    let mut expected = model.iter().filter_map(|(k, v)| Some((k, v.as_ref()?)));
    for entry in keyspace.iter() {
        match entry {
            Ok((key, value)) => {
                let (k, v) = expected.next().expect("no more than there is");
                assert_eq!((&key[..], &value[..]), (k.as_bytes(), &v[..]));
            }
            Err(e) => {
                named(&e);
                return failed;
            }
        }
    }
    assert!(expected.next().is_none(), "a scan ended early and in silence");
    failed
}

/// Damages the first half of a table: its entries, in several blocks.
fn scratch(sim: &SimEnv, table: &Path) {
    let len = sim.read_file(table).len() as u64;
    (20..len / 2).step_by(150).for_each(|offset| sim.flip_bit(table, offset, 3));
}

fn level0(db: &Database) -> usize {
    db.stats().keyspaces[0].levels[0].tables
}

/// A closed database with `writes` writes, and its tables at that time.
fn closed(seed: u64, writes: u64, keys: u64) -> (Arc<SimEnv>, Model) {
    let sim = SimEnv::new(seed);
    let mut model = Model::new();
    let db = open(&sim);
    let keyspace = db.create_keyspace("k", small().skip_levels(seed % 8 < 3)).unwrap();
    let start = seed << 32;
    write(&keyspace, &mut model, start..start + writes, keys);
    db.flush().unwrap();
    db.close().unwrap();
    (sim, model)
}

/// Levels that contain the table of this number, by the statistics of the guards.
fn level_of(keyspace: &Keyspace, table: &Path) -> usize {
    let number: u64 = table.file_stem().unwrap().to_str().unwrap().parse().unwrap();
    let guards = keyspace.guards();
    guards.iter().find(|g| g.tables.iter().any(|t| t.number == number)).expect("a table in use").level
}

/// A table of level 0 is damaged, and the keyspace is used for a long time: level 0 stays small, reads of other keys, writes,
/// compactions go on, and no read is wrong.
#[test]
fn one_damaged_table_in_level_0_does_not_stop_the_rest() {
    // Two flushes start no compaction. Then the older table is damaged.
    let (sim, mut model) = closed(1, 150, 4000);
    let table = tables(&sim)[0].clone();
    scratch(&sim, &table);
    let db = open(&sim);
    let keyspace = db.open_keyspace("k").unwrap();
    assert_eq!(level_of(&keyspace, &table), 0);
    let mut most = 0;
    for round in 0..40 {
        let start = 1_000_000 + round * 500;
        // Later writes are to the first half of the keys only.
        write(&keyspace, &mut model, start..start + 500, 2000);
        most = most.max(level0(&db));
    }
    db.flush().unwrap();
    db.wait_idle().unwrap();
    assert!(most <= 14, "level 0 had {most} tables");
    let failed = compare(&keyspace, &model, from_ref(&table));
    assert!(failed > 0, "no read needs the damaged block: the test is void");
    let stats = db.stats();
    assert_eq!(stats.damage.len(), 1);
    assert!(table.to_string_lossy().ends_with(&stats.damage[0].file), "{:?}", stats.damage);
    assert!(stats.damage[0].offset.is_some() && stats.to_string().contains("damage "));
    assert_eq!(stats.stalls.slowdowns, 0, "writers wait for what cannot be done");
    assert_eq!(level_of(&keyspace, &table), 0);
    // A requested compaction compacts the intact tables, and returns the error of the damaged one.
    let error = keyspace.compact().unwrap_err();
    assert!(error.to_string().contains(&*table.to_string_lossy()), "{error}");
    assert_eq!(level0(&db), 2, "the damaged table and all that is newer, as one");
    compare(&keyspace, &model, from_ref(&table));
    // Closing also returns the error. Reopening does not change the answers.
    drop(keyspace);
    assert_eq!(db.close().unwrap_err().kind(), ErrorKind::Corruption);
    let db = open(&sim);
    assert_eq!(compare(&db.open_keyspace("k").unwrap(), &model, &[table]), failed);
}

/// Ascending keys: entries newer than the damaged table share no key with it, and are compacted as if it were intact.
#[test]
fn entries_that_share_no_key_with_a_damaged_table_are_compacted() {
    let sim = SimEnv::new(2);
    let db = open(&sim);
    let keyspace = db.create_keyspace("k", small()).unwrap();
    let put = |keyspace: &Keyspace, range: std::ops::Range<u32>| {
        range.for_each(|i| keyspace.put(format!("{i:08}"), [b'v'; 50]).unwrap());
        keyspace.flush().unwrap();
    };
    put(&keyspace, 0..50);
    let table = tables(&sim)[0].clone();
    put(&keyspace, 1..100);
    scratch(&sim, &table);
    // Nothing reads the damaged block before a merge does, and a move would not.
    assert!(keyspace.compact().is_err());
    for i in 1..60 {
        put(&keyspace, i * 100..i * 100 + 100);
    }
    db.wait_idle().unwrap();
    // Twice `level0_tables`, 3, start its compaction at most.
    assert!(level0(&db) <= 6, "level 0 has {} tables", level0(&db));
    assert_eq!(level_of(&keyspace, &table), 0);
    let below: usize = db.stats().keyspaces[0].levels[1..].iter().map(|l| l.tables).sum();
    assert!(below > 1, "nothing sank");
    assert!(keyspace.get("00000000").is_err() && keyspace.get("00005999").unwrap().is_some());
}

/// A random byte of a random table is damaged, in any level; then as many writes follow, with flushes and compactions. No answer is
/// wrong: the order of versions and tombstones holds around the damaged table, which stays.
#[test]
fn histories_go_on_around_a_damaged_table() {
    let (mut failed, mut levels) = (0, [0; 4]);
    for seed in 0..24 {
        let (sim, mut model) = closed(seed, 1400 + 20 * seed, 600);
        let files = tables(&sim);
        let level = seed as usize % 4;
        let table = {
            let db = open(&sim);
            let keyspace = db.open_keyspace("k").unwrap();
            let there = |t: &&PathBuf| level_of(&keyspace, t) == level;
            files.iter().find(there).unwrap_or(&files[0]).clone()
        };
        let len = sim.read_file(&table).len() as u64;
        sim.flip_bit(&table, mix(seed + 1) % len, (seed % 8) as u32);
        let db = open(&sim);
        let keyspace = db.open_keyspace("k").unwrap();
        levels[level_of(&keyspace, &table)] += 1;
        let before = compare(&keyspace, &model, from_ref(&table));
        for round in 0..5 {
            let start = (seed << 32) + 10_000 + 500 * round;
            write(&keyspace, &mut model, start..start + 500, 600);
            compare(&keyspace, &model, from_ref(&table));
        }
        if seed % 2 == 0 {
            // Damage only to the filter or the index may be repaired by a compaction.
            let _ = keyspace.compact();
            compare(&keyspace, &model, from_ref(&table));
        }
        let damaged = db.check(&mut |_| ()).unwrap().problems;
        let name = table.file_name().unwrap().to_string_lossy().into_owned();
        assert!(damaged.iter().all(|p| p.file == name), "seed {seed}: {damaged:?}");
        failed += before;
        drop(keyspace);
        let _ = db.close();
        compare(&open(&sim).open_keyspace("k").unwrap(), &model, &[table]);
    }
    assert!(failed > 20 && levels.iter().all(|&n| n > 0), "{failed} reads failed, levels {levels:?}");
}

/// Entries compacted past a damaged table are merged with entries older than that table. When the table can be read again, none of them
/// hides its entries.
#[test]
fn a_table_that_can_be_read_again_is_not_hidden_by_older_versions() {
    for per_guard in [1, 3] {
        let sim = SimEnv::new(9);
        let options = small().memtable_bytes(1 << 20).top_level_bits(30).skip_levels(true);
        let db = open(&sim);
        let keyspace = db.create_keyspace("k", options.max_tables_per_guard(per_guard)).unwrap();
        let mut model = Model::new();
        let put = |keyspace: &Keyspace, model: &mut Model, range: std::ops::Range<u32>, value: &str| {
            for i in range {
                keyspace.put(format!("{i:03}"), value).unwrap();
                model.insert(format!("{i:03}"), Some(value.into()));
            }
            keyspace.flush().unwrap();
        };
        put(&keyspace, &mut model, 0..100, "old");
        keyspace.compact().unwrap();
        put(&keyspace, &mut model, 50..100, "new");
        let table = tables(&sim).pop().unwrap();
        scratch(&sim, &table);
        // This compaction fails, and its entries stay above the table from then on.
        // They are many, so that they are not merged in place with later entries.
        let newer = "newer".repeat(200);
        (0..3).for_each(|_| put(&keyspace, &mut model, 51..99, &newer));
        assert_eq!(db.stats().damage.len(), 1);
        (0..9).for_each(|_| put(&keyspace, &mut model, 100..200, "beside"));
        db.wait_idle().unwrap();
        assert!(level_of(&keyspace, &table) == 0 && level0(&db) <= 4, "what is beside it has sunk");
        let depth = |g: &cairn::GuardInfo| g.level == 3 && g.tables.len() > 1;
        assert!(keyspace.guards().iter().any(depth), "and was cut where the damaged table begins and ends");
        drop(keyspace);
        db.close().unwrap_err();
        scratch(&sim, &table); // every bit flipped back
        let db = open(&sim);
        let keyspace = db.open_keyspace("k").unwrap();
        assert_eq!(compare(&keyspace, &model, &[]), 0);
        keyspace.compact().unwrap();
        assert_eq!((compare(&keyspace, &model, &[]), level0(&db)), (0, 0));
        assert_eq!(keyspace.get("050").unwrap().as_deref(), Some(&b"new"[..]));
        assert_eq!(db.check(&mut |_| ()).unwrap().problems.len(), 0);
    }
}

/// Scans of a range without keys of a damaged table, forward and backward, do not read the table: neither in level 0 nor beside the
/// tables that they need in a guard.
#[test]
fn scans_of_other_keys_do_not_need_a_damaged_table() {
    for (level0_tables, level) in [(4, 0), (1, 3)] {
        let sim = SimEnv::new(3);
        let options = small().memtable_bytes(1 << 20).top_level_bits(30).skip_levels(true);
        let options = options.level0_tables(level0_tables);
        let db = open(&sim);
        let keyspace = db.create_keyspace("k", options).unwrap();
        let mut damaged = PathBuf::new();
        for part in 0..3 {
            (part * 100..part * 100 + 100).for_each(|i| keyspace.put(format!("{i:03}"), [b'v'; 50]).unwrap());
            keyspace.flush().unwrap();
            if part == 1 {
                damaged = tables(&sim).pop().unwrap();
            }
        }
        db.wait_idle().unwrap();
        assert_eq!(level_of(&keyspace, &damaged), level);
        sim.remove(&damaged).unwrap();
        drop(keyspace);
        db.close().unwrap();
        let db = open(&sim);
        let keyspace = db.open_keyspace("k").unwrap();
        for (from, to) in [("000", "100"), ("200", "300"), ("20", "2~")] {
            let mut both = keyspace.range(from..to).chain(keyspace.range(from..to).rev());
            assert!(both.all(|entry| entry.is_ok()), "{level}: {from}");
            assert_eq!(keyspace.range(from..to).count(), 100);
            assert_eq!(keyspace.range(from..to).rev().count(), 100);
        }
        for (from, to) in [("000", "101"), ("150", "160"), ("199", "300")] {
            assert!(keyspace.range(from..to).any(|entry| entry.is_err()), "{level}: {from}");
            assert!(keyspace.range(from..to).rev().any(|entry| entry.is_err()));
        }
        assert_eq!(keyspace.range("1995".."1999").count(), 0);
    }
}

/// The error of a keyspace that has been dropped since concerns no caller: closing succeeds.
#[test]
fn the_error_of_a_dropped_keyspace_is_dropped_with_it() {
    use cairn::env::{Fault, OpInfo, OpKind, Phase};
    let (sim, mut model) = closed(1, 150, 4000);
    let db = open(&sim);
    let keyspace = db.open_keyspace("k").unwrap();
    sim.set_hook(Some(Box::new(|op: OpInfo<'_>| match (op.kind, op.phase) {
        (OpKind::Read, Phase::Before) if op.path.extension().is_some_and(|e| e == "tbl") => Some(Fault::EIO),
        _ => None,
    })));
    write(&keyspace, &mut model, 1_000_000..1_000_300, 4000);
    let _ = db.flush();
    assert!(db.wait_idle().is_err(), "a compaction fails, for the time being");
    drop(keyspace);
    db.drop_keyspace("k").unwrap();
    db.wait_idle().unwrap();
    db.close().unwrap();
}

/// With threads: no retry loop over a table that cannot be read.
#[test]
fn a_damaged_table_is_not_retried_in_a_loop() {
    let (sim, mut model) = closed(1, 150, 4000);
    let table = tables(&sim)[0].clone();
    scratch(&sim, &table);
    let db = open_with(&sim, 2).unwrap();
    let keyspace = db.open_keyspace("k").unwrap();
    write(&keyspace, &mut model, 1_000_000..1_004_000, 4000);
    db.flush().unwrap();
    db.wait_idle().unwrap();
    let touched = Arc::new(AtomicU64::new(0));
    let (counter, damaged) = (touched.clone(), table.clone());
    sim.set_hook(Some(Box::new(move |op| {
        counter.fetch_add(u64::from(op.path == damaged), Ordering::SeqCst);
        None
    })));
    // A failed job is tried again after 200 ms, and idle threads look for work each second.
    std::thread::sleep(Duration::from_millis(1200));
    assert_eq!(touched.load(Ordering::SeqCst), 0, "the damaged table is read with nothing to do");
    sim.set_hook(None);
    assert!(level0(&db) <= 14, "{:?}", db.stats().keyspaces);
    compare(&keyspace, &model, &[table]);
}

/// A table that the system cannot read (a bad sector) is a temporary error at first, and then damage.
#[test]
fn a_table_that_the_system_cannot_read_is_gone_around_after_a_while() {
    use cairn::env::{Fault, OpInfo, OpKind, Phase};
    let (sim, mut model) = closed(1, 150, 4000);
    let table = tables(&sim)[0].clone();
    let db = open(&sim);
    let keyspace = db.open_keyspace("k").unwrap();
    let bad = table.clone();
    sim.set_hook(Some(Box::new(move |op: OpInfo<'_>| match (op.kind, op.phase) {
        (OpKind::Read, Phase::Before) if op.path == bad => Some(Fault::EIO),
        _ => None,
    })));
    for i in 1_000_000..1_010_000 {
        write(&keyspace, &mut model, i..i + 1, 4000);
    }
    assert!(level0(&db) <= 14, "level 0 has {} tables", level0(&db));
    assert_eq!(db.stats().damage.len(), 1);
    // The sector can be read again: an explicit compaction succeeds.
    sim.set_hook(None);
    keyspace.compact().unwrap();
    assert_eq!(compare(&keyspace, &model, &[]), 0);
    assert_eq!(db.stats().damage, []);
    drop(keyspace);
    db.close().unwrap();
}

/// A table is missing, truncated or damaged at its end: the database opens, reads that need the table fail and name the file, and all
/// other data can be used.
#[test]
fn a_table_that_cannot_be_opened_spoils_its_own_keys_only() {
    for wound in ["missing", "short", "long", "footer", "empty"] {
        let (sim, _) = closed(5, 10, 10);
        let db = open(&sim);
        let other = db.create_keyspace("other", small()).unwrap();
        let (mut model, mut others) = (Model::new(), Model::new());
        let keyspace = db.open_keyspace("k").unwrap();
        for i in 0..10 {
            model.insert(format!("key/{i:05}"), None);
        }
        write(&keyspace, &mut model, 0..400, 300);
        keyspace.compact().unwrap();
        let table = tables(&sim).pop().unwrap();
        write(&other, &mut others, 0..400, 300);
        db.flush().unwrap();
        drop((keyspace, other));
        db.close().unwrap();
        let mut content = sim.read_file(&table);
        let len = content.len();
        match wound {
            "short" => content.truncate(len / 2),
            "long" => content.push(0),
            "footer" => content[len - 40] ^= 4,
            "empty" => content.clear(),
            _ => {}
        }
        sim.remove(&table).unwrap();
        if wound != "missing" {
            let mut file = sim.create(&table).unwrap();
            file.append(&content).unwrap();
            file.sync().unwrap();
        }
        let db = open(&sim);
        if wound == "missing" {
            assert_eq!(db.stats().damage.len(), 1, "reported before the first read");
        }
        let keyspace = db.open_keyspace("k").unwrap();
        let failed = compare(&keyspace, &model, from_ref(&table));
        assert!(failed > 0, "{wound}");
        let error = keyspace.iter().find_map(Result::err).unwrap();
        assert!(error.to_string().contains(&*table.to_string_lossy()), "{wound}: {error}");
        assert!(keyspace.get("a").unwrap().is_none(), "a key before all of its keys");
        write(&keyspace, &mut model, 1000..4000, 300);
        write(&db.open_keyspace("other").unwrap(), &mut others, 1000..4000, 300);
        db.flush().unwrap();
        db.wait_idle().unwrap();
        assert!(level0(&db) <= 14, "{wound}");
        assert_eq!(compare(&db.open_keyspace("other").unwrap(), &others, &[]), 0);
        assert!(compare(&keyspace, &model, &[table]) < failed, "{wound}: what was written anew can be read");
    }
}
