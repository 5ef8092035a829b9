//! [`HashIndex`]: where the entries of a keyspace are, by hash.
//!
//! A *tag* is 32 bits of the hash of a key. The index has a slot of 12 bytes for each entry: tag and [`Place`]. Slots with the same tag are in
//! order, the newest first. A tag does not tell a key: a reader reads the entries of its tag, newest first, until one has its key. An
//! overwrite inserts a slot in front of the older one, and reads nothing; the older slot stays until a collection of its file has compared
//! the keys. With n entries a reader meets an entry of another key with a probability of n / 2^32.
//!
//! The newest slot of a tag counts as alive, unless it is a delete behind which nothing is: a collection of its file drops that.
//!
//! The slots are in *leaves* of at most [`MAX_SLOTS`](crate::leaf::MAX_SLOTS), sorted by tag. A directory has the leaves by the first bits of their tags
//! (extendible hashing: Fagin, Nievergelt, Pippenger and Strong, ACM TODS 1979). A leaf that is full is divided into two; if the directory has no bit
//! left to tell these two, it doubles, which is a copy of four bytes for about each leaf, beside readers. So the index grows leaf by leaf, and leaves do
//! not move.

mod loader;

pub use loader::IndexLoader;

use crate::files::{Added, FileUse, Files};
use crate::leaf::{Change, Leaf, MAX_SLOTS, NewSlot};
use crate::place::{MAX_FILES, MAX_FLUSHED_FILES, Place};
use base::Result;
use parking_lot::RwLock;
use record::ChunkPlace;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use values::SegmentFile;

/// Where an entry is that may have the key of a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Its slot.
    pub place: Place,
    /// Its file.
    pub file: SegmentFile,
    /// The length of the file.
    pub file_len: u64,
    /// Where it is in the file.
    pub at: ChunkPlace,
    /// The mean length of the entries in the file.
    pub mean_len: u64,
    /// The mean length of the entries that begin in one chunk of it, together.
    pub mean_chunk_len: u64,
}

/// The index of a keyspace. One thread at a time changes it; readers run beside it.
pub struct HashIndex {
    directory: RwLock<Directory>,
    files: RwLock<Files>,
    slots: AtomicU64,
    /// Tags with an entry that counts as alive.
    live: AtomicU64,
    /// Bytes of all leaves.
    leaf_bytes: AtomicU64,
    /// The bits of a tag that are used: all but in tests, in which tags shall collide.
    mask: u32,
}

struct Directory {
    /// Position `i` has the number of the leaf of the tags whose first `depth` bits are `i`. A leaf with a smaller depth of its own is there several
    /// times.
    numbers: Vec<u32>,
    leaves: Leaves,
    depth: u32,
}

impl Directory {
    fn position(&self, tag: u32) -> usize {
        // A shift by all bits is not defined.
        (u64::from(tag) >> (u32::BITS - self.depth)) as usize
    }

    /// The leaf of a tag.
    fn leaf(&self, tag: u32) -> &RwLock<Leaf> {
        self.leaves.get(self.numbers[self.position(tag)])
    }
}

/// The leaves of an index, by number. None moves once its block is full: to grow takes no longer with more leaves.
#[derive(Default)]
struct Leaves {
    blocks: Vec<Vec<RwLock<Leaf>>>,
}

impl Leaves {
    /// Leaves in a block.
    const PER_BLOCK: usize = 1024;

    fn get(&self, number: u32) -> &RwLock<Leaf> {
        &self.blocks[number as usize / Self::PER_BLOCK][number as usize % Self::PER_BLOCK]
    }

    fn get_mut(&mut self, number: u32) -> &mut Leaf {
        self.blocks[number as usize / Self::PER_BLOCK][number as usize % Self::PER_BLOCK].get_mut()
    }

