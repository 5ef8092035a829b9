//! Salvage: what it restores is what was written, and what it cannot restore is in its report.

use cairn::env::{Env, Fault, OpInfo, OpKind, Phase, SimEnv};
use cairn::{
    Compression, Database, Durability, ErrorKind, KeyspaceOptions, Loss, Options, Retention, SalvageReport,
    Time, salvage_in,
};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// By keyspace and key: all values that the key ever had, oldest first; `None` for a delete.
type History = BTreeMap<&'static str, BTreeMap<String, Vec<Option<Vec<u8>>>>>;

const NAMES: [&str; 2] = ["first", "second"];

fn options() -> Options {
    Options::default().background_threads(0).memory_budget(1 << 20)
}

fn small(compression: Compression) -> KeyspaceOptions {
    KeyspaceOptions::default()
        .memtable_bytes(8 << 10)
        .block_size(512)
        .top_level_bits(7)
        .bit_decrement(1)
        .levels(3)
        .compression(compression)
}

fn open(sim: &Arc<SimEnv>, dir: &str) -> Database {
    Database::open_in(sim.clone(), dir, options()).unwrap()
}

fn mix(n: u64) -> u64 {
    let n = (n ^ n >> 31).wrapping_mul(0x7fb5_d329_728e_a185);
    (n ^ n >> 27).wrapping_mul(0x81da_def4_bc2d_d44d) ^ n >> 33
}

/// A closed database in `/db`: two keyspaces with tables in several levels, overwritten and deleted keys, batches across
/// both, and a log that was not flushed.
fn database(seed: u64) -> (Arc<SimEnv>, History) {
    let sim = SimEnv::new(seed);
    let db = open(&sim, "/db");
    let codec = [Compression::None, Compression::Lz4, Compression::Zstd][seed as usize % 3];
    let keyspaces = NAMES.map(|name| db.create_keyspace(name, small(codec)).unwrap());
    let mut history = History::new();
    for i in 0..900 {
        let mut batch = db.batch();
        for (name, keyspace) in NAMES.iter().zip(&keyspaces) {
            let n = mix(seed * 10_000 + i * 2 + name.len() as u64);
            let key = format!("key/{:03}", n % 300);
            let versions = history.entry(name).or_default().entry(key.clone()).or_default();
            if (n >> 32).is_multiple_of(4) {
                batch.delete(keyspace, &key);
                versions.push(None);
            } else {
                let value = format!("{i} {}", "v".repeat((n >> 40) as usize % 50)).into_bytes();
                batch.put(keyspace, &key, &value);
                versions.push(Some(value));
            }
        }
        db.write(batch, if i % 50 == 0 { Durability::Sync } else { Durability::Os }).unwrap();
        if i == 800 {
            db.flush().unwrap();
        }
    }
    drop(keyspaces);
    db.close().unwrap();
    (sim, history)
}

fn salvage(sim: &Arc<SimEnv>) -> cairn::Result<SalvageReport> {
    salvage_in(sim.clone(), "/db", "/new", options())
}

/// Deleted ranges in tables and in the log, also if the manifest is damaged.
#[test]
fn deleted_ranges_stay_deleted() {
    for damage in [false, true] {
        let sim = SimEnv::new(5);
        let db = open(&sim, "/db");
        let keyspace = db.create_keyspace("first", small(Compression::None)).unwrap();
        for n in 0..300 {
            keyspace.put(format!("key/{n:03}"), "v".repeat(50)).unwrap();
        }
        db.compact().unwrap();
        let reader = db.snapshot();
        keyspace.delete_range("key/050".."key/100").unwrap();
        keyspace.put("key/070", "later").unwrap();
        db.flush().unwrap();
        keyspace.delete_range("key/200"..).unwrap();
        keyspace.put("key/250", "later").unwrap();
        drop((reader, keyspace));
        db.close().unwrap();
        if damage {
            // Damages the first record, the state at opening. The records after it are still read.
            let manifest = files(&sim, "manifest").pop().unwrap();
            sim.flip_bit(&manifest, 40, 0);
        }
        let report = salvage(&sim).unwrap();
        assert_eq!(report.is_complete(), !damage, "{report}");
        let db = open(&sim, "/new");
        let all = db.open_keyspace("first").unwrap();
        let keys: Vec<String> =
            all.iter().map(|e| String::from_utf8(e.unwrap().0.to_vec()).unwrap()).collect();
        let left = (0..50).chain([70]).chain(100..200).chain([250]);
        assert_eq!(keys, left.map(|n| format!("key/{n:03}")).collect::<Vec<_>>(), "damage: {damage}");
    }
}

