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
use crate::cache::table_cache;
use crate::format::frame::Handle;
use crate::format::node;
use crate::read::block::{Block, Payload};
use crate::read::cursor::Readahead;
use crate::read::table::Table;
use base::planted::{Bug, planted};
use base::{Result, Seq, Slice, Trailer};

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
    /// [`Table::get`], which does not wait for a data block: where it would have to, it asks the disk for the block, notes it in `wanted`,
    /// and finds nothing. [`Table::get_wanted`] goes on.
    pub fn try_get(
        &self,
        key: &[u8],
        hash: u64,
        seq: Seq,
        wanted: &mut Option<PendingRead>,
    ) -> Result<Option<(Trailer, Slice)>> {
        self.look(key, hash, seq, Reading::Asks(wanted))
    }

    /// What the block that [`Table::try_get`] has noted has of the key: reads it now, and waits.
    pub fn get_wanted(&self, wanted: PendingRead, key: &[u8], seq: Seq) -> Result<Option<(Trailer, Slice)>> {
        let trailer = Trailer::seek(seq);
        // Another key of the same batch may have brought the block into the cache meanwhile.
        let found = match self.tables().cache.get_again(self.block_key(wanted.handle)) {
            Some(bytes) => self.find(Payload::Shared(bytes), wanted.handle, key, trailer)?,
            None => self.look_in(wanted, key, trailer, &mut Reading::Waits)?,
        };
        self.note_found(found.is_some())?;
        Ok(found)
    }

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
            Reading::Waits if !self.may_warm(offset) => self.read_at(bytes, offset)?,
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

    /// Reads these bytes of the file, if the operating system has all of them in memory; whether it had.
    pub(crate) fn try_read_cached(&self, bytes: &mut [u8], offset: u64) -> Result<bool> {
        let there = self.file()?.try_read_cached(bytes, offset)?;
        if there {
            self.note_read(bytes.len());
        }
        Ok(there)
    }

    pub(crate) fn note_read(&self, bytes: usize) {
        self.tables().counters.add(table_cache::BYTES_READ, bytes as u64);
        table_cache::note_read(bytes);
        self.tables().counters.add(table_cache::READS, 1);
    }

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

/// Whether a cursor may wait, and what it would have waited for.
#[derive(Default)]
pub(crate) struct Nonblocking {
    pub on: bool,
    pub wanted: Option<PendingRead>,
}
