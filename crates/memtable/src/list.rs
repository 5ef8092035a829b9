//! The skip list: an index of nodes, and search in it.
//!
//! Level 0 is a sorted list of all nodes; each level above skips about half of the level below. A node holds a leaf
//! of up to [`SLOTS`] entries, unordered, and an anchor: no entry of its leaf lies below, and every entry that
//! lies below the next node's anchor is in its leaf. The head has no anchor, and takes what is below all others. Other
//! leaves are never empty: they hold their anchor.
//!
//! Nodes are only ever added, by splits (see [`crate::insert`]), and only ever *after* the node that is split. So a
//! search that found a node may be late by then, but never too far right: it just looks whether the next node's
//! anchor is at or before its target, too.
//!
//! Readers look at the leaf first, then at the link to the next node. A split does it the other way round: it links the
//! new node first, then clears the slots of the entries that moved. So where a reader misses an entry that moved, it
//! sees the link, which says that all from that anchor on is to be looked for further right.
//!
//! The simpler design came first: a skip list of entries, with the same tags, where an insert is one compare-and-swap
//! per level. With 350 000 entries it took 850 to 1000 ns for a random insert, of which nearly all was waiting for memory:
//! the lowest levels do not fit in the cache, and a search walks one node on each of them, one after the other. Here, the
//! nodes fit, a search waits for one leaf, and an insert takes a third of the time.

use crate::key_order::{Target, compare_from, prefix, shared_bytes, tag};
use crate::node::{EntryId, Keyed, Link, MAX_HEIGHT, NodeId, Nodes, SLOTS, Slot, node_size_max};
use crate::sync::{AtomicU32, Ordering as MemoryOrdering, fence};
use base::Trailer;
use std::cmp::Ordering;

/// See the module.
pub(crate) struct SkipList {
    pub(crate) nodes: Nodes,
    /// Before all others, with the tallest tower and no anchor.
    pub(crate) head: NodeId,
    /// The tallest tower so far. May lag behind: it only says where searches start.
    height: AtomicU32,
}

/// Where a search stands: on a node before the target, with the target's tag against its anchor.
#[derive(Clone, Copy)]
pub(crate) struct Position {
    pub(crate) node: NodeId,
    pub(crate) tag: u32,
}

/// The gap at one level that the target belongs into: after `before`, and before what `next` leads to.
#[derive(Clone, Copy)]
pub(crate) struct Gap {
    pub(crate) before: Position,
    pub(crate) next: Link,
}

/// Entries of one leaf in order, as of one moment: all of them, or those from some target on. Filled anew for each leaf.
pub(crate) struct Snapshot {
    slots: [Slot; SLOTS],
    len: usize,
    next: Link,
    /// So many of the first ones are in their places.
    ordered: usize,
}

impl Snapshot {
    /// No entries, and nothing behind them.
    pub(crate) fn empty() -> Snapshot {
        Snapshot { slots: [Slot::EMPTY; SLOTS], len: 0, next: Link::END, ordered: 0 }
    }

    /// How many entries are known to be in their places, from the first one on.
    #[inline]
    pub(crate) fn ordered(&self) -> usize {
        self.ordered
    }

    /// The entries.
    #[inline]
    pub(crate) fn slots(&self) -> &[Slot] {
        &self.slots[..self.len]
    }

    /// The node whose leaf goes on from there.
    #[inline]
    pub(crate) fn next(&self) -> Option<NodeId> {
        self.next.node()
    }
}

impl SkipList {
    /// A list in an arena of `arena_size` bytes, the head's not counted, if there is memory for it.
    pub(crate) fn new(arena_size: usize) -> Option<SkipList> {
        let nodes = Nodes::new(arena_size + node_size_max(MAX_HEIGHT, 0))?;
        let head = nodes.create_node(MAX_HEIGHT, Target { key: &[], trailer: Trailer(u64::MAX) }, &[]);
        Some(SkipList { nodes, head, height: AtomicU32::new(1) })
    }

    /// The first entry at or after `target` that has the target's key.
    #[inline]
    pub(crate) fn find(&self, target: Target<'_>) -> Option<EntryId> {
        let mut at = self.descend(target, 0, |_, _| ()).before;
        self.nodes.prefetch_leaf(at.node);
        loop {
            let found = self.find_in_leaf(target, at);
            let next = self.nodes.link(at.node, 0);
            if let Some(slot) = found
                && self.is_before(slot, next)
            {
                return Some(slot.entry());
            }
            match self.step(target, at, next, None) {
                Some(position) => at = position,
                // No version from the target to the next anchor, which may be the one: it lies in the first slot.
                None if next.tag() != at.tag => return None,
                None => {
                    let node = next.node().filter(|&node| self.nodes.key(node) == target.key)?;
                    return Some(self.nodes.leaf(node).slot(0).entry());
                }
            }
        }
    }

