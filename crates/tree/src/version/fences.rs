//! Fence keys: a compact copy of sorted keys, for binary searches that rarely look at the keys themselves.

use base::{compare_keys, head, shared_prefix};
use std::cmp::Ordering;

/// The common prefix of sorted keys, and the head of the rest of each. The prefix is left out because keys often begin
/// alike (`user/`, or leading zeros), and the heads of whole keys would then be equal.
#[derive(Debug, Default)]
pub(crate) struct Fences {
    prefix: Vec<u8>,
    heads: Vec<u64>,
}

impl Fences {
    /// The fences of these keys, which must be in ascending order and may repeat.
    pub(crate) fn new<'a>(keys: impl Iterator<Item = &'a [u8]> + Clone) -> Fences {
        let first = keys.clone().next().unwrap_or(&[]);
        let last = keys.clone().last().unwrap_or(&[]);
        let prefix = &first[..shared_prefix(first, last)];
        let heads = keys.map(|key| head(&key[prefix.len()..])).collect();
        Fences { prefix: prefix.to_vec(), heads }
    }

    /// The number of keys that are not greater than `key`. Among keys with an equal head, `passes` decides by the index
    /// of a key; it must be monotonic: false for all keys after the first that fails.
    #[inline]
    pub(crate) fn count(&self, key: &[u8], passes: impl Fn(usize) -> bool) -> usize {
        let Some(rest) = key.strip_prefix(&self.prefix[..]) else {
            return match compare_keys(key, &self.prefix) {
                Ordering::Less => 0,
                _ => self.heads.len(),
            };
        };
        let wanted = head(rest);
        let mut low = self.heads.partition_point(|&h| h < wanted);
        let mut high = match self.heads.get(low) {
            Some(&h) if h == wanted => low + self.heads[low..].partition_point(|&h| h == wanted),
            _ => low,
        };
        while low < high {
            let middle = low + (high - low) / 2;
            match passes(middle) {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        low
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_those_of_a_search_among_the_keys() {
        let stem = b"some/prefix/that/is/long";
        let tails: [&[u8]; 9] =
            [b"", b"\0", b"a", b"abcdefgh", b"abcdefgh\0", b"abcdefghi", b"abcdefghi", b"b", b"\xff\xff"];
        let of = |prefix: &[u8]| tails.map(|tail| [prefix, tail].concat()).to_vec();
        let sets = [
            Vec::new(),
            vec![Vec::new()],
            of(b""),
            of(stem),
            of(stem)[2..3].to_vec(),
            of(stem)[3..7].to_vec(),
        ];
        let mut probes: Vec<Vec<u8>> =
            [of(b""), of(stem), of(b"some/"), of(b"some/q"), of(b"some/o")].concat();
        probes.extend((0..stem.len()).map(|len| stem[..len].to_vec()));
        for keys in sets {
            let fences = Fences::new(keys.iter().map(|key| &key[..]));
            for probe in &probes {
                let expected = keys.iter().filter(|key| *key <= probe).count();
                assert_eq!(fences.count(probe, |i| keys[i] <= *probe), expected, "{probe:?} among {keys:?}");
                let expected = keys.iter().filter(|key| *key < probe).count();
                assert_eq!(
                    fences.count(probe, |i| keys[i] < *probe),
                    expected,
                    "before {probe:?} among {keys:?}"
                );
            }
        }
    }
}
