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
//! A memtable in the order of keys is one such list. One in the order of hashes is an array of *lists*, each for the keys whose hashes have the same lowest
//! bits. There are so many that most lists are one leaf. Other bits of the hash are the tag of a key, in all links and slots, and come before the key in
//! the order. A list has no head until its first entry, because memtables may have few entries.
//!
//! An earlier design was a skip list of single entries with the same tags, where an insert was one compare-and-swap
//! per level. With 350 000 entries, a random insert took 850 to 1000 ns, almost all of it cache misses: the lowest
//! levels do not fit in the cache, and a search visits one node on each, one after the other. In the present design
//! the nodes fit in the cache, a search waits for one leaf, and an insert takes a third of the time.

use crate::key_order::{Target, compare_from, prefix, shared_bytes, tag};
use crate::memory::SpareMemory;
use crate::node::{EntryId, Keyed, Link, MAX_HEIGHT, NodeId, Nodes, SLOTS, Slot, node_size_max};
use crate::sync::{AtomicU64, Ordering as MemoryOrdering, fence, pause};
use base::Trailer;
use std::cmp::Ordering;
use std::sync::Arc;

/// Maximum height of a tower in a list that is one of many. Each list has a head of this height, and most lists are one or two nodes.
const MAX_HEIGHT_OF_MANY: usize = if cfg!(any(loom, miri)) { 2 } else { 12 };

/// Bits of a hash in a tag: one less than a tag has, because that of a link without a next node is larger.
const TAG_BITS: u32 = 31;

/// The entries of a memtable in one skip list, or in many; see the module.
pub(crate) struct SkipList {
    pub(crate) nodes: Nodes,
    /// As many as a power of two.
    lists: Box<[ListHead]>,
    /// Of a tower.
    pub(crate) max_height: usize,
}

/// The head of a list (lower 32 bits; 0: none yet), and the height of its tallest tower (upper 32 bits), which may lag behind: it only determines where
/// searches start.
struct ListHead(AtomicU64);

impl ListHead {
    /// In place of a head that a thread is about to create.
    const CREATING: u64 = u32::MAX as u64;
}

/// Where a list begins.
#[derive(Clone, Copy)]
pub(crate) struct Root {
    /// The number of the list.
    pub(crate) list: usize,
    /// The first node, with the tallest tower and no anchor.
    pub(crate) head: NodeId,
    height: usize,
}

/// Where a search for a key starts.
#[derive(Clone, Copy)]
pub(crate) struct Start {
    pub(crate) root: Root,
    /// Of the key: relative to the head, which shares no byte with any key, or bits of its hash.
    pub(crate) tag: u32,
}

impl Start {
    pub(crate) fn position(self) -> Position {
        Position { node: self.root.head, tag: self.tag }
    }
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

