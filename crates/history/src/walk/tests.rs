//! Walks compared with a map from key to time to value.

use super::*;
use crate::stored::{Ended, primary_suffix, put_historical};
use crate::test_entries::{Entries, version_key};
use base::expiry::expiry_bytes;
use base::{EntryKind, RangeTombstone};
use proptest::prelude::*;
use std::collections::BTreeMap;

const KEYS: [&[u8]; 5] = [b"", b"a", b"a\0", b"a\0b", b"b"];

/// A write: key, how much later than the last write or, if it is late, the time; whether it is late, deletes, has left the primary tree, and
/// whether a version that has left it is still there, too. The keys that a range delete deletes just after it. How long after its time it
/// expires.
type Write = (usize, u64, bool, bool, bool, bool, Option<(usize, usize)>, Option<u64>);

#[derive(Clone, Debug)]
struct Written {
    key: usize,
    time: u64,
    seq: Seq,
    is_delete: bool,
    /// It is what a range delete did to a key.
    by_range: bool,
    expiry: u64,
}

impl Written {
    /// A delete has none.
    fn value(&self) -> Vec<u8> {
        if self.is_delete { Vec::new() } else { self.seq.to_string().into_bytes() }
    }

    /// Whether it is a delete, or had expired when it was written, for a reader that began at `now`.
    fn deletes(&self, now: u64) -> bool {
        self.is_delete || self.expiry <= self.time.min(now)
    }
}

/// What a walk shows of a version.
type Seen = (Vec<u8>, u64, u64, bool, Vec<u8>);

/// The cursors of both trees after these writes, for a reader at `seq` that began at `now`, and the writes.
fn trees(writes: &[Write], seq: Seq, now: &mut u64) -> (Entries, Entries, RangeSet, Vec<Written>) {
    let (mut clock, mut all) = (10, Vec::<Written>::new());
    let (mut primary, mut historical) = (Vec::new(), Vec::new());
    let (mut late, mut ranges) = (Vec::new(), RangeSet::default());
    for (i, &(key, time, is_late, is_delete, _, _, range, ttl)) in writes.iter().enumerate() {
        let newest = all.iter().filter(|w| w.key == key).map(|w| w.time).max();
        let is_late = is_late && newest.is_some_and(|newest| time < newest);
        clock += if is_late { 0 } else { time % 3 + 1 };
        let seq = 2 * i as u64 + 1;
        let time = if is_late { time } else { clock };
        let expiry = ttl.filter(|_| !is_delete).map_or(u64::MAX, |ttl| time + ttl);
        let written = Written { key, time, seq, is_delete, by_range: false, expiry };
        if is_late {
            let next = all.iter().filter(|w| w.key == key && w.time > time).min_by_key(|w| w.time);
            late.push((written.clone(), next.unwrap().clone()));
        }
        all.push(written);
        if let Some((from, to)) = range.filter(|(from, to)| from < to) {
            clock += 1;
            let to_key = if to < KEYS.len() { KEYS[to] } else { b"" };
            let time = Time::from_micros(clock);
            ranges = ranges.with(RangeTombstone::new(KEYS[from], to_key, seq + 1, time));
            for key in from..to.min(KEYS.len()) {
                let newest = all.iter().filter(|w| w.key == key).max_by_key(|w| (w.time, w.seq));
                // What has expired is not deleted.
                if newest.is_some_and(|newest| !newest.is_delete && newest.expiry > clock) {
                    all.push(Written {
                        key,
                        time: clock,
                        seq: seq + 1,
                        is_delete: true,
                        by_range: true,
                        expiry: u64::MAX,
                    });
                }
            }
        }
    }
    // The expiry is behind everything.
    let behind = |stored: &mut Vec<u8>, w: &Written| match w.expiry {
        u64::MAX => EntryKind::Put,
        expiry => {
            stored.extend_from_slice(&expiry_bytes(Time::from_micros(expiry)));
            EntryKind::ExpiringPut
        }
    };
    // It began after everything that it sees.
    *now = clock.max(*now);
    let now = *now;
    let mut put = |w: &Written, next: Option<&Written>| {
        let (key, time) = (version_key(KEYS[w.key], w.time), Time::from_micros(w.time));
        let mut stored = w.value();
        let ended = match next {
            Some(next) => Ended::at(Time::from_micros(next.time), w.is_delete).by_range(next.by_range),
            None => Ended::open(time, w.is_delete),
        };
        put_historical(&mut stored, time, ended);
        let kind = behind(&mut stored, w);
        historical.push((key, Trailer::new(w.seq, kind), stored));
    };
    late.iter().for_each(|(w, next)| put(w, Some(next)));
    let in_order = |w: &&Written| !late.iter().any(|(l, _)| l.seq == w.seq);
    for w in all.iter().filter(in_order).filter(|w| !w.by_range) {
        let next = all.iter().filter(in_order).find(|other| other.key == w.key && other.seq > w.seq);
        let (_, _, _, _, has_left, is_in_both, ..) = writes[(w.seq / 2) as usize];
        // It leaves when no reader sees it any more. Only a delete, or one that has expired, leaves without a newer version that the reader sees,
        // if nothing older is left.
        let older = all.iter().filter(in_order).any(|o| o.key == w.key && o.seq < w.seq);
        let is_replaced = next.is_some_and(|next| next.seq <= seq);
        let has_expired = w.expiry <= now && !is_replaced && next.is_none_or(|next| !next.by_range);
        let may_leave = !older && (w.is_delete || has_expired) || is_replaced;
        if has_left && may_leave {
            put(w, next.filter(|_| !has_expired));
        }
        let (key, time) = (KEYS[w.key].to_vec(), Time::from_micros(w.time));
        if !(has_left && may_leave) || is_in_both {
            let mut stored = w.value();
            stored.extend_from_slice(&primary_suffix(time));
            let kind = if w.is_delete { EntryKind::Delete } else { behind(&mut stored, w) };
            primary.push((key, Trailer::new(w.seq, kind), stored));
        }
    }
    (Entries::new(primary), Entries::new(historical), ranges, all)
}

