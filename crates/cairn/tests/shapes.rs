//! The shape of the tree under common access patterns: sequential and time-ordered inserts, and queues. Everything runs in the caller's
//! thread, so that each run is the same.

use cairn::env::SimEnv;
use cairn::{Compression, Database, Keyspace, KeyspaceOptions, Options};

const ENTRIES: u64 = 30_000;
const MEMTABLE: usize = 16 << 10;

fn database() -> (Database, Keyspace) {
    let options = Options::default().background_threads(0).memory_budget(4 << 20);
    let db = Database::open_in(SimEnv::new(1), "/db", options).unwrap();
    let options = KeyspaceOptions::default().memtable_bytes(MEMTABLE).block_size(512);
    let keyspace = db.keyspace("k", options.compression(Compression::None)).unwrap();
    (db, keyspace)
}

fn key(n: u64) -> [u8; 8] {
    n.to_be_bytes()
}

fn stats(db: &Database) -> cairn::KeyspaceStats {
    db.stats().keyspaces.remove(0)
}

fn compacted(db: &Database) -> u64 {
    db.stats().compaction.bytes_written
}

fn moves(db: &Database) -> u64 {
    let reasons = stats(db).compactions_by_reason;
    reasons.iter().find(|(reason, _)| reason == "move").map_or(0, |(_, n)| *n)
}

#[test]
fn sequential_and_time_ordered_inserts_are_written_once() {
    // Ascending keys; and several series that are appended to in bursts, one after the other.
    let patterns: [fn(u64) -> u64; 2] = [|i| i, |i| (i / 3000 % 4) << 32 | i];
    for (which, pattern) in patterns.into_iter().enumerate() {
        let (db, keyspace) = database();
        for i in 0..ENTRIES {
            keyspace.put(key(pattern(i)), [7; 100]).unwrap();
        }
        db.wait_idle().unwrap();
        let flushed = db.stats().flush.bytes_written;
        assert!(flushed > ENTRIES * 108 && moves(&db) > 4, "{which}: {flushed}, {}", moves(&db));
        assert!(compacted(&db) * 3 < flushed, "{which}: {} written again, of {flushed}", compacted(&db));
        assert_eq!(keyspace.iter().count() as u64, ENTRIES);
    }
}

/// A queue of constant length: neither its bytes nor its guards grow, and the cost of a round stays the same.
#[test]
fn a_queue_neither_grows_nor_slows_down() {
    let (db, keyspace) = database();
    let mut most = (0, 0, 0);
    let mut half = (0, (0, 0, 0));
    for round in 0..600 {
        for i in 0..100u64 {
            keyspace.put(key(round * 100 + i), [7; 100]).unwrap();
            if round >= 10 {
                keyspace.delete(key((round - 10) * 100 + i)).unwrap();
            }
        }
        let stats = stats(&db);
        let guards = stats.levels.iter().map(|l| l.guards).max().unwrap_or(0);
        let tables = stats.levels.iter().map(|l| l.tables).sum::<usize>();
        most = (most.0.max(stats.table_bytes), most.1.max(guards), most.2.max(tables));
        if round == 299 {
            half = (compacted(&db), most);
        }
    }
    // There are 1000 live entries of 108 bytes.
    assert!(most.0 < 600_000 && most.1 < 100 && most.2 < 100, "{most:?} bytes, guards, tables");
    let (first, most_before) = half;
    assert!(most.0 * 4 <= most_before.0 * 5 && most.1 <= most_before.1 * 2, "{most:?} after {most_before:?}");
    let second = compacted(&db) - first;
    assert!(second * 4 < first * 5, "{second} bytes were written by the second half, {first} by the first");
    assert_eq!(keyspace.iter().count(), 1000);
}
