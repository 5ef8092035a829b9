//! Keys and values of typed keyspaces.

use cairn::typed::{AnyValue, Key, Serde, Value};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt::Debug;

/// The first byte selects the type. What is accepted is the same when it is encoded again, and two keys are in the order of their bytes.
pub(crate) fn typed(data: &[u8]) -> bool {
    let Some((kind, bytes)) = data.split_first() else { return false };
    match kind % 16 {
        0 => keys::<u64>(bytes, Ord::cmp),
        1 => keys::<i32>(bytes, Ord::cmp),
        2 => keys::<i128>(bytes, Ord::cmp),
        3 => keys::<f64>(bytes, floats),
        4 => keys::<f32>(bytes, |a, b| floats(&f64::from(*a), &f64::from(*b))),
        5 => keys::<bool>(bytes, Ord::cmp),
        6 => keys::<char>(bytes, Ord::cmp),
        7 => keys::<Vec<u8>>(bytes, Ord::cmp),
        8 => keys::<String>(bytes, Ord::cmp),
        9 => keys::<[u8; 5]>(bytes, Ord::cmp),
        10 => keys::<Option<String>>(bytes, Ord::cmp),
        11 => keys::<(Vec<u8>, i16, Option<(String, u8)>)>(bytes, Ord::cmp),
        12 => value::<AnyValue>(bytes),
        13 => value::<Serde<Vec<(u32, String)>>>(bytes),
        14 => value::<Serde<BTreeMap<String, Option<Vec<i64>>>>>(bytes),
        _ => value::<Serde<Result<f32, [bool; 3]>>>(bytes),
    }
}

/// In the order of keys NaN is the greatest, and there is one zero.
fn floats(a: &f64, b: &f64) -> Ordering {
    match (a.is_nan(), b.is_nan()) {
        (false, false) => a.partial_cmp(b).expect("neither is NaN"),
        (a, b) => a.cmp(&b),
    }
}

/// Takes two keys from the beginning.
fn keys<K: Key + Debug>(mut bytes: &[u8], compare: fn(&K, &K) -> Ordering) -> bool {
    let Some((first, of_first)) = key::<K>(&mut bytes) else { return false };
    if let Some((second, of_second)) = key::<K>(&mut bytes) {
        assert_eq!(of_first.cmp(of_second), compare(&first, &second), "{first:?} and {second:?}");
        let is_beginning = of_second.starts_with(of_first) && of_first != of_second;
        assert!(!is_beginning, "{first:?} begins {second:?}");
    }
    true
}

/// Takes a key, with its bytes.
fn key<'a, K: Key + Debug>(bytes: &mut &'a [u8]) -> Option<(K, &'a [u8])> {
    let before = *bytes;
    let key = K::decode_key(bytes)?;
    let taken = &before[..before.len() - bytes.len()];
    let mut again = Vec::new();
    key.encode_key(&mut again);
    assert_eq!(again, taken, "{key:?}");
    assert!(K::from_bytes(taken).is_some() && (bytes.is_empty() || K::from_bytes(before).is_none()));
    Some((key, taken))
}

/// An encoding that was decoded is the same when it is encoded again; what was decoded first may have had numbers of `serde` in a longer form.
fn value<V: Value + Debug>(bytes: &[u8]) -> bool {
    let Some(value) = V::decode_value(bytes) else { return false };
    let encode = |value: &V| {
        let mut out = Vec::new();
        value.encode_value(&mut out).expect("a value that was decoded");
        out
    };
    let shortest = encode(&value);
    let again = V::decode_value(&shortest).expect("what was encoded");
    assert_eq!(encode(&again), shortest, "{value:?}");
    true
}
