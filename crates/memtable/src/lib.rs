//! The memtable: the newest entries of a keyspace, in memory until they are flushed.
//!
//! A [`Memtable`] is a skip list in an arena whose nodes are leaves of many entries; or many such lists, found by the hash
//! of a key, for a keyspace without order ([`Order`]). Any number of threads insert concurrently. They wait for each
//! other only inside one leaf, or while a list gets its first node, for nanoseconds. Readers take no lock and never wait.
//! Entries are never changed or removed: a new version of a key is a new entry. The whole memtable is freed with its
//! last reference.
//!
//! Writers first [`reserve`](Memtable::reserve) space for all entries that they will insert. If that fails, the
//! memtable is full, and the caller switches to a new one *before* anything is written. If it succeeds, the inserts
//! cannot fail. The caller decides by sequence number which entries a reader sees.
//!
//! The modules: `memory` (reservations, some used again), `arena` (parts of one), `node` (layout of entries and
//! nodes), `key_order` (comparisons, and the tags that avoid them), `list` (search), `insert` (leaves and splits),
//! `stripe` (per-thread counters), `range_tombstones` (stored beside the list). Only the first three contain unsafe
//! code.
//!
//! This crate starts no threads, reads no clock, accesses no files, and does not decide when to flush.

mod arena;
mod cursor;
mod insert;
mod key_order;
mod list;
#[cfg(all(test, loom))]
mod loom_tests;
mod memory;
mod node;
mod range_tombstones;
mod stripe;
mod sync;

pub use cursor::MemtableCursor;
pub use memory::SpareMemory;

use base::limits::{MAX_KEY_LEN, MAX_VALUE_LEN};
use base::{Cursor, Error, ErrorKind, RangeSet, RangeTombstone, Result, Seq, Trailer};
use key_order::Target;
use list::SkipList;
use node::{MAX_HEIGHT, SLOTS};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use stripe::{STRIPES, Stripe};
use sync::OwnLine;

/// Minimum capacity; smaller values are rounded up to it.
pub const MIN_CAPACITY: usize = if cfg!(loom) { 512 } else { 4 << 10 };

/// Approximate memory of a memtable beside its entries and lists, in bytes.
const BASE_BYTES: u64 = 8 << 10;

/// Maximum capacity (12 GiB on 64-bit platforms); larger values are reduced to it. Any batch fits.
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
    pub(crate) list: SkipList,
    capacity: usize,
    /// Bytes of capacity that are reserved. Never decreases.
    reserved: OwnLine<AtomicU64>,
    stripes: [Stripe; STRIPES],
    ranges: range_tombstones::Ranges,
    /// Ascending by sequence number.
    places: Mutex<Vec<LogPlace>>,
    charges: AtomicU64,
    /// Whether a point tombstone was inserted. Written once.
    deletes: AtomicBool,
    /// Gets the memory of the memtable.
    spare: Arc<SpareMemory>,
    /// Cost of all inserts, to detect inserts without a reservation.
    #[cfg(debug_assertions)]
    inserted: AtomicU64,
}

/// The order of the entries in a memtable. In either, all versions of a key are next to each other, the newest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The order of keys.
    Key,
    /// One that depends on the hashes of keys, and on the capacity: so two memtables cannot be merged. An insert that is not near the one before takes about
    /// a fourth of the time, a get half. The lists take up to a tenth of the capacity, which in a full memtable of short entries is not more than other nodes would: [`Memtable::overhead`].
    Hash,
}

/// Capacity for each list of a memtable in the order of hashes. With entries of some 100 to 200 bytes most lists are one leaf.
const CAPACITY_PER_LIST: usize = if cfg!(loom) {
    256
} else if cfg!(miri) {
    2 << 10
} else {
    8 << 10
};

// An arena has room.
const _: () = {
    let heads = SkipList::heads_size(MAX_CAPACITY / CAPACITY_PER_LIST) as u64;
    assert!(
        MAX_CAPACITY as u64 / 2 * 5 + heads < u32::MAX as u64 * arena::UNIT as u64 || cfg!(any(miri, loom))
    );
};

