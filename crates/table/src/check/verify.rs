//! Verification of a whole table: the file is opened anew, nothing is taken from memory, and every byte of the file is checked.
//!
//! The index is read first and gives the list of data blocks. Then the data is read once: each block must be the next of the
//! list, its entries must lie between its bounds, and the filter must contain all its keys.

use crate::format::decode_error::DecodeError;
use crate::format::filter;
use crate::format::footer;
use crate::format::frame::{self, Handle, Kind};
use crate::format::options::{TableMeta, TableOwner, filter_hash};
use crate::read::block::Node;
use crate::read::entry_cursor::EntryCursor;
use crate::read::index::read_filter;
use crate::read::pinned_index::Line;
use crate::read::table::Table;
use base::{Result, Trailer, compare};
use std::cmp::Ordering;

/// A key and a trailer: an entry without its value, or a bound.
type Mark = (Vec<u8>, Trailer);

impl Table {
    /// Opens the file anew, reads all of it and checks all of it: its length, every checksum, the order of the entries, that index, filter
    /// and properties agree with them, and that every byte belongs to a part of the table. Returns what was found, which equals the
    /// properties. Calls `step` after each data block with the number of bytes that are done, and returns its error when it fails: for
    /// verifications that are throttled or cancelled.
    pub fn verify(&self, step: &mut dyn FnMut(u64) -> Result<()>) -> Result<TableMeta> {
        verify(&self.anew()?, step)
    }
}

fn verify(table: &Table, step: &mut dyn FnMut(u64) -> Result<()>) -> Result<TableMeta> {
    let footer = table.root()?.footer;
    let filter = read_filter(table, &footer.filter)?;
    let leaves = read_index(table)?;
    let mut walk = Walk::new(table, filter, footer.filter.probes)?;
    let mut next = 0;
    for (i, (bound, handle)) in leaves.iter().enumerate() {
        if handle.offset != next {
            return Err(table.fault(DecodeError::Corrupt("index and data blocks do not agree"), next));
        }
        next = walk.block(*handle, bound, leaves.get(i + 1).map(|(bound, _)| bound))?;
        step(next.min(table.file_size()))?;
    }
    if next != footer.data_size {
        return Err(table.fault(DecodeError::Corrupt("data that the index does not know"), next));
    }
    let mut found = walk.finish();
    let stored = table.meta()?;
    if stored.shadowed == 0 {
        // Earlier Cairns did not count older versions.
        found.shadowed = 0;
    }
    if stored != found {
        return Err(
            table.fault(DecodeError::Corrupt("properties and data do not agree"), footer.properties.offset)
        );
    }
    step(table.file_size())?;
    Ok(found)
}

/// Reads the index from the root down; returns the bounds and handles of the data blocks.
///
/// Each level is stored before the one above it, and all levels together fill the space between filter and properties.
fn read_index(table: &Table) -> Result<Vec<(Mark, Handle)>> {
    let root = table.root()?;
    let mut level = vec![((Vec::new(), Trailer(u64::MAX)), root.footer.root)];
    let mut end = root.footer.properties.offset;
    for _ in 0..root.footer.levels {
        let mut start = end - level.iter().map(|(_, handle)| u64::from(handle.size)).sum::<u64>().min(end);
        let first = start;
        let mut below: Vec<(Mark, Handle)> = Vec::new();
        for (bound, handle) in &level {
            if handle.offset != start {
                return Err(
                    table.fault(DecodeError::Corrupt("index nodes do not follow each other"), handle.offset)
                );
            }
            start = handle.end();
            let bytes = table.read(*handle, Kind::Index, frame::MAX_PAYLOAD)?;
            let node = table.parse(bytes, Kind::Index, handle.offset)?;
            children(table, &node, bound, &mut below)?;
        }
        end = first;
        level = below;
    }
    if end != root.footer.index_start() {
        return Err(table.fault(DecodeError::Corrupt("bytes that are no part of the index"), end));
    }
    Ok(level)
}

/// Appends the entries of an index node, which begins with `bound`.
fn children(table: &Table, node: &Node, bound: &Mark, out: &mut Vec<(Mark, Handle)>) -> Result<()> {
    let fault = |f: DecodeError| table.fault(f, node.offset);
    node.layout.check_heads(&node.bytes).map_err(fault)?;
    let mut at = EntryCursor::new();
    at.enter(&node.bytes, &node.layout);
    for i in 0..node.layout.count() {
        at.move_to(&node.bytes, &node.layout, i).map_err(fault)?;
        let mark = (at.key().to_vec(), at.trailer());
        let ordered = match out.last() {
            Some((before, _)) => compare(&before.0, before.1, &mark.0, mark.1) == Ordering::Less,
            None => true,
        };
        if !ordered || (i == 0 && mark != *bound) {
            return Err(fault(DecodeError::Corrupt("index entries are out of order")));
        }
        out.push((mark, node.layout.handle(&node.bytes, i).map_err(fault)?));
    }
    Ok(())
}

