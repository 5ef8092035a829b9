//! A cursor for compactions: it streams the data blocks in large reads, past the block cache.
//!
//! Data blocks are stored from offset 0, and each contains its length and whether zero padding follows, so a walk forward needs no
//! index. Raw blocks are parsed in the read buffer, compressed ones in a second buffer. Seeks and steps back use the index; a
//! compaction needs them rarely.

use crate::format::compression;
use crate::format::decode_error::DecodeError;
use crate::format::frame::{self, HEADER_LEN, Kind};
use crate::format::node::Layout;
use crate::read::entry_cursor::EntryCursor;
use crate::read::table::Table;
use base::{Cursor, Error, MAX_SEQ, Result, Seq, Slice, Trailer};
use std::ops::Range;
use std::sync::Arc;

/// Bytes per read.
const READ_AHEAD: usize = 256 << 10;

/// Streams a table. See [`base::Cursor`].
pub struct ScanCursor {
    table: Arc<Table>,
    ahead: ReadAhead,
    /// The current block's payload, where it was compressed.
    unpacked: Vec<u8>,
    block: Option<Block>,
    at: EntryCursor,
    valid: bool,
    error: Option<Error>,
}

impl Table {
    /// A cursor that reads ahead into a buffer of its own and leaves the cache alone. Does no I/O yet.
    pub fn scan(self: &Arc<Self>) -> ScanCursor {
        ScanCursor::new(Arc::clone(self), false)
    }

    /// Like [`Table::scan`], for a compaction that replaces the table: the page cache drops what the cursor has passed.
    pub fn last_scan(self: &Arc<Self>) -> ScanCursor {
        ScanCursor::new(Arc::clone(self), true)
    }
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

impl ScanCursor {
    pub(crate) fn new(table: Arc<Table>, last: bool) -> Self {
        ScanCursor {
            table,
            ahead: ReadAhead { bytes: Vec::new(), offset: 0, len: 0, last },
            unpacked: Vec::new(),
            block: None,
            at: EntryCursor::new(),
            valid: false,
            error: None,
        }
    }

    #[inline]
    fn bytes<'a>(block: &Block, ahead: &'a ReadAhead, unpacked: &'a [u8]) -> &'a [u8] {
        match &block.raw {
            Some(range) => &ahead.bytes[range.clone()],
            None => unpacked,
        }
    }

    /// Makes the block at `offset` the current one. `false` at the end of the data.
    fn load(&mut self, offset: u64) -> Result<bool> {
        self.block = None;
        let data_size = self.table.root()?.footer.data_size;
        if offset >= data_size {
            return Ok(false);
        }
        let range = self.ahead.frame(&self.table, offset, data_size)?;
        let fault = |f: DecodeError| self.table.fault(f, offset);
        let (codec, payload) =
            frame::check(&self.ahead.bytes[range.clone()], self.table.place(offset, Kind::Data))
                .map_err(fault)?;
        let next = frame::next_offset(offset, &self.ahead.bytes[range.clone()]);
        let raw = if compression::is_raw(codec) {
            Some(range.start + HEADER_LEN..range.end)
        } else {
            compression::decompress(codec, payload, frame::MAX_PAYLOAD, &mut self.unpacked).map_err(fault)?;
            None
        };
        let bytes = raw.clone().map_or(&self.unpacked[..], |range| &self.ahead.bytes[range]);
        let layout = Layout::parse(bytes, false).map_err(fault)?;
        self.at.enter(bytes, &layout);
        self.block = Some(Block { layout, raw, offset, next });
        Ok(true)
    }

    /// Makes the block at `offset`, which the index pointed to, the current one. Returns its count of entries.
    fn load_known(&mut self, offset: u64) -> Result<usize> {
        self.load(offset)?;
        let known = self.block.as_ref().map(|block| block.layout.count());
        known.ok_or_else(|| self.table.fault(DecodeError::Corrupt("index points outside the data"), offset))
    }

