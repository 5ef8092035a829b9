//! Keeps the order of sequence numbers: where two tables share keys, the upper one is newer. Every plan must keep it,
//! in any history of the tree.
//!
//! As long as all data in a range of keys moves down together, the output of a plan is newer than everything below it
//! and older than everything above it. If compactions have gone around an unreadable table (`unreadable.rs`), or a
//! table was moved past others with which it shares no key (`trivial_move.rs`), this still holds for each table, but
//! not for key ranges:
//!
//! ```text
//!   level 0   X                 d......#####......u        unreadable, sequence numbers 101 to 150
//!   level 6   Y  x.....z                                   newer than X; moved past X because they share no key
//!             T  a...............................z         older than X
//! ```
//!
//! A merge of Y and T into one table would span X's keys and have entries newer than X, but lie below X. When X can be
//! read again and moves down, it would be placed above X because of its sequence numbers, and old entries of T would
//! hide newer ones of X.
//!
//! So every plan is compared with all tables outside of it. If its output could be neither entirely newer nor entirely
//! older than one of them, as its level requires, the output is cut before the first key of that table and directly
//! after its last ([`cut_for_order`]). Between two such cuts all inputs share keys with that table, so each of them is in
//! order with it already. This does not depend on the marks of unreadable tables, because closing the database forgets
//! them but not the shape of the tree. In a tree where no table was passed, no such cut is needed.
//!
//! In an unordered version ([`Version::unordered`]) none of this is needed, and nothing is cut.
//!
//! Two plans in progress are compared with each other as well ([`is_ordered_with`]); the later one waits. And before an edit is
//! published, [`describe_misplaced`] checks the tables that were really written.

use super::plan::{Plan, key_after};
use crate::version::{LiveTable, Version};
use base::Slice;
use std::cmp::Ordering;
use std::collections::HashSet;
use std::ops::RangeInclusive;
use std::sync::Arc;
use table::TableMeta;

/// The range of keys and of sequence numbers of some tables, or of the part of them before `to`.
#[derive(Clone, Copy)]
pub(crate) struct KeySeqBounds<'a> {
    pub smallest: &'a [u8],
    pub largest: &'a [u8],
    to: Option<&'a [u8]>,
    pub min_seq: u64,
    pub max_seq: u64,
}

