//! Range tombstones: one write that deletes all keys between two bounds.
//!
//! A [`RangeTombstone`] hides all versions older than itself of the keys in `[from, to)`. A [`RangeSet`] finds, for a
//! key and a reader's sequence number, the newest tombstone that covers the key, and the key range for which that
//! answer holds: a [`Fragment`].
//!
//! ```text
//!   tombstones      a........................m @7        a set of three
//!                         d......g @9
//!                                   k............r @8
//!   flattened       a.@7..d..@9..g.@7..k...@8....r        seen by readers at @9 or later
//! ```
//!
//! Overlapping tombstones are *flattened* into fragments: sorted, disjoint, each with the newest sequence number that
//! covers it. There are at most twice as many fragments as tombstones, however the tombstones overlap. (The first
//! design kept a list of all sequence numbers in each fragment. Its size is quadratic for nested ranges, which are
//! the common case of an application that keeps deleting "all keys up to here".) A flat list cannot answer for a
//! reader that is older than some of its tombstones. So when two lists are merged, the pieces that end up below newer
//! tombstones are kept beside the result ([`Hidden`]) as long as such a reader can exist. Tombstones that do not
//! overlap are stored once. [`RangeSet::settled`] drops the hidden pieces when no reader can see them. (The second
//! design kept both lists. It stored each tombstone O(log n) times.)
//!
//! Tombstones of keyspaces with history have times, and what they hide ended at these times. None of them is flattened away:
//! [`RangeSet::oldest_after`] finds the one that ended a version.
//!
//! Sets are immutable and share their parts: readers hold one set while a writer creates the next.

use crate::{MAX_SEQ, Seq, Slice, Time};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Deletes all versions older than `seq` of the keys in `[from, to)`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeTombstone {
    /// The first key.
    pub from: Slice,
    /// The exclusive end; `None` is the end of all keys.
    pub to: Option<Slice>,
    /// The sequence number.
    pub seq: Seq,
    /// The time; [`Time::MIN`] in a keyspace without history.
    pub time: Time,
}

impl RangeTombstone {
    /// A tombstone for the keys in `[from, to)`; an empty `to` is the end of all keys. Copies both bounds into one
    /// allocation.
    pub fn new(from: &[u8], to: &[u8], seq: Seq, time: Time) -> RangeTombstone {
        let both = Slice::from([from, to].concat());
        let (from, to) = (both.slice_of(&both[..from.len()]), both.slice_of(&both[from.len()..]));
        RangeTombstone { from, to: (!to.is_empty()).then_some(to), seq, time }
    }

    /// Whether `key` lies in the range.
    pub fn covers(&self, key: &[u8]) -> bool {
        &self.from[..] <= key && is_before(key, self.to.as_deref())
    }

    /// Whether the range contains no key.
    pub fn is_empty(&self) -> bool {
        !is_before(&self.from, self.to.as_deref())
    }

    fn end(&self) -> Option<&[u8]> {
        self.to.as_deref()
    }
}

/// Whether `key` lies before an exclusive end.
#[inline]
fn is_before(key: &[u8], end: Option<&[u8]>) -> bool {
    end.is_none_or(|end| key < end)
}

/// Whether exclusive end `a` is at or before exclusive end `b`.
fn ends_by(a: Option<&[u8]>, b: Option<&[u8]>) -> bool {
    match (a, b) {
        (_, None) => true,
        (None, Some(_)) => false,
        (Some(a), Some(b)) => a <= b,
    }
}

/// The newest tombstone that covers all keys of `[from, to)` has the sequence number `seq`; 0 means that there is
/// none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment<'a> {
    /// Sequence number of the newest tombstone.
    pub seq: Seq,
    /// The first key for which the answer holds.
    pub from: &'a [u8],
    /// The exclusive end of the answer; `None` is the end of all keys.
    pub to: Option<&'a [u8]>,
}

impl<'a> Fragment<'a> {
    const NOTHING: Fragment<'static> = Fragment { seq: 0, from: b"", to: None };

