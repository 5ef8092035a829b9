//! Typed keyspaces: encodings keep the order and come back; a value of another type is an error.

use cairn::env::{Rng, SimEnv};
use cairn::typed::{AnyValue, EncodeKey, EncodeValue, Key, TypedKeyspace, Value};
use cairn::{Database, Durability, ErrorKind, Keyspace, KeyspaceOptions, Merge, Options, Preset};
use std::cmp::Ordering;
use std::fmt::Debug;
use std::time::Duration;

/// All pairs of `values` compare as their encodings do, and each comes back, also with something behind it.
fn keeps_order<T: Key + Debug>(values: &[T], compare: impl Fn(&T, &T) -> Ordering) {
    let encoded: Vec<Vec<u8>> = values.iter().map(Key::to_bytes).collect();
    for (i, (value, bytes)) in values.iter().zip(&encoded).enumerate() {
        let back = T::from_bytes(bytes).unwrap_or_else(|| panic!("{value:?} does not come back"));
        assert_eq!(compare(&back, value), Ordering::Equal, "{value:?} comes back as {back:?}");
        assert!(
            bytes.is_empty() || T::from_bytes(&bytes[..bytes.len() - 1]).is_none(),
            "a part of {value:?}"
        );
        let longer = [&bytes[..], &[0xab]].concat();
        let mut left = &longer[..];
        assert!(T::decode_key(&mut left).is_some() && left == [0xab], "{value:?} with a byte behind it");
        for (other, others) in values[i..].iter().zip(&encoded[i..]) {
            assert_eq!(bytes.cmp(others), compare(value, other), "{value:?} and {other:?}");
        }
    }
}

fn keeps<T: Key + Debug + Ord>(values: &[T]) {
    keeps_order(values, T::cmp);
}

fn floats() -> Vec<f64> {
    let mut rng = Rng::new(1);
    let special = [0.0, 1.0, f64::MIN_POSITIVE, 5e-324, f64::MAX, f64::EPSILON, f64::INFINITY, 1e300, 0.1];
    let random = (0..60).map(|_| f64::from_bits(rng.next_u64())).filter(|number| !number.is_nan());
    special.into_iter().chain(random).flat_map(|number| [number, -number]).collect()
}

#[test]
fn numbers_keep_their_order() {
    let mut rng = Rng::new(2);
    let mut words: Vec<u64> = (0..80).map(|i| rng.next_u64() >> (i % 64)).collect();
    words.extend([0, 1, 127, 128, 255, 256, u64::MAX, u64::MAX / 2, u64::MAX / 2 + 1]);
    keeps(&words);
    keeps(&words.iter().map(|n| n.cast_signed()).collect::<Vec<i64>>());
    keeps(&words.iter().map(|n| *n as u8).collect::<Vec<u8>>());
    keeps(&words.iter().map(|n| *n as i8).collect::<Vec<i8>>());
    keeps(&words.iter().map(|n| *n as u16).collect::<Vec<u16>>());
    keeps(&words.iter().map(|n| *n as i16).collect::<Vec<i16>>());
    keeps(&words.iter().map(|n| *n as u32).collect::<Vec<u32>>());
    keeps(&words.iter().map(|n| *n as i32).collect::<Vec<i32>>());
    keeps(&words.iter().map(|n| u128::from(*n) << 64 | u128::from(n ^ 5)).collect::<Vec<u128>>());
    keeps(&words.iter().map(|n| i128::from(n.cast_signed()) << 60).collect::<Vec<i128>>());
    keeps(&[false, true]);
    keeps(&['\0', 'a', 'é', '\u{d7ff}', '\u{e000}', '😀', char::MAX]);
}

