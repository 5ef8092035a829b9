//! Memory of range deletions.

use crate::{allocated, alone};
use cairn::{Database, Keyspace, KeyspaceOptions, Options, Result};

const RANGES: u64 = 50_000;

/// Bytes of both keys of a range.
const KEYS: u64 = 2 * 16;

/// Bytes that a deleted range may take in addition to its keys, as documented in `docs/limits.md`.
const MAX: u64 = 150;

/// The same for ranges that overlap.
const MAX_OVER_OTHERS: u64 = 2 * MAX;

fn key(i: u64) -> String {
    format!("{i:016}")
}

/// Bytes per range that `delete` deletes, allocated and by the statistics: first in a memtable, then in the version. A snapshot older than
/// the ranges keeps them.
fn bytes_of_each(name: &str, delete: impl Fn(&Keyspace) -> Result<()>) -> Result<[(u64, u64); 2]> {
    let options = Options::default().memory_budget(2 << 30).background_threads(0);
    let dir = tempfile::tempdir().expect("a directory for the test");
    let db = Database::open_with(dir.path(), options)?;
    let ks = db.keyspace("k", KeyspaceOptions::default().memtable_bytes(128 << 20))?;
    // A table over all keys: every range may hide one of its entries, so none is dropped. The value is so large that the next memtable has
    // its full size at once: its arena must not be measured.
    ks.put(key(0), vec![0; 20 << 20])?;
    ks.put(key(1 << 40), "")?;
    ks.flush()?;
    let snapshot = db.snapshot();
    let measured = || (allocated() as u64, db.stats().memory.metadata);
    let each = |after: (u64, u64), before: (u64, u64)| {
        ((after.0 - before.0) / RANGES, (after.1 - before.1) / RANGES)
    };
    let without_memtable = measured();
    ks.put(key(1 << 40), "")?;
    let with_memtable = measured();
    delete(&ks)?;
    assert_eq!(ks.stats().range_tombstones as u64, RANGES);
    let in_memtable = each(measured(), with_memtable);
    ks.flush()?;
    let in_version = each(measured(), without_memtable);
    assert!(snapshot.contains(&ks, key(0))?);
    println!("{name}: {in_memtable:?} {in_version:?}");
    Ok([in_memtable, in_version])
}

#[test]
fn deleted_ranges_beside_a_snapshot_take_what_is_documented() -> Result<()> {
    let _alone = alone();
    // Disjoint ranges, not in the order of the keys.
    let apart = |ks: &Keyspace| {
        (0..RANGES).try_for_each(|i| {
            let at = 10 * (i * 7_919 % RANGES);
            ks.delete_range(key(at)..key(at + 1))
        })
    };
    for (allocated, told) in bytes_of_each("apart", apart)? {
        assert!(allocated <= MAX + KEYS, "{allocated} bytes for each range");
        assert!((allocated * 2 / 3..allocated * 3 / 2).contains(&told), "{told} of {allocated} bytes");
    }
    // Each range overlaps half of the previous one; each overlaps about ten others; each contains all previous ones.
    let in_part =
        |ks: &Keyspace| (0..RANGES).try_for_each(|i| ks.delete_range(key(10 * i)..key(10 * i + 20)));
    let at_random = |ks: &Keyspace| {
        (0..RANGES).try_for_each(|i| {
            let at = 10 * (i * 7_919 % RANGES);
            ks.delete_range(key(at)..key(at + 1 + i * 104_729 % 200))
        })
    };
    let nested = |ks: &Keyspace| (0..RANGES).try_for_each(|i| ks.delete_range(..key(i + 1)));
    let laid_over_others = [
        bytes_of_each("in part", in_part)?,
        bytes_of_each("at random", at_random)?,
        bytes_of_each("nested", nested)?,
    ];
    for (allocated, told) in laid_over_others.into_iter().flatten() {
        assert!(allocated <= MAX_OVER_OTHERS + KEYS, "{allocated} bytes for each range");
        assert!(told <= allocated * 3 / 2, "{told} of {allocated} bytes");
    }
    Ok(())
}
