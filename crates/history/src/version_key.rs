//! Keys of the historical tree: a user key and a time as bytes, whose order is that of the keys and, for one key, the latest time first.

use base::Time;

/// Length of the time at the end of a version key.
pub const TIME_LEN: usize = size_of::<u64>();

/// Ends a key: smaller than any byte that may follow in a longer key.
const END: [u8; 2] = [0, 1];

/// A zero byte of a key.
const ZERO: [u8; 2] = [0, 0xff];

/// Maximum length of a key with history, in bytes: if all of its bytes are zeros, the version key is twice as long.
pub const MAX_KEY_LEN: usize = (base::limits::MAX_KEY_LEN - END.len() - TIME_LEN) / 2;

/// Appends the part of all version keys of `key` before the time: its bytes, with each zero byte followed by 255, and the bytes 0 and 1. So
/// it is no prefix of that of another key, and orders as `key` does.
pub fn put_prefix(out: &mut Vec<u8>, key: &[u8]) {
    out.reserve(key.len() + END.len() + TIME_LEN);
    let mut parts = key.split(|byte| *byte == 0);
    out.extend_from_slice(parts.next().unwrap_or(&[]));
    for part in parts {
        out.extend_from_slice(&ZERO);
        out.extend_from_slice(part);
    }
    out.extend_from_slice(&END);
}

/// The part of all version keys of `key` before the time: see [`put_prefix`].
pub fn prefix_of(key: &[u8]) -> Vec<u8> {
    let mut prefix = Vec::new();
    put_prefix(&mut prefix, key);
    prefix
}

/// Appends the version key of `key` at `time`.
pub fn put_version_key(out: &mut Vec<u8>, key: &[u8], time: Time) {
    put_prefix(out, key);
    out.extend_from_slice(&(!time.micros()).to_be_bytes());
}

/// Divides a version key into its prefix and its time; `None` if it is malformed.
#[inline]
pub fn split(version_key: &[u8]) -> Option<(&[u8], Time)> {
    let (prefix, time) = version_key.split_last_chunk::<TIME_LEN>()?;
    prefix.ends_with(&END).then_some((prefix, Time::from_micros(!u64::from_be_bytes(*time))))
}

/// Appends the key of a prefix to `out`. Returns whether the prefix is well formed; if it is not, `out` may have a part of the key.
pub fn put_key_of(out: &mut Vec<u8>, prefix: &[u8]) -> bool {
    let Some(mut rest) = prefix.strip_suffix(&END) else { return false };
    while let Some(at) = rest.iter().position(|byte| *byte == 0) {
        let (part, zero) = rest.split_at(at);
        let Some(behind) = zero.strip_prefix(&ZERO) else { return false };
        out.extend_from_slice(part);
        out.push(0);
        rest = behind;
    }
    out.extend_from_slice(rest);
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_entries::version_key;
    use proptest::prelude::*;

    /// Keys in which bytes with a meaning in the encoding are frequent.
    fn key() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(prop::sample::select(vec![0u8, 1, 2, 0x61, 0xfe, 0xff]), 0..6)
    }

    proptest! {
        #[test]
        fn the_order_is_that_of_keys_and_then_the_latest_time_first(
            a in (key(), 0u64..4),
            b in (key(), 0u64..4),
        ) {
            let expected = a.0.cmp(&b.0).then(b.1.cmp(&a.1));
            prop_assert_eq!(version_key(&a.0, a.1).cmp(&version_key(&b.0, b.1)), expected);
        }

        #[test]
        fn keys_and_times_are_read_back(key in key(), micros: u64) {
            let bytes = version_key(&key, micros);
            let (prefix, time) = split(&bytes).unwrap();
            let mut read = Vec::new();
            prop_assert!(put_key_of(&mut read, prefix));
            prop_assert_eq!((read, time.micros()), (key, micros));
        }

        #[test]
        fn other_bytes_are_refused_or_are_the_key_of_what_is_read(bytes in prop::collection::vec(0u8..3, 0..20)) {
            if let Some((prefix, time)) = split(&bytes) {
                let mut key = Vec::new();
                if put_key_of(&mut key, prefix) {
                    prop_assert_eq!(version_key(&key, time.micros()), bytes);
                }
            }
        }
    }

    #[test]
    fn the_longest_key_has_a_version_key_within_the_limit() {
        assert!(version_key(&[0; MAX_KEY_LEN], 7).len() <= base::limits::MAX_KEY_LEN);
        assert!(split(&[]).is_none() && split(&[1; 10]).is_none());
        let mut out = Vec::new();
        assert!(!put_key_of(&mut out, b"a"), "no end");
        assert!(!put_key_of(&mut out, &[0, 2, 0, 1]), "a zero byte without 255");
    }
}
