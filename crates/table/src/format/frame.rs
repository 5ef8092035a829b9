//! The frame around every block: checksum, length and codec in front of the payload.
//!
//! ```text
//! block := checksum:u32  size:u32  codec:u8  payload[size]
//! ```
//!
//! The checksum covers size, codec and payload, and the place: file number, offset and kind of the block. It is
//! verified before any other field is used.
//!
//! The high bit of the codec of a data block or a value block says that zero padding follows up to the next page. So a reader can distinguish padding
//! from a lost block, and a block that was overwritten with zeros from padding.

use crate::format::compression::{self, Compressor};
use crate::format::decode_error::DecodeError;
use base::checksum::{Place, checksum};
use base::limits::{MAX_KEY_LEN, MAX_VALUE_LEN};
use base::planted::{Bug, planted};

/// Bytes in front of a payload.
pub(crate) const HEADER_LEN: usize = 9;

/// Data blocks and value blocks are aligned to pages of this many bytes, the unit of the page cache.
pub(crate) const PAGE: u64 = 4096;

/// Bit in the codec of a data block or a value block: padding follows up to the next page.
pub(crate) const PADDED: u8 = 0x80;

/// Maximum bytes of a raw payload. A block of one entry holds its key twice at most (prefix and rest), its value and a few
/// dozen bytes; an index node, a few of the longest keys.
pub(crate) const MAX_PAYLOAD: usize = 16 * MAX_KEY_LEN + MAX_VALUE_LEN;

const _: () = assert!(MAX_PAYLOAD < u32::MAX as usize / 2);

/// The kind of a checksummed run of bytes. Part of its checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    Data = 1,
    Index = 2,
    Filter = 3,
    Properties = 4,
    Footer = 5,
    Version = 6,
    /// Values of a size-class table.
    Values = 7,
    /// A page of rows of a size-class table.
    Rows = 8,
    /// The directory of a size-class table.
    Directory = 9,
}

impl Kind {
    /// Whether blocks of the kind with this code are never compressed.
    fn is_never_compressed(code: u8) -> bool {
        [Kind::Filter, Kind::Rows, Kind::Directory].iter().any(|kind| *kind as u8 == code)
    }

    /// Whether zero padding may follow a block of the kind with this code.
    fn may_be_padded(code: u8) -> bool {
        code == Kind::Data as u8 || code == Kind::Values as u8
    }
}

/// The place of a block: offset and length of its frame, header included.
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

/// Closes the frame that [`begin`] opened at `start`: compresses the payload if that saves enough, and fills in the header. `padded` gets
/// the length of the whole frame, and returns whether padding will follow. Returns that length.
pub(crate) fn seal(
    out: &mut Vec<u8>,
    start: usize,
    place: Place,
    compressor: Option<&mut Compressor>,
    padded: impl FnOnce(u32) -> bool,
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
    let len = size + HEADER_LEN as u32;
    out[start + 8] = if padded(len) { codec | PADDED } else { codec };
    let sum = checksum(place, &out[start + 4..]);
    out[start..start + 4].copy_from_slice(&sum.to_le_bytes());
    len
}

/// The offset of the data or value block after the verified `frame`, which begins at `offset`.
pub(crate) fn next_offset(offset: u64, frame: &[u8]) -> u64 {
    let end = offset + frame.len() as u64;
    if is_padded(frame) { end.next_multiple_of(PAGE) } else { end }
}

/// Whether padding follows the verified frame of a data or value block.
pub(crate) fn is_padded(frame: &[u8]) -> bool {
    frame.get(HEADER_LEN - 1).is_some_and(|codec| codec & PADDED != 0)
}

/// Unverified length of the frame that begins with `header`: how much to read before [`check`].
pub(crate) fn claimed_len(header: &[u8; HEADER_LEN]) -> u64 {
    let size = u32::from_le_bytes([header[4], header[5], header[6], header[7]]);
    u64::from(size) + HEADER_LEN as u64
}

/// Verifies a whole frame and returns the codec and the payload.
pub(crate) fn check(frame: &[u8], place: Place) -> Result<(u8, &[u8]), DecodeError> {
    let Some((header, payload)) = frame.split_first_chunk::<HEADER_LEN>() else {
        return Err(DecodeError::Corrupt("block is shorter than its header"));
    };
    let sum = u32::from_le_bytes([header[0], header[1], header[2], header[3]]);
    if checksum(place, &frame[4..]) != sum && !planted(Bug::IgnoreTableChecksum) {
        return Err(DecodeError::Corrupt("checksum of block does not match"));
    }
    if claimed_len(header) != frame.len() as u64 {
        return Err(DecodeError::Corrupt("length of block does not match"));
    }
    let codec = if Kind::may_be_padded(place.kind) { header[8] & !PADDED } else { header[8] };
    if !compression::is_raw(codec) && Kind::is_never_compressed(place.kind) {
        return Err(DecodeError::Corrupt("block is compressed, which its kind never is"));
    }
    Ok((codec, payload))
}

/// Verifies a whole frame and returns the raw payload, at most `cap` bytes.
pub(crate) fn open(frame: Vec<u8>, place: Place, cap: usize) -> Result<base::Slice, DecodeError> {
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
    use crate::format::compression::Compression;

    const PLACE: Place = Place { file: 3, offset: 77, kind: Kind::Data as u8 };

    #[test]
    fn a_data_block_says_whether_zeros_follow_and_no_other_kind_can() {
        for kind in [Kind::Data, Kind::Values, Kind::Filter, Kind::Rows] {
            let place = Place { kind: kind as u8, ..PLACE };
            for padded in [false, true] {
                let mut out = Vec::new();
                let start = begin(&mut out);
                out.extend_from_slice(&[7; 1000]);
                assert_eq!(seal(&mut out, start, place, None, |len| len == 1009 && padded), 1009);
                assert_eq!(
                    (next_offset(5000, &out), is_padded(&out)),
                    if padded { (8192, true) } else { (6009, false) }
                );
                let opened = open(out, place, 1000);
                assert_eq!(opened.is_ok(), matches!(kind, Kind::Data | Kind::Values) || !padded);
            }
        }
    }

    #[test]
    fn sealed_frames_open_and_only_in_their_place() {
        for &compression in Compression::AVAILABLE {
            let mut compressor = Compressor::new(compression).unwrap();
            let mut out = b"before".to_vec();
            let start = begin(&mut out);
            out.extend_from_slice(&[7; 1000]);
            let size = seal(&mut out, start, PLACE, Some(&mut compressor), |_| false);
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
