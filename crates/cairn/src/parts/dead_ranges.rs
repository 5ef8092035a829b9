//! Dead ranges: ranges of keys known to have no value, which cursors skip.
//!
//! A deleted key leaves entries behind until a compaction drops them, and a cursor has to skip them one by one. The consumer of a queue
//! that seeks the first entry each time would skip all that it has consumed. So a cursor that has skipped a run of deleted entries records,
//! in memory, that the keys from there to the next entry are dead, and later cursors continue behind the run.
//!
//! ```text
//!   keys      a a a a a a a a a a b b c c c c c d e ...          lower case: deleted
//!   noted     [-------- dead ---------)[ watched )
//!   a seek    ^ ----------------------> goes on here
//! ```
//!
//! # Correctness
//!
//! A range has two marks, which only the holder of the writer changes:
//! - `watched`: every put into the range with a greater sequence number was cut out of it ([`DeadRanges::note_put`]). Writers cut when they
//!   assign the put its number, so before it becomes visible.
//! - `dead_since`: no key in the range has a value for a reader at this sequence number or a later one.
//!
//! A cursor at `seq` that has scanned `[from, to)` and found nothing knows that no key there has a value at `seq`. It tries to lock the
//! writer. When it holds the writer, the numbers up to `newest` are assigned, and no put is in progress.
//! - If the keyspace had no put after `seq`, the range is recorded as dead since `seq` and watched from `seq` on: there is no put between
//!   `seq` and `newest`, and later ones will cut the range.
//! - Otherwise it is recorded as watched from `newest` on, and as not known to be dead.
//! - A part that was already watched from a number `<= seq` on is now dead since `seq`: puts up to `watched` were visible to the cursor,
//!   later ones have been cut out.
//!
//! Afterwards only a put can give a key of the range a value, and puts are cut out. Deletes, range tombstones, flushes and compactions do
//! not give a key a value. A write that fails after its cut loses only the optimization.
//!
//! A reader at `seq` skips a range that is dead since `<= seq`. It takes its number before it loads the ranges; a put visible to it was
//! published before that, and cut before it was published, so the loaded list contains the cut. A reader older than `dead_since` does not
//! use the range. Nor does one that keeps the read state that it found beside a filter (`state/filter_jobs.rs`): keys that the filter has dropped
//! since have values there. Recovery starts without ranges: every cursor is newer than all that was replayed.
//!
//! # Cost
//!
//! Without ranges a put and a seek check one flag. With some, a put searches its key in a list of at most [`MAX`]; one that hits a range
//! replaces the list. Readers take no lock: the list is immutable, and a cursor that finds the writer busy does not wait, but leaves the
//! recording to a later cursor. When the list is full, the range that saves least is evicted; older ranges count less.

use crate::sync::{ArcSwap, AtomicBool, AtomicU64, Ordering};
use base::planted::{Bug, planted};
use base::{Seq, compare_keys};
use std::sync::Arc;

/// Maximum number of recorded ranges per keyspace.
const MAX: usize = 128;
/// Ranges with longer bounds are not recorded: they would take too much memory.
const MAX_BOUND_LEN: usize = 512;
/// When the list is full, only one in this many short runs is recorded.
const ONE_OF: u64 = 8;
/// A run is long from this multiple of the recording threshold on.
const LONG: u32 = 4;
/// Not a sequence number: the range is not known to be dead.
const UNKNOWN: Seq = Seq::MAX;

type Key = Arc<[u8]>;

/// The marks of a range.
#[derive(Clone, Copy)]
struct Marks {
    watched: Seq,
    dead_since: Seq,
}

impl Marks {
    fn is_dead(self) -> bool {
        self.dead_since != UNKNOWN
    }

    /// The marks of the union of two ranges.
    fn and(self, other: Marks) -> Marks {
        Marks { watched: self.watched.max(other.watched), dead_since: self.dead_since.max(other.dead_since) }
    }
}

/// The keys in `[from, to)`.
pub(crate) struct DeadRange {
    pub from: Key,
    /// `None`: the end of all keys.
    pub to: Option<Key>,
    marks: Marks,
    /// Estimated number of entries that a cursor saves.
    saves: u64,
    /// [`List::floor`] when it was recorded, plus the saved entries.
    worth: u64,
}

impl DeadRange {
    fn ends_behind(&self, key: &[u8]) -> bool {
        self.to.as_ref().is_none_or(|to| compare_keys(key, to).is_lt())
    }
}

