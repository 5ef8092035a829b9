//! A cursor over a B+-tree for compactions: it streams the data blocks in large reads, past the block cache.
//!
//! Data blocks are stored from offset 0, and each contains its length and whether zero padding follows, so a walk forward needs no
//! index. Raw blocks are parsed in the read buffer, compressed ones in a second buffer.

use crate::format::compression;
use crate::format::decode_error::DecodeError;
use crate::format::frame::{self, HEADER_LEN, Kind};
use crate::format::node::Layout;
use crate::read::entry_cursor::EntryCursor;
use crate::read::table::Table;
use crate::read::window::Window;
use base::{Cursor, Result, Trailer};
use std::ops::Range;
use std::sync::Arc;

/// Streams a B+-tree from its first entry to its last. See [`base::Cursor`]; it reads forward only.
pub(crate) struct LeafScan {
    table: Arc<Table>,
    window: Window,
    /// The current block's payload, where it was compressed.
    unpacked: Vec<u8>,
    block: Option<Block>,
    at: EntryCursor,
}

/// The current block.
struct Block {
    layout: Layout,
    /// Payload in the read buffer; `None` when it was unpacked.
    raw: Option<Range<usize>>,
    offset: u64,
    /// Where the next block begins.
    next: u64,
}

impl LeafScan {
    pub(crate) fn new(table: Arc<Table>) -> Self {
        LeafScan {
            table,
            window: Window::default(),
            unpacked: Vec::new(),
            block: None,
            at: EntryCursor::new(),
        }
    }

    #[inline]
    fn bytes<'a>(block: &Block, window: &'a Window, unpacked: &'a [u8]) -> &'a [u8] {
        match &block.raw {
            Some(range) => &window.bytes[range.clone()],
            None => unpacked,
        }
    }

    /// Moves to the first entry of the block at `offset`; nowhere at the end of the data.
    fn enter(&mut self, offset: u64) -> Result<()> {
        self.block = None;
        let data_size = self.table.root()?.footer.data_size;
        if offset >= data_size {
            return Ok(());
        }
        let range = self.window.frame(&self.table, offset, data_size)?;
        let fault = |f: DecodeError| self.table.fault(f, offset);
        let (codec, payload) =
            frame::check(&self.window.bytes[range.clone()], self.table.place(offset, Kind::Data))
                .map_err(fault)?;
        let next = frame::next_offset(offset, &self.window.bytes[range.clone()]);
        let raw = if compression::is_raw(codec) {
            Some(range.start + HEADER_LEN..range.end)
        } else {
            compression::decompress(codec, payload, frame::MAX_PAYLOAD, &mut self.unpacked).map_err(fault)?;
            None
        };
        let bytes = raw.clone().map_or(&self.unpacked[..], |range| &self.window.bytes[range]);
        let layout = Layout::parse(bytes, false, self.table.file.seq_shift).map_err(fault)?;
        self.at.enter(bytes, &layout);
        self.block = Some(Block { layout, raw, offset, next });
        self.stand(0)
    }

    /// Stands on entry `i` of the current block.
    #[inline]
    fn stand(&mut self, i: usize) -> Result<()> {
        if let Some(block) = &self.block {
            let bytes = Self::bytes(block, &self.window, &self.unpacked);
            self.at.move_to(bytes, &block.layout, i).map_err(|f| self.table.fault(f, block.offset))?;
        }
        Ok(())
    }

    /// Runs a move, which makes the cursor valid or not, and keeps its error.
    fn moving(&mut self, run: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        self.at.leave();
        let moved = run(self);
        self.at.settle(moved)
    }
}

impl Cursor for LeafScan {
    fn seek_to_first(&mut self) -> Result<()> {
        self.moving(|c| c.enter(0))
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        if !self.at.valid() {
            return self.at.nowhere();
        }
        let next = self.at.index() + 1;
        let inside = self.block.as_ref().is_some_and(|block| next < block.layout.count());
        if let Some(block) = &self.block
            && inside
        {
            let bytes = Self::bytes(block, &self.window, &self.unpacked);
            if self.at.move_to(bytes, &block.layout, next).is_ok() {
                return Ok(());
            }
        }
        self.moving(|c| {
            let after = c.block.as_ref().map_or(0, |block| block.next);
            if inside { c.stand(next) } else { c.enter(after) }
        })
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
        match &self.block {
            Some(block) => self.at.value(Self::bytes(block, &self.window, &self.unpacked)),
            None => &[],
        }
    }
}
