//! [`SimEnv`]: a disk in memory that can crash.
//!
//! ```text
//!    operation --> counter, hook, rules --> state (one lock): page cache, durable state, mutations between them
//!                       |                                                        |
//!                       v                                                        v
//!                  fails, or runs in part                 crash_clone(kind, seed): one disk after a power failure
//! ```
//!
//! Data and directory entries become durable separately: data by a sync of the file, entries by a sync of the
//! directory. A synced file may vanish in a crash because its entry was not synced, and a removed file may come back.
//! Nothing here depends on real time or real randomness.
//!
//! The files of this folder, from the bottom: `fault` decides which operation fails, `disk` has the files, `handles` and `memory`
//! count what is open and what is cached, `state` runs an operation on all of these, `files` are the open files. They use nothing
//! of the operating system.

mod disk;
mod fault;
mod files;
mod handles;
mod memory;
mod state;

pub use disk::Survival;
pub use fault::{Fault, Hook, OpInfo, OpKind, Phase, Repeat};

use crate::checks::{check_file_len, check_other_dir, check_same_dir};
use crate::rng::Rng;
use crate::traits::{Env, FileLock, FileStamp, ReadFile, WriteFile};
use base::{Error, ErrorKind, Result, Time};
use disk::{Disk, Inode, normal};
use fault::Faults;
use files::{SimLock, SimReadFile, SimSharedLock, SimWriteFile, sync_inode};
use handles::Handle;
use memory::Memory;
use parking_lot::{Mutex, MutexGuard};
use state::{Shared, State, UNLIMITED, found};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// How far the clock advances on each read.
const TICK_NS: u64 = 1_000;

/// The wall clock of a new [`SimEnv`]: 2024-01-01, in microseconds.
const WALL_US: u64 = 1_704_067_200_000_000;

/// A disk in memory, as an [`Env`].
///
/// Each operation has an index, from 0 in the order of their starts. A hook and rules can observe and fail
/// operations. The helpers for tests ([`SimEnv::read_file`] and the like), which inspect and damage the disk, are not
/// operations.
///
/// ```
/// use env::{Env, SimEnv, Survival};
/// use std::path::Path;
///
/// let sim = SimEnv::new(7);
/// let mut file = sim.create(Path::new("/log"))?;
/// file.append(b"synced")?;
/// file.sync()?;
/// sim.sync_dir(Path::new("/"))?;
/// file.append(b", not synced")?;
///
/// let disk = sim.crash_clone(Survival::Nothing, 1);
/// assert_eq!(disk.read_file("/log"), b"synced");
/// # Ok::<(), base::Error>(())
/// ```
pub struct SimEnv {
    shared: Arc<Shared>,
}

impl SimEnv {
    /// An empty disk. The seed decides what the contract of [`Env`] leaves open, such as the order of [`Env::list`].
    pub fn new(seed: u64) -> Arc<SimEnv> {
        SimEnv::with_disk(Disk::new(), seed)
    }

    fn with_disk(disk: Disk, seed: u64) -> Arc<SimEnv> {
        let state = State { disk, locks: BTreeSet::new(), shared_locks: BTreeMap::new(), capacity: None };
        Arc::new(SimEnv {
            shared: Arc::new(Shared {
                seed,
                state: Mutex::new(state),
                faults: Faults::default(),
                clock_ns: AtomicU64::new(0),
                wall_us: AtomicU64::new(WALL_US),
                handles: Arc::default(),
                memory: Memory::new(seed),
                max_file_len: AtomicU64::new(u64::MAX),
                has_links: AtomicBool::new(true),
            }),
        })
    }

    /// One disk that may survive a power failure at this moment, selected by `seed`. All its content is durable, no
    /// lock is held, and it has no hook, rules or capacity. Copies the files with unsynced content and shares the
    /// others.
    pub fn crash_clone(&self, kind: Survival, seed: u64) -> Arc<SimEnv> {
        SimEnv::with_disk(self.state().disk.crash(kind, seed), seed)
    }

    /// The disk that the next process finds if this one is killed: it has all written data, unsynced data is still
    /// not durable, and no lock is held. It has no hook, rules or capacity.
    pub fn process_clone(&self) -> Arc<SimEnv> {
        SimEnv::with_disk(self.state().disk.fork(), self.shared.seed)
    }

