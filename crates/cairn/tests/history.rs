//! Keyspaces with history: directed cases. `crates/sim/src/versions` compares them with a model.

use cairn::env::{Rng, SimEnv};
use cairn::{
    Database, Durability, ErrorKind, Keyspace, KeyspaceOptions, KeyspaceStats, Options, Preset, Result,
    Retention, Slice, Time, Version,
};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

const KEYS: u64 = 60;

fn key(i: u64) -> Vec<u8> {
    format!("k{i}").into_bytes()
}

fn options() -> KeyspaceOptions {
    KeyspaceOptions::preset(Preset::Mneme).memtable_bytes(16 << 10)
}

struct Open {
    env: Arc<SimEnv>,
    db: Database,
    keyspace: Keyspace,
    /// Without history.
    plain: Keyspace,
}

fn open() -> Result<Open> {
    let env = SimEnv::new(1);
    let options_of_db = Options::default().background_threads(0).memory_budget(1 << 20);
    let db = Database::open_in(env.clone(), "/db", options_of_db)?;
    let keyspace = db.keyspace("k", options())?;
    let plain = db.keyspace("plain", KeyspaceOptions::default())?;
    Ok(Open { env, db, keyspace, plain })
}

#[test]
fn compactions_leave_the_newest_versions_alone_in_the_primary_tree() -> Result<()> {
    let open = self::open()?;
    let mut rng = Rng::new(1);
    for _ in 0..20 {
        for i in 0..KEYS {
            let mut value = vec![0; 500];
            rng.fill(&mut value);
            open.keyspace.put(key(i), &value)?;
        }
    }
    open.keyspace.compact()?;
    let entries: u64 = open.keyspace.guards().iter().flat_map(|g| &g.tables).map(|t| t.entries).sum();
    assert_eq!(entries, KEYS);
    assert_eq!(open.keyspace.stats().waiting_bytes, 0);
    assert_eq!(open.keyspace.changes::<&[u8]>(.., ..)?.count(), 20 * KEYS as usize);
    for i in 0..KEYS {
        open.keyspace.delete(key(i))?;
    }
    open.keyspace.compact()?;
    let tables = open.keyspace.guards().iter().map(|g| g.tables.len()).sum::<usize>();
    assert_eq!((tables, open.keyspace.iter().count()), (0, 0), "deletes move to the other tree, too");
    assert_eq!(open.keyspace.changes::<&[u8]>(.., ..)?.count(), 21 * KEYS as usize);
    Ok(())
}

#[test]
fn what_has_no_history_is_refused_by_name() -> Result<()> {
    let open = self::open()?;
    let refused = [
        open.plain.history("a", ..).err(),
        open.plain.changes::<&[u8]>(.., ..).err(),
        open.plain.range_at::<&[u8]>(Time::MAX, ..).err(),
        open.plain.get_at("a", Time::MAX).err(),
        open.plain.multi_get_at(&["a"], Time::MAX).err(),
        open.db.snapshot().history(&open.plain, "a", ..).err(),
    ];
    for error in refused {
        let error = error.expect("a keyspace without history has no versions");
        assert!(error.kind() == ErrorKind::InvalidArgument && error.to_string().contains("plain"), "{error}");
    }
    let long = vec![0; cairn::limits::MAX_KEY_LEN / 2];
    assert_eq!(open.keyspace.put(&long, "").unwrap_err().kind(), ErrorKind::InvalidArgument);
    open.keyspace.put(&long[5..], "")?;
    open.keyspace.put(&long[5..], "again")?;
    open.keyspace.compact()?;
    assert_eq!(open.keyspace.history(&long[5..], ..)?.count(), 2);
    // Windows without any time.
    let (a, b) = (Time::from_micros(5), Time::from_micros(6));
    let after = (Bound::Excluded(Time::MAX), Bound::Unbounded);
    assert_eq!(open.keyspace.history("k0", b..a)?.count(), 0);
    assert_eq!(open.keyspace.history("k0", a..a)?.count() + open.keyspace.history("k0", after)?.count(), 0);
    let mut cursor = open.keyspace.history("k0", b..a)?.cursor();
    cursor.seek_to_first()?;
    assert!(!cursor.valid());
    cursor.seek_to_last()?;
    assert!(!cursor.valid());
    Ok(())
}

