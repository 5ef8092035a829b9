//! Nodes: one entry each, at a fixed place in the arena, immutable but for their links.
//!
//! ```text
//!        link n-1 | ... | link 1 | link 0 | trailer | lengths | key | value | padding
//!        8 bytes                          ^ 8 bytes   8 bytes
//!                                         the node's offset
//! ```
//!
//! The tower of links grows down from the node's offset, so that everything is found without knowing its height,
//! and a search that walks low levels touches one cache line per node. A link is the offset of the next node (lower
//! 32 bits; 0: the end) and its tag (upper 32 bits, see [`crate::order`]); both change together, in one word.
//!
//! `lengths` is the key's length (24 bits), the height (8 bits) and the value's length (32 bits). A value longer than
//! [`INLINE_MAX`] is an allocation of its own: its address lies in the value's place.

#![allow(unsafe_code)]

use crate::arena::{Arena, UNIT};
use crate::order::{TAG_END, Target};
use crate::sync::{AtomicU64, Ordering};
use base::Trailer;
use parking_lot::Mutex;
use std::num::NonZeroU32;
use std::ptr::NonNull;
use std::slice;

/// Tallest tower. Half the nodes have one link, a quarter two, and so on.
pub(crate) const HEIGHT_MAX: usize = if cfg!(loom) { 2 } else { 24 };

/// Longest value that lies in the arena.
pub(crate) const INLINE_MAX: usize = 32 << 10;

/// Bytes of a node's trailer and lengths.
pub(crate) const HEADER: usize = 16;

/// A node of the arena it is used with: every value of this type came from [`Nodes::create`], which is what
/// the methods of [`Nodes`] rest on. There is one [`Nodes`] per memtable, and ids never leave theirs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NodeId(NonZeroU32);

impl NodeId {
    /// The id that [`NodeId::raw`] gave.
    #[inline]
    pub(crate) fn from_raw(raw: u32) -> Option<NodeId> {
        NonZeroU32::new(raw).map(NodeId)
    }

    /// As an integer, never 0.
    #[inline]
    pub(crate) fn raw(self) -> u32 {
        self.0.get()
    }
}