    /// Adds a leaf, and returns its number.
    fn push(&mut self, leaf: Leaf) -> u32 {
        if self.blocks.last().is_none_or(|block| block.len() == Self::PER_BLOCK) {
            self.blocks.push(Vec::new());
        }
        let block = self.blocks.len() - 1;
        self.blocks[block].push(RwLock::new(leaf));
        (block * Self::PER_BLOCK + self.blocks[block].len() - 1) as u32
    }
}

impl Default for HashIndex {
    fn default() -> Self {
        HashIndex::with_tag_bits(u32::BITS)
    }
}

impl HashIndex {
    /// An empty index whose tags have so many bits: for tests, in which tags shall collide.
    pub fn with_tag_bits(bits: u32) -> HashIndex {
        let leaf = Leaf::default();
        let leaf_bytes = leaf.memory() as u64;
        let mut leaves = Leaves::default();
        let numbers = vec![leaves.push(leaf)];
        HashIndex {
            directory: RwLock::new(Directory { numbers, leaves, depth: 0 }),
            files: RwLock::default(),
            slots: AtomicU64::new(0),
            live: AtomicU64::new(0),
            leaf_bytes: AtomicU64::new(leaf_bytes),
            mask: u32::MAX.checked_shl(u32::BITS - bits).unwrap_or(0),
        }
    }

    /// The tag of a key: the upper half of its hash.
    #[inline]
    pub fn tag_of(&self, key: &[u8]) -> u32 {
        (base::hash(key) >> 32) as u32 & self.mask
    }

    /// The number of slots: entries, also those that are overwritten and not collected, and deletes.
    pub fn slots(&self) -> u64 {
        self.slots.load(Relaxed)
    }

    /// The number of slots that are the newest of their tag, but for deletes that hide nothing: about that of keys, and of deletes that hide
    /// something.
    pub fn live(&self) -> u64 {
        self.live.load(Relaxed)
    }

    /// Bytes of memory.
    pub fn memory(&self) -> u64 {
        let directory = self.directory.read().numbers.capacity() * size_of::<u32>();
        self.leaf_bytes.load(Relaxed) + (directory + self.files.read().memory()) as u64
    }

    /// The entries that may have the key of `tag`, the newest first, in `found`, which is cleared before.
    ///
    /// Cost: one search in a leaf, and two locks for readers.
    pub fn candidates(&self, tag: u32, found: &mut Vec<Candidate>) {
        found.clear();
        let directory = self.directory.read();
        let leaf = directory.leaf(tag).read();
        let group = leaf.group(tag);
        if group.is_empty() {
            return;
        }
        // Under the lock of the leaf: as long as a slot is in it, its file is in the list.
        let files = self.files.read();
        found.extend(group.iter().filter_map(|place| candidate(&files, *place)));
    }

    /// The places of the entries that may have a key of `tag`, the newest first, in `found`, which is cleared before.
    pub fn group(&self, tag: u32, found: &mut Vec<Place>) {
        found.clear();
        let directory = self.directory.read();
        let leaf = directory.leaf(tag).read();
        found.extend_from_slice(leaf.group(tag));
    }

    /// The place of the newest entry that may have a key of `tag`.
    pub fn newest(&self, tag: u32) -> Option<Place> {
        let directory = self.directory.read();
        let leaf = directory.leaf(tag).read();
        leaf.group(tag).first().copied()
    }

    /// The file at a position in the list.
    pub fn file(&self, position: u32) -> Option<FileUse> {
        self.files.read().get(position).copied()
    }

    /// The position of a file in the list.
    pub fn find(&self, file: SegmentFile) -> Option<u32> {
        self.files.read().find(file)
    }

    /// The files with entries.
    pub fn files(&self) -> Vec<FileUse> {
        self.files.read().iter().copied().collect()
    }

    /// The position of a file in the list, for places in it. It stays there as long as it has slots; one without is used by nothing, so
    /// slots must follow.
    ///
    /// # Errors
    /// `Io` if there are [`MAX_FILES`] files already.
    pub fn add_file(&self, file: SegmentFile, len: u64) -> Result<u32> {
        self.files.write().position(file, len, MAX_FILES)
    }

