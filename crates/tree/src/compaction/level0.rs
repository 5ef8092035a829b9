//! Plans for level 0, and how far its compaction is behind.

use super::complete::complete;
use super::picker::Picker;
use super::plan::{Plan, Reason};
use super::{seqno_order, unreadable};
use crate::TreeOptions;
use crate::version::{LiveTable, Version};
use std::sync::Arc;

/// The largest number of level 0 tables in a plan: twice the number that triggers a compaction, but not more than this, unless the
/// trigger itself is larger.
const MAX_INPUTS: usize = 8;

/// Level 0 of an unordered tree may have so many times more tables before it slows writers.
const MOVED_AT_ONCE: f64 = 16.0;

/// A plan for the oldest tables of level 0; also `None` if a plan in progress has to end first.
pub(super) fn plan(picker: &Picker<'_>, reason: Reason) -> Option<Plan> {
    unchecked_plan(picker, reason)
        .filter(|plan| seqno_order::is_ordered_with(picker.version, plan, picker.in_progress))
}

fn unchecked_plan(picker: &Picker<'_>, reason: Reason) -> Option<Plan> {
    let tables = &picker.version.level0[..];
    // One plan at a time: a second one could put older data above newer.
    if tables.is_empty() || picker.level0_is_busy() {
        return None;
    }
    // Bounded, because each input is an open file, and because a job must not be too large. The other tables wait for the next plan.
    let trigger = picker.options.level0_tables;
    let max_inputs = (2 * trigger).min(MAX_INPUTS).max(trigger).min(picker.fitting_tables());
    let in_place = |inputs: &[Arc<LiveTable>]| Plan {
        inputs: inputs.iter().map(|t| (0, t.clone())).collect(),
        ..Plan::empty(reason)
    };
    let down = |inputs: &[Arc<LiveTable>]| {
        let plan = Plan { target: target(picker, inputs), ..in_place(inputs) };
        complete(picker, plan)
    };
    if !unreadable::has_unreadable(tables) {
        let newer = tables.iter().take_while(|t| !picker.is_requested(t)).count();
        return Some(down(&tables[tables.len().saturating_sub(max_inputs).max(newer)..]));
    }
    let manual = reason == Reason::Manual;
    let min_tables = if manual { 1 } else { trigger };
    if unreadable::unblocked(picker.version, tables).len() >= min_tables {
        let movable = unreadable::movable_down(picker.version, tables, max_inputs);
        if movable.iter().any(|t| picker.is_requested(t)) {
            return Some(down(&movable));
        }
    }
    let fits = |tables: &[Arc<LiveTable>]| seqno_order::fits_as_one(picker.version, tables, 0);
    unreadable::mergeable_in_place(tables, min_tables, manual, fits).map(|tables| in_place(&tables))
}

/// The deepest level that level 0 may be compacted into. The levels above it must be empty, or older data would lie above newer;
/// the pieces must be large enough for a file; and the level must not be so large that merging into it costs more than one level
/// more.
fn target(picker: &Picker<'_>, inputs: &[Arc<LiveTable>]) -> usize {
    let (version, options) = (picker.version, picker.options);
    if !options.skip_levels {
        return 1;
    }
    let bytes: u64 = inputs.iter().map(|t| t.meta.file_size).sum();
    let max_ratio = (2 * options.max_tables_per_guard as u64).max(10);
    let mut target = picker.first_used();
    while target > 1 {
        let level = version.level(target);
        let overlapped = (level.guards.iter().enumerate())
            .filter(|(i, g)| {
                let end = level.end_of(*i).map(|k| &k[..]);
                inputs.iter().any(|t| t.overlaps_range(&g.key, end))
            })
            .count() as u64;
        let small = bytes / overlapped.max(1) < options.min_piece_bytes && overlapped > 1;
        let fewer_above = version.level(target - 1).guards.len() < level.guards.len();
        if level.bytes() <= bytes * max_ratio && !(small && fewer_above) {
            break;
        }
        target -= 1;
    }
    target
}

/// How far compaction is behind: 0 if it is not, 1 if level 0 has twice the number of tables that triggers its compaction. Tables
/// that an unreadable one prevents from being compacted do not count, because waiting would not help.
///
/// An unordered tree gets tables from jobs of another tree, many at once and most of them narrow enough to be moved. Up to 32 times the
/// number is no debt of more than 1, at which writers are not slowed yet.
pub(crate) fn debt(version: &Version, options: &TreeOptions) -> f64 {
    let tables = &version.level0;
    let waiting = match unreadable::has_unreadable(tables) {
        true => unreadable::compactable(version, tables, options.level0_tables, |tables| {
            seqno_order::fits_as_one(version, tables, 0)
        }),
        false => tables.len(),
    };
    let debt = |tables: f64| (tables / options.level0_tables as f64 - 1.0).max(0.0);
    match version.unordered {
        true => debt(waiting as f64).min(1.0).max(debt(waiting as f64 / MOVED_AT_ONCE)),
        false => debt(waiting as f64),
    }
}
