//! Reads of data blocks that do not wait: many blocks are in flight at once, without a thread for each.
//!
//! A caller with several look-ups starts all of them before it waits for any. A block in the page cache is read at once, by the call
//! that would have read it anyway. For any other block the disk is asked ([`env::ReadFile::will_need`]), and the look-up is put off: it
//! returns a [`PendingRead`], and continues from there with a read that waits, once all others have started. By then the disk has worked
//! on all of them together, so the wait for the first is nearly the wait for all. A look-up that was put off keeps nothing but the
//! `PendingRead`.
//!
//! Look-ups wait for index nodes and filters that are not pinned: these are used often and are rarely missing from the cache. They wait for
//! pages of rows, too, which are often missing where rows are larger than the cache.
//!
//! Callers: `get.rs` for look-ups, `readahead.rs` for cursors. A look-up that must not wait at all is in `get_now.rs`.

use crate::cache::block_cache::BlockClass;
use crate::cache::buffer_pool::Buffer;
use crate::cache::read_policy::PIECE;
use crate::format::frame::{self, Handle, Kind};
use crate::read::block::{MAX_OWN, Node, Payload};
use crate::read::row_pages::FoundRow;
use crate::read::table::Table;
use base::Result;
use base::planted::{Bug, planted};
use std::sync::atomic::Ordering;

/// A data block that a look-up needs and that is not in the cache.
#[derive(Clone, Copy, Debug)]
pub struct PendingRead {
    pub(crate) handle: Handle,
    /// Whether the block is to be cached. Decided once per read of the block, however many steps the read takes.
    pub(crate) admitted: bool,
    /// The version that was found, whose value the block has. In a B+-tree the block is searched.
    pub(crate) row: Option<FoundRow>,
}

impl PendingRead {
    /// Stored size of the block, in bytes.
    pub fn bytes(&self) -> u64 {
        u64::from(self.handle.size)
    }
}

/// Whether a look-up waits for the disk.
pub(crate) enum Reading<'a> {
    /// It waits.
    Waits,
    /// It asks the disk for the block instead of waiting, and stores the block here.
    Asks(&'a mut Option<PendingRead>),
}

impl Table {
    /// The read of a block that the cache does not have; asks the cache for admission.
    pub(crate) fn want(&self, handle: Handle) -> PendingRead {
        PendingRead { handle, admitted: self.tables().cache.admits(self.block_key(handle)), row: None }
    }

    /// Reads a data or value block from the file, and inserts it into the cache if it was admitted. `None`: the disk was asked for it.
    pub(crate) fn read_block(
        &self,
        wanted: PendingRead,
        reading: &mut Reading<'_>,
    ) -> Result<Option<Payload>> {
        let handle = wanted.handle;
        self.check_handle(handle, frame::MAX_PAYLOAD)?;
        let mut frame = self.buffer_for(wanted);
        match reading {
            Reading::Waits => {
                let counts = self.counts_waits(handle.offset);
                if self.read_at(&mut frame, handle.offset, counts)? {
                    self.note_waited(handle.offset);
                }
            }
            Reading::Asks(noted) => {
                if !self.try_read_cached(&mut frame, handle.offset)? && !planted(Bug::TakeShortRead) {
                    self.will_need(handle.offset, handle.size.into());
                    **noted = Some(wanted);
                    return Ok(None);
                }
            }
        }
        self.open_block(frame, wanted).map(Some)
    }

    /// A buffer for the frame of a data block: a pooled one, or for a shared block one of exactly its size.
    pub(crate) fn buffer_for(&self, wanted: PendingRead) -> Buffer {
        let size = wanted.handle.size as usize;
        if wanted.admitted || size > MAX_OWN { Buffer::new(size) } else { Buffer::of(size) }
    }

    /// Verifies and decompresses the frame of a data block, and inserts the payload into the cache if it was admitted.
    pub(crate) fn open_block(&self, frame: Buffer, wanted: PendingRead) -> Result<Payload> {
        let PendingRead { handle, admitted, .. } = wanted;
        let kind = self.root()?.footer.data_kind();
        let (place, fault) = (self.place(handle.offset, kind), |f| self.fault(f, handle.offset));
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
    pub(crate) fn block(&self, payload: Payload, handle: Handle) -> Result<Node<Payload>> {
        self.parse(payload, Kind::Data, handle.offset)
    }

    /// Whether a wait at `offset` may cause the load of its piece: the tables fit into memory, and it was not loaded yet.
    #[inline]
    fn counts_waits(&self, offset: u64) -> bool {
        let tables = self.tables.bytes.load(Ordering::Relaxed);
        tables <= self.tables.memory && self.prefetch.counts(self.file.size, offset)
    }

    /// Loads the piece at its second wait, if the tables fit into memory beside the block cache.
    #[cold]
    fn note_waited(&self, offset: u64) {
        let used = self.tables.bytes.load(Ordering::Relaxed) + self.tables.cache.used_bytes();
        if let Some(piece) = self.prefetch.note_waited(self.file.size, offset)
            && used <= self.tables.memory
        {
            self.will_need(piece, PIECE.min(self.file.size.saturating_sub(piece)));
        }
    }
}

/// Whether a cursor must not wait (`on`), and the block that it would have waited for.
#[derive(Default)]
pub(crate) struct Nonblocking {
    pub on: bool,
    pub wanted: Option<PendingRead>,
}
