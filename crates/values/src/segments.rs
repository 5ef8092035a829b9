//! [`Segments`]: the value segments of a database: which tables refer to them, where they are, and reading values from them.

use crate::pick::{FileUse, SegmentFile};
use crate::read::{read_value, try_read_value};
use crate::value_file::{Maps, ValueFile, is_own_segment, own_segment, value_file_name};
use crate::walk::{Walk, Walks};
use base::planted::{Bug, planted};
use base::{Error, ErrorKind, Reference, Result, SegmentShare, Slice};
use env::{Env, ReadFile, WaitingReads};
use parking_lot::{Mutex, RwLock};
use record::{Part, PartsOf, SegmentKind, framed_len};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// [`Segments::verify`] ends after so many errors.
pub const MAX_ERRORS: usize = 100;

/// The value segments of a database.
///
/// A segment is a log in which values were first written, and is identified by the number of that log, even when a collection has copied its
/// values to another file. Each open table holds the segments that its entries refer to. The file of a segment can be removed when no table
/// holds it that a version or a reader uses; as long as it is also a log that recovery needs, it stays.
pub struct Segments {
    env: Arc<dyn Env>,
    dir: PathBuf,
    log_file_name: fn(u64) -> String,
    max_open_files: usize,
    files: Mutex<HashMap<SegmentFile, Arc<dyn ReadFile>>>,
    /// The value files of segments that were collected.
    moved: RwLock<HashMap<u64, Arc<Moved>>>,
    held: Mutex<Held>,
    walks: Arc<Mutex<Walks>>,
    waiting_reads: Arc<WaitingReads>,
}

/// A value file in use.
struct Moved {
    file: ValueFile,
    /// Its maps, read when they are first needed.
    maps: OnceLock<Maps>,
}

#[derive(Default)]
struct Held {
    segments: HashMap<u64, Holders>,
    /// Segments that an obsolete table referred to, or logs that recovery no longer needs.
    dying: HashSet<u64>,
    /// Value files that were removed since the last call of [`Segments::take_removed`].
    removed: Vec<u64>,
    /// Something has changed since the last call of [`Segments::take_changed`].
    changed: bool,
    /// How often a collection could not read a file; [`UNREADABLE`] if no other one tries.
    failures: HashMap<SegmentFile, (u32, Error)>,
    /// Lengths of logs.
    log_lens: HashMap<u64, u64>,
}

/// The tables that refer to a segment.
#[derive(Default)]
struct Holders {
    tables: HashMap<u64, Holder>,
    /// Bytes of the values that tables of the newest versions refer to.
    live_bytes: u64,
    /// The number of these values.
    live_count: u64,
    /// The number of dead entries of indexes of keyspaces without order.
    dead_count: u64,
    /// The number of tables that no version has, and a reader uses.
    obsolete: usize,
    /// How many of the holders are indexes.
    indexes: usize,
}

struct Holder {
    /// How many times the table is open.
    opened: u32,
    bytes: u64,
    count: u64,
    /// The number of dead entries, if the holder is an index and no table.
    dead: Option<u64>,
    obsolete: bool,
}

fn parts_of(open: &dyn ReadFile, file: SegmentFile, len: u64) -> PartsOf<'_> {
    let (kind, number) = match file {
        SegmentFile::Log(number) => (SegmentKind::Wal, number),
        SegmentFile::Values(number) => (SegmentKind::Values, number),
    };
    PartsOf { file: open, kind, number, len }
}

/// Whether recovery needs the log of a segment: those from `oldest_log` on. A segment that is a value file has none.
fn is_needed(segment: u64, oldest_log: u64) -> bool {
    !is_own_segment(segment) && segment >= oldest_log
}

impl Holder {
    fn new(bytes: u64, count: u64) -> Holder {
        Holder { opened: 0, bytes, count, dead: None, obsolete: false }
    }
}

/// After so many failures a file counts as unreadable.
const UNREADABLE: u32 = 3;

/// Values in a file that are requested together have at most this many bytes between them: a page.
const REQUEST_GAP: u64 = 4 << 10;

