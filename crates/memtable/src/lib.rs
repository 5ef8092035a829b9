//! The memtable: the newest entries of a keyspace, in memory and in order, until they are flushed to a table.
//!
//! A [`Memtable`] is a skip list in an arena, with a leaf of many entries in each node. Any number of threads insert at
//! once, and wait for each other only inside one leaf, for nanoseconds; readers take no lock and never wait. Entries are never changed or removed: a new version of a key is a new entry, and the whole memtable goes when
//! the last reference to it does.
//!
//! Writers first [`reserve`](Memtable::reserve) room for all that they are about to insert. Where that fails, the
//! memtable is full, and the caller switches to a new one *before* anything was written; where it succeeds, the
//! inserts cannot fail. What is visible to whom is decided above, by sequence number.
//!
//! The rooms: `arena` (memory), `node` (layout of entries and nodes), `order` (comparisons, and the tags that avoid
//! them), `list` (search), `insert` (leaves and splits), `stripe` (what each thread keeps to itself), `ranges` (range tombstones,
//! which lie beside the list). Unsafe code lives in the first two only.
//!
//! Nothing here starts a thread, reads a clock, knows of a file, or decides when to flush.

mod arena;
mod cursor;
mod insert;
mod key_order;
mod list;
#[cfg(all(test, loom))]
mod loom_tests;
mod node;
mod range_tombstones;
mod stripe;
mod sync;

pub use cursor::MemtableCursor;

use base::limits::{MAX_KEY_LEN, MAX_VALUE_LEN};
use base::{Cursor, Error, ErrorKind, RangeSet, RangeTombstone, Result, Seq, Trailer};
use key_order::Target;
use list::SkipList;
use node::{EntryId, MAX_HEIGHT, MAX_INLINE, Nodes, SLOTS};
use std::collections::TryReserveError;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use stripe::{STRIPES, Stripe};
use sync::OwnLine;

/// Smallest capacity: smaller ones are rounded up to it.
pub const MIN_CAPACITY: usize = if cfg!(loom) { 512 } else { 4 << 10 };

/// Bytes of memory that a memtable takes beside its entries, about.
pub const BASE_BYTES: u64 = 8 << 10;

/// Largest capacity (12 GiB where addresses allow): larger ones are cut down to it. It holds any batch.
pub const MAX_CAPACITY: usize = if usize::BITS >= 64 { (1 << 30) * 12 } else { 1 << 30 };

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
    reserved: OwnLine<AtomicU64>,
    /// Bytes of values outside the arena.
    large_bytes: AtomicU64,
    stripes: [Stripe; STRIPES],
    ranges: range_tombstones::Ranges,
    paid: AtomicU64,
    /// Whether a tombstone of a key was inserted. Written once.
    deletes: AtomicBool,
    /// Cost of all inserts, to find those that nobody reserved.
    #[cfg(debug_assertions)]
    inserted: AtomicU64,
}

/// A copy of a large value: see [`Memtable::keep`].
pub struct KeptValue(Box<[u8]>);

/// An entry's share of the nodes: 8 bytes for its slot, in leaves that are 69 % full on average, and what nodes
/// take beside their slots. (The copy of the anchor's key comes on top.)
const NODE_SHARE: usize = 16;

/// Arena bytes for entries that cost `capacity` in total, whatever the order in which they come.
///
/// Nodes take more than their share when somebody tries hard. A leaf is split when it is full, at most twice before it
/// has lost its upper half, and a leaf that got half of another one takes `SLOTS / 2 - 1` inserts to be full. Hence there
/// are at most `2 / (SLOTS / 2 - 1)` nodes for each entry. And no entry is the anchor of two nodes, so that at worst each
/// key is copied once. One and a half times the capacity is enough for all that, and is virtual memory: what is
/// not needed is never touched.
fn arena_size(capacity: usize) -> usize {
    const { assert!(cfg!(any(miri, loom)) || nodes_fit(0) && nodes_fit(1) && nodes_fit(MAX_KEY_LEN)) };
    if SLOTS < 64 { 8 * capacity } else { capacity + capacity / 2 * 3 }
}