/// What must be shown to a reader at `seq` that began at `now`.
fn expected(all: &[Written], (seq, now): (Seq, u64), shown: Shown, range: (usize, usize)) -> Vec<Seen> {
    let mut versions: BTreeMap<(usize, std::cmp::Reverse<u64>), &Written> = BTreeMap::new();
    for w in all.iter().filter(|w| w.seq <= seq && range.0 <= w.key && w.key < range.1) {
        versions.insert((w.key, std::cmp::Reverse(w.time)), w);
    }
    let all: Vec<&Written> = versions.into_values().collect();
    let (mut list, mut later) = (Vec::<(usize, Seen)>::new(), None::<(usize, u64)>);
    for (i, w) in all.iter().enumerate() {
        let until = later.filter(|(key, _)| *key == w.key).map_or(u64::MAX, |(_, time)| time);
        if w.by_range {
            // A range delete after a late delete, or a late put that had expired, changed nothing.
            if all
                .get(i + 1)
                .is_some_and(|older| older.key == w.key && (older.deletes(now) || older.expiry <= w.time))
            {
                continue;
            }
        }
        let ends = !w.deletes(now) && w.expiry < until;
        let key = || KEYS[w.key].to_vec();
        if ends && w.expiry > w.time && w.expiry <= now {
            list.push((w.key, (key(), w.expiry, until, true, Vec::new())));
        }
        let value = w.value();
        let until = if ends { w.expiry } else { until };
        list.push((w.key, (key(), w.time, until, w.deletes(now), value)));
        later = Some((w.key, w.time));
    }
    match shown {
        Shown::Window(from, to) => {
            let is_shown = |seen: &Seen| from.micros() <= seen.1 && seen.1 <= to.micros();
            list.into_iter().map(|(_, seen)| seen).filter(is_shown).collect()
        }
        Shown::AsOf(time) => {
            let expires_after = if time == Time::MAX { now } else { time.micros() };
            let mut of_keys = list;
            of_keys.retain(|(_, seen)| seen.1 <= time.micros());
            of_keys.dedup_by_key(|(key, _)| *key);
            of_keys
                .into_iter()
                .map(|(_, seen)| seen)
                .filter(|seen| !seen.3 && seen.2 > expires_after)
                .collect()
        }
    }
}