    /// Sets the wall clock, which does not move by itself, and begins anew on each disk.
    pub fn set_wall_clock(&self, time: Time) {
        self.shared.wall_us.store(time.micros(), Ordering::SeqCst);
    }

    /// Number of operations started: the index of the next one.
    pub fn op_count(&self) -> u64 {
        self.shared.faults.next.load(Ordering::SeqCst)
    }

    /// Calls `hook` before and after every operation from now on; `None` removes it.
    pub fn set_hook(&self, hook: Option<Hook>) {
        *self.shared.faults.hook.write() = hook.map(Arc::new);
    }

    /// Makes the operation with this index fail, and later ones according to `repeat`.
    pub fn fail_op(&self, index: u64, fault: Fault, repeat: Repeat) {
        self.shared.faults.fail_op(index, fault, repeat);
    }

    /// Makes every operation from this index on fail with [`Fault::Crash`].
    pub fn crash_at(&self, index: u64) {
        self.fail_op(index, Fault::Crash, Repeat::Forever);
    }

    /// Removes the rules of [`SimEnv::fail_op`] and [`SimEnv::crash_at`].
    pub fn clear_faults(&self) {
        self.shared.faults.rules.lock().clear();
    }

    /// Limits the total size of all files. An append beyond it writes what fits and fails with ENOSPC.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.state().capacity = bytes;
    }

    /// Total size of all files, in bytes.
    pub fn used(&self) -> u64 {
        self.state().disk.used()
    }

    /// Sets [`Env::max_open_files`] (1024 by default). Once set, it is enforced: one more open or create fails with
    /// EMFILE.
    pub fn set_max_open_files(&self, files: usize) {
        self.shared.handles.set_limit(files);
    }

    /// The number of open files, and its maximum so far.
    pub fn open_files(&self) -> (usize, usize) {
        self.shared.handles.open()
    }

    /// Sets the percentage of non-blocking reads that find their block in memory (75 by default). The seed selects
    /// them. See [`ReadFile::try_read_cached`].
    pub fn set_cached_percent(&self, percent: u64) {
        self.shared.memory.percent.store(percent, Ordering::SeqCst);
    }

    /// Sets the value of [`Env::memory`] (`u64::MAX` by default).
    pub fn set_memory(&self, bytes: u64) {
        self.shared.memory.size.store(bytes, Ordering::SeqCst);
    }

    /// How many times [`ReadFile::will_need`] was called.
    pub fn will_need_calls(&self) -> u64 {
        self.shared.memory.will_need_calls.load(Ordering::SeqCst)
    }

    /// The total of bytes in calls of [`ReadFile::will_need`].
    pub fn will_need_bytes(&self) -> u64 {
        self.shared.memory.will_need_bytes.load(Ordering::SeqCst)
    }

    /// Limits the length of each file, as `RLIMIT_FSIZE` does: see [`Env::max_file_len`].
    pub fn set_max_file_len(&self, bytes: u64) {
        self.shared.max_file_len.store(bytes, Ordering::SeqCst);
    }

    /// Whether [`Env::link`] is possible (it is by default).
    pub fn set_has_links(&self, has_links: bool) {
        self.shared.has_links.store(has_links, Ordering::SeqCst);
    }

    /// Flips one bit (0..8) of a byte, durably.
    ///
    /// # Panics
    /// If the file does not exist or ends before `offset`. The other helpers panic likewise.
    pub fn flip_bit(&self, path: impl AsRef<Path>, offset: u64, bit: u32) {
        let mut bytes = self.read_file(&path);
        bytes[offset as usize] ^= 1 << bit;
        self.write_file(path, bytes);
    }

    /// The complete content of a file.
    pub fn read_file(&self, path: impl AsRef<Path>) -> Vec<u8> {
        let state = self.state();
        let inode =
            state.disk.find(path.as_ref()).unwrap_or_else(|| panic!("{} exists", path.as_ref().display()));
        inode.lock().content().to_vec()
    }

    /// Creates a file or replaces its content, durably and for open handles too.
    pub fn write_file(&self, path: impl AsRef<Path>, bytes: impl Into<Vec<u8>>) {
        self.state().disk.put(path.as_ref(), bytes.into());
    }

    /// Cuts a file to `len` bytes or extends it with zeros, durably.
    pub fn truncate_file(&self, path: impl AsRef<Path>, len: u64) {
        let mut bytes = self.read_file(&path);
        bytes.resize(len as usize, 0);
        self.write_file(path, bytes);
    }

    /// Removes a file, durably. Open handles can still read it.
    pub fn remove_file(&self, path: impl AsRef<Path>) {
        let removed = self.state().disk.erase(path.as_ref());
        assert!(removed, "{} exists", path.as_ref().display());
    }

    /// The paths of all files, sorted by directory and name.
    pub fn list_files(&self) -> Vec<PathBuf> {
        self.state().disk.files()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock()
    }
}

