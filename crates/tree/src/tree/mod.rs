//! [`Tree`]: the current version of a keyspace, and the plans in progress.
//!
//! The top of this crate: the library holds a tree for each keyspace, under its lock, and asks it for plans. `install.rs` turns the
//! results of flushes and compactions into edits.

mod install;

use crate::TreeOptions;
use crate::compaction::{self, PickBlocked, Picker, Plan, Space};
use crate::version::{LiveTable, Version, VersionEdit};
use base::{RangeSet, Result, Seq, Time};
use std::collections::HashSet;
use std::sync::{Arc, Weak};
use table::TableMeta;

/// The tree of one keyspace. Not synchronised: the owner locks it, and does not hold the lock while plans are executed.
///
/// The protocol: [`Tree::pick`] returns a plan and remembers it as in progress; [`crate::compact`] executes it;
/// [`Tree::install`] turns the outcome into an edit; the owner makes the edit durable, calls [`Tree::apply`], and then
/// [`Tree::done`]. Between `install` and `apply` no other plan may be picked and no other edit applied.
pub struct Tree {
    options: TreeOptions,
    version: Arc<Version>,
    in_progress: Vec<Arc<Plan>>,
    free_space: Option<u64>,
    idle: bool,
    horizon: Option<Time>,
    unsettled: RangeSet,
    /// What [`Tree::space`] has returned, for this version and reader. Weak, because a version keeps the files of its tables.
    space: Option<(Weak<Version>, Option<Seq>, Space)>,
}

impl Tree {
    /// A tree whose current version is `version`.
    pub fn new(options: TreeOptions, version: Arc<Version>) -> Tree {
        let in_progress = Vec::new();
        Tree {
            options,
            version,
            in_progress,
            free_space: None,
            idle: false,
            horizon: None,
            unsettled: RangeSet::default(),
            space: None,
        }
    }

    /// Its options.
    pub fn options(&self) -> &TreeOptions {
        &self.options
    }

    /// Sets other options, which hold for plans that are picked later. The number of levels stays.
    pub fn set_options(&mut self, options: TreeOptions) {
        debug_assert_eq!(options.levels, self.options.levels);
        self.options = options;
        self.space = None;
    }

    /// The current version.
    pub fn version(&self) -> &Arc<Version> {
        &self.version
    }

    fn picker(&self, oldest_snapshot: Option<Seq>) -> Picker<'_> {
        let Tree { version, options, in_progress, free_space, idle, horizon, unsettled, .. } = self;
        let (free_space, idle, horizon) = (*free_space, *idle, *horizon);
        let busy = in_progress.iter().flat_map(|plan| plan.numbers()).collect();
        let (requested_seq, rewritten_before) = (Seq::MAX, 0);
        Picker {
            version,
            options,
            in_progress,
            busy,
            oldest_snapshot,
            free_space,
            idle,
            horizon,
            unsettled,
            requested_seq,
            rewritten_before,
        }
    }

    fn start(&mut self, plan: Plan) -> Arc<Plan> {
        debug_assert!(
            plan.removes_unread() || plan.input_tables().all(|t| !t.damage.is_unreadable()),
            "a plan must not read an unreadable table"
        );
        let plan = Arc::new(Plan { horizon: self.horizon, ..plan });
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

    /// Sets the time up to which versions must have ended to have expired; `None` if time alone makes none expire.
    /// `unsettled`: where expired versions move to another tree, those under these range tombstones stay meanwhile.
    pub fn set_horizon(&mut self, horizon: Option<Time>, unsettled: RangeSet) {
        (self.horizon, self.unsettled) = (horizon, unsettled);
    }

    /// The horizon at which more compactions may be due than at the present one; `None` if there is none.
    pub fn next_horizon(&self) -> Option<Time> {
        compaction::next_horizon(&self.picker(None))
    }

    /// The most urgent compaction that shares no table with a plan in progress, if any is due.
    pub fn pick(&mut self, oldest_snapshot: Option<Seq>) -> Option<Arc<Plan>> {
        let plan = compaction::pick(&self.picker(oldest_snapshot))?;
        Some(self.start(plan))
    }

    /// Whether [`Tree::pick`] would return a plan.
    pub fn is_due(&self, oldest_snapshot: Option<Seq>) -> bool {
        compaction::pick(&self.picker(oldest_snapshot)).is_some()
    }

    /// The next plan of a requested compaction, whose goal is that the entries of `[from, to)` no newer than
    /// `requested_seq` are in one table per guard of the last level. `Ok(None)`: the goal is reached. This takes a
    /// bounded number of plans even if writes go on. Tables with numbers before `rewritten_before` are written again.
    pub fn pick_range(
        &mut self,
        from: &[u8],
        to: Option<&[u8]>,
        requested_seq: Seq,
        rewritten_before: u64,
        oldest_snapshot: Option<Seq>,
    ) -> std::result::Result<Option<Arc<Plan>>, PickBlocked> {
        let picker = Picker { requested_seq, rewritten_before, ..self.picker(oldest_snapshot) };
        let plan = compaction::pick_range(&picker, from, to)?;
        Ok(plan.map(|plan| self.start(plan)))
    }

    /// The plans in progress.
    pub fn in_progress(&self) -> &[Arc<Plan>] {
        &self.in_progress
    }

    /// Removes a plan from those in progress, because it is installed or has failed.
    pub fn done(&mut self, plan: &Plan) {
        self.in_progress.retain(|p| !std::ptr::eq(&**p, plan));
    }

    /// Whether a compaction is in progress that moves values into its tables.
    pub fn inlines_values(&self) -> bool {
        self.in_progress.iter().any(|plan| plan.inlines_values())
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
                table.remove_from_tree();
            }
        }
        self.version = next.clone();
        #[cfg(debug_assertions)]
        if let Some(problem) = crate::version::check_version(&next).into_iter().next() {
            panic!("an edit broke the tree: {problem}\n{edit:?}");
        }
        Ok(next)
    }

    /// Gives up every table, because the keyspace is dropped.
    pub fn abandon(&mut self) {
        for (_, table) in self.version.tables() {
            table.remove_from_tree();
        }
        self.version = Arc::new(self.version.emptied());
    }

    /// How far compaction is behind: 0 if it is not, 1 if level 0 has twice the number of tables that triggers its compaction.
    pub fn debt(&self) -> f64 {
        compaction::debt(&self.version, &self.options)
    }

    /// How much compactions could free. Cost: as that of a pick, the first time after a change.
    pub fn space(&mut self, oldest_snapshot: Option<Seq>) -> Space {
        let is_same = |of: &Weak<Version>| std::ptr::eq(of.as_ptr(), Arc::as_ptr(&self.version));
        if let Some((version, oldest, space)) = &self.space
            && is_same(version)
            && *oldest == oldest_snapshot
        {
            return *space;
        }
        let space = Space::of(&self.picker(oldest_snapshot));
        self.space = Some((Arc::downgrade(&self.version), oldest_snapshot, space));
        space
    }
}
