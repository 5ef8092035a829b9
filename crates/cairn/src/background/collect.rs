//! Collections: copy the live values of files of which much is dead into a new value file, and remove the old ones.
//!
//! What is alive is read from the tables that refer to these files, in order and once: no key is looked up, and nothing is written through
//! the tree. A reference keeps naming the place where its value was first written; the new file has a map from there to the new place.
//!
//! While a collection runs, only compactions can produce references to the files, and only copies of those in the tables that it reads,
//! which it holds. A file is not collected while a table that no version has any more refers to it, because a reader may still use references
//! that are in no other table.

use super::collect_hashed::{CopiedPart, HashedPart, no_entry};
use super::compact::RETRY_PAUSE;
use super::outcome::concerns_one;
use crate::events;
use crate::parts::Pace;
use crate::state::{DbInner, HashLog, KeyspaceInner, PanicGuard, State};
use crate::sync::{Ordering, yield_now};
use crate::wal::{Placed, append_entry, end_value_file, read_batches};
use base::planted::{Bug, planted};
use base::{EntryKind, Error, ErrorKind, Result, SegmentShare};
use hashlog::{Hint, hint_file_name};
use record::{SegmentKind, SegmentWriter};
use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tree::{DatabaseEdit, LiveTable, tables_of};
use values::{
    FileUse, Maps, SegmentFile, ValueFile, own_segment, pick, pick_by_count, pick_first, pick_small,
    value_file_name,
};

/// Bounds of what one collection copies and has in memory, in bytes, unless a single file has more: an eighth of the memory budget between them. A
/// keyspace without order has all its hint files read for each collection.
const MAX_LIVE_BYTES: std::ops::RangeInclusive<u64> = 64 << 20..=256 << 20;

/// The new file is written, and the rate limiter told, in portions of this many bytes. After as many that were read, too, the collection looks
/// whether it should rest.
const PORTION: u64 = 256 << 10;

/// What a live value takes on the disk beside its bytes, about: the record around it, and a hint or a key.
const PER_ENTRY: u64 = 48;

/// An opening runs so many short collections at most: one of what is dead often makes another one due, or a merge.
const MOST_AT_OPENING: usize = 8;

/// After a merge of small files that failed, no other begins for so long.
const MERGE_PAUSE: Duration = Duration::from_secs(60);

/// The length below which files are merged: this part of the memory budget, so that those of full memtables of the default size are not; and at most
/// [`MAX_MERGED_LEN`].
const MERGED_PART: u64 = 64;
const MAX_MERGED_LEN: u64 = 16 << 20;

/// A merge of small files begins when the disk has room for so many times what it copies: flushes and deletes need the last of it.
const MERGE_MARGIN: u64 = 4;

/// Below this percentage of dead bytes, which are estimated, nothing is collected, unless the number of dead entries is the reason.
const LEAST_GARBAGE_PERCENT: u32 = 5;

/// Maximum length of the description of a value file in the manifest: less than its decoder accepts.
const MAX_DESCRIPTION: usize = 1 << 19;

/// A collection looks whether it should rest after so many references.
const REFERENCES_PER_REST: u64 = 1 << 14;

/// Files that should be collected.
struct Due {
    files: Vec<FileUse>,
    /// They are many and small, and nothing depends on it that they are merged soon.
    is_merge: bool,
}

/// The files to collect, and the tables that refer to them.
pub(crate) struct Collection {
    files: Vec<FileUse>,
    is_merge: bool,
    tables: Vec<Arc<LiveTable>>,
    /// The keyspaces without order that have entries in the files.
    hashed: Vec<Arc<KeyspaceInner>>,
}

/// What a collection has copied: the new file, and what becomes of the keyspaces without order.
struct Copied {
    /// `None`: nothing was alive.
    file: Option<(ValueFile, Maps)>,
    hashed: Vec<CopiedPart>,
}

/// A live value of a file: where it is, and where it was first written.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Live {
    offset: u64,
    segment: u64,
    first_offset: u64,
}

