//! Scrubbing finds damage before a read does, keeps to its rate, leaves the block cache alone, and ends on closing.

use cairn::env::{OpInfo, OpKind, Phase, SimEnv};
use cairn::{Database, Durability, ErrorKind, KeyspaceOptions, Options};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

fn open(sim: &Arc<SimEnv>, options: Options) -> Database {
    Database::open_in(sim.clone(), "/db", options.memory_budget(1 << 20)).unwrap()
}

fn inline() -> Options {
    Options::default().background_threads(0)
}

fn files(sim: &SimEnv, part: &str) -> Vec<PathBuf> {
    sim.list_files().into_iter().filter(|path| path.to_string_lossy().contains(part)).collect()
}

/// A database with some tables, open, and a closed log that another keyspace needs.
fn database(options: Options) -> (Arc<SimEnv>, Database) {
    let sim = SimEnv::new(1);
    let db = open(&sim, options);
    let small = KeyspaceOptions::default().memtable_bytes(8 << 10).block_size(512);
    let (a, b) = (db.keyspace("a", small.clone()).unwrap(), db.keyspace("b", small).unwrap());
    for i in 0..500u32 {
        let value: Vec<u8> =
            (0..20).flat_map(|n| (i * 20 + n).wrapping_mul(0x9e37_79b9).to_le_bytes()).collect();
        a.put(format!("{:05}", i.wrapping_mul(7919) % 10_000), value).unwrap();
    }
    b.put("waits in the log", "1").unwrap();
    a.put_with("z", "z", Durability::Sync).unwrap();
    a.flush().unwrap();
    db.wait_idle().unwrap();
    (sim, db)
}

#[test]
fn a_round_over_a_sound_database_reads_all_and_finds_nothing() {
    let (_, db) = database(inline());
    let before = db.stats();
    let report = db.scrub(0).unwrap();
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    assert!(report.tables > 0 && report.entries >= 501 && report.log_records > 0, "{report:?}");
    let after = db.stats();
    assert_eq!(after.scrub.rounds, 1);
    assert!(after.scrub.bytes >= report.bytes);
    let asked = |s: &cairn::Stats| s.cache.data_misses + s.cache.data_hits;
    assert_eq!(
        (asked(&after), after.cache.used_bytes),
        (asked(&before), before.cache.used_bytes),
        "the cache"
    );
}

/// One flipped bit at many places of every table, closed log and manifest: the report and the statistics name the file; and when the bit
/// is flipped back, the next round withdraws the damage.
#[test]
fn every_file_at_rest_is_read() {
    let (sim, db) = database(inline());
    let current = files(&sim, "wal").pop().unwrap();
    let mut kinds = [0; 3];
    for file in sim.list_files() {
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        let kind = [".tbl", "wal", "manifest"].iter().position(|part| name.contains(part));
        let Some(kind) = kind.filter(|_| file != current) else { continue };
        kinds[kind] += 1;
        let len = sim.read_file(&file).len() as u64;
        for offset in (0..len - 11).step_by((len as usize / 7).max(1)) {
            sim.flip_bit(&file, offset, 1);
            let report = db.scrub(0).unwrap();
            assert!(report.problems.iter().any(|p| p.file == name), "{name}, offset {offset}: {report:?}");
            assert!(report.problems.iter().all(|p| p.file == name), "{name}: {report:?}");
            assert!(db.stats().damage.iter().any(|p| p.file == name));
            sim.flip_bit(&file, offset, 1);
            assert!(db.scrub(0).unwrap().problems.is_empty());
            assert!(db.stats().damage.is_empty(), "what is sound again is not listed");
        }
    }
    assert!(kinds.iter().all(|&n| n > 0), "tables, logs, manifests: {kinds:?}");
}