#[test]
fn both_parts_of_a_keyspace_come_and_go_together() -> Result<()> {
    let Open { env, db, keyspace, plain } = self::open()?;
    for i in 0..200u64 {
        keyspace.put(key(i % 7), vec![7; 3000 + i as usize])?;
    }
    keyspace.compact()?;
    let mut held = keyspace.changes::<&[u8]>(.., ..)?;
    let before = held.next().transpose()?;
    assert!(before.is_some());
    let (unused, unused_cursor) =
        (keyspace.changes::<&[u8]>(.., ..)?, keyspace.changes::<&[u8]>(.., ..)?.cursor());
    assert!(env.list_files().iter().any(|path| path.extension().is_some_and(|e| e == "tbl")));
    assert_eq!(db.keyspaces(), ["k", "plain"], "the older versions are in no keyspace that is listed");
    assert_eq!(
        db.create_keyspace("k", KeyspaceOptions::default()).unwrap_err().kind(),
        ErrorKind::AlreadyExists
    );
    db.drop_keyspace("k")?;
    assert_eq!(db.keyspaces(), ["plain"]);
    assert_eq!(held.next_back().transpose()?.map(|version| version.key), Some(key(6).into()));
    assert_eq!(held.count(), 198, "an iterator goes on, also with an end that was not used yet");
    assert_eq!(unused.count(), 200);
    let mut cursor = unused_cursor;
    cursor.seek_to_last()?;
    assert!(cursor.valid());
    drop(cursor);
    for error in
        [keyspace.put("a", "").err(), keyspace.history("a", ..).err(), keyspace.get_at("a", Time::MAX).err()]
    {
        assert_eq!(error.expect("the keyspace was dropped").kind(), ErrorKind::Closed);
    }
    db.wait_idle()?;
    let tables = env.list_files().iter().filter(|path| path.extension().is_some_and(|e| e == "tbl")).count();
    assert_eq!(tables, 0, "{:?}", env.list_files());
    let again = db.create_keyspace("k", options())?;
    again.put("a", "1")?;
    assert_eq!(again.changes::<&[u8]>(.., ..)?.count(), 1);
    plain.put("a", "1")?;
    db.close()?;
    let db = Database::open_in(env, "/db", Options::default())?;
    assert_eq!(db.keyspaces(), ["k", "plain"]);
    let again = db.open_keyspace("k")?;
    assert_eq!((again.options().history, again.history("a", ..)?.count()), (Retention::All, 1));
    Ok(())
}

/// Batches in which a range delete meets writes to the same keys.
#[test]
fn a_range_delete_counts_after_what_precedes_it_and_after_writes_with_earlier_times() -> Result<()> {
    for flushes in [false, true] {
        let open = self::open()?;
        let at = Time::from_micros;
        let keyspace = &open.keyspace;
        keyspace.put_at("a", "1", at(10))?;
        keyspace.put_at("c", "1", at(20))?;
        let mut batch = open.db.batch();
        batch.put(keyspace, "a", "2");
        batch.put_at(keyspace, "b", "before", at(30));
        batch.delete_range(keyspace, "a".."c");
        batch.put_at(keyspace, "b", "with an earlier time", at(40));
        batch.put(keyspace, "c", "2");
        open.env.set_wall_clock(at(100));
        open.db.write(batch, Durability::Os)?;
        if flushes {
            open.keyspace.compact()?;
        }
        let seen = |key: &str| -> Result<Vec<_>> {
            let text = |version: Version| {
                let value = version.value.map(|v| String::from_utf8(v.to_vec()).expect("text"));
                (version.time.micros(), version.until.map(Time::micros), value)
            };
            keyspace.history(key, ..)?.map(|version| version.map(text)).collect()
        };
        let value = |text: &str| Some(text.to_owned());
        assert_eq!(seen("a")?, [(100, None, None), (10, Some(100), value("1"))]);
        assert_eq!(
            seen("b")?,
            [
                (100, None, None),
                (40, Some(100), value("with an earlier time")),
                (30, Some(40), value("before"))
            ]
        );
        assert_eq!(seen("c")?, [(100, None, value("2")), (20, Some(100), value("1"))]);
        let backward: Vec<_> =
            keyspace.history("a", ..)?.rev().map(|v| v.map(|v| v.time.micros())).collect::<Result<_>>()?;
        assert_eq!(backward, [10, 100]);
        assert_eq!(keyspace.iter().count(), 1);
        assert!(keyspace.get_at("b", at(99))?.is_some() && keyspace.get_at("b", at(100))?.is_none());
        // The range is deleted as of 100, also for what is written later with earlier times.
        keyspace.put_at("b", "late", at(90))?;
        assert!(keyspace.get("b")?.is_none() && keyspace.get_at("b", at(95))?.is_some());
        keyspace.put_at("b", "at the same time", at(100))?;
        assert_eq!(keyspace.get("b")?.as_deref(), Some(&b"at the same time"[..]));
    }
    Ok(())
}