fn files(sim: &SimEnv, part: &str) -> Vec<PathBuf> {
    let ours = |path: &PathBuf| path.starts_with("/db") && path.to_string_lossy().contains(part);
    sim.list_files().into_iter().filter(ours).collect()
}

fn excuses(loss: &Loss, name: &str, key: &str) -> bool {
    loss.keyspace.as_ref().is_none_or(|k| k == name)
        && loss.from.as_ref().is_none_or(|from| &from[..] <= key.as_bytes())
        && loss.to.as_ref().is_none_or(|to| key.as_bytes() <= &to[..])
}

/// Compares the salvaged entries with the written ones: the newest version, or one that a reported loss excuses. Returns how many keys
/// needed an excuse.
fn compare(sim: &Arc<SimEnv>, history: &History, report: &SalvageReport) -> usize {
    let db = open(sim, "/new");
    let mut excused = 0;
    for name in db.keyspaces() {
        assert!(NAMES.contains(&&*name), "{name} was never there");
    }
    for (name, keys) in history {
        let found: BTreeMap<String, Vec<u8>> = match db.open_keyspace(name) {
            Ok(keyspace) => (keyspace.iter())
                .map(|entry| entry.unwrap())
                .map(|(k, v)| (String::from_utf8(k.to_vec()).unwrap(), v.to_vec()))
                .collect(),
            Err(_) => BTreeMap::new(),
        };
        assert!(found.keys().all(|key| keys.contains_key(key)), "a key that was never written");
        for (key, versions) in keys {
            let found = found.get(key).cloned();
            if found == *versions.last().unwrap() {
                continue;
            }
            excused += 1;
            assert!(
                found.is_none() || versions.contains(&found),
                "{name} {key}: a value that was never written"
            );
            let mut losses = report.losses.iter().filter(|loss| excuses(loss, name, key));
            let told = losses.any(|loss| found.is_none() || loss.older);
            assert!(told, "{name} {key} is {found:?}, and no loss says so:\n{report}");
        }
    }
    db.close().unwrap();
    excused
}

#[test]
fn an_intact_database_is_copied_whole_and_not_changed() {
    for seed in 0..3 {
        let (sim, history) = database(seed);
        let before: Vec<_> =
            files(&sim, "/db").iter().map(|path| (path.clone(), sim.read_file(path))).collect();
        let report = salvage(&sim).unwrap();
        assert!(report.is_complete() && report.to_string().ends_with("nothing is lost\n"), "{report}");
        assert_eq!(compare(&sim, &history, &report), 0, "{report}");
        for (path, content) in before {
            assert!(sim.read_file(&path) == content, "{} was changed", path.display());
        }
        let db = open(&sim, "/new");
        let keyspace = db.open_keyspace("first").unwrap();
        assert_eq!((keyspace.options().block_size, keyspace.options().levels), (512, 3));
    }
}

