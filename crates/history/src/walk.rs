//! [`VersionWalk`]: a walk over the versions in both trees of a keyspace with history.

use crate::primary_versions::PrimaryVersions;
use crate::stored::{Ended, split_historical, split_primary};
use crate::version_key::{TIME_LEN, prefix_of, put_key_of, split};
use base::expiry::without_expiry;
use base::{Cursor, EntryKind, Error, ErrorKind, MAX_SEQ, RangeSet, Result, Seq, Slice, Time, Trailer};
use tree::MergeCursor;

/// After so many steps past versions of a key that are not shown, a walk seeks.
const MAX_STEPS: usize = 8;

/// Which versions a walk shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    /// All versions, deletes included, with times in this range, both ends included.
    Window(Time, Time),
    /// Of each key the version that is the newest as of this time, unless it is a delete. [`Time::MAX`]: the newest of all.
    AsOf(Time),
}

/// The entries of one tree, as versions.
pub(crate) enum Run<C> {
    Primary(PrimaryVersions<C>),
    Historical(C),
}

base::delegate_cursor!(Run<C> where C { Primary, Historical });

/// The child of the merge that is the primary tree.
pub(crate) const PRIMARY: usize = 0;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Invalid,
    /// The merge stands on the entry of the version.
    Forward,
    /// The merge stands before all entries of the version, or of its key where one version of each key is shown.
    Backward,
    /// The merge is new, and stands nowhere.
    Renewed,
}

/// A version of a key.
#[derive(Clone, Debug)]
pub struct KeyVersion {
    /// The part of its version key before the time.
    prefix: Vec<u8>,
    /// Its time.
    pub time: Time,
    /// The time at which it ends: that of the next version that the walk sees, or its expiry if that is earlier; [`Time::MAX`] if it has
    /// neither.
    pub until: Time,
    /// The time of the next version that the walk sees, if there is one.
    next: Time,
    /// Whether a range delete ended it, as far as is stored.
    by_range: bool,
    /// Its expiry; [`Time::MAX`] if it has none.
    expiry: Time,
    /// Whether it is a delete.
    pub is_delete: bool,
    /// Whether reads of the newest version may find it: it is in the primary tree, and no range delete hides it.
    may_be_there: bool,
    /// The trailer of its entry, which tells whether `value` is a reference to the value.
    pub trailer: Trailer,
    /// Its value, or the reference to it.
    pub value: Slice,
}

impl KeyVersion {
    /// Its expiry.
    pub fn expiry(&self) -> Option<Time> {
        Some(self.expiry).filter(|expiry| *expiry < Time::MAX)
    }

    /// Notes the time of the next version that the walk sees. A value may have ended before, by a range delete, or with a version that has
    /// expired. A delete has no end but the next version, whatever is stored: it may have moved to the historical tree although the walk
    /// sees no later version, or may be a late one before a range delete.
    fn end_at(&mut self, later: Option<Time>) {
        self.next = later.unwrap_or(Time::MAX);
        self.by_range &= self.until < self.next.min(self.expiry);
        self.until = if self.is_delete { self.next } else { self.until.min(self.next).min(self.expiry) };
    }

    /// Whether it ended by itself: by a range delete, or by its expiry, which had passed at `now`.
    fn ended_by_itself(&self, now: Time) -> bool {
        let has_expired = self.until == self.expiry && self.expiry <= now;
        !self.is_delete && self.until < self.next && (has_expired || self.by_range)
    }

    /// Whether a range delete replaced it, of the same time.
    fn is_replaced(&self) -> bool {
        // Or it expires before it begins, because its time is after the clock.
        !self.is_delete && self.until <= self.time && self.until < self.expiry
    }

    /// Its end, if a window shows that as a version.
    fn end(&self, shown: Shown, now: Time) -> Option<KeyVersion> {
        let Shown::Window(earliest, latest) = shown else { return None };
        // A put that had expired when it was written has no end of its own.
        let has_begun = self.until > self.time || self.until == self.time && self.until < self.expiry;
        let is_end = self.ended_by_itself(now) && has_begun;
        let is_shown = is_end && (earliest..=latest).contains(&self.until);
        is_shown.then(|| KeyVersion {
            prefix: self.prefix.clone(),
            time: self.until,
            until: self.next,
            next: self.next,
            by_range: false,
            expiry: Time::MAX,
            is_delete: true,
            may_be_there: false,
            trailer: Trailer::new(self.trailer.seq(), EntryKind::Put),
            value: Slice::default(),
        })
    }

