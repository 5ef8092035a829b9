//! Idle compaction: compactions that are worthwhile only while writes pause.
//!
//! While writes continue, data is rewritten as rarely as space and the number of runs allow (`space_amp.rs`). That
//! leaves several runs in a guard and some tables in level 0, which every read has to search, and older versions, which
//! take space in the page cache. When writes pause, CPU and disk are free to improve this:
//!
//! - Level 0 is compacted if its pieces have a useful size.
//! - A guard of the last level is merged into one run when the tables beside its oldest run have `space_target - 1`
//!   times the bytes of that run.
//! - A guard of another level that has several runs is merged into the next level when it has at least
//!   (`space_target - 1`) / `max_tables_per_guard` of the bytes of the guards below: a seek then has fewer runs to search,
//!   and large pieces below.
//!
//! The last two rules bound the cost for any pattern of pauses. Between two merges of a guard of the last level, `space_target - 1`
//! of its size was written, because as many pieces as fill it have that size. So a byte costs at most 1 + 1 / (`space_target` - 1) more
//! writes there: 3 at the default of 1.5. And each level above writes it once, as without pauses. With a larger `space_target`, guards are
//! merged and rewritten less often.
//!
//! The guards of an unordered tree are left as they are where the number of versions does not count: tables of different times that lie beside each other let a
//! query leave out those of other times (ADR 25).

use super::picker::{Candidate, Picker};
use super::plan::Reason;
use crate::version::{Guard, LiveTable};
use std::sync::Arc;

/// Bytes of the oldest run of a guard: the oldest tables that do not overlap each other.
fn oldest_run(guard: &Guard) -> u64 {
    let mut run: Vec<&Arc<LiveTable>> = Vec::new();
    for table in guard.tables.iter().rev() {
        if !run.iter().any(|t| t.overlaps(table)) {
            run.push(table);
        }
    }
    run.iter().map(|t| t.meta.file_size).sum()
}

/// Whether level 0 should be compacted because writes pause.
pub(super) fn level0_is_due(picker: &Picker<'_>) -> bool {
    let version = picker.version;
    if !picker.idle || version.level0.is_empty() || !picker.allows_early_level0() {
        return false;
    }
    let bytes: u64 = version.level0.iter().map(|t| t.meta.file_size).sum();
    let guards = version.level(version.last_level()).guards.len() as u64;
    bytes >= guards * picker.options.min_piece_bytes
}

/// Guards that should be compacted because writes pause: several runs become one, or go down.
pub(super) fn candidates(picker: &Picker<'_>, candidates: &mut Vec<Candidate>) {
    let drops_none = picker.version.unordered && !picker.options.counts_versions;
    if !picker.idle || drops_none {
        return;
    }
    let last = picker.version.last_level();
    for (level, guard, g) in picker.version.guards().filter(|(_, _, g)| g.runs > 1) {
        let (ratio, due) = if level == last {
            let oldest = oldest_run(g);
            ((g.bytes() - oldest) as f64 / oldest.max(1) as f64, picker.options.space_target - 1.0)
        } else {
            let below = picker.bytes_below(level, guard);
            let runs = picker.options.max_tables_per_guard as f64;
            (g.bytes() as f64 / below.max(1) as f64, (picker.options.space_target - 1.0) / runs)
        };
        if ratio >= due {
            candidates.push(Candidate { reason: Reason::Idle, level, guard, score: ratio });
        }
    }
}
