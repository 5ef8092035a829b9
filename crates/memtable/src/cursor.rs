use crate::Memtable;
use crate::node::NodeId;
use crate::order::Target;
use base::{Cursor, Result, Seq, Slice, Trailer};
use std::fmt;
use std::sync::Arc;

/// A cursor over a [`Memtable`], which it keeps alive. It sees entries that are inserted while it moves, and never
/// fails. A step forward follows a link; a step back is a search.
pub struct MemtableCursor {
    table: Arc<Memtable>,
    node: Option<NodeId>,
}

impl MemtableCursor {
    pub(crate) fn new(table: Arc<Memtable>) -> MemtableCursor {
        MemtableCursor { table, node: None }
    }

    #[inline]
    fn current(&self) -> NodeId {
        self.node.expect("the cursor must be valid")
    }

    #[inline]
    fn stand_on(&mut self, node: Option<NodeId>) -> Result<()> {
        self.node = node;
        // Have the next node at hand when the caller is done with this one.
        if let Some(next) = node.and_then(|node| self.table.list().next(node)) {
            self.table.list().nodes().prefetch(next);
        }
        Ok(())
    }
}

impl Cursor for MemtableCursor {
    fn seek_to_first(&mut self) -> Result<()> {
        self.stand_on(self.table.list().first())
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.stand_on(self.table.list().last())
    }

    fn seek(&mut self, key: &[u8], seq: Seq) -> Result<()> {
        self.stand_on(self.table.list().find(Target { key, trailer: Trailer::seek(seq) }))
    }

    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        self.stand_on(self.table.list().find_before(Target { key, trailer: Trailer(u64::MAX) }))
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        self.stand_on(self.table.list().next(self.current()))
    }

    fn prev(&mut self) -> Result<()> {
        let current = Target { key: self.key(), trailer: self.trailer() };
        let before = self.table.list().find_before(current);
        self.stand_on(before)
    }

    #[inline]
    fn valid(&self) -> bool {
        self.node.is_some()
    }

    #[inline]
    fn key(&self) -> &[u8] {
        self.table.list().nodes().key(self.current())
    }

    #[inline]
    fn trailer(&self) -> Trailer {
        self.table.list().nodes().trailer(self.current())
    }

    #[inline]
    fn value(&self) -> &[u8] {
        self.table.list().nodes().value(self.current())
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
