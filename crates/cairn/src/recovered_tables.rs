//! The tables that an opening writes of the log: few, however small the memory is.
//!
//! Memtables are small where the memory budget is, and each becomes a table of level 0. Sixteen tables that follow each other, and were written or merged
//! equally often, are merged into one, before the next is written: so an opening leaves at most fifteen of each size, and writes each
//! entry once for every sixteenfold. No manifest names any of them yet, so those that were merged go at once.

use base::{ErrorKind, RangeSet, Result};
use std::sync::Arc;
use tree::{Context, TableFile, Tree, VersionEdit};

/// So many tables become one.
const MERGED: usize = 16;

/// How often each of the tables of an opening was merged, oldest first: they are the newest of their tree's level 0.
#[derive(Default)]
pub(crate) struct Recovered {
    merges: Vec<u32>,
    /// Merging has failed: it is left at that. There is room on the disk for the tables alone, perhaps.
    failed: bool,
}

impl Recovered {
    /// Notes a table that was written of a memtable.
    pub(crate) fn add(&mut self) {
        self.merges.push(0);
    }

    /// The tables that are to be merged next.
    fn due(&self, tree: &Tree) -> Option<Vec<Arc<TableFile>>> {
        let (_, last) = self.merges.split_at_checked(self.merges.len().checked_sub(MERGED)?)?;
        let due = !self.failed && last.iter().all(|merges| merges == &last[0]);
        due.then(|| tree.version().level0[..MERGED].to_vec())
    }

    /// Merges what is due. An error is that of a sync, after which nothing may be written; what else fails leaves the tables as they are.
    pub(crate) fn merge(
        &mut self,
        tree: &mut Tree,
        context: &Context<'_>,
        open: &mut dyn FnMut(&table::TableMeta) -> Result<Arc<TableFile>>,
    ) -> Result<()> {
        while let Some(tables) = self.due(tree) {
            // Range tombstones hide what they hid before.
            let context = Context { ranges: &RangeSet::default(), ..*context };
            let merged = match tree::merge_flushed(&tables, tree.rule(), &context) {
                Err(e) if e.kind() == ErrorKind::ReadOnly => return Err(e),
                Err(_) => {
                    self.failed = true;
                    return Ok(());
                }
                Ok(merged) => merged,
            };
            let edit = VersionEdit {
                added: merged.table.into_iter().map(|meta| (0, meta)).collect(),
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
