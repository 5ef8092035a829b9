//! What the workloads write and look for: keys, values, and the order in which they come.
//!
//! Everything is a function of a seed and the number of the operation. So a run can be repeated, a thread can begin in
//! the middle, and the operations are the same whatever the number of threads. All of it takes a few nanoseconds.

/// The increment of SplitMix64: odd, and far from any simple fraction of 2⁶⁴.
const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;
const FACTOR_1: u64 = 0xbf58_476d_1ce4_e5b9;
const FACTOR_2: u64 = 0x94d0_49bb_1331_11eb;

/// A permutation of all 64-bit numbers that leaves no pattern (the last step of SplitMix64).
#[inline]
pub fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(FACTOR_1);
    x = (x ^ (x >> 27)).wrapping_mul(FACTOR_2);
    x ^ (x >> 31)
}

/// The inverse of [`mix`].
fn unmix(mut x: u64) -> u64 {
    x = (x ^ (x >> 31) ^ (x >> 62)).wrapping_mul(const { inverse(FACTOR_2) });
    x = (x ^ (x >> 27) ^ (x >> 54)).wrapping_mul(const { inverse(FACTOR_1) });
    x ^ (x >> 30) ^ (x >> 60)
}

/// The number that undoes a multiplication by `factor`, which is odd: Newton's iteration, which doubles the correct bits.
const fn inverse(factor: u64) -> u64 {
    let mut x = factor;
    let mut step = 0;
    while step < 5 {
        x = x.wrapping_mul(2u64.wrapping_sub(factor.wrapping_mul(x)));
        step += 1;
    }
    x
}

/// The seed of one part of a run: no two parts share their numbers, whatever the seeds of the runs.
pub fn seed_of(seed: u64, part: &str, occurrence: u64) -> u64 {
    let start = mix(seed.wrapping_add(GAMMA));
    let named = part.bytes().fold(start, |sum, byte| mix(sum ^ u64::from(byte)).wrapping_add(GAMMA));
    mix(named ^ occurrence)
}

/// Which key each operation is about.
#[derive(Clone, Copy, Debug)]
pub enum Order {
    /// One after another.
    Sequential,
    /// Any, with replacement.
    Random {
        /// Where the random numbers start.
        seed: u64,
    },
}

impl Order {
    /// The key of operation `op`, below `num`.
    #[inline]
    pub fn key_of(self, op: u64, num: u64) -> u64 {
        match self {
            Order::Sequential => op,
            Order::Random { seed } => {
                let random = mix(seed.wrapping_add(op.wrapping_add(1).wrapping_mul(GAMMA)));
                ((u128::from(random) * u128::from(num)) >> 64) as u64
            }
        }
    }
}

/// How many decimal digits `number` has.
pub fn digits(number: u64) -> usize {
    number.checked_ilog10().map_or(1, |log| log as usize + 1)
}

/// A key, written in place: the number in decimal, padded with zeros to the key's size.
pub struct Key {
    bytes: Vec<u8>,
    /// Where the digits that change begin and end.
    first: usize,
    end: usize,
}

impl Key {
    /// Room for keys of `size` bytes and numbers below `num`, which must fit.
    pub fn new(size: usize, num: u64) -> Key {
        Key { bytes: vec![b'0'; size], first: size - digits(num.saturating_sub(1)), end: size }
    }

    /// The same with a `.` behind: keys that nobody writes, each between two that somebody may write.
    pub fn missing(size: usize, num: u64) -> Key {
        let mut key = Key::new(size, num);
        key.bytes.push(b'.');
        key
    }

    /// The key of `number`.
    #[inline]
    pub fn of(&mut self, mut number: u64) -> &[u8] {
        let mut pairs = self.bytes[self.first..self.end].rchunks_exact_mut(2);
        for pair in &mut pairs {
            pair.copy_from_slice(&PAIRS[(number % 100) as usize]);
            number /= 100;
        }
        if let [digit] = pairs.into_remainder() {
            *digit = b'0' + number as u8;
        }
        &self.bytes
    }
}

/// "00" to "99".
const PAIRS: [[u8; 2]; 100] = {
    let mut pairs = [[0; 2]; 100];
    let mut n = 0;
    while n < 100 {
        pairs[n] = [b'0' + (n / 10) as u8, b'0' + (n % 10) as u8];
        n += 1;
    }
    pairs
};

/// Values begin at one of so many words: 4 MiB of them, which no compressor's window over a block spans.
const STARTS: u64 = 1 << 19;
/// The words of the pool are `mix` of consecutive numbers from here ("cairn" in ASCII).
const FIRST_WORD: u64 = 0x6361_6972_6e00_0000;