    /// Stands on entry `i` of the current block.
    #[inline]
    fn stand(&mut self, i: usize) -> Result<()> {
        if let Some(block) = &self.block {
            let bytes = Self::bytes(block, &self.ahead, &self.unpacked);
            self.at.move_to(bytes, &block.layout, i).map_err(|f| self.table.fault(f, block.offset))?;
            self.valid = true;
        }
        Ok(())
    }

    fn next_block(&mut self) -> Result<()> {
        let next = self.block.as_ref().map_or(0, |block| block.next);
        if self.load(next)? { self.stand(0) } else { Ok(()) }
    }

    /// Moves to the entry before (`key`, `trailer`).
    fn before(&mut self, key: &[u8], trailer: Trailer) -> Result<()> {
        let offset = self.table.data_handle(key, trailer)?.offset;
        self.load_known(offset)?;
        match self.search(key, trailer)? {
            // All of the block is at or after the target.
            0 => self.stand_on_last_before(offset),
            i => self.stand(i - 1),
        }
    }

    /// Stands on the last entry of the data block that ends at `offset`; nowhere if there is none.
    fn stand_on_last_before(&mut self, offset: u64) -> Result<()> {
        let Some(offset) = self.block_before(offset)? else { return Ok(()) };
        let count = self.load_known(offset)?;
        self.stand(count - 1)
    }

    /// Where the data block that ends at `offset` begins; `None` for the first.
    fn block_before(&self, offset: u64) -> Result<Option<u64>> {
        if offset == 0 {
            return Ok(None);
        }
        let root = self.table.root()?;
        let mut node = root.node.clone();
        for level in (1..=root.footer.levels).rev() {
            let fault = |f: DecodeError| self.table.fault(f, node.offset);
            // Children are stored in key order. The one above the block before `offset` is the last child with a first
            // data block before `offset`.
            let (mut low, mut high) = (0, node.layout.count());
            while high - low > 1 {
                let middle = low + (high - low) / 2;
                let child = node.handle(middle).map_err(fault)?;
                if self.first_data_offset(child, level - 1)? < offset { low = middle } else { high = middle }
            }
            let child = node.handle(low).map_err(fault)?;
            if level == 1 {
                return Ok(Some(child.offset));
            }
            node = self.table.index_node(child, low)?;
        }
        Ok(None)
    }

    /// The offset of the first data block under `handle`, which is `level` levels above the data.
    fn first_data_offset(&self, mut handle: frame::Handle, level: u8) -> Result<u64> {
        for _ in 0..level {
            let node = self.table.index_node(handle, 0)?;
            handle = node.handle(0).map_err(|f| self.table.fault(f, node.offset))?;
        }
        Ok(handle.offset)
    }

    /// The first entry of the current block at or after a target; the count if there is none.
    fn search(&self, key: &[u8], trailer: Trailer) -> Result<usize> {
        let Some(block) = &self.block else { return Ok(0) };
        let bytes = Self::bytes(block, &self.ahead, &self.unpacked);
        block.layout.lower_bound(bytes, key, trailer).map_err(|f| self.table.fault(f, block.offset))
    }

    /// Runs a move, which makes the cursor valid or not, and keeps its error.
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

    /// The result of a step of an invalid cursor: the error of the last move.
    #[cold]
    fn nowhere(&self) -> Result<()> {
        debug_assert!(self.error.is_some(), "a step from nowhere");
        self.error.clone().map_or(Ok(()), Err)
    }
}

impl Cursor for ScanCursor {
    fn seek_to_first(&mut self) -> Result<()> {
        self.moving(|c| if c.load(0)? { c.stand(0) } else { Ok(()) })
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.moving(|c| {
            let data_size = c.table.root()?.footer.data_size;
            c.stand_on_last_before(data_size)
        })
    }

