//! Very many keyspaces, created and dropped: their cost in log, syncs and memory.

use cairn::env::{Env, OpKind, Phase, SimEnv};
use cairn::{Database, Durability, ErrorKind, KeyspaceOptions, Options, Preset};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const DIR: &str = "/db";

fn open(sim: &Arc<SimEnv>, options: &Options) -> Database {
    Database::open_in(sim.clone(), DIR, options.clone()).unwrap()
}

/// Total bytes of the log files.
fn log_bytes(sim: &SimEnv) -> u64 {
    let names = sim.list(Path::new(DIR)).unwrap();
    let logs = names.iter().filter(|name| name.ends_with(".log"));
    logs.filter_map(|name| sim.len(&Path::new(DIR).join(name)).ok()).sum()
}

fn options(log_cap: u64) -> Options {
    Options::default().background_threads(0).memory_budget(8 << 20).log_cap(log_cap)
}

/// Bytes that the logs may have above the cap: the largest write of the tests, and writes between two measurements.
const SLACK: u64 = 64 << 10;

fn write_to_short_lived(others: usize) {
    let cap = 256 << 10;
    let sim = SimEnv::new(1);
    let db = open(&sim, &options(cap));
    for i in 0..others {
        db.keyspace(&format!("stays {i}"), KeyspaceOptions::default()).unwrap().put("k", "v").unwrap();
    }
    let mut most = 0;
    for i in 0..300u32 {
        let name = format!("short {i}");
        let keyspace = db.keyspace(&name, KeyspaceOptions::default()).unwrap();
        let mut batch = db.batch();
        (0..100u32).for_each(|n| batch.put(&keyspace, n.to_be_bytes(), [i as u8; 100]));
        db.write(batch, Durability::Os).unwrap();
        most = most.max(log_bytes(&sim));
        db.drop_keyspace(&name).unwrap();
    }
    assert!(most <= cap + SLACK, "{most} bytes of log, {others} others");
    for i in 0..others {
        let keyspace = db.open_keyspace(&format!("stays {i}")).unwrap();
        assert_eq!(keyspace.get("k").unwrap().unwrap(), "v");
    }
    db.close().unwrap();
    let db = open(&sim, &options(cap));
    assert_eq!(db.keyspaces().len(), others);
}

/// 300 keyspaces that live for one batch write 3.6 MB of log in all.
#[test]
fn keyspaces_that_live_for_one_batch_leave_no_log_behind() {
    write_to_short_lived(0);
}

/// Other keyspaces, which stay, need the oldest log for one entry each.
#[test]
fn keyspaces_that_live_for_one_batch_leave_no_log_behind_beside_idle_ones() {
    write_to_short_lived(10);
}

/// Each flush has to free the logs of all keyspaces, because each of them has entries in all logs.
#[test]
fn the_log_stays_within_its_cap_with_many_keyspaces() {
    let cap = 512 << 10;
    for threads in [0, 1] {
        let sim = SimEnv::new(1);
        let db = open(&sim, &options(cap).background_threads(threads));
        let keyspaces: Vec<_> =
            (0..1000).map(|i| db.keyspace(&format!("k{i}"), KeyspaceOptions::default()).unwrap()).collect();
        let (mut most, mut written) = (0, 0u64);
        for i in 0..20_000u32 {
            let keyspace = &keyspaces[(i.wrapping_mul(2_654_435_761) >> 8) as usize % 1000];
            keyspace.put(i.to_be_bytes(), [i as u8; 150]).unwrap();
            written += 160;
            if i % 16 == 0 {
                most = most.max(log_bytes(&sim));
            }
        }
        assert!(written > 5 * cap && most <= cap + SLACK, "{most} bytes of log, {threads} threads");
        for i in (0..20_000u32).step_by(17) {
            let keyspace = &keyspaces[(i.wrapping_mul(2_654_435_761) >> 8) as usize % 1000];
            assert_eq!(keyspace.get(i.to_be_bytes()).unwrap().unwrap()[..], [i as u8; 150]);
        }
        db.close().unwrap();
    }
}

/// Counts the syncs of files and of directories that succeed.
fn count_syncs(sim: &SimEnv) -> Arc<[AtomicU64; 2]> {
    let counts: Arc<[AtomicU64; 2]> = Arc::default();
    let hook = counts.clone();
    sim.set_hook(Some(Box::new(move |op| {
        if op.phase == (Phase::After { ok: true }) {
            match op.kind {
                OpKind::Sync => _ = hook[0].fetch_add(1, Ordering::Relaxed),
                OpKind::SyncDir => _ = hook[1].fetch_add(1, Ordering::Relaxed),
                _ => {}
            }
        }
        None
    })));
    counts
}

#[test]
fn a_flush_of_many_keyspaces_syncs_each_table_once_and_little_else() {
    let sim = SimEnv::new(1);
    let db = open(&sim, &Options::default().background_threads(0).manifest_cap(1 << 30));
    let keyspaces: Vec<_> =
        (0..1000).map(|i| db.keyspace(&format!("k{i}"), KeyspaceOptions::default()).unwrap()).collect();
    keyspaces.iter().for_each(|k| k.put("a", "1").unwrap());
    let counts = count_syncs(&sim);
    db.flush().unwrap();
    let [files, dirs] = [0, 1].map(|i| counts[i].load(Ordering::Relaxed));
    assert_eq!(db.stats().flush.jobs, 1000);
    assert!((1000..1040).contains(&files), "{files} files synced");
    assert!(dirs < 20, "directories synced {dirs} times");
}

