//! The skip list: an index of nodes, and search in it.
//!
//! Level 0 is a sorted list of all nodes. Each level above skips about half of the level below. A node has a leaf of
//! up to [`SLOTS`] unsorted entries, and an anchor: no entry of its leaf lies before the anchor, and every entry from
//! the anchor up to the next node's anchor is in its leaf. The head has no anchor, and takes the entries before all
//! anchors. Leaves other than the head's are never empty: they contain their anchor.
//!
//! Nodes are only added, by splits (see [`crate::insert`]), and only *behind* the node that is split. So the node
//! that a search found may be too far left after a split, but never too far right. The search checks whether the next
//! node's anchor is also at or before its target, and moves on if so.
//!
//! A reader looks at the leaf first and at the link to the next node afterwards. A split does the opposite: it links
//! the new node first, and then clears the slots of the moved entries. So a reader that misses a moved entry sees the
//! link, which tells it to search for all entries from that anchor on in the next node.
//!
//! An earlier design was a skip list of single entries with the same tags, where an insert was one compare-and-swap
//! per level. With 350 000 entries, a random insert took 850 to 1000 ns, almost all of it cache misses: the lowest
//! levels do not fit in the cache, and a search visits one node on each, one after the other. In the present design
//! the nodes fit in the cache, a search waits for one leaf, and an insert takes a third of the time.

use crate::key_order::{Target, compare_from, prefix, shared_bytes, tag};
use crate::memory::SpareMemory;
use crate::node::{EntryId, Keyed, Link, MAX_HEIGHT, NodeId, Nodes, SLOTS, Slot, node_size_max};
use crate::sync::{AtomicU32, Ordering as MemoryOrdering, fence};
use base::Trailer;
use std::cmp::Ordering;
use std::sync::Arc;

/// The skip list; see the module.
pub(crate) struct SkipList {
    pub(crate) nodes: Nodes,
    /// The first node, with the tallest tower and no anchor.
    pub(crate) head: NodeId,
    /// Height of the tallest tower so far. May lag behind: it only determines where searches start.
    height: AtomicU32,
}

/// A position in a search: a node before the target, and the target's tag relative to its anchor.
#[derive(Clone, Copy)]
pub(crate) struct Position {
    pub(crate) node: NodeId,
    pub(crate) tag: u32,
}

/// The gap at one level that contains the target: after `before`, and before the node of `next`.
#[derive(Clone, Copy)]
pub(crate) struct Gap {
    pub(crate) before: Position,
    pub(crate) next: Link,
}

/// The entries of one leaf at one moment, all or from a target on. Reused for each leaf.
pub(crate) struct Snapshot {
    slots: [Slot; SLOTS],
    len: usize,
    next: Link,
    /// The length of the sorted prefix.
    ordered: usize,
}

impl Snapshot {
    /// No entries, and no next node.
    pub(crate) fn empty() -> Snapshot {
        Snapshot { slots: [Slot::EMPTY; SLOTS], len: 0, next: Link::END, ordered: 0 }
    }

    /// The length of the sorted prefix.
    #[inline]
    pub(crate) fn ordered(&self) -> usize {
        self.ordered
    }

    /// The entries.
    #[inline]
    pub(crate) fn slots(&self) -> &[Slot] {
        &self.slots[..self.len]
    }

    /// The next node.
    #[inline]
    pub(crate) fn next(&self) -> Option<NodeId> {
        self.next.node()
    }
}

impl SkipList {
    /// A list in an arena of `arena_size` bytes, in addition to the head. `None` if there is no memory.
    pub(crate) fn new(arena_size: usize, spare: &Arc<SpareMemory>) -> Option<SkipList> {
        let nodes = Nodes::new(arena_size + node_size_max(MAX_HEIGHT, 0), spare)?;
        let head = nodes.create_node(MAX_HEIGHT, Target { key: &[], trailer: Trailer(u64::MAX) }, &[]);
        Some(SkipList { nodes, head, height: AtomicU32::new(1) })
    }

