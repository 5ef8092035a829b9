//! [`HashLog`]: what finds the flushed entries of a keyspace without order: its index, and the hint files from which an opening makes it.
//!
//! A flush adds slots after the edit that names its hint file, and before readers lose the memtable; a collection moves and removes some. One
//! thread at a time does either, with the manifest locked. Readers see a slot at once: whatever they find there was visible before its
//! flush began.

use crate::sync::{AtomicBool, AtomicU64, Mutex, Ordering};
use crate::types::HashLogStats;
use base::{Result, SegmentShare, Seq};
use hashlog::{
    Added, Change, FileUse, HashIndex, Hint, HintFile, HintReader, NewSlot, Place, Resolved, Slot,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use table::{BlockCache, Pin};
use values::{SegmentFile, Segments, own_segment};

/// Collections are worthwhile for the memory of an index if one of so many of its entries is dead.
const WORTHWHILE: u64 = 8;

/// An entry that a flush or a collection has put into a hint file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FlushedSlot {
    pub tag: u32,
    pub file: SegmentFile,
    /// Its place, but for the number of the file in the list of the index.
    pub place: Place,
    pub seq: Seq,
    /// Bytes of key and value.
    pub bytes: u64,
}

/// The entries that a collection has copied to a file.
#[derive(Default)]
pub(crate) struct Moved {
    /// The slot of each, and its place in the file, but for the number of the file in the list of the index.
    pub entries: Vec<(Slot, Place)>,
    /// Bytes of their keys and values.
    pub bytes: u64,
}

/// The index and the hint files of a keyspace.
pub(crate) struct HashLog {
    /// The number of the keyspace.
    keyspace: u64,
    pub index: HashIndex,
    files: Mutex<HintFiles>,
    /// No entry of the index has a larger sequence number.
    newest: AtomicU64,
    /// Held while slots change from one file to another.
    moving: Mutex<()>,
    /// What the index takes of the memory budget.
    pinned: Mutex<Vec<Pin>>,
    /// The index takes more than the budget has for it.
    full: AtomicBool,
    /// How near it is to that, in thousandths: see [`HashLog::pressure`].
    pressure: AtomicU64,
    /// Entries of which collections could free the slots, at the last [`HashLog::share`].
    dead: AtomicU64,
}

#[derive(Default)]
struct HintFiles {
    /// By number.
    hints: BTreeMap<u64, HintFile>,
    /// The segments of which [`Segments`] knows a share.
    shared: BTreeSet<u64>,
    /// What a collection has copied to a file although there were newer entries of the same tag.
    kept: BTreeMap<SegmentFile, Kept>,
}

/// Entries that are alive, and not the newest of their tag.
struct Kept {
    /// The newer ones are of other keys.
    others: u64,
    /// Readers need them, of which none has a larger sequence number than `by`.
    held: u64,
    by: Seq,
}

/// The segment that a file is, or that it has the entries of.
pub(crate) fn segment_of(file: SegmentFile) -> u64 {
    match file {
        SegmentFile::Log(number) => number,
        SegmentFile::Values(number) => own_segment(number),
    }
}

/// Counts the chunk of a place that is added to a file, unless the `last` place added is in it, too.
fn note_chunk(place: Place, last: &mut Option<Place>, added: &mut BTreeMap<u32, Added>) {
    if !last.replace(place).is_some_and(|last| last.is_in_chunk_of(place)) {
        added.entry(place.file()).or_default().chunks += 1;
    }
}

impl HashLog {
    /// That of a new keyspace.
    pub(crate) fn new(keyspace: u64) -> HashLog {
        let (index, files, newest) = (HashIndex::default(), Mutex::default(), AtomicU64::new(0));
        HashLog {
            keyspace,
            index,
            files,
            newest,
            moving: Mutex::default(),
            pinned: Mutex::default(),
            full: AtomicBool::new(false),
            pressure: AtomicU64::new(0),
            dead: AtomicU64::new(0),
        }
    }