    /// The first entry at or after `target` in the leaf that has the target's key; perhaps one that has moved to
    /// another leaf.
    #[inline]
    fn find_in_leaf(&self, target: Target<'_>, at: Position) -> Option<Slot> {
        // Equal keys have equal tags. Others may have, too.
        let leaf = self.nodes.leaf(at.node);
        let mut mask =
            leaf.slots().enumerate().fold(0, |mask, (i, slot)| mask | u64::from(slot.tag() == at.tag) << i);
        let mut found: Option<Slot> = None;
        while mask != 0 {
            // The slot may have changed since the mask was made: the link to the next node will tell.
            let slot = leaf.slot(mask.trailing_zeros() as usize);
            mask &= mask - 1;
            fence(MemoryOrdering::Acquire);
            if slot == Slot::EMPTY || self.nodes.key(slot.entry()) != target.key {
                continue;
            }
            let trailer = self.nodes.trailer(slot.entry());
            if trailer <= target.trailer
                && found.is_none_or(|best| trailer > self.nodes.trailer(best.entry()))
            {
                found = Some(slot);
            }
        }
        fence(MemoryOrdering::Acquire);
        found
    }

    /// Whether an entry or anchor lies before the target, by a full comparison.
    #[inline]
    fn lies_before(&self, of: impl Keyed, target: Target<'_>) -> bool {
        self.compare(of, target).is_lt()
    }

    /// Compares an entry or anchor with the target, in full.
    #[inline]
    fn compare(&self, of: impl Keyed, target: Target<'_>) -> Ordering {
        let keys = base::compare_keys(self.nodes.key(of), target.key);
        keys.then_with(|| target.trailer.cmp(&self.nodes.trailer(of)))
    }

    /// The order of two entries of one leaf.
    #[inline]
    pub(crate) fn compare_slots(&self, a: Slot, b: Slot) -> Ordering {
        a.tag().cmp(&b.tag()).then_with(|| match a == b {
            true => Ordering::Equal,
            false => self.compare(a.entry(), self.nodes.place(b.entry())),
        })
    }

    /// Whether an entry lies before the anchor that the link of its node leads to.
    #[inline]
    fn is_before(&self, slot: Slot, next: Link) -> bool {
        match next.node() {
            Some(node) if slot.tag() == next.tag() => self.lies_before(slot.entry(), self.nodes.place(node)),
            Some(_) => slot.tag() < next.tag(),
            None => true,
        }
    }

    /// The last node.
    pub(crate) fn last_node(&self) -> NodeId {
        let mut node = self.head;
        for level in (0..self.height()).rev() {
            while let Some(next) = self.nodes.link(node, level).node() {
                node = next;
            }
        }
        node
    }

    /// Fills `into` with the entries of a leaf. All that are inserted by now are in it, or from its `next` on.
    pub(crate) fn snapshot(&self, node: NodeId, into: &mut Snapshot) {
        self.copy_leaf(node, 0, into);
        self.sort(into);
    }

    /// Fills `into` with the entries of the leaf that `target` belongs into, which may be none, and says how many of those in it lie before the
    /// target.
    pub(crate) fn snapshot_at(&self, target: Target<'_>, into: &mut Snapshot) -> usize {
        let at = self.copy_leaf_of(target, false, into);
        self.sort(into);
        let before = |slot: &Slot| {
            slot.tag() < at.tag || slot.tag() == at.tag && self.lies_before(slot.entry(), target)
        };
        into.slots().partition_point(before)
    }

    /// Fills `into` with those entries of the leaf that `target` belongs into that do not lie before it: the first of them first, and the others
    /// in no order, because most of those who seek look at one entry, or go on in another run. There may be none.
    pub(crate) fn snapshot_from(&self, target: Target<'_>, into: &mut Snapshot) {
        let at = self.copy_leaf_of(target, true, into);
        let (mut len, mut first) = (0, 0);
        for i in 0..into.len {
            let slot = into.slots[i];
            // A lower tag was left out.
            if slot.tag() == at.tag && self.lies_before(slot.entry(), target) {
                continue;
            }
            into.slots[len] = slot;
            if self.compare_slots(slot, into.slots[first]).is_lt() {
                first = len;
            }
            len += 1;
        }
        into.slots.swap(0, first);
        // Of those that moved to another leaf meanwhile the first is behind all that did not.
        into.len = if len > 0 && self.is_before(into.slots[0], into.next) { len } else { 0 };
        into.ordered = into.len.min(1);
    }

    /// Puts the next one of the entries in its place that are not; of those that moved to another leaf meanwhile there is none.
    pub(crate) fn place_next(&self, snapshot: &mut Snapshot) {
        let at = snapshot.ordered;
        let Some(rest) = snapshot.slots[..snapshot.len].get_mut(at..).filter(|rest| !rest.is_empty()) else {
            return;
        };
        let mut first = 0;
        for i in 1..rest.len() {
            if self.compare_slots(rest[i], rest[first]).is_lt() {
                first = i;
            }
        }
        rest.swap(0, first);
        match self.is_before(snapshot.slots[at], snapshot.next) {
            true => snapshot.ordered += 1,
            false => snapshot.len = at,
        }
    }

