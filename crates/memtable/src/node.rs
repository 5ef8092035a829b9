//! The contents of the arena: entries, and the nodes of the skip list, each with a leaf of entries.
//!
//! ```text
//! entry:                              trailer | lengths | key | value | padding
//! node:   link n-1 | ... | link 0 |   trailer | lengths | key | padding | lock | live | slot 0 | ... | slot N-1
//!         8 bytes                     8 bytes   8 bytes                   8 bytes each
//!                                     the offset points here
//! ```
//!
//! Entries and nodes begin with the same immutable part: key and trailer of an entry, or of a node's *anchor*. No
//! entry of the node's leaf lies before the anchor. The tower of links grows down from the node's offset, so that all
//! parts are found without knowing the height, and a search on low levels touches one cache line per node.
//!
//! A link is the offset of the next node (lower 32 bits; 0: the end) and its tag (upper 32 bits, see
//! [`crate::key_order`]). Both change together, in one word. A slot is the same for an entry; in the order of
//! keys its tag is relative to the anchor.
//!
//! `lengths` is the key length (24 bits), the height (8 bits; 0 for an entry) and the value length (32 bits).

#![allow(unsafe_code)]

use crate::arena::{Arena, UNIT};
use crate::key_order::{TAG_END, Target};
use crate::memory::SpareMemory;
use crate::sync::{AtomicU64, Ordering};
use base::Trailer;
use std::num::NonZeroU32;
use std::slice;
use std::sync::Arc;

/// Maximum height of a tower. Half of the nodes have one link, a quarter have two, and so on.
pub(crate) const MAX_HEIGHT: usize = if cfg!(loom) {
    2
} else if cfg!(miri) {
    8
} else {
    24
};

/// Maximum number of entries in a leaf, at most 64. Small under slow checkers, so that they see many splits.
pub(crate) const SLOTS: usize = if cfg!(loom) {
    3
} else if cfg!(miri) {
    6
} else {
    64
};

/// Length of trailer and lengths, in bytes.
const HEADER: usize = 16;

/// Length of a cache line, in bytes. Nodes are aligned to it.
const LINE: usize = 64;

/// An entry of an arena. Every value of this type comes from [`Nodes::create_entry`] of that arena, which the methods
/// of [`Nodes`] rely on. A memtable has one [`Nodes`], and ids are never used with another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EntryId(NonZeroU32);

/// A node of an arena, from [`Nodes::create_node`]. The rules of [`EntryId`] apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NodeId(NonZeroU32);

impl NodeId {
    /// The id for a number returned by [`NodeId::raw`].
    #[inline]
    pub(crate) fn from_raw(raw: u32) -> Option<NodeId> {
        NonZeroU32::new(raw).map(NodeId)
    }

    /// The id as an integer, never 0.
    #[inline]
    pub(crate) fn raw(self) -> u32 {
        self.0.get()
    }
}

/// An object with a key and a trailer: an entry, or a node with its anchor.
pub(crate) trait Keyed: Copy {
    /// The offset of the object in the arena.
    fn offset(self) -> u32;
}

impl Keyed for EntryId {
    #[inline]
    fn offset(self) -> u32 {
        self.0.get()
    }
}

impl Keyed for NodeId {
    #[inline]
    fn offset(self) -> u32 {
        self.0.get()
    }
}

/// The content of a link: the next node and its tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Link(u64);

impl Link {
    /// The link of the last node of a level.
    pub(crate) const END: Link = Link((TAG_END as u64) << 32);

    /// A link to `node`.
    #[inline]
    pub(crate) fn new(node: NodeId, tag: u32) -> Link {
        Link(u64::from(tag) << 32 | u64::from(node.raw()))
    }

    /// The next node.
    #[inline]
    pub(crate) fn node(self) -> Option<NodeId> {
        NodeId::from_raw(self.0 as u32)
    }

    /// The tag of the next node, in the order of keys relative to the node that has the link.
    #[inline]
    pub(crate) fn tag(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// The content of a slot: an entry and its tag. Ordered by tag, then by age; an empty slot is last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Slot(u64);

impl Slot {
    /// An empty slot.
    pub(crate) const EMPTY: Slot = Slot(u64::MAX);

    /// A slot for `entry`.
    #[inline]
    pub(crate) fn new(entry: EntryId, tag: u32) -> Slot {
        Slot(u64::from(tag) << 32 | u64::from(entry.offset()))
    }

    /// The entry. The slot must not be empty.
    #[inline]
    pub(crate) fn entry(self) -> EntryId {
        debug_assert!(self != Slot::EMPTY);
        EntryId(NonZeroU32::new(self.0 as u32).expect("offsets start past the head's tower"))
    }

    /// The tag of the entry, in the order of keys relative to the anchor.
    #[inline]
    pub(crate) fn tag(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// The leaf of a node.
#[derive(Clone, Copy)]
pub(crate) struct Leaf<'a>(&'a [AtomicU64]);

/// Number of words in a leaf before its slots.
const LEAF_HEADER: usize = 2;

impl<'a> Leaf<'a> {
    /// The lock of the leaf: bit 0. The other bits are a number for the holder.
    #[inline]
    pub(crate) fn lock(self) -> &'a AtomicU64 {
        &self.0[0]
    }

    /// One bit per slot that holds an entry of this leaf. Only for the holder of the lock.
    #[inline]
    pub(crate) fn live(self) -> &'a AtomicU64 {
        &self.0[1]
    }

    /// All slots, unsorted. The caller needs an acquire fence before it reads an entry.
    #[inline]
    pub(crate) fn slots(self) -> impl Iterator<Item = Slot> + 'a {
        self.0[LEAF_HEADER..].iter().map(|word| Slot(word.load(Ordering::Relaxed)))
    }

