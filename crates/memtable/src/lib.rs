//! The memtable: the newest entries of a keyspace, in memory and in order, until they are flushed to a table.
//!
//! A [`Memtable`] is a skip list in an arena. Any number of threads insert at once; readers take no lock and never
//! wait. Entries are never changed or removed: a new version of a key is a new entry, and the whole memtable goes when
//! the last reference to it does.
//!
//! Writers first [`reserve`](Memtable::reserve) room for all that they are about to insert. Where that fails, the
//! memtable is full, and the caller switches to a new one *before* anything was written; where it succeeds, the
//! inserts cannot fail. What is visible to whom is decided above, by sequence number.
//!
//! The rooms: `arena` (memory), `node` (layout of an entry), `order` (comparisons, and the tags that avoid them),
//! `list` (search and linking), `stripe` (what each thread keeps to itself). Unsafe code lives in the first two only.
//!
//! Nothing here starts a thread, reads a clock, knows of a file, or decides when to flush.

mod arena;
mod cursor;
mod list;
mod node;
mod order;
mod stripe;
mod sync;

pub use cursor::MemtableCursor;

use base::limits::{MAX_KEY_LEN, MAX_VALUE_LEN};
use base::{Seq, Trailer};
use list::SkipList;
use node::{HEIGHT_MAX, INLINE_MAX};
use order::Target;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use stripe::{STRIPES, Stripe};

/// Smallest capacity: smaller ones are rounded up to it.
pub const MIN_CAPACITY: usize = if cfg!(loom) { 512 } else { 4 << 10 };

/// Largest capacity (16 GiB where addresses allow): larger ones are cut down to it. It holds any batch.
pub const MAX_CAPACITY: usize = if usize::BITS >= 64 { (1 << 30) * 16 } else { 1 << 30 };

/// Links that the cost of an entry covers. Towers have two on average; those that are taller than this draw on
/// [`tall_tower_bytes`].
const COVERED_HEIGHT: usize = 3;

/// A concurrent, insert-only map from (user key, trailer) to value. See the [crate].
///
/// ```
/// use base::{EntryKind, Trailer};
/// use memtable::Memtable;
///
/// let table = Memtable::new(64 << 20);
/// assert!(table.reserve(Memtable::entry_cost(5, 1)));
/// table.insert(b"alice", Trailer::new(7, EntryKind::Put), b"1");
/// assert_eq!(table.get(b"alice", 7), Some((Trailer::new(7, EntryKind::Put), &b"1"[..])));
/// assert_eq!(table.get(b"alice", 6), None);
/// ```
pub struct Memtable {
    list: SkipList,
    capacity: usize,
    /// Bytes of capacity that were set aside. Never given back.
    reserved: AtomicU64,
    /// Bytes left for the links above the covered height.
    tall_bytes: AtomicI64,
    /// Bytes of values outside the arena.
    large_bytes: AtomicU64,
    stripes: [Stripe; STRIPES],
    /// Cost of all inserts, to find those that nobody reserved.
    #[cfg(debug_assertions)]
    inserted: AtomicU64,
}

/// Room for tall towers, on top of the capacity: half of the expected need would be four bytes for each of the
/// smallest entries (of 48 bytes). This is virtual memory; should it run out, towers just stay at the covered height.
fn tall_tower_bytes(capacity: usize) -> usize {
    (capacity / 12 + 8 * HEIGHT_MAX).next_multiple_of(8)
}

impl Memtable {
    /// An empty memtable for entries that cost `capacity` bytes in total, between [`MIN_CAPACITY`] and
    /// [`MAX_CAPACITY`]. The memory is only reserved: an empty memtable costs about a page, whatever its capacity.
    pub fn new(capacity: usize) -> Arc<Memtable> {
        let capacity = capacity.clamp(MIN_CAPACITY, MAX_CAPACITY).next_multiple_of(8);
        let tall_bytes = tall_tower_bytes(capacity);
        Arc::new(Memtable {
            list: SkipList::new(capacity + tall_bytes),
            capacity,
            reserved: AtomicU64::new(0),
            tall_bytes: AtomicI64::new(tall_bytes as i64),
            large_bytes: AtomicU64::new(0),
            stripes: std::array::from_fn(|_| Stripe::new()),
            #[cfg(debug_assertions)]
            inserted: AtomicU64::new(0),
        })
    }

    /// What an entry with a key and a value of these lengths (in bytes) takes of the capacity: its node, and its value
    /// in full, wherever that lies.
    #[inline]
    pub fn entry_cost(key_len: usize, value_len: usize) -> usize {
        let outside = if value_len > INLINE_MAX { value_len } else { 0 };
        node::size(COVERED_HEIGHT, key_len, value_len).saturating_add(outside)
    }