/// -0.0 is 0.0, and NaN is one value after infinity.
#[test]
fn floats_keep_their_order() {
    let with_nan = |a: &f64, b: &f64| match (a.is_nan(), b.is_nan()) {
        (false, false) => a.partial_cmp(b).unwrap(),
        (a, b) => a.cmp(&b),
    };
    let values: Vec<f64> = floats().into_iter().chain([f64::NAN, -f64::NAN]).collect();
    keeps_order(&values, with_nan);
    let narrow: Vec<f32> = values.iter().map(|n| *n as f32).collect();
    keeps_order(&narrow, |a, b| with_nan(&f64::from(*a), &f64::from(*b)));
    assert_eq!((-0.0f64).to_bytes(), 0.0f64.to_bytes());
    assert_eq!(f64::from_bits(0x7ff0_0000_0000_0001).to_bytes(), f64::NAN.to_bytes());
    assert_eq!(f64::NAN.to_bytes(), [0xff, 0xf8, 0, 0, 0, 0, 0, 0]);
    assert_eq!((-f32::NAN).to_bytes(), [0xff, 0xc0, 0, 0]);
    assert_eq!(
        (1.0f64.to_bytes(), (-1.0f32).to_bytes()),
        (vec![0xbf, 0xf0, 0, 0, 0, 0, 0, 0], vec![0x40, 0x7f, 0xff, 0xff])
    );
}

#[test]
fn strings_options_and_tuples_keep_their_order() {
    let mut rng = Rng::new(3);
    let mut strings: Vec<Vec<u8>> =
        vec![vec![], vec![0], vec![0, 0], vec![0, 1], vec![1], vec![255], vec![0, 255]];
    for _ in 0..60 {
        let len = rng.below(6);
        strings.push((0..len).map(|_| [0, 1, 2, b'a', 255][rng.below(5) as usize]).collect());
    }
    keeps(&strings);
    keeps(&strings.iter().map(|s| String::from_utf8_lossy(s).into_owned()).collect::<Vec<_>>());
    keeps(&strings.iter().map(|s| (!s.is_empty()).then(|| s.clone())).collect::<Vec<_>>());
    let pairs: Vec<(Vec<u8>, Option<i8>, Vec<u8>)> = (0..150)
        .map(|_| {
            let mut string = || strings[rng.below(strings.len() as u64) as usize].clone();
            let (first, last) = (string(), string());
            (first, (rng.below(3) > 0).then(|| rng.below(5) as i8 - 2), last)
        })
        .collect();
    keeps(&pairs);
    keeps(&[[3u8, 0, 7], [3, 1, 0], [0, 0, 0]]);
    assert_eq!(().to_bytes(), Vec::<u8>::new());
    assert_eq!(("é", 5u16).encoded(), "é\0\0\0\u{5}".as_bytes());
}

/// The encoding of what can be encoded only.
trait Encoded {
    fn encoded(&self) -> Vec<u8>;
}

impl<T: EncodeKey> Encoded for T {
    fn encoded(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.encode_key(&mut out);
        out
    }
}

/// Whatever bytes are decoded: what comes out has exactly these bytes as its encoding, so that no two keys of bytes are one typed key.
#[test]
fn hostile_bytes_are_no_keys() {
    fn check<T: Key>(bytes: &[u8]) {
        let mut left = bytes;
        if let Some(key) = T::decode_key(&mut left) {
            assert_eq!(key.to_bytes(), bytes[..bytes.len() - left.len()]);
        }
    }
    let mut rng = Rng::new(4);
    for _ in 0..50_000 {
        let mut bytes = vec![0; rng.below(24) as usize];
        rng.fill(&mut bytes);
        if rng.below(2) == 0 {
            bytes.iter_mut().for_each(|byte| *byte &= [0, 1, 3, 255][rng.below(4) as usize]);
        }
        check::<f64>(&bytes);
        check::<f32>(&bytes);
        check::<bool>(&bytes);
        check::<char>(&bytes);
        check::<String>(&bytes);
        check::<Vec<u8>>(&bytes);
        check::<(Option<String>, i16, Option<f32>)>(&bytes);
    }
    for nan in [f64::NAN, -f64::NAN, f64::from_bits(0x7ff0_0000_0000_0001)] {
        let bits = nan.to_bits();
        check::<f64>(&(if bits >> 63 == 0 { bits | 1 << 63 } else { !bits }).to_be_bytes());
    }
    check::<f64>(&(!(1u64 << 63)).to_be_bytes());
}

fn keyspace(options: KeyspaceOptions) -> (Database, Keyspace) {
    let db = Database::open_in(SimEnv::new(1), "/db", Options::default().background_threads(0)).unwrap();
    let keyspace = db.keyspace("k", options).unwrap();
    (db, keyspace)
}

