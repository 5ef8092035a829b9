//! A cursor over a B+-tree, through the block cache, in both directions.
//!
//! It keeps the path from the root to the current data block, so that a step to the next block reads one index node, and it holds the
//! blocks of that path. When it walks from block to block it reads ahead (`readahead.rs`). A seek to a key inside the current block
//! does not leave the block.

use crate::format::decode_error::DecodeError;
use crate::format::frame::Handle;
use crate::format::options::Wanted;
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
    /// Data blocks that have nothing of this are left out. `None`: all are wanted.
    pub(crate) wanted: Option<Box<Wanted>>,
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

/// A walk reads on through blocks that it leaves out, one after another, if they have no more bytes than this.
const NEAR: u64 = 16 << 10;

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
            wanted: None,
        }
    }

    /// Builds the path from the root to the data block that `toward` asks for. Returns where that is, unless it is left out.
    fn descend_from_root(&mut self, toward: Toward<'_>) -> Result<Option<Handle>> {
        self.ahead.restart(&self.table);
        self.block = None;
        self.path.clear();
        self.descend(PathNode::Root, toward).map(|(handle, wanted)| wanted.then_some(handle))
    }

    /// Extends the path by a node and its descendants down to the data block. Returns where that is, and whether it is wanted.
    fn descend(&mut self, mut stop: PathNode, mut toward: Toward<'_>) -> Result<(Handle, bool)> {
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
            let is_lowest = self.path.len() + 1 == levels;
            let found =
                if is_lowest { self.is_wanted(node, child) } else { node.handle(child).map(|h| (h, true)) };
            let (handle, wanted) = found.map_err(|f| self.table.fault(f, node.offset))?;
            self.path.push((stop, child));
            if is_lowest {
                return Ok((handle, wanted));
            }
            stop = PathNode::of(&self.table, handle, child)?;
        }
    }

    /// Where the data block of a child of a node of the lowest level is, and whether it is wanted.
    #[inline]
    fn is_wanted(&self, node: &Node, child: usize) -> std::result::Result<(Handle, bool), DecodeError> {
        let Some(wanted) = &self.wanted else { return node.handle(child).map(|handle| (handle, true)) };
        let (handle, times) = node.handle_and_times(child)?;
        Ok((handle, times.is_none_or(|times| wanted.times.meet(times))))
    }

    /// Makes the data block at `handle` the current one.
    fn enter(&mut self, handle: Handle) -> Result<()> {
        let (table, ahead) = (&self.table, &mut self.ahead);
        let Some(block) = table.block_for(handle, ahead)? else { return Ok(()) };
        self.at.enter(&block.bytes, &block.layout);
        self.block = Some(block);
        Ok(())
    }

    /// Moves to the first entry of the next data block that is wanted; `back`: to the last entry of the one before.
    fn walk(&mut self, back: bool) -> Result<()> {
        let before = self.place()?;
        self.block = None;
        let Some((handle, left_out)) = self.advance(back, false)? else {
            self.ahead.leave(&self.table, false);
            return Ok(());
        };
        let gap = |before: Handle| match back {
            true => before.offset.saturating_sub(handle.end()),
            false => handle.offset.saturating_sub(before.end()),
        };
        let is_near = !left_out || before.is_some_and(|before| gap(before) <= NEAR);
        self.ahead.step(&self.table, back, is_near);
        self.stand_at_end_of(handle, back)
    }

    /// Where the data block at the end of the path is, for a walk that may leave others out.
    fn place(&self) -> Result<Option<Handle>> {
        let (Some(_), Some((stop, child))) = (&self.wanted, self.path.last()) else { return Ok(None) };
        let node = stop.node(&self.table)?;
        node.handle(*child).map(Some).map_err(|f| self.table.fault(f, node.offset))
    }

    /// Moves to the first entry of the first data block that is wanted after the one that a seek has led to, which is left out; `back`: to
    /// the last entry of the one before.
    fn pass(&mut self, back: bool) -> Result<()> {
        match self.advance(back, true)? {
            Some((handle, _)) => self.stand_at_end_of(handle, back),
            None => {
                // A seek that was put off before is over.
                self.ahead.nonblocking.wanted = None;
                Ok(())
            }
        }
    }

    /// Moves the path to the next data block that is wanted; `back`: to the one before. `left_out`: the block where the path ends is not.
    /// Returns where the block is, and whether others were left out; `None` if the bounds of the walk, or the table, end before.
    fn advance(&mut self, back: bool, mut left_out: bool) -> Result<Option<(Handle, bool)>> {
        let mut before = None;
        loop {
            if left_out && self.is_at_bound(back)? {
                return Ok(None);
            }
            let Some((stop, neighbour)) = self.climb(back)? else { return Ok(None) };
            let (handle, wanted) = self.descend(stop, Toward::Child(neighbour, back))?;
            if wanted {
                return Ok(Some((handle, left_out)));
            }
            // In an index with loops this would go on for ever.
            let is_next = |before| if back { handle.offset < before } else { before < handle.offset };
            if !before.is_none_or(is_next) {
                return Err(self
                    .table
                    .fault(DecodeError::Corrupt("data blocks are out of order"), handle.offset));
            }
            (before, left_out) = (Some(handle.offset), true);
        }
    }

    /// Shortens the path up to a node that has a child after that of the path; `back`: before it. Returns both.
    fn climb(&mut self, back: bool) -> Result<Option<(PathNode, usize)>> {
        while let Some((stop, child)) = self.path.pop() {
            let neighbour = if back { child.checked_sub(1) } else { Some(child + 1) };
            let count = stop.node(&self.table)?.layout.count();
            if let Some(neighbour) = neighbour.filter(|n| *n < count) {
                return Ok(Some((stop, neighbour)));
            }
        }
        Ok(None)
    }

    /// Whether nothing after the data block where the path ends lies in the bounds of the walk; `back`: nothing before it.
    fn is_at_bound(&self, back: bool) -> Result<bool> {
        let (Some(wanted), Some((stop, child))) = (&self.wanted, self.path.last()) else { return Ok(false) };
        let node = stop.node(&self.table)?;
        let child_of = |key| {
            let child = node.layout.child(&node.bytes, key, Trailer::seek(MAX_SEQ));
            child.map_err(|f| self.table.fault(f, node.offset))
        };
        // A bound in the last child, or the first, may lie outside of the node.
        Ok(match (back, &wanted.to) {
            (true, _) => *child > 0 && *child <= child_of(&wanted.from)?,
            (false, Some(to)) => *child + 1 < node.layout.count() && *child >= child_of(to)?,
            (false, None) => false,
        })
    }

    /// Makes the data block at `handle` the current one and stands on its first entry; `back`: on its last one.
    fn stand_at_end_of(&mut self, handle: Handle, back: bool) -> Result<()> {
        self.enter(handle)?;
        if back { self.stand_on_last() } else { self.stand(0) }
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
        self.moving(|c| match c.descend_from_root(Toward::First)? {
            Some(handle) => c.stand_at_end_of(handle, false),
            None => c.pass(false),
        })
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.moving(|c| match c.descend_from_root(Toward::Last)? {
            Some(handle) => c.stand_at_end_of(handle, true),
            None => c.pass(true),
        })
    }

    fn seek(&mut self, key: &[u8], seq: Seq) -> Result<()> {
        self.moving(|c| {
            let trailer = Trailer::seek(seq);
            if let Some(i) = c.inside(key, trailer)? {
                return c.stand(i);
            }
            let Some(handle) = c.descend_from_root(Toward::Entry(key, trailer))? else {
                return c.pass(false);
            };
            c.enter(handle)?;
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
            let Some(handle) = c.descend_from_root(Toward::Entry(key, trailer))? else { return c.pass(true) };
            c.enter(handle)?;
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
