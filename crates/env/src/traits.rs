//! The contract between the engine and its environment: the trait [`Env`] and the traits of what it opens.
//!
//! Every crate above uses these traits only. [`crate::RealEnv`] and [`crate::SimEnv`] implement them. Defines no behaviour of its
//! own except defaults that are correct for every implementation.

use base::{Error, ErrorKind, Result, Time};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Minimum number of zero bytes behind the end of a recycled log.
pub const LOG_END: usize = 32;

/// The unit of the reads of [`ReadFile::read_readable_at`] after a larger read failed.
const SECTOR: usize = 4 << 10;

/// The operating system, as the engine sees it. Paths are complete paths.
///
/// An implementation must not call back into the store that uses it. The error of each method names the file. EINTR
/// and short reads and writes never reach the caller.
pub trait Env: Send + Sync + 'static {
    /// Creates a file for appending; it must not exist.
    fn create(&self, path: &Path) -> Result<Box<dyn WriteFile>>;
    /// Creates a log: a file for many small appends. Zeros may follow its end; see [`WriteFile::trim`].
    fn create_log(&self, path: &Path) -> Result<Box<dyn WriteFile>> {
        self.create(path)
    }
    /// Opens the unneeded log `old` to overwrite it from its start; `None` where recycling gains nothing over a new
    /// file. Errors name `path`, the name that the caller gives to the file. The old content stays behind the
    /// appended data. At least [`LOG_END`] zeros separate the two (fewer only at the end of the file), so that
    /// readers find the end. A sync makes the appended data and those zeros durable; the old content behind them may
    /// or may not reach the disk. [`WriteFile::trim`] and [`WriteFile::truncate`] cut the old content off.
    fn reuse_log(&self, old: &Path, path: &Path) -> Result<Option<Box<dyn WriteFile>>> {
        let _ = (old, path);
        Ok(None)
    }
    /// Opens a file for reading.
    fn open(&self, path: &Path) -> Result<Arc<dyn ReadFile>>;
    /// The names of the files in a directory, unordered. Omits directories and names that are not UTF-8.
    fn list(&self, dir: &Path) -> Result<Vec<String>>;
    /// Whether a directory has no entries of any kind or name.
    fn is_empty_dir(&self, dir: &Path) -> Result<bool> {
        Ok(self.list(dir)?.is_empty())
    }
    /// The canonical form of `path`, without links. The path need not exist.
    fn canonical(&self, path: &Path) -> Result<PathBuf> {
        Ok(path.to_owned())
    }
    /// Whether the file or directory exists.
    fn exists(&self, path: &Path) -> Result<bool>;
    /// Length of the file, in bytes.
    fn len(&self, path: &Path) -> Result<u64>;
    /// Creates a directory and its parents. Succeeds if the directory exists. The directories created are durable on
    /// return.
    fn create_dir(&self, dir: &Path) -> Result<()>;
    /// Renames a file over another in the same directory, atomically. Durable once the directory is synced.
    fn rename(&self, from: &Path, to: &Path) -> Result<()>;
    /// Gives the file `from` a second name, `to`, in another directory (a hard link). Durable once that directory is synced. Returns `false`,
    /// without an effect, where the system cannot: the directory is on another file system, or on one without hard links, or the file has
    /// too many. `to` must not exist.
    fn link(&self, from: &Path, to: &Path) -> Result<bool> {
        let _ = (from, to);
        Ok(false)
    }
    /// The number of names that the file has: more than one after [`Env::link`], or if a user has linked it.
    fn name_count(&self, path: &Path) -> Result<u64> {
        let _ = path;
        Ok(1)
    }
    /// What tells the present state of a file from all others; `None` where the system does not say.
    fn stamp(&self, path: &Path) -> Result<Option<FileStamp>> {
        let _ = path;
        Ok(None)
    }
    /// Removes a file.
    fn remove(&self, path: &Path) -> Result<()>;
    /// Makes the content of an existing file durable, including data that an earlier process appended but did not
    /// sync. Proves nothing about pages for which an earlier sync failed.
    fn sync_file(&self, path: &Path) -> Result<()>;
    /// Makes creations, renames and removals in `dir` durable.
    fn sync_dir(&self, dir: &Path) -> Result<()>;
    /// Takes an exclusive lock on `path` and creates the file if needed. Fails with `ErrorKind::Locked` if this
    /// process or another one holds the lock. The lock ends when the value is dropped or the process ends.
    fn lock(&self, path: &Path) -> Result<Box<dyn FileLock>>;
    /// The same lock on an existing file, for read-only access: writes nothing to the file.
    fn lock_read_only(&self, path: &Path) -> Result<Box<dyn FileLock>> {
        self.lock(path)
    }
    /// Takes a shared lock on the byte `at` of an existing file, which the file need not have: it says that its holder is there, and excludes
    /// nothing. Writes nothing, so the file system may be read-only. Any number of holders may lock a byte. The lock ends when the value is dropped
    /// or the process ends, however it ends.
    ///
    /// `Unsupported` where the system or the file system has no such locks.
    fn lock_shared(&self, path: &Path, at: u64) -> Result<Box<dyn FileLock>> {
        let _ = at;
        Err(Error::new(ErrorKind::Unsupported, format!("{}: there are no shared locks here", path.display())))
    }
    /// The first byte of the file with a shared lock of [`Env::lock_shared`], of any process; `None` if there is none, or there is no such file.
    fn first_shared_lock(&self, path: &Path) -> Result<Option<u64>> {
        let _ = path;
        Ok(None)
    }
    /// Bytes that this process may still use on the file system of `dir`; `None` if unknown.
    fn free_space(&self, dir: &Path) -> Option<u64>;
    /// Creates a file that takes `len` bytes of disk space; removing the file frees them. The file must not exist.
    /// Its content is undefined. Neither the file nor its directory entry is durable: a crash may lose or shorten it.
    /// After an error there is no file.
    fn allocate(&self, path: &Path, len: u64) -> Result<()>;
    /// How many files the process may have open at once.
    fn max_open_files(&self) -> usize;
    /// Maximum length of a file that this process writes. An append beyond it fails with `ErrorKind::NoSpace` and
    /// names the file.
    fn max_file_len(&self) -> u64 {
        u64::MAX
    }
    /// Memory that the process may use, including the page cache that it fills, in bytes; 0 if unknown. Used to
    /// decide how much to read ahead.
    fn memory(&self) -> u64 {
        0
    }
    /// Monotonic time since a fixed moment. For metrics and rate limits, never for decisions about data.
    fn monotonic(&self) -> Duration;
    /// The time of the wall clock, which may step back and forth: the time of a version of a key, unless a later one is known.
    fn wall_clock(&self) -> Time;
    /// Blocks the calling thread.
    fn sleep(&self, time: Duration);
}