#[test]
fn values_come_back_and_other_types_are_errors() {
    fn encoded(value: &dyn Fn(&mut Vec<u8>) -> cairn::Result<()>) -> Vec<u8> {
        let mut out = Vec::new();
        value(&mut out).unwrap();
        out
    }
    fn check<V: Value + PartialEq + Debug>(value: V, is: AnyValue) {
        let bytes = encoded(&|out| value.encode_value(out));
        assert_eq!(V::decode_value(&bytes), Some(value));
        assert_eq!(AnyValue::decode_value(&bytes).as_ref(), Some(&is));
        assert_eq!(encoded(&|out| is.encode_value(out)), bytes);
        // Each type is decoded as itself only.
        let decoded = [
            i64::decode_value(&bytes).is_some(),
            f64::decode_value(&bytes).is_some(),
            f32::decode_value(&bytes).is_some(),
            bool::decode_value(&bytes).is_some(),
            String::decode_value(&bytes).is_some(),
            Vec::<u8>::decode_value(&bytes).is_some(),
        ];
        assert_eq!(decoded.iter().filter(|is| **is).count(), 1, "{is:?}");
        for malformed in [&bytes[..bytes.len() - 1], &[], &[0], &[9, 1]] {
            assert!(V::NAME == "string" || V::NAME == "bytes" || V::decode_value(malformed).is_none());
        }
    }
    check(-5i64, AnyValue::Int(-5));
    check(i64::MAX, AnyValue::Int(i64::MAX));
    check(-0.0f64, AnyValue::Double(-0.0));
    check(1.5f32, AnyValue::Float(1.5));
    check(true, AnyValue::Bool(true));
    check(String::new(), AnyValue::String(String::new()));
    check("é".to_owned(), AnyValue::String("é".to_owned()));
    check(vec![0u8, 255], AnyValue::Bytes(vec![0, 255]));
    let nan = f64::from_bits(0x7ff8_dead_beef_0001);
    let bytes = encoded(&|out| nan.encode_value(out));
    assert_eq!(f64::decode_value(&bytes).unwrap().to_bits(), nan.to_bits());
    for malformed in [&[4, 2][..], &[5, 0xff], &[1, 0, 0], &[7, 0]] {
        assert_eq!(AnyValue::decode_value(malformed), None);
    }

    let (db, keyspace) = keyspace(KeyspaceOptions::default());
    let ints = TypedKeyspace::<String, i64>::new(keyspace.clone());
    let doubles = TypedKeyspace::<String, f64>::new(keyspace.clone());
    ints.put("seven", &7).unwrap();
    doubles.put("half", &0.5).unwrap();
    assert_eq!((ints.get("seven").unwrap(), doubles.get("half").unwrap()), (Some(7), Some(0.5)));
    for error in [
        ints.get("half").map(drop).unwrap_err(),
        doubles.get("seven").map(drop).unwrap_err(),
        ints.multi_get(&["seven".to_owned(), "half".to_owned()]).map(drop).unwrap_err(),
        ints.iter().collect::<cairn::Result<Vec<_>>>().map(drop).unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::WrongType, "{error}");
        assert!(error.to_string().contains("\"k\""), "{error}");
    }
    // A key of another type, after which the iteration goes on.
    keyspace.put("no string", "").unwrap();
    let kinds: Vec<_> = doubles.iter().map(|entry| entry.map_err(|e| e.kind())).collect();
    assert_eq!(kinds, [Ok(("half".to_owned(), 0.5)), Err(ErrorKind::WrongType), Err(ErrorKind::WrongType)]);
    db.close().unwrap();
    assert_eq!(ints.get("seven").unwrap_err().kind(), ErrorKind::Closed);
}

