//! Versions as a transaction sees them: those of its snapshot, and its own writes as the newest ones, at the time of the transaction.

use super::own_writes::{OwnEntry, OwnValue, OwnWrites};
use super::range::{Ends, order_of};
use crate::read::{EntryAt, Keys, RangeAt, Version, Versions};
use crate::state::ReadSet;
use crate::sync::Mutex;
use base::{Result, Slice, Time};
use std::collections::btree_map;
use std::iter::Flatten;
use std::vec::IntoIter;

/// A double-ended iterator over versions, as a transaction sees them: by key, and of each key the latest first; `.rev()` reverses the order. The
/// writes of the transaction have the time [`Transaction::time`](super::Transaction::time). An error is yielded once; then the iterator ends.
///
/// While it lives, the transaction cannot write.
pub struct TransactionVersions<'a> {
    stored: Ends<Versions>,
    own: Option<OwnVersions<'a>>,
    reads: Option<&'a Mutex<ReadSet>>,
    done: bool,
}

/// The versions that a transaction has written.
pub(super) struct OwnVersions<'a> {
    newest: Newest<'a>,
    /// Those that are shown.
    shown: Ends<Shown<'a>>,
}

/// What the writes of a transaction do to the versions of its snapshot.
#[derive(Clone, Copy)]
pub(super) struct Newest<'a> {
    pub writes: &'a OwnWrites,
    /// The time of the transaction, which is later than that of every version it sees.
    pub time: Time,
    /// The time of its reads, for expiries.
    pub now: Time,
}

impl Newest<'_> {
    /// A version with the end that the writes of the transaction give it. A range delete ends values only: below it a delete stays the newest version.
    pub(super) fn ended(self, mut version: Version) -> Version {
        let ends = || match version.value {
            Some(_) => self.writes.writes_to(&version.key),
            None => self.writes.names(&version.key),
        };
        // What had not expired for the transaction is ended by its range deletes.
        let is_open = |until| until > self.time || version.expiry == Some(until) && until > self.now;
        if version.until.is_none_or(is_open) && ends() {
            version.until = Some(self.time);
        }
        version
    }

    /// When a value must not have expired to be seen as of `time`.
    pub(super) fn expires_after(&self, time: Time) -> Time {
        if time == Time::MAX { self.now } else { time }
    }
}

/// Notes when what was read may change by itself.
fn note_expiry(reads: &Mutex<ReadSet>, soonest: Option<Time>) {
    if soonest.is_some() {
        reads.lock().note_expiry(soonest);
    }
}

/// The own versions that a query shows: keys with their values, `None` for a delete.
struct Shown<'a> {
    entries: Ends<btree_map::Range<'a, Slice, OwnEntry>>,
    /// Keys with a value in the ranges that the transaction has deleted.
    deleted: Ends<Flatten<IntoIter<Keys>>>,
    /// The time of the transaction.
    time: Time,
    /// That of its reads, for expiries.
    now: Time,
}

impl<'a> OwnVersions<'a> {
    /// The keys in `entries` and in `deleted`, which have values in ranges that the transaction has deleted, ascending.
    pub(super) fn new(
        newest: Newest<'a>,
        entries: btree_map::Range<'a, Slice, OwnEntry>,
        deleted: Vec<Keys>,
    ) -> OwnVersions<'a> {
        let (entries, deleted) = (Ends::new(entries), Ends::new(deleted.into_iter().flatten()));
        OwnVersions {
            newest,
            shown: Ends::new(Shown { entries, deleted, time: newest.time, now: newest.now }),
        }
    }
}

impl Shown<'_> {
    fn step<const BACK: bool>(&mut self) -> Option<Result<(Slice, Option<OwnValue>)>> {
        loop {
            let deleted = match self.deleted.peek::<BACK>() {
                Some(Err(_)) => return self.deleted.take::<BACK>().map(|key| key.map(|key| (key, None))),
                Some(Ok(key)) => Some(key),
                None => None,
            };
            let written = self.entries.peek::<BACK>().map(|(key, _)| *key);
            let order = order_of::<BACK>(deleted, written)?;
            if order.is_le() {
                let deleted = self.deleted.take::<BACK>();
                // What was written after the range delete is shown.
                if order.is_lt() {
                    return deleted.map(|key| key.map(|key| (key, None)));
                }
                continue;
            }
            let (key, entry) = self.entries.take::<BACK>()?;
            // A put that had expired before is a delete, once that time has come.
            return Some(Ok((key.clone(), entry.value_at(self.time.min(self.now)).cloned())));
        }
    }
}

impl Iterator for Shown<'_> {
    type Item = Result<(Slice, Option<OwnValue>)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.step::<false>()
    }
}

impl DoubleEndedIterator for Shown<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.step::<true>()
    }
}

