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
/// directions are O(1), except for one search per leaf when moving back.
pub struct MemtableCursor {
    table: Arc<Memtable>,
    /// Entries of the current leaf. After a seek only the first ones may be sorted.
    leaf: Snapshot,
    /// Index of the current entry in the leaf; out of range if the cursor is invalid.
    index: usize,
}

impl MemtableCursor {
    pub(crate) fn new(table: Arc<Memtable>) -> MemtableCursor {
        MemtableCursor { table, leaf: Snapshot::empty(), index: 0 }
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

    /// Moves to an entry of the leaf, or to the first entry of the next leaf if the index is past the end.
    #[inline]
    fn stand(&mut self, index: usize) {
        self.index = index;
        // Leaves other than the first are never empty.
        if index >= self.leaf.slots().len()
            && let Some(next) = self.leaf.next()
        {
            self.enter(next);
        }
        let many = if self.leaf.ordered() == self.leaf.slots().len() { PREFETCH } else { 1 };
        let ahead = self.leaf.slots().iter().skip(self.index).take(many);
        ahead.for_each(|slot| self.table.list.nodes.prefetch(slot.entry()));
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

    /// Moves to the entry before `index`, or makes the cursor invalid.
    fn stand_before(&mut self, index: usize) {
        self.index = index.wrapping_sub(1);
    }
}

impl Cursor for MemtableCursor {
    fn seek_to_first(&mut self) -> Result<()> {
        self.enter(self.table.list.head);
        self.stand(0);
        Ok(())
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.enter(self.table.list.last_node());
        while let Some(next) = self.leaf.next() {
            self.enter(next);
        }
        self.stand_before(self.leaf.slots().len());
        Ok(())
    }

    fn seek(&mut self, key: &[u8], seq: Seq) -> Result<()> {
        let target = Target { key, trailer: Trailer::seek(seq) };
        self.table.list.snapshot_from(target, &mut self.leaf);
        self.stand(0);
        Ok(())
    }

    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        let target = Target { key, trailer: Trailer(u64::MAX) };
        let index = self.table.list.snapshot_at(target, &mut self.leaf);
        self.stand_before(index);
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
        let place = self.table.list.nodes.place(self.current());
        let index = self.table.list.snapshot_at(place, &mut self.leaf);
        self.stand_before(index);
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
