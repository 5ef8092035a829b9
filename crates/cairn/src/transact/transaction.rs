//! [`Transaction`]: reads of a snapshot and writes of its own, until it commits.

use super::own_writes::{Own, OwnWrites, join};
use super::range::TransactionRange;
use super::versions::{Newest, OwnVersions, TransactionRangeAt, TransactionVersions};
use crate::api::{Database, Keyspace, Snapshot};
use crate::parts::{Operation, begin};
use crate::read::{Version, VersionQuery};
use crate::state::{Batch, KeyspaceInner, ReadAt, ReadSet, ReadState};
use crate::sync::Mutex;
use crate::types::{Bounds, Durability};
use crate::wal::Entry;
use base::limits::MAX_BATCH_LEN;
use base::planted::{Bug, planted};
use base::{EntryKind, Error, ErrorKind, Result, Seq, Slice, Time};
use std::ops::RangeBounds;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

/// Bytes of the log for a write, beside key and value.
const WRITE_OVERHEAD: usize = 32;

/// An optimistic, serializable transaction over any number of keyspaces. [`Database::transaction`] runs one, and again if another commit
/// interferes; [`Database::begin`] makes one that the caller commits.
///
/// All reads show the state at the beginning of the transaction, with its own writes. Nothing waits: there are no locks on keys. The commit is that of
/// a [`Batch`]: all of the writes take effect or none, also in a crash. It fails with `Conflict` if any key that the transaction has read, or any key in a
/// range that it has iterated over, was written meanwhile, by another transaction or by any other write. So committed transactions have the effect of
/// running one after the other, in the order of their commits. Keys that were only written are not compared.
///
/// A transaction that is dropped is rolled back, and so is one of a database that closes. It is no handle: it does not keep the database open.
///
/// **Cost.** A read costs what it costs in a [`Snapshot`], and some bytes to note its key. The commit looks up in the memtables what was read: about a
/// microsecond for each key and 3 ns for each entry of a range, and nothing if there was no other commit. If one comes in before the transaction has the
/// writer, it looks again, and other writers wait. Tables are read only if memtables were flushed since the first
/// read of their keyspace: for the keys that are in newer tables, as their filters say, and for ranges. A transaction may take as long as it likes;
/// meanwhile compactions keep the versions that it sees, and the memtables of its beginning stay in memory, as for a cursor that is not
/// moved ([`MemoryStats::pinned`](crate::MemoryStats)).
///
/// Source: H. T. Kung and J. T. Robinson, "On Optimistic Methods for Concurrency Control" (1981), serial validation.
///
/// ```
/// use cairn::{Database, ErrorKind, KeyspaceOptions};
///
/// # fn main() -> cairn::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// let db = Database::open(dir.path())?;
/// let accounts = db.keyspace("accounts", KeyspaceOptions::default())?;
/// accounts.put("alice", "10")?;
///
/// let mut tx = db.begin();
/// let alice = tx.get(&accounts, "alice")?;
/// tx.put(&accounts, "bob", alice.unwrap())?;
/// tx.delete(&accounts, "alice")?;
/// assert_eq!(tx.iter(&accounts).count(), 1);
/// accounts.put("alice", "20")?;
/// assert_eq!(tx.commit().unwrap_err().kind(), ErrorKind::Conflict);
/// assert_eq!(accounts.get("alice")?.unwrap(), "20");
/// # Ok(())
/// # }
/// ```
#[must_use = "a transaction that is dropped is rolled back"]
pub struct Transaction {
    snapshot: Snapshot,
    /// That of its own writes, for histories.
    time: Time,
    /// `None` in a read-only transaction.
    reads: Option<Mutex<ReadSet>>,
    writes: Vec<(Arc<KeyspaceInner>, OwnWrites)>,
    /// Bytes of all writes, those that were replaced included.
    bytes: usize,
    durability: Durability,
}

impl Database {
    /// Begins a transaction, which its caller commits. See [`Database::transaction`] for one that is repeated after conflicts.
    ///
    /// Costs what [`Database::snapshot`] costs.
    pub fn begin(&self) -> Transaction {
        Transaction::new(self, false)
    }

