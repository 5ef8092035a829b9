//! Walks compared with a map from key to time to value.

use super::*;
use crate::stored::{Ended, put_historical, put_primary};
use crate::test_entries::{Entries, version_key};
use base::EntryKind;
use proptest::prelude::*;
use std::collections::BTreeMap;

const KEYS: [&[u8]; 5] = [b"", b"a", b"a\0", b"a\0b", b"b"];

/// A write: key, how much later than the last write or, if it is late, the time; whether it is late, deletes, has left the primary tree, and
/// whether a version that has left it is still there, too.
type Write = (usize, u64, bool, bool, bool, bool);

#[derive(Clone, Debug)]
struct Written {
    key: usize,
    time: u64,
    seq: Seq,
    is_delete: bool,
}

/// What a walk shows of a version.
type Seen = (Vec<u8>, u64, u64, bool, Vec<u8>);

/// The cursors of both trees after these writes, for a reader at `seq`, and the writes.
fn trees(writes: &[Write], seq: Seq) -> (Entries, Entries, Vec<Written>) {
    let (mut clock, mut all) = (10, Vec::<Written>::new());
    let (mut primary, mut historical) = (Vec::new(), Vec::new());
    let mut late = Vec::new();
    for (i, &(key, time, is_late, is_delete, _, _)) in writes.iter().enumerate() {
        let newest = all.iter().filter(|w| w.key == key).map(|w| w.time).max();
        let is_late = is_late && newest.is_some_and(|newest| time < newest);
        clock += if is_late { 0 } else { time % 3 + 1 };
        let seq = 2 * i as u64 + 1;
        let written = Written { key, time: if is_late { time } else { clock }, seq, is_delete };
        if is_late {
            let next = all.iter().filter(|w| w.key == key && w.time > time).map(|w| w.time).min();
            late.push((written.clone(), next.unwrap()));
        }
        all.push(written);
    }
    let mut put = |w: &Written, until| {
        let (key, time) = (version_key(KEYS[w.key], w.time), Time::from_micros(w.time));
        let mut stored = w.seq.to_string().into_bytes();
        put_historical(&mut stored, time, Ended { until, is_delete: w.is_delete });
        historical.push((key, Trailer::new(w.seq, EntryKind::Put), stored));
    };
    late.iter().for_each(|(w, next)| put(w, Time::from_micros(*next)));
    for (w, write) in all.iter().zip(writes).filter(|(w, _)| !late.iter().any(|(l, _)| l.seq == w.seq)) {
        let in_order = |other: &&Written| !late.iter().any(|(l, _)| l.seq == other.seq);
        let next = all.iter().filter(in_order).find(|other| other.key == w.key && other.seq > w.seq);
        let &(_, _, _, _, has_left, is_in_both) = write;
        // It leaves when no reader sees it any more. Only a delete leaves without a newer version, if nothing older is left.
        let older = all.iter().filter(in_order).any(|o| o.key == w.key && o.seq < w.seq);
        let may_leave = next.map_or(w.is_delete && !older, |next| next.seq <= seq);
        if has_left && may_leave {
            put(w, next.map_or(Time::MAX, |next| Time::from_micros(next.time)));
        }
        if !(has_left && may_leave) || is_in_both {
            let kind = if w.is_delete { EntryKind::Delete } else { EntryKind::Put };
            let mut stored = w.seq.to_string().into_bytes();
            put_primary(&mut stored, Time::from_micros(w.time));
            primary.push((KEYS[w.key].to_vec(), Trailer::new(w.seq, kind), stored));
        }
    }
    (Entries::new(primary), Entries::new(historical), all)
}

/// What must be shown.
fn expected(all: &[Written], seq: Seq, shown: Shown, range: (usize, usize)) -> Vec<Seen> {
    let mut versions: BTreeMap<(usize, std::cmp::Reverse<u64>), &Written> = BTreeMap::new();
    for w in all.iter().filter(|w| w.seq <= seq && range.0 <= w.key && w.key < range.1) {
        versions.insert((w.key, std::cmp::Reverse(w.time)), w);
    }
    let (mut out, mut later, mut shown_key) = (Vec::new(), None::<(usize, u64)>, None);
    for w in versions.values() {
        let until = later.filter(|(key, _)| *key == w.key).map_or(u64::MAX, |(_, time)| time);
        later = Some((w.key, w.time));
        let seen = (KEYS[w.key].to_vec(), w.time, until, w.is_delete, w.seq.to_string().into_bytes());
        match shown {
            Shown::Window(from, to) => {
                if from.micros() <= w.time && w.time <= to.micros() {
                    out.push(seen);
                }
            }
            Shown::AsOf(time) => {
                if w.time <= time.micros() && shown_key != Some(w.key) {
                    shown_key = Some(w.key);
                    if !w.is_delete {
                        out.push((seen.0, seen.1, 0, false, seen.4));
                    }
                }
            }
        }
    }
    out
}

fn seen(walk: &VersionWalk<Entries>) -> Option<Seen> {
    let version = walk.version()?;
    let mut key = Vec::new();
    walk.put_key(&mut key).unwrap();
    let until = if matches!(walk.shown, Shown::AsOf(_)) { 0 } else { version.until.micros() };
    Some((key, version.time.micros(), until, version.is_delete, version.value.to_vec()))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn walks_show_what_a_map_of_versions_has(
        writes in prop::collection::vec(
            (0usize..5, 0u64..60, prop::bool::weighted(0.3), prop::bool::weighted(0.2), any::<bool>(), any::<bool>()),
            0..60,
        ),
        seq in 0u64..130,
        (as_of, a, b) in (any::<bool>(), 0u64..130, 0u64..130),
        range in (0usize..6, 0usize..6),
        moves in prop::collection::vec(0u8..5, 0..40),
    ) {
        let at = |micros| if micros > 120 { Time::MAX } else { Time::from_micros(micros) };
        let shown = if as_of { Shown::AsOf(at(a)) } else { Shown::Window(at(a.min(b)), at(a.max(b))) };
        let (primary, historical, all) = trees(&writes, seq);
        let key = |i: usize| KEYS.get(i).copied().unwrap_or(b"c");
        let to = (range.1 < 5).then(|| key(range.1));
        let list = expected(&all, seq, shown, (range.0, range.1.max(range.0)));
        let mut walk = VersionWalk::new(primary, historical, seq, shown, (key(range.0), to));
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
                (2 | 3, Some(i)) => {
                    at = Some(i + 1).filter(|i| *i < list.len());
                    walk.next().unwrap();
                }
                (_, Some(i)) => {
                    at = i.checked_sub(1);
                    walk.prev().unwrap();
                }
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
        let mut walk = VersionWalk::new(none(), historical, MAX_SEQ, Shown::AsOf(Time::MAX), (b"", None));
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
        put_historical(&mut stored, time, Ended { until: Time::from_micros(until), is_delete: false });
        (key, Trailer::new(seq, EntryKind::Put), stored)
    };
    let mut entries: Vec<_> = (1..30).map(|i| entry(10 * i, 10 * i + 10, i)).collect();
    entries.push(entry(35, 40, 99));
    for (seq, until) in [(98, 40), (99, 35)] {
        let window = Shown::Window(Time::MIN, Time::from_micros(32));
        let historical = Entries::new(entries.clone());
        let mut walk = VersionWalk::new(Entries::new(Vec::new()), historical, seq, window, (b"", None));
        walk.seek_to_first().unwrap();
        let version = walk.version().unwrap();
        assert_eq!((version.time.micros(), version.until.micros()), (30, until));
    }
}