#[test]
fn typed_keyspaces_read_and_write_like_keyspaces() {
    let (db, keyspace) = keyspace(KeyspaceOptions::default());
    let typed = TypedKeyspace::<(String, i64), f64>::new(keyspace);
    let key = |name: &str, n: i64| (name.to_owned(), n);
    let mut batch = db.batch();
    for n in -3..3 {
        typed.put_in(&mut batch, &key("a", n), &(n as f64)).unwrap();
        typed.put_in(&mut batch, &key("ab", n), &0.25).unwrap();
    }
    typed.delete_in(&mut batch, &key("ab", 1));
    db.write(batch, Durability::Sync).unwrap();
    let snapshot = db.snapshot();
    typed.put_with(&key("b", 0), &9.0, Durability::Sync).unwrap();
    typed.delete_with(&key("a", -3), Durability::Os).unwrap();
    typed.delete(&key("a", -2)).unwrap();
    let numbers = |range: cairn::typed::TypedRange<(String, i64), f64>| {
        range.map(|entry| entry.unwrap().0.1).collect::<Vec<i64>>()
    };
    assert_eq!(numbers(typed.prefix("a")), [-1, 0, 1, 2]);
    assert_eq!(numbers(typed.prefix(&("ab".to_owned(),))), [-3, -2, -1, 0, 2]);
    assert_eq!(numbers(typed.range(key("a", 1)..key("ab", -1))), [1, 2, -3, -2]);
    assert_eq!(numbers(typed.range(..=key("a", 0))), [-1, 0]);
    assert_eq!(typed.iter().next_back().unwrap().unwrap(), (key("b", 0), 9.0));
    assert_eq!(typed.entries().count(), 10);
    assert!(typed.contains(&key("b", 0)).unwrap() && !typed.contains(&key("b", 1)).unwrap());
    assert_eq!(typed.multi_get(&[key("a", 2), key("a", -2)]).unwrap(), [Some(2.0), None]);
    let view = typed.view(&snapshot);
    assert_eq!(view.get(&key("a", -3)).unwrap(), Some(-3.0));
    assert_eq!(view.multi_get(&[key("a", -2), key("b", 0)]).unwrap(), [Some(-2.0), None]);
    assert_eq!((view.iter().count(), view.entries().count()), (11, 11));
    assert_eq!(numbers(view.prefix("a")), [-3, -2, -1, 0, 1, 2]);
    assert_eq!(numbers(view.range(key("ab", 0)..)), [0, 2]);
    assert!(view.contains(&key("a", -3)).unwrap() && !view.contains(&key("b", 0)).unwrap());
    typed.delete_prefix("ab").unwrap();
    typed.delete_range(..key("a", 1)).unwrap();
    assert_eq!(numbers(typed.iter()), [1, 2, 0]);
    db.close().unwrap();
}

#[test]
fn typed_batches_merge_integers_and_refuse_operators_that_know_no_types() {
    let (db, sums) = keyspace(KeyspaceOptions::default().merge(Merge::I64Add));
    let sums = TypedKeyspace::<String, i64>::new(sums);
    sums.put("a", &5).unwrap();
    let mut batch = db.batch();
    sums.merge_in(&mut batch, "a", &2).unwrap();
    sums.merge_in(&mut batch, "a", &-10).unwrap();
    sums.merge_in(&mut batch, "b", &1).unwrap();
    let bytes = db.keyspace("bytes", KeyspaceOptions::default().merge(Merge::U64Add)).unwrap();
    let refused = TypedKeyspace::<String, i64>::new(bytes).merge_in(&mut batch, "a", &2).unwrap_err();
    assert_eq!((refused.kind(), batch.len()), (ErrorKind::InvalidArgument, 3));
    db.write(batch, Durability::Os).unwrap();
    assert_eq!((sums.get("a").unwrap(), sums.get("b").unwrap()), (Some(-3), Some(1)));
    db.close().unwrap();
}

/// A value of another type whose encoding has the length of an integer without a type is not taken for one.
#[test]
fn integers_are_merged_with_nothing_but_integers() {
    let options = KeyspaceOptions::default();
    for merge in [Merge::I64Add, Merge::I64Max, Merge::I64Min] {
        let (db, keyspace) = keyspace(options.clone().merge(merge));
        let strings = TypedKeyspace::<String, String>::new(keyspace.clone());
        let numbers = TypedKeyspace::<String, i64>::new(keyspace.clone());
        let any = TypedKeyspace::<String, AnyValue>::new(keyspace);
        numbers.put("a", &1).unwrap();
        for text in ["1234567", "12345678"] {
            let kinds = [
                strings.merge("a", text).unwrap_err().kind(),
                strings.put("a", text).unwrap_err().kind(),
                strings.put_with("a", text, Durability::Os).unwrap_err().kind(),
                strings.put_with_ttl("a", text, Duration::from_secs(60)).unwrap_err().kind(),
                strings.merge_in(&mut db.batch(), "a", text).unwrap_err().kind(),
                any.merge("a", &AnyValue::Bytes(text.into())).unwrap_err().kind(),
                db.transaction(|tx| strings.within(tx).merge("a", text)).unwrap_err().kind(),
                db.transaction(|tx| strings.within(tx).put("a", text)).unwrap_err().kind(),
            ];
            assert_eq!(kinds, [ErrorKind::InvalidArgument; 8]);
        }
        assert!(strings.put_in(&mut db.batch(), "a", "1234567").is_err());
        any.merge("a", &AnyValue::Int(1)).unwrap();
        assert!(numbers.get("a").unwrap().is_some_and(|value| value == 1 || value == 2));
        db.close().unwrap();
    }
    let (db, unsigned) = keyspace(options.merge(Merge::U64Add));
    let strings = TypedKeyspace::<String, String>::new(unsigned);
    assert_eq!(strings.put("a", "1234567").unwrap_err().kind(), ErrorKind::InvalidArgument);
    db.close().unwrap();
}

