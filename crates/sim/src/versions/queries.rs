//! All queries of a keyspace, a snapshot and a transaction, compared with the model.

use super::model::Model;
use super::stage::{KEYS, key};
use crate::random::Rng;
use cairn::{
    CursorAt, EntryAt, ErrorKind, Keyspace, Result, Slice, Snapshot, Time, Transaction, Version,
    VersionCursor,
};
use std::fmt::Debug;
use std::ops::Bound;

/// A keyspace, now, in a snapshot, or in a transaction.
pub(super) enum Reads<'a> {
    Now(&'a Keyspace),
    Then(&'a Snapshot, &'a Keyspace),
    Within(&'a Transaction, &'a Keyspace),
}

pub(super) type Found<'a, T> = Box<dyn DoubleEndedIterator<Item = Result<T>> + 'a>;

pub(super) type Range<'a> = (Bound<&'a [u8]>, Bound<&'a [u8]>);

pub(super) fn range<'a>((from, to): (&'a [u8], Option<&'a [u8]>)) -> Range<'a> {
    (Bound::Included(from), to.map_or(Bound::Unbounded, Bound::Excluded))
}

impl Reads<'_> {
    pub(super) fn history(&self, key: &[u8], from: Time, to: Time) -> Result<Found<'_, Version>> {
        Ok(match self {
            Reads::Now(k) => Box::new(k.history(key, from..=to)?),
            Reads::Then(snapshot, k) => Box::new(snapshot.history(k, key, from..=to)?),
            Reads::Within(transaction, k) => Box::new(transaction.history(k, key, from..=to)?),
        })
    }

    pub(super) fn changes(
        &self,
        keys: (&[u8], Option<&[u8]>),
        from: Time,
        to: Time,
    ) -> Result<Found<'_, Version>> {
        Ok(match self {
            Reads::Now(k) => Box::new(k.changes::<&[u8]>(range(keys), from..=to)?),
            Reads::Then(snapshot, k) => Box::new(snapshot.changes::<&[u8]>(k, range(keys), from..=to)?),
            Reads::Within(transaction, k) => {
                Box::new(transaction.changes::<&[u8]>(k, range(keys), from..=to)?)
            }
        })
    }

    /// A cursor over the same versions; transactions have none.
    pub(super) fn cursor(&self, keys: (&[u8], Option<&[u8]>)) -> Result<Option<VersionCursor>> {
        Ok(match self {
            Reads::Now(k) => Some(k.changes::<&[u8]>(range(keys), ..)?.cursor()),
            Reads::Then(snapshot, k) => Some(snapshot.changes::<&[u8]>(k, range(keys), ..)?.cursor()),
            Reads::Within(..) => None,
        })
    }

    pub(super) fn range_at(&self, time: Time, keys: (&[u8], Option<&[u8]>)) -> Result<Found<'_, EntryAt>> {
        Ok(match self {
            Reads::Now(k) => Box::new(k.range_at::<&[u8]>(time, range(keys))?),
            Reads::Then(snapshot, k) => Box::new(snapshot.range_at::<&[u8]>(k, time, range(keys))?),
            Reads::Within(transaction, k) => Box::new(transaction.range_at::<&[u8]>(k, time, range(keys))?),
        })
    }

    pub(super) fn cursor_at(&self, time: Time, keys: (&[u8], Option<&[u8]>)) -> Result<Option<CursorAt>> {
        Ok(match self {
            Reads::Now(k) => Some(k.range_at::<&[u8]>(time, range(keys))?.cursor()),
            Reads::Then(snapshot, k) => Some(snapshot.range_at::<&[u8]>(k, time, range(keys))?.cursor()),
            Reads::Within(..) => None,
        })
    }

    pub(super) fn recent(&self, keys: (&[u8], Option<&[u8]>)) -> Result<Found<'_, EntryAt>> {
        Ok(match self {
            Reads::Now(k) => Box::new(k.recent::<&[u8]>(range(keys))?),
            Reads::Then(snapshot, k) => Box::new(snapshot.recent::<&[u8]>(k, range(keys))?),
            Reads::Within(transaction, k) => Box::new(transaction.recent::<&[u8]>(k, range(keys))?),
        })
    }

    pub(super) fn get_at(&self, key: &[u8], time: Time) -> Result<Option<Version>> {
        match self {
            Reads::Now(k) => k.get_at(key, time),
            Reads::Then(snapshot, k) => snapshot.get_at(k, key, time),
            Reads::Within(transaction, k) => transaction.get_at(k, key, time),
        }
    }

    pub(super) fn multi_get_at(&self, keys: &[Vec<u8>], time: Time) -> Result<Vec<Option<Version>>> {
        match self {
            Reads::Now(k) => k.multi_get_at(keys, time),
            Reads::Then(snapshot, k) => snapshot.multi_get_at(k, keys, time),
            Reads::Within(transaction, k) => transaction.multi_get_at(k, keys, time),
        }
    }

    pub(super) fn entries(&self) -> Result<Vec<(Slice, Slice)>> {
        match self {
            Reads::Now(k) => k.iter().collect(),
            Reads::Then(snapshot, k) => snapshot.iter(k).collect(),
            Reads::Within(transaction, k) => transaction.iter(k).collect(),
        }
    }

    pub(super) fn get(&self, key: &[u8]) -> Result<Option<Slice>> {
        match self {
            Reads::Now(k) => k.get(key),
            Reads::Then(snapshot, k) => snapshot.get(k, key),
            Reads::Within(transaction, k) => transaction.get(k, key),
        }
    }
}