    /// [`HashIndex::add_file`] for a flush.
    ///
    /// # Errors
    /// `Io` if there are [`MAX_FLUSHED_FILES`] files already.
    pub fn add_flushed_file(&self, file: SegmentFile, len: u64) -> Result<u32> {
        self.files.write().position(file, len, MAX_FLUSHED_FILES)
    }

    /// Inserts the entries of a flush: all of them are newer than those that are there. `added`: what they are in each file, by its position.
    pub fn insert(&self, new: &mut [NewSlot], added: &BTreeMap<u32, Added>) {
        new.sort_unstable_by_key(|slot| (slot.tag, std::cmp::Reverse(slot.seq)));
        // Before a slot is seen: a reader that finds it looks its file up.
        {
            let mut files = self.files.write();
            for (file, (count, last_chunk)) in by_file(new.iter().map(|slot| slot.place)) {
                files.note_added(file, count, added.get(&file).copied().unwrap_or_default());
                files.update(file, |file| {
                    file.slots += count;
                    file.last_chunk = file.last_chunk.max(last_chunk);
                });
            }
        }
        self.slots.fetch_add(new.len() as u64, Relaxed);
        let (mut left, mut changed) = (&*new, Alive::default());
        // From the end on: where slots of one tag are inserted in two steps, the newer ones come in front of the older.
        while let Some(last) = left.last() {
            let directory = self.directory.read();
            let mut leaf = directory.leaf(last.tag).write();
            // The tags of a leaf are those from the first with its bits on.
            let bits = if leaf.depth == 0 { 0 } else { u32::BITS - leaf.depth };
            let is_here = |slot: &&NewSlot| leaf.depth == 0 || slot.tag >> bits == last.tag >> bits;
            let count = left.iter().rev().take_while(is_here).count().min(MAX_SLOTS);
            let (others, here) = left.split_at(left.len() - count);
            let before = leaf.memory();
            leaf.insert(here, &mut |was, is| changed.note(was, is));
            self.note_memory(before, leaf.memory());
            let is_full = leaf.len() > MAX_SLOTS;
            drop(leaf);
            drop(directory);
            if is_full {
                self.divide(last.tag);
            }
            left = others;
        }
        changed.apply(&self.live, &mut self.files.write());
    }

    /// The depth up to which a directory of an index with so many slots is doubled.
    fn most_depth(&self, slots: u64) -> u32 {
        (slots / 16).max(2).ilog2().min(u32::BITS - 1)
    }

    /// Divides the leaf of `tag`, and its parts, until they are not full. Tags that are the same, or nearly, cannot be told apart by a directory
    /// of a useful size: then the leaf stays as it is.
    fn divide(&self, tag: u32) {
        let mut pending = vec![tag];
        while let Some(tag) = pending.pop() {
            let mut guard = self.directory.write();
            let directory = &mut *guard;
            let number = directory.numbers[directory.position(tag)];
            let leaf = directory.leaves.get_mut(number);
            if leaf.len() <= MAX_SLOTS {
                continue;
            }
            if leaf.depth == directory.depth {
                if directory.depth < self.most_depth(self.slots()) {
                    drop(guard);
                    self.double();
                    pending.push(tag);
                }
                continue;
            }
            let before = leaf.memory();
            let other = leaf.divide();
            self.note_memory(before, leaf.memory() + other.memory());
            // The leaf is at as many positions as its tags have free bits; the second half of these are those of the other one.
            let free = directory.depth - (leaf.depth - 1);
            pending.extend(leaf.tags().first().copied());
            pending.extend(other.tags().first().copied());
            let first = directory.position(tag) >> free << free;
            let (half, all) = (1usize << (free - 1), 1usize << free);
            directory.numbers[first + half..first + all].fill(directory.leaves.push(other));
        }
    }

    /// Doubles the directory. Readers wait only while one vector takes the place of the other.
    fn double(&self) {
        // No other thread changes the directory meanwhile.
        let doubled = self.directory.read().numbers.iter().flat_map(|number| [*number; 2]).collect();
        let mut directory = self.directory.write();
        let before = std::mem::replace(&mut directory.numbers, doubled);
        directory.depth += 1;
        drop(directory);
        drop(before);
    }

