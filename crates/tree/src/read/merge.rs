//! Merges sorted cursors into one: [`MergeCursor`], for reads of several runs and for compactions.

use base::{Cursor, Result, Seq, Slice, Trailer, compare, compare_keys, head};
use std::cmp::Ordering;

/// A cursor over the union of several cursors, in entry order.
///
/// The children are kept in a binary heap. Its nodes hold the head of the child's key, taken after the prefix that all
/// keys share, so that most comparisons compare two integers. While one child yields many entries in a row, its keys
/// are compared with a copy of the smallest key of all other children, and the heap stays as it is. The cursor moves
/// forward and backward; a change of direction costs one seek per child.
pub struct MergeCursor<C> {
    children: Vec<C>,
    /// A heap of the valid children; the current child is at the root.
    heap: Vec<Node>,
    /// The length of the prefix that all keys share.
    prefix: usize,
    backward: bool,
    failed: bool,
    /// Whether the cursor must not wait for the disk.
    nonblocking: bool,
    blocked: bool,
    scratch: Vec<u8>,
    /// A copy of the first key of all children but the current one, in the direction of the cursor. While the keys of
    /// the current child come before it, the node at the root may hold an outdated head.
    second_key: Vec<u8>,
    second_key_valid: bool,
}

#[derive(Clone, Copy)]
struct Node {
    head: u64,
    child: u32,
}

impl<C: Cursor> MergeCursor<C> {
    /// Merges `children`. All keys of all children must begin with the same `prefix` bytes (0 is always correct).
    pub fn new(children: Vec<C>, prefix: usize) -> MergeCursor<C> {
        let heap = Vec::with_capacity(children.len());
        MergeCursor {
            children,
            heap,
            prefix,
            backward: false,
            failed: false,
            nonblocking: false,
            blocked: false,
            scratch: Vec::new(),
            second_key: Vec::new(),
            second_key_valid: false,
        }
    }

    /// The merged cursors.
    pub fn children(&self) -> &[C] {
        &self.children
    }

    /// Moves only the child with the current entry, forward to its first entry at or after (`key`, `seq`), which must
    /// not lie before the current entry.
    pub fn seek_current(&mut self, key: &[u8], seq: Seq) -> Result<()> {
        self.go(false, |child| child.seek(key, seq))
    }

    /// Moves only the child with the current entry, backward. With a `seq`: to its newest version of `key` at `seq`,
    /// which must exist and may be the current entry. Without: to its last entry before `key`.
    pub fn seek_current_back(&mut self, key: &[u8], seq: Option<Seq>) -> Result<()> {
        self.go(true, |child| match seq {
            Some(seq) => child.seek(key, seq),
            None => child.seek_before(key),
        })
    }

    /// The index of the child with the current entry. The cursor must be valid.
    pub fn current(&self) -> usize {
        self.top()
    }

    #[inline]
    fn top(&self) -> usize {
        self.heap[0].child as usize
    }

    fn head_of(&self, child: usize) -> u64 {
        let key = self.children[child].key();
        head(key.get(self.prefix..).unwrap_or(&[]))
    }

    #[inline]
    fn before(&self, a: Node, b: Node) -> bool {
        let of_children = a.child.cmp(&b.child);
        let order = match a.head.cmp(&b.head) {
            Ordering::Equal => {
                let (a, b) = (&self.children[a.child as usize], &self.children[b.child as usize]);
                let (a_key, b_key) = (a.key(), b.key());
                match compare_keys(a_key, b_key) {
                    // Of the same entry in two children, that of the first one comes first.
                    Ordering::Equal => b.trailer().cmp(&a.trailer()).then(of_children),
                    decided => decided,
                }
            }
            decided => decided,
        };
        if self.backward { order == Ordering::Greater } else { order == Ordering::Less }
    }

    #[inline]
    fn sift_down(&mut self, mut at: usize) {
        let node = self.heap[at];
        let len = self.heap.len();
        loop {
            let mut child = 2 * at + 1;
            if child >= len {
                break;
            }
            if child + 1 < len && self.before(self.heap[child + 1], self.heap[child]) {
                child += 1;
            }
            if !self.before(self.heap[child], node) {
                break;
            }
            self.heap[at] = self.heap[child];
            at = child;
        }
        self.heap[at] = node;
    }

    /// Builds the heap from the positions of the children.
    fn rebuild(&mut self) {
        self.heap.clear();
        self.second_key_valid = false;
        for child in 0..self.children.len() {
            if self.children[child].valid() {
                let head = self.head_of(child);
                self.heap.push(Node { head, child: child as u32 });
            }
        }
        for at in (0..self.heap.len() / 2).rev() {
            self.sift_down(at);
        }
    }

    /// Positions every child with `seek`. After an error the cursor is invalid.
    fn position(&mut self, backward: bool, mut seek: impl FnMut(&mut C) -> Result<()>) -> Result<()> {
        self.backward = backward;
        self.heap.clear();
        self.failed = true;
        for child in &mut self.children {
            seek(child)?;
        }
        self.failed = false;
        self.rebuild();
        Ok(())
    }

