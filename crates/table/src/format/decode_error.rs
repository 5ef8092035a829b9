//! The error of a decoder, which does not know file and offset. Callers add them with [`DecodeError::at`].

use base::Error;
use std::path::Path;

/// Why bytes were refused. Small and made without allocation, so that inner loops can return it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DecodeError {
    /// No writer writes these bytes.
    Corrupt(&'static str),
    /// A code that this version does not know, and a later version may have written.
    Unknown(&'static str, u32),
    /// A block with a compression that this build does not have: the feature that has it.
    NotBuilt(&'static str),
}

impl DecodeError {
    /// The error for the block at `offset` of `file`.
    #[cold]
    pub(crate) fn at(self, file: &Path, offset: u64) -> Error {
        match self {
            DecodeError::Corrupt(what) => Error::corruption(file, offset, what),
            DecodeError::Unknown(what, code) => Error::unsupported(
                file,
                format_args!("offset {offset}: {what} {code} is not known to this version"),
            ),
            DecodeError::NotBuilt(codec) => Error::unsupported(
                file,
                format_args!(
                    "offset {offset}: the block is compressed with {codec}, which this program was built without; it needs the feature {codec} of the package cairn-kv"
                ),
            ),
        }
    }
}
