//! The rows of a size-class table in memory, where the budget of the block cache allows it: a search then finds its page in a small array of
//! heads and touches no other, and reads no file.
//!
//! Rows may be as large as the values. So their memory is taken from the budget before they are read, one thread reads them, and the others go
//! by pages meanwhile, as all do where the budget does not suffice. Whether it does is asked again at each use. `row_pages.rs` loads them.

use crate::cache::block_cache::Pin;
use crate::format::frame::{self, Handle};
use crate::format::rows::PageHeads;
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;

/// The rows of one table, once they are pinned.
#[derive(Default)]
pub(crate) struct RowsCell {
    pub pinned: OnceLock<Box<PinnedRows>>,
    /// Whether a thread reads them, or has found that they cannot be read.
    pub is_taken: AtomicBool,
}

/// All pages of rows, accounted in the budget of the block cache.
pub(crate) struct PinnedRows {
    /// The pages with their frames, from `offset` in the file on.
    pub pages: Vec<u8>,
    pub offset: u64,
    /// The heads of the pages of each class.
    pub heads: Vec<PageHeads>,
    pub _pin: Pin,
}

impl PinnedRows {
    /// Where the payload of the page at `handle` begins.
    #[inline]
    pub(crate) fn place(&self, handle: Handle) -> Option<usize> {
        let start = usize::try_from(handle.offset.checked_sub(self.offset)?).ok()?;
        let end = start.checked_add(handle.size as usize)?;
        (end <= self.pages.len()).then_some(start + frame::HEADER_LEN)
    }

    /// The payload of `len` bytes that begins at `start`.
    #[inline]
    pub(crate) fn payload(&self, start: usize, len: usize) -> &[u8] {
        &self.pages[start..start + len]
    }

    /// The heads of the pages of the class with this number.
    #[inline]
    pub(crate) fn heads(&self, class: usize) -> Option<&PageHeads> {
        self.heads.get(class)
    }
}
