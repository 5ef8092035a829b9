//! Readers concurrent with flushes, compactions and file deletion.

use crate::stage::{Stage, check, entries, text, wide};
use cairn::{Durability, ErrorKind};
use shuttle::thread;
use std::sync::Arc;

/// Puts enough data for memtables to be switched, flushed and compacted.
fn churn(stage: &Stage, rounds: usize) {
    for round in 0..rounds {
        for key in ["b", "d", "f"] {
            stage.spaces[0].put_with(key, wide(&round.to_string()), Durability::Buffered).unwrap();
        }
    }
}

/// Traps 19 and 27: an iterator reads tables that are replaced and ready for deletion, and a memtable that is
/// flushed. It continues unaffected, in both directions, until the database is closed; then it returns an error.
#[test]
fn an_iterator_keeps_its_files_across_flush_and_compaction_until_close() {
    check(iterators, 2400);
}

pub fn iterators() {
    let stage = Arc::new(Stage::new(1));
    for key in ["a", "c", "e"] {
        stage.spaces[0].put(key, wide("old")).unwrap();
    }
    stage.spaces[0].flush().unwrap();
    let mut range = stage.spaces[0].iter();
    let mut cursor = stage.spaces[0].cursor();
    let other = stage.clone();
    let writer = thread::spawn(move || {
        churn(&other, 2);
        other.spaces[0].delete("c").unwrap();
        other.spaces[0].compact().unwrap();
    });
    let mut seen = Vec::new();
    for backward in [false, true, false, true] {
        let entry = if backward { range.next_back() } else { range.next() };
        seen.extend(entry.map(|entry| entry.expect("an iterator goes on").0.to_vec()));
        thread::yield_now();
    }
    assert_eq!(seen, [b"a", b"e", b"c"]);
    for key in ["c", "a", "e"] {
        cursor.seek_for_prev(key).expect("a cursor goes on");
        assert!(cursor.valid() && cursor.key() == key.as_bytes() && text(cursor.value()) == "old");
    }
    writer.join().unwrap();
    let other = stage.clone();
    let closer = thread::spawn(move || other.db.clone().close().unwrap());
    let mut seek = |key: &str| match cursor.seek(key) {
        Ok(()) => assert!(cursor.key() == key.as_bytes() && text(cursor.value()) == "old"),
        Err(e) => assert_eq!(e.kind(), ErrorKind::Closed, "{e}"),
    };
    ["a", "e", "c"].into_iter().for_each(&mut seek);
    closer.join().unwrap();
    assert_eq!(cursor.seek_to_first().unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(stage.spaces[0].iter().next().unwrap().unwrap_err().kind(), ErrorKind::Closed);
}

/// Trap 19: plain reads load a read state and read its files while versions are switched and replaced files are
/// deleted.
#[test]
fn a_reader_finds_its_files_while_versions_are_switched() {
    check(readers, 2400);
}

pub fn readers() {
    let stage = Arc::new(Stage::new(1));
    stage.spaces[0].put("a", wide("kept")).unwrap();
    let other = stage.clone();
    let writer = thread::spawn(move || churn(&other, 3));
    let other = stage.clone();
    let compactor = thread::spawn(move || {
        other.spaces[0].compact().unwrap();
        other.spaces[0].compact().unwrap();
    });
    let mut newest = -1;
    for _ in 0..5 {
        assert_eq!(text(&stage.spaces[0].get("a").unwrap().expect("it was put")), "kept");
        let seen = stage.spaces[0].get("d").unwrap().map_or(-1, |v| text(&v).parse::<i64>().unwrap());
        assert!(seen >= newest, "{seen} after {newest}");
        newest = seen;
        let entries = stage.spaces[0].iter().map(|entry| entry.unwrap().0.to_vec());
        assert_eq!(entries.collect::<Vec<_>>()[0], b"a");
    }
    writer.join().unwrap();
    compactor.join().unwrap();
    stage.db.wait_idle().unwrap();
    // No file is left behind: one table per guard, and no others.
    let tables = stage.disk.list_files().iter().filter(|f| f.to_string_lossy().contains(".tbl")).count();
    let named: usize = stage.spaces.iter().flat_map(|s| s.guards()).map(|g| g.tables.len()).sum();
    assert_eq!(tables, named, "unneeded tables are not deleted");
}

/// A snapshot keeps its versions, although all data is compacted as soon as it is written.
#[test]
fn a_compaction_keeps_what_a_snapshot_shows() {
    check(versions, 2400);
}

pub fn versions() {
    let stage = Arc::new(Stage::new(1));
    let other = stage.clone();
    let writer = thread::spawn(move || {
        for round in 0..4 {
            let mut batch = other.db.batch();
            for key in ["b", "d"] {
                batch.put(&other.spaces[0], key, wide(&round.to_string()));
            }
            other.db.write(batch, Durability::Buffered).unwrap();
        }
        other.spaces[0].compact().unwrap();
    });
    for _ in 0..3 {
        let snapshot = stage.db.snapshot();
        let look = || ["b", "d"].map(|key| snapshot.get(&stage.spaces[0], key).unwrap().map(|v| text(&v)));
        let before = look();
        assert_eq!(before[0], before[1]);
        thread::yield_now();
        assert_eq!(look(), before, "a version that a snapshot shows is gone");
    }
    writer.join().unwrap();
}

/// The same for a cursor, which refreshes its sources after memtables were flushed: a compaction that lists the
/// readers while the cursor is created may miss it only if the cursor sees all data that the compaction reads.
#[test]
fn a_compaction_keeps_what_a_cursor_shows() {
    check(cursors, 2400);
}

pub fn cursors() {
    let stage = Arc::new(Stage::new(1));
    let put = |stage: &Stage, round: i64| {
        let mut batch = stage.db.batch();
        for key in ["b", "d"] {
            batch.put(&stage.spaces[0], key, wide(&round.to_string()));
        }
        stage.db.write(batch, Durability::Buffered).unwrap();
    };
    put(&stage, 0);
    let other = stage.clone();
    let writer = thread::spawn(move || {
        (1..4).for_each(|round| put(&other, round));
        other.spaces[0].compact().unwrap();
    });
    let mut newest = 0;
    for _ in 0..3 {
        let mut cursor = stage.spaces[0].cursor();
        let mut look = || {
            cursor.seek("b").unwrap();
            assert!(cursor.valid(), "a version that a cursor shows is gone");
            let first: i64 = text(cursor.value()).parse().unwrap();
            thread::yield_now();
            cursor.next().unwrap();
            assert!(cursor.valid() && text(cursor.value()) == first.to_string(), "a cursor shows one moment");
            first
        };
        let before = look();
        assert!(before >= newest, "{before} after {newest}");
        newest = before;
        thread::yield_now();
        assert_eq!(look(), before, "a cursor shows another moment");
    }
    writer.join().unwrap();
}

/// A filter changes nothing that a snapshot or a cursor shows, whether it is in the list of a compaction or begins beside it.
#[test]
fn a_filter_keeps_what_readers_show() {
    check(filters, 2400);
}

pub fn filters() {
    let stage = Arc::new(Stage::with_filter(1));
    let left = &stage.spaces[0];
    ["b", "d"].into_iter().for_each(|key| left.put(key, "1").unwrap());
    left.flush().unwrap();
    let other = stage.clone();
    let compactor = thread::spawn(move || {
        other.spaces[0].compact().unwrap();
        other.spaces[0].put("f", "2").unwrap();
        other.spaces[0].compact().unwrap();
    });
    for round in 0..4 {
        let (snapshot, mut cursor) = (stage.db.snapshot(), left.cursor());
        let mut look = || -> Vec<Option<String>> {
            match round % 2 {
                0 => ["b", "d"].map(|key| snapshot.get(left, key).unwrap().map(|v| text(&v))).to_vec(),
                _ => {
                    let mut seek = |key| {
                        cursor.seek(key).unwrap();
                        cursor.valid().then(|| String::from_utf8_lossy(cursor.key()).into_owned())
                    };
                    vec![seek("b"), seek("d")]
                }
            }
        };
        let before = look();
        thread::yield_now();
        assert_eq!(look(), before, "a filter has changed what a reader shows");
    }
    compactor.join().unwrap();
    left.compact().unwrap();
    assert_eq!(left.iter().count(), 0);
}

/// Two threads look for values to collect while flushes give logs up, of which the other keyspace has a half: a collection takes all that is in use
/// in a file, or leaves it.
#[test]
fn collections_beside_flushes_lose_no_value() {
    check(collections, 1600);
}

pub fn collections() {
    let stage = Stage::with_values(2);
    for round in ["0", "1", "2"] {
        stage.spaces.iter().for_each(|space| space.put(round, wide(round)).unwrap());
        stage.db.flush().unwrap();
    }
    stage.db.wait_idle().unwrap();
    for space in &stage.spaces {
        assert_eq!(entries(space), ["0", "1", "2"].map(|text| (text.to_owned(), text.to_owned())));
    }
}

/// Collections move entries of a keyspace without order beside gets, gets at a snapshot, and iterators, which show each key once, as it is.
#[test]
fn readers_without_order_see_one_moment_beside_collections() {
    check(hashed, 1600);
}

fn hashed() {
    let stage = Arc::new(Stage::with_hash_log(1));
    let put = |stage: &Stage, round: i64| {
        let mut batch = stage.db.batch();
        ["b", "d"].into_iter().for_each(|key| batch.put(&stage.spaces[0], key, wide(&round.to_string())));
        stage.db.write(batch, Durability::Buffered).unwrap();
    };
    put(&stage, 0);
    let other = stage.clone();
    let writer = thread::spawn(move || {
        for round in 1..4 {
            put(&other, round);
            other.db.flush().unwrap();
        }
    });
    let number = |value: &[u8]| text(value).parse::<i64>().unwrap();
    let mut newest = 0;
    for _ in 0..3 {
        let snapshot = stage.db.snapshot();
        let look = || ["b", "d"].map(|key| snapshot.get(&stage.spaces[0], key).unwrap().map(|v| number(&v)));
        let before = look();
        assert!(before[0] == before[1] && before[0] >= Some(newest), "{before:?} after {newest}");
        let shown: Vec<_> = stage.spaces[0].entries().map(|entry| entry.unwrap()).collect();
        let mut keys: Vec<_> = shown.iter().map(|(key, _)| key.to_vec()).collect();
        keys.sort();
        assert_eq!(keys, [b"b", b"d"], "each key is shown once");
        newest = shown.iter().map(|(_, value)| number(value)).min().expect("there are two");
        assert!(Some(newest) >= before[0], "{newest} after {before:?}");
        assert_eq!(look(), before, "an entry that a snapshot shows is gone");
    }
    writer.join().unwrap();
    stage.db.wait_idle().unwrap();
    assert_eq!(stage.spaces[0].get("b").unwrap().map(|value| number(&value)), Some(3));
}
