//! A position inside one node: the current entry, with its key assembled in a buffer that is reused; or nowhere, because of the end or
//! of an error.
//!
//! Within a node only the part of the key after the shared prefix is rewritten from entry to entry.

use crate::format::decode_error::DecodeError;
use crate::format::node::Layout;
use base::{Error, Result, Trailer};

/// Bytes that most keys have after the prefix of their node.
const MAX_SUFFIXES: usize = 24;

/// The current entry of a node. The owner of the cursor holds the bytes and the layout of the node.
pub(crate) struct EntryCursor {
    key: Vec<u8>,
    prefix: usize,
    index: usize,
    trailer: Trailer,
    value: (usize, usize),
    valid: bool,
    /// The error of the last move.
    error: Option<Error>,
}

impl EntryCursor {
    pub(crate) fn new() -> Self {
        EntryCursor {
            key: Vec::new(),
            prefix: 0,
            index: 0,
            trailer: Trailer(0),
            value: (0, 0),
            valid: false,
            error: None,
        }
    }

    /// Enters a node. Call it before [`EntryCursor::move_to`] whenever the node changes.
    pub(crate) fn enter(&mut self, node: &[u8], layout: &Layout) {
        let prefix = layout.prefix(node);
        self.key.clear();
        self.key.reserve(prefix.len() + MAX_SUFFIXES);
        self.key.extend_from_slice(prefix);
        self.prefix = prefix.len();
    }

    /// Stands on entry `i`, which must be below the node's count.
    #[inline]
    pub(crate) fn move_to(
        &mut self,
        node: &[u8],
        layout: &Layout,
        i: usize,
    ) -> std::result::Result<(), DecodeError> {
        let entry = layout.entry(node, i)?;
        self.key.truncate(self.prefix);
        self.key.extend_from_slice(&entry.head);
        if entry.suffix_len > 8 {
            self.key.extend_from_slice(entry.rest(node));
        } else {
            self.key.truncate(self.prefix + entry.suffix_len);
        }
        self.index = i;
        self.trailer = entry.trailer;
        self.value = (entry.value_start, entry.value_end);
        self.valid = true;
        Ok(())
    }

    /// Whether the cursor stands on an entry.
    #[inline]
    pub(crate) fn valid(&self) -> bool {
        self.valid
    }

    /// Leaves the entry: the beginning of a move that may end nowhere.
    pub(crate) fn leave(&mut self) {
        self.valid = false;
    }

    /// Keeps the error of a move, for steps that follow it.
    pub(crate) fn settle(&mut self, moved: Result<()>) -> Result<()> {
        self.error = moved.clone().err();
        moved
    }

    /// The result of a step from nowhere: the error of the last move.
    #[cold]
    pub(crate) fn nowhere(&self) -> Result<()> {
        debug_assert!(self.error.is_some(), "a step from nowhere");
        self.error.clone().map_or(Ok(()), Err)
    }

    #[inline]
    pub(crate) fn index(&self) -> usize {
        self.index
    }

    #[inline]
    pub(crate) fn key(&self) -> &[u8] {
        &self.key
    }

    #[inline]
    pub(crate) fn trailer(&self) -> Trailer {
        self.trailer
    }

    #[inline]
    pub(crate) fn value<'a>(&self, node: &'a [u8]) -> &'a [u8] {
        &node[self.value.0..self.value.1]
    }
}
