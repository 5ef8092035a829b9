//! Readahead for cursors that walk from block to block.
//!
//! A cursor that steps to a neighbouring block, in either direction, reads several blocks at once when they are not cached: 8 KiB at
//! first, and twice as much each time, up to 128 KiB. A seek reads the following block along with its own when recent seeks into the
//! table were followed by a step.

use crate::cache::block_cache::BlockClass;
use crate::cache::buffer_pool::Buffer;
use crate::cache::table_cache;
use crate::format::frame::{self, Handle};
use crate::format::node;
use crate::read::block::{Node, Payload};
use crate::read::nonblocking_read::{Nonblocking, PendingRead, Reading};
use crate::read::table::Table;
use base::Result;

/// The readahead of one cursor: a window of the file. Its blocks are verified one by one when the cursor reaches them, and not cached.
#[derive(Default)]
pub(crate) struct Readahead {
    bytes: Buffer,
    offset: u64,
    reached: Reached,
    /// Whether the last seek had to read its block, and the cursor is still there.
    sought: bool,
    /// Bytes of the next read; 0 before the first one.
    next: u64,
    /// Whether the cursor walks backward.
    back: bool,
    pub(crate) nonblocking: Nonblocking,
}

/// How a cursor has reached its block.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Reached {
    #[default]
    Seek,
    /// From a neighbouring block, or one that is near.
    Step,
    /// From one farther off, past blocks that it leaves out.
    Skip,
}

/// Minimum and maximum bytes of a read after a step to a neighbouring block.
const MIN_AHEAD: u64 = 8 << 10;
const MAX_AHEAD: u64 = 128 << 10;

/// Maximum bytes that a seek reads after its block.
const MAX_ON: u64 = 16 << 10;

impl Readahead {
    /// Reads a data block that is neither in the window nor cached; `None`: the disk was asked for it. `late`: it was asked for before.
    pub(crate) fn read(&mut self, table: &Table, wanted: PendingRead, late: bool) -> Result<Option<Payload>> {
        if self.reached != Reached::Seek {
            return self.read_one(table, wanted);
        }
        let payload = match !late && table.read_on.is_likely() && self.read_on(table, wanted.handle)? {
            true => self.take(table, wanted)?,
            false => self.read_one(table, wanted)?,
        };
        self.sought = payload.is_some();
        Ok(payload)
    }

    fn read_one(&mut self, table: &Table, wanted: PendingRead) -> Result<Option<Payload>> {
        let handle = wanted.handle;
        if self.nonblocking.on {
            return table.read_block(wanted, &mut Reading::Asks(&mut self.nonblocking.wanted));
        }
        if self.reached == Reached::Step && u64::from(handle.size) < MAX_AHEAD {
            table.check_handle(handle, frame::MAX_PAYLOAD)?;
            // The error may concern what follows the block. The read of the block alone reports its own errors.
            if self.fill(table, handle).is_ok() {
                return self.take(table, wanted);
            }
        }
        table.read_block(wanted, &mut Reading::Waits)
    }

    /// The payload of a data block, if the window has it.
    #[inline]
    pub(crate) fn take(&self, table: &Table, wanted: PendingRead) -> Result<Option<Payload>> {
        let Some(part) = self.part(wanted.handle) else { return Ok(None) };
        let mut frame = table.buffer_for(wanted);
        frame.copy_from_slice(part);
        table.open_block(frame, wanted).map(Some)
    }

    /// Reads the block of a seek and what follows it with one read, in place of the two that a walk begins with, if the page cache has all
    /// of it. Returns whether it has.
    fn read_on(&mut self, table: &Table, handle: Handle) -> Result<bool> {
        let size = u64::from(handle.size);
        // The next block is about as large as this one.
        let ahead = size.max(MIN_AHEAD);
        if ahead > MAX_ON {
            return Ok(false);
        }
        table.check_handle(handle, frame::MAX_PAYLOAD)?;
        self.back = false;
        // The error may concern what follows the block.
        let read = self.read_around(table, handle, size + ahead, false).unwrap_or(false);
        if read {
            self.next = 2 * ahead;
            // What follows the block costs the seek hardly more.
            table_cache::note_ahead(self.bytes.len() as u64 - size);
        }
        Ok(read)
    }