    /// Whether it is a value that had not ended at `time`, as far as its end is known. [`Time::MAX`]: that is still there, for a reader that
    /// began at `now`: what moved to the historical tree as the newest version is not, whatever a clock that is set back says.
    fn exists_at(&self, time: Time, now: Time) -> bool {
        match time {
            _ if self.is_delete => false,
            Time::MAX => self.may_be_there && self.expiry > now,
            _ => self.until.min(self.expiry) > time,
        }
    }
}

/// A walk over the versions in both trees, as they were at one sequence number: by key, and of each key the latest first.
///
/// A version that is in both trees, because it is moving, is shown once, and of two writes to a key at one time the newer one.
///
/// A window shows the end of a version by a range delete, or by its expiry, as a delete, before the version: the version's *end*. A version may
/// also have ended before the next one because retention has dropped what followed it.
pub struct VersionWalk<C> {
    merge: MergeCursor<Run<C>>,
    /// The range tombstones of the primary tree.
    ranges: RangeSet,
    seq: Seq,
    /// The time at which the reader began, for expiries.
    now: Time,
    shown: Shown,
    /// The parts before the time of the version keys of the first key, and of the exclusive end.
    from: Vec<u8>,
    to: Option<Vec<u8>>,
    place: Place,
    current: KeyVersion,
    /// The walk stands on the end of `current`, which is this.
    end: Option<KeyVersion>,
    /// Going forward: the key of the last entry, and the time of its last visible version.
    prefix: Vec<u8>,
    last: Option<Time>,
    /// Going forward: the end of the next version was shown.
    passed_end: bool,
    /// For version keys to seek to.
    target: Vec<u8>,
    /// The first expiry after `now` of what was shown, where it decides what is.
    soonest: Time,
}

impl<C: Cursor> VersionWalk<C> {
    /// `primary` and `historical` are over the entries of the two trees that may have keys of the range, and `ranges` are the range tombstones
    /// of the primary one. `seq` and `now`: the sequence number at which the reader reads, and the time at which it began. `to` of `None`: to the
    /// end.
    pub fn new(
        primary: C,
        historical: C,
        ranges: RangeSet,
        (seq, now): (Seq, Time),
        shown: Shown,
        (from, to): (&[u8], Option<&[u8]>),
    ) -> VersionWalk<C> {
        VersionWalk {
            merge: merge_of(primary, historical),
            ranges,
            seq,
            now,
            shown,
            from: prefix_of(from),
            to: to.map(prefix_of),
            place: Place::Invalid,
            current: KeyVersion {
                prefix: Vec::new(),
                time: Time::MIN,
                until: Time::MAX,
                next: Time::MAX,
                by_range: false,
                expiry: Time::MAX,
                is_delete: false,
                may_be_there: false,
                trailer: Trailer(0),
                value: Slice::default(),
            },
            end: None,
            prefix: Vec::new(),
            last: None,
            passed_end: false,
            target: Vec::new(),
            soonest: Time::MAX,
        }
    }

    /// Notes the expiry of the current version, of which the end is known, if a walk after it would show something else.
    fn note_expiry(&mut self) {
        let KeyVersion { is_delete, until, expiry, .. } = self.current;
        // As of another time than the present the same is shown whatever time it is.
        let latest = match self.shown {
            Shown::Window(_, latest) => latest,
            Shown::AsOf(time) => {
                if time == Time::MAX {
                    Time::MAX
                } else {
                    Time::MIN
                }
            }
        };
        if !is_delete && until == expiry && expiry > self.now && expiry < Time::MAX && expiry <= latest {
            self.soonest = self.soonest.min(expiry);
        }
    }

    /// The first expiry, among those of the versions that were met, after which a new walk could show something else; `None` if there is none.
    pub fn soonest_expiry(&self) -> Option<Time> {
        Some(self.soonest).filter(|soonest| *soonest < Time::MAX)
    }

    /// The cursors over both trees.
    pub fn cursors(&self) -> impl Iterator<Item = &C> {
        self.merge.children().iter().map(|run| match run {
            Run::Primary(versions) => versions.inner(),
            Run::Historical(cursor) => cursor,
        })
    }

