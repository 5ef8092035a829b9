//! The cursor over a memtable. It works on a snapshot of one leaf at a time, which concurrent inserts do not change.

use crate::Memtable;
use crate::key_order::Target;
use crate::list::Snapshot;
use crate::node::{EntryId, NodeId};
use base::{Cursor, Result, Seq, Trailer};
use std::sync::Arc;

/// How many entries ahead of the cursor to prefetch.
const PREFETCH: usize = 4;

/// Number of steps after a seek before the whole leaf is sorted.
const SINGLE_STEPS: usize = if cfg!(loom) { 1 } else { 2 };

/// A cursor over a [`Memtable`]. Keeps the memtable alive. Its moves never fail.
///
/// It sees all entries that existed when it was positioned, and may see entries inserted later. Steps in both
/// directions are O(1), except for one search per leaf when moving back. In a memtable in the order of hashes it comes to one list after the other, also to
/// those without entries, and seeks in that of the key: all versions of a key are next to each other, the newest first.
pub struct MemtableCursor {
    table: Arc<Memtable>,
    /// The list of the leaf.
    list: usize,
    /// Entries of the current leaf. After a seek only the first ones may be sorted.
    leaf: Snapshot,
    /// Index of the current entry in the leaf; out of range if the cursor is invalid.
    index: usize,
}

impl MemtableCursor {
    pub(crate) fn new(table: Arc<Memtable>) -> MemtableCursor {
        MemtableCursor { table, list: 0, leaf: Snapshot::empty(), index: 0 }
    }

    /// The memtable.
    pub fn memtable(&self) -> &Arc<Memtable> {
        &self.table
    }

    #[inline]
    fn entry(&self) -> Option<EntryId> {
        Some(self.leaf.slots().get(self.index)?.entry())
    }

    #[inline]
    fn current(&self) -> EntryId {
        self.entry().expect("the cursor must be valid")
    }

    /// Moves to an entry of the leaf, or to the first entry behind it if the index is past the end.
    #[inline]
    fn stand(&mut self, index: usize) {
        self.index = index;
        // Leaves other than the first of a list are never empty.
        while self.index >= self.leaf.slots().len() {
            if let Some(next) = self.leaf.next() {
                self.enter(next);
            } else if self.list + 1 < self.table.list.lists() {
                self.enter_list(self.list + 1);
            } else {
                break;
            }
        }
        let many = if self.leaf.ordered() == self.leaf.slots().len() { PREFETCH } else { 1 };
        let ahead = self.leaf.slots().iter().skip(self.index).take(many);
        ahead.for_each(|slot| self.table.list.nodes.prefetch(slot.entry()));
    }

    /// Moves to the first leaf of a list, if it has one.
    fn enter_list(&mut self, list: usize) {
        self.list = list;
        match self.table.list.root(list) {
            Some(root) => self.enter(root.head),
            None => self.leave(),
        }
    }

    /// Moves behind the entries of the last leaf of a list, if it has one.
    fn enter_end(&mut self, list: usize) {
        self.list = list;
        let Some(root) = self.table.list.root(list) else { return self.leave() };
        self.enter(self.table.list.last_node(root));
        while let Some(next) = self.leaf.next() {
            self.enter(next);
        }
        self.index = self.leaf.slots().len();
    }

    /// Moves out of all leaves.
    fn leave(&mut self) {
        self.leaf.clear();
        self.index = 0;
    }

    /// Moves to the first entry of a leaf.
    fn enter(&mut self, node: NodeId) {
        self.table.list.snapshot(node, &mut self.leaf);
        self.index = 0;
    }

    /// Puts the entry at `index` in place. Sorts only this entry during the first few steps after a seek, since most
    /// scans end there.
    fn order(&mut self) {
        if self.index <= SINGLE_STEPS {
            return self.table.list.place_next(&mut self.leaf);
        }
        self.table.list.sort(&mut self.leaf);
        let ahead = self.leaf.slots().iter().skip(self.index).take(PREFETCH);
        ahead.for_each(|slot| self.table.list.nodes.prefetch(slot.entry()));
    }

    /// Moves to the last entry before a place in this list.
    fn seek_behind(&mut self, target: Target<'_>) {
        let index = match self.table.list.start(target.key) {
            Some(start) => self.table.list.snapshot_at(start, target, &mut self.leaf),
            None => {
                self.leave();
                0
            }
        };
        self.stand_before(index);
    }

    /// Moves to the entry before `index`, of an earlier list if there is none in this one, or makes the cursor invalid.
    fn stand_before(&mut self, mut index: usize) {
        while index == 0 && self.list > 0 {
            self.enter_end(self.list - 1);
            index = self.index;
        }
        self.index = index.wrapping_sub(1);
    }
}

impl Cursor for MemtableCursor {
    fn seek_to_first(&mut self) -> Result<()> {
        self.enter_list(0);
        self.stand(0);
        Ok(())
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.enter_end(self.table.list.lists() - 1);
        self.stand_before(self.index);
        Ok(())
    }

    fn seek(&mut self, key: &[u8], seq: Seq) -> Result<()> {
        let target = Target { key, trailer: Trailer::seek(seq) };
        self.list = self.table.list.list_of(key).0;
        match self.table.list.start(key) {
            Some(start) => self.table.list.snapshot_from(start, target, &mut self.leaf),
            None => self.leave(),
        }
        self.stand(0);
        Ok(())
    }

    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        self.list = self.table.list.list_of(key).0;
        self.seek_behind(Target { key, trailer: Trailer(u64::MAX) });
        Ok(())
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        debug_assert!(self.valid(), "the cursor must be valid");
        self.index = self.index.saturating_add(1);
        if self.index >= self.leaf.ordered() && self.index < self.leaf.slots().len() {
            self.order();
        }
        if let Some(slot) = self.leaf.slots().get(self.index.saturating_add(PREFETCH)) {
            self.table.list.nodes.prefetch(slot.entry());
        }
        if self.index >= self.leaf.slots().len() {
            self.stand(self.index);
        }
        Ok(())
    }

    #[inline]
    fn prev(&mut self) -> Result<()> {
        if self.index > 0 {
            self.index -= 1;
            return Ok(());
        }
        let table = self.table.clone();
        self.seek_behind(table.list.nodes.place(self.current()));
        Ok(())
    }

    #[inline]
    fn valid(&self) -> bool {
        self.entry().is_some()
    }

    #[inline]
    fn key(&self) -> &[u8] {
        self.table.list.nodes.key(self.current())
    }

    #[inline]
    fn trailer(&self) -> Trailer {
        self.table.list.nodes.trailer(self.current())
    }

    #[inline]
    fn value(&self) -> &[u8] {
        self.table.list.nodes.value(self.current())
    }
}
