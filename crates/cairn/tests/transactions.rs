//! Transactions: what they see, what they conflict with (the anomalies by their names), where they look for it after flushes and compactions; single
//! steps on a key; and against a model of serial execution.

use cairn::env::{Rng, SimEnv};
use cairn::{
    Database, Durability, Error, ErrorKind, Keyspace, KeyspaceOptions, Options, Preset, Result, Time,
    Transaction, TransactionOptions,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

fn small() -> KeyspaceOptions {
    KeyspaceOptions::default().memtable_bytes(16 << 10)
}

fn open(env: &Arc<SimEnv>) -> Database {
    let options = Options::default().background_threads(0).memory_budget(1 << 20).log_cap(4 << 20);
    Database::open_in(env.clone(), "/db", options).unwrap()
}

/// An open database with two keyspaces.
fn two() -> (Database, Keyspace, Keyspace) {
    let db = open(&SimEnv::new(1));
    let (a, b) = (db.keyspace("a", small()).unwrap(), db.keyspace("b", small()).unwrap());
    (db, a, b)
}

fn is_conflict(result: Result<()>) -> bool {
    match result {
        Ok(()) => false,
        Err(error) if error.kind() == ErrorKind::Conflict => true,
        Err(error) => panic!("{error:?}"),
    }
}

fn all(transaction: &Transaction, keyspace: &Keyspace) -> Vec<String> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let forward: Vec<String> = transaction
        .iter(keyspace)
        .map(|entry| entry.map(|(key, value)| format!("{}={}", text(&key), text(&value))).unwrap())
        .collect();
    let backward: Vec<_> = transaction.iter(keyspace).rev().map(|entry| entry.unwrap().0).collect();
    assert!(backward.iter().rev().zip(&forward).all(|(key, entry)| entry.starts_with(&text(key))));
    assert_eq!(backward.len(), forward.len());
    forward
}

#[test]
fn a_transaction_sees_its_snapshot_and_its_own_writes() {
    let (db, a, b) = two();
    for key in ["1", "2", "3", "5"] {
        a.put(key, "old").unwrap();
    }
    let mut tx = db.begin();
    a.put("2", "of another").unwrap();
    a.put("4", "of another").unwrap();
    assert_eq!(all(&tx, &a), ["1=old", "2=old", "3=old", "5=old"]);
    tx.put(&a, "4", "own").unwrap();
    tx.put(&a, "0", "own").unwrap();
    tx.delete(&a, "5").unwrap();
    tx.put(&b, "1", "b").unwrap();
    assert_eq!(all(&tx, &a), ["0=own", "1=old", "2=old", "3=old", "4=own"]);
    assert_eq!(tx.get(&a, "4").unwrap().unwrap(), "own");
    assert!(tx.get(&a, "5").unwrap().is_none() && !tx.contains(&a, "5").unwrap());
    assert!(tx.contains(&a, "0").unwrap() && tx.contains(&a, "1").unwrap());
    tx.delete_range(&a, "2".."4").unwrap();
    tx.put(&a, "3", "again").unwrap();
    assert_eq!(all(&tx, &a), ["0=own", "1=old", "3=again", "4=own"]);
    assert!(tx.get(&a, "2").unwrap().is_none());
    let found = tx.multi_get(&a, &["1", "2", "3", "4", "9"]).unwrap();
    let found: Vec<_> = found.into_iter().map(|value| value.map(|value| value.to_vec())).collect();
    assert_eq!(found, [Some(b"old".to_vec()), None, Some(b"again".to_vec()), Some(b"own".to_vec()), None]);
    tx.delete_prefix(&a, "4").unwrap();
    let (keys, mut both) = (["0", "1", "3"], tx.iter(&a));
    assert_eq!(both.next().unwrap().unwrap().0, keys[0]);
    assert_eq!(both.next_back().unwrap().unwrap().0, keys[2]);
    assert_eq!(both.next_back().unwrap().unwrap().0, keys[1]);
    assert!(both.next().is_none() && both.next_back().is_none());
    drop(both);
    assert_eq!(tx.prefix(&a, "3").count(), 1);
    assert_eq!(tx.range(&a, "1".."3").count(), 1);
    assert_eq!(tx.range(&a, "3".."1").count(), 0);
    // Nothing is written before the commit, which conflicts.
    assert_eq!(a.get("2").unwrap().unwrap(), "of another");
    assert!(b.iter().next().is_none());
    assert!(is_conflict(tx.commit()));
    assert!(a.get("0").unwrap().is_none() && b.iter().next().is_none());

    let mut tx = db.begin();
    tx.put(&a, "1", "x").unwrap();
    tx.delete_range(&a, ""..).unwrap();
    tx.put(&a, "7", "x").unwrap();
    tx.put(&b, "7", "y").unwrap();
    tx.commit_with(Durability::Sync).unwrap();
    assert_eq!((a.iter().count(), b.iter().count()), (1, 1));
}

#[test]
fn dropped_and_rolled_back_transactions_write_nothing() {
    let (db, a, _) = two();
    let mut tx = db.begin();
    tx.put(&a, "1", "").unwrap();
    tx.rollback();
    let mut tx = db.begin();
    tx.put(&a, "1", "").unwrap();
    drop(tx);
    let failed: std::result::Result<(), Error> = db.transaction(|tx| {
        tx.put(&a, "1", "")?;
        Err(Error::invalid("no"))
    });
    assert_eq!(failed.unwrap_err().to_string(), "no");
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        db.transaction(|tx| -> Result<()> {
            tx.put(&a, "1", "")?;
            panic!("on purpose")
        })
    }));
    assert!(panicked.is_err());
    assert_eq!(a.iter().count(), 0);
    assert_eq!(db.stats().snapshots, 0);
}

