//! Building a node: entries are gathered in three flat buffers that are reused from node to node, and laid out once the
//! shared prefix and the smallest sequence number are known. No allocation per entry; each value is copied twice.

use crate::frame::Handle;
use crate::node::{AT_TRAILER, BEFORE_ALL, HEADER_LEN};
use base::codec::put_varint;
use base::{MAX_SEQ, Seq, Trailer, head};

/// Gathers the entries of one node.
pub(crate) struct NodeBuilder {
    index: bool,
    keys: Vec<u8>,
    values: Vec<u8>,
    entries: Vec<Pending>,
    /// Length of what all keys have in common so far.
    prefix: usize,
    min_seq: Seq,
}

#[derive(Clone, Copy)]
struct Pending {
    key_end: u32,
    value_end: u32,
    trailer: Trailer,
}

/// Bytes that a leaf entry takes beside key and value: offset, length of the suffix, kind, sequence number.
const OVERHEAD: usize = 2 + 1 + 1 + 3;

/// Most bytes that an entry takes beside key and value in the area of entries.
const MAX_OVERHEAD: usize = 3 + 1 + 10;

impl NodeBuilder {
    pub(crate) fn new(index: bool) -> Self {
        let (keys, values, entries) = (Vec::new(), Vec::new(), Vec::new());
        NodeBuilder { index, keys, values, entries, prefix: 0, min_seq: MAX_SEQ }
    }

    pub(crate) fn count(&self) -> usize {
        self.entries.len()
    }

    /// The last key that was added since the last [`NodeBuilder::write_to`].
    #[inline]
    pub(crate) fn last_key(&self) -> Option<(&[u8], Trailer)> {
        let last = self.entries.last()?;
        let start = self.entries.len().checked_sub(2).map_or(0, |i| self.entries[i].key_end);
        Some((&self.keys[start as usize..], last.trailer))
    }

    /// About how many bytes the node takes.
    #[inline]
    pub(crate) fn estimated_len(&self) -> usize {
        let count = self.entries.len();
        HEADER_LEN + self.keys.len() - self.prefix * count.saturating_sub(1)
            + self.values.len()
            + OVERHEAD * count
    }

    /// About how many bytes an entry will add.
    #[inline]
    pub(crate) fn estimated_cost(&self, key: &[u8], value: &[u8]) -> usize {
        (key.len() - self.prefix.min(key.len())).max(8) + value.len() + OVERHEAD
    }

    /// Adds an entry, which must sort after the last one.
    #[inline]
    pub(crate) fn add(&mut self, key: &[u8], trailer: Trailer, value: &[u8]) {
        if self.entries.is_empty() {
            self.prefix = key.len();
        } else if !key.starts_with(&self.keys[..self.prefix]) {
            self.prefix = common_prefix(&self.keys[..self.prefix], key);
        }
        self.keys.extend_from_slice(key);
        self.values.extend_from_slice(value);
        self.min_seq = self.min_seq.min(trailer.seq());
        let (key_end, value_end) = (self.keys.len() as u32, self.values.len() as u32);
        self.entries.push(Pending { key_end, value_end, trailer });
    }

    /// Adds an index entry: `trailer` is `u64::MAX` for a bound before every version of `key`.
    pub(crate) fn add_child(&mut self, key: &[u8], trailer: Trailer, child: Handle) {
        let mut value = Vec::with_capacity(16);
        put_varint(&mut value, child.offset);
        put_varint(&mut value, u64::from(child.size));
        self.add(key, trailer, &value);
    }

    /// Appends the node to `out` and begins the next one.
    pub(crate) fn write_to(&mut self, out: &mut Vec<u8>) {
        let count = self.entries.len();
        let base_seq = if self.index { 0 } else { self.min_seq };
        let most = self.keys.len() + self.values.len() + MAX_OVERHEAD * count;
        let width: usize = if most <= usize::from(u16::MAX) { 2 } else { 4 };
        out.reserve(HEADER_LEN + self.prefix + (8 + width) * count + most);
        out.extend_from_slice(&(count as u32).to_le_bytes());
        out.extend_from_slice(&(self.prefix as u32).to_le_bytes());
        out.extend_from_slice(&(base_seq | (width as u64) << 56).to_le_bytes());
        out.extend_from_slice(&self.keys[..self.prefix]);
        let mut start = 0;
        for entry in &self.entries {
            let suffix = &self.keys[start + self.prefix..entry.key_end as usize];
            out.extend_from_slice(&head(suffix).to_be_bytes());
            start = entry.key_end as usize;
        }
        let offsets = out.len();
        out.resize(offsets + width * count, 0);
        self.write_entries(out, offsets, width, base_seq);
        self.clear();
    }

    fn write_entries(&self, out: &mut Vec<u8>, offsets: usize, width: usize, base_seq: Seq) {
        let first = out.len();
        let (mut key, mut value) = (0, 0);
        for (i, entry) in self.entries.iter().enumerate() {
            let offset = (out.len() - first) as u32;
            out[offsets + width * i..][..width].copy_from_slice(&offset.to_le_bytes()[..width]);
            let suffix = &self.keys[key + self.prefix..entry.key_end as usize];
            put_varint(out, suffix.len() as u64);
            out.extend_from_slice(suffix.get(8..).unwrap_or_default());
            if !self.index {
                out.push(entry.trailer.kind_code());
                put_varint(out, entry.trailer.seq() - base_seq);
            } else if entry.trailer.0 == u64::MAX {
                out.push(BEFORE_ALL);
            } else {
                out.push(AT_TRAILER);
                out.extend_from_slice(&entry.trailer.0.to_le_bytes());
            }
            out.extend_from_slice(&self.values[value..entry.value_end as usize]);
            (key, value) = (entry.key_end as usize, entry.value_end as usize);
        }
    }

    fn clear(&mut self) {
        // An outsized value must not hold its memory for the rest of the table.
        const KEEP: usize = 1 << 20;
        self.keys.clear();
        self.values.clear();
        self.keys.shrink_to(KEEP);
        self.values.shrink_to(KEEP);
        self.entries.clear();
        self.min_seq = MAX_SEQ;
    }
}

/// Length of what `a` and `b` both begin with.
pub(crate) fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(x, y)| x == y).count()
}
