//! Random writes, with and without times of their own, and what they make of the model.

use super::model::Model;
use super::stage::{KEYS, Open, key, value};
use crate::random::Rng;
use cairn::{Durability, Result, Time};

/// A write to a key: its time, if it is not that of its batch, the value, if it is no delete, and its expiry, if it has one.
pub(super) type Write = (Vec<u8>, Option<Time>, Option<Vec<u8>>, Option<Time>);

/// Keys from the first to before the second are deleted.
pub(super) type Deleted = (Vec<u8>, Vec<u8>);

/// A time of a caller: near the last one, long ago, that of a version, or in the future.
pub(super) fn time(model: &Model, key: &[u8], rng: &mut Rng) -> Time {
    let of_key = model.versions.get(key).and_then(|versions| versions.keys().next());
    let last = model.last.micros();
    Time::from_micros(match (rng.below(6), of_key) {
        (0, _) => last + rng.below(50),
        (1, Some(first)) => first.micros(),
        (2, Some(first)) => first.micros() - rng.below(first.micros().min(3)),
        (3, _) => rng.below(last + 1),
        (4, _) => 5,
        _ => last.saturating_sub(rng.below(3000)),
    })
}

/// Where puts expire, sets the clock after the last time. Returns the clock.
pub(super) fn tick(open: &Open, model: &mut Model, clock: Time) -> Time {
    if !model.expires {
        return clock;
    }
    let clock = clock.max(model.now).max(Time::from_micros(model.last.micros() + 1));
    open.env.set_wall_clock(clock);
    model.set_clock(clock);
    clock
}

/// An expiry: soon, or just passed.
pub(super) fn expiry(model: &Model, rng: &mut Rng) -> Time {
    Time::from_micros(model.now.micros() + 1000 * rng.below(12))
}

/// A batch of up to six writes to a few keys, some of them more than once. `n`: its number.
pub(super) fn batch(
    open: &Open,
    model: &Model,
    rng: &mut Rng,
    n: u64,
) -> (cairn::Batch, Vec<Write>, Option<Deleted>) {
    let (mut batch, mut writes) = (open.db.batch(), Vec::new());
    let range = (rng.below(12) == 0).then(|| (key(rng.below(KEYS)), key(rng.below(KEYS))));
    if let Some((from, to)) = &range {
        batch.delete_range(&open.keyspace, &from[..]..&to[..]);
    }
    for _ in 0..rng.below(6) + 1 {
        // Some keys are written often.
        let key = key(if rng.below(2) == 0 { rng.below(5) } else { rng.below(KEYS) });
        let value = (rng.below(5) > 0).then(|| value(rng));
        // A range delete in the batch counts as later than writes with times of their own.
        let time = (range.is_none() && rng.below(3) == 0).then(|| time(model, &key, rng));
        let expires = model.expires && value.is_some() && rng.below(4) == 0;
        let expiry = expires.then(|| expiry(model, rng));
        match (&value, time) {
            (Some(value), None) => match expiry {
                Some(expiry) => batch.put_until(&open.keyspace, &key, value, expiry),
                None => batch.put(&open.keyspace, &key, value),
            },
            (None, None) => batch.delete(&open.keyspace, &key),
            (Some(value), Some(time)) => match expiry {
                Some(expiry) => batch.put_at_until(&open.keyspace, &key, value, time, expiry),
                None => batch.put_at(&open.keyspace, &key, value, time),
            },
            (None, Some(time)) => batch.delete_at(&open.keyspace, &key, time),
        }
        writes.push((key, time, value, expiry));
    }
    batch.put(&open.plain, "batches", n.to_string());
    (batch, writes, range)
}

/// The model after a batch. Writes without a time get that of the clock, or one after all others, those of the batch included.
pub(super) fn after(model: &Model, written: (Vec<Write>, Option<Deleted>), clock: Time) -> Model {
    let time = time_of_batch(model, &written.0, clock);
    after_at(model, written, time)
}

/// The time of the writes of a batch that have none of their own.
pub(super) fn time_of_batch(model: &Model, writes: &[Write], clock: Time) -> Time {
    let latest = writes.iter().filter_map(|write| write.1).max().unwrap_or_default().max(model.last);
    clock.max(Time::from_micros(latest.micros() + 1))
}

/// The model after a batch with this time.
pub(super) fn after_at(model: &Model, (writes, range): (Vec<Write>, Option<Deleted>), time: Time) -> Model {
    let mut model = model.clone();
    if let Some((from, to)) = range {
        model.delete_range(&from, &to, time);
    }
    for (key, own, value, expiry) in writes {
        model.write_until(&key, own.unwrap_or(time), value, expiry);
    }
    model
}

/// Writes, and adds what was written to the model.
pub(super) fn write(open: &Open, model: &mut Model, rng: &mut Rng, clock: Time) -> Result<()> {
    let clock = tick(open, model, clock);
    if rng.below(2) == 0 {
        let (batch, writes, range) = batch(open, model, rng, 0);
        open.db.write(batch, Durability::Os)?;
        *model = after(model, (writes, range), clock);
        return Ok(());
    }
    let (key, value) = (key(rng.below(KEYS)), (rng.below(5) > 0).then(|| value(rng)));
    let time = (rng.below(3) == 0).then(|| time(model, &key, rng));
    let expires = model.expires && value.is_some() && rng.below(4) == 0;
    let expiry = expires.then(|| expiry(model, rng));
    match (&value, time) {
        (Some(value), None) => match expiry {
            Some(expiry) => open.keyspace.put_until(&key, value, expiry)?,
            None => open.keyspace.put(&key, value)?,
        },
        (None, None) => open.keyspace.delete(&key)?,
        (Some(value), Some(time)) => match expiry {
            Some(expiry) => {
                let mut batch = open.db.batch();
                batch.put_at_until(&open.keyspace, &key, value, time, expiry);
                open.db.write(batch, Durability::Os)?;
            }
            None => open.keyspace.put_at(&key, value, time)?,
        },
        (None, Some(time)) => open.keyspace.delete_at(&key, time)?,
    }
    *model = after(model, (vec![(key, time, value, expiry)], None), clock);
    Ok(())
}