/// Whether the range end `end` lies before `other`; `None` is the end of all keys.
fn is_less(end: Option<&[u8]>, other: Option<&[u8]>) -> bool {
    match (end, other) {
        (Some(end), Some(other)) => compare_keys(end, other).is_lt(),
        (end, _) => end.is_some() && other.is_none(),
    }
}

/// The ranges of a keyspace, ordered and disjoint.
#[derive(Default)]
struct List {
    ranges: Vec<Arc<DeadRange>>,
    /// The worth of the range evicted last.
    floor: u64,
}

impl List {
    /// Number of ranges that begin at or before `key`.
    fn begun(&self, key: &[u8]) -> usize {
        self.ranges.partition_point(|r| compare_keys(&r.from, key).is_le())
    }

    /// Number of ranges that begin before `to`.
    fn begun_before(&self, to: Option<&[u8]>) -> usize {
        let before = |to: &[u8]| self.ranges.partition_point(|r| compare_keys(&r.from, to).is_lt());
        to.map_or(self.ranges.len(), before)
    }

    /// The index of the range that contains `key`.
    fn holding(&self, key: &[u8]) -> Option<usize> {
        self.begun(key).checked_sub(1).filter(|&i| self.ranges[i].ends_behind(key))
    }

    /// The index of the range that contains the keys just before `to`.
    fn holding_before(&self, to: Option<&[u8]>) -> Option<usize> {
        self.begun_before(to).checked_sub(1).filter(|&i| !is_less(self.ranges[i].to.as_deref(), to))
    }

    /// Starts a new list with the first `count` ranges of this one.
    fn draft(&self, count: usize) -> Draft {
        let mut ranges = Vec::with_capacity(self.ranges.len() + 3);
        ranges.extend_from_slice(&self.ranges[..count]);
        Draft(List { ranges, floor: self.floor })
    }
}

/// A list under construction; ranges are appended in order.
struct Draft(List);

impl Draft {
    fn add(&mut self, from: Key, to: Option<Key>, marks: Marks, saves: u64) {
        let worth = self.0.floor + saves;
        self.keep(Arc::new(DeadRange { from, to, marks, saves, worth }));
    }

    /// Appends a range; one that continues the last range is merged with it.
    fn keep(&mut self, range: Arc<DeadRange>) {
        let joins = |last: &mut Arc<DeadRange>| {
            last.to.as_ref() == Some(&range.from) && last.marks.is_dead() == range.marks.is_dead()
        };
        match self.0.ranges.pop_if(joins) {
            None => self.0.ranges.push(range),
            Some(last) => {
                let (marks, saves) = (last.marks.and(range.marks), last.saves + range.saves);
                self.add(last.from.clone(), range.to.clone(), marks, saves);
            }
        }
    }

    /// Appends `range`, which was only watched; its part in `[from, to)` is dead since `run.seq`.
    fn confirm(&mut self, range: &DeadRange, from: &Key, to: &Option<Key>, run: &FoundRun<'_>) {
        let (marks, saves) = (range.marks, range.saves);
        let dead = Marks { dead_since: run.seq, ..marks };
        let mut begin = range.from.clone();
        if begin < *from {
            self.add(begin, Some(from.clone()), marks, saves);
            begin = from.clone();
        }
        match to {
            Some(to) if is_less(Some(to), range.to.as_deref()) => {
                self.add(begin, Some(to.clone()), dead, run.passed);
                self.add(to.clone(), range.to.clone(), marks, saves);
            }
            _ => self.add(begin, range.to.clone(), dead, run.passed),
        }
    }
}

/// A cursor's finding that the keys in `[from, to)` have no value.
pub(crate) struct FoundRun<'a> {
    pub from: &'a [u8],
    /// `None`: the end of all keys.
    pub to: Option<&'a [u8]>,
    /// The cursor's sequence number.
    pub seq: Seq,
    /// Deleted entries that the cursor has skipped.
    pub passed: u64,
}

/// The dead ranges of a keyspace.
pub(crate) struct DeadRanges {
    any: AtomicBool,
    list: ArcSwap<List>,
    /// The sequence number of the newest put, or of the end of its batch. Accessed only by the holder of the writer.
    newest_put: AtomicU64,
    /// Number of runs considered while the list was full.
    refused: AtomicU64,
    /// Deleted entries that cursors have skipped.
    pub passed: AtomicU64,
    /// A run of at least this many deleted entries is recorded; 0 records none.
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

    /// Number of recorded ranges.
    pub(crate) fn len(&self) -> usize {
        self.list.load().ranges.len()
    }

