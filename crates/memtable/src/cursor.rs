use crate::Memtable;
use crate::list::{SkipList, Snapshot};
use crate::node::EntryId;
use crate::order::Target;
use base::{Cursor, Result, Seq, Slice, Trailer};
use std::fmt;
use std::sync::Arc;

/// How many entries ahead of the cursor are brought into the cache.
const PREFETCH: usize = 4;

/// A cursor over a [`Memtable`], which it keeps alive. It never fails.
///
/// It sees all entries that were there when it was positioned, and perhaps some of those that were inserted
/// since. Steps in both directions are O(1), but for a search once per leaf when going back.
pub struct MemtableCursor {
    table: Arc<Memtable>,
    /// The leaf that the cursor stands in; none before the first seek.
    leaf: Option<Snapshot>,
    /// The number of the current entry in it, or what is past either end when the cursor is invalid.
    index: usize,
}

impl MemtableCursor {
    pub(crate) fn new(table: Arc<Memtable>) -> MemtableCursor {
        MemtableCursor { table, leaf: None, index: 0 }
    }

    #[inline]
    fn list(&self) -> &SkipList {
        self.table.list()
    }

    #[inline]
    fn entry(&self) -> Option<EntryId> {
        Some(self.leaf.as_ref()?.slots().get(self.index)?.entry())
    }

    #[inline]
    fn current(&self) -> EntryId {
        self.entry().expect("the cursor must be valid")
    }

    /// Stands on an entry of the leaf, or on the first one after it where there is none.
    fn stand(&mut self, leaf: Snapshot, index: usize) {
        // Leaves after the first are not empty.
        match leaf.next {
            Some(next) if index >= leaf.slots().len() => self.stand_in(self.list().snapshot(next), 0),
            _ => self.stand_in(leaf, index),
        }
    }

    fn stand_in(&mut self, leaf: Snapshot, index: usize) {
        let ahead = leaf.slots().iter().skip(index).take(PREFETCH);
        ahead.for_each(|slot| self.list().nodes.prefetch(slot.entry()));
        (self.leaf, self.index) = (Some(leaf), index);
    }

    /// The place of the last entry before `target`, if there is any.
    fn place_before(&self, target: Target<'_>) -> Option<(Snapshot, usize)> {
        let mut leaf = self.list().snapshot(self.list().node_before(target));
        loop {
            let before = self.list().count_before(&leaf, target);
            match leaf.next {
                // The leaf was split after the search.
                Some(next) if before == leaf.slots().len() && self.list().starts_before(next, target) => {
                    leaf = self.list().snapshot(next);
                }
                _ => return before.checked_sub(1).map(|index| (leaf, index)),
            }
        }
    }

    /// Stands on an entry, or nowhere.
    fn stand_at(&mut self, place: Option<(Snapshot, usize)>) {
        match place {
            Some((leaf, index)) => self.stand_in(leaf, index),
            None => self.leaf = None,
        }
    }
}

impl Cursor for MemtableCursor {
    fn seek_to_first(&mut self) -> Result<()> {
        self.stand(self.list().snapshot(self.list().head), 0);
        Ok(())
    }

    fn seek_to_last(&mut self) -> Result<()> {
        let mut leaf = self.list().snapshot(self.list().last_node());
        while let Some(next) = leaf.next {
            leaf = self.list().snapshot(next);
        }
        let last = leaf.slots().len().checked_sub(1);
        self.stand_at(last.map(|index| (leaf, index)));
        Ok(())
    }

    fn seek(&mut self, key: &[u8], seq: Seq) -> Result<()> {
        let target = Target { key, trailer: Trailer::seek(seq) };
        let mut leaf = self.list().snapshot(self.list().node_before(target));
        while let Some(next) = leaf.next.filter(|&next| self.list().starts_before(next, target)) {
            leaf = self.list().snapshot(next);
        }
        let index = self.list().count_before(&leaf, target);
        self.stand(leaf, index);
        Ok(())
    }

    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        self.stand_at(self.place_before(Target { key, trailer: Trailer(u64::MAX) }));
        Ok(())
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        let leaf = self.leaf.as_ref().expect("the cursor must be valid");
        self.index += 1;
        if let Some(slot) = leaf.slots().get(self.index + PREFETCH) {
            self.list().nodes.prefetch(slot.entry());
        }
        if self.index >= leaf.slots().len()
            && let Some(next) = leaf.next
        {
            self.stand_in(self.list().snapshot(next), 0);
        }
        Ok(())
    }

    #[inline]
    fn prev(&mut self) -> Result<()> {
        if self.index > 0 {
            self.index -= 1;
        } else {
            self.stand_at(self.place_before(self.list().nodes.place(self.current())));
        }
        Ok(())
    }

    #[inline]
    fn valid(&self) -> bool {
        self.entry().is_some()
    }

    #[inline]
    fn key(&self) -> &[u8] {
        self.list().nodes.key(self.current())
    }

    #[inline]
    fn trailer(&self) -> Trailer {
        self.list().nodes.trailer(self.current())
    }

    #[inline]
    fn value(&self) -> &[u8] {
        self.list().nodes.value(self.current())
    }

    fn value_slice(&self) -> Slice {
        Slice::copy_from(self.value())
    }
}

impl fmt::Debug for MemtableCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut cursor = f.debug_struct("MemtableCursor");
        if self.valid() {
            cursor.field("key", &Slice::copy_from(self.key())).field("seq", &self.trailer().seq());
        }
        cursor.finish_non_exhaustive()
    }
}
