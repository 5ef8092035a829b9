//! [`Reference`]: what a table has in place of a value, and its encoding.

use base::codec::{MAX_VARINT_LEN, Reader, put_varint};
use base::limits::MAX_VALUE_LEN;

/// A value in a segment.
///
/// It names the place where the value was first written, and is never changed: a collection that moves the value keeps a map from this
/// place to the new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reference {
    /// Number of the segment.
    pub segment: u64,
    /// Offset of the first byte of the value in the segment.
    pub offset: u64,
    /// Length of the value in bytes, at least 1. The headers of chunks between them do not count.
    pub len: u32,
    /// CRC-32C of the value.
    pub checksum: u32,
}

/// Maximum length of an encoded reference, in bytes.
pub const MAX_REFERENCE_LEN: usize = 2 * MAX_VARINT_LEN + 5 + 4;

impl Reference {
    /// Appends the encoded reference: segment, offset and length as varints, and the checksum (4 bytes).
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.segment);
        put_varint(out, self.offset);
        put_varint(out, self.len.into());
        out.extend_from_slice(&self.checksum.to_le_bytes());
    }

    /// Decodes a reference that takes all of `bytes`; `None` if it is malformed.
    pub fn decode(bytes: &[u8]) -> Option<Reference> {
        let mut reader = Reader::new(bytes);
        let (segment, offset) = (reader.varint()?, reader.varint()?);
        let len = reader.varint().filter(|&len| len > 0 && len <= MAX_VALUE_LEN as u64)? as u32;
        let checksum = reader.u32()?;
        // Room for the headers of chunks, too.
        let ends = offset.checked_add(2 * u64::from(len)).is_some_and(|end| end <= i64::MAX as u64);
        (reader.is_empty() && segment > 0 && ends).then_some(Reference { segment, offset, len, checksum })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_round_trip_and_hostile_ones_are_refused() {
        let sound =
            Reference { segment: 300, offset: 1 << 40, len: MAX_VALUE_LEN as u32, checksum: 0xfedc_ba98 };
        for reference in [sound, Reference { segment: 1, offset: 0, len: 1, checksum: 0 }] {
            let mut bytes = Vec::new();
            reference.encode(&mut bytes);
            assert!(bytes.len() <= MAX_REFERENCE_LEN);
            assert_eq!(Reference::decode(&bytes), Some(reference));
            for cut in 0..bytes.len() {
                assert_eq!(Reference::decode(&bytes[..cut]), None, "cut at {cut}");
            }
            bytes.push(0);
            assert_eq!(Reference::decode(&bytes), None, "a byte too many");
        }
        for hostile in [
            Reference { segment: 0, ..sound },
            Reference { len: 0, ..sound },
            Reference { len: MAX_VALUE_LEN as u32 + 1, ..sound },
            Reference { offset: u64::MAX, ..sound },
            Reference { offset: i64::MAX as u64, ..sound },
        ] {
            let mut bytes = Vec::new();
            hostile.encode(&mut bytes);
            assert_eq!(Reference::decode(&bytes), None, "{hostile:?}");
        }
    }
}
