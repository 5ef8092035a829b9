//! [`IndexLoader`]: makes the index of an opening.

use super::{HashIndex, Leaves};
use crate::leaf::{Leaf, MAX_SLOTS, NewSlot, alive};
use crate::place::{MAX_FILES, Place};
use base::{Error, ErrorKind, Result};
use values::SegmentFile;

/// About the slots of a part: so few that they are sorted in the cache of a processor.
const PART_SLOTS: u64 = 8 << 10;

/// More parts would take longer to write to.
const MAX_PART_BITS: u32 = 12;

/// Makes an index of slots in any order, of which none can be seen before all are there.
///
/// Slots are collected in parts by the first bits of their tags. At the end each part is sorted, divided into leaves, and freed. So a slot moves twice;
/// inserted hint file by hint file, the slots of all leaves would move with each.
pub struct IndexLoader {
    index: HashIndex,
    parts: Vec<Vec<NewSlot>>,
    /// The number of first bits of a tag that choose its part.
    part_bits: u32,
    /// Room for the slots that a part has if tags are spread evenly.
    room: usize,
    count: u64,
    /// The place of the last slot.
    last: Option<Place>,
}

impl HashIndex {
    /// What fills this index, which is empty, with about `count` slots.
    pub fn load(self, count: u64) -> IndexLoader {
        let part_bits = (count / PART_SLOTS).checked_ilog2().unwrap_or(0).min(MAX_PART_BITS);
        let mean = count >> part_bits;
        let room = usize::try_from(mean + mean / 16).unwrap_or(usize::MAX);
        let parts = (0..1 << part_bits).map(|_| Vec::new()).collect();
        IndexLoader { index: self, parts, part_bits, room, count: 0, last: None }
    }
}

impl IndexLoader {
    /// [`HashIndex::tag_of`].
    #[inline]
    pub fn tag_of(&self, key: &[u8]) -> u32 {
        self.index.tag_of(key)
    }

    /// The position of a file in the list, to which entries of `bytes` bytes are added: see [`HashIndex::add_file`].
    ///
    /// # Errors
    /// `Io` if there are [`MAX_FILES`] files already.
    pub fn add_file(&mut self, file: SegmentFile, len: u64, bytes: u64) -> Result<u32> {
        let files = self.index.files.get_mut();
        let position = files.position(file, len, MAX_FILES)?;
        if let Some(file) = files.get_mut(position) {
            file.bytes = file.bytes.saturating_add(bytes);
        }
        Ok(position)
    }

    /// Adds the slot of an entry. Those of one chunk must follow each other.
    ///
    /// # Errors
    /// `NoMemory`.
    #[inline]
    pub fn push(&mut self, slot: NewSlot) -> Result<()> {
        let (at, place) = ((u64::from(slot.tag) >> (u32::BITS - self.part_bits)) as usize, slot.place);
        let part = &mut self.parts[at];
        if part.len() == part.capacity() {
            let more = self.room.max(part.len() / 2).max(4);
            part.try_reserve_exact(more).map_err(|_| no_memory(self.count))?;
        }
        part.push(slot);
        self.count += 1;
        let begins_chunk = !self.last.replace(place).is_some_and(|last| last.is_in_chunk_of(place));
        if let Some(file) = self.index.files.get_mut().get_mut(place.file()) {
            file.slots += 1;
            file.count += 1;
            file.chunks += u64::from(begins_chunk);
            file.last_chunk = file.last_chunk.max(place.at().chunk);
        }
        Ok(())
    }

    /// The index with all slots.
    pub fn finish(self) -> HashIndex {
        let IndexLoader { mut index, parts, part_bits, count, .. } = self;
        let most_depth = index.most_depth(count).max(part_bits);
        let (mut leaves, mut depths, mut bytes) = (Leaves::default(), Vec::new(), 0);
        for mut part in parts {
            part.sort_unstable_by_key(|slot| (slot.tag, std::cmp::Reverse(slot.seq)));
            divide(&part, part_bits, most_depth, &mut |depth, slots| {
                let leaf = Leaf::new(depth, slots);
                bytes += leaf.memory() as u64;
                leaves.push(leaf);
                depths.push(depth);
            });
            for of_tag in part.chunk_by(|a, b| a.tag == b.tag) {
                let Some(place) = alive(of_tag.iter().map(|slot| slot.place)) else { continue };
                *index.live.get_mut() += 1;
                if let Some(file) = index.files.get_mut().get_mut(place.file()) {
                    file.live += 1;
                }
            }
        }
        let directory = index.directory.get_mut();
        directory.depth = depths.iter().copied().max().unwrap_or(0);
        let numbers = depths.iter().zip(0..);
        let positions =
            numbers.flat_map(|(depth, number)| std::iter::repeat_n(number, 1 << (directory.depth - depth)));
        directory.numbers = positions.collect();
        directory.leaves = leaves;
        *index.slots.get_mut() = count;
        *index.leaf_bytes.get_mut() = bytes;
        index
    }
}

/// Divides sorted slots, whose tags have `depth` bits in common, until each of the parts fits into a leaf or has `most_depth` bits in common.
fn divide(slots: &[NewSlot], depth: u32, most_depth: u32, leaf: &mut dyn FnMut(u32, &[NewSlot])) {
    if slots.len() <= MAX_SLOTS || depth >= most_depth {
        return leaf(depth, slots);
    }
    let bit = 1 << (u32::BITS - 1 - depth);
    let (without, with) = slots.split_at(slots.partition_point(|slot| slot.tag & bit == 0));
    divide(without, depth + 1, most_depth, leaf);
    divide(with, depth + 1, most_depth, leaf);
}

fn no_memory(count: u64) -> Error {
    let what = format!("there is no memory for the index of a keyspace without order, after {count} entries");
    Error::new(ErrorKind::NoMemory, what)
}