#[test]
fn the_background_scrub_repeats_rounds_and_reports_damage() {
    let (sim, db) = database(Options::default().background_threads(1).scrub_rate(100 << 20));
    let table = files(&sim, ".tbl")[0].clone();
    sim.flip_bit(&table, 100, 4);
    let deadline = Instant::now() + Duration::from_secs(60);
    while db.stats().scrub.rounds < 2 || db.stats().damage.is_empty() {
        assert!(Instant::now() < deadline, "{:?}", db.stats().scrub);
        std::thread::sleep(Duration::from_millis(20));
    }
    let name = table.file_name().unwrap().to_string_lossy().into_owned();
    assert_eq!(db.stats().damage[0].file, name);
}

/// The rate at which tables are read, and the time of closing during a round that would take minutes.
#[test]
fn a_scrub_keeps_to_its_rate_and_ends_with_the_database() {
    let (sim, db) = database(inline());
    db.close().unwrap();
    let db = open(&sim, Options::default().background_threads(1).scrub_rate(2_000));
    let read = Arc::new(AtomicU64::new(0));
    let count = read.clone();
    sim.set_hook(Some(Box::new(move |op: OpInfo<'_>| {
        if op.kind == OpKind::Read && op.phase == Phase::Before {
            count.fetch_add(1, Ordering::Relaxed);
        }
        None
    })));
    let (begun, before) = (Instant::now(), db.stats().scrub.bytes);
    std::thread::sleep(Duration::from_millis(1500));
    let bytes = db.stats().scrub.bytes - before;
    let allowed = 2 * 2_000 * begun.elapsed().as_millis() as u64 / 1000 + 2_000;
    assert!(bytes < allowed, "{bytes} bytes in {:?}, at 2000 a second", begun.elapsed());
    assert!(db.stats().scrub.rounds == 0 && read.load(Ordering::Relaxed) > 0);
    let scrubber = db.clone();
    let scrubbing = std::thread::spawn(move || scrubber.scrub(1_000));
    std::thread::sleep(Duration::from_millis(100));
    let started = Instant::now();
    db.close().unwrap();
    assert!(started.elapsed() < Duration::from_secs(20), "closing took {:?}", started.elapsed());
    assert_eq!(scrubbing.join().unwrap().unwrap_err().kind(), ErrorKind::Closed);
}

/// The footer is cached after the first read, and the file stays open: a round must read the current bytes on disk.
#[test]
fn each_round_checks_footer_length_and_presence() {
    let table = |sim: &SimEnv| files(sim, ".tbl")[0].clone();
    let footer = |sim: &SimEnv, path: &PathBuf| {
        let len = sim.read_file(path).len() as u64;
        sim.flip_bit(path, len - 20, 1);
    };
    let shorter = |sim: &SimEnv, path: &PathBuf| {
        let content = sim.read_file(path);
        sim.remove_file(path);
        sim.write_file(path, &content[..content.len() - 5]);
    };
    let longer = |sim: &SimEnv, path: &PathBuf| {
        let content = [sim.read_file(path), vec![0; 5]].concat();
        sim.remove_file(path);
        sim.write_file(path, content);
    };
    let missing = |sim: &SimEnv, path: &PathBuf| sim.remove_file(path);
    type Damage<'a> = &'a dyn Fn(&SimEnv, &PathBuf);
    let damages: [Damage<'_>; 4] = [&footer, &shorter, &longer, &missing];
    for (n, damage) in damages.iter().enumerate() {
        let (sim, db) = database(inline());
        assert!(db.open_keyspace("a").unwrap().iter().count() > 500, "all tables have been read");
        assert!(db.scrub(0).unwrap().problems.is_empty());
        let path = table(&sim);
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        damage(&sim, &path);
        let scrubbed = db.scrub(0).unwrap();
        assert!(scrubbed.problems.iter().any(|p| p.file == name), "damage {n}, scrub: {scrubbed:?}");
        let checked = db.check(&mut |_| {}).unwrap();
        assert!(checked.problems.iter().any(|p| p.file == name), "damage {n}, check: {checked:?}");
        assert!(db.stats().damage.iter().any(|p| p.file == name), "damage {n}");
    }
}