/// Two transactions that interleave: each of the steps in `other` comes between reading and committing.
fn interferes(keyspace: &Keyspace, db: &Database, read: impl Fn(&Transaction), other: impl Fn()) -> bool {
    let mut tx = db.begin();
    read(&tx);
    tx.put(keyspace, "own", "1").unwrap();
    other();
    is_conflict(tx.commit())
}

#[test]
fn lost_update() {
    let (db, a, _) = two();
    a.put("x", "0").unwrap();
    let add = |tx: &mut Transaction| {
        let value = tx.get(&a, "x").unwrap().unwrap();
        tx.put(&a, "x", [&value[..], b"+"].concat()).unwrap();
    };
    let (mut first, mut second) = (db.begin(), db.begin());
    add(&mut first);
    add(&mut second);
    second.commit().unwrap();
    assert!(is_conflict(first.commit()));
    assert_eq!(a.get("x").unwrap().unwrap(), "0+");
    // A write that is none of a transaction counts as well; so does a delete, and one of a range.
    for other in [&(|| a.put("x", "1").unwrap()) as &dyn Fn(), &|| a.delete("x").unwrap(), &|| {
        a.delete_range("w".."y").unwrap()
    }] {
        assert!(interferes(&a, &db, |tx| drop(tx.get(&a, "x").unwrap()), other));
    }
}

#[test]
fn write_skew() {
    let (db, a, b) = two();
    // At least one of two doctors must be on call; they are in different keyspaces.
    a.put("alice", "on").unwrap();
    b.put("bob", "on").unwrap();
    let both =
        |tx: &Transaction| tx.get(&a, "alice").unwrap().is_some() && tx.get(&b, "bob").unwrap().is_some();
    let (mut first, mut second) = (db.begin(), db.begin());
    assert!(both(&first) && both(&second));
    first.delete(&a, "alice").unwrap();
    second.delete(&b, "bob").unwrap();
    first.commit().unwrap();
    assert!(is_conflict(second.commit()));
    assert!(b.contains("bob").unwrap());
}

#[test]
fn read_skew() {
    let (db, a, b) = two();
    a.put("x", "1").unwrap();
    b.put("y", "1").unwrap();
    let tx = db.begin();
    assert_eq!(tx.get(&a, "x").unwrap().unwrap(), "1");
    let mut batch = db.batch();
    batch.put(&a, "x", "2");
    batch.put(&b, "y", "2");
    db.write(batch, Durability::Os).unwrap();
    assert_eq!(tx.get(&b, "y").unwrap().unwrap(), "1");
    // It has written nothing: it has the effect of having run before the batch.
    tx.commit().unwrap();
}

#[test]
fn phantoms() {
    let (db, a, b) = two();
    for key in ["10", "20", "30", "40"] {
        a.put(key, "").unwrap();
    }
    let key = |key: &'static str| {
        let a = a.clone();
        move || a.put(key, "x").unwrap()
    };
    let whole = |tx: &Transaction| assert_eq!(tx.range(&a, "15".."35").count(), 2);
    for (new, conflicts) in [("25", true), ("15", true), ("34", true), ("35", false), ("14", false)] {
        assert_eq!(interferes(&b, &db, whole, key(new)), conflicts, "{new}");
        a.delete(new).unwrap();
    }
    // An empty range is read, too; so is a range in which keys are deleted, one by one or all at once.
    assert!(interferes(&b, &db, |tx| assert_eq!(tx.range(&a, "50".."60").count(), 0), key("55")));
    let rest = |tx: &Transaction| drop(tx.range(&a, "36"..).collect::<Vec<_>>());
    assert!(interferes(&b, &db, rest, || a.delete("40").unwrap()));
    assert!(interferes(&b, &db, rest, || a.delete_range(.."37").unwrap()));
    assert!(!interferes(&b, &db, rest, || a.delete_range(.."36").unwrap()));
    assert!(interferes(&b, &db, |tx| assert_eq!(tx.prefix(&a, "z").count(), 0), key("zz")));
}

