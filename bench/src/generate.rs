//! Generates keys, values, and the order of operations.
//!
//! Everything is a function of a seed and the number of the operation. Therefore a run can be repeated, a thread
//! can start at any operation, and the operations do not depend on the number of threads. Each function takes a few
//! nanoseconds.

use rand_distr::Distribution;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

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

/// The inverse of multiplication by `factor`, an odd number, modulo 2⁶⁴. Each step of Newton's iteration doubles
/// the number of correct bits.
const fn inverse(factor: u64) -> u64 {
    let mut x = factor;
    let mut step = 0;
    while step < 5 {
        x = x.wrapping_mul(2u64.wrapping_sub(factor.wrapping_mul(x)));
        step += 1;
    }
    x
}

/// The seed of one part of a run. Different parts get different numbers, for all seeds of runs.
pub fn seed_of(seed: u64, part: &str, occurrence: u64) -> u64 {
    let start = mix(seed.wrapping_add(GAMMA));
    let named = part.bytes().fold(start, |sum, byte| mix(sum ^ u64::from(byte)).wrapping_add(GAMMA));
    mix(named ^ occurrence)
}

/// The random number of operation `op`, in the part of a run with this seed.
#[inline]
pub fn random(seed: u64, op: u64) -> u64 {
    mix(seed.wrapping_add(op.wrapping_add(1).wrapping_mul(GAMMA)))
}

/// `random` scaled to a number below `limit`.
#[inline]
pub fn below(random: u64, limit: u64) -> u64 {
    ((u128::from(random) * u128::from(limit)) >> 64) as u64
}

/// The random numbers of an operation that needs more than one.
pub struct Stream(u64);

impl Stream {
    /// The stream of operation `op`.
    #[inline]
    pub fn new(seed: u64, op: u64) -> Stream {
        Stream(random(seed, op))
    }
}

impl rand_core::TryRng for Stream {
    type Error = std::convert::Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Self::Error> {
        Ok((self.try_next_u64()? >> 32) as u32)
    }

    #[inline]
    fn try_next_u64(&mut self) -> Result<u64, Self::Error> {
        self.0 = self.0.wrapping_add(GAMMA);
        Ok(mix(self.0))
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Self::Error> {
        for chunk in bytes.chunks_mut(8) {
            let word = self.try_next_u64()?.to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
        Ok(())
    }
}

/// Numbers from 0, where the probability of *k* is proportional to (*k* + 1)^-`exponent`.
#[derive(Clone, Copy, Debug)]
pub struct Zipf(rand_distr::Zipf<f64>);

impl Zipf {
    /// Numbers below `num`. YCSB uses the exponent 0.99.
    pub fn new(num: u64, exponent: f64) -> Zipf {
        Zipf(rand_distr::Zipf::new(num.max(1) as f64, exponent).expect("the exponents are not negative"))
    }

    /// The next number.
    #[inline]
    pub fn number(&self, stream: &mut Stream) -> u64 {
        self.0.sample(stream) as u64 - 1
    }
}

/// A permutation of the numbers below `len`, drawn from a seed and computed number by number, without a table.
///
/// It is a Feistel network over the smallest sufficient number of bits; an odd number of bits is split into halves
/// of different width. A result out of range goes through the network again, so the result is a permutation of the
/// range. Fewer than two passes are needed on average.
#[derive(Clone, Copy, Debug)]
pub struct Shuffle {
    len: u64,
    bits: u32,
    seed: u64,
}

impl Shuffle {
    /// The permutation of `0..len`; `len` must not be 0.
    pub fn new(len: u64, seed: u64) -> Shuffle {
        // At least two bits: each half needs one.
        Shuffle { len, bits: (64 - len.saturating_sub(1).leading_zeros()).max(2), seed }
    }

    /// The image of `number`, which must be below the length.
    #[inline]
    pub fn of(&self, mut number: u64) -> u64 {
        let (upper, lower) = (self.bits / 2, self.bits - self.bits / 2);
        loop {
            for round in 0..2 {
                number = self.round(number, 2 * round, upper, lower);
                number = self.round(number, 2 * round + 1, lower, upper);
            }
            if number < self.len {
                return number;
            }
        }
    }

    /// One round: the lower bits become the upper ones, and the upper bits, combined with a function of the lower
    /// ones, become the lower ones.
    #[inline]
    fn round(&self, number: u64, round: u64, upper: u32, lower: u32) -> u64 {
        let (high, low) = (number >> lower, number & ((1 << lower) - 1));
        low << upper | (high ^ (random(self.seed.wrapping_add(round), low) & ((1 << upper) - 1)))
    }
}

/// Number of decimal digits of `number`.
pub fn digits(number: u64) -> usize {
    number.checked_ilog10().map_or(1, |log| log as usize + 1)
}

/// How a number maps to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Shape {
    /// The number in decimal, padded with zeros: keys sort like their numbers, as in `db_bench`.
    Decimal,
    /// `user` and the hash of the number in 20 decimal digits: keys of neighbouring numbers are far apart, as in
    /// YCSB.
    Hashed,
}

impl Shape {
    /// Minimum length of the keys of all numbers below `num`, in bytes.
    pub fn size_min(self, num: u64) -> usize {
        match self {
            Shape::Decimal => digits(num.saturating_sub(1)),
            Shape::Hashed => USER.len() + digits(u64::MAX),
        }
    }
}

const USER: &[u8] = b"user";

/// A key in a reusable buffer.
pub struct Key {
    shape: Shape,
    bytes: Vec<u8>,
    /// Start and end of the digits that change.
    first: usize,
    end: usize,
}

impl Key {
    /// A buffer for keys of `size` bytes, at least [`Shape::size_min`], of numbers below `num`.
    pub fn new(shape: Shape, size: usize, num: u64) -> Key {
        let mut bytes = vec![b'0'; size];
        let first = match shape {
            Shape::Decimal => size - digits(num.saturating_sub(1)),
            Shape::Hashed => {
                bytes[..USER.len()].copy_from_slice(USER);
                USER.len()
            }
        };
        let end = if shape == Shape::Hashed { first + digits(u64::MAX) } else { size };
        Key { shape, bytes, first, end }
    }

