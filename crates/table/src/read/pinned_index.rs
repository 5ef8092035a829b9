//! The part of a table that stays in memory while it is read: the whole filter, and the index nodes below the root, or the rows.
//!
//! A probe of a pinned filter reads one cache line, and a step down a pinned index is a binary search; through the block cache each
//! would be a look-up in a shared map, and at first a read of the file. So the first use of a table reads filter and index in a few large
//! reads, verifies every block once, and pins them: the block cache gives up as much of its budget
//! ([`BlockCache::pin`](crate::BlockCache::pin)). Where the budget does not suffice, or one of these blocks is damaged, nothing is
//! pinned: filter partitions and nodes come one by one through the cache, so that only reads that need a damaged block fail.
//!
//! This module holds and searches what is pinned; `index.rs` loads it.

use crate::cache::block_cache::{BlockCache, Pin};
use crate::format::filter::{self, LINE};
use crate::format::frame::{self, Handle};
use crate::format::rows::PageHeads;
use crate::read::block::Node;
use std::sync::Arc;

/// Approximate overhead of allocator and vectors per node, in bytes.
const NODE_OVERHEAD: u64 = 160;

/// Memory of a node, in bytes.
fn node_bytes(node: &Node) -> u64 {
    node.bytes.len() as u64 + NODE_OVERHEAD
}

/// A line of the filter, aligned to a cache line.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub(crate) struct Line(pub [u8; LINE]);

/// Filter and index of one table, accounted in the budget of the block cache.
pub(crate) struct PinnedIndex {
    lines: Vec<Line>,
    probes: u8,
    /// The places of the nodes in the file, ascending, and the nodes.
    handles: Vec<Handle>,
    nodes: Vec<Node>,
    /// The pages of rows with their frames, from `rows_offset` in the file on; or nothing.
    rows: Vec<u8>,
    rows_offset: u64,
    /// The heads of the pages of each class, if pages are pinned.
    heads: Vec<PageHeads>,
    pin: Option<Pin>,
}

impl PinnedIndex {
    /// The lines of all partitions, and the nodes with their places, ascending.
    pub(crate) fn of_tree(
        lines: Vec<Line>,
        probes: u8,
        handles: Vec<Handle>,
        nodes: Vec<Node>,
    ) -> PinnedIndex {
        PinnedIndex {
            lines,
            probes,
            handles,
            nodes,
            rows: Vec::new(),
            rows_offset: 0,
            heads: Vec::new(),
            pin: None,
        }
    }

    /// The lines of all partitions, and, with the heads of pages of each class, the pages of rows from `rows_offset` in the file on, with their frames.
    pub(crate) fn of_rows(
        lines: Vec<Line>,
        probes: u8,
        (rows, heads): (Vec<u8>, Vec<PageHeads>),
        rows_offset: u64,
    ) -> PinnedIndex {
        PinnedIndex {
            rows,
            rows_offset,
            heads,
            ..PinnedIndex::of_tree(lines, probes, Vec::new(), Vec::new())
        }
    }

    /// The same, accounted in the budget of `cache`; `None` if that does not allow it.
    pub(crate) fn accounted(mut self, cache: &Arc<BlockCache>) -> Option<PinnedIndex> {
        let nodes = self.nodes.iter().map(node_bytes).sum::<u64>();
        let heads = self.heads.iter().map(PageHeads::memory).sum::<usize>();
        let pin = cache.pin((self.lines.len() * LINE + self.rows.len() + heads) as u64 + nodes)?;
        self.pin = Some(pin);
        Some(self)
    }

    /// Where the payload of the page of rows at `handle` begins in what is pinned, if pages are.
    #[inline]
    pub(crate) fn row_page(&self, handle: Handle) -> Option<usize> {
        let start = usize::try_from(handle.offset.checked_sub(self.rows_offset)?).ok()?;
        let end = start.checked_add(handle.size as usize)?;
        (end <= self.rows.len()).then_some(start + frame::HEADER_LEN)
    }

    /// The heads of the pages of the class with this number, if pages are pinned.
    #[inline]
    pub(crate) fn page_heads(&self, class: usize) -> Option<&PageHeads> {
        self.heads.get(class)
    }

    /// The payload of the page of rows that begins at `start`, of `len` bytes.
    #[inline]
    pub(crate) fn rows_at(&self, start: usize, len: usize) -> &[u8] {
        &self.rows[start..start + len]
    }

    #[inline]
    pub(crate) fn has_filter(&self) -> bool {
        self.probes > 0
    }

    /// The line of the filter with the bits of the key with this hash. There must be a filter.
    #[inline]
    fn line(&self, hash: u64) -> &[u8; LINE] {
        &self.lines[filter::line(hash, self.lines.len() as u64) as usize].0
    }

    /// Whether the key with this hash may be in the table.
    #[inline]
    pub(crate) fn may_contain(&self, hash: u64) -> bool {
        self.probes == 0 || filter::line_may_contain(self.line(hash), hash, self.probes)
    }

    /// The index node at `handle`. `hint` is as in [`PinnedIndex::place`].
    #[inline]
    pub(crate) fn node(&self, handle: Handle, hint: usize) -> Option<&Node> {
        self.nodes.get(self.place(handle, hint)?)
    }

    /// The number of the node at `handle`. `hint`: its number among its siblings; in an index of two levels, as most are, this is the
    /// number itself.
    #[inline]
    pub(crate) fn place(&self, handle: Handle, hint: usize) -> Option<usize> {
        if self.handles.get(hint) == Some(&handle) {
            return Some(hint);
        }
        let at = self.handles.partition_point(|h| h.offset < handle.offset);
        (*self.handles.get(at)? == handle).then_some(at)
    }

    /// The node with this number.
    #[inline]
    pub(crate) fn node_at(&self, place: usize) -> Option<&Node> {
        self.nodes.get(place)
    }
}