#[test]
fn whole_tables_expire_without_being_read() -> Result<()> {
    let env = SimEnv::new(1);
    let options = Options::default().background_threads(0).memory_budget(1 << 20);
    let db = Database::open_in(env.clone(), "/db", options)?;
    let retention = Retention::Age(Duration::from_secs(60));
    let keyspace = db.keyspace("k", self::options().history(retention))?;
    let (start, mut rng) = (Time::from_micros(1_700_000_000_000_000), Rng::new(9));
    for i in 0..4000u64 {
        env.set_wall_clock(start.saturating_add(Duration::from_millis(i)));
        let mut value = vec![0; 300];
        rng.fill(&mut value);
        keyspace.put(key(i % 50), value)?;
    }
    keyspace.compact()?;
    db.wait_idle()?;
    let history = |db: &Database| *db.stats().keyspaces[0].history.clone().expect("it has history");
    let (before, read) = (history(&db), db.stats().compaction.bytes_read);
    assert!(before.table_bytes > 1_000_000 && before.expired_bytes == 0, "{before:?}");
    env.set_wall_clock(start.saturating_add(Duration::from_secs(62)));
    let half = history(&db).expired_bytes as f64 / before.table_bytes as f64;
    assert!((0.4..0.6).contains(&half), "after half of the time {half} has expired");
    env.set_wall_clock(start.saturating_add(Duration::from_secs(120)));
    let due = history(&db);
    assert_eq!(due.expired_bytes, due.table_bytes, "all of it has expired");
    assert!(due.to_string().contains("have expired and wait for compactions"), "{due}");
    db.wait_idle()?;
    let after = history(&db);
    assert_eq!(after.expired_bytes, 0);
    assert_eq!((after.table_bytes, db.stats().compaction.bytes_read - read), (0, 0), "{after:?}");
    assert_eq!(keyspace.changes::<&[u8]>(.., ..)?.count(), 50, "the newest versions");
    Ok(())
}