    /// Takes other cursors over the same trees, as they are now: all that the sequence number of the walk shows is still in them. The walk
    /// stays on its version.
    pub fn renew(&mut self, primary: C, historical: C, ranges: RangeSet) {
        self.ranges = ranges;
        self.merge = merge_of(primary, historical);
        if self.place != Place::Invalid {
            self.place = Place::Renewed;
        }
    }

    /// The version on which the walk stands; `None` past either end, and before it is positioned.
    pub fn version(&self) -> Option<&KeyVersion> {
        (self.place != Place::Invalid).then(|| self.end.as_ref().unwrap_or(&self.current))
    }

    /// Appends the key of the version to `out`. The walk must stand on one.
    ///
    /// # Errors
    /// `Corruption` if the version key is malformed.
    pub fn put_key(&self, out: &mut Vec<u8>) -> Result<()> {
        put_key_of(out, &self.current.prefix).then_some(()).ok_or_else(|| malformed(&self.current.prefix))
    }

    /// Moves to the first version.
    pub fn seek_to_first(&mut self) -> Result<()> {
        let from = std::mem::take(&mut self.from);
        let sought = self.seek_prefix(&from);
        self.from = from;
        sought
    }

    /// Moves to the first version of `key`, or of the next key that has one. A key before the range is taken for its first one.
    pub fn seek(&mut self, key: &[u8]) -> Result<()> {
        let prefix = prefix_of(key);
        if prefix < self.from {
            return self.seek_to_first();
        }
        self.seek_prefix(&prefix)
    }

    fn seek_prefix(&mut self, prefix: &[u8]) -> Result<()> {
        self.leave();
        self.prefix.clear();
        self.last = None;
        // That of the empty key is before all others: so a walk over everything needs no seeks.
        match prefix == prefix_of(b"") {
            true => self.merge.seek_to_first()?,
            false => self.seek_merge(prefix, Time::MAX, MAX_SEQ)?,
        }
        self.find_forward()
    }

    /// Moves to the last version.
    pub fn seek_to_last(&mut self) -> Result<()> {
        self.leave();
        match self.to.take() {
            None => self.merge.seek_to_last()?,
            Some(to) => {
                let sought = self.seek_merge_before(&to, Time::MAX);
                self.to = Some(to);
                sought?;
            }
        }
        self.find_backward()
    }

