//! Compactions because versions have expired, in an unordered tree whose tables have times: tables of which all versions have are removed
//! unread, and guards in which many have are merged.
//!
//! The *horizon* is the time up to which a version must have ended to have expired. Merges drop what has expired by then, so that the first
//! end of a merged table is after it: a guard is not merged again before the horizon has moved on.

use super::picker::{Candidate, Picker};
use super::plan::{Plan, Reason, key_after};
use crate::version::{Guard, LiveTable, Version, key_bounds};
use base::{Slice, Time};
use std::sync::Arc;

/// A guard of whose bytes at least this share is estimated to have expired is merged.
const EXPIRED_SHARE: f64 = 0.5;

/// A plan for the tables in which all versions have expired.
pub(super) fn tables(picker: &Picker<'_>) -> Option<Plan> {
    let horizon = picker.horizon?;
    let has_expired = |t: &LiveTable| t.meta.times.is_some_and(|times| times.last_end <= horizon);
    let is_free = |t: &LiveTable| !picker.busy.contains(&t.meta.number);
    let tables = picker.version.tables().filter(|(_, t)| has_expired(t) && is_free(t));
    let inputs: Vec<(usize, Arc<LiveTable>)> = tables.map(|(level, t)| (level, t.clone())).collect();
    let level = inputs.first()?.0;
    let (smallest, largest) = key_bounds(inputs.iter().map(|(_, t)| t));
    let (from, to) = (Slice::copy_from(smallest), Some(key_after(largest)));
    Some(Plan { source: level, target: level, from, to, inputs, ..Plan::empty(Reason::ExpiredTables) })
}

/// The estimated share of a table that has expired: ends are taken to be spread evenly between the first and the last.
fn share_of_table(t: &LiveTable, horizon: Time) -> f64 {
    let Some(times) = t.meta.times else { return 0.0 };
    if times.last_end <= horizon {
        return 1.0;
    }
    // Deletes without an end expire with their own times.
    let last = if times.last_end == Time::MAX { times.latest.max(times.first_end) } else { times.last_end };
    let (first, last) = (times.first_end.micros() as f64, last.micros() as f64);
    let passed = (horizon.micros() as f64 - first) / (last - first).max(1.0);
    passed.clamp(0.0, 1.0)
}

/// The estimated share of a guard that has expired.
fn share(guard: &Guard, horizon: Time) -> f64 {
    let expired = |t: &Arc<LiveTable>| share_of_table(t, horizon) * t.meta.file_size as f64;
    guard.tables.iter().map(expired).sum::<f64>() / guard.bytes().max(1) as f64
}

/// The estimated bytes of the versions, with their values, that have expired and still are in the tables of a tree.
pub fn expired_bytes(version: &Version, horizon: Time) -> u64 {
    let bytes = |t: &LiveTable| (t.meta.file_size + t.values.bytes) as f64;
    version.tables().map(|(_, t)| share_of_table(t, horizon) * bytes(t)).sum::<f64>() as u64
}

/// Guards in which many versions have expired.
pub(super) fn candidates(picker: &Picker<'_>, candidates: &mut Vec<Candidate>) {
    let Some(horizon) = picker.horizon else { return };
    for (level, guard, g) in picker.version.guards().filter(|(_, _, g)| !g.tables.is_empty()) {
        let share = share(g, horizon);
        if share >= EXPIRED_SHARE {
            candidates.push(Candidate { reason: Reason::Expired, level, guard, score: share });
        }
    }
}

/// The horizon at which more may have expired than now: the end of the next table, or the middle between the ends of one.
pub(crate) fn next_horizon(picker: &Picker<'_>) -> Option<Time> {
    let horizon = picker.horizon?;
    let of_table = |t: &LiveTable| {
        let times = t.meta.times?;
        let (first, last) = (times.first_end.micros(), times.last_end.micros());
        let middle = if times.last_end == Time::MAX { times.latest.micros() } else { first / 2 + last / 2 };
        [middle, last].into_iter().map(Time::from_micros).filter(|time| *time > horizon).min()
    };
    picker.version.tables().filter_map(|(_, t)| of_table(t)).min()
}
