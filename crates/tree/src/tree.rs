//! A tree as its owner holds it: the current version, the plans that run on it, and how their results become edits.

use crate::compact::{Flushed, Outcome};
use crate::edit::VersionEdit;
use crate::hash_guards::GuardHash;
use crate::pick::{PickBlocked, Picker, Plan};
use crate::version::{TableFile, Version};
use crate::{Reason, TreeOptions, adaptive_guards, seqno_order, unreadable};
use base::planted::{Bug, planted};
use base::{Error, ErrorKind, Result, Seq, Slice};
use std::collections::HashSet;
use std::sync::Arc;
use table::TableMeta;

/// The tree of one keyspace. Not synchronised: the owner holds a lock around it, and none around the running of plans.
///
/// The protocol: [`Tree::pick`] hands out a plan and remembers it; [`crate::compact`] runs it; [`Tree::install`] turns the
/// outcome into an edit; the owner makes the edit durable, [`Tree::apply`]s it and calls [`Tree::done`]. Between `install` and
/// `apply` no other plan may be picked and no other edit be applied.
pub struct Tree {
    options: TreeOptions,
    rule: GuardHash,
    version: Arc<Version>,
    running: Vec<Arc<Plan>>,
    next_plan: u64,
    room: Option<u64>,
    at_rest: bool,
}

impl Tree {
    /// A tree that stands at `version`.
    pub fn new(options: TreeOptions, version: Arc<Version>) -> Tree {
        let rule = GuardHash::new(&options);
        Tree { options, rule, version, running: Vec::new(), next_plan: 1, room: None, at_rest: false }
    }

    /// Its options.
    pub fn options(&self) -> &TreeOptions {
        &self.options
    }

    /// How it chooses guards.
    pub fn rule(&self) -> &GuardHash {
        &self.rule
    }

    /// The current version.
    pub fn version(&self) -> &Arc<Version> {
        &self.version
    }

    /// Plans that are running.
    pub fn running(&self) -> usize {
        self.running.len()
    }