#[test]
fn a_transaction_depends_on_the_part_of_a_range_that_it_has_seen() {
    let (db, a, b) = two();
    let fill = || {
        a.delete_range(""..).unwrap();
        ["10", "20", "30", "40", "50"].iter().for_each(|key| a.put(key, "").unwrap());
    };
    let first_two = |tx: &Transaction| assert_eq!(tx.iter(&a).take(2).count(), 2);
    let last_two = |tx: &Transaction| assert_eq!(tx.iter(&a).rev().take(2).count(), 2);
    let ends = |tx: &Transaction| {
        let mut iter = tx.range(&a, "10".."60");
        assert_eq!(iter.next().unwrap().unwrap().0, "10");
        assert_eq!(iter.next_back().unwrap().unwrap().0, "50");
    };
    let unused = |tx: &Transaction| drop(tx.iter(&a));
    let leaked = |tx: &Transaction| std::mem::forget(tx.iter(&a));
    type Read<'a> = &'a dyn Fn(&Transaction);
    let cases: [(Read<'_>, &str, bool); 14] = [
        (&first_two, "05", true),
        (&first_two, "15", true),
        (&first_two, "20", true),
        (&first_two, "21", false),
        (&last_two, "39", false),
        (&last_two, "40", true),
        (&last_two, "60", true),
        (&ends, "09", false),
        (&ends, "10", true),
        (&ends, "11", false),
        (&ends, "50", true),
        (&ends, "55", true),
        (&unused, "30", false),
        (&leaked, "30", true),
    ];
    for (read, key, conflicts) in cases {
        fill();
        assert_eq!(interferes(&b, &db, read, || a.put(key, "x").unwrap()), conflicts, "{key}");
    }
}

#[test]
fn keys_that_are_only_written_do_not_conflict() {
    let (db, a, _) = two();
    let mut tx = db.begin();
    tx.put(&a, "x", "1").unwrap();
    a.put("x", "2").unwrap();
    // Its own write is no read of the database.
    assert_eq!(tx.get(&a, "x").unwrap().unwrap(), "1");
    tx.commit().unwrap();
    assert_eq!(a.get("x").unwrap().unwrap(), "1");
}

#[test]
fn absent_keys_are_read_too() {
    let (db, a, b) = two();
    assert!(interferes(
        &b,
        &db,
        |tx| assert!(tx.get(&a, "x").unwrap().is_none()),
        || a.put("x", "").unwrap()
    ));
    assert!(interferes(
        &b,
        &db,
        |tx| drop(tx.multi_get(&a, &["p", "q"]).unwrap()),
        || a.put("q", "").unwrap()
    ));
    assert!(interferes(&b, &db, |tx| assert!(!tx.contains(&a, "y").unwrap()), || a.put("y", "").unwrap()));
}

/// Conflicts are found wherever the other write has got to meanwhile: in the memtable of the beginning, in a later one, in a table, in a deeper one.
#[test]
fn writes_are_found_after_flushes_and_compactions() {
    let hash = KeyspaceOptions::preset(Preset::HashLog).memtable_bytes(16 << 10);
    let history = KeyspaceOptions::preset(Preset::Mneme).memtable_bytes(16 << 10);
    let sstable = KeyspaceOptions::preset(Preset::SsTable).memtable_bytes(16 << 10);
    for (options, ordered) in [(small(), true), (hash, false), (history, true), (sstable, true)] {
        let db = open(&SimEnv::new(1));
        let (a, b) = (db.keyspace("a", options).unwrap(), db.keyspace("b", small()).unwrap());
        let fill = |from: u32| {
            for i in from..from + 300 {
                a.put(format!("{:04}", i * 2), [7; 100]).unwrap();
            }
        };
        fill(0);
        type Step<'a> = &'a dyn Fn();
        let (flush, compact): (Step<'_>, Step<'_>) = (&|| a.flush().unwrap(), &|| a.compact().unwrap());
        let (more, nothing): (Step<'_>, Step<'_>) = (&|| fill(1000), &|| {});
        let (put, delete): (Step<'_>, Step<'_>) =
            (&|| a.put("0101", "new").unwrap(), &|| a.delete("0100").unwrap());
        let keys = |tx: &Transaction| {
            assert!(tx.get(&a, "0100").unwrap().is_some());
            assert!(tx.get(&a, "0101").unwrap().is_none());
        };
        let range = |tx: &Transaction| assert_eq!(tx.range(&a, "0099".."0102").count(), 1);
        let delete_range: Step<'_> = &|| a.delete_range("0099".."0101").unwrap();
        for before in [nothing, flush, compact] {
            let begin = || {
                a.put("0100", "old").unwrap();
                a.delete("0101").unwrap();
                before();
            };
            for (write, conflicts) in [(put, true), (delete, true), (delete_range, true), (nothing, false)] {
                for after in [nothing, flush, compact, more] {
                    let other = || {
                        write();
                        after();
                        after();
                    };
                    if !ordered && std::ptr::addr_eq(write, delete_range) {
                        continue;
                    }
                    begin();
                    assert_eq!(interferes(&b, &db, keys, other), conflicts);
                    if ordered {
                        begin();
                        assert_eq!(interferes(&b, &db, range, other), conflicts);
                    }
                }
            }
        }
    }
}

/// The data blocks that `run` looks up, and what it returns.
fn blocks<T>(db: &Database, run: impl FnOnce() -> T) -> (u64, T) {
    let count = || db.stats().cache.data_hits + db.stats().cache.data_misses;
    let before = count();
    let result = run();
    (count() - before, result)
}

#[test]
fn commits_read_no_table_for_keys_that_were_in_memory_or_are_not_in_newer_tables() {
    let (db, a, b) = two();
    for i in 0..2_000 {
        a.put(format!("{i:05}"), [1; 50]).unwrap();
    }
    a.compact().unwrap();
    a.put("in memory", "1").unwrap();
    let mut tx = db.begin();
    for i in 0..100 {
        tx.get(&a, format!("{:05}", i * 17)).unwrap();
        tx.get(&a, format!("absent {i}")).unwrap();
    }
    tx.get(&a, "in memory").unwrap();
    tx.put(&b, "x", "").unwrap();
    a.put("other", "2").unwrap();
    a.flush().unwrap();
    a.put("another", "3").unwrap();
    a.flush().unwrap();
    let (count, committed) = blocks(&db, || tx.commit());
    committed.unwrap();
    assert_eq!(count, 0);
}

/// Versions are read from two trees; a late write changes the older ones only, and an eviction changes nothing.
#[test]
fn histories_are_read_too() {
    let db = open(&SimEnv::new(1));
    let a = db.keyspace("a", KeyspaceOptions::preset(Preset::Mneme).memtable_bytes(16 << 10)).unwrap();
    let b = db.keyspace("b", small()).unwrap();
    let at = Time::from_micros;
    let fill = || {
        for time in 1..=5 {
            for key in ["x", "y"] {
                a.put_at(key, format!("{time}"), at(time * 1_000)).unwrap();
            }
        }
    };
    fill();
    let history = |tx: &Transaction| assert!(tx.history(&a, "x", ..).unwrap().count() >= 5);
    let get_at = |tx: &Transaction| assert!(tx.get_at(&a, "x", at(3_500)).unwrap().is_some());
    let range_at = |tx: &Transaction| assert_eq!(tx.range_at(&a, at(5_000), "x".."y").unwrap().count(), 1);
    let changes = |tx: &Transaction| assert!(tx.changes(&a, ..="x", ..).unwrap().count() >= 5);
    let get = |tx: &Transaction| assert!(tx.get(&a, "x").unwrap().is_some());
    type Steps<'a> = &'a dyn Fn();
    let (flush, compact): (Steps<'_>, Steps<'_>) = (&|| a.flush().unwrap(), &|| a.compact().unwrap());
    let mut time = 10_000;
    for after in [flush, compact] {
        for read in [&history as &dyn Fn(&Transaction), &get_at, &range_at, &changes, &get] {
            let is_get = std::ptr::addr_eq(read, &get);
            time += 10;
            let write = |key: &'static str, time: u64| {
                let (a, after) = (&a, after);
                move || {
                    a.put_at(key, "new", at(time)).unwrap();
                    after();
                }
            };
            assert!(interferes(&b, &db, read, write("x", time)));
            assert!(!interferes(&b, &db, read, write("y", time)));
            // A late one.
            assert_eq!(interferes(&b, &db, read, write("x", time - 9_000)), !is_get);
            // Older versions move to the other tree.
            fill();
            assert!(!interferes(&b, &db, read, after));
            assert!(!interferes(&b, &db, read, || a.compact().unwrap()));
        }
    }
    let mut tx = db.begin();
    tx.put(&b, "x", "own").unwrap();
    for failed in [tx.history(&b, "x", ..).err(), tx.get_at(&b, "x", Time::MAX).err()] {
        assert_eq!(failed.unwrap().kind(), ErrorKind::InvalidArgument);
    }
}

