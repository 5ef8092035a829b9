//! The files that [`super::RealEnv`] reads: reads at an offset, with and without waiting for the disk, and readahead hints.

use crate::checks::ends_early;
use crate::traits::ReadFile;
use base::{Error, Result};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

/// Minimum of the kernel's default readahead size.
#[cfg(target_os = "linux")]
const WILL_NEED_STEP: u64 = 128 << 10;

pub(super) struct RealReadFile {
    file: File,
    path: PathBuf,
    /// The file system does not support non-blocking reads; do not try again.
    #[cfg_attr(not(target_os = "linux"), allow(dead_code))]
    nowait_unsupported: AtomicBool,
}

impl RealReadFile {
    pub(super) fn new(file: File, path: &Path) -> RealReadFile {
        RealReadFile { file, path: path.to_owned(), nowait_unsupported: AtomicBool::new(false) }
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

    #[cfg(target_os = "linux")]
    fn try_read_cached(&self, buf: &mut [u8], offset: u64) -> Result<bool> {
        use std::sync::atomic::Ordering::Relaxed;
        if !self.nowait_unsupported.load(Relaxed) {
            use rustix::io::{Errno, ReadWriteFlags, preadv2};
            let len = buf.len();
            match preadv2(&self.file, &mut [io::IoSliceMut::new(buf)], offset, ReadWriteFlags::NOWAIT) {
                // A short read: the rest is not in memory, or lies behind the end of the file.
                Ok(read) => return Ok(read == len),
                // A sandbox returns the last two.
                Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL | Errno::PERM | Errno::ACCESS) => {
                    self.nowait_unsupported.store(true, Relaxed);
                }
                // The read that waits reports the error.
                Err(_) => return Ok(false),
            }
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

#[cfg(test)]
mod tests {
    use super::*;
    use base::ErrorKind;
    use std::sync::atomic::Ordering;

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
        file.nowait_unsupported.store(true, Ordering::Relaxed);
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
            assert_eq!(file.nowait_unsupported.load(Ordering::Relaxed), asked_before);
            let mut bytes = [0; 5];
            assert!(file.try_read_cached(&mut bytes, 0).unwrap());
            assert_eq!(&bytes, b"Linux");
        }
    }
}
