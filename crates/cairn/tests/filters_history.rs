//! Compaction filters in keyspaces with history: directed cases, and readers, late writes and drops beside them.

use crate::filters::{SECOND, builder, by_value, env_time, open, plain, waiting_at};
use cairn::env::SimEnv;
use cairn::{
    Durability, EntryAt, Error, ErrorKind, FilterDecision, FilterEntry, Keyspace, Options, PlacementPolicy,
    RangeAt, Result, Retention, Slice, Time, Version, Versions,
};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// The times of versions in seconds, and their values.
fn versions_of(found: impl Iterator<Item = Result<Version>>) -> Result<Vec<(u64, Option<String>)>> {
    let text = |value: Slice| String::from_utf8(value.to_vec()).unwrap();
    found.map(|v| v.map(|v| (v.time.micros() / 1_000_000, v.value.map(text)))).collect()
}

#[test]
fn with_history_it_decides_about_every_version() -> Result<()> {
    for options in [plain(), plain().placement(PlacementPolicy::Hybrid).large_up_to(0.5)] {
        let env = SimEnv::new(1);
        let asked = Arc::new(Mutex::new(Vec::new()));
        let to = asked.clone();
        let filter = move |entry: &FilterEntry<'_>| {
            let time = entry.time().unwrap().micros() / 1_000_000;
            to.lock().unwrap().push((entry.key().to_vec(), time, entry.value_len()));
            by_value(entry)
        };
        let db = builder(&env, 0).compaction_filter("k", filter).open("/db")?;
        let k = db.keyspace("k", options.history(Retention::All))?;
        let at = |seconds: u64| Time::from_micros(seconds * 1_000_000);
        let long = |first: &str| format!("{first}{}", "x".repeat(300));
        let some = |value: &str| Some(value.to_owned());
        k.put_at("a\0", "replace", at(1))?;
        k.put_at("a\0", "keep", at(2))?;
        k.put_at("a\0", long("drop"), at(3))?;
        k.put_at("a\0", long("replace"), at(4))?;
        k.delete_at("a\0", at(5))?;
        k.put_at("a\0", "keep", at(6))?;
        k.put_at("b", "keep", at(1))?;
        k.put_at("b", "drop", at(2))?;
        let mut batch = db.batch();
        batch.put_at_until(&k, "c", "replace", at(1), at(1 << 32));
        batch.put_at_until(&k, "c", "replace me, too", at(3), at(1 << 32));
        db.write(batch, Durability::Os)?;
        // A late one.
        k.put_at("c", "drop", at(2))?;
        k.compact()?;
        let a = [
            (6, some("keep")),
            (5, None),
            (4, some(&long("Replace"))),
            (3, None),
            (2, some("keep")),
            (1, some("Replace")),
        ];
        let b = [(2, None), (1, some("keep"))];
        let c = [(3, some("Replace me, too")), (2, None), (1, some("Replace"))];
        let sees = |k: &Keyspace| -> Result<()> {
            assert_eq!(versions_of(k.history("a\0", ..)?)?, a);
            assert_eq!(versions_of(k.history("b", ..)?)?, b);
            assert_eq!(versions_of(k.history("c", ..)?)?, c);
            assert_eq!((k.get_at("a\0", at(3))?, k.get("b")?), (None, None));
            assert_eq!(k.get_at("b", at(1))?.unwrap().until, Some(at(2)));
            assert_eq!(k.get_with_expiry("c")?.unwrap(), ("Replace me, too".into(), Some(at(1 << 32))));
            assert_eq!(k.get_at("c", at(1))?.unwrap().expiry, Some(at(1 << 32)));
            Ok(())
        };
        sees(&k)?;
        let all: Vec<_> = asked.lock().unwrap().drain(..).map(|(key, time, _)| (key, time)).collect();
        for expected in
            [("a\0", 1), ("a\0", 2), ("a\0", 3), ("a\0", 6), ("b", 1), ("b", 2), ("c", 1), ("c", 2), ("c", 3)]
        {
            assert!(all.contains(&(expected.0.into(), expected.1)), "{expected:?}: {all:?}");
        }
        assert!(!all.contains(&("a\0".into(), 5)), "a delete");
        let stats = k.stats();
        assert_eq!((stats.filter_dropped, stats.filter_replaced), (3, 4));
        // All versions again.
        k.compact()?;
        let again: Vec<_> = asked.lock().unwrap().drain(..).map(|(key, time, _)| (key, time)).collect();
        for expected in [("a\0", 1), ("a\0", 2), ("a\0", 4), ("a\0", 6), ("b", 1), ("c", 1), ("c", 3)] {
            assert!(again.contains(&(expected.0.into(), expected.1)), "{expected:?}: {again:?}");
        }
        sees(&k)?;
        let report = db.check(&mut |_| ())?;
        assert!(report.problems.is_empty(), "{:?}", report.problems);
        db.close()?;
        let db = builder(&env, 0).open("/db")?;
        sees(&db.open_keyspace("k")?)?;
    }
    Ok(())
}

