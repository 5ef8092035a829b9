//! [`ValueFile`]: a file of values that a collection has copied, as the manifest describes it, and [`Maps`]: where its values were before.

use crate::Forward;
use base::codec::{Reader, put_varint};
use base::limits::MAX_VALUE_LEN;
use base::{Error, Reference, Result};
use env::Env;
use std::collections::HashMap;
use std::path::Path;

/// A file of values that a collection has copied out of segments.
///
/// The file is a segment of [`record::SegmentKind::Values`]: a batch record for each entry, as in a log, and at its end a record with
/// the maps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueFile {
    /// Its number, from the numbers of tables.
    pub number: u64,
    /// Its length, in bytes.
    pub len: u64,
    /// Bytes of the values in it.
    pub value_bytes: u64,
    /// Offset of the first byte of the encoded [`Maps`].
    pub maps_at: u64,
    /// Length of the encoded maps, without headers of chunks.
    pub maps_len: u32,
    /// CRC-32C of the encoded maps.
    pub maps_checksum: u32,
    /// The segments whose values are in the file, ascending. One may be its own ([`own_segment`]).
    pub segments: Vec<u64>,
}

/// The segment of a value file with entries that are not named by where they were first written: it consists of the file alone, and no
/// reference leads there.
pub fn own_segment(number: u64) -> u64 {
    OWN | number
}

/// Whether a segment is a value file.
pub(crate) fn is_own_segment(segment: u64) -> bool {
    segment & OWN != 0
}

/// Marks the number of a segment that is a value file: no log has such a number.
const OWN: u64 = 1 << 62;

/// The file name of value file `number`.
pub fn value_file_name(number: u64) -> String {
    format!("{number:06}.val")
}

/// The number in the name of a value file.
pub fn parse_value_file_name(name: &str) -> Option<u64> {
    let number = name.strip_suffix(".val")?.parse().ok()?;
    (value_file_name(number) == name).then_some(number)
}

impl ValueFile {
    /// Appends the encoded description: number, length, bytes of the values, offset and length of the maps (varints), the checksum of the
    /// maps (4 bytes), and the distance of each segment from the one before (varints).
    pub fn encode(&self, out: &mut Vec<u8>) {
        for number in [self.number, self.len, self.value_bytes, self.maps_at, self.maps_len.into()] {
            put_varint(out, number);
        }
        out.extend_from_slice(&self.maps_checksum.to_le_bytes());
        let mut before = 0;
        for segment in &self.segments {
            put_varint(out, segment - before);
            before = *segment;
        }
    }

    /// Decodes a description that takes all of `bytes`; `None` if it is malformed.
    pub fn decode(bytes: &[u8]) -> Option<ValueFile> {
        let mut reader = Reader::new(bytes);
        let number = reader.varint().filter(|&number| number > 0)?;
        let len = reader.varint().filter(|&len| len <= i64::MAX as u64)?;
        let value_bytes = reader.varint().filter(|&bytes| bytes > 0 && bytes < len)?;
        let maps_at = reader.varint().filter(|&at| at < len)?;
        let maps_len =
            reader.varint().filter(|&n| n > 0 && n <= len - maps_at && n <= MAX_VALUE_LEN as u64)? as u32;
        let maps_checksum = reader.u32()?;
        let (mut segments, mut segment) = (Vec::new(), 0u64);
        while !reader.is_empty() {
            segment = segment.checked_add(reader.varint().filter(|&distance| distance > 0)?)?;
            segments.push(segment);
        }
        (!segments.is_empty()).then_some(ValueFile {
            number,
            len,
            value_bytes,
            maps_at,
            maps_len,
            maps_checksum,
            segments,
        })
    }

    /// Reads the maps from the file in `dir`.
    ///
    /// # Errors
    /// `Corruption`, with the file and its offset, if they are not those that were written; `Io`.
    pub fn read_maps(&self, env: &dyn Env, dir: &Path) -> Result<Maps> {
        let path = dir.join(value_file_name(self.number));
        let file = env.open(&path)?;
        let at =
            Reference { segment: 1, offset: self.maps_at, len: self.maps_len, checksum: self.maps_checksum };
        let bytes = crate::read_value(&*file, &path, &at, at.offset)?;
        // Segments that a later collection has moved on are in the maps, too.
        let maps = Maps::decode(&bytes).filter(|maps| self.segments.iter().all(|s| maps.0.contains_key(s)));
        maps.ok_or_else(|| Error::corruption(&path, self.maps_at, "the map of moved values is malformed"))
    }
}

