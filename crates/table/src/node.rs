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
//! index entry := suffix_len:varint  rest[suffix_len - 8 or none]  bound   offset:varint  size:varint
//! bound       := 0 (before every version of the key) | 1 trailer:u64
//! ```
//!
//! Heads are compared as integers; only entries with the head that is searched for are looked at further. An index
//! entry is a lower bound: its child holds the entries at or after it and before the next one, and everything before
//! the second entry belongs to the first child.
//!
//! A [`Layout`] is made once per block and proves that header, prefix and arrays lie inside; entries are checked when
//! they are read.

use crate::fault::Fault;
use crate::frame::Handle;
use base::codec::Reader;
use base::{EntryKind, MAX_SEQ, Seq, Trailer, head};
use std::cmp::Ordering;

pub(crate) const HEADER_LEN: usize = 16;

/// Codes of an index entry's bound.
pub(crate) const BEFORE_ALL: u8 = 0;
pub(crate) const AT_TRAILER: u8 = 1;

/// Where the parts of a node are.
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
    /// What the key has after prefix and head.
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
        let rest = suffix.get(8..).unwrap_or_default();
        // Equal heads and a length below eight: the shorter key is the smaller one.
        (self.suffix_len.min(8).cmp(&suffix.len().min(8)))
            .then_with(|| self.rest(node).cmp(rest))
            .then_with(|| trailer.cmp(&self.trailer))
    }
}

