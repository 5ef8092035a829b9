//! Inserts entries into leaves and splits full leaves.
//!
//! An insert writes its entry, finds the node, locks the leaf, checks that the node was not split in the meantime,
//! and stores the entry in a free slot. From then on the entry exists. Two inserts wait for each other only in the
//! same leaf, for nanoseconds. Readers do not use the lock.
//!
//! The insert that finds a full leaf splits it. It copies the upper entries to the leaf of a new node, links that
//! node behind the old one, at level 0 first and then upwards, with one compare-and-swap per level, and then clears
//! the slots of these entries in the old leaf. At level 0, only the holder of a node's lock changes its link. At
//! higher levels a concurrent split may win: the loser walks on from the same predecessor, which is still a
//! predecessor, and tries again.

use crate::key_order::{Target, compare_from, prefix, shared_bytes, tag};
use crate::list::{Gap, Position, Root, SkipList, Start};
use crate::node::{EntryId, Leaf, Link, MAX_HEIGHT, NodeId, SLOTS, Slot};
use crate::stripe::Stripe;
use crate::sync::{AtomicU64, Ordering, pause};

/// Default position of a cut: half of a full leaf, plus one entry.
const MIDDLE: usize = (SLOTS + 1).div_ceil(2);

/// An entry to be inserted.
#[derive(Clone, Copy)]
struct New {
    id: EntryId,
    /// Random bits for the height of a tower.
    random: u64,
}

impl SkipList {
    /// Inserts an entry. `random` must not be under the control of the code that chooses the
    /// keys.
    #[inline]
    pub(crate) fn insert(&self, place: Target<'_>, value: [&[u8]; 2], random: u64, stripe: &Stripe) {
        let start = self.start_or_create(place.key);
        let near = if self.is_one() { self.near(stripe, start, place) } else { None };
        let mut at = near.unwrap_or_else(|| self.descend(start, place, 0, |_, _| ()).before);
        // Prefetch the leaf while the entry is written.
        self.nodes.prefetch_leaf(at.node);
        let id = self.nodes.create_entry(place, value);
        let mut guard = Guard::lock(self.nodes.leaf(at.node));
        while let Some(next) = self.step(place, at, self.nodes.link(at.node, 0), None) {
            at = next;
            drop(guard);
            guard = Guard::lock(self.nodes.leaf(at.node));
        }
        if !guard.put(Slot::new(id, at.tag)) {
            at.node = self.split(&mut guard, start, at, New { id, random });
        }
        if self.is_one() {
            stripe.set_finger(at.node);
        }
    }

    /// The position of `target` if it belongs to the node of the thread's last insert, or to the next node. Makes
    /// inserts in key order cheap. Costs one or two comparisons if `target` lies elsewhere.
    #[inline]
    fn near(&self, stripe: &Stripe, start: Start, target: Target<'_>) -> Option<Position> {
        let node = stripe.finger()?;
        let at = match node == start.root.head {
            true => start.position(),
            false => self.position_on(target, node, 0)?,
        };
        let Some(at) = self.step(target, at, self.nodes.link(at.node, 0), None) else { return Some(at) };
        self.step(target, at, self.nodes.link(at.node, 0), None).is_none().then_some(at)
    }

    /// Splits a full leaf and inserts the entry, which belongs in it. Returns the node that received the entry.
    #[inline(never)]
    fn split(&self, guard: &mut Guard<'_>, start: Start, at: Position, new: New) -> NodeId {
        // Indexed by slot number, the new entry last.
        let mut slots = [Slot::new(new.id, at.tag); SLOTS + 1];
        slots.iter_mut().zip(guard.leaf.slots()).for_each(|(copy, slot)| *copy = slot);
        let mut sorted: [u8; SLOTS + 1] = std::array::from_fn(|i| i as u8);
        sorted.sort_unstable_by(|&a, &b| self.compare_slots(slots[a as usize], slots[b as usize]));
        let cut = cut(&sorted, guard.latest());
        let moving = &sorted[cut..];

        let entries = moving.iter().map(|&i| slots[i as usize]);
        let next = self.create_behind(start.root, at.node, entries, new.random);
        guard.forget_latest();
        let moved = moving.iter().filter(|&&i| usize::from(i) < SLOTS);
        moved.for_each(|&i| guard.clear(i.into()));
        if moving.contains(&(SLOTS as u8)) {
            return next;
        }
        assert!(guard.put(slots[SLOTS]), "a split leaf has room");
        at.node
    }

