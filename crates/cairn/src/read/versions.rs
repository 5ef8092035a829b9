//! Cursors and iterators over the versions of keyspaces with history. The walk over both trees is in the crate `history`; here it gets its
//! sources, and takes them again after flushes.

use super::read_view::{HeldSeq, Source, sources_in};
use crate::state::{KeyspaceInner, ReadState, Reader, split_value};
use crate::types::{Bounds, successor};
use base::expiry::EXPIRY_LEN;
use base::{Error, Result, Seq, Slice, Time, Trailer, hash};
use history::{PRIMARY_SUFFIX, Shown, VersionWalk, split_primary};
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;
use tree::{KeyRange, MergeCursor};

/// A version of a key: what its value was, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Version {
    /// The key.
    pub key: Slice,
    /// When the version was written.
    pub time: Time,
    /// The time of the next version, at which this one ended, or its expiry if that is earlier; `None` if it has neither.
    pub until: Option<Time>,
    /// The value; `None` if the version is a delete.
    pub value: Option<Slice>,
    /// When it expires, if it has an expiry. It ends earlier if another version or a range delete follows before.
    pub expiry: Option<Time>,
}

impl Version {
    /// A version, to be compared with one that was read.
    pub fn new(key: Slice, time: Time, until: Option<Time>, value: Option<Slice>) -> Version {
        Version { key, time, until, value, expiry: None }
    }

    /// The same with an expiry.
    pub fn expiring(self, expiry: Option<Time>) -> Version {
        Version { expiry, ..self }
    }
}

/// A position among the versions of a keyspace, in a consistent state: by key, and of each key the latest first.
///
/// A new cursor is invalid until it is positioned. Moving past either end makes it invalid, and so does an error: position it again after
/// one.
///
/// ```
/// # fn main() -> cairn::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = cairn::Database::open(dir.path())?;
/// use cairn::{KeyspaceOptions, Preset};
/// let prices = db.keyspace("prices", KeyspaceOptions::preset(Preset::Mneme))?;
/// prices.put("tea", "3")?;
/// prices.put("tea", "4")?;
/// let mut cursor = prices.history("tea", ..)?.cursor();
/// cursor.seek_to_last()?;
/// assert_eq!(cursor.value(), Some(&b"3"[..]));
/// assert!(cursor.until().is_some());
/// cursor.prev()?;
/// assert_eq!((cursor.value(), cursor.until()), (Some(&b"4"[..]), None));
/// # Ok(())
/// # }
/// ```
pub struct VersionCursor {
    walk: VersionWalk<MergeCursor<Source>>,
    query: VersionQuery,
    /// The key of the version.
    key: Vec<u8>,
    /// Its value, if it is not a delete.
    value: Option<Slice>,
    /// Whether the cursor is on a version.
    valid: bool,
    keyspace: HeldSeq,
    db: Reader,
    view: VersionView,
    /// The error that every move returns because the keyspace was dropped before the cursor was made.
    closed: Option<Error>,
}

/// What a walk reads: which versions of which keys.
#[derive(Clone, Debug)]
pub(crate) struct VersionQuery {
    shown: Shown,
    bounds: Bounds,
    /// Whether the ends of the versions are needed. Without them nothing is read that begins after the last time.
    ends: bool,
}

impl VersionQuery {
    /// All versions in a range of keys and times. `None` when no time lies in it.
    pub(crate) fn window(bounds: Bounds, times: &impl RangeBounds<Time>) -> Option<VersionQuery> {
        let from = match times.start_bound() {
            Bound::Included(time) => time.micros(),
            Bound::Excluded(time) => time.micros().checked_add(1)?,
            Bound::Unbounded => 0,
        };
        let to = match times.end_bound() {
            Bound::Included(time) => time.micros(),
            Bound::Excluded(time) => time.micros().checked_sub(1)?,
            Bound::Unbounded => u64::MAX,
        };
        let shown = Shown::Window(Time::from_micros(from), Time::from_micros(to));
        (from <= to).then_some(VersionQuery { shown, bounds, ends: true })
    }

