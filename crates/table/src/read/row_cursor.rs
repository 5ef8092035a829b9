//! A cursor over a size-class table: the rows in order, and for each the block with its value, through the block cache or, for
//! compactions, streamed past it.
//!
//! Values are stored in the order of all entries, so a cursor that walks reads value blocks one after another, and reads ahead as a cursor
//! over a B+-tree does (`readahead.rs`).

use crate::format::decode_error::DecodeError;
use crate::format::frame::{self, Handle, Kind};
use crate::format::rows::ValuePlace;
use crate::read::block::Payload;
use crate::read::nonblocking_read::PendingRead;
use crate::read::readahead::Readahead;
use crate::read::row_merge::RowMerge;
use crate::read::row_pages::TablePages;
use crate::read::table::Table;
use crate::read::window::Window;
use base::{Cursor, Error, MAX_SEQ, Result, Seq, Slice, Trailer};
use std::ops::Range;
use std::sync::Arc;

/// Walks a size-class table entry by entry. See [`base::Cursor`].
pub(crate) struct RowCursor {
    table: Arc<Table>,
    /// The rows, once the table was used.
    rows: Option<RowMerge<TablePages>>,
    source: Source,
    /// The current value block.
    block: Option<(Handle, Payload)>,
    key: Vec<u8>,
    trailer: Trailer,
    value: Range<usize>,
    valid: bool,
    /// The error of the last move.
    error: Option<Error>,
}

/// How value blocks are read.
enum Source {
    Cache(Readahead),
    Stream(Window),
}

/// How a move reaches an entry.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Move {
    Seek,
    Next,
    Prev,
}

impl RowCursor {
    /// A cursor through the block cache; `streams`: past it. Does no I/O yet.
    pub(crate) fn new(table: Arc<Table>, streams: bool) -> RowCursor {
        RowCursor {
            table,
            rows: None,
            source: if streams {
                Source::Stream(Window::default())
            } else {
                Source::Cache(Readahead::default())
            },
            block: None,
            key: Vec::new(),
            trailer: Trailer(0),
            value: 0..0,
            valid: false,
            error: None,
        }
    }

    /// Runs a move of the rows, and stands on the entry that it reaches.
    #[inline]
    fn moving(&mut self, how: Move, run: impl FnOnce(&mut RowMerge<TablePages>) -> Result<()>) -> Result<()> {
        self.valid = false;
        let late = match &mut self.source {
            Source::Cache(ahead) => ahead.nonblocking.wanted.take(),
            Source::Stream(_) => None,
        };
        let moved = match &mut self.rows {
            Some(rows) => run(rows),
            None => self.new_rows().and_then(|rows| run(self.rows.insert(rows))),
        };
        let moved = moved.and_then(|()| self.stand(how, late));
        self.error = moved.as_ref().err().cloned();
        moved
    }

    fn new_rows(&self) -> Result<RowMerge<TablePages>> {
        let classes = self.table.root()?.classes();
        let streams = matches!(self.source, Source::Stream(_)).then_some(classes.len());
        Ok(RowMerge::new(TablePages::new(Arc::clone(&self.table), streams), classes))
    }

    /// Stands on the current row. `late`: the block that the cursor would have waited for before.
    #[inline]
    fn stand(&mut self, how: Move, late: Option<PendingRead>) -> Result<()> {
        let Some(rows) = &self.rows else { return Ok(()) };
        let Some(row) = rows.row()? else { return Ok(()) };
        let (key, trailer) =
            row.key().and_then(|key| Ok((key, row.trailer()?))).map_err(|f| rows.fault_here(f))?;
        self.key.clear();
        self.key.extend_from_slice(key);
        self.trailer = trailer;
        let place = row.value();
        self.value = 0..0;
        if place.len > 0 {
            if self.block.as_ref().is_none_or(|(block, _)| *block != place.block) {
                self.block = None;
                self.enter(place.block, how, late)?;
            }
            let Some((_, payload)) = &self.block else { return Ok(()) };
            self.value = range_of(place, payload).map_err(|f| self.table.fault(f, place.block.offset))?;
        }
        self.valid = true;
        Ok(())
    }

