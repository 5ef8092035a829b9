//! The files that [`super::RealEnv`] writes: appends by write(2), and syncs that poison the file when they fail.
//!
//! Large appends of all files but logs go to the disk at once, not all together at the sync: a sync of a whole table puts megabytes into
//! the queue of the disk, and a read would wait behind all of them (ADR 20).

use super::limits;
use crate::checks::{check_file_len, check_truncate, poisoned};
use crate::mapped;
use crate::traits::{FrontSync, WriteFile};
use base::{Error, Result};
use parking_lot::Mutex;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// Minimum length of an append that the disk begins to write at once.
const WRITE_BACK_MIN: usize = 16 << 10;

pub(super) struct RealWriteFile {
    pub(super) open: Arc<OpenFile>,
    pub(super) len: u64,
    /// The bytes that the disk began to write at the last append; `None` where the system refuses to.
    written_back: Option<Range<u64>>,
    /// The maximum length when the file was created. The limit rarely changes, and a check costs a tenth of a write.
    pub(super) max_len: u64,
}

/// A file that is open for writing, shared with the thread that syncs its front.
pub(super) struct OpenFile {
    pub(super) file: File,
    path: PathBuf,
    /// Held during a sync. The kernel reports an error once per open file: a concurrent sync could succeed after the
    /// report and before `poison` is set.
    syncing: Mutex<()>,
    poison: OnceLock<Error>,
}

impl OpenFile {
    /// Syncs the first `front` bytes, or the whole file, and poisons the file on an error.
    pub(super) fn sync(&self, front: Option<u64>) -> Result<()> {
        let _syncing = self.syncing.lock();
        self.check_poison()?;
        let synced = match front {
            Some(len) => mapped::sync_front(&self.file, len),
            None => self.file.sync_data(),
        };
        synced.map_err(|e| self.poison_by(e))
    }

    /// Waits until the disk has the bytes `before`, and makes it begin with the bytes `next`. Returns `false` if the system refuses to
    /// begin. Any other error is that of a sync, and poisons the file: the kernel does not report it again.
    pub(super) fn write_back(&self, before: Range<u64>, next: Range<u64>) -> Result<bool> {
        let _syncing = self.syncing.lock();
        self.check_poison()?;
        let begun = mapped::await_write_back(&self.file, before)
            .and_then(|()| mapped::begin_write_back(&self.file, next));
        begun.map_err(|e| self.poison_by(e).sync_failed())
    }

    fn poison_by(&self, error: io::Error) -> Error {
        self.poison.get_or_init(|| Error::io("sync", &self.path, error)).clone()
    }

    pub(super) fn check_poison(&self) -> Result<()> {
        self.poison.get().map_or(Ok(()), |e| Err(poisoned(e)))
    }
}

impl RealWriteFile {
    pub(super) fn new(file: File, path: &Path) -> RealWriteFile {
        let (path, syncing, poison) = (path.to_owned(), Mutex::default(), OnceLock::new());
        let open = Arc::new(OpenFile { file, path, syncing, poison });
        RealWriteFile { open, len: 0, written_back: Some(0..0), max_len: limits::max_file_len() }
    }

    /// Appends what the disk gets when the operating system chooses, or at a sync.
    pub(super) fn append_lazily(&mut self, data: &[u8]) -> Result<()> {
        self.open.check_poison()?;
        check_file_len("append to", &self.open.path, self.len + data.len() as u64, self.max_len)?;
        // Loops over short writes and EINTR. A write of zero bytes is an error.
        self.write_at(data, self.len)?;
        self.len += data.len() as u64;
        Ok(())
    }

    /// Writes beyond the end of the file; does not change `len`.
    pub(super) fn write_at(&self, data: &[u8], offset: u64) -> Result<()> {
        self.open.file.write_all_at(data, offset).map_err(|e| Error::io("append to", &self.open.path, e))
    }

    /// [`OpenFile::sync`], for another thread.
    pub(super) fn front_sync(&self, front: Option<u64>) -> FrontSync {
        let open = self.open.clone();
        Arc::new(move || open.sync(front))
    }
}

impl WriteFile for RealWriteFile {
    fn append(&mut self, data: &[u8]) -> Result<()> {
        let from = self.len;
        self.append_lazily(data)?;
        if data.len() >= WRITE_BACK_MIN
            && let Some(before) = self.written_back.take()
        {
            let next = from..self.len;
            // An error poisons the file, so it does not matter that `len` has grown.
            self.written_back = self.open.write_back(before, next.clone())?.then_some(next);
        }
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        self.open.sync(None)
    }

    fn truncate(&mut self, len: u64) -> Result<()> {
        self.open.check_poison()?;
        check_truncate(&self.open.path, self.len, len)?;
        self.open.file.set_len(len).map_err(|e| Error::io("truncate", &self.open.path, e))?;
        self.len = len;
        self.written_back = self.written_back.take().map(|_| 0..0);
        Ok(())
    }

    fn front(&self, _len: u64) -> FrontSync {
        self.front_sync(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::ErrorKind;
    use std::fs::OpenOptions;

    fn writer(file: File) -> RealWriteFile {
        RealWriteFile { max_len: u64::MAX, ..RealWriteFile::new(file, Path::new("test")) }
    }

    #[test]
    fn a_full_device_is_no_space_and_no_poison() {
        let mut file = writer(OpenOptions::new().write(true).open("/dev/full").unwrap());
        for _ in 0..2 {
            assert_eq!(file.append(b"data").unwrap_err().kind(), ErrorKind::NoSpace);
            assert_eq!(file.len, 0);
        }
    }

    #[test]
    fn write_back_that_is_left_out_stays_so() {
        let path = std::env::temp_dir().join(format!("cairn-write-back-{}", std::process::id()));
        let mut file = writer(File::create(&path).unwrap());
        std::fs::remove_file(&path).unwrap();
        file.append(&[1; WRITE_BACK_MIN]).unwrap();
        #[cfg(target_os = "linux")]
        assert_eq!(file.written_back, Some(0..WRITE_BACK_MIN as u64));
        file.truncate(1).unwrap();
        file.written_back = None;
        for _ in 0..2 {
            file.append(&[2; WRITE_BACK_MIN]).unwrap();
            file.truncate(1).unwrap();
            assert_eq!(file.written_back, None);
        }
        file.sync().unwrap();
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_write_back_that_is_not_supported_is_left_out_and_one_that_fails_is_a_failed_sync() {
        // A pipe refuses the call, whatever it is to do.
        let (_read, write) = std::io::pipe().unwrap();
        let file = writer(File::from(std::os::fd::OwnedFd::from(write)));
        assert!(!file.open.write_back(0..0, 0..1).unwrap());
        file.open.check_poison().unwrap();
        assert_eq!(file.open.write_back(0..1, 1..2).unwrap_err().kind(), ErrorKind::ReadOnly);
        assert_eq!(file.open.check_poison().unwrap_err().kind(), ErrorKind::ReadOnly);
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