#[test]
fn a_reader_of_versions_that_begins_beside_a_filter_keeps_what_it_sees() -> Result<()> {
    // In the tree of the newest versions, or of the older ones.
    for older in [false, true] {
        let env = SimEnv::new(1);
        let (filter, filter_is_there, go_on) = waiting_at(move |entry| {
            entry.key() == b"00000" && (entry.time().unwrap() < Time::from_micros(2000)) == older
        });
        let large = Options::default().background_threads(1).memory_budget(16 << 20).disk_reserve(0);
        let db = builder(&env, 1).options(large.clone()).open("/db")?;
        let options = plain().memtable_bytes(1 << 20).history(Retention::All);
        let k = db.keyspace("k", options)?;
        let key = |i: u64| format!("{i:05}");
        let fill = |k: &Keyspace, from: u64| {
            let value = |i: u64| ["drop", "replace", "keep"][(i % 3) as usize];
            (0..200).try_for_each(|i| k.put_at(key(i), value(i), Time::from_micros(from + i)))
        };
        fill(&k, 1000)?;
        // These are older versions already.
        fill(&k, 2000)?;
        k.compact()?;
        db.close()?;
        let db = builder(&env, 1).options(large).compaction_filter("k", filter).open("/db")?;
        let k = db.open_keyspace("k")?;
        let everything = |found: Versions| found.collect::<Result<Vec<Version>>>();
        let compacts = thread::spawn({
            let k = k.clone();
            move || k.compact()
        });
        filter_is_there.recv().unwrap();
        let before = everything(k.changes::<&str>(.., ..)?)?;
        let as_of = |found: RangeAt| found.collect::<Result<Vec<EntryAt>>>();
        let then = Time::from_micros(1500);
        let before_then = as_of(k.range_at::<&str>(then, ..)?)?;
        let (snapshot, tx) = (db.snapshot(), db.begin());
        let (mut forward, mut backward) = (k.changes::<&str>(.., ..)?, k.changes::<&str>(.., ..)?);
        let (first, last) = (forward.next().transpose()?, backward.next_back().transpose()?);
        go_on.send(()).unwrap();
        compacts.join().unwrap()?;
        for flushed in [false, true] {
            if flushed {
                k.put("x", "after")?;
                k.flush()?;
                k.compact()?;
            }
            assert!(everything(snapshot.changes::<&str>(&k, .., ..)?)? == before, "older: {older}");
            let backward: Result<Vec<_>> = snapshot.changes::<&str>(&k, .., ..)?.rev().collect();
            assert!(backward?.into_iter().rev().eq(before.iter().cloned()), "older: {older}");
            assert!(as_of(snapshot.range_at::<&str>(&k, then, ..)?)? == before_then, "older: {older}");
            for i in 0..200 {
                let found = snapshot.get_at(&k, key(i), then)?.map(|v| (v.time, v.value));
                let entry = before_then.iter().find(|entry| entry.key == key(i).as_bytes());
                assert_eq!(found, entry.map(|entry| (entry.time, Some(entry.value.clone()))));
                let newest = before.iter().find(|v| v.key == key(i).as_bytes()).unwrap().value.clone();
                assert_eq!(tx.get(&k, key(i))?, newest);
                let now = |v: Option<Version>| v.and_then(|v| v.value);
                assert_eq!(now(tx.get_at(&k, key(i), Time::MAX)?), newest);
                assert_eq!(now(snapshot.get_at(&k, key(i), Time::MAX)?), newest);
                let found = snapshot.multi_get_at(&k, &[key(i)], Time::MAX)?.pop().unwrap();
                assert_eq!(now(found), newest);
            }
        }
        let rest: Vec<_> = first.into_iter().chain(everything(forward)?).collect();
        assert!(rest == before, "older: {older}");
        let rest: Result<Vec<_>> = last.map(Ok).into_iter().chain(backward.rev()).collect();
        assert!(rest?.into_iter().rev().eq(before.iter().cloned()), "older: {older}");
        drop((snapshot, tx));
        k.compact()?;
        let after = everything(k.changes::<&str>(.., ..)?)?;
        assert_eq!(after.len(), before.len() + 1);
        let of_key = after.iter().take(6).map(|v| v.value.as_deref()).collect::<Vec<_>>();
        let (r, k) = (Some(&b"Replace"[..]), Some(&b"keep"[..]));
        assert_eq!(of_key, [None, None, r, r, k, k]);
    }
    Ok(())
}

