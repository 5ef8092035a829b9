//! What a collection copies: which entries of some files are alive.
//!
//! An entry is dead if a newer one of its key is visible to all that do not see the older one. The index tells which entries *may* have the same
//! key; which do is compared here, with the keys in the hint files of both. So nothing is looked up in logs, and no key is in memory but
//! those of entries behind another one of their tag.

use crate::hints::{Hint, HintFile, HintReader};
use crate::index::HashIndex;
use crate::leaf::Change;
use crate::place::Place;
use base::{Result, Seq};
use record::ChunkPlace;
use std::collections::HashMap;
use values::SegmentFile;

/// An entry that a collection copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LiveEntry {
    /// Its file.
    pub file: SegmentFile,
    /// Where it is in the file.
    pub at: ChunkPlace,
    /// Its slot, and the tag of that.
    pub place: Place,
    /// See `place`.
    pub tag: u32,
}

/// What is to be done with the entries of some files.
#[derive(Debug, Default)]
pub struct Resolved {
    /// The entries that are alive, ascending by file and place.
    pub live: Vec<LiveEntry>,
    /// The removal of the slots of the others.
    pub dead: Vec<Change>,
    /// How many of the live ones are not the newest of their tag, because the newer ones are of other keys.
    pub others: u64,
    /// How many of the live ones are only needed by readers at the sequence numbers that were given.
    pub held: u64,
}

/// An entry behind others of its tag.
struct Behind {
    entry: LiveEntry,
    seq: Seq,
    key: Box<[u8]>,
    /// The sequence number of the next version of its key.
    next_seq: Option<Seq>,
}

/// Finds out which entries of `files` are alive for readers at the sequence numbers `readers`, ascending, and for later ones. `hints` are all hint
/// files of the keyspace. `step` is called with the bytes of each entry that was read; its error ends the work.
///
/// # Errors
/// Those of reading hint files, and of `step`.
pub fn resolve(
    index: &HashIndex,
    hints: &[HintFile],
    reader: &HintReader,
    files: &[SegmentFile],
    readers: &[Seq],
    step: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<Resolved> {
    let (mut resolved, mut behind) = (Resolved::default(), Vec::new());
    let mut newer: HashMap<Place, Vec<u32>> = HashMap::new();
    let mut group = Vec::new();
    for hint_file in hints.iter().filter(|hints| files.iter().any(|file| hints.is_about(*file))) {
        reader.read(hint_file, &mut |hint: Hint<'_>| {
            step(hint.key.len() as u64)?;
            let Some(place) =
                files.contains(&hint.file).then(|| index.place_in(hint.file, hint.at)).flatten()
            else {
                return Ok(());
            };
            let tag = index.tag_of(hint.key);
            index.group(tag, &mut group);
            let entry = LiveEntry { file: hint.file, at: hint.at, place, tag };
            match group.iter().position(|other| *other == place) {
                None => {}
                // A delete is needed as long as there may be something that it hides.
                Some(0) if hint.is_delete && group.len() == 1 => {
                    resolved.dead.push(Change { tag, from: place, to: None });
                }
                Some(0) => resolved.live.push(entry),
                Some(rank) => {
                    let number = behind.len() as u32;
                    group[..rank].iter().for_each(|place| newer.entry(*place).or_default().push(number));
                    behind.push(Behind { entry, seq: hint.seq, key: hint.key.into(), next_seq: None });
                }
            }
            Ok(())
        })?;
    }
    compare_keys(index, hints, reader, &newer, &mut behind, step)?;
    for Behind { entry, seq, next_seq, .. } in behind {
        match next_seq.is_some_and(|next| !is_seen(readers, seq, next)) {
            true => resolved.dead.push(Change { tag: entry.tag, from: entry.place, to: None }),
            false => {
                match next_seq {
                    Some(_) => resolved.held += 1,
                    None => resolved.others += 1,
                }
                resolved.live.push(entry);
            }
        }
    }
    resolved.live.sort_unstable();
    Ok(resolved)
}

/// Whether a reader at one of the sequence numbers `readers`, ascending, sees a version of a key that has `seq`, and not the next one, which has
/// `next`.
pub fn is_seen(readers: &[Seq], seq: Seq, next: Seq) -> bool {
    readers[readers.partition_point(|reader| *reader < seq)..].first().is_some_and(|reader| *reader < next)
}

/// Compares the keys of entries with those of the newer ones of their tags, which are read from their hint files.
fn compare_keys(
    index: &HashIndex,
    hints: &[HintFile],
    reader: &HintReader,
    newer: &HashMap<Place, Vec<u32>>,
    behind: &mut [Behind],
    step: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<()> {
    let mut positions: Vec<u32> = newer.keys().map(|place| place.file()).collect();
    positions.sort_unstable();
    positions.dedup();
    let files: HashMap<SegmentFile, u32> =
        positions.into_iter().filter_map(|position| Some((index.file(position)?.file, position))).collect();
    for hint_file in
        hints.iter().filter(|hints| hints.shares.iter().any(|share| files.contains_key(&share.file)))
    {
        reader.read(hint_file, &mut |hint: Hint<'_>| {
            step(hint.key.len() as u64)?;
            let place = files.get(&hint.file).and_then(|position| Place::new(*position, hint.at).ok());
            for number in place.and_then(|place| newer.get(&place)).into_iter().flatten() {
                let entry = &mut behind[*number as usize];
                if *entry.key == *hint.key {
                    entry.next_seq = Some(entry.next_seq.map_or(hint.seq, |next| next.min(hint.seq)));
                }
            }
            Ok(())
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