/// One flipped bit anywhere: a table loses one block at most, a log one record; damage to the manifest loses nothing that is still on disk.
#[test]
fn a_flipped_bit_costs_little_and_all_of_it_is_reported() {
    let (mut most, mut lossy) = (0, 0);
    for seed in 0..3 {
        let (sim, history) = database(seed);
        for file in [files(&sim, ".tbl"), files(&sim, "wal"), files(&sim, "manifest")].concat() {
            let len = sim.read_file(&file).len() as u64;
            for n in 0..6 {
                let damaged = sim.process_clone();
                damaged.flip_bit(&file, mix(seed + n * 77) % len, n as u32);
                let report = salvage(&damaged).unwrap();
                let excused = compare(&damaged, &history, &report);
                most = most.max(excused);
                lossy += usize::from(!report.is_complete());
            }
        }
    }
    assert!(lossy > 10 && most < 60, "{lossy} reports of losses, {most} keys at most");
}

#[test]
fn missing_files_cost_what_was_in_them() {
    for seed in 3..6 {
        let (sim, history) = database(seed);
        for file in [files(&sim, ".tbl"), files(&sim, "wal")].concat() {
            let damaged = sim.process_clone();
            damaged.remove(&file).unwrap();
            let report = salvage(&damaged).unwrap();
            let name = file.file_name().unwrap().to_string_lossy().into_owned();
            assert!(report.losses.iter().any(|loss| loss.file == name), "{report}");
            compare(&damaged, &history, &report);
        }
    }
}

/// Tables name their keyspace, so that only the options are lost with the manifest; and deleted keys stay deleted, because no unused
/// table is left on disk.
#[test]
fn without_a_manifest_tables_and_logs_tell_all() {
    for seed in 0..3 {
        let (sim, history) = database(seed);
        for manifest in files(&sim, "manifest") {
            sim.remove(&manifest).unwrap();
        }
        let report = salvage(&sim).unwrap();
        assert_eq!(report.losses.len(), 1, "{report}");
        assert!(report.losses[0].file.contains("manifest") && report.losses[0].older);
        assert_eq!(compare(&sim, &history, &report), 0, "{report}");
    }
}

/// A caller forced a time as late as is allowed, so that the database gave later ones.
#[test]
fn versions_with_times_that_no_caller_may_give_are_salvaged() {
    let sim = SimEnv::new(3);
    let db = open(&sim, "/db");
    let keyspace = db.create_keyspace("k", small(Compression::None).history(Retention::All)).unwrap();
    let mut batch = db.batch();
    batch.put_at(&keyspace, "a", "forced", Time::from_micros(1 << 63));
    batch.take_any_time();
    db.write(batch, Durability::Os).unwrap();
    keyspace.put("a", "after it").unwrap();
    drop(keyspace);
    db.close().unwrap();
    let report = salvage(&sim).unwrap();
    assert!(report.is_complete(), "{report}");
    let db = open(&sim, "/new");
    let versions = db.open_keyspace("k").unwrap().history("a", ..).unwrap();
    let times: Vec<u64> = versions.map(|v| v.unwrap().time.micros()).collect();
    assert_eq!(times, [(1 << 63) + 1, 1 << 63]);
}

#[test]
fn late_versions_in_a_log_are_found_without_a_manifest() {
    let sim = SimEnv::new(3);
    sim.set_wall_clock(Time::from_micros(1_000));
    let db = open(&sim, "/db");
    let keyspace = db.create_keyspace("k", small(Compression::None).history(Retention::All)).unwrap();
    keyspace.put_at("a", "newest", Time::from_micros(900)).unwrap();
    db.flush().unwrap();
    keyspace.put_at("a", "late", Time::from_micros(500)).unwrap();
    let all = |db: &Database| -> Vec<_> {
        let keyspace = db.open_keyspace("k").unwrap();
        keyspace.history("a", ..).unwrap().map(|v| v.map(|v| (v.time, v.value)).unwrap()).collect()
    };
    let before = all(&db);
    drop(keyspace);
    db.close().unwrap();
    for manifest in files(&sim, "manifest") {
        sim.remove(&manifest).unwrap();
    }
    let report = salvage(&sim).unwrap();
    assert_eq!(report.losses.len(), 1, "{report}");
    let db = open(&sim, "/new");
    assert_eq!(db.keyspaces(), ["k"]);
    assert!(before.len() == 2 && all(&db) == before);
}