/// Opening writes the entries of the logs to one table per keyspace.
#[test]
fn opening_many_keyspaces_syncs_each_table_once_and_little_else() {
    let sim = SimEnv::new(1);
    let options = Options::default().background_threads(0).manifest_cap(1 << 30);
    let db = open(&sim, &options);
    for i in 0..500 {
        db.keyspace(&format!("k{i}"), KeyspaceOptions::default()).unwrap().put("a", "1").unwrap();
    }
    db.close().unwrap();
    let counts = count_syncs(&sim);
    let db = open(&sim, &options);
    let [files, dirs] = [0, 1].map(|i| counts[i].load(Ordering::Relaxed));
    assert!((500..520).contains(&files) && dirs < 10, "{files} files and {dirs} directories synced");
    assert_eq!(db.open_keyspace("k499").unwrap().get("a").unwrap().unwrap(), "1");
}

/// Creates `count` keyspaces, writes to some of them, flushes and reopens.
fn many(count: u32) {
    let sim = SimEnv::new(1);
    let options = Options::default().background_threads(0).memory_budget(64 << 20);
    let db = open(&sim, &options);
    for i in 0..count {
        let keyspace = db.keyspace(&format!("k{i}"), KeyspaceOptions::default()).unwrap();
        if i % 10 == 0 {
            keyspace.put("a", i.to_be_bytes()).unwrap();
        }
    }
    assert!(db.stats().memory.memtables <= options.memory_budget / 2);
    db.flush().unwrap();
    for i in (5..count).step_by(1000) {
        db.open_keyspace(&format!("k{i}")).unwrap().put("b", "1").unwrap();
    }
    db.close().unwrap();
    let db = open(&sim, &options);
    assert_eq!(db.keyspaces().len() as u32, count);
    for i in (0..count).step_by(50) {
        let found = db.open_keyspace(&format!("k{i}")).unwrap().get("a").unwrap().unwrap();
        assert_eq!(found[..], i.to_be_bytes());
    }
    for i in (5..count).step_by(1000) {
        assert!(db.open_keyspace(&format!("k{i}")).unwrap().contains("b").unwrap());
    }
    db.close().unwrap();
}

/// Memtables without order take memory for their lists, which is the more beside what is written the emptier they are.
#[test]
fn nearly_empty_memtables_of_hash_logs_are_within_the_budget() {
    let budget: u64 = 512 << 20;
    let options = Options::default().background_threads(0).memory_budget(budget);
    let db = open(&SimEnv::new(1), &options);
    let space = || KeyspaceOptions::preset(Preset::HashLog).memtable_bytes(64 << 20);
    let keyspaces: Vec<_> = (0..115).map(|i| db.keyspace(&format!("k{i}"), space()).unwrap()).collect();
    let mut most = 0;
    // Just more than a MiB in each: the next size is the full one.
    for i in 0..6_300u64 {
        for keyspace in &keyspaces {
            keyspace.put(format!("{i:016}"), [i as u8; 100]).unwrap();
        }
        if i % 100 == 0 {
            most = most.max(db.stats().memory.memtables);
        }
    }
    most = most.max(db.stats().memory.memtables);
    assert!(most <= budget / 2, "{most} bytes of {budget}");
    assert!(most >= budget / 8, "{most} bytes of {budget}");
    db.close().unwrap();
}

/// At full length, as many as `docs/limits.md` says.
#[test]
fn a_database_has_very_many_keyspaces() {
    let full = std::env::var_os("CAIRN_TESTS").is_some_and(|length| length == "full");
    many(if full { 100_000 } else { 40_000 });
}

#[test]
fn a_keyspace_that_exists_with_other_options_is_refused_by_their_names() {
    let db = Database::open_in(SimEnv::new(1), "/db", Options::default().background_threads(0)).unwrap();
    let options = || KeyspaceOptions::default().levels(3).block_size(1024);
    db.keyspace("k", options()).unwrap().put("a", "1").unwrap();
    // The same options, fewer of them, and none.
    for same in [options(), KeyspaceOptions::default().levels(3), KeyspaceOptions::default()] {
        let k = db.keyspace("k", same).unwrap();
        assert_eq!((k.get("a").unwrap().unwrap(), k.options().levels), ("1".into(), 3));
    }
    let error = db.keyspace("k", options().levels(4).block_size(2048)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    for words in ["\"k\"", "levels is 3, not 4", "block_size is 1024, not 2048"] {
        assert!(error.to_string().contains(words), "{error}");
    }
    let error = db.create_keyspace("k", options().levels(4)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    assert!(error.to_string().ends_with("exists already, with other options: levels is 3, not 4"), "{error}");
    let error = db.create_keyspace("k", options()).unwrap_err();
    assert!(error.to_string().ends_with("exists already"), "{error}");
    assert_eq!(db.open_keyspace("k").unwrap().get("a").unwrap().unwrap(), "1");
}
