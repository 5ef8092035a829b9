//! Dead ranges: stretches of keys that are known to have no value, which cursors leave out.
//!
//! A key that was deleted leaves entries behind until a compaction drops them, and a cursor has to pass over them, one after another. The
//! consumer of a queue that looks for the first entry each time would pass over all that it has taken. So a cursor that has passed over a
//! run of deleted entries notes, in memory, that the keys from there to the next entry are dead, and later cursors go on behind it.
//!
//! ```text
//!   keys      a a a a a a a a a a b b c c c c c d e ...          lower case: deleted
//!   noted     [-------- dead ---------)[ watched )
//!   a seek    ^ ----------------------> goes on here
//! ```
//!
//! # Why that is right
//!
//! A range says two things of itself, and only who holds the writer changes it:
//! - `watched`: every put into it with a greater sequence number was cut out of it ([`DeadRanges::note_put`]). Writers do that when they give
//!   the put its number, so before it becomes visible.
//! - `dead_since`: no key of it has a value for a reader at this sequence number or a later one.
//!
//! A cursor at `seq` that has gone through `[from, to)` and found nothing knows: no key there has a value at `seq`. It tries for the writer. When it
//! has it, the numbers up to `newest` are given out, and no put is under way.
//! - Where the keyspace saw no put since `seq`, the range is noted as dead since `seq`, and watched from `seq` on: there is no put between `seq` and `newest`, and
//!   later ones will cut it.
//! - Otherwise it is noted as watched from `newest` on, and as not known to be dead.
//! - A part that was watched from a number `<= seq` on is now dead since `seq`: puts up to `watched` were visible to the cursor, later ones have been cut
//!   out.
//!
//! From there on nothing makes a key of it live but a put, which is cut out. Deletes, deletes of ranges, flushes and compactions do not give a key a
//! value. A write that fails has cut for nothing.
//!
//! A reader at `seq` leaves out a range that is dead since `<= seq`. It has its number before it looks at the ranges; a put that it sees was
//! published before, and cut before that, so the list that it loads shows the cut. A reader older than `dead_since` does not use the range.
//! Recovery begins without ranges: every cursor is newer than all that was replayed.
//!
//! # What it costs
//!
//! Without ranges a put and a seek look at one flag. With some, a put looks for its key in a list of at most [`MAX`]; one that hits a range
//! replaces the list. Readers take no lock: the list is immutable, and a cursor that finds the writer busy does not wait, but leaves the note to a
//! later one. When the list is full, the range goes that is worth least: by the entries that it spares, and how long it was not used (the
//! algorithm GreedyDual).

use crate::sync::{ArcSwap, AtomicBool, AtomicU64, Ordering};
use base::planted::{Bug, planted};
use base::{Seq, compare_keys};
use std::sync::Arc;

/// Ranges that a keyspace notes at most.
const MAX: usize = 128;
/// Ranges between longer keys are not noted: they would take too much memory.
const MAX_BOUND_LEN: usize = 512;
/// When the list is full, of short runs only every so many-th is noted.
const ONE_OF: u64 = 8;
/// A run of so many times the entries that are worth a note is long.
pub(crate) const LONG: u32 = 4;
/// No seq: it is not known since when, if at all, the range is dead.
const UNKNOWN: Seq = Seq::MAX;

type Key = Arc<[u8]>;

/// What is known of a range.
#[derive(Clone, Copy)]
struct Marks {
    watched: Seq,
    dead_since: Seq,
    /// Whether the cursor that noted it went back.
    backward: bool,
}

impl Marks {
    fn is_dead(self) -> bool {
        self.dead_since != UNKNOWN
    }

    /// What is known of a range that is made of two.
    fn and(self, other: Marks) -> Marks {
        let (watched, dead_since) = (self.watched.max(other.watched), self.dead_since.max(other.dead_since));
        Marks { watched, dead_since, ..self }
    }
}

/// Keys from `from` on, up to `to`.
pub(crate) struct DeadRange {
    pub from: Key,
    /// `None`: the end of all keys.
    pub to: Option<Key>,
    marks: Marks,
    /// Entries that a cursor need not pass over, about.
    recycled: u64,
    /// What [`List::floor`] was at the last use, and `spares`.
    worth: AtomicU64,
}

impl DeadRange {
    fn ends_behind(&self, key: &[u8]) -> bool {
        self.to.as_ref().is_none_or(|to| compare_keys(key, to).is_lt())
    }
}