#[test]
fn histories_show_the_writes_of_the_transaction() {
    type Seen = Vec<(String, u64, Option<u64>, Option<String>)>;
    let db = open(&SimEnv::new(1));
    let a = db.keyspace("a", KeyspaceOptions::preset(Preset::Mneme)).unwrap();
    let at = Time::from_micros;
    for (key, time) in [("a", 1_000), ("b", 1_000), ("c", 1_000), ("d", 1_000), ("b", 2_000)] {
        a.put_at(key, format!("{time}"), at(time)).unwrap();
    }
    a.delete_at("d", at(3_000)).unwrap();
    let mut tx = db.begin();
    let own = tx.time();
    assert!(own > at(3_000));
    // Deletes "a" and "b"; "c" is put again; "d" has no value, and "f" and "g" have no versions.
    tx.put(&a, "b", "lost").unwrap();
    tx.delete_range(&a, "a".."d").unwrap();
    tx.delete_range(&a, "c".."e").unwrap();
    tx.put(&a, "c", "own").unwrap();
    tx.put(&a, "f", "own").unwrap();
    tx.delete(&a, "g").unwrap();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let line = |v: cairn::Version| {
        // The time of the transaction is shown as 0.
        let time = |time: Time| if time == own { 0 } else { time.micros() };
        (text(&v.key), time(v.time), v.until.map(time), v.value.map(|value| text(&value)))
    };
    let seen = |tx: &Transaction, from: Time, to: Time| -> Seen {
        let found: Seen =
            tx.changes::<&str>(&a, .., from..=to).unwrap().map(|version| line(version.unwrap())).collect();
        let mut back: Seen = tx
            .changes::<&str>(&a, .., from..=to)
            .unwrap()
            .rev()
            .map(|version| line(version.unwrap()))
            .collect();
        back.reverse();
        assert_eq!(found, back);
        let of_keys = ["a", "b", "c", "d", "f", "g", "h"].iter().flat_map(|key| {
            tx.history(&a, key, from..=to).unwrap().map(|version| line(version.unwrap())).collect::<Seen>()
        });
        assert_eq!(found, of_keys.collect::<Seen>());
        found
    };
    let put = |key: &str, time: u64, until: Option<u64>, value: &str| {
        (key.to_owned(), time, until, Some(value.to_owned()))
    };
    let delete = |key: &str, time: u64| (key.to_owned(), time, None, None);
    let expected = [
        delete("a", 0),
        put("a", 1_000, Some(0), "1000"),
        delete("b", 0),
        put("b", 2_000, Some(0), "2000"),
        put("b", 1_000, Some(2_000), "1000"),
        put("c", 0, None, "own"),
        put("c", 1_000, Some(0), "1000"),
        delete("d", 3_000),
        put("d", 1_000, Some(3_000), "1000"),
        put("f", 0, None, "own"),
        delete("g", 0),
    ];
    assert_eq!(seen(&tx, Time::MIN, Time::MAX), expected);
    // Where its time is not asked for, the ends of the versions before are there still.
    let before = at(own.micros() - 1);
    let committed: Seen = expected.iter().filter(|version| version.1 > 0).cloned().collect();
    assert_eq!(seen(&tx, Time::MIN, before), committed);
    assert_eq!(seen(&tx, own, own), expected.iter().filter(|v| v.1 == 0).cloned().collect::<Seen>());
    // As of a time.
    let as_of = |tx: &Transaction, time: Time| -> Vec<String> {
        let entries = || tx.range_at::<&str>(&a, time, ..).unwrap();
        let found: Vec<_> = entries().map(Result::unwrap).collect();
        let mut back: Vec<_> = entries().rev().map(Result::unwrap).collect();
        back.reverse();
        assert_eq!(found, back);
        let of_keys = tx.multi_get_at(&a, &["a", "b", "c", "d", "f", "g"], time).unwrap();
        let of_keys = of_keys.into_iter().flatten().map(|v| (v.key, v.time, v.value.unwrap()));
        assert!(found.iter().map(|e| (e.key.clone(), e.time, e.value.clone())).eq(of_keys));
        found.iter().map(|entry| format!("{}={}", text(&entry.key), text(&entry.value))).collect()
    };
    assert_eq!(as_of(&tx, before), ["a=1000", "b=2000", "c=1000"]);
    assert_eq!(as_of(&tx, own), ["c=own", "f=own"]);
    assert_eq!(as_of(&tx, Time::MAX), ["c=own", "f=own"]);
    assert_eq!(tx.recent::<&str>(&a, ..).unwrap().count(), 2);
    assert_eq!(tx.get_at(&a, "a", before).unwrap().unwrap().until, Some(own));
    assert_eq!(tx.get_at(&a, "a", at(999)).unwrap(), None);
    // From both ends at once.
    let mut both = tx.changes::<&str>(&a, .., ..).unwrap();
    for i in 0..expected.len() {
        let next = if i % 2 == 0 { both.next() } else { both.next_back() };
        let place = if i % 2 == 0 { i / 2 } else { expected.len() - 1 - i / 2 };
        assert_eq!(line(next.unwrap().unwrap()), expected[place]);
    }
    assert!(both.next().is_none() && both.next_back().is_none());
    // The commit makes of it what it has shown.
    tx.commit().unwrap();
    let committed = a.changes::<&str>(.., ..).unwrap().map(Result::unwrap);
    let without_time = |v: &(String, u64, Option<u64>, Option<String>)| (v.0.clone(), v.3.clone());
    let found: Vec<_> = committed.map(line).map(|version| without_time(&version)).collect();
    assert_eq!(found, expected.iter().map(without_time).collect::<Vec<_>>());
}