#[test]
fn keyspaces_without_order_have_types_too() {
    let (db, keyspace) = keyspace(KeyspaceOptions::preset(Preset::HashLog));
    let typed = TypedKeyspace::<u32, String>::new(keyspace);
    typed.put(&5, "five").unwrap();
    typed.put(&6, "six").unwrap();
    assert_eq!(typed.get(&5).unwrap().unwrap(), "five");
    let mut all = typed.entries().collect::<cairn::Result<Vec<_>>>().unwrap();
    all.sort();
    assert_eq!(all, [(5, "five".to_owned()), (6, "six".to_owned())]);
    assert_eq!(typed.iter().next().unwrap().unwrap_err().kind(), ErrorKind::InvalidArgument);
    db.close().unwrap();
}

/// Values of types that serde can serialize; one that cannot be serialized is an error.
#[cfg(feature = "typed-serde")]
#[test]
fn serde_values_come_back() {
    use cairn::typed::Serde;

    #[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
    enum Event {
        Opened { by: String },
        Moved(i32, Option<f64>),
    }

    #[derive(Debug, serde::Deserialize)]
    struct Broken;

    impl serde::Serialize for Broken {
        fn serialize<S: serde::Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
            Err(serde::ser::Error::custom("it is broken"))
        }
    }

    let (db, keyspace) = keyspace(KeyspaceOptions::default());
    let events = TypedKeyspace::<u64, Serde<Event>>::new(keyspace.clone());
    let all = [Event::Opened { by: "é".into() }, Event::Moved(-7, Some(0.5)), Event::Moved(i32::MIN, None)];
    for (n, event) in (0..).zip(&all) {
        events.put(&n, &Serde(event.clone())).unwrap();
    }
    let found = events.iter().map(|entry| entry.unwrap().1.0).collect::<Vec<_>>();
    assert_eq!(found, all);
    let error =
        TypedKeyspace::<u64, Serde<Broken>>::new(keyspace.clone()).put(&9, &Serde(Broken)).unwrap_err();
    assert!(error.kind() == ErrorKind::InvalidArgument && !events.contains(&9).unwrap(), "{error}");
    let numbers = TypedKeyspace::<u64, i64>::new(keyspace.clone());
    assert_eq!(numbers.get(&0).unwrap_err().kind(), ErrorKind::WrongType);
    // Bytes behind the value, and bytes that end in it.
    for bytes in [&[7, 1, 13, 0, 0][..], &[7, 1], &[7, 9], &[7]] {
        keyspace.put(5u64.to_be_bytes(), bytes).unwrap();
        assert_eq!(events.get(&5).unwrap_err().kind(), ErrorKind::WrongType, "{bytes:?}");
    }
    db.close().unwrap();
}

#[test]
fn typed_entries_expire() -> cairn::Result<()> {
    let env = cairn::env::SimEnv::new(1);
    let db = Database::open_in(env.clone(), "/db", cairn::Options::default())?;
    let second = std::time::Duration::from_secs(1);
    let counts = TypedKeyspace::<String, i64>::new(db.keyspace("k", KeyspaceOptions::default())?);
    counts.put_with_ttl("a", &1, second)?;
    db.transaction(|tx| counts.within(tx).put_with_ttl("b", &2, 3 * second))?;
    assert_eq!((counts.get("a")?, counts.get("b")?), (Some(1), Some(2)));
    env.set_wall_clock(cairn::Time::from_micros(1_704_067_202_000_000));
    assert_eq!((counts.get("a")?, counts.get("b")?), (None, Some(2)));
    Ok(())
}
