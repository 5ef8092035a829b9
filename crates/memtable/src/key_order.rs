//! The order of entries, and *tags*: 32 bits in each link that decide almost every comparison of a search without
//! access to the next node.
//!
//! The tag of a link from `a` to `b` holds the length of the common prefix of the keys of `a` and `b`, and the next
//! three bytes of `b`. A search for `t` at node `a` knows how many bytes `t` and `a` share, hence its own tag
//! relative to `a`, in the same format. With `a < b` and `a < t`:
//!
//! ```text
//! prefix(a, b) > prefix(a, t)   b shares more with a than t does: b < t
//! prefix(a, b) < prefix(a, t)   b shares less with a than t does: b > t
//! equal                         the next bytes of b and t decide, unless they are equal too
//! ```
//!
//! The prefix length is stored inverted in the top byte, so that all this is one comparison of two integers. It
//! adapts to keys with long common prefixes, where a fixed-length key head decides nothing.
//!
//! Keys count as padded with infinitely many zeros here. Padded keys order like keys, except that different keys may
//! be equal when padded ("a" and "a\0"). For such ties, and for prefixes longer than [`MAX_PREFIX`], a full
//! comparison decides.
//!
//! In a memtable in the order of hashes the tag of a key is bits of its hash, whatever the link starts from, and comes before the key in the order.

use base::Trailer;
use std::cmp::Ordering;

/// Longest common prefix that a tag can express. Longer ones look the same and decide nothing.
pub(crate) const MAX_PREFIX: usize = 255;

/// The tag of a link without a next node: no tag is larger.
pub(crate) const TAG_END: u32 = u32::MAX;

/// The target of a search: a position in the order of entries.
#[derive(Clone, Copy)]
pub(crate) struct Target<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) trailer: Trailer,
}

/// The tag of a key relative to another key with which it shares `prefix` bytes.
#[inline]
pub(crate) fn tag(key: &[u8], prefix: usize) -> u32 {
    if prefix >= MAX_PREFIX {
        return 0;
    }
    ((MAX_PREFIX - prefix) as u32) << 24 | three_bytes(key, prefix)
}

/// The prefix length in a tag ([`MAX_PREFIX`]: this length or more).
#[inline]
pub(crate) fn prefix(tag: u32) -> usize {
    MAX_PREFIX - (tag >> 24) as usize
}

/// Number of bytes behind the prefix that two different tags share; 0 if the prefixes differ.
#[inline]
pub(crate) fn shared_bytes(a: u32, b: u32) -> usize {
    ((a ^ b).leading_zeros() as usize / 8).saturating_sub(1)
}

/// The bytes `at..at + 3` of the padded key, as an integer.
#[inline]
fn three_bytes(key: &[u8], at: usize) -> u32 {
    if at >= key.len() {
        0
    } else if key.len() >= 4 {
        let from = at.min(key.len() - 4);
        let four = u32::from_be_bytes([key[from], key[from + 1], key[from + 2], key[from + 3]]);
        four << (8 * (at - from)) >> 8
    } else {
        let byte = |i: usize| key.get(i).map_or(0, |&b| u32::from(b));
        byte(at) << 16 | byte(at + 1) << 8 | byte(at + 2)
    }
}

/// Compares two keys that share `from` bytes when padded. Also returns how many bytes they share when padded
/// ([`MAX_PREFIX`] or more if they are equal that far).
#[inline]
pub(crate) fn compare_from(a: &[u8], b: &[u8], from: usize) -> (Ordering, usize) {
    let len = a.len().min(b.len());
    let mut at = from;
    while at < len {
        // Near the end the window moves back over bytes that are known to be equal.
        let window = if len >= 8 { at.min(len - 8) } else { 0 };
        let (x, y) = (base::head(&a[window..len]), base::head(&b[window..len]));
        if x != y {
            return (x.cmp(&y), window + (x ^ y).leading_zeros() as usize / 8);
        }
        at = window + 8;
    }
    let longer = if a.len() > b.len() { a } else { b };
    let shared = longer.iter().skip(len).take(MAX_PREFIX).take_while(|&&byte| byte == 0).count();
    let prefix = if len + shared == longer.len() { MAX_PREFIX } else { len + shared };
    (a.len().cmp(&b.len()), prefix)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys() -> Vec<Vec<u8>> {
        let mut keys: Vec<Vec<u8>> = vec![vec![], vec![0], vec![0, 0], vec![0, 0, 7], vec![255; 4]];
        for stem in
            [&b"a"[..], b"ab", b"abc\0", b"abcdefg", b"abcdefgh", b"abcdefghijklmnop", b"abcdefghijklmnoq"]
        {
            for end in [&b""[..], b"\0", b"\0\0\0\0\0\0\0\0\0x", b"b", b"\xff"] {
                keys.push([stem, end].concat());
            }
        }
        let long = [b'l'; 300];
        keys.extend([&long[..], &long[..254], &long[..255], &long[..256]].map(<[u8]>::to_vec));
        keys.push([&long[..], b"x"].concat());
        keys.sort();
        keys.dedup();
        if cfg!(miri) { keys.into_iter().step_by(5).collect() } else { keys }
    }

    fn padded_prefix(a: &[u8], b: &[u8]) -> usize {
        let byte = |key: &[u8], i| key.get(i).copied().unwrap_or(0);
        (0..MAX_PREFIX).find(|&i| byte(a, i) != byte(b, i)).unwrap_or(MAX_PREFIX)
    }

    #[test]
    fn full_comparison_finds_order_and_prefix_from_any_start() {
        let keys = keys();
        for a in &keys {
            for b in &keys {
                let expected = padded_prefix(a, b);
                for from in 0..=expected {
                    let (order, prefix) = compare_from(a, b, from);
                    assert_eq!(order, a.cmp(b), "{a:?} {b:?} from {from}");
                    assert_eq!(prefix.min(MAX_PREFIX), expected, "{a:?} {b:?} from {from}");
                }
            }
        }
    }

    #[test]
    fn tags_never_contradict_the_order_of_keys() {
        let keys = keys();
        let mut decided = 0;
        for (i, a) in keys.iter().enumerate() {
            for b in &keys[i + 1..] {
                for t in &keys[i + 1..] {
                    let link = tag(b, compare_from(a, b, 0).1);
                    let probe = tag(t, compare_from(a, t, 0).1);
                    if link != probe {
                        decided += 1;
                        assert_eq!(link.cmp(&probe), b.cmp(t), "a {a:?} b {b:?} t {t:?}");
                        if link < probe {
                            let prefix = prefix(probe) + shared_bytes(link, probe);
                            assert_eq!(
                                prefix.min(MAX_PREFIX),
                                padded_prefix(b, t),
                                "a {a:?} b {b:?} t {t:?}"
                            );
                        }
                    }
                }
            }
        }
        assert!(cfg!(miri) || decided > 1000);
    }
}