/// [`Segments::verify`] asks the disk for so many values together, unless they have more bytes.
const MAX_REQUESTS: usize = 1024;
const MAX_REQUEST_BYTES: u64 = 1 << 20;

/// Bytes of a log for a value beside it and its key, about.
const OVERHEAD: u64 = 32;

/// What a file has that is neither dead nor a value: its header.
const FILE_OVERHEAD: u64 = 64;

impl Segments {
    /// The segments in `dir`, whose logs have the names `log_file_name`. At most `max_open_files` files are kept open. Reads of callers that
    /// wait for the disk are counted in `waiting_reads`.
    pub fn new(
        env: Arc<dyn Env>,
        dir: PathBuf,
        log_file_name: fn(u64) -> String,
        max_open_files: usize,
        waiting_reads: Arc<WaitingReads>,
    ) -> Arc<Segments> {
        let (files, moved, held) = (Mutex::default(), RwLock::default(), Mutex::default());
        Arc::new(Segments {
            env,
            dir,
            log_file_name,
            max_open_files: max_open_files.max(1),
            files,
            moved,
            held,
            walks: Arc::default(),
            waiting_reads,
        })
    }

    /// Table `number`, which is open now, refers to these segments.
    pub fn hold(&self, number: u64, shares: &[SegmentShare]) {
        let mut held = self.held.lock();
        held.changed = true;
        for share in shares {
            let holders = held.segments.entry(share.segment).or_default();
            let holder = holders.tables.entry(number).or_insert_with(|| {
                holders.live_bytes = holders.live_bytes.saturating_add(share.bytes);
                holders.live_count = holders.live_count.saturating_add(share.count);
                Holder::new(share.bytes, share.count)
            });
            holder.opened += 1;
        }
    }

    /// No version has table `number` any more.
    pub fn set_obsolete(&self, number: u64, shares: &[SegmentShare]) {
        let mut held = self.held.lock();
        held.changed = true;
        for share in shares {
            let Some(holders) = held.segments.get_mut(&share.segment) else { continue };
            let Some(holder) = holders.tables.get_mut(&number).filter(|holder| !holder.obsolete) else {
                continue;
            };
            holder.obsolete = true;
            holders.live_bytes = holders.live_bytes.saturating_sub(holder.bytes);
            holders.live_count = holders.live_count.saturating_sub(holder.count);
            holders.obsolete += 1;
        }
    }

    /// Table `number` was closed once.
    pub fn release(&self, number: u64, shares: &[SegmentShare]) {
        let mut held = self.held.lock();
        let Held { segments, dying, changed, .. } = &mut *held;
        *changed = true;
        for share in shares {
            let Some(holders) = segments.get_mut(&share.segment) else { continue };
            let Some(holder) = holders.tables.get_mut(&number) else { continue };
            holder.opened -= 1;
            if holder.opened > 0 {
                continue;
            }
            match holder.obsolete {
                true => {
                    holders.obsolete -= 1;
                    dying.insert(share.segment);
                }
                false => {
                    holders.live_bytes = holders.live_bytes.saturating_sub(holder.bytes);
                    holders.live_count = holders.live_count.saturating_sub(holder.count);
                }
            }
            holders.tables.remove(&number);
        }
    }