fn seen(walk: &VersionWalk<Entries>) -> Option<Seen> {
    let version = walk.version()?;
    let mut key = Vec::new();
    walk.put_key(&mut key).unwrap();
    Some((key, version.time.micros(), version.until.micros(), version.is_delete, version.value.to_vec()))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn walks_show_what_a_map_of_versions_has(
        writes in prop::collection::vec(
            (
                0usize..5,
                0u64..60,
                prop::bool::weighted(0.3),
                prop::bool::weighted(0.2),
                any::<bool>(),
                any::<bool>(),
                prop::option::weighted(0.1, (0usize..5, 0usize..7)),
                prop::option::weighted(0.3, 0u64..40),
            ),
            0..60,
        ),
        (seq, mut now) in (0u64..130, 0u64..200),
        (as_of, a, b) in (any::<bool>(), 0u64..130, 0u64..130),
        range in (0usize..6, 0usize..6),
        moves in prop::collection::vec(0u8..7, 0..40),
    ) {
        let at = |micros| if micros > 120 { Time::MAX } else { Time::from_micros(micros) };
        let shown = if as_of { Shown::AsOf(at(a)) } else { Shown::Window(at(a.min(b)), at(a.max(b))) };
        let (primary, historical, ranges, all) = trees(&writes, seq, &mut now);
        let key = |i: usize| KEYS.get(i).copied().unwrap_or(b"c");
        let to = (range.1 < 5).then(|| key(range.1));
        let list = expected(&all, (seq, now), shown, (range.0, range.1.max(range.0)));
        let mut walk =
            VersionWalk::new(primary.clone(), historical.clone(), ranges.clone(), (seq, Time::from_micros(now)), shown, (key(range.0), to));
        let list = if range.0 > range.1 { Vec::new() } else { list };
        walk.seek_to_first().unwrap();
        for version in &list {
            prop_assert_eq!(seen(&walk), Some(version.clone()));
            walk.next().unwrap();
        }
        prop_assert_eq!(seen(&walk), None);
        prop_assert!(walk.next().is_err() && walk.prev().is_err());
        walk.seek_to_last().unwrap();
        for version in list.iter().rev() {
            prop_assert_eq!(seen(&walk), Some(version.clone()));
            walk.prev().unwrap();
        }
        prop_assert_eq!(seen(&walk), None);
        let mut at = None;
        for step in moves.into_iter().filter(|_| !list.is_empty()) {
            match (step, at) {
                (0, _) | (_, None) => {
                    at = Some(0);
                    walk.seek_to_first().unwrap();
                }
                (1, Some(i)) => {
                    let key = list[i].0.clone();
                    at = list.iter().position(|version| version.0 == key);
                    walk.seek(&key).unwrap();
                }
                (2, Some(i)) => {
                    at = Some(i + 1).filter(|i| *i < list.len());
                    walk.next().unwrap();
                }
                (3, Some(i)) => {
                    at = i.checked_sub(1);
                    walk.prev().unwrap();
                }
                (4, Some(i)) => {
                    let key = list[i].0.clone();
                    at = list.iter().position(|version| version.0 == key).and_then(|i| i.checked_sub(1));
                    walk.seek_before(&key).unwrap();
                }
                (5, Some(_)) if all.iter().all(|w| w.seq <= seq) => {
                    // A version at a time of the list, and just after and before it.
                    let (key, micros) = (KEYS.iter().position(|k| **k == list[0].0[..]).unwrap(), list[0].1);
                    for micros in [micros, micros + 1, micros.saturating_sub(1)] {
                        // Of two writes at a time the newer one, which may be a late version at the time of a range delete.
                        let later = all.iter().filter(|w| w.key == key && w.time > micros);
                        let later = later.min_by_key(|w| (w.time, std::cmp::Reverse(w.seq)));
                        let end = walk.end_of_version_at(KEYS[key], Time::from_micros(micros)).unwrap();
                        let expected = later.map(|later| (Time::from_micros(later.time), later.by_range));
                        prop_assert_eq!(end, expected);
                    }
                    walk.seek_to_first().unwrap();
                    at = Some(0);
                }
                (_, Some(_)) => walk.renew(primary.clone(), historical.clone(), ranges.clone()),
            }
            prop_assert_eq!(seen(&walk), at.map(|i| list[i].clone()));
        }
    }
}

