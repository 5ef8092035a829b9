//! Limits of the operating system for this process: file length and open files. Also allocation of disk space, and a
//! spare file handle for directory syncs.
//!
//! A write beyond `RLIMIT_FSIZE` raises SIGXFSZ, which kills the process unless the signal is handled or ignored. A
//! library must not change signal handlers. So each write checks the limit first.

use base::{Error, Result};
use parking_lot::Mutex;
use rustix::process::{Resource, getrlimit};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Size of one write where the file system cannot allocate space and zeros are written instead.
const ZEROS_LEN: usize = 1 << 20;

/// The present maximum length of a file that this process writes.
pub(crate) fn max_file_len() -> u64 {
    getrlimit(Resource::Fsize).current.unwrap_or(u64::MAX)
}

/// The present maximum number of open files of this process.
pub(crate) fn max_open_files() -> usize {
    getrlimit(Resource::Nofile).current.map_or(usize::MAX, |n| usize::try_from(n).unwrap_or(usize::MAX))
}

/// Fails if a file of `len` bytes would be longer than `limit`.
#[inline]
pub(crate) fn check_file_len(operation: &str, path: &Path, len: u64, limit: u64) -> Result<()> {
    match len <= limit {
        true => Ok(()),
        false => Err(too_long(operation, path, len, limit)),
    }
}

#[cold]
fn too_long(operation: &str, path: &Path, len: u64, limit: u64) -> Error {
    let too_large = Error::io(operation, path, io::Error::from_raw_os_error(EFBIG));
    too_large.because(format_args!(
        "the file would have {len} bytes; the limit of this process is {limit} (RLIMIT_FSIZE)"
    ))
}

const EFBIG: i32 = 27;

/// Allocates `len` bytes of disk space for a new file.
pub(crate) fn fill(file: &File, len: u64) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    {
        use rustix::io::Errno;
        let all = || rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), 0, len);
        match rustix::io::retry_on_intr(all) {
            // The file system does not support it.
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {}
            done => return done.map_err(io::Error::from),
        }
    }
    fill_with_zeros(file, len)
}

/// Writes zeros, then syncs: with delayed allocation only the sync proves that the disk has space.
fn fill_with_zeros(file: &File, len: u64) -> io::Result<()> {
    let zeros = vec![0; ZEROS_LEN.min(len as usize)];
    let mut at = 0;
    while at < len {
        let part = (len - at).min(zeros.len() as u64);
        file.write_all_at(&zeros[..part as usize], at)?;
        at += part;
    }
    file.sync_data()
}

/// A file handle that is held in reserve. It is closed for a moment when the process is out of handles and needs one.
///
/// A directory must be opened to be synced. If that fails after a rename, it is unknown whether the rename survives a
/// crash.
pub(crate) struct SpareHandle(Mutex<Option<File>>);

impl SpareHandle {
    pub(crate) fn new() -> SpareHandle {
        SpareHandle(Mutex::new(File::open("/").ok()))
    }

    /// Runs `work`, which opens and closes a file. If there is no handle for it, closes the spare handle and runs
    /// `work` again.
    pub(crate) fn lend<T>(&self, work: impl Fn() -> io::Result<T>) -> io::Result<T> {
        let out_of_handles = |e: &io::Error| matches!(e.raw_os_error(), Some(23 | 24));
        match work() {
            Err(e) if out_of_handles(&e) => {
                let mut spare = self.0.lock();
                *spare = None;
                let done = work();
                *spare = File::open("/").ok();
                done
            }
            done => done,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_take_the_place_of_what_cannot_be_allocated() {
        let file = tempfile::tempfile().unwrap();
        fill_with_zeros(&file, 3 * ZEROS_LEN as u64 / 2).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 3 * ZEROS_LEN as u64 / 2);
    }

    #[test]
    fn a_file_that_would_be_too_long_is_named_with_its_limit() {
        let error = check_file_len("append to", Path::new("/db/wal"), 101, 100).unwrap_err();
        assert_eq!(error.kind(), base::ErrorKind::NoSpace);
        assert!(error.is_file_too_large());
        let text = error.to_string();
        assert!(text.contains("/db/wal") && text.contains("101") && text.contains("100"), "{text}");
        check_file_len("append to", Path::new("/db/wal"), 100, 100).unwrap();
    }
}