    /// The index of a keyspace, `holder`, has `share` of the entries of a segment. A share without entries is none: the segment can be removed when
    /// nothing else holds it.
    pub fn set_share(&self, holder: u64, share: SegmentShare, dead: u64) {
        let mut held = self.held.lock();
        let Held { segments, dying, changed, .. } = &mut *held;
        if share.count == 0 && !is_own_segment(share.segment) && !segments.contains_key(&share.segment) {
            // A log that a collection has emptied is given up once more, with a keyspace that was dropped.
            return;
        }
        let holders = segments.entry(share.segment).or_default();
        let before =
            holders.tables.get(&holder).map_or((0, 0, 0), |h| (h.bytes, h.count, h.dead.unwrap_or(0)));
        if before == (share.bytes, share.count, dead) && share.count > 0 {
            return;
        }
        *changed = true;
        holders.live_bytes = holders.live_bytes.saturating_sub(before.0).saturating_add(share.bytes);
        holders.live_count = holders.live_count.saturating_sub(before.1).saturating_add(share.count);
        holders.dead_count = holders.dead_count.saturating_sub(before.2).saturating_add(dead);
        match share.count {
            0 => {
                holders.indexes -= usize::from(holders.tables.remove(&holder).is_some());
                dying.insert(share.segment);
            }
            count => {
                let holder = holders.tables.entry(holder).or_insert_with(|| Holder::new(share.bytes, count));
                holders.indexes += usize::from(holder.dead.is_none());
                (holder.bytes, holder.count, holder.dead) = (share.bytes, count, Some(dead));
            }
        }
    }

    /// Recovery does not need `log` any more. Returns whether tables refer to it, or did: it is then removed as a segment.
    pub fn retire(&self, log: u64, len: u64) -> bool {
        let mut held = self.held.lock();
        let is_segment = held.segments.contains_key(&log);
        if is_segment {
            held.changed = true;
            held.dying.insert(log);
            held.log_lens.insert(log, len);
        }
        is_segment
    }

    /// Whether an open table refers to `segment`.
    pub fn is_held(&self, segment: u64) -> bool {
        self.held.lock().segments.get(&segment).is_some_and(|holders| !holders.tables.is_empty())
    }

    /// Whether the values of `segment` are in the log with its number, and an open table refers to them.
    pub fn is_held_log(&self, segment: u64) -> bool {
        self.is_held(segment) && !self.moved.read().contains_key(&segment)
    }

    /// The manifest names `file`, whose maps are read when they are needed.
    pub fn add_value_file(&self, file: ValueFile) {
        self.set_moved(Some(Moved { file, maps: OnceLock::new() }), &[]);
    }

    /// All value files are added, and the tables of an opening hold their segments. Forgets moved segments that no table refers to, because
    /// nothing would end them, and looks up the lengths of the logs.
    pub fn opened(&self) {
        let logs: Vec<u64> = {
            let mut moved = self.moved.write();
            let held = self.held.lock();
            moved.retain(|segment, _| {
                held.segments.get(segment).is_some_and(|holders| !holders.tables.is_empty())
            });
            held.segments.keys().copied().filter(|segment| !moved.contains_key(segment)).collect()
        };
        for log in logs {
            let len = self.env.len(&self.dir.join((self.log_file_name)(log))).unwrap_or(0);
            self.held.lock().log_lens.insert(log, len);
        }
    }

    /// A collection has moved the values of `sources` to `file`, and the manifest says so. `None`: nothing was alive in them.
    pub fn replace(&self, sources: &[SegmentFile], file: Option<(ValueFile, Maps)>) {
        self.set_moved(file.map(|(file, maps)| Moved { file, maps: OnceLock::from(maps) }), sources);
    }

    fn set_moved(&self, new: Option<Moved>, sources: &[SegmentFile]) {
        let replaced: HashSet<SegmentFile> = sources.iter().copied().collect();
        let mut moved = self.moved.write();
        let mut held = self.held.lock();
        let Held { segments, dying, changed, log_lens, .. } = &mut *held;
        if let Some(new) = new.map(Arc::new) {
            for &segment in &new.file.segments {
                moved.insert(segment, new.clone());
            }
        }
        // Segments of the sources that nothing refers to any more.
        moved.retain(|segment, at| {
            let stays = !replaced.contains(&SegmentFile::Values(at.file.number));
            if !stays {
                segments.remove(segment);
                dying.remove(segment);
            }
            stays
        });
        for source in sources {
            if let SegmentFile::Log(log) = source
                && !moved.contains_key(log)
            {
                segments.remove(log);
                dying.remove(log);
                log_lens.remove(log);
            }
        }
        *changed = true;
        let mut files = self.files.lock();
        sources.iter().for_each(|source| _ = files.remove(source));
    }

