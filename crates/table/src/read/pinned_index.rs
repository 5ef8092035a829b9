//! What stays in memory with a table that is read: its whole filter, and the index nodes below the root.
//!
//! A probe of a filter in memory is one cache line, and a step down the index a binary search; by way of the block cache
//! each would be a look-up in a shared map, and the first ones a read of the file each. So the first use of a table reads both in a few
//! large reads, verifies every block once, and pins them: the block cache gives up as much of its budget
//! ([`BlockCache::pin`](crate::BlockCache::pin)). Where the budget does not allow that, and where anything at all is wrong with
//! one of these blocks, the table does without: filter partitions and nodes come one by one through the cache, so that damage to one
//! of them concerns those alone who need it.

use crate::cache::block_cache::Pin;
use crate::format::filter::{self, LINE};
use crate::format::frame::Handle;
use crate::read::block::Node;

/// What the allocator and the lists keep per node beside its bytes, about.
const NODE_OVERHEAD: u64 = 160;

/// What a node takes in memory.
fn node_bytes(node: &Node) -> u64 {
    node.bytes.len() as u64 + NODE_OVERHEAD
}

/// A line of the filter, where one cache line holds it.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub(crate) struct Line(pub [u8; LINE]);

/// Filter and index of one table. They count in the budget of the block cache for as long as they are here.
pub(crate) struct PinnedIndex {
    lines: Vec<Line>,
    probes: u8,
    /// Where the nodes lie in the file, ascending, and the nodes.
    handles: Vec<Handle>,
    nodes: Vec<Node>,
    _pin: Pin,
}

impl PinnedIndex {
    /// What lines and nodes take in memory.
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

    /// The line of the filter where the key with this hash has its bits. There must be a filter.
    #[inline]
    fn line(&self, hash: u64) -> &[u8; LINE] {
        &self.lines[filter::line(hash, self.lines.len() as u64) as usize].0
    }

    /// Whether the key with this hash may be in the table.
    #[inline]
    pub(crate) fn may_contain(&self, hash: u64) -> bool {
        self.probes == 0 || filter::line_may_contain(self.line(hash), hash, self.probes)
    }

    /// Has the processor load the line that [`PinnedIndex::may_contain`] will look at.
    #[inline]
    pub(crate) fn touch(&self, hash: u64) -> u8 {
        if self.probes == 0 { 0 } else { self.line(hash)[0] }
    }

    /// The index node at `handle`. `hint` is as in [`PinnedIndex::place`].
    #[inline]
    pub(crate) fn node(&self, handle: Handle, hint: usize) -> Option<&Node> {
        self.nodes.get(self.place(handle, hint)?)
    }

    /// Which of the nodes is the one at `handle`. `hint`: which child of its parent it may be; in an index of two levels, as most are, it has
    /// that number here, too.
    #[inline]
    pub(crate) fn place(&self, handle: Handle, hint: usize) -> Option<usize> {
        if self.handles.get(hint) == Some(&handle) {
            return Some(hint);
        }
        let at = self.handles.partition_point(|h| h.offset < handle.offset);
        (*self.handles.get(at)? == handle).then_some(at)
    }

    /// The node with that number.
    #[inline]
    pub(crate) fn node_at(&self, place: usize) -> Option<&Node> {
        self.nodes.get(place)
    }
}