/// Whether `end` comes before `other`, both being ends of ranges.
fn is_less(end: Option<&[u8]>, other: Option<&[u8]>) -> bool {
    match (end, other) {
        (Some(end), Some(other)) => compare_keys(end, other).is_lt(),
        (end, _) => end.is_some() && other.is_none(),
    }
}

/// The ranges of a keyspace, in order, none meeting another.
#[derive(Default)]
struct List {
    ranges: Vec<Arc<DeadRange>>,
    /// The worth of the last range that had to go.
    floor: u64,
}

impl List {
    /// How many ranges begin at or before `key`.
    fn begun(&self, key: &[u8]) -> usize {
        self.ranges.partition_point(|r| compare_keys(&r.from, key).is_le())
    }

    /// How many ranges begin before `to`.
    fn begun_before(&self, to: Option<&[u8]>) -> usize {
        let before = |to: &[u8]| self.ranges.partition_point(|r| compare_keys(&r.from, to).is_lt());
        to.map_or(self.ranges.len(), before)
    }

    /// The range that has `key`.
    fn holding(&self, key: &[u8]) -> Option<usize> {
        self.begun(key).checked_sub(1).filter(|&i| self.ranges[i].ends_behind(key))
    }

    /// The range that has the keys just before `to`.
    fn holding_before(&self, to: Option<&[u8]>) -> Option<usize> {
        self.begun_before(to).checked_sub(1).filter(|&i| !is_less(self.ranges[i].to.as_deref(), to))
    }

    /// The beginning of a list that is to be like this one up to the `count`-th range.
    fn draft(&self, count: usize) -> Draft {
        let mut ranges = Vec::with_capacity(self.ranges.len() + 3);
        ranges.extend_from_slice(&self.ranges[..count]);
        Draft(List { ranges, floor: self.floor })
    }
}

/// A new list in the making; ranges come in order.
struct Draft(List);

impl Draft {
    fn add(&mut self, from: Key, to: Option<Key>, marks: Marks, recycled: u64) {
        let worth = AtomicU64::new(self.0.floor + recycled);
        self.keep(Arc::new(DeadRange { from, to, marks, recycled, worth }));
    }

    /// Appends a range; one that continues the last makes one range with it.
    fn keep(&mut self, range: Arc<DeadRange>) {
        let joins = |last: &mut Arc<DeadRange>| {
            last.to.as_ref() == Some(&range.from) && last.marks.is_dead() == range.marks.is_dead()
        };
        match self.0.ranges.pop_if(joins) {
            None => self.0.ranges.push(range),
            Some(last) => {
                let recycled = last.recycled + range.recycled;
                let (from, to, marks) = (last.from.clone(), range.to.clone(), last.marks.and(range.marks));
                let worth = AtomicU64::new(self.0.floor + recycled);
                self.0.ranges.push(Arc::new(DeadRange { from, to, marks, recycled, worth }));
            }
        }
    }

    /// Appends `range`, which was only watched and of which the part in `[from, to)` is dead since the time of `run`.
    fn confirm(&mut self, range: &DeadRange, from: &Key, to: &Option<Key>, run: &FoundRun<'_>) {
        let (marks, recycled) = (range.marks, range.recycled);
        let dead = Marks { dead_since: run.seq, ..marks };
        let mut begin = range.from.clone();
        if begin < *from {
            self.add(begin, Some(from.clone()), marks, recycled);
            begin = from.clone();
        }
        match to {
            Some(to) if is_less(Some(to), range.to.as_deref()) => {
                self.add(begin, Some(to.clone()), dead, run.passed);
                self.add(to.clone(), range.to.clone(), marks, recycled);
            }
            _ => self.add(begin, range.to.clone(), dead, run.passed),
        }
    }
}

/// What a cursor has found: that the keys from `from` on, up to `to`, have no value.
pub(crate) struct FoundRun<'a> {
    pub from: &'a [u8],
    /// `None`: the end of all keys.
    pub to: Option<&'a [u8]>,
    /// As of when.
    pub seq: Seq,
    /// Deleted entries that it has passed over.
    pub passed: u64,
    pub backward: bool,
}

/// What is known of the place where a cursor is.
pub(crate) enum Known {
    Nothing,
    /// A range is noted, of which this reader may make no use.
    Watched,
    Dead(Arc<DeadRange>),
}

