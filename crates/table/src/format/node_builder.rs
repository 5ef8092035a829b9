//! Building a node: entries are gathered in three flat buffers that are reused from node to node, and laid out once the
//! shared prefix and the smallest sequence number are known. No allocation per entry; each value is copied twice.

use crate::format::frame::Handle;
use crate::format::node::{AT_TRAILER, BEFORE_ALL, HEADER_LEN};
use crate::format::options::BlockTimes;
use base::codec::{put_varint, varint_len};
use base::{MAX_SEQ, Seq, Trailer, head, shared_prefix};

/// Gathers the entries of one node.
pub(crate) struct NodeBuilder {
    index: bool,
    keys: Vec<u8>,
    values: Vec<u8>,
    entries: Vec<Pending>,
    /// Length of the prefix that all keys have in common so far.
    prefix: usize,
    min_seq: Seq,
    max_seq: Seq,
    /// Upper bound of the bytes that pad suffixes shorter than a head.
    short: usize,
    /// Upper bound of the bytes of the suffixes' lengths.
    lens: usize,
}

#[derive(Clone, Copy)]
struct Pending {
    key_end: u32,
    value_end: u32,
    trailer: Trailer,
}

/// Bytes that a leaf entry takes beside key and value: offset, length of the suffix, kind, sequence number.
const OVERHEAD: usize = 2 + 1 + 1 + 3;

/// Maximum bytes that an entry takes beside key and value in the area of entries.
const MAX_OVERHEAD: usize = 3 + 1 + 10;

