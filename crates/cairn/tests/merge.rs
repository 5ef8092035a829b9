//! Merges: directed cases, and a comparison with a map over all engines, placements and table formats.

use cairn::env::{Rng, SimEnv, Survival};
use cairn::{
    ByteSet, Database, Durability, Engine, ErrorKind, Keyspace, KeyspaceOptions, Merge, MergeOperator,
    Options, PlacementPolicy, Result, Retention, Slice, Snapshot, TableFormat, Time, Ttl,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);

/// The time of a new simulated disk, and so much more.
fn later(duration: Duration) -> Time {
    Time::from_micros(1_704_067_200_000_000).saturating_add(duration)
}

fn options() -> Options {
    Options::default().background_threads(0).memory_budget(1 << 20).disk_reserve(0)
}

fn open_in(env: &Arc<SimEnv>) -> Result<Database> {
    Database::open_in(env.clone(), "/db", options())
}

fn open(options: KeyspaceOptions) -> Result<(Arc<SimEnv>, Database, Keyspace)> {
    let env = SimEnv::new(1);
    let db = open_in(&env)?;
    let keyspace = db.keyspace("k", options)?;
    Ok((env, db, keyspace))
}

fn plain() -> KeyspaceOptions {
    KeyspaceOptions::default().memtable_bytes(16 << 10).block_size(256).merge(Merge::Append)
}

