//! The lock file of [`crate::RealEnv`].
//!
//! Three kinds of lock are on offer, and each fails in one of the cases that matter:
//! - POSIX record locks (`fcntl`) belong to the process. A second open in the same process succeeds, and closing *any*
//!   descriptor of the file, by a backup tool running inside the process say, silently releases the lock.
//! - OFD locks and `flock` belong to the open file. A second open conflicts wherever it comes from, and unrelated closes do
//!   no harm; but a forked child shares the open file and so the lock.
//!
//! We take `flock`, and close its gap with the process id. The child's copy refuses to be used
//! ([`FileLock::check_owner`]); dropping it closes a shared descriptor, which leaves the lock with the parent; and an attempt
//! of the child to lock anew fails like any other's. The parent unlocks explicitly: a mere close would leave the lock with
//! any child that is just between `fork` and `exec`, and reopening would fail at random. If the parent is killed, the
//! lock lasts until such a child ends or executes another program (the descriptor is close-on-exec): a wait, never two
//! writers.
//!
//! A table of the (device, inode) pairs that this process holds stands beside it. It gives the better message, and it
//! holds where `flock` is emulated per process or does nothing, as on some network file systems.

use crate::FileLock;
use crate::limits::max_file_len;
use base::{Error, ErrorKind, Result};
use parking_lot::Mutex;
use rustix::fs::{FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Identity of a file, whatever path leads to it.
type Id = (u64, u64);

/// Files that this process holds locked, each with the id of the process: a forked child inherits the table, not the locks.
static HELD: Mutex<BTreeSet<(u32, Id)>> = Mutex::new(BTreeSet::new());

/// How long to wait for [`HELD`], which is held for microseconds. Longer means that it was held in another thread while
/// this process was forked, and nobody is left to release it.
const HELD_TIMEOUT: Duration = Duration::from_secs(2);

/// How often to open the file anew when it is replaced under our hands.
const ATTEMPTS: usize = 8;

pub(crate) struct RealLock {
    path: PathBuf,
    pid: u32,
    id: Id,
    file: File,
}

impl RealLock {
    /// Locks `path` without waiting. With `write` it is created if need be, and says who holds it.
    pub(crate) fn take(path: &Path, write: bool) -> Result<RealLock> {
        for _ in 0..ATTEMPTS {
            let pid = std::process::id();
            let mut held = HELD.try_lock_for(HELD_TIMEOUT).ok_or_else(|| {
                locked(path, "this process was forked while a thread took a lock; open it in the parent")
            })?;
            let check_free = |id: Id| match held.contains(&(pid, id)) {
                true => Err(locked(path, "it is open in this process already")),
                false => Ok(()),
            };
            // Asked before the file is opened: where locks are emulated per process, closing a second descriptor would
            // release the lock of the first.
            if let Ok(stat) = rustix::fs::lstat(path) {
                check_free((stat.st_dev, stat.st_ino))?;
            }
            let file = open(path, write)?;
            let id = identity(&file, path)?;
            check_free(id)?;
            lock_file(&file, path)?;
            // Somebody may have removed or replaced the file between the opening and the locking; then our lock guards a
            // file that nobody else will look at.
            match rustix::fs::lstat(path) {
                Ok(stat) if (stat.st_dev, stat.st_ino) == id => {}
                _ => continue,
            }
            held.insert((pid, id));
            drop(held);
            // For people and for the other side's message; the lock does not depend on it, so failures are ignored.
            // Not beyond `RLIMIT_FSIZE`, though: that would end the process.
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
    fn check_owner(&self) -> Result<()> {
        if std::process::id() == self.pid {
            return Ok(());
        }
        Err(locked(
            &self.path,
            format_args!(
                "it was opened by process {} and cannot be used in its forked child {}",
                self.pid,
                std::process::id()
            ),
        ))
    }

    fn check_place(&self) -> Result<()> {
        match rustix::fs::lstat(&self.path) {
            Ok(stat) if (stat.st_dev, stat.st_ino) == self.id => Ok(()),
            // It could not be looked for, which says nothing.
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
    loop {
        return match rustix::fs::open(path, flags, Mode::from_raw_mode(0o644)) {
            Ok(fd) => Ok(File::from(fd)),
            Err(Errno::INTR) => continue,
            Err(Errno::LOOP) => {
                let cause =
                    io::Error::other("it is a symbolic link, which would let two databases share one lock");
                Err(Error::io("lock", path, cause))
            }
            Err(e) => Err(Error::io("lock", path, e.into())),
        };
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
    loop {
        return match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(()),
            Err(Errno::INTR) => continue,
            Err(Errno::WOULDBLOCK) => Err(locked(path, holder(file))),
            Err(e) => Err(Error::io("lock", path, e.into())),
        };
    }
}

/// Who holds the lock, as far as the file tells.
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
