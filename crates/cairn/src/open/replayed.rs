//! A keyspace during replay, and the tables that the opening writes from the log: their number is limited, however small the memory
//! budget is.
//!
//! With a small budget memtables are small, and each becomes a table of level 0. Sixteen consecutive tables that were written or merged
//! equally often are merged into one before the next is written: so an opening leaves at most fifteen tables of each size, and rewrites
//! each entry once per factor of sixteen. No manifest names any of these tables yet, so merged ones are removed at once.

use crate::types::KeyspaceOptions;
use base::{ErrorKind, RangeSet, Result};
use memtable::Memtable;
use std::collections::BTreeMap;
use std::sync::Arc;
use tree::{JobContext, LiveTable, Tree, VersionEdit};

/// Number of tables that are merged into one.
const MERGED: usize = 16;

/// A keyspace during replay.
pub(crate) struct Replayed {
    /// The version in the manifest.
    pub found: Arc<tree::Version>,
    pub tree: Tree,
    pub options: KeyspaceOptions,
    pub name: String,
    pub memtable: Arc<Memtable>,
    /// Full memtables that could not be written to tables, oldest first.
    pub full: Vec<Arc<Memtable>>,
    pub recovered: Recovered,
}

impl Replayed {
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

/// For each table that this opening wrote, oldest first, how often it was merged. They are the newest of their tree's level 0.
#[derive(Default)]
pub(crate) struct Recovered {
    merges: Vec<u32>,
    /// Merging has failed and is not tried again: perhaps the disk has space for the tables only.
    failed: bool,
}

impl Recovered {
    /// Records a table written from a memtable.
    pub(crate) fn add(&mut self) {
        self.merges.push(0);
    }

    /// The tables to merge next.
    fn due(&self, tree: &Tree) -> Option<Vec<Arc<LiveTable>>> {
        let (_, last) = self.merges.split_at_checked(self.merges.len().checked_sub(MERGED)?)?;
        let due = !self.failed && last.iter().all(|merges| merges == &last[0]);
        due.then(|| tree.version().level0[..MERGED].to_vec())
    }

    /// Merges the tables that are due. Returns only the error of a sync, after which nothing may be written; after any other the tables
    /// stay as they are.
    pub(crate) fn merge(
        &mut self,
        tree: &mut Tree,
        context: &JobContext<'_>,
        open: &mut dyn FnMut(&table::TableMeta) -> Result<Arc<LiveTable>>,
    ) -> Result<()> {
        while let Some(tables) = self.due(tree) {
            // Range tombstones are kept: their effect does not change.
            let context = JobContext { range_tombstones: &RangeSet::default(), ..*context };
            let merged = match tree::merge_flushed(&tables, &context, None) {
                Err(e) if e.kind() == ErrorKind::ReadOnly => return Err(e),
                Err(_) => {
                    self.failed = true;
                    return Ok(());
                }
                Ok(merged) => merged,
            };
            let edit = VersionEdit {
                added: merged.added.into_iter().map(|meta| (0, meta)).collect(),
                removed: tables.iter().map(|t| (0, t.meta.number)).collect(),
                sketches: merged.sketches,
                ..VersionEdit::default()
            };
            tree.apply(&edit, open)?;
            let merges = self.merges.split_off(self.merges.len() - MERGED);
            self.merges.extend(edit.added.iter().map(|_| merges[0] + 1));
        }
        Ok(())
    }
}