/// The flushes and the collection that ran at a moment.
struct Running {
    /// Of each keyspace that was flushed, the number of the flush.
    flushes: Vec<(u64, u64)>,
    collection: Option<u64>,
}

impl Running {
    fn now(state: &State) -> Running {
        let flushed = state.keyspaces.values().filter(|k| k.flushing);
        Running {
            flushes: flushed.map(|k| (k.inner.id, k.flush_number)).collect(),
            collection: state.collecting.then_some(state.collection_number),
        }
    }

    fn has_ended(&self, state: &State) -> bool {
        let flushes = |(id, number): &(u64, u64)| {
            state.keyspaces.get(id).is_some_and(|k| k.flushing && k.flush_number == *number)
        };
        let collects = state.collecting && self.collection == Some(state.collection_number);
        !collects && !self.flushes.iter().any(flushes)
    }
}

/// What a collection of these files takes on the disk, about.
fn bytes_to_copy(files: &[FileUse]) -> u64 {
    files.iter().fold(0, |sum: u64, file| {
        sum.saturating_add(file.live_bytes).saturating_add(file.live_count.saturating_mul(PER_ENTRY))
    })
}

impl Due {
    /// Whether it takes so little time that an opening need not leave it to others: few bytes, and no tables to read.
    fn is_short(&self) -> bool {
        let bytes = self.files.iter().map(|file| file.file_bytes).sum::<u64>();
        bytes <= PORTION && !self.files.iter().any(|file| file.has_tables)
    }
}

impl DbInner {
    /// A collection that is due, counted in `jobs`; one at a time.
    pub(crate) fn next_collection(&self) -> Option<Collection> {
        if !self.tables.segments.take_changed() {
            return None;
        }
        self.begin_collection(self.due_files()?)
    }

    /// Begins to collect these files, unless something is in the way of that: then there is progress to wait for.
    fn begin_collection(&self, due: Due) -> Option<Collection> {
        let Due { files: due, is_merge } = due;
        let _manifest = self.manifest.lock();
        let mut state = self.state.lock();
        // As they are now: since they were picked, tables, and with them segments, may have come to an end, or moved.
        let mut files = self.tables.segments.uses(self.oldest_log());
        let due_files: HashSet<SegmentFile> = due.iter().map(|file| file.file).collect();
        files.retain(|used| due_files.contains(&used.file));
        if planted(Bug::CollectPartOfFile) && files.len() == due.len() {
            files.clone_from(&due);
        }
        let segments = segments_of(&files);
        // What is pinned may have changed, too. If so, this thread or another one looks again. Compactions for scans leave less to copy with
        // each table that they write: a collection waits for them, and they note a change when they end.
        if state.collecting
            || state.keyspaces.values().any(|k| k.tree.inlines_values())
            || self.tables.segments.is_pinned(&segments) && !planted(Bug::CollectDespiteReaders)
        {
            return None;
        }
        // Another collection may have emptied them meanwhile, or nothing may need them any more.
        if files.len() < due.len() {
            self.tables.segments.note_change();
            return None;
        }
        let refers = |table: &Arc<LiveTable>| {
            table.meta.segments.iter().any(|share| segments.contains(&share.segment))
        };
        let versions = state.keyspaces.values().map(|k| &**k.tree.version());
        let tables = tables_of(versions).into_iter().filter(|table| refers(table)).cloned().collect();
        let has_entries = |keyspace: &&Arc<KeyspaceInner>| {
            let log = keyspace.hash_log.as_ref();
            log.is_some_and(|log| files.iter().any(|file| log.index.find(file.file).is_some()))
        };
        let hashed: Vec<_> =
            state.keyspaces.values().map(|k| &k.inner).filter(has_entries).cloned().collect();
        state.collecting = true;
        state.collection_number += 1;
        state.jobs += 1;
        Some(Collection { files, is_merge, tables, hashed })
    }

