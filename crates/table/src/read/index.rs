//! The way from the root of a B+-tree to a data block, through index nodes that are pinned or come through the block cache; and the
//! loading of what is pinned.

use crate::format::compression;
use crate::format::decode_error::DecodeError;
use crate::format::filter::{FilterShape, LINE};
use crate::format::frame::{self, Handle, Kind};
use crate::read::block::Node;
use crate::read::pinned_index::{Line, PinnedIndex};
use crate::read::table::Table;
use crate::read::window::Window;
use base::{Result, Trailer};

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
        let index = if footer.is_size_class() { footer.index_start() } else { footer.root.offset };
        if !self.tables.cache.may_pin(index - footer.data_size) {
            return None;
        }
        // Errors are ignored here: a read of the damaged block reports them.
        let loaded = load(self).ok().flatten();
        self.resident.get_or_init(|| loaded.map(Box::new)).as_deref()
    }

    /// The data block of a B+-tree where (`key`, `trailer`) belongs.
    pub(crate) fn data_handle(&self, key: &[u8], trailer: Trailer) -> Result<Handle> {
        let levels = self.root()?.footer.levels;
        let (mut handle, mut child) = self.child(self.tree_root()?, key, trailer)?;
        for _ in 1..levels {
            (handle, child) = match self.resident().and_then(|resident| resident.node(handle, child)) {
                Some(node) => self.child(node, key, trailer)?,
                None => self.child(&self.node(handle)?, key, trailer)?,
            };
        }
        Ok(handle)
    }

    #[inline]
    pub(crate) fn child(&self, node: &Node, key: &[u8], trailer: Trailer) -> Result<(Handle, usize)> {
        let child = node.layout.child(&node.bytes, key, trailer);
        let child = child.and_then(|i| Ok((node.handle(i)?, i)));
        child.map_err(|f| self.fault(f, node.offset))
    }
}

/// Reads and verifies filter and index of `table`, and pins them; `None` if the budget does not allow it. Fails if a block is damaged
/// or cannot be read. The rows of a size-class table are no part of it.
fn load(table: &Table) -> Result<Option<PinnedIndex>> {
    let footer = table.root()?.footer;
    let lines = read_filter(table, &footer.filter)?;
    let (handles, nodes) = match footer.is_size_class() {
        true => (Vec::new(), Vec::new()),
        false => read_index(table, footer.index_start(), footer.root.offset)?,
    };
    let pin = table.tables().cache().pin(PinnedIndex::memory(&lines, &nodes));
    Ok(pin.map(|pin| PinnedIndex::new(lines, footer.filter.probes, handles, nodes, pin)))
}

/// The lines of all filter partitions, which are stored one after another.
pub(crate) fn read_filter(table: &Table, shape: &FilterShape) -> Result<Vec<Line>> {
    let mut lines = Vec::with_capacity(shape.partitions as usize * shape.lines as usize);
    let mut window = Window::default();
    for i in 0..shape.partitions {
        let offset = shape.handle(i).offset;
        let range = window.frame(table, offset, shape.offset + shape.stored_len())?;
        let checked = frame::check(&window.bytes[range], table.place(offset, Kind::Filter));
        let (codec, payload) = checked.map_err(|f| table.fault(f, offset))?;
        if !compression::is_raw(codec) || payload.len() != shape.partition_len() {
            return Err(table.fault(DecodeError::Corrupt("filter partition has a wrong length"), offset));
        }
        lines.extend(payload.as_chunks::<LINE>().0.iter().map(|line| Line(*line)));
    }
    Ok(lines)
}

/// All index nodes from `start` to `end`, which are stored one after another.
fn read_index(table: &Table, start: u64, end: u64) -> Result<(Vec<Handle>, Vec<Node>)> {
    let (mut handles, mut nodes) = (Vec::new(), Vec::new());
    let mut window = Window::default();
    let mut offset = start;
    while offset < end {
        let range = window.frame(table, offset, end)?;
        let frame = window.bytes[range].to_vec();
        let handle = Handle { offset, size: frame.len() as u32 };
        let opened = frame::open(frame, table.place(offset, Kind::Index), frame::MAX_PAYLOAD);
        let bytes = opened.map_err(|f| table.fault(f, offset))?;
        nodes.push(table.parse(bytes, Kind::Index, offset)?);
        handles.push(handle);
        offset = handle.end();
    }
    Ok((handles, nodes))
}