/// What the transaction has itself written is read from nowhere: it cannot conflict.
#[test]
fn own_versions_do_not_conflict() {
    let db = open(&SimEnv::new(1));
    let a = db.keyspace("a", KeyspaceOptions::preset(Preset::Mneme)).unwrap();
    a.put("x", "1").unwrap();
    for (read_history, conflicts) in [(false, false), (true, true)] {
        let mut tx = db.begin();
        tx.put(&a, "x", "own").unwrap();
        assert_eq!(tx.get_at(&a, "x", Time::MAX).unwrap().unwrap().value.unwrap(), "own");
        if read_history {
            assert!(tx.history(&a, "x", ..).unwrap().count() >= 2);
        }
        a.put("x", "2").unwrap();
        assert_eq!(is_conflict(tx.commit()), conflicts);
    }
}

/// A version that a range delete has hidden is found wherever a compaction has put it: in the primary tree, or among the older versions.
#[test]
fn a_version_that_came_and_went_is_found() {
    let at = Time::from_micros;
    for late in [true, false] {
        let db = open(&SimEnv::new(1));
        let h = db.keyspace("h", KeyspaceOptions::preset(Preset::Mneme).memtable_bytes(16 << 10)).unwrap();
        let b = db.keyspace("b", small()).unwrap();
        h.put_at("m", "1", at(1_000)).unwrap();
        h.put_at("m", "2", at(2_000)).unwrap();
        h.flush().unwrap();
        h.put_at("m", "0", at(500)).unwrap();
        let read = |tx: &Transaction| assert_eq!(tx.history(&h, "x", ..).unwrap().count(), 0);
        let conflicts = interferes(&b, &db, read, || {
            h.put("x", "v").unwrap();
            h.delete_range("x".."y").unwrap();
            if late {
                h.put_at("m", "00", at(600)).unwrap();
            }
            h.compact().unwrap();
        });
        assert!(h.history("x", ..).unwrap().count() > 0);
        assert!(conflicts, "late: {late}");
    }
}

#[test]
fn transactions_go_from_thread_to_thread() {
    fn check<T: Send + Sync>() {}
    check::<Transaction>();
    check::<cairn::TransactionRange<'_>>();
    check::<TransactionOptions>();
}

/// Many ranges that overlap are few when they are compared, and empty ones are none.
#[test]
fn ranges_that_were_read_again_and_again_count_once() {
    let (db, a, b) = two();
    for i in 0..100 {
        a.put(format!("{i:03}"), "").unwrap();
    }
    let read = |tx: &Transaction| {
        for _ in 0..2_000 {
            assert_eq!(tx.prefix(&a, "01").count(), 10);
            assert_eq!(tx.range(&a, "015".."030").take(3).count(), 3);
            assert_eq!(tx.range(&a, "040".."030").count(), 0);
            assert_eq!(tx.range(&a, "040".."040").keys().count(), 0);
        }
        let keys: Vec<_> = tx.range(&a, "090"..).keys().rev().take(2).map(|key| key.unwrap()).collect();
        assert_eq!(keys, ["099", "098"]);
    };
    for (key, conflicts) in [("010", true), ("0171", false), ("017", true), ("035", false), ("099x", true)] {
        // The end of what was taken is exclusive: behind its last key.
        assert_eq!(
            interferes(&b, &db, read, || a.put(key, "x").unwrap()),
            conflicts || key == "0171",
            "{key}"
        );
        a.delete(key).unwrap();
        a.put("010", "").unwrap();
        a.put("017", "").unwrap();
    }
    // A range delete meets no empty range.
    assert!(!interferes(
        &b,
        &db,
        |tx| assert_eq!(tx.range(&a, "05".."05").count(), 0),
        || {
            a.delete_range("04".."06").unwrap();
        }
    ));
    let mut tx = db.begin();
    assert_eq!(tx.snapshot().get(&a, "000").unwrap().unwrap(), "");
    tx.put(&b, "x", "").unwrap();
    a.put("000", "1").unwrap();
    tx.commit().unwrap();
}

