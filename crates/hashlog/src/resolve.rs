//! What a collection copies: which entries of some files are alive.
//!
//! An entry is dead if a newer one of its key is visible to all that do not see the older one. The index tells which entries *may* have the same
//! key; which do is compared here, with the keys in the hint files of both. So nothing is looked up in logs, and no key is in memory but
//! those of entries behind another one of their tag.

use crate::hints::{Hint, HintFile, HintReader};
use crate::index::HashIndex;
use crate::leaf::{Change, Slot};
use crate::place::Place;
use base::planted::{Bug, planted};
use base::{Result, Seq};
use std::collections::HashMap;
use values::SegmentFile;

/// So many of the newer entries of a tag are compared, the nearest first. An entry that has as many newer ones of other keys is copied, also
/// if it is dead; a key that is overwritten in each flush costs no more than this.
const COMPARED: usize = 4;

/// What is to be done with the entries of some files.
#[derive(Debug, Default)]
pub struct Resolved {
    /// The entries that are alive, by file, and ascending by place.
    pub live: HashMap<SegmentFile, Vec<Slot>>,
    /// The removal of the slots of the others.
    pub dead: Vec<Change>,
    /// How many of the live ones are not the newest of their tag, because the newer ones are of other keys.
    pub others: u64,
    /// How many of the live ones are only needed by readers at the sequence numbers that were given ...
    pub held: u64,
    /// ... of which none that needs one has a larger number than this.
    pub held_by: Seq,
}

/// Entries behind others of their tags.
#[derive(Default)]
struct Behind {
    entries: Vec<EntryBehind>,
    /// Their keys, one after the other.
    keys: Vec<u8>,
    /// The places of the newer entries, with the number of the entry behind them.
    newer: Vec<(Place, u32)>,
}

struct EntryBehind {
    slot: Slot,
    seq: Seq,
    key_at: usize,
    /// The smallest sequence number of the newer versions of its key; `Seq::MAX`: there is none.
    next_seq: Seq,
}

impl Behind {
    fn key(&self, number: usize) -> &[u8] {
        let to = self.entries.get(number + 1).map_or(self.keys.len(), |next| next.key_at);
        &self.keys[self.entries[number].key_at..to]
    }

    /// The nearest of the newer entries of the tag are those at the end of `newer`.
    fn push(&mut self, slot: Slot, hint: &Hint<'_>, newer: &[Place]) {
        let number = self.entries.len() as u32;
        let nearest = newer.iter().rev().take(COMPARED);
        self.newer.extend(nearest.map(|place| (*place, number)));
        let key_at = self.keys.len();
        self.keys.extend_from_slice(hint.key);
        self.entries.push(EntryBehind { slot, seq: hint.seq, key_at, next_seq: Seq::MAX });
    }
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
    let (mut resolved, mut behind) = (Resolved::default(), Behind::default());
    let positions: HashMap<SegmentFile, u32> =
        files.iter().filter_map(|file| Some((*file, index.find(*file)?))).collect();
    let mut live: Vec<Slot> = Vec::new();
    // Deletes, with the number of entries behind each, whose places follow each other in `hidden`.
    let (mut deletes, mut hidden): (Vec<(Slot, usize)>, Vec<Place>) = (Vec::new(), Vec::new());
    let mut group = Vec::new();
    let is_about = |hints: &&HintFile| hints.shares.iter().any(|share| positions.contains_key(&share.file));
    for hint_file in hints.iter().filter(is_about) {
        read_shares(hint_file, reader, &positions, step, &mut |place, hint| {
            let slot = Slot { tag: index.tag_of(hint.key), place };
            index.group(slot.tag, &mut group);
            match group.iter().position(|other| *other == place) {
                None => {}
                Some(0) if hint.is_delete && planted(Bug::DropDeleteEarly) => {
                    resolved.dead.push(Change::removal(slot));
                }
                // A delete is needed as long as there may be something that it hides.
                Some(0) if hint.is_delete => {
                    deletes.push((slot, group.len() - 1));
                    hidden.extend_from_slice(&group[1..]);
                }
                Some(0) => live.push(slot),
                Some(rank) => behind.push(slot, &hint, &group[..rank]),
            }
        })?;
    }
    compare_keys(index, hints, reader, &mut behind, step)?;
    for EntryBehind { slot, seq, next_seq, .. } in behind.entries {
        let is_superseded = next_seq != Seq::MAX;
        match is_superseded && !is_seen(readers, seq, next_seq) {
            true => resolved.dead.push(Change::removal(slot)),
            false => {
                match is_superseded {
                    true => {
                        resolved.held += 1;
                        let before = readers.partition_point(|reader| *reader < next_seq);
                        let last = before.checked_sub(1).map_or(0, |last| readers[last]);
                        resolved.held_by = resolved.held_by.max(last);
                    }
                    false => resolved.others += 1,
                }
                live.push(slot);
            }
        }
    }
    // A delete goes with the last of what it may hide.
    let mut gone: Vec<Place> = resolved.dead.iter().map(|change| change.from).collect();
    gone.sort_unstable();
    let mut hidden = &hidden[..];
    for (slot, count) in deletes {
        let (behind, rest) = hidden.split_at(count);
        hidden = rest;
        match behind.iter().all(|place| gone.binary_search(place).is_ok()) {
            true => resolved.dead.push(Change::removal(slot)),
            false => live.push(slot),
        }
    }
    live.sort_unstable_by_key(|slot| slot.place);
    for (file, position) in positions {
        let from = live.partition_point(|slot| slot.place.file() < position);
        let to = live.partition_point(|slot| slot.place.file() <= position);
        resolved.live.insert(file, live[from..to].to_vec());
    }
    Ok(resolved)
}

