//! Snapshots: consistent read-only states of the whole database. The list of those that exist is in `parts/snapshots.rs`.

use super::keyspace::Keyspace;
use crate::parts::{Measured, Operation, begin};
use crate::read::{
    AsOf, Cursor, Entries, HeldSeq, Range, RangeAt, ReadView, Version, VersionQuery, Versions,
};
use crate::state::{DbInner, KeptStates, ReadAt, ReadState, Reader};
use crate::types::Bounds;
use base::{Error, Result, Seq, Slice, Time};
use std::ops::RangeBounds;
use std::sync::Arc;
use std::task::Poll;

/// Holds a sequence number until it is dropped.
pub(crate) struct SnapshotHold {
    pub db: Arc<DbInner>,
    pub seq: Seq,
    /// What had expired by this time is not seen.
    pub now: Time,
    /// The read states that it keeps, by keyspace: see `state/filter_jobs.rs`.
    kept: Vec<(u64, KeptStates)>,
}

impl SnapshotHold {
    pub(crate) fn new(db: Arc<DbInner>) -> Arc<SnapshotHold> {
        loop {
            let now = db.clock.now();
            let seq = db.snapshots.take(&db.visible, Some(db.env.monotonic()));
            let mut hold = SnapshotHold { db: db.clone(), seq, now, kept: Vec::new() };
            if !db.clock.has_passed(now) {
                hold.kept = db.filter_jobs.states_to_keep();
                return Arc::new(hold);
            }
        }
    }
}

impl Drop for SnapshotHold {
    fn drop(&mut self) {
        self.db.snapshots.release(self.seq);
    }
}

/// A consistent, read-only state of all keyspaces. Taking a snapshot costs no I/O; while it lives, compaction keeps the versions that it
/// shows.
///
/// ```
/// # fn main() -> cairn::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = cairn::Database::open(dir.path())?;
/// # let users = db.keyspace("users", cairn::KeyspaceOptions::default())?;
/// users.put("alice", "1")?;
/// let snapshot = db.snapshot();
/// users.put("alice", "2")?;
/// assert_eq!(snapshot.get(&users, "alice")?.unwrap(), "1");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Snapshot(pub(crate) Arc<SnapshotHold>);

impl Snapshot {
    /// The sequence number of the newest commit that the snapshot shows.
    pub fn seq(&self) -> Seq {
        self.0.seq
    }

