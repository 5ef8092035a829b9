//! The frame around every block: checksum, length and codec in front of the payload.
//!
//! ```text
//! block := checksum:u32  size:u32  codec:u8  payload[size]
//! ```
//!
//! The checksum covers size, codec and payload, and the place: file number, offset and kind of the block. It is
//! verified before anything else is looked at.

use crate::compression::{self, Compressor};
use crate::fault::Fault;
use base::checksum::{Place, checksum};
use base::limits::{MAX_KEY_LEN, MAX_VALUE_LEN};
use base::planted::{Bug, planted};

/// Bytes in front of a payload.
pub(crate) const HEADER_LEN: usize = 9;

/// Most bytes of a payload, raw. A block of one entry holds its key twice at most (prefix and rest), its value and a few
/// dozen bytes; an index node, a few of the longest keys.
pub(crate) const MAX_PAYLOAD: usize = 16 * MAX_KEY_LEN + MAX_VALUE_LEN;

const _: () = assert!(MAX_PAYLOAD < u32::MAX as usize / 2);

/// What a checksummed run of bytes is. Part of its checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    Data = 1,
    Index = 2,
    Filter = 3,
    Properties = 4,
    Footer = 5,
    Version = 6,
}

/// Where a block lies: offset of its frame and length with the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Handle {
    pub offset: u64,
    pub size: u32,
}

impl Handle {
    /// The offset after the block.
    pub(crate) fn end(self) -> u64 {
        self.offset.saturating_add(u64::from(self.size))
    }
}

/// Opens a frame at the end of `out`; the payload is appended next, and then [`seal`] closes the frame.
pub(crate) fn begin(out: &mut Vec<u8>) -> usize {
    out.extend_from_slice(&[0; HEADER_LEN]);
    out.len() - HEADER_LEN
}

/// Closes the frame that [`begin`] opened at `start`: compresses the payload if that pays, fills in the header.
/// Returns the length of the whole frame.
pub(crate) fn seal(
    out: &mut Vec<u8>,
    start: usize,
    place: Place,
    compressor: Option<&mut Compressor>,
) -> u32 {
    let payload = start + HEADER_LEN;
    let mut codec = 0;
    if let Some((code, packed)) = compressor.and_then(|c| c.compress(&out[payload..])) {
        codec = code;
        out.truncate(payload);
        out.extend_from_slice(packed);
    }
    let size = (out.len() - payload) as u32;
    out[start + 4..start + 8].copy_from_slice(&size.to_le_bytes());
    out[start + 8] = codec;
    let sum = checksum(place, &out[start + 4..]);
    out[start..start + 4].copy_from_slice(&sum.to_le_bytes());
    size + HEADER_LEN as u32
}

/// Length of the frame that begins with `header`, unverified: to know how much to read before [`check`].
pub(crate) fn claimed_len(header: &[u8; HEADER_LEN]) -> u64 {
    let size = u32::from_le_bytes([header[4], header[5], header[6], header[7]]);
    u64::from(size) + HEADER_LEN as u64
}

/// Verifies a whole frame and returns the codec and the payload.
pub(crate) fn check(frame: &[u8], place: Place) -> Result<(u8, &[u8]), Fault> {
    let Some((header, payload)) = frame.split_first_chunk::<HEADER_LEN>() else {
        return Err(Fault::Corrupt("block is shorter than its header"));
    };
    let sum = u32::from_le_bytes([header[0], header[1], header[2], header[3]]);
    if checksum(place, &frame[4..]) != sum && !planted(Bug::IgnoreTableChecksum) {
        return Err(Fault::Corrupt("checksum of block does not match"));
    }
    if claimed_len(header) != frame.len() as u64 {
        return Err(Fault::Corrupt("length of block does not match"));
    }
    Ok((header[8], payload))
}

/// The raw payload of a frame that was read into a buffer of its own.
pub(crate) fn open(frame: Vec<u8>, place: Place, cap: usize) -> Result<base::Slice, Fault> {
    let (codec, payload) = check(&frame, place)?;
    if compression::is_raw(codec) {
        let frame = base::Slice::from(frame);
        return Ok(frame.slice_of(&frame[HEADER_LEN..]));
    }
    let mut raw = Vec::new();
    compression::decompress(codec, payload, cap, &mut raw)?;
    Ok(raw.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Compression;

    const PLACE: Place = Place { file: 3, offset: 77, kind: Kind::Data as u8 };

    #[test]
    fn sealed_frames_open_and_only_in_their_place() {
        for compression in [Compression::None, Compression::Lz4, Compression::Zstd] {
            let mut compressor = Compressor::new(compression).unwrap();
            let mut out = b"before".to_vec();
            let start = begin(&mut out);
            out.extend_from_slice(&[7; 1000]);
            let size = seal(&mut out, start, PLACE, Some(&mut compressor));
            let frame = out[start..].to_vec();
            assert_eq!(frame.len(), size as usize);
            assert_eq!(open(frame.clone(), PLACE, 1000).unwrap(), [7u8; 1000]);
            assert!(open(frame.clone(), Place { offset: 78, ..PLACE }, 1000).is_err());
            for bit in 0..frame.len() * 8 {
                let mut bad = frame.clone();
                bad[bit / 8] ^= 1 << (bit % 8);
                assert!(open(bad, PLACE, 1000).is_err(), "bit {bit}");
            }
            for len in 0..frame.len() {
                assert!(open(frame[..len].to_vec(), PLACE, 1000).is_err());
            }
        }
    }
}