    /// The same with a `.` appended: keys that no workload writes, each between two keys that workloads may write.
    pub fn missing(shape: Shape, size: usize, num: u64) -> Key {
        let mut key = Key::new(shape, size, num);
        key.bytes.push(b'.');
        key
    }

    /// The key of `number`.
    #[inline]
    pub fn of(&mut self, mut number: u64) -> &[u8] {
        if self.shape == Shape::Hashed {
            number = mix(number.wrapping_add(GAMMA));
        }
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

/// Number of words at which values start: 4 MiB of them, more than a compressor's window over a block.
const STARTS: u64 = 1 << 19;
/// The pool consists of `mix` of consecutive numbers from this one ("cairn" in ASCII).
const FIRST_WORD: u64 = 0x6361_6972_6e00_0000;

/// Lengths of values: one length, or several with their percentages.
///
/// As text: a number of bytes, or a list of `BYTES:PERCENT`, such as `9:60 104:20 1004:20`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Sizes(Vec<(usize, u64)>);

impl Sizes {
    /// Values of one length.
    pub fn all(size: usize) -> Sizes {
        Sizes(vec![(size, 100)])
    }

    /// The maximum length.
    pub fn max(&self) -> usize {
        self.0.iter().map(|class| class.0).max().unwrap_or(0)
    }

    /// Whether all values have the same length.
    pub fn is_one(&self) -> bool {
        self.0.len() == 1
    }

    /// The mean length.
    pub fn mean(&self) -> f64 {
        self.0.iter().map(|&(size, percent)| size as f64 * percent as f64 / 100.0).sum()
    }

    /// The lengths, and the share of the values that have each.
    pub fn shares(&self) -> impl Iterator<Item = (usize, f64)> {
        self.0.iter().map(|&(size, percent)| (size, percent as f64 / 100.0))
    }

    /// The length that a random number selects.
    #[inline]
    fn pick(&self, random: u64) -> usize {
        if let [(size, _)] = self.0[..] {
            return size;
        }
        let mut left = random % 100;
        for &(size, percent) in &self.0 {
            if left < percent {
                return size;
            }
            left -= percent;
        }
        unreachable!("the shares are 100 per cent together")
    }
}

impl fmt::Display for Sizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [(size, _)] = self.0[..] {
            return write!(f, "{size}");
        }
        let classes: Vec<_> = self.0.iter().map(|(size, percent)| format!("{size}:{percent}")).collect();
        f.write_str(&classes.join(" "))
    }
}

impl FromStr for Sizes {
    type Err = String;

