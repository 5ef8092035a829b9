//! A keyspace during replay, and the tables that the opening writes from the log: their number is limited, however small the memory
//! budget is.
//!
//! With a small budget memtables are small, and each becomes a table of level 0. Sixteen consecutive tables that were written or merged
//! equally often are merged into one before the next is written: so an opening leaves at most fifteen tables of each size, and rewrites
//! each entry once per factor of sixteen. No manifest names any of these tables yet, so merged ones are removed at once.

use crate::state::{HashLog, times_of};
use crate::types::{KeyspaceOptions, Merge};
use base::{ErrorKind, MergeOperator, RangeSet, Result, Time};
use hashlog::HintFile;
use memtable::Memtable;
use std::collections::BTreeMap;
use std::sync::Arc;
use table::TimesOf;
use tree::{FoldedCursor, JobContext, JobOutput, Kept, LiveTable, Tree, VersionEdit};

/// Number of tables that are merged into one.
const MERGED: usize = 16;

/// A keyspace during replay.
pub(crate) struct Replayed {
    pub id: u64,
    /// The version in the manifest.
    pub found: Arc<tree::Version>,
    pub tree: Tree,
    pub options: KeyspaceOptions,
    pub name: String,
    /// The number of the keyspace whose older versions this one has, if it is a historical one.
    pub history_of: Option<u64>,
    /// See [`Settings::kept_since`](crate::state::Settings::kept_since).
    pub kept_since: Time,
    /// The number of the keyspace that has the older versions, if this one has history.
    pub historical: Option<u64>,
    /// What finds its flushed entries, if it has no order, and the hint files in the manifest.
    pub hash_log: Option<Arc<HashLog>>,
    pub hints_found: BTreeMap<u64, HintFile>,
    pub memtable: Arc<Memtable>,
    /// Full memtables that could not be written to tables, oldest first.
    pub full: Vec<Arc<Memtable>>,
    pub recovered: Recovered,
    /// What joins operands to its values.
    pub operator: Option<Arc<dyn MergeOperator>>,
    /// Whether an entry that was replayed has an expiry.
    pub has_expiries: bool,
}

impl Replayed {
    /// Its hint files, with its number.
    pub(crate) fn hints(&self, id: u64) -> Vec<(u64, HintFile)> {
        self.hash_log.iter().flat_map(|log| log.hints()).map(|hints| (id, hints)).collect()
    }

    /// The same keyspace with the same memtables.
    pub(crate) fn shared(&self) -> Replayed {
        Replayed {
            id: self.id,
            found: self.found.clone(),
            tree: Tree::new(self.tree.options().clone(), self.tree.version().clone()),
            options: self.options.clone(),
            name: self.name.clone(),
            history_of: self.history_of,
            kept_since: self.kept_since,
            historical: self.historical,
            hash_log: self.hash_log.clone(),
            hints_found: BTreeMap::new(),
            memtable: self.memtable.clone(),
            full: self.full.clone(),
            recovered: Recovered::default(),
            operator: self.operator.clone(),
            has_expiries: self.has_expiries,
        }
    }

    /// Discards everything that was replayed.
    pub(crate) fn reset(&mut self) {
        self.tree = Tree::new(self.tree.options().clone(), self.found.clone());
        self.memtable = Memtable::empty();
        self.full.clear();
        self.recovered = Recovered::default();
    }
}

pub(crate) type Keyspaces = BTreeMap<u64, Replayed>;

/// What happens to full memtables.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spill {
    Tables,
    /// The disk is full: they stay in memory, and nothing is written.
    Nowhere,
}

/// The tables that this opening wrote, oldest first, which are in level 0.
#[derive(Default)]
pub(crate) struct Recovered {
    /// The number of each table, and how often it was merged.
    tables: Vec<(u64, u32)>,
    /// Merging has failed and is not tried again: perhaps the disk has space for the tables only.
    failed: bool,
}

impl Recovered {
    /// Records tables written from a memtable.
    fn add(&mut self, written: &JobOutput) {
        self.tables.extend(written.added.iter().map(|meta| (meta.number, 0)));
    }

    /// The tables to merge next.
    fn due(&self, tree: &Tree) -> Option<Vec<Arc<LiveTable>>> {
        let (_, last) = self.tables.split_at_checked(self.tables.len().checked_sub(MERGED)?)?;
        let due = !self.failed && last.iter().all(|(_, merges)| *merges == last[0].1);
        let is_last = |table: &&Arc<LiveTable>| last.iter().any(|(number, _)| *number == table.meta.number);
        due.then(|| tree.version().level0.iter().filter(is_last).cloned().collect())
    }
}

impl Replayed {
    /// What flushes and merges of tables that they wrote keep: see [`KeyspaceInner::kept_by_flushes`](crate::state::KeyspaceInner).
    fn kept(&self) -> Kept {
        if self.historical.is_some() { Kept::All } else { Kept::Seen }
    }

    /// Whether it may have operands.
    pub(crate) fn has_operands(&self) -> bool {
        let has_entries_below =
            self.hash_log.is_none() && self.history_of.is_none() && self.historical.is_none();
        self.options.merge != Merge::None && has_entries_below
    }

    /// What tells the times of entries in tables, if they are versions.
    pub(crate) fn times_of(&self) -> Option<TimesOf> {
        times_of(self.history_of.is_some(), self.historical.is_some())
    }

    /// Writes a memtable to a table, and merges the tables that are then due.
    pub(crate) fn flush(
        &mut self,
        memtable: &Arc<Memtable>,
        context: &JobContext<'_>,
        open: &mut dyn FnMut(&table::TableMeta) -> Result<Arc<LiveTable>>,
    ) -> Result<()> {
        let Some(newest) = memtable.max_seq() else { return Ok(()) };
        let mut entries = memtable.cursor();
        let flushed = match context.operator {
            None => tree::flush(entries, context, self.kept())?,
            Some(operator) => {
                tree::flush(FoldedCursor::of_flush(&mut entries, operator, context), context, self.kept())?
            }
        };
        let edit = self.tree.install_flush(&flushed, newest);
        self.tree.apply(&edit, open)?;
        self.recovered.add(&flushed);
        self.merge(context, open)
    }

    /// Merges the tables that are due. Returns only the error of a sync, after which nothing may be written; after any other the tables
    /// stay as they are.
    fn merge(
        &mut self,
        context: &JobContext<'_>,
        open: &mut dyn FnMut(&table::TableMeta) -> Result<Arc<LiveTable>>,
    ) -> Result<()> {
        while let Some(tables) = self.recovered.due(&self.tree) {
            // Range tombstones are kept: their effect does not change.
            let context = JobContext { range_tombstones: &RangeSet::default(), ..*context };
            let merged = match tree::merge_flushed(&tables, &context, self.kept()) {
                Err(e) if e.kind() == ErrorKind::ReadOnly => return Err(e),
                Err(_) => {
                    self.recovered.failed = true;
                    return Ok(());
                }
                Ok(merged) => merged,
            };
            let edit = VersionEdit {
                added: merged.added.iter().map(|meta| (0, meta.clone())).collect(),
                removed: tables.iter().map(|t| (0, t.meta.number)).collect(),
                sketches: merged.sketches,
                ..VersionEdit::default()
            };
            self.tree.apply(&edit, open)?;
            let Recovered { tables, .. } = &mut self.recovered;
            let merges = tables.split_off(tables.len() - MERGED);
            tables.extend(merged.added.iter().map(|meta| (meta.number, merges[0].1 + 1)));
        }
        Ok(())
    }
}
