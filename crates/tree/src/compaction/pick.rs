//! Picks compactions: a pure function of a version, the options and the plans in progress.
//!
//! [`Tree::pick`](crate::Tree::pick) asks for the most urgent plan, a requested compaction for a plan of its range. The
//! policies in modules of their own add candidates or plans: `read_charge.rs`, `space_amp.rs`, `idle_compaction.rs`,
//! `trivial_move.rs`, `low_space.rs`, `range_tombstones.rs`.

use crate::TreeOptions;
use crate::compaction::{seqno_order, unreadable};
use crate::guards::adaptive as adaptive_guards;
use crate::version::{Guard, LiveTable, Version, runs};
use base::{Seq, Slice};
use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

/// A guard with this many tables is compacted even if they form one run.
pub(crate) const MAX_TABLES: usize = 64;

/// The largest number of level 0 tables in a plan: twice the number that triggers a compaction, but not more than this,
/// unless the trigger itself is larger.
const MAX_LEVEL0_INPUTS: usize = 8;

/// The reason for a compaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reason {
    /// Tables move down without being rewritten (`trivial_move.rs`).
    Move,
    /// Level 0 has enough tables.
    Level0,
    /// A guard has reached the limit of its runs (PebblesDB, section 3.4).
    GuardFull,
    /// A level is large compared to the next one (section 4.2).
    LevelSize,
    /// The read charges of a run have reached its price (`read_charge.rs`). The paper counts seeks instead (section
    /// 4.2).
    Seeks,
    /// A large share of the entries of a table are tombstones.
    Tombstones,
    /// The tree has more older versions than `space_target` allows (`space_amp.rs`).
    Space,
    /// Neighbouring guards of the last level have become small.
    SmallGuards,
    /// Writes pause (`idle_compaction.rs`).
    Idle,
    /// A caller has requested it.
    Manual,
    /// Range tombstones hide whole tables, which are removed without being read.
    RangeTombstones,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reason::Move => "move",
            Reason::Level0 => "level 0",
            Reason::GuardFull => "guard full",
            Reason::LevelSize => "level size",
            Reason::Seeks => "seeks",
            Reason::Tombstones => "tombstones",
            Reason::Space => "space",
            Reason::SmallGuards => "small guards",
            Reason::Idle => "idle",
            Reason::Manual => "manual",
            Reason::RangeTombstones => "range tombstones",
        })
    }
}

/// A compaction: merge `inputs`, cut the output at `cuts`, and attach the pieces to `target`. In a move the inputs
/// themselves are the pieces, and nothing is read or written.
#[derive(Debug)]
pub struct Plan {
    /// Unique among the plans of a tree.
    pub id: u64,
    /// Its reason.
    pub reason: Reason,
    /// The level of the inputs. (A merge may include tables of the target.)
    pub source: usize,
    /// The level of the output; equal to `source` for a merge in place.
    pub target: usize,
    /// Start of the key range that the plan owns at `target`.
    pub from: Slice,
    /// Its end; `None` is the end of all keys.
    pub to: Option<Slice>,
    /// The input tables, with their levels.
    pub inputs: Vec<(usize, Arc<LiveTable>)>,
    /// Keys at which the output is cut: ascending, inside the range.
    pub cuts: Vec<Slice>,
    /// For each piece between cuts: whether its range has no older data than the inputs, so that tombstones can be
    /// dropped.
    pub bottom: Vec<bool>,
    /// A piece whose range has no other data is also cut after this many bytes, between two keys; 0 for no such cuts.
    pub piece_bytes: u64,
    /// Guards of the target inside the range that the plan removes. Their tables are among the inputs.
    pub guards_removed: Vec<Slice>,
}

impl Plan {
    /// Whether the input tables move to the target without being rewritten.
    pub fn is_move(&self) -> bool {
        self.reason == Reason::Move
    }

    /// Numbers of the input tables.
    pub fn numbers(&self) -> impl Iterator<Item = u64> {
        self.inputs.iter().map(|(_, t)| t.meta.number)
    }

