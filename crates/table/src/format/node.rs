//! Reading a node: a data block (leaf) or an index node. Both have the same shape.
//!
//! ```text
//! node := count:u32  prefix_len:u32  base_seq:u56  width:u8       header, 16 bytes
//!         prefix[prefix_len]                                      what all keys of the node begin with
//!         head:[u8; 8] * count                                    the next eight bytes of each key, zero-padded
//!         offset:[u16 or u32, as width says] * count              where each entry begins, from the first entry
//!         entry * count
//!
//! leaf entry  := suffix_len:varint  rest[suffix_len - 8 or none]  kind:u8  seq - base_seq:varint  value (what is left)
//! index entry := suffix_len:varint  rest[suffix_len - 8 or none]  bound   offset:varint  size:varint  times
//! bound       := 0 (before every version of the key) | 1 trailer:u64
//! times       := nothing | earliest:varint (0 | span + 1:varint)           the second in the lowest level of version 5
//! ```
//!
//! Heads are compared as integers; only entries with the head that is searched for are looked at further. An index
//! entry is a lower bound: its child holds the entries at or after it and before the next one, and everything before
//! the second entry belongs to the first child.
//!
//! A [`Layout`] is made once per block and proves that header, prefix and arrays lie inside; entries are checked when
//! they are read.

use crate::format::decode_error::DecodeError;
use crate::format::frame::Handle;
use crate::format::options::BlockTimes;
use base::codec::Reader;
use base::{EntryKind, MAX_SEQ, Seq, Trailer, head};
use std::cmp::Ordering;

pub(crate) const HEADER_LEN: usize = 16;

/// Codes of an index entry's bound.
pub(crate) const BEFORE_ALL: u8 = 0;
pub(crate) const AT_TRAILER: u8 = 1;

/// The offsets of the parts of a node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    count: usize,
    heads: usize,
    offsets: usize,
    entries: usize,
    base_seq: Seq,
    wide: bool,
    index: bool,
}

/// An entry, as ranges of the node's bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub head: [u8; 8],
    pub suffix_len: usize,
    rest: usize,
    pub trailer: Trailer,
    pub value_start: usize,
    pub value_end: usize,
}

impl Entry {
    /// The part of the key after prefix and head.
    #[inline]
    pub(crate) fn rest<'a>(&self, node: &'a [u8]) -> &'a [u8] {
        &node[self.rest..self.rest + self.suffix_len.saturating_sub(8)]
    }

    #[inline]
    pub(crate) fn value<'a>(&self, node: &'a [u8]) -> &'a [u8] {
        &node[self.value_start..self.value_end]
    }

    /// Compares this entry with a target whose suffix begins with the same head.
    #[inline]
    fn compare(&self, node: &[u8], suffix: &[u8], trailer: Trailer) -> Ordering {
        if self.suffix_len <= 8 && suffix.len() <= 8 {
            return self.suffix_len.cmp(&suffix.len()).then_with(|| trailer.cmp(&self.trailer));
        }
        let rest = suffix.get(8..).unwrap_or_default();
        // Equal heads and a length below eight: the shorter key is the smaller one.
        (self.suffix_len.min(8).cmp(&suffix.len().min(8)))
            .then_with(|| self.rest(node).cmp(rest))
            .then_with(|| trailer.cmp(&self.trailer))
    }
}

/// Loads the processor's cache lines of the header and the arrays of a usual node, all at once: parsing and searching would wait for
/// one after another.
#[inline]
pub(crate) fn touch(node: &[u8]) {
    let lines = node[..node.len().min(512)].iter().step_by(64);
    std::hint::black_box(lines.fold(0, |sum, byte| sum ^ byte));
}