    fn seek(&mut self, key: &[u8], seq: Seq) -> Result<()> {
        self.moving(|c| {
            let trailer = Trailer::seek(seq);
            let offset = c.table.data_handle(key, trailer)?.offset;
            let count = c.load_known(offset)?;
            let i = c.search(key, trailer)?;
            if i < count { c.stand(i) } else { c.next_block() }
        })
    }

    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        self.moving(|c| c.before(key, Trailer::seek(MAX_SEQ)))
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        if !self.valid {
            return self.nowhere();
        }
        let next = self.at.index() + 1;
        let inside = self.block.as_ref().is_some_and(|block| next < block.layout.count());
        if let Some(block) = &self.block
            && inside
        {
            let bytes = Self::bytes(block, &self.ahead, &self.unpacked);
            if self.at.move_to(bytes, &block.layout, next).is_ok() {
                return Ok(());
            }
        }
        self.moving(|c| if inside { c.stand(next) } else { c.next_block() })
    }

    fn prev(&mut self) -> Result<()> {
        if !self.valid {
            return self.nowhere();
        }
        let i = self.at.index();
        self.moving(|c| {
            if i > 0 {
                return c.stand(i - 1);
            }
            let offset = c.block.as_ref().map_or(0, |block| block.offset);
            c.stand_on_last_before(offset)
        })
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
        match &self.block {
            Some(block) => self.at.value(Self::bytes(block, &self.ahead, &self.unpacked)),
            None => &[],
        }
    }

    /// Copies: the buffer is reused for the next blocks.
    fn value_slice(&self) -> Slice {
        Slice::copy_from(self.value())
    }
}

/// A window of the file, moved forward in large reads.
struct ReadAhead {
    bytes: Vec<u8>,
    /// The offset of the window in the file, and the number of its bytes that are filled.
    offset: u64,
    len: usize,
    /// Whether the page cache is to drop what lies before the window.
    last: bool,
}

impl ReadAhead {
    /// The range of the buffer with the frame at `offset`; the data ends at `end`.
    fn frame(&mut self, table: &Table, offset: u64, end: u64) -> Result<Range<usize>> {
        let fault = |what| table.fault(DecodeError::Corrupt(what), offset);
        let start = self.fill(table, offset, HEADER_LEN as u64, end)?;
        let header =
            self.bytes[start..].first_chunk().ok_or_else(|| fault("block is shorter than its header"))?;
        // The length is unverified until the whole frame is read. It only sizes a read, and is bounded.
        let len = frame::claimed_len(header);
        if len > end - offset || len > (frame::MAX_PAYLOAD + HEADER_LEN) as u64 {
            return Err(fault("block lies outside its table"));
        }
        let start = self.fill(table, offset, len, end)?;
        Ok(start..start + len as usize)
    }

    /// Makes sure that `len` bytes from `offset` are in the buffer, and returns where.
    fn fill(&mut self, table: &Table, offset: u64, len: u64, end: u64) -> Result<usize> {
        if len > end - offset {
            return Err(table.fault(DecodeError::Corrupt("block lies outside its table"), offset));
        }
        let filled = self.offset + self.len as u64;
        if offset >= self.offset && offset + len <= filled {
            return Ok((offset - self.offset) as usize);
        }
        // The part of the frame that is in the buffer moves to the front. The rest, and what follows, is read after it.
        let kept = if offset >= self.offset && offset < filled {
            (offset - self.offset) as usize..self.len
        } else {
            0..0
        };
        let have = kept.len();
        self.bytes.copy_within(kept, 0);
        if self.last && offset > self.offset {
            table.wont_need(self.offset, offset - self.offset);
        }
        (self.offset, self.len) = (offset, 0);
        let want = len.max(READ_AHEAD as u64).min(end - offset) as usize;
        if self.bytes.len() < want {
            self.bytes.resize(want, 0);
        }
        table.read_at(&mut self.bytes[have..want], offset + have as u64)?;
        self.len = want;
        // The disk reads the next window while the caller works on this one.
        let filled = offset + want as u64;
        if offset > 0 && filled < end {
            table.will_need(filled, (end - filled).min(READ_AHEAD as u64));
        }
        Ok(0)
    }
}
