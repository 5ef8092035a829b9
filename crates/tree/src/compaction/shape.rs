//! Candidates for the shape of the tree: full guards, tables full of tombstones, small neighbours, and levels that are large compared
//! to the next one.

use super::picker::{Candidate, MAX_TABLES, Picker};
use super::plan::Reason;
use super::range_tombstones;
use crate::guards;
use crate::version::{Guard, LiveTable};
use std::sync::Arc;

pub(super) fn candidates(picker: &Picker<'_>, candidates: &mut Vec<Candidate>) {
    for n in 1..=picker.version.last_level() {
        let level = picker.version.level(n);
        let guards = || level.guards.iter().enumerate().filter(|(_, g)| !g.tables.is_empty());
        for (index, guard) in guards() {
            if let Some((reason, score)) = reason_for(picker, n, index, guard) {
                candidates.push(Candidate { reason, level: n, guard: index, score });
            }
        }
        if let Some(score) = level_size_score(picker, n) {
            for (index, guard) in guards() {
                // Guards with the best ratio of their own bytes to the bytes below come first.
                let score = score * guard.bytes() as f64 / (1 + picker.bytes_below(n, index)) as f64;
                candidates.push(Candidate { reason: Reason::LevelSize, level: n, guard: index, score });
            }
        }
    }
}

/// Why the guard should be compacted, and how urgently.
fn reason_for(picker: &Picker<'_>, n: usize, index: usize, guard: &Guard) -> Option<(Reason, f64)> {
    let options = picker.options;
    let is_last = n == picker.version.last_level();
    let max_runs = options.max_tables_per_guard.max(2);
    // Merging tables that do not overlap gains little, so runs count. The number of tables is bounded too, because reads search
    // among them.
    let too_large = is_last && guards::is_too_large(guard, options.guard_bytes);
    if guard.runs >= max_runs || guard.tables.len() >= MAX_TABLES || too_large {
        return Some((Reason::GuardFull, (guard.runs as f64 / max_runs as f64).max(1.0)));
    }
    if has_tombstones_due(picker, n, guard) || range_tombstones::guard_is_due(picker, guard) {
        let tombstones: u64 = guard.tables.iter().map(|t| t.meta.tombstones).sum();
        return Some((Reason::Tombstones, tombstones as f64));
    }
    let join = is_last && picker.adaptive_guards().should_join_next(index);
    join.then_some((Reason::SmallGuards, 0.0))
}

fn has_tombstones_due(picker: &Picker<'_>, n: usize, guard: &Guard) -> bool {
    let percent = u64::from(picker.options.tombstone_percent);
    let is_due =
        |t: &Arc<LiveTable>| t.meta.tombstones > 0 && t.meta.tombstones * 100 >= t.meta.entries * percent;
    percent > 0 && guard.tables.iter().any(is_due) && picker.can_shed_tombstones(n, guard)
}

/// At least 1 when level `n` has reached its permitted share of the next level that has tables.
fn level_size_score(picker: &Picker<'_>, n: usize) -> Option<f64> {
    let version = picker.version;
    let percent = f64::from(picker.options.level_size_percent);
    if percent == 0.0 {
        return None;
    }
    let next = (n + 1..=version.last_level()).map(|m| version.level(m).bytes()).find(|&b| b > 0)?;
    let score = version.level(n).bytes() as f64 / (next as f64 * percent / 100.0);
    (score >= 1.0).then_some(score)
}