impl SimEnv {
    /// Number of zeros behind the end of the next log: none for a third of the logs, as in logs with few appends;
    /// some or many for the others.
    fn zeros(&self) -> usize {
        [0, 700, 5_000][((self.shared.seed ^ self.op_count()) % 3) as usize]
    }

    /// Creates a file that extends itself by this many zeros at a time.
    fn create_with(&self, path: &Path, zeros: usize) -> Result<Box<dyn WriteFile>> {
        let opened = self.shared.op(OpKind::Create, path, |state, fault| {
            if let Some(fault) = fault {
                return Err(fault.error("create", path));
            }
            let handle = self.shared.handles.take().map_err(|e| Error::io("create", path, e))?;
            state.check_new(path, "create")?;
            let inode = found(state.disk.create(path)).map_err(|e| Error::io("create", path, e))?;
            Ok((inode, handle))
        })?;
        Ok(self.write_file_of(opened, path, zeros, None))
    }

    fn open_inode(&self, path: &Path) -> Result<(Inode, Handle)> {
        self.shared.simple(OpKind::Open, "open", path, |state| {
            Ok((found(state.disk.find(path).cloned())?, self.shared.handles.take()?))
        })
    }

    fn write_file_of(
        &self,
        (inode, _handle): (Inode, Handle),
        path: &Path,
        zeros: usize,
        over_from: Option<u64>,
    ) -> Box<dyn WriteFile> {
        let (shared, path, poison) = (self.shared.clone(), path.to_owned(), Arc::default());
        Box::new(SimWriteFile { shared, inode, path, len: 0, poison, zeros, over_from, _handle })
    }
}

impl Env for SimEnv {
    fn create(&self, path: &Path) -> Result<Box<dyn WriteFile>> {
        self.create_with(path, 0)
    }

    fn create_log(&self, path: &Path) -> Result<Box<dyn WriteFile>> {
        self.create_with(path, self.zeros())
    }

