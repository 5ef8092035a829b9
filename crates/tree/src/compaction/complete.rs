//! Completes a plan that has its inputs, range and target: tables of the target that are merged along, cuts of the output, and the
//! pieces in which tombstones can be dropped.

use super::picker::Picker;
use super::plan::Plan;
use super::seqno_order;
use crate::version::Guard;
use std::collections::HashSet;

/// Completes a plan.
pub(super) fn complete(picker: &Picker<'_>, mut plan: Plan) -> Plan {
    add_overlapped_guards(picker, &mut plan);
    let consumed: HashSet<u64> = plan.numbers().collect();
    add_cuts(picker, &mut plan, &consumed);
    let pieces = 0..=plan.cuts.len();
    plan.bottom = pieces
        .map(|i| {
            let from = if i == 0 { &plan.from[..] } else { &plan.cuts[i - 1][..] };
            let to = plan.cuts.get(i).map(|k| &k[..]).or(plan.end());
            is_bottom(picker, plan.target, from, to, &consumed)
        })
        .collect();
    plan
}

/// Adds the tables of the target's guards that the plan merges along, and cuts at the keys of all guards that it keeps.
fn add_overlapped_guards(picker: &Picker<'_>, plan: &mut Plan) {
    let target = picker.version.level(plan.target);
    let indices = target.overlapping(&plan.from, plan.end());
    let guards = indices.len() as u64;
    let mut merged_along = Vec::new();
    for index in indices {
        let guard = &target.guards[index];
        let end = target.end_of(index).map(|k| &k[..]);
        if plan.target != plan.source && is_merged_along(picker, plan, guard, end, guards) {
            merged_along.extend(guard.tables.iter().map(|t| (plan.target, t.clone())));
        }
        if guard.key > plan.from && !plan.guards_removed.contains(&guard.key) {
            plan.cuts.push(guard.key.clone());
        }
    }
    plan.inputs.extend(merged_along);
}

/// Whether a guard of the target level takes part in the merge instead of having a piece attached: always in a leveled tree; in the
/// last level when it is full ("we cannot attach new sstables in the last level if the guard is full", section 3.4), but not for a
/// plan from level 0, which would rewrite the whole level in one job.
fn is_merged_along(picker: &Picker<'_>, plan: &Plan, guard: &Guard, end: Option<&[u8]>, guards: u64) -> bool {
    let max_runs = picker.options.max_tables_per_guard;
    let into_last = plan.target == picker.version.last_level();
    let full = guard.runs >= max_runs && (max_runs == 1 || into_last && plan.source != 0);
    let outgrown =
        || into_last && picker.adaptive_guards().is_outgrown(guard, plan.input_bytes() / guards.max(1));
    !guard.tables.is_empty()
        && (full || outgrown())
        && !guard.tables.iter().any(|t| picker.busy.contains(&t.meta.number) || t.damage.is_unreadable())
        && (plan.inputs.iter()).any(|(n, t)| *n == plan.source && t.overlaps_range(&guard.key, end))
}

/// Adds the cuts at guards that the target may get, and those for the order of sequence numbers.
fn add_cuts(picker: &Picker<'_>, plan: &mut Plan, consumed: &HashSet<u64>) {
    let version = picker.version;
    let target = version.level(plan.target);
    let bytes = plan.input_bytes();
    let adaptive = picker.adaptive_guards();
    plan.cuts.extend(adaptive.cuts_above(plan.target, (&plan.from[..], plan.to.as_deref()), bytes, consumed));
    plan.piece_bytes = adaptive.piece_bytes(plan.target, bytes, !plan.cuts.is_empty());
    // Keys that a hash has chosen are of no use where the data chooses: a cut would bring back a guard that the plan removes.
    let chosen = picker.options.guard_bytes == 0;
    let chosen = chosen.then(|| version.uncommitted_in(&plan.from, plan.to.as_deref()));
    for (key, level) in chosen.into_iter().flatten() {
        // A key that cannot become a guard of a level below cannot become one here: a cut would only make small tables.
        let mut below = (plan.target + 1..=version.last_level()).map(|n| version.level(n));
        let may_have_guard_below = below.all(|l| l.has_guard(key) || !l.straddled(key));
        if level <= plan.target
            && !target.has_guard(key)
            && *key > plan.from
            && !target.straddled_without(key, consumed)
            && may_have_guard_below
        {
            plan.cuts.push(key.clone());
        }
    }
    plan.cuts.sort_unstable();
    seqno_order::cut_for_order(version, plan);
}

/// Whether no table at `target` or deeper, other than the consumed ones, may have keys in the range.
fn is_bottom(
    picker: &Picker<'_>,
    target: usize,
    from: &[u8],
    to: Option<&[u8]>,
    consumed: &HashSet<u64>,
) -> bool {
    (target..=picker.version.last_level())
        .all(|n| picker.version.level(n).tables_in(from, to).all(|t| consumed.contains(&t.meta.number)))
}