/// Whether entries with keys of this length, and their nodes at worst, fit into two and a half times their cost.
const fn nodes_fit(key_len: usize) -> bool {
    let nodes = 2 * node::node_size_max(MAX_HEIGHT, 0) / (SLOTS / 2 - cfg!(not(loom)) as usize)
        + key_len.next_multiple_of(8);
    let cost = Memtable::entry_cost(key_len, 0);
    node::entry_size(key_len, 0) + nodes <= cost + cost / 2 * 3
}

impl Memtable {
    /// An empty memtable for entries that cost `capacity` bytes in total, between [`MIN_CAPACITY`] and
    /// [`MAX_CAPACITY`]. The memory is only reserved: an empty memtable costs about a page, whatever its capacity.
    ///
    /// # Panics
    /// When there is no memory for it: see [`Memtable::try_new`].
    pub fn new(capacity: usize) -> Arc<Memtable> {
        Memtable::try_new(capacity).expect("memory for a memtable")
    }

    /// [`Memtable::new`] for callers who can go on without it.
    ///
    /// # Errors
    /// `Io` where the process gets no more memory or address space.
    pub fn try_new(capacity: usize) -> Result<Arc<Memtable>> {
        let capacity = capacity.clamp(MIN_CAPACITY, MAX_CAPACITY).next_multiple_of(8);
        Memtable::build(capacity, arena_size(capacity)).map(Arc::new)
    }

    /// A memtable that nothing can be inserted into: [`Memtable::reserve`] always fails. What many keyspaces can share as long as they
    /// have nothing in memory.
    pub fn empty() -> Arc<Memtable> {
        Arc::new(Memtable::build(0, 0).expect("memory for a memtable"))
    }

    fn build(capacity: usize, arena_size: usize) -> Result<Memtable> {
        let list = SkipList::new(arena_size).ok_or_else(|| {
            let message = format!(
                "there is no memory for a memtable: {arena_size} bytes of address space were asked for"
            );
            Error::new(ErrorKind::Io, message)
        })?;
        Ok(Memtable {
            list,
            capacity,
            reserved: OwnLine(AtomicU64::new(0)),
            large_bytes: AtomicU64::new(0),
            stripes: std::array::from_fn(|_| Stripe::new()),
            ranges: range_tombstones::Ranges::default(),
            paid: AtomicU64::new(0),
            deletes: AtomicBool::new(false),
            #[cfg(debug_assertions)]
            inserted: AtomicU64::new(0),
        })
    }

    /// A memtable of a larger capacity with all that is in this one, to take its place. Nothing may be inserted into this one from before
    /// the call on, and what was set aside must be inserted by then (or never be): it stays set aside. Cursors of this one go on.
    ///
    /// Costs a copy of every entry, in order, which is what makes inserting cheapest.
    ///
    /// # Errors
    /// As for [`Memtable::try_new`].
    pub fn grown(self: &Arc<Self>, capacity: usize) -> Result<Arc<Memtable>> {
        let capacity = capacity.clamp(MIN_CAPACITY.max(self.capacity), MAX_CAPACITY).next_multiple_of(8);
        let new = Memtable::build(capacity, arena_size(capacity))?;
        let stripe = &new.stripes[stripe::index()];
        let mut cursor = self.cursor();
        let mut ticket = 0;
        cursor.seek_to_first()?;
        while cursor.valid() {
            let place = Target { key: cursor.key(), trailer: cursor.trailer() };
            let kept = Memtable::keep(cursor.value()).map_err(|e| no_memory(&e))?;
            let create = |nodes: &Nodes| match kept {
                Some(KeptValue(value)) => nodes.create_large_entry(place, value),
                None => nodes.create_entry(place, cursor.value()),
            };
            new.list.insert(place, create, random(ticket, place.trailer), stripe);
            ticket += 1;
            cursor.next()?;
        }
        for (to, from) in new.stripes.iter().zip(&self.stripes) {
            to.copy_counts(from);
        }
        new.ranges.copy_from(&self.ranges);
        let same =
            |to: &AtomicU64, from: &AtomicU64| to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        same(&new.reserved.0, &self.reserved.0);
        same(&new.large_bytes, &self.large_bytes);
        same(&new.paid, &self.paid);
        new.deletes.store(self.deletes.load(Ordering::Relaxed), Ordering::Relaxed);
        #[cfg(debug_assertions)]
        same(&new.inserted, &self.inserted);
        Ok(Arc::new(new))
    }