    /// Sets `bytes` aside, the sum of the [costs](Memtable::entry_cost) of entries to be inserted next. False, and
    /// nothing set aside, when they do not fit any more.
    pub fn reserve(&self, bytes: usize) -> bool {
        let fits =
            |reserved: u64| reserved.checked_add(bytes as u64).filter(|&sum| sum <= self.capacity as u64);
        self.reserved.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok()
    }

    /// Inserts an entry for which room was reserved. Many threads may insert at once. A reader sees the entry whole
    /// or not at all; once this returns, every reader that synchronizes with this thread sees it.
    ///
    /// No two entries may have the same key and trailer. Costs a search, and O(1) beside the thread's last insert.
    ///
    /// # Panics
    /// When key or value are longer than [the limits](base::limits), or nobody reserved room: bugs of the caller.
    pub fn insert(&self, key: &[u8], trailer: Trailer, value: &[u8]) {
        assert!(key.len() <= MAX_KEY_LEN && value.len() <= MAX_VALUE_LEN, "memtable: entry past the limits");
        #[cfg(debug_assertions)]
        self.check_reservation(Memtable::entry_cost(key.len(), value.len()));
        let stripe = &self.stripes[stripe::index()];
        let ticket = stripe.count(trailer.seq(), key.len() + value.len());
        if value.len() > INLINE_MAX {
            self.large_bytes.fetch_add(value.len() as u64, Ordering::Relaxed);
        }
        let height = self.afford(draw_height(ticket, trailer));
        self.list.insert(Target { key, trailer }, value, height, stripe);
    }

    /// `height`, or what of it there is room for.
    #[inline]
    fn afford(&self, height: usize) -> usize {
        if height <= COVERED_HEIGHT {
            return height;
        }
        let extra = 8 * (height - COVERED_HEIGHT) as i64;
        if self.tall_bytes.fetch_sub(extra, Ordering::Relaxed) >= extra { height } else { COVERED_HEIGHT }
    }

    #[cfg(debug_assertions)]
    fn check_reservation(&self, cost: usize) {
        let inserted = self.inserted.fetch_add(cost as u64, Ordering::AcqRel) + cost as u64;
        assert!(inserted <= self.reserved.load(Ordering::Relaxed), "memtable: insert without reservation");
    }

    /// The newest entry of `key` that is not newer than `seq`: its trailer and value (a tombstone is an entry, too).
    #[inline]
    pub fn get(&self, key: &[u8], seq: Seq) -> Option<(Trailer, &[u8])> {
        let nodes = self.list.nodes();
        let node = self.list.find(Target { key, trailer: Trailer::seek(seq) })?;
        (nodes.key(node) == key).then(|| (nodes.trailer(node), nodes.value(node)))
    }

    /// A new cursor, not yet positioned.
    pub fn cursor(self: &Arc<Self>) -> MemtableCursor {
        MemtableCursor::new(self.clone())
    }

    /// How many entries were inserted.
    pub fn entries(&self) -> usize {
        stripe::counts(&self.stripes).entries
    }

    /// Whether nothing was inserted.
    pub fn is_empty(&self) -> bool {
        self.entries() == 0
    }

    /// Bytes of memory that are in use: the touched part of the arena, and the values outside of it.
    pub fn used_bytes(&self) -> usize {
        self.list.nodes().arena_used() + self.large_bytes.load(Ordering::Relaxed) as usize
    }

    /// Bytes that [`reserve`](Memtable::reserve) may set aside in total.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Length of all keys and values, in bytes.
    pub fn user_bytes(&self) -> u64 {
        stripe::counts(&self.stripes).user_bytes
    }

    /// The smallest sequence number inserted.
    pub fn min_seq(&self) -> Option<Seq> {
        Some(stripe::seqs(&self.stripes)?.0)
    }

    /// The largest sequence number inserted.
    pub fn max_seq(&self) -> Option<Seq> {
        Some(stripe::seqs(&self.stripes)?.1)
    }

    #[inline]
    pub(crate) fn list(&self) -> &SkipList {
        &self.list
    }
}

impl fmt::Debug for Memtable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memtable")
            .field("entries", &self.entries())
            .field("used_bytes", &self.used_bytes())
            .field("capacity", &self.capacity)
            .finish_non_exhaustive()
    }
}

/// The height of a tower: `n` with probability 1/2ⁿ. Derived from what the thread inserted before, never from the key:
/// keys chosen with care cannot make a list degenerate, and the same history gives the same list.
#[inline]
fn draw_height(ticket: u64, trailer: Trailer) -> usize {
    let mut bits = ticket ^ trailer.0.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ bits >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
    bits = (bits ^ bits >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
    bits ^= bits >> 32;
    (bits.trailing_zeros() as usize + 1).min(HEIGHT_MAX)
}
