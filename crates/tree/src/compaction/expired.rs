//! Compactions because entries have expired: tables of which all entries have are removed unread, and guards in which many have are merged.
//! Versions expire in an unordered tree whose tables have times, with their ends; in other trees, entries with an expiry.
//!
//! The *horizon* is the time up to which a version must have ended, or the expiry of an entry must lie, to have expired. Merges drop what has
//! expired by then, or make tombstones of it, so that the first end or expiry of a merged table is after it: a guard is not merged again before
//! the horizon has moved on.
//!
//! Where another tree gets what has expired, no table is removed unread, and only a merge in the last level drops an entry: one in another level takes it
//! down.
//!
//! An expired entry hides older ones of its key, like a tombstone. So a table of such entries is removed only together with all older
//! tables that share a part of its range.

use super::picker::{Candidate, Picker};
use super::plan::{Plan, Reason, key_after};
use crate::version::{Guard, LiveTable, Version, key_bounds};
use base::planted::{Bug, planted};
use base::{Slice, Time};
use std::collections::HashSet;
use std::sync::Arc;
use table::TableExpiry;

/// A guard of whose bytes at least this share is estimated to have expired is merged.
const EXPIRED_SHARE: f64 = 0.5;

/// A plan for the tables in which all versions have expired.
pub(super) fn tables(picker: &Picker<'_>) -> Option<Plan> {
    let horizon = picker.horizon?;
    let has_expired = |t: &LiveTable| match t.meta.times {
        // Where the newest versions are, ends are not known: their tables do not go.
        Some(times) => times.last_end <= horizon,
        None => t.meta.has_expired(horizon),
    };
    let is_free = |t: &LiveTable| !picker.busy.contains(&t.meta.number);
    let tables = picker.version.tables().filter(|(_, t)| has_expired(t) && is_free(t));
    let mut inputs: Vec<(usize, Arc<LiveTable>)> = tables.map(|(level, t)| (level, t.clone())).collect();
    if !picker.version.unordered && !planted(Bug::RemoveExpiredTables) {
        keep_hiding(picker.version, &mut inputs);
    }
    let level = inputs.first()?.0;
    let (smallest, largest) = key_bounds(inputs.iter().map(|(_, t)| t));
    let (from, to) = (Slice::copy_from(smallest), Some(key_after(largest)));
    Some(Plan { source: level, target: level, from, to, inputs, ..Plan::empty(Reason::ExpiredTables) })
}

/// Leaves those tables out that may hide entries of a table which stays.
fn keep_hiding(version: &Version, expired: &mut Vec<(usize, Arc<LiveTable>)>) {
    // The oldest first: so it is known which of those below it go. (One that may have both older and newer entries counts as one that stays.)
    expired.sort_by_key(|(_, t)| t.meta.max_seq);
    let mut gone = HashSet::new();
    expired.retain(|(_, t)| {
        let meta = &t.meta;
        let end = key_after(&meta.largest);
        let is_hidden = |other: &Arc<LiveTable>| {
            other.meta.number != meta.number
                && !gone.contains(&other.meta.number)
                && other.meta.min_seq < meta.max_seq
                && other.overlaps_range(&meta.smallest, Some(&end))
        };
        let of_level = |n| version.level(n).tables_in(&meta.smallest, Some(&end));
        let hides = version.level0.iter().chain((1..=version.last_level()).flat_map(of_level)).any(is_hidden);
        !hides && gone.insert(meta.number)
    });
}

/// The estimated share of a table that has expired: ends are taken to be spread evenly between the first and the last.
fn share_of_table(unordered: bool, t: &LiveTable, horizon: Time) -> f64 {
    if !unordered {
        let Some(TableExpiry { entries, first, last }) = t.meta.expiry else { return 0.0 };
        return passed(horizon, first, last) * entries as f64 / t.meta.entries as f64;
    }
    let Some(times) = t.meta.times else { return 0.0 };
    if times.last_end <= horizon {
        return 1.0;
    }
    // Deletes without an end expire with their own times.
    let last = if times.last_end == Time::MAX { times.latest.max(times.first_end) } else { times.last_end };
    passed(horizon, times.first_end, last)
}