/// Damages half of the blocks of a table, the end of a table, and all files at once.
#[test]
fn broken_files_give_what_is_intact_in_them() {
    for seed in 6..9 {
        let (sim, history) = database(seed);
        for table in files(&sim, ".tbl") {
            let len = sim.read_file(&table).len() as u64;
            let damaged = sim.process_clone();
            (0..len).step_by(999).for_each(|offset| damaged.flip_bit(&table, offset, 5));
            let report = salvage(&damaged).unwrap();
            compare(&damaged, &history, &report);
            for cut in [0, 50, len / 2, len - 81, len - 1] {
                let damaged = sim.process_clone();
                let mut content = damaged.read_file(&table);
                content.truncate(cut as usize);
                replace(&damaged, &table, &content);
                compare(&damaged, &history, &salvage(&damaged).unwrap());
            }
        }
        for file in files(&sim, "") {
            let len = sim.read_file(&file).len() as u64;
            (0..len).step_by(4001).for_each(|offset| sim.flip_bit(&file, offset, 2));
        }
        compare(&sim, &history, &salvage(&sim).unwrap());
    }
}

fn replace(sim: &Arc<SimEnv>, path: &Path, content: &[u8]) {
    sim.remove(path).unwrap();
    let mut file = sim.create(path).unwrap();
    file.append(content).unwrap();
    file.sync().unwrap();
}

#[test]
fn salvage_refuses_what_it_must_not_do() {
    let (sim, _) = database(1);
    let kind = |from: &str, to: &str| salvage_in(sim.clone(), from, to, options()).unwrap_err().kind();
    assert_eq!(kind("/nowhere", "/new"), ErrorKind::NotFound);
    assert_eq!(kind("/db", "/db"), ErrorKind::AlreadyExists);
    let db = open(&sim, "/db");
    assert_eq!(kind("/db", "/new"), ErrorKind::Locked);
    db.close().unwrap();
    open(&sim, "/other").close().unwrap();
    assert_eq!(kind("/db", "/other"), ErrorKind::AlreadyExists);
}

/// A keyspace that was not flushed keeps the log of one that was: entries lost from a table are restored from the log, and the report
/// says that they may be older than the lost ones.
#[test]
fn what_a_table_has_lost_may_still_be_in_the_log() {
    let sim = SimEnv::new(1);
    let db = open(&sim, "/db");
    let [first, second] = NAMES.map(|name| db.create_keyspace(name, small(Compression::None)).unwrap());
    second.put("holds", "the log").unwrap();
    first.put("key", "old").unwrap();
    first.flush().unwrap();
    first.put("key", "new").unwrap();
    first.flush().unwrap();
    db.sync().unwrap();
    let tables = files(&sim, ".tbl");
    for table in &tables {
        sim.flip_bit(table, 30, 0);
    }
    drop((first, second));
    let report = salvage_in(sim.process_clone(), "/db", "/new", options()).unwrap();
    assert!(report.losses.len() == tables.len() && report.losses.iter().all(|loss| loss.older), "{report}");
    // Both versions are in the log, but a third one might have been in the tables only.
    let copy = sim.process_clone();
    salvage(&copy).unwrap();
    let db = open(&copy, "/new");
    assert_eq!(db.open_keyspace("first").unwrap().get("key").unwrap().unwrap(), "new");
    assert_eq!(db.open_keyspace("second").unwrap().get("holds").unwrap().unwrap(), "the log");
}

/// Operations of these kinds on a file fail after the first `most` ones.
fn fail_after(sim: &SimEnv, path: &Path, kinds: &'static [OpKind], most: u64) -> Arc<AtomicU64> {
    let (path, count) = (path.to_owned(), Arc::new(AtomicU64::new(0)));
    let counted = count.clone();
    sim.set_hook(Some(Box::new(move |op: OpInfo<'_>| {
        let counts = op.phase == Phase::Before && op.path == path && kinds.contains(&op.kind);
        match counts && count.fetch_add(1, Ordering::Relaxed) >= most {
            true => Some(Fault::EIO),
            false => None,
        }
    })));
    counted
}

