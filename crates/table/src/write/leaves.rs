//! The entries of a B+-tree: data blocks, and the index over them. `block_align.rs` decides where data blocks end.

use crate::format::footer;
use crate::format::frame::{self, Handle, Kind};
use crate::format::node_builder::{NodeBuilder, child_value};
use crate::format::options::BlockTimes;
use crate::write::block_align::BlockAligner;
use crate::write::output::Output;
use base::planted::{Bug, planted};
use base::{Result, Trailer, shared_prefix};

/// Bytes of an index node. Larger nodes make fewer levels; smaller ones waste less cache.
const INDEX_NODE: usize = 8 << 10;

/// Minimum children of an index node, however long their keys, so that each level is smaller than the one below.
const MIN_CHILDREN: usize = 4;

/// Approximate bytes of an index entry beside the key, without and with times.
const CHILD_LEN: usize = 20;
const TIMED_CHILD_LEN: usize = 33;

/// Writes data blocks, and gathers the index. Memory: one block, and a few dozen bytes per data block for the index.
pub(super) struct Leaves {
    block: NodeBuilder,
    /// Maximum bytes of the node that is being built.
    limit: usize,
    pages: BlockAligner,
    /// Lower bound of the block that is being built.
    bound: (Vec<u8>, Trailer),
    /// The times of its entries.
    times: Option<BlockTimes>,
    /// Whether an entry of the table has no times.
    has_untimed: bool,
    index: Level,
    /// Last entry of the previous block.
    last: Option<(Vec<u8>, Trailer)>,
}

/// The bounds and handles of the nodes of one level of the tree, in order.
#[derive(Default)]
struct Level {
    keys: Vec<u8>,
    children: Vec<Child>,
}

struct Child {
    key_end: usize,
    trailer: Trailer,
    handle: Handle,
    times: Option<BlockTimes>,
}

impl Leaves {
    pub(super) fn new(block_size: usize) -> Leaves {
        Leaves {
            block: NodeBuilder::new(false),
            limit: 0,
            pages: BlockAligner::new(block_size),
            bound: (Vec::new(), Trailer(u64::MAX)),
            times: None,
            has_untimed: false,
            index: Level::default(),
            last: None,
        }
    }

    /// Adds an entry, with its times if it has some. Returns whether the entry before has the same key.
    #[inline]
    pub(super) fn add(
        &mut self,
        out: &mut Output,
        key: &[u8],
        trailer: Trailer,
        value: &[u8],
        times: Option<BlockTimes>,
    ) -> Result<bool> {
        let same_key = match self.block.last_key() {
            Some(last) => out.check_order(last, (key, trailer))?,
            None => self.begin_block(out, key, trailer)?,
        };
        if self.block.count() > 0 && !self.block.fits(key, trailer, value, self.limit) {
            self.finish_block(out, NodeBuilder::len_alone(key, value))?;
            self.begin_block(out, key, trailer)?;
        }
        self.block.add(key, trailer, value);
        self.has_untimed |= times.is_none();
        if let Some(times) = times {
            let all = self.times.map_or(times, |all| all.and(times));
            self.times =
                Some(if planted(Bug::TimesOfFirstEntry) { self.times.unwrap_or(times) } else { all });
        }
        Ok(same_key)
    }

    /// Approximate bytes of the block that is being built, and of the index.
    pub(super) fn estimated_len(&self) -> u64 {
        let per_child = if self.times.is_some() { TIMED_CHILD_LEN } else { CHILD_LEN };
        let index = (self.index.keys.len() + per_child * self.index.children.len()) as u64;
        self.block.estimated_len() as u64 + index
    }

