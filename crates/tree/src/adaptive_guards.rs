//! Guards chosen while compacting, from the data itself: [`GuardPolicy::Adaptive`](crate::TreeOptions::guard_bytes).
//!
//! A hash of the keys spreads guards evenly over *keys* and needs to know beforehand how many there will be. Here guards follow the
//! bytes, whatever the keys look like and however many there are:
//!
//! - **Cut.** A merge into the last level cuts its output where a piece has reached `guard_bytes`, between two keys, and where nothing
//!   else lies in the range.
//! - **Taken up.** Where a guard of the last level has enough bytes on both sides of a place that no table lies across, the place becomes a guard:
//!   behind a cut, or between tables that were moved there. Nothing is rewritten for it.
//! - **Above.** A level above the last takes its guards from the level below, one for as many bytes there as a full guard brings down. So
//!   the guards of a level are guards of all deeper ones.
//! - **Joined.** A guard of the last level that is merged takes small neighbours along, and the guards between them go; neighbours that have both
//!   become very small are merged for that.
//! - **Dropped.** Empty ones go as ever (ADR 3).
//!
//! Why joining keeps the order: tables of two guards share no key, so the joined stack is in order for each pair of its tables,
//! whatever their sequence numbers. What is *made* of tables from both might not be, because its box spans both histories; `seqno_order.rs` holds
//! each plan against all that it leaves alone, and cuts its output where needed. To need that seldom, guards are joined only
//! where the levels above have no boundary: then what lies in both has always come down together, as in one guard.
//!
//! Between the size at which a guard is divided and that at which two are joined there is a factor of two, so nothing goes back and forth.

use crate::pick::{Picker, Plan};
use crate::version::{Guard, TableFile};
use base::Slice;
use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

/// A guard of the last level with so many times the bytes that a guard should have is merged before it has all the runs that it may have: so that one
/// job is not too large.
const MAX: u64 = 16;

/// A merge for the size of a guard waits for so many runs: with fewer it would rewrite much for little.
const RUNS_TO_DIVIDE: usize = 4;

/// Whether a guard of the last level has become too large.
pub(crate) fn is_too_large(guard: &Guard, guard_bytes: u64) -> bool {
    guard_bytes > 0 && guard.runs >= RUNS_TO_DIVIDE && guard.bytes() >= MAX * guard_bytes
}

/// Keys at which a guard can be divided with nothing lying across, so that each part has at least half the bytes that a
/// guard should have.
pub(crate) fn places_to_divide(guard: &Guard, guard_bytes: u64) -> Vec<Slice> {
    let least = guard_bytes / 2;
    let mut left = guard.bytes();
    if guard_bytes == 0 || guard.tables.len() < 2 || left < 2 * least {
        return Vec::new();
    }
    let mut tables: Vec<&Arc<TableFile>> = guard.tables.iter().collect();
    tables.sort_by(|a, b| a.meta.smallest.cmp(&b.meta.smallest));
    let (mut places, mut bytes) = (Vec::new(), 0);
    let mut reached = &tables[0].meta.largest;
    for table in tables {
        if table.meta.smallest > *reached && bytes >= least && left >= least {
            places.push(Slice::copy_from(&table.meta.smallest));
            bytes = 0;
        }
        reached = reached.max(&table.meta.largest);
        bytes += table.meta.file_size;
        left -= table.meta.file_size;
    }
    places
}

impl Picker<'_> {
    /// Where a merge cuts its output besides its cuts, in bytes; 0 for nowhere.
    pub(crate) fn piece_bytes(&self, plan: &Plan) -> u64 {
        let wanted = self.options.guard_bytes;
        if wanted == 0 || plan.target != self.version.last_level() {
            return 0;
        }
        match plan.cuts.is_empty() {
            // Equal parts.
            true => {
                let bytes = plan.input_bytes();
                bytes.div_ceil(((bytes + wanted / 2) / wanted).max(1)).max(wanted)
            }
            false => wanted,
        }
    }

    /// Guards of the next level at which a merge into a level above the last cuts its output, so that they become guards there: one for as
    /// many bytes below as a full guard brings down.
    pub(crate) fn cuts_above(&self, plan: &Plan, consumed: &HashSet<u64>) -> Vec<Slice> {
        let mut cuts = Vec::new();
        if self.options.guard_bytes == 0 || plan.target == self.version.last_level() {
            return cuts;
        }
        let (target, below) = (self.version.level(plan.target), self.version.level(plan.target + 1));
        let wanted = self.options.guard_bytes * self.options.max_tables_per_guard.max(2) as u64;
        let most = plan.input_bytes() / self.options.min_piece_bytes.max(1);
        let mut bytes = 0;
        for index in below.overlapping(&plan.from, plan.to.as_ref().map(|k| &k[..])) {
            let key = &below.guards[index].key;
            if target.has_guard(key) {
                bytes = 0;
            } else if bytes >= wanted && *key > plan.from && (cuts.len() as u64) < most {
                let guard = &target.guards[target.find(key)];
                let straddled = (guard.tables.iter())
                    .filter(|t| !consumed.contains(&t.meta.number))
                    .any(|t| t.meta.smallest[..] < key[..] && key[..] <= t.meta.largest[..]);
                if !straddled {
                    cuts.push(key.clone());
                    bytes = 0;
                }
            }
            bytes += below.guards[index].bytes();
        }
        cuts
    }

    /// Whether a guard of the last level takes part in a merge from level 0 because that brings more than it has, and it would be too
    /// large afterwards: now it can be divided at little cost.
    pub(crate) fn outgrown(&self, plan: &Plan, guard: &Guard, guards: u64) -> bool {
        let wanted = self.options.guard_bytes;
        let comes = plan.input_bytes() / guards.max(1);
        wanted > 0 && 2 * guard.bytes() <= comes && guard.bytes() + comes > 2 * wanted
    }

    /// The guards of the last level around `index` that are merged together with it, because they are small.
    pub(crate) fn small_neighbours(&self, index: usize, busy: &HashSet<u64>) -> Range<usize> {
        let guards = &self.version.level(self.version.last_level()).guards;
        let most = self.options.guard_bytes / 2;
        let mut range = index..index + 1;
        let mut bytes = guards[index].bytes();
        let free = |g: &Guard| g.tables.iter().all(|t| !busy.contains(&t.meta.number) && !t.is_unreadable());
        while let Some(next) = guards.get(range.end)
            && bytes + next.bytes() < most
            && free(next)
            && self.can_go(&next.key)
        {
            bytes += next.bytes();
            range.end += 1;
        }
        while range.start > 0
            && bytes + guards[range.start - 1].bytes() < most
            && free(&guards[range.start - 1])
            && self.can_go(&guards[range.start].key)
        {
            range.start -= 1;
            bytes += guards[range.start].bytes();
        }
        range
    }

    /// Whether a guard and the next one of the last level have both become so small that they should be one.
    pub(crate) fn should_be_joined(&self, index: usize) -> bool {
        let guards = &self.version.level(self.version.last_level()).guards;
        let small = |g: &Guard| !g.tables.is_empty() && g.bytes() < self.options.guard_bytes / 8;
        small(&guards[index])
            && guards.get(index + 1).is_some_and(|next| small(next) && self.can_go(&next.key))
    }

    /// Whether a guard of the last level may be given up: it divides nothing in the levels above.
    fn can_go(&self, key: &[u8]) -> bool {
        (1..self.version.last_level()).all(|n| !self.version.level(n).has_guard(key))
    }
}