    /// Like [`MergeCursor::position`], but starts all reads from the disk before it waits for the first: it positions
    /// all children without blocking, and then those that would have blocked, one after another. Calls `seek` once or
    /// twice for a child.
    fn position_together(
        &mut self,
        backward: bool,
        mut seek: impl FnMut(&mut C) -> Result<()>,
    ) -> Result<()> {
        // The reads were started when the last move was deferred.
        let requested = std::mem::take(&mut self.blocked) && !self.nonblocking;
        if requested || (self.children.len() < 2 && !self.nonblocking) {
            return self.position(backward, seek);
        }
        let mut blocked = false;
        let last = self.children.len().saturating_sub(1);
        let nonblocking = self.nonblocking;
        let mut index = 0;
        self.position(backward, |child| {
            // If no other child waits, the last child may block at once.
            let may_block = index == last && !blocked && !nonblocking;
            index += 1;
            if may_block {
                return seek(child);
            }
            child.set_nonblocking(true);
            let result = seek(child);
            child.set_nonblocking(false);
            blocked |= child.would_block();
            result
        })?;
        if !blocked {
            return Ok(());
        }
        self.heap.clear();
        self.failed = true;
        if nonblocking {
            self.blocked = true;
            return Ok(());
        }
        for child in &mut self.children {
            if child.would_block() {
                seek(child)?;
            }
        }
        self.failed = false;
        self.rebuild();
        Ok(())
    }

    /// Moves the child at the root and restores the heap.
    #[inline]
    fn step(&mut self, advance: impl FnOnce(&mut C) -> Result<()>) -> Result<()> {
        let top = self.top();
        let moved = advance(&mut self.children[top]);
        if let Err(e) = moved {
            self.failed = true;
            self.heap.clear();
            return Err(e);
        }
        if !self.children[top].valid() {
            self.heap.swap_remove(0);
            self.second_key_valid = false;
            if self.heap.len() > 1 {
                self.sift_down(0);
            }
            return Ok(());
        }
        // The head of the root is only used for sifting, which updates it first.
        if self.heap.len() > 1 && !self.is_still_first(top) {
            self.heap[0].head = self.head_of(top);
            self.sift_down(0);
            self.second_key_valid = false;
            if self.top() == top {
                self.record_second_key();
            }
        }
        Ok(())
    }

    /// Moves the current child in one direction, after a turn if the cursor has moved in the other one.
    #[inline]
    fn go(&mut self, backward: bool, advance: impl FnOnce(&mut C) -> Result<()>) -> Result<()> {
        self.check_not_failed()?;
        if self.backward != backward {
            self.turn(backward)?;
        }
        self.step(advance)
    }

    /// Whether the current child is known to come before all others.
    #[inline]
    fn is_still_first(&self, top: usize) -> bool {
        let before = if self.backward { Ordering::Greater } else { Ordering::Less };
        self.second_key_valid && compare_keys(self.children[top].key(), &self.second_key) == before
    }

    /// Copies the first key of all children but the current one.
    fn record_second_key(&mut self) {
        let second = match self.heap[1..] {
            [_, other, ..] if self.before(other, self.heap[1]) => other,
            _ => self.heap[1],
        };
        self.second_key.clear();
        self.second_key.extend_from_slice(self.children[second.child as usize].key());
        self.second_key_valid = true;
    }

    /// Changes the direction at the current entry: positions every other child on the other side of it.
    fn turn(&mut self, backward: bool) -> Result<()> {
        let mut here = std::mem::take(&mut self.scratch);
        here.clear();
        here.extend_from_slice(self.key());
        let (top, at) = (self.top(), self.trailer());
        let mut current = 0;
        let result = self.position(backward, |child| {
            current += 1;
            if current - 1 == top {
                return Ok(());
            }
            // To the first entry after (key, trailer); backward, one entry further back.
            child.seek(&here, at.seq())?;
            while child.valid() && compare(child.key(), child.trailer(), &here, at) == Ordering::Less {
                child.next()?;
            }
            match (backward, child.valid()) {
                (false, _) => return Ok(()),
                (true, true) => child.prev()?,
                // To the last entry with this key or one before. Not to the last of all: a child over a range and a time that shows nothing
                // more in the range may show much behind it.
                (true, false) => {
                    here.push(0);
                    let sought = child.seek_before(&here);
                    here.pop();
                    sought?;
                }
            }
            // Other threads may have inserted entries between the one found and this one meanwhile.
            while child.valid() && compare(child.key(), child.trailer(), &here, at) != Ordering::Less {
                child.prev()?;
            }
            Ok(())
        });
        self.scratch = here;
        result
    }

    fn check_not_failed(&self) -> Result<()> {
        match self.failed {
            true => Err(base::Error::new(base::ErrorKind::Io, "a cursor was moved after an error")),
            false => Ok(()),
        }
    }
}

impl<C: Cursor> Cursor for MergeCursor<C> {
    fn seek_to_first(&mut self) -> Result<()> {
        self.position_together(false, |c| c.seek_to_first())
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.position_together(true, |c| c.seek_to_last())
    }

    fn seek(&mut self, key: &[u8], seq: Seq) -> Result<()> {
        self.position_together(false, |c| c.seek(key, seq))
    }

    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        self.position_together(true, |c| c.seek_before(key))
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        self.go(false, C::next)
    }

    #[inline]
    fn prev(&mut self) -> Result<()> {
        self.go(true, C::prev)
    }

    fn skip(&mut self, to: Option<&[u8]>, below: Seq) -> Result<()> {
        self.go(false, |child| child.skip(to, below))
    }

    fn skip_back(&mut self, from: &[u8], below: Seq) -> Result<()> {
        self.go(true, |child| child.skip_back(from, below))
    }

    fn set_nonblocking(&mut self, on: bool) {
        self.nonblocking = on;
    }

    fn would_block(&self) -> bool {
        self.blocked
    }

    #[inline]
    fn valid(&self) -> bool {
        !self.heap.is_empty()
    }

    #[inline]
    fn key(&self) -> &[u8] {
        self.children[self.top()].key()
    }

    #[inline]
    fn trailer(&self) -> Trailer {
        self.children[self.top()].trailer()
    }

    #[inline]
    fn value(&self) -> &[u8] {
        self.children[self.top()].value()
    }

    fn value_slice(&self) -> Slice {
        self.children[self.top()].value_slice()
    }
}