    /// Collects the files with entries of a keyspace without order: those in which some are dead, or `all`. What later writes and collections add
    /// is not waited for, nor are logs that recovery needs, and files that tables refer to which only readers use.
    ///
    /// # Errors
    /// `NoSpace` if the disk has no room for what is copied of some files, and `Corruption` if files cannot be read, when the others are collected;
    /// other errors at once.
    pub(crate) fn collect_keyspace(&self, keyspace: &KeyspaceInner, log: &HashLog, all: bool) -> Result<()> {
        // A flush gives its logs up at its end, and a collection that runs may have looked at its files before this call.
        let running = Running::now(&self.state.lock());
        self.wait_for(|state| running.has_ended(state), |state| state.flush_error.clone())?;
        {
            // Readers may have ended for which collections had kept entries.
            let _manifest = self.manifest.lock();
            if !keyspace.is_dropped() {
                self.tables.share(log, self.oldest_reader(keyspace));
            }
        }
        let segments = &self.tables.segments;
        let mut asked: HashSet<SegmentFile> = log.list_files().into_iter().map(|file| file.file).collect();
        let most = self.most_at_once().min(self.env.max_file_len() / 2);
        let (mut no_room, mut singly) = (None, false);
        // An explicit request tries files again that could not be read before.
        segments.retry(&asked);
        loop {
            self.status.check_running()?;
            keyspace.check_open()?;
            let mut files = {
                // Not while a collection replaces its files.
                let _manifest = self.manifest.lock();
                segments.uses(self.oldest_log())
            };
            files.retain(|used| asked.contains(&used.file) && !used.pinned && (all || used.dead_count > 0));
            // The deadest first: they free most for what they need.
            files.sort_by_key(|used| {
                (used.live_bytes.saturating_mul(1000) / used.file_bytes.max(1), used.file)
            });
            files.truncate(pick_first(&files, if singly { 0 } else { most }));
            while files.len() > 1 && !self.has_room_for(bytes_to_copy(&files)) {
                files.truncate(files.len() / 2);
            }
            let Some(first) = files.first() else { break };
            let needed = bytes_to_copy(&files);
            if !self.has_room_for(needed) {
                let path = self.dir.join(segments.file_name(first.file));
                let what = "the disk has no room to copy what is alive";
                let what = format!("{}: {what}, {needed} bytes", path.display());
                no_room = Some(Error::new(ErrorKind::NoSpace, what));
                asked.remove(&first.file);
                continue;
            }
            let begun: HashSet<SegmentFile> = files.iter().map(|used| used.file).collect();
            match self.begin_collection(Due { files, is_merge: false }) {
                Some(collection) => {
                    self.run_collection(collection)?;
                    // One hint file that cannot be read is in the way of all files that are collected together.
                    if begun.len() > 1 && begun.iter().any(|file| segments.why_given_up(*file).is_some()) {
                        segments.retry(&begun);
                        singly = true;
                    }
                }
                None => {
                    self.run_pending();
                    self.signals.progress.wait_for(&mut self.state.lock(), RETRY_PAUSE);
                }
            }
        }
        let unreadable = asked.into_iter().find_map(|file| segments.why_given_up(file));
        unreadable.or(no_room).map_or(Ok(()), Err)
    }

    /// Runs short collections at an opening, which may have made a small file: a process that ends soon leaves background threads no time to merge
    /// them. A failure is left to later ones.
    pub(crate) fn collect_at_opening(&self) {
        for _ in 0..MOST_AT_OPENING {
            if self.status.ends() || !self.due_files().is_some_and(|due| due.is_short()) {
                return;
            }
            let Some(collection) = self.next_collection() else { return };
            if self.run_collection(collection).is_err() {
                return;
            }
        }
    }

    /// Whether a collection is due.
    pub(crate) fn collection_is_due(&self) -> bool {
        let due = self.due_files().is_some();
        if due {
            self.tables.segments.note_change();
        }
        due
    }