/// The number of lists.
fn lists(capacity: usize, order: Order) -> usize {
    match order {
        Order::Key => 1,
        Order::Hash => 1 << (capacity / CAPACITY_PER_LIST).max(2).ilog2(),
    }
}

/// Where the log has the value of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogPlace {
    /// The sequence number of the entry.
    pub seq: Seq,
    /// The number of the log.
    pub log: u64,
    /// The offset of the first byte of the value in the log.
    pub offset: u64,
}

/// An entry's share of the nodes: 8 bytes for its slot, in leaves that are 69 % full on average, plus the other parts
/// of nodes. (The copy of the anchor's key is added to that.)
const NODE_SHARE: usize = 16;

/// Nodes of a level on which estimates count.
const NODES_TO_COUNT: usize = 256;

/// Arena size for entries with a total cost of `capacity`, inserted in any order, in addition to the heads of lists.
///
/// An adversarial order of keys makes nodes take more than their share. A leaf is split when it is full, at most
/// twice before it has lost its upper half, and a leaf that received half of another one takes `SLOTS / 2 - 1`
/// inserts to fill. Hence there are at most `2 / (SLOTS / 2 - 1)` nodes per entry. No entry is the anchor of two
/// nodes, so each key is copied at most once. Another one and a half times the capacity is enough for all that. It is
/// virtual memory: unused pages are never touched.
fn arena_size(capacity: usize) -> usize {
    const { assert!(cfg!(any(miri, loom)) || nodes_fit(0) && nodes_fit(1) && nodes_fit(MAX_KEY_LEN)) };
    if SLOTS < 64 { 8 * capacity } else { capacity + capacity / 2 * 3 }
}

/// Whether entries with keys of this length, and their nodes in the worst case, fit in two and a half times their
/// cost.
const fn nodes_fit(key_len: usize) -> bool {
    let nodes = 2 * node::node_size_max(MAX_HEIGHT, 0) / (SLOTS / 2 - cfg!(not(loom)) as usize)
        + key_len.next_multiple_of(8);
    let cost = Memtable::entry_cost(key_len, 0);
    node::entry_size(key_len, 0) + nodes <= cost + cost / 2 * 3
}

impl Memtable {
    /// An empty memtable for entries with a total cost of `capacity` bytes, clamped to [`MIN_CAPACITY`] and
    /// [`MAX_CAPACITY`]. The memory is only reserved: an empty memtable uses about a page, whatever its capacity, if it has new memory.
    ///
    /// # Panics
    /// If there is no memory: see [`Memtable::try_new`].
    pub fn new(capacity: usize) -> Arc<Memtable> {
        Memtable::try_new(capacity).expect("memory for a memtable")
    }

    /// Like [`Memtable::new`], but returns an error if there is no memory.
    ///
    /// # Errors
    /// `Io` if the process can get no more memory or address space.
    pub fn try_new(capacity: usize) -> Result<Arc<Memtable>> {
        Memtable::try_new_in(capacity, Order::Key, &Arc::default())
    }

    /// Like [`Memtable::try_new`], but in the given order, and with memory of earlier memtables of this capacity and order, if there is some; its own is given
    /// back to `spare`.
    ///
    /// # Errors
    /// As for [`Memtable::try_new`].
    pub fn try_new_in(capacity: usize, order: Order, spare: &Arc<SpareMemory>) -> Result<Arc<Memtable>> {
        let capacity = capacity.clamp(MIN_CAPACITY, MAX_CAPACITY).next_multiple_of(8);
        Memtable::build(capacity, arena_size(capacity), order, spare).map(Arc::new)
    }

    /// The memtable without capacity: [`Memtable::reserve`] always fails. All keyspaces that have nothing in memory
    /// share it.
    pub fn empty() -> Arc<Memtable> {
        static EMPTY: OnceLock<Arc<Memtable>> = OnceLock::new();
        EMPTY
            .get_or_init(|| {
                Arc::new(Memtable::build(0, 0, Order::Key, &Arc::default()).expect("memory for a memtable"))
            })
            .clone()
    }

