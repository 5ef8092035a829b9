//! Reproducible randomness: all choices of a run follow from one seed.

pub use cairn::env::Rng;
use std::hash::{BuildHasher, Hasher, RandomState};

/// More ways to draw from an [`Rng`].
pub trait Draw {
    /// One of `items`, which must not be empty.
    fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T;
    /// A number from `low` to `high`, both included.
    fn between(&mut self, low: usize, high: usize) -> usize;
    /// An index of `weights`, with probability proportional to its weight. The weights must not all be 0.
    fn weighted(&mut self, weights: &[u32]) -> usize;
}

impl Draw for Rng {
    fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len() as u64) as usize]
    }

    fn between(&mut self, low: usize, high: usize) -> usize {
        low + self.below((high - low) as u64 + 1) as usize
    }

    fn weighted(&mut self, weights: &[u32]) -> usize {
        let total: u32 = weights.iter().sum();
        let mut left = self.below(u64::from(total)) as u32;
        for (i, &weight) in weights.iter().enumerate() {
            if left < weight {
                return i;
            }
            left -= weight;
        }
        unreachable!("the draw is below the sum of the weights")
    }
}

/// A new seed. The caller must print it.
pub fn fresh_seed() -> u64 {
    RandomState::new().build_hasher().finish() >> 16
}

/// A seed that follows from `seed` and `salt`, for another generator.
pub fn derive(seed: u64, salt: u64) -> u64 {
    Rng::new(seed ^ salt.wrapping_mul(0xd6e8_feb8_6659_fd93)).next_u64()
}

/// A hash of a key and its value, the same in all runs. The hash of a state is the wrapping sum over its entries, so
/// that it can be updated entry by entry.
pub fn hash_entry(key: &[u8], value: &[u8]) -> u64 {
    // SipHash with fixed keys.
    #[allow(deprecated)]
    let mut hasher = std::hash::SipHasher::new();
    hasher.write_u64(key.len() as u64);
    hasher.write(key);
    hasher.write(value);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Printed seeds must replay in all later versions, so these numbers must never change.
    #[test]
    fn seeds_replay_for_ever() {
        let mut rng = Rng::new(42);
        assert_eq!(rng.next_u64(), 13_679_457_532_755_275_413);
        assert_eq!(rng.below(1000), 159);
        assert_eq!(derive(1, 2), 12_880_749_874_893_767_920);
        assert_eq!(hash_entry(b"key", b"value"), 15_870_808_097_038_633_605);
    }

    #[test]
    fn weights_are_respected() {
        let mut rng = Rng::new(7);
        let mut counts = [0; 3];
        (0..4000).for_each(|_| counts[rng.weighted(&[1, 0, 3])] += 1);
        assert!(counts[0] > 850 && counts[0] < 1150 && counts[1] == 0, "{counts:?}");
    }
}