    /// Begins a transaction that only reads. It costs what a snapshot costs, notes nothing, and never conflicts: it has the effect of running as a
    /// whole at its beginning. Its writes are refused with `InvalidArgument`.
    pub fn begin_read_only(&self) -> Transaction {
        Transaction::new(self, true)
    }
}

impl Transaction {
    fn new(db: &Database, read_only: bool) -> Transaction {
        let snapshot = db.snapshot();
        let reads = (!read_only).then(|| Mutex::new(ReadSet::new(snapshot.seq())));
        // After the snapshot: so no version that it shows is later.
        let time = snapshot.0.db.time_after(snapshot.0.db.last_time());
        Transaction {
            snapshot,
            time,
            reads,
            writes: Vec::new(),
            bytes: 0,
            durability: db.options().durability,
        }
    }

    /// The sequence number of the newest commit that the transaction sees.
    pub fn seq(&self) -> Seq {
        self.snapshot.seq()
    }

    /// The snapshot that the transaction reads, without its own writes. What is read there does not count as read by the transaction, so it cannot
    /// conflict: for what may be out of date at the commit, such as a report or a guess that the transaction verifies by itself.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// The number of writes so far, without those that later ones have replaced.
    pub fn len(&self) -> usize {
        self.writes.iter().map(|(_, writes)| writes.len()).sum()
    }

