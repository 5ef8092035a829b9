//! The footer: the last 80 bytes of a table. It has the offsets of all other parts.
//!
//! ```text
//! footer := file:u64  file_size:u64  data_size:u64
//!           root_offset:u64  root_size:u32  levels:u8  probes:u8  0:u16
//!           filter_partitions:u32  filter_lines:u32
//!           properties_offset:u64  properties_size:u32  checksum:u32     of the 60 bytes before it
//!           version:u32  checksum:u32                                    of the version
//!           magic:[u8; 8]
//! ```
//!
//! The last 16 bytes have the same format in every version, so that a reader can distinguish a newer table from a damaged one.
//!
//! In version 1 data blocks follow each other directly; in version 3 zero padding may lie between them. There is no version 2: in old test
//! files this number stands for an unknown, newer version. Version 4 is that of size-class tables: the first part has value blocks, and
//! the root is the directory of the rows, with 0 levels. Version 5 is version 3 with times in the lowest level of the index.

use crate::format::decode_error::DecodeError;
use crate::format::filter::FilterShape;
use crate::format::frame::{Handle, Kind};
use base::checksum::{Place, checksum};
use base::codec::Reader;

/// Bytes of a footer.
pub(crate) const LEN: usize = 80;

/// Bytes before the first checksum.
pub(crate) const BODY: usize = 60;
/// The version of B+-trees that is written.
pub(crate) const VERSION: u32 = 3;
/// The version of size-class tables.
pub(crate) const SIZE_CLASS: u32 = 4;
/// The version of B+-trees whose index has the times of the entries of each data block.
pub(crate) const TIMED: u32 = 5;
/// The version without padding between data blocks.
pub(crate) const UNPADDED: u32 = 1;
const MAGIC: [u8; 8] = *b"cairntbl";

/// Maximum levels of index nodes: enough for 2^48 blocks with two children per node.
pub(crate) const MAX_LEVELS: u8 = 48;

/// A decoded footer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Footer {
    /// [`VERSION`], [`UNPADDED`], [`SIZE_CLASS`] or [`TIMED`].
    pub version: u32,
    pub file: u64,
    pub file_size: u64,
    /// Bytes of the data blocks or value blocks with their padding, from offset 0.
    pub data_size: u64,
    /// The root of the index, or the directory of the rows.
    pub root: Handle,
    /// Levels of index nodes, the root counted: the children of level 1 are data blocks. 0 in a size-class table.
    pub levels: u8,
    pub filter: FilterShape,
    pub properties: Handle,
}

impl Footer {
    /// Where the footer begins.
    fn offset(file_size: u64) -> u64 {
        file_size - LEN as u64
    }

    /// Whether this is a size-class table.
    #[inline]
    pub(crate) fn is_size_class(&self) -> bool {
        self.version == SIZE_CLASS
    }

    /// Whether the index has the times of data blocks.
    #[inline]
    pub(crate) fn is_timed(&self) -> bool {
        self.version == TIMED
    }

    /// The kind of the blocks of the first part.
    #[inline]
    pub(crate) fn data_kind(&self) -> Kind {
        if self.is_size_class() { Kind::Values } else { Kind::Data }
    }

    /// Where the index nodes begin, or the pages of rows with the zeros before them; the root is the last, and the properties begin where
    /// it ends.
    pub(crate) fn index_start(&self) -> u64 {
        self.data_size + self.filter.stored_len()
    }

    pub(crate) fn encode(&self) -> [u8; LEN] {
        let mut out = Vec::with_capacity(LEN);
        for word in [self.file, self.file_size, self.data_size, self.root.offset] {
            out.extend_from_slice(&word.to_le_bytes());
        }
        out.extend_from_slice(&self.root.size.to_le_bytes());
        out.extend_from_slice(&[self.levels, self.filter.probes, 0, 0]);
        out.extend_from_slice(&self.filter.partitions.to_le_bytes());
        out.extend_from_slice(&self.filter.lines.to_le_bytes());
        out.extend_from_slice(&self.properties.offset.to_le_bytes());
        out.extend_from_slice(&self.properties.size.to_le_bytes());
        out.extend_from_slice(&checksum(place(self.file, self.file_size, Kind::Footer), &out).to_le_bytes());
        out.extend_from_slice(&self.version.to_le_bytes());
        let sum = checksum(place(self.file, self.file_size, Kind::Version), &self.version.to_le_bytes());
        out.extend_from_slice(&sum.to_le_bytes());
        out.extend_from_slice(&MAGIC);
        let mut footer = [0; LEN];
        footer.copy_from_slice(&out);
        footer
    }

