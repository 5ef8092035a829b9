//! Process limits: number of open files, length of files, address space. Tests that lower a limit run in a child process, on the real file
//! system, because a lowered limit cannot be raised again.

use crate::child;
use cairn::env::SimEnv;
use cairn::{Compression, Database, Durability, GuardPolicy, Keyspace, KeyspaceOptions, Options};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

fn lower(resource: Resource, to: u64) {
    let Rlimit { maximum, .. } = getrlimit(resource);
    setrlimit(resource, Rlimit { current: Some(to), maximum }).unwrap();
}

fn open_files() -> usize {
    // Without the descriptor of the listed directory.
    std::fs::read_dir("/proc/self/fd").unwrap().count() - 1
}

/// Many small tables: nearly every key is a guard.
fn many_tables() -> KeyspaceOptions {
    KeyspaceOptions::default()
        .memtable_bytes(16 << 10)
        .guard_policy(GuardPolicy::Hash)
        .top_level_bits(5)
        .bit_decrement(1)
        .levels(3)
}

fn key(i: u32) -> String {
    format!("key/{:06}", i.wrapping_mul(2_654_435_761) % 1_000_000)
}

fn value(i: u32) -> Vec<u8> {
    i.to_le_bytes().repeat(20)
}

fn tables(db: &Database) -> usize {
    db.stats().keyspaces.iter().flat_map(|k| &k.levels).map(|l| l.tables).sum()
}

/// Trap 33: several hundred tables, many readers, and 64 handles for the whole process.
#[test]
fn hundreds_of_tables_need_few_files() {
    let Some(dir) = child::dir() else { return child::run(hundreds_of_tables_need_few_files) };
    lower(Resource::Nofile, 64);
    let options = Options::default().memory_budget(1 << 20);
    let db = Database::open_with(dir.join("db"), options).unwrap();
    let keyspace = db.create_keyspace("k", many_tables()).unwrap();
    // The first write of this keyspace keeps all logs, but the closed ones do not stay open.
    let idle = db.create_keyspace("idle", KeyspaceOptions::default()).unwrap();
    idle.put("first", "1").unwrap();
    for i in 0..20_000 {
        keyspace.put(key(i), value(i)).unwrap();
    }
    db.flush().unwrap();
    db.wait_idle().unwrap();
    assert!(tables(&db) > 300, "{} tables", tables(&db));
    let done = AtomicBool::new(false);
    let most = std::thread::scope(|scope| {
        let readers: Vec<_> = (0..8)
            .map(|t| {
                let keyspace = &keyspace;
                scope.spawn(move || {
                    for i in (t..20_000).step_by(8) {
                        assert_eq!(keyspace.get(key(i)).unwrap().unwrap(), value(i)[..]);
                    }
                    assert_eq!(keyspace.iter().filter(|e| e.is_ok()).count(), 20_000);
                })
            })
            .collect();
        let watch = scope.spawn(|| {
            let mut most = 0;
            while !done.load(Ordering::SeqCst) {
                most = most.max(open_files());
                std::thread::yield_now();
            }
            most
        });
        readers.into_iter().for_each(|reader| reader.join().unwrap());
        done.store(true, Ordering::SeqCst);
        watch.join().unwrap()
    });
    assert!(most < 60, "{most} files were open");
    assert_eq!(db.stats().background_error, None);
    // The application takes all remaining descriptors: reads use the open files, or fail and name the file. Afterwards everything works.
    let mut taken = Vec::new();
    while let Ok(file) = std::fs::File::open("/") {
        taken.push(file);
    }
    for i in 0..2000 {
        if let Err(e) = keyspace.get(key(i)) {
            assert!(e.is_too_many_open_files() && e.to_string().contains(".tbl"), "{e}");
        }
    }
    for i in 20_000..24_000 {
        if let Err(e) = keyspace.put(key(i), value(i)) {
            assert!(e.is_too_many_open_files(), "{e}");
        }
    }
    drop(taken);
    // A job that failed because there was no descriptor is retried automatically. Until then a put that waits for it gets its error.
    while let Err(e) = keyspace.put("afterwards", "1") {
        assert!(e.is_too_many_open_files(), "{e}");
    }
    while let Err(e) = db.flush().and_then(|()| db.wait_idle()) {
        assert!(e.is_too_many_open_files(), "{e}");
    }
    for i in 0..20_000 {
        assert_eq!(keyspace.get(key(i)).unwrap().unwrap(), value(i)[..]);
    }
    db.close().unwrap();
    child::done();
}

/// Incompressible, so that files grow by what is written.
fn noise(i: u32) -> Vec<u8> {
    let mix = |n: u32| (n ^ n >> 15).wrapping_mul(0x2c1b_3c6d).rotate_right(12).wrapping_mul(0x297a_2d39);
    (0..64).flat_map(|n| mix(i * 64 + n + 1).to_le_bytes()).collect()
}

