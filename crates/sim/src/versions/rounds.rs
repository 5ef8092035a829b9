//! Jobs of rounds of writes, loads, transactions, flushes, compactions and openings, with all queries after each.

use super::model::Model;
use super::queries::{Reads, compare, reversed};
use super::stage::{KEYS, Open, key, open, value};
use super::writes::{after, expiry, tick, time_of_batch, write};
use crate::random::Rng;
use cairn::env::{SimEnv, Survival};
use cairn::{EntryAt, ErrorKind, IngestOptions, Result, Time, Version};
use std::collections::BTreeMap;

/// Rounds of writes.
const ROUNDS: u64 = 24;

/// Random writes, and all queries beside them, with flushes, compactions, reopening and power cuts. Returns the number of comparisons.
pub(super) fn run(seed: u64, shape: u64, threads: usize) -> Result<u64> {
    let mut rng = Rng::new(seed);
    let mut open = self::open(SimEnv::new(shape), shape, threads)?;
    let mut model = Model { expires: seed / 10 % 2 == 1, ..Model::default() };
    let mut clock = Time::from_micros(1_700_000_000_000_000);
    for round in 0..ROUNDS {
        // A clock that steps back in every third round, by as much as it has advanced in many.
        let step = rng.below(1000);
        clock = Time::from_micros(clock.micros() + 900 - if round % 3 == 2 { 10 * step } else { 0 } + step);
        open.env.set_wall_clock(clock);
        model.set_clock(clock);
        let snapshot = open.db.snapshot();
        let (before, mut held) = (model.clone(), open.keyspace.changes::<&[u8]>(.., ..)?);
        let mut held_back = open.keyspace.range_at::<&[u8]>(model.last, ..)?.rev();
        let firsts = (held.next().transpose()?, held_back.next().transpose()?);
        for _ in 0..30 + rng.below(200) {
            write(&open, &mut model, &mut rng, clock)?;
        }
        if rng.below(3) == 0 {
            load(&open, &mut model, &mut rng, clock)?;
        }
        if round % 2 == 0 {
            open.keyspace.flush()?;
        }
        compare(&Reads::Now(&open.keyspace), &model, &mut rng)?;
        compare(&Reads::Then(&snapshot, &open.keyspace), &before, &mut rng)?;
        within_a_transaction(&open, &mut model, &mut rng, clock)?;
        // Iterators that began before the flushes go on.
        let whole = (&b""[..], None);
        let rest: Vec<Version> = firsts.0.into_iter().map(Ok).chain(held).collect::<Result<_>>()?;
        assert!(rest == before.changes(whole, Time::MIN, Time::MAX), "an iterator held across flushes");
        let rest: Vec<EntryAt> = firsts.1.into_iter().map(Ok).chain(held_back).collect::<Result<_>>()?;
        assert!(rest == reversed(before.range_at(whole, before.last)), "another one, backward");
        let held_snapshot = (rng.below(2) == 0).then_some(snapshot);
        match round % 5 {
            0 => {
                drop(held_snapshot);
                open.keyspace.compact()?;
                let tables = open.keyspace.guards().into_iter().flat_map(|guard| guard.tables);
                let (entries, live) =
                    (tables.map(|t| t.entries).sum::<u64>(), open.keyspace.iter().count() as u64);
                // What has expired within this millisecond is still there.
                assert!(
                    (live..=live + model.expired()).contains(&entries),
                    "{entries} entries for {live} keys of the primary tree"
                );
            }
            1 => open.db.wait_idle()?,
            2 => {
                let Open { env, db, .. } = open;
                db.close()?;
                // A clock that is behind could show what has expired.
                clock = clock.max(model.now);
                env.set_wall_clock(clock);
                // What was not flushed is in tables afterwards, and was evicted on the way.
                open = self::open(env, shape, threads)?;
            }
            3 => {
                open.db.sync()?;
                let env = open.env.crash_clone(Survival::Nothing, round);
                drop(open);
                clock = clock.max(model.now);
                env.set_wall_clock(clock);
                open = self::open(env, shape, threads)?;
            }
            _ => {}
        }
        open.env.set_wall_clock(clock);
        compare(&Reads::Now(&open.keyspace), &model, &mut rng)?;
        let report = open.db.check(&mut |_| ())?;
        assert!(report.problems.is_empty(), "{:?}", report.problems);
        at_the_newest(&open, &mut model)?;
    }
    let Open { env, db, .. } = open;
    db.close()?;
    let report = cairn::check_in(env, "/db", &mut |_| ())?;
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    Ok(3 * ROUNDS)
}

