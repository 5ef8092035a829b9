//! Finds intact blocks in a damaged table file. Each block contains its length, and a checksum that is bound to this file and this offset,
//! so a block that verifies was written at this place.

use crate::format::compression;
use crate::format::decode_error::DecodeError;
use crate::format::frame::{self, HEADER_LEN, Kind};
use base::Result;
use base::checksum::Place;
use env::Env;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

/// Bytes per read.
const READ: usize = 64 << 10;
/// Maximum size of a block that the search byte by byte finds. Larger ones are found only after an intact block.
const SEARCHED_BLOCK: u64 = 8 << 20;
/// Minimum bytes of a data block's payload: the header of a node.
const MIN_PAYLOAD: u64 = 16;

/// Reads blocks of one file. The file is opened for each read, so that many tables can be read at once.
pub(super) struct IntactBlocks {
    env: Arc<dyn Env>,
    pub(super) path: PathBuf,
    pub(super) number: u64,
    /// Length of the file.
    pub(super) len: u64,
    window: Window,
    /// The payload of the last block that was read.
    pub(super) payload: Vec<u8>,
    /// The first intact block that was found with a compression that this version or this build does not have, with its offset.
    refused: Arc<OnceLock<(DecodeError, u64)>>,
}

#[derive(Default)]
struct Window {
    bytes: Vec<u8>,
    offset: u64,
}

impl IntactBlocks {
    /// The file at `path`, which is `len` bytes long, and that of table `number`.
    pub(super) fn new(env: Arc<dyn Env>, path: PathBuf, number: u64, len: u64) -> IntactBlocks {
        let (window, payload, refused) = (Window::default(), Vec::new(), Arc::default());
        IntactBlocks { env, path, number, len, window, payload, refused }
    }

    /// The same file, with a window and a block of its own.
    pub(super) fn again(&self) -> IntactBlocks {
        let refused = self.refused.clone();
        IntactBlocks {
            refused,
            ..IntactBlocks::new(self.env.clone(), self.path.clone(), self.number, self.len)
        }
    }

    /// Fails if an intact block was found that another program can read: it is not damage.
    ///
    /// # Errors
    /// `Unsupported` with file and offset.
    pub(super) fn check_readable(&self) -> Result<()> {
        self.refused.get().map_or(Ok(()), |(why, offset)| Err(why.at(&self.path, *offset)))
    }

    /// Reads the block at `offset`, if it is intact and of one of these kinds, into `payload`. Returns its kind, and the offset of the
    /// next block.
    pub(super) fn block(&mut self, offset: u64, kinds: &[Kind]) -> Option<(Kind, u64)> {
        let end = self.len;
        if offset.checked_add(HEADER_LEN as u64)? > end {
            return None;
        }
        let header = *self.read(offset, HEADER_LEN as u64).first_chunk::<HEADER_LEN>()?;
        let len = frame::claimed_len(&header);
        if len > end - offset || len > (frame::MAX_PAYLOAD + HEADER_LEN) as u64 {
            return None;
        }
        self.read(offset, len);
        let number = self.number;
        let place = |kind: Kind| Place { file: number, offset, kind: kind as u8 };
        let start = (offset - self.window.offset) as usize;
        let bytes = &self.window.bytes[start..start + len as usize];
        for &kind in kinds {
            let Ok((codec, payload)) = frame::check(bytes, place(kind)) else { continue };
            let padded = matches!(kind, Kind::Data | Kind::Values);
            let next = if padded { frame::next_offset(offset, bytes) } else { offset + len };
            if compression::is_raw(codec) {
                self.payload.clear();
                self.payload.extend_from_slice(payload);
            } else if let Err(e) =
                compression::decompress(codec, payload, frame::MAX_PAYLOAD, &mut self.payload)
            {
                if !matches!(e, DecodeError::Corrupt(_)) {
                    self.refused.get_or_init(|| (e, offset));
                }
                return None;
            }
            return Some((kind, next));
        }
        None
    }

    /// The offset of the next intact block of one of these kinds after a damaged one; `end` if there is none before it, or if the salvage fails
    /// anyhow, as [`IntactBlocks::check_readable`] tells.
    pub(super) fn search(&mut self, bad: u64, end: u64, kinds: &[Kind]) -> u64 {
        if self.refused.get().is_some() {
            return end;
        }
        let claimed = self.claimed_len(bad);
        let next = bad.saturating_add(claimed);
        // Directly after it, or after padding.
        for next in [next, next.checked_next_multiple_of(frame::PAGE).unwrap_or(next)] {
            if next == end || (next < end && self.block(next, kinds).is_some()) {
                return next;
            }
        }
        (bad + 1..end)
            .find(|&offset| self.may_begin(offset, end) && self.block(offset, kinds).is_some())
            .unwrap_or(end)
    }

    /// Unverified length of the block at `offset`.
    pub(super) fn claimed_len(&mut self, offset: u64) -> u64 {
        if offset + HEADER_LEN as u64 > self.len {
            return u64::MAX;
        }
        self.read(offset, HEADER_LEN as u64).first_chunk::<HEADER_LEN>().map_or(u64::MAX, frame::claimed_len)
    }

    /// Whether the bytes at `offset` look like the header of a block before `end`, so that few checksums are computed.
    fn may_begin(&mut self, offset: u64, end: u64) -> bool {
        let len = self.claimed_len(offset);
        if len > SEARCHED_BLOCK || offset.saturating_add(len) > end {
            return false;
        }
        let codec = self.read(offset, HEADER_LEN as u64)[HEADER_LEN - 1] & !frame::PADDED;
        len >= MIN_PAYLOAD + HEADER_LEN as u64 && codec <= compression::LAST_CODE
    }

    /// These bytes of the file, which must lie inside it. Unreadable bytes are zeros, which fail their checksum.
    pub(super) fn read(&mut self, offset: u64, len: u64) -> &[u8] {
        let filled = self.window.offset + self.window.bytes.len() as u64;
        if offset < self.window.offset || offset + len > filled {
            let want = len.max(READ as u64).min(self.len - offset) as usize;
            self.window.bytes.clear();
            self.window.bytes.resize(want, 0);
            self.window.offset = offset;
            if let Ok(file) = self.env.open(&self.path) {
                file.read_readable_at(&mut self.window.bytes, offset);
            }
        }
        let start = (offset - self.window.offset) as usize;
        &self.window.bytes[start..start + len as usize]
    }

    /// Frees memory for other cursors of a merge.
    pub(super) fn free(&mut self) {
        self.window = Window::default();
        self.payload = Vec::new();
    }
}
