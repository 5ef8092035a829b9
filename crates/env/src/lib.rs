//! Files, directories, locks and clocks behind one trait, [`Env`].
//!
//! [`RealEnv`] is the operating system. [`SimEnv`] is a disk in memory that keeps synced and unsynced state apart, can
//! crash at any operation and hand out one possible surviving disk ([`SimEnv::crash_clone`]), and fails operations by rule.
//! Everything above this crate reaches the outside world only through it.

mod fit;
mod limits;
mod lock;
mod log;
mod mapped;
mod memory;
mod real;
mod rng;
mod sim;

pub use mapped::ForkGuard;
pub use real::RealEnv;
pub use rng::Rng;
pub use sim::{Fault, Hook, OpInfo, OpKind, Phase, Repeat, SimEnv, Survival, Verdict};

use base::Result;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// So many zeros are behind the end of a log that is written over an older one.
pub const LOG_END: usize = 32;

/// The outside world, as the engine sees it. Paths are whole paths.
///
/// An implementation must not call back into the store that uses it. Every method names the file in its error. EINTR and short reads or writes never reach the caller.
pub trait Env: Send + Sync + 'static {
    /// Creates a file for appending; it must not exist.
    fn create(&self, path: &Path) -> Result<Box<dyn WriteFile>>;
    /// Creates a file that many small appends go to, each of which the operating system is to hold when it returns: see [`WriteFile::trim`].
    fn create_log(&self, path: &Path) -> Result<Box<dyn WriteFile>> {
        self.create(path)
    }
    /// Opens log `old`, which nobody needs any more, to be written anew from its start; `None` where that gains nothing over another file.
    /// Errors name `path`, which the caller renames it to. What is in it stays behind the end of what is appended, but for
    /// at least [`LOG_END`] zeros (fewer only where the file ends): so readers see where the end is. A sync makes durable what was
    /// appended and those zeros, and of the rest who knows what. [`WriteFile::trim`] and [`WriteFile::truncate`] cut all of it off.
    fn reuse_log(&self, old: &Path, path: &Path) -> Result<Option<Box<dyn WriteFile>>> {
        let _ = (old, path);
        Ok(None)
    }
    /// Opens a file for reading.
    fn open(&self, path: &Path) -> Result<Arc<dyn ReadFile>>;
    /// The names of the files in a directory, in no order. Directories and names that are not UTF-8 are left out.
    fn list(&self, dir: &Path) -> Result<Vec<String>>;
    /// Whether nothing at all is in a directory, of whatever kind and name.
    fn is_empty_dir(&self, dir: &Path) -> Result<bool> {
        Ok(self.list(dir)?.is_empty())
    }
    /// The one path that leads to where `path` leads, which need not be there.
    fn canonical(&self, path: &Path) -> Result<PathBuf> {
        Ok(path.to_owned())
    }
    /// Whether the file or directory exists.
    fn exists(&self, path: &Path) -> Result<bool>;
    /// Length of the file, in bytes.
    fn len(&self, path: &Path) -> Result<u64>;
    /// Creates a directory and its parents; one that exists is no error. What it created is durable when it returns.
    fn create_dir(&self, dir: &Path) -> Result<()>;
    /// Renames a file over another in the same directory, atomically. Durable once the directory is synced.
    fn rename(&self, from: &Path, to: &Path) -> Result<()>;
    /// Removes a file.
    fn remove(&self, path: &Path) -> Result<()>;
    /// Makes the content of an existing file durable: what an earlier process appended and may not have synced. It proves
    /// nothing about pages for which an earlier sync failed.
    fn sync_file(&self, path: &Path) -> Result<()>;
    /// Makes creations, renames and removals in `dir` durable.
    fn sync_dir(&self, dir: &Path) -> Result<()>;
    /// Takes an exclusive lock on `path`, which is created if need be. Fails with `ErrorKind::Locked` when this or another
    /// process holds it. The lock ends when the value is dropped or the process ends.
    fn lock(&self, path: &Path) -> Result<Box<dyn FileLock>>;
    /// The same lock on a file that exists, taken without writing anything: for those who only look.
    fn lock_to_look(&self, path: &Path) -> Result<Box<dyn FileLock>> {
        self.lock(path)
    }
    /// Bytes free for us on the file system of `dir`; `None` when unknown.
    fn free_space(&self, dir: &Path) -> Option<u64>;
    /// Creates a file of `len` bytes that takes this much space of the disk, so that removing it makes that space free; it
    /// must not exist. Its content is of no use. Neither the file nor its entry is made durable: a crash may lose it, or leave it
    /// shorter. On an error there is no file.
    fn allocate(&self, path: &Path, len: u64) -> Result<()>;
    /// How many files the process may hold open at once.
    fn max_open_files(&self) -> usize;
    /// How long a file may be that this process writes: an append beyond is an error that names the file, of kind
    /// `ErrorKind::NoSpace`.
    fn max_file_len(&self) -> u64 {
        u64::MAX
    }
    /// How much memory the process may use, the page cache that it fills included, in bytes; 0 where that cannot be told. For deciding
    /// what to read ahead.
    fn memory(&self) -> u64 {
        0
    }
    /// Time since some fixed moment; never goes back. For metrics and pacing, never for decisions about data.
    fn monotonic(&self) -> Duration;
    /// Blocks the calling thread.
    fn sleep(&self, time: Duration);
}

