//! Limits of the operating system for this process: file length and open files. Also allocation of disk space, and a
//! spare file handle for directory syncs.
//!
//! A write beyond `RLIMIT_FSIZE` raises SIGXFSZ, which kills the process unless the signal is handled or ignored. A
//! library must not change signal handlers. So each write checks the limit first.

use parking_lot::Mutex;
use rustix::process::{Resource, getrlimit};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Size of one write where the file system cannot allocate space and zeros are written instead.
const ZEROS_LEN: usize = 1 << 20;

/// The present maximum length of a file that this process writes.
pub(super) fn max_file_len() -> u64 {
    getrlimit(Resource::Fsize).current.unwrap_or(u64::MAX)
}

/// The present maximum number of open files of this process.
pub(super) fn max_open_files() -> usize {
    getrlimit(Resource::Nofile).current.map_or(usize::MAX, |n| usize::try_from(n).unwrap_or(usize::MAX))
}

/// Allocates `len` bytes of disk space for a new file.
pub(super) fn fill(file: &File, len: u64) -> io::Result<()> {
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
pub(super) struct SpareHandle(Mutex<Option<File>>);

impl SpareHandle {
    pub(super) fn new() -> SpareHandle {
        SpareHandle(Mutex::new(File::open("/").ok()))
    }

    /// Runs `work`, which opens and closes a file. If there is no handle for it, closes the spare handle and runs
    /// `work` again.
    pub(super) fn with_spare<T>(&self, work: impl Fn() -> io::Result<T>) -> io::Result<T> {
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
}
