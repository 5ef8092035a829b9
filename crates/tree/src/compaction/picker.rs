//! [`Picker`]: what the policies decide from, and the questions that several of them ask.

use super::plan::{Plan, Reason};
use crate::TreeOptions;
use crate::guards::AdaptiveGuards;
use crate::version::{Guard, LiveTable, Version};
use base::{RangeSet, Seq, Time};
use std::collections::HashSet;
use std::sync::Arc;

/// A guard with this many tables is compacted even if they form one run.
pub(super) const MAX_TABLES: usize = 64;

/// The approximate overhead of a table beside its entries: index, filter, properties, footer.
const PIECE_OVERHEAD: u64 = 512;

/// The input of all policies.
#[derive(Clone)]
pub(crate) struct Picker<'a> {
    pub version: &'a Version,
    pub options: &'a TreeOptions,
    /// The plans in progress.
    pub in_progress: &'a [Arc<Plan>],
    /// The numbers of the tables that they read.
    pub busy: HashSet<u64>,
    /// The oldest sequence number that a reader holds; `None` if there is no reader.
    pub oldest_snapshot: Option<Seq>,
    /// On a nearly full disk: the bytes that the output of a plan may take.
    pub free_space: Option<u64>,
    /// Whether writes pause.
    pub idle: bool,
    /// Versions that ended until then have expired; `None` if time alone makes none expire.
    pub horizon: Option<Time>,
    /// Where expired versions move to another tree: what these range tombstones cover stays meanwhile.
    pub unsettled: &'a RangeSet,
    /// For a requested compaction: newer entries need not be compacted. Otherwise [`Seq::MAX`].
    pub requested_seq: Seq,
    /// For a requested compaction of what a filter is to see: tables with smaller numbers are written again. Otherwise 0.
    pub rewritten_before: u64,
}

/// A guard that should be compacted, and how urgently.
pub(crate) struct Candidate {
    pub reason: Reason,
    pub level: usize,
    pub guard: usize,
    pub score: f64,
}

impl<'a> Picker<'a> {
    /// Whether a plan in progress compacts level 0.
    pub(super) fn level0_is_busy(&self) -> bool {
        self.in_progress.iter().any(|plan| plan.source == 0)
    }

    /// The rules of adaptive guards.
    pub(super) fn adaptive_guards(&self) -> AdaptiveGuards<'a> {
        AdaptiveGuards { version: self.version, options: self.options }
    }

    /// Whether a request covers the table: it has entries that are no newer than `requested_seq`.
    pub(super) fn is_requested(&self, table: &LiveTable) -> bool {
        table.meta.min_seq <= self.requested_seq
    }

    /// Whether a plan is progress for a request: it moves a covered table down, or merges several covered tables in place.
    pub(super) fn is_progress(&self, plan: &Plan) -> bool {
        let requested = plan.inputs.iter().filter(|(n, t)| *n == plan.source && self.is_requested(t)).count();
        requested > usize::from(plan.target == plan.source && !plan.removes_unread())
    }

    /// The bytes of the guards of the next level below a guard of level `n`.
    pub(super) fn bytes_below(&self, n: usize, guard: usize) -> u64 {
        if n == self.version.last_level() {
            return 0;
        }
        let level = self.version.level(n);
        let below = self.version.level(n + 1);
        let end = level.end_of(guard).map(|k| &k[..]);
        below.overlapping(&level.guards[guard].key, end).map(|i| below.guards[i].bytes()).sum()
    }

    /// Whether a compaction of this guard moves tombstones down or drops them.
    pub(super) fn can_shed_tombstones(&self, n: usize, guard: &Guard) -> bool {
        match n < self.version.last_level() {
            true => guard.tables.iter().any(|t| t.meta.tombstones > 0),
            false => self.can_drop_tombstones(guard),
        }
    }

    /// Whether a merge of this guard of the last level certainly drops tombstones: no reader holds an older sequence number. A
    /// request covers the tombstones of a table only if it covers the whole table: otherwise newer tombstones would be merged
    /// again and again.
    pub(super) fn can_drop_tombstones(&self, guard: &Guard) -> bool {
        let oldest = self.oldest_snapshot.unwrap_or(Seq::MAX).min(self.requested_seq);
        guard.tables.iter().any(|t| t.meta.tombstones > 0 && t.meta.max_seq <= oldest)
    }

    /// Whether a merge of this guard certainly drops versions that were kept for readers, which are gone. As for tombstones, if the request
    /// covers a whole table.
    pub(super) fn can_drop_versions(&self, guard: &Guard) -> bool {
        let oldest = self.oldest_snapshot.unwrap_or(Seq::MAX).min(self.requested_seq);
        guard.tables.iter().any(|t| t.meta.shadowed > 0 && t.meta.max_seq <= oldest)
    }

    /// The first level that has tables or is the target of a plan in progress; the last level if there is none.
    pub(super) fn first_used(&self) -> usize {
        let last = self.version.last_level();
        let first_used = (1..=last).find(|&n| self.version.level(n).tables() > 0).unwrap_or(last);
        self.in_progress.iter().map(|plan| plan.target).fold(first_used, usize::min)
    }

    /// Whether level 0 may be compacted before it has enough tables. Not in a leveled tree, where this would rewrite all
    /// overlapping tables of the next level; and not with guards by hash, which follow the paper, where there is no such rule.
    pub(super) fn allows_early_level0(&self) -> bool {
        self.options.guard_bytes > 0 && self.options.max_tables_per_guard > 1
    }

    /// Whether the output of a plan fits on the disk.
    pub(super) fn fits(&self, plan: &Plan) -> bool {
        let pieces = plan.cuts.len() as u64 + 1;
        let needed = if plan.is_move() { 0 } else { plan.input_bytes() + pieces * PIECE_OVERHEAD };
        self.free_space.is_none_or(|free_space| needed <= free_space)
    }

    /// How many of the oldest tables of level 0 fit on the disk; at least one.
    pub(super) fn fitting_tables(&self) -> usize {
        let Some(free_space) = self.free_space else { return usize::MAX };
        let mut bytes = 0;
        let fit = self.version.level0.iter().rev().take_while(|t| {
            bytes += t.meta.file_size;
            bytes <= free_space
        });
        fit.count().max(1)
    }
}