    /// Moves to the last version before all of `key`, or past the start of the range. A key behind the range is taken for its end.
    pub fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        let prefix = prefix_of(key);
        if self.to.as_ref().is_some_and(|to| prefix >= *to) {
            return self.seek_to_last();
        }
        self.leave();
        self.seek_merge_before(&prefix, Time::MAX)?;
        self.find_backward()
    }

    /// Leaves the version. Returns where the merge stands, and whether the version was the end of another.
    fn leave(&mut self) -> (Place, bool) {
        self.passed_end = false;
        (std::mem::replace(&mut self.place, Place::Invalid), self.end.take().is_some())
    }

    /// Moves one version forward. The walk must stand on one.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<()> {
        let (place, was_end) = self.leave();
        let KeyVersion { prefix, time, .. } = &self.current;
        self.prefix.clone_from(prefix);
        self.last = Some(*time);
        match (place, self.shown) {
            (Place::Invalid, _) => return Err(invalid_move()),
            _ if was_end => {
                // Its version comes next.
                self.last = Some(self.current.next).filter(|next| *next < Time::MAX);
                self.passed_end = true;
                // Going forward, the merge stands on its entry.
                if place != Place::Forward {
                    self.seek_in_key(self.current.time, MAX_SEQ)?;
                }
            }
            (Place::Forward, Shown::Window(..)) => self.merge.next()?,
            (Place::Forward, Shown::AsOf(_)) => self.leave_key()?,
            (Place::Backward | Place::Renewed, Shown::Window(..)) => {
                self.seek_in_key(self.current.time, 0)?
            }
            (Place::Backward | Place::Renewed, Shown::AsOf(_)) => self.seek_in_key(Time::MIN, 0)?,
        }
        self.find_forward()
    }

    /// Moves one version back. The walk must stand on one.
    pub fn prev(&mut self) -> Result<()> {
        let (place, was_end) = self.leave();
        if place != Place::Invalid && !was_end {
            self.end = self.current.end(self.shown, self.now);
            if self.end.is_some() {
                self.place = place;
                return Ok(());
            }
        }
        let time = match self.shown {
            Shown::Window(..) => self.current.time,
            Shown::AsOf(_) => Time::MAX,
        };
        match place {
            Place::Invalid => return Err(invalid_move()),
            Place::Backward => {}
            Place::Forward | Place::Renewed => {
                let prefix = std::mem::take(&mut self.current.prefix);
                let sought = self.seek_merge_before(&prefix, time);
                self.current.prefix = prefix;
                sought?;
            }
        }
        self.find_backward()
    }

    /// When a version of `key` at `time`, which is now written, would end: at the time of the next one, or where the one before it ended, whichever
    /// comes first, and whether that is by a range delete. `None` if it would be the newest. Leaves the version on which the walk stands.
    ///
    /// The walk must see all that is committed: where a delete ended is known only then.
    pub fn end_of_version_at(&mut self, key: &[u8], time: Time) -> Result<Option<(Time, bool)>> {
        self.leave();
        self.prefix = prefix_of(key);
        self.seek_in_key(time, MAX_SEQ)?;
        while self.is_in_key() && self.is_hidden() {
            self.merge.next()?;
        }
        let mut end = (Time::MAX, false);
        if self.is_in_key() {
            self.take()?;
            let KeyVersion { until, by_range, .. } = self.current;
            end = if until > time { (until, by_range) } else { end };
        }
        self.enter_window(time)?;
        // A version at the time of a range delete replaces it.
        end = end.min((self.last.unwrap_or(Time::MAX), false));
        Ok((end.0 < Time::MAX).then_some(end))
    }

    fn seek_merge(&mut self, prefix: &[u8], time: Time, seq: Seq) -> Result<()> {
        set_version_key(&mut self.target, prefix, time);
        self.merge.seek(&self.target, seq)
    }

    fn seek_merge_before(&mut self, prefix: &[u8], time: Time) -> Result<()> {
        set_version_key(&mut self.target, prefix, time);
        self.merge.seek_before(&self.target)
    }

    /// Moves the merge to the first entry of the key `self.prefix` at or before `time`, and of those at `time` not after `seq`; or behind
    /// the key.
    fn seek_in_key(&mut self, time: Time, seq: Seq) -> Result<()> {
        set_version_key(&mut self.target, &self.prefix, time);
        self.merge.seek(&self.target, seq)
    }

    /// Whether the merge stands on an entry of the key `self.prefix`.
    fn is_in_key(&self) -> bool {
        self.merge.valid() && split(self.merge.key()).is_some_and(|(prefix, _)| prefix == self.prefix)
    }

    /// Moves the merge behind the key `self.prefix`.
    fn leave_key(&mut self) -> Result<()> {
        for _ in 0..MAX_STEPS {
            if !self.is_in_key() {
                return Ok(());
            }
            self.merge.next()?;
        }
        if self.is_in_key() { self.seek_in_key(Time::MIN, 0) } else { Ok(()) }
    }

    /// Moves the merge to the first version of the key at or before `time`, and notes the time of the visible one after it.
    fn enter_window(&mut self, time: Time) -> Result<()> {
        set_version_key(&mut self.target, &self.prefix, time);
        self.merge.seek_before(&self.target)?;
        while self.is_in_key() && self.is_hidden() {
            self.merge.prev()?;
        }
        self.last = match self.is_in_key() {
            true => Some(split_key(self.merge.key())?.1),
            false => None,
        };
        self.seek_in_key(time, MAX_SEQ)
    }

    /// Finds the first version to be shown, from the position of the merge on.
    fn find_forward(&mut self) -> Result<()> {
        let mut steps = 0;
        while self.merge.valid() {
            let key = self.merge.key();
            if self.to.as_ref().is_some_and(|to| key >= &to[..]) {
                return Ok(());
            }
            let (prefix, time) = split_key(key)?;
            if self.prefix != prefix {
                self.prefix.clear();
                self.prefix.extend_from_slice(prefix);
                (self.last, steps, self.passed_end) = (None, 0, false);
            }
            // One that the reader does not see, or an older write at the same time, or the same entry in the other tree.
            if self.is_hidden() || self.last == Some(time) {
                self.merge.next()?;
                continue;
            }
            let later = self.last.replace(time);
            let (earliest, latest) = match self.shown {
                Shown::Window(earliest, latest) => (earliest, latest),
                Shown::AsOf(time) => (Time::MIN, time),
            };
            if time > latest {
                steps += 1;
                match steps <= MAX_STEPS {
                    true => self.merge.next()?,
                    false => self.enter_window(latest)?,
                }
                continue;
            }
            self.take()?;
            if let Shown::AsOf(time) = self.shown
                && !self.current.exists_at(time, self.now)
            {
                self.leave_key()?;
                continue;
            }
            self.current.end_at(later);
            self.note_expiry();
            let passed_end = std::mem::take(&mut self.passed_end);
            if !passed_end {
                self.end = self.current.end(self.shown, self.now);
            }
            if self.end.is_none() && time < earliest {
                self.leave_key()?;
                continue;
            }
            if self.end.is_none() && self.current.is_replaced() {
                self.merge.next()?;
                continue;
            }
            self.place = Place::Forward;
            return Ok(());
        }
        Ok(())
    }

    /// Finds the last version to be shown at or before the position of the merge, and moves the merge before it.
    fn find_backward(&mut self) -> Result<()> {
        match self.shown {
            Shown::Window(earliest, latest) => self.find_backward_in(earliest, latest),
            Shown::AsOf(time) => self.find_backward_as_of(time),
        }
    }

    /// Whether the merge, going backward, stands on an entry of the range.
    fn is_in_range(&self) -> bool {
        self.merge.valid() && self.merge.key() >= &self.from[..]
    }

    fn find_backward_in(&mut self, earliest: Time, latest: Time) -> Result<()> {
        while let Some(later) = self.take_backward(earliest, latest)? {
            self.current.end_at(later);
            self.note_expiry();
            let is_shown = self.current.time >= earliest && !self.current.is_replaced();
            if !is_shown {
                self.end = self.current.end(self.shown, self.now);
            }
            if is_shown || self.end.is_some() {
                self.place = Place::Backward;
                return Ok(());
            }
        }
        Ok(())
    }

    /// Going backward: takes the next version of the window, or one before the window if it is the last one there. Returns the time of the
    /// version after it, if there is one; `None` if the walk has come to its start.
    fn take_backward(&mut self, earliest: Time, latest: Time) -> Result<Option<Option<Time>>> {
        let (mut found, mut later) = (false, None);
        while self.is_in_range() {
            if self.is_hidden() {
                self.merge.prev()?;
                continue;
            }
            let (prefix, time) = split_key(self.merge.key())?;
            if found {
                if prefix != self.current.prefix {
                    break;
                }
                if time != self.current.time {
                    later = Some(time);
                    break;
                }
            } else if time > latest {
                let prefix = prefix.to_vec();
                self.seek_merge_before(&prefix, Time::MAX)?;
                continue;
            } else if time < earliest {
                // The last one before the window may have its end in it.
                let prefix = prefix.to_vec();
                self.seek_merge(&prefix, Time::from_micros(earliest.micros() - 1), MAX_SEQ)?;
                while self.merge.valid() && self.is_hidden() {
                    self.merge.next()?;
                }
                self.take()?;
                let time = self.current.time;
                self.seek_merge_before(&prefix, time)?;
                found = true;
                continue;
            }
            // The newest write at a time comes last.
            found = true;
            self.take()?;
            self.merge.prev()?;
        }
        Ok(found.then_some(later))
    }

    fn find_backward_as_of(&mut self, as_of: Time) -> Result<()> {
        let (mut found, mut steps) = (false, 0);
        loop {
            let in_range = self.is_in_range();
            let is_done = |prefix: &[u8]| found && prefix != self.current.prefix;
            let key = if in_range { Some(split_key(self.merge.key())?) } else { None };
            if key.is_none_or(|(prefix, _)| is_done(prefix)) {
                if found && self.current.exists_at(as_of, self.now) {
                    // That of a later version is noted when the merge meets it.
                    self.current.until = self.current.until.min(self.current.expiry);
                    self.place = Place::Backward;
                    self.note_expiry();
                    return Ok(());
                }
                (found, steps) = (false, 0);
            }
            let Some((prefix, time)) = key else { return Ok(()) };
            if time > as_of {
                if found && self.is_hidden() {
                    // The end is the time of the first one that the reader sees.
                    self.merge.prev()?;
                    continue;
                }
                if found {
                    self.current.end_at(Some(time));
                }
                let prefix = prefix.to_vec();
                self.seek_merge_before(&prefix, Time::MAX)?;
                continue;
            }
            if self.is_hidden() {
                self.merge.prev()?;
                continue;
            }
            found = true;
            self.take()?;
            steps += 1;
            if steps <= MAX_STEPS {
                self.merge.prev()?;
                continue;
            }
            // The first one that the reader sees; there is one, where the merge stands or before it.
            let prefix = split_key(self.merge.key())?.0.to_vec();
            self.seek_merge(&prefix, as_of, MAX_SEQ)?;
            while self.merge.valid() && self.is_hidden() {
                self.merge.next()?;
            }
            self.take()?;
            let time = self.current.time;
            self.seek_merge_before(&prefix, time)?;
        }
    }

    /// Whether the entry on which the merge stands is a newer one than the walk sees.
    fn is_hidden(&self) -> bool {
        self.merge.trailer().seq() > self.seq
    }

    /// The time of the first range tombstone over the entry of the primary tree on which the merge stands; [`Time::MAX`] if there is none.
    fn end_by_range(&self, seq: Seq) -> Time {
        let Some(Run::Primary(primary)) =
            self.merge.children().get(PRIMARY).filter(|_| !self.ranges.is_empty())
        else {
            return Time::MAX;
        };
        let range = self.ranges.oldest_after(primary.user_key(), seq, self.seq);
        range.map_or(Time::MAX, |range| range.time)
    }

    /// Takes the entry on which the merge stands as the current version. Its end is what is stored, or that of a range tombstone.
    fn take(&mut self) -> Result<()> {
        let key = self.merge.key();
        let (prefix, time) = split_key(key)?;
        let (trailer, stored) = (self.merge.trailer(), self.merge.value_slice());
        let Some((stored_before, expiry)) = without_expiry(trailer, &stored) else {
            return Err(malformed(key));
        };
        let (expiry, mut may_be_there) = (expiry.unwrap_or(Time::MAX), false);
        let found = match self.merge.current() == PRIMARY {
            true => {
                let is_delete = trailer.is_delete();
                // A range delete does nothing to what has expired before, also if no compaction has moved that yet.
                let range = self.end_by_range(trailer.seq());
                may_be_there = range == Time::MAX;
                let until = if is_delete || range >= expiry { Time::MAX } else { range };
                let ended = Ended::at(until, is_delete).by_range(until < Time::MAX);
                split_primary(stored_before).map(|(value, _)| (value, ended))
            }
            // A value without an end has an expiry.
            false => split_historical(stored_before, time)
                .filter(|(_, ended)| ended.is_delete || ended.until < Time::MAX || trailer.expires()),
        };
        let Some((value, ended)) = found else { return Err(malformed(key)) };
        let current = &mut self.current;
        current.prefix.clear();
        current.prefix.extend_from_slice(prefix);
        (current.time, current.until) = (time, ended.until);
        // A put that had expired when it was written is a delete, once that time has come.
        (current.is_delete, current.by_range) =
            (ended.is_delete || expiry <= time.min(self.now), ended.by_range);
        (current.trailer, current.expiry, current.may_be_there) = (trailer, expiry, may_be_there);
        current.value = stored.slice_of(value);
        Ok(())
    }
}

pub(crate) fn merge_of<C: Cursor>(primary: C, historical: C) -> MergeCursor<Run<C>> {
    MergeCursor::new(vec![Run::Primary(PrimaryVersions::new(primary)), Run::Historical(historical)], 0)
}

fn set_version_key(target: &mut Vec<u8>, prefix: &[u8], time: Time) {
    target.clear();
    target.reserve(prefix.len() + TIME_LEN);
    target.extend_from_slice(prefix);
    target.extend_from_slice(&(!time.micros()).to_be_bytes());
}

fn split_key(key: &[u8]) -> Result<(&[u8], Time)> {
    split(key).ok_or_else(|| malformed(key))
}

#[cold]
fn malformed(key: &[u8]) -> Error {
    let what = format!("the entry {:?} is no version of a key", Slice::copy_from(key));
    Error::new(ErrorKind::Corruption, what)
}

fn invalid_move() -> Error {
    Error::invalid("a walk that stands on no version cannot move: position it first")
}

#[cfg(test)]
mod tests;
