//! The memory cost of a keyspace with nothing in memory.

use crate::child;
use cairn::env::SimEnv;
use cairn::{Database, KeyspaceOptions, Options};

const COUNT: u64 = 10_000;

/// The documented limit (`docs/limits.md`), in bytes.
const MEMORY: u64 = 6 << 10;

/// Bytes of memory, bytes of address space, and number of mappings of this process.
fn used() -> [u64; 3] {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let field = |name| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
    };
    let mappings = std::fs::read_to_string("/proc/self/maps").unwrap().lines().count();
    [field("VmRSS:"), field("VmSize:"), mappings as u64]
}

#[test]
fn an_idle_keyspace_takes_some_kib_and_no_mapping() {
    if child::dir().is_none() {
        return child::run(an_idle_keyspace_takes_some_kib_and_no_mapping);
    }
    let options = Options::default().background_threads(0).manifest_cap(1 << 30);
    let db = Database::open_in(SimEnv::new(1), "/db", options).unwrap();
    let before = used();
    for i in 0..COUNT {
        db.create_keyspace(&format!("keyspace {i}"), KeyspaceOptions::default()).unwrap();
    }
    // This includes the manifest on the simulated disk: half a KiB to one KiB per keyspace.
    let after = used();
    let [memory, addresses, mappings] = [0, 1, 2].map(|i| after[i].saturating_sub(before[i]));
    println!(
        "{} bytes of memory, {} of address space, {mappings} mappings",
        memory / COUNT,
        addresses / COUNT
    );
    assert!(memory / COUNT < MEMORY && addresses / COUNT < 2 * MEMORY && mappings < 1000);
    assert_eq!(db.keyspaces().len() as u64, COUNT);
    child::done();
}
