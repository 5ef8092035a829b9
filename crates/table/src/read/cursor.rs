//! A cursor over a table, through the block cache, in both directions.
//!
//! It keeps the path from the root to the current data block, so that stepping to the next block looks at one index
//! node, and holds on to the blocks of that path while it stands there. One that walks on to the next block, forward or back,
//! reads several at once where they are not cached. A seek to a place in the current block stays there.

use crate::cache::buffer_pool::Buffer;
use crate::cache::table_cache;
use crate::format::decode_error::DecodeError;
use crate::format::frame::{self, Handle, Kind};
use crate::read::block::{Block, Payload};
use crate::read::entry_cursor::EntryCursor;
use crate::read::nonblocking_read::{Nonblocking, PendingRead, Reading};
use crate::read::table::{Node, Table};
use base::{Cursor, Error, MAX_SEQ, Result, Seq, Slice, Trailer};
use std::sync::Arc;

/// Walks a table entry by entry. See [`base::Cursor`].
pub struct TableCursor {
    table: Arc<Table>,
    /// Index nodes from the root down, and which child the path takes in each.
    path: Vec<(Stop, usize)>,
    /// The block that the path leads to; `None` while it leads nowhere.
    block: Option<Block>,
    at: EntryCursor,
    ahead: Readahead,
    valid: bool,
    error: Option<Error>,
}

impl Table {
    /// A cursor through the block cache, for reads. Does no I/O yet.
    pub fn cursor(self: &Arc<Self>) -> TableCursor {
        TableCursor::new(Arc::clone(self))
    }
}

/// An index node on the path. Those that stay with the table are named and not held: to hold one would count its users up and down,
/// in memory that all threads share.
enum Stop {
    Root,
    /// Its number among the nodes that stay.
    PinnedIndex(usize),
    Own(Box<Node>),
}

impl Stop {
    fn of(table: &Table, handle: Handle, child: usize) -> Result<Stop> {
        match table.resident().and_then(|resident| resident.place(handle, child)) {
            Some(place) => Ok(Stop::PinnedIndex(place)),
            None => table.node(handle, Kind::Index).map(Box::new).map(Stop::Own),
        }
    }

    #[inline]
    fn node<'a>(&'a self, table: &'a Table) -> Result<&'a Node> {
        match self {
            Stop::Root => Ok(&table.root()?.node),
            Stop::Own(node) => Ok(node),
            // What stays stays as long as the table: the error is for nobody.
            Stop::PinnedIndex(place) => (table.resident().and_then(|resident| resident.node_at(*place)))
                .ok_or_else(|| table.fault(DecodeError::Corrupt("an index node is gone"), 0)),
        }
    }
}

/// What was read of the file beyond the current block. It is put into the cache block by block, when the cursor gets there.
#[derive(Default)]
pub(crate) struct Readahead {
    bytes: Buffer,
    offset: u64,
    /// Whether the cursor has come to its block from the one beside it.
    walks: bool,
    /// Whether it had to read the block that it sought, and has not gone on to another one since.
    sought: bool,
    /// How much it reads the next time; 0 before the first.
    next: u64,
    /// Whether that was the one before.
    back: bool,
    /// Whether the cache is to have every block that is read, the first time already.
    pub(crate) keeps: bool,
    pub(crate) hurry: Nonblocking,
}

/// Bounds of how much a cursor reads at a time that has taken a step to a neighbouring block.
const MIN_AHEAD: u64 = 8 << 10;
const MAX_AHEAD: u64 = 128 << 10;

/// Most that a seek reads with its block.
const MAX_ON: u64 = 16 << 10;

/// Which child to take on the way down.
#[derive(Clone, Copy)]
enum Toward<'a> {
    First,
    Last,
    Entry(&'a [u8], Trailer),
}

impl TableCursor {
    pub(crate) fn new(table: Arc<Table>) -> Self {
        TableCursor {
            table,
            path: Vec::new(),
            block: None,
            at: EntryCursor::new(),
            ahead: Readahead::default(),
            valid: false,
            error: None,
        }
    }

    /// The same, which has the cache let in every block that it reads: for tables that every seek looks into. `false` changes nothing.
    pub fn fill_cache(mut self, keeps: bool) -> Self {
        self.ahead.keeps = keeps;
        self
    }