/// Where operands are entries.
fn trees() -> [(&'static str, KeyspaceOptions); 4] {
    [
        ("tree", plain()),
        ("hybrid", plain().placement(PlacementPolicy::Hybrid).large_up_to(0.5)),
        ("size_class", plain().table_format(TableFormat::SizeClass)),
        ("leveled", plain().level0_tables(1).max_tables_per_guard(1).levels(3)),
    ]
}

/// Where merges read the value.
fn others() -> [(&'static str, KeyspaceOptions); 3] {
    [
        ("history", plain().history(Retention::All)),
        ("ttl", plain().ttl(Ttl::After(HOUR))),
        ("hash_log", plain().engine(Engine::HashLog)),
    ]
}

fn is_ordered(name: &str) -> bool {
    name != "hash_log"
}

#[test]
fn operands_are_joined_in_order_to_what_is_below_them() -> Result<()> {
    for (name, options) in trees().into_iter().chain(others()) {
        for flushed in [false, true] {
            let (_, db, k) = open(options.clone())?;
            let step = || if flushed { k.flush() } else { Ok(()) };
            let value = |key: &str| -> Result<Option<Slice>> {
                let found = k.get(key)?;
                assert_eq!(k.multi_get(&["x", key, "y"])?[1], found, "{name} {key}");
                assert_eq!(k.contains(key)?, found.is_some(), "{name} {key}");
                assert_eq!(db.snapshot().get(&k, key)?, found, "{name} {key}");
                assert_eq!(db.begin().get(&k, key)?, found, "{name} {key}");
                if is_ordered(name) {
                    let entries: Result<Vec<_>> = k.iter().collect();
                    let entries: BTreeMap<_, _> = entries?.into_iter().collect();
                    assert_eq!(entries.get(key.as_bytes()), found.as_ref(), "{name} {key}");
                }
                Ok(found)
            };
            k.merge("new", "a")?;
            step()?;
            k.merge("new", "b")?;
            assert_eq!(value("new")?.unwrap(), "ab", "{name}");
            k.put("put", "0")?;
            step()?;
            k.merge("put", "1")?;
            step()?;
            k.merge("put", "2")?;
            assert_eq!(value("put")?.unwrap(), "012", "{name}");
            k.put("put", "x")?;
            assert_eq!(value("put")?.unwrap(), "x", "{name}");
            k.merge("put", "y")?;
            step()?;
            k.delete("put")?;
            assert_eq!(value("put")?, None, "{name}");
            step()?;
            k.merge("put", "z")?;
            assert_eq!(value("put")?.unwrap(), "z", "{name}");
            k.put("large", vec![b'L'; 3000])?;
            step()?;
            k.merge("large", "!")?;
            step()?;
            assert_eq!(value("large")?.unwrap().len(), 3001, "{name}");
            if is_ordered(name) {
                k.merge("range", "old")?;
                step()?;
                k.delete_range("p".."s")?;
                assert_eq!((value("put")?, value("range")?), (None, None), "{name}");
                step()?;
                k.merge("range", "new")?;
                step()?;
                assert_eq!(value("range")?.unwrap(), "new", "{name}");
            }
            k.compact()?;
            assert_eq!(value("new")?.unwrap(), "ab", "{name}");
            assert_eq!(value("large")?.unwrap().len(), 3001, "{name}");
            if is_ordered(name) {
                assert_eq!((value("put")?, value("range")?.unwrap()), (None, "new".into()), "{name}");
            }
        }
    }
    Ok(())
}

#[test]
fn a_batch_with_merges_is_applied_in_order_also_where_they_read() -> Result<()> {
    for (name, options) in trees().into_iter().chain(others()) {
        let (_, db, k) = open(options)?;
        let operands = db.keyspace("operands", plain())?;
        k.put("b", "b")?;
        k.put("c", "c")?;
        let mut batch = db.batch();
        batch.merge(&k, "a", "1");
        batch.merge(&k, "a", "2");
        batch.merge(&k, "b", "3");
        batch.delete(&k, "b");
        batch.merge(&k, "b", "4");
        batch.merge(&k, "c", "5");
        batch.put(&k, "d", "d");
        batch.merge(&k, "d", "6");
        batch.merge(&k, "d", "8");
        batch.merge(&operands, "a", "7");
        db.write(batch, Durability::Os)?;
        let values = ["a", "b", "c", "d"].map(|key| k.get(key).unwrap().unwrap());
        assert_eq!(values, ["12", "4", "c5", "d68"].map(Slice::from), "{name}");
        assert_eq!(operands.get("a")?.unwrap(), "7", "{name}");
        db.transaction(|tx| {
            tx.merge(&k, "a", "3")?;
            tx.merge(&k, "a", "4")
        })?;
        assert_eq!(k.get("a")?.unwrap(), "1234", "{name}");
        let mut wrong = db.batch();
        wrong.merge(&k, vec![0; 70_000], "1");
        assert_eq!(db.write(wrong, Durability::Os).unwrap_err().kind(), ErrorKind::InvalidArgument, "{name}");
    }
    let (_, db, k) = open(plain().history(Retention::All))?;
    let mut batch = db.batch();
    batch.merge(&k, "a", "1");
    batch.put_at(&k, "b", "1", Time::from_micros(5));
    let refused = db.write(batch, Durability::Os).unwrap_err();
    assert!(
        refused.kind() == ErrorKind::InvalidArgument && refused.to_string().contains("times"),
        "{refused}"
    );
    assert_eq!(k.get("a")?, None);
    Ok(())
}

#[test]
fn a_batch_that_merges_by_reading_is_refused_with_keyspaces_of_another_database() -> Result<()> {
    let history = plain().history(Retention::All);
    let ((_, db, k), (_, _other, of_other)) = (open(history.clone())?, open(history)?);
    let mut batch = db.batch();
    batch.merge(&k, "a", "1");
    batch.merge(&of_other, "b", "2");
    assert_eq!(db.write(batch, Durability::Os).unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert_eq!((k.get("a")?, k.get("b")?, of_other.get("b")?), (None, None, None));
    Ok(())
}

/// Merges of batches in several threads all count, with the other writes of their batches.
#[test]
fn batches_with_merges_that_read_are_repeated_after_conflicts() -> Result<()> {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path())?;
    for (name, options) in others() {
        let options = options.merge(Merge::U64Add);
        let other = format!("{name} 2");
        let (sums, counts) = (db.keyspace(name, options.clone())?, db.keyspace(&other, options)?);
        let before = db.stats().conflicts;
        let mut rounds = 0;
        // Until threads have met.
        while rounds < 3 || db.stats().conflicts == before {
            rounds += 1;
            std::thread::scope(|scope| {
                let add = || {
                    (0..200).try_for_each(|n| {
                        let mut batch = db.batch();
                        batch.merge(&sums, "sum", 3u64.to_le_bytes());
                        batch.merge(&counts, format!("{}", n % 3), 1u64.to_le_bytes());
                        db.write(batch, Durability::Buffered)
                    })
                };
                let threads = [(); 3].map(|()| scope.spawn(add));
                threads.into_iter().try_for_each(|thread| thread.join().unwrap())
            })?;
        }
        let number = |keyspace: &Keyspace, key: &str| {
            u64::from_le_bytes(keyspace.get(key).unwrap().unwrap()[..].try_into().unwrap())
        };
        assert_eq!(number(&sums, "sum"), 1800 * rounds, "{name}");
        let counted: u64 = ["0", "1", "2"].iter().map(|key| number(&counts, key)).sum();
        assert_eq!(counted, 600 * rounds, "{name}");
    }
    Ok(())
}

/// In a keyspace that was dropped, in a database that was closed or was opened for reading.
#[test]
fn batches_with_merges_that_read_are_refused_where_writes_are() -> Result<()> {
    for (name, options) in others() {
        let (env, db, k) = open(options)?;
        k.put("a", "1")?;
        db.sync()?;
        let reader = Database::builder().env(env).open_read_only("/db")?;
        let of_reader = reader.open_keyspace("k")?;
        let refused = |db: &Database, keyspace: &Keyspace, kind: ErrorKind| {
            let batch = || {
                let mut batch = db.batch();
                batch.merge(keyspace, "a", "2");
                batch
            };
            assert_eq!(db.write(batch(), Durability::Os).unwrap_err().kind(), kind, "{name}");
            assert_eq!(wait(db.write_async(batch(), Durability::Os)).unwrap_err().kind(), kind, "{name}");
        };
        refused(&reader, &of_reader, ErrorKind::ReadOnly);
        db.drop_keyspace("k")?;
        refused(&db, &k, ErrorKind::Closed);
        assert_eq!(of_reader.get("a")?.unwrap(), "1", "{name}");
        reader.clone().close()?;
        refused(&reader, &of_reader, ErrorKind::Closed);
        let last = db.keyspace("last", plain().history(Retention::All))?;
        db.clone().close()?;
        refused(&db, &last, ErrorKind::Closed);
    }
    Ok(())
}

/// The result of a write that is waited for.
fn wait(write: cairn::WriteFuture) -> Result<()> {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(write)
}

#[test]
fn merges_of_transactions_do_not_conflict_but_reads_of_the_key_do() -> Result<()> {
    let (_, db, k) = open(plain())?;
    k.put("a", "0")?;
    let (mut one, mut two) = (db.begin(), db.begin());
    one.merge(&k, "a", "1")?;
    two.merge(&k, "a", "2")?;
    let mut three = db.begin();
    three.merge(&k, "a", "3")?;
    assert_eq!(three.get(&k, "a")?.unwrap(), "03");
    let mut four = db.begin();
    four.merge(&k, "b", "4")?;
    let seen: Result<Vec<_>> = four.iter(&k).collect();
    assert_eq!(seen?, [("a".into(), "0".into()), ("b".into(), "4".into())]);
    one.commit()?;
    two.commit()?;
    assert_eq!(k.get("a")?.unwrap(), "012");
    assert_eq!(three.commit().unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(four.commit().unwrap_err().kind(), ErrorKind::Conflict);

    let mut tx = db.begin();
    tx.put(&k, "own", "p")?;
    tx.merge(&k, "own", "q")?;
    tx.merge(&k, "a", "3")?;
    tx.merge(&k, "a", "4")?;
    tx.delete(&k, "gone")?;
    tx.merge(&k, "gone", "g")?;
    assert_eq!(
        tx.multi_get(&k, &["own", "a", "gone", "none"])?,
        [Some("pq".into()), Some("01234".into()), Some("g".into()), None]
    );
    let back: Result<Vec<_>> = tx.iter(&k).rev().map(|entry| entry.map(|(_, value)| value)).collect();
    assert_eq!(back?, [Slice::from("pq"), "g".into(), "01234".into()]);
    tx.delete_range(&k, "g".."h")?;
    tx.merge(&k, "gone", "h")?;
    assert_eq!(tx.get(&k, "gone")?.unwrap(), "h");
    tx.commit()?;
    assert_eq!(
        k.multi_get(&["own", "a", "gone"])?,
        [Some("pq".into()), Some("01234".into()), Some("h".into())]
    );
    Ok(())
}

#[test]
fn what_the_operator_does_not_take_is_refused_before_it_is_written() -> Result<()> {
    let (_, db, k) = open(plain().merge(Merge::U64Add))?;
    let refused = |result: Result<()>| {
        let error = result.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.to_string().contains("\"k\"") && error.to_string().contains("u64_add"), "{error}");
    };
    refused(k.merge("a", "short"));
    refused(k.put("a", "short"));
    refused(db.begin().put(&k, "a", "short"));
    refused(db.begin().merge(&k, "a", "short"));
    let mut batch = db.batch();
    batch.merge(&k, "a", "short");
    refused(db.write(batch, Durability::Os));
    refused(k.fetch_update("a", |_| Some("short")).map(drop));
    assert!(k.get("a")?.is_none());
    let none = db.keyspace("none", KeyspaceOptions::default())?;
    let error = none.merge("a", "b").unwrap_err();
    assert!(
        error.kind() == ErrorKind::InvalidArgument && error.to_string().contains("no merge operator"),
        "{error}"
    );
    Ok(())
}

/// Keeps the longest value, and takes none that begins with a space.
struct Longest;

impl MergeOperator for Longest {
    fn check(&self, value: &[u8]) -> Result<()> {
        match value.first() {
            Some(b' ') => Err(cairn::Error::new(ErrorKind::InvalidArgument, "it begins with a space")),
            _ => Ok(()),
        }
    }

    fn merge(&self, key: &[u8], value: &mut Vec<u8>, operand: &[u8]) {
        assert_eq!(key, b"name");
        if operand.len() > value.len() {
            *value = operand.to_vec();
        }
    }
}

#[test]
fn an_operator_of_the_application_is_needed_by_name() -> Result<()> {
    let env = SimEnv::new(1);
    let builder = || Database::builder().options(options()).env(env.clone());
    let own = || plain().merge(Merge::own("longest"));
    let db = builder().open("/db")?;
    let missing = |error: cairn::Error| {
        let text = error.to_string();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(text.contains("\"names\"") && text.contains("\"longest\""), "{text}");
    };
    missing(db.keyspace("names", own()).unwrap_err());
    db.close()?;
    let db = builder().merge_operator("longest", Longest).open("/db")?;
    let names = db.keyspace("names", own())?;
    names.merge("name", "Al")?;
    names.flush()?;
    names.merge("name", "Alice")?;
    assert!(names.merge("name", " x").unwrap_err().to_string().contains("space"));
    db.close()?;
    missing(builder().open("/db").unwrap_err());
    let db = builder().without_merge_operators().open("/db")?;
    let error = db.keyspace("new", own()).unwrap_err();
    assert!(
        error.kind() == ErrorKind::InvalidArgument && error.to_string().contains("\"longest\""),
        "{error}"
    );
    let names = db.keyspace("names", own())?;
    missing(names.get("name").unwrap_err());
    missing(names.iter().next().unwrap().unwrap_err());
    assert_eq!(names.iter().keys().map(|key| key.unwrap()).collect::<Vec<_>>(), ["name"]);
    missing(names.put("name", " x").unwrap_err());
    missing(names.merge("name", " x").unwrap_err());
    let mut batch = db.batch();
    batch.merge(&names, "name", " x");
    missing(db.write(batch, Durability::Os).unwrap_err());
    // Nothing is joined without it.
    names.compact()?;
    db.close()?;
    let db = builder().merge_operator("longest", Longest).open("/db")?;
    assert_eq!(db.keyspace("names", own())?.get("name")?.unwrap(), "Alice");
    db.close()?;
    for bad in ["or", "none", "a b", ""] {
        let error = builder().merge_operator(bad, Longest).open("/db").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{bad}");
    }
    Ok(())
}

#[test]
fn compactions_leave_one_entry_of_each_key() -> Result<()> {
    for (name, options) in trees() {
        let (_, _db, k) = open(options)?;
        for round in 0..20 {
            for key in 0..10u32 {
                k.merge(key.to_be_bytes(), format!("{round},"))?;
            }
            if round % 3 == 0 {
                k.flush()?;
            }
        }
        k.flush()?;
        k.compact()?;
        let entries: u64 = k.guards().iter().flat_map(|guard| &guard.tables).map(|table| table.entries).sum();
        assert_eq!(entries, 10, "{name}");
        let expected: String = (0..20).map(|round| format!("{round},")).collect();
        assert!(k.iter().all(|entry| entry.unwrap().1 == expected.as_str()), "{name}");
    }
    Ok(())
}

#[test]
fn reads_of_many_operands_in_memory_have_them_flushed() -> Result<()> {
    let (_, db, k) = open(plain().merge(Merge::U64Add).memtable_bytes(1 << 20).seek_cost(1 << 20))?;
    for _ in 0..200 {
        k.merge("a", 1u64.to_le_bytes())?;
    }
    let flushes = || db.stats().flush.jobs;
    assert_eq!(flushes(), 0);
    assert_eq!(k.get("a")?.unwrap(), 200u64.to_le_bytes());
    k.merge("a", 1u64.to_le_bytes())?;
    assert_eq!(flushes(), 1);
    assert_eq!(k.get("a")?.unwrap(), 201u64.to_le_bytes());
    Ok(())
}

/// Half of the limit, twice.
#[test]
fn a_value_that_is_too_long_is_an_error_until_the_key_is_written() -> Result<()> {
    let env = SimEnv::new(1);
    let options = Options::default().background_threads(0).memory_budget(2 << 30).disk_reserve(0);
    let db = Database::open_in(env, "/db", options)?;
    let k = db.keyspace("k", KeyspaceOptions::default().merge(Merge::Append))?;
    let half = vec![7u8; cairn::limits::MAX_VALUE_LEN / 2 + 1];
    k.merge("a", &half)?;
    k.merge("b", "fine")?;
    k.flush()?;
    k.merge("a", &half)?;
    let check = || {
        assert_eq!(k.get("a").unwrap_err().kind(), ErrorKind::InvalidArgument);
        assert!(k.contains("a").unwrap());
        assert_eq!(k.get("b").unwrap().unwrap(), "fine");
        let entries: Vec<_> = k.iter().collect();
        assert!(entries.len() == 1 && entries[0].is_err());
    };
    check();
    k.compact()?;
    check();
    k.put("a", "short")?;
    k.merge("a", "er")?;
    k.compact()?;
    assert_eq!(k.get("a")?.unwrap(), "shorter");
    Ok(())
}

#[test]
fn a_put_that_expires_beside_merges_makes_them_read() -> Result<()> {
    let (env, db, k) = open(plain())?;
    k.merge("a", "1")?;
    let mut early = db.begin();
    early.merge(&k, "a", "x")?;
    k.put_with_ttl("b", "b", HOUR)?;
    assert_eq!(early.commit().unwrap_err().kind(), ErrorKind::Conflict);
    k.merge("a", "2")?;
    k.merge("b", "3")?;
    assert_eq!((k.get("a")?.unwrap(), k.get("b")?.unwrap()), ("12".into(), "b3".into()));
    let expiry = |key: &str| k.get_with_expiry(key).map(|found| found.unwrap().1.is_some());
    assert_eq!((expiry("a")?, expiry("b")?), (false, true));
    let mut batch = db.batch();
    batch.merge(&k, "a", "3");
    db.write(batch, Durability::Os)?;
    env.set_wall_clock(later(2 * HOUR));
    assert_eq!((k.get("a")?.unwrap(), k.get("b")?), ("123".into(), None));
    k.merge("b", "4")?;
    assert_eq!(k.get_with_expiry("b")?.unwrap(), ("4".into(), None));
    Ok(())
}

#[test]
fn a_batch_may_have_merges_beside_puts_that_expire() -> Result<()> {
    for merge_first in [true, false] {
        let (_, db, k) = open(plain())?;
        k.merge("a", "0")?;
        let mut batch = db.batch();
        if merge_first {
            batch.merge(&k, "a", "1");
        }
        batch.put_with_ttl(&k, "b", "b", HOUR);
        if !merge_first {
            batch.merge(&k, "a", "1");
        }
        batch.merge(&k, "b", "c");
        db.write(batch, Durability::Os)?;
        assert_eq!((k.get("a")?.unwrap(), k.get("b")?.unwrap()), ("01".into(), "bc".into()));
        assert!(k.get_with_expiry("b")?.unwrap().1.is_some() && k.get_with_expiry("a")?.unwrap().1.is_none());
    }
    let (_, db, k) = open(plain())?;
    k.merge("a", "1")?;
    // A transaction does it by reading, in its second run at the latest.
    db.transaction(|tx| {
        tx.merge(&k, "a", "2")?;
        tx.put_with_ttl(&k, "b", "b", HOUR)
    })?;
    assert_eq!((k.get("a")?.unwrap(), k.get("b")?.unwrap()), ("12".into(), "b".into()));
    Ok(())
}

#[test]
fn a_merge_over_an_expired_put_of_the_same_transaction_begins_anew() -> Result<()> {
    let (_, db, k) = open(plain())?;
    let mut tx = db.begin();
    tx.put_until(&k, "a", "1", Time::from_micros(1))?;
    tx.merge(&k, "a", "2")?;
    assert_eq!(tx.get(&k, "a")?.unwrap(), "2");
    tx.commit()?;
    assert_eq!(k.get_with_expiry("a")?.unwrap(), ("2".into(), None));
    Ok(())
}

#[test]
fn keys_of_a_transaction_join_nothing() -> Result<()> {
    let env = SimEnv::new(1);
    let db =
        Database::builder().options(options()).env(env).merge_operator("longest", Longest).open("/db")?;
    let hybrid = plain().placement(PlacementPolicy::Hybrid).large_up_to(0.5);
    let k = db.keyspace("k", hybrid.merge(Merge::own("longest")))?;
    k.put("large", vec![b'L'; 3000])?;
    k.flush()?;
    let mut tx = db.begin();
    // The operator panics when it is called for this key.
    tx.merge(&k, "large", "!")?;
    assert_eq!(tx.iter(&k).count(), 1);
    assert_eq!(tx.iter(&k).keys().map(|key| key.unwrap()).collect::<Vec<_>>(), ["large"]);
    Ok(())
}

#[test]
fn the_default_time_to_live_begins_with_the_first_operand() -> Result<()> {
    let (env, _db, k) = open(plain().ttl(Ttl::After(HOUR)))?;
    k.merge("a", "1")?;
    let first = k.get_with_expiry("a")?.unwrap().1.unwrap();
    env.set_wall_clock(later(HOUR / 2));
    k.merge("a", "2")?;
    assert_eq!(k.get_with_expiry("a")?.unwrap(), ("12".into(), Some(first)));
    env.set_wall_clock(later(2 * HOUR));
    assert_eq!(k.get("a")?, None);
    k.merge("a", "3")?;
    assert_eq!(k.get("a")?.unwrap(), "3");
    Ok(())
}

#[test]
fn sets_of_typed_integers_and_bytes() -> Result<()> {
    let (_, db, _) = open(plain())?;
    let sums = db.keyspace("sums", plain().merge(Merge::I64Add))?;
    let typed = cairn::typed::TypedKeyspace::<String, i64>::new(sums);
    typed.merge("a", &5)?;
    typed.merge("a", &-7)?;
    assert_eq!(typed.get("a")?, Some(-2));
    db.transaction(|tx| typed.within(tx).merge("a", &1))?;
    assert_eq!(typed.get("a")?, Some(-1));
    let texts = cairn::typed::TypedKeyspace::<String, String>::new(db.keyspace("texts", plain())?);
    assert_eq!(texts.merge("a", "b").unwrap_err().kind(), ErrorKind::InvalidArgument);
    let sets = db.keyspace("sets", plain().merge(Merge::SetUnion))?;
    for members in [["b", "a"], ["c", "b"]] {
        sets.merge("k", ByteSet::from_iter(members))?;
        sets.flush()?;
    }
    sets.compact()?;
    let found = ByteSet::decode(&sets.get("k")?.unwrap()).unwrap();
    assert!(found == ByteSet::from_iter(["a", "b", "c"]));
    Ok(())
}

#[test]
fn a_salvage_keeps_operands_that_it_cannot_join() -> Result<()> {
    for (merge, has_manifest) in [(Merge::Append, true), (Merge::own("longest"), true)] {
        let env = SimEnv::new(1);
        let builder =
            || Database::builder().options(options()).env(env.clone()).merge_operator("longest", Longest);
        let db = builder().open("/db")?;
        let k = db.keyspace("k", plain().merge(merge.clone()))?;
        k.put("name", "0")?;
        k.flush()?;
        k.merge("name", "long")?;
        k.flush()?;
        k.merge("name", "longer")?;
        let value = k.get("name")?.unwrap();
        // From here on merges read, in the new database, too.
        k.put_with_ttl("a", "expires", HOUR)?;
        db.close()?;
        let report = cairn::salvage_in(env.clone(), "/db", "/new", options())?;
        assert!(report.is_complete() == has_manifest, "{report}");
        let db = builder().open("/new")?;
        assert_eq!(db.open_keyspace("k")?.get("name")?.unwrap(), value);
    }
    Ok(())
}

/// Eight threads count together and each for itself, in one batch. The power fails again and again meanwhile: what is left is a prefix of all batches,
/// each counted once, with all that were synced.
#[test]
fn counts_of_eight_threads_are_exact_after_crashes() -> Result<()> {
    const THREADS: usize = 8;
    let env = SimEnv::new(8);
    let open = |env: &Arc<SimEnv>| {
        let options = Options::default().background_threads(1).memory_budget(1 << 20).disk_reserve(0);
        Database::open_in(env.clone(), "/db", options)
    };
    let db = open(&env)?;
    let counts = db.keyspace("counts", plain().merge(Merge::U64Add).memtable_bytes(4 << 10))?;
    // It is flushed less often, so that logs have operands that are in tables already.
    let others = db.keyspace("others", plain().memtable_bytes(64 << 10))?;
    let (synced, stop): ([AtomicU64; THREADS], _) = (Default::default(), AtomicBool::new(false));
    let count = |thread: usize| -> Result<()> {
        let mut batches = 0;
        while !stop.load(Ordering::Relaxed) {
            let mut batch = db.batch();
            batch.merge(&counts, "all", 1u64.to_le_bytes());
            batch.merge(&counts, [thread as u8], 1u64.to_le_bytes());
            batch.put(&others, [thread as u8], "in the same log");
            batches += 1;
            let durability = if batches % 16 == 0 { Durability::Sync } else { Durability::Os };
            db.write(batch, durability)?;
            if durability == Durability::Sync {
                synced[thread].store(batches, Ordering::SeqCst);
            }
        }
        Ok(())
    };
    let check = |seed: u64| -> Result<u64> {
        let acknowledged = synced.each_ref().map(|count| count.load(Ordering::SeqCst));
        let kinds = [Survival::Nothing, Survival::RandomSectors, Survival::Reordered, Survival::Torn];
        let db = open(&env.crash_clone(kinds[seed as usize % kinds.len()], seed))?;
        let counts = db.open_keyspace("counts")?;
        let number =
            |value: Option<Slice>| value.map_or(0, |value| u64::from_le_bytes(value[..].try_into().unwrap()));
        let mut sum = 0;
        for (thread, acknowledged) in acknowledged.into_iter().enumerate() {
            let count = number(counts.get([thread as u8])?);
            assert!(count >= acknowledged, "crash {seed}, thread {thread}: {count} of {acknowledged}");
            sum += count;
        }
        assert_eq!(number(counts.get("all")?), sum, "crash {seed}");
        db.close()?;
        Ok(sum)
    };
    /// Stops the threads, also when a check fails.
    struct Stop<'a>(&'a AtomicBool);
    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let (checked, counted) = std::thread::scope(|scope| {
        let stop = Stop(&stop);
        let count = &count;
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || count(thread))).collect();
        // At least so many, and until each thread has synced something and much was flushed.
        let is_busy =
            || synced.iter().all(|count| count.load(Ordering::SeqCst) > 0) && db.stats().flush.jobs > 10;
        let go_on =
            |seed: &u64| *seed < 40 || !is_busy() && !threads.iter().any(|thread| thread.is_finished());
        let checked: Result<Vec<u64>> = (0..).take_while(go_on).map(check).collect();
        drop(stop);
        let counted: Result<Vec<()>> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        (checked, counted)
    });
    counted?;
    let last = *checked?.last().unwrap();
    assert!(last > 0, "nothing was synced");
    assert!(db.stats().flush.jobs > 10);
    Ok(())
}

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn key(rng: &mut Rng) -> Vec<u8> {
    vec![b'a' + rng.below(12) as u8; 1 + rng.below(2) as usize]
}