    /// Of each key in a range the version that was the newest as of `time`, without its end: the end that the walk shows may be too late.
    pub(crate) fn as_of(bounds: Bounds, time: Time) -> VersionQuery {
        VersionQuery { shown: Shown::AsOf(time), bounds, ends: false }
    }

    /// The version of a key that was the newest as of `time`, with its end.
    fn version_at(key: &[u8], time: Time) -> VersionQuery {
        VersionQuery { shown: Shown::AsOf(time), bounds: Bounds::of_key(key), ends: true }
    }

    /// No versions.
    fn nothing() -> VersionQuery {
        VersionQuery::as_of(Bounds { from: Vec::new(), to: Some(Vec::new()) }, Time::MIN)
    }
}

/// The flush generations of a keyspace with history.
fn generation_of(keyspace: &KeyspaceInner) -> u64 {
    keyspace.generation.get() + keyspace.historical().map_or(0, |historical| historical.generation.get())
}

/// The states of both keyspaces that walks read.
#[derive(Clone)]
struct VersionView {
    primary: Arc<ReadState>,
    older: Arc<ReadState>,
    /// The flush generations of both when the states were loaded, or earlier ones.
    generation: u64,
}

impl VersionView {
    /// Those that a reader sees.
    fn of_reader(keyspace: &HeldSeq, historical: &KeyspaceInner) -> VersionView {
        match keyspace.kept().map(|kept| (kept.read_state.clone(), kept.older.clone())) {
            Some((primary, Some(older))) => VersionView { primary, older, generation: 0 },
            _ => VersionView::new(keyspace, historical),
        }
    }

    /// The newest ones.
    fn new(keyspace: &KeyspaceInner, historical: &KeyspaceInner) -> VersionView {
        let generation = generation_of(keyspace);
        // The primary one first: an edit publishes them in the other order, so that a version that moves is seen in one of them at least.
        let primary = keyspace.read_state.load_full();
        let older = historical.read_state.load_full();
        VersionView { primary, older, generation }
    }

    /// Loads the states again if memtables were flushed since, unless one of the keyspaces is gone, or the reader keeps its own. Returns whether they were
    /// loaded.
    fn renew(&mut self, keyspace: &HeldSeq) -> bool {
        if keyspace.kept().is_some() {
            return false;
        }
        let generation = generation_of(keyspace);
        if generation == self.generation {
            return false;
        }
        self.generation = generation;
        let Some(historical) = keyspace.historical() else { return false };
        // In this order, as in `new`.
        let (primary, older) = (keyspace.read_state.load_full(), historical.read_state.load_full());
        // Checked after the loads: the read state of a dropped keyspace is empty.
        let is_open = keyspace.check_open().and_then(|()| historical.check_open()).is_ok();
        if is_open {
            *self = VersionView { primary, older, generation };
        }
        is_open
    }
}

/// The sources of a walk, from the read states of both keyspaces.
fn sources_of(
    keyspace: &KeyspaceInner,
    historical: &KeyspaceInner,
    view: &VersionView,
    query: &VersionQuery,
    seq: Seq,
) -> (MergeCursor<Source>, MergeCursor<Source>) {
    let VersionQuery { shown, bounds, ends } = query;
    let (only_key, older) = (bounds.only_key(), bounds.of_versions());
    let (since, until) = match *shown {
        Shown::Window(from, to) => (from, to),
        Shown::AsOf(time) => (time, time),
    };
    let until = (!ends).then_some(until);
    let newest = KeyRange::new(&bounds.from, bounds.to.as_deref()).with_hash(only_key.map(hash)).until(until);
    // The filters of the other tree have keys without times.
    let of_versions = KeyRange::new(&older.from, older.to.as_deref())
        .with_hash(only_key.map(|_| hash(&older.from)))
        .since(since)
        .until(until);
    let (primary, _) = sources_in(&view.primary, keyspace, &newest, seq);
    let (older, _) = sources_in(&view.older, historical, &of_versions, seq);
    (primary, older)
}

