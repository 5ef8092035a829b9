//! The lock file of [`crate::RealEnv`].
//!
//! Each of the three kinds of file lock fails in one case that matters:
//! - POSIX record locks (`fcntl`) belong to the process. A second open in the same process succeeds, and closing
//!   *any* descriptor of the file silently releases the lock, for example in a backup tool inside the process.
//! - OFD locks and `flock` belong to the open file. Any second open conflicts, and unrelated closes are harmless. But
//!   a forked child shares the open file and thus the lock.
//!
//! Cairn uses `flock`, and stores the process id to detect a fork. (That the child does not use the database is
//! checked with [`crate::ForkGuard`].) Dropping the copy closes a shared descriptor, and the parent keeps the lock. An
//! attempt of the child to take the lock again fails as in any other process. The parent unlocks explicitly: after a
//! mere close, a child between `fork` and `exec` would still hold the lock, and reopening would fail at random. If
//! the parent is killed, the lock lasts until that child ends or executes another program (the descriptor is
//! close-on-exec). This can delay an open, but never admits two writers.
//!
//! In addition, a table holds the (device, inode) pairs that this process has locked. It allows a better error
//! message, and it protects where `flock` is emulated per process or has no effect, as on some network file systems.

use super::limits::max_file_len;
use crate::traits::FileLock;
use base::{Error, ErrorKind, Result};
use parking_lot::Mutex;
use rustix::fs::{FileType, FlockOperation, Mode, OFlags};
use rustix::io::{Errno, retry_on_intr};
use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Identity of a file, independent of its path: device and inode.
type Id = (u64, u64);

/// The files that this process has locked, with its process id: a forked child inherits the table, but not the locks.
static HELD: Mutex<BTreeSet<(u32, Id)>> = Mutex::new(BTreeSet::new());

/// How long to wait for [`HELD`], which threads hold for microseconds only. A longer wait means that the process was
/// forked while another thread held it, so that no thread in the child will release it.
const HELD_TIMEOUT: Duration = Duration::from_secs(2);

/// How many times to reopen the lock file if another process replaces it between open and lock.
const ATTEMPTS: usize = 8;

pub(super) struct RealLock {
    path: PathBuf,
    pid: u32,
    id: Id,
    file: File,
}

impl RealLock {
    /// Locks `path` without waiting. With `write`, creates the file if needed and writes the process id into it.
    pub(super) fn take(path: &Path, write: bool) -> Result<RealLock> {
        for _ in 0..ATTEMPTS {
            let pid = std::process::id();
            let mut held = HELD.try_lock_for(HELD_TIMEOUT).ok_or_else(|| {
                locked(path, "this process was forked while a thread took a lock; open it in the parent")
            })?;
            let check_free = |id: Id| match held.contains(&(pid, id)) {
                true => Err(locked(path, "it is open in this process already")),
                false => Ok(()),
            };
            // Check before opening the file: where locks are emulated per process, closing a second descriptor would
            // release the lock of the first.
            if let Ok(stat) = rustix::fs::lstat(path) {
                check_free((stat.st_dev, stat.st_ino))?;
            }
            let file = open(path, write)?;
            let id = identity(&file, path)?;
            check_free(id)?;
            lock_file(&file, path)?;
            // Another process may have removed or replaced the file between open and lock. The lock would then be on
            // a file that no path names.
            match rustix::fs::lstat(path) {
                Ok(stat) if (stat.st_dev, stat.st_ino) == id => {}
                _ => continue,
            }
            held.insert((pid, id));
            drop(held);
            // The process id is for people and for the error message of another process. The lock does not depend on
            // it, so failures are ignored. Do not write beyond `RLIMIT_FSIZE`: that would kill the process.
            if write {
                let text = format!("{pid}\n");
                let _ = file.set_len(0);
                if text.len() as u64 <= max_file_len() {
                    let _ = file.write_all_at(text.as_bytes(), 0);
                }
            }
            return Ok(RealLock { path: path.to_owned(), pid, id, file });
        }
        Err(locked(path, "the lock file keeps being replaced"))
    }
}

impl FileLock for RealLock {
    fn check_place(&self) -> Result<()> {
        match rustix::fs::lstat(&self.path) {
            Ok(stat) if (stat.st_dev, stat.st_ino) == self.id => Ok(()),
            // The lookup failed, which says nothing about the file.
            Err(e) if e != Errno::NOENT && e != Errno::NOTDIR => Ok(()),
            _ => Err(locked(
                &self.path,
                "it is not the file that was locked: the directory was moved or replaced while the database was open",
            )),
        }
    }
}

impl Drop for RealLock {
    fn drop(&mut self) {
        if std::process::id() == self.pid {
            let mut held = HELD.lock();
            let _ = rustix::fs::flock(&self.file, FlockOperation::Unlock);
            held.remove(&(self.pid, self.id));
        }
    }
}

fn open(path: &Path, write: bool) -> Result<File> {
    let access = if write { OFlags::RDWR | OFlags::CREATE } else { OFlags::RDONLY };
    let flags = access | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    match retry_on_intr(|| rustix::fs::open(path, flags, Mode::from_raw_mode(0o644))) {
        Ok(fd) => Ok(File::from(fd)),
        Err(Errno::LOOP) => {
            let cause =
                io::Error::other("it is a symbolic link, which would let two databases share one lock");
            Err(Error::io("lock", path, cause))
        }
        Err(e) => Err(Error::io("lock", path, e.into())),
    }
}

fn identity(file: &File, path: &Path) -> Result<Id> {
    let meta = file.metadata().map_err(|e| Error::io("lock", path, e))?;
    if FileType::from_raw_mode(meta.mode()) != FileType::RegularFile {
        return Err(Error::io("lock", path, io::Error::other("it is not a regular file")));
    }
    Ok((meta.dev(), meta.ino()))
}

fn lock_file(file: &File, path: &Path) -> Result<()> {
    match retry_on_intr(|| rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive)) {
        Ok(()) => Ok(()),
        Err(Errno::WOULDBLOCK) => Err(locked(path, holder(file))),
        Err(e) => Err(Error::io("lock", path, e.into())),
    }
}

/// Describes the holder of the lock from the process id in the file.
fn holder(file: &File) -> String {
    let mut text = [0u8; 20];
    let len = file.read_at(&mut text, 0).unwrap_or(0);
    match std::str::from_utf8(&text[..len]).ok().and_then(|t| t.trim().parse::<u32>().ok()) {
        Some(pid) if pid == std::process::id() => "it is open in this process already".to_owned(),
        Some(pid) => format!("it is open in process {pid}"),
        None => "it is open in another process".to_owned(),
    }
}

fn locked(path: &Path, why: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Locked, format!("{}: the database is locked: {why}", path.display()))
}
