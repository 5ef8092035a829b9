//! Turns the results of flushes and compactions into edits, and decides which guards an edit adds and removes.

use super::Tree;
use crate::compaction::{Plan, describe_misplaced, level_of_newest};
use crate::guards::split_keys;
use crate::jobs::JobOutput;
use crate::version::{LiveTable, Version, VersionEdit};
use base::planted::{Bug, planted};
use base::{Error, ErrorKind, Result, Seq, Slice};
use std::sync::Arc;
use table::TableMeta;

impl Tree {
    /// The edit for a flush. `flushed_seq` is the newest flushed sequence number.
    pub fn install_flush(&self, flushed: &JobOutput, flushed_seq: Seq) -> VersionEdit {
        let mut edit = VersionEdit { flushed_seq: Some(flushed_seq), ..VersionEdit::default() };
        edit.added.extend(flushed.added.iter().map(|meta| (0, meta.clone())));
        edit.sketches.clone_from(&flushed.sketches);
        edit.oldest_reader = flushed.oldest_reader;
        edit.range_tombstones_added =
            self.version.needed_range_tombstones(&flushed.range_tombstones, &flushed.added);
        self.note_uncommitted(flushed, &mut edit);
        edit
    }

    /// The edit for tables that a job of another tree wrote for this one ([`EvictedTables`](crate::EvictedTables)), which is unordered: each
    /// goes to the deepest level at which it lies in one guard. Where the last level is not divided between two of them, the second one
    /// begins a guard, if no table has keys on both sides.
    pub fn install_evicted(&self, evicted: &JobOutput) -> VersionEdit {
        debug_assert!(self.version.unordered);
        let last_level = self.version.last_level();
        // A plan in progress may add guards.
        let is_busy = |n: usize, meta: &TableMeta| {
            self.in_progress.iter().any(|p| p.target == n && p.overlaps_keys(meta))
        };
        let level = |meta: &TableMeta| {
            let lies_in_one = |n: &usize| {
                let level = self.version.level(*n);
                level.find(&meta.smallest) == level.find(&meta.largest) && !is_busy(*n, meta)
            };
            (1..=last_level).rev().find(lies_in_one).unwrap_or(0)
        };
        let added: Vec<(usize, TableMeta)> =
            evicted.added.iter().map(|meta| (level(meta), meta.clone())).collect();
        let last = self.version.level(last_level);
        let begins_guard = |pair: &[(usize, TableMeta)]| {
            let key = Slice::copy_from(&pair[1].1.smallest);
            let both_in_last = pair.iter().all(|(n, _)| *n == last_level);
            let in_one_guard = pair[0].1.largest < pair[1].1.smallest && !last.has_guard(&key);
            (both_in_last && in_one_guard && !last.straddled(&key)).then_some((last_level, key))
        };
        VersionEdit {
            guards_added: added.windows(2).filter_map(begins_guard).collect(),
            added,
            sketches: evicted.sketches.clone(),
            ..VersionEdit::default()
        }
    }

    /// The edit for tables of a bulk load, in order of their keys. Their entries have the sequence number `seq`, newer than all others, which are
    /// all in tables. Each table goes to the deepest level that is free there. Where the last level is not divided between two of them, the second one
    /// begins a guard.
    pub fn install_ingested(&self, tables: &[Arc<LiveTable>], ingested: &JobOutput, seq: Seq) -> VersionEdit {
        let picker = self.picker(None);
        let levels: Vec<usize> = tables.iter().map(|table| level_of_newest(&picker, table)).collect();
        let last_level = self.version.last_level();
        let last = self.version.level(last_level);
        let mut guards_added: Vec<(usize, Slice)> = Vec::new();
        let mut bytes = 0;
        for (i, pair) in tables.windows(2).enumerate() {
            bytes += pair[0].meta.file_size;
            let key = Slice::copy_from(&pair[1].meta.smallest);
            let in_last = levels[i] == last_level && levels[i + 1] == last_level;
            if in_last
                && self.options.guard_bytes > 0
                && bytes >= self.options.guard_bytes / 2
                && !last.has_guard(&key)
                && !last.straddled(&key)
                && !self.in_progress.iter().any(|plan| plan.would_straddle(last_level, &key))
            {
                guards_added.push((last_level, key));
                bytes = 0;
            }
        }
        let mut edit = VersionEdit {
            added: levels.into_iter().zip(tables.iter().map(|table| table.meta.clone())).collect(),
            guards_added,
            sketches: ingested.sketches.clone(),
            flushed_seq: Some(seq),
            ..VersionEdit::default()
        };
        self.note_uncommitted(ingested, &mut edit);
        edit
    }