/// What a link holds: the next node and its tag.
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

    /// Where it leads.
    #[inline]
    pub(crate) fn node(self) -> Option<NodeId> {
        NodeId::from_raw(self.0 as u32)
    }

    /// The tag of that node against the one that holds the link.
    #[inline]
    pub(crate) fn tag(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// The nodes of one memtable.
pub(crate) struct Nodes {
    arena: Arena,
    large: Mutex<Vec<Large>>,
}

/// A value outside the arena.
struct Large(NonNull<[u8]>);

// SAFETY: owns its bytes, which are never written again; they belong to no thread.
unsafe impl Send for Large {}

impl Drop for Large {
    fn drop(&mut self) {
        // SAFETY: made by `Box::into_raw` and dropped once. The memtable goes, and with it every reader.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

/// Bytes that a node takes in the arena.
#[inline]
pub(crate) fn size(height: usize, key_len: usize, value_len: usize) -> usize {
    let value_len = if value_len > INLINE_MAX { size_of::<*const u8>() } else { value_len };
    (height * UNIT + HEADER).saturating_add(key_len.saturating_add(value_len)).next_multiple_of(UNIT)
}

impl Nodes {
    /// Nodes in a new arena of `arena_size` bytes.
    pub(crate) fn new(arena_size: usize) -> Nodes {
        Nodes { arena: Arena::new(arena_size), large: Mutex::new(Vec::new()) }
    }

    /// Writes a node that no other thread knows yet, with links to nowhere. Its bytes must be published with a release
    /// operation (linking it does).
    ///
    /// # Panics
    /// When the arena is full.
    #[inline]
    pub(crate) fn create(&self, height: usize, entry: Target<'_>, value: &[u8]) -> NodeId {
        assert!(0 < height && height <= HEIGHT_MAX && entry.key.len() < 1 << 24);
        assert!(value.len() <= u32::MAX as usize);
        let start = self.arena.allocate(size(height, entry.key.len(), value.len()));
        let raw = start + height as u32;
        let lengths = entry.key.len() as u64 | (height as u64) << 24 | (value.len() as u64) << 32;
        // SAFETY: `allocate` gave us `size` bytes that nobody else knows; all writes lie inside of them: the header
        // behind `height` units, then the key, then the value or its address.
        unsafe {
            let node = self.arena.at(raw);
            node.cast::<u64>().write(entry.trailer.0);
            node.cast::<u64>().add(1).write(lengths);
            let key = node.add(HEADER);
            key.copy_from_nonoverlapping(entry.key.as_ptr(), entry.key.len());
            let place = key.add(entry.key.len());
            if value.len() > INLINE_MAX {
                place.cast::<*const u8>().write_unaligned(self.keep(value));
            } else {
                place.copy_from_nonoverlapping(value.as_ptr(), value.len());
            }
        }
        for level in 0..height as u32 {
            // SAFETY: these units are ours, and are atomics from this first store on.
            unsafe { self.arena.word(raw - 1 - level) }.store(Link::END.0, Ordering::Relaxed);
        }
        NodeId(NonZeroU32::new(raw).expect("a tower lies before the node"))
    }

    /// Copies a large value into an allocation that lives as long as the nodes.
    #[cold]
    fn keep(&self, value: &[u8]) -> *const u8 {
        let large = NonNull::from(Box::leak(Box::<[u8]>::from(value)));
        self.large.lock().push(Large(large));
        large.as_ptr().cast()
    }

    #[inline]
    fn link_word(&self, node: NodeId, level: usize) -> &AtomicU64 {
        debug_assert!(level < self.height(node));
        // SAFETY: the node's tower lies right before it; callers keep to its height. `create` stored every link before
        // the node was published, and nothing else uses these units.
        unsafe { self.arena.word(node.raw() - 1 - level as u32) }
    }

    /// The link of `node` at `level`, below its height. The node that it leads to may be read.
    #[inline]
    pub(crate) fn link(&self, node: NodeId, level: usize) -> Link {
        Link(self.link_word(node, level).load(Ordering::Acquire))
    }

    /// Sets a link of a node that is not yet linked at `level`.
    #[inline]
    pub(crate) fn set_link(&self, node: NodeId, level: usize, link: Link) {
        self.link_word(node, level).store(link.0, Ordering::Relaxed);
    }

    /// Replaces a link if it is still `old`, and publishes the node that `new` leads to.
    #[inline]
    pub(crate) fn swap_link(&self, node: NodeId, level: usize, old: Link, new: Link) -> bool {
        // Release: who follows the link sees the new node's bytes, its links, and what those lead to. A failure
        // needs no ordering: the caller loads the link again.
        let (success, failure) = (Ordering::Release, Ordering::Relaxed);
        self.link_word(node, level).compare_exchange(old.0, new.0, success, failure).is_ok()
    }

    /// Key length, height and value length, packed.
    #[inline]
    fn lengths(&self, node: NodeId) -> u64 {
        // SAFETY: see `NodeId`; written before the node was published, never changed.
        unsafe { self.arena.at(node.raw()).cast::<u64>().add(1).read() }
    }

    /// How many links the node has.
    #[inline]
    pub(crate) fn height(&self, node: NodeId) -> usize {
        (self.lengths(node) >> 24) as u8 as usize
    }

    /// The trailer.
    #[inline]
    pub(crate) fn trailer(&self, node: NodeId) -> Trailer {
        // SAFETY: as for `lengths`.
        Trailer(unsafe { self.arena.at(node.raw()).cast::<u64>().read() })
    }

    /// The key.
    #[inline]
    pub(crate) fn key(&self, node: NodeId) -> &[u8] {
        let len = (self.lengths(node) & 0xff_ffff) as usize;
        // SAFETY: as for `lengths`; the bytes live as long as the arena, hence as long as `self`.
        unsafe { slice::from_raw_parts(self.arena.at(node.raw()).add(HEADER), len) }
    }

    /// The value.
    #[inline]
    pub(crate) fn value(&self, node: NodeId) -> &[u8] {
        let lengths = self.lengths(node);
        let (key_len, len) = ((lengths & 0xff_ffff) as usize, (lengths >> 32) as usize);
        // SAFETY: as for `key`; a large value is kept until `self` is dropped.
        unsafe {
            let place = self.arena.at(node.raw()).add(HEADER + key_len);
            let start = if len > INLINE_MAX { place.cast::<*const u8>().read_unaligned() } else { place };
            slice::from_raw_parts(start, len)
        }
    }

    /// Brings a node's line into the cache, for a caller who will need it soon.
    #[inline]
    pub(crate) fn prefetch(&self, node: NodeId) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        // SAFETY: a hint about an address inside the arena; it reads nothing.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T0>(self.arena.at(node.raw()).cast());
        }
        let _ = node;
    }

    /// Bytes of the arena that are in use.
    pub(crate) fn arena_used(&self) -> usize {
        self.arena.used()
    }
}