#[test]
fn pauses_merge_older_versions_only_where_their_number_counts_and_statistics_tell_what_is_beyond()
-> Result<()> {
    const KEYS: u64 = 1500;
    let options = Options::default().background_threads(0).memory_budget(1 << 20);
    let load = |retention| -> Result<(KeyspaceStats, u64)> {
        let db = Database::open_in(SimEnv::new(1), "/db", options.clone())?;
        let keyspace = db.keyspace("k", self::options().memtable_bytes(128 << 10).history(retention))?;
        let history = || *db.stats().keyspaces[0].history.clone().expect("it has history");
        let (mut rng, mut expired) = (Rng::new(9), 0);
        for i in 0..30 * KEYS {
            let mut value = vec![0; 300];
            rng.fill(&mut value);
            keyspace.put(key(rng.below(KEYS)), value)?;
            if i % KEYS == 0 {
                expired = expired.max(history().expired_bytes);
            }
        }
        db.wait_idle()?;
        Ok((history(), expired))
    };
    let is_idle = |stats: &KeyspaceStats| stats.compactions_by_reason.iter().any(|(of, _)| of == "idle");
    let (all, expired) = load(Retention::All)?;
    assert!(all.table_bytes > 25 * KEYS * 300 && expired == 0 && !is_idle(&all), "{expired}: {all}");
    let (three, expired) = load(Retention::Versions(3))?;
    // Two of the three are there, and little beside them.
    assert!((KEYS * 500..KEYS * 900).contains(&three.table_bytes) && is_idle(&three), "{three}");
    assert!(expired > KEYS * 300 && three.expired_bytes < KEYS * 60, "{expired}: {three}");
    let age = Duration::from_secs(1_000_000);
    assert!(!is_idle(&load(Retention::Age(age))?.0));
    assert!(is_idle(&load(Retention::VersionsOrAge(3, Duration::from_micros(1)))?.0));
    Ok(())
}