#[test]
fn late_writes_and_range_deletes_beside_a_filter_take_effect() -> Result<()> {
    let env = SimEnv::new(1);
    let (filter, filter_is_there, go_on) = waiting_at(|entry| entry.key() == b"first");
    let large = Options::default().background_threads(1).memory_budget(16 << 20).disk_reserve(0);
    let db = builder(&env, 1).options(large).compaction_filter("k", filter).open("/db")?;
    let k = db.keyspace("k", plain().memtable_bytes(1 << 20).history(Retention::All))?;
    let at = |seconds: u64| Time::from_micros(seconds * 1_000_000);
    for key in ["a", "b", "first"] {
        k.put_at(key, "drop", at(10))?;
        k.put_at(key, "replace", at(20))?;
        k.put_at(key, "drop", at(30))?;
    }
    let compacts = thread::spawn({
        let k = k.clone();
        move || k.compact()
    });
    // What it has decided about `a` and `b` is not yet seen.
    filter_is_there.recv().unwrap();
    k.put_at("a", "late", at(10))?;
    k.put_at("a", "late", at(25))?;
    k.delete_at("a", at(20))?;
    k.put_at("b", "late", at(30))?;
    let ended = env_time(&env);
    k.delete_range("b".."c")?;
    let snapshot = db.snapshot();
    let some = |value: &str| Some(value.to_owned());
    let of = |found: Versions| versions_of(found.filter(|v| v.as_ref().is_ok_and(|v| v.time < ended)));
    let before_a = [(30, some("drop")), (25, some("late")), (20, None), (10, some("late"))];
    let before_b = [(30, some("late")), (20, some("replace")), (10, some("drop"))];
    assert_eq!(of(k.history("a", ..)?)?, before_a);
    assert_eq!(of(k.history("b", ..)?)?, before_b);
    go_on.send(()).unwrap();
    compacts.join().unwrap()?;
    for flushed in [false, true] {
        if flushed {
            k.flush()?;
            k.compact()?;
        }
        assert_eq!(of(snapshot.history(&k, "a", ..)?)?, before_a);
        assert_eq!(of(snapshot.history(&k, "b", ..)?)?, before_b);
        assert_eq!(snapshot.get(&k, "b")?, None);
    }
    drop(snapshot);
    k.compact()?;
    assert_eq!(of(k.history("a", ..)?)?, [(30, None), (25, some("late")), (20, None), (10, some("late"))]);
    assert_eq!(of(k.history("b", ..)?)?, [(30, some("late")), (20, some("Replace")), (10, None)]);
    assert_eq!(of(k.history("first", ..)?)?, [(30, None), (20, some("Replace")), (10, None)]);
    assert_eq!(k.get_at("b", at(35))?.unwrap().value.unwrap(), "late");
    assert_eq!((k.get("a")?, k.get("b")?), (None, None));
    let until = k.get_at("b", at(30))?.unwrap().until.unwrap();
    assert!(until >= ended, "a range delete ends it");
    let report = db.check(&mut |_| ())?;
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    Ok(())
}

