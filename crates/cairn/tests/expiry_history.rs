//! Expiry in keyspaces with history: where versions end, what stays for readers and for late writes, and what transactions see.

use crate::expiry::{BEGIN, SECOND, after, at, open, open_in, plain, tables};
use cairn::env::Survival;
use cairn::{Durability, ErrorKind, Keyspace, PlacementPolicy, Result, Retention, Slice, Time, Ttl, Version};

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
