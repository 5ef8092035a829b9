//! [`VersionWalk`]: a walk over the versions in both trees of a keyspace with history.

use crate::primary_versions::PrimaryVersions;
use crate::stored::{split_historical, split_primary};
use crate::version_key::{TIME_LEN, put_key_of, put_prefix, split};
use base::{Cursor, Error, ErrorKind, MAX_SEQ, Result, Seq, Slice, Time, Trailer};
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
enum Run<C> {
    Primary(PrimaryVersions<C>),
    Historical(C),
}

base::delegate_cursor!(Run<C> where C { Primary, Historical });

/// The child of the merge that is the primary tree.
const PRIMARY: usize = 0;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Invalid,
    /// The merge stands on the entry of the version.
    Forward,
    /// The merge stands before all entries of the version, or of its key where one version of each key is shown.
    Backward,
}

/// A version of a key.
#[derive(Clone, Debug)]
pub struct KeyVersion {
    /// The part of its version key before the time.
    prefix: Vec<u8>,
    /// Its time.
    pub time: Time,
    /// The time at which it ended, as far as the walk shows: [`Time::MAX`] if it has not. Without meaning with [`Shown::AsOf`].
    pub until: Time,
    /// Whether it is a delete.
    pub is_delete: bool,
    /// The trailer of its entry, which tells whether `value` is a reference to the value.
    pub trailer: Trailer,
    /// Its value, or the reference to it.
    pub value: Slice,
}

impl KeyVersion {
    /// Whether it is a value that had not ended at `time`, as far as its end is known.
    fn exists_at(&self, time: Time) -> bool {
        !self.is_delete && (self.until == Time::MAX || self.until > time)
    }
}

/// A walk over the versions in both trees, as they were at one sequence number: by key, and of each key the latest first.
///
/// A version that is in both trees, because it is moving, is shown once, and of two writes to a key at one time the newer one.
pub struct VersionWalk<C> {
    merge: MergeCursor<Run<C>>,
    seq: Seq,
    shown: Shown,
    /// The parts before the time of the version keys of the first key, and of the exclusive end.
    from: Vec<u8>,
    to: Option<Vec<u8>>,
    place: Place,
    current: KeyVersion,
    /// Going forward: the key of the last entry, and the time of its last visible version.
    prefix: Vec<u8>,
    last: Option<Time>,
    /// For version keys to seek to.
    target: Vec<u8>,
}

impl<C: Cursor> VersionWalk<C> {
    /// `primary` and `historical` are over the entries of the two trees that may have keys of the range. `to` of `None`: to the end.
    pub fn new(
        primary: C,
        historical: C,
        seq: Seq,
        shown: Shown,
        (from, to): (&[u8], Option<&[u8]>),
    ) -> VersionWalk<C> {
        let prefix = |key: &[u8]| {
            let mut prefix = Vec::new();
            put_prefix(&mut prefix, key);
            prefix
        };
        let runs = vec![Run::Primary(PrimaryVersions::new(primary)), Run::Historical(historical)];
        VersionWalk {
            merge: MergeCursor::new(runs, 0),
            seq,
            shown,
            from: prefix(from),
            to: to.map(prefix),
            place: Place::Invalid,
            current: KeyVersion {
                prefix: Vec::new(),
                time: Time::MIN,
                until: Time::MAX,
                is_delete: false,
                trailer: Trailer(0),
                value: Slice::default(),
            },
            prefix: Vec::new(),
            last: None,
            target: Vec::new(),
        }
    }

    /// The version on which the walk stands; `None` past either end, and before it is positioned.
    pub fn version(&self) -> Option<&KeyVersion> {
        (self.place != Place::Invalid).then_some(&self.current)
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
        let mut prefix = Vec::new();
        put_prefix(&mut prefix, key);
        if prefix < self.from {
            return self.seek_to_first();
        }
        self.seek_prefix(&prefix)
    }

    fn seek_prefix(&mut self, prefix: &[u8]) -> Result<()> {
        self.place = Place::Invalid;
        self.prefix.clear();
        self.last = None;
        self.seek_merge(prefix, Time::MAX, MAX_SEQ)?;
        self.find_forward()
    }

    /// Moves to the last version.
    pub fn seek_to_last(&mut self) -> Result<()> {
        self.place = Place::Invalid;
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

    /// Moves one version forward. The walk must stand on one.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<()> {
        let place = std::mem::replace(&mut self.place, Place::Invalid);
        let KeyVersion { prefix, time, .. } = &self.current;
        self.prefix.clone_from(prefix);
        self.last = Some(*time);
        match (place, self.shown) {
            (Place::Invalid, _) => return Err(invalid_move()),
            (Place::Forward, Shown::Window(..)) => self.merge.next()?,
            (Place::Forward, Shown::AsOf(_)) => self.leave_key()?,
            (Place::Backward, Shown::Window(..)) => self.seek_in_key(self.current.time, 0)?,
            (Place::Backward, Shown::AsOf(_)) => self.seek_in_key(Time::MIN, 0)?,
        }
        self.find_forward()
    }