    fn build(capacity: usize, arena_size: usize, order: Order, spare: &Arc<SpareMemory>) -> Result<Memtable> {
        let list = SkipList::new(arena_size, lists(capacity, order), spare).ok_or_else(|| {
            let message = format!("out of memory for a memtable of {arena_size} bytes of address space");
            Error::new(ErrorKind::Io, message)
        })?;
        Ok(Memtable {
            list,
            capacity,
            reserved: OwnLine(AtomicU64::new(0)),
            stripes: std::array::from_fn(|_| Stripe::new()),
            ranges: range_tombstones::Ranges::default(),
            places: Mutex::default(),
            charges: AtomicU64::new(0),
            deletes: AtomicBool::new(false),
            spare: spare.clone(),
            #[cfg(debug_assertions)]
            inserted: AtomicU64::new(0),
        })
    }

    /// A copy of this memtable with a larger capacity, to replace it. The caller must stop all inserts before the
    /// call, and complete or give up all reservations: the copy counts them as reserved. Cursors of this memtable
    /// stay valid.
    ///
    /// Copies all entries in order, the cheapest order of inserts in the order of keys.
    ///
    /// # Errors
    /// As for [`Memtable::try_new`].
    pub fn grown(self: &Arc<Self>, capacity: usize) -> Result<Arc<Memtable>> {
        let capacity = capacity.clamp(MIN_CAPACITY.max(self.capacity), MAX_CAPACITY).next_multiple_of(8);
        let new = Memtable::build(capacity, arena_size(capacity), self.order(), &self.spare)?;
        let stripe = &new.stripes[stripe::index()];
        let mut cursor = self.cursor();
        let mut ticket = 0;
        cursor.seek_to_first()?;
        while cursor.valid() {
            let place = Target { key: cursor.key(), trailer: cursor.trailer() };
            new.list.insert(place, [cursor.value(), &[]], random(ticket, place.trailer), stripe);
            ticket += 1;
            cursor.next()?;
        }
        for (to, from) in new.stripes.iter().zip(&self.stripes) {
            to.copy_counts(from);
        }
        new.ranges.copy_from(&self.ranges);
        *new.places.lock() = self.places.lock().clone();
        let same =
            |to: &AtomicU64, from: &AtomicU64| to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        same(&new.reserved.0, &self.reserved.0);
        same(&new.charges, &self.charges);
        new.deletes.store(self.deletes.load(Ordering::Relaxed), Ordering::Relaxed);
        #[cfg(debug_assertions)]
        same(&new.inserted, &self.inserted);
        Ok(Arc::new(new))
    }

    /// The cost of an entry with a key and a value of these lengths, with its share of a node. In bytes.
    #[inline]
    pub const fn entry_cost(key_len: usize, value_len: usize) -> usize {
        let share = NODE_SHARE + key_len / 32 / 8 * 8;
        node::entry_size(key_len, value_len).saturating_add(share)
    }

    /// Reserves `bytes`, the sum of the [costs](Memtable::entry_cost) of the entries that the caller will insert.
    /// Returns false and reserves nothing if they do not fit.
    pub fn reserve(&self, bytes: usize) -> bool {
        let fits =
            |reserved: u64| reserved.checked_add(bytes as u64).filter(|&sum| sum <= self.capacity as u64);
        self.reserved.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok()
    }

    /// Whether [`Memtable::reserve`] would succeed now.
    pub fn has_room(&self, bytes: usize) -> bool {
        let reserved = self.reserved.0.load(Ordering::Relaxed);
        reserved.checked_add(bytes as u64).is_some_and(|sum| sum <= self.capacity as u64)
    }