    /// The value files in use, ascending.
    pub fn value_files(&self) -> Vec<ValueFile> {
        let mut files: BTreeMap<u64, ValueFile> = BTreeMap::new();
        for (segment, moved) in &*self.moved.read() {
            let empty = || ValueFile { segments: Vec::new(), ..moved.file.clone() };
            files.entry(moved.file.number).or_insert_with(empty).segments.push(*segment);
        }
        let mut files: Vec<ValueFile> = files.into_values().collect();
        files.iter_mut().for_each(|file| file.segments.sort_unstable());
        files
    }

    /// The length of value file `number`, if it has entries of keyspaces without order.
    pub fn len_of_entries(&self, number: u64) -> Option<u64> {
        self.moved.read().get(&own_segment(number)).map(|moved| moved.file.len)
    }

    /// Bytes of memory of the maps of value files that were read.
    pub fn map_bytes(&self) -> u64 {
        let files: HashMap<u64, Arc<Moved>> =
            self.moved.read().values().map(|moved| (moved.file.number, moved.clone())).collect();
        files.values().filter_map(|moved| moved.maps.get()).map(|maps| maps.memory() as u64).sum()
    }

    /// Whether a segment in the value file `number` is held.
    pub fn uses_value_file(&self, number: u64) -> bool {
        self.moved.read().values().any(|moved| moved.file.number == number)
    }

    /// The value files that were removed since the last call, which the manifest still names.
    pub fn take_removed(&self) -> Vec<u64> {
        std::mem::take(&mut self.held.lock().removed)
    }

    /// The names of the files that can be removed, which the caller does: no table or index refers to them, and no [`Walk`] that may read them is
    /// left. Recovery needs the logs from `oldest_log` on.
    pub fn take_dead(&self, oldest_log: u64) -> Vec<String> {
        let names = self.take_unused(oldest_log);
        let mut walks = self.walks.lock();
        if !names.is_empty() {
            walks.add(names);
        }
        walks.take()
    }

    /// The names of the files that are removed as segments.
    fn take_unused(&self, oldest_log: u64) -> Vec<String> {
        let mut moved = self.moved.write();
        let mut held = self.held.lock();
        if held.dying.is_empty() {
            return Vec::new();
        }
        let Held { segments, dying, removed, log_lens, .. } = &mut *held;
        let is_dead = |segment: &u64| segments.get(segment).is_none_or(|holders| holders.tables.is_empty());
        // Until a log is retired, the caller that releases it decides what becomes of it: it may be recycled.
        let is_released = |segment: &u64| {
            let is_file = is_own_segment(*segment) || moved.contains_key(segment);
            is_file || log_lens.contains_key(segment) && !is_needed(*segment, oldest_log)
        };
        let dead: Vec<u64> = dying.extract_if(|segment| is_dead(segment) && is_released(segment)).collect();
        let mut names = Vec::new();
        let mut files = self.files.lock();
        for segment in dead {
            segments.remove(&segment);
            log_lens.remove(&segment);
            let Some(file) = moved.remove(&segment) else {
                files.remove(&SegmentFile::Log(segment));
                names.push((self.log_file_name)(segment));
                continue;
            };
            let number = file.file.number;
            // A collection may have moved some of its segments on.
            if !file
                .file
                .segments
                .iter()
                .any(|s| moved.get(s).is_some_and(|other| other.file.number == number))
            {
                files.remove(&SegmentFile::Values(number));
                removed.push(number);
                names.push(value_file_name(number));
            }
        }
        names
    }

    /// Nothing refers to these files any more: [`Segments::take_dead`] returns them when no reader of whole files may still read them.
    pub fn emptied(&self, names: Vec<String>) {
        self.walks.lock().add(names);
    }

    /// The numbers of the logs that tables of the newest versions, or indexes, refer to.
    pub fn logs(&self) -> Vec<u64> {
        let moved = self.moved.read();
        let held = self.held.lock();
        let is_used = |holders: &Holders| holders.tables.values().any(|holder| !holder.obsolete);
        let logs = held.segments.iter().filter(|(segment, holders)| {
            !is_own_segment(**segment) && !moved.contains_key(segment) && is_used(holders)
        });
        logs.map(|(segment, _)| *segment).collect()
    }

