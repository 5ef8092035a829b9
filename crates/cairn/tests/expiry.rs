//! Entries that expire: directed cases for all engines. `expiry_history` has those of versions, `expiry_model` a comparison with a map.

use cairn::env::SimEnv;
use cairn::{
    Database, Durability, Engine, ErrorKind, Keyspace, KeyspaceOptions, Options, PlacementPolicy, Result,
    Retention, TableFormat, Time, Ttl,
};
use std::sync::Arc;
use std::time::Duration;

pub(crate) const SECOND: Duration = Duration::from_secs(1);

/// The time of a new simulated disk.
pub(crate) const BEGIN: Time = Time::from_micros(1_704_067_200_000_000);

pub(crate) fn at(seconds: u32) -> Time {
    BEGIN.saturating_add(seconds * SECOND)
}

/// A moment after it: compactions drop what has expired before the present millisecond.
pub(crate) fn after(seconds: u32) -> Time {
    at(seconds).saturating_add(Duration::from_millis(1))
}

pub(crate) fn open_in(env: &Arc<SimEnv>) -> Result<Database> {
    let options = Options::default().background_threads(0).memory_budget(1 << 20).disk_reserve(0);
    Database::open_in(env.clone(), "/db", options)
}

pub(crate) fn open(options: KeyspaceOptions) -> Result<(Arc<SimEnv>, Database, Keyspace)> {
    let env = SimEnv::new(1);
    let db = open_in(&env)?;
    let keyspace = db.keyspace("k", options)?;
    Ok((env, db, keyspace))
}

pub(crate) fn plain() -> KeyspaceOptions {
    KeyspaceOptions::default().memtable_bytes(16 << 10).block_size(256)
}