/// What a keyspace knows of dead ranges.
pub(crate) struct DeadRanges {
    any: AtomicBool,
    list: ArcSwap<List>,
    /// The sequence number of the newest put, or of the end of its batch. Read and written under the writer.
    newest_put: AtomicU64,
    /// Runs that were not noted because the list was full.
    refused: AtomicU64,
    /// Deleted entries that cursors have passed over.
    pub passed: AtomicU64,
    /// A run of so many deleted entries is worth a note; 0: none is.
    pub noted: u32,
}

impl DeadRanges {
    pub(crate) fn new(noted: u32) -> DeadRanges {
        DeadRanges {
            any: AtomicBool::new(false),
            list: ArcSwap::from_pointee(List::default()),
            newest_put: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            passed: AtomicU64::new(0),
            noted,
        }
    }

    /// How many are noted.
    pub(crate) fn len(&self) -> usize {
        self.list.load().ranges.len()
    }

    /// A cursor looks first when it has passed over so many entries.
    pub(crate) fn first_look(&self) -> u32 {
        (self.noted / 2).max(1)
    }

    fn known(&self, seq: Seq, find: impl FnOnce(&List) -> Option<usize>) -> Known {
        if !self.any.load(Ordering::Relaxed) {
            return Known::Nothing;
        }
        let list = self.list.load();
        let Some(found) = find(&list) else { return Known::Nothing };
        let range = &list.ranges[found];
        if !range.marks.is_dead() || (range.marks.dead_since > seq && !planted(Bug::DeadForOldReaders)) {
            return Known::Watched;
        }
        let worth = list.floor + range.recycled;
        if range.worth.load(Ordering::Relaxed) != worth {
            range.worth.store(worth, Ordering::Relaxed);
        }
        Known::Dead(range.clone())
    }

    /// What a reader at `seq` knows of `key`.
    pub(crate) fn at(&self, key: &[u8], seq: Seq) -> Known {
        self.known(seq, |list| list.holding(key))
    }

    /// The range that a reader at `seq` may leave out and that has `key`.
    #[inline]
    pub(crate) fn over(&self, key: &[u8], seq: Seq) -> Option<Arc<DeadRange>> {
        match self.at(key, seq) {
            Known::Dead(range) => Some(range),
            _ => None,
        }
    }

    /// The range that a reader at `seq` may leave out and that has the keys just before `to`.
    #[inline]
    pub(crate) fn before(&self, to: Option<&[u8]>, seq: Seq) -> Option<Arc<DeadRange>> {
        match self.known(seq, |list| list.holding_before(to)) {
            Known::Dead(range) => Some(range),
            _ => None,
        }
    }

    /// The writer gives a put of `key` the number `seq`.
    #[inline]
    pub(crate) fn note_put(&self, key: &[u8], seq: Seq) {
        self.newest_put.store(seq, Ordering::Relaxed);
        if self.any.load(Ordering::Relaxed) {
            self.cut(key);
        }
    }

    /// The writer gives numbers up to `last_seq` to a batch that puts into the keyspace; whether its keys have to be cut.
    pub(crate) fn note_batch(&self, last_seq: Seq) -> bool {
        self.newest_put.store(last_seq, Ordering::Relaxed);
        self.any.load(Ordering::Relaxed)
    }

    /// Takes `key` out of the range that has it. What is left on both sides of one that is dead is taken to be worth half of it each. Of one that is
    /// only watched that side stays that a cursor meets first.
    #[cold]
    pub(crate) fn cut(&self, key: &[u8]) {
        let list = self.list.load();
        let Some(found) = list.holding(key).filter(|_| !planted(Bug::PutsStayDead)) else { return };
        let range = &list.ranges[found];
        let (marks, is_dead) = (range.marks, range.marks.is_dead());
        let recycled = if is_dead { range.recycled / 2 } else { range.recycled };
        // Less is not worth a place in the list.
        let is_worth = recycled >= u64::from(self.first_look());
        let mut next = list.draft(found);
        if is_worth && (is_dead || !marks.backward) && &range.from[..] < key {
            next.add(range.from.clone(), Some(key.into()), marks, recycled);
        }
        let behind: Key = [key, &[0]].concat().into();
        if is_worth && (is_dead || marks.backward) && range.ends_behind(&behind) {
            next.add(behind, range.to.clone(), marks, recycled);
        }
        next.0.ranges.extend_from_slice(&list.ranges[found + 1..]);
        self.store(next.0);
    }