    /// Whether the values of `segment` are in the log with its number.
    pub fn is_log(&self, segment: u64) -> bool {
        !is_own_segment(segment) && !self.moved.read().contains_key(&segment)
    }

    /// The length of a log that is a segment, if recovery does not need it any more.
    pub fn log_len(&self, segment: u64) -> Option<u64> {
        self.held.lock().log_lens.get(&segment).copied()
    }

    /// A reader of whole files begins. It must list them after this call.
    pub fn begin_walk(&self) -> Walk {
        Walk::begin(&self.walks)
    }

    /// Makes the next [`Segments::take_changed`] return `true`.
    pub fn note_change(&self) {
        self.held.lock().changed = true;
    }

    /// Whether anything that [`Segments::uses`] depends on has changed since the last call.
    pub fn take_changed(&self) -> bool {
        std::mem::take(&mut self.held.lock().changed)
    }

    /// The files with values, each with all its segments that tables refer to, but for logs that recovery needs: those from `oldest_log` on.
    pub fn uses(&self, oldest_log: u64) -> Vec<FileUse> {
        let moved = self.moved.read();
        let held = self.held.lock();
        let Held { segments, log_lens, failures, .. } = &*held;
        let mut uses: BTreeMap<SegmentFile, FileUse> = BTreeMap::new();
        for (&segment, holders) in segments.iter().filter(|(_, holders)| !holders.tables.is_empty()) {
            if planted(Bug::CollectPartOfFile) && is_needed(segment, oldest_log) {
                continue;
            }
            // Of a value file all segments in use are listed, also those that were logs at `oldest_log`, which may be old: a collection copies
            // what is listed, and removes the file.
            let (file, file_bytes) = match (moved.get(&segment), log_lens.get(&segment)) {
                (Some(moved), _) => (SegmentFile::Values(moved.file.number), moved.file.len),
                (None, Some(len)) if !is_needed(segment, oldest_log) => (SegmentFile::Log(segment), *len),
                _ => continue,
            };
            let entry = uses.entry(file).or_insert_with(|| FileUse {
                file,
                segments: Vec::new(),
                file_bytes,
                live_bytes: 0,
                live_count: 0,
                dead_count: 0,
                dead_bytes: file_bytes.saturating_sub(FILE_OVERHEAD),
                pinned: failures.get(&file).is_some_and(|(failures, _)| *failures >= UNREADABLE),
                has_tables: false,
            });
            entry.segments.push(segment);
            entry.live_bytes = entry.live_bytes.saturating_add(holders.live_bytes);
            entry.live_count = entry.live_count.saturating_add(holders.live_count);
            entry.dead_count = entry.dead_count.saturating_add(holders.dead_count);
            entry.pinned |= holders.obsolete > 0;
            entry.has_tables |= holders.tables.len() > holders.indexes;
            let used = match moved.get(&segment) {
                // Keys, headers and maps belong to the values, to each its share of them. Rounded up, so that nothing is dead at first.
                Some(moved) => {
                    let share = u128::from(holders.live_bytes) * u128::from(file_bytes);
                    share.div_ceil(u128::from(moved.file.value_bytes)) as u64
                }
                None => holders.live_count.saturating_mul(OVERHEAD).saturating_add(holders.live_bytes),
            };
            entry.dead_bytes = entry.dead_bytes.saturating_sub(used);
        }
        uses.into_values().collect()
    }

    /// A collection could not read `file` because of `error`. Returns whether no other one tries until the database is opened again: after
    /// damage, or after some other errors.
    pub fn note_failure(&self, file: SegmentFile, error: &Error) -> bool {
        let damaged =
            matches!(error.kind(), ErrorKind::Corruption | ErrorKind::Unsupported | ErrorKind::NotFound);
        let mut held = self.held.lock();
        let (failures, last) = held.failures.entry(file).or_insert_with(|| (0, error.clone()));
        *failures += if damaged { UNREADABLE } else { 1 };
        last.clone_from(error);
        *failures >= UNREADABLE
    }