    /// The files that should be collected, if the disk has room for what is alive in them: because of what is dead in them, or else because they are
    /// many and small.
    fn due_files(&self) -> Option<Due> {
        let oldest_log = self.oldest_log();
        if planted(Bug::CollectPartOfFile) && oldest_log.is_multiple_of(2) {
            // While another thread, for which the next log is the oldest, goes on.
            yield_now();
        }
        let mut files = self.tables.segments.uses(oldest_log);
        let most = self.most_at_once();
        let mut picked = pick(&files, self.garbage_percent(), most);
        if picked.is_empty() && self.an_index_is_full() {
            picked = pick_by_count(&files, most);
        }
        let is_merge = picked.is_empty();
        if is_merge && self.may_merge() {
            let below = (self.options.memory_budget / MERGED_PART).min(MAX_MERGED_LEN);
            picked = pick_small(&files, below, most.min(self.env.max_file_len() / 2));
        }
        if picked.is_empty() {
            return None;
        }
        let (mut at, picked) = (0.., picked.into_iter().collect::<HashSet<_>>());
        files.retain(|_| picked.contains(&at.next().expect("endless")));
        let margin = if is_merge { MERGE_MARGIN } else { 1 };
        self.has_room_for(bytes_to_copy(&files).saturating_mul(margin)).then_some(Due { files, is_merge })
    }

    /// What one collection copies and has in memory at most, unless it is a single file.
    fn most_at_once(&self) -> u64 {
        (self.options.memory_budget / 8).clamp(*MAX_LIVE_BYTES.start(), *MAX_LIVE_BYTES.end())
    }

    /// Whether small files may be merged, which no caller waits for.
    fn may_merge(&self) -> bool {
        let next = Duration::from_millis(self.next_merge.load(Ordering::Relaxed));
        !self.disk_reserve.is_spent() && self.env.monotonic() >= next
    }

    /// Whether puts wait for a collection.
    pub(super) fn an_index_is_full(&self) -> bool {
        self.index_pressure.load(Ordering::Relaxed) >= 1000
    }

    /// The percentage of dead bytes above which files are collected: less than the option says when an index nears the end of its memory.
    fn garbage_percent(&self) -> u32 {
        let most = self.options.value_garbage_percent;
        let left = 1000 - self.index_pressure.load(Ordering::Relaxed).min(1000) as u32;
        (most * left / 1000).max(most.min(LEAST_GARBAGE_PERCENT))
    }

    /// Notes how many bytes collections could free and should: those beyond `value_garbage_percent`.
    pub(super) fn note_dead_values(&self) {
        let files = self.tables.segments.uses(self.oldest_log());
        let (all, dead) =
            files.iter().filter(|file| !file.pinned).fold((0u128, 0u128), |(all, dead), file| {
                (all + u128::from(file.file_bytes), dead + u128::from(file.dead_bytes))
            });
        let allowed = all * u128::from(self.options.value_garbage_percent) / 100;
        let beyond = u64::try_from(dead.saturating_sub(allowed)).unwrap_or(u64::MAX);
        self.dead_values.store(beyond, Ordering::Relaxed);
    }

    /// Runs a collection to its end.
    pub(crate) fn run_collection(&self, collection: Collection) -> Result<()> {
        let _watch = PanicGuard::new(self, "a collection");
        let mut result = self.collect(&collection);
        self.stop_if_sync_failed(&result);
        match &result {
            Err(e) if collection.is_merge && !self.status.ends() => {
                // No caller waits for it.
                events::warn!(error = %e, "small files of values could not be merged");
                let next = self.env.monotonic() + MERGE_PAUSE;
                self.next_merge.store(next.as_millis() as u64, Ordering::Relaxed);
                result = Ok(());
            }
            Err(e) if self.disk_reserve.release_for(e) => result = Ok(()),
            _ => {}
        }
        self.tables.segments.note_change();
        drop(collection);
        self.collect_obsolete();
        self.note_dead_values();
        let mut state = self.state.lock();
        state.jobs -= 1;
        state.collecting = false;
        self.note_outcome(state, &result, |state| &mut state.collection_error);
        result
    }