    fn reuse_log(&self, old: &Path, path: &Path) -> Result<Option<Box<dyn WriteFile>>> {
        let opened = self.open_inode(old)?;
        Ok(Some(self.write_file_of(opened, path, self.zeros(), Some(0))))
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn ReadFile>> {
        let (inode, _handle) = self.open_inode(path)?;
        Ok(Arc::new(SimReadFile { shared: self.shared.clone(), inode, path: path.to_owned(), _handle }))
    }

    fn list(&self, dir: &Path) -> Result<Vec<String>> {
        let mut names =
            self.shared.simple(OpKind::List, "list", dir, |state| found(state.disk.names(dir)))?;
        Rng::new(self.shared.seed ^ names.len() as u64).shuffle(&mut names);
        Ok(names)
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        self.shared.simple(OpKind::Stat, "look for", path, |state| {
            Ok(state.disk.find(path).is_some() || state.disk.has_dir(path))
        })
    }

    fn len(&self, path: &Path) -> Result<u64> {
        self.shared
            .simple(OpKind::Stat, "stat", path, |state| found(state.disk.find(path)).map(|i| i.lock().len()))
    }

    fn create_dir(&self, dir: &Path) -> Result<()> {
        self.shared.simple(OpKind::CreateDir, "create directory", dir, |state| {
            state.disk.create_dir(dir).ok_or_else(|| io::ErrorKind::NotADirectory.into())
        })
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        check_same_dir(from, to)?;
        self.shared.simple(OpKind::Rename, "rename", from, |state| found(state.disk.rename(from, to)))
    }

    fn link(&self, from: &Path, to: &Path) -> Result<bool> {
        check_other_dir(from, to)?;
        self.shared.op(OpKind::Link, to, |state, fault| {
            if let Some(fault) = fault {
                return Err(fault.error("link", to));
            }
            if !self.shared.has_links.load(Ordering::SeqCst) {
                return Ok(false);
            }
            state.check_new(to, "link")?;
            found(state.disk.link(from, to)).map(|()| true).map_err(|e| Error::io("link", from, e))
        })
    }

    fn name_count(&self, path: &Path) -> Result<u64> {
        self.shared.simple(OpKind::Stat, "stat", path, |state| found(state.disk.name_count(path)))
    }

    fn stamp(&self, path: &Path) -> Result<Option<FileStamp>> {
        self.shared.simple(OpKind::Stat, "stat", path, |state| {
            found(state.disk.find(path)).map(|file| Some(file.lock().stamp()))
        })
    }

    fn remove(&self, path: &Path) -> Result<()> {
        self.shared.simple(OpKind::Remove, "remove", path, |state| found(state.disk.remove(path)))
    }

    fn sync_file(&self, path: &Path) -> Result<()> {
        self.shared.op(OpKind::Sync, path, |state, fault| {
            let inode = found(state.disk.find(path)).map_err(|e| Error::io("sync", path, e))?;
            sync_inode(inode, None, fault, path)
        })
    }

    fn sync_dir(&self, dir: &Path) -> Result<()> {
        self.shared.op(OpKind::SyncDir, dir, |state, fault| {
            if let Some(fault) = fault {
                if fault.hits_the_sync() {
                    state.disk.fail_sync_dir(dir);
                }
                return Err(fault.error("sync directory", dir));
            }
            found(state.disk.sync_dir(dir)).map_err(|e| Error::io("sync directory", dir, e))
        })
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn FileLock>> {
        let key = normal(path);
        self.shared.op(OpKind::Lock, path, |state, fault| {
            if let Some(fault) = fault {
                return Err(fault.error("lock", path));
            }
            if state.disk.find(path).is_none() {
                found(state.disk.create(path)).map_err(|e| Error::io("lock", path, e))?;
            }
            if !state.locks.insert(key.clone()) {
                let message = format!("{}: the database is locked: it is open already", path.display());
                return Err(Error::new(ErrorKind::Locked, message));
            }
            Ok(())
        })?;
        Ok(Box::new(SimLock { shared: self.shared.clone(), key }))
    }

    fn lock_shared(&self, path: &Path, at: u64) -> Result<Box<dyn FileLock>> {
        let key = self.shared.simple(OpKind::Lock, "lock", path, |state| {
            let key = (found(state.disk.find(path))?.lock().stamp().file, at);
            *state.shared_locks.entry(key).or_default() += 1;
            Ok(key)
        })?;
        Ok(Box::new(SimSharedLock { shared: self.shared.clone(), key }))
    }

    fn first_shared_lock(&self, path: &Path) -> Result<Option<u64>> {
        let state = self.state();
        let Some(file) = state.disk.find(path).map(|file| file.lock().stamp().file) else { return Ok(None) };
        let mut locks = state.shared_locks.range((file, 0)..=(file, u64::MAX));
        Ok(locks.next().map(|((_, at), _)| *at))
    }

    fn free_space(&self, _dir: &Path) -> Option<u64> {
        let state = self.state();
        Some(state.capacity.map_or(UNLIMITED, |capacity| capacity.saturating_sub(state.disk.used())))
    }

    fn allocate(&self, path: &Path, len: u64) -> Result<()> {
        check_file_len("allocate", path, len, self.max_file_len())?;
        self.shared.op(OpKind::Allocate, path, |state, fault| {
            if let Some(fault) = fault {
                return Err(fault.error("allocate", path));
            }
            state.check_new(path, "allocate")?;
            state.allocate(path, len).map_err(|e| Error::io("allocate", path, e))
        })
    }

    fn max_open_files(&self) -> usize {
        self.shared.handles.max()
    }

    fn max_file_len(&self) -> u64 {
        self.shared.max_file_len.load(Ordering::SeqCst)
    }

    fn memory(&self) -> u64 {
        self.shared.memory.size.load(Ordering::SeqCst)
    }

    fn monotonic(&self) -> Duration {
        Duration::from_nanos(self.shared.clock_ns.fetch_add(TICK_NS, Ordering::SeqCst))
    }

    fn wall_clock(&self) -> Time {
        Time::from_micros(self.shared.wall_us.load(Ordering::SeqCst))
    }

    fn sleep(&self, time: Duration) {
        self.shared.clock_ns.fetch_add(time.as_nanos() as u64, Ordering::SeqCst);
        std::thread::yield_now();
    }
}