/// What changes when a file is written to, or another one takes its name: two equal stamps of one name are of the same content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileStamp {
    /// The file system.
    pub device: u64,
    /// The file in it, independent of its names (inode number).
    pub file: u64,
    /// When it was last written to, in nanoseconds since 1970.
    pub modified: u64,
    /// Its length, in bytes.
    pub len: u64,
}

/// A file that grows at its end. Used by one thread at a time.
pub trait WriteFile: Send + Sync {
    /// Appends `data`. On success the operating system has all of it. An append to a file of [`Env::create`] may wait
    /// until the disk has earlier ones. After an error an unknown prefix of `data` may be in the file. The next append
    /// starts behind the last successful one and overwrites the remains. [`WriteFile::truncate`] removes them. The error
    /// kind `ReadOnly` means that a sync of the file, or such a wait, has failed: the file is poisoned, see
    /// [`WriteFile::sync`].
    fn append(&mut self, data: &[u8]) -> Result<()>;
    /// Makes all appended data and the length of the file durable.
    ///
    /// After an error the file is poisoned: every later sync, append or truncation fails. (Linux marks the failed pages
    /// clean, so a retry that succeeds proves nothing.)
    fn sync(&mut self) -> Result<()>;
    /// Has the disk write what it lacks, in portions, so that reads do not wait behind all of it as behind a [`WriteFile::sync`]. A sync is
    /// still needed, and finds little to do. An error poisons the file, as that of a sync does.
    fn write_back(&mut self) -> Result<()> {
        Ok(())
    }
    /// Cuts the file to `len` bytes, at most its present length. Removes the remains of a failed append.
    fn truncate(&mut self, len: u64) -> Result<()>;
    /// Cuts off the bytes behind the end of a log: zeros that make appends cheap ([`Env::create_log`]) and the
    /// content of a recycled log ([`Env::reuse_log`]). Best effort; appends may follow. Without it, and after a
    /// crash, the file may be longer than the appended data, and a sync may make the zeros durable too.
    fn trim(&mut self) {}
    /// There is nothing to append. The first call promises that more follow, about ten times a second while that is so.
    /// From then on a file of [`Env::create_log`] may take a lease while the append rate is high: another open of the
    /// file, or a truncation by name, then waits until the lease is given back. That happens in the call that comes a
    /// tenth of a second after an append. Cheap if there is no lease.
    fn on_idle(&mut self) {}
    /// The sync of the first `len` bytes, which are appended, for a thread that syncs them while this one appends.
    fn front(&self, len: u64) -> FrontSync;
}