/// Tables are read twice: what only the first read returned must be in the report.
#[test]
fn a_disk_that_fails_between_the_two_readings_of_a_table_is_a_loss() {
    const KINDS: &[OpKind] = &[OpKind::Open, OpKind::Read];
    let (sim, history) = database(1);
    for table in files(&sim, ".tbl") {
        let sound = sim.process_clone();
        let count = fail_after(&sound, &table, KINDS, u64::MAX);
        assert!(salvage(&sound).unwrap().is_complete());
        let operations = count.load(Ordering::Relaxed);
        assert!(operations > 4, "{operations} operations on a table that is read twice");
        for most in 0..operations {
            let damaged = sim.process_clone();
            fail_after(&damaged, &table, KINDS, most);
            let report = salvage(&damaged).unwrap();
            assert!(!report.is_complete(), "from operation {most} of {operations} on: {report}");
            compare(&damaged, &history, &report);
        }
    }
}

/// Two logs, the newer one begun while the tables of the older one could not be written, and with synced writes in both; then the
/// older one is cut. No manifest knows its length: the newer one does.
#[test]
fn a_log_that_was_cut_is_a_loss_though_no_manifest_knows_its_length() {
    let sim = SimEnv::new(1);
    let db = open(&sim, "/db");
    let keyspace = db.create_keyspace("first", small(Compression::None)).unwrap();
    let mut history = History::new();
    let mut lengths = vec![0, 1];
    let mut put = |n: u64| {
        let (key, value) = (format!("key/{n:03}"), vec![n as u8; 40]);
        keyspace.put_with(&key, &value, Durability::Sync).unwrap();
        history.entry("first").or_default().entry(key).or_default().push(Some(value));
    };
    let log = &files(&sim, "wal")[0];
    for n in 0..20 {
        lengths.push(sim.read_file(log).len() as u64);
        put(n);
    }
    sim.set_hook(Some(Box::new(|op: OpInfo<'_>| {
        match op.phase == Phase::Before
            && op.kind == OpKind::Create
            && op.path.to_string_lossy().ends_with(".tbl")
        {
            true => Some(Fault::ENOSPC),
            false => None,
        }
    })));
    keyspace.flush().unwrap_err();
    (20..40).for_each(&mut put);
    let killed = sim.process_clone();
    let logs = files(&killed, "wal");
    assert_eq!(logs.len(), 2, "{logs:?}");
    for len in lengths {
        for cut in [len, len.saturating_sub(3)] {
            let damaged = killed.process_clone();
            damaged.truncate_file(log, cut);
            let refused = Database::open_in(damaged.process_clone(), "/db", options()).unwrap_err();
            let report = salvage(&damaged).unwrap();
            assert!(!report.is_complete(), "cut to {cut} bytes it would not open: {refused}\n{report}");
            let name = log.file_name().unwrap().to_string_lossy();
            let reported = report.losses.iter().any(|loss| loss.file == name && loss.bytes > 0);
            assert!(reported, "cut to {cut} bytes: {report}");
            assert!(compare(&damaged, &history, &report) > 0);
        }
    }
}

/// The last edit of the manifest, of a compaction, is lost: the manifest names tables that are missing, and not those on disk.
#[test]
fn tables_that_no_edit_names_count_while_named_ones_are_missing() {
    let (sim, history) = database(2);
    let before = files(&sim, "manifest");
    let db = open(&sim, "/db");
    db.flush().unwrap();
    let manifest = files(&sim, "manifest").pop().unwrap();
    assert!(!before.contains(&manifest));
    let named = sim.read_file(&manifest);
    let first = db.open_keyspace("first").unwrap();
    // The same value again, so that tables are replaced, not moved.
    let newest =
        |(key, versions): (&String, &Vec<Option<Vec<u8>>>)| Some((key.clone(), versions.last()?.clone()?));
    let (key, value) = history["first"].iter().find_map(newest).unwrap();
    first.put(key, value).unwrap();
    first.compact().unwrap();
    drop(first);
    db.close().unwrap();
    let compacted = sim.read_file(&manifest);
    assert!(compacted.len() > named.len() && compacted.starts_with(&named), "the same manifest, with edits");
    sim.truncate_file(&manifest, named.len() as u64);
    let report = salvage(&sim).unwrap();
    assert!(
        report.losses.iter().any(|loss| loss.what.contains("does not name it") && loss.older),
        "{report}"
    );
    assert_eq!(compare(&sim, &history, &report), 0, "all of it is in the tables that are there: {report}");
}

