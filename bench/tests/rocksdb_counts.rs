//! RocksDB's own count of what it wrote agrees with the kernel's: so write amplification, which is reported from the
//! kernel's count for every engine, is what the engine wrote, all of it and nothing else.
//!
//! The kernel counts for a process. So each test runs in one of its own, with RocksDB's statistics on.

use bench::engine::{Engine, RequestedSettings};
use bench::generate::mix;
use bench::process::KernelIo;
use std::process::Command;

/// Switches on the adapter's statistics, and marks the process that measures.
const STATISTICS: &str = "CAIRN_BENCH_ENGINE_STATS";

const KEYS: u64 = 100_000;
const WRITES: u64 = 150_000;
const VALUE_BYTES: usize = 1000;
/// Of the kernel's count: the manifest and RocksDB's info log (`LOG`) are not in its own.
const DIFFERENCE_MAX: f64 = 0.03;

const ASKED: RequestedSettings = RequestedSettings {
    memtable_bytes: 8 << 20,
    cache_bytes: 8 << 20,
    background_threads: 2,
    filter_bits_per_key: 10,
    data_bytes_max: WRITES * VALUE_BYTES as u64,
};

#[test]
fn with_values_in_tables() {
    measure_alone("rocksdb", "with_values_in_tables");
}

#[test]
fn with_values_in_blob_files() {
    measure_alone("rocksdb-blob", "with_values_in_blob_files");
}

/// Runs this test again in a process of its own; there, measures.
fn measure_alone(engine: &str, test: &str) {
    if std::env::var(STATISTICS).is_ok_and(|value| value == "1") {
        return measure(engine);
    }
    let alone = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &format!("rocksdb_counts::{test}"), "--nocapture"])
        .env(STATISTICS, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&alone.stdout).into_owned() + &String::from_utf8_lossy(&alone.stderr);
    println!("{said}");
    assert!(alone.status.success() && said.contains("by the kernel's"), "{engine}: {said}");
}

fn measure(name: &str) {
    let dir = tempfile::tempdir().unwrap();
    let kind = bench::engines::all().into_iter().find(|kind| kind.name == name).unwrap();
    let engine = (kind.open)(dir.path(), &ASKED).unwrap();
    let before = (KernelIo::now().expect("the kernel counts").write_bytes, written(engine.as_ref()));
    for n in 0..WRITES {
        let value: Vec<u8> =
            (0..VALUE_BYTES as u64 / 8).flat_map(|part| mix(n ^ mix(part)).to_be_bytes()).collect();
        engine.put(&(mix(n) % KEYS).to_be_bytes(), &value, false).unwrap();
    }
    engine.settle().unwrap();
    let after = (KernelIo::now().unwrap().write_bytes, written(engine.as_ref()));

    let (kernel, own) = (after.0 - before.0, after.1 - before.1);
    println!("{name}: {own} bytes by its own count, {kernel} by the kernel's");
    // The log alone has each byte once; flushes have most of them again.
    let user = WRITES * (VALUE_BYTES as u64 + 8);
    assert!(kernel > user * 3 / 2, "{name}: {kernel} bytes for {user} of the user's: was nothing flushed?");
    let difference = kernel.abs_diff(own) as f64 / kernel as f64;
    assert!(difference <= DIFFERENCE_MAX, "{name}: {own} bytes, the kernel says {kernel}");
    engine.close().unwrap();
}

fn written(engine: &dyn Engine) -> u64 {
    engine.written_bytes().expect("statistics are on")
}