    /// Copies the entries of the leaf that `target` belongs into, and returns where that is. `onward`: those with a lower tag, which lie before the
    /// target, may be left out.
    fn copy_leaf_of(&self, target: Target<'_>, onward: bool, into: &mut Snapshot) -> Position {
        let mut at = self.descend(target, 0, |_, _| ()).before;
        self.nodes.prefetch_leaf(at.node);
        loop {
            self.copy_leaf(at.node, if onward { at.tag } else { 0 }, into);
            match self.step(target, at, into.next, None) {
                // The leaf was split after the search.
                Some(position) => at = position,
                None => return at,
            }
        }
    }

    /// The entries of a leaf with a tag of at least `least`, in no order, and where it goes on.
    #[inline]
    fn copy_leaf(&self, node: NodeId, least: u32, into: &mut Snapshot) {
        into.len = 0;
        for slot in self.nodes.leaf(node).slots() {
            into.slots[into.len] = slot;
            into.len += usize::from(slot != Slot::EMPTY && slot.tag() >= least);
        }
        fence(MemoryOrdering::Acquire);
        into.next = self.nodes.link(node, 0);
    }

    /// Brings the entries in order, and leaves out those that moved to another leaf meanwhile: they will be met there. The first one of
    /// [`SkipList::snapshot_from`] stays where it is.
    pub(crate) fn sort(&self, snapshot: &mut Snapshot) {
        let slots = &mut snapshot.slots[..snapshot.len];
        slots.sort_unstable();
        // Tags mostly decide; where they do not, the entries themselves have to be looked at.
        for equal in slots.chunk_by_mut(|a, b| a.tag() == b.tag()).filter(|equal| equal.len() > 1) {
            equal.sort_unstable_by(|&a, &b| self.compare_slots(a, b));
        }
        snapshot.len = slots.partition_point(|&slot| self.is_before(slot, snapshot.next));
        snapshot.ordered = snapshot.len;
    }

    /// Where every search starts: on the head, with which no key shares a byte.
    #[inline]
    pub(crate) fn start(&self, target: Target<'_>) -> Position {
        Position { node: self.head, tag: tag(target.key, 0) }
    }

    #[inline]
    fn height(&self) -> usize {
        self.height.load(MemoryOrdering::Relaxed) as usize
    }

    /// Searches of the future start at `height`, or higher.
    pub(crate) fn raise(&self, height: usize) {
        if height > self.height() {
            self.height.fetch_max(height as u32, MemoryOrdering::Relaxed);
        }
    }

    /// Searches from the top. Reports the gaps of all levels below `report`; gives the one of level 0.
    #[inline]
    pub(crate) fn descend(&self, target: Target<'_>, report: usize, mut each: impl FnMut(usize, Gap)) -> Gap {
        let mut gap = Gap { before: self.start(target), next: Link::END };
        for level in (0..self.height().max(report)).rev() {
            gap = self.walk(target, level, gap.before, gap.next.node());
            if level < report {
                each(level, gap);
            }
        }
        gap
    }

    /// Walks one level from a node before the target to the gap of the target. `after` is a node that is known to
    /// be at or after the target.
    #[inline]
    pub(crate) fn walk(
        &self,
        target: Target<'_>,
        level: usize,
        mut at: Position,
        after: Option<NodeId>,
    ) -> Gap {
        loop {
            let next = self.nodes.link(at.node, level);
            match self.step(target, at, next, after) {
                Some(position) => at = position,
                None => return Gap { before: at, next },
            }
        }
    }

    /// Follows a link if it leads to a node before the target.
    #[inline]
    pub(crate) fn step(
        &self,
        target: Target<'_>,
        at: Position,
        next: Link,
        after: Option<NodeId>,
    ) -> Option<Position> {
        let theirs = next.tag();
        if theirs > at.tag {
            return None;
        }
        let node = next.node()?;
        if theirs < at.tag {
            let shared = shared_bytes(theirs, at.tag);
            let tag = if shared == 0 { at.tag } else { tag(target.key, prefix(at.tag) + shared) };
            return Some(Position { node, tag });
        }
        if after == Some(node) {
            return None;
        }
        self.position_on(target, node, prefix(at.tag))
    }

    /// The position on `node` if it is before the target, by a full comparison. Both share `from` bytes.
    #[inline]
    pub(crate) fn position_on(&self, target: Target<'_>, node: NodeId, from: usize) -> Option<Position> {
        let (order, prefix) = compare_from(self.nodes.key(node), target.key, from);
        let before = match order {
            Ordering::Less => true,
            Ordering::Equal => self.nodes.trailer(node) > target.trailer,
            Ordering::Greater => false,
        };
        before.then(|| Position { node, tag: tag(target.key, prefix) })
    }
}
