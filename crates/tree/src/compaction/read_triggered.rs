//! Read-triggered compaction: compares the charges of guards and of level 0 with their prices. `read/charge.rs` has the cost model.

use super::picker::{Candidate, Picker};
use super::plan::Reason;
use crate::read::JOB_COST;
use std::sync::atomic::Ordering;

/// The guards that are due because of reads.
pub(super) fn candidates(picker: &Picker<'_>, candidates: &mut Vec<Candidate>) {
    if picker.options.seek_cost == 0 {
        return;
    }
    for (n, guard, g) in picker.version.guards() {
        let charges = g.charges.load(Ordering::Relaxed);
        let sheds = || picker.can_shed_tombstones(n, g) && charges >= g.price(picker.bytes_below(n, guard));
        if charges >= g.price(0) && (g.runs > 1 || sheds()) {
            let score = charges as f64 / g.merge_cost as f64;
            candidates.push(Candidate { reason: Reason::Seeks, level: n, guard, score });
        }
    }
}

/// Whether level 0 is due because of reads: some table and all older ones, which go down with it.
pub(super) fn level0_is_due(picker: &Picker<'_>) -> bool {
    if picker.options.seek_cost == 0 || !picker.allows_early_level0() {
        return false;
    }
    let (mut charges, mut price) = (0, JOB_COST);
    picker.version.level0.iter().rev().any(|table| {
        charges += table.charges.load(Ordering::Relaxed);
        price += 2 * table.meta.file_size;
        charges >= price
    })
}