    /// Adds a node behind `node` with the given entries of its leaf, in order.
    fn create_behind(
        &self,
        root: Root,
        node: NodeId,
        moving: impl Iterator<Item = Slot>,
        random: u64,
    ) -> NodeId {
        let mut slots = [Slot::EMPTY; SLOTS];
        let mut len = 0;
        for slot in moving {
            self.nodes.prefetch(slot.entry());
            slots[len] = slot;
            len += 1;
        }
        let first = slots[0];
        let anchor = self.nodes.place(first.entry());
        for slot in &mut slots[..len] {
            let tag = self.retag(slot.tag(), first.tag(), anchor, || self.nodes.key(slot.entry()));
            *slot = Slot::new(slot.entry(), tag);
        }

        let height = (random.trailing_zeros() as usize + 1).min(self.max_height);
        let new = self.nodes.create_node(height, anchor, &slots[..len]);
        let before = Position { node, tag: first.tag() };
        let mut gaps = [Gap { before, next: self.nodes.link(node, 0) }; MAX_HEIGHT];
        if height > 1 {
            let start = Start { root, tag: self.list_of(anchor.key).1 };
            self.descend(start, anchor, height, |level, gap| gaps[level] = gap);
        }
        for (level, gap) in gaps[..height].iter().enumerate() {
            self.link(new, anchor, level, *gap);
        }
        self.raise(root.list, height);
        new
    }

    /// Links `node` into the gap. After a lost race, searches the gap again.
    fn link(&self, node: NodeId, anchor: Target<'_>, level: usize, mut gap: Gap) {
        loop {
            let onwards = match gap.next.node() {
                Some(next) => {
                    let key = || self.nodes.key(next);
                    Link::new(next, self.retag(gap.next.tag(), gap.before.tag, anchor, key))
                }
                None => Link::END,
            };
            self.nodes.set_link(node, level, onwards);
            let new = Link::new(node, gap.before.tag);
            if self.nodes.swap_link(gap.before.node, level, gap.next, new) {
                return;
            }
            gap = self.walk(anchor, level, gap.before, None);
        }
    }

    /// The tag of a key relative to `anchor`, which lies before it. `theirs` and `anchors` are the tags of the key
    /// and the anchor relative to the same earlier key.
    #[inline]
    fn retag<'a>(&self, theirs: u32, anchors: u32, anchor: Target<'_>, key: impl Fn() -> &'a [u8]) -> u32 {
        if !self.is_one() {
            return theirs;
        }
        if theirs != anchors && shared_bytes(theirs, anchors) == 0 {
            // The key differs from the anchor at the same byte as from the earlier key.
            return theirs;
        }
        let (_, prefix) = compare_from(key(), anchor.key, prefix(anchors));
        tag(key(), prefix)
    }
}

/// Where to cut a full leaf and its new entry, given the order of the slots and the slot that was filled last.
/// Inserts in ascending or descending order leave full leaves behind, not halves.
fn cut(sorted: &[u8; SLOTS + 1], latest: Option<usize>) -> usize {
    let new = SLOTS as u8;
    let follows = |neighbour: u8| latest == Some(usize::from(neighbour));
    if sorted[SLOTS] == new && follows(sorted[SLOTS - 1]) {
        SLOTS
    } else if sorted[0] == new && follows(sorted[1]) {
        1
    } else {
        MIDDLE
    }
}

/// The lock of a leaf: the right to change it.
struct Guard<'a> {
    leaf: Leaf<'a>,
    /// The lock word without its lowest bit: the slot that was filled last, plus one; 0 after a split.
    latest: u64,
}

impl<'a> Guard<'a> {
    #[inline]
    fn lock(leaf: Leaf<'a>) -> Guard<'a> {
        let lock: &AtomicU64 = leaf.lock();
        let mut rounds = 0;
        loop {
            let word = lock.load(Ordering::Relaxed);
            if word & 1 == 0
                && lock.compare_exchange(word, word | 1, Ordering::Acquire, Ordering::Relaxed).is_ok()
            {
                return Guard { leaf, latest: word >> 1 };
            }
            pause(&mut rounds);
        }
    }

    /// The slot that was filled last; `None` after a split.
    fn latest(&self) -> Option<usize> {
        self.latest.checked_sub(1).map(|slot| slot as usize)
    }

    fn forget_latest(&mut self) {
        self.latest = 0;
    }

    /// Stores an entry in a free slot. False if there is none.
    #[inline]
    fn put(&mut self, slot: Slot) -> bool {
        let live = self.leaf.live().load(Ordering::Relaxed);
        let free = (!live).trailing_zeros() as usize;
        if free >= SLOTS {
            return false;
        }
        self.leaf.set_slot(free, slot);
        self.leaf.live().store(live | 1 << free, Ordering::Relaxed);
        self.latest = free as u64 + 1;
        true
    }

    /// Frees the slot of an entry that has moved.
    fn clear(&mut self, index: usize) {
        let live = self.leaf.live().load(Ordering::Relaxed);
        self.leaf.set_slot(index, Slot::EMPTY);
        self.leaf.live().store(live & !(1 << index), Ordering::Relaxed);
    }
}

impl Drop for Guard<'_> {
    #[inline]
    fn drop(&mut self) {
        self.leaf.lock().store(self.latest << 1, Ordering::Release);
    }
}
