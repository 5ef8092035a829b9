//! A leaf of the index: the slots whose tags begin with the same bits, sorted by tag.

use crate::Place;
use base::Seq;
use parking_lot::RwLock;

/// A leaf with more slots is divided, if that can be.
pub(crate) const MAX_SLOTS: usize = 512;

/// The slot of a tag, of which all are given, the newest first, that counts as alive: the newest, unless it is a delete that hides nothing.
pub(crate) fn alive(mut group: impl Iterator<Item = Place>) -> Option<Place> {
    let first = group.next()?;
    (!first.is_delete() || group.next().is_some()).then_some(first)
}

/// The slots of a leaf. Those with the same tag are next to each other, the newest first.
#[derive(Default)]
pub(crate) struct Leaf {
    /// The number of bits with which all its tags begin.
    pub depth: u32,
    tags: Vec<u32>,
    places: Vec<Place>,
}

/// A slot to be inserted. Without padding: an opening has one for each entry.
#[derive(Clone, Copy, Debug)]
#[repr(Rust, packed(4))]
pub struct NewSlot {
    /// The tag of its key.
    pub tag: u32,
    /// Where its entry is.
    pub place: Place,
    /// The sequence number of its entry.
    pub seq: Seq,
}

/// A slot of the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// The tag of its key.
    pub tag: u32,
    /// Where its entry is.
    pub place: Place,
}

/// What happens to a slot: its entry has moved, or is gone.
#[derive(Clone, Copy, Debug)]
pub struct Change {
    /// The tag of its key.
    pub tag: u32,
    /// Where its entry was.
    pub from: Place,
    /// Where it is now; `None`: nowhere.
    pub to: Option<Place>,
}

impl Change {
    /// The entry of a slot is gone.
    pub fn removal(slot: Slot) -> Change {
        Change { tag: slot.tag, from: slot.place, to: None }
    }
}

impl Leaf {
    /// A leaf of slots that are ascending by tag, and of one tag newest first.
    pub(crate) fn new(depth: u32, slots: &[NewSlot]) -> Leaf {
        let (tags, places) = slots.iter().map(|slot| (slot.tag, slot.place)).unzip();
        Leaf { depth, tags, places }
    }

    pub(crate) fn len(&self) -> usize {
        self.tags.len()
    }

    pub(crate) fn tags(&self) -> &[u32] {
        &self.tags
    }

    /// The places of the entries whose keys have this tag, the newest first.
    pub(crate) fn group(&self, tag: u32) -> &[Place] {
        let from = self.first_at(tag);
        let len = self.tags[from..].iter().take_while(|other| **other == tag).count();
        &self.places[from..from + len]
    }

    /// The number of tags less than `tag`. Tags are spread evenly, so the search begins near its end: a binary search would load one cache line of
    /// the leaf after the other.
    fn first_at(&self, tag: u32) -> usize {
        let len = self.tags.len();
        let behind = u64::from(tag.checked_shl(self.depth).unwrap_or(0));
        let guess = ((behind * len as u64) >> u32::BITS) as usize;
        let is_less = |at: usize| self.tags[at] < tag;
        // Doubles the step until the end of the search lies in `low..=high`.
        let (mut low, mut high, mut step) = (guess, guess, 16);
        while low > 0 && !is_less(low - 1) {
            (high, low) = (low - 1, low.saturating_sub(step));
            step *= 2;
        }
        while high < len && is_less(high) {
            (low, high) = (high + 1, (high + step).min(len));
            step *= 2;
        }
        low + self.tags[low..high].partition_point(|other| *other < tag)
    }

    /// Bytes of memory, about: the vectors, and what the leaf itself takes.
    pub(crate) fn memory(&self) -> usize {
        self.tags.capacity() * size_of::<u32>() + self.places.capacity() * size_of::<Place>() + LEAF_BYTES
    }

    /// Inserts slots, which are ascending by tag, and of one tag newest first. All of them are newer than those that are there. `changed` is called for each
    /// tag with the slot that counted as [`alive`] before, and the one that does now.
    pub(crate) fn insert(&mut self, new: &[NewSlot], changed: &mut dyn FnMut(Option<Place>, Option<Place>)) {
        let (mut old, len) = (self.len(), self.len() + new.len());
        // A sixteenth more than is needed: most leaves get some slots with each flush.
        let wanted = if self.tags.capacity() < len { len + len / 16 } else { 0 };
        self.tags.reserve_exact(wanted.saturating_sub(self.len()));
        self.places.reserve_exact(wanted.saturating_sub(self.len()));
        self.tags.resize(len, 0);
        self.places.resize(len, Place::ZERO);
        let mut to = len;
        for slot in new.iter().rev() {
            // From the last slot on, those move back that come behind the new one.
            while old > 0 && self.tags[old - 1] >= slot.tag {
                (old, to) = (old - 1, to - 1);
                self.tags[to] = self.tags[old];
                self.places[to] = self.places[old];
            }
            to -= 1;
            self.tags[to] = slot.tag;
            self.places[to] = slot.place;
        }
        for of_tag in new.chunk_by(|a, b| a.tag == b.tag) {
            let group = self.group(of_tag[0].tag).iter().copied();
            let is_old = |place: &Place| !of_tag.iter().map(|slot| slot.place).any(|new| new == *place);
            changed(alive(group.clone().filter(is_old)), alive(group));
        }
    }

    /// Moves and removes slots of one tag. `changed` is called for each change whose slot is there. Returns the slot that counted as
    /// [`alive`] before, and the one that does now.
    pub(crate) fn change(
        &mut self,
        tag: u32,
        changes: &[Change],
        changed: &mut dyn FnMut(&Change),
    ) -> (Option<Place>, Option<Place>) {
        let from = self.first_at(tag);
        let all = self.group(tag).len();
        let before = alive(self.places[from..from + all].iter().copied());
        let mut left = all;
        for change in changes {
            let group = &mut self.places[from..from + left];
            let Some(at) = group.iter().position(|place| *place == change.from) else { continue };
            changed(change);
            match change.to {
                Some(to) => group[at] = to,
                None => {
                    self.tags.remove(from + at);
                    self.places.remove(from + at);
                    left -= 1;
                }
            }
        }
        if left < all {
            let wanted = self.len() + self.len() / 16;
            self.tags.shrink_to(wanted);
            self.places.shrink_to(wanted);
        }
        (before, alive(self.places[from..from + left].iter().copied()))
    }

    /// Divides the slots by the bit behind the first `depth` ones: this leaf keeps those without it.
    pub(crate) fn divide(&mut self) -> Leaf {
        self.depth += 1;
        let bit = 1 << (u32::BITS - self.depth);
        // The bits before are the same in all tags.
        let at = self.tags.partition_point(|tag| tag & bit == 0);
        let other =
            Leaf { depth: self.depth, tags: self.tags.split_off(at), places: self.places.split_off(at) };
        self.tags.shrink_to_fit();
        self.places.shrink_to_fit();
        other
    }
}

/// Bytes of a leaf beside its slots: the vectors and the lock.
const LEAF_BYTES: usize = size_of::<RwLock<Leaf>>();