    /// Adds the keys to an edit that are selected as guards by their hash, unless they are known. None if the tree has become one with adaptive
    /// guards since.
    fn note_uncommitted(&self, output: &JobOutput, edit: &mut VersionEdit) {
        if self.options.guard_bytes > 0 {
            return;
        }
        for (level, key) in &output.uncommitted {
            let committed = self.version.level(*level).has_guard(key);
            let known = self.version.uncommitted.get(key).is_some_and(|known| known <= level);
            if !committed && !known {
                edit.uncommitted_added.push((*level, key.clone()));
            }
        }
    }

    /// The edit for a compaction: its tables, the uncommitted guards that can be committed without its inputs, and the
    /// guards that are not needed any more.
    ///
    /// # Errors
    /// The tables would be out of order with others. Then nothing may be published.
    pub fn install(
        &self,
        plan: &Plan,
        outcome: &JobOutput,
        open: &mut dyn FnMut(&TableMeta) -> Result<Arc<LiveTable>>,
    ) -> Result<VersionEdit> {
        let added: Vec<TableMeta> = match plan.is_move() {
            true => plan.input_tables().map(|t| t.meta.clone()).collect(),
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
        if let Some(problem) = describe_misplaced(&after, plan.target, &added)
            && !(plan.is_move() && planted(Bug::MovePastOlderTables))
        {
            return Err(Error::new(ErrorKind::Io, format!("a compaction is not installed: {problem}")));
        }
        self.commit_guards(plan, &after, &mut edit);
        self.add_adaptive_guards(plan, &after, &mut edit);
        self.remove_empty_guards(plan, &after, &mut edit);
        edit.oldest_reader = outcome.oldest_reader;
        edit.range_tombstones_removed = after.unneeded_range_tombstones(&plan.from, plan.end());
        Ok(edit)
    }

    /// The other plans in progress.
    fn others<'a>(&'a self, plan: &'a Plan) -> impl Iterator<Item = &'a Arc<Plan>> {
        self.in_progress.iter().filter(move |p| !std::ptr::eq(&***p, plan))
    }

    /// Commits uncommitted guards within the plan's range, from the last level up: a key becomes a guard of a level if
    /// it is a guard of the level below, and if no table of the level, present or being written, has keys on both sides
    /// of it. With adaptive guards, those from before are given up.
    fn commit_guards(&self, plan: &Plan, after: &Version, edit: &mut VersionEdit) {
        if self.options.guard_bytes > 0 {
            let left = after.uncommitted_in(&plan.from, plan.end());
            edit.uncommitted_removed.extend(left.map(|(key, _)| key.clone()));
            return;
        }
        for (key, shallowest) in after.uncommitted_in(&plan.from, plan.end()) {
            let mut level = after.last_level();
            while level >= shallowest {
                if !after.level(level).has_guard(key) {
                    if after.level(level).straddled(key)
                        || self.others(plan).any(|p| p.would_straddle(level, key))
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

    /// Adds adaptive guards (`guards/adaptive.rs`): in the last level, where a guard is large enough to be divided; in
    /// a level above, at the cuts of the plan, which are guards below.
    fn add_adaptive_guards(&self, plan: &Plan, after: &Version, edit: &mut VersionEdit) {
        let wanted = self.options.guard_bytes;
        if wanted == 0 || plan.target == 0 {
            return;
        }
        let (target, last) = (plan.target, after.last_level());
        let level = after.level(target);
        let keys: Vec<Slice> = match target == last {
            true => (level.overlapping(&plan.from, plan.end()))
                .flat_map(|i| split_keys(&level.guards[i], wanted))
                .collect(),
            false => plan.cuts.clone(),
        };
        for key in keys {
            let below = (target + 1..=last).all(|n| after.level(n).has_guard(&key));
            let new = !level.has_guard(&key) && !edit.guards_added.contains(&(target, key.clone()));
            if below
                && new
                && !level.straddled(&key)
                && !self.others(plan).any(|p| p.would_straddle(target, &key))
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
        for index in last.overlapping(&plan.from, plan.end()) {
            let key = &last.guards[index].key;
            if key.is_empty() || !last.guards[index].tables.is_empty() {
                continue;
            }
            let having: Vec<usize> =
                (1..=after.last_level()).filter(|&n| after.level(n).has_guard(key)).collect();
            let widest = after.level(having[0]);
            let end = widest.end_of(widest.find(key)).map(|k| &k[..]);
            let in_use = after.levels.iter().any(|level| level.tables_in(key, end).next().is_some());
            // A plan in progress may have cut its output here, or may write into the range.
            let expected = self.others(plan).any(|p| p.overlaps(key, end));
            // A guard that this edit adds to a shallower level stays.
            let new = edit.guards_added.iter().any(|(_, added)| added == key);
            if !in_use && !expected && !new {
                edit.guards_removed.extend(having.iter().map(|&n| (n, key.clone())));
            }
        }
    }
}