impl Layout {
    /// Checks the structure of a node. `seq_shift` is added to its sequence numbers.
    #[inline]
    pub(crate) fn parse(node: &[u8], index: bool, seq_shift: u64) -> Result<Layout, DecodeError> {
        let header: &[u8; HEADER_LEN] =
            node.first_chunk().ok_or(DecodeError::Corrupt("node is shorter than its header"))?;
        let count = u32::from_le_bytes([header[0], header[1], header[2], header[3]]) as usize;
        let prefix = u32::from_le_bytes([header[4], header[5], header[6], header[7]]) as usize;
        let seq_and_width = u64::from_le_bytes([
            header[8], header[9], header[10], header[11], header[12], header[13], header[14], header[15],
        ]);
        // An index has trailers in place of differences: for these the base is the shift alone.
        let base_seq = if index { seq_shift } else { (seq_and_width & MAX_SEQ).saturating_add(seq_shift) };
        let width = (seq_and_width >> 56) as usize;
        if width != 2 && width != 4 {
            return Err(DecodeError::Corrupt("node with an unknown width of offsets"));
        }
        // Both factors are below 2^32: nothing overflows in 64 bits.
        let heads = HEADER_LEN as u64 + prefix as u64;
        let offsets = heads + 8 * count as u64;
        let entries = offsets + (width * count) as u64;
        if count == 0 || entries > node.len() as u64 || prefix > base::limits::MAX_KEY_LEN {
            return Err(DecodeError::Corrupt("node is shorter than its entries"));
        }
        Ok(Layout {
            count,
            heads: heads as usize,
            offsets: offsets as usize,
            entries: entries as usize,
            base_seq,
            wide: width == 4,
            index,
        })
    }

