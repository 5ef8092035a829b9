//! What a decoder found wrong, before it is known in which file and where.

use base::Error;
use std::path::Path;

/// Why bytes were refused. Small and free to make, so that inner loops can return it; [`DecodeError::at`] makes the error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DecodeError {
    /// The bytes are not what any writer would write.
    Corrupt(&'static str),
    /// A code that this version does not know, where later versions may have one more.
    Unknown(&'static str, u32),
}

impl DecodeError {
    /// The error for this fault in the block at `offset` of `file`.
    #[cold]
    pub(crate) fn at(self, file: &Path, offset: u64) -> Error {
        match self {
            DecodeError::Corrupt(what) => Error::corruption(file, offset, what),
            DecodeError::Unknown(what, code) => Error::unsupported(
                file,
                format_args!("offset {offset}: {what} {code} is not known to this version"),
            ),
        }
    }
}