    /// Makes the value block at `handle` the current one, unless the cursor would have to wait and must not. `late` is as in
    /// [`RowCursor::stand`].
    fn enter(&mut self, handle: Handle, how: Move, late: Option<PendingRead>) -> Result<()> {
        let table = &self.table;
        table.check_value_block(handle)?;
        let payload = match &mut self.source {
            Source::Cache(ahead) => {
                match how {
                    Move::Seek => ahead.restart(table),
                    Move::Next | Move::Prev => ahead.step(table, how == Move::Prev, true),
                }
                ahead.nonblocking.wanted = late;
                table.payload_for(handle, ahead)?
            }
            Source::Stream(window) => {
                let range = window.frame(table, handle.offset, table.root()?.footer.data_size)?;
                if range.len() != handle.size as usize {
                    let fault = DecodeError::Corrupt("length of a value block does not match its rows");
                    return Err(table.fault(fault, handle.offset));
                }
                let place = table.place(handle.offset, Kind::Values);
                let opened = frame::open(window.bytes[range].to_vec(), place, frame::MAX_PAYLOAD);
                Some(Payload::Shared(opened.map_err(|f| table.fault(f, handle.offset))?))
            }
        };
        self.block = payload.map(|payload| (handle, payload));
        Ok(())
    }

    /// The result of a step from nowhere: the error of the last move.
    #[cold]
    fn nowhere(&self) -> Result<()> {
        debug_assert!(self.error.is_some(), "a step from nowhere");
        self.error.clone().map_or(Ok(()), Err)
    }
}

/// The bytes of a value in the payload of its block.
#[inline]
fn range_of(place: ValuePlace, payload: &[u8]) -> std::result::Result<Range<usize>, DecodeError> {
    place.of(payload).map(|value| {
        let start = place.start as usize;
        start..start + value.len()
    })
}

impl Drop for RowCursor {
    fn drop(&mut self) {
        if let Source::Cache(ahead) = &mut self.source {
            ahead.leave(&self.table, false);
        }
    }
}

impl Cursor for RowCursor {
    fn seek_to_first(&mut self) -> Result<()> {
        self.moving(Move::Seek, RowMerge::seek_to_first)
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.moving(Move::Seek, RowMerge::seek_to_last)
    }

    fn seek(&mut self, key: &[u8], seq: Seq) -> Result<()> {
        self.moving(Move::Seek, |rows| rows.seek(key, Trailer::seek(seq), false))
    }

    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        self.moving(Move::Seek, |rows| rows.seek(key, Trailer::seek(MAX_SEQ), true))
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        if !self.valid {
            return self.nowhere();
        }
        self.moving(Move::Next, RowMerge::next)
    }

    #[inline]
    fn prev(&mut self) -> Result<()> {
        if !self.valid {
            return self.nowhere();
        }
        self.moving(Move::Prev, RowMerge::prev)
    }

    fn set_nonblocking(&mut self, on: bool) {
        if let Source::Cache(ahead) = &mut self.source {
            ahead.nonblocking.on = on;
        }
    }

    #[inline]
    fn would_block(&self) -> bool {
        matches!(&self.source, Source::Cache(ahead) if ahead.nonblocking.wanted.is_some())
    }

    #[inline]
    fn valid(&self) -> bool {
        self.valid
    }

    #[inline]
    fn key(&self) -> &[u8] {
        &self.key
    }

    #[inline]
    fn trailer(&self) -> Trailer {
        self.trailer
    }

    #[inline]
    fn value(&self) -> &[u8] {
        self.block.as_ref().map_or(&[], |(_, payload)| &payload[self.value.clone()])
    }

    fn value_slice(&self) -> Slice {
        self.block
            .as_ref()
            .map_or_else(Slice::default, |(_, payload)| payload.slice_of(&payload[self.value.clone()]))
    }
}
