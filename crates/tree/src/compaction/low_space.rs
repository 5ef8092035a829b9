//! Compaction on a nearly full disk.
//!
//! A compaction needs disk space for its whole output before its inputs are deleted, and plans for all of level 0 or
//! for a large guard may not find it. So on a nearly full disk only plans are made that fit, and that free space:
//! guards of the last level are merged in place, where deletes and newer versions remove older ones. Where nothing is
//! left to merge there, tombstones are moved down, from level 0 a few tables at a time. Each plan leaves fewer runs or
//! moves tables down, so the sequence of plans ends.

use super::picker::Picker;
use super::plan::{Plan, Reason};
use super::{guard, level0, range_tombstones};

/// A plan that fits and frees space, or leads to such a plan.
pub(super) fn pick(picker: &Picker<'_>) -> Option<Plan> {
    let last = picker.version.last_level();
    let mut guards = Vec::new();
    for (n, index, guard) in picker.version.guards() {
        let tombstones: u64 = guard.tables.iter().map(|t| t.meta.tombstones).sum();
        let useful = match n == last {
            true => guard.runs > 1 || range_tombstones::would_drop_entries(picker, guard),
            false => tombstones > 0,
        };
        if useful {
            guards.push((n, tombstones, index));
        }
    }
    // The last level first, because only merges there free space; then most tombstones first.
    guards.sort_unstable_by(|a, b| b.cmp(a));
    let of_guard = |&(n, _, index): &(usize, u64, usize)| {
        guard::plan(picker, Reason::Tombstones, n, index).filter(|plan| picker.fits(plan))
    };
    guards.iter().find_map(of_guard).or_else(|| level0_that_fits(picker, Reason::Level0))
}

/// A plan for as many of the oldest tables of level 0 as fit on the disk. If not even a few seem to fit, a plan for these: many of
/// their entries may be dropped.
pub(super) fn level0_that_fits(picker: &Picker<'_>, reason: Reason) -> Option<Plan> {
    // The overhead grows with the number of cuts. So a smaller part may fit where a larger one does not.
    let parts = [1, 2, 4, 8, 16].map(|part| picker.free_space.map(|free_space| free_space / part));
    let mut smallest = None;
    for free_space in parts {
        let plan = level0::plan(&Picker { free_space, ..picker.clone() }, reason)?;
        if picker.fits(&plan) {
            return Some(plan);
        }
        smallest = Some(plan);
    }
    smallest
}
