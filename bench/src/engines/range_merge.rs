//! A prototype of RangeMerge, on which the Mneme thesis builds: memory divided into ranges of keys, each with one sorted file (Margaritis and
//! Anastasiadis, "Efficient range-based storage management for scalable datastores", IEEE TPDS 2014).
//!
//! It is here to be measured beside Cairn, and is no store: it keeps a log, but does not recover from it. When memory is full, the range with
//! the most bytes in memory is merged with its file, by a thread of its own; a file over [`FILE_BYTES`] becomes two ranges.
//! Each read takes one part of memory and one file.

use crate::engine::{Engine, Error, Kind, RequestedSettings, Result, Stalls, Visit};
use std::collections::{BTreeMap, btree_map};
use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write};
use std::iter::Peekable;
use std::ops::Bound;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A merged file with more bytes is divided. (The thesis, section 6.1: 32 MiB.)
const FILE_BYTES: usize = 32 << 20;
/// Bytes between two keys of the index, which is in memory.
const BLOCK_BYTES: usize = 4096;
/// The log is begun again after this many bytes: it is written, but never read.
const LOG_BYTES: u64 = 256 << 20;
/// Entries of memory that a scan takes at once.
const CHUNK: usize = 256;

pub(super) fn kinds() -> Vec<Kind> {
    vec![Kind {
        name: "range-merge",
        title: "RangeMerge (prototype)",
        version: || "0".to_string(),
        open: |dir, requested| Ok(Box::new(RangeMerge::open(dir, requested)?)),
    }]
}

/// Entries in memory; `None`: deleted.
type Memory = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

/// One of them.
type Entry = (Vec<u8>, Option<Vec<u8>>);

/// A sorted file, and the index over it.
struct SortedFile {
    file: Option<File>,
    path: PathBuf,
    /// The first key of each block, and where the block begins.
    index: Vec<(Vec<u8>, u64)>,
    len: u64,
}

impl Drop for SortedFile {
    fn drop(&mut self) {
        if self.file.is_some() {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// What an entry counts as in memory.
fn bytes_of(key: &[u8], value: Option<&[u8]>) -> usize {
    key.len() + value.map_or(0, <[u8]>::len) + 64
}

impl SortedFile {
    fn empty() -> Arc<SortedFile> {
        Arc::new(SortedFile { file: None, path: PathBuf::new(), index: Vec::new(), len: 0 })
    }

    /// The entries of one block.
    fn block(&self, at: usize) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let Some(file) = &self.file else { return Ok(Vec::new()) };
        let Some(&(_, from)) = self.index.get(at) else { return Ok(Vec::new()) };
        let to = self.index.get(at + 1).map_or(self.len, |next| next.1);
        let mut bytes = vec![0; (to - from) as usize];
        file.read_exact_at(&mut bytes, from)?;
        let (mut rest, mut entries) = (&bytes[..], Vec::new());
        while let Some((head, tail)) = rest.split_at_checked(8) {
            let len =
                |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().expect("four bytes")) as usize;
            let (key, tail) = tail.split_at(len(0));
            let (value, tail) = tail.split_at(len(4));
            entries.push((key.to_vec(), value.to_vec()));
            rest = tail;
        }
        Ok(entries)
    }

    /// The block in which `key` is, if it is in the file.
    fn block_of(&self, key: &[u8]) -> usize {
        self.index.partition_point(|(first, _)| &first[..] <= key).saturating_sub(1)
    }
}

/// Walks over a file, from a key on.
struct Walk<'a> {
    file: &'a SortedFile,
    block: usize,
    entries: Peekable<std::vec::IntoIter<(Vec<u8>, Vec<u8>)>>,
}

