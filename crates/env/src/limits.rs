//! What the system allows this process: how long a file may be, how many files may be open, and space that is set aside.
//!
//! A write beyond `RLIMIT_FSIZE` does not only fail: the kernel kills the process by SIGXFSZ, unless that is handled or
//! ignored, and a library has no business with the signals of a process. So the limit is looked at before the write.

use base::{Error, Result};
use parking_lot::Mutex;
use rustix::process::{Resource, getrlimit};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Where allocating in one go is not possible, this many bytes are written at a time.
const ZEROS_LEN: usize = 1 << 20;

/// How long a file may be at present that this process writes.
pub(crate) fn max_file_len() -> u64 {
    getrlimit(Resource::Fsize).current.unwrap_or(u64::MAX)
}

/// How many files this process may hold open at present.
pub(crate) fn max_open_files() -> usize {
    getrlimit(Resource::Nofile).current.map_or(usize::MAX, |n| usize::try_from(n).unwrap_or(usize::MAX))
}

/// Fails when a file may not become `len` bytes long.
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
        "it would be {len} bytes long, and this process may write {limit} (RLIMIT_FSIZE)"
    ))
}

const EFBIG: i32 = 27;

/// Gives a new file `len` bytes that are really on the disk.
pub(crate) fn fill(file: &File, len: u64) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    {
        use rustix::io::Errno;
        let all = || rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), 0, len);
        match rustix::io::retry_on_intr(all) {
            // The file system cannot.
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {}
            done => return done.map_err(io::Error::from),
        }
    }
    fill_with_zeros(file, len)
}

/// What is written may still have no place on the disk: only a sync tells that it has.
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

/// A handle that is held for nothing but to be closed when there is none left and one is needed for a moment.
///
/// A directory must be opened to be synced, and a sync that cannot even begin would leave a renamed file of which nobody knows
/// whether a crash keeps it.
pub(crate) struct SpareHandle(Mutex<Option<File>>);

impl SpareHandle {
    pub(crate) fn new() -> SpareHandle {
        SpareHandle(Mutex::new(File::open("/").ok()))
    }

    /// Runs `work`, which opens a file and closes it again; when there is no handle for it, once more without the spare one.
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