impl<'a> KeySeqBounds<'a> {
    fn one(meta: &'a TableMeta) -> KeySeqBounds<'a> {
        KeySeqBounds {
            smallest: &meta.smallest,
            largest: &meta.largest,
            to: None,
            min_seq: meta.min_seq,
            max_seq: meta.max_seq,
        }
    }

    fn and(self, other: KeySeqBounds<'a>) -> KeySeqBounds<'a> {
        KeySeqBounds {
            smallest: self.smallest.min(other.smallest),
            largest: self.largest.max(other.largest),
            to: None,
            min_seq: self.min_seq.min(other.min_seq),
            max_seq: self.max_seq.max(other.max_seq),
        }
    }

    pub fn of(tables: impl Iterator<Item = &'a Arc<LiveTable>>) -> Option<KeySeqBounds<'a>> {
        tables.map(|t| KeySeqBounds::one(&t.meta)).reduce(KeySeqBounds::and)
    }

    pub fn overlaps(&self, table: &LiveTable) -> bool {
        self.overlaps_bounds(&KeySeqBounds::one(&table.meta))
    }

    fn overlaps_bounds(&self, other: &KeySeqBounds<'_>) -> bool {
        let begins_in = |a: &KeySeqBounds<'_>, b: &KeySeqBounds<'_>| {
            a.smallest <= b.largest && b.to.is_none_or(|to| a.smallest < to)
        };
        begins_in(self, other) && begins_in(other, self)
    }

    /// Whether a table at `target` with these bounds may share keys with `other` at `level`: upper levels must be
    /// newer. Within one stack, the sequence numbers themselves determine the place.
    fn fits(&self, target: usize, other: &KeySeqBounds<'_>, level: usize) -> bool {
        let newer = other.min_seq > self.max_seq;
        let older = other.max_seq < self.min_seq;
        match level.cmp(&target) {
            Ordering::Less => newer,
            Ordering::Equal => newer || older,
            Ordering::Greater => older,
        }
    }
}

/// The tables of `version` with which a table at `target` with these bounds would be out of order.
fn out_of_order_with<'v>(
    version: &'v Version,
    bounds: KeySeqBounds<'_>,
    target: usize,
) -> impl Iterator<Item = (usize, &'v Arc<LiveTable>)> {
    let levels = version.levels.iter().enumerate().filter(|(_, level)| level.tables() > 0);
    let below = levels.flat_map(move |(i, level)| {
        let guards = &level.guards[level.find(bounds.smallest)..=level.find(bounds.largest)];
        guards.iter().flat_map(move |g| g.tables.iter().map(move |t| (i + 1, t)))
    });
    let all = version.level0.iter().map(|t| (0, t)).chain(below);
    all.filter(move |(level, t)| {
        !bounds.fits(target, &KeySeqBounds::one(&t.meta), *level) && bounds.overlaps(t)
    })
}

/// The indices of the pieces of a plan that overlap these bounds.
fn reached(plan: &Plan, bounds: &KeySeqBounds<'_>) -> RangeInclusive<usize> {
    let piece = |key: &[u8]| plan.cuts.partition_point(|cut| &cut[..] <= key);
    piece(bounds.smallest)..=piece(bounds.largest)
}

/// The bounds of each piece of a plan.
fn pieces(plan: &Plan) -> Vec<Option<KeySeqBounds<'_>>> {
    let mut pieces: Vec<Option<KeySeqBounds<'_>>> = vec![None; plan.cuts.len() + 1];
    for (_, table) in &plan.inputs {
        let one = KeySeqBounds::one(&table.meta);
        for piece in &mut pieces[reached(plan, &one)] {
            *piece = Some(piece.map_or(one, |bounds| bounds.and(one)));
        }
    }
    for (i, piece) in pieces.iter_mut().enumerate() {
        if let Some(bounds) = piece {
            let from = if i == 0 { &plan.from[..] } else { &plan.cuts[i - 1][..] };
            bounds.smallest = bounds.smallest.max(from);
            bounds.to = plan.cuts.get(i).or(plan.to.as_ref()).map(|k| &k[..]);
        }
    }
    pieces
}

/// Whether every piece of `plan` is in order with `other` at `level`, or does not overlap it.
fn all_fit(plan: &Plan, pieces: &[Option<KeySeqBounds<'_>>], other: &KeySeqBounds<'_>, level: usize) -> bool {
    let mut reached = pieces[reached(plan, other)].iter().flatten();
    reached.all(|piece| piece.fits(plan.target, other, level) || !piece.overlaps_bounds(other))
}

/// Adds the cuts to `plan` that keep its output in order with all other tables.
pub(crate) fn cut_for_order(version: &Version, plan: &mut Plan) {
    if version.unordered {
        return;
    }
    let Some(whole) = KeySeqBounds::of(plan.input_tables()) else { return };
    let inputs: HashSet<u64> = plan.numbers().collect();
    let others =
        out_of_order_with(version, whole, plan.target).filter(|(_, t)| !inputs.contains(&t.meta.number));
    let suspects: Vec<_> = others.collect();
    let misfit = |plan: &Plan, suspects: &[(usize, &Arc<LiveTable>)]| {
        let parts = pieces(plan);
        suspects.iter().rposition(|(level, t)| !all_fit(plan, &parts, &KeySeqBounds::one(&t.meta), *level))
    };
    // Oldest tables first: with the cuts for these, most tables above them are in order, too.
    let mut left = &suspects[..];
    while !left.is_empty()
        && let Some(at) = misfit(plan, left)
    {
        let meta = &left[at].1.meta;
        plan.cuts.push(Slice::copy_from(&meta.smallest));
        plan.cuts.push(key_after(&meta.largest));
        let (from, to) = (&plan.from, &plan.to);
        plan.cuts.retain(|key| key > from && to.as_ref().is_none_or(|to| key < to));
        plan.cuts.sort_unstable();
        plan.cuts.dedup();
        left = &left[..at];
    }
}

/// Whether one table at `target` made of `inputs` would be in order with all other tables.
pub(crate) fn fits_as_one(version: &Version, inputs: &[Arc<LiveTable>], target: usize) -> bool {
    let Some(whole) = KeySeqBounds::of(inputs.iter()) else { return false };
    version.unordered
        || out_of_order_with(version, whole, target)
            .all(|(_, other)| inputs.iter().any(|t| Arc::ptr_eq(t, other)))
}

/// Whether the outputs of `plan` and of the plans in progress will be in order, whichever ends first.
pub(crate) fn is_ordered_with<'a>(version: &Version, plan: &'a Plan, in_progress: &'a [Arc<Plan>]) -> bool {
    version.unordered
        || in_progress.iter().all(|other| {
            let whole = |plan: &'a Plan| KeySeqBounds::of(plan.input_tables());
            let (Some(ours), Some(theirs)) = (whole(plan), whole(other)) else { return true };
            if ours.fits(plan.target, &theirs, other.target) {
                return true;
            }
            let parts = pieces(plan);
            pieces(other).iter().flatten().all(|piece| all_fit(plan, &parts, piece, other.target))
        })
}

/// Describes the first table of `added` at `target` that is out of order with another one.
pub(crate) fn describe_misplaced(version: &Version, target: usize, added: &[TableMeta]) -> Option<String> {
    if version.unordered {
        return None;
    }
    added.iter().find_map(|meta| {
        let mut others = out_of_order_with(version, KeySeqBounds::one(meta), target).filter(|(_, t)| t.meta.number != meta.number);
        let (level, other) = others.next()?;
        Some(format!(
            "table {} for level {target} (sequence numbers {} to {}) is out of order with table {} of level {level} ({} to {})",
            meta.number, meta.min_seq, meta.max_seq, other.meta.number, other.meta.min_seq, other.meta.max_seq
        ))
    })
}
