//! What stays in memory with a table that is read: its whole filter, and the index nodes below the root.
//!
//! A probe of a filter in memory is one cache line, and a step down the index a binary search; by way of the block cache
//! each would be a look-up in a shared map, and the first ones a read of the file each. So the first use of a table reads both in a few
//! large reads, verifies every block once, and pins them: the block cache gives up as much of its budget
//! ([`BlockCache::pin`](crate::BlockCache::pin)). Where the budget does not allow that, and where anything at all is wrong with
//! one of these blocks, the table does without: filter partitions and nodes come one by one through the cache, so that damage to one
//! of them concerns those alone who need it.

use crate::cache::block_cache::Pin;
use crate::format::compression;
use crate::format::decode_error::DecodeError;
use crate::format::filter::{self, FilterShape, LINE};
use crate::format::frame::{self, HEADER_LEN, Handle, Kind};
use crate::read::table::{Node, Table};
use base::{Result, Slice};

/// Bytes per read, about.
const READ: usize = 512 << 10;

/// What the allocator and the lists keep per node beside its bytes, about.
const NODE_OVERHEAD: u64 = 160;

/// What a node takes in memory.
fn node_bytes(node: &Node) -> u64 {
    node.bytes.len() as u64 + NODE_OVERHEAD
}

/// A line of the filter, where one cache line holds it.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line([u8; LINE]);

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
    /// Reads and verifies filter and index of `table`, if the budget allows it. An error says that some block is not sound, or could
    /// not be read.
    pub(crate) fn load(table: &Table) -> Result<Option<PinnedIndex>> {
        let footer = table.root()?.footer;
        let lines = read_filter(table, &footer.filter)?;
        let (handles, nodes) = read_index(table, footer.index_start(), footer.root.offset)?;
        let bytes = (lines.len() * LINE) as u64 + nodes.iter().map(node_bytes).sum::<u64>();
        let pin = table.tables().cache().pin(bytes);
        Ok(pin.map(|pin| PinnedIndex { lines, probes: footer.filter.probes, handles, nodes, _pin: pin }))
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

/// The lines of all partitions, which lie one behind another.
fn read_filter(table: &Table, shape: &FilterShape) -> Result<Vec<Line>> {
    let stored = shape.partition_len() + HEADER_LEN;
    let mut lines = Vec::with_capacity(shape.partitions as usize * shape.lines as usize);
    let mut buffer = Vec::new();
    let at_a_time = (READ / stored).max(1) as u32;
    for first in (0..shape.partitions).step_by(at_a_time as usize) {
        let many = at_a_time.min(shape.partitions - first);
        buffer.resize(many as usize * stored, 0);
        table.read_at(&mut buffer, shape.handle(first).offset)?;
        for (i, block) in buffer.chunks_exact(stored).enumerate() {
            let offset = shape.handle(first + i as u32).offset;
            let checked = frame::check(block, table.place(offset, Kind::Filter));
            let (codec, payload) = checked.map_err(|f| table.fault(f, offset))?;
            if !compression::is_raw(codec) {
                return Err(table.fault(DecodeError::Corrupt("a filter partition is compressed"), offset));
            }
            lines.extend(payload.as_chunks::<LINE>().0.iter().map(|line| Line(*line)));
        }
    }
    Ok(lines)
}

/// All nodes from `start` to `end`, which lie one behind another.
fn read_index(table: &Table, start: u64, end: u64) -> Result<(Vec<Handle>, Vec<Node>)> {
    let (mut handles, mut nodes) = (Vec::new(), Vec::new());
    let mut buffer: Vec<u8> = Vec::new();
    // Where in the file the buffer begins, and the next node.
    let (mut from, mut at) = (start, start);
    while at < end {
        let whole = |buffer: &[u8]| {
            let header = buffer.get((at - from) as usize..)?.first_chunk::<HEADER_LEN>()?;
            let len = frame::claimed_len(header);
            let inside = (at - from).checked_add(len)? <= buffer.len() as u64;
            Some((len, inside))
        };
        let fault = |what| table.fault(DecodeError::Corrupt(what), at);
        let len = match whole(&buffer) {
            Some((len, true)) => len,
            // Nothing vouches for the length yet: it bounds a read, and is bounded by the index.
            other => {
                let need = other.map_or(HEADER_LEN as u64, |(len, _)| len);
                if need > end - at || (from == at && buffer.len() as u64 >= need) {
                    return Err(fault("index nodes do not follow each other"));
                }
                buffer.resize(need.max(READ as u64).min(end - at) as usize, 0);
                table.read_at(&mut buffer, at)?;
                from = at;
                continue;
            }
        };
        let block = &buffer[(at - from) as usize..][..len as usize];
        let handle = Handle { offset: at, size: len as u32 };
        table.check_handle(handle, frame::MAX_PAYLOAD)?;
        let (codec, payload) =
            frame::check(block, table.place(at, Kind::Index)).map_err(|f| table.fault(f, at))?;
        let bytes = if compression::is_raw(codec) {
            Slice::copy_from(payload)
        } else {
            let mut raw = Vec::new();
            compression::decompress(codec, payload, frame::MAX_PAYLOAD, &mut raw)
                .map_err(|f| table.fault(f, at))?;
            raw.into()
        };
        nodes.push(table.parse(bytes, Kind::Index, at)?);
        handles.push(handle);
        at += len;
    }
    Ok((handles, nodes))
}
