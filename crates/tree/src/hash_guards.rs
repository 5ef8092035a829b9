//! Choosing guards from the hash of inserted keys (PebblesDB, section 4.5), and the set of those chosen that no
//! compaction has taken up yet ("uncommitted guards", section 3.3).

use crate::TreeOptions;
use base::Slice;
use std::collections::BTreeMap;

/// Which keys are guards, and of which levels.
///
/// A key whose hash ends in `top_level_bits` ones is a guard of level 1; each deeper level asks for `bit_decrement` ones fewer.
/// So a guard of one level is a guard of every deeper level.
#[derive(Clone, Copy, Debug)]
pub struct GuardHash {
    levels: u32,
    top_level_bits: u32,
    bit_decrement: u32,
    by_size: bool,
    /// Trailing ones below which no record can be a guard, however large: the quick way out.
    least_bits: u32,
}

/// Records up to this size, in bytes, count once when guards are chosen by size.
const UNIT_RECORD: usize = 128;

impl GuardHash {
    /// The rule that `options` ask for.
    pub fn new(options: &TreeOptions) -> GuardHash {
        let levels = options.levels as u32;
        let mut rule = GuardHash {
            levels,
            top_level_bits: options.top_level_bits,
            bit_decrement: options.bit_decrement,
            by_size: options.guards_by_size,
            least_bits: 0,
        };
        rule.least_bits = match rule.by_size {
            // The data decides, and no hash has so many ones.
            _ if options.guard_bytes > 0 => u64::BITS + 1,
            true => 0,
            false => rule.bits(levels),
        };
        rule
    }

    /// Ones that the hash of a small record needs for `level`; at least one, so that not every key is a guard.
    fn bits(&self, level: u32) -> u32 {
        self.top_level_bits.saturating_sub((level - 1) * self.bit_decrement).max(1)
    }

    /// The shallowest level for which the key with this hash is a guard, if any. `record_len` is the length of key and value.
    #[inline]
    pub fn level(&self, hash: u64, record_len: usize) -> Option<usize> {
        let mut ones = hash.trailing_ones();
        if ones < self.least_bits {
            return None;
        }
        if self.by_size {
            ones += (record_len / UNIT_RECORD).max(1).ilog2();
        }
        if ones < self.bits(self.levels) {
            return None;
        }
        (1..=self.levels).find(|&level| ones >= self.bits(level)).map(|level| level as usize)
    }
}

/// Guards chosen from inserted keys that are not yet guards of all their levels: key and shallowest level.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UncommittedGuards(BTreeMap<Slice, u8>);

impl UncommittedGuards {
    /// Adds a key, or moves it up when it is there for a deeper level.
    pub fn add(&mut self, key: Slice, level: usize) {
        let level = level as u8;
        self.0.entry(key).and_modify(|l| *l = (*l).min(level)).or_insert(level);
    }

    /// Takes a key out.
    pub fn remove(&mut self, key: &[u8]) {
        self.0.remove(key);
    }

    /// Those in `[from, to)`, ascending; `to` of `None` is the end of all keys.
    pub fn range<'a>(
        &'a self,
        from: &'a [u8],
        to: Option<&'a [u8]>,
    ) -> impl Iterator<Item = (&'a Slice, usize)> {
        self.0
            .range::<[u8], _>((std::ops::Bound::Included(from), std::ops::Bound::Unbounded))
            .take_while(move |(key, _)| to.is_none_or(|to| &key[..] < to))
            .map(|(key, &level)| (key, level as usize))
    }

    /// The level noted for a key.
    pub fn get(&self, key: &[u8]) -> Option<usize> {
        self.0.get(key).map(|&level| level as usize)
    }

    /// All of them, ascending.
    pub fn iter(&self) -> impl Iterator<Item = (&Slice, usize)> {
        self.0.iter().map(|(key, &level)| (key, level as usize))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
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
            ..crate::version::tests::options()
        })
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

    #[test]
    fn candidates_keep_the_shallowest_level() {
        let mut set = UncommittedGuards::default();
        set.add(Slice::copy_from(b"k"), 3);
        set.add(Slice::copy_from(b"k"), 2);
        set.add(Slice::copy_from(b"k"), 4);
        set.add(Slice::copy_from(b"z"), 1);
        assert_eq!(set.range(b"a", Some(b"z")).map(|(_, l)| l).collect::<Vec<_>>(), [2]);
        assert_eq!(set.range(b"a", None).count(), 2);
    }
}