    /// Total bytes of the inputs.
    pub fn input_bytes(&self) -> u64 {
        self.inputs.iter().map(|(_, t)| t.meta.file_size).sum()
    }

    /// Whether the plan writes to `level` in a range with `key` strictly inside, and does not cut at `key`.
    pub(crate) fn would_straddle(&self, level: usize, key: &[u8]) -> bool {
        self.target == level
            && &self.from[..] < key
            && self.to.as_ref().is_none_or(|to| key < &to[..])
            && self.cuts.binary_search_by(|cut| cut[..].cmp(key)).is_err()
    }

    /// Whether the plan's range overlaps `[from, to)`.
    pub(crate) fn meets(&self, from: &[u8], to: Option<&[u8]>) -> bool {
        to.is_none_or(|to| &self.from[..] < to) && self.to.as_ref().is_none_or(|end| from < &end[..])
    }
}

/// Why a requested range cannot be compacted further at present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PickBlocked {
    /// A plan in progress has to end first.
    InProgress,
    /// Tables cannot be read, and everything possible without them is done.
    Damage,
}

/// Finds plans in a version.
pub(crate) struct Picker<'a> {
    pub version: &'a Version,
    pub options: &'a TreeOptions,
    /// The plans in progress.
    pub in_progress: &'a [Arc<Plan>],
    /// The oldest sequence number that a reader holds; `None` if there is no reader.
    pub oldest_snapshot: Option<Seq>,
    /// On a nearly full disk: the bytes that the output of a plan may take.
    pub free_space: Option<u64>,
    /// Whether writes pause.
    pub idle: bool,
    /// For a requested compaction: newer entries need not be compacted. Otherwise [`Seq::MAX`].
    pub requested_seq: Seq,
}

/// A guard that should be compacted, and how urgently.
pub(crate) struct Candidate {
    pub reason: Reason,
    pub level: usize,
    pub guard: usize,
    pub score: f64,
}