    fn picker(&self, oldest_snapshot: Option<Seq>) -> Picker<'_> {
        let Tree { version, options, running, room, at_rest, .. } = self;
        let (room, at_rest) = (*room, *at_rest);
        Picker { version, options, running, oldest_snapshot, room, at_rest, requested_seq: Seq::MAX }
    }

    fn start(&mut self, mut plan: Plan) -> Arc<Plan> {
        debug_assert!(
            plan.reason == Reason::RangeDeletes || plan.inputs.iter().all(|(_, t)| !t.is_unreadable()),
            "it would fail, again and again"
        );
        plan.id = self.next_plan;
        self.next_plan += 1;
        let plan = Arc::new(plan);
        self.running.push(plan.clone());
        plan
    }

    /// How many bytes the disk has left, when it is nearly full: from now on only plans are picked that fit, and that make room.
    pub fn set_room(&mut self, room: Option<u64>) {
        let taken = self.running.iter().map(|plan| plan.input_bytes()).sum();
        self.room = room.map(|room| room.saturating_sub(taken));
    }

    /// Whether hardly anybody writes at present: then more is worth compacting.
    pub fn set_rest(&mut self, at_rest: bool) {
        self.at_rest = at_rest;
    }

    /// The most urgent compaction that touches no running one, if any is due.
    pub fn pick(&mut self, oldest_snapshot: Option<Seq>) -> Option<Arc<Plan>> {
        let plan = self.picker(oldest_snapshot).pick()?;
        Some(self.start(plan))
    }

    /// Whether [`Tree::pick`] would find something.
    pub fn is_due(&self, oldest_snapshot: Option<Seq>) -> bool {
        self.picker(oldest_snapshot).pick().is_some()
    }

    /// The next compaction towards having what is no newer than `requested_seq` of `[from, to)` in one table per guard of the last level.
    /// `Ok(None)`: there is nothing left to do. Beside writers that comes after a number of plans that depends on what there was at the first one
    /// only.
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

    /// Forgets a plan: it is installed, or it failed.
    pub fn done(&mut self, plan: &Plan) {
        self.running.retain(|p| p.id != plan.id);
    }

    /// The edit that a flush leads to. `flushed_seq` is the newest sequence number of what was flushed.
    pub fn install_flush(&self, flushed: &Flushed, flushed_seq: Seq) -> VersionEdit {
        let mut edit = VersionEdit { flushed_seq: Some(flushed_seq), ..VersionEdit::default() };
        edit.added.extend(flushed.table.iter().map(|meta| (0, meta.clone())));
        edit.sketches.clone_from(&flushed.sketches);
        edit.oldest_reader = flushed.oldest_reader;
        edit.ranges_added = self.version.still_needed(&flushed.ranges, &flushed.table);
        for (key, level) in &flushed.uncommitted {
            let taken_up = self.version.level(*level).has_guard(key);
            let noted = self.version.uncommitted.get(key).is_some_and(|noted| noted <= *level);
            if !taken_up && !noted {
                edit.uncommitted_added.push((key.clone(), *level));
            }
        }
        edit
    }

    /// The edit that a compaction leads to: its tables, the guards that can be taken up now that its inputs are gone, and
    /// the guards that have become useless. An error if the tables would not be in order with the others: then nothing may be
    /// published.
    pub fn install(
        &self,
        plan: &Plan,
        outcome: &Outcome,
        open: &mut dyn FnMut(&TableMeta) -> Result<Arc<TableFile>>,
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
        // Meanwhile one of them may have become a guard of other levels, or of none.
        for key in &plan.joins {
            let having = (1..=self.version.last_level()).filter(|&n| self.version.level(n).has_guard(key));
            edit.guards_removed.extend(having.map(|n| (n, key.clone())));
        }
        // A piece cut at a key that could not become a guard after all lies in the guard before it, beside its sibling.
        let after = self.version.apply(&edit, open)?;
        // What is out of order could answer reads with old versions, for good: rather fail.
        if let Some(problem) = seqno_order::misplaced(&after, plan.target, &added)
            && !(plan.is_move() && planted(Bug::MovePastOlderTables))
        {
            return Err(Error::new(ErrorKind::Io, format!("a compaction is not installed: {problem}")));
        }
        self.take_up_guards(plan, &after, &mut edit);
        self.choose_guards(plan, &after, &mut edit);
        self.drop_guards(plan, &after, &mut edit);
        edit.oldest_reader = outcome.oldest_reader;
        edit.ranges_done = after.ranges_done(plan);
        Ok(edit)
    }

    /// Commits candidates within the plan's range, from the last level up: a key becomes a guard of a level when no table
    /// there, present or being written, has keys on both sides of it, and it is a guard of the level below.
    fn take_up_guards(&self, plan: &Plan, after: &Version, edit: &mut VersionEdit) {
        let others: Vec<&Arc<Plan>> = self.running.iter().filter(|p| p.id != plan.id).collect();
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

    /// Chooses guards from the data (`adaptive_guards.rs`): of the last level where a guard is large enough to be divided, of a level above among the
    /// cuts of the plan, which are guards below.
    fn choose_guards(&self, plan: &Plan, after: &Version, edit: &mut VersionEdit) {
        let wanted = self.options.guard_bytes;
        if wanted == 0 || plan.target == 0 {
            return;
        }
        let (target, last) = (plan.target, after.last_level());
        let level = after.level(target);
        let places: Vec<Slice> = match target == last {
            true => (level.overlapping(&plan.from, plan.to.as_ref().map(|k| &k[..])))
                .flat_map(|i| adaptive_guards::places_to_divide(&level.guards[i], wanted))
                .collect(),
            false => plan.cuts.clone(),
        };
        let running = || self.running.iter().filter(|p| p.id != plan.id);
        for key in places {
            let below = (target + 1..=last).all(|n| after.level(n).has_guard(&key));
            let new = !level.has_guard(&key) && !edit.guards_added.contains(&(target, key.clone()));
            if below && new && !level.straddled(&key) && !running().any(|p| p.would_straddle(target, &key)) {
                edit.guards_added.push((target, key));
            }
        }
    }

    /// Gives up guards that no table of any level needs, at all levels at once. (The paper leaves the deletion of empty guards
    /// open, section 4.5.)
    ///
    /// What counts is the range that the guard has at its *shallowest* level. A guard's tables hold consecutive stretches of the
    /// database's history, and its stack is in their order, because all that lies in its range has always come down
    /// together. If guards were joined that have both been in use, one stack would hold two histories, and the
    /// order of its tables could be wrong for some keys.
    fn drop_guards(&self, plan: &Plan, after: &Version, edit: &mut VersionEdit) {
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
            // A running plan may have cut its pieces here, or be on its way into the range.
            let expected = self.running.iter().any(|p| p.id != plan.id && p.meets(key, end));
            // One that was taken up just now, at a shallower level, is not given up.
            let new = edit.guards_added.iter().any(|(_, added)| added == key);
            if !in_use && !expected && !new {
                edit.guards_removed.extend(having.iter().map(|&n| (n, key.clone())));
            }
        }
    }

    /// Takes a durable edit over into the current version. Tables that it removes become garbage once nobody reads them.
    pub fn apply(
        &mut self,
        edit: &VersionEdit,
        open: &mut dyn FnMut(&TableMeta) -> Result<Arc<TableFile>>,
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

    /// Marks every table as garbage: the keyspace is dropped.
    pub fn abandon(&mut self) {
        for (_, table) in self.version.tables() {
            table.set_obsolete();
        }
        self.version = Arc::new(Version::empty(self.options.levels));
    }

    /// How far compaction is behind, from 0 (in time) upwards: 1 means that level 0 has twice the tables that start its
    /// compaction. Tables that are stuck behind an unreadable one do not count: waiting would not help.
    pub fn debt(&self) -> f64 {
        let tables = &self.version.level0;
        let waiting = match unreadable::has_unreadable(tables) {
            true => unreadable::waiting(tables, self.options.level0_tables, |run| {
                seqno_order::fits_as_one(&self.version, run, 0)
            }),
            false => tables.len(),
        };
        let level0 = waiting as f64 / self.options.level0_tables as f64;
        (level0 - 1.0).max(0.0)
    }
}
