//! A keyspace during replay.

use super::recovered_tables::Recovered;
use crate::types::KeyspaceOptions;
use memtable::Memtable;
use std::collections::BTreeMap;
use std::sync::Arc;
use tree::Tree;

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
    pub(crate) fn reset(&mut self, empty_memtable: &Arc<Memtable>) {
        self.tree = Tree::new(self.tree.options().clone(), self.found.clone());
        self.memtable = empty_memtable.clone();
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