    /// So many entries are about to be moved to the file at `position`.
    pub fn note_added(&self, position: u32, count: u64, added: Added) {
        self.files.write().note_added(position, count, added);
    }

    /// Moves and removes slots. Files in which nothing is left are taken from the list. Returns how many of the changes found their slot.
    pub fn change(&self, changes: &mut [Change]) -> u64 {
        changes.sort_unstable_by_key(|change| (change.tag, change.from));
        // Slots that come and go.
        let mut slots: BTreeMap<u32, i64> = BTreeMap::new();
        let (mut done, mut removed, mut changed) = (0, 0, Alive::default());
        let moved = by_file(changes.iter().filter_map(|change| change.to));
        {
            // As for insertions, before a slot is seen.
            let mut files = self.files.write();
            for (file, (count, last_chunk)) in &moved {
                files.update(*file, |file| {
                    file.slots += count;
                    file.last_chunk = file.last_chunk.max(*last_chunk);
                });
            }
        }
        for of_tag in changes.chunk_by(|a, b| a.tag == b.tag) {
            let directory = self.directory.read();
            let mut leaf = directory.leaf(of_tag[0].tag).write();
            let before = leaf.memory();
            let (was, is) = leaf.change(of_tag[0].tag, of_tag, &mut |change| {
                done += 1;
                *slots.entry(change.from.file()).or_default() -= 1;
                match change.to {
                    Some(to) => *slots.entry(to.file()).or_default() += 1,
                    None => removed += 1,
                }
            });
            changed.note(was, is);
            self.note_memory(before, leaf.memory());
        }
        self.slots.fetch_sub(removed, Relaxed);
        let mut files = self.files.write();
        changed.apply(&self.live, &mut files);
        for (file, more) in slots {
            files.update(file, |file| file.slots = file.slots.saturating_add_signed(more));
        }
        for (file, (count, _)) in moved {
            files.update(file, |file| file.slots -= count);
        }
        done
    }

    fn note_memory(&self, before: usize, after: usize) {
        self.leaf_bytes.fetch_add((after as u64).wrapping_sub(before as u64), Relaxed);
    }
}

/// By how much the number of slots that count as alive changes in each file.
#[derive(Default)]
struct Alive {
    by_file: BTreeMap<u32, i64>,
}

impl Alive {
    /// Of a tag, this slot counted as alive, and that one does now.
    fn note(&mut self, was: Option<Place>, is: Option<Place>) {
        if was != is {
            was.into_iter().for_each(|place| *self.by_file.entry(place.file()).or_default() -= 1);
            is.into_iter().for_each(|place| *self.by_file.entry(place.file()).or_default() += 1);
        }
    }

    /// Changes the numbers of an index, and of its files.
    fn apply(self, live: &AtomicU64, files: &mut Files) {
        // At once: a reader of the number sees the one before, or the one after.
        live.fetch_add(self.by_file.values().sum::<i64>() as u64, Relaxed);
        for (file, more) in self.by_file {
            files.update(file, |file| file.live = file.live.saturating_add_signed(more));
        }
    }
}

/// The number of places in each file, and the last chunk of them.
fn by_file(places: impl Iterator<Item = Place>) -> BTreeMap<u32, (u64, u64)> {
    let mut files: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    for place in places {
        let (count, last_chunk) = files.entry(place.file()).or_default();
        (*count, *last_chunk) = (*count + 1, place.at().chunk.max(*last_chunk));
    }
    files
}

fn candidate(files: &Files, place: Place) -> Option<Candidate> {
    let file = files.get(place.file())?;
    Some(Candidate {
        place,
        file: file.file,
        file_len: file.len,
        at: place.at(),
        mean_len: file.mean_len(),
        mean_chunk_len: file.mean_chunk_len(),
    })
}

#[cfg(test)]
mod tests;