    /// One slot. The same fence is needed.
    #[inline]
    pub(crate) fn slot(self, index: usize) -> Slot {
        Slot(self.0[LEAF_HEADER + index].load(Ordering::Relaxed))
    }

    /// Stores a slot and publishes its entry. Only for the holder of the lock.
    #[inline]
    pub(crate) fn set_slot(self, index: usize, slot: Slot) {
        self.0[LEAF_HEADER + index].store(slot.0, Ordering::Release);
    }
}

/// The entries and nodes of one memtable.
pub(crate) struct Nodes {
    arena: Arena,
}

/// Bytes of an entry in the arena.
#[inline]
pub(crate) const fn entry_size(key_len: usize, value_len: usize) -> usize {
    HEADER + key_len.saturating_add(value_len).saturating_add(UNIT - 1) / UNIT * UNIT
}

/// Maximum number of bytes of a node in the arena.
pub(crate) const fn node_size_max(height: usize, key_len: usize) -> usize {
    LINE - UNIT + height * UNIT + HEADER + key_len.next_multiple_of(UNIT) + (LEAF_HEADER + SLOTS) * UNIT
}

impl Nodes {
    /// Nodes in an arena of `arena_size` bytes. `None` if there is no memory.
    pub(crate) fn new(arena_size: usize, spare: &Arc<SpareMemory>) -> Option<Nodes> {
        Some(Nodes { arena: Arena::new(arena_size, spare)? })
    }

    /// Writes an entry that no other thread knows yet. Its value consists of two parts. Its bytes must be published with a release
    /// operation.
    ///
    /// # Panics
    /// If the arena is full.
    #[inline]
    pub(crate) fn create_entry(&self, entry: Target<'_>, [value, tail]: [&[u8]; 2]) -> EntryId {
        let len = value.len().saturating_add(tail.len());
        assert!(len <= u32::MAX as usize);
        let unit = self.arena.allocate(entry_size(entry.key.len(), len));
        // SAFETY: `allocate` returned space for header, key and both parts of the value, which no other thread knows.
        unsafe {
            let place = self.write_header(unit, entry, (len as u64) << 32);
            place.copy_from_nonoverlapping(value.as_ptr(), value.len());
            // Mostly there is none, and a call to copy nothing would cost more than this comparison.
            if !tail.is_empty() {
                place.add(value.len()).copy_from_nonoverlapping(tail.as_ptr(), tail.len());
            }
        }
        EntryId(NonZeroU32::new(unit).expect("offsets start past the head's tower"))
    }

    /// Writes a node that no other thread knows yet, with empty links and `slots` in its leaf. Its bytes must be
    /// published with a release operation, such as linking it.
    ///
    /// # Panics
    /// If the arena is full.
    pub(crate) fn create_node(&self, height: usize, anchor: Target<'_>, slots: &[Slot]) -> NodeId {
        assert!(0 < height && height <= MAX_HEIGHT && slots.len() <= SLOTS);
        let start = self.arena.allocate(node_size_max(height, anchor.key.len()));
        let line_units = (LINE / UNIT) as u32;
        let tower = start.next_multiple_of(line_units);
        let unit = tower + height as u32;
        let live = if slots.len() == 64 { u64::MAX } else { (1 << slots.len()) - 1 };
        let empty = std::iter::repeat_n(Slot::EMPTY.0, SLOTS - slots.len());
        // SAFETY: `allocate` returned space for the alignment and all parts, which no other thread knows.
        unsafe {
            self.arena.init_words(tower, std::iter::repeat_n(Link::END.0, height));
            self.write_header(unit, anchor, (height as u64) << 24);
            let leaf = unit + leaf_offset(anchor.key.len());
            self.arena
                .init_words(leaf, [0, live].into_iter().chain(slots.iter().map(|slot| slot.0)).chain(empty));
        }
        NodeId(NonZeroU32::new(unit).expect("the tower lies before"))
    }