#[test]
fn a_write_before_what_is_kept_is_refused_or_left_out() -> Result<()> {
    let env = SimEnv::new(1);
    let db = Database::open_in(env.clone(), "/db", Options::default().background_threads(0))?;
    let retention = Retention::Age(Duration::from_secs(60));
    let keyspace = db.keyspace("k", self::options().history(retention))?;
    let now = Time::from_micros(1_700_000_000_000_000);
    env.set_wall_clock(now);
    let (kept, old) =
        (now.saturating_sub(Duration::from_secs(59)), now.saturating_sub(Duration::from_secs(61)));
    keyspace.put_at("a", "kept", kept)?;
    let error = keyspace.put_at("a", "old", old).unwrap_err();
    assert!(error.kind() == ErrorKind::Expired && error.to_string().contains("age(1min)"), "{error}");
    assert_eq!(keyspace.delete_at("b", old).unwrap_err().kind(), ErrorKind::Expired);
    let mut batch = db.batch();
    batch.put_at(&keyspace, "a", "old", old);
    batch.put_at(&keyspace, "c", "kept", kept);
    assert_eq!(db.write(batch, Durability::Os).unwrap_err().kind(), ErrorKind::Expired);
    assert!(keyspace.get("c")?.is_none(), "all or nothing");
    let mut batch = db.batch();
    batch.put_at(&keyspace, "a", "old", old);
    batch.put_at(&keyspace, "c", "kept", kept);
    batch.skip_expired();
    db.write(batch, Durability::Sync)?;
    let mut batch = db.batch();
    batch.put_at(&keyspace, "a", "old", old);
    batch.skip_expired();
    db.write(batch, Durability::Sync)?;
    keyspace.put("d", "after a batch of which nothing was left")?;
    assert_eq!(keyspace.stats().skipped_writes, 2);
    assert!(keyspace.stats().to_string().contains("2 late writes from before what is kept were left out"));
    assert_eq!(keyspace.changes::<&[u8]>(.., ..)?.count(), 3);
    let far = now.saturating_add(Duration::from_secs(2 * 86_400));
    assert_eq!(keyspace.put_at("a", "", far).unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert_eq!(keyspace.put_at("a", "", Time::MAX).unwrap_err().kind(), ErrorKind::InvalidArgument);
    for (time, is_taken) in [(1 << 63, true), ((1 << 63) + 1, false), (u64::MAX, false)] {
        let db = Database::open_in(SimEnv::new(2), "/db", Options::default())?;
        let keyspace = db.keyspace("k", self::options().history(Retention::All))?;
        let mut batch = db.batch();
        batch.put_at(&keyspace, "a", "", Time::from_micros(time));
        batch.take_any_time();
        let result = db.write(batch, Durability::Os);
        assert_eq!(
            result.map_err(|e| e.kind()),
            if is_taken { Ok(()) } else { Err(ErrorKind::InvalidArgument) }
        );
        keyspace.put("a", "later")?;
        assert_eq!(keyspace.get("a")?.as_deref(), Some(&b"later"[..]));
    }
    drop(keyspace);
    db.close()?;
    let db = Database::open_in(env, "/db", Options::default())?;
    assert_eq!(db.open_keyspace("k")?.changes::<&[u8]>(.., ..)?.count(), 3);
    Ok(())
}

#[test]
fn a_removed_version_is_the_newest_as_of_the_time_and_ends_then() -> Result<()> {
    let Open { env, db, keyspace, plain } = self::open()?;
    let at = |second: u64| Time::from_micros(second * 1_000_000);
    for second in [10, 20, 30] {
        keyspace.put_at("k", format!("of {second}"), at(second))?;
    }
    let removed = |time| Ok::<_, cairn::Error>(keyspace.remove_at("k", time)?.map(|v| (v.time, v.value)));
    assert_eq!(removed(at(5))?, None, "there was none yet; now a delete is there");
    assert_eq!(removed(at(25))?, Some((at(20), Some(b"of 20"[..].into()))));
    assert_eq!(removed(at(27))?, None, "a delete");
    assert_eq!(
        removed(at(30))?,
        Some((at(30), Some(b"of 30"[..].into()))),
        "replaced by a delete of the same time"
    );
    assert_eq!(removed(at(40))?, None);
    keyspace.put_at("k", "of 50", at(50))?;
    assert_eq!(removed(at(60))?, Some((at(50), Some(b"of 50"[..].into()))));
    assert!(keyspace.get("k")?.is_none());
    let times = |keyspace: &Keyspace| -> Result<Vec<u64>> {
        keyspace.history("k", ..)?.map(|v| Ok(v?.time.micros() / 1_000_000)).collect()
    };
    assert_eq!(times(&keyspace)?, [60, 50, 40, 30, 27, 25, 20, 10, 5]);
    assert_eq!(plain.remove_at("k", at(1)).unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert_eq!(keyspace.remove_at("k", Time::MAX).unwrap_err().kind(), ErrorKind::InvalidArgument);
    let long = vec![0; cairn::limits::MAX_KEY_LEN + 1];
    assert_eq!(keyspace.remove_at(long, at(1)).unwrap_err().kind(), ErrorKind::InvalidArgument);
    drop((keyspace, plain));
    db.close()?;
    let db = Database::open_in(env, "/db", Options::default())?;
    assert_eq!(times(&db.open_keyspace("k")?)?, [60, 50, 40, 30, 27, 25, 20, 10, 5]);
    Ok(())
}

#[test]
fn single_writes_with_times_are_recovered_with_them() -> Result<()> {
    let Open { env, db, keyspace, .. } = self::open()?;
    let at = |second: u64| Time::from_micros(second * 1_000_000);
    env.set_wall_clock(at(1000));
    // In order, late, at the same time, and one without a time between them.
    for (second, value) in [(500, "a"), (600, "b"), (550, "c"), (600, "d")] {
        keyspace.put_at("k", value, at(second))?;
    }
    keyspace.put("k", "now")?;
    keyspace.delete_at("k", at(700))?;
    keyspace.put_at("k", "ahead", at(2000))?;
    keyspace.put("k", "after it")?;
    let ahead = at(1000 + 2 * 86_400);
    assert_eq!(keyspace.put_at("k", "", ahead).unwrap_err().kind(), ErrorKind::InvalidArgument);
    let versions = |keyspace: &Keyspace| -> Result<Vec<(u64, Option<String>)>> {
        let of =
            |v: Version| (v.time.micros(), v.value.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()));
        keyspace.history("k", ..)?.rev().map(|version| Ok(of(version?))).collect()
    };
    let some = |value: &str| Some(value.to_owned());
    let expected = [
        (at(500).micros(), some("a")),
        (at(550).micros(), some("c")),
        (at(600).micros(), some("d")),
        (at(700).micros(), None),
        (at(1000).micros(), some("now")),
        (at(2000).micros(), some("ahead")),
        (at(2000).micros() + 1, some("after it")),
    ];
    assert_eq!(versions(&keyspace)?, expected);
    drop(keyspace);
    drop(db);
    let db = Database::open_in(env, "/db", Options::default().background_threads(0))?;
    let keyspace = db.open_keyspace("k")?;
    assert_eq!(versions(&keyspace)?, expected);
    keyspace.put("k", "later than all")?;
    keyspace.put_at("k", "late", at(1500))?;
    assert_eq!(keyspace.get("k")?.as_deref(), Some(&b"later than all"[..]));
    Ok(())
}

#[test]
fn a_retention_that_cannot_be_written_as_text_is_refused() -> Result<()> {
    let Open { env, db, .. } = self::open()?;
    let (micro, less) = (Duration::from_micros(1), Duration::from_nanos(1500));
    let wrong = [
        Retention::Versions(0),
        Retention::Age(Duration::ZERO),
        Retention::Age(less),
        Retention::VersionsOrAge(0, micro),
        Retention::VersionsOrAge(1, Duration::ZERO),
    ];
    for retention in wrong {
        let error = db.create_keyspace("new", options().history(retention)).err();
        let error = error.unwrap_or_else(|| panic!("{retention:?} is accepted"));
        assert!(
            error.kind() == ErrorKind::InvalidArgument && error.to_string().contains("history"),
            "{error}"
        );
    }
    let right =
        [Retention::Versions(1), Retention::Age(micro), Retention::VersionsOrAge(u64::MAX, Duration::MAX)];
    assert!(
        db.create_keyspace("long", options().history(right[2])).is_err(),
        "more microseconds than there are"
    );
    for (name, retention) in ["x", "y"].into_iter().zip(right) {
        db.create_keyspace(name, options().history(retention))?;
    }
    db.close()?;
    let db = Database::open_in(env, "/db", Options::default())?;
    for (name, retention) in ["x", "y"].into_iter().zip(right) {
        assert_eq!(db.open_keyspace(name)?.options().history, retention);
    }
    Ok(())
}

/// Times of callers may be after the clock. Retention goes by the clock.
#[test]
fn a_time_after_the_clock_makes_nothing_expire() -> Result<()> {
    let env = SimEnv::new(1);
    let now = Time::from_micros(1_700_000_000_000_000);
    env.set_wall_clock(now);
    let db = Database::open_in(env.clone(), "/db", Options::default().background_threads(0))?;
    let retention = Retention::Age(Duration::from_secs(3600));
    let keyspace = db.keyspace("k", options().history(retention))?;
    let ahead = db.keyspace("ahead", options())?;
    let hours = |hours: u64| Duration::from_secs(3600 * hours);
    keyspace.put("a", "1")?;
    keyspace.put("a", "2")?;
    ahead.put_at("b", "", now.saturating_add(hours(23)))?;
    keyspace.compact()?;
    assert_eq!(keyspace.history("a", ..)?.count(), 2);
    keyspace.put_at("a", "0", now.saturating_sub(hours(1)))?;
    assert_eq!(keyspace.history("a", ..)?.count(), 3);
    // Each time is compared with the clock, and not with the one before.
    let error = ahead.put_at("b", "", now.saturating_add(hours(46))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    // Times that the database has reached are allowed.
    ahead.put_at("b", "", now.saturating_add(hours(23)))?;
    keyspace.put("a", "3")?;
    env.set_wall_clock(now.saturating_add(hours(30)));
    keyspace.put("a", "4")?;
    keyspace.compact()?;
    env.set_wall_clock(now.saturating_add(hours(32)));
    db.wait_idle()?;
    assert_eq!(keyspace.history("a", ..)?.count(), 1);
    // The clock is set back, also beside a new start: what was removed then is not kept now.
    env.set_wall_clock(now.saturating_add(hours(1)));
    let before = now.saturating_add(hours(28));
    assert_eq!(keyspace.put_at("a", "", before).unwrap_err().kind(), ErrorKind::Expired);
    drop((keyspace, ahead));
    db.close()?;
    let db = Database::open_in(env, "/db", Options::default())?;
    let keyspace = db.open_keyspace("k")?;
    assert_eq!(keyspace.put_at("a", "", before).unwrap_err().kind(), ErrorKind::Expired);
    Ok(())
}

/// Also when a batch has to be changed before it is written.
#[test]
fn a_batch_for_keyspaces_of_two_databases_is_refused() -> Result<()> {
    let (one, other) = (self::open()?, self::open()?);
    let at = Time::from_micros;
    one.keyspace.put_at("x", "new", at(20))?;
    let mut batch = one.db.batch();
    batch.put_at(&one.keyspace, "x", "late", at(10));
    batch.put_at(&other.keyspace, "y", "", at(30));
    assert_eq!(one.db.write(batch, Durability::Os).unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert!(one.keyspace.get("y")?.is_none() && one.keyspace.history("x", ..)?.count() == 1);
    other.keyspace.put_at("y", "needs no look-up", at(25))?;
    assert_eq!(other.keyspace.history("y", ..)?.count(), 1);
    Ok(())
}

/// Late writes of several threads, which are committed in groups: also on the same keys.
#[test]
fn late_writes_of_a_group_are_compared_with_each_other() -> Result<()> {
    let db = Database::open_in(SimEnv::new(1), "/db", Options::default())?;
    let keyspace = db.keyspace("k", options())?;
    let (threads, rounds) = (8, 300);
    keyspace.put_at("end", "", Time::from_micros(1_000_000))?;
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (db, keyspace) = (&db, &keyspace);
            scope.spawn(move || {
                for i in 0..rounds {
                    let time = 1 + (i * 7919 + thread * 104_729) % 999_983;
                    let mut batch = db.batch();
                    batch.put_at(keyspace, key(i % 3), time.to_string(), Time::from_micros(time));
                    db.write(batch, Durability::Sync).expect("the write");
                }
            });
        }
    });
    for i in 0..3 {
        let versions: Vec<Version> = keyspace.history(key(i), ..)?.collect::<Result<_>>()?;
        assert_eq!(versions.len() as u64, threads * rounds / 3);
        let mut until = None;
        for version in versions {
            assert_eq!(version.until, until, "{version:?}");
            assert_eq!(version.value.as_deref(), Some(version.time.micros().to_string().as_bytes()));
            until = Some(version.time);
        }
    }
    Ok(())
}

