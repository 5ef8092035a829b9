//! Jobs in which versions expire, and the retention changes: what is kept is there, and what is found was written.

use super::model::{Model, Written};
use super::queries::{Reads, reversed, same};
use super::stage::{KEYS, Open, key, options, value};
use super::writes::{Write, after_at, batch, tick, time_of_batch};
use crate::random::Rng;
use cairn::env::{SimEnv, Survival};
use cairn::{
    Database, Durability, EntryAt, ErrorKind, IngestOptions, Keyspace, KeyspaceOptions, Options, Result,
    Retention, Snapshot, Time, Version, Versions,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The versions that a retention keeps for certain at `now`.
pub(super) fn kept(model: &Model, retention: Retention, now: Time) -> Vec<Version> {
    let mut kept = Vec::new();
    for key in model.versions.keys() {
        for (i, version) in model.of_key(key, Time::MIN, Time::MAX).into_iter().enumerate() {
            // A delete may expire by its own time.
            let end = match version.value {
                Some(_) => version.until.unwrap_or(Time::MAX),
                None => version.time,
            };
            let by_age = |age| end > now.saturating_sub(age);
            let is_kept = match retention {
                Retention::All => true,
                Retention::None => i == 0,
                Retention::Versions(n) => (i as u64) < n,
                Retention::Age(age) => by_age(age),
                Retention::VersionsOrAge(n, age) => (i as u64) < n || by_age(age),
            };
            if is_kept && model.forgotten.get(key).is_none_or(|time| version.time > *time) {
                kept.push(version);
            }
        }
    }
    kept
}

/// What is found has been written, and what retention keeps is found, with its end. What has expired may be found, also if it was replaced by
/// a write at the same time.
pub(super) fn keeps(found: &[Version], model: &Model, retention: Retention, now: Time) {
    let all = model.changes((b"", None), Time::MIN, Time::MAX);
    let kept = kept(model, retention, now);
    for (i, version) in found.iter().enumerate() {
        let written = all.iter().find(|w| (&w.key, w.time) == (&version.key, version.time));
        let is_kept = kept.iter().any(|w| (&w.key, w.time) == (&version.key, version.time));
        let was_replaced = !is_kept
            && model.replaced.iter().any(|(key, time, written)| {
                let value = match written {
                    Written::Value(value) | Written::Expiring(value, _) => Some(&value[..]),
                    Written::Deleted | Written::DeletedByRange => None,
                };
                (&key[..], *time, value) == (&version.key[..], version.time, version.value.as_deref())
            });
        // Where what followed has expired, a version ends as if it had been deleted then. There is a later version, unless it ends at its expiry,
        // because it had no end when it was moved.
        let ends_here = |v: &&Version| v.key == version.key && v.until == Some(version.time);
        let before = found.get(i + 1).filter(ends_here);
        let ended = before.is_some();
        let by_expiry = before.is_some_and(|v| v.expiry == Some(version.time));
        let is_end = version.value.is_none() && ended && (version.until.is_some() || by_expiry);
        // Where a delete between a value and a range delete has expired, the range delete is the end.
        let covers = |(from, to, time): &(Vec<u8>, Vec<u8>, Time)| {
            *time == version.time && from[..] <= version.key[..] && version.key[..] < to[..]
        };
        let is_range_delete = version.value.is_none() && ended && model.ranges.iter().any(covers);
        let was_written = written.is_some_and(|w| w.value == version.value);
        assert!(was_written || was_replaced || is_end || is_range_delete, "{version:?} was not written");
    }
    let mut rest = found.iter();
    for version in kept {
        assert!(
            rest.any(|found| *found == version),
            "{retention}: {version:?} is lost at {now:?}: {:?}",
            found.iter().filter(|found| found.key == version.key).collect::<Vec<_>>()
        );
    }
}

/// The same, of all versions, and of the newest ones, which no retention removes. Returns the number of versions.
pub(super) fn reads_keep(reads: &Reads<'_>, model: &Model, retention: Retention, now: Time) -> Result<usize> {
    let whole = (&b""[..], None);
    let found: Vec<Version> = reads.changes(whole, Time::MIN, Time::MAX)?.collect::<Result<_>>()?;
    keeps(&found, model, retention, now);
    let back: Vec<Version> = reads.changes(whole, Time::MIN, Time::MAX)?.rev().collect::<Result<_>>()?;
    keeps(&reversed(back), model, retention, now);
    same("newest", reads.range_at(Time::MAX, whole)?, &model.range_at(whole, Time::MAX))?;
    for key in (0..KEYS).map(key) {
        assert!(reads.get(&key)? == model.at(&key, Time::MAX).and_then(|version| version.value));
    }
    Ok(found.len())
}

/// Gives the keyspace another retention: what the one before did not keep may be gone.
pub(super) fn alter(
    open: &Open,
    model: &mut Model,
    retention: &mut Retention,
    rng: &mut Rng,
    clock: Clock,
) -> Result<()> {
    let kept = kept(model, *retention, clock.latest);
    for key in model.versions.keys() {
        let all = model.of_key(key, Time::MIN, Time::MAX).into_iter();
        let gone = all.filter(|v| !kept.iter().any(|k| (&k.key, k.time) == (&v.key, v.time)));
        if let Some(time) = gone.map(|version| version.time).max() {
            let forgotten = model.forgotten.entry(key.clone()).or_default();
            *forgotten = time.max(*forgotten);
        }
    }
    if let Some(age) = retention.age() {
        model.forgotten_until = model.forgotten_until.max(clock.latest.saturating_sub(age));
    }
    *retention = match rng.below(4) {
        0 => Retention::All,
        1 => Retention::Versions(rng.below(4) + 1),
        2 => Retention::Age(Duration::from_millis(rng.below(30) + 1)),
        _ => Retention::VersionsOrAge(rng.below(3) + 1, Duration::from_millis(rng.below(30) + 1)),
    };
    open.keyspace.alter(|options| options.history(*retention))
}

/// Writes to each deleted key just before its delete, which may have been forgotten. Such a write is late, or refused.
pub(super) fn before_deletes(open: &Open, model: &mut Model) -> Result<()> {
    let before = model.clone();
    for key in before.versions.keys() {
        let newest = before.of_key(key, Time::MIN, Time::MAX).into_iter().next();
        let is_end = |version: &Version| !before.versions[key].contains_key(&version.time);
        let deleted = newest.filter(|version| version.value.is_none() && !is_end(version));
        let Some(delete) = deleted else { continue };
        let Some(time) = delete.time.micros().checked_sub(1).map(Time::from_micros) else { continue };
        match open.keyspace.put_at(key, "before", time) {
            Ok(()) => model.write(key, time, Some(b"before".to_vec())),
            Err(error) if error.kind() == ErrorKind::Expired => {}
            Err(error) => return Err(error),
        }
        assert!(open.keyspace.get(key)?.is_none(), "{}, before {delete:?}", key.escape_ascii());
    }
    Ok(())
}

/// A clock that a test moves in both directions.
#[derive(Clone, Copy)]
pub(super) struct Clock {
    now: Time,
    latest: Time,
}

impl Clock {
    fn set(&mut self, env: &SimEnv, now: Time) {
        (self.now, self.latest) = (now, self.latest.max(now));
        env.set_wall_clock(now);
    }
}

/// Writes a batch to a keyspace with this retention, and adds it to the model.
pub(super) fn write_retained(
    open: &Open,
    model: &mut Model,
    retention: Retention,
    rng: &mut Rng,
    clock: Clock,
) -> Result<()> {
    let age = retention.age().unwrap_or(Duration::MAX);
    let (from, to) = (clock.now.saturating_sub(age), clock.latest.saturating_sub(age));
    let (mut batch, mut writes, range) = loop {
        let drawn = batch(open, model, rng, 0);
        // Whether something expired while the clock was ahead decides about times in between.
        if drawn.1.iter().filter_map(|write| write.1).all(|time| time < from || time >= to) {
            break drawn;
        }
    };
    // An earlier retention may have removed what such a write would be compared with: it is taken if not.
    let is_unsure = writes.iter().filter_map(|write| write.1).any(|t| t >= from && t < model.forgotten_until);
    let skips = !is_unsure && rng.below(2) == 0;
    if skips {
        batch.skip_expired();
    }
    let expires = |write: &Write| write.1.is_some_and(|time| time < from);
    let is_refused = !skips && writes.iter().any(expires);
    match open.db.write(batch, Durability::Os) {
        Err(error) if (is_refused || is_unsure) && error.kind() == ErrorKind::Expired => return Ok(()),
        result => result?,
    }
    assert!(!is_refused, "a write from before {from:?} was taken");
    let mut time = time_of_batch(model, &writes, clock.now);
    writes.retain(|write| !expires(write));
    if let Some((key, ..)) = writes.iter().find(|write| write.1.is_none()) {
        // Retention and batches that were refused move the clock of the database, too.
        let newest = open.keyspace.history(key, ..)?.next().transpose()?.expect("it was just written");
        assert!(newest.time >= time, "{newest:?}, not at {time:?} or later");
        time = newest.time;
    }
    *model = after_at(model, (writes, range), time);
    Ok(())
}

/// Ends the database, of which these are all handles: it is closed, or the power fails when all writes are durable, also amid a job that
/// applies the retention. Returns the disk that is left.
fn ended(open: Open, handles: (Keyspace, Keyspace, Database), rng: &mut Rng) -> Result<Arc<SimEnv>> {
    let Open { env, db, keyspace, .. } = &open;
    match rng.below(4) {
        0 => {
            let (env, db) = (env.clone(), db.clone());
            drop((open, handles));
            db.close()?;
            return Ok(env);
        }
        1 => db.sync()?,
        _ => {
            db.sync()?;
            env.crash_at(env.op_count() + rng.below(100));
            // It fails, unless it has little to do.
            let _ = keyspace.compact();
        }
    }
    let survival = [Survival::Nothing, Survival::Everything, Survival::Torn][rng.below(3) as usize];
    let left = env.crash_clone(survival, rng.below(1000));
    drop((open, handles));
    Ok(left)
}

/// Retention beside late writes, snapshots, iterators, reopening, power cuts and a clock that is set back; in half of the jobs it changes. Returns the number of comparisons.
pub(super) fn retain(seed: u64, mut retention: Retention, threads: usize, shape: u64) -> Result<u64> {
    let mut rng = Rng::new(seed);
    let mut env = SimEnv::new(1);
    let options_of_db =
        Options::default().background_threads(threads).memory_budget(1 << 20).manifest_cap(4 << 10);
    let start = Time::from_micros(1_700_000_000_000_000);
    let mut model = Model { expires: seed / 10 % 2 == 1, ..Model::default() };
    let mut clock = Clock { now: start, latest: start };
    clock.set(&env, start);
    let mut db = Database::open_in(env.clone(), "/db", options_of_db.clone())?;
    let options = options(shape).history(retention);
    let mut keyspace = db.keyspace("k", options.clone())?;
    let mut plain = db.keyspace("plain", KeyspaceOptions::default())?;
    let mut held: Vec<(Snapshot, Model, Retention, Time)> = Vec::new();
    let mut iterators: Vec<(Vec<Version>, Versions, Model, Retention, Time)> = Vec::new();
    let (mut lost, alters) = (0, rng.below(2) == 0);
    for round in 0..30 {
        let open =
            Open { env: env.clone(), db: db.clone(), keyspace: keyspace.clone(), plain: plain.clone() };
        // Deletes are there longer, and expire, if little is written.
        let batches = if alters && rng.below(2) == 0 { 4 } else { 60 };
        for _ in 0..batches {
            clock.set(&env, Time::from_micros(clock.now.micros() + rng.below(100)));
            let ticked = tick(&open, &mut model, clock.now);
            clock.set(&env, ticked);
            model.set_clock(clock.now);
            write_retained(&open, &mut model, retention, &mut rng, clock)?;
        }
        if alters && rng.below(3) == 0 {
            alter(&open, &mut model, &mut retention, &mut rng, clock)?;
            before_deletes(&open, &mut model)?;
        }
        if rng.below(4) == 0 {
            // It may take longer than versions are kept.
            let mut load = db.ingest(IngestOptions::default());
            let loaded: BTreeMap<_, _> = (0..10).map(|_| (key(rng.below(KEYS)), value(&mut rng))).collect();
            loaded.iter().try_for_each(|(key, value)| load.put(&keyspace, key, value))?;
            clock.set(&env, Time::from_micros(clock.now.micros() + rng.below(3_000)));
            model.set_clock(clock.now);
            load.commit()?;
            for (key, value) in loaded {
                let newest = keyspace.history(&key, ..)?.next().transpose()?.expect("it was just loaded");
                assert!(
                    newest.time >= model.last && newest.value.as_deref() == Some(&value[..]),
                    "{newest:?}"
                );
                model.write(&key, newest.time, Some(value));
            }
        }
        // A note is made at most once a second, and by the threads that look for work.
        clock.set(&env, clock.now.saturating_add(Duration::from_millis(rng.below(30))));
        model.set_clock(clock.now);
        match rng.below(4) {
            0 => held.push((db.snapshot(), model.clone(), retention, clock.latest)),
            1 => {
                let mut versions = keyspace.changes::<&[u8]>(.., ..)?;
                let first = versions.next().transpose()?.into_iter().collect();
                iterators.push((first, versions, model.clone(), retention, clock.latest));
            }
            _ => {}
        }
        match rng.below(4) {
            0 => keyspace.compact()?,
            1 => keyspace.flush()?,
            2 => db.wait_idle()?,
            _ => {}
        }
        let all = model.changes((b"", None), Time::MIN, Time::MAX).len();
        lost += all.saturating_sub(reads_keep(&Reads::Now(&keyspace), &model, retention, clock.latest)?);
        for (snapshot, model, retention, taken) in &held {
            reads_keep(&Reads::Then(snapshot, &keyspace), model, *retention, *taken)?;
        }
        // As of times within an age everything is as if nothing had expired.
        if let (Retention::Age(age), false) = (retention, alters) {
            for _ in 0..3 {
                let span = age.as_micros() as u64;
                let time = Time::from_micros(clock.latest.micros() - rng.below(span));
                let found: Vec<EntryAt> = keyspace.range_at::<&[u8]>(time, ..)?.collect::<Result<_>>()?;
                assert!(found == model.range_at((b"", None), time), "as of {time:?} at {:?}", clock.latest);
            }
        }
        if rng.below(4) == 0 {
            held.clear();
            for (mut found, mut rest, model, retention, taken) in iterators.drain(..) {
                rest.try_for_each(|version| version.map(|version| found.push(version)))?;
                keeps(&found, &model, retention, taken);
            }
        }
        if rng.below(6) == 0 {
            clock.set(&env, Time::from_micros(clock.now.micros() - rng.below(20_000)));
        }
        if round % 10 == 9 {
            held.clear();
            iterators.clear();
            env = ended(open, (keyspace, plain, db), &mut rng)?;
            // A clock that is behind could show what has expired.
            clock.set(&env, clock.now.max(model.now));
            db = Database::open_in(env.clone(), "/db", options_of_db.clone())?;
            (keyspace, plain) = (db.open_keyspace("k")?, db.open_keyspace("plain")?);
            clock.set(&env, clock.now);
            if alters {
                let (db, keyspace, plain) = (db.clone(), keyspace.clone(), plain.clone());
                before_deletes(&Open { env: env.clone(), db, keyspace, plain }, &mut model)?;
            }
        }
    }
    // Where the retention changes, it may be `all` for long.
    assert!(alters || lost > 300, "{retention}, shape {shape}: {lost} versions have expired");
    let report = db.check(&mut |_| ())?;
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    Ok(30)
}
