//! [`Place`]: where an entry is, and whether it is a delete, in eight bytes.

use base::{Error, ErrorKind, Result};
use record::ChunkPlace;

const WITHIN_BITS: u32 = 15;
const CHUNK_BITS: u32 = 32;
const KIND_BITS: u32 = 1;
const FILE_BITS: u32 = 64 - KIND_BITS - WITHIN_BITS - CHUNK_BITS;

/// The number of files in which a keyspace may have entries at one time.
pub const MAX_FILES: usize = 1 << FILE_BITS;

/// The number of files from which on flushes add none: collections, which take files away, and openings add theirs first.
pub const MAX_FLUSHED_FILES: usize = MAX_FILES - 1024;

/// An entry can be in the first so many bytes of a file.
pub const MAX_OFFSET: u64 = 1 << CHUNK_BITS;

/// Where an entry is: its file, by its position in the list of files of the index; the offset of the chunk in which the entry begins; the
/// index of its first byte in the payload of that chunk; and whether it is a delete. Ordered by file and offset.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place(u64);

impl Place {
    pub(crate) const ZERO: Place = Place(0);

    /// The place of an entry, which may be a delete, in the file with this number in the list.
    ///
    /// # Errors
    /// `InvalidArgument` if the chunk lies behind [`MAX_OFFSET`]: logs are closed before.
    pub fn new(file: u32, at: ChunkPlace, is_delete: bool) -> Result<Place> {
        debug_assert!((file as usize) < MAX_FILES && at.within < 1 << WITHIN_BITS);
        if at.chunk >= MAX_OFFSET {
            let what =
                format!("an entry at offset {} cannot be in an index: {MAX_OFFSET} is the limit", at.chunk);
            return Err(Error::new(ErrorKind::InvalidArgument, what));
        }
        let place = u64::from(file) << (CHUNK_BITS + WITHIN_BITS) | pack(at);
        Ok(Place(place << KIND_BITS | u64::from(is_delete)))
    }

    /// The same place in the file with another number.
    pub fn in_file(self, file: u32) -> Place {
        debug_assert!((file as usize) < MAX_FILES);
        let within_file = self.0 & ((1 << (CHUNK_BITS + WITHIN_BITS + KIND_BITS)) - 1);
        Place(u64::from(file) << (CHUNK_BITS + WITHIN_BITS + KIND_BITS) | within_file)
    }

    /// The number of its file in the list.
    pub fn file(self) -> u32 {
        (self.0 >> (CHUNK_BITS + WITHIN_BITS + KIND_BITS)) as u32
    }

    /// Whether the entry is a delete.
    pub fn is_delete(self) -> bool {
        self.0 & 1 == 1
    }

    /// Whether both entries begin in the same chunk.
    pub fn is_in_chunk_of(self, other: Place) -> bool {
        let chunk = |place: Place| place.0 >> (WITHIN_BITS + KIND_BITS);
        chunk(self) == chunk(other)
    }

    /// Its place in the file.
    pub fn at(self) -> ChunkPlace {
        let ChunkPlace { chunk, within } = unpack(self.0 >> KIND_BITS);
        ChunkPlace { chunk: chunk & (MAX_OFFSET - 1), within }
    }
}

/// The place of an entry in a file, in one number.
pub fn pack(at: ChunkPlace) -> u64 {
    at.chunk << WITHIN_BITS | u64::from(at.within)
}

/// The inverse of [`pack`].
pub fn unpack(packed: u64) -> ChunkPlace {
    ChunkPlace { chunk: packed >> WITHIN_BITS, within: (packed & ((1 << WITHIN_BITS) - 1)) as u16 }
}

impl std::fmt::Debug for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ChunkPlace { chunk, within } = self.at();
        let kind = if self.is_delete() { " delete" } else { "" };
        write!(f, "{}:{chunk}+{within}{kind}", self.file())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_keep_what_they_are_made_of_and_are_ordered_by_file_and_offset() {
        let mut before = None;
        for file in [0, 1, MAX_FILES as u32 - 1] {
            for chunk in [0, 11, 1 << 31, MAX_OFFSET - 1] {
                for within in [0, 6, (1 << 15) - 1] {
                    for is_delete in [false, true] {
                        let at = ChunkPlace { chunk, within };
                        let place = Place::new(file, at, is_delete).unwrap();
                        assert_eq!((place.file(), place.at(), place.is_delete()), (file, at, is_delete));
                        assert!(before < Some(place));
                        before = Some(place);
                        assert_eq!(Place::new(7, at, is_delete).unwrap().in_file(file), place);
                    }
                }
            }
        }
        let far = ChunkPlace { chunk: MAX_OFFSET, within: 0 };
        assert_eq!(Place::new(0, far, false).unwrap_err().kind(), ErrorKind::InvalidArgument);
    }
}