    /// Reads the block at `handle` and what follows it in the cursor's direction.
    fn fill(&mut self, table: &Table, handle: Handle) -> Result<()> {
        let least = MIN_AHEAD.max(2 * u64::from(handle.size));
        let wanted = self.next.max(least).min(MAX_AHEAD);
        self.read_around(table, handle, wanted, true)?;
        self.next = 2 * wanted;
        // The disk reads the next window while the caller uses this one.
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

    /// Reads `wanted` bytes in the cursor's direction, beginning with the block at `handle`. Without `waits`, only if the page cache has
    /// them. Returns whether they were read. A read backward begins at a page boundary.
    fn read_around(&mut self, table: &Table, handle: Handle, wanted: u64, blocked: bool) -> Result<bool> {
        let data_size = table.root()?.footer.data_size;
        let (from, to) = match self.back {
            true => (handle.end().saturating_sub(wanted).next_multiple_of(frame::PAGE), handle.end()),
            false => (handle.offset, handle.offset.saturating_add(wanted).min(data_size)),
        };
        let (from, to) = (from.min(handle.offset), to.max(handle.end()));
        // The window stays empty if the read fails.
        let mut bytes = std::mem::take(&mut self.bytes).renew((to - from) as usize);
        match blocked {
            true => _ = table.read_at(&mut bytes, from, false)?,
            false if table.try_read_cached(&mut bytes, from)? => {}
            false => return Ok(false),
        }
        (self.bytes, self.offset) = (bytes, from);
        Ok(true)
    }

    /// Called at a step to a neighbouring block or one that is `near`, or to another one, which is read alone.
    pub(crate) fn step(&mut self, table: &Table, back: bool, near: bool) {
        self.leave(table, near && !back);
        if self.back != back || !near {
            self.restart(table);
        }
        (self.reached, self.back) = (if near { Reached::Step } else { Reached::Skip }, back);
    }

    /// Called when the next block is not a neighbour of this one.
    pub(crate) fn restart(&mut self, table: &Table) {
        self.leave(table, false);
        (self.reached, self.next) = (Reached::Seek, 0);
    }

    /// Called when the cursor leaves its block; `walked`: for the next one. Tells the table if a seek had read the block.
    pub(crate) fn leave(&mut self, table: &Table, walked: bool) {
        if std::mem::take(&mut self.sought) {
            table.read_on.note(walked);
        }
    }

    /// The frame at `handle`, if the window has it.
    fn part(&self, handle: Handle) -> Option<&[u8]> {
        let start = usize::try_from(handle.offset.checked_sub(self.offset)?).ok()?;
        self.bytes.get(start..start.checked_add(handle.size as usize)?)
    }
}

impl Table {
    /// A data block of a B+-tree for a cursor: see [`Table::payload_for`].
    #[inline]
    pub(crate) fn block_for(&self, handle: Handle, ahead: &mut Readahead) -> Result<Option<Node<Payload>>> {
        let Some(payload) = self.payload_for(handle, ahead)? else { return Ok(None) };
        self.block(payload, handle).map(Some)
    }

    /// The payload of a data or value block for a cursor, from the window, the cache or the file. `None` if the cursor must not wait and
    /// would have to.
    #[inline]
    pub(crate) fn payload_for(&self, handle: Handle, ahead: &mut Readahead) -> Result<Option<Payload>> {
        let noted = ahead.nonblocking.wanted.take();
        // A walk reads each block once: it neither admits blocks nor counts as a request.
        if let Some(payload) = ahead.take(self, PendingRead { handle, admitted: false, row: None })? {
            return Ok(Some(payload));
        }
        if let Some(bytes) = self.tables().cache.get(self.block_key(handle), BlockClass::Data) {
            node::touch(&bytes);
            return Ok(Some(Payload::Shared(bytes)));
        }
        let noted = noted.filter(|wanted| wanted.handle == handle);
        let wanted = noted.unwrap_or_else(|| self.want(handle));
        ahead.read(self, wanted, noted.is_some())
    }
}