    #[inline]
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// What all keys of the node begin with.
    #[inline]
    pub(crate) fn prefix<'a>(&self, node: &'a [u8]) -> &'a [u8] {
        &node[HEADER_LEN..self.heads]
    }

    #[inline]
    fn offset(&self, node: &[u8], i: usize) -> usize {
        if self.wide {
            let at = self.offsets + 4 * i;
            let bytes = &node[at..at + 4];
            u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) as usize
        } else {
            let at = self.offsets + 2 * i;
            let bytes = &node[at..at + 2];
            usize::from(u16::from_le_bytes([bytes[0], bytes[1]]))
        }
    }

    /// Entry `i`, which must be below the count.
    #[inline]
    pub(crate) fn entry(&self, node: &[u8], i: usize) -> Result<Entry, DecodeError> {
        const BAD: DecodeError = DecodeError::Corrupt("entry does not fit into its node");
        debug_assert!(i < self.count);
        let start = self.entries + self.offset(node, i);
        let end = if i + 1 < self.count { self.entries + self.offset(node, i + 1) } else { node.len() };
        let mut body = Body { node: node.get(..end).ok_or(BAD)?, at: start };
        let suffix_len = usize::try_from(body.varint().ok_or(BAD)?).map_err(|_| BAD)?;
        if suffix_len > base::limits::MAX_KEY_LEN - (self.heads - HEADER_LEN) {
            return Err(DecodeError::Corrupt("key is too long"));
        }
        let rest = body.at;
        body.at += suffix_len.saturating_sub(8);
        let code = body.u8().ok_or(BAD)?;
        let trailer = if self.index { self.bound(code, &mut body)? } else { self.trailer(code, &mut body)? };
        let head_at = self.heads + 8 * i;
        let head = *node[head_at..].first_chunk().ok_or(BAD)?;
        Ok(Entry { head, suffix_len, rest, trailer, value_start: body.at, value_end: end })
    }

    #[inline]
    fn trailer(&self, code: u8, body: &mut Body<'_>) -> Result<Trailer, DecodeError> {
        let Some(kind) = EntryKind::from_code(code) else {
            return Err(DecodeError::Unknown("kind of entry", code.into()));
        };
        let delta = body.varint().ok_or(DecodeError::Corrupt("entry does not fit into its node"))?;
        match self.base_seq.checked_add(delta) {
            Some(seq) if seq <= MAX_SEQ => Ok(Trailer::new(seq, kind)),
            _ => Err(DecodeError::Corrupt("sequence number is too large")),
        }
    }

    fn bound(&self, code: u8, body: &mut Body<'_>) -> Result<Trailer, DecodeError> {
        match code {
            BEFORE_ALL => Ok(Trailer(u64::MAX)),
            AT_TRAILER => {
                let bytes = body.node.get(body.at..).and_then(|rest| rest.first_chunk::<8>());
                body.at += 8;
                let bytes = bytes.ok_or(DecodeError::Corrupt("entry does not fit into its node"))?;
                let shifted = Trailer(u64::from_le_bytes(*bytes)).shifted(self.base_seq);
                shifted.ok_or(DecodeError::Corrupt("sequence number is too large"))
            }
            _ => Err(DecodeError::Unknown("bound of an index entry", code.into())),
        }
    }

    /// Checks what a search assumes: heads are in order, and padded with zeros.
    pub(crate) fn check_heads(&self, node: &[u8]) -> Result<(), DecodeError> {
        let mut before = 0;
        for i in 0..self.count {
            let entry = self.entry(node, i)?;
            let head = u64::from_be_bytes(entry.head);
            let padded = entry.suffix_len >= 8 || head << (8 * entry.suffix_len) == 0;
            if head < before || !padded {
                return Err(DecodeError::Corrupt("heads of keys are wrong"));
            }
            before = head;
        }
        Ok(())
    }

    /// The first entry at or after (`key`, `trailer`); the count if there is none.
    #[inline]
    pub(crate) fn lower_bound(
        &self,
        node: &[u8],
        key: &[u8],
        trailer: Trailer,
    ) -> Result<usize, DecodeError> {
        match self.compare_prefix(node, key) {
            Ordering::Less => Ok(0),
            Ordering::Greater => Ok(self.count),
            Ordering::Equal => Ok(self.search::<false>(node, key, trailer)?.0),
        }
    }

    /// The child of an index node where (`key`, `trailer`) belongs: the last with a bound at or before it, or the first.
    #[inline]
    pub(crate) fn child(&self, node: &[u8], key: &[u8], trailer: Trailer) -> Result<usize, DecodeError> {
        let after = match self.compare_prefix(node, key) {
            Ordering::Less => 0,
            Ordering::Greater => self.count,
            Ordering::Equal => self.search::<true>(node, key, trailer)?.0,
        };
        Ok(after.saturating_sub(1))
    }

    /// The newest version of `key` at or after `trailer` in the order of entries, if the node holds one.
    #[inline]
    pub(crate) fn find(
        &self,
        node: &[u8],
        key: &[u8],
        trailer: Trailer,
    ) -> Result<Option<Entry>, DecodeError> {
        if self.compare_prefix(node, key).is_ne() {
            return Ok(None);
        }
        let suffix = &key[self.heads - HEADER_LEN..];
        let (_, entry) = self.search::<false>(node, key, trailer)?;
        // The entry has the head of the key. Compares the rest.
        let found = |e: &Entry| e.suffix_len == suffix.len() && e.compare(node, suffix, e.trailer).is_eq();
        Ok(entry.filter(found))
    }

    /// Whether `key` is before all keys with the node's prefix, after all of them, or has the prefix.
    #[inline]
    fn compare_prefix(&self, node: &[u8], key: &[u8]) -> Ordering {
        let prefix = self.prefix(node);
        match key.get(..prefix.len()) {
            Some(start) => compare_same_len(start, prefix),
            None => key.cmp(&prefix[..key.len()]).then(Ordering::Less),
        }
    }

    /// How many entries are before (`key`, `trailer`), or with `UPPER`, not after it; and the entry that comes next, if it
    /// has the same head. The key must have the node's prefix.
    #[inline]
    fn search<const UPPER: bool>(
        &self,
        node: &[u8],
        key: &[u8],
        trailer: Trailer,
    ) -> Result<(usize, Option<Entry>), DecodeError> {
        let start = self.heads - HEADER_LEN;
        let (suffix, want) = (&key[start..], head_at(key, start));
        let (heads, _) = node[self.heads..self.offsets].as_chunks::<8>();
        let mut low = heads_before(heads, want);
        let equal = |i: usize| heads.get(i).is_some_and(|h| u64::from_be_bytes(*h) == want);
        if !equal(low) {
            return Ok((low, None));
        }
        let mut high = low + 1;
        if equal(high) {
            high += heads[high..].partition_point(|h| u64::from_be_bytes(*h) == want);
        }
        let mut next = None;
        while low < high {
            let middle = low + (high - low) / 2;
            let entry = self.entry(node, middle)?;
            match entry.compare(node, suffix, trailer) {
                Ordering::Less => low = middle + 1,
                Ordering::Equal if UPPER => low = middle + 1,
                _ => (high, next) = (middle, Some(entry)),
            }
        }
        Ok((low, next))
    }

    /// The block that index entry `i` points to.
    #[inline]
    pub(crate) fn handle(&self, node: &[u8], i: usize) -> Result<Handle, DecodeError> {
        let entry = self.entry(node, i)?;
        let mut reader = Reader::new(entry.value(node));
        read_handle(&mut reader).ok_or(NO_BLOCK)
    }

    /// The same, and the times of the block if the index has them.
    #[inline]
    pub(crate) fn handle_and_times(
        &self,
        node: &[u8],
        i: usize,
    ) -> Result<(Handle, Option<BlockTimes>), DecodeError> {
        let entry = self.entry(node, i)?;
        let mut reader = Reader::new(entry.value(node));
        let found = (|| {
            let handle = read_handle(&mut reader)?;
            let times = if reader.is_empty() { None } else { Some(BlockTimes::decode(&mut reader)?) };
            reader.is_empty().then_some((handle, times))
        })();
        found.ok_or(NO_BLOCK)
    }
}