    /// Builds the path from the root to the data block that `toward` asks for.
    fn descend_from_root(&mut self, toward: Toward<'_>) -> Result<()> {
        self.ahead.restart(&self.table);
        self.block = None;
        self.path.clear();
        self.descend(Stop::Root, toward)
    }

    /// Extends the path by a node and its descendants down to the data block.
    fn descend(&mut self, mut stop: Stop, toward: Toward<'_>) -> Result<()> {
        let levels = usize::from(self.table.root()?.footer.levels);
        loop {
            let node = stop.node(&self.table)?;
            let child = match toward {
                Toward::First => Ok(0),
                Toward::Last => Ok(node.layout.count() - 1),
                Toward::Entry(key, trailer) => node.layout.child(&node.bytes, key, trailer),
            };
            let child = child.map_err(|f| self.table.fault(f, node.offset))?;
            let handle = node.handle(child).map_err(|f| self.table.fault(f, node.offset))?;
            self.path.push((stop, child));
            if self.path.len() == levels {
                return self.enter(handle);
            }
            stop = Stop::of(&self.table, handle, child)?;
        }
    }

    /// Makes the data block at `handle` the current one.
    fn enter(&mut self, handle: Handle) -> Result<()> {
        let (table, ahead) = (&self.table, &mut self.ahead);
        let Some(block) = table.block_for(handle, ahead)? else { return Ok(()) };
        self.at.enter(&block.payload, &block.layout);
        self.block = Some(block);
        Ok(())
    }

    /// Moves to the first entry of the next data block.
    fn next_block(&mut self) -> Result<()> {
        self.ahead.step(&self.table, false);
        self.block = None;
        while let Some((stop, child)) = self.path.pop() {
            if child + 1 < stop.node(&self.table)?.layout.count() {
                self.step_to(stop, child + 1, Toward::First)?;
                return self.stand(0);
            }
        }
        Ok(())
    }

    /// Moves to the last entry of the data block before.
    fn prev_block(&mut self) -> Result<()> {
        self.ahead.step(&self.table, true);
        self.block = None;
        while let Some((stop, child)) = self.path.pop() {
            if child > 0 {
                self.step_to(stop, child - 1, Toward::Last)?;
                return self.stand_on_last();
            }
        }
        Ok(())
    }

    /// Takes `child` of a node, and from there the way down that `toward` says.
    fn step_to(&mut self, stop: Stop, child: usize, toward: Toward<'_>) -> Result<()> {
        let node = stop.node(&self.table)?;
        let handle = node.handle(child).map_err(|f| self.table.fault(f, node.offset))?;
        self.path.push((stop, child));
        if self.path.len() == usize::from(self.table.root()?.footer.levels) {
            return self.enter(handle);
        }
        let stop = Stop::of(&self.table, handle, child)?;
        self.descend(stop, toward)
    }

    fn stand_on_last(&mut self) -> Result<()> {
        let count = self.block.as_ref().map_or(1, |b| b.layout.count());
        self.stand(count - 1)
    }

    /// Stands on entry `i` of the current block.
    #[inline]
    fn stand(&mut self, i: usize) -> Result<()> {
        if let Some(block) = &self.block {
            self.at
                .move_to(&block.payload, &block.layout, i)
                .map_err(|f| self.table.fault(f, block.offset))?;
            self.valid = true;
        }
        Ok(())
    }

    /// Runs a move that decides anew whether the cursor stands somewhere.
    fn moving(&mut self, run: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        self.valid = false;
        self.error = run(self).err();
        match &self.error {
            None => Ok(()),
            Some(error) => {
                self.valid = false;
                Err(error.clone())
            }
        }
    }

    /// What a step reports when the cursor stands nowhere.
    #[cold]
    fn nowhere(&self) -> Result<()> {
        debug_assert!(self.error.is_some(), "a step from nowhere");
        self.error.clone().map_or(Ok(()), Err)
    }

    /// The first entry of the current block at or after a target, if that lies between two entries of this block: then it is the first
    /// of the table, too.
    fn inside(&self, key: &[u8], trailer: Trailer) -> Result<Option<usize>> {
        let (i, count) = self.search(key, trailer)?;
        Ok((i > 0 && i < count).then_some(i))
    }