    /// The number of skipped entries after which a cursor first looks up dead ranges.
    pub(crate) fn first_look(&self) -> u32 {
        (self.noted / 2).max(1)
    }

    /// The range that `find` finds, if a reader at `seq` may skip it.
    fn known(&self, seq: Seq, find: impl FnOnce(&List) -> Option<usize>) -> Option<Arc<DeadRange>> {
        if !self.any.load(Ordering::Relaxed) {
            return None;
        }
        let list = self.list.load();
        let range = &list.ranges[find(&list)?];
        if !range.marks.is_dead() || (range.marks.dead_since > seq && !planted(Bug::DeadForOldReaders)) {
            return None;
        }
        Some(range.clone())
    }

    /// The range over `key` that a reader at `seq` may skip.
    #[inline]
    pub(crate) fn over(&self, key: &[u8], seq: Seq) -> Option<Arc<DeadRange>> {
        self.known(seq, |list| list.holding(key))
    }

    /// The range over the keys just before `to` that a reader at `seq` may skip.
    #[inline]
    pub(crate) fn before(&self, to: Option<&[u8]>, seq: Seq) -> Option<Arc<DeadRange>> {
        self.known(seq, |list| list.holding_before(to))
    }

    /// Called by the holder of the writer when a put of `key` gets the number `seq`.
    #[inline]
    pub(crate) fn note_put(&self, key: &[u8], seq: Seq) {
        self.newest_put.store(seq, Ordering::Relaxed);
        if self.any.load(Ordering::Relaxed) {
            self.cut(key);
        }
    }

    /// Called by the holder of the writer when a batch with puts gets numbers up to `last_seq`. Returns whether its keys must be cut.
    pub(crate) fn note_batch(&self, last_seq: Seq) -> bool {
        self.newest_put.store(last_seq, Ordering::Relaxed);
        self.any.load(Ordering::Relaxed)
    }

    /// Called by the holder of the writer when a bulk load with keys of a range gets the number `seq`. Forgets all ranges: it has as many puts as
    /// would cut most of them away.
    pub(crate) fn note_ingest(&self, seq: Seq) {
        self.newest_put.store(seq, Ordering::Relaxed);
        if self.any.load(Ordering::Relaxed) && !planted(Bug::PutsStayDead) {
            self.store(List { ranges: Vec::new(), floor: self.list.load().floor });
        }
    }

    /// Cuts `key` out of the range that contains it. Each side is assumed to save half of the entries.
    #[cold]
    pub(crate) fn cut(&self, key: &[u8]) {
        let list = self.list.load();
        let Some(found) = list.holding(key).filter(|_| !planted(Bug::PutsStayDead)) else { return };
        let range = &list.ranges[found];
        let (marks, saves) = (range.marks, range.saves / 2);
        // A smaller remainder is not worth an entry of the list.
        let is_worth = saves >= u64::from(self.first_look());
        let mut next = list.draft(found);
        if is_worth && &range.from[..] < key {
            next.add(range.from.clone(), Some(key.into()), marks, saves);
        }
        let behind: Key = [key, &[0]].concat().into();
        if is_worth && range.ends_behind(&behind) {
            next.add(behind, range.to.clone(), marks, saves);
        }
        next.0.ranges.extend_from_slice(&list.ranges[found + 1..]);
        self.store(next.0);
    }

    /// Records a run. The caller holds the writer, which has assigned numbers up to `newest`.
    pub(crate) fn note(&self, run: &FoundRun<'_>, newest: Seq) {
        let (from, to): (Key, Option<Key>) = (run.from.into(), run.to.map(Key::from));
        let marks = match self.newest_put.load(Ordering::Relaxed) <= run.seq {
            true => Marks { watched: run.seq, dead_since: run.seq },
            false => Marks { watched: newest, dead_since: UNKNOWN },
        };
        let list = self.list.load();
        let mut next = list.draft(0);
        // Start of the part that no range covers yet.
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
                    next.add(start, gap_to, marks, run.passed);
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
            next.add(start, to, marks, run.passed);
        }
        self.store(next.0);
    }

    fn store(&self, mut list: List) {
        while list.ranges.len() > MAX {
            let least = (0..list.ranges.len()).min_by_key(|&i| list.ranges[i].worth).unwrap_or(0);
            let evicted = list.ranges.remove(least);
            list.floor = list.floor.max(evicted.worth);
        }
        self.any.store(!list.ranges.is_empty(), Ordering::Relaxed);
        self.list.store(Arc::new(list));
    }

    /// Whether a run should be recorded, judged without holding the writer.
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