fn value(rng: &mut Rng) -> Vec<u8> {
    let len = if rng.below(12) == 0 { 700 } else { rng.below(6) as usize };
    vec![b'0' + rng.below(10) as u8; len]
}

fn compare(k: &Keyspace, model: &Model, what: &str) -> Result<()> {
    let all: Vec<(Slice, Slice)> =
        model.iter().map(|(key, value)| (Slice::copy_from(key), Slice::copy_from(value))).collect();
    let keys: Vec<Vec<u8>> = (0..12u8).flat_map(|i| [vec![b'a' + i], vec![b'a' + i; 2]]).collect();
    for (key, found) in keys.iter().zip(k.multi_get(&keys)?) {
        let expected = model.get(key).map(|value| Slice::copy_from(value));
        assert_eq!(found, expected, "{what} {key:?}");
        assert_eq!(k.get(key)?, expected, "{what} {key:?}");
        assert_eq!(k.contains(key)?, expected.is_some(), "{what} {key:?}");
    }
    if k.options().engine == Engine::Tree {
        let forward: Result<Vec<_>> = k.iter().collect();
        let backward: Result<Vec<_>> = k.iter().rev().collect();
        assert_eq!(forward?, all, "{what}");
        assert_eq!(backward?, all.iter().rev().cloned().collect::<Vec<_>>(), "{what}");
        assert_eq!(k.iter().keys().count(), all.len(), "{what}");
        // A walk that turns.
        let mut cursor = k.cursor();
        let mut rng = Rng::new(all.len() as u64);
        let mut at = None::<usize>;
        for _ in 0..all.len() * 2 {
            match (rng.below(5), at) {
                (0, _) | (_, None) if !all.is_empty() => {
                    let place = rng.below(all.len() as u64) as usize;
                    cursor.seek(&all[place].0)?;
                    at = Some(place);
                }
                (1..3, Some(place)) => {
                    cursor.next()?;
                    at = Some(place + 1).filter(|place| *place < all.len());
                }
                (_, Some(place)) => {
                    cursor.prev()?;
                    at = place.checked_sub(1);
                }
                _ => {}
            }
            let shown = cursor.valid().then(|| (Slice::copy_from(cursor.key()), cursor.value_slice()));
            assert_eq!(shown, at.map(|place| all[place].clone()), "{what}");
        }
    }
    Ok(())
}