    /// Whether nothing was written so far.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn own(&self, keyspace: &Keyspace) -> Option<&OwnWrites> {
        let own = self.writes.iter().find(|(written, _)| Arc::ptr_eq(written, &keyspace.inner));
        own.map(|(_, writes)| writes)
    }

    /// Checks that a keyspace is of this database, and notes that a key was read.
    fn note_key(&self, keyspace: &Keyspace, key: &[u8]) -> Result<()> {
        keyspace.inner.check_of(self.snapshot.0.db.identity)?;
        if let Some(reads) = &self.reads {
            reads.lock().of(&keyspace.inner).note_key(key);
        }
        Ok(())
    }

    /// A read of the snapshot, of which the transaction depends on what it sees not expiring.
    fn look<T>(
        &self,
        operation: Operation,
        keyspace: &Keyspace,
        read: impl FnOnce(&ReadState, &ReadAt) -> Result<T>,
    ) -> Result<T> {
        let at = self.snapshot.at();
        let _measured = self.snapshot.measure(operation);
        let found = self.snapshot.read(keyspace, |read_state| read(read_state, &at))?;
        self.note_soonest(&at);
        Ok(found)
    }

    /// Notes that the transaction depends on what was seen by a read not expiring.
    fn note_soonest(&self, at: &ReadAt) {
        if let Some(reads) = self.reads.as_ref().filter(|_| at.soonest().is_some()) {
            reads.lock().note_expiry(at.soonest());
        }
    }

    fn stored(&self, keyspace: &Keyspace, key: &[u8]) -> Result<Option<(Slice, Option<Time>)>> {
        self.look(Operation::Get, keyspace, |read_state, at| {
            let found = keyspace.inner.get_in(read_state, key, at)?;
            Ok(found.map(|value| (value, at.soonest())))
        })
    }

    /// The value of `key`. See [`Keyspace::get`].
    ///
    /// # Errors
    /// As for [`Snapshot::get`].
    pub fn get(&self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<Option<Slice>> {
        Ok(self.get_with_expiry(keyspace, key)?.map(|(value, _)| value))
    }

    /// The value of `key`, if it is known without waiting for the disk. See [`Keyspace::try_get`]. The transaction has then read the key, also if the answer is
    /// pending, as it has by [`Transaction::get`].
    ///
    /// # Errors
    /// As for [`Snapshot::get`].
    pub fn try_get(&self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<Poll<Option<Slice>>> {
        let key = key.as_ref();
        match self.own(keyspace).map_or(Own::None, |own| own.get(key, self.snapshot.0.now)) {
            Own::Value(own) => Ok(Poll::Ready(Some(own.value))),
            Own::Deleted => Ok(Poll::Ready(None)),
            // As in other reads of operands.
            Own::Operand(_) => self.note_key(keyspace, key).map(|()| Poll::Pending),
            Own::None => {
                self.note_key(keyspace, key)?;
                let begun = begin();
                let at = self.snapshot.at();
                let found = self.snapshot.read(keyspace, |read_state| {
                    keyspace.inner.try_get_in(read_state, key, &at, self.seq())
                })?;
                self.note_soonest(&at);
                // What is pending is measured by the get that follows.
                if found.is_ready() {
                    self.snapshot.0.db.counters.latency.end(Operation::Get, begun);
                }
                Ok(found)
            }
        }
    }

    /// The value of `key`, and the time from which on it is not seen, if it has one. See [`Keyspace::get_with_expiry`].
    ///
    /// # Errors
    /// As for [`Snapshot::get`].
    pub fn get_with_expiry(
        &self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
    ) -> Result<Option<(Slice, Option<Time>)>> {
        let key = key.as_ref();
        match self.own(keyspace).map_or(Own::None, |own| own.get(key, self.snapshot.0.now)) {
            Own::Value(own) => Ok(Some((own.value, own.expiry))),
            Own::Deleted => Ok(None),
            Own::Operand(operand) => {
                self.note_key(keyspace, key)?;
                // Where an entry may expire there are no operands.
                let stored = self.stored(keyspace, key)?.map(|(value, _)| value);
                join(&keyspace.inner, key, stored, operand).map(|value| Some((value, None)))
            }
            Own::None if planted(Bug::ForgetAbsentReads) => {
                let found = self.stored(keyspace, key)?;
                found.is_some().then(|| self.note_key(keyspace, key)).transpose()?;
                Ok(found)
            }
            Own::None => {
                self.note_key(keyspace, key)?;
                self.stored(keyspace, key)
            }
        }
    }

    /// Whether `key` has a value.
    ///
    /// # Errors
    /// As for [`Snapshot::contains`].
    pub fn contains(&self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<bool> {
        let key = key.as_ref();
        match self.own(keyspace).map_or(Own::None, |own| own.get(key, self.snapshot.0.now)) {
            Own::Value(_) | Own::Operand(_) => Ok(true),
            Own::Deleted => Ok(false),
            Own::None => {
                self.note_key(keyspace, key)?;
                self.look(Operation::Get, keyspace, |read_state, at| {
                    keyspace.inner.contains_in(read_state, key, at)
                })
            }
        }
    }

    /// The values of several keys, in their order. See [`Keyspace::multi_get`].
    ///
    /// # Errors
    /// As for [`Snapshot::multi_get`].
    pub fn multi_get<K: AsRef<[u8]>>(&self, keyspace: &Keyspace, keys: &[K]) -> Result<Vec<Option<Slice>>> {
        let mut values = vec![None; keys.len()];
        let mut left = Vec::new();
        for (place, key) in keys.iter().map(AsRef::as_ref).enumerate() {
            match self.own(keyspace).map_or(Own::None, |own| own.get(key, self.snapshot.0.now)) {
                Own::Value(own) => values[place] = Some(own.value),
                Own::Deleted => {}
                Own::Operand(_) => values[place] = self.get(keyspace, key)?,
                Own::None => {
                    self.note_key(keyspace, key)?;
                    left.push((place, key));
                }
            }
        }
        let stored: Vec<&[u8]> = left.iter().map(|(_, key)| *key).collect();
        let found = self.look(Operation::MultiGet, keyspace, |read_state, at| {
            keyspace.inner.multi_get_in(read_state, &stored, at)
        })?;
        left.into_iter().zip(found).for_each(|((place, _), value)| values[place] = value);
        Ok(values)
    }

    /// The entries whose keys lie in `bounds`, in order, from both ends. The transaction depends on the part that is iterated over: see
    /// [`TransactionRange`].
    ///
    /// While the iterator lives, the transaction cannot write: to change what it shows, collect first.
    pub fn range<K: AsRef<[u8]>>(
        &self,
        keyspace: &Keyspace,
        bounds: impl RangeBounds<K>,
    ) -> TransactionRange<'_> {
        self.bounded(keyspace, Bounds::new(&bounds))
    }

    /// The entries whose keys begin with `prefix`. See [`Transaction::range`].
    pub fn prefix(&self, keyspace: &Keyspace, prefix: impl AsRef<[u8]>) -> TransactionRange<'_> {
        self.bounded(keyspace, Bounds::prefix(prefix.as_ref()))
    }

    /// All entries. See [`Transaction::range`].
    pub fn iter(&self, keyspace: &Keyspace) -> TransactionRange<'_> {
        self.range::<&[u8]>(keyspace, ..)
    }

    fn bounded(&self, keyspace: &Keyspace, bounds: Bounds) -> TransactionRange<'_> {
        let stored = self.snapshot.bounded(keyspace, bounds.clone());
        // The iterator reports that a keyspace is of another database: its reads must not be taken for those of a keyspace with the same number.
        let is_own = keyspace.inner.database == self.snapshot.0.db.identity;
        let is_noted = is_own && keyspace.inner.check_order().is_ok() && !bounds.is_empty();
        let reads = self.reads.as_ref().filter(|_| is_noted);
        TransactionRange::new(
            stored,
            self.own(keyspace),
            reads,
            (&keyspace.inner, self.snapshot.0.now),
            bounds,
        )
    }

    /// Notes that versions of the keys in `bounds` are read: the newest ones, and the older ones, which are in another tree.
    fn note_versions(&self, keyspace: &Keyspace, bounds: &Bounds) -> Result<()> {
        keyspace.inner.check_of(self.snapshot.0.db.identity)?;
        let historical = keyspace.inner.check_history()?;
        if let Some(reads) = &self.reads {
            let mut reads = reads.lock();
            reads.of(&keyspace.inner).ranges.push(bounds.clone());
            reads.of(historical).ranges.push(bounds.of_versions());
        }
        Ok(())
    }

    /// The time that the writes of the transaction have in its histories: that of a commit at its beginning, and so later than that of every version
    /// that it sees. The commit gives the writes its own time, which is not before this one unless the clock was set back meanwhile.
    pub fn time(&self) -> Time {
        self.time
    }

    fn newest(&self, keyspace: &Keyspace) -> Option<Newest<'_>> {
        self.own(keyspace).map(|writes| Newest { writes, time: self.time, now: self.snapshot.0.now })
    }

    /// The versions of `key` with times in `times`, with the writes of the transaction as the newest ones: see [`Transaction::time`] and
    /// [`Keyspace::history`]. The transaction depends on all versions of the key.
    ///
    /// While the iterator lives, the transaction cannot write.
    ///
    /// # Errors
    /// As for [`Snapshot::history`].
    pub fn history(
        &self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
        times: impl RangeBounds<Time>,
    ) -> Result<TransactionVersions<'_>> {
        self.versions(keyspace, Bounds::of_key(key.as_ref()), &times)
    }

    /// The versions of the keys in `keys` with times in `times`. See [`Keyspace::changes`] and [`Transaction::history`]. The transaction depends on
    /// all versions of all these keys.
    ///
    /// # Errors
    /// As for [`Snapshot::history`].
    pub fn changes<K: AsRef<[u8]>>(
        &self,
        keyspace: &Keyspace,
        keys: impl RangeBounds<K>,
        times: impl RangeBounds<Time>,
    ) -> Result<TransactionVersions<'_>> {
        self.versions(keyspace, Bounds::new(&keys), &times)
    }

    fn versions(
        &self,
        keyspace: &Keyspace,
        bounds: Bounds,
        times: &impl RangeBounds<Time>,
    ) -> Result<TransactionVersions<'_>> {
        self.note_versions(keyspace, &bounds)?;
        let query = VersionQuery::window(bounds.clone(), times);
        let stored = self.snapshot.versions(keyspace, query)?;
        let own = self.newest(keyspace).map(|newest| {
            let is_shown = times.contains(&self.time);
            let shown = if is_shown { bounds } else { Bounds { from: Vec::new(), to: Some(Vec::new()) } };
            let deleted = newest.writes.deleted_in(&shown).into_iter();
            let deleted = deleted.map(|part| self.snapshot.bounded(keyspace, part).keys()).collect();
            OwnVersions::new(newest, newest.writes.range(&shown), deleted)
        });
        Ok(TransactionVersions::new(stored, own, self.reads.as_ref()))
    }

    /// The entries in `keys` as they were at `time`, with the writes of the transaction from [`Transaction::time`] on. See [`Keyspace::range_at`], and
    /// [`Transaction::changes`] for what the transaction depends on.
    ///
    /// # Errors
    /// As for [`Snapshot::history`].
    pub fn range_at<K: AsRef<[u8]>>(
        &self,
        keyspace: &Keyspace,
        time: Time,
        keys: impl RangeBounds<K>,
    ) -> Result<TransactionRangeAt<'_>> {
        let bounds = Bounds::new(&keys);
        self.note_versions(keyspace, &bounds)?;
        let stored = self.snapshot.range_at(keyspace, time, keys)?;
        let own = self.newest(keyspace).filter(|newest| newest.time <= time);
        let own = own.map(|newest| (newest, newest.writes.range(&bounds)));
        Ok(TransactionRangeAt::new(stored, own, time, self.reads.as_ref()))
    }

    /// The newest version of each key in `keys`, unless it is a delete. See [`Keyspace::recent`] and [`Transaction::range_at`].
    ///
    /// # Errors
    /// As for [`Snapshot::history`].
    pub fn recent<K: AsRef<[u8]>>(
        &self,
        keyspace: &Keyspace,
        keys: impl RangeBounds<K>,
    ) -> Result<TransactionRangeAt<'_>> {
        self.range_at(keyspace, Time::MAX, keys)
    }

    /// The version of `key` that was the newest at `time`. See [`Keyspace::get_at`], and [`Transaction::history`] for what the transaction depends
    /// on.
    ///
    /// # Errors
    /// As for [`Snapshot::get_at`].
    pub fn get_at(&self, keyspace: &Keyspace, key: impl AsRef<[u8]>, time: Time) -> Result<Option<Version>> {
        let (key, newest) = (key.as_ref(), self.newest(keyspace));
        keyspace.inner.check_history()?;
        if let Some(newest) = newest.filter(|newest| newest.time <= time && newest.writes.writes_to(key)) {
            let own = newest.writes.value_at(key, newest.expires_after(time));
            return Ok(own.map(|own| {
                let (key, value) = (Slice::copy_from(key), Some(own.value.clone()));
                Version::new(key, newest.time, own.expiry, value).expiring(own.expiry)
            }));
        }
        self.note_versions(keyspace, &Bounds::of_key(key))?;
        let found = self.snapshot.get_at(keyspace, key, time)?;
        if let Some(reads) = &self.reads {
            // Only the newest of all is another one once it has expired.
            let found = found.as_ref().filter(|version| time == Time::MAX && version.until == version.expiry);
            reads.lock().note_expiry(found.and_then(|version| version.expiry));
        }
        Ok(found.map(|version| match newest {
            Some(newest) => newest.ended(version),
            None => version,
        }))
    }

    /// [`Transaction::get_at`] for several keys, in their order.
    ///
    /// # Errors
    /// As for [`Transaction::get_at`]: the error of the first key that has one.
    pub fn multi_get_at<K: AsRef<[u8]>>(
        &self,
        keyspace: &Keyspace,
        keys: &[K],
        time: Time,
    ) -> Result<Vec<Option<Version>>> {
        keys.iter().map(|key| self.get_at(keyspace, key, time)).collect()
    }

    /// The writes to a keyspace, to which `bytes` are to be added.
    fn own_mut(&mut self, keyspace: &Keyspace, key: &[u8], value: &[u8]) -> Result<&mut OwnWrites> {
        if self.reads.is_none() {
            return Err(Error::invalid("the transaction is read-only: it cannot write"));
        }
        keyspace.inner.check_of(self.snapshot.0.db.identity)?;
        keyspace.inner.limits.check(key, value)?;
        let bytes = self.bytes.saturating_add(key.len() + value.len() + WRITE_OVERHEAD);
        if bytes > MAX_BATCH_LEN {
            let message = format!(
                "a transaction, or a batch with merges that read, may write {MAX_BATCH_LEN} bytes in all"
            );
            return Err(Error::invalid(message));
        }
        self.bytes = bytes;
        let place = self.writes.iter().position(|(written, _)| Arc::ptr_eq(written, &keyspace.inner));
        let place = place.unwrap_or_else(|| {
            self.writes.push((keyspace.inner.clone(), OwnWrites::default()));
            self.writes.len() - 1
        });
        Ok(&mut self.writes[place].1)
    }

    /// Sets `key` to `value`, when the transaction commits.
    ///
    /// # Errors
    /// `InvalidArgument` for a key or value over its limit, more than 1 GiB of writes, a keyspace of another database, and in a read-only
    /// transaction; `Closed`. The transaction can go on.
    pub fn put(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        let entry = Entry::put(key.as_ref(), value.as_ref()).until(keyspace.inner.default_expiry());
        self.put_own(keyspace, entry)
    }

    /// Sets `key` to `value` for the duration `ttl`, from this call on. See [`Keyspace::put_with_ttl`].
    ///
    /// # Errors
    /// As for [`Transaction::put`].
    pub fn put_with_ttl(
        &mut self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        ttl: Duration,
    ) -> Result<()> {
        let entry = Entry::put(key.as_ref(), value.as_ref()).until(Some(keyspace.inner.clock.after(ttl)));
        self.put_own(keyspace, entry)
    }

    /// Sets `key` to `value` until the time `expiry`. See [`Keyspace::put_until`].
    ///
    /// # Errors
    /// As for [`Transaction::put_with_ttl`].
    pub fn put_until(
        &mut self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        expiry: Time,
    ) -> Result<()> {
        self.put_own(keyspace, Entry::put(key.as_ref(), value.as_ref()).until(Some(expiry)))
    }

    fn put_own(&mut self, keyspace: &Keyspace, entry: Entry<'_>) -> Result<()> {
        let Entry { key, value, expiry, .. } = entry;
        keyspace.inner.check_kind(EntryKind::Put, value)?;
        keyspace.inner.check_expiry(expiry, value.len())?;
        self.own_mut(keyspace, key, value)?.write(key, Some((value, expiry)));
        Ok(())
    }

    /// Joins `operand` to the value of `key`, when the transaction commits. See [`Keyspace::merge`].
    ///
    /// It does not count as a read: transactions that merge into a key do not conflict with each other. Where a merge reads the value, in a keyspace
    /// with history, without order, or in which a value may expire, they do.
    ///
    /// # Errors
    /// As for [`Transaction::put`] and [`Keyspace::merge`]; those of [`Transaction::get`] where the merge reads the value.
    pub fn merge(
        &mut self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
        operand: impl AsRef<[u8]>,
    ) -> Result<()> {
        let (key, operand) = (key.as_ref(), operand.as_ref());
        let inner = &keyspace.inner;
        inner.check_kind(EntryKind::Merge, operand)?;
        let operator = inner.known_operator()?;
        if !inner.merges_at_once() {
            let now = self.snapshot.0.now;
            return self.own_mut(keyspace, key, operand)?.merge(key, operand, operator, now);
        }
        let (value, expiry) =
            match self.own(keyspace).map_or(Own::None, |own| own.get(key, self.snapshot.0.now)) {
                Own::Value(own) => (Some(own.value), own.expiry),
                Own::Deleted => (None, None),
                own => {
                    self.note_key(keyspace, key)?;
                    let at = self.snapshot.at();
                    let found =
                        self.snapshot.read(keyspace, |read_state| inner.get_in(read_state, key, &at))?;
                    if let Some(reads) = &self.reads {
                        reads.lock().note_expiry(at.soonest());
                    }
                    match own {
                        // Of before the first value that may expire.
                        Own::Operand(operand) => (Some(join(inner, key, found, operand)?), at.soonest()),
                        _ => (found, at.soonest()),
                    }
                }
            };
        let (value, expiry) = match value {
            None => (operand.to_vec(), inner.default_expiry()),
            Some(value) => (base::join(operator, key, &value, operand)?, expiry),
        };
        self.put_own(keyspace, Entry::put(key, &value).until(expiry))
    }

    /// Writes what an entry of a batch says.
    pub(super) fn write_entry(&mut self, keyspace: &Keyspace, entry: &Entry<'_>) -> Result<()> {
        let Entry { kind, key, value, expiry, .. } = *entry;
        match kind {
            EntryKind::Delete => self.delete(keyspace, key),
            EntryKind::DeleteRange => {
                let to = (!value.is_empty()).then(|| value.to_vec());
                self.delete_bounds(keyspace, &Bounds { from: key.to_vec(), to })
            }
            EntryKind::Merge => self.merge(keyspace, key, value),
            EntryKind::Put | EntryKind::ExpiringPut => {
                self.put_own(keyspace, Entry::put(key, value).until(expiry))
            }
            EntryKind::Reference | EntryKind::ExpiringReference => {
                unreachable!("entries of batches have their values")
            }
        }
    }

    /// Deletes `key`, when the transaction commits.
    ///
    /// # Errors
    /// As for [`Transaction::put`].
    pub fn delete(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<()> {
        let key = key.as_ref();
        self.own_mut(keyspace, key, &[])?.write(key, None);
        Ok(())
    }

    /// Deletes all keys in `bounds`, those that the transaction has put included. See [`Keyspace::delete_range`].
    ///
    /// # Errors
    /// As for [`Transaction::put`] and [`Keyspace::delete_range`].
    pub fn delete_range<K: AsRef<[u8]>>(
        &mut self,
        keyspace: &Keyspace,
        bounds: impl RangeBounds<K>,
    ) -> Result<()> {
        let bounds = Bounds::of_deleted(&bounds, keyspace.inner.limits)?;
        // An empty range is refused where others are.
        self.delete_bounds(keyspace, &bounds.unwrap_or(Bounds { from: Vec::new(), to: Some(Vec::new()) }))
    }

    /// Deletes all keys that begin with `prefix`. See [`Transaction::delete_range`].
    ///
    /// # Errors
    /// As for [`Transaction::delete_range`].
    pub fn delete_prefix(&mut self, keyspace: &Keyspace, prefix: impl AsRef<[u8]>) -> Result<()> {
        let prefix = prefix.as_ref();
        keyspace.inner.limits.check(prefix, &[])?;
        self.delete_bounds(keyspace, &Bounds::prefix(prefix))
    }

    fn delete_bounds(&mut self, keyspace: &Keyspace, bounds: &Bounds) -> Result<()> {
        keyspace.inner.check_order()?;
        let to = bounds.to.as_deref().unwrap_or_default();
        let own = self.own_mut(keyspace, &bounds.from, to)?;
        if !bounds.is_empty() {
            own.delete_range(bounds);
        }
        Ok(())
    }

    /// Commits the transaction, with the default durability.
    ///
    /// # Errors
    /// `Conflict` when another commit has changed what was read; otherwise as for [`Database::write`]. After an error nothing was written.
    pub fn commit(self) -> Result<()> {
        let durability = self.durability;
        self.commit_with(durability)
    }

    /// [`Transaction::commit`] with the given durability.
    ///
    /// # Errors
    /// As for [`Transaction::commit`].
    pub fn commit_with(self, durability: Durability) -> Result<()> {
        let (snapshot, commit) = self.into_commit();
        match commit {
            None => snapshot.0.db.status.check_not_closed(),
            Some((batch, reads)) => snapshot.0.db.write_batch(batch, Some(reads), durability),
        }
        // The snapshot is held until here.
    }

    /// What a commit writes, and what it depends on, if it writes anything; with the snapshot, which has to be held until it is compared.
    pub(super) fn into_commit(self) -> (Snapshot, Option<(Batch, Box<ReadSet>)>) {
        let is_empty = self.is_empty();
        let Transaction { snapshot, reads, writes, .. } = self;
        let Some(reads) = reads.filter(|_| !is_empty) else { return (snapshot, None) };
        let mut batch = Batch::default();
        writes.iter().for_each(|(keyspace, writes)| writes.push_to(keyspace, &mut batch));
        let mut reads = reads.into_inner();
        reads.join_ranges();
        (snapshot, Some((batch, Box::new(reads))))
    }

    /// Ends the transaction without writing anything, as dropping it does.
    pub fn rollback(self) {}
}

impl std::fmt::Debug for Transaction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Transaction").field("seq", &self.seq()).field("written", &self.bytes).finish()
    }
}

/// The kind of the error of a transaction that may be run again.
pub(super) fn is_conflict(error: &Error) -> bool {
    error.kind() == ErrorKind::Conflict
}
