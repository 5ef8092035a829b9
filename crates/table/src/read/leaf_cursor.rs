//! A cursor over a B+-tree, through the block cache, in both directions.
//!
//! It keeps the path from the root to the current data block, so that a step to the next block reads one index node, and it holds the
//! blocks of that path. When it walks from block to block it reads ahead (`readahead.rs`). A seek to a key inside the current block
//! does not leave the block.

use crate::format::decode_error::DecodeError;
use crate::format::frame::Handle;
use crate::format::options::TimesWanted;
use crate::read::block::{Node, Payload};
use crate::read::entry_cursor::EntryCursor;
use crate::read::readahead::Readahead;
use crate::read::table::Table;
use base::{Cursor, MAX_SEQ, Result, Seq, Slice, Trailer};
use std::sync::Arc;

/// Walks a B+-tree entry by entry. See [`base::Cursor`].
pub(crate) struct LeafCursor {
    table: Arc<Table>,
    /// Index nodes from the root down, with the number of the child that the path takes in each.
    path: Vec<(PathNode, usize)>,
    /// The data block at the end of the path, if it was read.
    block: Option<Node<Payload>>,
    at: EntryCursor,
    ahead: Readahead,
    /// Data blocks with other times are left out.
    pub(crate) wanted: TimesWanted,
}

/// An index node on the path. Nodes that stay with the table are referred to by number: cloning one would change a reference count
/// that all threads share.
enum PathNode {
    Root,
    /// The number of a pinned node.
    PinnedIndex(usize),
    Own(Box<Node>),
}

impl PathNode {
    fn of(table: &Table, handle: Handle, child: usize) -> Result<PathNode> {
        match table.resident().and_then(|resident| resident.place(handle, child)) {
            Some(place) => Ok(PathNode::PinnedIndex(place)),
            None => table.node(handle).map(Box::new).map(PathNode::Own),
        }
    }

    #[inline]
    fn node<'a>(&'a self, table: &'a Table) -> Result<&'a Node> {
        match self {
            PathNode::Root => table.tree_root(),
            PathNode::Own(node) => Ok(node),
            // Cannot fail: pinned nodes live as long as the table.
            PathNode::PinnedIndex(place) => (table.resident().and_then(|resident| resident.node_at(*place)))
                .ok_or_else(|| table.fault(DecodeError::Corrupt("an index node is gone"), 0)),
        }
    }
}

/// Which child to take on the way down.
#[derive(Clone, Copy)]
enum Toward<'a> {
    First,
    Last,
    Entry(&'a [u8], Trailer),
    /// This child of the first node, and from there on the first one; with `true`, the last one.
    Child(usize, bool),
}

impl LeafCursor {
    pub(crate) fn new(table: Arc<Table>) -> Self {
        LeafCursor {
            table,
            path: Vec::new(),
            block: None,
            at: EntryCursor::new(),
            ahead: Readahead::default(),
            wanted: TimesWanted::default(),
        }
    }

    /// Builds the path from the root to the data block that `toward` asks for. Returns false if that is left out.
    fn descend_from_root(&mut self, toward: Toward<'_>) -> Result<bool> {
        self.ahead.restart(&self.table);
        self.block = None;
        self.path.clear();
        self.descend(PathNode::Root, toward)
    }

    /// Extends the path by a node and its descendants down to the data block. Returns false if that is left out.
    fn descend(&mut self, mut stop: PathNode, mut toward: Toward<'_>) -> Result<bool> {
        let levels = usize::from(self.table.root()?.footer.levels);
        loop {
            let node = stop.node(&self.table)?;
            let child = match toward {
                Toward::First => Ok(0),
                Toward::Last => Ok(node.layout.count() - 1),
                Toward::Entry(key, trailer) => node.layout.child(&node.bytes, key, trailer),
                Toward::Child(child, back) => {
                    toward = if back { Toward::Last } else { Toward::First };
                    Ok(child)
                }
            };
            let child = child.map_err(|f| self.table.fault(f, node.offset))?;
            let found = node.handle_and_times(child).map_err(|f| self.table.fault(f, node.offset));
            let (handle, times) = found?;
            self.path.push((stop, child));
            if self.path.len() == levels {
                if !self.wanted.is_all() && times.is_some_and(|times| !self.wanted.meet(times)) {
                    return Ok(false);
                }
                return self.enter(handle).map(|()| true);
            }
            stop = PathNode::of(&self.table, handle, child)?;
        }
    }

    /// Makes the data block at `handle` the current one.
    fn enter(&mut self, handle: Handle) -> Result<()> {
        let (table, ahead) = (&self.table, &mut self.ahead);
        let Some(block) = table.block_for(handle, ahead)? else { return Ok(()) };
        self.at.enter(&block.bytes, &block.layout);
        self.block = Some(block);
        Ok(())
    }

    /// Moves to the first entry of the next data block; `back`: to the last entry of the one before.
    fn walk(&mut self, back: bool) -> Result<()> {
        self.ahead.step(&self.table, back);
        self.walk_on(back)
    }