#[test]
fn a_range_delete_in_the_first_batch_covers_later_entries_with_earlier_times() -> Result<()> {
    let db = Database::open_in(SimEnv::new(1), "/db", Options::default().background_threads(0))?;
    let keyspace = db.keyspace("k", options())?;
    let mut batch = db.batch();
    batch.delete_range(&keyspace, "a".."z");
    batch.put_at(&keyspace, "k", "before", Time::from_micros(5));
    db.write(batch, Durability::Os)?;
    assert!(keyspace.get("k")?.is_none());
    assert_eq!(keyspace.history("k", ..)?.count(), 2);
    Ok(())
}

#[test]
fn a_snapshot_keeps_a_range_delete_that_a_version_of_its_time_replaces() -> Result<()> {
    let db = Database::open_in(SimEnv::new(1), "/db", Options::default().background_threads(0))?;
    let keyspace = db.keyspace("k", options())?;
    keyspace.put("k", "1")?;
    keyspace.delete_range("a".."z")?;
    let deleted = keyspace.history("k", ..)?.next().unwrap()?;
    let snapshot = db.snapshot();
    keyspace.put_at("k", "2", deleted.time)?;
    for compacted in [false, true] {
        if compacted {
            keyspace.compact()?;
        }
        let seen = snapshot.history(&keyspace, "k", ..)?.collect::<Result<Vec<_>>>()?;
        assert!(seen.len() == 2 && seen[0] == deleted, "{compacted}: {seen:?}");
        let now = keyspace.history("k", ..)?.map(|v| v.map(|v| v.value)).collect::<Result<Vec<_>>>()?;
        assert_eq!(now, ["2", "1"].map(|v| Some(Slice::copy_from(v.as_bytes()))));
    }
    Ok(())
}

