//! Shared locks on bytes of a file, of [`crate::RealEnv`]: OFD locks, which belong to the open file (`lock.rs` compares the kinds of locks). The kernel
//! ends them when the file is closed or the process ends, and they need no right to write, also on a file system that is mounted
//! read-only.

use crate::mapped;
use crate::traits::FileLock;
use base::{Error, ErrorKind, Result};
use std::fs::File;
use std::io;
use std::path::Path;

/// The open file with the lock. A forked child shares it, and keeps the lock until it closes its copy.
pub(super) struct SharedLock {
    _file: File,
}

impl SharedLock {
    pub(super) fn take(path: &Path, at: u64) -> Result<SharedLock> {
        let file = File::open(path).map_err(|e| Error::io("open", path, e))?;
        match mapped::lock_byte(&file, at) {
            Ok(()) => Ok(SharedLock { _file: file }),
            Err(e) if is_unsupported(&e) => {
                Err(Error::io("take a shared lock on", path, e).with_kind(ErrorKind::Unsupported))
            }
            Err(e) => Err(Error::io("take a shared lock on", path, e)),
        }
    }
}

impl FileLock for SharedLock {}

/// The first byte of the file that is locked.
pub(super) fn first(path: &Path) -> Result<Option<u64>> {
    let file = match File::open(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file.map_err(|e| Error::io("open", path, e))?,
    };
    // The kernel names any lock in the range.
    let (mut first, mut end) = (None, i64::MAX as u64);
    loop {
        match mapped::locked_byte(&file, end) {
            Ok(Some(at)) => (first, end) = (Some(at), at),
            Ok(None) => return Ok(first),
            Err(e) if is_unsupported(&e) => return Ok(None),
            Err(e) => return Err(Error::io("look for locks on", path, e)),
        }
    }
}

/// Whether there are no such locks here.
fn is_unsupported(error: &io::Error) -> bool {
    let without = [libc::EINVAL, libc::ENOSYS, libc::EOPNOTSUPP];
    error.kind() == io::ErrorKind::Unsupported
        || error.raw_os_error().is_some_and(|code| without.contains(&code))
}