/// Every way of finding entries, and of placing them.
pub(crate) fn kinds() -> [(&'static str, KeyspaceOptions); 6] {
    [
        ("tree", plain()),
        ("hybrid", plain().placement(PlacementPolicy::Hybrid).large_up_to(0.5)),
        ("size_class", plain().table_format(TableFormat::SizeClass)),
        ("leveled", plain().level0_tables(1).max_tables_per_guard(1).levels(3)),
        ("hash_log", plain().engine(Engine::HashLog)),
        ("history", plain().history(Retention::All)),
    ]
}

pub(crate) fn tables(keyspace: &Keyspace) -> usize {
    keyspace.guards().iter().map(|guard| guard.tables.len()).sum()
}

#[test]
fn an_expired_entry_is_invisible_at_once_to_every_read() -> Result<()> {
    for (name, options) in kinds() {
        for flushed in [false, true] {
            let ordered = name != "hash_log";
            let (env, db, k) = open(options.clone())?;
            k.put("a", "for ever")?;
            k.put_with_ttl("b", vec![b'b'; 300], 10 * SECOND)?;
            k.put_until("c", "until", at(20))?;
            k.put_until("d", "no end", Time::MAX)?;
            k.put_with_ttl("e", "", Duration::MAX)?;
            if flushed {
                k.flush()?;
            }
            let seen = |k: &Keyspace| -> Result<String> {
                let mut seen = String::new();
                for key in ["a", "b", "c", "d", "e"] {
                    let found = k.get(key)?.is_some();
                    assert_eq!(k.contains(key)?, found, "{name} {key}");
                    assert_eq!(k.get_with_expiry(key)?.is_some(), found, "{name} {key}");
                    assert_eq!(k.multi_get(&[key, "a"])?[0].is_some(), found, "{name} {key}");
                    assert_eq!(db.snapshot().get(k, key)?.is_some(), found, "{name} {key}");
                    assert_eq!(db.begin().get(k, key)?.is_some(), found, "{name} {key}");
                    seen.push_str(if found { key } else { "" });
                }
                let mut entries = k.entries().map(|e| Ok(e?.0)).collect::<Result<Vec<_>>>()?;
                entries.sort_unstable();
                assert_eq!(entries.concat(), seen.as_bytes(), "{name}");
                if ordered {
                    let forward = k.iter().keys().collect::<Result<Vec<_>>>()?;
                    let mut backward = k.iter().rev().map(|e| Ok(e?.0)).collect::<Result<Vec<_>>>()?;
                    backward.reverse();
                    assert_eq!((forward.concat(), forward), (seen.as_bytes().to_vec(), backward), "{name}");
                }
                Ok(seen)
            };
            assert_eq!(seen(&k)?, "abcde", "{name}");
            assert_eq!(k.get_with_expiry("b")?.unwrap().1, Some(at(10)), "{name}");
            assert_eq!(k.get_with_expiry("c")?.unwrap(), ("until".as_bytes().into(), Some(at(20))));
            for key in ["a", "d", "e"] {
                assert_eq!(k.get_with_expiry(key)?.unwrap().1, None, "{name} {key}");
            }
            let (before, mut open) = (db.snapshot(), db.begin());
            for key in ["a", "b", "c", "d", "e", "absent"] {
                let found = k.get_with_expiry(key)?;
                assert_eq!(before.get_with_expiry(&k, key)?, found, "{name} {key}");
                assert_eq!(open.get_with_expiry(&k, key)?, found, "{name} {key}");
            }
            open.put_until(&k, "a", "own", at(15))?;
            open.delete(&k, "b")?;
            assert_eq!(open.get_with_expiry(&k, "a")?.unwrap(), ("own".as_bytes().into(), Some(at(15))));
            assert_eq!(open.get_with_expiry(&k, "b")?, None, "{name}");
            open.rollback();
            drop(before);
            env.set_wall_clock(Time::from_micros(at(10).micros() - 1));
            assert_eq!(seen(&k)?, "abcde", "{name}");
            let snapshot = db.snapshot();
            env.set_wall_clock(at(10));
            assert_eq!(seen(&k)?, "acde", "{name}");
            env.set_wall_clock(at(9));
            assert_eq!(seen(&k)?, "acde", "{name}: the clock of the database does not go back");
            env.set_wall_clock(at(30));
            assert_eq!(seen(&k)?, "ade", "{name}");
            assert_eq!(snapshot.get(&k, "b")?.unwrap(), vec![b'b'; 300], "{name}");
            if ordered {
                k.compact()?;
                assert_eq!(snapshot.get(&k, "c")?.unwrap(), "until", "{name}: kept for the snapshot");
                assert_eq!(snapshot.iter(&k).count(), 5, "{name}");
                drop(snapshot);
                k.put("z", "")?;
                k.compact()?;
                let entries: u64 = k.guards().iter().flat_map(|g| &g.tables).map(|t| t.entries).sum();
                assert_eq!(entries, 4, "{name}");
                k.delete("z")?;
            }
            assert_eq!(seen(&k)?, "ade", "{name}");
        }
    }
    Ok(())
}

#[test]
fn an_expired_entry_still_hides_older_ones() -> Result<()> {
    for (name, options) in kinds() {
        let (env, db, k) = open(options)?;
        k.put("a", "old")?;
        k.put("b", "old")?;
        k.flush()?;
        if name != "hash_log" {
            k.compact()?;
        }
        k.put_with_ttl("a", "new", SECOND)?;
        k.flush()?;
        env.set_wall_clock(at(5));
        // Lets compactions run that are due because of time.
        for _ in 0..3 {
            k.put("c", "")?;
            k.flush()?;
            assert_eq!((k.get("a")?, k.get("b")?.is_some()), (None, true), "{name}");
        }
        db.close()?;
        let db = open_in(&env)?;
        let k = db.open_keyspace("k")?;
        assert_eq!((k.get("a")?, k.get("b")?.is_some()), (None, true), "{name}");
        if name != "hash_log" {
            k.compact()?;
        }
        assert_eq!((k.get("a")?, k.get("b")?.is_some()), (None, true), "{name}");
    }
    Ok(())
}

#[test]
fn waiting_for_idleness_frees_what_has_expired_without_a_write() -> Result<()> {
    let retentions = [Retention::None, Retention::All, Retention::Age(50 * SECOND)];
    for (history, threads) in retentions.into_iter().flat_map(|history| [(history, 0), (history, 2)]) {
        let env = SimEnv::new(1);
        let options = Options::default().background_threads(threads).memory_budget(1 << 20).disk_reserve(0);
        let db = Database::open_in(env.clone(), "/db", options)?;
        let k = db.keyspace("k", plain().history(history))?;
        for i in 0..50u32 {
            k.put_with_ttl(i.to_be_bytes(), vec![7; 100], 10 * SECOND)?;
        }
        k.flush()?;
        db.wait_idle()?;
        assert!(tables(&k) > 0, "{history}");
        let reader = db.snapshot();
        env.set_wall_clock(after(10));
        db.wait_idle()?;
        assert!(tables(&k) > 0 && reader.iter(&k).count() == 50, "{history}: a reader needs them");
        drop(reader);
        db.wait_idle()?;
        assert_eq!(tables(&k), 0, "{history}, {threads} threads");
        let older = || k.stats().history.map_or(0, |history| history.table_bytes);
        assert_eq!(older() > 0, history != Retention::None, "{history}");
        env.set_wall_clock(after(100));
        db.wait_idle()?;
        assert_eq!(older() > 0, history == Retention::All, "{history}, {threads} threads");
    }
    Ok(())
}

#[test]
fn whole_tables_go_unread_when_all_of_their_entries_have_expired() -> Result<()> {
    let (env, db, k) = open(plain())?;
    for table in 0..6u32 {
        for i in 0..20u32 {
            k.put_with_ttl(format!("{table}/{i:03}"), vec![7; 100], (10 + table) * SECOND)?;
        }
        k.flush()?;
    }
    assert_eq!(tables(&k), 6);
    let before = db.stats();
    env.set_wall_clock(after(12));
    k.put("z", "")?;
    k.flush()?;
    let now = db.stats();
    assert_eq!(tables(&k), 4, "those of 10, 11 and 12 s are gone, and there is a new one");
    assert_eq!(now.compaction.bytes_read, before.compaction.bytes_read, "nothing was read");
    env.set_wall_clock(at(100));
    k.put("z", "")?;
    k.flush()?;
    assert_eq!(k.iter().count(), 1);
    assert!(tables(&k) <= 2);
    Ok(())
}

#[test]
fn a_default_time_to_live_is_that_of_every_put() -> Result<()> {
    let (env, db, k) = open(plain().ttl(Ttl::After(10 * SECOND)))?;
    k.put("put", "")?;
    k.put_until("until", "", at(5))?;
    k.put_until("for ever", "", Time::MAX)?;
    let mut batch = db.batch();
    batch.put(&k, "batch", "");
    batch.put_with_ttl(&k, "batch ttl", "", 2 * SECOND);
    batch.put_until(&k, "batch until", "", Time::MAX);
    db.write(batch, Durability::Os)?;
    db.transaction(|tx| {
        tx.put(&k, "tx", "")?;
        tx.put_with_ttl(&k, "tx ttl", "", 3 * SECOND)?;
        tx.put_until(&k, "tx until", "", at(4))?;
        assert!(tx.get(&k, "tx ttl")?.is_some());
        Ok(())
    })?;
    k.fetch_update("update", |_| Some("x"))?;
    let expiry = |key: &str| Ok::<_, cairn::Error>(k.get_with_expiry(key)?.unwrap().1);
    for (key, seconds) in [("put", 10), ("batch", 10), ("tx", 10), ("update", 10), ("until", 5)] {
        assert_eq!(expiry(key)?, Some(at(seconds)), "{key}");
    }
    for (key, seconds) in [("batch ttl", 2), ("tx ttl", 3), ("tx until", 4)] {
        assert_eq!(expiry(key)?, Some(at(seconds)), "{key}");
    }
    assert_eq!((expiry("for ever")?, expiry("batch until")?), (None, None));
    let mut cursor = k.cursor();
    cursor.seek("put")?;
    assert_eq!(cursor.expiry(), Some(at(10)));
    cursor.prev()?;
    assert_eq!((cursor.key(), cursor.expiry()), (&b"for ever"[..], None));
    db.close()?;
    let db = open_in(&env)?;
    let k = db.open_keyspace("k")?;
    assert_eq!(k.options().ttl, Ttl::After(10 * SECOND), "the manifest keeps it");
    env.set_wall_clock(at(50));
    assert_eq!(k.iter().count(), 2);
    Ok(())
}

#[test]
fn a_transaction_that_has_read_what_expires_meanwhile_conflicts() -> Result<()> {
    for (name, options) in kinds() {
        let (env, db, k) = open(options)?;
        let until = |seconds: u32| k.put_until("lock", "mine", at(seconds));
        let mut now = 0;
        let ordered = name != "hash_log";
        type Read = fn(&cairn::Transaction, &Keyspace) -> Result<bool>;
        let reads: [(&str, bool, Read); 5] = [
            ("get", false, |tx, k| Ok(tx.get(k, "lock")?.is_some())),
            ("contains", false, |tx, k| tx.contains(k, "lock")),
            ("multi_get", false, |tx, k| Ok(tx.multi_get(k, &["lock", "x"])?[0].is_some())),
            ("range", true, |tx, k| Ok(tx.iter(k).next().is_some())),
            ("range back", true, |tx, k| Ok(tx.range(k, "l"..).next_back().transpose()?.is_some())),
        ];
        for (read_name, needs_order, read) in reads {
            if needs_order && !ordered {
                continue;
            }
            for expires in [true, false] {
                until(now + 5)?;
                let mut tx = db.begin();
                assert!(read(&tx, &k)?, "{name} {read_name}");
                tx.put(&k, "other", "")?;
                now += if expires { 5 } else { 4 };
                env.set_wall_clock(at(now));
                let committed = tx.commit();
                match expires {
                    true => {
                        assert_eq!(committed.unwrap_err().kind(), ErrorKind::Conflict, "{name} {read_name}")
                    }
                    false => committed?,
                }
                k.delete("other")?;
            }
        }
        // What had expired before is absent, and stays so.
        until(now)?;
        let mut tx = db.begin();
        assert!(tx.get(&k, "lock")?.is_none());
        tx.put(&k, "lock", "taken")?;
        env.set_wall_clock(at(now + 1000));
        tx.commit()?;
        assert_eq!(k.get("lock")?.unwrap(), "taken");
        // Own writes, too, are absent once they have expired when the transaction began.
        let mut tx = db.begin();
        tx.put_until(&k, "own", "", at(now))?;
        assert!(tx.get(&k, "own")?.is_none() && (!ordered || tx.range(&k, "o"..).next().is_none()));
        tx.put_with_ttl(&k, "own", "", SECOND)?;
        assert!(tx.get(&k, "own")?.is_some());
        tx.rollback();
        assert_eq!(k.put_if_absent("lock", "other")?.unwrap(), "taken");
        k.put_with_ttl("lock", "shortly", SECOND)?;
        env.set_wall_clock(at(now + 1002));
        assert_eq!(k.put_if_absent("lock", "mine")?, None);
    }
    Ok(())
}

/// Without order, what has expired goes when its file is copied, unless a reader sees it, and leaves nothing in the index.
#[test]
fn rewrites_without_order_drop_what_has_expired() -> Result<()> {
    let (env, db, k) = open(plain().engine(Engine::HashLog))?;
    let entries = || k.stats().hash_log.unwrap().entries;
    (0..50u32).try_for_each(|i| k.put(i.to_be_bytes(), "older"))?;
    k.flush()?;
    (0..100u32).try_for_each(|i| k.put_with_ttl(i.to_be_bytes(), "newer", 10 * SECOND))?;
    k.put("stays", "1")?;
    env.set_wall_clock(at(5));
    let snapshot = db.snapshot();
    env.set_wall_clock(after(10));
    k.rewrite()?;
    assert_eq!(entries(), 101);
    for i in 0..100u32 {
        assert_eq!(snapshot.get(&k, i.to_be_bytes())?.unwrap(), "newer");
        assert_eq!(k.get(i.to_be_bytes())?, None);
    }
    drop(snapshot);
    k.rewrite()?;
    assert_eq!(entries(), 1);
    assert_eq!(k.entries().collect::<Result<Vec<_>>>()?.len(), 1);
    // One that has expired over an older one becomes a delete, which goes when nothing is left that it hides.
    k.put("stays", "2")?;
    k.flush()?;
    let snapshot = db.snapshot();
    k.put_with_ttl("stays", "3", SECOND)?;
    env.set_wall_clock(after(30));
    k.rewrite()?;
    assert_eq!((entries(), k.get("stays")?), (2, None));
    assert_eq!(snapshot.get(&k, "stays")?.unwrap(), "2");
    drop(snapshot);
    k.compact()?;
    assert_eq!((entries(), k.get("stays")?), (0, None));
    // All of several versions that have expired go at once.
    for round in 0..3 {
        (0..50u32).try_for_each(|i| k.put_with_ttl(i.to_be_bytes(), [round], SECOND))?;
        k.flush()?;
    }
    env.set_wall_clock(after(60));
    k.rewrite()?;
    assert_eq!(entries(), 0);
    Ok(())
}

/// There must be room for the expiry behind the value, wherever it is stored.
#[test]
fn a_value_that_expires_is_eight_bytes_shorter_at_most() -> Result<()> {
    let most = cairn::limits::MAX_VALUE_LEN - 8;
    let (env, db, k) = open(plain())?;
    let value = vec![7; most + 1];
    let refused = |result: Result<()>| {
        let error = result.unwrap_err();
        assert!(
            error.kind() == ErrorKind::InvalidArgument && error.to_string().contains("expires"),
            "{error}"
        );
    };
    refused(k.put_with_ttl("a", &value, SECOND));
    let mut batch = db.batch();
    batch.put_with_ttl(&k, "a", &value, SECOND);
    refused(db.write(batch, Durability::Os));
    refused(db.begin().put_with_ttl(&k, "a", &value, SECOND));
    k.put_with_ttl("a", &value[..most], SECOND)?;
    db.close()?;
    let db = open_in(&env)?;
    let k = db.open_keyspace("k")?;
    assert_eq!(k.get("a")?.map(|value| value.len()), Some(most));
    k.flush()?;
    assert_eq!(k.get("a")?.map(|value| value.len()), Some(most));
    Ok(())
}

#[test]
fn a_clock_that_was_far_ahead_is_followed_back() -> Result<()> {
    let (env, db, k) = open(plain().ttl(Ttl::After(SECOND)))?;
    k.put("a", "1")?;
    env.set_wall_clock(at(2_000_000_000));
    let ahead = db.snapshot();
    assert_eq!(k.get("a")?, None);
    env.set_wall_clock(at(10));
    assert_eq!(k.put_if_absent("lease", "mine")?, None);
    assert_eq!(k.put_if_absent("lease", "yours")?.unwrap(), "mine");
    assert_eq!(k.get_with_expiry("lease")?.unwrap().1, Some(at(11)));
    assert_eq!((k.iter().count(), k.get("a")?), (1, None));
    assert_eq!(ahead.get(&k, "a")?, None, "a snapshot keeps its time");
    env.set_wall_clock(at(12));
    assert_eq!(k.put_if_absent("lease", "yours")?, None);
    Ok(())
}

/// As far as tables tell, nearly nothing has expired: the last expiry is far away.
#[test]
fn scans_that_pass_expired_entries_have_them_compacted() -> Result<()> {
    let (env, _db, k) = open(plain())?;
    for i in 0..3000u32 {
        let long = if i % 20 == 0 { 400_000_000 } else { 1 };
        k.put_with_ttl(i.to_be_bytes(), [7; 40], long * SECOND)?;
    }
    k.compact()?;
    env.set_wall_clock(at(5));
    k.put("x", "")?;
    k.flush()?;
    let entries =
        || k.guards().iter().flat_map(|guard| &guard.tables).map(|table| table.entries).sum::<u64>();
    assert!(entries() > 2000, "not by time alone: {}", entries());
    for scan in 0..2000 {
        assert_eq!(k.iter().count(), 151);
        if scan % 50 == 0 {
            k.put("x", "")?;
            k.flush()?;
        }
    }
    assert!(entries() < 500, "{}", entries());
    Ok(())
}

#[test]
fn a_leaked_iterator_of_a_transaction_has_read_what_it_has_shown() -> Result<()> {
    let (env, db, k) = open(plain())?;
    k.put_until("a", "1", at(5))?;
    let mut tx = db.begin();
    let mut range = tx.iter(&k);
    assert!(range.next().is_some());
    std::mem::forget(range);
    tx.put(&k, "b", "")?;
    env.set_wall_clock(at(5));
    assert_eq!(tx.commit().unwrap_err().kind(), ErrorKind::Conflict);
    Ok(())
}

#[test]
fn a_clock_before_the_epoch_ends_no_read() -> Result<()> {
    let env = SimEnv::new(1);
    env.set_wall_clock(Time::MIN);
    let db = open_in(&env)?;
    let k = db.keyspace("k", plain())?;
    k.put_until("a", "1", at(0))?;
    assert_eq!((k.iter().count(), k.multi_get(&["a"])?.len()), (1, 1));
    assert!(k.put_if_absent("a", "2")?.is_some() && db.snapshot().get(&k, "a")?.is_some());
    Ok(())
}