    /// The same range for a reader at `upto`: no tombstone if it is newer than `upto`.
    fn as_of(self, upto: Seq) -> Fragment<'a> {
        Fragment { seq: if self.seq <= upto { self.seq } else { 0 }, ..self }
    }

    /// The intersection of both ranges, with the newer of both tombstones.
    fn and(self, other: Fragment<'a>) -> Fragment<'a> {
        Fragment {
            seq: self.seq.max(other.seq),
            from: self.from.max(other.from),
            to: if ends_by(self.to, other.to) { self.to } else { other.to },
        }
    }
}

/// A flattened list of tombstones, and the pieces hidden below it, unless the list is settled.
#[derive(Debug)]
struct Run {
    fragments: Box<[RangeTombstone]>,
    min_seq: Seq,
    max_seq: Seq,
    /// Number of tombstones that the list was built from.
    count: usize,
    hidden: Option<Arc<Hidden>>,
}

/// Pieces of tombstones that are covered by newer ones. Readers older than the newer ones see them.
#[derive(Debug)]
struct Hidden {
    /// Sorted and disjoint.
    pieces: Box<[RangeTombstone]>,
    /// The hidden pieces of the two lists whose merge produced `pieces`.
    below: [Option<Arc<Hidden>>; 2],
    /// The range of sequence numbers of `pieces` and `below` together.
    min_seq: Seq,
    max_seq: Seq,
}

impl Hidden {
    fn join(
        pieces: Vec<RangeTombstone>,
        a: &Option<Arc<Hidden>>,
        b: &Option<Arc<Hidden>>,
    ) -> Option<Arc<Hidden>> {
        if pieces.is_empty() && (a.is_none() || b.is_none()) {
            return a.clone().or_else(|| b.clone());
        }
        let below = [a.clone(), b.clone()];
        let seqs = pieces.iter().map(|f| (f.seq, f.seq));
        let seqs = seqs.chain(below.iter().flatten().map(|h| (h.min_seq, h.max_seq)));
        let (min_seq, max_seq) =
            seqs.fold((MAX_SEQ, 0), |(min, max), (low, high)| (min.min(low), max.max(high)));
        Some(Arc::new(Hidden { pieces: pieces.into(), below, min_seq, max_seq }))
    }

    /// The newest tombstone that covers `key` and is not newer than `upto`: among these pieces, or `known` if that is
    /// newer.
    fn at<'a>(&'a self, key: &[u8], upto: Seq, known: Fragment<'a>) -> Fragment<'a> {
        if upto < self.min_seq || self.max_seq <= known.seq {
            return known;
        }
        let known = known.and(flat_at(&self.pieces, key).as_of(upto));
        // The second list usually holds the newer tombstones. If it has a hit, the first one can often be skipped.
        self.below.iter().rev().flatten().fold(known, |known, below| below.at(key, upto, known))
    }

    fn oldest_after(&self, key: &[u8], after: Seq, upto: Seq) -> Option<&RangeTombstone> {
        if self.max_seq <= after || upto < self.min_seq {
            return None;
        }
        let here = flat_between(&self.pieces, key, after, upto);
        let below = self.below.iter().flatten().map(|below| below.oldest_after(key, after, upto));
        below.fold(here, older)
    }

    fn without(&self, done: &Run) -> Option<Arc<Hidden>> {
        let [a, b] = &self.below;
        let left = |below: &Option<Arc<Hidden>>| below.as_ref().and_then(|below| below.without(done));
        Hidden::join(subtract(&self.pieces, done), &left(a), &left(b))
    }

    fn count(&self) -> usize {
        self.pieces.len() + self.below.iter().flatten().map(|below| below.count()).sum::<usize>()
    }

    fn lists<'a>(&'a self, out: &mut Vec<&'a [RangeTombstone]>) {
        out.push(&self.pieces);
        self.below.iter().flatten().for_each(|below| below.lists(out));
    }
}

/// The older of two tombstones, if there are two.
fn older<'a>(a: Option<&'a RangeTombstone>, b: Option<&'a RangeTombstone>) -> Option<&'a RangeTombstone> {
    a.into_iter().chain(b).min_by_key(|tombstone| tombstone.seq)
}