    /// Inserts an entry for which space was reserved. Threads may insert concurrently. A reader sees the complete
    /// entry or nothing. Once this returns, every reader that synchronizes with this thread sees the entry.
    ///
    /// No two entries may have the same key and trailer. Costs a search; O(1) next to the thread's last insert in the order of keys, and mostly in that of
    /// hashes.
    ///
    /// # Panics
    /// If key or value exceed [the limits](base::limits), or if no space was reserved: bugs of the caller.
    #[inline]
    pub fn insert(&self, key: &[u8], trailer: Trailer, value: &[u8]) {
        self.insert_with_tail(key, trailer, value, &[]);
    }

    /// The same for a value in two parts: `value`, and `tail` behind it.
    ///
    /// # Panics
    /// As for [`Memtable::insert`].
    pub fn insert_with_tail(&self, key: &[u8], trailer: Trailer, value: &[u8], tail: &[u8]) {
        let value_len = value.len().saturating_add(tail.len());
        assert!(key.len() <= MAX_KEY_LEN && value_len <= MAX_VALUE_LEN, "memtable: entry past the limits");
        #[cfg(debug_assertions)]
        self.check_reservation(Memtable::entry_cost(key.len(), value_len));
        let stripe = &self.stripes[stripe::index()];
        let ticket = stripe.count(trailer.seq(), key.len() + value_len);
        if trailer.is_delete() && !self.deletes.load(Ordering::Relaxed) {
            self.deletes.store(true, Ordering::Relaxed);
        }
        self.list.insert(Target { key, trailer }, [value, tail], random(ticket, trailer), stripe);
    }

    /// Notes where the log has the value of an entry, for the flush. Each call has a higher sequence number than the one before, which may
    /// be that of an entry that is never inserted.
    pub fn note_place(&self, place: LogPlace) {
        let mut places = self.places.lock();
        debug_assert!(places.last().is_none_or(|last| last.seq < place.seq));
        places.push(place);
    }

    /// The noted places, ascending by sequence number.
    pub fn places(&self) -> Vec<LogPlace> {
        self.places.lock().clone()
    }

    /// Approximate cost of a range tombstone with bounds of these lengths, in bytes of capacity.
    pub const fn range_cost(from_len: usize, to_len: usize) -> usize {
        (1024 + from_len + to_len).next_multiple_of(8)
    }

    /// Inserts a range tombstone for which space was reserved ([`Memtable::range_cost`]). Threads may do so
    /// concurrently. It counts as an entry.
    pub fn delete_range(&self, tombstone: RangeTombstone) {
        let (from, to) = (tombstone.from.len(), tombstone.to.as_ref().map_or(0, |to| to.len()));
        #[cfg(debug_assertions)]
        self.check_reservation(Memtable::range_cost(from, to));
        let seq = tombstone.seq;
        self.ranges.insert(tombstone);
        // Count after the insert: a memtable that is not empty must show the tombstone.
        self.stripes[stripe::index()].count(seq, from + to);
    }

    /// The range tombstones, if there are any. Costs one load if there are none.
    #[inline]
    pub fn ranges(&self) -> Option<Arc<RangeSet>> {
        self.ranges.get()
    }

    /// The newest range tombstone that covers `key` and is visible at `seq`; 0 if there is none. Costs one load if
    /// the memtable has no range tombstones.
    #[inline]
    pub fn deleted_before(&self, key: &[u8], seq: Seq) -> Seq {
        self.ranges.newest(key, seq)
    }

    #[cfg(debug_assertions)]
    fn check_reservation(&self, cost: usize) {
        let inserted = self.inserted.fetch_add(cost as u64, Ordering::AcqRel) + cost as u64;
        assert!(inserted <= self.reserved.0.load(Ordering::Relaxed), "memtable: insert without reservation");
    }

    /// The trailer and value of the newest entry of `key` that is not newer than `seq`. May be a tombstone.
    #[inline]
    pub fn get(&self, key: &[u8], seq: Seq) -> Option<(Trailer, &[u8])> {
        let nodes = &self.list.nodes;
        let entry = self.list.find(Target { key, trailer: Trailer::seek(seq) })?;
        Some((nodes.trailer(entry), nodes.value(entry)))
    }

    /// A new cursor, not positioned yet.
    pub fn cursor(self: &Arc<Self>) -> MemtableCursor {
        MemtableCursor::new(self.clone())
    }