    fn collect(&self, collection: &Collection) -> Result<()> {
        self.check_place()?;
        let started = self.env.monotonic();
        let number = self.new_number();
        let path = self.dir.join(value_file_name(number));
        let mut hint_files = Vec::new();
        let Copied { file, hashed } = match self.copy(collection, number, &path, &mut hint_files) {
            Ok(Some(copied)) => copied,
            // Files that cannot be read are not collected again: this is progress, and not an error for callers that wait.
            Ok(None) => {
                let _ = self.env.remove(&path);
                self.remove_hints(hint_files.into_iter());
                return Ok(());
            }
            Err(e) => {
                if e.kind() != ErrorKind::ReadOnly {
                    let _ = self.env.remove(&path);
                    self.remove_hints(hint_files.into_iter());
                }
                return Err(e);
            }
        };
        let sources: Vec<SegmentFile> = collection.files.iter().map(|file| file.file).collect();
        let numbers = sources.iter().filter_map(|file| match file {
            SegmentFile::Values(number) => Some(*number),
            SegmentFile::Log(_) => None,
        });
        let removed = self.tables.segments.take_removed().into_iter().chain(numbers).collect();
        let mut edit = DatabaseEdit {
            value_files: file.iter().map(|(file, _)| file.clone()).collect(),
            value_files_removed: removed,
            ..DatabaseEdit::default()
        };
        let mut hints_gone = Vec::new();
        {
            let mut manifest = self.manifest.lock();
            self.note_hashed(&hashed, &sources, &mut edit);
            if let Err(e) = self.log_edit(&mut manifest, &mut edit) {
                if self.status.fatal.get().is_none() {
                    let _ = self.env.remove(&path);
                    self.remove_hints(hint_files.into_iter());
                }
                return Err(e);
            }
            let read = collection.files.iter().map(|file| file.file_bytes).sum();
            let len = file.as_ref().map_or(0, |(file, _)| file.len);
            let time = self.env.monotonic().saturating_sub(started);
            events::debug!(
                files_read = sources.len(),
                bytes_read = read,
                bytes_written = len,
                seconds = time.as_secs_f64(),
                "collection"
            );
            self.counters.collections.lock().note(read, len, time);
            let is_empty = file.is_none();
            // A reader that finds an entry in the new file may open it at once: it is there.
            self.tables.segments.replace(&sources, file);
            hints_gone.extend(self.apply_hashed(hashed, number, len, &edit).map_err(|e| self.stop(&e))?);
            self.renew_manifest(&mut manifest);
            if is_empty {
                let _ = self.env.remove(&path);
            }
        }
        let names = sources.iter().map(|source| self.tables.segments.file_name(*source));
        let hints = hints_gone.into_iter().map(hint_file_name);
        // Iterators and checks may still read them.
        self.tables.segments.emptied(names.chain(hints).collect());
        Ok(())
    }

    /// Whether `error` is one of reading `files`, after which they are not collected again.
    fn gives_up(&self, files: &[FileUse], error: &Error) -> bool {
        // An error of writing, or of the process, says nothing about the files.
        let is_other = matches!(error.kind(), ErrorKind::Closed | ErrorKind::ReadOnly | ErrorKind::NoSpace);
        if is_other || error.is_too_many_open_files() {
            return false;
        }
        let given_up =
            files.iter().filter(|file| self.tables.segments.note_failure(file.file, error)).count();
        if given_up > 0 {
            events::error!(error = %error, files = given_up, "values cannot be collected: files are left alone");
        }
        given_up > 0
    }

