//! The filter: a blocked Bloom filter over the hashes of the table's keys, cut into partitions so that a look-up loads
//! one small block, and touches one cache line of it.
//!
//! A filter is an array of lines of 64 bytes. The high bits of a key's hash choose the line, the low ones up to seven
//! of its 512 bits. Partitions are runs of lines, all of one length, stored one after another as blocks that are never
//! compressed; the offset of partition *i* follows from the footer, so there is no directory.

use crate::format::frame::{HEADER_LEN, Handle};
use base::planted::{Bug, planted};

/// Bytes of a line: a cache line.
pub(crate) const LINE: usize = 64;

/// Maximum lines per partition: 64 KiB.
pub(crate) const MAX_PARTITION_LINES: u32 = 1024;

/// Maximum bits that are set for a key: each takes nine bits of a 64-bit product.
pub(crate) const MAX_PROBES: u8 = 7;

/// The shape of a table's filter, which the footer stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FilterShape {
    /// Offset of the first partition.
    pub offset: u64,
    pub partitions: u32,
    /// Lines of each partition.
    pub lines: u32,
    /// Bits per key; 0 when there is no filter.
    pub probes: u8,
}

impl FilterShape {
    /// The shape for `keys` distinct keys.
    pub(crate) fn new(offset: u64, keys: u64, bits_per_key: u32) -> FilterShape {
        if bits_per_key == 0 || keys == 0 {
            return FilterShape { offset, partitions: 0, lines: 0, probes: 0 };
        }
        let lines = keys.saturating_mul(u64::from(bits_per_key)).div_ceil(8 * LINE as u64).min(1 << 31);
        let partitions = lines.div_ceil(u64::from(MAX_PARTITION_LINES));
        let lines = lines.div_ceil(partitions) as u32;
        // The optimum of a plain Bloom filter is 0.69 times the bits; of a blocked one, a little less.
        let probes = (bits_per_key * 6 / 10).clamp(1, u32::from(MAX_PROBES)) as u8;
        FilterShape { offset, partitions: partitions as u32, lines, probes }
    }

    /// Whether a writer can have written this shape.
    pub(crate) fn is_valid(&self) -> bool {
        let none = self.probes == 0 && self.partitions == 0 && self.lines == 0;
        let some = (1..=MAX_PROBES).contains(&self.probes)
            && self.partitions > 0
            && (1..=MAX_PARTITION_LINES).contains(&self.lines);
        none || some
    }

    /// Bytes of a partition's payload.
    pub(crate) fn partition_len(&self) -> usize {
        self.lines as usize * LINE
    }

    /// Bytes of all partitions in the file.
    pub(crate) fn stored_len(&self) -> u64 {
        u64::from(self.partitions) * (self.partition_len() + HEADER_LEN) as u64
    }

    /// The block that holds partition `i`.
    pub(crate) fn handle(&self, i: u32) -> Handle {
        let size = (self.partition_len() + HEADER_LEN) as u32;
        Handle { offset: self.offset + u64::from(i) * u64::from(size), size }
    }

    /// The partition of the key with this hash, and the line in the partition. There must be a filter.
    #[inline]
    pub(crate) fn locate(&self, hash: u64) -> (u32, usize) {
        let line = line(hash, u64::from(self.partitions) * u64::from(self.lines));
        ((line / u64::from(self.lines)) as u32, (line % u64::from(self.lines)) as usize)
    }
}

/// The number of the line, of `lines` in all partitions, with the bits of the key with this hash.
#[inline]
pub(crate) fn line(hash: u64, lines: u64) -> u64 {
    ((u128::from(hash) * u128::from(lines)) >> 64) as u64
}

/// The bits of a key in its line.
#[inline]
fn bits(hash: u64, probes: u8) -> impl Iterator<Item = usize> {
    // The multiplication spreads the low bits of the hash, which did not choose the line, over the word.
    let mut word = hash.wrapping_mul(0xd6e8_feb8_6659_fd93);
    (0..probes).map(move |_| {
        let bit = (word >> 55) as usize;
        word <<= 9;
        bit
    })
}

/// Whether line `line` of a partition has all bits of the key with this hash.
/// `None` when the partition is too short.
#[inline]
pub(crate) fn may_contain(partition: &[u8], line: usize, hash: u64, probes: u8) -> Option<bool> {
    let line: &[u8; LINE] = partition.get(line * LINE..)?.first_chunk()?;
    Some(line_may_contain(line, hash, probes))
}

/// Whether the line has all bits of the key with this hash.
#[inline]
pub(crate) fn line_may_contain(line: &[u8; LINE], hash: u64, probes: u8) -> bool {
    if planted(Bug::FilterDeniesKeys) && hash.is_multiple_of(16) {
        return false;
    }
    bits(hash, probes).all(|bit| line[bit / 8] & 1 << (bit % 8) != 0)
}

/// All partitions of the filter for `hashes`, one after another.
pub(crate) fn build(shape: &FilterShape, hashes: &[u64]) -> Vec<u8> {
    let mut lines = vec![0; shape.partitions as usize * shape.partition_len()];
    for &hash in hashes {
        let (partition, line) = shape.locate(hash);
        let start = partition as usize * shape.partition_len() + line * LINE;
        let line = &mut lines[start..start + LINE];
        for bit in bits(hash, shape.probes) {
            line[bit / 8] |= 1 << (bit % 8);
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(i: u64) -> u64 {
        base::hash(&i.to_be_bytes())
    }

    fn contains(shape: &FilterShape, filter: &[u8], hash: u64) -> bool {
        let (partition, line) = shape.locate(hash);
        let partition = &filter[partition as usize * shape.partition_len()..][..shape.partition_len()];
        may_contain(partition, line, hash, shape.probes).unwrap()
    }

    /// Share of absent keys that pass, in percent.
    fn false_positives(keys: u64, bits_per_key: u32) -> f64 {
        let shape = FilterShape::new(0, keys, bits_per_key);
        assert!(shape.is_valid());
        let hashes: Vec<u64> = (0..keys).map(hash).collect();
        let filter = build(&shape, &hashes);
        assert!(hashes.iter().all(|&h| contains(&shape, &filter, h)));
        let probes = 200_000;
        let passed = (0..probes).filter(|i| contains(&shape, &filter, hash(i + (1 << 40)))).count();
        passed as f64 * 100.0 / probes as f64
    }

    #[test]
    fn about_one_percent_pass_at_ten_bits() {
        for keys in [1000, 100_000, 1_000_000] {
            let percent = false_positives(keys, 10);
            assert!(percent < 1.25, "{keys} keys: {percent} %");
        }
        assert!(false_positives(100_000, 16) < 0.25);
        assert!(false_positives(100_000, 4) < 20.0);
        assert!(false_positives(1, 10) < 1.0);
    }

    #[test]
    fn partitions_are_bounded_and_tile() {
        for keys in [1u64, 50, 51, 60_000, 10_000_000] {
            let shape = FilterShape::new(1000, keys, 10);
            assert!(shape.is_valid() && shape.partition_len() <= 64 << 10);
            assert!(u64::from(shape.partitions) * u64::from(shape.lines) * 512 >= keys * 10);
            assert_eq!(shape.handle(shape.partitions - 1).end(), 1000 + shape.stored_len());
            assert_eq!(shape.locate(0), (0, 0));
            assert_eq!(shape.locate(u64::MAX), (shape.partitions - 1, shape.lines as usize - 1));
        }
        assert_eq!(FilterShape::new(0, 10, 0).stored_len(), 0);
    }
}