impl<'a> Walk<'a> {
    fn new(file: &'a SortedFile, from: &[u8]) -> Result<Walk<'a>> {
        let block = file.block_of(from);
        let mut entries = file.block(block)?;
        entries.retain(|(key, _)| &key[..] >= from);
        Ok(Walk { file, block, entries: entries.into_iter().peekable() })
    }

    fn peek(&mut self) -> Result<Option<&(Vec<u8>, Vec<u8>)>> {
        while self.entries.peek().is_none() && self.block + 1 < self.file.index.len() {
            self.block += 1;
            self.entries = self.file.block(self.block)?.into_iter().peekable();
        }
        Ok(self.entries.peek())
    }
}

struct Range {
    memory: Memory,
    bytes: usize,
    /// What is merged with the file now.
    merging: Arc<Memory>,
    file: Arc<SortedFile>,
}

impl Range {
    fn of(file: Arc<SortedFile>) -> Range {
        Range { memory: Memory::new(), bytes: 0, merging: Arc::default(), file }
    }
}

#[derive(Default)]
struct State {
    /// The ranges, by their first keys.
    ranges: BTreeMap<Vec<u8>, Range>,
    /// Bytes in memory, and those of them that are merged now.
    bytes: usize,
    merging: usize,
    log_len: u64,
    failed: Option<String>,
    ends: bool,
    stalls: Stalls,
}

struct Inner {
    dir: PathBuf,
    memory_bytes: usize,
    state: Mutex<State>,
    changed: Condvar,
    log: File,
    written: AtomicU64,
    files: AtomicU64,
}

struct RangeMerge {
    inner: Arc<Inner>,
    merges: Option<JoinHandle<()>>,
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed.wait(state).unwrap_or_else(|e| e.into_inner())
    }

    fn write(&self, key: &[u8], value: Option<&[u8]>, sync: bool) -> Result<()> {
        let bytes = bytes_of(key, value);
        let mut record = Vec::with_capacity(bytes);
        record.extend_from_slice(key);
        record.extend_from_slice(value.unwrap_or_default());
        let mut state = self.state();
        if state.bytes >= 2 * self.memory_bytes {
            let began = Instant::now();
            while state.bytes >= 2 * self.memory_bytes && state.failed.is_none() {
                state = self.wait(state);
            }
            let took = began.elapsed().as_secs_f64();
            state.stalls.seconds += took;
            state.stalls.longest_seconds = Some(state.stalls.longest_seconds.unwrap_or_default().max(took));
        }
        if let Some(error) = &state.failed {
            return Err(Error::new(error.clone()));
        }
        self.log.write_all_at(&record, state.log_len)?;
        if sync {
            self.log.sync_data()?;
        }
        self.written.fetch_add(record.len() as u64, Relaxed);
        state.log_len = (state.log_len + record.len() as u64) % LOG_BYTES;
        let (_, range) = state
            .ranges
            .range_mut::<[u8], _>((Bound::Unbounded, Bound::Included(key)))
            .next_back()
            .expect("a range begins at the empty key");
        let replaced = range.memory.insert(key.to_vec(), value.map(<[u8]>::to_vec));
        let replaced = replaced.map_or(0, |old| bytes_of(key, old.as_deref()));
        range.bytes = range.bytes + bytes - replaced;
        state.bytes = state.bytes + bytes - replaced;
        if state.bytes - state.merging >= self.memory_bytes {
            self.changed.notify_all();
        }
        Ok(())
    }

    fn merge_loop(&self) {
        loop {
            let (from, memory, file, bytes) = {
                let mut state = self.state();
                while state.bytes < self.memory_bytes && !state.ends {
                    state = self.wait(state);
                }
                if state.ends {
                    return;
                }
                let largest = state.ranges.iter().max_by_key(|(_, range)| range.bytes);
                let from = largest.map(|(from, _)| from.clone()).unwrap_or_default();
                let range = state.ranges.get_mut(&from).expect("it was found");
                range.merging = Arc::new(std::mem::take(&mut range.memory));
                let bytes = std::mem::take(&mut range.bytes);
                let (memory, file) = (range.merging.clone(), range.file.clone());
                state.merging = bytes;
                (from, memory, file, bytes)
            };
            let merged = self.merge(&from, &memory, &file);
            let mut state = self.state();
            match merged {
                Ok(files) => {
                    let old = state.ranges.remove(&from).expect("only this thread removes ranges");
                    let mut memory = old.memory;
                    for (from, file) in files.into_iter().rev() {
                        let part = memory.split_off(&from);
                        let bytes = part.iter().map(|(k, v)| bytes_of(k, v.as_deref())).sum();
                        state.ranges.insert(from, Range { memory: part, bytes, ..Range::of(file) });
                    }
                }
                Err(e) => state.failed = Some(e.to_string()),
            }
            state.bytes -= bytes;
            state.merging = 0;
            self.changed.notify_all();
        }
    }

