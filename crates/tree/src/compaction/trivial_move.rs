//! Trivial moves: a manifest edit moves tables to a deeper level without rewriting them.
//!
//! The paper rewrites a table at each level, which makes sequential inserts three times slower. A table that shares no
//! key with any table on its way is moved instead:
//!
//! ```text
//!   level 0   a..c   m..p   x..z          disjoint: as after sequential, clustered or time-ordered inserts
//!   level 5   (empty)                     nothing in the way
//!   level 6   a....d |   | q...t |        m..p and x..z move here; a..c is merged, because level 6 has some of its keys
//! ```
//!
//! The conditions, and their purposes:
//! - *Newer data never lies below older.* The table shares no key with the other tables of its stack, nor with the
//!   levels that it passes, nor with the target level. Besides, its bounds of keys and sequence numbers are compared
//!   with every table of the tree (`seqno_order.rs`) and with the plans in progress.
//! - *A table lies inside one guard* of the target level, and plans in progress add no guard inside the table.
//! - *The shape stays*: a table of level 0 does not become the first table of a level above those in use. All later
//!   tables would have to stop there, too.
//! - *Progress*: tables with many tombstones are merged, because only a merge makes them smaller.
//!
//! Tables are moved only when a merge is due anyway, before it. A guard or a level 0 that is not full waits, because
//! its tables may later be merged into fewer.

use crate::compaction::pick::{MAX_TABLES, Picker, Plan, Reason};
use crate::compaction::seqno_order;
use crate::version::LiveTable;
use base::Slice;
use base::planted::{Bug, planted};
use std::collections::HashSet;
use std::sync::Arc;

/// A table with a larger share of tombstones, in per cent, is merged instead of moved.
const MAX_TOMBSTONE_PERCENT: u64 = 10;

impl Picker<'_> {
    /// A plan for the tables of level 0 that can be moved.
    pub(crate) fn move_level0(&self, busy: &HashSet<u64>) -> Option<Plan> {
        if self.in_progress.iter().any(|plan| plan.source == 0) {
            return None;
        }
        let least = match self.options.skip_levels {
            true => self.first_used(),
            false => 1,
        };
        self.moves(0, &self.version.level0, least, busy)
    }

    /// A plan for the tables of a guard that can be moved.
    pub(crate) fn move_guard(&self, n: usize, index: usize, busy: &HashSet<u64>) -> Option<Plan> {
        self.moves(n, &self.version.level(n).guards[index].tables, n + 1, busy)
    }

    fn moves(
        &self,
        source: usize,
        stack: &[Arc<LiveTable>],
        least: usize,
        busy: &HashSet<u64>,
    ) -> Option<Plan> {
        let mut chosen: Vec<Arc<LiveTable>> = Vec::new();
        let mut target = 0;
        for table in stack.iter().rev() {
            let meta = &table.meta;
            let shared = stack.iter().any(|other| !Arc::ptr_eq(other, table) && other.overlaps(table));
            let wrongly = Arc::ptr_eq(table, &stack[0]) && planted(Bug::MovePastOlderTables);
            if (shared && !wrongly)
                || table.is_unreadable()
                || busy.contains(&meta.number)
                || meta.tombstones * 100 > meta.entries * MAX_TOMBSTONE_PERCENT
            {
                continue;
            }
            let Some(n) = self.deepest_for(source, table).filter(|&n| n >= least) else { continue };
            if target == 0 || target == n {
                target = n;
                chosen.push(table.clone());
            }
        }
        chosen.sort_by(|a, b| a.meta.smallest.cmp(&b.meta.smallest));
        let (first, last) = (chosen.first()?, chosen.last()?);
        let plan = Plan {
            piece_bytes: 0,
            guards_removed: Vec::new(),
            id: 0,
            reason: Reason::Move,
            source,
            target,
            from: Slice::copy_from(&first.meta.smallest),
            to: Some(Slice::copy_from(&[&last.meta.largest[..], &[0]].concat())),
            cuts: chosen[1..].iter().map(|t| Slice::copy_from(&t.meta.smallest)).collect(),
            bottom: vec![false; chosen.len()],
            inputs: chosen.iter().map(|t| (source, t.clone())).collect(),
        };
        seqno_order::is_ordered_with(&plan, self.in_progress).then_some(plan)
    }

    /// The deepest level below `source` that the table can be moved to.
    fn deepest_for(&self, source: usize, table: &Arc<LiveTable>) -> Option<usize> {
        let mut found = None;
        for n in source + 1..=self.version.last_level() {
            let level = self.version.level(n);
            let (first, last) = (level.find(&table.meta.smallest), level.find(&table.meta.largest));
            let mut there = level.guards[first..=last].iter().flat_map(|g| &g.tables);
            if there.any(|t| t.overlaps(table)) && !planted(Bug::MovePastOlderTables) {
                break;
            }
            // With adaptive guards, the table may get a guard of its own.
            let has_room = self.options.guard_bytes > 0 || level.guards[first].tables.len() + 1 < MAX_TABLES;
            let fits = seqno_order::fits_as_one(self.version, std::slice::from_ref(table), n);
            if first == last && has_room && (fits || planted(Bug::MovePastOlderTables)) {
                found = Some(n);
            }
        }
        found
    }
}