#[test]
fn retention_counts_what_a_filter_has_dropped() -> Result<()> {
    let cases = [Retention::Versions(2), Retention::Age(100 * SECOND)];
    for (retention, beside_snapshot) in cases.into_iter().flat_map(|r| [(r, false), (r, true)]) {
        let what = format!("{retention}, beside a snapshot: {beside_snapshot}");
        let (env, db, k) = open(plain().history(retention))?;
        let now = env_time(&env);
        let ago = |seconds: u32| now.saturating_sub(seconds * SECOND);
        for (seconds, value) in [(50, "keep"), (40, "drop"), (30, "replace"), (20, "drop"), (10, "keep")] {
            k.put_at("a", value, ago(seconds))?;
            k.put_at("b", value, ago(seconds))?;
        }
        k.put_at("b", "drop", ago(5))?;
        let of = |found: Versions| {
            let found = found.collect::<Result<Vec<_>>>()?;
            Ok::<_, Error>(found.into_iter().map(|v| (v.time, v.value)).collect::<Vec<_>>())
        };
        let some = |value: &str| Some(Slice::from(value));
        if beside_snapshot {
            let before = [of(k.history("a", ..)?)?, of(k.history("b", ..)?)?];
            let snapshot = db.snapshot();
            assert_eq!(before[1][0], (ago(5), some("drop")), "{what}");
            for _ in 0..2 {
                k.compact()?;
                let seen = [of(snapshot.history(&k, "a", ..)?)?, of(snapshot.history(&k, "b", ..)?)?];
                // What retention had not kept when it began may go.
                let kept = if retention.counts_versions() { 2 } else { 6 };
                let same = seen.iter().zip(&before).all(|(s, b)| s.iter().take(kept).eq(b.iter().take(kept)));
                assert!(same, "{what}: {seen:?}, before {before:?}");
            }
        }
        k.compact()?;
        k.compact()?;
        let all = [
            (ago(5), None),
            (ago(10), some("keep")),
            (ago(20), None),
            (ago(30), some("Replace")),
            (ago(40), None),
            (ago(50), some("keep")),
        ];
        let (a, b) = (of(k.history("a", ..)?)?, of(k.history("b", ..)?)?);
        if retention.counts_versions() {
            // One more may be left.
            assert!(all[1..].starts_with(&a) && (2..=3).contains(&a.len()), "{what}: {a:?}");
            assert!(all.starts_with(&b) && (2..=3).contains(&b.len()), "{what}: {b:?}");
        } else {
            assert_eq!((&a[..], &b[..]), (&all[1..], &all[..]), "{what}");
        }
        // Everything but the newest version of `a` becomes too old.
        env.set_wall_clock(now.saturating_add(200 * SECOND));
        k.put("c", "keep")?;
        k.compact()?;
        k.compact()?;
        if !retention.counts_versions() {
            assert_eq!(of(k.history("a", ..)?)?, all[1..2], "{what}");
            assert_eq!(of(k.history("b", ..)?)?, [], "{what}");
        }
        let report = db.check(&mut |_| ())?;
        assert!(report.problems.is_empty(), "{what}: {:?}", report.problems);
    }
    Ok(())
}

