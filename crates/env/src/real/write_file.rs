//! The files that [`super::RealEnv`] writes: appends by write(2), and syncs that poison the file when they fail.

use super::limits;
use crate::checks::{check_file_len, check_truncate, poisoned};
use crate::mapped;
use crate::traits::{FileFront, WriteFile};
use base::{Error, Result};
use parking_lot::Mutex;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

pub(super) struct RealWriteFile {
    pub(super) file: Arc<File>,
    path: PathBuf,
    pub(super) len: u64,
    /// The maximum length when the file was created. The limit rarely changes, and a check costs a tenth of a write.
    pub(super) max_len: u64,
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
    pub(super) fn new(file: File, path: &Path) -> RealWriteFile {
        let (file, syncs) = (Arc::new(file), Arc::default());
        RealWriteFile { file, path: path.to_owned(), len: 0, max_len: limits::max_file_len(), syncs }
    }

    /// Writes beyond the end of the file; does not change `len`.
    pub(super) fn write_at(&self, data: &[u8], offset: u64) -> Result<()> {
        self.file.write_all_at(data, offset).map_err(|e| Error::io("append to", &self.path, e))
    }

    /// Syncs with `sync` and poisons the file on an error.
    pub(super) fn sync_by(&self, sync: impl FnOnce(&File) -> io::Result<()>) -> Result<()> {
        self.syncs.run(&self.path, || sync(&self.file))
    }

    /// The part of the file whose sync makes the first `len` bytes durable; `None` for the whole file.
    pub(super) fn front_by(&self, len: Option<u64>) -> Arc<dyn FileFront> {
        let (file, syncs) = (self.file.clone(), self.syncs.clone());
        Arc::new(RealFront { file, path: self.path.clone(), len, syncs })
    }

    pub(super) fn check_poison(&self) -> Result<()> {
        self.syncs.check_poison()
    }
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
            assert_eq!(file.len(), 0);
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