/// A file that grows at its end. Not shared between threads.
pub trait WriteFile: Send + Sync {
    /// Appends all of `data`: on success the operating system holds it. On an error an unknown prefix of `data` may have been
    /// appended; [`WriteFile::len`] still tells the length up to the last append that succeeded, and the next append goes
    /// there, over the remains of the failed one; [`WriteFile::truncate`] takes them back.
    fn append(&mut self, data: &[u8]) -> Result<()>;
    /// Makes everything appended so far durable (data and length).
    ///
    /// After an error the file is poisoned: this and every later sync or append fails (on Linux the failed pages are marked
    /// clean, so that a retry which succeeds proves nothing).
    fn sync(&mut self) -> Result<()>;
    /// Cuts the file back to `len` bytes, at most its present length: takes back a failed append.
    fn truncate(&mut self, len: u64) -> Result<()>;
    /// Cuts off what a log has behind its end: zeros, so that appending is cheap ([`Env::create_log`]), and what an earlier use of the
    /// file left ([`Env::reuse_log`]). Best effort; more may be appended.
    /// Without it, and after a crash, the file may be longer than what was appended; a sync may make the zeros durable, too.
    fn trim(&mut self) {}
    /// A promise: from now on the caller calls [`WriteFile::rest`] about ten times a second while nothing is appended. With it a file of
    /// [`Env::create_log`] may be kept from others while much is appended to it: whatever opens it, or cuts it by its name, then waits until the next rest.
    fn expect_rests(&mut self) {}
    /// Nothing is appended at present: lets others open the file, if nothing was for a tenth of a second. Costs nothing where there is nothing to do.
    fn rest(&mut self) {}
    /// Length in bytes, counting appends that succeeded.
    fn len(&self) -> u64;
    /// Whether nothing was appended.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Hints that the file will grow to about `len` bytes. Never changes its length; ignored where it cannot be had.
    fn reserve(&mut self, len: u64);
}

/// A file open for reading, shared between threads.
#[allow(clippy::len_without_is_empty)]
pub trait ReadFile: Send + Sync {
    /// Fills `buf` from `offset`. A file that ends before that is a `Corruption` error that names the file and offset.
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()>;
    /// [`ReadFile::read_exact_at`] if it need not wait for the disk, because the operating system has all of it in memory. `false` says
    /// that it would have to wait, and nothing else: `buf` then holds anything, and whoever wants these bytes reads them, which tells what is
    /// wrong with them, too. Where the operating system cannot tell it waits.
    ///
    /// So many reads are in flight at once without threads: for each that would have to wait [`ReadFile::will_need`] lets the disk
    /// begin, and they are waited for when all have begun.
    fn try_read_cached(&self, buf: &mut [u8], offset: u64) -> Result<bool> {
        self.read_exact_at(buf, offset).map(|()| true)
    }
    /// Length in bytes.
    fn len(&self) -> Result<u64>;
    /// Hints that `len` bytes from `offset` will be read soon, in order. Does not wait for them, but perhaps until the disk takes so many requests.
    fn will_need(&self, offset: u64, len: u64);
    /// Hints that `len` bytes from `offset` will not be read again soon.
    fn wont_need(&self, offset: u64, len: u64);
    /// Hints that reads of this handle go anywhere: what lies around them is not to be read with them, unless
    /// [`ReadFile::will_need`] asks for it.
    fn expect_random(&self) {}
    /// Where the file is, for messages.
    fn path(&self) -> &PathBuf;
}

/// A lock on a database directory, held while it lives.
///
/// A forked child inherits the value but not the right to use it: [`FileLock::check_owner`] fails there, and dropping the
/// copy does not release the lock.
pub trait FileLock: Send + Sync {
    /// Fails with `ErrorKind::Locked` in any process but the one that took the lock.
    fn check_owner(&self) -> Result<()>;
    /// Fails with `ErrorKind::Locked` when the path of the lock leads to another file by now, or to none: the directory was moved, or
    /// another one is in its place. What is written by path from then on goes to the wrong place. Costs a system call.
    fn check_place(&self) -> Result<()> {
        Ok(())
    }
}
