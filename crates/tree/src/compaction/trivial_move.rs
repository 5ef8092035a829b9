//! Trivial moves: a manifest edit moves tables to a deeper level without rewriting them.
//!
//! The paper rewrites a table at each level, which makes sequential inserts three times slower. A table that shares no
//! key with any table on its way is moved instead:
//!
//! ```text
//!   level 0   a..c   m..p   x..z          disjoint: as after sequential, clustered or time-ordered inserts
//!   level 5   (empty)                     nothing in the way
//!   level 6   a....d |   | q...t |        m..p and x..z move here; a..c is merged, because level 6 has some of its keys
//! ```
//!
//! The conditions, and their purposes:
//! - *Newer data never lies below older.* The table shares no key with the other tables of its stack, nor with the
//!   levels that it passes, nor with the target level. Besides, its bounds of keys and sequence numbers are compared
//!   with every table of the tree (`seqno_order.rs`) and with the plans in progress.
//! - *A table lies inside one guard* of the target level, and plans in progress add no guard inside the table.
//! - *The shape stays*: a table of level 0 does not become the first table of a level above those in use. All later
//!   tables would have to stop there, too.
//! - *Progress*: tables with many tombstones, or with older versions of their own keys, are merged, because only a merge makes them smaller.
//!
//! In an unordered version the first condition is void: there tables move into guards whose tables they overlap.
//!
//! Tables are moved only when a merge is due anyway, before it. A guard or a level 0 that is not full waits, because
//! its tables may later be merged into fewer.

use super::picker::{MAX_TABLES, Picker};
use super::plan::{Plan, Reason, key_after};
use super::seqno_order;
use crate::version::LiveTable;
use base::Slice;
use base::planted::{Bug, planted};
use std::sync::Arc;

/// A table with a larger share of tombstones, in per cent, is merged instead of moved.
const MAX_TOMBSTONE_PERCENT: u64 = 10;

/// A plan for the tables of level 0 that can be moved.
pub(super) fn of_level0(picker: &Picker<'_>) -> Option<Plan> {
    if picker.level0_is_busy() {
        return None;
    }
    let min_target = match picker.options.skip_levels {
        true => picker.first_used(),
        false => 1,
    };
    moves(picker, 0, &picker.version.level0, min_target)
}

/// A plan for the tables of a guard that can be moved.
pub(super) fn of_guard(picker: &Picker<'_>, n: usize, index: usize) -> Option<Plan> {
    moves(picker, n, &picker.version.level(n).guards[index].tables, n + 1)
}

/// A plan for the tables of `stack` that can be moved to one level: the target of the oldest of them.
fn moves(picker: &Picker<'_>, source: usize, stack: &[Arc<LiveTable>], min_target: usize) -> Option<Plan> {
    let mut chosen: Vec<Arc<LiveTable>> = Vec::new();
    let mut target = 0;
    for table in stack.iter().rev() {
        let meta = &table.meta;
        let shared = !picker.version.unordered
            && stack.iter().any(|other| !Arc::ptr_eq(other, table) && other.overlaps(table));
        let wrongly = Arc::ptr_eq(table, &stack[0]) && planted(Bug::MovePastOlderTables);
        if (shared && !wrongly)
            || table.damage.is_unreadable()
            || picker.busy.contains(&meta.number)
            || meta.tombstones * 100 > meta.entries * MAX_TOMBSTONE_PERCENT
            || meta.shadowed > 0
        {
            continue;
        }
        let Some(n) = deepest_target(picker, source, table, |_| true).filter(|&n| n >= min_target) else {
            continue;
        };
        if target == 0 || target == n {
            target = n;
            chosen.push(table.clone());
        }
    }
    chosen.sort_by(|a, b| a.meta.smallest.cmp(&b.meta.smallest));
    let first = chosen.first()?;
    // Between two cuts lie the tables that share keys; in an ordered version each one alone.
    let (mut cuts, mut reached) = (Vec::new(), &first.meta.largest);
    for LiveTable { meta, .. } in chosen[1..].iter().map(|table| &**table) {
        if meta.smallest > *reached {
            cuts.push(Slice::copy_from(&meta.smallest));
        }
        reached = reached.max(&meta.largest);
    }
    let plan = Plan {
        source,
        target,
        from: Slice::copy_from(&first.meta.smallest),
        to: Some(key_after(reached)),
        bottom: vec![false; cuts.len() + 1],
        cuts,
        inputs: chosen.iter().map(|t| (source, t.clone())).collect(),
        ..Plan::empty(Reason::Move)
    };
    seqno_order::is_ordered_with(picker.version, &plan, picker.in_progress).then_some(plan)
}

/// The level for a table whose entries are newer than all others, outside of the version: the deepest to which it could be moved from level 0,
/// whatever plans are in progress.
pub(crate) fn level_of_newest(picker: &Picker<'_>, table: &Arc<LiveTable>) -> usize {
    let min_target = if picker.options.skip_levels { picker.first_used() } else { 1 };
    // A plan may write above the table what is older, and add guards inside the table.
    let reached = picker.in_progress.iter().filter(|plan| plan.overlaps_keys(&table.meta));
    let end = reached.map(|plan| plan.target).min().unwrap_or(usize::MAX);
    deepest_target(picker, 0, table, |n| n < end).filter(|&n| n >= min_target).unwrap_or(0)
}

/// The deepest level below `source` that the table can be moved to, of those that are `allowed`.
fn deepest_target(
    picker: &Picker<'_>,
    source: usize,
    table: &Arc<LiveTable>,
    allowed: impl Fn(usize) -> bool,
) -> Option<usize> {
    let version = picker.version;
    let mut found = None;
    for n in source + 1..=version.last_level() {
        let level = version.level(n);
        let (first, last) = (level.find(&table.meta.smallest), level.find(&table.meta.largest));
        let mut there = level.guards[first..=last].iter().flat_map(|g| &g.tables);
        let passes = !version.unordered && there.any(|t| t.overlaps(table));
        if passes && !planted(Bug::MovePastOlderTables) {
            break;
        }
        // With adaptive guards, the table may get a guard of its own.
        let has_room = picker.options.guard_bytes > 0 || level.guards[first].tables.len() + 1 < MAX_TABLES;
        let fits = seqno_order::fits_as_one(version, std::slice::from_ref(table), n);
        if first == last && has_room && allowed(n) && (fits || planted(Bug::MovePastOlderTables)) {
            found = Some(n);
        }
    }
    found
}