/// The tombstone of a flat list that covers `key`, if its sequence number is after `after` and not after `upto`.
fn flat_between<'a>(
    fragments: &'a [RangeTombstone],
    key: &[u8],
    after: Seq,
    upto: Seq,
) -> Option<&'a RangeTombstone> {
    let behind = fragments.partition_point(|f| &f.from[..] <= key);
    let found = &fragments[behind.checked_sub(1)?];
    (found.covers(key) && after < found.seq && found.seq <= upto).then_some(found)
}

/// The tombstone of a flat list that covers `key`.
fn flat_at<'a>(fragments: &'a [RangeTombstone], key: &[u8]) -> Fragment<'a> {
    let behind = fragments.partition_point(|f| &f.from[..] <= key);
    match behind.checked_sub(1).map(|i| &fragments[i]) {
        Some(f) if f.covers(key) => Fragment { seq: f.seq, from: &f.from, to: f.end() },
        before => Fragment {
            seq: 0,
            from: before.and_then(|f| f.end()).unwrap_or(b""),
            to: fragments.get(behind).map(|f| &f.from[..]),
        },
    }
}

impl Run {
    fn flat(fragments: Vec<RangeTombstone>) -> Arc<Run> {
        let min_seq = fragments.iter().map(|f| f.seq).min().unwrap_or(MAX_SEQ);
        let max_seq = fragments.iter().map(|f| f.seq).max().unwrap_or(0);
        Arc::new(Run { count: fragments.len(), fragments: fragments.into(), min_seq, max_seq, hidden: None })
    }

    fn join(a: &Run, b: &Run) -> Arc<Run> {
        let mut pieces = Vec::new();
        let fragments = overlay(&a.fragments, &b.fragments, &mut pieces);
        Arc::new(Run {
            fragments: fragments.into(),
            min_seq: a.min_seq.min(b.min_seq),
            max_seq: a.max_seq.max(b.max_seq),
            count: a.count + b.count,
            hidden: Hidden::join(pieces, &a.hidden, &b.hidden),
        })
    }

    /// The newest tombstone that covers `key` and is not newer than `upto`.
    fn at<'a>(&'a self, key: &[u8], upto: Seq) -> Fragment<'a> {
        if upto < self.min_seq {
            return Fragment::NOTHING;
        }
        let newest = flat_at(&self.fragments, key);
        match &self.hidden {
            // Hidden pieces lie below fragments only.
            Some(hidden) if newest.seq > upto => hidden.at(key, upto, newest.as_of(upto)),
            _ => newest.as_of(upto),
        }
    }

    fn oldest_after(&self, key: &[u8], after: Seq, upto: Seq) -> Option<&RangeTombstone> {
        if self.max_seq <= after || upto < self.min_seq {
            return None;
        }
        let here = flat_between(&self.fragments, key, after, upto);
        older(here, self.hidden.as_ref().and_then(|hidden| hidden.oldest_after(key, after, upto)))
    }

    /// Whether the tombstones have times: all of a set or none.
    fn has_times(&self) -> bool {
        self.fragments.first().is_some_and(|first| first.time > Time::MIN)
    }

    /// Removes all parts that lie below an equally new or newer tombstone of `done`. Where a fragment goes, so do the
    /// pieces hidden below it, since they are older.
    fn without(&self, done: &Run) -> Option<Arc<Run>> {
        let flat = Run::flat(subtract(&self.fragments, done));
        let Some(hidden) = self.hidden.as_ref().and_then(|hidden| hidden.without(done)) else {
            return (flat.count > 0).then_some(flat);
        };
        Some(Arc::new(Run {
            fragments: flat.fragments.clone(),
            min_seq: flat.min_seq.min(hidden.min_seq),
            max_seq: flat.max_seq,
            count: flat.count + hidden.count(),
            hidden: Some(hidden),
        }))
    }

    /// Flat lists that together hold the same information for all readers.
    fn lists<'a>(&'a self, out: &mut Vec<&'a [RangeTombstone]>) {
        out.push(&self.fragments);
        self.hidden.iter().for_each(|hidden| hidden.lists(out));
    }
}