    /// Moves to the first entry of the next data block that is not left out; `back`: to the last entry of the one before.
    fn walk_on(&mut self, back: bool) -> Result<()> {
        self.block = None;
        while let Some((stop, child)) = self.path.pop() {
            let neighbour = if back { child.checked_sub(1) } else { Some(child + 1) };
            let count = stop.node(&self.table)?.layout.count();
            if let Some(neighbour) = neighbour.filter(|n| *n < count) {
                if !self.descend(stop, Toward::Child(neighbour, back))? {
                    // What follows is not read in one piece.
                    self.ahead.interrupt();
                    continue;
                }
                return if back { self.stand_on_last() } else { self.stand(0) };
            }
        }
        // A seek that was put off before is over.
        self.ahead.nonblocking.wanted = None;
        Ok(())
    }

    fn stand_on_last(&mut self) -> Result<()> {
        let count = self.block.as_ref().map_or(1, |b| b.layout.count());
        self.stand(count - 1)
    }

    /// Stands on entry `i` of the current block.
    #[inline]
    fn stand(&mut self, i: usize) -> Result<()> {
        if let Some(block) = &self.block {
            self.at.move_to(&block.bytes, &block.layout, i).map_err(|f| self.table.fault(f, block.offset))?;
        }
        Ok(())
    }

    /// Runs a move, which makes the cursor valid or not, and keeps its error.
    fn moving(&mut self, run: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        self.at.leave();
        let moved = run(self);
        self.at.settle(moved)
    }

    /// The first entry of the current block at or after a target, if the target lies between two entries of this block: then it is the
    /// first of the table, too.
    fn inside(&self, key: &[u8], trailer: Trailer) -> Result<Option<usize>> {
        let (i, count) = self.search(key, trailer)?;
        Ok((i > 0 && i < count).then_some(i))
    }

    /// The number of the first entry of the current block at or after a target, or the count if there is none; and the count.
    fn search(&self, key: &[u8], trailer: Trailer) -> Result<(usize, usize)> {
        let Some(block) = &self.block else { return Ok((0, 0)) };
        let i = block.layout.lower_bound(&block.bytes, key, trailer);
        Ok((i.map_err(|f| self.table.fault(f, block.offset))?, block.layout.count()))
    }
}

impl Drop for LeafCursor {
    fn drop(&mut self) {
        self.ahead.leave(&self.table, false);
    }
}

impl Cursor for LeafCursor {
    fn seek_to_first(&mut self) -> Result<()> {
        self.moving(|c| {
            if !c.descend_from_root(Toward::First)? {
                return c.walk_on(false);
            }
            c.stand(0)
        })
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.moving(|c| {
            if !c.descend_from_root(Toward::Last)? {
                return c.walk_on(true);
            }
            c.stand_on_last()
        })
    }

    fn seek(&mut self, key: &[u8], seq: Seq) -> Result<()> {
        self.moving(|c| {
            let trailer = Trailer::seek(seq);
            if let Some(i) = c.inside(key, trailer)? {
                return c.stand(i);
            }
            if !c.descend_from_root(Toward::Entry(key, trailer))? {
                return c.walk_on(false);
            }
            let (i, count) = c.search(key, trailer)?;
            if c.block.is_none() {
                return Ok(());
            }
            if i < count { c.stand(i) } else { c.walk(false) }
        })
    }

    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        self.moving(|c| {
            let trailer = Trailer::seek(MAX_SEQ);
            if let Some(i) = c.inside(key, trailer)? {
                return c.stand(i - 1);
            }
            if !c.descend_from_root(Toward::Entry(key, trailer))? {
                return c.walk_on(true);
            }
            let (i, _) = c.search(key, trailer)?;
            if c.block.is_none() {
                return Ok(());
            }
            if i > 0 { c.stand(i - 1) } else { c.walk(true) }
        })
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        if !self.at.valid() {
            return self.at.nowhere();
        }
        let next = self.at.index() + 1;
        if let Some(block) = &self.block
            && next < block.layout.count()
            && self.at.move_to(&block.bytes, &block.layout, next).is_ok()
        {
            return Ok(());
        }
        let inside = self.block.as_ref().is_some_and(|b| next < b.layout.count());
        self.moving(|c| if inside { c.stand(next) } else { c.walk(false) })
    }

    #[inline]
    fn prev(&mut self) -> Result<()> {
        if !self.at.valid() {
            return self.at.nowhere();
        }
        let i = self.at.index();
        if let Some(block) = &self.block
            && i > 0
            && self.at.move_to(&block.bytes, &block.layout, i - 1).is_ok()
        {
            return Ok(());
        }
        self.moving(|c| if i > 0 { c.stand(i - 1) } else { c.walk(true) })
    }

    #[inline]
    fn set_nonblocking(&mut self, on: bool) {
        self.ahead.nonblocking.on = on;
    }

    #[inline]
    fn would_block(&self) -> bool {
        self.ahead.nonblocking.wanted.is_some()
    }

    #[inline]
    fn valid(&self) -> bool {
        self.at.valid()
    }

    #[inline]
    fn key(&self) -> &[u8] {
        self.at.key()
    }

    #[inline]
    fn trailer(&self) -> Trailer {
        self.at.trailer()
    }

    #[inline]
    fn value(&self) -> &[u8] {
        self.block.as_ref().map_or(&[], |block| self.at.value(&block.bytes))
    }

    fn value_slice(&self) -> Slice {
        self.block
            .as_ref()
            .map_or_else(Slice::default, |block| block.bytes.slice_of(self.at.value(&block.bytes)))
    }
}