impl Layout {
    /// Checks the structure of a node.
    #[inline]
    pub(crate) fn parse(node: &[u8], index: bool) -> Result<Layout, Fault> {
        let header: &[u8; HEADER_LEN] =
            node.first_chunk().ok_or(Fault::Corrupt("node is shorter than its header"))?;
        let count = u32::from_le_bytes([header[0], header[1], header[2], header[3]]) as usize;
        let prefix = u32::from_le_bytes([header[4], header[5], header[6], header[7]]) as usize;
        let seq_and_width = u64::from_le_bytes([
            header[8], header[9], header[10], header[11], header[12], header[13], header[14], header[15],
        ]);
        let (base_seq, width) = (seq_and_width & MAX_SEQ, (seq_and_width >> 56) as usize);
        if width != 2 && width != 4 {
            return Err(Fault::Corrupt("node with an unknown width of offsets"));
        }
        // Both factors are below 2^32: nothing overflows in 64 bits.
        let heads = HEADER_LEN as u64 + prefix as u64;
        let offsets = heads + 8 * count as u64;
        let entries = offsets + (width * count) as u64;
        if count == 0 || entries > node.len() as u64 || prefix > base::limits::MAX_KEY_LEN {
            return Err(Fault::Corrupt("node is shorter than its entries"));
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
    pub(crate) fn entry(&self, node: &[u8], i: usize) -> Result<Entry, Fault> {
        const BAD: Fault = Fault::Corrupt("entry does not fit into its node");
        debug_assert!(i < self.count);
        let start = self.entries + self.offset(node, i);
        let end = if i + 1 < self.count { self.entries + self.offset(node, i + 1) } else { node.len() };
        let mut body = Body { node: node.get(..end).ok_or(BAD)?, at: start };
        let suffix_len = usize::try_from(body.varint().ok_or(BAD)?).map_err(|_| BAD)?;
        if suffix_len > base::limits::MAX_KEY_LEN {
            return Err(Fault::Corrupt("key is too long"));
        }
        let rest = body.at;
        body.at += suffix_len.saturating_sub(8);
        let code = body.u8().ok_or(BAD)?;
        let trailer = if self.index { bound(code, &mut body)? } else { self.trailer(code, &mut body)? };
        let head_at = self.heads + 8 * i;
        let head = *node[head_at..].first_chunk().ok_or(BAD)?;
        Ok(Entry { head, suffix_len, rest, trailer, value_start: body.at, value_end: end })
    }

    #[inline]
    fn trailer(&self, code: u8, body: &mut Body<'_>) -> Result<Trailer, Fault> {
        let Some(kind) = EntryKind::from_code(code) else {
            return Err(Fault::Unknown("kind of entry", code));
        };
        let delta = body.varint().ok_or(Fault::Corrupt("entry does not fit into its node"))?;
        match self.base_seq.checked_add(delta) {
            Some(seq) if seq <= MAX_SEQ => Ok(Trailer::new(seq, kind)),
            _ => Err(Fault::Corrupt("sequence number is too large")),
        }
    }

    /// What a search relies on and does not check: heads are in order, and padded with zeros.
    pub(crate) fn check_heads(&self, node: &[u8]) -> Result<(), Fault> {
        let mut before = 0;
        for i in 0..self.count {
            let entry = self.entry(node, i)?;
            let head = u64::from_be_bytes(entry.head);
            let padded = entry.suffix_len >= 8 || head << (8 * entry.suffix_len) == 0;
            if head < before || !padded {
                return Err(Fault::Corrupt("heads of keys are wrong"));
            }
            before = head;
        }
        Ok(())
    }

    /// The first entry at or after (`key`, `trailer`); the count if there is none.
    #[inline]
    pub(crate) fn lower_bound(&self, node: &[u8], key: &[u8], trailer: Trailer) -> Result<usize, Fault> {
        self.bound::<false>(node, key, trailer)
    }

    /// The child of an index node where (`key`, `trailer`) belongs: the last with a bound at or before it, or the first.
    #[inline]
    pub(crate) fn child(&self, node: &[u8], key: &[u8], trailer: Trailer) -> Result<usize, Fault> {
        Ok(self.bound::<true>(node, key, trailer)?.saturating_sub(1))
    }

    /// Loads the arrays' cache lines all at once: the search would wait for one after another.
    #[inline]
    fn touch(&self, node: &[u8]) {
        let arrays = &node[self.heads..self.entries.min(self.heads + 1024)];
        let sum = arrays.iter().step_by(64).fold(0u8, |sum, byte| sum ^ byte);
        std::hint::black_box(sum);
    }

    /// How many entries are before (`key`, `trailer`), or with `UPPER`, not after it.
    #[inline]
    fn bound<const UPPER: bool>(&self, node: &[u8], key: &[u8], trailer: Trailer) -> Result<usize, Fault> {
        let prefix = self.prefix(node);
        let common = prefix.len().min(key.len());
        match key[..common].cmp(&prefix[..common]) {
            Ordering::Less => return Ok(0),
            Ordering::Greater => return Ok(self.count),
            Ordering::Equal if key.len() < prefix.len() => return Ok(0),
            Ordering::Equal => {}
        }
        let suffix = &key[common..];
        let want = head(suffix);
        self.touch(node);
        let (heads, _) = node[self.heads..self.offsets].as_chunks::<8>();
        let mut low = heads.partition_point(|h| u64::from_be_bytes(*h) < want);
        let equal = |i: usize| heads.get(i).is_some_and(|h| u64::from_be_bytes(*h) == want);
        if !equal(low) {
            return Ok(low);
        }
        let mut high = low + 1;
        if equal(high) {
            high += heads[high..].partition_point(|h| u64::from_be_bytes(*h) == want);
        }
        while low < high {
            let middle = low + (high - low) / 2;
            match self.entry(node, middle)?.compare(node, suffix, trailer) {
                Ordering::Less => low = middle + 1,
                Ordering::Equal if UPPER => low = middle + 1,
                _ => high = middle,
            }
        }
        Ok(low)
    }

    /// The newest version of `key` at or after `trailer` in the order of entries, if the node holds one.
    #[inline]
    pub(crate) fn find(&self, node: &[u8], key: &[u8], trailer: Trailer) -> Result<Option<Entry>, Fault> {
        let i = self.lower_bound(node, key, trailer)?;
        let Some(suffix) = key.strip_prefix(self.prefix(node)) else { return Ok(None) };
        if i == self.count {
            return Ok(None);
        }
        let entry = self.entry(node, i)?;
        let found = entry.suffix_len == suffix.len()
            && u64::from_be_bytes(entry.head) == head(suffix)
            && entry.rest(node) == suffix.get(8..).unwrap_or_default();
        Ok(found.then_some(entry))
    }

    /// The block that index entry `i` points to.
    #[inline]
    pub(crate) fn handle(&self, node: &[u8], i: usize) -> Result<Handle, Fault> {
        let entry = self.entry(node, i)?;
        let mut reader = Reader::new(entry.value(node));
        let handle = (|| {
            let offset = reader.varint()?;
            let size = u32::try_from(reader.varint()?).ok()?;
            reader.is_empty().then_some(Handle { offset, size })
        })();
        handle.ok_or(Fault::Corrupt("index entry without a block"))
    }
}

fn bound(code: u8, body: &mut Body<'_>) -> Result<Trailer, Fault> {
    match code {
        BEFORE_ALL => Ok(Trailer(u64::MAX)),
        AT_TRAILER => {
            let bytes = body.node.get(body.at..).and_then(|rest| rest.first_chunk::<8>());
            body.at += 8;
            bytes
                .map(|b| Trailer(u64::from_le_bytes(*b)))
                .ok_or(Fault::Corrupt("entry does not fit into its node"))
        }
        _ => Err(Fault::Unknown("bound of an index entry", code)),
    }
}

/// Reads an entry, keeping track of where it is in the node.
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
