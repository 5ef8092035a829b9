//! [`Reference`]: what a table has in place of a value, and its encoding; and [`SegmentShare`], the sum of references to one segment.

use crate::codec::{MAX_VARINT_LEN, Reader, put_varint};
use crate::limits::MAX_VALUE_LEN;

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

    /// Decodes the reference with which `bytes` begin, as an entry of a table does; `None` if it is malformed. What is behind it is not
    /// looked at: see [`Reference::split`].
    #[inline]
    pub fn decode(bytes: &[u8]) -> Option<Reference> {
        Some(Reference::split(bytes)?.0)
    }

    /// The reference with which `bytes` begin, and what is behind it: in a keyspace with history the time of the version, otherwise nothing.
    /// `None` if the reference is malformed.
    pub fn split(bytes: &[u8]) -> Option<(Reference, &[u8])> {
        let mut reader = Reader::new(bytes);
        let (segment, offset) = (reader.varint()?, reader.varint()?);
        let len = reader.varint().filter(|&len| len > 0 && len <= MAX_VALUE_LEN as u64)? as u32;
        let checksum = reader.u32()?;
        // Room for the headers of chunks, too.
        let ends = offset.checked_add(2 * u64::from(len)).is_some_and(|end| end <= i64::MAX as u64);
        (segment > 0 && ends).then_some((Reference { segment, offset, len, checksum }, reader.rest()))
    }
}

/// The references of a table to one value segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentShare {
    /// Number of the segment.
    pub segment: u64,
    /// Number of references.
    pub count: u64,
    /// Bytes of their values.
    pub bytes: u64,
}

impl SegmentShare {
    /// Counts a reference in `shares`, which are ascending by segment.
    pub fn count(shares: &mut Vec<SegmentShare>, reference: &Reference) {
        let Reference { segment, len, .. } = *reference;
        let at = shares.binary_search_by_key(&segment, |share| share.segment).unwrap_or_else(|at| {
            shares.insert(at, SegmentShare { segment, count: 0, bytes: 0 });
            at
        });
        shares[at].count += 1;
        shares[at].bytes += u64::from(len);
    }

    /// Appends the encoded shares: the distance of each segment from the one before, count and bytes, as varints.
    pub fn encode(shares: &[SegmentShare], out: &mut Vec<u8>) {
        let mut before = 0;
        for share in shares {
            put_varint(out, share.segment - before);
            put_varint(out, share.count);
            put_varint(out, share.bytes);
            before = share.segment;
        }
    }

    /// Decodes shares that take all of `bytes`; `None` if they are malformed.
    pub fn decode(bytes: &[u8]) -> Option<Vec<SegmentShare>> {
        let (mut reader, mut shares, mut segment) = (Reader::new(bytes), Vec::new(), 0u64);
        while !reader.is_empty() {
            segment = segment.checked_add(reader.varint().filter(|&distance| distance > 0)?)?;
            let (count, bytes) = (reader.varint()?, reader.varint()?);
            let sound = count > 0 && count <= bytes && bytes <= i64::MAX as u64;
            shares.push(sound.then_some(SegmentShare { segment, count, bytes })?);
        }
        Some(shares)
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
            bytes.push(7);
            assert_eq!(Reference::split(&bytes), Some((reference, &[7][..])));
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

    #[test]
    fn shares_are_counted_and_round_trip() {
        let mut shares = Vec::new();
        for (segment, len) in [(9, 10), (3, 1), (9, 20), (300, 7), (3, 2)] {
            SegmentShare::count(&mut shares, &Reference { segment, offset: 5, len, checksum: 0 });
        }
        let share = |segment, count, bytes| SegmentShare { segment, count, bytes };
        assert_eq!(shares, [share(3, 2, 3), share(9, 2, 30), share(300, 1, 7)]);
        let mut bytes = Vec::new();
        SegmentShare::encode(&shares, &mut bytes);
        assert_eq!(SegmentShare::decode(&bytes).as_deref(), Some(&shares[..]));
        assert!(
            (1..bytes.len()).filter(|cut| SegmentShare::decode(&bytes[..*cut]).is_none()).count()
                > bytes.len() / 2
        );
        for hostile in [&[0, 1, 1][..], &[1, 0, 0], &[1, 2, 1], &[1, 1]] {
            assert_eq!(SegmentShare::decode(hostile), None, "{hostile:?}");
        }
    }
}