impl VersionCursor {
    /// A cursor at a sequence number that is held, in a keyspace with history.
    pub(crate) fn new(keyspace: HeldSeq, db: Reader, query: VersionQuery) -> Result<VersionCursor> {
        let view = VersionView::of_reader(&keyspace, keyspace.check_history()?);
        // After the load: the read states of a dropped keyspace are empty.
        let closed = keyspace.check_of(db.identity()).err();
        Ok(VersionCursor { closed, ..VersionCursor::of_view(keyspace, db, query, view)? })
    }

    /// A cursor that begins with these states.
    fn of_view(
        keyspace: HeldSeq,
        db: Reader,
        query: VersionQuery,
        view: VersionView,
    ) -> Result<VersionCursor> {
        let (primary, older) = sources_of(&keyspace, keyspace.check_history()?, &view, &query, keyspace.seq);
        let ranges = view.primary.ranges().unwrap_or_default();
        let range = (&query.bounds.from[..], query.bounds.to.as_deref());
        let walk = VersionWalk::new(primary, older, ranges, (keyspace.seq, keyspace.now), query.shown, range);
        let (key, value, valid, closed) = (Vec::new(), None, false, None);
        Ok(VersionCursor { walk, query, key, value, valid, keyspace, db, view, closed })
    }

    /// Begins a move: takes the sources again if memtables were flushed since, which releases them.
    fn begin_move(&mut self) -> Result<()> {
        self.valid = false;
        self.db.check_not_closed()?;
        if self.view.renew(&self.keyspace) {
            let (keyspace, seq) = (&self.keyspace, self.keyspace.seq);
            let (primary, older) =
                sources_of(keyspace, keyspace.check_history()?, &self.view, &self.query, seq);
            self.walk.renew(primary, older, self.view.primary.ranges().unwrap_or_default());
        }
        self.closed.clone().map_or(Ok(()), Err)
    }

    /// Ends a move: takes the key and the value of the version on which the walk stands.
    fn arrive(&mut self, moved: Result<()>) -> Result<()> {
        let arrived = moved.and_then(|()| {
            let Some(version) = self.walk.version() else { return Ok(false) };
            self.key.clear();
            self.walk.put_key(&mut self.key)?;
            self.value = match version.is_delete {
                true => None,
                false if version.trailer.is_reference() => {
                    let segments = &self.keyspace.segments;
                    Some(segments.read_waiting(&segments.decode(&version.value)?, false)?)
                }
                false => Some(version.value.clone()),
            };
            Ok(true)
        });
        self.valid = arrived.map_err(|e| self.db.read_error(e))?;
        Ok(())
    }

    /// Moves to the first version.
    ///
    /// # Errors
    /// As for [`Keyspace::get`](crate::Keyspace::get). The cursor is then invalid, and another seek may succeed, except after `Closed`.
    pub fn seek_to_first(&mut self) -> Result<()> {
        self.begin_move()?;
        let moved = self.walk.seek_to_first();
        self.arrive(moved)
    }

    /// Moves to the last version.
    ///
    /// # Errors
    /// As for [`VersionCursor::seek_to_first`].
    pub fn seek_to_last(&mut self) -> Result<()> {
        self.begin_move()?;
        let moved = self.walk.seek_to_last();
        self.arrive(moved)
    }

    /// Moves to the first version of `key`, or of the first key after it that has one.
    ///
    /// # Errors
    /// As for [`VersionCursor::seek_to_first`].
    pub fn seek(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        self.begin_move()?;
        let moved = self.walk.seek(key.as_ref());
        self.arrive(moved)
    }

    /// Moves to the last version of `key`, or of the last key before it that has one.
    ///
    /// # Errors
    /// As for [`VersionCursor::seek_to_first`].
    pub fn seek_for_prev(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        self.begin_move()?;
        let moved = self.walk.seek_before(&successor(key.as_ref()));
        self.arrive(moved)
    }