/// A keyspace is dropped and created again; the edit of the drop is lost.
#[test]
fn two_keyspaces_of_one_name_are_both_salvaged() {
    let sim = SimEnv::new(1);
    let db = open(&sim, "/db");
    let manifest = files(&sim, "manifest")[0].clone();
    for (round, value) in ["old", "new"].iter().enumerate() {
        // A keyspace with the name that salvage would otherwise give to the older keyspace.
        db.keyspace("keyspace-2", small(Compression::None)).unwrap().put("a", "b").unwrap();
        let keyspace = db.create_keyspace("first", small(Compression::None)).unwrap();
        keyspace.put("key", value).unwrap();
        db.flush().unwrap();
        if round == 0 {
            drop(keyspace);
            let from = sim.read_file(&manifest).len() as u64;
            db.drop_keyspace("first").unwrap();
            // Damages the edit. Later edits are appended to the damaged file.
            let to = sim.read_file(&manifest).len() as u64;
            (from..to).for_each(|offset| sim.flip_bit(&manifest, offset, 3));
        }
    }
    db.close().unwrap();
    let report = salvage(&sim).unwrap();
    assert!(!report.is_complete());
    let new = open(&sim, "/new");
    let value = new.open_keyspace("first").unwrap().get("key").unwrap().map(|v| v.to_vec());
    assert_eq!(value.as_deref(), Some(&b"new"[..]), "the newer one keeps the name: {report}");
    let names = new.keyspaces();
    assert!(names.len() >= 2 && names.iter().any(|name| &**name == "keyspace-2"), "{names:?}");
}

/// A stray file may have any number: the missing logs before it are one loss, not a list.
#[test]
fn a_stray_log_is_one_loss_however_large_its_number_is() {
    for number in [999_999_999_999, u64::MAX] {
        let (sim, history) = database(1);
        sim.write_file(format!("/db/wal-{number:06}.log"), b"stray".to_vec());
        let report = salvage(&sim).unwrap();
        assert!((1..5).contains(&report.losses.len()), "{report}");
        compare(&sim, &history, &report);
    }
}

#[test]
fn source_and_destination_must_not_lie_in_each_other() {
    let (sim, _) = database(1);
    let kind = |from: &str, to: &str| salvage_in(sim.clone(), from, to, options()).unwrap_err().kind();
    assert_eq!(kind("/db", "/db/new"), ErrorKind::InvalidArgument);
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    Database::open(path("db")).unwrap().close().unwrap();
    let refused = |to: PathBuf| cairn::salvage(path("db"), to).unwrap_err().kind();
    assert_eq!(refused(path("db/new")), ErrorKind::InvalidArgument);
    assert_eq!(refused(path("new/../db/new")), ErrorKind::InvalidArgument);
    std::os::unix::fs::symlink(path("db"), path("link")).unwrap();
    assert_eq!(refused(path("link/new")), ErrorKind::InvalidArgument);
    assert!(!path("db/new").exists() && !path("new").exists(), "nothing was made");
    // A directory does not appear in the list of files.
    std::fs::create_dir_all(path("taken/directory")).unwrap();
    assert_eq!(refused(path("taken")), ErrorKind::AlreadyExists);
    cairn::salvage(path("db"), path("new")).unwrap();
}
