//! Reads a value by its reference.

use base::checksum::checksum_of;
use base::{Error, Reference, Result};
use env::ReadFile;
use record::{framed_len, remove_headers};
use std::path::Path;

/// Reads the value of `reference`, which is in `file` at `offset`: its offset, or the place to which a collection moved it. `path` is
/// that of the file, for errors.
///
/// Cost: one read of the value's bytes.
///
/// # Errors
/// `Corruption`, with file and offset, if the bytes are not those of the value.
pub fn read_value(file: &dyn ReadFile, path: &Path, reference: &Reference, offset: u64) -> Result<Vec<u8>> {
    let mut bytes = buffer_for(reference, offset);
    file.read_exact_at(&mut bytes, offset)?;
    value_in(bytes, path, reference, offset)
}

/// The same without waiting for the disk: `None` if the value is not in memory, as far as the operating system can tell.
pub(crate) fn try_read_value(
    file: &dyn ReadFile,
    path: &Path,
    reference: &Reference,
    offset: u64,
) -> Result<Option<Vec<u8>>> {
    let mut bytes = buffer_for(reference, offset);
    match file.try_read_cached(&mut bytes, offset)? {
        true => value_in(bytes, path, reference, offset).map(Some),
        false => Ok(None),
    }
}

fn buffer_for(reference: &Reference, offset: u64) -> Vec<u8> {
    vec![0; framed_len(offset, reference.len.into()) as usize]
}

/// The value in `bytes` of a file from `offset` on.
fn value_in(mut value: Vec<u8>, path: &Path, reference: &Reference, offset: u64) -> Result<Vec<u8>> {
    remove_headers(&mut value, offset);
    if checksum_of(&value) != reference.checksum {
        let what = format!("a value of {} bytes has a wrong checksum", reference.len);
        return Err(Error::corruption(path, offset, what));
    }
    Ok(value)
}