#[test]
fn entries_that_are_no_versions_are_errors() {
    let none = || Entries::new(Vec::new());
    let entry = |key: &[u8], value: &[u8]| {
        Entries::new(vec![(key.to_vec(), Trailer::new(1, EntryKind::Put), value.to_vec())])
    };
    let good = version_key(b"k", 5);
    for historical in [entry(b"short", b"\0"), entry(&good, b"")] {
        let mut walk = VersionWalk::new(
            none(),
            historical,
            RangeSet::default(),
            (MAX_SEQ, Time::MIN),
            Shown::AsOf(Time::MAX),
            (b"", None),
        );
        assert_eq!(walk.seek_to_first().unwrap_err().kind(), ErrorKind::Corruption);
        assert_eq!(walk.seek_to_last().unwrap_err().kind(), ErrorKind::Corruption);
        assert!(walk.version().is_none());
    }
}

/// The window begins behind many later versions, so that the walk seeks there, and past a late write that the reader does not see.
#[test]
fn an_end_is_that_which_the_reader_sees() {
    let entry = |micros: u64, until: u64, seq| {
        let (key, time) = (version_key(b"k", micros), Time::from_micros(micros));
        let mut stored = Vec::new();
        put_historical(&mut stored, time, Ended::at(Time::from_micros(until), false));
        (key, Trailer::new(seq, EntryKind::Put), stored)
    };
    let mut entries: Vec<_> = (1..30).map(|i| entry(10 * i, 10 * i + 10, i)).collect();
    entries.push(entry(35, 40, 99));
    for (seq, until) in [(98, 40), (99, 35)] {
        let window = Shown::Window(Time::MIN, Time::from_micros(32));
        let historical = Entries::new(entries.clone());
        let mut walk = VersionWalk::new(
            Entries::new(Vec::new()),
            historical,
            RangeSet::default(),
            (seq, Time::MIN),
            window,
            (b"", None),
        );
        walk.seek_to_first().unwrap();
        let version = walk.version().unwrap();
        assert_eq!((version.time.micros(), version.until.micros()), (30, until));
    }
}

/// What is stored of a late version that a range delete has ended after its expiry.
#[test]
fn an_expiry_before_a_range_delete_is_the_end() {
    let (time, mut stored) = (Time::from_micros(50), b"value".to_vec());
    put_historical(&mut stored, time, Ended::at(Time::from_micros(200), false).by_range(true));
    stored.extend_from_slice(&expiry_bytes(Time::from_micros(95)));
    let entry = (version_key(b"k", 50), Trailer::new(1, EntryKind::ExpiringPut), stored);
    for (now, expected) in [(0, &[(50, false)][..]), (94, &[(50, false)]), (95, &[(95, true), (50, false)])] {
        let mut walk = VersionWalk::new(
            Entries::new(Vec::new()),
            Entries::new(vec![entry.clone()]),
            RangeSet::default(),
            (MAX_SEQ, Time::from_micros(now)),
            Shown::Window(Time::MIN, Time::MAX),
            (b"", None),
        );
        let mut shown = Vec::new();
        walk.seek_to_first().unwrap();
        while let Some(version) = walk.version() {
            assert!(version.is_delete || version.until.micros() == 95);
            shown.push((version.time.micros(), version.is_delete));
            walk.next().unwrap();
        }
        assert_eq!(shown, expected, "at {now}");
    }
}

