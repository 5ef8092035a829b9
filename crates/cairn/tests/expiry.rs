//! Entries that expire: directed cases, and a comparison with a map over all engines, placements and table formats.

use cairn::env::{Rng, SimEnv, Survival};
use cairn::{
    Database, Durability, Engine, ErrorKind, Keyspace, KeyspaceOptions, Options, PlacementPolicy, Result,
    Retention, Slice, Snapshot, TableFormat, Time, Ttl, Version,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

/// The time of a new simulated disk.
const BEGIN: Time = Time::from_micros(1_704_067_200_000_000);

fn at(seconds: u32) -> Time {
    BEGIN.saturating_add(seconds * SECOND)
}

/// A moment after it: compactions drop what has expired before the present millisecond.
fn after(seconds: u32) -> Time {
    at(seconds).saturating_add(Duration::from_millis(1))
}

fn open_in(env: &Arc<SimEnv>) -> Result<Database> {
    let options = Options::default().background_threads(0).memory_budget(1 << 20).disk_reserve(0);
    Database::open_in(env.clone(), "/db", options)
}

fn open(options: KeyspaceOptions) -> Result<(Arc<SimEnv>, Database, Keyspace)> {
    let env = SimEnv::new(1);
    let db = open_in(&env)?;
    let keyspace = db.keyspace("k", options)?;
    Ok((env, db, keyspace))
}

fn plain() -> KeyspaceOptions {
    KeyspaceOptions::default().memtable_bytes(16 << 10).block_size(256)
}

/// Every way of finding entries, and of placing them.
fn kinds() -> [(&'static str, KeyspaceOptions); 6] {
    [
        ("tree", plain()),
        ("hybrid", plain().placement(PlacementPolicy::Hybrid).large_up_to(0.5)),
        ("size_class", plain().table_format(TableFormat::SizeClass)),
        ("leveled", plain().level0_tables(1).max_tables_per_guard(1).levels(3)),
        ("hash_log", plain().engine(Engine::HashLog)),
        ("history", plain().history(Retention::All)),
    ]
}

fn tables(keyspace: &Keyspace) -> usize {
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

/// A version: time and end in seconds, value.
type Shown = (u64, Option<u64>, Option<String>);

fn versions(k: &Keyspace, key: &str) -> Result<Vec<Shown>> {
    let seconds = |time: Time| (time.micros() - BEGIN.micros()) / 1_000_000;
    let text = |value: Slice| String::from_utf8(value.to_vec()).unwrap();
    let shown = |v: Version| (seconds(v.time), v.until.map(seconds), v.value.map(text));
    k.history(key, ..)?.map(|version| version.map(shown)).collect()
}

#[test]
fn a_version_ends_at_its_expiry() -> Result<()> {
    for options in [plain(), plain().placement(PlacementPolicy::Hybrid).large_up_to(0.5)] {
        let (env, db, k) = open(options.history(Retention::All))?;
        let some = |value: &str| Some(value.to_owned());
        let value_at = |seconds| {
            let found = k.get_at("a", at(seconds))?.and_then(|version| version.value);
            Ok::<_, cairn::Error>(found.map(|value| String::from_utf8(value.to_vec()).unwrap()))
        };
        env.set_wall_clock(at(1));
        k.put("a", "1")?;
        env.set_wall_clock(at(2));
        k.put_with_ttl("a", "2", 2 * SECOND)?;
        let snapshot = db.snapshot();
        let first = [(2, Some(4), some("2")), (1, Some(2), some("1"))];
        assert_eq!(versions(&k, "a")?, first);
        assert_eq!(k.get_at("a", Time::MAX)?.unwrap().until, Some(at(4)), "it is there");
        assert_eq!((value_at(3)?, value_at(4)?), (some("2"), None), "it will have ended");
        env.set_wall_clock(after(5));
        let ended = [(4, None, None), (2, Some(4), some("2")), (1, Some(2), some("1"))];
        for merged in [false, true] {
            if merged {
                k.compact()?;
            }
            assert!(k.get("a")?.is_none() && k.recent::<&str>(..)?.next().is_none());
            assert!(k.get_at("a", Time::MAX)?.is_none());
            assert_eq!(versions(&k, "a")?, ended, "merged: {merged}");
            assert_eq!((value_at(1)?, value_at(3)?, value_at(4)?), (some("1"), some("2"), None));
            assert_eq!(k.range_at::<&str>(at(3), ..)?.count(), 1);
            // The snapshot is of a time when it was there.
            assert_eq!(snapshot.get(&k, "a")?.unwrap(), "2");
            assert_eq!(snapshot.history(&k, "a", ..)?.count(), 2, "and had not ended");
        }
        drop(snapshot);
        k.compact()?;
        assert_eq!(tables(&k), 0, "what has expired has left the tree of the newest versions");
        assert_eq!(versions(&k, "a")?, ended);
        // A write between its time and its expiry is not late: it is the newest.
        k.put_at("a", "3", at(3))?;
        assert_eq!(k.get("a")?.unwrap(), "3");
        let replaced = [(3, None, some("3")), (2, Some(3), some("2")), (1, Some(2), some("1"))];
        assert_eq!(versions(&k, "a")?, replaced);
        let report = db.check(&mut |_| ())?;
        assert!(report.problems.is_empty(), "{:?}", report.problems);
        db.close()?;
        let db = open_in(&env)?;
        let k = db.open_keyspace("k")?;
        assert_eq!(versions(&k, "a")?, replaced);
    }
    Ok(())
}

#[test]
fn a_reader_sees_the_true_end_of_what_was_replaced_after_it_began() -> Result<()> {
    let (env, db, k) = open(plain().history(Retention::All))?;
    let some = |value: &str| Some(value.to_owned());
    env.set_wall_clock(at(1));
    k.put_until("a", "1", at(4))?;
    k.flush()?;
    env.set_wall_clock(after(5));
    let snapshot = db.snapshot();
    // As of a time at which it had not expired.
    k.put_at("a", "2", at(3))?;
    let then = [(at(4), None), (at(1), some("1"))];
    let now = [(3, None, some("2")), (1, Some(3), some("1"))];
    for merged in [false, true] {
        if merged {
            k.compact()?;
        }
        assert_eq!(versions(&k, "a")?, now, "merged: {merged}");
        let text = |value: Slice| String::from_utf8(value.to_vec()).unwrap();
        let seen = snapshot.history(&k, "a", ..)?.map(|v| v.map(|v| (v.time, v.value.map(text))));
        assert_eq!(seen.collect::<Result<Vec<_>>>()?, then, "merged: {merged}");
        let as_of = snapshot.get_at(&k, "a", Time::from_micros(at(4).micros() - 1))?.unwrap();
        assert_eq!((as_of.time, as_of.until), (at(1), Some(at(4))), "merged: {merged}");
    }
    drop(snapshot);
    k.compact()?;
    assert_eq!(versions(&k, "a")?, now);
    Ok(())
}

#[test]
fn expired_versions_stay_where_older_ones_are_left_below_and_wait_for_readers() -> Result<()> {
    let (env, db, k) = open(plain().history(Retention::All))?;
    env.set_wall_clock(at(1));
    k.put("a", "1")?;
    k.compact()?;
    k.put_until("a", "2", at(4))?;
    k.put_until("b", "2", at(4))?;
    k.flush()?;
    let snapshot = db.snapshot();
    env.set_wall_clock(after(5));
    // The reader began before.
    k.compact()?;
    let stats = || k.stats().expired_entries;
    assert_eq!((tables(&k), stats()), (1, 0));
    assert_eq!(snapshot.get(&k, "b")?.unwrap(), "2");
    drop(snapshot);
    k.compact()?;
    assert_eq!((tables(&k), stats()), (0, 2));
    let all = versions(&k, "a")?;
    assert_eq!(all.iter().map(|v| (v.0, v.1)).collect::<Vec<_>>(), [(4, None), (1, Some(4)), (1, Some(1))]);
    Ok(())
}

#[test]
fn a_range_delete_deletes_what_has_not_expired_also_where_times_run_ahead() -> Result<()> {
    let (env, db, k) = open(plain().history(Retention::All))?;
    env.set_wall_clock(at(1));
    k.put_until("a", "1", at(10))?;
    k.put_at("x", "", at(100))?;
    k.delete_range("a".."b")?;
    for merged in [false, true] {
        if merged {
            k.compact()?;
        }
        assert!(k.get("a")?.is_none() && k.get_at("a", Time::MAX)?.is_none(), "merged: {merged}");
        assert_eq!(k.recent::<&str>(..)?.count(), 1);
        assert_eq!(k.range_at::<&str>(Time::MAX, ..)?.rev().count(), 1);
        assert!(db.transaction(|tx| Ok(tx.recent(&k, "a".."b")?.next().is_none()))?);
        // As of times: the range delete came after the expiry.
        assert!(k.get_at("a", at(9))?.is_some() && k.get_at("a", at(10))?.is_none());
    }
    Ok(())
}

#[test]
fn what_has_moved_because_it_had_expired_stays_gone_when_the_clock_is_set_back() -> Result<()> {
    let (env, db, k) = open(plain().history(Retention::All))?;
    env.set_wall_clock(at(1));
    k.put_until("a", "1", at(100))?;
    k.put("b", "1")?;
    k.put_until("c", "1", at(100))?;
    env.set_wall_clock(at(200));
    k.compact()?;
    assert_eq!(k.stats().expired_entries, 2);
    // A late write between these, which is merged with them: after that the end of no version in the table is known.
    k.put_at("b", "0", Time::from_micros(at(1).micros() - 1))?;
    k.compact()?;
    db.close()?;
    env.set_wall_clock(at(50));
    let db = open_in(&env)?;
    let k = db.open_keyspace("k")?;
    assert!(k.get("a")?.is_none() && k.get_at("a", Time::MAX)?.is_none());
    assert_eq!(k.recent::<&str>(..)?.count(), 1);
    assert!(k.get_at("a", at(60))?.is_some());
    Ok(())
}

#[test]
fn a_transaction_that_has_read_a_window_in_which_a_version_ends_meanwhile_conflicts() -> Result<()> {
    for backward in [false, true] {
        for (latest, conflicts) in [(Time::MAX, true), (at(4), true), (at(3), false)] {
            let (env, db, k) = open(plain().history(Retention::All))?;
            env.set_wall_clock(at(1));
            k.put_until("a", "1", at(4))?;
            env.set_wall_clock(at(2));
            let mut tx = db.begin();
            let mut changes = tx.changes::<&str>(&k, .., at(2)..=latest)?;
            assert!(if backward { changes.next_back() } else { changes.next() }.is_none());
            drop(changes);
            tx.put(&k, "b", "1")?;
            env.set_wall_clock(after(5));
            let committed = tx.commit().map_err(|e| e.kind());
            let expected = if conflicts { Err(ErrorKind::Conflict) } else { Ok(()) };
            assert_eq!(committed, expected, "up to {latest:?}, backward: {backward}");
        }
    }
    Ok(())
}

/// The times of the transactions are an hour after the clock.
#[test]
fn what_a_transaction_puts_or_deletes_where_times_run_ahead_looks_as_it_does_after_the_commit() -> Result<()>
{
    let (env, db, k) = open(plain().history(Retention::All))?;
    env.set_wall_clock(at(1));
    k.put_at("x", "", at(3600))?;
    let shown = |found: Version| (found.until, found.expiry, found.value);
    let mut tx = db.begin();
    tx.put_until(&k, "a", "1", at(10))?;
    let within = tx.history(&k, "a", ..)?.map(|v| v.map(shown)).collect::<Result<Vec<_>>>()?;
    assert_eq!(within, [(Some(at(10)), Some(at(10)), Some("1".into()))]);
    assert_eq!(tx.get(&k, "a")?.unwrap(), "1");
    assert_eq!(tx.recent(&k, "a".."b")?.count(), 1);
    tx.commit()?;
    assert_eq!(k.history("a", ..)?.map(|v| v.map(shown)).collect::<Result<Vec<_>>>()?, within);
    // A range delete ends what had not expired when the transaction began.
    k.put_at("b", "1", at(1))?;
    k.put_until("c", "1", at(3700))?;
    let mut tx = db.begin();
    tx.delete_range(&k, "a"..)?;
    let time = tx.time();
    let ends: Vec<_> =
        tx.history(&k, "c", ..)?.map(|v| v.map(|v| (v.time, v.until))).collect::<Result<_>>()?;
    assert_eq!(ends[0], (time, None));
    assert_eq!(ends[1].1, Some(time));
    let ends: Vec<_> =
        tx.history(&k, "a", ..)?.map(|v| v.map(|v| (v.time, v.until))).collect::<Result<_>>()?;
    assert_eq!((ends[0], ends[1].1), ((time, None), Some(time)), "its expiry is before its time");
    tx.commit()?;
    assert!(k.is_empty()? && k.recent::<&str>(..)?.next().is_none());
    Ok(())
}

#[test]
fn an_expiry_at_the_epoch_ends_no_work() -> Result<()> {
    for history in [Retention::All, Retention::None] {
        let (env, db, k) = open(plain().history(history))?;
        k.put_until("a", "1", Time::MIN)?;
        k.put("b", "1")?;
        k.flush()?;
        db.close()?;
        let db = open_in(&env)?;
        let k = db.open_keyspace("k")?;
        let snapshot = db.snapshot();
        k.compact()?;
        db.wait_idle()?;
        drop(snapshot);
        k.compact()?;
        assert_eq!((k.iter().count(), k.get("a")?), (1, None));
    }
    Ok(())
}

#[test]
fn a_keyspace_of_which_all_has_expired_is_opened_again() -> Result<()> {
    for closed in [true, false] {
        let (env, db, k) = open(plain().history(Retention::All))?;
        env.set_wall_clock(at(2));
        k.put_until("a", "2", at(4))?;
        env.set_wall_clock(after(5));
        k.compact()?;
        assert_eq!(tables(&k), 0);
        let env = match closed {
            true => db.close().map(|()| env)?,
            false => env.crash_clone(Survival::Nothing, 1),
        };
        env.set_wall_clock(after(5));
        let db = open_in(&env)?;
        let k = db.open_keyspace("k")?;
        let some = |value: &str| Some(value.to_owned());
        let ended = [(4, None, None), (2, Some(4), some("2"))];
        assert_eq!((k.get("a")?, versions(&k, "a")?), (None, ended.to_vec()));
        // Before it: late. Between its time and its expiry: the newest.
        k.put_at("a", "1", at(1))?;
        assert_eq!((k.get("a")?, versions(&k, "a")?.len()), (None, 3));
        k.put_at("a", "3", at(3))?;
        k.compact()?;
        let all = [(3, None, some("3")), (2, Some(3), some("2")), (1, Some(2), some("1"))];
        assert_eq!(versions(&k, "a")?, all);
        assert!(db.check(&mut |_| ())?.problems.is_empty());
    }
    Ok(())
}

#[test]
fn the_option_ttl_counts_from_the_time_of_a_version() -> Result<()> {
    let options = plain().history(Retention::All).ttl(Ttl::After(10 * SECOND));
    let (env, db, k) = open(options)?;
    env.set_wall_clock(at(20));
    k.put_at("a", "1", at(5))?;
    k.put_at("b", "1", at(15))?;
    k.put("c", "1")?;
    assert_eq!(k.iter().keys().map(Result::unwrap).collect::<Vec<_>>(), ["b", "c"]);
    assert_eq!(versions(&k, "a")?, [(15, None, None), (5, Some(15), Some("1".to_owned()))]);
    // A late one.
    let mut batch = db.batch();
    batch.put_at(&k, "c", "0", at(2));
    db.write(batch, Durability::Os)?;
    let all = [(20, Some(30), Some("1")), (12, Some(20), None), (2, Some(12), Some("0"))];
    assert_eq!(versions(&k, "c")?, all.map(|(time, until, value)| (time, until, value.map(str::to_owned))));
    k.compact()?;
    assert_eq!(versions(&k, "c")?.len(), 3);
    assert!("0s".parse::<Ttl>().is_err() && "1".parse::<Ttl>().is_err());
    assert_eq!("none".parse::<Ttl>()?, Ttl::None);
    assert_eq!("90min".parse::<Ttl>()?, Ttl::After(5400 * SECOND));
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

/// What the map knows of a key.
type Model = BTreeMap<Vec<u8>, (Vec<u8>, Option<Time>)>;

fn shown(model: &Model, now: Time) -> Vec<(Vec<u8>, Vec<u8>, Option<Time>)> {
    let seen = model.iter().filter(|(_, (_, expiry))| expiry.is_none_or(|expiry| expiry > now));
    seen.map(|(key, (value, expiry))| (key.clone(), value.clone(), *expiry)).collect()
}

/// Compares all reads with the map.
fn compare(k: &Keyspace, model: &Model, now: Time, rng: &mut Rng, what: &str) -> Result<()> {
    let expected = shown(model, now);
    if k.options().engine == Engine::HashLog {
        let mut entries = k.entries().collect::<Result<Vec<_>>>()?;
        entries.sort_unstable();
        let entries: Vec<_> =
            entries.into_iter().map(|(key, value)| (key.to_vec(), value.to_vec())).collect();
        let expected: Vec<_> = expected.iter().map(|(key, value, _)| (key.clone(), value.clone())).collect();
        assert_eq!(entries, expected, "{what}");
    } else {
        let mut cursor = k.cursor();
        let mut found = Vec::new();
        let entry =
            |cursor: &cairn::Cursor| (cursor.key().to_vec(), cursor.value().to_vec(), cursor.expiry());
        cursor.seek_to_first()?;
        while cursor.valid() {
            found.push(entry(&cursor));
            // Now and then a step back and forth.
            if rng.below(8) == 0 {
                cursor.prev()?;
                assert_eq!(cursor.valid(), found.len() > 1, "{what}");
                match cursor.valid() {
                    true => assert_eq!(Some(&entry(&cursor)), found.get(found.len() - 2), "{what}"),
                    false => cursor.seek_to_first()?,
                }
                if found.len() > 1 {
                    cursor.next()?;
                }
            }
            cursor.next()?;
        }
        assert_eq!(found, expected, "{what}");
        found.clear();
        cursor.seek_to_last()?;
        while cursor.valid() {
            found.push(entry(&cursor));
            cursor.prev()?;
        }
        found.reverse();
        assert_eq!(found, expected, "{what}: back");
    }
    for _ in 0..10 {
        let key = key(rng);
        let expected = expected.iter().find(|entry| entry.0 == key);
        let found = k.get_with_expiry(&key)?.map(|(value, expiry)| (key.clone(), value.to_vec(), expiry));
        assert_eq!(found.as_ref(), expected, "{what}");
        assert_eq!(k.contains(&key)?, expected.is_some(), "{what}");
    }
    let keys: Vec<_> = (0..40).map(|_| key(rng)).collect();
    for (key, found) in keys.iter().zip(k.multi_get(&keys)?) {
        let expected = expected.iter().find(|entry| entry.0 == *key).map(|entry| &entry.1[..]);
        assert_eq!(found.as_deref(), expected, "{what}");
    }
    Ok(())
}

fn compare_snapshot(k: &Keyspace, snapshot: &Snapshot, expected: &[Entry], what: &str) -> Result<()> {
    for (key, value, _) in expected {
        assert_eq!(snapshot.get(k, key)?.as_deref(), Some(&value[..]), "{what}");
    }
    let mut entries = snapshot.entries(k).collect::<Result<Vec<_>>>()?;
    entries.sort_unstable();
    let entries: Vec<_> = entries.into_iter().map(|(key, value)| (key.to_vec(), value.to_vec())).collect();
    let expected: Vec<_> = expected.iter().map(|(key, value, _)| (key.clone(), value.clone())).collect();
    assert_eq!(entries, expected, "{what}");
    Ok(())
}

type Entry = (Vec<u8>, Vec<u8>, Option<Time>);

fn key(rng: &mut Rng) -> Vec<u8> {
    format!("key/{:03}", rng.below(120)).into_bytes()
}

fn value(rng: &mut Rng) -> Vec<u8> {
    let len = [3, 40, 400, 1500][rng.below(4) as usize];
    let mut value = vec![0; len];
    rng.fill(&mut value);
    value
}

#[test]
fn all_reads_agree_with_a_map_while_time_passes() -> Result<()> {
    for (name, options) in kinds() {
        for seed in 0..6 {
            run(name, &options, seed)?;
        }
    }
    Ok(())
}

fn run(name: &str, options: &KeyspaceOptions, seed: u64) -> Result<()> {
    let (mut env, mut db, mut k) = open(options.clone())?;
    let (mut rng, mut model, mut now) = (Rng::new(seed), Model::new(), BEGIN);
    let mut snapshots: Vec<(Snapshot, Vec<Entry>)> = Vec::new();
    let ordered = options.engine == Engine::Tree;
    for step in 0..4000 {
        let what = format!("{name}, seed {seed}, step {step}");
        let key = key(&mut rng);
        match rng.below(100) {
            0..25 => {
                let value = value(&mut rng);
                k.put(&key, &value)?;
                model.insert(key, (value, None));
            }
            25..60 => {
                let (value, ttl) = (value(&mut rng), Duration::from_millis(rng.below(60_000)));
                let expiry = now.saturating_add(ttl);
                match rng.below(3) {
                    0 => k.put_with_ttl(&key, &value, ttl)?,
                    1 => {
                        let mut batch = db.batch();
                        batch.delete(&k, &key);
                        batch.put_with_ttl(&k, &key, &value, ttl);
                        db.write(batch, Durability::Os)?;
                    }
                    _ => db.transaction(|tx| tx.put_until(&k, &key, &value, expiry))?,
                }
                model.insert(key, (value, Some(expiry)));
            }
            60..68 => {
                k.delete(&key)?;
                model.remove(&key);
            }
            68..70 if ordered => {
                let end = [&key[..], b"~"].concat();
                k.delete_range(&key[..]..&end[..])?;
                model.remove(&key);
            }
            70..85 => {
                now = now.saturating_add(Duration::from_millis(rng.below(3000)));
                env.set_wall_clock(now);
            }
            85..90 => k.flush()?,
            90..92 if ordered => k.compact_range(&key[..]..)?,
            92 if ordered => k.compact()?,
            93 | 94 => {
                let expected = shown(&model, now);
                snapshots.push((db.snapshot(), expected));
                if snapshots.len() > 3 {
                    let (snapshot, expected) = snapshots.remove(rng.below(4) as usize);
                    compare_snapshot(&k, &snapshot, &expected, &what)?;
                }
            }
            95 if step % 3 == 0 => {
                for (snapshot, expected) in snapshots.drain(..) {
                    compare_snapshot(&k, &snapshot, &expected, &what)?;
                }
                match rng.chance(1, 2) {
                    true => db.close()?,
                    false => {
                        // The process is killed.
                        env = env.process_clone();
                        env.set_wall_clock(now);
                    }
                }
                db = open_in(&env)?;
                k = db.open_keyspace("k")?;
                compare(&k, &model, now, &mut rng, &what)?;
            }
            96..98 => compare(&k, &model, now, &mut rng, &what)?,
            _ => {
                let found = k.get(&key)?;
                let expected = model.get(&key).filter(|(_, e)| e.is_none_or(|expiry| expiry > now));
                assert_eq!(found.as_deref(), expected.map(|(value, _)| &value[..]), "{what}");
            }
        }
    }
    let report = db.check(&mut |_| {})?;
    assert!(report.problems.is_empty(), "{name}, seed {seed}: {:?}", report.problems);
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