    /// Copies what is alive in the files into value file `number`, and makes it durable. `None` if one of the files cannot be read. The numbers of
    /// the hint files that it writes are in `hint_files`.
    fn copy(
        &self,
        collection: &Collection,
        number: u64,
        path: &Path,
        hint_files: &mut Vec<u64>,
    ) -> Result<Option<Copied>> {
        let pace = Pace::new(&self.rate_limiter, &*self.env);
        // Without background threads a writer may wait for this collection: it never rests.
        let _announced = (!self.is_inline()).then(|| self.tables.cache.waiting_reads().begin_job());
        let mut live = match self.live_values(collection, &pace) {
            Ok(live) => live,
            Err(e) if self.gives_up(&collection.files, &e) => return Ok(None),
            Err(e) => return Err(e),
        };
        let sources: Vec<SegmentFile> = collection.files.iter().map(|file| file.file).collect();
        let mut keys = 0;
        let mut hashed = match self.hashed_parts(&collection.hashed, &sources, &mut |bytes| {
            keys += bytes;
            if keys >= PORTION {
                keys = 0;
                pace.take(0, || self.collection_rests(), || self.status.ends());
            }
            self.status.check_running()
        }) {
            Ok(parts) => parts,
            // Its hint files are gone: a later collection goes on without it.
            Err(_) if collection.hashed.iter().any(|keyspace| keyspace.is_dropped()) => return Ok(None),
            Err(e) if self.gives_up(&collection.files, &e) => return Ok(None),
            Err(e) => return Err(e),
        };
        let mut writer = SegmentWriter::create(&self.env, path, SegmentKind::Values, number, &[])?;
        let (mut maps, mut record, mut value_bytes) = (Maps::default(), Vec::new(), 0);
        // A segment has its values in one file, and in that in the order of their first places.
        for source in &collection.files {
            let mut live = live.remove(&source.file).unwrap_or_default();
            live.sort_unstable();
            live.dedup();
            if planted(Bug::ForgetLiveValue) {
                live.pop();
            }
            let mut wanted = live.into_iter().peekable();
            hashed.iter_mut().for_each(|part| part.begin_file(source.file));
            let (mut written, mut read) = (Ok(()), 0);
            let mut copy = |placed: Placed<'_>| {
                read += (placed.entry.key.len() + placed.entry.value.len()) as u64;
                if read >= PORTION {
                    read = 0;
                    pace.take(0, || self.collection_rests(), || self.status.ends());
                }
                let (entry, numbers) = (&placed.entry, (placed.seq, placed.time));
                if let Some(value) = wanted.next_if(|live| live.offset == placed.offset) {
                    value_bytes += entry.value.len() as u64;
                    written = append_entry(&mut writer, &mut record, numbers, entry).and_then(|appended| {
                        maps.push(value.segment, value.first_offset, appended.value_at);
                        self.flush_portion(&mut writer, &pace)
                    });
                }
                let live =
                    hashed.iter_mut().find_map(|part| Some((part.take(placed.at, entry.keyspace)?, part)));
                let copied = live.and_then(|(live, part)| Some((live, part.copied(live, entry)?, part)));
                if let Some((live, entry, part)) = copied {
                    let bytes = (entry.key.len() + entry.value.len()) as u64;
                    value_bytes += bytes + 1;
                    written = append_entry(&mut writer, &mut record, numbers, &entry).and_then(|appended| {
                        let (file, is_delete) =
                            (SegmentFile::Values(number), entry.kind == EntryKind::Delete);
                        let hint = Hint { file, at: appended.at, seq: placed.seq, is_delete, key: entry.key };
                        if part.hints.is_none() {
                            part.hints = Some(self.begin_hints(&part.keyspace, hint_files)?);
                        }
                        part.push(live, &hint, bytes)?;
                        self.flush_portion(&mut writer, &pace)
                    });
                }
                written.is_ok()
                    && (wanted.peek().is_some() || hashed.iter_mut().any(|part| part.missed().is_some()))
            };
            let (kind, file_number) = match source.file {
                SegmentFile::Log(number) => (SegmentKind::Wal, number),
                SegmentFile::Values(number) => (SegmentKind::Values, number),
            };
            let file = self.dir.join(self.tables.segments.file_name(source.file));
            let all_read = read_batches(&self.env, &file, kind, file_number, &mut copy);
            match written {
                // An entry would lie where a place cannot name it: other tries end in the same way.
                Err(e) if e.kind() == ErrorKind::InvalidArgument => {
                    return match self.gives_up(std::slice::from_ref(source), &e) {
                        true => Ok(None),
                        false => Err(e),
                    };
                }
                written => written?,
            }
            let missed = hashed.iter_mut().find_map(HashedPart::missed);
            let complete = all_read.and_then(|()| match (wanted.next(), missed) {
                (None, None) => Ok(()),
                (None, Some(chunk)) => Err(no_entry(&file, chunk)),
                (Some(value), _) => {
                    let what = "a table refers to a value here, where none is";
                    Err(Error::corruption(&file, value.offset, what))
                }
            });
            match complete {
                Ok(()) => {}
                // The file may be gone with it: a later collection goes on without it.
                Err(e)
                    if concerns_one(&e) && collection.hashed.iter().any(|keyspace| keyspace.is_dropped()) =>
                {
                    return Ok(None);
                }
                Err(e) if self.gives_up(std::slice::from_ref(source), &e) => return Ok(None),
                Err(e) => return Err(e),
            }
        }
        let hashed = hashed.into_iter().map(HashedPart::finish).collect::<Result<Vec<CopiedPart>>>()?;
        if hashed.iter().any(CopiedPart::has_entries) {
            maps.add_own(own_segment(number));
        }
        if maps.segments().is_empty() {
            return Ok(Some(Copied { file: None, hashed }));
        }
        let file = end_value_file(&mut writer, &maps, value_bytes)?;
        self.env.sync_dir(&self.dir).map_err(|e| e.sync_failed())?;
        let mut description = Vec::new();
        file.encode(&mut description);
        // Never an edit that no opening could read.
        if ValueFile::decode(&description).as_ref() != Some(&file) || description.len() > MAX_DESCRIPTION {
            let e = Error::corruption(path, 0, "a file of collected values would not be readable");
            collection.files.iter().for_each(|file| _ = self.tables.segments.note_failure(file.file, &e));
            return Ok(None);
        }
        Ok(Some(Copied { file: Some((file, maps)), hashed }))
    }

    /// Whether a collection leaves the disk to the reads that wait for it, as compactions do.
    fn collection_rests(&self) -> bool {
        let urgent = self.is_inline() || self.is_far_behind() || self.disk_reserve.is_spent();
        !urgent && self.tables.cache.waiting_reads().any()
    }

    /// Writes the buffer of the new file when it has a portion.
    fn flush_portion(&self, writer: &mut SegmentWriter, pace: &Pace<'_>) -> Result<()> {
        let bytes = writer.len() - writer.flushed_len();
        if bytes >= PORTION {
            writer.flush()?;
            pace.take(bytes, || self.collection_rests(), || self.status.ends());
        }
        self.status.check_running()
    }

    /// The values in the files that tables refer to, by file. Reads the tables from front to back.
    fn live_values(
        &self,
        collection: &Collection,
        pace: &Pace<'_>,
    ) -> Result<HashMap<SegmentFile, Vec<Live>>> {
        let collected = segments_of(&collection.files);
        let mut live: HashMap<SegmentFile, Vec<Live>> = HashMap::new();
        let mut seen = 0u64;
        for table in &collection.tables {
            let mut found = Vec::new();
            table.references(&mut |reference| {
                seen += 1;
                if seen.is_multiple_of(REFERENCES_PER_REST) {
                    // Nothing was written.
                    pace.take(0, || self.collection_rests(), || self.status.ends());
                    self.status.check_running()?;
                }
                if collected.contains(&reference.segment) {
                    SegmentShare::count(&mut found, &reference);
                    let (file, offset) = self.tables.segments.place(&reference)?;
                    let (segment, first_offset) = (reference.segment, reference.offset);
                    live.entry(file).or_default().push(Live { offset, segment, first_offset });
                }
                Ok(())
            })?;
            let named = table.meta.segments.iter().filter(|share| collected.contains(&share.segment));
            if !named.eq(&found) {
                let what = "the table refers to other values than the manifest says";
                return Err(Error::corruption(table.table.path(), 0, what));
            }
            self.status.check_running()?;
        }
        Ok(live)
    }
}

fn segments_of(files: &[FileUse]) -> HashSet<u64> {
    files.iter().flat_map(|file| file.segments.iter().copied()).collect()
}