    /// The first entry of the current block at or after a target; the count if there is none.
    fn search(&self, key: &[u8], trailer: Trailer) -> Result<(usize, usize)> {
        let Some(block) = &self.block else { return Ok((0, 0)) };
        let i = block.layout.lower_bound(&block.payload, key, trailer);
        Ok((i.map_err(|f| self.table.fault(f, block.offset))?, block.layout.count()))
    }
}

impl Drop for TableCursor {
    fn drop(&mut self) {
        self.ahead.leave(&self.table, false);
    }
}

impl Readahead {
    /// The payload of a data block that is not there yet; `None` when it was asked for. `late`: it had been asked for before.
    pub(crate) fn read(&mut self, table: &Table, wanted: PendingRead, late: bool) -> Result<Option<Payload>> {
        if self.walks {
            return self.read_one(table, wanted);
        }
        let payload = match !late && table.expects_walk() && self.read_on(table, wanted.handle)? {
            true => self.take(table, wanted)?,
            false => self.read_one(table, wanted)?,
        };
        self.sought = payload.is_some();
        Ok(payload)
    }

    fn read_one(&mut self, table: &Table, wanted: PendingRead) -> Result<Option<Payload>> {
        let handle = wanted.handle;
        if self.hurry.on {
            return table.read_block(wanted, &mut Reading::Asks(&mut self.hurry.wanted));
        }
        if self.walks && u64::from(handle.size) < MAX_AHEAD {
            table.check_handle(handle, frame::MAX_PAYLOAD)?;
            // What fails may be what lies behind the block: of an error of its own the read of it alone tells.
            if self.fill(table, handle).is_ok() {
                return self.take(table, wanted);
            }
        }
        table.read_block(wanted, &mut Reading::Waits)
    }

    /// The payload of a data block, if it was read already.
    #[inline]
    pub(crate) fn take(&self, table: &Table, wanted: PendingRead) -> Result<Option<Payload>> {
        let Some(part) = self.part(wanted.handle) else { return Ok(None) };
        let mut frame = table.buffer_for(wanted);
        frame.copy_from_slice(part);
        table.open_block(frame, wanted).map(Some)
    }

    /// Reads the block at `handle`, which was sought, and what comes behind it, if all that is in memory; whether it was. One read in place of the
    /// two that a walk begins with.
    fn read_on(&mut self, table: &Table, handle: Handle) -> Result<bool> {
        let size = u64::from(handle.size);
        // The next block is about as large as this one.
        let ahead = size.max(MIN_AHEAD);
        if ahead > MAX_ON {
            return Ok(false);
        }
        table.check_handle(handle, frame::MAX_PAYLOAD)?;
        self.back = false;
        // What fails may be what lies behind the block.
        let read = self.read_around(table, handle, size + ahead, false).unwrap_or(false);
        if read {
            self.next = 2 * ahead;
            // It counts as any block that is sought; what lies behind it costs the seek hardly more.
            table_cache::note_block_read();
            table_cache::note_ahead(self.bytes.len() as u64 - size);
        }
        Ok(read)
    }

    /// Reads the block at `handle` and what comes behind it on the cursor's way.
    fn fill(&mut self, table: &Table, handle: Handle) -> Result<()> {
        let bounded = |wanted: u64| wanted.max(2 * u64::from(handle.size)).min(MAX_AHEAD);
        let least = bounded(MIN_AHEAD);
        if self.next == 0 && self.read_around(table, handle, least, false)? {
            self.next = 2 * least;
            return Ok(());
        }
        // Who has to wait for the disk waits for more.
        let wanted = bounded(self.next.max(2 * MIN_AHEAD));
        self.read_around(table, handle, wanted, true)?;
        self.next = 2 * wanted;
        // The disk goes on while the caller looks at these.
        if wanted == MAX_AHEAD {
            let (from, to) = (self.offset, self.offset + self.bytes.len() as u64);
            let data_size = table.root()?.footer.data_size;
            match self.back {
                true => table.will_need(from.saturating_sub(wanted), wanted.min(from)),
                false => table.will_need(to, wanted.min(data_size.saturating_sub(to))),
            }
        }
        Ok(())
    }