impl<'a> TransactionVersions<'a> {
    pub(super) fn new(
        stored: Versions,
        own: Option<OwnVersions<'a>>,
        reads: Option<&'a Mutex<ReadSet>>,
    ) -> TransactionVersions<'a> {
        TransactionVersions { stored: Ends::new(stored), own, reads, done: false }
    }

    fn step<const BACK: bool>(&mut self) -> Option<Result<Version>> {
        let Some(own) = &mut self.own else { return self.stored.take::<BACK>() };
        let of_stored = match self.stored.peek::<BACK>() {
            Some(Err(_)) => return self.stored.take::<BACK>(),
            stored => stored.and_then(|version| version.as_ref().ok()).map(|version| &version.key),
        };
        let of_own = match own.shown.peek::<BACK>() {
            Some(Err(_)) => {
                let failed = own.shown.take::<BACK>().and_then(Result::err);
                return failed.map(Err);
            }
            shown => shown.and_then(|shown| shown.as_ref().ok()).map(|(key, _)| key),
        };
        let order = order_of::<BACK>(of_stored, of_own)?;
        // Of one key the own version is the latest: the first one forward, and the last one backward.
        if order.is_lt() || (BACK && order.is_eq()) {
            let stored = self.stored.take::<BACK>()?;
            return Some(stored.map(|version| own.newest.ended(version)));
        }
        let shown = own.shown.take::<BACK>()?;
        Some(shown.map(|(key, own_value)| {
            let until = own_value.as_ref().and_then(|own| own.expiry);
            Version::new(key, own.newest.time, until, own_value.map(|own| own.value)).expiring(until)
        }))
    }

    fn advance<const BACK: bool>(&mut self) -> Option<Result<Version>> {
        if self.done {
            return None;
        }
        let step = self.step::<BACK>();
        self.done = !matches!(step, Some(Ok(_)));
        if let Some(reads) = self.reads {
            note_expiry(reads, self.stored.iter().soonest_expiry());
        }
        step
    }
}

impl Iterator for TransactionVersions<'_> {
    type Item = Result<Version>;

    fn next(&mut self) -> Option<Self::Item> {
        self.advance::<false>()
    }
}

impl DoubleEndedIterator for TransactionVersions<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.advance::<true>()
    }
}

impl std::iter::FusedIterator for TransactionVersions<'_> {}

/// A double-ended iterator over the entries of a keyspace with history as of a time, as a transaction sees them, by key; `.rev()` reverses the order.
/// An error is yielded once; then the iterator ends.
///
/// While it lives, the transaction cannot write.
pub struct TransactionRangeAt<'a> {
    stored: Ends<RangeAt>,
    /// The writes of the transaction, if they are not later than the time asked for.
    own: Option<(Newest<'a>, Ends<btree_map::Range<'a, Slice, OwnEntry>>)>,
    as_of: Time,
    reads: Option<&'a Mutex<ReadSet>>,
    done: bool,
}

impl<'a> TransactionRangeAt<'a> {
    pub(super) fn new(
        stored: RangeAt,
        own: Option<(Newest<'a>, btree_map::Range<'a, Slice, OwnEntry>)>,
        as_of: Time,
        reads: Option<&'a Mutex<ReadSet>>,
    ) -> TransactionRangeAt<'a> {
        let own = own.map(|(newest, entries)| (newest, Ends::new(entries)));
        TransactionRangeAt { stored: Ends::new(stored), own, as_of, reads, done: false }
    }

    fn step<const BACK: bool>(&mut self) -> Option<Result<EntryAt>> {
        let Some((newest, entries)) = &mut self.own else { return self.stored.take::<BACK>() };
        loop {
            let of_stored = match self.stored.peek::<BACK>() {
                Some(Err(_)) => return self.stored.take::<BACK>(),
                stored => stored.and_then(|entry| entry.as_ref().ok()).map(|entry| &entry.key),
            };
            let order = order_of::<BACK>(of_stored, entries.peek::<BACK>().map(|(key, _)| *key))?;
            if order.is_le() {
                match self.stored.take::<BACK>() {
                    Some(Ok(entry)) if order.is_eq() || newest.writes.deletes(&entry.key) => {}
                    entry => return entry,
                }
            }
            if order.is_ge()
                && let (key, entry) = entries.take::<BACK>()?
                && let Some(own) = entry.value_at(newest.expires_after(self.as_of))
            {
                return Some(Ok(EntryAt::new(key.clone(), newest.time, own.value.clone())));
            }
        }
    }

    fn advance<const BACK: bool>(&mut self) -> Option<Result<EntryAt>> {
        if self.done {
            return None;
        }
        let step = self.step::<BACK>();
        self.done = !matches!(step, Some(Ok(_)));
        if let Some(reads) = self.reads {
            note_expiry(reads, self.stored.iter().soonest_expiry());
        }
        step
    }
}

impl Iterator for TransactionRangeAt<'_> {
    type Item = Result<EntryAt>;

    fn next(&mut self) -> Option<Self::Item> {
        self.advance::<false>()
    }
}

impl DoubleEndedIterator for TransactionRangeAt<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.advance::<true>()
    }
}

impl std::iter::FusedIterator for TransactionRangeAt<'_> {}

crate::types::debug_of! {
    ['a] TransactionVersions<'a>, "TransactionVersions";
    ['a] TransactionRangeAt<'a>, "TransactionRangeAt";
}