    /// Decides the bound of the block that begins with this entry. Returns whether the previous block ends with the same key.
    fn begin_block(&mut self, out: &Output, key: &[u8], trailer: Trailer) -> Result<bool> {
        self.limit = self.pages.limit(out.end()).saturating_sub(frame::HEADER_LEN);
        self.bound.0.clear();
        let Some((last_key, last)) = &self.last else {
            // Nothing precedes the first block: its bound is the empty key.
            self.bound.1 = Trailer(u64::MAX);
            return Ok(false);
        };
        let same_key = out.check_order((last_key, *last), (key, trailer))?;
        if same_key {
            // Just after the last version in the previous block, so that a search between the two leads here.
            self.bound.0.extend_from_slice(key);
            self.bound.1 = Trailer(last.0 - 1);
        } else {
            let len = shared_prefix(last_key, key) + 1;
            self.bound.0.extend_from_slice(&key[..len]);
            self.bound.1 = Trailer(u64::MAX);
        }
        Ok(same_key)
    }

    /// Writes the block that was built. A node with the next entry alone would have `next` bytes; 0: there is no next entry.
    fn finish_block(&mut self, out: &mut Output, next: usize) -> Result<()> {
        let Some((key, trailer)) = self.block.last_key() else { return Ok(()) };
        let (last_key, last) = self.last.get_or_insert_with(|| (Vec::new(), trailer));
        last_key.clear();
        last_key.extend_from_slice(key);
        *last = trailer;
        let block = &mut self.block;
        let handle = out.aligned_block(Kind::Data, &mut self.pages, next, |bytes| block.write_to(bytes));
        self.index.push(&self.bound.0, self.bound.1, handle, self.times.take());
        out.flush()
    }

    /// Writes the last block. Returns the largest key.
    pub(super) fn finish(&mut self, out: &mut Output) -> Result<Vec<u8>> {
        self.finish_block(out, 0)?;
        Ok(self.last.take().map_or_else(Vec::new, |(key, _)| key))
    }

    /// Writes the index from the level above the data up to the root; returns the version of the format, the root and the number of levels.
    pub(super) fn write_index(&mut self, out: &mut Output) -> Result<(u32, Handle, u8)> {
        let mut below = std::mem::take(&mut self.index);
        if self.has_untimed {
            below.children.iter_mut().for_each(|child| child.times = None);
        }
        let version = if self.has_untimed { footer::VERSION } else { footer::TIMED };
        let mut levels = 0;
        loop {
            below = write_level(out, &below)?;
            levels += 1;
            if let [root] = &below.children[..] {
                return Ok((version, root.handle, levels));
            }
        }
    }
}

/// Writes the index nodes over one level.
fn write_level(out: &mut Output, below: &Level) -> Result<Level> {
    let mut level = Level::default();
    let mut node = NodeBuilder::new(true);
    let mut first: Option<(&[u8], Trailer)> = None;
    let (mut key_start, mut value) = (0, Vec::new());
    for child in &below.children {
        let key = &below.keys[key_start..child.key_end];
        key_start = child.key_end;
        child_value(&mut value, child.handle, child.times);
        if node.count() >= MIN_CHILDREN
            && node.estimated_len() + node.estimated_cost(key, &value) > INDEX_NODE
        {
            let (key, trailer) = first.take().unwrap_or((b"", Trailer(u64::MAX)));
            level.push(key, trailer, out.block(Kind::Index, true, |bytes| node.write_to(bytes)), None);
            out.flush()?;
        }
        first.get_or_insert((key, child.trailer));
        // A bound before every version of the key has the largest trailer.
        node.add(key, child.trailer, &value);
    }
    let (key, trailer) = first.unwrap_or((b"", Trailer(u64::MAX)));
    level.push(key, trailer, out.block(Kind::Index, true, |bytes| node.write_to(bytes)), None);
    Ok(level)
}

impl Level {
    fn push(&mut self, key: &[u8], trailer: Trailer, handle: Handle, times: Option<BlockTimes>) {
        self.keys.extend_from_slice(key);
        self.children.push(Child { key_end: self.keys.len(), trailer, handle, times });
    }
}
