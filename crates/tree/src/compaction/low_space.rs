//! Compaction on a nearly full disk.
//!
//! A compaction needs disk space for its whole output before its inputs are deleted, and plans for all of level 0 or
//! for a large guard may not find it. So on a nearly full disk only plans are made that fit, and that free space:
//! guards of the last level are merged in place, where deletes and newer versions remove older ones. Where nothing is
//! left to merge there, tombstones are moved down, from level 0 a few tables at a time. Each plan leaves fewer runs or
//! moves tables down, so the sequence of plans ends.

use crate::compaction::pick::{Picker, Plan, Reason};
use crate::version::LiveTable;
use std::collections::HashSet;
use std::sync::Arc;

/// The approximate overhead of a table beside its entries: index, filter, properties, footer.
const PIECE_OVERHEAD: u64 = 512;

impl Picker<'_> {
    /// Whether the output of a plan fits on the disk.
    pub(crate) fn fits(&self, plan: &Plan) -> bool {
        let pieces = plan.cuts.len() as u64 + 1;
        let needed = if plan.is_move() { 0 } else { plan.input_bytes() + pieces * PIECE_OVERHEAD };
        self.free_space.is_none_or(|free_space| needed <= free_space)
    }

    /// How many of the oldest tables of level 0 fit on the disk; at least one.
    pub(crate) fn fitting_tables(&self, tables: &[Arc<LiveTable>]) -> usize {
        let Some(free_space) = self.free_space else { return usize::MAX };
        let mut bytes = 0;
        let fit = tables.iter().rev().take_while(|t| {
            bytes += t.meta.file_size;
            bytes <= free_space
        });
        fit.count().max(1)
    }

    /// A plan that fits and frees space, or leads to such a plan.
    pub(crate) fn pick_for_low_space(&self, busy: &HashSet<u64>) -> Option<Plan> {
        let last = self.version.last_level();
        let mut guards = Vec::new();
        for n in 1..=last {
            for (index, guard) in self.version.level(n).guards.iter().enumerate() {
                let tombstones: u64 = guard.tables.iter().map(|t| t.meta.tombstones).sum();
                let useful = match n == last {
                    true => {
                        guard.runs > 1
                            || self.droppable_tombstones(guard)
                            || self.has_range_deleted_entries(guard)
                    }
                    false => tombstones > 0,
                };
                if useful {
                    guards.push((n, tombstones, index));
                }
            }
        }
        // The last level first, because only merges there free space; then most tombstones first.
        guards.sort_unstable_by(|a, b| b.cmp(a));
        let of_guard = |&(n, _, index): &(usize, u64, usize)| {
            self.guard(Reason::Tombstones, n, index, busy).filter(|plan| self.fits(plan))
        };
        guards.iter().find_map(of_guard).or_else(|| self.level0_that_fits(Reason::Level0, busy))
    }

    /// A plan for as many of the oldest tables of level 0 as fit on the disk. If not even a few seem to fit, a plan for
    /// these: many of their entries may be dropped.
    pub(crate) fn level0_that_fits(&self, reason: Reason, busy: &HashSet<u64>) -> Option<Plan> {
        // The overhead grows with the number of cuts. So a smaller part may fit where a larger one does not.
        let shares = [1, 2, 4, 8, 16].map(|share| self.free_space.map(|free_space| free_space / share));
        let mut smallest = None;
        for free_space in shares {
            let plan = Picker { free_space, ..*self }.level0(reason, busy)?;
            if self.fits(&plan) {
                return Some(plan);
            }
            smallest = Some(plan);
        }
        smallest
    }
}
