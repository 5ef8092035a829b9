//! Checks and errors that the operating system and the simulated disk share, so that callers see the same behaviour of both.

use base::{Error, ErrorKind, Result};
use std::io;
use std::path::Path;

/// Rejects a rename between directories: file systems differ in what survives a crash.
pub(crate) fn check_same_dir(from: &Path, to: &Path) -> Result<()> {
    if from.parent() == to.parent() {
        return Ok(());
    }
    Err(Error::invalid(format!("rename {} to {}: not the same directory", from.display(), to.display())))
}

/// Rejects a link within a directory: a file has one name in a directory.
pub(crate) fn check_other_dir(from: &Path, to: &Path) -> Result<()> {
    if from.parent() != to.parent() {
        return Ok(());
    }
    Err(Error::invalid(format!("link {} to {}: the same directory", from.display(), to.display())))
}

/// Rejects a truncation that would extend a file of `len` bytes.
pub(crate) fn check_truncate(path: &Path, len: u64, to: u64) -> Result<()> {
    if to <= len {
        return Ok(());
    }
    Err(Error::invalid(format!("truncate {}: {to} bytes is past its end at {len}", path.display())))
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

/// The error of every call after a failed sync.
pub(crate) fn poisoned(cause: &Error) -> Error {
    cause.context("writing stopped after a failed sync").with_kind(ErrorKind::ReadOnly)
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
