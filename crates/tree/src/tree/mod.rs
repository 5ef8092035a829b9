//! The tree of one keyspace: its current version, the plans in progress, and the edits that their results become.

use crate::compaction::pick::{PickBlocked, Picker, Plan};
use crate::compaction::{seqno_order, unreadable};
use crate::guards::adaptive as adaptive_guards;
use crate::guards::hash::GuardHash;
use crate::jobs::compact::{CompactionOutput, FlushOutput};
use crate::version::edit::VersionEdit;
use crate::version::{LiveTable, Version};
use crate::{Reason, TreeOptions};
use base::planted::{Bug, planted};
use base::{Error, ErrorKind, Result, Seq, Slice};
use std::collections::HashSet;
use std::sync::Arc;
use table::TableMeta;

/// The tree of one keyspace. Not synchronised: the owner locks it, and does not hold the lock while plans are executed.
///
/// The protocol: [`Tree::pick`] returns a plan and remembers it as in progress; [`crate::compact`] executes it;
/// [`Tree::install`] turns the outcome into an edit; the owner makes the edit durable, calls [`Tree::apply`], and then
/// [`Tree::done`]. Between `install` and `apply` no other plan may be picked and no other edit applied.
pub struct Tree {
    options: TreeOptions,
    guard_hash: GuardHash,
    version: Arc<Version>,
    in_progress: Vec<Arc<Plan>>,
    next_plan: u64,
    free_space: Option<u64>,
    idle: bool,
}

impl Tree {
    /// A tree whose current version is `version`.
    pub fn new(options: TreeOptions, version: Arc<Version>) -> Tree {
        let guard_hash = GuardHash::new(&options);
        Tree {
            options,
            guard_hash,
            version,
            in_progress: Vec::new(),
            next_plan: 1,
            free_space: None,
            idle: false,
        }
    }

    /// Its options.
    pub fn options(&self) -> &TreeOptions {
        &self.options
    }

    /// The rule that selects guards by hash.
    pub fn guard_hash(&self) -> &GuardHash {
        &self.guard_hash
    }

    /// The current version.
    pub fn version(&self) -> &Arc<Version> {
        &self.version
    }

    /// The number of plans in progress.
    pub fn in_progress(&self) -> usize {
        self.in_progress.len()
    }

