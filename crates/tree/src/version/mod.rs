//! Versions: what a keyspace consists of on disk. The lowest room of the tree.
//!
//! A [`Version`] lists the tables of a keyspace; it never changes, so readers and compactions share it and read it without locks.
//! A [`VersionEdit`] leads from one version to the next: the manifest logs it ([`VersionEdit::encode`]), and [`Version::apply`]
//! makes the next version. What changes in place are counters and marks of tables and guards: read charges and damage.
//!
//! ```text
//!   check  apply  edit_codec                    invariants; the next version; bytes in the manifest
//!      \    |    /
//!       edit, range_tombstones                  the difference between two versions
//!             |
//!           mod.rs (Version), level             level 0, levels of guards, and the search for a guard
//!             |
//!   live_table, fences                          one table; sorted keys
//!             |
//!   damage, sketch, obsolete_files
//! ```
//!
//! Imports no other room of the tree. What is absent: plans, policies, cursors, and the reading of blocks.

mod apply;
mod check;
mod damage;
mod edit;
mod edit_codec;
mod fences;
mod level;
mod live_table;
mod obsolete_files;
mod range_tombstones;
mod sketch;

pub use check::check_version;
pub use damage::Damage;
pub use edit::VersionEdit;
pub(crate) use level::runs;
pub use level::{Guard, Level};
pub use live_table::LiveTable;
pub(crate) use live_table::{ValueSum, key_bounds};
pub use obsolete_files::ObsoleteFiles;
pub use sketch::Sketch;

use base::{RangeSet, Result, Seq, Slice};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Bound;
use std::sync::Arc;

/// An immutable list of all tables of a keyspace. Its holder keeps the tables readable.
#[derive(Debug)]
pub struct Version {
    /// Flushed tables, newest first.
    pub level0: Vec<Arc<LiveTable>>,
    /// Levels 1 and deeper; `levels[0]` is level 1.
    pub levels: Vec<Arc<Level>>,
    /// Uncommitted guards (PebblesDB, section 3.3): keys selected as guards by their hash that are not yet guards of all their levels,
    /// with the shallowest level of each.
    pub uncommitted: Arc<BTreeMap<Slice, usize>>,
    /// All entries of the keyspace up to this sequence number are in tables.
    pub flushed_seq: Seq,
    /// The range tombstones that may still hide entries. See `range_tombstones.rs`.
    pub range_tombstones: Arc<RangeSet>,
    /// The sequence numbers of tables that share keys are in no order: readers merge all of them. So it is in the tree of a historical
    /// keyspace, where no key has two versions, except that two writes have one time.
    pub unordered: bool,
}

/// The tables of some versions, each once: keyspaces that were cloned have tables in common.
pub fn tables_of<'a>(versions: impl Iterator<Item = &'a Version>) -> Vec<&'a Arc<LiveTable>> {
    let mut seen = HashSet::new();
    let tables = versions.flat_map(|version| version.tables().map(|(_, table)| table));
    tables.filter(|table| seen.insert(table.meta.number)).collect()
}

impl Version {
    /// A version without tables.
    pub fn empty(levels: usize) -> Version {
        let level = || Arc::new(Level::new(vec![Guard::new(Slice::default(), Vec::new())]));
        Version {
            level0: Vec::new(),
            levels: (0..levels).map(|_| level()).collect(),
            uncommitted: Arc::default(),
            flushed_seq: 0,
            range_tombstones: Arc::default(),
            unordered: false,
        }
    }

    /// A version without tables, whose tables will be in no order.
    pub fn empty_unordered(levels: usize) -> Version {
        Version { unordered: true, ..Version::empty(levels) }
    }

    /// The version of one more tree with the same tables, which count as its own from now on: see [`LiveTable::share`].
    pub fn share(&self) -> Result<Version> {
        let tables: HashMap<u64, &Arc<LiveTable>> =
            self.tables().map(|(_, table)| (table.meta.number, table)).collect();
        // Not for new readers only, as those of an opening are: tombstones that hide each other stay.
        let edit = VersionEdit { oldest_reader: Some(0), ..VersionEdit::snapshot(self) };
        self.emptied().apply(&edit, &mut |meta| Ok(tables[&meta.number].share()))
    }

    /// The same, without tables.
    pub fn emptied(&self) -> Version {
        Version { unordered: self.unordered, ..Version::empty(self.last_level()) }
    }

    /// Level `n`, counted from 1.
    pub fn level(&self, n: usize) -> &Arc<Level> {
        &self.levels[n - 1]
    }

    /// The number of the last level.
    pub fn last_level(&self) -> usize {
        self.levels.len()
    }

    /// The uncommitted guards in `[from, to)`, ascending; `to` of `None` is the end of all keys.
    pub(crate) fn uncommitted_in<'a>(
        &'a self,
        from: &'a [u8],
        to: Option<&'a [u8]>,
    ) -> impl Iterator<Item = (&'a Slice, usize)> {
        let guards = self.uncommitted.range::<[u8], _>((Bound::Included(from), Bound::Unbounded));
        let inside = guards.take_while(move |(key, _)| to.is_none_or(|to| &key[..] < to));
        inside.map(|(key, &level)| (key, level))
    }

    /// All guards, with their levels and their indices there.
    pub(crate) fn guards(&self) -> impl Iterator<Item = (usize, usize, &Arc<Guard>)> {
        let levels = (1..).zip(&self.levels);
        levels.flat_map(|(n, level)| (0..).zip(&level.guards).map(move |(i, guard)| (n, i, guard)))
    }

    /// All tables, with their levels.
    pub fn tables(&self) -> impl Iterator<Item = (usize, &Arc<LiveTable>)> {
        self.stacks().flat_map(|(level, _, tables)| tables.iter().map(move |t| (level, t)))
    }

    /// All stacks of tables, with their levels: level 0, which has no key, and every guard with its key.
    pub fn stacks(&self) -> impl Iterator<Item = (usize, Option<&Slice>, &[Arc<LiveTable>])> {
        let guards = self.guards().map(|(level, _, guard)| (level, Some(&guard.key), &guard.tables[..]));
        std::iter::once((0, None, &self.level0[..])).chain(guards)
    }

    /// Bytes of all tables.
    pub fn bytes(&self) -> u64 {
        self.level0.iter().map(|t| t.meta.file_size).sum::<u64>()
            + self.levels.iter().map(|l| l.bytes()).sum::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uncommitted_guards_keep_the_shallowest_level() {
        let added = [(3, "k"), (2, "k"), (4, "k"), (1, "z")];
        let edit = VersionEdit {
            uncommitted_added: added.map(|(level, key)| (level, Slice::copy_from(key.as_bytes()))).to_vec(),
            ..VersionEdit::default()
        };
        let version = Version::empty(4).apply(&edit, &mut |_| unreachable!()).unwrap();
        assert_eq!(version.uncommitted_in(b"a", Some(b"z")).map(|(_, l)| l).collect::<Vec<_>>(), [2]);
        assert_eq!(version.uncommitted_in(b"a", None).count(), 2);
    }
}
