//! Reading without waiting: how many blocks are on their way from the disk at once, without a thread for each.
//!
//! Who has several places to look at begins with all of them before he waits for any. A block that the operating system has in memory
//! is read at once, by the one call that would have read it anyway. For one that it has not, the disk is asked
//! ([`env::ReadFile::will_need`]), and the look-up is put off: what it wants is noted ([`PendingRead`]), and it goes on from there, with a read
//! that waits, when all others have begun. By then the disk has been working on all of them together, and the wait for the first is
//! nearly the wait for all. Nothing but the note is kept meanwhile.
//!
//! Index nodes and filters that do not stay with their table are waited for on the way: they are used often, and are hardly ever
//! missing from the cache.

use crate::cache::block_cache::BlockClass;
use crate::cache::buffer_pool::Buffer;
use crate::cache::table_cache;
use crate::format::frame::{self, Handle, Kind};
use crate::format::node::Layout;
use crate::read::block::{Block, MAX_OWN, Payload};
use crate::read::prefetch::PIECE;
use crate::read::table::Table;
use base::Result;
use base::planted::{Bug, planted};

/// A data block that somebody wants, and that is not in the cache.
#[derive(Clone, Copy, Debug)]
pub struct PendingRead {
    pub(crate) handle: Handle,
    /// Whether it is to be cached. Asked once for each read of a block, however many steps that takes.
    pub(crate) admitted: bool,
}

impl PendingRead {
    /// Bytes of the block, as it is stored.
    pub fn bytes(&self) -> u64 {
        u64::from(self.handle.size)
    }
}

/// Whether a look-up waits for the disk.
pub(crate) enum Reading<'a> {
    /// It does.
    Waits,
    /// It asks for what it would wait for, and notes that here.
    Asks(&'a mut Option<PendingRead>),
}

impl Table {
    /// A block that was not found in the cache.
    pub(crate) fn want(&self, handle: Handle) -> PendingRead {
        PendingRead { handle, admitted: self.tables().cache.admits(self.block_key(handle)) }
    }

    /// Fills `bytes` with the frame of a block, or asks for it. Whether it was read.
    pub(crate) fn fetch(
        &self,
        bytes: &mut [u8],
        wanted: PendingRead,
        reading: &mut Reading<'_>,
    ) -> Result<bool> {
        let offset = wanted.handle.offset;
        match reading {
            Reading::Waits if !self.warm.may_warm(&self.tables, &self.file, offset) => {
                self.read_at(bytes, offset)?
            }
            Reading::Waits => {
                if !self.try_read_cached(bytes, offset)? {
                    self.read_at(bytes, offset)?;
                    self.note_waited(offset);
                }
            }
            Reading::Asks(noted) => {
                if !self.try_read_cached(bytes, offset)? && !planted(Bug::TakeShortRead) {
                    self.will_need(offset, bytes.len() as u64);
                    **noted = Some(wanted);
                    return Ok(false);
                }
            }
        }
        table_cache::note_block_read();
        Ok(true)
    }

    /// The payload of a data block, from the file; `None` when it was asked for. What the cache is to have is put in.
    pub(crate) fn read_block(
        &self,
        wanted: PendingRead,
        reading: &mut Reading<'_>,
    ) -> Result<Option<Payload>> {
        let handle = wanted.handle;
        self.check_handle(handle, frame::MAX_PAYLOAD)?;
        let mut frame = self.buffer_for(wanted);
        if !self.fetch(&mut frame, wanted, reading)? {
            return Ok(None);
        }
        self.open_block(frame, wanted).map(Some)
    }

    /// Where the frame of a data block goes: a buffer that is used again, or, where the block is to be shared, one of its very size.
    pub(crate) fn buffer_for(&self, wanted: PendingRead) -> Buffer {
        let size = wanted.handle.size as usize;
        if wanted.admitted || size > MAX_OWN { Buffer::new(size) } else { Buffer::of(size) }
    }

    /// The payload of the data block whose frame this is.
    pub(crate) fn open_block(&self, frame: Buffer, wanted: PendingRead) -> Result<Payload> {
        let PendingRead { handle, admitted } = wanted;
        let (place, fault) = (self.place(handle.offset, Kind::Data), |f| self.fault(f, handle.offset));
        if !admitted && frame.len() <= MAX_OWN {
            return Payload::open(frame, place).map_err(fault);
        }
        let bytes = frame::open(frame.into_vec(), place, frame::MAX_PAYLOAD).map_err(fault)?;
        if admitted {
            self.tables.cache.insert(self.block_key(handle), BlockClass::Data, bytes.clone());
        }
        Ok(Payload::Shared(bytes))
    }

    #[inline]
    pub(crate) fn block(&self, payload: Payload, handle: Handle) -> Result<Block> {
        let layout = Layout::parse(&payload, false).map_err(|f| self.fault(f, handle.offset))?;
        Ok(Block { payload, layout, offset: handle.offset })
    }

    #[cold]
    fn note_waited(&self, offset: u64) {
        if let Some(piece) = self.warm.note_waited(&self.tables, &self.file, offset) {
            self.load(piece, PIECE);
        }
    }
}

/// Whether a cursor may wait, and what it would have waited for.
#[derive(Default)]
pub(crate) struct Nonblocking {
    pub on: bool,
    pub wanted: Option<PendingRead>,
}