/// Number of heads smaller than `want`. The cache lines of a cold node are not in the processor's cache. A binary search would load them
/// one after another; this search loads seven at a time, in parallel.
#[inline]
fn heads_before(heads: &[[u8; 8]], want: u64) -> usize {
    const PARTS: usize = 8;
    let (mut low, mut len) = (0, heads.len());
    while len > PARTS {
        let part = len / PARTS;
        let smaller = |i: usize| usize::from(u64::from_be_bytes(heads[low + i * part]) < want);
        let before = (1..PARTS).map(smaller).sum::<usize>();
        // The last part has what the division leaves over.
        len = if before == PARTS - 1 { len - before * part } else { part };
        low += before * part;
    }
    low + heads[low..low + len].partition_point(|h| u64::from_be_bytes(*h) < want)
}

/// Compares two runs of bytes of one length. A call of `memcmp` would cost more than most prefixes do.
#[inline]
fn compare_same_len(a: &[u8], b: &[u8]) -> Ordering {
    let ((a_words, a_tail), (b_words, b_tail)) = (a.as_chunks::<8>(), b.as_chunks::<8>());
    for (a, b) in a_words.iter().zip(b_words) {
        if a != b {
            return u64::from_be_bytes(*a).cmp(&u64::from_be_bytes(*b));
        }
    }
    for (a, b) in a_tail.iter().zip(b_tail) {
        if a != b {
            return a.cmp(b);
        }
    }
    Ordering::Equal
}

/// [`base::head`] of `key[start..]`, without a copy where the key as a whole is long enough.
#[inline]
fn head_at(key: &[u8], start: usize) -> u64 {
    let suffix = &key[start..];
    match (suffix.first_chunk::<8>(), key.last_chunk::<8>()) {
        (Some(first), _) => u64::from_be_bytes(*first),
        (None, Some(last)) if !suffix.is_empty() => u64::from_be_bytes(*last) << (64 - 8 * suffix.len()),
        _ => head(suffix),
    }
}

const NO_BLOCK: DecodeError = DecodeError::Corrupt("index entry without a block");

/// The block at the beginning of the value of an index entry.
#[inline]
fn read_handle(reader: &mut Reader<'_>) -> Option<Handle> {
    let offset = reader.varint()?;
    let size = u32::try_from(reader.varint()?).ok()?;
    Some(Handle { offset, size })
}

/// Reads an entry and tracks the position in the node.
struct Body<'a> {
    node: &'a [u8],
    at: usize,
}

impl Body<'_> {
    #[inline]
    fn u8(&mut self) -> Option<u8> {
        let byte = *self.node.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    #[inline]
    fn varint(&mut self) -> Option<u64> {
        let byte = *self.node.get(self.at)?;
        if byte < 0x80 {
            self.at += 1;
            return Some(u64::from(byte));
        }
        let mut reader = Reader::new(&self.node[self.at..]);
        let value = reader.varint()?;
        self.at = self.node.len() - reader.rest().len();
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_counted_as_a_binary_search_would() {
        for len in (0..200).chain([255, 256, 257, 511, 600, 4097]) {
            for run in [1, 2, 7, 50] {
                let heads: Vec<[u8; 8]> = (0..len).map(|i| (10 * (i / run) as u64).to_be_bytes()).collect();
                let step = 1 + len / 60;
                for want in (0..10 * len as u64 + 20).step_by(step).chain([u64::MAX]) {
                    let expected = heads.partition_point(|h| u64::from_be_bytes(*h) < want);
                    assert_eq!(heads_before(&heads, want), expected, "{len} heads in runs of {run}, {want}");
                }
            }
        }
    }
}