    fn from_str(text: &str) -> Result<Sizes, String> {
        let wrong = || format!("{text:?} is neither a size nor a list of BYTES:PERCENT that adds up to 100");
        if let Ok(size) = text.trim().parse() {
            return Ok(Sizes::all(size));
        }
        let class = |class: &str| {
            let (size, percent) = class.split_once(':')?;
            Some((size.parse().ok()?, percent.parse().ok()?))
        };
        let classes: Vec<(usize, u64)> =
            text.split_whitespace().map(class).collect::<Option<_>>().ok_or_else(wrong)?;
        let sum = classes.iter().try_fold(0u64, |sum, class| sum.checked_add(class.1));
        if sum == Some(100) { Ok(Sizes(classes)) } else { Err(wrong()) }
    }
}

impl TryFrom<String> for Sizes {
    type Error = String;

    fn try_from(text: String) -> Result<Sizes, String> {
        text.parse()
    }
}

impl From<Sizes> for String {
    fn from(sizes: Sizes) -> String {
        sizes.to_string()
    }
}

/// Incompressible values: pieces of a pool of random words.
///
/// The first word of a value determines the rest, because [`mix`] is invertible. So a reader verifies a value
/// without the pool, the seed or the number of the operation that wrote it.
///
/// The value of a put depends on the key and on the *phase*, a seed of each workload of a run, but not on the
/// operation. Therefore the final content of the database does not depend on the number of threads or their order.
pub struct Values {
    pool: Vec<u8>,
    sizes: Sizes,
}

impl Values {
    /// Values of these lengths.
    pub fn new(sizes: &Sizes) -> Values {
        let words = STARTS + sizes.max().div_ceil(8) as u64;
        let pool = (0..words).flat_map(|word| mix(FIRST_WORD + word).to_le_bytes()).collect();
        Values { pool, sizes: sizes.clone() }
    }