    fn picker(&self, oldest_snapshot: Option<Seq>) -> Picker<'_> {
        let Tree { version, options, in_progress, free_space, idle, .. } = self;
        let (free_space, idle) = (*free_space, *idle);
        Picker { version, options, in_progress, oldest_snapshot, free_space, idle, requested_seq: Seq::MAX }
    }

    fn start(&mut self, mut plan: Plan) -> Arc<Plan> {
        debug_assert!(
            plan.reason == Reason::RangeTombstones || plan.inputs.iter().all(|(_, t)| !t.is_unreadable()),
            "a plan must not read an unreadable table"
        );
        plan.id = self.next_plan;
        self.next_plan += 1;
        let plan = Arc::new(plan);
        self.in_progress.push(plan.clone());
        plan
    }

    /// Sets the number of free bytes on a nearly full disk; `None` otherwise. If it is set, only plans are picked that
    /// fit and that free space.
    pub fn set_free_space(&mut self, free_space: Option<u64>) {
        let taken = self.in_progress.iter().map(|plan| plan.input_bytes()).sum();
        self.free_space = free_space.map(|free_space| free_space.saturating_sub(taken));
    }

    /// Sets whether writes pause. If so, more compactions are worthwhile.
    pub fn set_idle(&mut self, idle: bool) {
        self.idle = idle;
    }

    /// The most urgent compaction that shares no table with a plan in progress, if any is due.
    pub fn pick(&mut self, oldest_snapshot: Option<Seq>) -> Option<Arc<Plan>> {
        let plan = self.picker(oldest_snapshot).pick()?;
        Some(self.start(plan))
    }

    /// Whether [`Tree::pick`] would return a plan.
    pub fn is_due(&self, oldest_snapshot: Option<Seq>) -> bool {
        self.picker(oldest_snapshot).pick().is_some()
    }

    /// The next plan of a requested compaction, whose goal is that the entries of `[from, to)` no newer than
    /// `requested_seq` are in one table per guard of the last level. `Ok(None)`: the goal is reached. This takes a
    /// bounded number of plans even if writes go on.
    pub fn pick_range(
        &mut self,
        from: &[u8],
        to: Option<&[u8]>,
        requested_seq: Seq,
        oldest_snapshot: Option<Seq>,
    ) -> std::result::Result<Option<Arc<Plan>>, PickBlocked> {
        let picker = Picker { requested_seq, ..self.picker(oldest_snapshot) };
        let plan = picker.pick_range(from, to)?;
        Ok(plan.map(|plan| self.start(plan)))
    }

    /// Removes a plan from those in progress, because it is installed or has failed.
    pub fn done(&mut self, plan: &Plan) {
        self.in_progress.retain(|p| p.id != plan.id);
    }

    /// The edit for a flush. `flushed_seq` is the newest flushed sequence number.
    pub fn install_flush(&self, flushed: &FlushOutput, flushed_seq: Seq) -> VersionEdit {
        let mut edit = VersionEdit { flushed_seq: Some(flushed_seq), ..VersionEdit::default() };
        edit.added.extend(flushed.table.iter().map(|meta| (0, meta.clone())));
        edit.sketches.clone_from(&flushed.sketches);
        edit.oldest_reader = flushed.oldest_reader;
        edit.range_tombstones_added =
            self.version.needed_range_tombstones(&flushed.range_tombstones, &flushed.table);
        for (key, level) in &flushed.uncommitted {
            let committed = self.version.level(*level).has_guard(key);
            let known = self.version.uncommitted.get(key).is_some_and(|known| known <= *level);
            if !committed && !known {
                edit.uncommitted_added.push((key.clone(), *level));
            }
        }
        edit
    }

    /// The edit for a compaction: its tables, the uncommitted guards that can be committed without its inputs, and the
    /// guards that are not needed any more.
    ///
    /// # Errors
    /// The tables would be out of order with others. Then nothing may be published.
    pub fn install(
        &self,
        plan: &Plan,
        outcome: &CompactionOutput,
        open: &mut dyn FnMut(&TableMeta) -> Result<Arc<LiveTable>>,
    ) -> Result<VersionEdit> {
        let added: Vec<TableMeta> = match plan.is_move() {
            true => plan.inputs.iter().map(|(_, t)| t.meta.clone()).collect(),
            false => outcome.added.clone(),
        };
        let mut edit = VersionEdit {
            added: added.iter().map(|meta| (plan.target, meta.clone())).collect(),
            removed: plan.inputs.iter().map(|(level, t)| (*level, t.meta.number)).collect(),
            sketches: outcome.sketches.clone(),
            ..VersionEdit::default()
        };
        // Since the plan was made, one of them may have become a guard of more levels, or of none.
        for key in &plan.guards_removed {
            let having = (1..=self.version.last_level()).filter(|&n| self.version.level(n).has_guard(key));
            edit.guards_removed.extend(having.map(|n| (n, key.clone())));
        }
        // If a cut could not become a guard, both pieces beside it lie in the same guard.
        let after = self.version.apply(&edit, open)?;
        // Tables that are out of order could answer reads with old versions.
        if let Some(problem) = seqno_order::describe_misplaced(&after, plan.target, &added)
            && !(plan.is_move() && planted(Bug::MovePastOlderTables))
        {
            return Err(Error::new(ErrorKind::Io, format!("a compaction is not installed: {problem}")));
        }
        self.commit_guards(plan, &after, &mut edit);
        self.add_adaptive_guards(plan, &after, &mut edit);
        self.remove_empty_guards(plan, &after, &mut edit);
        edit.oldest_reader = outcome.oldest_reader;
        edit.range_tombstones_removed = after.range_tombstones_removed(plan);
        Ok(edit)
    }

    /// Commits uncommitted guards within the plan's range, from the last level up: a key becomes a guard of a level if
    /// it is a guard of the level below, and if no table of the level, present or being written, has keys on both sides
    /// of it.
    fn commit_guards(&self, plan: &Plan, after: &Version, edit: &mut VersionEdit) {
        let others: Vec<&Arc<Plan>> = self.in_progress.iter().filter(|p| p.id != plan.id).collect();
        for (key, shallowest) in after.uncommitted.range(&plan.from, plan.to.as_ref().map(|k| &k[..])) {
            let mut level = after.last_level();
            while level >= shallowest {
                if !after.level(level).has_guard(key) {
                    if after.level(level).straddled(key)
                        || others.iter().any(|p| p.would_straddle(level, key))
                    {
                        break;
                    }
                    edit.guards_added.push((level, key.clone()));
                }
                level -= 1;
            }
            if level < shallowest {
                edit.uncommitted_removed.push(key.clone());
            }
        }
    }

    /// Adds adaptive guards (`adaptive_guards.rs`): in the last level, where a guard is large enough to be divided; in
    /// a level above, at the cuts of the plan, which are guards below.
    fn add_adaptive_guards(&self, plan: &Plan, after: &Version, edit: &mut VersionEdit) {
        let wanted = self.options.guard_bytes;
        if wanted == 0 || plan.target == 0 {
            return;
        }
        let (target, last) = (plan.target, after.last_level());
        let level = after.level(target);
        let keys: Vec<Slice> = match target == last {
            true => (level.overlapping(&plan.from, plan.to.as_ref().map(|k| &k[..])))
                .flat_map(|i| adaptive_guards::split_keys(&level.guards[i], wanted))
                .collect(),
            false => plan.cuts.clone(),
        };
        let in_progress = || self.in_progress.iter().filter(|p| p.id != plan.id);
        for key in keys {
            let below = (target + 1..=last).all(|n| after.level(n).has_guard(&key));
            let new = !level.has_guard(&key) && !edit.guards_added.contains(&(target, key.clone()));
            if below
                && new
                && !level.straddled(&key)
                && !in_progress().any(|p| p.would_straddle(target, &key))
            {
                edit.guards_added.push((target, key));
            }
        }
    }

    /// Removes guards that no table of any level needs, from all levels at once. (The paper leaves the deletion of
    /// empty guards open, section 4.5.)
    ///
    /// What counts is the range of the guard at its *shallowest* level. The tables of a guard hold consecutive parts of
    /// the history of its range, and its stack is in their order, because all data in its range has always moved down
    /// together. If two guards that have both been in use were joined, one stack would hold two histories, and the
    /// order of its tables could be wrong for some keys.
    fn remove_empty_guards(&self, plan: &Plan, after: &Version, edit: &mut VersionEdit) {
        let last = after.level(after.last_level());
        for index in last.overlapping(&plan.from, plan.to.as_ref().map(|k| &k[..])) {
            let key = &last.guards[index].key;
            if key.is_empty() || !last.guards[index].tables.is_empty() {
                continue;
            }
            let having: Vec<usize> =
                (1..=after.last_level()).filter(|&n| after.level(n).has_guard(key)).collect();
            let widest = after.level(having[0]);
            let end = widest.end_of(widest.find(key)).map(|k| &k[..]);
            let in_use = after.levels.iter().any(|level| {
                (level.overlapping(key, end))
                    .any(|i| level.guards[i].tables.iter().any(|t| t.overlaps_range(key, end)))
            });
            // A plan in progress may have cut its output here, or may write into the range.
            let expected = self.in_progress.iter().any(|p| p.id != plan.id && p.meets(key, end));
            // A guard that this edit adds to a shallower level stays.
            let new = edit.guards_added.iter().any(|(_, added)| added == key);
            if !in_use && !expected && !new {
                edit.guards_removed.extend(having.iter().map(|&n| (n, key.clone())));
            }
        }
    }

    /// Applies a durable edit to the current version. The files of the tables that it removes become obsolete when no
    /// reader holds them.
    pub fn apply(
        &mut self,
        edit: &VersionEdit,
        open: &mut dyn FnMut(&TableMeta) -> Result<Arc<LiveTable>>,
    ) -> Result<Arc<Version>> {
        let next = Arc::new(self.version.apply(edit, open)?);
        let stays: HashSet<u64> = edit.added.iter().map(|(_, meta)| meta.number).collect();
        for (_, number) in edit.removed.iter().filter(|(_, number)| !stays.contains(number)) {
            if let Some((_, table)) = self.version.tables().find(|(_, t)| t.meta.number == *number) {
                table.set_obsolete();
            }
        }
        self.version = next.clone();
        #[cfg(debug_assertions)]
        if let Some(problem) = crate::check_version(&next).into_iter().next() {
            panic!("an edit broke the tree: {problem}\n{edit:?}");
        }
        Ok(next)
    }

    /// Marks every table as obsolete, because the keyspace is dropped.
    pub fn abandon(&mut self) {
        for (_, table) in self.version.tables() {
            table.set_obsolete();
        }
        self.version = Arc::new(Version::empty(self.options.levels));
    }

    /// How far compaction is behind: 0 if it is not, 1 if level 0 has twice the number of tables that triggers its
    /// compaction. Tables that an unreadable one prevents from being compacted do not count, because waiting would not
    /// help.
    pub fn debt(&self) -> f64 {
        let tables = &self.version.level0;
        let waiting = match unreadable::has_unreadable(tables) {
            true => unreadable::compactable(tables, self.options.level0_tables, |tables| {
                seqno_order::fits_as_one(&self.version, tables, 0)
            }),
            false => tables.len(),
        };
        let level0 = waiting as f64 / self.options.level0_tables as f64;
        (level0 - 1.0).max(0.0)
    }
}