    /// Reads the hint files of a keyspace. `len_of` tells the length of a file with entries.
    ///
    /// # Errors
    /// Those of reading hint files, and of `len_of`; `NoMemory`.
    pub(crate) fn load(
        keyspace: u64,
        hints: &BTreeMap<u64, HintFile>,
        reader: &HintReader,
        len_of: &dyn Fn(SegmentFile) -> Result<u64>,
    ) -> Result<HashLog> {
        let count = hints.values().fold(0, |sum: u64, file| sum.saturating_add(file.count()));
        let mut loader = HashIndex::default().load(count);
        for file in hints.values() {
            let mut positions = BTreeMap::new();
            for share in &file.shares {
                let position = loader.add_file(share.file, len_of(share.file)?, share.bytes)?;
                positions.insert(share.file, position);
            }
            let mut last = None;
            reader.read(file, &mut |hint: Hint<'_>| {
                let known = last.filter(|(file, _)| *file == hint.file);
                let (_, position) = *last.insert(known.unwrap_or_else(|| (hint.file, positions[&hint.file])));
                let place = Place::new(position, hint.at, hint.is_delete)?;
                loader.push(NewSlot { tag: loader.tag_of(hint.key), place, seq: hint.seq })
            })?;
        }
        let newest = hints.values().map(|file| file.max_seq).max().unwrap_or(0);
        let (index, newest) = (loader.finish(), AtomicU64::new(newest));
        let loaded = HashLog { index, newest, ..HashLog::new(keyspace) };
        loaded.files.lock().hints.clone_from(hints);
        Ok(loaded)
    }

    /// No entry in the index has a larger sequence number.
    #[inline]
    pub(crate) fn newest(&self) -> Seq {
        self.newest.load(Ordering::Acquire)
    }

    /// The files with entries: each entry is in one of them. Waits while a collection moves entries.
    pub(crate) fn list_files(&self) -> Vec<FileUse> {
        let _moving = self.moving.lock();
        let mut files = self.index.files();
        // A flush that has not ended may have added others, whose entries are in memtables.
        files.retain(|file| file.slots > 0);
        files
    }

    /// Its number among the holders of segments: those of tables begin at the other end.
    fn holder(&self) -> u64 {
        u64::MAX - self.keyspace
    }

    /// What users see of it.
    pub(crate) fn stats(&self) -> HashLogStats {
        let files = self.files.lock();
        HashLogStats {
            entries: self.index.slots(),
            newest: self.index.live(),
            index_bytes: self.index.memory(),
            files: files.shared.len(),
            hint_files: files.hints.len(),
            hint_bytes: files.hints.values().map(|file| file.len).sum(),
            is_full: self.is_full(),
        }
    }

    /// The hint files.
    pub(crate) fn hints(&self) -> Vec<HintFile> {
        self.files.lock().hints.values().cloned().collect()
    }

    /// Adds hint files, which the manifest names, with their entries, which are newer than all in the index. Their files are in the list of
    /// the index.
    pub(crate) fn add(&self, hints: &[HintFile], slots: &[FlushedSlot]) -> Result<()> {
        let (mut new, mut added) = (Vec::with_capacity(slots.len()), BTreeMap::new());
        let mut last = None;
        for slot in slots {
            // The length of a file that is in the list already is not asked for.
            let position = self.index.add_file(slot.file, 0)?;
            let place = slot.place.in_file(position);
            note_chunk(place, &mut last, &mut added);
            added.entry(position).or_default().bytes += slot.bytes;
            new.push(NewSlot { tag: slot.tag, place, seq: slot.seq });
        }
        // Before a reader finds an entry: it may have to compare the numbers.
        let newest = hints.iter().map(|file| file.max_seq).max().unwrap_or(0);
        self.newest.fetch_max(newest, Ordering::AcqRel);
        self.index.insert(&mut new, &added);
        self.files.lock().hints.extend(hints.iter().map(|file| (file.number, file.clone())));
        Ok(())
    }

    /// A collection has copied entries to a new file, and found out that others are dead; the manifest says so. `hints`: the hint files that are new or
    /// are about fewer files now; `gone`: those that are not needed.
    pub(crate) fn moved(
        &self,
        (file, len): (SegmentFile, u64),
        resolved: Resolved,
        moved: &Moved,
        hints: Vec<HintFile>,
        gone: &[u64],
    ) -> Result<()> {
        let _moving = self.moving.lock();
        let Resolved { others, held, held_by, .. } = resolved;
        let mut changes = resolved.dead;
        if !moved.entries.is_empty() {
            let position = self.index.add_file(file, len)?;
            changes.reserve_exact(moved.entries.len());
            for (slot, at) in &moved.entries {
                changes.push(Change { tag: slot.tag, from: slot.place, to: Some(at.in_file(position)) });
            }
            // A collection writes each entry as a record.
            let count = moved.entries.len() as u64;
            self.index.note_added(position, count, Added { bytes: moved.bytes, chunks: count });
        }
        self.index.change(&mut changes);
        let mut files = self.files.lock();
        gone.iter().for_each(|number| _ = files.hints.remove(number));
        files.hints.extend(hints.into_iter().map(|file| (file.number, file)));
        if others + held > 0 {
            files.kept.insert(file, Kept { others, held, by: held_by });
        }
        Ok(())
    }

    /// The index is larger than the memory budget has room for: puts wait for collections then, or are refused if these would not help.
    pub(crate) fn is_full(&self) -> bool {
        self.full.load(Ordering::Relaxed)
    }

    /// How near the index is to the end of its memory, between 0 and 1: 0 as long as it has an eighth left, and also when collections would free
    /// little of it.
    pub(crate) fn pressure(&self) -> f64 {
        self.pressure.load(Ordering::Relaxed) as f64 / 1000.0
    }

    /// Takes the memory of the index from the budget of `cache`.
    pub(crate) fn account(&self, cache: &Arc<BlockCache>) {
        let (mut pins, wanted) = (self.pinned.lock(), self.index.memory());
        let pinned = pins.iter().map(Pin::bytes).sum::<u64>();
        if pinned > wanted + wanted / 8 {
            pins.clear();
        }
        let pinned = pins.iter().map(Pin::bytes).sum::<u64>();
        // In addition: what is given back may be taken by others at once.
        let more = wanted.saturating_sub(pinned);
        let fits = more == 0 || cache.pin_needed(more).map(|pin| pins.push(pin)).is_some();
        self.full.store(!fits, Ordering::Relaxed);
        let missing = if fits { 0 } else { more };
        let (used, most) = (cache.pinned_bytes().saturating_add(missing), cache.most_needed());
        let beyond = used.saturating_sub(most / 8 * 7).saturating_mul(1000) / (most / 8).max(1);
        let (slots, dead) = (self.index.slots(), self.dead.load(Ordering::Relaxed));
        let pressure = if dead > 0 && dead >= slots / WORTHWHILE { beyond.min(1000) } else { 0 };
        self.pressure.store(pressure, Ordering::Relaxed);
    }

    /// Tells the segments what of each file is alive, while the oldest reader reads at `oldest_reader`, and the cache what the index takes. Files of which
    /// nothing is left can be removed.
    pub(crate) fn share(&self, segments: &Segments, cache: &Arc<BlockCache>, oldest_reader: Option<Seq>) {
        let uses = self.index.files();
        let mut all_dead = 0;
        let holder = self.holder();
        let mut files = self.files.lock();
        let now: BTreeSet<u64> =
            uses.iter().filter(|file| file.slots > 0).map(|file| segment_of(file.file)).collect();
        files.shared.difference(&now).for_each(|&segment| self.give_up(segments, segment));
        for file in uses.iter().filter(|file| file.slots > 0) {
            // Without what a collection had to copy, the next one would do so again and again.
            let kept = files.kept.get(&file.file).map_or(0, |kept| {
                let held = if oldest_reader.is_some_and(|seq| seq <= kept.by) { kept.held } else { 0 };
                kept.others + held
            });
            let live = (file.live + kept).min(file.slots);
            // A file with nothing but dead entries is needed until a collection has compared their keys.
            // An entry counts one more than its bytes, which may be none: otherwise a file of such entries would count as dead.
            let (count, bytes) = (live.max(1), file.bytes_of(live).saturating_add(live));
            let share = SegmentShare { segment: segment_of(file.file), count, bytes };
            segments.set_share(holder, share, file.slots - live);
            all_dead += file.slots - live;
        }
        files.shared = now;
        files.kept.retain(|file, _| self.index.find(*file).is_some());
        drop(files);
        self.dead.store(all_dead, Ordering::Relaxed);
        self.account(cache);
    }

    /// Nothing of a segment is needed for the keyspace.
    pub(crate) fn give_up(&self, segments: &Segments, segment: u64) {
        segments.set_share(self.holder(), SegmentShare { segment, count: 0, bytes: 0 }, 0);
    }

    /// The keyspace is dropped: nothing of it is needed. Returns the numbers of its hint files.
    pub(crate) fn abandon(&self, segments: &Segments) -> Vec<u64> {
        let mut files = self.files.lock();
        std::mem::take(&mut files.shared).into_iter().for_each(|segment| self.give_up(segments, segment));
        std::mem::take(&mut files.hints).into_keys().collect()
    }
}
