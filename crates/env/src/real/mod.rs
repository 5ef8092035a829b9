//! [`RealEnv`]: the operating system.
//!
//! Relies on: `fdatasync` makes data and length durable; `fsync` of a directory makes its entries durable; `rename`
//! replaces atomically. Does not rely on: a sync that succeeds after one that failed (see [`WriteFile::sync`]), a
//! write that takes all its bytes, a hint that has an effect.
//!
//! The files of this folder: `write_file` and `read_file` are ordinary files, `log` a log with a mapped end where `mappable`
//! allows one, `lock` the lock file, `shared_lock` locks of readers, `limits` and `memory` what the system grants to this process. They import the contract
//! (`crate::traits`), the checks shared with the simulated disk (`crate::checks`) and `crate::mapped`, and nothing of the
//! simulated disk.

mod limits;
mod lock;
mod log;
mod mappable;
mod memory;
mod read_file;
mod shared_lock;
mod write_file;

use crate::checks::{check_file_len, check_other_dir, check_same_dir, poisoned};
use crate::traits::{Env, FileLock, FileStamp, ReadFile, WriteFile};
use base::{Error, ErrorKind, Result, Time};
use limits::SpareHandle;
use lock::RealLock;
use log::LogFile;
use parking_lot::Mutex;
use read_file::RealReadFile;
use rustix::fs::{AtFlags, CWD};
use shared_lock::SharedLock;
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use write_file::RealWriteFile;

/// The operating system as an [`Env`]. Its state: the start of [`Env::monotonic`], a spare handle for directory
/// syncs, and the directories whose sync failed.
pub struct RealEnv {
    start: Instant,
    spare: SpareHandle,
    /// Directories that were synced, with the error of a sync that failed. As with files, they are not synced again until what is in them is
    /// locked anew.
    synced_dirs: Mutex<BTreeMap<PathBuf, Arc<Mutex<Option<Error>>>>>,
}

impl RealEnv {
    /// The environment of this process.
    #[allow(clippy::new_ret_no_self)]
    pub fn new() -> Arc<dyn Env> {
        Arc::new(RealEnv { start: Instant::now(), spare: SpareHandle::new(), synced_dirs: Mutex::default() })
    }
}

impl Env for RealEnv {
    fn create(&self, path: &Path) -> Result<Box<dyn WriteFile>> {
        Ok(Box::new(RealWriteFile::new(create_new(path)?, path)))
    }

    fn create_log(&self, path: &Path) -> Result<Box<dyn WriteFile>> {
        Ok(Box::new(LogFile::new(RealWriteFile::new(create_new(path)?, path))))
    }

    fn reuse_log(&self, old: &Path, path: &Path) -> Result<Option<Box<dyn WriteFile>>> {
        let file = OpenOptions::new().read(true).write(true).open(old);
        let file = file.map_err(|e| Error::io("open", old, e))?;
        let log = LogFile::recycle(RealWriteFile::new(file, path)).map_err(|e| Error::io("stat", old, e))?;
        Ok(log.map(|log| Box::new(log) as Box<dyn WriteFile>))
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn ReadFile>> {
        let file = File::open(path).map_err(|e| Error::io("open", path, e))?;
        Ok(Arc::new(RealReadFile::new(file, path)))
    }

    fn list(&self, dir: &Path) -> Result<Vec<String>> {
        let fail = |e| Error::io("list", dir, e);
        let mut names = Vec::new();
        for entry in fs::read_dir(dir).map_err(fail)? {
            let entry = entry.map_err(fail)?;
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => continue,
                // The file was removed after the directory was read.
                Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                kind => kind.map_err(fail)?,
            };
            names.extend(entry.file_name().into_string());
        }
        Ok(names)
    }

    fn is_empty_dir(&self, dir: &Path) -> Result<bool> {
        let fail = |e| Error::io("list", dir, e);
        match fs::read_dir(dir).map_err(fail)?.next() {
            None => Ok(true),
            Some(entry) => entry.map(|_| false).map_err(fail),
        }
    }

