//! Range deletions: which entries they hide from which reader, in memory and in tables, and how their space is freed.

use cairn::env::SimEnv;
use cairn::{Database, Durability, Keyspace, KeyspaceOptions, Options, Stats};
use std::ops::Bound;
use std::sync::Arc;

fn database() -> (Arc<SimEnv>, Database, Keyspace) {
    let env = SimEnv::new(1);
    let options = Options::default().background_threads(0).memory_budget(64 << 20);
    let db = Database::open_in(env.clone(), "/db", options).unwrap();
    let tiny = KeyspaceOptions::default()
        .memtable_bytes(64 << 10)
        .level0_tables(3)
        .top_level_bits(6)
        .bit_decrement(1);
    let keyspace = db.keyspace("k", tiny).unwrap();
    (env, db, keyspace)
}

fn key(n: u32) -> String {
    format!("key/{n:06}")
}

fn fill(keyspace: &Keyspace, keys: std::ops::Range<u32>) {
    for n in keys {
        keyspace.put(key(n), format!("value of {n}").repeat(8)).unwrap();
    }
}

fn keys(range: cairn::Range) -> Vec<u32> {
    range.map(|entry| std::str::from_utf8(&entry.unwrap().0).unwrap()[4..].parse().unwrap()).collect()
}

fn range_deletes(stats: &Stats) -> usize {
    stats.keyspaces.iter().map(|k| k.range_tombstones).sum()
}

#[test]
fn a_range_tombstone_hides_older_entries_from_later_readers() {
    for flush in [false, true] {
        let (_, db, ks) = database();
        fill(&ks, 0..100);
        let before = db.snapshot();
        let mut open = ks.range(key(0)..);
        assert_eq!(&*open.next().unwrap().unwrap().0, key(0).as_bytes());
        if flush {
            db.flush().unwrap();
        }
        ks.delete_range(key(10)..key(90)).unwrap();
        ks.put(key(50), "new").unwrap();
        let between = db.snapshot();
        ks.delete_range(key(40)..=key(60)).unwrap();
        if flush {
            db.flush().unwrap();
            db.compact().unwrap();
        }
        let rest: Vec<u32> = (0..10).chain(90..100).collect();
        assert_eq!(keys(ks.iter()), rest);
        assert_eq!(keys(ks.iter()).iter().rev().copied().collect::<Vec<_>>(), {
            let mut back: Vec<u32> = Vec::new();
            let mut cursor = ks.cursor();
            cursor.seek_to_last().unwrap();
            while cursor.valid() {
                back.push(std::str::from_utf8(cursor.key()).unwrap()[4..].parse().unwrap());
                cursor.prev().unwrap();
            }
            back
        });
        assert_eq!(keys(between.iter(&ks)), (0..10).chain([50]).chain(90..100).collect::<Vec<_>>());
        assert_eq!(between.get(&ks, key(50)).unwrap().unwrap(), "new");
        assert_eq!(keys(before.iter(&ks)), (0..100).collect::<Vec<_>>());
        assert_eq!(keys(open), (1..100).collect::<Vec<_>>());
        assert!(ks.get(key(50)).unwrap().is_none() && ks.get(key(9)).unwrap().is_some());
        assert_eq!(ks.multi_get(&[key(10), key(90)]).unwrap().iter().flatten().count(), 1);
    }
}

#[test]
fn bounds_of_every_kind() {
    let (_, _db, ks) = database();
    type Keys = (Bound<String>, Bound<String>);
    let all: Vec<u32> = (0..10).collect();
    use Bound::{Excluded, Included, Unbounded};
    let cases: [(Keys, Vec<u32>); 7] = [
        ((Unbounded, Unbounded), vec![]),
        ((Included(key(3)), Unbounded), vec![0, 1, 2]),
        ((Excluded(key(3)), Unbounded), vec![0, 1, 2, 3]),
        ((Unbounded, Included(key(3))), (4..10).collect()),
        ((Excluded(key(3)), Included(key(5))), vec![0, 1, 2, 3, 6, 7, 8, 9]),
        ((Included(key(5)), Excluded(key(5))), all.clone()),
        ((Included(key(7)), Included(key(2))), all.clone()),
    ];
    for (bounds, left) in cases {
        fill(&ks, 0..10);
        ks.delete_range::<String>(bounds.clone()).unwrap();
        assert_eq!(keys(ks.iter()), left, "{bounds:?}");
    }
    fill(&ks, 0..200);
    ks.delete_prefix("key/0001").unwrap();
    assert_eq!(keys(ks.iter()), (0..100).collect::<Vec<_>>());
    let long = vec![0; cairn::limits::MAX_KEY_LEN + 1];
    assert_eq!(ks.delete_range(long.clone()..).unwrap_err().kind(), cairn::ErrorKind::InvalidArgument);
    assert_eq!(ks.delete_prefix(long).unwrap_err().kind(), cairn::ErrorKind::InvalidArgument);
}

#[test]
fn later_operations_of_a_batch_win() {
    let (env, db, ks) = database();
    let other = db.keyspace("other", KeyspaceOptions::default()).unwrap();
    fill(&ks, 0..10);
    let mut batch = db.batch();
    batch.put(&ks, key(3), "before");
    batch.delete_range(&ks, key(2)..key(8));
    batch.put(&ks, key(5), "after");
    batch.put(&other, key(1), "beside");
    assert_eq!(batch.len(), 4);
    db.write(batch, Durability::Sync).unwrap();
    let check = |ks: &Keyspace, other: &Keyspace| {
        assert_eq!(keys(ks.iter()), [0, 1, 5, 8, 9]);
        assert_eq!(
            (ks.get(key(5)).unwrap().unwrap(), keys(other.iter())),
            ("after".as_bytes().into(), vec![1])
        );
    };
    check(&ks, &other);
    drop((ks, other));
    db.close().unwrap();
    let db = Database::open_in(env, "/db", Options::default().background_threads(0)).unwrap();
    check(&db.open_keyspace("k").unwrap(), &db.open_keyspace("other").unwrap());
}

