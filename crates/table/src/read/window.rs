//! A window of a table's file that moves forward in large reads and leaves the cache alone: for compactions (`leaf_scan.rs`, `row_cursor.rs`) and for the
//! loading of filter and index (`index.rs`).

use crate::format::decode_error::DecodeError;
use crate::format::frame::{self, HEADER_LEN};
use crate::read::table::Table;
use base::Result;
use std::ops::Range;

/// Bytes per read.
const READ: usize = 256 << 10;

/// The bytes of the file in a buffer.
#[derive(Default)]
pub(crate) struct Window {
    pub bytes: Vec<u8>,
    /// The offset of the window in the file, and the number of its bytes that are filled.
    offset: u64,
    len: usize,
}

impl Window {
    /// The range of the buffer with the frame at `offset`, unverified. Frames of this kind end at `end`.
    pub(crate) fn frame(&mut self, table: &Table, offset: u64, end: u64) -> Result<Range<usize>> {
        let fault = |what| table.fault(DecodeError::Corrupt(what), offset);
        let start = self.fill(table, offset, HEADER_LEN as u64, end)?;
        let header =
            self.bytes[start..].first_chunk().ok_or_else(|| fault("block is shorter than its header"))?;
        // The length is unverified until the whole frame is read. It only sizes a read, and is bounded.
        let len = frame::claimed_len(header);
        if len > end.saturating_sub(offset) || len > (frame::MAX_PAYLOAD + HEADER_LEN) as u64 {
            return Err(fault("block lies outside its table"));
        }
        let start = self.fill(table, offset, len, end)?;
        Ok(start..start + len as usize)
    }

    /// Makes sure that `len` bytes from `offset` are in the buffer, and returns where.
    fn fill(&mut self, table: &Table, offset: u64, len: u64, end: u64) -> Result<usize> {
        if len > end.saturating_sub(offset) {
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
        (self.offset, self.len) = (offset, 0);
        let want = len.max(READ as u64).min(end - offset) as usize;
        if self.bytes.len() < want {
            self.bytes.resize(want, 0);
        }
        table.read_in_background(&mut self.bytes[have..want], offset + have as u64)?;
        self.len = want;
        // The disk reads the next window while the caller works on this one.
        let filled = offset + want as u64;
        if offset > 0 && filled < end {
            table.will_need(filled, (end - filled).min(READ as u64));
        }
        Ok(0)
    }
}