    /// Why no collection tries `file` any more, if none does: see [`Segments::note_failure`].
    pub fn why_given_up(&self, file: SegmentFile) -> Option<Error> {
        let held = self.held.lock();
        held.failures
            .get(&file)
            .filter(|(failures, _)| *failures >= UNREADABLE)
            .map(|(_, error)| error.clone())
    }

    /// Collections try these files again.
    pub fn retry(&self, files: &HashSet<SegmentFile>) {
        self.held.lock().failures.retain(|file, _| !files.contains(file));
    }

    /// Whether a table that only readers use refers to one of `segments`.
    pub fn is_pinned(&self, segments: &HashSet<u64>) -> bool {
        let held = self.held.lock();
        segments.iter().any(|segment| held.segments.get(segment).is_some_and(|holders| holders.obsolete > 0))
    }

    /// Where the files are.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The file name of a file.
    pub fn file_name(&self, file: SegmentFile) -> String {
        match file {
            SegmentFile::Log(number) => (self.log_file_name)(number),
            SegmentFile::Values(number) => value_file_name(number),
        }
    }

    /// Where the value of `reference` is now.
    ///
    /// # Errors
    /// `Corruption` if the maps of its value file do not have it or cannot be read; `Io`.
    pub fn place(&self, reference: &Reference) -> Result<(SegmentFile, u64)> {
        let moved = self.moved.read().get(&reference.segment).cloned();
        let Some(moved) = moved else { return Ok((SegmentFile::Log(reference.segment), reference.offset)) };
        let number = moved.file.number;
        let maps = match moved.maps.get() {
            Some(maps) => maps,
            None => {
                let maps = moved.file.read_maps(&*self.env, &self.dir)?;
                moved.maps.get_or_init(|| maps)
            }
        };
        let offset = maps.get(reference.segment, reference.offset).ok_or_else(|| {
            let what = format!(
                "no value of segment {}, offset {}, was moved here",
                reference.segment, reference.offset
            );
            Error::corruption(&self.dir.join(value_file_name(number)), moved.file.maps_at, what)
        })?;
        Ok((SegmentFile::Values(number), offset))
    }

    /// Decodes a reference of a table.
    ///
    /// # Errors
    /// `Corruption` if it is malformed.
    pub fn decode(&self, reference: &[u8]) -> Result<Reference> {
        let malformed = || Error::corruption(&self.dir, 0, "a reference to a value is malformed");
        Reference::decode(reference).ok_or_else(malformed)
    }