    /// Moves one version back. The walk must stand on one.
    pub fn prev(&mut self) -> Result<()> {
        let place = std::mem::replace(&mut self.place, Place::Invalid);
        let time = match self.shown {
            Shown::Window(..) => self.current.time,
            Shown::AsOf(_) => Time::MAX,
        };
        match place {
            Place::Invalid => return Err(invalid_move()),
            Place::Backward => {}
            Place::Forward => {
                let prefix = std::mem::take(&mut self.current.prefix);
                let sought = self.seek_merge_before(&prefix, time);
                self.current.prefix = prefix;
                sought?;
            }
        }
        self.find_backward()
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
        while self.is_in_key() && self.merge.trailer().seq() > self.seq {
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
                (self.last, steps) = (None, 0);
            }
            // One that the reader does not see, or an older write at the same time, or the same entry in the other tree.
            if self.merge.trailer().seq() > self.seq || self.last == Some(time) {
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
                match self.shown {
                    _ if steps <= MAX_STEPS => self.merge.next()?,
                    Shown::Window(..) => self.enter_window(latest)?,
                    Shown::AsOf(_) => self.seek_in_key(latest, MAX_SEQ)?,
                }
                continue;
            }
            if time < earliest {
                self.leave_key()?;
                continue;
            }
            self.take()?;
            if let Shown::AsOf(time) = self.shown
                && !self.current.exists_at(time)
            {
                self.leave_key()?;
                continue;
            }
            self.current.until = self.current.until.min(later.unwrap_or(Time::MAX));
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
        let mut found = false;
        while self.is_in_range() {
            if self.merge.trailer().seq() > self.seq {
                self.merge.prev()?;
                continue;
            }
            let (prefix, time) = split_key(self.merge.key())?;
            if found {
                if prefix != self.current.prefix {
                    break;
                }
                if time != self.current.time {
                    self.current.until = self.current.until.min(time);
                    break;
                }
            } else if time > latest {
                let prefix = prefix.to_vec();
                self.seek_merge_before(&prefix, Time::MAX)?;
                continue;
            } else if time < earliest {
                let prefix = prefix.to_vec();
                self.seek_merge_before(&prefix, Time::from_micros(earliest.micros() - 1))?;
                continue;
            }
            // The newest write at a time comes last.
            found = true;
            self.take()?;
            self.merge.prev()?;
        }
        self.place = if found { Place::Backward } else { Place::Invalid };
        Ok(())
    }

    fn find_backward_as_of(&mut self, as_of: Time) -> Result<()> {
        let (mut found, mut steps) = (false, 0);
        loop {
            let in_range = self.is_in_range();
            let is_done = |prefix: &[u8]| found && prefix != self.current.prefix;
            let key = if in_range { Some(split_key(self.merge.key())?) } else { None };
            if key.is_none_or(|(prefix, _)| is_done(prefix)) {
                if found && self.current.exists_at(as_of) {
                    self.place = Place::Backward;
                    return Ok(());
                }
                (found, steps) = (false, 0);
            }
            let Some((prefix, time)) = key else { return Ok(()) };
            if time > as_of {
                let prefix = prefix.to_vec();
                self.seek_merge_before(&prefix, Time::MAX)?;
                continue;
            }
            if self.merge.trailer().seq() <= self.seq {
                found = true;
                self.take()?;
            }
            steps += 1;
            if steps <= MAX_STEPS || !found {
                self.merge.prev()?;
                continue;
            }
            // The first one that the reader sees; there is one, where the merge stands or before it.
            let prefix = split_key(self.merge.key())?.0.to_vec();
            self.seek_merge(&prefix, as_of, MAX_SEQ)?;
            while self.merge.valid() && self.merge.trailer().seq() > self.seq {
                self.merge.next()?;
            }
            self.take()?;
            self.seek_merge_before(&prefix, Time::MAX)?;
        }
    }

    /// Takes the entry on which the merge stands as the current version. Its end is what is stored.
    fn take(&mut self) -> Result<()> {
        let key = self.merge.key();
        let (prefix, time) = split_key(key)?;
        let (trailer, stored) = (self.merge.trailer(), self.merge.value_slice());
        let found = match self.merge.current() == PRIMARY {
            true => split_primary(&stored).map(|(value, _)| (value, Time::MAX, trailer.is_delete())),
            false => {
                split_historical(&stored, time).map(|(value, ended)| (value, ended.until, ended.is_delete))
            }
        };
        let Some((value, until, is_delete)) = found else { return Err(malformed(key)) };
        let current = &mut self.current;
        current.prefix.clear();
        current.prefix.extend_from_slice(prefix);
        (current.time, current.until, current.is_delete) = (time, until, is_delete);
        (current.trailer, current.value) = (trailer, stored.slice_of(value));
        Ok(())
    }
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
