//! Guards by hash: guard keys selected by the hash of inserted keys (PebblesDB, section 4.5).

use crate::TreeOptions;

/// Decides which keys are guards, and of which levels.
///
/// A key whose hash ends in `top_level_bits` ones is a guard of level 1. Each deeper level needs `bit_decrement` ones
/// fewer, so a guard of one level is a guard of every deeper level.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GuardHash {
    levels: u32,
    top_level_bits: u32,
    bit_decrement: u32,
    by_size: bool,
}

/// Records up to this size, in bytes, get no additional ones when guards are selected by size.
const SMALL_RECORD: usize = 128;

impl GuardHash {
    /// The rule for `options`; `None` if guards are adaptive.
    pub(crate) fn new(options: &TreeOptions) -> Option<GuardHash> {
        (options.guard_bytes == 0).then_some(GuardHash {
            levels: options.levels as u32,
            top_level_bits: options.top_level_bits,
            bit_decrement: options.bit_decrement,
            by_size: options.guards_by_size,
        })
    }

    /// The trailing ones that the hash of a small record needs for `level`; at least one, so that not every key is a
    /// guard.
    fn bits(&self, level: u32) -> u32 {
        self.top_level_bits.saturating_sub((level - 1) * self.bit_decrement).max(1)
    }

    /// The shallowest level for which the key with this hash is a guard, if any. `record_len` is the length of key and value.
    #[inline]
    pub(crate) fn level(&self, hash: u64, record_len: usize) -> Option<usize> {
        let mut ones = hash.trailing_ones();
        if self.by_size {
            ones += (record_len / SMALL_RECORD).max(1).ilog2();
        }
        if ones < self.bits(self.levels) {
            return None;
        }
        (1..=self.levels).find(|&level| ones >= self.bits(level)).map(|level| level as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(levels: usize, top: u32, decrement: u32, by_size: bool) -> GuardHash {
        GuardHash::new(&TreeOptions {
            levels,
            top_level_bits: top,
            bit_decrement: decrement,
            guards_by_size: by_size,
            guard_bytes: 0,
            ..crate::test_support::tree_options()
        })
        .unwrap()
    }

    #[test]
    fn trailing_ones_decide_the_level() {
        let rule = rule(3, 10, 2, false);
        assert_eq!(rule.level(0b11111, 10), None);
        assert_eq!(rule.level(0b111111, 10), Some(3));
        assert_eq!(rule.level((1 << 8) - 1, 10), Some(2));
        assert_eq!(rule.level((1 << 10) - 1, 1 << 20), Some(1));
        assert_eq!(rule.level(u64::MAX, 10), Some(1));
        assert_eq!(rule.level(u64::MAX << 1, 10), None);
    }

    #[test]
    fn large_records_count_more() {
        let rule = rule(2, 10, 2, true);
        assert_eq!(rule.level((1 << 7) - 1, 128), None);
        assert_eq!(rule.level((1 << 7) - 1, 256), Some(2));
        assert_eq!(rule.level((1 << 7) - 1, 1024), Some(1));
    }
}