/// Appends a fragment that begins at or after the end of the last one. Joins adjacent fragments with the same number.
fn push(out: &mut Vec<RangeTombstone>, fragment: RangeTombstone) {
    match out.last_mut() {
        Some(last) if last.seq == fragment.seq && last.to.as_ref() == Some(&fragment.from) => {
            last.to = fragment.to;
        }
        _ => out.push(fragment),
    }
}

/// Merges two flat lists: where both have a fragment, the newer one wins and the older one goes to `hidden`, in
/// order.
fn overlay(
    a: &[RangeTombstone],
    b: &[RangeTombstone],
    hidden: &mut Vec<RangeTombstone>,
) -> Vec<RangeTombstone> {
    let mut out = Vec::with_capacity(a.len() + b.len());
    let (mut a, mut b) = (a.iter().cloned(), b.iter().cloned());
    let (mut x, mut y) = (a.next(), b.next());
    loop {
        let (one, other) = match (x, y) {
            (None, None) => return out,
            (Some(one), None) => {
                push(&mut out, one);
                (x, y) = (a.next(), None);
                continue;
            }
            (None, Some(one)) => {
                push(&mut out, one);
                (x, y) = (None, b.next());
                continue;
            }
            (Some(one), Some(other)) => (one, other),
        };
        if one.from != other.from {
            let first_is_x = one.from < other.from;
            let (mut first, second) = if first_is_x { (one, other) } else { (other, one) };
            let rest = match ends_by(first.end(), Some(&second.from)) {
                true => None,
                false => {
                    let rest = RangeTombstone { from: second.from.clone(), ..first.clone() };
                    first.to = Some(second.from.clone());
                    Some(rest)
                }
            };
            push(&mut out, first);
            (x, y) = match first_is_x {
                true => (rest.or_else(|| a.next()), Some(second)),
                false => (Some(second), rest.or_else(|| b.next())),
            };
            continue;
        }
        let end = if ends_by(one.end(), other.end()) { one.to.clone() } else { other.to.clone() };
        let piece = |of: &RangeTombstone| RangeTombstone {
            from: one.from.clone(),
            to: end.clone(),
            seq: of.seq,
            time: of.time,
        };
        let (newer, older) = if one.seq >= other.seq { (&one, &other) } else { (&other, &one) };
        push(&mut out, piece(newer));
        if one.seq != other.seq {
            push(hidden, piece(older));
        }
        let rest = |f: RangeTombstone| match end.clone() {
            Some(end) if f.to.as_ref() != Some(&end) => Some(RangeTombstone { from: end, ..f }),
            _ => None,
        };
        (x, y) = (rest(one).or_else(|| a.next()), rest(other).or_else(|| b.next()));
    }
}

/// Merges flat lists into one and discards the hidden pieces.
fn lay_flat(mut lists: Vec<Vec<RangeTombstone>>) -> Vec<RangeTombstone> {
    while lists.len() > 1 {
        let mut pairs = lists.into_iter();
        let mut joined = Vec::with_capacity(pairs.len().div_ceil(2));
        while let Some(a) = pairs.next() {
            joined.push(match pairs.next() {
                Some(b) => overlay(&a, &b, &mut Vec::new()),
                None => a,
            });
        }
        lists = joined;
    }
    lists.pop().unwrap_or_default()
}

/// A set of range tombstones for readers at any sequence number. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct RangeSet {
    /// Sorted by decreasing size, so that there are few of them.
    runs: Vec<Arc<Run>>,
}

impl RangeSet {
    /// Whether the set is empty.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Number of tombstones; the number of fragments where they are settled.
    pub fn len(&self) -> usize {
        self.runs.iter().map(|run| run.count).sum()
    }

    /// The largest sequence number; 0 if the set is empty.
    pub fn max_seq(&self) -> Seq {
        self.runs.iter().map(|run| run.max_seq).max().unwrap_or(0)
    }

    /// Approximate memory use, in bytes: exact except for the keys, which are assumed to be short.
    pub fn memory_bytes(&self) -> usize {
        let lists = self.lists();
        lists.iter().map(|list| size_of::<Run>() + list.len() * FRAGMENT_BYTES).sum()
    }