/// Values that cannot be compressed: pieces of a pool of random words.
///
/// A value is known by its first word, since [`mix`] can be undone: so a reader can tell without the pool, the seed or the
/// operation that wrote it whether it is one, and whole.
pub struct Values {
    pool: Vec<u8>,
    size: usize,
    start: u64,
    step: u64,
}

impl Values {
    /// Values of `size` bytes.
    pub fn new(size: usize, seed: u64) -> Values {
        let words = STARTS + size.div_ceil(8) as u64;
        let pool = (0..words).flat_map(|word| mix(FIRST_WORD + word).to_le_bytes()).collect();
        // An odd step visits every start before it comes back to one, and neighbours do not overlap.
        Values { pool, size, start: mix(seed), step: size.div_ceil(8) as u64 | 1 }
    }

    /// The value that operation `op` writes.
    #[inline]
    pub fn of(&self, op: u64) -> &[u8] {
        let start = self.start.wrapping_add(op.wrapping_mul(self.step)) % STARTS;
        &self.pool[start as usize * 8..][..self.size]
    }
}

/// Whether `value` is one of [`Values`], of any size; under eight bytes nobody can tell.
pub fn is_value(value: &[u8]) -> bool {
    let Some(first) = value.first_chunk::<8>() else { return true };
    let start = unmix(u64::from_le_bytes(*first)).wrapping_sub(FIRST_WORD);
    let as_written = |(word, bytes): (u64, &[u8])| mix(FIRST_WORD + word).to_le_bytes().starts_with(bytes);
    start < STARTS && (start..).zip(value.chunks(8)).all(as_written)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn mixing_can_be_undone() {
        for x in (0..10_000).map(|n: u64| n.wrapping_mul(GAMMA)).chain([0, 1, u64::MAX]) {
            assert_eq!(unmix(mix(x)), x);
        }
    }

    #[test]
    fn keys_are_padded_decimals() {
        for num in [1, 7, 10, 11, 100, 12_345, 1_000_000, 99_999_999] {
            let (mut key, mut missing) = (Key::new(16, num), Key::missing(16, num));
            for number in [0, num / 3, num / 2, num - 1, num / 7] {
                assert_eq!(key.of(number), format!("{number:016}").as_bytes());
                assert_eq!(missing.of(number), format!("{number:016}.").as_bytes());
            }
        }
        assert_eq!(Key::new(3, 1000).of(999), b"999");
        assert_eq!((digits(0), digits(9), digits(10), digits(u64::MAX)), (1, 1, 2, 20));
    }

    #[test]
    fn random_order_covers_the_keys() {
        let order = Order::Random { seed: 7 };
        let seen: BTreeSet<u64> = (0..10_000).map(|op| order.key_of(op, 1000)).collect();
        assert_eq!((seen.len(), seen.last()), (1000, Some(&999)));
        // About 1 - 1/e of all keys are met by as many draws.
        let seen: BTreeSet<u64> = (0..10_000).map(|op| order.key_of(op, 10_000)).collect();
        assert!((6100..6550).contains(&seen.len()), "{}", seen.len());
    }

    #[test]
    fn parts_have_seeds_of_their_own() {
        let seeds: BTreeSet<u64> = ["fillrandom", "readrandom", "a", "b", "ab", "ba"]
            .iter()
            .flat_map(|part| (0..3).flat_map(move |seed| (0..3).map(move |n| seed_of(seed, part, n))))
            .collect();
        assert_eq!(seeds.len(), 6 * 9);
    }

    #[test]
    fn values_are_known_again() {
        for size in [0, 1, 7, 8, 9, 100, 128, 5000] {
            let values = Values::new(size, 3);
            for op in (0..1000).chain([u64::MAX, u64::MAX / 2]) {
                let value = values.of(op);
                assert_eq!(value.len(), size);
                assert!(is_value(value));
                if size >= 8 {
                    let mut wrong = value.to_vec();
                    wrong[(op % size as u64) as usize] ^= 1 << (op % 8);
                    assert!(!is_value(&wrong), "size {size}, operation {op}");
                }
            }
        }
    }

    #[test]
    fn values_do_not_repeat_soon() {
        let values = Values::new(128, 1);
        let seen: BTreeSet<&[u8]> = (0..100_000).map(|op| values.of(op)).collect();
        assert_eq!(seen.len(), 100_000);
    }
}