    /// Moves one version forward. The cursor must be valid.
    ///
    /// # Errors
    /// As for [`VersionCursor::seek_to_first`]; `InvalidArgument` when the cursor is not valid. After an error the cursor stays invalid
    /// until it is positioned again.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<()> {
        self.step(VersionWalk::next)
    }

    /// Moves one version back. The cursor must be valid.
    ///
    /// # Errors
    /// As for [`VersionCursor::next`].
    pub fn prev(&mut self) -> Result<()> {
        self.step(VersionWalk::prev)
    }

    fn step(&mut self, step: impl FnOnce(&mut VersionWalk<MergeCursor<Source>>) -> Result<()>) -> Result<()> {
        let was_valid = self.valid;
        self.begin_move()?;
        if !was_valid {
            return Err(Error::invalid("a cursor that is not valid cannot move: position it first"));
        }
        let moved = step(&mut self.walk);
        self.arrive(moved)
    }

    /// Whether the cursor is on a version.
    pub fn valid(&self) -> bool {
        self.valid
    }

    /// The key of the version.
    ///
    /// # Panics
    /// When the cursor is not valid.
    pub fn key(&self) -> &[u8] {
        self.check_valid();
        &self.key
    }

    /// The value; `None` if the version is a delete.
    ///
    /// # Panics
    /// When the cursor is not valid.
    pub fn value(&self) -> Option<&[u8]> {
        self.check_valid();
        self.value.as_deref()
    }

    /// When the version was written.
    ///
    /// # Panics
    /// When the cursor is not valid.
    pub fn time(&self) -> Time {
        self.check_valid();
        self.walk.version().map_or(Time::MIN, |version| version.time)
    }

    /// The time of the next version of the key, at which this one ended, or its expiry if that is earlier; `None` if it has neither.
    ///
    /// # Panics
    /// When the cursor is not valid.
    pub fn until(&self) -> Option<Time> {
        self.check_valid();
        self.walk.version().map(|version| version.until).filter(|until| *until < Time::MAX)
    }

    /// When the version expires, if it has an expiry: see [`Version::expiry`].
    ///
    /// # Panics
    /// When the cursor is not valid.
    pub fn expiry(&self) -> Option<Time> {
        self.check_valid();
        self.walk.version().filter(|version| !version.is_delete).and_then(|version| version.expiry())
    }

    /// The version, which outlives the cursor. A value that lies in a cached block is not copied.
    ///
    /// # Panics
    /// When the cursor is not valid.
    pub fn version(&self) -> Version {
        Version {
            key: Slice::copy_from(self.key()),
            time: self.time(),
            until: self.until(),
            value: self.value.clone(),
            expiry: self.expiry(),
        }
    }

    /// See [`VersionWalk::soonest_expiry`].
    pub(crate) fn soonest_expiry(&self) -> Option<Time> {
        self.walk.soonest_expiry()
    }

    fn check_valid(&self) {
        assert!(self.valid, "the cursor is not valid");
    }
}

/// A double-ended iterator over versions: by key, and of each key the latest first; `.rev()` reverses the order. An error is yielded once;
/// then the iterator ends.
///
/// It shows the state at its creation, and holds the same resources as an iterator over entries: see
/// [`Keyspace::range`](crate::Keyspace::range).
pub struct Versions {
    front: End,
    back: End,
    query: Option<VersionQuery>,
    /// Where an end that was not used yet begins.
    view: VersionView,
    /// Dropped after the cursors, which borrow its sequence number.
    keyspace: HeldSeq,
    db: Reader,
    done: bool,
}

#[derive(Default)]
struct End {
    /// `None` before its first use.
    cursor: Option<VersionCursor>,
    /// The key and time yielded last: the other end stops there.
    last: Option<(Slice, Time)>,
}