    /// The first entry at or after `target` with the target's key.
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
                // No version from the target to the next anchor. The anchor itself may have the key; its entry is in
                // the first slot.
                None if next.tag() != at.tag => return None,
                None => {
                    let node = next.node().filter(|&node| self.nodes.key(node) == target.key)?;
                    return Some(self.nodes.leaf(node).slot(0).entry());
                }
            }
        }
    }

    /// The first entry at or after `target` in this leaf with the target's key. It may have moved to another leaf
    /// since.
    #[inline]
    fn find_in_leaf(&self, target: Target<'_>, at: Position) -> Option<Slot> {
        // Equal keys have equal tags. Different keys may have equal tags too.
        let leaf = self.nodes.leaf(at.node);
        let mut mask =
            leaf.slots().enumerate().fold(0, |mask, (i, slot)| mask | u64::from(slot.tag() == at.tag) << i);
        let mut found: Option<Slot> = None;
        while mask != 0 {
            // The slot may have changed since the mask was built. The link to the next node reveals that.
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

    /// Compares an entry or anchor with the target, by a full comparison.
    #[inline]
    fn compare(&self, of: impl Keyed, target: Target<'_>) -> Ordering {
        let keys = base::compare_keys(self.nodes.key(of), target.key);
        keys.then_with(|| target.trailer.cmp(&self.nodes.trailer(of)))
    }

    /// The order of two entries of the same leaf.
    #[inline]
    pub(crate) fn compare_slots(&self, a: Slot, b: Slot) -> Ordering {
        a.tag().cmp(&b.tag()).then_with(|| match a == b {
            true => Ordering::Equal,
            false => self.compare(a.entry(), self.nodes.place(b.entry())),
        })
    }

    /// Whether an entry lies before the anchor of the next node.
    #[inline]
    fn is_before(&self, slot: Slot, next: Link) -> bool {
        match next.node() {
            Some(node) if slot.tag() == next.tag() => {
                self.compare(slot.entry(), self.nodes.place(node)).is_lt()
            }
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

    /// Fills `into` with the sorted entries of a leaf. All entries inserted so far are in `into`, or in the nodes
    /// from `next` on.
    pub(crate) fn snapshot(&self, node: NodeId, into: &mut Snapshot) {
        self.copy_leaf(node, 0, into);
        self.sort(into);
    }

    /// Fills `into` with the sorted entries of the leaf for `target`. Returns how many of them lie before the target.
    /// The leaf may be empty.
    pub(crate) fn snapshot_at(&self, target: Target<'_>, into: &mut Snapshot) -> usize {
        let at = self.copy_leaf_of(target, false, into);
        self.sort(into);
        let before = |slot: &Slot| {
            slot.tag() < at.tag || slot.tag() == at.tag && self.compare(slot.entry(), target).is_lt()
        };
        into.slots().partition_point(before)
    }

    /// Fills `into` with the entries of the leaf for `target` that are at or after the target. Only the first one is
    /// in place: most seeks need one entry, or continue in another run. There may be none.
    pub(crate) fn snapshot_from(&self, target: Target<'_>, into: &mut Snapshot) {
        let at = self.copy_leaf_of(target, true, into);
        let (mut len, mut first) = (0, 0);
        for i in 0..into.len {
            let slot = into.slots[i];
            // Entries with a lower tag were omitted from the copy.
            if slot.tag() == at.tag && self.compare(slot.entry(), target).is_lt() {
                continue;
            }
            into.slots[len] = slot;
            if self.compare_slots(slot, into.slots[first]).is_lt() {
                first = len;
            }
            len += 1;
        }
        into.slots.swap(0, first);
        // Entries that moved to another leaf follow all entries that did not.
        into.len = if len > 0 && self.is_before(into.slots[0], into.next) { len } else { 0 };
        into.ordered = into.len.min(1);
    }

    /// Puts the next unsorted entry in place. If only entries are left that moved to another leaf, drops them.
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

    /// Copies the entries of the leaf for `target`, and returns its position. With `onward`, entries with a lower
    /// tag, which lie before the target, may be omitted.
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

    /// Copies the entries of a leaf with a tag of at least `least`, unsorted, and the link to the next node.
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

    /// Sorts the entries and drops those that moved to another leaf, where the reader will find them. The first entry
    /// of [`SkipList::snapshot_from`] stays first.
    pub(crate) fn sort(&self, snapshot: &mut Snapshot) {
        let slots = &mut snapshot.slots[..snapshot.len];
        slots.sort_unstable();
        // Tags usually decide. Entries with equal tags need a full comparison.
        for equal in slots.chunk_by_mut(|a, b| a.tag() == b.tag()).filter(|equal| equal.len() > 1) {
            equal.sort_unstable_by(|&a, &b| self.compare_slots(a, b));
        }
        snapshot.len = slots.partition_point(|&slot| self.is_before(slot, snapshot.next));
        snapshot.ordered = snapshot.len;
    }

    /// The start of a search: the head, which shares no byte with any key.
    #[inline]
    pub(crate) fn start(&self, target: Target<'_>) -> Position {
        Position { node: self.head, tag: tag(target.key, 0) }
    }

    #[inline]
    fn height(&self) -> usize {
        self.height.load(MemoryOrdering::Relaxed) as usize
    }

    /// Makes searches start at least at `height`.
    pub(crate) fn raise(&self, height: usize) {
        if height > self.height() {
            self.height.fetch_max(height as u32, MemoryOrdering::Relaxed);
        }
    }

    /// Searches from the top. Passes the gaps of all levels below `report` to `each`; returns the gap at level 0.
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

    /// The nodes of a level, but for the head. They are a random sample of those below.
    fn nodes_of(&self, level: usize) -> impl Iterator<Item = NodeId> + '_ {
        let next = move |node: &NodeId| self.nodes.link(*node, level).node();
        std::iter::successors(next(&self.head), next)
    }

    /// The highest level that has so many nodes, or the lowest, with the number of its nodes; `None` if there are no levels.
    fn level_with(&self, enough: usize) -> Option<(usize, usize)> {
        let mut levels = (0..self.height()).rev().map(|level| (level, self.nodes_of(level).count()));
        levels.find(|&(level, nodes)| nodes >= enough || level == 0)
    }

    /// Keys with about equally many entries between them, ascending: so many, if there are as many nodes, and at most some times as many.
    pub(crate) fn samples(&self, enough: usize) -> Vec<&[u8]> {
        let level = self.level_with(enough).map(|(level, _)| level);
        level.map(|level| self.nodes_of(level).map(|node| self.nodes.key(node)).collect()).unwrap_or_default()
    }

    /// The approximate share of the nodes before the target, from 0 to 1: counted on [`SkipList::level_with`]`(enough)`.
    pub(crate) fn share_before(&self, target: Target<'_>, enough: usize) -> f64 {
        let Some((level, all)) = self.level_with(enough) else { return 0.0 };
        let next = |at: &Position| self.step(target, *at, self.nodes.link(at.node, level), None);
        let before = std::iter::successors(next(&self.start(target)), next).count();
        // The head, and the others on average half: the target lies within a leaf.
        (before as f64 + 0.5) / (all as f64 + 1.0)
    }

    /// Walks one level from a node before the target to the gap of the target. `after` is a node that is known to be
    /// at or after the target.
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

    /// The position on `node` if the node lies before the target, by a full comparison. Both keys share `from` bytes.
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