    /// The value that puts of this phase store under the key of `number`.
    #[inline]
    pub fn of(&self, phase: u64, number: u64) -> &[u8] {
        let random = random(phase, number);
        let start = below(random, STARTS) as usize;
        &self.pool[start * 8..][..self.sizes.pick(random)]
    }
}

/// Whether `value` is one of [`Values`], of any length. Always true below eight bytes.
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
            let key = |missing| if missing { Key::missing } else { Key::new }(Shape::Decimal, 16, num);
            let (mut key, mut missing) = (key(false), key(true));
            for number in [0, num / 3, num / 2, num - 1, num / 7] {
                assert_eq!(key.of(number), format!("{number:016}").as_bytes());
                assert_eq!(missing.of(number), format!("{number:016}.").as_bytes());
            }
        }
        assert_eq!(Key::new(Shape::Decimal, 3, 1000).of(999), b"999");
        assert_eq!((digits(0), digits(9), digits(10), digits(u64::MAX)), (1, 1, 2, 20));
    }

    #[test]
    fn hashed_keys_are_distinct_and_far_apart() {
        let mut key = Key::new(Shape::Hashed, 24, 1000);
        let keys: Vec<_> = (0..1000).map(|number| key.of(number).to_vec()).collect();
        assert!(keys.iter().all(|key| key.len() == 24 && key.starts_with(b"user")));
        assert_eq!(keys.iter().collect::<BTreeSet<_>>().len(), 1000);
        assert!(!keys.is_sorted());
        assert_eq!(Shape::Hashed.size_min(5), 24);
    }

    #[test]
    fn random_numbers_cover_their_range() {
        let seen = |num| (0..10_000).map(|op| below(random(7, op), num)).collect::<BTreeSet<u64>>();
        assert_eq!((seen(1000).len(), seen(1000).last().copied()), (1000, Some(999)));
        // As many draws as keys hit a fraction of about 1 - 1/e of the keys.
        assert!((6100..6550).contains(&seen(10_000).len()), "{}", seen(10_000).len());
    }

    #[test]
    fn zipf_has_its_exponent() {
        for exponent in [0.4, 0.99, 1.1] {
            let zipf = Zipf::new(1000, exponent);
            let mut counts = [0u32; 1000];
            (0..400_000).for_each(|op| counts[zipf.number(&mut Stream::new(3, op)) as usize] += 1);
            // Number 0 is drawn 10^exponent times as often as number 9.
            let ratio = f64::from(counts[0]) / f64::from(counts[9]);
            let expected = 10f64.powf(exponent);
            assert!((ratio / expected - 1.0).abs() < 0.12, "{exponent}: {ratio} instead of {expected}");
        }
    }

    #[test]
    fn a_shuffle_is_a_permutation() {
        let around = |n: u64| [n - 1, n, n + 1];
        let powers = (1..=16).map(|bits| 1 << bits).flat_map(around);
        for len in powers.chain([3, 10, 1000, 12_345, 22_501, 99_999]) {
            for seed in [0, 5, u64::MAX] {
                let shuffle = Shuffle::new(len, seed);
                let mut seen = vec![false; len as usize];
                for number in (0..len).map(|n| shuffle.of(n)) {
                    assert!(number < len, "{len}: {number} is out of range");
                    assert!(!std::mem::replace(&mut seen[number as usize], true), "{len}: {number} twice");
                }
            }
        }
    }

    #[test]
    fn a_shuffle_is_random() {
        let numbers = |seed| (0..100_000).map(|n| Shuffle::new(100_000, seed).of(n)).collect::<Vec<_>>();
        let (one, other) = (numbers(1), numbers(2));
        let same = one.iter().zip(&other).filter(|(a, b)| a == b).count();
        assert!(same < 20, "{same} numbers go to the same place under another seed");
        // Half of all numbers are greater than their predecessors, and each tenth is spread evenly over all tenths.
        let rising = one.windows(2).filter(|pair| pair[0] < pair[1]).count();
        assert!((49_000..51_000).contains(&rising), "{rising}");
        for tenth in one.chunks(10_000) {
            let low = tenth.iter().filter(|number| **number < 10_000).count();
            assert!((850..1150).contains(&low), "{low}");
        }
    }

    #[test]
    fn a_large_shuffle_stays_in_range() {
        for len in [22_500_000, (1 << 40) + 7, u64::MAX] {
            let shuffle = Shuffle::new(len, 3);
            let seen: BTreeSet<u64> = (0..10_000).map(|n| shuffle.of(n)).collect();
            assert!(seen.len() == 10_000 && *seen.last().unwrap() < len);
        }
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
            let values = Values::new(&Sizes::all(size));
            for number in (0..1000).chain([u64::MAX, u64::MAX / 2]) {
                let value = values.of(3, number);
                assert_eq!(value.len(), size);
                assert!(is_value(value));
                if size >= 8 {
                    let mut wrong = value.to_vec();
                    wrong[(number % size as u64) as usize] ^= 1 << (number % 8);
                    assert!(!is_value(&wrong), "size {size}, number {number}");
                }
            }
        }
    }

    #[test]
    fn values_differ_by_key_and_phase() {
        let values = Values::new(&Sizes::all(128));
        let seen: BTreeSet<&[u8]> = (0..10_000).map(|n| values.of(n / 5000, n % 5000)).collect();
        assert!(seen.len() > 9_700, "{} of 10,000", seen.len());
        assert_eq!(values.of(1, 2), Values::new(&Sizes::all(128)).of(1, 2));
    }

    #[test]
    fn sizes_have_their_shares() {
        let sizes: Sizes = "9:60 104:20 1004:20".parse().unwrap();
        assert_eq!((sizes.to_string().as_str(), sizes.max()), ("9:60 104:20 1004:20", 1004));
        let values = Values::new(&sizes);
        let long = (0..100_000).filter(|&n| values.of(1, n).len() == 1004).count();
        let short = (0..100_000).filter(|&n| values.of(1, n).len() == 9).count();
        assert!((19_500..20_500).contains(&long) && (59_300..60_700).contains(&short), "{long} {short}");
        assert_eq!("128".parse::<Sizes>().unwrap(), Sizes::all(128));
        for wrong in ["", "9:50", "9:50 x:50", "9:50 7:60", "a"] {
            assert!(wrong.parse::<Sizes>().is_err(), "{wrong:?}");
        }
    }
}