    /// Since when a range is watched that begins to be. The caller holds the writer, which has given out numbers up to `newest`.
    fn watched(&self, run: &FoundRun<'_>, newest: Seq) -> Seq {
        match self.newest_put.load(Ordering::Relaxed) <= run.seq {
            true => run.seq,
            false => newest,
        }
    }

    /// Notes a run. The caller holds the writer, which has given out numbers up to `newest`.
    pub(crate) fn note(&self, run: &FoundRun<'_>, newest: Seq) {
        let (from, to): (Key, Option<Key>) = (run.from.into(), run.to.map(Key::from));
        let watched = self.watched(run, newest);
        let is_dead = watched <= run.seq;
        let dead_since = if is_dead { run.seq } else { UNKNOWN };
        let recycled = if is_dead { run.passed } else { u64::from(self.noted) };
        let marks = Marks { watched, dead_since, backward: run.backward };
        let list = self.list.load();
        let mut next = list.draft(0);
        // Where the part begins of which nothing is noted yet.
        let mut rest = Some(from.clone());
        for range in &list.ranges {
            let begins_behind = to.as_ref().is_some_and(|to| range.from >= *to);
            if !begins_behind && !range.ends_behind(&from) {
                next.keep(range.clone());
                continue;
            }
            if let Some(start) = rest.take() {
                let gap_to = if begins_behind { to.clone() } else { Some(range.from.clone()) };
                if gap_to.as_ref().is_none_or(|to| start < *to) {
                    next.add(start, gap_to, marks, recycled);
                }
                if !begins_behind && is_less(range.to.as_deref(), to.as_deref()) {
                    rest = range.to.clone();
                }
            }
            match begins_behind || range.marks.is_dead() || range.marks.watched > run.seq {
                true => next.keep(range.clone()),
                false => next.confirm(range, &from, &to, run),
            }
        }
        if let Some(start) = rest {
            next.add(start, to, marks, recycled);
        }
        self.store(next.0);
    }

    /// Has the part of `run`, which the cursor is still on, watched from where it began, as far as nothing else is noted. The caller holds the writer,
    /// which has given out numbers up to `newest`.
    pub(crate) fn watch(&self, run: &FoundRun<'_>, newest: Seq) {
        let list = self.list.load();
        let (mut from, mut to) = (Key::from(run.from), run.to.map(Key::from));
        let at = match run.backward {
            false => list.begun(&from),
            true => list.begun_before(to.as_deref()),
        };
        if let Some(before) = at.checked_sub(1).map(|i| &list.ranges[i]).filter(|r| r.ends_behind(&from)) {
            let Some(end) = before.to.as_ref().filter(|_| run.backward) else { return };
            from = end.clone();
        }
        if let Some(behind) = list.ranges.get(at).filter(|r| is_less(Some(&r.from), to.as_deref())) {
            to = Some(behind.from.clone());
        }
        if to.as_ref().is_some_and(|to| from >= *to) {
            return;
        }
        let watched = self.watched(run, newest);
        let marks = Marks { watched, dead_since: UNKNOWN, backward: run.backward };
        let mut next = list.draft(at);
        next.add(from, to, marks, u64::from(self.noted));
        list.ranges[at..].iter().for_each(|range| next.keep(range.clone()));
        self.store(next.0);
    }

    fn store(&self, mut list: List) {
        while list.ranges.len() > MAX {
            let worth = |range: &Arc<DeadRange>| range.worth.load(Ordering::Relaxed);
            let least = (0..list.ranges.len()).min_by_key(|&i| worth(&list.ranges[i])).unwrap_or(0);
            let gone = list.ranges.remove(least);
            list.floor = list.floor.max(worth(&gone));
        }
        self.any.store(!list.ranges.is_empty(), Ordering::Relaxed);
        self.list.store(Arc::new(list));
    }

    /// Whether a run should be noted, as far as can be told without the writer.
    pub(crate) fn is_worth_a_note(&self, run: &FoundRun<'_>) -> bool {
        let long_key = run.from.len().max(run.to.map_or(0, <[u8]>::len)) > MAX_BOUND_LEN;
        if long_key || run.to.is_some_and(|to| run.from >= to) {
            return false;
        }
        let list = self.list.load();
        let continues = || list.holding_before(Some(run.from)).is_some() || list.holding(run.from).is_some();
        list.ranges.len() < MAX
            || continues()
            || run.passed >= u64::from(LONG * self.noted)
            || self.refused.fetch_add(1, Ordering::Relaxed).is_multiple_of(ONE_OF)
    }
}