#[test]
fn what_has_expired_is_shown_once_it_has_moved() -> Result<()> {
    let (env, db, k) = open(plain().history(Retention::All))?;
    let at = |seconds: u64| Time::from_micros(seconds * 1_000_000);
    let expiry = env_time(&env).saturating_add(Duration::from_secs(10));
    let mut batch = db.batch();
    batch.put_at_until(&k, "dropped", "drop", at(1), expiry);
    batch.put_at_until(&k, "replaced", "replace", at(1), expiry);
    // The filter is not asked about it before it has moved.
    let reader = {
        db.write(batch, Durability::Os)?;
        db.snapshot()
    };
    k.compact()?;
    assert_eq!(k.get_at("dropped", at(1))?.unwrap().value.unwrap(), "drop");
    env.set_wall_clock(expiry.saturating_add(SECOND));
    drop(reader);
    for _ in 0..3 {
        k.compact()?;
    }
    let of = |key: &str| versions_of(k.history(key, ..)?);
    let end = expiry.micros() / 1_000_000;
    assert_eq!(of("dropped")?, [(1, None)]);
    assert_eq!(of("replaced")?, [(end, None), (1, Some("Replace".to_owned()))]);
    assert_eq!(k.get_at("replaced", at(1))?.unwrap().expiry, Some(expiry));
    assert_eq!(k.iter().count(), 0);
    let report = db.check(&mut |_| ())?;
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    Ok(())
}

/// A delete of the same time replaces a version: nothing is asked about that any more, also where both are older versions.
#[test]
fn what_a_delete_has_replaced_is_not_shown() -> Result<()> {
    let env = SimEnv::new(1);
    let asked = Arc::new(Mutex::new(Vec::new()));
    let to = asked.clone();
    let filter = move |entry: &FilterEntry<'_>| {
        to.lock().unwrap().push(entry.value()?.to_vec());
        Ok(FilterDecision::Keep)
    };
    let db = builder(&env, 0).compaction_filter("k", filter).open("/db")?;
    let k = db.keyspace("k", plain().history(Retention::All))?;
    k.put_at("k", "replaced", Time::from_micros(10))?;
    k.put_at("k", "newest", Time::from_micros(20))?;
    let snapshot = db.snapshot();
    k.compact()?;
    assert_eq!(*asked.lock().unwrap(), [b""; 0], "a reader sees them");
    drop(snapshot);
    k.delete_at("k", Time::from_micros(10))?;
    k.flush()?;
    k.compact()?;
    let shown = std::mem::take(&mut *asked.lock().unwrap());
    assert!(shown.iter().all(|value| value == b"newest") && !shown.is_empty(), "{shown:?}");
    assert_eq!(k.history("k", ..)?.count(), 2);
    Ok(())
}

#[test]
fn a_keyspace_is_dropped_while_a_filter_looks_at_its_older_versions() -> Result<()> {
    let env = SimEnv::new(1);
    let (filter, filter_is_there, go_on) = waiting_at(|entry| entry.time() == Some(Time::from_micros(10)));
    let large = Options::default().background_threads(1).memory_budget(16 << 20).disk_reserve(0);
    let db = builder(&env, 1).options(large).compaction_filter("k", filter).open("/db")?;
    let k = db.keyspace("k", plain().history(Retention::All))?;
    k.put_at("k", "drop", Time::from_micros(10))?;
    k.put_at("k", "keep", Time::from_micros(20))?;
    let snapshot = db.snapshot();
    // The reader sees both versions: this moves the older one, and does not ask.
    k.compact()?;
    drop(snapshot);
    let compacts = thread::spawn({
        let k = k.clone();
        move || k.compact()
    });
    filter_is_there.recv().unwrap();
    let found = k.history("k", ..)?;
    db.drop_keyspace("k")?;
    go_on.send(()).unwrap();
    assert!(compacts.join().unwrap().map_or_else(|e| e.kind() == ErrorKind::Closed, |()| true));
    let found: Vec<_> = found.map(|v| v.map(|v| v.value)).collect::<Result<_>>()?;
    assert_eq!(
        found,
        [Some(Slice::from("keep")), Some("drop".into())],
        "a reader of a dropped keyspace goes on"
    );
    let k = db.create_keyspace("k", plain())?;
    k.put("k", "drop")?;
    k.compact()?;
    assert_eq!(k.get("k")?, None);
    db.close()
}