/// Where the values of a value file were first written, and where they are in the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Maps(HashMap<u64, Forward>);

impl Maps {
    /// Adds a value: first written to `segment` at `old`, now at `new`. Values of a segment must be added in ascending order.
    pub fn push(&mut self, segment: u64, old: u64, new: u64) {
        self.0.entry(segment).or_default().push(old, new);
    }

    /// The offset in the value file of the value that was first written to `segment` at `old`.
    pub fn get(&self, segment: u64, old: u64) -> Option<u64> {
        self.0.get(&segment)?.get(old)
    }

    /// Adds a segment without values, which the file is itself.
    pub fn add_own(&mut self, segment: u64) {
        self.0.entry(segment).or_default();
    }

    /// The segments, ascending.
    pub fn segments(&self) -> Vec<u64> {
        let mut segments: Vec<u64> = self.0.keys().copied().collect();
        segments.sort_unstable();
        segments
    }

    /// Bytes of memory.
    pub fn memory(&self) -> usize {
        self.0.values().map(|map| map.memory() + size_of::<Forward>() + 8).sum()
    }

    /// Appends the encoded maps: the distance of each segment from the one before, and its map.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut before = 0;
        for segment in self.segments() {
            put_varint(out, segment - before);
            self.0[&segment].encode(out);
            before = segment;
        }
    }

    /// Decodes maps that take all of `bytes`; `None` if they are malformed.
    pub fn decode(bytes: &[u8]) -> Option<Maps> {
        let (mut reader, mut maps, mut segment) = (Reader::new(bytes), Maps::default(), 0u64);
        while !reader.is_empty() {
            segment = segment.checked_add(reader.varint().filter(|&distance| distance > 0)?)?;
            maps.0.insert(segment, Forward::decode(&mut reader)?);
        }
        Some(maps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptions_and_maps_round_trip_and_malformed_ones_are_refused() {
        let file = ValueFile {
            number: 7,
            len: 5000,
            value_bytes: 3000,
            maps_at: 4000,
            maps_len: 900,
            maps_checksum: 5,
            segments: vec![3, 9, 400],
        };
        let mut bytes = Vec::new();
        file.encode(&mut bytes);
        assert_eq!(ValueFile::decode(&bytes).as_ref(), Some(&file));
        let whole = (0..bytes.len()).filter(|cut| ValueFile::decode(&bytes[..*cut]).is_some()).count();
        assert_eq!(whole, 2, "after the first segment, and after the second");
        for hostile in [
            ValueFile { number: 0, ..file.clone() },
            ValueFile { maps_at: 5000, ..file.clone() },
            ValueFile { maps_len: 1001, ..file.clone() },
            ValueFile { maps_len: 0, ..file.clone() },
            ValueFile { value_bytes: 5000, ..file.clone() },
            ValueFile { value_bytes: 0, ..file.clone() },
            ValueFile { len: u64::MAX, ..file.clone() },
            ValueFile { segments: vec![], ..file.clone() },
        ] {
            let mut bytes = Vec::new();
            hostile.encode(&mut bytes);
            assert_eq!(ValueFile::decode(&bytes), None, "{hostile:?}");
        }
        let mut maps = Maps::default();
        for i in 0..100 {
            maps.push(9, 10 * i, 7 * i + 3);
            maps.push(3, 11 * i + 1, 8 * i + 3);
        }
        assert_eq!(
            (maps.get(9, 50), maps.get(3, 56), maps.get(3, 50), maps.get(4, 50)),
            (Some(38), Some(43), None, None)
        );
        let mut bytes = Vec::new();
        maps.encode(&mut bytes);
        assert_eq!(Maps::decode(&bytes), Some(maps));
        bytes.push(0);
        assert_eq!(Maps::decode(&bytes), None);
    }

    #[test]
    fn names_are_read_back_and_others_are_none() {
        assert_eq!(parse_value_file_name(&value_file_name(12)), Some(12));
        for other in ["12.val", "000012.tbl", "000012.val.tmp", "-00012.val"] {
            assert_eq!(parse_value_file_name(other), None);
        }
    }
}