pub(super) fn same<T: PartialEq + Debug>(
    what: &str,
    found: impl Iterator<Item = Result<T>>,
    expected: &[T],
) -> Result<()> {
    let found: Vec<T> = found.collect::<Result<_>>()?;
    let differ = found.iter().zip(expected).position(|(a, b)| a != b);
    assert!(
        found == expected,
        "{what}: {} versions instead of {}; {differ:?}: {:?} instead of {:?}",
        found.len(),
        expected.len(),
        differ.map(|i| &found[i]),
        differ.map(|i| &expected[i])
    );
    Ok(())
}

pub(super) fn reversed<T>(mut found: Vec<T>) -> Vec<T> {
    found.reverse();
    found
}

pub(super) fn entry_of(cursor: &CursorAt) -> Option<EntryAt> {
    let slice = Slice::copy_from;
    let entry = || EntryAt::new(slice(cursor.key()), cursor.time(), slice(cursor.value()));
    cursor.valid().then(entry)
}

/// Compares all queries with the model.
pub(super) fn compare(reads: &Reads<'_>, model: &Model, rng: &mut Rng) -> Result<()> {
    let mut times = vec![Time::MIN, model.last, Time::MAX];
    let all: Vec<Time> = model.versions.values().flat_map(|versions| versions.keys().copied()).collect();
    for _ in 0..4.min(all.len()) {
        let time = all[rng.below(all.len() as u64) as usize];
        times.push(Time::from_micros((time.micros() + rng.below(3)).saturating_sub(1)));
    }
    let keys: Vec<Vec<u8>> = (0..KEYS).map(key).collect();
    let (a, b) = (&keys[rng.below(KEYS) as usize], &keys[rng.below(KEYS) as usize]);
    let part = (&a.min(b)[..], Some(&a.max(b)[..]));
    let whole = (&b""[..], None);
    for &time in &times {
        for keys in [whole, part] {
            let expected = model.range_at(keys, time);
            same("range_at", reads.range_at(time, keys)?, &expected)?;
            if let Some(mut cursor) = reads.cursor_at(time, keys)? {
                let target = key(rng.below(KEYS));
                let at = expected.partition_point(|entry| entry.key[..] < target[..]);
                cursor.seek(&target)?;
                assert_eq!(entry_of(&cursor).as_ref(), expected.get(at), "seek as of a time");
                if cursor.valid() {
                    cursor.prev()?;
                    assert_eq!(
                        entry_of(&cursor).as_ref(),
                        at.checked_sub(1).map(|i| &expected[i]),
                        "then back"
                    );
                }
            }
            let backward: Vec<EntryAt> = reads.range_at(time, keys)?.rev().collect::<Result<_>>()?;
            assert!(backward == reversed(expected), "range_at, backward");
        }
        let found = reads.multi_get_at(&keys, time)?;
        assert!(keys.iter().zip(&found).all(|(key, found)| *found == model.at(key, time)), "multi_get_at");
    }
    for (i, &from) in times.iter().enumerate() {
        let to = times[(i + 1) % times.len()];
        for keys in [whole, part] {
            let expected = model.changes(keys, from, to);
            same("changes", reads.changes(keys, from, to)?, &expected)?;
            let backward: Vec<Version> = reads.changes(keys, from, to)?.rev().collect::<Result<_>>()?;
            assert!(backward == reversed(expected), "changes, backward");
        }
        let key = key(rng.below(KEYS));
        let expected = model.of_key(&key, from, to);
        same("history", reads.history(&key, from, to)?, &expected)?;
        same("history, backward", reads.history(&key, from, to)?.rev(), &reversed(expected))?;
        assert!(reads.get_at(&key, from)? == model.at(&key, from), "get_at");
    }
    for keys in [whole, part] {
        let expected = model.range_at(keys, Time::MAX);
        same("recent", reads.recent(keys)?, &expected)?;
        same("recent, backward", reads.recent(keys)?.rev(), &reversed(expected))?;
    }
    let newest = model.range_at(whole, Time::MAX);
    let entries = reads.entries()?;
    assert!(entries.len() == newest.len());
    assert!(entries.iter().zip(&newest).all(|(a, b)| a.0 == b.key && a.1 == b.value));
    for key in &keys {
        assert!(reads.get(key)? == model.at(key, Time::MAX).and_then(|version| version.value));
    }
    // Both ends at once, and a cursor that goes here and there.
    let expected = model.changes(part, Time::MIN, Time::MAX);
    let mut both = reads.changes(part, Time::MIN, Time::MAX)?;
    let (mut front, mut back) = (0, expected.len());
    while front < back {
        match rng.below(2) {
            0 => {
                assert_eq!(both.next().transpose()?.as_ref(), Some(&expected[front]));
                front += 1;
            }
            _ => {
                back -= 1;
                assert_eq!(both.next_back().transpose()?.as_ref(), Some(&expected[back]));
            }
        }
    }
    assert!(both.next().is_none() && both.next_back().is_none());
    let Some(mut cursor) = reads.cursor(part)? else { return Ok(()) };
    let mut at: Option<usize> = None;
    for _ in 0..30 {
        let target = &keys[rng.below(KEYS) as usize];
        at = match (rng.below(6), at) {
            (0, _) => {
                cursor.seek(target)?;
                Some(expected.partition_point(|version| version.key[..] < target[..]))
            }
            (1, _) => {
                cursor.seek_for_prev(target)?;
                expected.partition_point(|version| version.key[..] <= target[..]).checked_sub(1)
            }
            (_, None) => {
                assert_eq!(cursor.next().unwrap_err().kind(), ErrorKind::InvalidArgument);
                cursor.seek_to_last()?;
                expected.len().checked_sub(1)
            }
            (2 | 3, Some(i)) => {
                cursor.next()?;
                Some(i + 1)
            }
            (_, Some(i)) => {
                cursor.prev()?;
                i.checked_sub(1)
            }
        };
        at = at.filter(|i| *i < expected.len());
        assert_eq!(cursor.valid().then(|| cursor.version()).as_ref(), at.map(|i| &expected[i]));
    }
    Ok(())
}