fn run(name: &str, options: &KeyspaceOptions, seed: u64) -> Result<()> {
    let (mut env, mut db, mut k) = open(options.clone())?;
    let mut rng = Rng::new(seed);
    let (mut model, mut snapshots) = (Model::new(), Vec::<(Snapshot, Model)>::new());
    let reads = others().iter().any(|(other, _)| *other == name);
    for step in 0..600 {
        let what = &format!("{name}, seed {seed}, step {step}");
        let key = key(&mut rng);
        let join = |model: &mut Model, key: &[u8], operand: &[u8]| {
            model.entry(key.to_vec()).or_default().extend_from_slice(operand);
        };
        match rng.below(40) {
            0..18 => {
                let operand = value(&mut rng);
                k.merge(&key, &operand)?;
                join(&mut model, &key, &operand);
            }
            18..22 => {
                let value = value(&mut rng);
                k.put(&key, &value)?;
                model.insert(key, value);
            }
            22..24 => {
                k.delete(&key)?;
                model.remove(&key);
            }
            24 if is_ordered(name) => {
                let end = vec![key[0] + 2];
                k.delete_range(&key[..]..&end[..])?;
                model.retain(|other, _| *other < key || *other >= end);
            }
            25..28 if !reads => {
                let mut batch = db.batch();
                for _ in 0..rng.below(6) {
                    let (key, value) = (self::key(&mut rng), value(&mut rng));
                    match rng.below(3) {
                        0 => {
                            batch.put(&k, &key, &value);
                            model.insert(key, value);
                        }
                        _ => {
                            batch.merge(&k, &key, &value);
                            join(&mut model, &key, &value);
                        }
                    }
                }
                db.write(batch, Durability::Os)?;
            }
            28..31 => {
                let mut tx = db.begin();
                for _ in 0..rng.below(6) {
                    let (key, value) = (self::key(&mut rng), value(&mut rng));
                    match rng.below(5) {
                        0 => {
                            tx.put(&k, &key, &value)?;
                            model.insert(key, value);
                        }
                        1 => {
                            tx.delete(&k, &key)?;
                            model.remove(&key);
                        }
                        2 => assert_eq!(
                            tx.get(&k, &key)?.as_deref(),
                            model.get(&key).map(|v| &v[..]),
                            "{what}"
                        ),
                        _ => {
                            tx.merge(&k, &key, &value)?;
                            join(&mut model, &key, &value);
                        }
                    }
                }
                if is_ordered(name) && rng.below(2) == 0 {
                    let all: Result<Vec<_>> = tx.iter(&k).collect();
                    let all: Model =
                        all?.into_iter().map(|(key, value)| (key.to_vec(), value.to_vec())).collect();
                    assert_eq!(all, model, "{what}");
                }
                tx.commit()?;
            }
            31..34 => k.flush()?,
            34 => k.compact()?,
            35 => snapshots.push((db.snapshot(), model.clone())),
            36 if !snapshots.is_empty() => {
                drop(snapshots.swap_remove(rng.below(snapshots.len() as u64) as usize))
            }
            37 => {
                snapshots.clear();
                match rng.chance(1, 2) {
                    true => db.close()?,
                    // The process is killed.
                    false => env = env.process_clone(),
                }
                db = open_in(&env)?;
                k = db.open_keyspace("k")?;
            }
            _ => compare(&k, &model, what)?,
        }
        for (snapshot, expected) in &snapshots {
            let (key, value) = match expected.iter().nth(rng.below(24) as usize) {
                Some(entry) => entry,
                None => continue,
            };
            assert_eq!(snapshot.get(&k, key)?.as_deref(), Some(&value[..]), "{what}: snapshot {key:?}");
        }
    }
    compare(&k, &model, name)?;
    if is_ordered(name) {
        for (snapshot, expected) in &snapshots {
            let all: Result<Vec<_>> = snapshot.iter(&k).collect();
            let all: Model = all?.into_iter().map(|(key, value)| (key.to_vec(), value.to_vec())).collect();
            assert_eq!(all, *expected, "{name}, seed {seed}: snapshot");
        }
    }
    Ok(())
}

#[test]
fn all_reads_agree_with_a_map() -> Result<()> {
    for (name, options) in trees().into_iter().chain(others()) {
        for seed in 0..12 {
            run(name, &options, seed)?;
        }
    }
    Ok(())
}
