//! Choosing what to compact when the disk is nearly full.
//!
//! A compaction needs room for all of its output before its inputs go, and the ordinary plans, for all of level 0 or for a large
//! guard, may not find it. Then only plans are made that fit, and of these the ones that give room back: guards of the last
//! level are merged in place, where deletes and newer versions take older ones away; where none is left, tombstones sink
//! towards them, from level 0 a few tables at a time. Each plan leaves fewer runs or moves tables down, so this comes to an end.

use crate::pick::{Picker, Plan, Reason};
use crate::version::TableFile;
use std::collections::HashSet;
use std::sync::Arc;

/// What a table takes beside its entries, about: index, filter, properties, footer.
const PIECE_OVERHEAD: u64 = 512;

impl Picker<'_> {
    /// Whether there is room for the output of a plan.
    pub(crate) fn fits(&self, plan: &Plan) -> bool {
        let pieces = plan.cuts.len() as u64 + 1;
        let needed = if plan.is_move() { 0 } else { plan.input_bytes() + pieces * PIECE_OVERHEAD };
        self.room.is_none_or(|room| needed <= room)
    }

    /// How many of the oldest tables of level 0 there is room for; at least one.
    pub(crate) fn fitting(&self, tables: &[Arc<TableFile>]) -> usize {
        let Some(room) = self.room else { return usize::MAX };
        let mut bytes = 0;
        let fit = tables.iter().rev().take_while(|t| {
            bytes += t.meta.file_size;
            bytes <= room
        });
        fit.count().max(1)
    }

    /// A plan that fits and makes room, or leads to one.
    pub(crate) fn pick_tight(&self, busy: &HashSet<u64>) -> Option<Plan> {
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
        // The last level first, because only there something goes; most tombstones first.
        guards.sort_unstable_by(|a, b| b.cmp(a));
        let of_guard = |&(n, _, index): &(usize, u64, usize)| {
            self.guard(Reason::Tombstones, n, index, busy).filter(|plan| self.fits(plan))
        };
        guards.iter().find_map(of_guard).or_else(|| self.level0_tight(Reason::Level0, busy))
    }

    /// A plan for as many of the oldest tables of level 0 as there is room for. Where it seems that there is none even for a few:
    /// for these, because much of what is in them may go.
    pub(crate) fn level0_tight(&self, reason: Reason, busy: &HashSet<u64>) -> Option<Plan> {
        // The more it is cut, the more room it needs beside what is in it: so fewer tables may fit where many do not.
        let shares = [1, 2, 4, 8, 16].map(|share| self.room.map(|room| room / share));
        let mut smallest = None;
        for room in shares {
            let plan = Picker { room, ..*self }.level0(reason, busy)?;
            if self.fits(&plan) {
                return Some(plan);
            }
            smallest = Some(plan);
        }
        smallest
    }
}
