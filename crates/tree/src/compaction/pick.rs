//! Picks the most urgent compaction. The order of the policies:
//!
//! 1. tables that range tombstones hide completely (`range_tombstones.rs`), or that have expired (`expired.rs`)
//! 2. on a nearly full disk, only plans that fit and free space (`low_space.rs`)
//! 3. level 0: with enough tables, or early because of reads or a pause of writes (`level0.rs`, `read_triggered.rs`, `idle.rs`);
//!    tables that can be moved come first (`trivial_move.rs`)
//! 4. the candidates for guards, ordered by [`Reason`] and score (`shape.rs`, `read_triggered.rs`, `space_amp.rs`, `idle.rs`)

use super::picker::{Candidate, Picker};
use super::plan::{Plan, Reason};
use super::{
    expired, guard, idle, level0, low_space, range_tombstones, read_triggered, shape, space_amp, trivial_move,
};

/// The most urgent plan that shares no table with a plan in progress.
pub(crate) fn pick(picker: &Picker<'_>) -> Option<Plan> {
    if let Some(plan) = range_tombstones::hidden_tables(picker) {
        return Some(plan);
    }
    if let Some(plan) = expired::tables(picker) {
        return Some(plan);
    }
    if picker.free_space.is_some() {
        return low_space::pick(picker);
    }
    if let Some(reason) = level0_reason(picker) {
        // A move would not bring values into tables.
        let moved = if reason == Reason::Scans { None } else { trivial_move::of_level0(picker) };
        let plan = moved.or_else(|| level0::plan(picker, reason));
        if plan.is_some() {
            return plan;
        }
    }
    let of_guard = |c: Candidate| guard::plan(picker, c.reason, c.level, c.guard);
    candidates(picker).into_iter().find_map(of_guard)
}

/// Why level 0 should be compacted.
fn level0_reason(picker: &Picker<'_>) -> Option<Reason> {
    match picker.version.level0.len() >= picker.options.level0_tables {
        true => Some(Reason::Level0),
        false => {
            let idle = || idle::level0_is_due(picker).then_some(Reason::Idle);
            read_triggered::level0_reason(picker).or_else(idle)
        }
    }
}

/// Guards to compact, the most urgent first.
fn candidates(picker: &Picker<'_>) -> Vec<Candidate> {
    let mut candidates = Vec::new();
    shape::candidates(picker, &mut candidates);
    expired::candidates(picker, &mut candidates);
    read_triggered::candidates(picker, &mut candidates);
    space_amp::candidates(picker, &mut candidates);
    idle::candidates(picker, &mut candidates);
    candidates.sort_by(|a, b| a.reason.cmp(&b.reason).then(b.score.total_cmp(&a.score)));
    candidates
}
