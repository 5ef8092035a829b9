//! In place of Zstandard, in builds without the feature `zstd`: nothing is compressed with it. Callers ask
//! [`Compression::is_available`](super::Compression::is_available) first.

use base::Result;

/// There is none.
pub(super) enum Context {}

impl Context {
    pub(super) fn new() -> Result<Context> {
        Err(base::Error::invalid("this program was built without zstd"))
    }

    pub(super) fn compress(&mut self, _raw: &[u8], _out: &mut [u8]) -> Option<usize> {
        match *self {}
    }
}

pub(super) fn decompress(_data: &[u8], _out: &mut [u8]) -> Option<usize> {
    None
}