    /// Writes trailer, lengths (key length and `other_lengths`) and key. Returns the address behind the key.
    ///
    /// # Safety
    /// The arena allocated enough bytes at `unit`, which no other thread knows.
    #[inline]
    unsafe fn write_header(&self, unit: u32, entry: Target<'_>, other_lengths: u64) -> *mut u8 {
        assert!(entry.key.len() < 1 << 24);
        // SAFETY: guaranteed by the caller; units are aligned for integers.
        unsafe {
            let start = self.arena.at(unit);
            start.cast::<u64>().write(entry.trailer.0);
            start.cast::<u64>().add(1).write(entry.key.len() as u64 | other_lengths);
            let key = start.add(HEADER);
            key.copy_from_nonoverlapping(entry.key.as_ptr(), entry.key.len());
            key.add(entry.key.len())
        }
    }

    #[inline]
    fn link_word(&self, node: NodeId, level: usize) -> &AtomicU64 {
        debug_assert!(level < self.height(node));
        // SAFETY: the node's tower lies before it, and callers stay below its height. `create_node` stored every link
        // before the node was published, and these units are used as links only.
        unsafe { &self.arena.words(node.raw() - 1 - level as u32, 1)[0] }
    }

    /// The link of `node` at `level`, below its height. The caller may read the next node.
    #[inline]
    pub(crate) fn link(&self, node: NodeId, level: usize) -> Link {
        Link(self.link_word(node, level).load(Ordering::Acquire))
    }

    /// Sets a link of a node that is not linked at `level` yet.
    #[inline]
    pub(crate) fn set_link(&self, node: NodeId, level: usize, link: Link) {
        self.link_word(node, level).store(link.0, Ordering::Relaxed);
    }

    /// Replaces a link if it is still `old`, and publishes the node of `new`.
    #[inline]
    pub(crate) fn swap_link(&self, node: NodeId, level: usize, old: Link, new: Link) -> bool {
        // Release: a thread that follows the link sees the new node's bytes and links, and the nodes behind them. A
        // failure needs no ordering: the caller loads the link again.
        let (success, failure) = (Ordering::Release, Ordering::Relaxed);
        self.link_word(node, level).compare_exchange(old.0, new.0, success, failure).is_ok()
    }

    /// The leaf of `node`.
    #[inline]
    pub(crate) fn leaf(&self, node: NodeId) -> Leaf<'_> {
        let key_len = (self.lengths(node) & 0xff_ffff) as usize;
        // SAFETY: `create_node` initialized these units before the node was published; all accesses are atomic.
        Leaf(unsafe { self.arena.words(node.raw() + leaf_offset(key_len), LEAF_HEADER + SLOTS) })
    }

    /// The lengths of key and value, and the height.
    #[inline]
    fn lengths(&self, of: impl Keyed) -> u64 {
        // SAFETY: see `EntryId` and `NodeId`; written before it was published, never changed.
        unsafe { self.arena.at(of.offset()).cast::<u64>().add(1).read() }
    }

    /// Number of links of the node.
    #[inline]
    fn height(&self, node: NodeId) -> usize {
        (self.lengths(node) >> 24) as u8 as usize
    }

    /// The trailer.
    #[inline]
    pub(crate) fn trailer(&self, of: impl Keyed) -> Trailer {
        // SAFETY: as for `lengths`.
        Trailer(unsafe { self.arena.at(of.offset()).cast::<u64>().read() })
    }

    /// The key.
    #[inline]
    pub(crate) fn key(&self, of: impl Keyed) -> &[u8] {
        let len = (self.lengths(of) & 0xff_ffff) as usize;
        // SAFETY: as for `lengths`; the bytes live as long as the arena, hence as long as `self`.
        unsafe { slice::from_raw_parts(self.arena.at(of.offset()).add(HEADER), len) }
    }

    /// Key and trailer.
    #[inline]
    pub(crate) fn place(&self, of: impl Keyed) -> Target<'_> {
        Target { key: self.key(of), trailer: self.trailer(of) }
    }

    /// The value.
    #[inline]
    pub(crate) fn value(&self, entry: EntryId) -> &[u8] {
        let lengths = self.lengths(entry);
        let (key_len, len) = ((lengths & 0xff_ffff) as usize, (lengths >> 32) as usize);
        // SAFETY: as for `key`.
        unsafe { slice::from_raw_parts(self.arena.at(entry.offset()).add(HEADER + key_len), len) }
    }

    /// Prefetches the first cache line of an entry.
    #[inline]
    pub(crate) fn prefetch(&self, entry: EntryId) {
        // SAFETY: an entry of this arena.
        prefetch(unsafe { self.arena.at(entry.offset()) });
    }

    /// Prefetches the leaf of a node.
    #[inline]
    pub(crate) fn prefetch_leaf(&self, node: NodeId) {
        let leaf = self.leaf(node).0;
        for line in leaf.chunks(LINE / UNIT) {
            prefetch(line.as_ptr().cast());
        }
    }

    /// Number of allocated bytes in the arena.
    pub(crate) fn arena_used(&self) -> usize {
        self.arena.used()
    }
}

/// Distance from a node to its leaf, in units.
#[inline]
fn leaf_offset(key_len: usize) -> u32 {
    ((HEADER + key_len).div_ceil(UNIT)) as u32
}

#[inline]
fn prefetch(address: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch reads nothing and accepts any address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address.cast());
    }
    let _ = address;
}