    /// Reads `wanted` bytes on the cursor's way, the block at `handle` being the first of them, if they are in memory, or waits for them.
    /// Whether it has them. The way back ends where a page begins.
    fn read_around(&mut self, table: &Table, handle: Handle, wanted: u64, waits: bool) -> Result<bool> {
        let data_size = table.root()?.footer.data_size;
        let (from, to) = match self.back {
            true => (handle.end().saturating_sub(wanted).next_multiple_of(frame::PAGE), handle.end()),
            false => (handle.offset, handle.offset.saturating_add(wanted).min(data_size)),
        };
        let (from, to) = (from.min(handle.offset), to.max(handle.end()));
        // Until the read succeeds, nothing is there.
        let mut bytes = std::mem::take(&mut self.bytes).renew((to - from) as usize);
        match waits {
            true => table.read_at(&mut bytes, from)?,
            false if table.try_read_cached(&mut bytes, from)? => {}
            false => return Ok(false),
        }
        (self.bytes, self.offset) = (bytes, from);
        Ok(true)
    }

    /// Notes a step to a neighbouring block.
    pub(crate) fn step(&mut self, table: &Table, back: bool) {
        self.leave(table, !back);
        if self.back != back {
            self.restart(table);
        }
        (self.walks, self.back) = (true, back);
    }

    /// The next block is not beside this one.
    pub(crate) fn restart(&mut self, table: &Table) {
        self.leave(table, false);
        (self.walks, self.next) = (false, 0);
    }

    /// The cursor leaves the block that it had sought, for the next one or not.
    pub(crate) fn leave(&mut self, table: &Table, walked: bool) {
        if std::mem::take(&mut self.sought) {
            table.note_walk(walked);
        }
    }

    /// The block at `handle`, if it was read.
    fn part(&self, handle: Handle) -> Option<&[u8]> {
        let start = usize::try_from(handle.offset.checked_sub(self.offset)?).ok()?;
        self.bytes.get(start..start.checked_add(handle.size as usize)?)
    }
}

impl Cursor for TableCursor {
    fn seek_to_first(&mut self) -> Result<()> {
        self.moving(|c| {
            c.descend_from_root(Toward::First)?;
            c.stand(0)
        })
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.moving(|c| {
            c.descend_from_root(Toward::Last)?;
            c.stand_on_last()
        })
    }

    fn seek(&mut self, key: &[u8], seq: Seq) -> Result<()> {
        self.moving(|c| {
            let trailer = Trailer::seek(seq);
            if let Some(i) = c.inside(key, trailer)? {
                return c.stand(i);
            }
            c.descend_from_root(Toward::Entry(key, trailer))?;
            let (i, count) = c.search(key, trailer)?;
            if c.block.is_none() {
                return Ok(());
            }
            if i < count { c.stand(i) } else { c.next_block() }
        })
    }

    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        self.moving(|c| {
            let trailer = Trailer::seek(MAX_SEQ);
            if let Some(i) = c.inside(key, trailer)? {
                return c.stand(i - 1);
            }
            c.descend_from_root(Toward::Entry(key, trailer))?;
            let (i, _) = c.search(key, trailer)?;
            if c.block.is_none() {
                return Ok(());
            }
            if i > 0 { c.stand(i - 1) } else { c.prev_block() }
        })
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        if !self.valid {
            return self.nowhere();
        }
        let next = self.at.index() + 1;
        if let Some(block) = &self.block
            && next < block.layout.count()
            && self.at.move_to(&block.payload, &block.layout, next).is_ok()
        {
            return Ok(());
        }
        let inside = self.block.as_ref().is_some_and(|b| next < b.layout.count());
        self.moving(|c| if inside { c.stand(next) } else { c.next_block() })
    }

    #[inline]
    fn prev(&mut self) -> Result<()> {
        if !self.valid {
            return self.nowhere();
        }
        let i = self.at.index();
        if let Some(block) = &self.block
            && i > 0
            && self.at.move_to(&block.payload, &block.layout, i - 1).is_ok()
        {
            return Ok(());
        }
        self.moving(|c| if i > 0 { c.stand(i - 1) } else { c.prev_block() })
    }

    #[inline]
    fn set_nonblocking(&mut self, on: bool) {
        self.ahead.hurry.on = on;
    }

    #[inline]
    fn would_block(&self) -> bool {
        self.ahead.hurry.wanted.is_some()
    }

    #[inline]
    fn valid(&self) -> bool {
        self.valid
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
        self.block.as_ref().map_or(&[], |block| self.at.value(&block.payload))
    }

    fn value_slice(&self) -> Slice {
        self.block
            .as_ref()
            .map_or_else(Slice::default, |block| block.payload.slice_of(self.at.value(&block.payload)))
    }
}
