//! Requested compactions: the plans that lead to one table per guard of the last level, for a range of keys.
//!
//! A request covers the entries that were there when it began (`requested_seq`), so it ends beside writers.

use super::picker::Picker;
use super::plan::{PickBlocked, Plan, Reason};
use super::{expired, guard, low_space, range_tombstones, trivial_move};
use crate::version::{Guard, runs};

/// The next plan of a request. The request is done (`Ok(None)`) when the entries of `[from, to)` that are no newer than
/// `requested_seq` are in one table per guard of the last level. A plan may include newer entries, but none is made for them alone.
///
/// The sequence of plans ends even if writes go on. For any key, the number of covered tables with the key never grows, because a
/// plan makes at most one table of its inputs at a key; no covered table moves up; and each plan moves a covered table down or
/// leaves fewer of them. (In the last level, a table that is covered as a whole is merged alone if it has tombstones or older
/// versions to drop, or is older than `rewritten_before`: each such merge leaves fewer of them.)
pub(crate) fn pick_range(
    picker: &Picker<'_>,
    from: &[u8],
    to: Option<&[u8]>,
) -> Result<Option<Plan>, PickBlocked> {
    let hidden = range_tombstones::hidden_tables(picker);
    if let Some(plan) = hidden.filter(|plan| picker.is_progress(plan)) {
        return Ok(Some(plan));
    }
    let mut search = Search { picker, from, to, oversized: None, damage: false };
    if let Some(plan) = search.level0()? {
        return Ok(Some(plan));
    }
    for n in 1..=picker.version.last_level() {
        if let Some(plan) = search.level(n)? {
            return Ok(Some(plan));
        }
    }
    match (search.oversized, search.damage) {
        (Some(plan), _) => Ok(Some(plan)),
        // More may be possible when the plans in progress have ended.
        (None, true) if !picker.in_progress.is_empty() => Err(PickBlocked::InProgress),
        (None, true) => Err(PickBlocked::Damage),
        (None, false) => Ok(None),
    }
}

struct Search<'a> {
    picker: &'a Picker<'a>,
    from: &'a [u8],
    to: Option<&'a [u8]>,
    /// A plan that does not fit on the disk, used if there is no other.
    oversized: Option<Plan>,
    /// Unreadable tables prevent a plan. The other guards are compacted all the same.
    damage: bool,
}

impl Search<'_> {
    fn level0(&mut self) -> Result<Option<Plan>, PickBlocked> {
        let picker = self.picker;
        let mut tables = picker.version.level0.iter();
        if !tables.any(|t| picker.is_requested(t) && t.overlaps_range(self.from, self.to)) {
            return Ok(None);
        }
        let moved = trivial_move::of_level0(picker);
        if let Some(plan) = moved.filter(|plan| picker.is_progress(plan)) {
            return Ok(Some(plan));
        }
        let plan = low_space::level0_that_fits(picker, Reason::Manual);
        match plan.filter(|plan| picker.is_progress(plan)) {
            Some(plan) => Ok(self.fitting(plan)),
            None if picker.level0_is_busy() => Err(PickBlocked::InProgress),
            None => {
                self.damage = true;
                Ok(None)
            }
        }
    }

    fn level(&mut self, n: usize) -> Result<Option<Plan>, PickBlocked> {
        let picker = self.picker;
        let level = picker.version.level(n);
        for index in level.overlapping(self.from, self.to) {
            if !self.has_work(n, &level.guards[index]) {
                continue;
            }
            match guard::plan(picker, Reason::Manual, n, index) {
                Some(plan) => {
                    if let Some(plan) = self.fitting(plan) {
                        return Ok(Some(plan));
                    }
                }
                None if self.is_busy(&level.guards[index]) => return Err(PickBlocked::InProgress),
                None => self.damage = true,
            }
        }
        Ok(None)
    }

    /// Returns the plan if it fits on the disk, and remembers it otherwise.
    fn fitting(&mut self, plan: Plan) -> Option<Plan> {
        if self.picker.fits(&plan) {
            return Some(plan);
        }
        self.oversized.get_or_insert(plan);
        None
    }

    fn is_busy(&self, guard: &Guard) -> bool {
        guard.tables.iter().any(|t| self.picker.busy.contains(&t.meta.number))
    }

    /// Whether the request has work left in a guard: above the last level, to move its covered tables down; there, to merge them.
    fn has_work(&self, n: usize, guard: &Guard) -> bool {
        let picker = self.picker;
        let requested = || guard.tables.iter().filter(|t| picker.is_requested(t));
        let merge = || {
            runs(&requested().cloned().collect::<Vec<_>>()) > 1
                || picker.can_drop_versions(guard)
                || range_tombstones::would_drop_entries(picker, guard)
                || expired::has_expired_entries(picker, guard)
                || requested().any(|t| t.meta.number < picker.rewritten_before && !t.damage.is_unreadable())
        };
        requested().any(|t| t.overlaps_range(self.from, self.to))
            && (n < picker.version.last_level() || merge())
    }
}