/// The share of the time between two times that has passed, the first of them included.
fn passed(now: Time, first: Time, last: Time) -> f64 {
    let micros = |time: Time| time.micros() as f64;
    ((micros(now) + 1.0 - micros(first)) / (micros(last) + 1.0 - micros(first))).clamp(0.0, 1.0)
}

/// Whether a merge drops what has expired in a table. Where versions move to another tree, some stay as long as readers do, or a range tombstone
/// is not settled: the merge would be due again.
fn can_drop(picker: &Picker<'_>, t: &LiveTable) -> bool {
    let moves = !picker.version.unordered && t.meta.times.is_some();
    let is_seen = || picker.oldest_snapshot.is_none_or(|oldest| t.meta.max_seq <= oldest);
    !moves || is_seen() && !picker.unsettled.overlaps(&t.meta.smallest, &t.meta.largest)
}

/// The estimated share of a guard that has expired.
fn share(picker: &Picker<'_>, guard: &Guard, horizon: Time) -> f64 {
    let expired =
        |t: &Arc<LiveTable>| share_of_table(picker.version.unordered, t, horizon) * t.meta.file_size as f64;
    let droppable = guard.tables.iter().filter(|t| can_drop(picker, t));
    droppable.map(expired).sum::<f64>() / guard.bytes().max(1) as f64
}

/// Whether an entry in a guard has expired. A request covers those of a table only if it covers the whole table: otherwise it would have no end.
pub(super) fn has_expired_entries(picker: &Picker<'_>, guard: &Guard) -> bool {
    let has_any = |t: &LiveTable, horizon| t.meta.expiry.is_some_and(|expiry| expiry.first <= horizon);
    let is_covered = |t: &LiveTable| t.meta.max_seq <= picker.requested_seq && can_drop(picker, t);
    let horizon = picker.horizon.filter(|_| !picker.version.unordered);
    horizon.is_some_and(|horizon| guard.tables.iter().any(|t| is_covered(t) && has_any(t, horizon)))
}

/// The estimated bytes of the entries, with their values, that have expired and still are in the tables of a tree.
pub fn expired_bytes(version: &Version, horizon: Time) -> u64 {
    let bytes = |t: &LiveTable| (t.meta.file_size + t.values.bytes) as f64;
    version.tables().map(|(_, t)| share_of_table(version.unordered, t, horizon) * bytes(t)).sum::<f64>()
        as u64
}

/// Guards in which many entries have expired.
pub(super) fn candidates(picker: &Picker<'_>, candidates: &mut Vec<Candidate>) {
    let Some(horizon) = picker.horizon else { return };
    for (level, guard, g) in picker.version.guards().filter(|(_, _, g)| !g.tables.is_empty()) {
        let share = share(picker, g, horizon);
        if share >= EXPIRED_SHARE {
            candidates.push(Candidate { reason: Reason::Expired, level, guard, score: share });
        }
    }
}

/// The horizon at which more may have expired than now: the end of the next table, or the middle between the ends, or the expiries, of one.
pub(crate) fn next_horizon(picker: &Picker<'_>) -> Option<Time> {
    let horizon = picker.horizon?;
    let of_table = |t: &LiveTable| {
        let (first, last, middle) = match picker.version.unordered {
            true => {
                let times = t.meta.times?;
                let is_open = times.last_end == Time::MAX;
                (times.first_end, times.last_end, is_open.then_some(times.latest))
            }
            false => t.meta.expiry.map(|expiry| (expiry.first, expiry.last, None))?,
        };
        let (first, last) = (first.micros(), last.micros());
        let middle = middle.map_or(first / 2 + last / 2, Time::micros);
        [middle, last].into_iter().map(Time::from_micros).filter(|time| *time > horizon).min()
    };
    picker.version.tables().filter_map(|(_, t)| of_table(t)).min()
}
