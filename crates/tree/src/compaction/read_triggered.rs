//! Read-triggered compaction: compares the charges of guards and of level 0 with their prices. `read/charge.rs` has the cost model.

use super::expired;
use super::picker::{Candidate, Picker};
use super::plan::Reason;
use crate::read::JOB_COST;
use crate::version::LiveTable;
use std::sync::atomic::{AtomicU64, Ordering};

/// The guards that are due because of reads.
pub(super) fn candidates(picker: &Picker<'_>, candidates: &mut Vec<Candidate>) {
    let seek_cost = picker.options.seek_cost;
    if seek_cost == 0 {
        return;
    }
    for (n, guard, g) in picker.version.guards() {
        let charges = g.charges.load(Ordering::Relaxed);
        let can_shed = || picker.can_shed_tombstones(n, g) || expired::has_expired_entries(picker, g);
        let sheds = || can_shed() && charges >= g.price(picker.bytes_below(n, guard));
        if charges >= g.price(0) && (g.runs > 1 || sheds()) {
            let score = charges as f64 / g.merge_cost as f64;
            candidates.push(Candidate { reason: Reason::Seeks, level: n, guard, score });
        }
        let (charges, price) = (g.value_charges.load(Ordering::Relaxed), g.inline_price(seek_cost));
        if charges > 0 && charges >= price {
            let score = charges as f64 / price as f64;
            candidates.push(Candidate { reason: Reason::Scans, level: n, guard, score });
        }
    }
}

/// Why level 0 is due because of reads, if it is: some table and all older ones, which go down with it.
pub(super) fn level0_reason(picker: &Picker<'_>) -> Option<Reason> {
    let seek_cost = picker.options.seek_cost;
    if seek_cost == 0 || !picker.allows_early_level0() {
        return None;
    }
    let is_due = |charge: fn(&LiveTable) -> &AtomicU64, cost: &dyn Fn(&LiveTable) -> u64| {
        let (mut charges, mut price) = (0, JOB_COST);
        picker.version.level0.iter().rev().any(|table| {
            charges += charge(table).load(Ordering::Relaxed);
            price = price.saturating_add(cost(table));
            charges >= price
        })
    };
    if is_due(|table| &table.value_charges, &|table| table.inline_cost(seek_cost)) {
        return Some(Reason::Scans);
    }
    is_due(|table| &table.charges, &|table| 2 * table.meta.file_size).then_some(Reason::Seeks)
}
