//! Standing on entries whose place somebody has noted before: without the index, and without a search.
//!
//! A place is a data block and the number of an entry in it. Blocks come through the cache, and are verified like any other. What
//! is noted cannot grow old, because a table never changes; a place that is not there means that the note is wrong, and is an error.

use crate::block::Block;
use crate::cursor::Readahead;
use crate::decode_error::DecodeError;
use crate::entry_cursor::EntryCursor;
use crate::frame::{Handle, PAGE};
use crate::table::Table;
use base::{Result, Slice, Trailer};
use std::sync::Arc;

/// Where a data block lies: offset and length of its frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockPlace {
    /// Offset in the file.
    pub offset: u64,
    /// Length, with what stands in front of the payload.
    pub size: u32,
}

/// Stands on entries of a table by their place.
pub struct PlaceCursor {
    table: Arc<Table>,
    /// The block that it stood in last, and where that ends.
    block: Option<(Block, u64)>,
    at: EntryCursor,
    ahead: Readahead,
}

impl Drop for PlaceCursor {
    fn drop(&mut self) {
        self.ahead.leave(&self.table, false);
    }
}

impl PlaceCursor {
    pub(crate) fn new(table: Arc<Table>) -> PlaceCursor {
        PlaceCursor { table, block: None, at: EntryCursor::new(), ahead: Readahead::default() }
    }

    /// Stands on entry `entry` of the data block at `place`. After an error it stands nowhere: what [`PlaceCursor::key`] and the
    /// others say then means nothing.
    #[inline]
    pub fn stand_at(&mut self, place: BlockPlace, entry: usize) -> Result<()> {
        match &self.block {
            Some((block, _)) if block.offset == place.offset => {}
            _ => self.enter(place)?,
        }
        let Some((block, _)) = &self.block else { return Ok(()) };
        if entry >= block.layout.count() {
            return Err(self
                .table
                .fault(DecodeError::Corrupt("block has fewer entries than before"), place.offset));
        }
        let moved = self.at.move_to(&block.payload, &block.layout, entry);
        moved.map_err(|f| self.table.fault(f, place.offset))
    }

    /// Makes the block at `place` the current one. One that comes there from the block beside it, in either direction, reads ahead.
    fn enter(&mut self, place: BlockPlace) -> Result<()> {
        // Zeros up to the next page may lie between two blocks.
        let meets = |end: u64, start: u64| end == start || end.next_multiple_of(PAGE) == start;
        let here = self.block.take().map(|(block, end)| (block.offset, end));
        match here {
            Some((_, end)) if meets(end, place.offset) => self.ahead.step(&self.table, false),
            Some((start, _)) if meets(place.offset + u64::from(place.size), start) => {
                self.ahead.step(&self.table, true)
            }
            _ => self.ahead.restart(&self.table),
        }
        let handle = Handle { offset: place.offset, size: place.size };
        let (table, ahead) = (&self.table, &mut self.ahead);
        let Some(block) = table.block_for(handle, ahead)? else { return Ok(()) };
        self.at.enter(&block.payload, &block.layout);
        self.block = Some((block, handle.end()));
        Ok(())
    }

    /// The same, which has the cache let in every block that it reads: see [`crate::TableCursor::fill_cache`].
    pub fn fill_cache(mut self, keeps: bool) -> Self {
        self.ahead.keeps = keeps;
        self
    }

    /// Whether it asks for blocks that are not in memory from now on, instead of waiting for them: see [`base::Cursor::set_nonblocking`].
    pub fn set_nonblocking(&mut self, on: bool) {
        self.ahead.hurry.on = on;
    }

    /// Whether it stands nowhere because it would have had to wait.
    pub fn would_block(&self) -> bool {
        self.ahead.hurry.wanted.is_some()
    }

    /// The key of the entry that it stands on.
    #[inline]
    pub fn key(&self) -> &[u8] {
        self.at.key()
    }

    /// Sequence number and kind of the entry.
    #[inline]
    pub fn trailer(&self) -> Trailer {
        self.at.trailer()
    }

    /// The value of the entry.
    #[inline]
    pub fn value(&self) -> &[u8] {
        self.block.as_ref().map_or(&[], |(block, _)| self.at.value(&block.payload))
    }

    /// The value as a slice: of the block, where that is cached, or else a copy.
    pub fn value_slice(&self) -> Slice {
        let slice = |(block, _): &(Block, u64)| block.payload.slice_of(self.at.value(&block.payload));
        self.block.as_ref().map_or_else(Slice::default, slice)
    }
}