    fn canonical(&self, path: &Path) -> Result<PathBuf> {
        let fail = |e| Error::io("look for", path, e);
        let whole = std::path::absolute(path).map_err(fail)?;
        for there in whole.ancestors() {
            let found = match fs::canonicalize(there) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                found => found.map_err(fail)?,
            };
            // A component that does not exist is no link, so `..` after it can be resolved by text.
            let rest = whole.strip_prefix(there).expect("an ancestor").components();
            return Ok(rest.fold(found, |mut path, part| {
                match part {
                    Component::ParentDir => _ = path.pop(),
                    part => path.push(part),
                }
                path
            }));
        }
        Ok(whole)
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        path.try_exists().map_err(|e| Error::io("look for", path, e))
    }

    fn len(&self, path: &Path) -> Result<u64> {
        fs::metadata(path).map(|m| m.len()).map_err(|e| Error::io("stat", path, e))
    }

    fn create_dir(&self, dir: &Path) -> Result<()> {
        if dir.as_os_str().is_empty() {
            return Err(Error::invalid("the path of a directory must not be empty"));
        }
        let parent = dir.parent().map(|p| if p.as_os_str().is_empty() { Path::new(".") } else { p });
        if self.exists(dir)? {
            // The process that created it may have died before this sync. The parent may be unreadable for this
            // process. But where this process has failed to sync the parent, the name may be lost.
            if let Some(Err(e)) = parent.map(|parent| self.sync_dir(parent))
                && e.kind() == ErrorKind::ReadOnly
            {
                return Err(e);
            }
            return match fs::metadata(dir) {
                Ok(meta) if meta.is_dir() => Ok(()),
                Ok(_) => Err(Error::io("create directory", dir, io::ErrorKind::NotADirectory.into())),
                Err(e) => Err(Error::io("stat", dir, e)),
            };
        }
        if let Some(parent) = parent {
            self.create_dir(parent)?;
        }
        match fs::create_dir(dir) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => {
                return Err(Error::io("create directory", dir, e));
            }
            _ => {}
        }
        parent.map_or(Ok(()), |parent| self.sync_dir(parent))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        check_same_dir(from, to)?;
        fs::rename(from, to).map_err(|e| Error::io("rename", from, e))
    }

    fn link(&self, from: &Path, to: &Path) -> Result<bool> {
        check_other_dir(from, to)?;
        // A name that is a symbolic link stands for the file.
        let linked = rustix::fs::linkat(CWD, from, CWD, to, AtFlags::SYMLINK_FOLLOW).map_err(io::Error::from);
        match linked {
            Ok(()) => Ok(true),
            Err(e) if is_unlinkable(e.kind()) => Ok(false),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                Err(Error::io("link", to, e).with_kind(ErrorKind::AlreadyExists))
            }
            Err(e) => Err(Error::io("link", from, e)),
        }
    }

    fn name_count(&self, path: &Path) -> Result<u64> {
        fs::metadata(path).map(|m| m.nlink()).map_err(|e| Error::io("stat", path, e))
    }

    fn stamp(&self, path: &Path) -> Result<Option<FileStamp>> {
        let m = fs::metadata(path).map_err(|e| Error::io("stat", path, e))?;
        // Times before 1970 and after 2554 wrap around, which stays different from other times.
        let modified = (m.mtime() as u64).wrapping_mul(1_000_000_000).wrapping_add(m.mtime_nsec() as u64);
        Ok(Some(FileStamp { device: m.dev(), file: m.ino(), modified, len: m.len() }))
    }

    fn remove(&self, path: &Path) -> Result<()> {
        fs::remove_file(path).map_err(|e| Error::io("remove", path, e))
    }

    fn sync_file(&self, path: &Path) -> Result<()> {
        let sync = || File::open(path)?.sync_data();
        self.spare.with_spare(sync).map_err(|e| Error::io("sync", path, e))
    }

    fn sync_dir(&self, dir: &Path) -> Result<()> {
        let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
        // Hold the lock of the directory during the sync. Otherwise a concurrent sync that starts after a failed one could succeed and
        // seem to prove durability.
        let of_dir = self.synced_dirs.lock().entry(dir.to_owned()).or_default().clone();
        let mut failed = of_dir.lock();
        if let Some(cause) = &*failed {
            return Err(poisoned(cause));
        }
        let fail = |e| Error::io("sync directory", dir, e);
        let sync = || Ok(File::open(dir)?.sync_all());
        self.spare.with_spare(sync).map_err(fail)?.map_err(|e| {
            let error = fail(e);
            *failed = Some(error.clone());
            error
        })
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn FileLock>> {
        // Opening a database reads everything from disk again, so syncs of its directory, and of those in it, may restart.
        if let Some(dir) = path.parent() {
            self.synced_dirs.lock().retain(|synced, _| !synced.starts_with(dir));
        }
        Ok(Box::new(RealLock::take(path, true)?))
    }

    fn lock_read_only(&self, path: &Path) -> Result<Box<dyn FileLock>> {
        Ok(Box::new(RealLock::take(path, false)?))
    }

    fn lock_shared(&self, path: &Path, at: u64) -> Result<Box<dyn FileLock>> {
        Ok(Box::new(SharedLock::take(path, at)?))
    }

    fn first_shared_lock(&self, path: &Path) -> Result<Option<u64>> {
        shared_lock::first(path)
    }

    fn free_space(&self, dir: &Path) -> Option<u64> {
        let stat = rustix::fs::statvfs(dir).ok()?;
        stat.f_bavail.checked_mul(stat.f_frsize)
    }

    fn allocate(&self, path: &Path, len: u64) -> Result<()> {
        check_file_len("allocate", path, len, limits::max_file_len())?;
        let file = create_new(path)?;
        limits::fill(&file, len).map_err(|e| {
            let _ = fs::remove_file(path);
            Error::io("allocate", path, e)
        })
    }

    fn max_open_files(&self) -> usize {
        limits::max_open_files()
    }

    fn max_file_len(&self) -> u64 {
        limits::max_file_len()
    }

    fn memory(&self) -> u64 {
        memory::memory()
    }

    fn monotonic(&self) -> Duration {
        self.start.elapsed()
    }

    fn wall_clock(&self) -> Time {
        Time::from(SystemTime::now())
    }

    fn sleep(&self, time: Duration) {
        std::thread::sleep(time);
    }
}