    /// Merges memory with a file into one or more files, each with the first key of its range.
    fn merge(
        &self,
        from: &[u8],
        memory: &Memory,
        file: &SortedFile,
    ) -> Result<Vec<(Vec<u8>, Arc<SortedFile>)>> {
        let (mut walk, mut newer) = (Walk::new(file, b"")?, memory.iter().peekable());
        let in_memory: usize = memory.iter().map(|(k, v)| k.len() + v.as_ref().map_or(0, Vec::len)).sum();
        let whole = file.len as usize + in_memory;
        let parts = whole.div_ceil(FILE_BYTES).max(1);
        let each = if parts > 1 { whole / (2 * parts) * 2 } else { usize::MAX };
        let (mut files, mut out) = (Vec::new(), self.begin_file()?);
        let mut first = from.to_vec();
        loop {
            let take_newer = match (newer.peek(), walk.peek()?) {
                (None, None) => break,
                (Some((key, _)), Some((old, _))) => *key <= old,
                (newer, _) => newer.is_some(),
            };
            let (key, value) = match take_newer {
                true => {
                    let (key, value) = newer.next().expect("it was seen");
                    while walk.peek()?.is_some_and(|(old, _)| old == key) {
                        walk.entries.next();
                    }
                    let Some(value) = value else { continue };
                    (key.clone(), value.clone())
                }
                false => walk.entries.next().expect("it was seen"),
            };
            if out.len as usize >= each {
                let full = std::mem::replace(&mut out, self.begin_file()?);
                files.push((std::mem::replace(&mut first, key.clone()), self.end_file(full)?));
            }
            out.add(&key, &value)?;
        }
        files.push((first, self.end_file(out)?));
        Ok(files)
    }

    fn begin_file(&self) -> Result<Output> {
        let path = self.dir.join(format!("{:06}.range", self.files.fetch_add(1, Relaxed)));
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path)?;
        Ok(Output {
            out: BufWriter::with_capacity(1 << 20, file),
            path,
            index: Vec::new(),
            len: 0,
            in_block: usize::MAX,
        })
    }

    fn end_file(&self, output: Output) -> Result<Arc<SortedFile>> {
        let Output { out, path, index, len, .. } = output;
        let file = out.into_inner().map_err(|e| Error::new(e.to_string()))?;
        file.sync_data()?;
        self.written.fetch_add(len, Relaxed);
        Ok(Arc::new(SortedFile { file: Some(file), path, index, len }))
    }
}

/// A file that is being written.
struct Output {
    out: BufWriter<File>,
    path: PathBuf,
    index: Vec<(Vec<u8>, u64)>,
    len: u64,
    in_block: usize,
}

impl Output {
    fn add(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        if self.in_block >= BLOCK_BYTES {
            self.index.push((key.to_vec(), self.len));
            self.in_block = 0;
        }
        self.out.write_all(&(key.len() as u32).to_le_bytes())?;
        self.out.write_all(&(value.len() as u32).to_le_bytes())?;
        self.out.write_all(key)?;
        self.out.write_all(value)?;
        let bytes = 8 + key.len() + value.len();
        self.len += bytes as u64;
        self.in_block += bytes;
        Ok(())
    }
}

impl RangeMerge {
    fn open(dir: &Path, requested: &RequestedSettings) -> Result<RangeMerge> {
        let log = OpenOptions::new().create(true).truncate(false).write(true).open(dir.join("log"))?;
        let ranges = BTreeMap::from([(Vec::new(), Range::of(SortedFile::empty()))]);
        let inner = Arc::new(Inner {
            dir: dir.to_owned(),
            memory_bytes: requested.memtable_bytes as usize,
            state: Mutex::new(State { ranges, ..State::default() }),
            changed: Condvar::new(),
            log,
            written: AtomicU64::new(0),
            files: AtomicU64::new(0),
        });
        let of_thread = inner.clone();
        let merges =
            std::thread::Builder::new().name("merges".into()).spawn(move || of_thread.merge_loop())?;
        Ok(RangeMerge { inner, merges: Some(merges) })
    }
}

