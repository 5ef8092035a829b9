//! [`RealEnv`]: the operating system.
//!
//! Relies on: `fdatasync` makes data and length durable; `fsync` of a directory makes its entries durable; `rename`
//! replaces atomically. Does not rely on: a sync that succeeds after one that failed (see [`WriteFile::sync`]), a
//! write that takes all its bytes, a hint that has an effect.

use crate::limits::{self, SpareHandle, check_file_len};
use crate::lock::RealLock;
use crate::log::LogFile;
use crate::{Env, FileFront, FileLock, ReadFile, WriteFile, mapped, memory};
use base::{Error, ErrorKind, Result};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// The operating system as an [`Env`]. Its state: the start of [`Env::monotonic`], a spare handle for directory
/// syncs, and the directories whose sync failed.
pub struct RealEnv {
    start: Instant,
    spare: SpareHandle,
    /// Directories whose sync failed. As with files, they are not synced again until their database is reopened.
    failed_dirs: Mutex<BTreeMap<PathBuf, Error>>,
}

impl RealEnv {
    /// The environment of this process.
    #[allow(clippy::new_ret_no_self)]
    pub fn new() -> Arc<dyn Env> {
        Arc::new(RealEnv { start: Instant::now(), spare: SpareHandle::new(), failed_dirs: Mutex::default() })
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
        let log = LogFile::over(RealWriteFile::new(file, path)).map_err(|e| Error::io("stat", old, e))?;
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
            // process.
            if let Some(parent) = parent {
                let _ = self.sync_dir(parent);
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

    fn remove(&self, path: &Path) -> Result<()> {
        fs::remove_file(path).map_err(|e| Error::io("remove", path, e))
    }

    fn sync_file(&self, path: &Path) -> Result<()> {
        let sync = || File::open(path)?.sync_data();
        self.spare.lend(sync).map_err(|e| Error::io("sync", path, e))
    }

    fn sync_dir(&self, dir: &Path) -> Result<()> {
        let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
        // Hold the lock during the sync. Otherwise a concurrent sync that starts after a failed one could succeed and
        // seem to prove durability.
        let mut failed = self.failed_dirs.lock();
        if let Some(cause) = failed.get(dir) {
            return Err(poisoned(cause));
        }
        let fail = |e| Error::io("sync directory", dir, e);
        let sync = || Ok(File::open(dir)?.sync_all());
        self.spare.lend(sync).map_err(fail)?.map_err(|e| {
            let error = fail(e);
            failed.insert(dir.to_owned(), error.clone());
            error
        })
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn FileLock>> {
        // Opening a database reads everything from disk again, so syncs of its directory may restart.
        path.parent().and_then(|dir| self.failed_dirs.lock().remove(dir));
        Ok(Box::new(RealLock::take(path, true)?))
    }

    fn lock_to_look(&self, path: &Path) -> Result<Box<dyn FileLock>> {
        Ok(Box::new(RealLock::take(path, false)?))
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

    fn sleep(&self, time: Duration) {
        std::thread::sleep(time);
    }
}

fn create_new(path: &Path) -> Result<File> {
    // Open for reading too: a file that is not readable cannot be mapped.
    OpenOptions::new().read(true).write(true).create_new(true).open(path).map_err(|e| match e.kind() {
        io::ErrorKind::AlreadyExists => Error::io("create", path, e).with_kind(ErrorKind::AlreadyExists),
        _ => Error::io("create", path, e),
    })
}

/// Rejects a rename between directories: file systems differ in what survives a crash.
pub(crate) fn check_same_dir(from: &Path, to: &Path) -> Result<()> {
    if from.parent() == to.parent() {
        return Ok(());
    }
    Err(Error::invalid(format!("rename {} to {}: not the same directory", from.display(), to.display())))
}

pub(crate) struct RealWriteFile {
    pub(crate) file: Arc<File>,
    path: PathBuf,
    pub(crate) len: u64,
    /// The maximum length when the file was created. The limit rarely changes, and a check costs a tenth of a write.
    pub(crate) max_len: u64,
    syncs: Arc<Syncs>,
}

/// The syncs of a file, by its [`WriteFile`] and by its [`FileFront`].
#[derive(Default)]
struct Syncs {
    /// Held during a sync. The kernel reports an error once per open file: a concurrent sync could succeed after the
    /// report and before `poison` is set.
    running: Mutex<()>,
    poison: OnceLock<Error>,
}

impl Syncs {
    /// Syncs with `sync` and poisons the file on an error.
    fn run(&self, path: &Path, sync: impl FnOnce() -> io::Result<()>) -> Result<()> {
        let _running = self.running.lock();
        self.check_poison()?;
        sync().map_err(|e| self.poison.get_or_init(|| Error::io("sync", path, e)).clone())
    }

    fn check_poison(&self) -> Result<()> {
        self.poison.get().map_or(Ok(()), |e| Err(poisoned(e)))
    }
}

struct RealFront {
    file: Arc<File>,
    path: PathBuf,
    /// `None`: the whole file is synced.
    len: Option<u64>,
    syncs: Arc<Syncs>,
}

impl FileFront for RealFront {
    fn sync(&self) -> Result<()> {
        self.syncs.run(&self.path, || match self.len {
            Some(len) => mapped::sync_front(&self.file, len),
            None => self.file.sync_data(),
        })
    }
}

impl RealWriteFile {
    pub(crate) fn new(file: File, path: &Path) -> RealWriteFile {
        let (file, syncs) = (Arc::new(file), Arc::default());
        RealWriteFile { file, path: path.to_owned(), len: 0, max_len: limits::max_file_len(), syncs }
    }

    /// Writes beyond the end of the file; does not change `len`.
    pub(crate) fn write_at(&self, data: &[u8], offset: u64) -> Result<()> {
        self.file.write_all_at(data, offset).map_err(|e| Error::io("append to", &self.path, e))
    }

    /// Syncs with `sync` and poisons the file on an error.
    pub(crate) fn sync_by(&self, sync: impl FnOnce(&File) -> io::Result<()>) -> Result<()> {
        self.syncs.run(&self.path, || sync(&self.file))
    }

    /// The part of the file whose sync makes the first `len` bytes durable; `None` for the whole file.
    pub(crate) fn front_by(&self, len: Option<u64>) -> Arc<dyn FileFront> {
        let (file, syncs) = (self.file.clone(), self.syncs.clone());
        Arc::new(RealFront { file, path: self.path.clone(), len, syncs })
    }

    pub(crate) fn check_poison(&self) -> Result<()> {
        self.syncs.check_poison()
    }
}

/// The error of every call after a failed sync.
pub(crate) fn poisoned(cause: &Error) -> Error {
    cause.context("writing stopped after a failed sync").with_kind(ErrorKind::ReadOnly)
}

impl WriteFile for RealWriteFile {
    fn append(&mut self, data: &[u8]) -> Result<()> {
        self.check_poison()?;
        check_file_len("append to", &self.path, self.len + data.len() as u64, self.max_len)?;
        // Loops over short writes and EINTR. A write of zero bytes is an error.
        self.file.write_all_at(data, self.len).map_err(|e| Error::io("append to", &self.path, e))?;
        self.len += data.len() as u64;
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        self.sync_by(File::sync_data)
    }

    fn truncate(&mut self, len: u64) -> Result<()> {
        self.check_poison()?;
        check_truncate(&self.path, self.len, len)?;
        self.file.set_len(len).map_err(|e| Error::io("truncate", &self.path, e))?;
        self.len = len;
        Ok(())
    }

    fn front(&self, _len: u64) -> Arc<dyn FileFront> {
        self.front_by(None)
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn reserve(&mut self, len: u64) {
        #[cfg(target_os = "linux")]
        {
            use rustix::fs::{FallocateFlags, fallocate};
            let _ = fallocate(&*self.file, FallocateFlags::KEEP_SIZE, 0, len);
        }
        #[cfg(not(target_os = "linux"))]
        let _ = len;
    }
}

/// Rejects a truncation that would extend a file of `len` bytes.
pub(crate) fn check_truncate(path: &Path, len: u64, to: u64) -> Result<()> {
    if to <= len {
        return Ok(());
    }
    Err(Error::invalid(format!("truncate {}: {to} bytes is past its end at {len}", path.display())))
}

/// Minimum of the kernel's default readahead size.
#[cfg(target_os = "linux")]
const WILL_NEED_STEP: u64 = 128 << 10;

struct RealReadFile {
    file: File,
    path: PathBuf,
    /// The file system does not support non-blocking reads; do not try again.
    never_tells: AtomicBool,
}

impl RealReadFile {
    fn new(file: File, path: &Path) -> RealReadFile {
        RealReadFile { file, path: path.to_owned(), never_tells: AtomicBool::new(false) }
    }

    /// Reads what is in memory. `None` if the system does not support it.
    #[cfg(target_os = "linux")]
    fn read_now(&self, buf: &mut [u8], offset: u64) -> Option<bool> {
        use rustix::io::{Errno, ReadWriteFlags, preadv2};
        let len = buf.len();
        match preadv2(&self.file, &mut [io::IoSliceMut::new(buf)], offset, ReadWriteFlags::NOWAIT) {
            // A short read: the rest is not in memory, or lies behind the end of the file.
            Ok(read) => Some(read == len),
            // A sandbox returns the last two.
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL | Errno::PERM | Errno::ACCESS) => None,
            // The read that waits reports the error.
            Err(_) => Some(false),
        }
    }

    #[cfg(not(target_os = "linux"))]
    fn read_now(&self, _buf: &mut [u8], _offset: u64) -> Option<bool> {
        None
    }

    #[cfg(target_os = "linux")]
    fn advise(&self, offset: u64, len: u64, advice: rustix::fs::Advice) {
        // A length of 0 would mean "to the end of the file".
        if let Some(len) = std::num::NonZeroU64::new(len) {
            let _ = rustix::fs::fadvise(&self.file, offset, Some(len), advice);
        }
    }
}

impl ReadFile for RealReadFile {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.file.read_exact_at(buf, offset).map_err(|e| match e.kind() {
            io::ErrorKind::UnexpectedEof => ends_early(&self.path, offset, buf.len()),
            _ => Error::io(&format!("read {} bytes at offset {offset} of", buf.len()), &self.path, e),
        })
    }

    fn try_read_cached(&self, buf: &mut [u8], offset: u64) -> Result<bool> {
        if !self.never_tells.load(Ordering::Relaxed) {
            if let Some(there) = self.read_now(buf, offset) {
                return Ok(there);
            }
            self.never_tells.store(true, Ordering::Relaxed);
        }
        self.read_exact_at(buf, offset).map(|()| true)
    }

    fn len(&self) -> Result<u64> {
        self.file.metadata().map(|m| m.len()).map_err(|e| Error::io("stat", &self.path, e))
    }

    fn will_need(&self, offset: u64, len: u64) {
        // Linux limits one call to the device's maximum request or the readahead size, and ignores the rest.
        #[cfg(target_os = "linux")]
        for done in (0..len).step_by(WILL_NEED_STEP as usize) {
            self.advise(offset + done, WILL_NEED_STEP.min(len - done), rustix::fs::Advice::WillNeed);
        }
        #[cfg(not(target_os = "linux"))]
        let _ = (offset, len);
    }

    fn wont_need(&self, offset: u64, len: u64) {
        #[cfg(target_os = "linux")]
        self.advise(offset, len, rustix::fs::Advice::DontNeed);
        #[cfg(not(target_os = "linux"))]
        let _ = (offset, len);
    }

    fn expect_random(&self) {
        #[cfg(target_os = "linux")]
        let _ = rustix::fs::fadvise(&self.file, 0, None, rustix::fs::Advice::Random);
    }

    fn path(&self) -> &PathBuf {
        &self.path
    }
}

/// The error of a read past the end of a file.
pub(crate) fn ends_early(path: &Path, offset: u64, wanted: usize) -> Error {
    Error::corruption(
        path,
        offset,
        format_args!("the file ends before the {wanted} bytes that should be here"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn writer(file: File) -> RealWriteFile {
        RealWriteFile { max_len: u64::MAX, ..RealWriteFile::new(file, Path::new("test")) }
    }

    #[test]
    fn a_full_device_is_no_space_and_no_poison() {
        let mut file = writer(OpenOptions::new().write(true).open("/dev/full").unwrap());
        for _ in 0..2 {
            assert_eq!(file.append(b"data").unwrap_err().kind(), ErrorKind::NoSpace);
            assert_eq!(file.len(), 0);
        }
    }

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

    #[test]
    fn a_file_that_cannot_tell_what_is_in_memory_is_read_and_not_asked_again() {
        // A pipe cannot be read at an offset, so the error shows that the blocking read was tried.
        let (read, _write) = std::io::pipe().unwrap();
        let file = RealReadFile::new(File::from(std::os::fd::OwnedFd::from(read)), Path::new("pipe"));
        assert_eq!(
            file.try_read_cached(&mut [0; 4], 0).ok(),
            Some(false),
            "the blocking read reports errors"
        );
        file.never_tells.store(true, Ordering::Relaxed);
        let error = file.try_read_cached(&mut [0; 4], 0).unwrap_err();
        assert!(
            error.kind() == ErrorKind::Io && error.to_string().contains("4 bytes at offset 0 of pipe"),
            "{error}"
        );
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn where_nothing_tells_what_is_in_memory_the_read_waits() {
        // The files of procfs do not support non-blocking reads.
        let path = Path::new("/proc/version");
        let file = RealReadFile::new(File::open(path).unwrap(), path);
        for asked_before in [false, true] {
            assert_eq!(file.never_tells.load(Ordering::Relaxed), asked_before);
            let mut bytes = [0; 5];
            assert!(file.try_read_cached(&mut bytes, 0).unwrap());
            assert_eq!(&bytes, b"Linux");
        }
    }

    #[test]
    fn a_failed_sync_poisons() {
        let (_read, write) = std::io::pipe().unwrap();
        let mut file = writer(File::from(std::os::fd::OwnedFd::from(write)));
        assert_eq!(file.sync().unwrap_err().kind(), ErrorKind::Io);
        for error in [file.sync(), file.append(b"data"), file.truncate(0)] {
            let error = error.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ReadOnly);
            assert!(error.to_string().contains("sync test"), "{error}");
        }
    }
}
