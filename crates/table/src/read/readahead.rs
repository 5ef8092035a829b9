//! Reading ahead for cursors that walk from block to block.

use crate::cache::block_cache::BlockClass;
use crate::cache::buffer_pool::Buffer;
use crate::cache::table_cache;
use crate::format::frame::{self, Handle};
use crate::format::node;
use crate::read::block::{Block, Payload};
use crate::read::nonblocking_read::{Nonblocking, PendingRead, Reading};
use crate::read::table::Table;
use base::Result;

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

impl Table {
    /// A data block for a cursor, through the cache. `None` when the cursor does not wait and would have to.
    #[inline]
    pub(crate) fn block_for(&self, handle: Handle, ahead: &mut Readahead) -> Result<Option<Block>> {
        let noted = ahead.hurry.wanted.take();
        // Who walks does not use a block more often than others.
        if let Some(payload) = ahead.take(self, PendingRead { handle, admitted: false })? {
            return self.block(payload, handle).map(Some);
        }
        if let Some(bytes) = self.tables().cache.get(self.block_key(handle), BlockClass::Data) {
            node::touch(&bytes);
            return self.block(Payload::Shared(bytes), handle).map(Some);
        }
        let noted = noted.filter(|wanted| wanted.handle == handle);
        let wanted = match (noted, ahead.keeps) {
            (Some(noted), _) => noted,
            (None, true) if self.tables().cache.has_room() => PendingRead { handle, admitted: true },
            (None, _) => self.want(handle),
        };
        match ahead.read(self, wanted, noted.is_some())? {
            Some(payload) => self.block(payload, handle).map(Some),
            None => Ok(None),
        }
    }
}
