//! CRC-32C checksums over a run of bytes and over its position: file number, offset and kind. A block that was
//! swapped, misplaced or left over from an earlier use of its file fails like a block with a flipped bit.

/// The position of a checksummed run of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Number of the file.
    pub file: u64,
    /// Offset of the run in the file, in bytes.
    pub offset: u64,
    /// Kind of the run, as the file's format defines it.
    pub kind: u8,
}

/// The CRC-32C of `place` and `data`.
#[inline]
pub fn checksum(place: Place, data: &[u8]) -> u32 {
    let mut prefix = [0u8; 17];
    prefix[..8].copy_from_slice(&place.file.to_le_bytes());
    prefix[8..16].copy_from_slice(&place.offset.to_le_bytes());
    prefix[16] = place.kind;
    crc32c::crc32c_append(crc32c::crc32c(&prefix), data)
}

/// The CRC-32C of `data`, wherever it is: for values, which collections move.
#[inline]
pub fn checksum_of(data: &[u8]) -> u32 {
    crc32c::crc32c(data)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_and_every_part_of_the_place_count() {
        let place = Place { file: 7, offset: 4096, kind: 1 };
        let sum = checksum(place, b"data");
        assert_eq!(sum, checksum(place, b"data"));
        for other in [Place { file: 8, ..place }, Place { offset: 0, ..place }, Place { kind: 2, ..place }] {
            assert_ne!(sum, checksum(other, b"data"));
        }
        assert_ne!(sum, checksum(place, b"dada"));
    }
}