    /// What an entry with a key and a value of these lengths (in bytes) takes of the capacity: its node, and its value
    /// in full, wherever that lies.
    #[inline]
    pub const fn entry_cost(key_len: usize, value_len: usize) -> usize {
        let outside = if value_len > MAX_INLINE { value_len } else { 0 };
        let share = NODE_SHARE + key_len / 32 / 8 * 8;
        node::entry_size(key_len, value_len).saturating_add(share).saturating_add(outside)
    }

    /// Sets `bytes` aside, the sum of the [costs](Memtable::entry_cost) of entries to be inserted next. False, and
    /// nothing set aside, when they do not fit any more.
    pub fn reserve(&self, bytes: usize) -> bool {
        let fits =
            |reserved: u64| reserved.checked_add(bytes as u64).filter(|&sum| sum <= self.capacity as u64);
        self.reserved.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok()
    }

    /// Whether [`Memtable::reserve`] would set `bytes` aside now.
    pub fn has_room(&self, bytes: usize) -> bool {
        let reserved = self.reserved.0.load(Ordering::Relaxed);
        reserved.checked_add(bytes as u64).is_some_and(|sum| sum <= self.capacity as u64)
    }

    /// Inserts an entry for which room was reserved. Many threads may insert at once. A reader sees the entry whole
    /// or not at all; once this returns, every reader that synchronizes with this thread sees it.
    ///
    /// No two entries may have the same key and trailer. Costs a search, and O(1) beside the thread's last insert.
    ///
    /// # Panics
    /// When key or value are longer than [the limits](base::limits), or nobody reserved room: bugs of the caller.
    pub fn insert(&self, key: &[u8], trailer: Trailer, value: &[u8]) {
        let place = Target { key, trailer };
        self.insert_by(place, value.len(), |nodes| nodes.create_entry(place, value));
    }

    /// Whether a value of this length lies in an allocation of its own.
    #[inline]
    pub const fn lies_outside(value_len: usize) -> bool {
        value_len > MAX_INLINE
    }

    /// A copy of a value that is to be inserted, if it does not lie in the arena with its key: made while it may still fail for want of memory.
    pub fn keep(value: &[u8]) -> std::result::Result<Option<KeptValue>, TryReserveError> {
        if !Memtable::lies_outside(value.len()) {
            return Ok(None);
        }
        let mut kept = Vec::new();
        kept.try_reserve_exact(value.len())?;
        kept.extend_from_slice(value);
        Ok(Some(KeptValue(kept.into_boxed_slice())))
    }

    /// [`Memtable::insert`] of a value that was copied before.
    pub fn insert_kept(&self, key: &[u8], trailer: Trailer, value: KeptValue) {
        let place = Target { key, trailer };
        self.insert_by(place, value.0.len(), |nodes| nodes.create_large_entry(place, value.0));
    }

    #[inline]
    fn insert_by(&self, place: Target<'_>, value_len: usize, create: impl FnOnce(&Nodes) -> EntryId) {
        let Target { key, trailer } = place;
        assert!(key.len() <= MAX_KEY_LEN && value_len <= MAX_VALUE_LEN, "memtable: entry past the limits");
        #[cfg(debug_assertions)]
        self.check_reservation(Memtable::entry_cost(key.len(), value_len));
        let stripe = &self.stripes[stripe::index()];
        let ticket = stripe.count(trailer.seq(), key.len() + value_len);
        if value_len > MAX_INLINE {
            self.large_bytes.fetch_add(value_len as u64, Ordering::Relaxed);
        }
        if trailer.is_delete() && !self.deletes.load(Ordering::Relaxed) {
            self.deletes.store(true, Ordering::Relaxed);
        }
        self.list.insert(place, create, random(ticket, trailer), stripe);
    }

    /// What a range tombstone with bounds of these lengths takes of the capacity, about.
    pub const fn range_cost(from_len: usize, to_len: usize) -> usize {
        (1024 + from_len + to_len).next_multiple_of(8)
    }

