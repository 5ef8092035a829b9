//! Plans for one guard: move its tables, merge them into the next level, or merge them in place.

use super::complete::complete;
use super::picker::Picker;
use super::plan::{Plan, Reason};
use super::{seqno_order, trivial_move, unreadable};
use crate::version::{Guard, Level, LiveTable};
use std::sync::Arc;

/// A plan for guard `index` of level `n`; `None` if a plan in progress reads one of its tables, or has to end first for another
/// reason.
pub(super) fn plan(picker: &Picker<'_>, reason: Reason, n: usize, index: usize) -> Option<Plan> {
    let level = picker.version.level(n);
    let planner = Planner { picker, reason, n, index, level, guard: &level.guards[index] };
    planner.plan().filter(|plan| seqno_order::is_ordered_with(picker.version, plan, picker.in_progress))
}

struct Planner<'a> {
    picker: &'a Picker<'a>,
    reason: Reason,
    n: usize,
    index: usize,
    level: &'a Level,
    guard: &'a Guard,
}

impl Planner<'_> {
    fn plan(&self) -> Option<Plan> {
        let (picker, tables) = (self.picker, &self.guard.tables[..]);
        if tables.is_empty() || tables.iter().any(|t| picker.busy.contains(&t.meta.number)) {
            return None;
        }
        let is_last = self.n == picker.version.last_level();
        // Not for tombstones or reads: a move would not help these.
        if !is_last
            && matches!(self.reason, Reason::GuardFull | Reason::LevelSize | Reason::Manual)
            && let Some(plan) = trivial_move::of_guard(picker, self.n, self.index)
            && picker.is_progress(&plan)
        {
            return Some(plan);
        }
        if unreadable::has_unreadable(tables) {
            return self.around_unreadable();
        }
        match is_last {
            true => self.in_last_level(),
            false => Some(self.down()),
        }
    }

    /// A plan without cuts from the guard to `target`, for some of its tables.
    fn merge(&self, target: usize, tables: &[Arc<LiveTable>]) -> Plan {
        Plan {
            source: self.n,
            target,
            from: self.guard.key.clone(),
            to: self.level.end_of(self.index).cloned(),
            inputs: tables.iter().map(|t| (self.n, t.clone())).collect(),
            ..Plan::empty(self.reason)
        }
    }

    fn around_unreadable(&self) -> Option<Plan> {
        let (picker, tables) = (self.picker, &self.guard.tables[..]);
        let fits = |tables: &[Arc<LiveTable>]| seqno_order::fits_as_one(picker.version, tables, self.n);
        let movable = unreadable::movable_down(picker.version, tables, usize::MAX);
        if self.n < picker.version.last_level() && movable.iter().any(|t| picker.is_requested(t)) {
            return Some(complete(picker, self.merge(self.n + 1, &movable)));
        }
        // Without cuts, so that fewer tables are left. Tombstones are kept.
        let movable = unreadable::largest_that_fits(picker.version, movable, tables, fits);
        if movable.iter().filter(|t| picker.is_requested(t)).count() > 1 {
            return Some(self.merge(self.n, &movable));
        }
        let eager = matches!(self.reason, Reason::Manual | Reason::Seeks);
        let min_tables = if eager { 2 } else { picker.options.max_tables_per_guard };
        let all = self.reason == Reason::Manual;
        let section = unreadable::mergeable_in_place(tables, min_tables, all, fits)?;
        Some(self.merge(self.n, &section)).filter(|plan| picker.is_progress(plan))
    }

    /// A merge in place, together with small neighbours.
    fn in_last_level(&self) -> Option<Plan> {
        let range = self.picker.adaptive_guards().small_neighbours(self.index, &self.picker.busy);
        let mut plan = self.merge(self.n, &self.guard.tables);
        if range.len() > 1 {
            let guards = &self.level.guards[range.clone()];
            plan.from = guards[0].key.clone();
            plan.to = self.level.end_of(range.end - 1).cloned();
            plan.inputs = guards.iter().flat_map(|g| &g.tables).map(|t| (self.n, t.clone())).collect();
            plan.guards_removed = guards[1..].iter().map(|g| g.key.clone()).collect();
        }
        // The neighbour is busy or cannot be read. Alone the guard would stay small, and be merged again and again.
        if self.reason == Reason::SmallGuards && plan.guards_removed.is_empty() {
            return None;
        }
        let plan = complete(self.picker, plan);
        // If no tables share keys, and the cuts for the order of sequence numbers would produce as many tables again, the merge
        // would repeat forever.
        let uncommitted = &self.picker.version.uncommitted;
        let order_cuts = plan.cuts.iter().filter(|key| !uncommitted.contains_key(*key)).count();
        let in_vain = self.reason == Reason::GuardFull
            && self.guard.runs == 1
            && plan.guards_removed.is_empty()
            && order_cuts + 1 >= self.guard.tables.len();
        (!in_vain).then_some(plan)
    }

    /// A merge into the next level, or in place where the next level is the last one and merging into it costs too much.
    fn down(&self) -> Plan {
        let target = self.n + 1;
        let down = complete(self.picker, self.merge(target, &self.guard.tables));
        let own = self.guard.bytes();
        let factor = u64::from(self.picker.options.last_level_merge_factor);
        let values =
            if self.reason == Reason::Scans { down.value_bytes() - self.guard.values.bytes } else { 0 };
        let costly = target == self.picker.version.last_level()
            && (down.input_bytes() - own).saturating_add(values) > own.saturating_mul(factor);
        // In place, the guard becomes one run. This is progress only for reasons that count runs, and for values.
        let counts_runs = self.guard.runs > 1 && matches!(self.reason, Reason::GuardFull | Reason::Seeks);
        if costly && (counts_runs || self.reason == Reason::Scans) {
            return complete(self.picker, self.merge(self.n, &self.guard.tables));
        }
        down
    }
}