#[test]
fn a_limit_on_the_length_of_files_is_an_error_and_no_signal() {
    let Some(dir) = child::dir() else {
        return child::run(a_limit_on_the_length_of_files_is_an_error_and_no_signal);
    };
    const LIMIT: u64 = 1 << 20;
    lower(Resource::Fsize, LIMIT);
    let open = || Database::open_with(dir.join("db"), Options::default()).unwrap();
    let options = KeyspaceOptions::default().compression(Compression::None);
    let db = open();
    let keyspace: Keyspace = db.create_keyspace("k", options).unwrap();
    let mut batch = db.batch();
    for i in 0..5000 {
        batch.put(&keyspace, key(i), noise(i));
    }
    let error = db.write(batch, Durability::Sync).unwrap_err();
    assert_eq!(error.kind(), cairn::ErrorKind::NoSpace, "{error}");
    assert!(error.is_file_too_large() && error.to_string().contains("wal-000001.log"), "{error}");
    assert!(keyspace.iter().next().is_none());
    // Sixteen times the limit, in small writes: the log is switched before it reaches the limit.
    for i in 0..60_000 {
        keyspace.put(key(i), noise(i)).unwrap_or_else(|e| panic!("{i}: {e}"));
    }
    // A compaction may fail because its table would be too long. The error is temporary, and names the limit.
    if let Some(trouble) = db.stats().background_error {
        assert!(trouble.contains("RLIMIT_FSIZE") && trouble.contains(".tbl"), "{trouble}");
    }
    let check = |keyspace: &Keyspace| {
        for i in (0..60_000).step_by(7) {
            assert_eq!(keyspace.get(key(i)).unwrap().unwrap(), noise(i)[..]);
        }
    };
    check(&keyspace);
    drop(keyspace);
    let _ = db.close();
    for entry in std::fs::read_dir(dir.join("db")).unwrap() {
        let entry = entry.unwrap();
        assert!(entry.metadata().unwrap().len() <= LIMIT, "{}", entry.path().display());
    }
    check(&open().open_keyspace("k").unwrap());
    child::done();
}

/// The same on the simulated disk, which counts every handle.
#[test]
fn a_simulated_disk_with_few_handles_is_enough() {
    for threads in [0, 2] {
        let sim: Arc<SimEnv> = SimEnv::new(1);
        sim.set_max_open_files(64);
        let options = Options::default().memory_budget(1 << 20).background_threads(threads);
        let db = Database::open_in(sim.clone(), "/db", options).unwrap();
        let keyspace = db.create_keyspace("k", many_tables()).unwrap();
        let idle = db.create_keyspace("idle", KeyspaceOptions::default()).unwrap();
        idle.put("first", "1").unwrap();
        for i in 0..10_000 {
            keyspace.put(key(i), value(i)).unwrap();
            // One flush merges all immutable memtables. With threads there might be few tables without this call.
            if i % 100 == 99 {
                keyspace.flush().unwrap();
            }
        }
        db.flush().unwrap();
        db.wait_idle().unwrap();
        for i in 0..10_000 {
            assert_eq!(keyspace.get(key(i)).unwrap().unwrap(), value(i)[..]);
        }
        assert!(tables(&db) > 150, "{threads}: {} tables\n{}", tables(&db), db.stats());
        let (_, most) = sim.open_files();
        // The inputs of running compactions stay open while they are read, in addition to the limit on open tables.
        let bound = if threads == 0 { 40 } else { 63 };
        assert!(most <= bound, "{threads} threads: {most} files were open at once");
        assert_eq!(db.stats().background_error, None);
        db.close().unwrap();
    }
}

/// Bytes of address space of this process.
fn address_space() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("VmSize:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

/// The memory of a memtable is reserved before anything is written. If that fails, a smaller memtable is used or the write is refused.
#[test]
fn memory_that_cannot_be_had_is_an_error_and_no_abort() {
    let Some(dir) = child::dir() else {
        return child::run(memory_that_cannot_be_had_is_an_error_and_no_abort);
    };
    let options = Options::default().background_threads(0).memory_budget(1 << 30);
    let db = Database::open_with(dir.join("db"), options).unwrap();
    let keyspace = db.keyspace("k", KeyspaceOptions::default()).unwrap();
    let mut batch = db.batch();
    (0..5000u32).for_each(|i| batch.put(&keyspace, i.to_be_bytes(), [1; 16 << 10]));
    lower(Resource::As, address_space() + (96 << 20));
    let error = db.write(batch, Durability::Os).unwrap_err();
    assert!(error.kind() == cairn::ErrorKind::Io && error.to_string().contains("memory"), "{error}");
    assert!(keyspace.get(0u32.to_be_bytes()).unwrap().is_none());
    // Without the batch, too, there is not enough address space for a memtable of full size.
    lower(Resource::As, address_space() + (96 << 20));
    (0..100_000).try_for_each(|i| keyspace.put(key(i), value(i))).unwrap();
    let flushes = db.stats().flush.jobs;
    assert!(flushes > 2, "{flushes} flushes");
    db.close().unwrap();
    let db = Database::open(dir.join("db")).unwrap();
    let keyspace = db.open_keyspace("k").unwrap();
    for i in (90_000..100_000).step_by(7) {
        assert_eq!(keyspace.get(key(i)).unwrap().unwrap()[..], value(i));
    }
    child::done();
}