#[test]
fn read_only_transactions_never_conflict_and_write_nothing() {
    let (db, a, _) = two();
    a.put("x", "1").unwrap();
    let mut tx = db.begin_read_only();
    assert_eq!(tx.iter(&a).count(), 1);
    a.put("x", "2").unwrap();
    assert_eq!(tx.get(&a, "x").unwrap().unwrap(), "1");
    for refused in [tx.put(&a, "x", "3"), tx.delete(&a, "x"), tx.delete_range(&a, "x"..)] {
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::InvalidArgument);
    }
    assert!(tx.is_empty());
    tx.commit().unwrap();
    assert_eq!(a.get("x").unwrap().unwrap(), "2");
}

#[test]
fn errors_leave_a_transaction_usable() {
    let (db, a, _) = two();
    let other = open(&SimEnv::new(2));
    let elsewhere = other.keyspace("a", small()).unwrap();
    let hash = db.keyspace("h", KeyspaceOptions::preset(Preset::HashLog)).unwrap();
    let mut tx = db.begin();
    let long = vec![0; cairn::limits::MAX_KEY_LEN + 1];
    for refused in [
        tx.put(&a, &long, ""),
        tx.put(&elsewhere, "x", ""),
        tx.delete_range(&hash, "a".."b"),
        tx.delete_prefix(&hash, "a"),
        tx.get(&elsewhere, "x").map(drop),
        tx.range(&elsewhere, "x"..).next().unwrap().map(drop),
        tx.range(&hash, "x"..).next().unwrap().map(drop),
    ] {
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::InvalidArgument);
    }
    tx.put(&a, "x", "1").unwrap();
    tx.put(&hash, "x", "1").unwrap();
    assert_eq!(tx.get(&hash, "x").unwrap().unwrap(), "1");
    tx.commit().unwrap();
    assert_eq!(a.get("x").unwrap().unwrap(), "1");
    assert_eq!(hash.get("x").unwrap().unwrap(), "1");

    let mut tx = db.begin();
    tx.put(&hash, "x", "2").unwrap();
    tx.get(&a, "x").unwrap();
    db.drop_keyspace("a").unwrap();
    assert_eq!(tx.get(&a, "x").unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(tx.put(&a, "x", "").unwrap_err().kind(), ErrorKind::Closed);
    assert!(tx.iter(&a).next().unwrap().is_err());
    // What it has read is gone.
    assert_eq!(tx.commit().unwrap_err().kind(), ErrorKind::Closed);
    let mut tx = db.begin();
    tx.put(&hash, "x", "2").unwrap();
    let begun = db.begin();
    db.close().unwrap();
    assert_eq!(tx.get(&hash, "y").unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(tx.commit().unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(begun.commit().unwrap_err().kind(), ErrorKind::Closed);
}

#[test]
fn a_transaction_is_repeated_until_it_succeeds_or_retries_are_spent() {
    let (db, a, b) = two();
    let mut runs = 0;
    let interfered = |tx: &mut Transaction, times: u32, runs: &mut u32| -> Result<u32> {
        *runs += 1;
        tx.get(&a, "x")?;
        tx.put(&b, "y", runs.to_string())?;
        if *runs <= times {
            a.put("x", "")?;
        }
        Ok(*runs)
    };
    assert_eq!(db.transaction(|tx| interfered(tx, 5, &mut runs)).unwrap(), 6);
    assert_eq!(b.get("y").unwrap().unwrap(), "6");
    runs = 0;
    let few = TransactionOptions::default().retries(2).durability(Durability::Sync);
    let spent = db.transaction_with(&few, |tx| interfered(tx, 3, &mut runs)).unwrap_err();
    assert_eq!((spent.kind(), runs), (ErrorKind::Conflict, 3));
    let message = spent.to_string();
    assert!(message.contains("keyspace \"a\"") && message.contains("\"x\""), "{message}");
    runs = 0;
    assert_eq!(db.transaction_with(&few, |tx| interfered(tx, 2, &mut runs)).unwrap(), 3);
    let stats = db.stats();
    assert_eq!((stats.transactions, stats.conflicts), (2, 5 + 3 + 2));
    assert!(stats.to_string().contains("2 transactions, 10 conflicts"), "{stats}");
}

#[test]
fn single_steps_on_a_key() {
    for options in [small(), KeyspaceOptions::preset(Preset::HashLog), KeyspaceOptions::preset(Preset::Mneme)]
    {
        let db = open(&SimEnv::new(1));
        let a = db.keyspace("a", options).unwrap();
        let none = None::<&str>;
        assert!(a.compare_and_swap("k", Some("1"), Some("2")).unwrap() == Err(None));
        assert!(a.compare_and_swap("k", none, Some("1")).unwrap().is_ok());
        assert_eq!(a.compare_and_swap("k", none, Some("2")).unwrap().unwrap_err().unwrap(), "1");
        a.flush().unwrap();
        assert!(a.compare_and_swap("k", Some("1"), Some("2")).unwrap().is_ok());
        assert_eq!(a.put_if_absent("k", "3").unwrap().unwrap(), "2");
        assert_eq!(a.get("k").unwrap().unwrap(), "2");
        assert!(a.compare_and_swap("k", Some("2"), none).unwrap().is_ok());
        assert!(!a.contains("k").unwrap());
        assert!(a.compare_and_swap("k", none, none).unwrap().is_ok());
        assert!(a.put_if_absent("k", "4").unwrap().is_none());
        let mut calls = 0;
        let before = a.fetch_update("k", |value| {
            calls += 1;
            if calls < 4 {
                a.put("k", format!("of another {calls}")).unwrap();
            }
            value.map(|value| [value, b"!"].concat())
        });
        assert_eq!((before.unwrap().unwrap(), calls), ("of another 3".as_bytes().into(), 4));
        assert_eq!(a.get("k").unwrap().unwrap(), "of another 3!");
        assert_eq!(a.fetch_update("k", |_| None::<&str>).unwrap().unwrap(), "of another 3!");
        assert!(a.fetch_update("k", |_| None::<&str>).unwrap().is_none());
        assert!(a.get("k").unwrap().is_none());
        let long = vec![0; cairn::limits::MAX_KEY_LEN + 1];
        assert_eq!(a.put_if_absent(&long, "").unwrap_err().kind(), ErrorKind::InvalidArgument);
        drop(db.close());
        assert_eq!(a.put_if_absent("k", "").unwrap_err().kind(), ErrorKind::Closed);
    }
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_be_bytes(bytes.try_into().unwrap())
}

/// Threads add to counters by all of the ways there are, in all durabilities.
#[test]
fn counters_of_several_threads_are_exact() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path()).unwrap();
    let counters = db.keyspace("counters", small()).unwrap();
    let hashed = db.keyspace("hashed", KeyspaceOptions::preset(Preset::HashLog)).unwrap();
    const EACH: u64 = 300;
    std::thread::scope(|scope| {
        for thread in 0..6u64 {
            let (db, counters, hashed) = (&db, &counters, &hashed);
            scope.spawn(move || {
                let durability =
                    [Durability::Buffered, Durability::Os, Durability::Sync][thread as usize % 3];
                let options = TransactionOptions::default().durability(durability).retries(u32::MAX);
                let plus_one = |value: Option<&[u8]>| Some((value.map_or(0, number) + 1).to_be_bytes());
                for i in 0..EACH {
                    let added = db.transaction_with(&options, |tx| {
                        for keyspace in [counters, hashed] {
                            let value = tx.get(keyspace, "a")?;
                            tx.put(keyspace, "a", plus_one(value.as_deref()).unwrap())?;
                        }
                        Result::Ok(())
                    });
                    added.unwrap();
                    counters.fetch_update_with("b", plus_one, durability).unwrap();
                    hashed.fetch_update_with("b", plus_one, durability).unwrap();
                    if i % 100 == 50 && thread == 0 {
                        counters.flush().unwrap();
                        hashed.flush().unwrap();
                    }
                }
            });
        }
    });
    for keyspace in [&counters, &hashed] {
        for key in ["a", "b"] {
            assert_eq!(number(&keyspace.get(key).unwrap().unwrap()), 6 * EACH, "{key}");
        }
    }
}

