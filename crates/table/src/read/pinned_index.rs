//! The part of a table that stays in memory while it is read: the whole filter, and the index nodes below the root. (Rows of a
//! size-class table are cached by pages.)
//!
//! A probe of a pinned filter reads one cache line, and a step down a pinned index is a binary search; through the block cache each
//! would be a look-up in a shared map, and at first a read of the file. So the first use of a table reads filter and index in a few large
//! reads, verifies every block once, and pins them: the block cache gives up as much of its budget
//! ([`BlockCache::pin`](crate::BlockCache::pin)). Where the budget does not suffice, or one of these blocks is damaged, nothing is
//! pinned: filter partitions and nodes come one by one through the cache, so that only reads that need a damaged block fail.
//!
//! This module holds and searches what is pinned; `index.rs` loads it.

use crate::cache::block_cache::Pin;
use crate::format::filter::{self, LINE};
use crate::format::frame::Handle;
use crate::read::block::Node;

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
    _pin: Pin,
}

impl PinnedIndex {
    /// Memory of lines and nodes, in bytes.
    pub(crate) fn memory(lines: &[Line], nodes: &[Node]) -> u64 {
        (lines.len() * LINE) as u64 + nodes.iter().map(node_bytes).sum::<u64>()
    }

    /// The lines of all partitions, and the nodes with their places, ascending. `pin` accounts for their memory.
    pub(crate) fn new(
        lines: Vec<Line>,
        probes: u8,
        handles: Vec<Handle>,
        nodes: Vec<Node>,
        pin: Pin,
    ) -> PinnedIndex {
        PinnedIndex { lines, probes, handles, nodes, _pin: pin }
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