impl NodeBuilder {
    pub(crate) fn new(index: bool) -> Self {
        let (keys, values, entries) = (Vec::new(), Vec::new(), Vec::new());
        let (short, lens) = (0, 0);
        NodeBuilder { index, keys, values, entries, prefix: 0, min_seq: MAX_SEQ, max_seq: 0, short, lens }
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

    /// Approximate bytes of the node.
    #[inline]
    pub(crate) fn estimated_len(&self) -> usize {
        let count = self.entries.len();
        HEADER_LEN + self.keys.len() - self.prefix * count.saturating_sub(1)
            + self.values.len()
            + OVERHEAD * count
    }

    /// Approximate bytes that an entry adds.
    #[inline]
    pub(crate) fn estimated_cost(&self, key: &[u8], value: &[u8]) -> usize {
        (key.len() - self.prefix.min(key.len())).max(8) + value.len() + OVERHEAD
    }

    /// Whether a leaf with one more entry takes no more than `limit` bytes.
    #[inline]
    pub(crate) fn fits(&self, key: &[u8], trailer: Trailer, value: &[u8], limit: usize) -> bool {
        let bytes = self.keys.len() + key.len() + self.values.len() + value.len();
        // The cheap bound decides for most entries.
        HEADER_LEN + bytes + (self.entries.len() + 1) * (8 + 4 + MAX_OVERHEAD) <= limit
            || self.len_with(key, trailer, value) <= limit
    }

    /// Upper bound of the bytes of a leaf with one more entry, a few bytes above the size.
    fn len_with(&self, key: &[u8], trailer: Trailer, value: &[u8]) -> usize {
        let count = self.entries.len() + 1;
        let prefix = self.prefix_with(key);
        let (keys, values) = (self.keys.len() + key.len(), self.values.len() + value.len());
        let span = self.max_seq.max(trailer.seq()) - self.min_seq.min(trailer.seq());
        let per_entry = offset_width(keys + values, count) + 1 + varint_len(span);
        let suffixes = keys - prefix * count + self.short + 8usize.saturating_sub(key.len() - prefix);
        HEADER_LEN + prefix + suffixes + self.lens + varint_len(key.len() as u64) + count * per_entry + values
    }

    /// Upper bound of the bytes of a leaf with this entry alone.
    pub(crate) fn len_alone(key: &[u8], value: &[u8]) -> usize {
        HEADER_LEN + key.len() + 8 + 4 + 3 + value.len()
    }

    /// Length of the prefix that the keys have in common, this one included.
    #[inline]
    fn prefix_with(&self, key: &[u8]) -> usize {
        if self.entries.is_empty() {
            key.len()
        } else if key.starts_with(&self.keys[..self.prefix]) {
            self.prefix
        } else {
            shared_prefix(&self.keys[..self.prefix], key)
        }
    }

    /// Adds an entry, which must sort after the last one.
    #[inline]
    pub(crate) fn add(&mut self, key: &[u8], trailer: Trailer, value: &[u8]) {
        self.prefix = self.prefix_with(key);
        self.short += 8usize.saturating_sub(key.len() - self.prefix);
        self.lens += varint_len(key.len() as u64);
        self.max_seq = self.max_seq.max(trailer.seq());
        self.keys.extend_from_slice(key);
        self.values.extend_from_slice(value);
        self.min_seq = self.min_seq.min(trailer.seq());
        let (key_end, value_end) = (self.keys.len() as u32, self.values.len() as u32);
        self.entries.push(Pending { key_end, value_end, trailer });
    }

    /// Appends the node to `out` and begins the next one.
    pub(crate) fn write_to(&mut self, out: &mut Vec<u8>) {
        let count = self.entries.len();
        let base_seq = if self.index { 0 } else { self.min_seq };
        let width = offset_width(self.keys.len() + self.values.len(), count);
        let most = self.keys.len() + self.values.len() + MAX_OVERHEAD * count;
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
        (self.min_seq, self.max_seq) = (MAX_SEQ, 0);
        (self.short, self.lens) = (0, 0);
    }
}

/// Writes the value of an index entry over `value`.
pub(crate) fn child_value(value: &mut Vec<u8>, child: Handle, times: Option<BlockTimes>) {
    value.clear();
    put_varint(value, child.offset);
    put_varint(value, u64::from(child.size));
    if let Some(times) = times {
        times.encode(value);
    }
}

/// Bytes of an offset in a node of `count` entries with so many bytes of keys and values.
#[inline]
fn offset_width(bytes: usize, count: usize) -> usize {
    if bytes + MAX_OVERHEAD * count <= usize::from(u16::MAX) { 2 } else { 4 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::EntryKind;

    #[test]
    fn a_leaf_is_as_long_as_was_said_or_a_little_shorter() {
        let mut rng = env::Rng::new(1);
        let mut builder = NodeBuilder::new(false);
        for round in 0..300 {
            let (prefix, tail) = (rng.below(200) as usize, rng.below(14) as usize);
            let most = [1, 300, 1 << 22, 1 << 50][round % 4];
            let mut said = 0;
            let count = 1 + rng.below(60);
            for i in 0..count {
                let mut key = vec![b'p'; prefix];
                key.extend_from_slice(&(i as u32).to_be_bytes()[3 - round % 3..]);
                key.resize(key.len() + tail, b't');
                let trailer = Trailer::new(1 + rng.below(most), EntryKind::Put);
                let value = vec![1; rng.below(2000) as usize / (1 + round % 7)];
                if i == 0 {
                    assert!(builder.len_with(&key, trailer, &value) <= NodeBuilder::len_alone(&key, &value));
                }
                said = builder.len_with(&key, trailer, &value);
                assert!(builder.fits(&key, trailer, &value, said));
                assert!(!builder.fits(&key, trailer, &value, said - 1));
                builder.add(&key, trailer, &value);
            }
            let mut out = Vec::new();
            builder.write_to(&mut out);
            // Suffixes of the first keys are short until the prefix has shrunk, lengths of long keys count without it, and sequence
            // numbers are taken for the longest.
            let slack = 40 + count as usize * (1 + 8 * (round % 4));
            assert!(out.len() <= said && said <= out.len() + slack, "round {round}: {said}, {}", out.len());
        }
    }
}