impl Picker<'_> {
    /// The most urgent plan that shares no table with a plan in progress.
    pub fn pick(&self) -> Option<Plan> {
        let busy = self.busy();
        if let Some(plan) = self.pick_hidden_tables(&busy) {
            return Some(plan);
        }
        if self.free_space.is_some() {
            return self.pick_for_low_space(&busy);
        }
        if self.version.level0.len() >= self.options.level0_tables {
            let plan = self.move_level0(&busy).or_else(|| self.level0(Reason::Level0, &busy));
            if plan.is_some() {
                return plan;
            }
        } else if let Some(reason) = self.early_level0() {
            let plan = self.move_level0(&busy).or_else(|| self.level0(reason, &busy));
            if plan.is_some() {
                return plan;
            }
        }
        let mut candidates = self.candidates();
        candidates.sort_by(|a, b| a.reason.cmp(&b.reason).then(b.score.total_cmp(&a.score)));
        candidates
            .iter()
            .find_map(|candidate| self.guard(candidate.reason, candidate.level, candidate.guard, &busy))
    }

    /// Whether a request covers the table: it has entries that are no newer than `requested_seq`.
    pub(crate) fn is_requested(&self, table: &LiveTable) -> bool {
        table.meta.min_seq <= self.requested_seq
    }

    /// Whether a plan is progress for a request: it moves a covered table down, or merges several covered tables in
    /// place.
    fn is_progress(&self, plan: &Plan) -> bool {
        let requested = plan.inputs.iter().filter(|(n, t)| *n == plan.source && self.is_requested(t)).count();
        requested > usize::from(plan.target == plan.source && plan.reason != Reason::RangeTombstones)
    }

    /// Whether a guard of the last level has work left for a request.
    fn has_requested_work(&self, guard: &Guard) -> bool {
        let requested: Vec<_> = guard.tables.iter().filter(|t| self.is_requested(t)).cloned().collect();
        runs(&requested) > 1 || self.droppable_tombstones(guard) || self.has_range_deleted_entries(guard)
    }

    /// The next plan of a request. The request is done (`Ok(None)`) when the entries of `[from, to)` that are no newer
    /// than `requested_seq` are in one table per guard of the last level. A plan may include newer entries, but none is
    /// made for them alone.
    ///
    /// The sequence of plans ends even if writes go on. For any key, the number of covered tables with the key never
    /// grows, because a plan makes at most one table of its inputs at a key; no covered table moves up; and each plan
    /// moves a covered table down or leaves fewer of them. (In the last level, a table that is covered as a whole is
    /// merged alone if it has tombstones to drop: each such merge leaves fewer tombstones.)
    pub fn pick_range(&self, from: &[u8], to: Option<&[u8]>) -> Result<Option<Plan>, PickBlocked> {
        let busy = self.busy();
        if let Some(plan) = self.pick_hidden_tables(&busy).filter(|plan| self.is_progress(plan)) {
            return Ok(Some(plan));
        }
        let mut damage = false;
        // A plan that does not fit on the disk, returned if there is no other.
        let mut large = None;
        if self.version.level0.iter().any(|t| self.is_requested(t) && t.overlaps_range(from, to)) {
            if let Some(plan) = self.move_level0(&busy).filter(|plan| self.is_progress(plan)) {
                return Ok(Some(plan));
            }
            match self.level0_that_fits(Reason::Manual, &busy).filter(|plan| self.is_progress(plan)) {
                Some(plan) if self.fits(&plan) => return Ok(Some(plan)),
                Some(plan) => large = Some(plan),
                None if self.in_progress.iter().any(|plan| plan.source == 0) => {
                    return Err(PickBlocked::InProgress);
                }
                None => damage = true,
            }
        }
        let last = self.version.last_level();
        for n in 1..=last {
            let level = self.version.level(n);
            for index in level.overlapping(from, to) {
                let guard = &level.guards[index];
                let wanted = match n == last {
                    true => self.has_requested_work(guard),
                    false => true,
                };
                if wanted && guard.tables.iter().any(|t| self.is_requested(t) && t.overlaps_range(from, to)) {
                    match self.guard(Reason::Manual, n, index, &busy) {
                        Some(plan) if self.fits(&plan) => return Ok(Some(plan)),
                        Some(plan) => {
                            large.get_or_insert(plan);
                        }
                        None if guard.tables.iter().any(|t| busy.contains(&t.meta.number)) => {
                            return Err(PickBlocked::InProgress);
                        }
                        // The other guards are compacted all the same.
                        None => damage = true,
                    }
                }
            }
        }
        match (large, damage) {
            (Some(plan), _) => Ok(Some(plan)),
            // More may be possible when the plans in progress have ended.
            (None, true) if !self.in_progress.is_empty() => Err(PickBlocked::InProgress),
            (None, true) => Err(PickBlocked::Damage),
            (None, false) => Ok(None),
        }
    }

    /// The numbers of the tables that plans in progress read.
    fn busy(&self) -> HashSet<u64> {
        self.in_progress.iter().flat_map(|plan| plan.numbers()).collect()
    }

    fn candidates(&self) -> Vec<Candidate> {
        let mut candidates = Vec::new();
        let full = self.options.max_tables_per_guard.max(2);
        for n in 1..=self.version.last_level() {
            let level = self.version.level(n);
            if level.tables() == 0 {
                continue;
            }
            for (guard, g) in level.guards.iter().enumerate() {
                if g.tables.is_empty() {
                    continue;
                }
                // Merging tables that do not overlap gains little, so runs count. The number of tables is bounded too,
                // because reads search among them.
                let too_large = n == self.version.last_level()
                    && adaptive_guards::is_too_large(g, self.options.guard_bytes);
                if g.runs >= full || g.tables.len() >= MAX_TABLES || too_large {
                    let score = (g.runs as f64 / full as f64).max(1.0);
                    candidates.push(Candidate { reason: Reason::GuardFull, level: n, guard, score });
                } else if self.tombstones_due(n, g) || self.range_tombstones_due(g) {
                    let score = g.tables.iter().map(|t| t.meta.tombstones).sum::<u64>() as f64;
                    candidates.push(Candidate { reason: Reason::Tombstones, level: n, guard, score });
                } else if n == self.version.last_level() && self.should_join_next(guard) {
                    candidates.push(Candidate { reason: Reason::SmallGuards, level: n, guard, score: 0.0 });
                }
            }
            if let Some(score) = self.level_size_score(n) {
                for (guard, g) in level.guards.iter().enumerate().filter(|(_, g)| !g.tables.is_empty()) {
                    // Guards with the best ratio of their own bytes to the bytes below come first.
                    let score = score * g.bytes() as f64 / (1 + self.bytes_below(n, guard)) as f64;
                    candidates.push(Candidate { reason: Reason::LevelSize, level: n, guard, score });
                }
            }
        }
        self.candidates_for_reads(&mut candidates);
        self.candidates_for_space(&mut candidates);
        self.candidates_when_idle(&mut candidates);
        candidates
    }

    /// At least 1 when level `n` has reached its permitted share of the next level that has tables.
    fn level_size_score(&self, n: usize) -> Option<f64> {
        let percent = f64::from(self.options.level_size_percent);
        if percent == 0.0 {
            return None;
        }
        let next =
            (n + 1..=self.version.last_level()).map(|m| self.version.level(m).bytes()).find(|&b| b > 0)?;
        let score = self.version.level(n).bytes() as f64 / (next as f64 * percent / 100.0);
        (score >= 1.0).then_some(score)
    }

    pub(crate) fn bytes_below(&self, n: usize, guard: usize) -> u64 {
        if n == self.version.last_level() {
            return 0;
        }
        let level = self.version.level(n);
        let below = self.version.level(n + 1);
        let end = level.end_of(guard).map(|k| &k[..]);
        below.overlapping(&level.guards[guard].key, end).map(|i| below.guards[i].bytes()).sum()
    }

    fn tombstones_due(&self, n: usize, guard: &Guard) -> bool {
        let percent = u64::from(self.options.tombstone_percent);
        let rich = |t: &Arc<LiveTable>| t.meta.tombstones * 100 >= t.meta.entries * percent;
        percent > 0
            && guard.tables.iter().any(|t| t.meta.tombstones > 0 && rich(t))
            && self.sheds_tombstones(n, guard)
    }

    /// Whether compacting this guard moves tombstones down or drops them.
    pub(crate) fn sheds_tombstones(&self, n: usize, guard: &Guard) -> bool {
        match n < self.version.last_level() {
            true => guard.tables.iter().any(|t| t.meta.tombstones > 0),
            false => self.droppable_tombstones(guard),
        }
    }

    /// Why level 0 should be compacted before it has `level0_tables` tables.
    fn early_level0(&self) -> Option<Reason> {
        match self.level0_is_due_for_reads() {
            true => Some(Reason::Seeks),
            false => self.level0_is_due_when_idle().then_some(Reason::Idle),
        }
    }

    /// Whether a merge of this guard of the last level certainly drops tombstones: no reader holds an older sequence
    /// number. A request covers the tombstones of a table only if it covers the whole table: otherwise newer tombstones
    /// would be merged again and again.
    pub(crate) fn droppable_tombstones(&self, guard: &Guard) -> bool {
        let oldest = self.oldest_snapshot.unwrap_or(Seq::MAX).min(self.requested_seq);
        guard.tables.iter().any(|t| t.meta.tombstones > 0 && t.meta.max_seq <= oldest)
    }

    /// A plan for the oldest tables of level 0; also `None` if a plan in progress has to end first.
    pub(crate) fn level0(&self, reason: Reason, busy: &HashSet<u64>) -> Option<Plan> {
        self.plan_level0(reason, busy).filter(|plan| seqno_order::is_ordered_with(plan, self.in_progress))
    }

    fn plan_level0(&self, reason: Reason, busy: &HashSet<u64>) -> Option<Plan> {
        let tables = &self.version.level0[..];
        // One plan at a time: a second one could put older data above newer.
        if tables.is_empty() || self.in_progress.iter().any(|plan| plan.source == 0) {
            return None;
        }
        // Bounded, because each input is an open file, and because a job must not be too large. The other tables wait
        // for the next plan.
        let level0 = self.options.level0_tables;
        let most = (2 * level0).min(MAX_LEVEL0_INPUTS).max(level0).min(self.fitting_tables(tables));
        let plan = |inputs: &[Arc<LiveTable>]| Plan {
            piece_bytes: 0,
            guards_removed: Vec::new(),
            id: 0,
            reason,
            source: 0,
            target: 0,
            from: Slice::default(),
            to: None,
            inputs: inputs.iter().map(|t| (0, t.clone())).collect(),
            cuts: Vec::new(),
            bottom: vec![false],
        };
        let down = |inputs: &[Arc<LiveTable>]| {
            let plan = plan(inputs);
            let target = self.level0_target(&plan.inputs);
            self.complete(Plan { target, ..plan }, busy)
        };
        if !unreadable::has_unreadable(tables) {
            let newer = tables.iter().take_while(|t| !self.is_requested(t)).count();
            return Some(down(&tables[tables.len().saturating_sub(most).max(newer)..]));
        }
        let manual = reason == Reason::Manual;
        let least = if manual { 1 } else { self.options.level0_tables };
        if unreadable::unblocked(tables).len() >= least {
            let movable = unreadable::movable_down(tables, most);
            if movable.iter().any(|t| self.is_requested(t)) {
                return Some(down(&movable));
            }
        }
        let fits = |tables: &[Arc<LiveTable>]| seqno_order::fits_as_one(self.version, tables, 0);
        unreadable::mergeable_in_place(tables, least, manual, fits).map(|tables| plan(&tables))
    }

    /// The first level that has tables or is the target of a plan in progress; the last level if there is none.
    pub(crate) fn first_used(&self) -> usize {
        let last = self.version.last_level();
        let first_used = (1..=last).find(|&n| self.version.level(n).tables() > 0).unwrap_or(last);
        self.in_progress.iter().map(|plan| plan.target).fold(first_used, usize::min)
    }

    /// The deepest level that level 0 may be compacted into. The levels above it must be empty, or older data would lie
    /// above newer; the pieces must be large enough for a file; and the level must not be so large that merging into it
    /// costs more than one level more.
    fn level0_target(&self, inputs: &[(usize, Arc<LiveTable>)]) -> usize {
        if !self.options.skip_levels {
            return 1;
        }
        let version = self.version;
        let bytes: u64 = inputs.iter().map(|(_, t)| t.meta.file_size).sum();
        let patience = (2 * self.options.max_tables_per_guard as u64).max(10);
        let mut target = self.first_used();
        while target > 1 {
            let level = version.level(target);
            let touched = (level.guards.iter().enumerate())
                .filter(|(i, g)| {
                    let end = level.end_of(*i).map(|k| &k[..]);
                    inputs.iter().any(|(_, t)| t.overlaps_range(&g.key, end))
                })
                .count() as u64;
            let small = bytes / touched.max(1) < self.options.min_piece_bytes && touched > 1;
            let fewer_above = version.level(target - 1).guards.len() < level.guards.len();
            if level.bytes() > bytes * patience || (small && fewer_above) {
                target -= 1;
            } else {
                break;
            }
        }
        target
    }

    /// A plan for one guard; `None` if a plan in progress reads one of its tables, or has to end first for another
    /// reason.
    pub(crate) fn guard(&self, reason: Reason, n: usize, index: usize, busy: &HashSet<u64>) -> Option<Plan> {
        self.plan_guard(reason, n, index, busy)
            .filter(|plan| seqno_order::is_ordered_with(plan, self.in_progress))
    }

    fn plan_guard(&self, reason: Reason, n: usize, index: usize, busy: &HashSet<u64>) -> Option<Plan> {
        let level = self.version.level(n);
        let guard = &level.guards[index];
        if guard.tables.is_empty() || guard.tables.iter().any(|t| busy.contains(&t.meta.number)) {
            return None;
        }
        let last = self.version.last_level();
        // Not for tombstones or reads: a move would not help these.
        if n < last
            && matches!(reason, Reason::GuardFull | Reason::LevelSize | Reason::Manual)
            && let Some(plan) = self.move_guard(n, index, busy).filter(|plan| self.is_progress(plan))
        {
            return Some(plan);
        }
        let make_of = |target, inputs: &[Arc<LiveTable>]| Plan {
            piece_bytes: 0,
            guards_removed: Vec::new(),
            id: 0,
            reason,
            source: n,
            target,
            from: guard.key.clone(),
            to: level.end_of(index).cloned(),
            inputs: inputs.iter().map(|t| (n, t.clone())).collect(),
            cuts: Vec::new(),
            bottom: vec![false],
        };
        if unreadable::has_unreadable(&guard.tables) {
            let fits = |tables: &[Arc<LiveTable>]| seqno_order::fits_as_one(self.version, tables, n);
            let movable = unreadable::movable_down(&guard.tables, usize::MAX);
            if n < last && movable.iter().any(|t| self.is_requested(t)) {
                return Some(self.complete(make_of(n + 1, &movable), busy));
            }
            // Without cuts, so that fewer tables are left. Tombstones are kept.
            let movable = unreadable::largest_that_fits(movable, &guard.tables, fits);
            if movable.iter().filter(|t| self.is_requested(t)).count() > 1 {
                return Some(make_of(n, &movable));
            }
            let eager = matches!(reason, Reason::Manual | Reason::Seeks);
            let least = if eager { 2 } else { self.options.max_tables_per_guard };
            let all = reason == Reason::Manual;
            let tables = unreadable::mergeable_in_place(&guard.tables, least, all, fits);
            return tables.map(|tables| make_of(n, &tables)).filter(|plan| self.is_progress(plan));
        }
        let make = |target| make_of(target, &guard.tables);
        if n == last {
            let range = self.small_neighbours(index, busy);
            let mut plan = make(n);
            if range.len() > 1 {
                plan.from = level.guards[range.start].key.clone();
                plan.to = level.end_of(range.end - 1).cloned();
                plan.inputs = level.guards[range.clone()]
                    .iter()
                    .flat_map(|g| &g.tables)
                    .map(|t| (n, t.clone()))
                    .collect();
                plan.guards_removed =
                    level.guards[range.start + 1..range.end].iter().map(|g| g.key.clone()).collect();
            }
            // The neighbour is busy or cannot be read. Alone the guard would stay small, and be merged again and again.
            if reason == Reason::SmallGuards && plan.guards_removed.is_empty() {
                return None;
            }
            let plan = self.complete(plan, busy);
            // If no tables share keys, and the cuts for the order of sequence numbers would produce as many tables
            // again, the merge would repeat forever.
            let order_cuts =
                plan.cuts.iter().filter(|key| self.version.uncommitted.get(key).is_none()).count();
            let in_vain = reason == Reason::GuardFull
                && guard.runs == 1
                && plan.guards_removed.is_empty()
                && order_cuts + 1 >= guard.tables.len();
            return (!in_vain).then_some(plan);
        }
        let down = self.complete(make(n + 1), busy);
        let own = guard.bytes();
        let factor = u64::from(self.options.last_level_merge_factor);
        let costly = n + 1 == last && (down.input_bytes() - own) > own.saturating_mul(factor);
        // In place, the guard becomes one run. This is progress only for reasons that count runs.
        if costly && guard.runs > 1 && matches!(reason, Reason::GuardFull | Reason::Seeks) {
            return Some(self.complete(make(n), busy));
        }
        Some(down)
    }

    /// Completes a plan: adds the tables of full guards of the target, the cuts at guards and for the order of sequence
    /// numbers (`seqno_order.rs`), and where tombstones can be dropped.
    fn complete(&self, mut plan: Plan, busy: &HashSet<u64>) -> Plan {
        let target = self.version.level(plan.target);
        let to = plan.to.clone();
        let to = to.as_ref().map(|k| &k[..]);
        let from = plan.from.clone();
        let indices = target.overlapping(&from, to);
        let guards = indices.len() as u64;
        let mut along = Vec::new();
        for index in indices {
            let guard = &target.guards[index];
            let end = target.end_of(index).map(|k| &k[..]);
            if plan.target != plan.source && self.is_merged_along(&plan, guard, end, guards, busy) {
                along.extend(guard.tables.iter().map(|t| (plan.target, t.clone())));
            }
            if guard.key > plan.from && !plan.guards_removed.contains(&guard.key) {
                plan.cuts.push(guard.key.clone());
            }
        }
        plan.inputs.extend(along);
        let consumed: HashSet<u64> = plan.inputs.iter().map(|(_, t)| t.meta.number).collect();
        let above = self.cuts_above(&plan, &consumed);
        plan.cuts.extend(above);
        plan.piece_bytes = self.piece_bytes(&plan);
        for (key, level) in self.version.uncommitted.range(&from, to) {
            let guard = &target.guards[target.find(key)];
            let straddled = (guard.tables.iter())
                .filter(|t| !consumed.contains(&t.meta.number))
                .any(|t| t.meta.smallest[..] < key[..] && key[..] <= t.meta.largest[..]);
            // A key that cannot become a guard of a level below cannot become one here: a cut would only make small
            // tables.
            let mut below = (plan.target + 1..=self.version.last_level()).map(|n| self.version.level(n));
            let may_have_guard_below = below.all(|l| l.has_guard(key) || !l.straddled(key));
            if level <= plan.target
                && guard.key != *key
                && *key > plan.from
                && !straddled
                && may_have_guard_below
            {
                plan.cuts.push(key.clone());
            }
        }
        plan.cuts.sort_unstable();
        seqno_order::cut_for_order(self.version, &mut plan);
        plan.bottom = (0..=plan.cuts.len())
            .map(|i| {
                let piece_from = if i == 0 { &from[..] } else { &plan.cuts[i - 1][..] };
                let piece_to = plan.cuts.get(i).map(|k| &k[..]).or(to);
                self.is_bottom(plan.target, piece_from, piece_to, &consumed)
            })
            .collect();
        plan
    }

    /// Whether a guard of the target level takes part in the merge instead of having a piece attached: always in a
    /// leveled tree; in the last level when it is full ("we cannot attach new sstables in the last level if the guard
    /// is full", section 3.4), but not for a plan from level 0, which would rewrite the whole level in one job.
    fn is_merged_along(
        &self,
        plan: &Plan,
        guard: &Guard,
        end: Option<&[u8]>,
        guards: u64,
        busy: &HashSet<u64>,
    ) -> bool {
        let most = self.options.max_tables_per_guard;
        let last = plan.target == self.version.last_level() && plan.source != 0;
        !guard.tables.is_empty()
            && (guard.runs >= most && (most == 1 || last)
                || plan.target == self.version.last_level() && self.is_outgrown(plan, guard, guards))
            && !guard.tables.iter().any(|t| busy.contains(&t.meta.number) || t.is_unreadable())
            && (plan.inputs.iter()).any(|(n, t)| *n == plan.source && t.overlaps_range(&guard.key, end))
    }

    /// Whether no table at `target` or deeper, other than the consumed ones, may have keys in the range.
    fn is_bottom(&self, target: usize, from: &[u8], to: Option<&[u8]>, consumed: &HashSet<u64>) -> bool {
        (target..=self.version.last_level()).all(|n| {
            let level = self.version.level(n);
            level.tables() == 0
                || level.overlapping(from, to).all(|i| {
                    (level.guards[i].tables.iter())
                        .all(|t| consumed.contains(&t.meta.number) || !t.overlaps_range(from, to))
                })
        })
    }
}