    /// Flat lists that together hold the same information for all readers.
    fn lists(&self) -> Vec<&[RangeTombstone]> {
        let mut lists = Vec::new();
        self.runs.iter().for_each(|run| run.lists(&mut lists));
        lists
    }

    /// This set plus one tombstone. An empty tombstone changes nothing.
    ///
    /// Cost: O(log n) per tombstone, amortized: runs of similar size are merged, as in an LSM tree.
    pub fn with(&self, tombstone: RangeTombstone) -> RangeSet {
        let mut runs = self.runs.clone();
        if !tombstone.is_empty() {
            runs.push(Run::flat(vec![tombstone]));
            while let [.., a, b] = &runs[..]
                && a.count <= b.count
            {
                let joined = Run::join(a, b);
                runs.truncate(runs.len() - 2);
                runs.push(joined);
            }
        }
        RangeSet { runs }
    }

    /// The union of the sets.
    pub fn union<'a>(sets: impl IntoIterator<Item = &'a RangeSet>) -> RangeSet {
        RangeSet { runs: sets.into_iter().flat_map(|set| set.runs.iter().cloned()).collect() }
    }

    /// The newest tombstone that covers `key` and is not newer than `upto`, and the key range for which that holds.
    pub fn at<'a>(&'a self, key: &[u8], upto: Seq) -> Fragment<'a> {
        self.runs.iter().fold(Fragment::NOTHING, |all, run| all.and(run.at(key, upto)))
    }

    /// The sequence number of that tombstone: older versions of `key` are deleted. 0 if no tombstone covers the key.
    pub fn newest(&self, key: &[u8], upto: Seq) -> Seq {
        self.runs.iter().fold(0, |seq, run| match run.max_seq > seq {
            true => seq.max(run.at(key, upto).seq),
            false => seq,
        })
    }

    /// The oldest tombstone that covers `key`, is newer than `after` and not newer than `upto`: it ended a version with the sequence number
    /// `after`, unless a newer version did so before.
    ///
    /// Exact in sets whose tombstones have times. Cost: a search in each list that has sequence numbers in between.
    pub fn oldest_after(&self, key: &[u8], after: Seq, upto: Seq) -> Option<&RangeTombstone> {
        self.runs.iter().map(|run| run.oldest_after(key, after, upto)).fold(None, older)
    }

    /// Whether a tombstone covers keys from `smallest` to `largest`, both included.
    pub fn overlaps(&self, smallest: &[u8], largest: &[u8]) -> bool {
        self.lists().iter().any(|list| {
            let behind = list.partition_point(|f| &f.from[..] <= largest);
            behind.checked_sub(1).is_some_and(|i| is_before(smallest, list[i].end()))
        })
    }

    /// Whether the tombstones have times, because their keyspace has history.
    pub fn has_times(&self) -> bool {
        self.runs.first().is_some_and(|run| run.has_times())
    }

    /// Whether every key from `smallest` to `largest` is covered by tombstones newer than `seq` and not newer than
    /// `upto`.
    pub fn covers(&self, smallest: &[u8], largest: &[u8], seq: Seq, upto: Seq) -> bool {
        let mut key = smallest;
        loop {
            let stretch = self.at(key, upto);
            match (stretch.seq > seq, stretch.to) {
                (false, _) => return false,
                (true, Some(to)) if to <= largest => key = to,
                (true, _) => return true,
            }
        }
    }

    /// All tombstones, unordered. Some are cut into pieces; readers see the same.
    pub fn tombstones(&self) -> Vec<RangeTombstone> {
        self.lists().concat()
    }

    /// The fewest tombstones that mean the same for readers at one of `snapshots` (ascending) and for readers newer
    /// than all of them; all, if they have times.
    pub fn flattened(&self, snapshots: &[Seq]) -> Vec<RangeTombstone> {
        if self.has_times() {
            return self.tombstones();
        }
        let mut stripes: Vec<Vec<Vec<RangeTombstone>>> = vec![Vec::new(); snapshots.len() + 1];
        for list in self.lists() {
            let stripe = |one: &RangeTombstone| snapshots.partition_point(|&s| s < one.seq);
            let mut parts: BTreeMap<usize, Vec<RangeTombstone>> = BTreeMap::new();
            list.iter().for_each(|one| parts.entry(stripe(one)).or_default().push(one.clone()));
            parts.into_iter().for_each(|(stripe, part)| stripes[stripe].push(part));
        }
        stripes.into_iter().flat_map(lay_flat).collect()
    }

    /// The same set for readers that are all at `oldest` or later: tombstones up to `oldest` are flattened for good, unless they have times.
    pub fn settled(&self, oldest: Seq) -> RangeSet {
        if self.has_times() {
            return self.clone();
        }
        let (old, young): (Vec<_>, Vec<_>) = self.runs.iter().cloned().partition(|run| run.max_seq <= oldest);
        if old.len() <= 1 && old.iter().all(|run| run.hidden.is_none()) {
            return self.clone();
        }
        let flat = Run::flat(lay_flat(old.iter().map(|run| run.fragments.to_vec()).collect()));
        RangeSet { runs: std::iter::once(flat).chain(young).collect() }
    }

    /// Removes the parts of tombstones that lie below an equally new or newer tombstone of `done`.
    pub fn without(&self, done: &[RangeTombstone]) -> RangeSet {
        let done = Run::flat(lay_flat(done.iter().map(|one| vec![one.clone()]).collect()));
        let left = |run: &Arc<Run>| match run.min_seq <= done.max_seq {
            true => run.without(&done),
            false => Some(run.clone()),
        };
        RangeSet { runs: self.runs.iter().filter_map(left).collect() }
    }
}