/// Transactions of several threads move money between accounts; some read all accounts as a range, and all see the same sum.
#[test]
fn the_sum_of_a_bank_never_changes() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path()).unwrap();
    let accounts = db.keyspace("accounts", small()).unwrap();
    const ACCOUNTS: u64 = 20;
    for account in 0..ACCOUNTS {
        accounts.put(account.to_be_bytes(), 100u64.to_be_bytes()).unwrap();
    }
    let audits = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let (db, accounts, audits) = (&db, &accounts, &audits);
            scope.spawn(move || {
                let mut rng = Rng::new(thread);
                for _ in 0..500 {
                    let (from, to, most) = (rng.below(ACCOUNTS), rng.below(ACCOUNTS), rng.below(50));
                    let done = db.transaction(|tx| {
                        let balance =
                            |of: u64| Result::Ok(number(&tx.get(accounts, of.to_be_bytes())?.unwrap()));
                        let (has, had) = (balance(from)?, balance(to)?);
                        let amount = most.min(has);
                        if from != to {
                            tx.put(accounts, from.to_be_bytes(), (has - amount).to_be_bytes())?;
                            tx.put(accounts, to.to_be_bytes(), (had + amount).to_be_bytes())?;
                        }
                        Result::Ok(())
                    });
                    done.unwrap();
                    if rng.below(20) == 0 {
                        let tx = db.begin();
                        let sum: u64 = tx.iter(accounts).map(|entry| number(&entry.unwrap().1)).sum();
                        assert_eq!(sum, ACCOUNTS * 100);
                        audits.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    assert_eq!(accounts.iter().map(|entry| number(&entry.unwrap().1)).sum::<u64>(), ACCOUNTS * 100);
    assert!(audits.load(Ordering::Relaxed) > 0);
}

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// Several transactions open at once, in one thread, with plain writes between their steps. Each records what it has read; what commits must have read what
/// is there at its commit, and what conflicts must not.
#[test]
fn committed_transactions_have_the_effect_of_a_serial_execution() {
    let mut counts = [0; 2];
    for seed in 0..60 {
        let counted = serial(seed);
        counts = [counts[0] + counted[0], counts[1] + counted[1]];
    }
    assert!(counts[0] > 500 && counts[1] > 500, "{counts:?}");
}

/// A read of an open transaction, with what it has returned.
enum Seen {
    Key(Vec<u8>, Option<Vec<u8>>),
    /// From here to there, but at most so many entries, from the back if wanted.
    Range(Vec<u8>, Vec<u8>, usize, bool, Vec<(Vec<u8>, Vec<u8>)>),
}

struct Open {
    tx: Transaction,
    seen: Vec<Seen>,
    /// The database as it sees it, and the keys that it has written.
    view: Map,
    own: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    deleted: Vec<(Vec<u8>, Vec<u8>)>,
}

fn entries_of(map: &Map, from: &[u8], to: &[u8], count: usize, back: bool) -> Vec<(Vec<u8>, Vec<u8>)> {
    let inside = map.iter().filter(|(key, _)| &key[..] >= from && &key[..] < to);
    let inside = inside.map(|(key, value)| (key.clone(), value.clone()));
    match back {
        true => inside.collect::<Vec<_>>().into_iter().rev().take(count).collect(),
        false => inside.take(count).collect(),
    }
}

/// Runs one history. Returns the numbers of commits and of conflicts among transactions that have written.
fn serial(seed: u64) -> [u32; 2] {
    let env = SimEnv::new(seed);
    let db = open(&env);
    let mut rng = Rng::new(seed);
    let options = match seed % 3 {
        0 => small().memtable_bytes(4 << 10).level0_tables(2),
        1 => KeyspaceOptions::preset(Preset::Mneme).memtable_bytes(4 << 10),
        _ => KeyspaceOptions::preset(Preset::PebblesDb).memtable_bytes(4 << 10),
    };
    let keyspace = db.keyspace("k", options).unwrap();
    let mut map = Map::new();
    let mut open: Vec<Open> = Vec::new();
    let mut counts = [0; 2];
    let key = |rng: &mut Rng| format!("{:02}", rng.below(40)).into_bytes();
    for step in 0..600u32 {
        let value = format!("{step} {}", "v".repeat(rng.below(60) as usize)).into_bytes();
        match rng.below(20) {
            0..2 if open.len() < 4 => {
                let (tx, view) = (db.begin(), map.clone());
                open.push(Open { tx, seen: Vec::new(), view, own: BTreeMap::new(), deleted: Vec::new() });
            }
            2..4 => {
                let key = key(&mut rng);
                keyspace.put(&key, &value).unwrap();
                map.insert(key, value);
            }
            4 => {
                let (from, to) = (key(&mut rng), key(&mut rng));
                if rng.below(2) == 0 {
                    keyspace.delete_range(&from[..]..&to[..]).unwrap();
                    map.retain(|key, _| !(&from <= key && key < &to));
                } else {
                    keyspace.delete(&from).unwrap();
                    map.remove(&from);
                }
            }
            5 if rng.below(3) == 0 => match rng.below(2) {
                0 => keyspace.flush().unwrap(),
                _ => keyspace.compact().unwrap(),
            },
            n if !open.is_empty() => {
                let place = rng.below(open.len() as u64) as usize;
                let one = &mut open[place];
                match n {
                    5..10 => {
                        let key = key(&mut rng);
                        let found = one.tx.get(&keyspace, &key).unwrap().map(|value| value.to_vec());
                        assert_eq!(found, one.view.get(&key).cloned());
                        one.seen.push(Seen::Key(key, found));
                    }
                    10..13 => {
                        let (from, to) = (key(&mut rng), key(&mut rng));
                        let (count, back) = (1 + rng.below(6) as usize, rng.below(2) == 0);
                        let range = one.tx.range(&keyspace, &from[..]..&to[..]);
                        let range: Box<dyn Iterator<Item = _>> = match back {
                            true => Box::new(range.rev()),
                            false => Box::new(range),
                        };
                        let found: Vec<_> = range
                            .take(count)
                            .map(|e| e.map(|(k, v)| (k.to_vec(), v.to_vec())).unwrap())
                            .collect();
                        assert_eq!(found, entries_of(&one.view, &from, &to, count, back), "seed {seed}");
                        one.seen.push(Seen::Range(from, to, count, back, found));
                    }
                    13..16 => {
                        let key = key(&mut rng);
                        let value = (rng.below(4) > 0).then_some(value);
                        match &value {
                            Some(value) => {
                                one.tx.put(&keyspace, &key, value).unwrap();
                                one.view.insert(key.clone(), value.clone());
                            }
                            None => {
                                one.tx.delete(&keyspace, &key).unwrap();
                                one.view.remove(&key);
                            }
                        }
                        one.own.insert(key, value);
                    }
                    16 => {
                        let (from, to) = (key(&mut rng), key(&mut rng));
                        one.tx.delete_range(&keyspace, &from[..]..&to[..]).unwrap();
                        let inside = |key: &Vec<u8>| &from <= key && key < &to;
                        one.view.retain(|key, _| !inside(key));
                        one.own.retain(|key, _| !inside(key));
                        one.deleted.push((from, to));
                    }
                    _ => {
                        let one = open.swap_remove(place);
                        let writes = !one.tx.is_empty();
                        let conflicts = is_conflict(one.tx.commit());
                        if writes {
                            counts[usize::from(conflicts)] += 1;
                        }
                        if conflicts || !writes {
                            continue;
                        }
                        // It has the effect of running now: all that it has read of others is as it was.
                        let mut replayed = map.clone();
                        let is_own = |key: &Vec<u8>| {
                            one.own.contains_key(key)
                                || one.deleted.iter().any(|(from, to)| from <= key && key < to)
                        };
                        for seen in &one.seen {
                            match seen {
                                Seen::Key(key, value) if !is_own(key) => {
                                    assert_eq!(value.as_ref(), map.get(key), "seed {seed}");
                                }
                                Seen::Range(from, to, count, back, found)
                                    if one.own.is_empty() && one.deleted.is_empty() =>
                                {
                                    let now = entries_of(&map, from, to, *count, *back);
                                    assert_eq!(found, &now, "seed {seed}");
                                }
                                Seen::Key(..) | Seen::Range(..) => {}
                            }
                        }
                        replayed
                            .retain(|key, _| !one.deleted.iter().any(|(from, to)| from <= key && key < to));
                        for (key, value) in one.own {
                            match value {
                                Some(value) => drop(replayed.insert(key, value)),
                                None => drop(replayed.remove(&key)),
                            }
                        }
                        map = replayed;
                    }
                }
            }
            _ => {}
        }
        if step % 100 == 99 {
            let stored: Map =
                keyspace.iter().map(|e| e.map(|(k, v)| (k.to_vec(), v.to_vec())).unwrap()).collect();
            assert_eq!(stored, map, "seed {seed}");
        }
    }
    counts
}