/// Makes the first bytes of a [`WriteFile`] durable; data behind them may become durable too. Keeps the file open.
/// After an error the [`WriteFile`] is poisoned, and after an error of a sync of the [`WriteFile`] this fails.
pub type FrontSync = Arc<dyn Fn() -> Result<()> + Send + Sync>;

/// A file open for reading. Shared by threads.
#[allow(clippy::len_without_is_empty)]
pub trait ReadFile: Send + Sync {
    /// Fills `buf` from `offset`. If the file ends before, returns a `Corruption` error that names the file and the
    /// offset.
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()>;
    /// The same, but without waiting for the disk: succeeds only if the operating system has all bytes in memory.
    /// Returns `false` if the read would wait; `buf` then has undefined content. Errors are also reported as `false`:
    /// the caller repeats the read with [`ReadFile::read_exact_at`], which returns the error. Waits where the
    /// operating system cannot tell.
    ///
    /// This allows many concurrent reads without threads: the caller calls [`ReadFile::will_need`] for each read that
    /// would wait, and then waits for them one after the other.
    fn try_read_cached(&self, buf: &mut [u8], offset: u64) -> Result<bool> {
        self.read_exact_at(buf, offset).map(|()| true)
    }
    /// For salvage: the same, but sectors that cannot be read become zeros. Returns whether all of them were read.
    fn read_readable_at(&self, buf: &mut [u8], offset: u64) -> bool {
        if self.read_exact_at(buf, offset).is_ok() {
            return true;
        }
        let (mut at, mut all) = (0, true);
        while at < buf.len() {
            let in_sector = ((offset + at as u64) % SECTOR as u64) as usize;
            let to = (at + SECTOR - in_sector).min(buf.len());
            if self.read_exact_at(&mut buf[at..to], offset + at as u64).is_err() {
                buf[at..to].fill(0);
                all = false;
            }
            at = to;
        }
        all
    }
    /// Length in bytes.
    fn len(&self) -> Result<u64>;
    /// Hint that `len` bytes from `offset` will be read soon, in order. Does not wait for the data, but may wait
    /// until the disk queue accepts the requests.
    fn will_need(&self, offset: u64, len: u64);
    /// Hint that `len` bytes from `offset` will not be read again soon.
    fn wont_need(&self, offset: u64, len: u64);
    /// Hint that reads of this handle are at random offsets: the operating system should not read ahead, except where
    /// [`ReadFile::will_need`] asks for it.
    fn expect_random(&self) {}
    /// The path of the file, for messages.
    fn path(&self) -> &PathBuf;
}

/// The lock on a database directory. Held while the value lives.
///
/// A forked child inherits the value without the right to use it ([`ForkGuard`](crate::ForkGuard) tells the two
/// processes apart); dropping the copy does not release the lock.
pub trait FileLock: Send + Sync {
    /// Fails with `ErrorKind::Locked` if the path of the lock names another file now, or none: the directory was
    /// moved or replaced. Writes by path would then go to the wrong directory. Costs one system call.
    fn check_place(&self) -> Result<()> {
        Ok(())
    }
}