impl Versions {
    /// `query` of `None`: nothing.
    pub(crate) fn new(keyspace: HeldSeq, db: Reader, query: Option<VersionQuery>) -> Result<Versions> {
        let view = VersionView::of_reader(&keyspace, keyspace.check_history()?);
        // After the load: the read states of a dropped keyspace are empty.
        keyspace.check_of(db.identity())?;
        let (front, back) = (End::default(), End::default());
        Ok(Versions { front, back, query, view, keyspace, db, done: false })
    }

    /// A cursor over the same versions, which can seek and move in both directions, at no version yet.
    pub fn cursor(self) -> VersionCursor {
        let Versions { front, back, query, view, keyspace, db, .. } = self;
        drop((front, back));
        let query = query.unwrap_or_else(VersionQuery::nothing);
        let cursor = VersionCursor::of_view(keyspace, db, query, view);
        cursor.expect("the keyspace has history: that was checked")
    }

    /// The first expiry after which the same query could show something else in what it has shown.
    pub(crate) fn soonest_expiry(&self) -> Option<Time> {
        let ends = [&self.front, &self.back].into_iter();
        ends.filter_map(|end| end.cursor.as_ref()?.soonest_expiry()).min()
    }

    fn step<const BACK: bool>(&mut self) -> Result<Option<Version>> {
        let Some(query) = &self.query else { return Ok(None) };
        self.view.renew(&self.keyspace);
        let (end, other) = match BACK {
            false => (&mut self.front, &mut self.back),
            true => (&mut self.back, &mut self.front),
        };
        let cursor = match &mut end.cursor {
            Some(cursor) => {
                if BACK {
                    cursor.prev()?
                } else {
                    cursor.next()?
                };
                cursor
            }
            None => {
                let (keyspace, view) = (self.keyspace.lend(), self.view.clone());
                let cursor = VersionCursor::of_view(keyspace, self.db.clone(), query.clone(), view)?;
                let cursor = end.cursor.insert(cursor);
                if BACK {
                    cursor.seek_to_last()?
                } else {
                    cursor.seek_to_first()?
                };
                cursor
            }
        };
        if !cursor.valid() {
            return Ok(None);
        }
        let version = cursor.version();
        let met = other.last.as_ref().is_some_and(|(key, time)| {
            let order = version.key.cmp(key).then(time.cmp(&version.time));
            if BACK { order.is_le() } else { order.is_ge() }
        });
        if met {
            return Ok(None);
        }
        end.last = Some((version.key.clone(), version.time));
        Ok(Some(version))
    }

    fn advance<const BACK: bool>(&mut self) -> Option<Result<Version>> {
        if self.done {
            return None;
        }
        let step = self.step::<BACK>().transpose();
        self.done = !matches!(step, Some(Ok(_)));
        step
    }
}

impl Iterator for Versions {
    type Item = Result<Version>;

    fn next(&mut self) -> Option<Self::Item> {
        self.advance::<false>()
    }
}

impl DoubleEndedIterator for Versions {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.advance::<true>()
    }
}

impl std::iter::FusedIterator for Versions {}

/// The part with the time of what is stored in a primary tree, and with the expiry.
fn suffix_of(_: Trailer, stored: &[u8]) -> &[u8] {
    &stored[stored.len().saturating_sub(PRIMARY_SUFFIX + EXPIRY_LEN)..]
}

/// The time of an entry of a primary tree, and its expiry.
fn times_of(keyspace: &KeyspaceInner, trailer: Trailer, stored: &[u8]) -> Result<(Time, Option<Time>)> {
    let (stored, expiry) = split_value(trailer, stored)?;
    let (_, time) = split_primary(stored).ok_or_else(|| keyspace.no_tail())?;
    Ok((time, expiry))
}