/// The next entry of three sources, of which the earlier ones are newer.
fn newest<'a>(
    memory: &mut Peekable<std::vec::IntoIter<Entry>>,
    merging: &mut Peekable<btree_map::Range<'a, Vec<u8>, Option<Vec<u8>>>>,
    walk: &mut Walk<'_>,
) -> Result<Option<Entry>> {
    let keys = [
        memory.peek().map(|entry| entry.0.clone()),
        merging.peek().map(|entry| entry.0.clone()),
        walk.peek()?.map(|entry| entry.0.clone()),
    ];
    let Some(least) = keys.iter().flatten().min().cloned() else { return Ok(None) };
    let mut value = None;
    if keys[2].as_ref() == Some(&least) {
        value = walk.entries.next().map(|entry| entry.1);
    }
    if keys[1].as_ref() == Some(&least) {
        value = merging.next().and_then(|entry| entry.1.clone());
    }
    if keys[0].as_ref() == Some(&least) {
        value = memory.next().and_then(|entry| entry.1);
    }
    Ok(Some((least, value)))
}

impl Engine for RangeMerge {
    fn settings(&self) -> BTreeMap<String, String> {
        let pairs = [
            ("memory", self.inner.memory_bytes.to_string()),
            ("file size", FILE_BYTES.to_string()),
            ("restrictions", "no recovery, no snapshots, no cache of its own, no backward scans".to_string()),
        ];
        pairs.into_iter().map(|(name, value)| (name.to_string(), value)).collect()
    }

    fn put(&self, key: &[u8], value: &[u8], sync: bool) -> Result<()> {
        self.inner.write(key, Some(value), sync)
    }

    fn delete(&self, key: &[u8], sync: bool) -> Result<()> {
        self.inner.write(key, None, sync)
    }

    fn get(&self, key: &[u8], show: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let mut found = false;
        self.scan(Some(key), &mut |other, value| {
            found = other == key;
            if found {
                show(value);
            }
            false
        })?;
        Ok(found)
    }

    fn scan(&self, from: Option<&[u8]>, visit: &mut Visit<'_>) -> Result<()> {
        let mut from = from.unwrap_or_default().to_vec();
        loop {
            let state = self.inner.state();
            let upto = (Bound::Unbounded, Bound::Included(&from[..]));
            let (_, range) =
                state.ranges.range::<[u8], _>(upto).next_back().expect("a range begins at the empty key");
            let after = (Bound::Excluded(&from[..]), Bound::Unbounded);
            let end = state.ranges.range::<[u8], _>(after).next().map(|(end, _)| end.clone());
            let memory = range.memory.range::<[u8], _>((Bound::Included(&from[..]), Bound::Unbounded));
            let memory: Vec<_> = memory.take(CHUNK).map(|(k, v)| (k.clone(), v.clone())).collect();
            let (merging, file) = (range.merging.clone(), range.file.clone());
            drop(state);
            // What is after the last entry of a full chunk is taken from memory again.
            let last = (memory.len() == CHUNK).then(|| memory[CHUNK - 1].0.clone());
            let mut walk = Walk::new(&file, &from)?;
            let mut memory = memory.into_iter().peekable();
            let mut merging =
                merging.range::<[u8], _>((Bound::Included(&from[..]), Bound::Unbounded)).peekable();
            while let Some((key, value)) = newest(&mut memory, &mut merging, &mut walk)? {
                if let Some(value) = value
                    && !visit(&key, &value)
                {
                    return Ok(());
                }
                if last.as_ref() == Some(&key) {
                    break;
                }
            }
            match (last, end) {
                (Some(mut last), _) => {
                    last.push(0);
                    from = last;
                }
                (None, Some(end)) => from = end,
                (None, None) => return Ok(()),
            }
        }
    }

    fn scan_back(&self, _from: Option<&[u8]>, _visit: &mut Visit<'_>) -> Result<()> {
        Err(Error::new("the prototype scans forward only"))
    }

    fn settle(&self) -> Result<Duration> {
        let mut state = self.inner.state();
        while (state.merging > 0 || state.bytes >= self.inner.memory_bytes) && state.failed.is_none() {
            state = self.inner.wait(state);
        }
        state.failed.clone().map_or(Ok(Duration::ZERO), |error| Err(Error::new(error)))
    }

    fn written_bytes(&self) -> Option<u64> {
        Some(self.inner.written.load(Relaxed))
    }

    fn stalls(&self) -> Option<Stalls> {
        Some(self.inner.state().stalls)
    }

    fn close(mut self: Box<Self>) -> Result<()> {
        self.inner.state().ends = true;
        self.inner.changed.notify_all();
        match self.merges.take().map(JoinHandle::join) {
            Some(Err(_)) => Err(Error::new("a merge panicked")),
            _ => Ok(()),
        }
    }
}