/// The data that was read so far.
struct Walk<'a> {
    table: &'a Table,
    filter: Vec<Line>,
    probes: u8,
    owner: Option<TableOwner>,
    last: Option<Mark>,
    at: EntryCursor,
    meta: TableMeta,
}

impl<'a> Walk<'a> {
    fn new(table: &'a Table, filter: Vec<Line>, probes: u8) -> Result<Self> {
        let meta = TableMeta::empty(table.number(), table.file_size());
        let owner = table.owner()?;
        Ok(Walk { table, filter, probes, owner, last: None, at: EntryCursor::new(), meta })
    }

    /// Checks the data block at `handle`, with entries in `bound..next`, and the zero padding after it. Returns the end of the padding.
    fn block(&mut self, handle: Handle, bound: &Mark, next: Option<&Mark>) -> Result<u64> {
        let frame = self.table.read_frame(handle, frame::MAX_PAYLOAD)?;
        let behind = frame::next_offset(handle.offset, &frame);
        let padded = frame::is_padded(&frame);
        let opened = frame::open(frame, self.table.place(handle.offset, Kind::Data), frame::MAX_PAYLOAD);
        let bytes = opened.map_err(|f| self.table.fault(f, handle.offset))?;
        if padded {
            self.padding(handle.end(), behind)?;
        }
        let node = self.table.parse(bytes, Kind::Data, handle.offset)?;
        node.layout.check_heads(&node.bytes).map_err(|f| self.table.fault(f, handle.offset))?;
        self.at.enter(&node.bytes, &node.layout);
        for i in 0..node.layout.count() {
            let checked = self.at.move_to(&node.bytes, &node.layout, i).and_then(|()| {
                self.entry(self.at.value(&node.bytes), if i == 0 { Some(bound) } else { None })
            });
            checked.map_err(|f| self.table.fault(f, handle.offset))?;
        }
        let inside =
            next.is_none_or(|b| compare(self.at.key(), self.at.trailer(), &b.0, b.1) == Ordering::Less);
        if inside {
            Ok(behind)
        } else {
            Err(self.table.fault(DecodeError::Corrupt("entries outside their bounds"), handle.offset))
        }
    }

    /// Checks the padding between two data blocks.
    fn padding(&self, from: u64, to: u64) -> Result<()> {
        let footer = self.table.root()?.footer;
        if footer.version == footer::UNPADDED || to > footer.data_size {
            return Err(self.table.fault(DecodeError::Corrupt("no zeros can follow this block"), from));
        }
        let mut zeros = vec![0; (to - from) as usize];
        self.table.read_in_background(&mut zeros, from)?;
        match zeros.iter().all(|byte| *byte == 0) {
            true => Ok(()),
            false => Err(self.table.fault(DecodeError::Corrupt("bytes between two data blocks"), from)),
        }
    }

    /// Checks the current entry against the one before it, the bound and the filter, and adds it to the properties.
    fn entry(&mut self, value: &[u8], bound: Option<&Mark>) -> std::result::Result<(), DecodeError> {
        let (key, trailer) = (self.at.key(), self.at.trailer());
        if bound.is_some_and(|b| compare(&b.0, b.1, key, trailer) == Ordering::Greater) {
            return Err(DecodeError::Corrupt("entries outside their bounds"));
        }
        if let Some((last_key, last)) = &self.last
            && compare(last_key, *last, key, trailer) != Ordering::Less
        {
            return Err(DecodeError::Corrupt("entries are out of order"));
        }
        if self.probes > 0 {
            let hash = filter_hash(self.owner.as_ref(), key);
            let line = &self.filter[filter::line(hash, self.filter.len() as u64) as usize].0;
            if !filter::line_may_contain(line, hash, self.probes) {
                return Err(DecodeError::Corrupt("the filter lacks a key"));
            }
        }
        if self.meta.entries == 0 {
            self.meta.smallest = key.to_vec();
        }
        let same_key = self.last.as_ref().is_some_and(|(last, _)| last == key);
        self.meta.count(same_key, trailer, key.len(), value.len());
        if trailer.is_reference() && !self.meta.count_reference(value) {
            return Err(DecodeError::Corrupt("a reference to a value is malformed"));
        }
        let last = self.last.get_or_insert_with(|| (Vec::new(), trailer));
        last.0.clear();
        last.0.extend_from_slice(key);
        last.1 = trailer;
        Ok(())
    }

    fn finish(mut self) -> TableMeta {
        self.meta.largest = self.last.take().map_or_else(Vec::new, |(key, _)| key);
        self.meta
    }
}
