//! Looking for a key in a data block that is not worth caching: it is read into a buffer that each thread reuses, verified, searched, and
//! only the value is copied out. Nothing else is allocated.

use crate::compression;
use crate::flight::{Reading, Wanted};
use crate::frame::{self, Kind};
use crate::node::Layout;
use crate::table::Table;
use base::{Result, Slice, Trailer};
use std::cell::RefCell;

/// Largest block, as it is stored, that goes through the buffer: it stays with its thread.
pub(crate) const MOST: u32 = 32 << 10;

/// Bytes that the buffer for unpacked blocks keeps.
const MOST_RAW: usize = 128 << 10;

#[derive(Default)]
struct Scratch {
    frame: Vec<u8>,
    raw: Vec<u8>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// What a data block of at most [`MOST`] bytes has of a key, if it is read: see [`Table::look_in`].
pub(crate) fn get(
    table: &Table,
    wanted: Wanted,
    key: &[u8],
    trailer: Trailer,
    reading: &mut Reading<'_>,
) -> Result<Option<(Trailer, Slice)>> {
    let handle = wanted.handle;
    table.check_handle(handle, frame::MAX_PAYLOAD)?;
    let mut look = |scratch: &mut Scratch| {
        let size = handle.size as usize;
        if scratch.frame.len() < size {
            scratch.frame.resize(size, 0);
        }
        let frame = &mut scratch.frame[..size];
        if !table.fetch(frame, wanted, reading)? {
            return Ok(None);
        }
        let fault = |f| table.fault(f, handle.offset);
        let (codec, payload) = frame::check(frame, table.place(handle.offset, Kind::Data)).map_err(fault)?;
        let node = if compression::is_raw(codec) {
            payload
        } else {
            compression::decompress(codec, payload, frame::MAX_PAYLOAD, &mut scratch.raw).map_err(fault)?;
            &scratch.raw[..]
        };
        let layout = Layout::parse(node, false).map_err(fault)?;
        let found = layout.find(node, key, trailer).map_err(fault)?;
        let found = found.map(|entry| (entry.trailer, Slice::copy_from(entry.value(node))));
        if scratch.raw.len() > MOST_RAW {
            scratch.raw = Vec::new();
        }
        Ok(found)
    };
    // In the destructor of a thread-local of the caller's this thread's buffer may be gone; and where threads are only simulated, on one
    // that is real, it may be in use.
    let with_own = |own: &RefCell<Scratch>| own.try_borrow_mut().ok().map(|mut own| look(&mut own));
    let looked = SCRATCH.try_with(with_own).unwrap_or(None);
    looked.unwrap_or_else(|| look(&mut Scratch::default()))
}
