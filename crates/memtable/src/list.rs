//! The skip list: search, and the protocol by which inserts link their nodes.
//!
//! Level 0 is a sorted list of all entries; each level above skips about half of the level below. Nodes are only
//! ever added. An insert finds its neighbours, points its own link at the successor, then swings the predecessor's link
//! with one compare-and-swap; level 0 first, which is the moment the entry exists, then upwards, which only makes
//! searches faster. When another insert came between, it walks on from the same predecessor, which is still a
//! predecessor, and tries again. Readers just follow links.

use crate::node::{HEIGHT_MAX, Link, NodeId, Nodes};
use crate::order::{PREFIX_MAX, Target, compare_from, prefix, shared_bytes, tag};
use crate::stripe::{FINGER_LEVELS, Stripe};
use crate::sync::{AtomicU32, Ordering as MemoryOrdering};
use base::Trailer;
use std::cmp::Ordering;

/// See the module.
pub(crate) struct SkipList {
    nodes: Nodes,
    /// A node without entry, before all others, with the tallest tower.
    head: NodeId,
    /// The tallest tower so far. May lag behind: it only says where searches start.
    height: AtomicU32,
}

/// Where a search stands: on a node before the target, with the target's tag against it.
#[derive(Clone, Copy)]
struct Position {
    node: NodeId,
    tag: u32,
}

/// The gap at one level that the target belongs into: after `before`, and before what `next` leads to.
#[derive(Clone, Copy)]
struct Gap {
    before: Position,
    next: Link,
}

impl SkipList {
    /// A list whose nodes take at most `arena_size` bytes, the head's not counted.
    pub(crate) fn new(arena_size: usize) -> SkipList {
        let nodes = Nodes::new(arena_size + crate::node::size(HEIGHT_MAX, 0, 0));
        let head = nodes.create(HEIGHT_MAX, Target { key: &[], trailer: Trailer(u64::MAX) }, &[]);
        SkipList { nodes, head, height: AtomicU32::new(1) }
    }

    /// The nodes, to read entries by id.
    #[inline]
    pub(crate) fn nodes(&self) -> &Nodes {
        &self.nodes
    }

    /// The first node at or after `target`.
    #[inline]
    pub(crate) fn find(&self, target: Target<'_>) -> Option<NodeId> {
        self.descend(target, 0, |_, _| ()).next.node()
    }

    /// The last node before `target`.
    pub(crate) fn find_before(&self, target: Target<'_>) -> Option<NodeId> {
        let node = self.descend(target, 0, |_, _| ()).before.node;
        (node != self.head).then_some(node)
    }

    /// The first node.
    pub(crate) fn first(&self) -> Option<NodeId> {
        self.next(self.head)
    }

    /// The node after `node`.
    #[inline]
    pub(crate) fn next(&self, node: NodeId) -> Option<NodeId> {
        self.nodes.link(node, 0).node()
    }

    /// The last node.
    pub(crate) fn last(&self) -> Option<NodeId> {
        let mut node = self.head;
        for level in (0..self.height()).rev() {
            while let Some(next) = self.nodes.link(node, level).node() {
                node = next;
            }
        }
        (node != self.head).then_some(node)
    }

    /// Inserts an entry into a tower of `height` links.
    #[inline]
    pub(crate) fn insert(&self, entry: Target<'_>, value: &[u8], height: usize, stripe: &Stripe) {
        let node = self.nodes.create(height, entry, value);
        let nowhere = Gap { before: self.start(entry), next: Link::END };
        let mut gaps = [nowhere; HEIGHT_MAX];
        if !self.gaps_near(stripe, entry, &mut gaps[..height]) {
            self.descend(entry, height, |level, gap| gaps[level] = gap);
        }
        for (level, gap) in gaps[..height].iter_mut().enumerate() {
            self.link(node, entry, level, gap);
        }
        if height > self.height() {
            self.height.fetch_max(height as u32, MemoryOrdering::Relaxed);
        }
        for (level, gap) in gaps[..height.min(FINGER_LEVELS)].iter().enumerate() {
            stripe.set_finger(level, gap.before.node);
        }
    }

    /// Links `node` into the gap, or, as long as others are faster, into what is left of it.
    #[inline]
    fn link(&self, node: NodeId, entry: Target<'_>, level: usize, gap: &mut Gap) {
        loop {
            self.nodes.set_link(node, level, self.link_from(entry, gap));
            let new = Link::new(node, gap.before.tag);
            if self.nodes.swap_link(gap.before.node, level, gap.next, new) {
                return;
            }
            *gap = self.walk(entry, level, gap.before, None);
        }
    }

    /// The link that leads from the entry to the far end of its gap.
    #[inline]
    fn link_from(&self, entry: Target<'_>, gap: &Gap) -> Link {
        let Some(next) = gap.next.node() else { return Link::END };
        let (theirs, ours) = (gap.next.tag(), gap.before.tag);
        if theirs != ours && shared_bytes(theirs, ours) == 0 {
            // The next key leaves the entry's key where it leaves the key before the gap.
            return gap.next;
        }
        let key = self.nodes.key(next);
        let (_, prefix) = compare_from(key, entry.key, prefix(ours));
        Link::new(next, tag(key, prefix))
    }

    /// Where every search starts: on the head, with which no key shares a byte.
    #[inline]
    fn start(&self, target: Target<'_>) -> Position {
        Position { node: self.head, tag: tag(target.key, 0) }
    }

    #[inline]
    fn height(&self) -> usize {
        self.height.load(MemoryOrdering::Relaxed) as usize
    }

    /// Searches from the top. Reports the gaps of all levels below `report`; gives the one of level 0.
    #[inline]
    fn descend(&self, target: Target<'_>, report: usize, mut each: impl FnMut(usize, Gap)) -> Gap {
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
    fn walk(&self, target: Target<'_>, level: usize, mut at: Position, after: Option<NodeId>) -> Gap {
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
    fn step(&self, target: Target<'_>, at: Position, next: Link, after: Option<NodeId>) -> Option<Position> {
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
    fn position_on(&self, target: Target<'_>, node: NodeId, from: usize) -> Option<Position> {
        let (order, prefix) = compare_from(self.nodes.key(node), target.key, from);
        let before = match order {
            Ordering::Less => true,
            Ordering::Equal => self.nodes.trailer(node) > target.trailer,
            Ordering::Greater => false,
        };
        before.then(|| Position { node, tag: tag(target.key, prefix.min(PREFIX_MAX)) })
    }

    /// The gaps of a target that lies next to the last insert of this stripe, at all levels of its tower. What makes
    /// inserts in key order cheap; where the target lies elsewhere, it finds out after one or two comparisons.
    #[inline]
    fn gaps_near(&self, stripe: &Stripe, target: Target<'_>, gaps: &mut [Gap]) -> bool {
        if gaps.len() > FINGER_LEVELS {
            return false;
        }
        for (level, gap) in gaps.iter_mut().enumerate() {
            match self.gap_near(stripe, target, level) {
                Some(found) => *gap = found,
                None => return false,
            }
        }
        true
    }

    #[inline]
    fn gap_near(&self, stripe: &Stripe, target: Target<'_>, level: usize) -> Option<Gap> {
        let node = stripe.finger(level)?;
        let mut at = if node == self.head { self.start(target) } else { self.position_on(target, node, 0)? };
        // The finger is the predecessor of the last insert. In ascending order, the gap is one node further.
        for _ in 0..=1 {
            let next = self.nodes.link(at.node, level);
            match self.step(target, at, next, None) {
                Some(position) => at = position,
                None => return Some(Gap { before: at, next }),
            }
        }
        None
    }
}
