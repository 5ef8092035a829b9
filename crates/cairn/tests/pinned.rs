//! Memory that cursors keep.

use crate::{allocated, alone};
use cairn::{Cursor, Database, KeyspaceOptions, Options, Range, Result};

const MEMTABLE: usize = 1 << 20;
const ROUNDS: u64 = 60;

fn key(i: u64) -> [u8; 8] {
    i.to_be_bytes()
}

/// The value of every key in a round.
fn value(round: u64) -> [u8; 100] {
    [round as u8; 100]
}

#[test]
fn cursors_that_are_moved_hold_no_memtables_that_were_flushed() -> Result<()> {
    let _alone = alone();
    let dir = tempfile::tempdir().expect("a directory for the test");
    let options = Options::default().memory_budget(16 << 20).background_threads(0);
    let db = Database::open_with(dir.path(), options)?;
    let ks = db.keyspace("k", KeyspaceOptions::default().memtable_bytes(MEMTABLE))?;
    let mut cursors: Vec<(u64, Cursor)> = Vec::new();
    let mut ranges: Vec<(u64, Range)> = Vec::new();
    let mut most = 0;
    for round in 0..ROUNDS {
        (0..1_000).try_for_each(|i| ks.put(key(i), value(round)))?;
        let mut cursor = ks.cursor();
        cursor.seek(key(500))?;
        cursors.push((round, cursor));
        ranges.push((round, ks.iter()));
        ks.flush()?;
        // The cursors do not move for eight rounds; then each moves by one entry.
        if round % 8 == 0 {
            for (made, cursor) in &mut cursors {
                if made.is_multiple_of(2) {
                    cursor.next()?
                } else {
                    cursor.prev()?
                }
                assert_eq!(cursor.value(), value(*made), "of round {made} in round {round}");
            }
            for (made, range) in &mut ranges {
                let next = if made.is_multiple_of(2) { range.next() } else { range.next_back() };
                assert_eq!(next.expect("there are a thousand")?.1, value(*made)[..]);
            }
        }
        // The first rounds measure the memory that does not depend on the number of cursors.
        match round {
            0..16 => most = most.max(allocated()),
            _ => {
                let now = allocated();
                let allowed = most + 8 * MEMTABLE;
                assert!(now <= allowed, "{now} bytes in round {round}, and {most} in the first ones");
            }
        }
    }
    Ok(())
}

#[test]
fn memory_of_flushed_memtables_is_kept_within_the_budget() -> Result<()> {
    let _alone = alone();
    let dir = tempfile::tempdir().expect("a directory for the test");
    let options = Options::default().memory_budget(16 << 20).background_threads(0);
    let db = Database::open_with(dir.path(), options)?;
    let spaces = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let spaces = spaces.map(|name| db.keyspace(name, KeyspaceOptions::default().memtable_bytes(MEMTABLE)));
    let spaces = spaces.into_iter().collect::<Result<Vec<_>>>()?;
    for round in 0..3 {
        for ks in &spaces {
            (0..7_000).try_for_each(|i| ks.put(key(i), value(round)))?;
            let memory = db.stats().memory;
            assert!(memory.spare <= memory.budget / 8 * 3, "{} bytes", memory.spare);
            assert!(memory.spare + memory.memtables <= memory.budget / 2 + MEMTABLE as u64);
        }
        db.flush()?;
        let spare = db.stats().memory.spare;
        assert!(spare > MEMTABLE as u64, "only {spare} bytes");
    }
    Ok(())
}