/// While a version moves, a filter may have changed it in the historical tree.
#[test]
fn of_an_entry_in_both_trees_that_of_the_primary_one_is_shown() {
    let (time, keys) = (Time::from_micros(10), [&b"a"[..], b"b", b"c"]);
    for kind in [EntryKind::Put, EntryKind::ExpiringPut, EntryKind::Reference] {
        let (mut primary, mut historical) = (Vec::new(), Vec::new());
        for (key, seq) in keys.into_iter().zip(5..) {
            let expiry = match kind {
                EntryKind::ExpiringPut => &expiry_bytes(Time::from_micros(1000))[..],
                _ => &[],
            };
            let stored = [&b"as it was"[..], &primary_suffix(time), expiry].concat();
            primary.push((key.to_vec(), Trailer::new(seq, kind), stored));
            let mut stored = Vec::new();
            put_historical(&mut stored, time, Ended::at(Time::from_micros(20), true));
            historical.push((version_key(key, 10), Trailer::new(seq, EntryKind::Put), stored));
        }
        for shown in [Shown::Window(Time::MIN, Time::MAX), Shown::AsOf(time), Shown::AsOf(Time::MAX)] {
            let trees = || (Entries::new(primary.clone()), Entries::new(historical.clone()));
            let (newest, older) = trees();
            let at = (MAX_SEQ, Time::from_micros(15));
            let mut walk = VersionWalk::new(newest, older, RangeSet::default(), at, shown, (b"", None));
            let value = |walk: &VersionWalk<Entries>| walk.version().map(|v| (v.is_delete, v.value.to_vec()));
            let expected = Some((false, b"as it was".to_vec()));
            walk.seek_to_first().unwrap();
            for _ in 0..3 {
                assert_eq!(value(&walk), expected, "{kind:?} {shown:?}");
                walk.next().unwrap();
            }
            assert_eq!(value(&walk), None);
            walk.seek_to_last().unwrap();
            for i in 0..3 {
                assert_eq!(value(&walk), expected, "{kind:?} {shown:?}, backward");
                if i == 1 {
                    let (newest, older) = trees();
                    walk.renew(newest, older, RangeSet::default());
                }
                walk.prev().unwrap();
            }
            assert_eq!(value(&walk), None);
        }
    }
}

/// Only the end by a range delete is shown as a delete: what followed another version may have expired.
#[test]
fn a_gap_between_versions_is_no_delete() {
    for by_range in [false, true] {
        let entry = |micros: u64, until: u64, seq| {
            let (key, time) = (version_key(b"k", micros), Time::from_micros(micros));
            let mut stored = Vec::new();
            put_historical(
                &mut stored,
                time,
                Ended::at(Time::from_micros(until), false).by_range(by_range && seq == 1),
            );
            (key, Trailer::new(seq, EntryKind::Put), stored)
        };
        let historical = Entries::new(vec![entry(10, 20, 1), entry(40, 50, 4)]);
        let window = Shown::Window(Time::MIN, Time::MAX);
        let (primary, ranges) = (Entries::new(Vec::new()), RangeSet::default());
        let mut walk =
            VersionWalk::new(primary, historical, ranges, (MAX_SEQ, Time::MIN), window, (b"", None));
        let mut found = Vec::new();
        walk.seek_to_first().unwrap();
        while let Some(version) = walk.version() {
            found.push((version.time.micros(), version.until.micros(), version.is_delete));
            walk.next().unwrap();
        }
        let end = (20, 40, true);
        let expected: Vec<_> = [(40, 50, false), end, (10, 20, false)].into();
        assert_eq!(found, expected.into_iter().filter(|v| by_range || *v != end).collect::<Vec<_>>());
    }
}