/// Whether a reader at one of the sequence numbers `readers`, ascending, sees a version of a key that has `seq`, and not the next one, which has
/// `next`.
pub fn is_seen(readers: &[Seq], seq: Seq, next: Seq) -> bool {
    readers[readers.partition_point(|reader| *reader < seq)..].first().is_some_and(|reader| *reader < next)
}

/// Compares the keys of entries with those of newer ones of their tags, which are read from their hint files.
fn compare_keys(
    index: &HashIndex,
    hints: &[HintFile],
    reader: &HintReader,
    behind: &mut Behind,
    step: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<()> {
    let mut newer = std::mem::take(&mut behind.newer);
    newer.sort_unstable();
    let of_file = |a: &(Place, u32), b: &(Place, u32)| a.0.file() == b.0.file();
    let positions: HashMap<SegmentFile, u32> = newer
        .chunk_by(of_file)
        .filter_map(|places| Some((index.file(places[0].0.file())?.file, places[0].0.file())))
        .collect();
    for hint_file in
        hints.iter().filter(|hints| hints.shares.iter().any(|share| positions.contains_key(&share.file)))
    {
        // Hints of a file are ascending by place, as the wanted ones are.
        let mut wanted: &[(Place, u32)] = &[];
        let mut file = None;
        read_shares(hint_file, reader, &positions, step, &mut |place, hint| {
            if file != Some(place.file()) {
                file = Some(place.file());
                wanted = &newer[newer.partition_point(|wanted| wanted.0 < place)..];
            }
            while let Some((at, number)) = wanted.first().filter(|wanted| wanted.0 <= place) {
                wanted = &wanted[1..];
                let number = *number as usize;
                if *at == place && behind.key(number) == hint.key {
                    let entry = &mut behind.entries[number];
                    entry.next_seq = entry.next_seq.min(hint.seq);
                }
            }
        })?;
    }
    Ok(())
}

/// Passes the entries of a hint file that are in the files at some positions of the index to `visit`, with their places.
fn read_shares(
    hint_file: &HintFile,
    reader: &HintReader,
    positions: &HashMap<SegmentFile, u32>,
    step: &mut dyn FnMut(u64) -> Result<()>,
    visit: &mut dyn FnMut(Place, Hint<'_>),
) -> Result<()> {
    // The entries of one file follow each other.
    let mut last: Option<(SegmentFile, Option<u32>)> = None;
    reader.read(hint_file, &mut |hint: Hint<'_>| {
        step(hint.key.len() as u64)?;
        let position = match last {
            Some((file, position)) if file == hint.file => position,
            _ => positions.get(&hint.file).copied(),
        };
        last = Some((hint.file, position));
        if let Some(position) = position
            && let Ok(place) = Place::new(position, hint.at, hint.is_delete)
        {
            visit(place, hint);
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests;