/// Whether a hard link failed because none is possible there. A directory without permission to write gives the same error, and another one
/// when the file is copied to it.
fn is_unlinkable(kind: io::ErrorKind) -> bool {
    use io::ErrorKind::{CrossesDevices, PermissionDenied, TooManyLinks, Unsupported};
    matches!(kind, CrossesDevices | PermissionDenied | TooManyLinks | Unsupported)
}

fn create_new(path: &Path) -> Result<File> {
    // Open for reading too: a file that is not readable cannot be mapped.
    OpenOptions::new().read(true).write(true).create_new(true).open(path).map_err(|e| match e.kind() {
        io::ErrorKind::AlreadyExists => Error::io("create", path, e).with_kind(ErrorKind::AlreadyExists),
        _ => Error::io("create", path, e),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_sync_of_a_directory_poisons_until_it_is_opened_anew() {
        // The directories of procfs cannot be synced.
        let (env, dir) = (RealEnv::new(), Path::new("/proc"));
        assert_eq!(env.sync_dir(dir).unwrap_err().kind(), ErrorKind::Io);
        let error = env.sync_dir(dir).unwrap_err();
        assert!(error.kind() == ErrorKind::ReadOnly && error.to_string().contains("/proc"), "{error:?}");
        assert!(env.lock(&dir.join("LOCK")).is_err());
        assert_eq!(env.sync_dir(dir).unwrap_err().kind(), ErrorKind::Io);
        env.sync_dir(&std::env::temp_dir()).unwrap();
        assert_eq!(env.sync_dir(Path::new("/proc/nowhere")).unwrap_err().kind(), ErrorKind::NotFound);
    }
}