#[test]
fn tables_that_are_hidden_whole_are_dropped_unread() {
    let (_, db, ks) = database();
    fill(&ks, 0..5000);
    db.flush().unwrap();
    db.compact().unwrap();
    let (tables, read) =
        (ks.guards().iter().map(|g| g.tables.len()).sum::<usize>(), db.stats().compaction.bytes_read);
    assert!(tables > 4, "{tables}");
    let snapshot = db.snapshot();
    ks.delete_range::<&str>(..).unwrap();
    db.flush().unwrap();
    db.wait_idle().unwrap();
    assert_eq!(keys(snapshot.iter(&ks)).len(), 5000);
    assert_eq!((keys(ks.iter()).len(), range_deletes(&db.stats())), (0, 1));
    drop(snapshot);
    db.wait_idle().unwrap();
    let stats = db.stats();
    assert_eq!(ks.guards().iter().map(|g| g.tables.len()).sum::<usize>(), 0);
    // The tables were dropped unread. The tombstone hides nothing any more, and was dropped, too.
    assert_eq!((stats.compaction.bytes_read, range_deletes(&stats)), (read, 0));
}

#[test]
fn partly_hidden_tables_are_compacted_by_themselves_and_the_tombstone_goes() {
    let (env, db, ks) = database();
    fill(&ks, 0..5000);
    db.compact().unwrap();
    let bytes = |ks: &Keyspace| -> u64 { ks.guards().iter().flat_map(|g| &g.tables).map(|t| t.bytes).sum() };
    let before = bytes(&ks);
    ks.delete_range(key(500)..key(4500)).unwrap();
    db.flush().unwrap();
    db.wait_idle().unwrap();
    assert!(bytes(&ks) * 4 < before, "{} of {before}", bytes(&ks));
    assert_eq!(range_deletes(&db.stats()), 0);
    drop(ks);
    db.close().unwrap();
    let db = Database::open_in(env, "/db", Options::default().background_threads(0)).unwrap();
    assert_eq!(keys(db.open_keyspace("k").unwrap().iter()).len(), 1000);
}

/// A queue: put at one end, deleted at the other.
#[test]
fn the_space_of_a_queue_is_freed() {
    for ranges in [true, false] {
        let (_, db, ks) = database();
        let mut most = 0;
        for round in 0..60u32 {
            fill(&ks, round * 500..(round + 1) * 500);
            let (from, to) = (round.saturating_sub(1) * 500, round * 500);
            match ranges {
                true => ks.delete_range(..key(to)).unwrap(),
                false => (from..to).for_each(|n| ks.delete(key(n)).unwrap()),
            }
            db.wait_idle().unwrap();
            if round == 20 {
                most = ks.guards().iter().flat_map(|g| &g.tables).map(|t| t.bytes).sum::<u64>();
            }
        }
        let guards = ks.guards();
        let last: u64 = guards.iter().flat_map(|g| &g.tables).map(|t| t.bytes).sum();
        assert!(last < most * 2 + (64 << 10), "{last} bytes, after {most} in the middle; ranges: {ranges}");
        assert!(range_deletes(&db.stats()) < 8, "{}", range_deletes(&db.stats()));
        assert_eq!(keys(ks.iter()).len(), 500);
    }
}

/// A hidden range is skipped as a whole, in both directions; entries written into it later are found.
#[test]
fn scans_skip_hidden_ranges() {
    let (_, db, ks) = database();
    fill(&ks, 0..20_000);
    db.compact().unwrap();
    ks.delete_range(key(10)..key(19_990)).unwrap();
    for n in [5000, 15_000] {
        ks.put(key(n), "new").unwrap();
    }
    let left: Vec<u32> = (0..10).chain([5000, 15_000]).chain(19_990..20_000).collect();
    let reads = || db.stats().cache.data_hits + db.stats().cache.data_misses;
    let before = reads();
    assert_eq!(keys(ks.iter()), left);
    let mut back: Vec<u32> = Vec::new();
    let mut cursor = ks.cursor();
    cursor.seek_to_last().unwrap();
    while cursor.valid() {
        back.insert(0, std::str::from_utf8(cursor.key()).unwrap()[4..].parse().unwrap());
        cursor.prev().unwrap();
    }
    assert_eq!(back, left);
    // Changes of direction inside the range.
    cursor.seek(key(7000)).unwrap();
    assert_eq!(cursor.key(), key(15_000).as_bytes());
    cursor.prev().unwrap();
    assert_eq!(cursor.key(), key(5000).as_bytes());
    cursor.next().unwrap();
    assert_eq!(cursor.key(), key(15_000).as_bytes());
    let tables = ks.guards().iter().map(|g| g.tables.len() as u64).sum::<u64>();
    let blocks = ks.guards().iter().flat_map(|g| &g.tables).map(|t| t.bytes).sum::<u64>() / 4096;
    assert!(
        reads() - before < blocks / 3 + 12 * tables,
        "{} reads of {blocks} blocks in {tables} tables",
        reads() - before
    );
}