    /// Reads and verifies the values of `references`, in the order of their places, and returns what is wrong with them, at most
    /// [`MAX_ERRORS`] errors. `step` is called with the bytes of each value; its error ends the check.
    pub fn verify(
        &self,
        mut references: Vec<Reference>,
        step: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<Vec<Error>> {
        references.sort_unstable();
        let mut errors = Vec::new();
        let (mut left, mut requests) = (&references[..], Vec::new());
        while let Some(first) = left.first() {
            let mut bytes = u64::from(first.len);
            let more = left[1..].iter().take(MAX_REQUESTS - 1).take_while(|reference| {
                bytes += u64::from(reference.len);
                bytes <= MAX_REQUEST_BYTES
            });
            let (batch, behind) = left.split_at(1 + more.count());
            requests.extend_from_slice(batch);
            self.request(&mut requests);
            for reference in batch {
                match self.read(reference) {
                    Ok(value) => step(value.len() as u64)?,
                    Err(e) => {
                        step(0)?;
                        errors.push(e);
                        if errors.len() >= MAX_ERRORS {
                            return Ok(errors);
                        }
                    }
                }
            }
            left = behind;
        }
        Ok(errors)
    }

    /// [`Segments::read`] for a caller: a job that leaves the disk to reads sees that this one waits. `tried`: the value was not in memory a
    /// moment ago.
    ///
    /// # Errors
    /// As for [`Segments::read`].
    pub fn read_waiting(&self, reference: &Reference, tried: bool) -> Result<Slice> {
        if !self.waiting_reads.has_jobs() {
            return self.read(reference);
        }
        if !tried && let Some(value) = self.try_read(reference) {
            return Ok(value);
        }
        let _waiting = self.waiting_reads.begin_wait();
        self.read(reference)
    }

    /// The value of `reference`.
    ///
    /// Cost: one read of the value's bytes; for the first read from a value file also one of its maps.
    ///
    /// # Errors
    /// `Corruption`, with file and offset, if it cannot be read as what it was; `Io`.
    pub fn read(&self, reference: &Reference) -> Result<Slice> {
        let mut file = self.file_of(reference.segment);
        loop {
            match self.read_from(reference) {
                Err(e) if e.kind() == ErrorKind::NotFound => {
                    // A collection may have moved the value meanwhile, and removed the file.
                    let now = self.file_of(reference.segment);
                    if now == file {
                        let path = self.dir.join(self.file_name(now));
                        let what = format!(
                            "the file is missing, with a value of segment {}, offset {}",
                            reference.segment, reference.offset
                        );
                        return Err(Error::corruption(&path, 0, what));
                    }
                    file = now;
                }
                read => return read,
            }
        }
    }

    /// The file that has the values of `segment` now.
    fn file_of(&self, segment: u64) -> SegmentFile {
        let moved = self.moved.read();
        moved.get(&segment).map_or(SegmentFile::Log(segment), |moved| SegmentFile::Values(moved.file.number))
    }

    fn read_from(&self, reference: &Reference) -> Result<Slice> {
        let (file, offset) = self.locate(reference)?;
        read_value(&*file, file.path(), reference, offset).map(Slice::from)
    }

    /// The value of `reference` if it can be read without waiting for the disk; if not, the disk is asked for it. `None` also on errors:
    /// [`Segments::read`] returns them.
    pub fn try_read(&self, reference: &Reference) -> Option<Slice> {
        let (file, offset) = self.locate(reference).ok()?;
        let read = try_read_value(&*file, file.path(), reference, offset);
        if let Ok(None) = read {
            file.will_need(offset, framed_len(offset, reference.len.into()));
        }
        read.ok()?.map(Slice::from)
    }

    /// Asks the disk for the values of `references`, in the order of their places, as hints. Leaves `references` empty.
    pub fn request(&self, references: &mut Vec<Reference>) {
        let mut places = Vec::with_capacity(references.len());
        for reference in references.drain(..) {
            if let Ok((file, offset)) = self.place(&reference) {
                let to = offset + framed_len(offset, reference.len.into());
                places.push((file, offset, to, reference.segment));
            }
        }
        places.sort_unstable_by_key(|&(file, from, ..)| (file, from));
        for row in places.chunk_by(|a, b| a.0 == b.0 && b.1 <= a.2.saturating_add(REQUEST_GAP)) {
            let (file, from, _, segment) = row[0];
            if let Ok(open) = self.open_at(file, segment) {
                open.will_need(from, row[row.len() - 1].2 - from);
            }
        }
    }

    /// The file with the value of `reference`, and its offset there.
    fn locate(&self, reference: &Reference) -> Result<(Arc<dyn ReadFile>, u64)> {
        let (file, offset) = self.place(reference)?;
        Ok((self.open_at(file, reference.segment)?, offset))
    }

    /// Opens `file`, in which the values of `segment` were a moment ago.
    fn open_at(&self, file: SegmentFile, segment: u64) -> Result<Arc<dyn ReadFile>> {
        let open = self.open_file(file)?;
        if self.file_of(segment) != file {
            // A collection has removed the file, and may have done so before the handle was kept.
            self.files.lock().remove(&file);
        }
        Ok(open)
    }

    /// The value of `reference` where it was first written, even if a collection has moved it: for salvage.
    pub fn read_original(&self, reference: &Reference) -> Result<Slice> {
        let path = self.dir.join((self.log_file_name)(reference.segment));
        read_value(&*self.env.open(&path)?, &path, reference, reference.offset).map(Slice::from)
    }

    /// Reads the chunk at offset `chunk` of a file of `len` bytes, and those behind it until nothing is `missing`: see [`PartsOf::read`]. Unless `cached`, a job that
    /// leaves the disk to reads sees that this one waits.
    ///
    /// # Errors
    /// As for [`PartsOf::read`]; `NotFound` if a collection has removed the file.
    pub fn read_part(
        &self,
        (file, len): (SegmentFile, u64),
        chunk: u64,
        expected: usize,
        cached: bool,
        missing: &mut dyn FnMut(&[u8]) -> usize,
    ) -> Result<Option<Part>> {
        let open = match file {
            SegmentFile::Log(_) => self.open_file(file)?,
            SegmentFile::Values(number) => self.open_at(file, own_segment(number))?,
        };
        let parts = parts_of(&*open, file, len);
        if cached {
            return parts.read(chunk, expected, true, missing);
        }
        if self.waiting_reads.has_jobs() {
            if let Some(part) = parts.read(chunk, expected, true, missing)? {
                return Ok(Some(part));
            }
            let _waiting = self.waiting_reads.begin_wait();
            return parts.read(chunk, expected, false, missing);
        }
        parts.read(chunk, expected, false, missing)
    }

    /// The payload of the record to which the chunk at `chunk` belongs, up to the end of the chunk, and how much of it is before the chunk.
    ///
    /// # Errors
    /// As for [`Segments::read_part`].
    pub fn read_from_start(&self, (file, len): (SegmentFile, u64), chunk: u64) -> Result<(Vec<u8>, usize)> {
        let open = self.open_file(file)?;
        parts_of(&*open, file, len).read_from_start(chunk)
    }

    /// An open file, from those that are kept open.
    ///
    /// # Errors
    /// `NotFound` if a collection has removed it; `Io`.
    pub fn open_file(&self, file: SegmentFile) -> Result<Arc<dyn ReadFile>> {
        if let Some(open) = self.files.lock().get(&file) {
            return Ok(open.clone());
        }
        let open: Arc<dyn ReadFile> = self.env.open(&self.dir.join(self.file_name(file)))?;
        open.expect_random();
        let mut files = self.files.lock();
        if files.len() >= self.max_open_files {
            files.clear();
        }
        files.insert(file, open.clone());
        Ok(open)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use env::SimEnv;

    fn share(segment: u64) -> SegmentShare {
        SegmentShare { segment, count: 1, bytes: 100 }
    }

    #[test]
    fn a_value_file_is_listed_with_all_its_segments_also_by_a_caller_that_was_held_up() {
        let segments = Segments::new(SimEnv::new(1), "/".into(), |n| format!("{n}.log"), 4, Arc::default());
        segments.hold(1, &[share(5), share(6), share(7)]);
        // A caller looks for the oldest log here, and goes on after the logs were retired and collected.
        let oldest_log = 6;
        for log in 5..=7 {
            assert!(segments.retire(log, 1000));
        }
        let is_listed = |log| segments.uses(oldest_log).iter().any(|used| used.file == SegmentFile::Log(log));
        assert_eq!([5, 6, 7].map(is_listed), [true, false, false], "recovery needs the others");
        let sources = [5, 6, 7].map(SegmentFile::Log);
        let file = ValueFile {
            number: 9,
            len: 400,
            value_bytes: 300,
            maps_at: 350,
            maps_len: 10,
            maps_checksum: 0,
            segments: vec![5, 6, 7],
        };
        segments.replace(&sources, Some((file, Maps::default())));
        let uses = segments.uses(oldest_log);
        assert_eq!(uses.iter().map(|used| used.file).collect::<Vec<_>>(), [SegmentFile::Values(9)]);
        let mut listed = uses[0].segments.clone();
        listed.sort_unstable();
        assert_eq!(listed, [5, 6, 7]);
        assert_eq!((uses[0].live_count, uses[0].live_bytes), (3, 300));
    }
}