    /// Number of entries inserted, including range tombstones.
    pub fn entries(&self) -> usize {
        stripe::counts(&self.stripes).entries
    }

    /// Whether no entry was inserted.
    pub fn is_empty(&self) -> bool {
        self.entries() == 0
    }

    /// Whether the memtable has a point or range tombstone. Then a flush may drop the entries that it deletes.
    pub fn has_deletes(&self) -> bool {
        self.deletes.load(Ordering::Relaxed) || self.ranges().is_some()
    }

    /// The approximate share of the entries with smaller keys than `key`, from 0 to 1: the error is about a sixteenth of the share. 0 if the
    /// order is that of hashes.
    ///
    /// Cost: at most some hundred steps from node to node.
    pub fn share_before(&self, key: &[u8]) -> f64 {
        self.list.share_before(Target { key, trailer: Trailer::seek(base::MAX_SEQ) }, NODES_TO_COUNT)
    }

    /// Keys with about equally many entries between them, ascending, with the approximate bytes of keys and values from each to the next one: at least
    /// `enough`, if the memtable has some times as many entries. None if the order is that of hashes.
    ///
    /// Cost: some hundred steps from node to node, more for more keys.
    pub fn samples(&self, enough: usize) -> impl Iterator<Item = (&[u8], f64)> {
        let keys = self.list.samples(enough);
        let bytes = self.user_bytes() as f64 / keys.len().max(1) as f64;
        keys.into_iter().map(move |key| (key, bytes))
    }

    /// Memory in use by entries and nodes, in bytes: the touched part of the arena. 0 for [`Memtable::empty`], which is shared.
    pub fn used_bytes(&self) -> usize {
        if self.capacity == 0 {
            return 0;
        }
        self.list.nodes.arena_used()
    }

    /// All memory in use, in bytes. 0 for [`Memtable::empty`].
    pub fn memory(&self) -> u64 {
        match self.capacity {
            0 => 0,
            _ => self.used_bytes() as u64 + BASE_BYTES + self.list.array_bytes() as u64,
        }
    }

    /// Memory that it may use beyond what is [reserved](Memtable::reserve), in bytes: about 8 KiB, and in the order of hashes about a tenth of the
    /// capacity, however few entries there are. 0 for [`Memtable::empty`].
    pub fn overhead(&self) -> u64 {
        let heads = match self.order() {
            Order::Key => 0,
            Order::Hash => SkipList::heads_size(self.list.lists()) as u64,
        };
        match self.capacity {
            0 => 0,
            _ => BASE_BYTES + self.list.array_bytes() as u64 + heads,
        }
    }

    /// The read charges, in bytes: what readers add for deleted entries that they skip. The memtable does not use them.
    pub fn charges(&self) -> &AtomicU64 {
        &self.charges
    }

    /// Bytes of capacity that are reserved.
    pub fn reserved(&self) -> usize {
        self.reserved.0.load(Ordering::Relaxed) as usize
    }

    /// The order of the entries.
    pub fn order(&self) -> Order {
        if self.list.is_one() { Order::Key } else { Order::Hash }
    }

    /// The place of a key in the order of hashes: entries are in the order of places, and those of one place in the order of keys. 0 in the order of keys.
    pub fn place_of(&self, key: &[u8]) -> u64 {
        match self.order() {
            Order::Key => 0,
            Order::Hash => {
                let (list, tag) = self.list.list_of(key);
                (list as u64) << 32 | u64::from(tag)
            }
        }
    }

    /// The capacity, in bytes.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Total length of all keys and values, in bytes.
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
}

/// Random bits for the height of a tower. Derived from the thread's count of inserts and the trailer, never from the
/// key: chosen keys cannot degrade the list, and the same history gives the same list.
#[inline]
fn random(ticket: u64, trailer: Trailer) -> u64 {
    let mut bits = ticket ^ trailer.0.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ bits >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
    bits = (bits ^ bits >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
    bits ^ bits >> 32
}