    /// The value that `key` had. See [`Keyspace::get`].
    ///
    /// # Errors
    /// As for [`Keyspace::get`]; `InvalidArgument` when the keyspace is of another database.
    pub fn get(&self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<Option<Slice>> {
        let _measured = self.measure(Operation::Get);
        self.read(keyspace, |read_state| keyspace.inner.get_in(read_state, key.as_ref(), &self.at()))
    }

    /// The value that `key` had, and the time from which on it is not seen, if it has one. See [`Keyspace::get_with_expiry`].
    ///
    /// # Errors
    /// As for [`Snapshot::get`].
    pub fn get_with_expiry(
        &self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
    ) -> Result<Option<(Slice, Option<Time>)>> {
        let (at, _measured) = (self.at(), self.measure(Operation::Get));
        let get = |read_state: &ReadState| keyspace.inner.get_in(read_state, key.as_ref(), &at);
        Ok(self.read(keyspace, get)?.map(|value| (value, at.soonest())))
    }

    /// The value that `key` had, if it is known without waiting for the disk. See [`Keyspace::try_get`].
    ///
    /// # Errors
    /// As for [`Snapshot::get`].
    pub fn try_get(&self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<Poll<Option<Slice>>> {
        let begun = begin();
        let get = |read_state: &ReadState| {
            keyspace.inner.try_get_in(read_state, key.as_ref(), &self.at(), self.0.seq)
        };
        let found = self.read(keyspace, get)?;
        // What is pending is measured by the get that follows.
        if found.is_ready() {
            self.0.db.counters.latency.end(Operation::Get, begun);
        }
        Ok(found)
    }

    /// Whether `key` had a value.
    ///
    /// # Errors
    /// As for [`Snapshot::get`].
    pub fn contains(&self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<bool> {
        let _measured = self.measure(Operation::Get);
        self.read(keyspace, |read_state| keyspace.inner.contains_in(read_state, key.as_ref(), &self.at()))
    }

    /// The values that several keys had. See [`Keyspace::multi_get`].
    ///
    /// # Errors
    /// As for [`Keyspace::multi_get`]; `InvalidArgument` when the keyspace is of another database.
    pub fn multi_get<K: AsRef<[u8]>>(&self, keyspace: &Keyspace, keys: &[K]) -> Result<Vec<Option<Slice>>> {
        let _measured = self.measure(Operation::MultiGet);
        self.read(keyspace, |read_state| keyspace.inner.multi_get_in(read_state, keys, &self.at()))
    }

    /// See [`Keyspace::range`].
    pub fn range<K: AsRef<[u8]>>(&self, keyspace: &Keyspace, bounds: impl RangeBounds<K>) -> Range {
        self.bounded(keyspace, Bounds::new(&bounds))
    }

    /// See [`Keyspace::prefix`].
    pub fn prefix(&self, keyspace: &Keyspace, prefix: impl AsRef<[u8]>) -> Range {
        self.bounded(keyspace, Bounds::prefix(prefix.as_ref()))
    }

    /// See [`Keyspace::iter`].
    pub fn iter(&self, keyspace: &Keyspace) -> Range {
        self.range::<&[u8]>(keyspace, ..)
    }

    /// See [`Keyspace::cursor`].
    pub fn cursor(&self, keyspace: &Keyspace) -> Cursor {
        Cursor::new(self.read_view(keyspace), Bounds::new::<&[u8], _>(&..), true)
    }

    /// See [`Keyspace::history`].
    ///
    /// # Errors
    /// As for [`Keyspace::history`]; `InvalidArgument` when the keyspace is of another database.
    pub fn history(
        &self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
        times: impl RangeBounds<Time>,
    ) -> Result<Versions> {
        self.versions(keyspace, VersionQuery::window(Bounds::of_key(key.as_ref()), &times))
    }

    /// See [`Keyspace::changes`].
    ///
    /// # Errors
    /// As for [`Snapshot::history`].
    pub fn changes<K: AsRef<[u8]>>(
        &self,
        keyspace: &Keyspace,
        keys: impl RangeBounds<K>,
        times: impl RangeBounds<Time>,
    ) -> Result<Versions> {
        self.versions(keyspace, VersionQuery::window(Bounds::new(&keys), &times))
    }

    /// See [`Keyspace::range_at`].
    ///
    /// # Errors
    /// As for [`Snapshot::history`].
    pub fn range_at<K: AsRef<[u8]>>(
        &self,
        keyspace: &Keyspace,
        time: Time,
        keys: impl RangeBounds<K>,
    ) -> Result<RangeAt> {
        self.versions(keyspace, Some(VersionQuery::as_of(Bounds::new(&keys), time))).map(RangeAt::new)
    }

    /// See [`Keyspace::recent`].
    ///
    /// # Errors
    /// As for [`Snapshot::history`].
    pub fn recent<K: AsRef<[u8]>>(&self, keyspace: &Keyspace, keys: impl RangeBounds<K>) -> Result<RangeAt> {
        self.range_at(keyspace, Time::MAX, keys)
    }

    /// See [`Keyspace::get_at`].
    ///
    /// # Errors
    /// As for [`Keyspace::get_at`]; `InvalidArgument` when the keyspace is of another database.
    pub fn get_at(&self, keyspace: &Keyspace, key: impl AsRef<[u8]>, time: Time) -> Result<Option<Version>> {
        self.as_of(keyspace, time)?.get(key.as_ref())
    }

    /// See [`Keyspace::multi_get_at`].
    ///
    /// # Errors
    /// As for [`Snapshot::get_at`].
    pub fn multi_get_at<K: AsRef<[u8]>>(
        &self,
        keyspace: &Keyspace,
        keys: &[K],
        time: Time,
    ) -> Result<Vec<Option<Version>>> {
        let state = self.as_of(keyspace, time)?;
        keys.iter().map(|key| state.get(key.as_ref())).collect()
    }

    /// See [`Keyspace::entries`].
    pub fn entries(&self, keyspace: &Keyspace) -> Entries {
        match &keyspace.inner.hash_log {
            None => Entries::ordered(self.iter(keyspace)),
            Some(log) => {
                let (held, db) = self.held(keyspace);
                Entries::hashed(held, db, log)
            }
        }
    }

    /// The state that its reads see.
    pub(crate) fn at(&self) -> ReadAt {
        ReadAt::new(self.0.seq, self.0.now)
    }

    /// The error to report when a read has failed: the files of a keyspace that was dropped meanwhile may be gone.
    pub(crate) fn read_error(&self, keyspace: &Keyspace, error: Error) -> Error {
        let error = self.0.db.status.read_error(error);
        keyspace.inner.check_open().err().unwrap_or(error)
    }

    /// The read states of a keyspace that it keeps.
    fn kept(&self, keyspace: &Keyspace) -> Option<&KeptStates> {
        self.0.kept.iter().find(|(id, _)| *id == keyspace.inner.id).map(|(_, states)| states)
    }

    /// Measures a read until what is returned is dropped.
    #[inline]
    pub(crate) fn measure(&self, operation: Operation) -> Measured<'_> {
        self.0.db.counters.latency.measure(operation)
    }

    /// Reads in the newest read state, or that which it keeps.
    pub(crate) fn read<T>(
        &self,
        keyspace: &Keyspace,
        read: impl FnOnce(&ReadState) -> Result<T>,
    ) -> Result<T> {
        let newest = keyspace.inner.read_state.load();
        keyspace.inner.check_of(self.0.db.identity)?;
        let read_state = self.kept(keyspace).map_or(&**newest, |kept| &kept.read_state);
        read(read_state).map_err(|e| self.read_error(keyspace, e))
    }

    fn held(&self, keyspace: &Keyspace) -> (HeldSeq, Reader) {
        // A keyspace of another database may have the same number.
        let is_own = keyspace.inner.database == self.0.db.identity;
        let kept = self.kept(keyspace).filter(|_| is_own).cloned();
        (HeldSeq::of_snapshot(&keyspace.inner, (self.0.seq, self.0.now), kept), Reader::new(&self.0.db))
    }

    pub(crate) fn versions(&self, keyspace: &Keyspace, query: Option<VersionQuery>) -> Result<Versions> {
        let (held, db) = self.held(keyspace);
        Versions::new(held, db, query)
    }

    fn as_of(&self, keyspace: &Keyspace, time: Time) -> Result<AsOf> {
        let (held, db) = self.held(keyspace);
        AsOf::new(held, db, time)
    }

    pub(crate) fn bounded(&self, keyspace: &Keyspace, bounds: Bounds) -> Range {
        Range::new(self.read_view(keyspace), bounds)
    }

    fn read_view(&self, keyspace: &Keyspace) -> ReadView {
        let (held, db) = self.held(keyspace);
        ReadView::new(db, held)
    }
}

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Snapshot({})", self.0.seq)
    }
}
