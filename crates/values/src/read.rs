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
    let mut value = vec![0; framed_len(offset, reference.len.into()) as usize];
    file.read_exact_at(&mut value, offset)?;
    remove_headers(&mut value, offset);
    if checksum_of(&value) != reference.checksum {
        let what = format!("a value of {} bytes has a wrong checksum", reference.len);
        return Err(Error::corruption(path, offset, what));
    }
    Ok(value)
}
