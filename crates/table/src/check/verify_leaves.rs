//! Verification of a B+-tree. The index is read first and gives the list of data blocks. Then the data is read once: each block must be the
//! next of the list, and its entries must lie between its bounds.

use crate::check::checked_entries::{CheckedEntries, Mark, read_block};
use crate::format::decode_error::DecodeError;
use crate::format::frame::{self, Handle, Kind};
use crate::format::options::BlockTimes;
use crate::read::block::Node;
use crate::read::entry_cursor::EntryCursor;
use crate::read::table::Table;
use base::{Result, Trailer, compare};
use std::cmp::Ordering;

/// Checks the data blocks of a B+-tree, and that the index leads to them.
pub(super) fn verify_leaves(
    table: &Table,
    entries: &mut CheckedEntries,
    step: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<()> {
    let leaves = read_index(table)?;
    let mut next = 0;
    for (i, Leaf { bound, handle, times }) in leaves.iter().enumerate() {
        if handle.offset != next {
            return Err(table.fault(DecodeError::Corrupt("index and data blocks do not agree"), next));
        }
        next = leaf(table, *handle, bound, leaves.get(i + 1).map(|leaf| &leaf.bound), entries)?;
        if let (Some(found), Some(times)) = (entries.take_times(), times)
            && found != *times
        {
            return Err(table.fault(
                DecodeError::Corrupt("times of the index and of the entries do not agree"),
                handle.offset,
            ));
        }
        step(next.min(table.file_size()))?;
    }
    match next == table.root()?.footer.data_size {
        true => Ok(()),
        false => Err(table.fault(DecodeError::Corrupt("data that the index does not know"), next)),
    }
}

/// A node of the index or a data block, as the level above describes it.
struct Leaf {
    bound: Mark,
    handle: Handle,
    times: Option<BlockTimes>,
}

/// Reads the index from the root down; returns what it says of the data blocks.
///
/// Each level is stored before the one above it, and all levels together fill the space between filter and properties.
fn read_index(table: &Table) -> Result<Vec<Leaf>> {
    let root = table.root()?;
    let bound = (Vec::new(), Trailer(u64::MAX));
    let mut level = vec![Leaf { bound, handle: root.footer.root, times: None }];
    let mut end = root.footer.properties.offset;
    for above in (0..root.footer.levels).rev() {
        // Only the lowest level may have times.
        let has_times = above == 0 && root.footer.is_timed();
        let mut start = end - level.iter().map(|child| u64::from(child.handle.size)).sum::<u64>().min(end);
        let first = start;
        let mut below = Vec::new();
        for Leaf { bound, handle, .. } in &level {
            if handle.offset != start {
                return Err(
                    table.fault(DecodeError::Corrupt("index nodes do not follow each other"), handle.offset)
                );
            }
            start = handle.end();
            let bytes = table.read(*handle, Kind::Index, frame::MAX_PAYLOAD)?;
            let node = table.parse(bytes, Kind::Index, handle.offset)?;
            children(table, &node, bound, has_times, &mut below)?;
        }
        end = first;
        level = below;
    }
    if end != root.footer.index_start() {
        return Err(table.fault(DecodeError::Corrupt("bytes that are no part of the index"), end));
    }
    Ok(level)
}

/// Appends the entries of an index node, which begins with the bound `first`, and has the times of its blocks or not.
fn children(table: &Table, node: &Node, first: &Mark, has_times: bool, out: &mut Vec<Leaf>) -> Result<()> {
    let fault = |f: DecodeError| table.fault(f, node.offset);
    node.layout.check_heads(&node.bytes).map_err(fault)?;
    let mut at = EntryCursor::new();
    at.enter(&node.bytes, &node.layout);
    for i in 0..node.layout.count() {
        at.move_to(&node.bytes, &node.layout, i).map_err(fault)?;
        let bound = (at.key().to_vec(), at.trailer());
        let ordered = match out.last() {
            Some(Leaf { bound: before, .. }) => {
                compare(&before.0, before.1, &bound.0, bound.1) == Ordering::Less
            }
            None => true,
        };
        if !ordered || (i == 0 && bound != *first) {
            return Err(fault(DecodeError::Corrupt("index entries are out of order")));
        }
        let (handle, times) = node.handle_and_times(i).map_err(fault)?;
        if times.is_some() != has_times {
            return Err(fault(DecodeError::Corrupt(
                "index entries with times, or without, in the wrong place",
            )));
        }
        out.push(Leaf { bound, handle, times });
    }
    Ok(())
}

/// Checks the data block at `handle`, with entries in `bound..next`, and the zero padding after it. Returns the end of the padding.
fn leaf(
    table: &Table,
    handle: Handle,
    bound: &Mark,
    next: Option<&Mark>,
    entries: &mut CheckedEntries,
) -> Result<u64> {
    let (bytes, behind) = read_block(table, handle)?;
    let fault = |f: DecodeError| table.fault(f, handle.offset);
    let node = table.parse(bytes, Kind::Data, handle.offset)?;
    node.layout.check_heads(&node.bytes).map_err(fault)?;
    let mut at = EntryCursor::new();
    at.enter(&node.bytes, &node.layout);
    for i in 0..node.layout.count() {
        at.move_to(&node.bytes, &node.layout, i).map_err(fault)?;
        let (key, trailer) = (at.key(), at.trailer());
        if i == 0 && compare(&bound.0, bound.1, key, trailer) == Ordering::Greater {
            return Err(fault(DecodeError::Corrupt("entries outside their bounds")));
        }
        entries.add(key, trailer, at.value(&node.bytes)).map_err(fault)?;
    }
    match next.is_none_or(|b| compare(at.key(), at.trailer(), &b.0, b.1) == Ordering::Less) {
        true => Ok(behind),
        false => Err(fault(DecodeError::Corrupt("entries outside their bounds"))),
    }
}