/// Memory of a fragment with short bounds, in bytes. Both bounds lie in one allocation.
const FRAGMENT_BYTES: usize = size_of::<RangeTombstone>() + 64;

/// The parts of `tombstones` that do not lie below an equally new or newer tombstone of `done`.
fn subtract(tombstones: &[RangeTombstone], done: &Run) -> Vec<RangeTombstone> {
    let mut out = Vec::new();
    for one in tombstones {
        let mut rest = Some(one.clone());
        while let Some(piece) = rest.take() {
            let stretch = done.at(&piece.from, MAX_SEQ);
            let (end, next) = match ends_by(piece.end(), stretch.to) {
                true => (piece.to.clone(), None),
                false => (stretch.to.map(Slice::copy_from), stretch.to.map(Slice::copy_from)),
            };
            rest = next.map(|from| RangeTombstone { from, ..piece.clone() });
            if stretch.seq < piece.seq {
                push(&mut out, RangeTombstone { to: end, ..piece });
            }
        }
    }
    out
}

impl FromIterator<RangeTombstone> for RangeSet {
    fn from_iter<I: IntoIterator<Item = RangeTombstone>>(tombstones: I) -> RangeSet {
        tombstones.into_iter().fold(RangeSet::default(), |set, one| set.with(one))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pseudo-random number generator. The same seed gives the same numbers.
    struct Dice(u64);

    impl Dice {
        fn below(&mut self, n: u64) -> u64 {
            self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (self.0 >> 33) % n
        }

        /// A key of one or two letters, so that ranges overlap, touch and nest.
        fn key(&mut self) -> Slice {
            let mut key = vec![b'a' + self.below(6) as u8];
            if self.below(3) == 0 {
                key.push(b'a' + self.below(3) as u8);
            }
            key.into()
        }

        fn tombstone(&mut self, seq: Seq) -> RangeTombstone {
            let to = if self.below(12) == 0 { None } else { Some(self.key()) };
            let from = if self.below(12) == 0 { Slice::default() } else { self.key() };
            RangeTombstone { from, to, seq, time: Time::MIN }
        }
    }

    fn all_keys() -> Vec<Vec<u8>> {
        let mut keys = vec![Vec::new()];
        for a in b'a'..=b'g' {
            keys.push(vec![a]);
            keys.extend((b'a'..=b'd').map(|b| vec![a, b]));
        }
        keys
    }

    fn naive(all: &[RangeTombstone], key: &[u8], upto: Seq) -> Seq {
        all.iter().filter(|t| t.seq <= upto && t.covers(key)).map(|t| t.seq).max().unwrap_or(0)
    }

    fn check(set: &RangeSet, all: &[RangeTombstone], readers: &[Seq]) {
        for &upto in readers {
            for key in all_keys() {
                let stretch = set.at(&key, upto);
                assert_eq!(stretch.seq, naive(all, &key, upto), "{key:?} as of {upto} of {all:?}");
                assert_eq!(set.newest(&key, upto), stretch.seq);
                assert!(stretch.from <= &key[..] && is_before(&key, stretch.to), "{stretch:?} for {key:?}");
                for other in all_keys().iter().filter(|k| stretch.from <= &k[..] && is_before(k, stretch.to))
                {
                    assert_eq!(naive(all, other, upto), stretch.seq, "{other:?} in {stretch:?}");
                }
            }
        }
    }

    #[test]
    fn a_set_answers_as_a_list_that_is_searched_through() {
        for seed in 0..300 {
            let mut dice = Dice(seed);
            let count = dice.below(24);
            let mut all: Vec<_> = (1..=count).map(|seq| dice.tombstone(2 * seq)).collect();
            // Concurrent writers insert tombstones out of sequence number order.
            for i in 1..all.len() {
                all.swap(i, i - dice.below(2) as usize);
            }
            let set: RangeSet = all.iter().cloned().collect();
            let readers: Vec<Seq> = (0..=2 * count + 1).collect();
            check(&set, &all, &readers);
            check(&RangeSet::union([&set, &RangeSet::default()]), &all, &readers);
        }
    }

    #[test]
    fn with_times_the_oldest_tombstone_after_a_version_is_found_whatever_covers_it() {
        for seed in 0..300 {
            let mut dice = Dice(seed);
            let count = dice.below(24);
            let timed = |one: RangeTombstone| RangeTombstone { time: Time::from_micros(10 * one.seq), ..one };
            let mut all: Vec<_> = (1..=count).map(|seq| timed(dice.tombstone(2 * seq))).collect();
            for i in 1..all.len() {
                all.swap(i, i - dice.below(2) as usize);
            }
            let set: RangeSet = all.iter().cloned().collect();
            let again: RangeSet = set.flattened(&[]).into_iter().collect();
            for set in [&set, &set.settled(MAX_SEQ), &again] {
                for key in all_keys() {
                    for _ in 0..8 {
                        let (after, upto) = (dice.below(2 * count + 2), dice.below(2 * count + 2));
                        let covers = |t: &&RangeTombstone| t.covers(&key) && after < t.seq && t.seq <= upto;
                        let expected = all.iter().filter(covers).min_by_key(|t| t.seq);
                        let found = set.oldest_after(&key, after, upto);
                        assert_eq!(found.map(|t| (t.seq, t.time)), expected.map(|t| (t.seq, t.time)));
                        assert!(found.is_none_or(|t| t.covers(&key)));
                    }
                }
            }
            assert_eq!(set.has_times(), !set.is_empty());
        }
    }

    #[test]
    fn what_is_flattened_or_settled_is_the_same_for_those_who_still_read() {
        for seed in 0..300 {
            let mut dice = Dice(seed);
            let count = dice.below(24);
            let all: Vec<_> = (1..=count).map(|seq| dice.tombstone(seq)).collect();
            let set: RangeSet = all.iter().cloned().collect();
            let mut snapshots: Vec<Seq> = (0..dice.below(4)).map(|_| dice.below(count + 2)).collect();
            snapshots.sort_unstable();
            let readers = [&snapshots[..], &[count, MAX_SEQ]].concat();
            let flattened = set.flattened(&snapshots);
            check(&flattened.iter().cloned().collect(), &all, &readers);
            let oldest = snapshots.first().copied().unwrap_or(MAX_SEQ);
            let settled = set.settled(oldest);
            check(&settled, &all, &readers);
            check(&settled.settled(oldest), &all, &readers);
            if snapshots.is_empty() {
                assert!(settled.runs.len() <= 1 && settled.len() <= 2 * all.len());
                let pairs = settled.tombstones();
                assert!(pairs.windows(2).all(|w| ends_by(w[0].end(), Some(&w[1].from))), "{pairs:?}");
            }
        }
    }

    #[test]
    fn what_is_done_goes_and_nothing_else() {
        for seed in 0..300 {
            let mut dice = Dice(seed);
            let all: Vec<_> = (1..=dice.below(16)).map(|seq| dice.tombstone(seq)).collect();
            let mut done = Vec::new();
            for _ in 0..dice.below(4) {
                let seq = dice.below(16);
                done.push(dice.tombstone(seq));
            }
            done.retain(|one| !one.is_empty());
            let set: RangeSet = all.iter().cloned().collect();
            let left = set.without(&done);
            for key in all_keys() {
                let gone = naive(&done, &key, MAX_SEQ);
                for upto in 0..=17 {
                    let newest = naive(&all, &key, upto);
                    let want = if newest > gone { newest } else { 0 };
                    assert_eq!(
                        left.newest(&key, upto),
                        want,
                        "{key:?} as of {upto}: {all:?} without {done:?}"
                    );
                }
            }
            for set in [set.clone(), set.settled(MAX_SEQ)] {
                let left = set.without(&done);
                for key in all_keys() {
                    let gone = naive(&done, &key, MAX_SEQ);
                    let newest = naive(&all, &key, MAX_SEQ);
                    let want = if newest > gone { newest } else { 0 };
                    assert_eq!(left.newest(&key, MAX_SEQ), want, "{key:?}: {all:?} without {done:?}");
                }
            }
        }
    }

    #[test]
    fn tables_are_covered_by_neighbours_too() {
        let range = |from: &str, to: Option<&str>, seq| RangeTombstone {
            from: from.as_bytes().into(),
            to: to.map(|to| to.as_bytes().into()),
            seq,
            time: Time::MIN,
        };
        let set: RangeSet =
            [range("b", Some("d"), 5), range("d", Some("f"), 6), range("m", None, 7)].into_iter().collect();
        for (smallest, largest, seq, covered) in [
            ("b", "e", 4, true),
            ("b", "f", 4, false),
            ("b", "e", 5, false),
            ("d", "e", 5, true),
            ("a", "c", 1, false),
            ("n", "zzz", 6, true),
            ("n", "zzz", 7, false),
            ("c", "n", 1, false),
        ] {
            assert!(!set.covers(smallest.as_bytes(), largest.as_bytes(), seq, 4), "{smallest} {largest}");
            assert_eq!(
                set.covers(smallest.as_bytes(), largest.as_bytes(), seq, MAX_SEQ),
                covered,
                "{smallest} {largest} {seq}"
            );
        }
    }

    #[test]
    fn overlaps_are_with_keys_of_both_ends_included() {
        let time = Time::MIN;
        let of = |from: &[u8], to: &[u8], seq| RangeTombstone::new(from, to, seq, time);
        let set = RangeSet::default().with(of(b"c", b"e", 1)).with(of(b"d", b"g", 2)).with(of(b"x", b"", 3));
        let overlaps = |smallest: &str, largest: &str| set.overlaps(smallest.as_bytes(), largest.as_bytes());
        assert!(!overlaps("", "b") && !overlaps("g", "w") && !RangeSet::default().overlaps(b"", b"z"));
        assert!(overlaps("a", "c") && overlaps("f", "w") && overlaps("fz", "fz") && overlaps("z", "zz"));
        assert!(overlaps("a", "z") && overlaps("d", "d"));
    }

    #[test]
    fn nested_ranges_stay_few() {
        let upto = |n: u64| RangeTombstone {
            from: Slice::default(),
            to: Some(n.to_be_bytes()[..].into()),
            seq: n,
            time: Time::MIN,
        };
        let set: RangeSet = (1..=1000).map(upto).collect();
        assert_eq!(set.settled(MAX_SEQ).len(), 1);
        assert_eq!((set.newest(b"", 500), set.newest(&700u64.to_be_bytes(), 700), set.len()), (500, 0, 1000));
        assert!(set.memory_bytes() < 1000 * 1024, "{}", set.memory_bytes());
    }
}
