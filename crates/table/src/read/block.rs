//! Blocks in memory, with their structure checked: data blocks, shared with the cache or owned by one reader, and nodes of the index.

use crate::cache::buffer_pool::Buffer;
use crate::format::compression;
use crate::format::decode_error::DecodeError;
use crate::format::frame::Handle;
use crate::format::frame::{self, HEADER_LEN};
use crate::format::node::Layout;
use crate::format::options::BlockTimes;
use base::Slice;
use base::checksum::Place;
use std::ops::Deref;

/// Maximum stored size of a block that is read into a pooled [`Buffer`]. Values are copied out of such a block.
pub(crate) const MAX_OWN: usize = 32 << 10;

/// The payload of a data block, verified.
pub(crate) enum Payload {
    Shared(Slice),
    /// The bytes of the buffer from this index on.
    Own(Buffer, usize),
}

impl Payload {
    /// Verifies and decompresses a frame that was read for one reader.
    pub(crate) fn open(frame: Buffer, place: Place) -> Result<Payload, DecodeError> {
        let (codec, payload) = frame::check(&frame, place)?;
        if compression::is_raw(codec) {
            return Ok(Payload::Own(frame, HEADER_LEN));
        }
        let mut raw = Buffer::of(0);
        compression::decompress(codec, payload, frame::MAX_PAYLOAD, &mut raw)?;
        Ok(Payload::Own(raw, 0))
    }

    /// A part of the payload that outlives the block: a copy unless the payload is shared.
    pub(crate) fn slice_of(&self, part: &[u8]) -> Slice {
        match self {
            Payload::Shared(bytes) => bytes.slice_of(part),
            Payload::Own(..) => Slice::copy_from(part),
        }
    }
}

impl Deref for Payload {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Payload::Shared(bytes) => bytes,
            Payload::Own(buffer, from) => &buffer[*from..],
        }
    }
}

/// A node with its structure checked: a node of the index, or with a [`Payload`] a data block.
#[derive(Clone)]
pub(crate) struct Node<B = Slice> {
    pub bytes: B,
    pub layout: Layout,
    /// Its offset in the file, for errors.
    pub offset: u64,
}

impl Node {
    /// The block of child `child` of an index node.
    #[inline]
    pub(crate) fn handle(&self, child: usize) -> std::result::Result<Handle, DecodeError> {
        self.layout.handle(&self.bytes, child)
    }

    /// The same, with the times of the block if the index has them.
    #[inline]
    pub(crate) fn handle_and_times(
        &self,
        child: usize,
    ) -> std::result::Result<(Handle, Option<BlockTimes>), DecodeError> {
        self.layout.handle_and_times(&self.bytes, child)
    }
}