    /// No entries, and no next node.
    pub(crate) fn clear(&mut self) {
        (self.len, self.next, self.ordered) = (0, Link::END, 0);
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
    /// Bytes of an arena that so many lists take without entries.
    pub(crate) const fn heads_size(lists: usize) -> usize {
        match lists {
            1 => node_size_max(MAX_HEIGHT, 0),
            _ => lists * node_size_max(MAX_HEIGHT_OF_MANY, 0),
        }
    }

    /// One list, or more, as many as a power of two, in an arena of `arena_size` bytes in addition to the heads. `None` if there is no memory.
    pub(crate) fn new(arena_size: usize, lists: usize, spare: &Arc<SpareMemory>) -> Option<SkipList> {
        assert!(lists.is_power_of_two());
        let nodes = Nodes::new(arena_size + SkipList::heads_size(lists), spare)?;
        let max_height = if lists == 1 { MAX_HEIGHT } else { MAX_HEIGHT_OF_MANY };
        let mut heads = Vec::new();
        heads.try_reserve_exact(lists).ok()?;
        heads.extend((0..lists).map(|_| ListHead(AtomicU64::new(0))));
        Some(SkipList { nodes, lists: heads.into_boxed_slice(), max_height })
    }

    /// Whether there is one list, which has all entries in the order of keys.
    #[inline]
    pub(crate) fn is_one(&self) -> bool {
        self.lists.len() == 1
    }

    /// Bytes of the array of lists.
    pub(crate) fn array_bytes(&self) -> usize {
        size_of_val(&*self.lists)
    }

    /// The number of lists.
    #[inline]
    pub(crate) fn lists(&self) -> usize {
        self.lists.len()
    }

    /// The number of the list of a key, and its first tag.
    #[inline]
    pub(crate) fn list_of(&self, key: &[u8]) -> (usize, u32) {
        match self.is_one() {
            true => (0, tag(key, 0)),
            false => {
                let hash = base::hash(key);
                (hash as usize & (self.lists.len() - 1), (hash >> (u64::BITS - TAG_BITS)) as u32)
            }
        }
    }

    /// Where a list begins. `None` if it has no entries.
    #[inline]
    pub(crate) fn root(&self, list: usize) -> Option<Root> {
        // Acquire, paired with the release of `create_head`: the bytes of the head were written before.
        let word = self.lists[list].0.load(MemoryOrdering::Acquire);
        let head = NodeId::from_raw(word as u32).filter(|_| word != ListHead::CREATING)?;
        Some(Root { list, head, height: (word >> 32) as usize })
    }

    /// Where a search for a key starts. `None` if its list has no entries.
    #[inline]
    pub(crate) fn start(&self, key: &[u8]) -> Option<Start> {
        let (list, tag) = self.list_of(key);
        Some(Start { root: self.root(list)?, tag })
    }

    /// The same. Creates the head of a list that has none.
    #[inline]
    pub(crate) fn start_or_create(&self, key: &[u8]) -> Start {
        let (list, tag) = self.list_of(key);
        let root = self.root(list).unwrap_or_else(|| self.create_head(list));
        Start { root, tag }
    }

    /// One thread creates the head, and others wait: an arena has room for one head for each list.
    #[cold]
    fn create_head(&self, list: usize) -> Root {
        let word = &self.lists[list].0;
        let mut rounds = 0;
        loop {
            if let Some(root) = self.root(list) {
                return root;
            }
            let (success, failure) = (MemoryOrdering::Relaxed, MemoryOrdering::Relaxed);
            if word.compare_exchange(0, ListHead::CREATING, success, failure).is_ok() {
                let anchor = Target { key: &[], trailer: Trailer(u64::MAX) };
                let head = self.nodes.create_node(self.max_height, anchor, &[]);
                word.store(u64::from(head.raw()) | 1 << 32, MemoryOrdering::Release);
                return Root { list, head, height: 1 };
            }
            pause(&mut rounds);
        }
    }

    /// The first entry at or after `target` with the target's key.
    #[inline]
    pub(crate) fn find(&self, target: Target<'_>) -> Option<EntryId> {
        let start = self.start(target.key)?;
        let mut at = self.descend(start, target, 0, |_, _| ()).before;
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

    /// The last node of a list.
    pub(crate) fn last_node(&self, root: Root) -> NodeId {
        let mut node = root.head;
        for level in (0..root.height).rev() {
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
    pub(crate) fn snapshot_at(&self, start: Start, target: Target<'_>, into: &mut Snapshot) -> usize {
        let at = self.copy_leaf_of(start, target, false, into);
        self.sort(into);
        let before = |slot: &Slot| {
            slot.tag() < at.tag || slot.tag() == at.tag && self.compare(slot.entry(), target).is_lt()
        };
        into.slots().partition_point(before)
    }

    /// Fills `into` with the entries of the leaf for `target` that are at or after the target. Only the first one is
    /// in place: most seeks need one entry, or continue in another run. There may be none.
    pub(crate) fn snapshot_from(&self, start: Start, target: Target<'_>, into: &mut Snapshot) {
        let at = self.copy_leaf_of(start, target, true, into);
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
    fn copy_leaf_of(&self, start: Start, target: Target<'_>, onward: bool, into: &mut Snapshot) -> Position {
        let mut at = self.descend(start, target, 0, |_, _| ()).before;
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

    /// Makes searches in a list start at least at `height`.
    pub(crate) fn raise(&self, list: usize, height: usize) {
        let word = &self.lists[list].0;
        let mut current = word.load(MemoryOrdering::Relaxed);
        while height > (current >> 32) as usize {
            let new = u64::from(current as u32) | (height as u64) << 32;
            match word.compare_exchange(current, new, MemoryOrdering::Release, MemoryOrdering::Relaxed) {
                Ok(_) => return,
                Err(other) => current = other,
            }
        }
    }

    /// Searches from the top. Passes the gaps of all levels below `report` to `each`; returns the gap at level 0.
    #[inline]
    pub(crate) fn descend(
        &self,
        start: Start,
        target: Target<'_>,
        report: usize,
        mut each: impl FnMut(usize, Gap),
    ) -> Gap {
        let mut gap = Gap { before: start.position(), next: Link::END };
        for level in (0..start.root.height.max(report)).rev() {
            gap = self.walk(target, level, gap.before, gap.next.node());
            if level < report {
                each(level, gap);
            }
        }
        gap
    }

    /// The nodes of a level, but for the head. They are a random sample of those below.
    fn nodes_of(&self, head: NodeId, level: usize) -> impl Iterator<Item = NodeId> + '_ {
        let next = move |node: &NodeId| self.nodes.link(*node, level).node();
        std::iter::successors(next(&head), next)
    }

    /// The highest level that has so many nodes, or the lowest, with the number of its nodes; `None` if there are no levels.
    fn level_with(&self, root: Root, enough: usize) -> Option<(usize, usize)> {
        let nodes = |level| self.nodes_of(root.head, level).count();
        let mut levels = (0..root.height).rev().map(|level| (level, nodes(level)));
        levels.find(|&(level, nodes)| nodes >= enough || level == 0)
    }

    /// Keys with about equally many entries between them, ascending: so many, if there are as many nodes, and at most some times as many. None if there
    /// is more than one list.
    pub(crate) fn samples(&self, enough: usize) -> Vec<&[u8]> {
        let Some(root) = self.root(0).filter(|_| self.is_one()) else { return Vec::new() };
        let level = self.level_with(root, enough).map(|(level, _)| level);
        let keys = |level| self.nodes_of(root.head, level).map(|node| self.nodes.key(node)).collect();
        level.map(keys).unwrap_or_default()
    }

    /// The approximate share of the nodes before the target, from 0 to 1: counted on [`SkipList::level_with`]`(enough)`. 0 if there is more than one list.
    pub(crate) fn share_before(&self, target: Target<'_>, enough: usize) -> f64 {
        let Some(start) = self.start(target.key).filter(|_| self.is_one()) else { return 0.0 };
        let Some((level, all)) = self.level_with(start.root, enough) else { return 0.0 };
        let next = |at: &Position| self.step(target, *at, self.nodes.link(at.node, level), None);
        let before = std::iter::successors(next(&start.position()), next).count();
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
            let shared = if self.is_one() { shared_bytes(theirs, at.tag) } else { 0 };
            let tag = if shared == 0 { at.tag } else { tag(target.key, prefix(at.tag) + shared) };
            return Some(Position { node, tag });
        }
        if after == Some(node) {
            return None;
        }
        if !self.is_one() {
            return self.compare(node, target).is_lt().then_some(Position { node, tag: at.tag });
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