/// Late writes, removals and queries in other threads, while the keyspace is dropped or the database closed.
#[test]
fn late_writes_beside_a_drop_and_a_close_end_with_an_error() -> Result<()> {
    for round in 0..40 {
        let env = SimEnv::new(round);
        let db = Database::open_in(env.clone(), "/db", Options::default().memory_budget(1 << 20))?;
        let keyspace = db.keyspace("k", options().memtable_bytes(4 << 10))?;
        let other = db.keyspace("other", options())?;
        let started = std::sync::Barrier::new(3);
        std::thread::scope(|scope| {
            for thread in 0..2u64 {
                let (db, keyspace, other, started) = (db.clone(), keyspace.clone(), other.clone(), &started);
                scope.spawn(move || {
                    let call = |i: u64| {
                        let (key, time) = (key(i % 7), Time::from_micros(1 + i * 7919 % 1000));
                        match (i + thread) % 4 {
                            0 => keyspace.put_at(&key, "late", time),
                            1 => keyspace.remove_at(&key, time).map(|_| ()),
                            2 => keyspace.history(&key, ..)?.try_for_each(|version| version.map(|_| ())),
                            _ => {
                                let mut batch = db.batch();
                                batch.put_at(&keyspace, &key, "late", time);
                                batch.put_at(&other, &key, "late", time);
                                db.write(batch, Durability::Os)
                            }
                        }
                    };
                    started.wait();
                    let error = (0..).find_map(|i| call(i).err()).unwrap();
                    assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
                });
            }
            started.wait();
            std::thread::sleep(Duration::from_micros(500 * round));
            match round % 2 {
                0 => db.drop_keyspace("k"),
                _ => db.clone().close(),
            }
        })?;
        drop((keyspace, other));
        db.close()?;
        let report = cairn::check_in(env.clone(), "/db", &mut |_| ())?;
        assert!(report.problems.is_empty(), "{:?}", report.problems);
        let db = Database::open_in(env, "/db", Options::default())?;
        assert_eq!(db.keyspaces().len(), if round % 2 == 0 { 1 } else { 2 });
    }
    Ok(())
}