    /// The footer of table `file`, which is `file_size` bytes long.
    pub(crate) fn decode(bytes: &[u8; LEN], file: u64, file_size: u64) -> Result<Footer, DecodeError> {
        if bytes[LEN - 8..] != MAGIC {
            return Err(DecodeError::Corrupt("not the end of a table"));
        }
        let mut tail = Reader::new(&bytes[BODY..]);
        let mut word = || tail.u32().unwrap_or_default();
        let (sum, version, version_sum) = (word(), word(), word());
        if checksum(place(file, file_size, Kind::Version), &version.to_le_bytes()) != version_sum {
            return Err(DecodeError::Corrupt("checksum of the format version does not match"));
        }
        if ![VERSION, UNPADDED, SIZE_CLASS, TIMED].contains(&version) {
            return Err(DecodeError::Unknown("format version", version));
        }
        if checksum(place(file, file_size, Kind::Footer), &bytes[..BODY]) != sum {
            return Err(DecodeError::Corrupt("checksum of footer does not match"));
        }
        let footer =
            Self::parse(&bytes[..BODY], version).ok_or(DecodeError::Corrupt("footer is too short"))?;
        let tiled = footer.file == file
            && footer.file_size == file_size
            && footer.filter.is_valid()
            && footer.has_valid_levels()
            && footer.data_size <= file_size
            && footer.index_start() <= footer.root.offset
            && footer.root.end() == footer.properties.offset
            && footer.properties.end() == Self::offset(file_size);
        if tiled { Ok(footer) } else { Err(DecodeError::Corrupt("parts of the table do not fit together")) }
    }

    fn has_valid_levels(&self) -> bool {
        match self.is_size_class() {
            true => self.levels == 0,
            false => (1..=MAX_LEVELS).contains(&self.levels),
        }
    }

    /// Parses the 60 bytes before the first checksum, without verifying them.
    pub(crate) fn parse(body: &[u8], version: u32) -> Option<Footer> {
        let mut body = Reader::new(body);
        let (file, file_size, data_size) = (body.u64()?, body.u64()?, body.u64()?);
        let root = Handle { offset: body.u64()?, size: body.u32()? };
        let (levels, probes, _) = (body.u8()?, body.u8()?, body.u16()?);
        let filter = FilterShape { offset: data_size, partitions: body.u32()?, lines: body.u32()?, probes };
        let properties = Handle { offset: body.u64()?, size: body.u32()? };
        Some(Footer { version, file, file_size, data_size, root, levels, filter, properties })
    }
}

fn place(file: u64, file_size: u64, kind: Kind) -> Place {
    Place { file, offset: Footer::offset(file_size), kind: kind as u8 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn footer() -> Footer {
        let filter = FilterShape { offset: 1000, partitions: 2, lines: 3, probes: 6 };
        let root = Handle { offset: 1000 + filter.stored_len() + 7, size: 50 };
        let properties = Handle { offset: root.end(), size: 60 };
        Footer {
            version: VERSION,
            file: 12,
            file_size: properties.end() + LEN as u64,
            data_size: 1000,
            root,
            levels: 2,
            filter,
            properties,
        }
    }

    #[test]
    fn round_trips_and_refuses_every_flipped_bit() {
        for other in [
            Footer { version: UNPADDED, ..footer() },
            Footer { version: TIMED, ..footer() },
            Footer { version: SIZE_CLASS, levels: 0, ..footer() },
        ] {
            assert_eq!(Footer::decode(&other.encode(), 12, other.file_size), Ok(other));
            let wrong = Footer { levels: 1 - other.levels.min(1), ..other };
            assert!(Footer::decode(&wrong.encode(), 12, other.file_size).is_err());
        }
        let footer = footer();
        let bytes = footer.encode();
        assert_eq!(Footer::decode(&bytes, 12, footer.file_size), Ok(footer));
        assert!(Footer::decode(&bytes, 13, footer.file_size).is_err());
        assert!(Footer::decode(&bytes, 12, footer.file_size + 1).is_err());
        for bit in 0..LEN * 8 {
            let mut bad = bytes;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(
                matches!(Footer::decode(&bad, 12, footer.file_size), Err(DecodeError::Corrupt(_))),
                "bit {bit}"
            );
        }
    }

    #[test]
    fn a_newer_version_is_refused_by_name() {
        let footer = footer();
        for version in [0, 2, 6, 1 << 30] {
            let bytes = Footer { version, ..footer }.encode();
            assert_eq!(
                Footer::decode(&bytes, 12, footer.file_size),
                Err(DecodeError::Unknown("format version", version))
            );
        }
    }
}