    /// Inserts a range tombstone for which room was reserved ([`Memtable::range_cost`]). As with [`Memtable::insert`], many threads
    /// may do so at once. It counts as an entry.
    pub fn delete_range(&self, tombstone: RangeTombstone) {
        let (from, to) = (tombstone.from.len(), tombstone.to.as_ref().map_or(0, |to| to.len()));
        #[cfg(debug_assertions)]
        self.check_reservation(Memtable::range_cost(from, to));
        let seq = tombstone.seq;
        self.ranges.insert(tombstone);
        // After it is there: a memtable that says it is not empty has it.
        self.stripes[stripe::index()].count(seq, from + to);
    }

    /// The range tombstones, if there are any. Cost: one load where there are none.
    #[inline]
    pub fn ranges(&self) -> Option<Arc<RangeSet>> {
        self.ranges.get()
    }

    /// The newest range tombstone over `key` that a reader at `seq` sees; 0 when there is none. Cost: one load where there are none.
    #[inline]
    pub fn deleted_before(&self, key: &[u8], seq: Seq) -> Seq {
        self.ranges.newest(key, seq)
    }

    #[cfg(debug_assertions)]
    fn check_reservation(&self, cost: usize) {
        let inserted = self.inserted.fetch_add(cost as u64, Ordering::AcqRel) + cost as u64;
        assert!(inserted <= self.reserved.0.load(Ordering::Relaxed), "memtable: insert without reservation");
    }

    /// The newest entry of `key` that is not newer than `seq`: its trailer and value (a tombstone is an entry, too).
    #[inline]
    pub fn get(&self, key: &[u8], seq: Seq) -> Option<(Trailer, &[u8])> {
        let nodes = &self.list.nodes;
        let entry = self.list.find(Target { key, trailer: Trailer::seek(seq) })?;
        Some((nodes.trailer(entry), nodes.value(entry)))
    }

    /// A new cursor, not yet positioned.
    pub fn cursor(self: &Arc<Self>) -> MemtableCursor {
        MemtableCursor::new(self.clone())
    }

    /// How many entries were inserted, range tombstones counted.
    pub fn entries(&self) -> usize {
        stripe::counts(&self.stripes).entries
    }

    /// Whether nothing was inserted.
    pub fn is_empty(&self) -> bool {
        self.entries() == 0
    }

    /// Whether some entry is a tombstone, of a key or of a range: flushing it may let what it deletes go.
    pub fn has_deletes(&self) -> bool {
        self.deletes.load(Ordering::Relaxed) || self.ranges().is_some()
    }

    /// Bytes of memory that are in use: the touched part of the arena, and the values outside of it. None for [`Memtable::empty`], which is
    /// shared.
    pub fn used_bytes(&self) -> usize {
        if self.capacity == 0 {
            return 0;
        }
        self.list.nodes.arena_used() + self.large_bytes.load(Ordering::Relaxed) as usize
    }

    /// Counts what readers have paid for entries that they had to pass over, in bytes; gives the sum. The memtable makes nothing of it.
    pub fn pay(&self, bytes: u64) -> u64 {
        self.paid.fetch_add(bytes, Ordering::Relaxed) + bytes
    }

    /// Begins anew with that.
    pub fn forget_paid(&self) {
        self.paid.store(0, Ordering::Relaxed);
    }

    /// What readers have paid so far.
    pub fn paid(&self) -> u64 {
        self.paid.load(Ordering::Relaxed)
    }

    /// Bytes that [`reserve`](Memtable::reserve) has set aside so far.
    pub fn reserved(&self) -> usize {
        self.reserved.0.load(Ordering::Relaxed) as usize
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

#[cold]
fn no_memory(why: &dyn fmt::Display) -> Error {
    Error::new(ErrorKind::Io, format!("there is no memory for a memtable: {why}"))
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

/// Bits for the height of a tower. Derived from what the thread inserted before, never from the key: keys chosen with
/// care cannot make a list degenerate, and the same history gives the same list.
#[inline]
fn random(ticket: u64, trailer: Trailer) -> u64 {
    let mut bits = ticket ^ trailer.0.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ bits >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
    bits = (bits ^ bits >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
    bits ^ bits >> 32
}