/// A table that has nothing of the range at that time, and much behind it, is not walked through from its end.
#[test]
fn a_range_as_of_a_time_reads_no_more_backward_than_forward() -> Result<()> {
    let env = SimEnv::new(1);
    let options = Options::default().background_threads(0).memory_budget(64 << 20);
    let db = Database::open_in(env.clone(), "/db", options)?;
    let keyspace = db.keyspace("k", self::options().memtable_bytes(8 << 20))?;
    let start = Time::from_micros(1_700_000_000_000_000);
    let at = |seconds| start.saturating_add(Duration::from_secs(seconds));
    let key = |i: u64| format!("{i:05}");
    let mut rng = Rng::new(1);
    let mut put = |seconds, keys: std::ops::Range<u64>| -> Result<()> {
        env.set_wall_clock(at(seconds));
        for i in keys {
            let mut value = vec![0; 300];
            rng.fill(&mut value);
            keyspace.put(key(i), value)?;
        }
        Ok(())
    };
    put(10, 0..4000)?;
    db.flush()?;
    // In one table: what is later than the time of the query, and behind it what is not.
    put(20, 2000..4000)?;
    put(40, 0..2000)?;
    db.flush()?;
    let read = |back: bool| -> Result<u64> {
        let before = db.stats().cache.bytes_read;
        let range = keyspace.range_at(at(30), key(900)..key(1000))?;
        let found: Result<Vec<_>> = if back { range.rev().collect() } else { range.collect() };
        assert_eq!(found?.len(), 100);
        Ok(db.stats().cache.bytes_read - before)
    };
    // The first reads of footers and indexes.
    read(false)?;
    let (forward, backward) = (read(false)?, read(true)?);
    assert!(backward < forward + 64_000, "{backward} bytes backward, {forward} forward");
    // Past more later versions than are stepped over one by one.
    for _ in 0..12 {
        put(50, 900..1000)?;
    }
    db.flush()?;
    let turned = read(false)?;
    assert!(turned < 3 * forward + 200_000, "{turned} bytes, {forward} before");
    Ok(())
}