/// A bulk load, beside which others write or not: its versions have the time of its beginning, unless one is as late, and then it is refused.
pub(super) fn load(open: &Open, model: &mut Model, rng: &mut Rng, clock: Time) -> Result<()> {
    let clock = tick(open, model, clock);
    let mut entries = BTreeMap::new();
    for _ in 0..rng.below(40) + 1 {
        entries.insert(key(rng.below(KEYS)), value(rng));
    }
    let options = IngestOptions::default();
    let mut load = open.db.ingest(if rng.below(2) == 0 { options } else { options.unsorted(0) });
    if rng.below(2) == 0 {
        write(open, model, rng, clock)?;
    }
    let clock = tick(open, model, clock);
    let time = time_of_batch(model, &[], clock);
    for (key, value) in &entries {
        load.put(&open.keyspace, key, value)?;
    }
    model.last = time;
    if rng.below(2) == 0 {
        write(open, model, rng, clock)?;
    }
    let later = model.versions.values().any(|versions| versions.keys().any(|other| *other >= time));
    if later || model.ranges.iter().any(|range| range.2 >= time) {
        assert_eq!(load.commit().map_err(|e| e.kind()).err(), Some(ErrorKind::Conflict));
        return Ok(());
    }
    assert_eq!(load.commit()?.entries, entries.len() as u64);
    entries.into_iter().for_each(|(key, value)| model.write(&key, time, Some(value)));
    Ok(())
}

/// The queries in a transaction that has written: its writes are the newest versions. Its commit makes of them what it has shown.
pub(super) fn within_a_transaction(open: &Open, model: &mut Model, rng: &mut Rng, clock: Time) -> Result<()> {
    let clock = tick(open, model, clock);
    let (mut transaction, mut within) = (open.db.begin(), model.clone());
    let time = transaction.time();
    assert_eq!(time, time_of_batch(model, &[], clock));
    for _ in 0..rng.below(8) {
        match rng.below(5) {
            0 => {
                let (a, b) = (key(rng.below(KEYS)), key(rng.below(KEYS)));
                // Within the transaction, what it deletes ends then, also if it would have expired a little earlier.
                if within.has_expiring(&a, &b) {
                    continue;
                }
                transaction.delete_range(&open.keyspace, &a[..]..&b[..])?;
                if a < b {
                    // What it has written there before is no version.
                    for (_, versions) in within.versions.range_mut(a.clone()..b.clone()) {
                        versions.remove(&time);
                    }
                    within.delete_range(&a, &b, time);
                }
            }
            write => {
                let (key, value) = (key(rng.below(KEYS)), (write > 1).then(|| value(rng)));
                let expiry =
                    (model.expires && value.is_some() && rng.below(3) == 0).then(|| expiry(&within, rng));
                match &value {
                    Some(value) => match expiry {
                        Some(expiry) => transaction.put_until(&open.keyspace, &key, value, expiry)?,
                        None => transaction.put(&open.keyspace, &key, value)?,
                    },
                    None => transaction.delete(&open.keyspace, &key)?,
                }
                within.write_until(&key, time, value, expiry);
            }
        }
    }
    compare(&Reads::Within(&transaction, &open.keyspace), &within, rng)?;
    if rng.below(2) == 0 {
        transaction.commit()?;
        *model = within;
    }
    compare(&Reads::Now(&open.keyspace), model, rng)
}

/// For each key, reads and then writes just before its newest version.
pub(super) fn at_the_newest(open: &Open, model: &mut Model) -> Result<()> {
    let before = model.clone();
    for (key, versions) in &before.versions {
        let Some((newest, _)) = versions.last_key_value() else { continue };
        let time = Time::from_micros(newest.micros().saturating_sub(1));
        let found = open.keyspace.get_at(key, time)?;
        let right = before.at(key, time);
        assert!(found == right, "{}: {found:?} instead of {right:?}", key.escape_ascii());
        open.keyspace.put_at(key, "just before", time)?;
        *model = after(
            model,
            (vec![(key.clone(), Some(time), Some(b"just before".to_vec()), None)], None),
            Time::MIN,
        );
        assert!(open.keyspace.get(key)? == model.at(key, Time::MAX).and_then(|version| version.value));
    }
    Ok(())
}
