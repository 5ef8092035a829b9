//! The way from the root of a table to a data block, through index nodes that are pinned or come through the block cache; and the
//! loading of what is pinned.

use crate::format::compression;
use crate::format::decode_error::DecodeError;
use crate::format::filter::{FilterShape, LINE};
use crate::format::frame::{self, HEADER_LEN, Handle, Kind};
use crate::read::block::Node;
use crate::read::pinned_index::{Line, PinnedIndex};
use crate::read::table::Table;
use base::{Result, Slice, Trailer};

/// Approximate bytes per read.
const READ: usize = 512 << 10;

impl Table {
    /// The pinned filter and index, if there are any. Loaded at first use; of concurrent loads one is kept.
    #[inline]
    pub(crate) fn resident(&self) -> Option<&PinnedIndex> {
        match self.resident.get() {
            Some(resident) => resident.as_deref(),
            None => self.load_resident(),
        }
    }

    #[cold]
    fn load_resident(&self) -> Option<&PinnedIndex> {
        let footer = self.root().ok()?.footer;
        // Without room in the budget the next use tries again. A load that fails, or does not fit once decompressed, is not
        // repeated.
        if !self.tables.cache.may_pin(footer.root.offset - footer.data_size) {
            return None;
        }
        // Errors are ignored here: a read of the damaged block reports them.
        let loaded = load(self).ok().flatten();
        self.resident.get_or_init(|| loaded.map(Box::new)).as_deref()
    }

    /// The index node at `handle`, pinned or through the cache. `hint`: its number among its siblings.
    #[inline]
    pub(crate) fn index_node(&self, handle: Handle, hint: usize) -> Result<Node> {
        match self.resident().and_then(|resident| resident.node(handle, hint)) {
            Some(node) => Ok(node.clone()),
            None => self.node(handle, Kind::Index),
        }
    }

    /// The data block where (`key`, `trailer`) belongs.
    pub(crate) fn data_handle(&self, key: &[u8], trailer: Trailer) -> Result<Handle> {
        let root = self.root()?;
        let (mut handle, mut child) = self.child(&root.node, key, trailer)?;
        for _ in 1..root.footer.levels {
            (handle, child) = match self.resident().and_then(|resident| resident.node(handle, child)) {
                Some(node) => self.child(node, key, trailer)?,
                None => self.child(&self.node(handle, Kind::Index)?, key, trailer)?,
            };
        }
        Ok(handle)
    }

    #[inline]
    fn child(&self, node: &Node, key: &[u8], trailer: Trailer) -> Result<(Handle, usize)> {
        let child = node.layout.child(&node.bytes, key, trailer);
        let child = child.and_then(|i| Ok((node.handle(i)?, i)));
        child.map_err(|f| self.fault(f, node.offset))
    }

    /// Approximate number of bytes of the file before `key`, for choosing cut points. Reads index nodes only.
    pub fn approximate_offset(&self, key: &[u8]) -> Result<u64> {
        Ok(self.data_handle(key, Trailer(u64::MAX))?.offset)
    }
}

/// Reads and verifies filter and index of `table`, and pins them; `None` if the budget does not allow it. Fails if a block is damaged
/// or cannot be read.
fn load(table: &Table) -> Result<Option<PinnedIndex>> {
    let footer = table.root()?.footer;
    let lines = read_filter(table, &footer.filter)?;
    let (handles, nodes) = read_index(table, footer.index_start(), footer.root.offset)?;
    let pin = table.tables().cache().pin(PinnedIndex::memory(&lines, &nodes));
    Ok(pin.map(|pin| PinnedIndex::new(lines, footer.filter.probes, handles, nodes, pin)))
}

/// The lines of all filter partitions, which are stored one after another.
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

/// All index nodes from `start` to `end`, which are stored one after another.
fn read_index(table: &Table, start: u64, end: u64) -> Result<(Vec<Handle>, Vec<Node>)> {
    let (mut handles, mut nodes) = (Vec::new(), Vec::new());
    let mut buffer: Vec<u8> = Vec::new();
    // File offsets of the buffer and of the next node.
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
            // The length is not verified yet. It only sizes a read, and must lie inside the index.
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
