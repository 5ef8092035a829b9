//! Zstandard.

use base::{Error, Result};
use std::cell::RefCell;
use zstd::bulk;

const LEVEL: i32 = 1;

/// What a writer of compressed blocks keeps from one to the next.
pub(super) struct Context(Box<bulk::Compressor<'static>>);

impl Context {
    pub(super) fn new() -> Result<Context> {
        let context = bulk::Compressor::new(LEVEL);
        Ok(Context(Box::new(context.map_err(|e| Error::invalid(format!("zstd level {LEVEL}: {e}")))?)))
    }

    /// The length of the result in `out`, if it fits.
    pub(super) fn compress(&mut self, raw: &[u8], out: &mut [u8]) -> Option<usize> {
        self.0.compress_to_buffer(raw, out).ok()
    }
}

thread_local! {
    static CONTEXT: RefCell<Option<bulk::Decompressor<'static>>> = const { RefCell::new(None) };
}

/// The length of the result in `out`, if it fits. For a vector the codec would use its capacity as the bound.
pub(super) fn decompress(data: &[u8], out: &mut [u8]) -> Option<usize> {
    let mut decompress = |context: &mut Option<bulk::Decompressor<'static>>| {
        if context.is_none() {
            *context = Some(bulk::Decompressor::new().ok()?);
        }
        context.as_mut()?.decompress_to_buffer(data, out).ok()
    };
    // The context may be gone when a destructor of another thread-local calls.
    CONTEXT
        .try_with(|context| decompress(&mut context.borrow_mut()))
        .unwrap_or_else(|_| decompress(&mut None))
}