impl KeyspaceInner {
    /// When a version of `key` at `time`, written after everything up to `seq`, would end, and whether by a range delete; `None` if it would be
    /// the newest. The keyspace must have history.
    ///
    /// The caller need not hold the number, if it is the newest visible one: no job drops a version that is visible at it.
    pub(crate) fn end_of_version_at(&self, key: &[u8], time: Time, seq: Seq) -> Result<Option<(Time, bool)>> {
        let historical = self.check_history()?;
        let view = VersionView::new(self, historical);
        if let Some((trailer, stored)) = self.newest_in(&view.primary, key, seq, suffix_of)? {
            let (newest, _) = times_of(self, trailer, &stored)?;
            // A value is the newest of all, unless a range tombstone is newer. A delete need not be: a range tombstone may have evicted later
            // values, and be gone.
            if newest <= time && !trailer.is_delete() && view.primary.deleted_before(key, seq) < trailer.seq()
            {
                return Ok(None);
            }
        }
        // Any version of the key.
        let (shown, bounds) = (Shown::Window(Time::MIN, Time::MAX), Bounds::of_key(key));
        let query = VersionQuery { shown, bounds, ends: true };
        let ranges = view.primary.ranges().unwrap_or_default();
        let (primary, older) = sources_of(self, historical, &view, &query, seq);
        let range = (key, query.bounds.to.as_deref());
        VersionWalk::new(primary, older, ranges, (seq, Time::MAX), query.shown, range)
            .end_of_version_at(key, time)
    }
}

/// A state of a keyspace with history, to look up versions as of one time.
pub(crate) struct AsOf {
    time: Time,
    primary: Arc<ReadState>,
    keyspace: HeldSeq,
    db: Reader,
}

impl AsOf {
    pub(crate) fn new(keyspace: HeldSeq, db: Reader, time: Time) -> Result<AsOf> {
        let primary = keyspace.load_read_state();
        // After the load: the read state of a dropped keyspace is empty.
        keyspace.check_of(db.identity())?;
        keyspace.check_history()?;
        Ok(AsOf { time, primary, keyspace, db })
    }

    /// The version of `key` that was the newest; `None` if there was none, or it is a delete.
    ///
    /// Costs what a point read does if the newest version of all is that old and a value. Otherwise a cursor over the versions of the key seeks.
    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<Version>> {
        self.look(key).map_err(|e| self.db.read_error(e))
    }

    fn look(&self, key: &[u8]) -> Result<Option<Version>> {
        let keyspace = &*self.keyspace;
        // A later version is not shown: its time is enough.
        let is_later = |trailer, stored: &[u8]| {
            times_of(keyspace, trailer, stored).is_ok_and(|(time, _)| time > self.time)
        };
        let newest = keyspace.newest_in(&self.primary, key, self.keyspace.seq, |trailer, stored| {
            if is_later(trailer, stored) { suffix_of(trailer, stored) } else { stored }
        })?;
        if let Some((trailer, stored)) = newest {
            let (time, expiry) = times_of(keyspace, trailer, &stored)?;
            // A delete need not be the newest version of all: see `KeyspaceInner::end_of_version_at`.
            let is_deleted =
                || trailer.is_delete() || self.primary.deleted_before(key, self.keyspace.seq) > trailer.seq();
            if time <= self.time && !is_deleted() {
                // The newest of all is what is still there.
                let expires_after = if self.time == Time::MAX { self.keyspace.now } else { self.time };
                if expiry.is_some_and(|expiry| expiry <= expires_after) {
                    return Ok(None);
                }
                let value = Some(keyspace.resolve(trailer, stored)?);
                let version = Version::new(Slice::copy_from(key), time, expiry, value);
                return Ok(Some(version.expiring(expiry)));
            }
        }
        let query = VersionQuery::version_at(key, self.time);
        let mut cursor = VersionCursor::new(self.keyspace.lend(), self.db.clone(), query)?;
        cursor.seek_to_first()?;
        Ok(cursor.valid().then(|| cursor.version()))
    }
}

crate::types::debug_of! {
    [] Versions, "Versions";
    [] VersionCursor, "VersionCursor", key: |cursor| cursor.valid().then(|| Slice::copy_from(cursor.key()));
}
