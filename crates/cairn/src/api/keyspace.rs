//! [`Keyspace`], the public handle of a keyspace. It delegates to the rooms `write`, `read` and `background`.

use super::close::Handle;
use super::collect_stats::keyspace_stats;
use crate::parts::{Operation, begin};
use crate::read::{
    AsOf, Cursor, Entries, HeldSeq, Range, RangeAt, ReadView, Version, VersionQuery, Versions,
};
use crate::state::{Batch, DbInner, KeyspaceInner, ReadAt, Reader};
use crate::types::{Bounds, Durability, GuardInfo, KeyspaceOptions, KeyspaceStats, TableInfo};
use crate::wal::Entry;
use base::{Result, Seq, Slice, Time};
use std::ops::RangeBounds;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

/// A named map of bytes to bytes, ordered unless it is a hash log ([`Engine::HashLog`](crate::Engine)). The handle is cheap: clone it and share it between threads.
///
/// Keys are ordered bytewise and have up to 64 KiB; values have up to 256 MiB. Reads wait for no writer, and see every write acknowledged
/// before they began; a read of several keys (an iterator, [`Keyspace::multi_get`]) sees one consistent state.
///
/// ```
/// # fn main() -> cairn::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// let db = cairn::Database::open(dir.path())?;
/// let users = db.keyspace("users", cairn::KeyspaceOptions::default())?;
/// users.put("alice", "1")?;
/// assert_eq!(users.get("alice")?.unwrap(), "1");
/// for entry in users.range("a".."m").rev() {
///     let (key, value) = entry?;
///     println!("{key:?} = {value:?}");
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Keyspace {
    pub(crate) inner: Arc<KeyspaceInner>,
    pub(crate) handle: Arc<Handle>,
}

impl Keyspace {
    pub(crate) fn database(&self) -> &Arc<DbInner> {
        &self.handle.db
    }

    /// The error to report when a read has failed: the files of a keyspace that was dropped meanwhile may be gone.
    pub(crate) fn read_error(&self, error: base::Error) -> base::Error {
        let error = self.database().status.read_error(error);
        self.inner.check_open().err().unwrap_or(error)
    }

    fn read_view(&self) -> ReadView {
        let (held, db) = self.held();
        ReadView::new(db, held)
    }

    /// The name of the keyspace, which [`Database::rename_keyspace`](crate::Database::rename_keyspace) changes.
    pub fn name(&self) -> String {
        self.inner.name()
    }

    /// The options of the keyspace, which [`Keyspace::alter`] changes.
    pub fn options(&self) -> KeyspaceOptions {
        self.inner.options()
    }

    /// Changes options of the keyspace. `change` gets the present ones, and returns those that it is to have; when another thread changes them at the
    /// same time, it is called again. So it must not alter the keyspace itself. Costs one small synced write, independent of the size of the keyspace;
    /// what becomes due by it runs in the background, or, without background threads, in this call.
    ///
    /// Options of puts (`placement`, `large_up_to`, `ttl`) hold for puts that begin after the call, `memtable_bytes` for the next memtable, and those of
    /// compactions (such as `max_tables_per_guard`) for those that begin later, which bring the tree into the other shape as far as they go. The
    /// sizes of guards follow `memtable_bytes`: a large change of it makes compactions of much of the last level due. Options
    /// of tables (such as `compression`) hold for flushes, compactions and bulk loads that begin after the call; [`Keyspace::rewrite`] writes the other
    /// tables again. `history` changes between retentions: what the new one does not keep goes with compactions, what the old one did not keep does not
    /// come back, and readers from before the call keep what they had. `engine`, `levels`, `merge`, and `history` from or to `none`, cannot be
    /// changed. `docs/options.md` says it of each option.
    ///
    /// ```
    /// use cairn::{Compression, Database, KeyspaceOptions};
    ///
    /// # fn main() -> cairn::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// let db = Database::open(dir.path().join("db"))?;
    /// let events = db.keyspace("events", KeyspaceOptions::default())?;
    /// events.alter(|options| options.compression(Compression::None).space_target(1.2))?;
    /// assert_eq!(events.options().compression, Compression::None);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` when an option is out of its range, does not fit together with another or to this build, or cannot be changed; `NoSpace`, `Io`: nothing was
    /// changed; `Locked` in a forked child; `ReadOnly` after a sync failed; `Closed`.
    pub fn alter(&self, mut change: impl FnMut(KeyspaceOptions) -> KeyspaceOptions) -> Result<()> {
        let db = self.database();
        loop {
            let before = self.inner.settings.load_full();
            let options = change(before.options.clone());
            // Compactions that become due run here without background threads, and closing waits for them. Not for `change`, which may close the database.
            let _call = db.begin_call()?;
            if db.alter_keyspace(&self.inner, &before, options)? {
                db.update_slowdown(&db.state.lock());
                db.run_pending();
                return Ok(());
            }
        }
    }

    /// Sets `key` to `value`, with the default durability. To write several keys at once, see
    /// [`Database::batch`](crate::Database::batch).
    ///
    /// # Errors
    /// `InvalidArgument` for a key or value over its limit, and for a value that the merge operator of the keyspace does not take; `NoSpace` when the disk is full (nothing was written, try again later);
    /// `NoMemory` when the index of a hash log has no room, and collections would make none; `ReadOnly` after a sync failed; `Closed`.
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.put_with(key, value, self.database().options.durability)
    }

    /// [`Keyspace::put`] with the given durability.
    ///
    /// # Errors
    /// As for [`Keyspace::put`].
    pub fn put_with(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        durability: Durability,
    ) -> Result<()> {
        let entry = Entry::put(key.as_ref(), value.as_ref()).until(self.inner.default_expiry());
        self.database().write_one(&self.inner, entry, durability)
    }

    /// Sets `key` to `value` for the duration `ttl`, its *time to live*. After that the entry counts as deleted: it is invisible at once to all
    /// reads that begin then, and a compaction drops it. A snapshot or an iterator shows what had not expired when it began.
    ///
    /// Time is that of the wall clock, in whole milliseconds, and does not go back while the database is open. A later write of the key, with
    /// a time to live or without one, replaces the entry and its expiry. Without this, the option `ttl` of the keyspace holds.
    ///
    /// Costs what [`Keyspace::put`] costs, and eight bytes. The first one in a keyspace makes all its reads read the clock, which takes about
    /// 40 ns.
    ///
    /// ```
    /// # fn main() -> cairn::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = cairn::Database::open(dir.path())?;
    /// # let sessions = db.keyspace("sessions", cairn::KeyspaceOptions::default())?;
    /// use std::time::Duration;
    /// sessions.put_with_ttl("alice", "token", Duration::from_secs(3600))?;
    /// let (token, expiry) = sessions.get_with_expiry("alice")?.unwrap();
    /// assert!(token == "token" && expiry.is_some());
    /// sessions.put_with_ttl("bob", "token", Duration::from_millis(1))?;
    /// std::thread::sleep(Duration::from_millis(3));
    /// assert_eq!(sessions.get("bob")?, None);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As for [`Keyspace::put`].
    pub fn put_with_ttl(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>, ttl: Duration) -> Result<()> {
        self.put_with_ttl_with(key, value, ttl, self.database().options.durability)
    }

    /// [`Keyspace::put_with_ttl`] with the given durability.
    ///
    /// # Errors
    /// As for [`Keyspace::put_with_ttl`].
    pub fn put_with_ttl_with(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        ttl: Duration,
        durability: Durability,
    ) -> Result<()> {
        let entry = Entry::put(key.as_ref(), value.as_ref()).until(Some(self.inner.clock.after(ttl)));
        self.database().write_one(&self.inner, entry, durability)
    }

    /// Sets `key` to `value` until the time `expiry`; [`Time::MAX`] is for ever. See [`Keyspace::put_with_ttl`].
    ///
    /// # Errors
    /// As for [`Keyspace::put_with_ttl`].
    pub fn put_until(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>, expiry: Time) -> Result<()> {
        self.put_until_with(key, value, expiry, self.database().options.durability)
    }

    /// [`Keyspace::put_until`] with the given durability.
    ///
    /// # Errors
    /// As for [`Keyspace::put_with_ttl`].
    pub fn put_until_with(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        expiry: Time,
        durability: Durability,
    ) -> Result<()> {
        let entry = Entry::put(key.as_ref(), value.as_ref()).until(Some(expiry));
        self.database().write_one(&self.inner, entry, durability)
    }

    /// Deletes `key`. Deleting an absent key is not an error.
    ///
    /// # Errors
    /// As for [`Keyspace::put`]. On a full disk deletes may use the reserved space.
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<()> {
        self.delete_with(key, self.database().options.durability)
    }

    /// [`Keyspace::delete`] with the given durability.
    ///
    /// # Errors
    /// As for [`Keyspace::delete`].
    pub fn delete_with(&self, key: impl AsRef<[u8]>, durability: Durability) -> Result<()> {
        self.database().write_one(&self.inner, Entry::delete(key.as_ref()), durability)
    }

    /// Sets `key` to `value` as of `time`: as if it had been put then. The keyspace must have history (option `history`).
    ///
    /// Writes may come in any order: reads of the newest value find that with the latest time, and of two writes with the same time the later
    /// call counts. A write with a later time than all others of its keyspace costs no look-up. Another one may: a version that is older than
    /// the newest of its key goes to the older versions at once. The look-up is made twice: before the writer is taken, so that what it needs
    /// is in memory, and by the holder of the writer, when all earlier writes are visible. Where a later write of another thread overtakes this
    /// one, only the second look-up is made, and other writers wait for what it reads.
    ///
    /// ```
    /// # fn main() -> cairn::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = cairn::Database::open(dir.path())?;
    /// use cairn::{KeyspaceOptions, Preset, Time};
    /// let prices = db.keyspace("prices", KeyspaceOptions::preset(Preset::Mneme))?;
    /// let at = Time::from_micros;
    /// prices.put_at("tea", "4", at(2_000))?;
    /// prices.put_at("tea", "3", at(1_000))?;
    /// assert_eq!(prices.get("tea")?.unwrap(), "4");
    /// assert_eq!(prices.get_at("tea", at(1_500))?.unwrap().value.unwrap(), "3");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As for [`Keyspace::put`], and for the look-up as for [`Keyspace::get`]; `InvalidArgument` when the keyspace has no history, or `time` is
    /// more than a day after the clock and after the latest time in the database: later writes without a time of their own would get later
    /// ones. `Expired` when `time` lies before what the retention of the keyspace keeps (in a batch, see also
    /// [`Batch::skip_expired`](crate::Batch::skip_expired)).
    pub fn put_at(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>, time: Time) -> Result<()> {
        self.put_at_with(key, value, time, self.database().options.durability)
    }

    /// [`Keyspace::put_at`] with the given durability.
    ///
    /// # Errors
    /// As for [`Keyspace::put_at`].
    pub fn put_at_with(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        time: Time,
        durability: Durability,
    ) -> Result<()> {
        let entry = Entry::put(key.as_ref(), value.as_ref()).at(Some(time));
        self.database().write_one(&self.inner, entry.until(self.inner.expiry_at(time)), durability)
    }

    /// Deletes `key` as of `time`. See [`Keyspace::put_at`].
    ///
    /// # Errors
    /// As for [`Keyspace::put_at`].
    pub fn delete_at(&self, key: impl AsRef<[u8]>, time: Time) -> Result<()> {
        self.delete_at_with(key, time, self.database().options.durability)
    }

    /// [`Keyspace::delete_at`] with the given durability.
    ///
    /// # Errors
    /// As for [`Keyspace::put_at`].
    pub fn delete_at_with(&self, key: impl AsRef<[u8]>, time: Time, durability: Durability) -> Result<()> {
        let key = key.as_ref();
        self.database().write_one(&self.inner, Entry::delete(key).at(Some(time)), durability)
    }

    /// Deletes `key` as of `time`, like [`Keyspace::delete_at`], and returns the version that was the newest at `time`, the one that the delete
    /// ended, or replaced if it has the same time; `None` if there was none, or it was a delete.
    ///
    /// Both are one step: no other write comes in between. So the call costs [`Keyspace::get_at`] and a delete, and other writers wait for a
    /// second look-up of the version, which is in memory by then.
    ///
    /// ```
    /// # fn main() -> cairn::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = cairn::Database::open(dir.path())?;
    /// use cairn::{KeyspaceOptions, Preset, Time};
    /// let prices = db.keyspace("prices", KeyspaceOptions::preset(Preset::Mneme))?;
    /// let at = Time::from_micros;
    /// prices.put_at("tea", "3", at(1_000))?;
    /// prices.put_at("tea", "4", at(2_000))?;
    /// let before = prices.remove_at("tea", at(1_500))?.unwrap();
    /// assert_eq!(before.value.unwrap(), "3");
    /// assert!(prices.get_at("tea", at(1_700))?.is_none());
    /// assert_eq!(prices.get("tea")?.unwrap(), "4");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As for [`Keyspace::delete_at`] and [`Keyspace::get_at`]. After an error of the look-up nothing was deleted.
    pub fn remove_at(&self, key: impl AsRef<[u8]>, time: Time) -> Result<Option<Version>> {
        self.remove_at_with(key, time, self.database().options.durability)
    }

    /// [`Keyspace::remove_at`] with the given durability.
    ///
    /// # Errors
    /// As for [`Keyspace::remove_at`].
    pub fn remove_at_with(
        &self,
        key: impl AsRef<[u8]>,
        time: Time,
        durability: Durability,
    ) -> Result<Option<Version>> {
        let key = key.as_ref();
        let mut batch = Batch::default();
        batch.delete_at(self, key, time);
        if batch.error.is_none() {
            // So that what the look under the writer reads is in memory.
            self.get_at(key, time)?;
        }
        self.database().delete_after_look(batch, durability, || self.get_at(key, time))
    }

    /// Deletes all keys in `bounds`, as one write. A range without keys is not an error, nor is one whose end lies before its start.
    /// Existing snapshots and iterators go on showing the keys.
    ///
    /// The write costs what [`Keyspace::delete`] costs, however many keys there are. Compaction frees the space; tables whose keys all
    /// lie in the range are dropped without being read, as soon as the write is flushed. Until then the range tombstone stays in memory,
    /// some hundred bytes each, and every read searches those that still hide something, in O(log n). So use it for ranges of many keys;
    /// for single keys call [`Keyspace::delete`].
    ///
    /// ```
    /// # fn main() -> cairn::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = cairn::Database::open(dir.path())?;
    /// # let log = db.keyspace("log", cairn::KeyspaceOptions::default())?;
    /// for day in ["2024-02-28", "2024-02-29", "2024-03-01"] {
    ///     log.put(day, "...")?;
    /// }
    /// log.delete_range(.."2024-03")?;
    /// let days: Vec<_> = log.iter().map(|entry| Ok(entry?.0)).collect::<cairn::Result<_>>()?;
    /// assert_eq!(days, ["2024-03-01"]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` for a bound that is longer than a key may be; otherwise as for [`Keyspace::put`].
    pub fn delete_range<K: AsRef<[u8]>>(&self, bounds: impl RangeBounds<K>) -> Result<()> {
        self.delete_range_with(bounds, self.database().options.durability)
    }

    /// [`Keyspace::delete_range`] with the given durability.
    ///
    /// # Errors
    /// As for [`Keyspace::delete`].
    pub fn delete_range_with<K: AsRef<[u8]>>(
        &self,
        bounds: impl RangeBounds<K>,
        durability: Durability,
    ) -> Result<()> {
        let mut batch = Batch::default();
        batch.delete_range(self, bounds);
        self.write_range(batch, durability)
    }

    /// Deletes all keys that begin with `prefix`. See [`Keyspace::delete_range`].
    ///
    /// # Errors
    /// As for [`Keyspace::delete`].
    pub fn delete_prefix(&self, prefix: impl AsRef<[u8]>) -> Result<()> {
        self.delete_prefix_with(prefix, self.database().options.durability)
    }

    /// [`Keyspace::delete_prefix`] with the given durability.
    ///
    /// # Errors
    /// As for [`Keyspace::delete`].
    pub fn delete_prefix_with(&self, prefix: impl AsRef<[u8]>, durability: Durability) -> Result<()> {
        let mut batch = Batch::default();
        batch.delete_prefix(self, prefix);
        self.write_range(batch, durability)
    }

    fn write_range(&self, batch: Batch, durability: Durability) -> Result<()> {
        // The batch may be empty, and a write to a dropped keyspace is an error even then.
        self.inner.check_open()?;
        self.database().write_batch(batch, None, durability)
    }

    /// The value of `key`. A value in a table is a reference into the cached block, without a copy; it is copied when the block is
    /// neither cached nor admitted to the cache.
    ///
    /// Costs a search of the memtables, a filter probe for each table that may hold the key, and, while index and filters are in memory,
    /// one block read from the disk or the cache. Each false positive of a filter (one in a hundred probes) reads one more. In a hash log it costs
    /// a search of the memtables and of the index, and a read of the entry, which the page cache of the operating system may have.
    ///
    /// # Errors
    /// `Corruption`, with the file, when a block is damaged; `Io`; `Closed` when the keyspace was dropped or the database is closed.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Slice>> {
        self.get_and_expiry(key.as_ref()).map(|(value, _)| value)
    }

    /// The value of `key` if it is known without waiting for the disk: `Ready`, also that there is none. `Pending` if the disk would have to be
    /// read: it is asked for the block, and [`Keyspace::get`], in a thread that may wait, has the value. Nothing wakes the caller.
    ///
    /// For a task that must not block its executor: nothing is read for which the disk would have to be waited for, neither blocks and values nor
    /// what leads to them. A table that no other read has used since it was opened is pending, since its index and its filter are
    /// not in memory. What the page cache of the operating system has counts as known where the system can tell
    /// (Linux). A key that has operands of a merge operator is pending, wherever they are. Cost: as [`Keyspace::get`] without its
    /// reads; `Pending` takes a system call, which asks the disk.
    ///
    /// ```
    /// use cairn::{Database, KeyspaceOptions};
    /// use std::task::Poll;
    ///
    /// # fn main() -> cairn::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// let db = Database::open(dir.path().join("db"))?;
    /// let users = db.keyspace("users", KeyspaceOptions::default())?;
    /// users.put("alice", "1")?;
    /// let value = match users.try_get("alice")? {
    ///     Poll::Ready(value) => value,
    ///     Poll::Pending => users.get("alice")?, // in a thread that may wait
    /// };
    /// assert_eq!(value.unwrap(), "1");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As for [`Keyspace::get`].
    pub fn try_get(&self, key: impl AsRef<[u8]>) -> Result<Poll<Option<Slice>>> {
        let begun = begin();
        let now = self.inner.read_clock();
        let read_state = self.inner.read_state.load();
        self.inner.check_open()?;
        let at = ReadAt::new(self.database().visible.newest(), now);
        let found = self.inner.try_get_in(&read_state, key.as_ref(), &at, Seq::MAX);
        let found = found.map_err(|e| self.read_error(e))?;
        // What is pending is measured by the get that follows.
        if found.is_ready() {
            self.database().counters.latency.end(Operation::Get, begun);
        }
        Ok(found)
    }

    /// The value of `key`, and when it expires, if it does: see [`Keyspace::put_with_ttl`]. Costs what [`Keyspace::get`] costs.
    ///
    /// # Errors
    /// As for [`Keyspace::get`].
    pub fn get_with_expiry(&self, key: impl AsRef<[u8]>) -> Result<Option<(Slice, Option<Time>)>> {
        let (value, expiry) = self.get_and_expiry(key.as_ref())?;
        Ok(value.map(|value| (value, expiry)))
    }

    #[inline]
    fn get_and_expiry(&self, key: &[u8]) -> Result<(Option<Slice>, Option<Time>)> {
        let _measured = self.database().counters.latency.measure(Operation::Get);
        // The clock is read before the sequence number: an entry that has expired by then, and no later one, was the newest at some time
        // afterwards.
        let now = self.inner.read_clock();
        // The read state is loaded before the sequence number: it must contain every write up to that number. The check that the keyspace
        // is open comes after the load, because the read state of a dropped keyspace is empty.
        let read_state = self.inner.read_state.load();
        self.inner.check_open()?;
        let at = ReadAt::new(self.database().visible.newest(), now);
        let found = match &self.inner.hash_log {
            None => self.inner.get_in(&read_state, key, &at),
            Some(log) => self.inner.get_by_hash(log, &read_state, key, &at, Seq::MAX),
        };
        let value = found.map_err(|e| self.read_error(e))?;
        Ok((value, at.soonest()))
    }

    /// Whether `key` has a value. Costs what [`Keyspace::get`] costs, but for reading a value that is outside of the tree (`placement`).
    ///
    /// # Errors
    /// As for [`Keyspace::get`].
    pub fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        let _measured = self.database().counters.latency.measure(Operation::Get);
        let now = self.inner.read_clock();
        let read_state = self.inner.read_state.load();
        self.inner.check_open()?;
        let at = ReadAt::new(self.database().visible.newest(), now);
        let found = match &self.inner.hash_log {
            None => self.inner.contains_in(&read_state, key.as_ref(), &at),
            Some(log) => {
                let found = self.inner.get_by_hash(log, &read_state, key.as_ref(), &at, Seq::MAX);
                found.map(|value| value.is_some())
            }
        };
        found.map_err(|e| self.read_error(e))
    }

    /// The values of several keys, as of one state, in the order of the keys; a key may occur more than once.
    ///
    /// Costs what [`Keyspace::get`] costs for each key, but the disk reads run concurrently: blocks that are not in memory are requested
    /// together, for about a hundred keys at a time. On a disk that serves many requests at once a batch is several times as fast as
    /// single reads of its keys.
    ///
    /// # Errors
    /// As for [`Keyspace::get`]: the error of the first key, in the order given, that has one.
    pub fn multi_get<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Slice>>> {
        let _measured = self.database().counters.latency.measure(Operation::MultiGet);
        if self.inner.hash_log.is_some() {
            // The index changes beside the read: what is visible at a number that is held stays there.
            let (held, _) = self.held();
            let read_state = self.inner.read_state.load_full();
            self.inner.check_open()?;
            let found = self.inner.multi_get_in(&read_state, keys, &held.at());
            return found.map_err(|e| self.read_error(e));
        }
        let (read_state, at) = loop {
            let now = self.inner.read_clock();
            let read_state = self.inner.read_state.load_full();
            let at = ReadAt::new(self.database().visible.newest(), now);
            // Otherwise the tables may lack what had expired a moment later, or have what was written after that.
            if self.inner.is_current(now) {
                break (read_state, at);
            }
        };
        self.inner.check_open()?;
        self.inner.multi_get_in(&read_state, keys, &at).map_err(|e| self.read_error(e))
    }

    /// The entries whose keys lie in `bounds`, in order; `.rev()` reverses the order, and both ends can be used at once. The iterator
    /// shows the state at its creation. In a hash log, which has no order, its first item is the error `InvalidArgument`: see [`Keyspace::entries`].
    ///
    /// While an iterator lives, compaction keeps the versions that it shows, and the tables that it reads stay on disk. A memtable that
    /// it reads stays in memory until the iterator is first moved after the flush of that memtable (see
    /// [`MemoryStats::pinned`](crate::MemoryStats)); where a compaction with a filter ran when the iterator began, until it is dropped.
    ///
    /// The iterator has to skip the tombstones of deleted keys, at about 0.1 us each. It records runs of them, and later iterators skip a
    /// recorded run as a whole until one of its keys is put again (option `dead_range_entries`): so finding the first entry and deleting it
    /// takes some microseconds, however often that is repeated.
    pub fn range<K: AsRef<[u8]>>(&self, bounds: impl RangeBounds<K>) -> Range {
        Range::new(self.read_view(), Bounds::new(&bounds))
    }

    /// The entries whose keys begin with `prefix`. See [`Keyspace::range`].
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Range {
        Range::new(self.read_view(), Bounds::prefix(prefix.as_ref()))
    }

    /// All entries, in order. See [`Keyspace::range`].
    pub fn iter(&self) -> Range {
        self.range::<&[u8]>(..)
    }

    /// A cursor, which can seek to any key and move in both directions. It shows the state at its creation, and holds the same resources
    /// as an iterator: see [`Keyspace::range`]. In a hash log each seek fails with `InvalidArgument`.
    pub fn cursor(&self) -> Cursor {
        self.cursor_bounded::<&[u8]>(..)
    }

    /// A cursor over `bounds` only.
    pub fn cursor_bounded<K: AsRef<[u8]>>(&self, bounds: impl RangeBounds<K>) -> Cursor {
        Cursor::new(self.read_view(), Bounds::new(&bounds), true)
    }

    /// The versions of `key` with times in `times`, the latest first; `.rev()` reverses the order. Deletes are versions, too. (Mneme,
    /// section 3.2: *GetHistory*.)
    ///
    /// The keyspace must have history (option `history`). The iterator shows the state at its creation, and holds what an iterator over
    /// entries does: see [`Keyspace::range`]. Versions that had expired by then may be missing from the start, or disappear: then the one
    /// before is still said to have ended when it did, or later. A seek costs one in each sorted run of both trees that may have versions of
    /// the key; from there on it reads sequentially.
    ///
    /// ```
    /// # fn main() -> cairn::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = cairn::Database::open(dir.path())?;
    /// use cairn::{KeyspaceOptions, Retention};
    /// let prices = db.keyspace("prices", KeyspaceOptions::default().history(Retention::All))?;
    /// prices.put("tea", "3")?;
    /// prices.put("tea", "4")?;
    /// prices.delete("tea")?;
    /// let mut versions = prices.history("tea", ..)?;
    /// assert!(versions.next().unwrap()?.value.is_none());
    /// let version = versions.next().unwrap()?;
    /// println!("{:?} from {:?} to {:?}", version.value, version.time, version.until);
    /// assert_eq!(versions.count(), 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` when the keyspace has no history; `Closed`.
    pub fn history(&self, key: impl AsRef<[u8]>, times: impl RangeBounds<Time>) -> Result<Versions> {
        self.versions(VersionQuery::window(Bounds::of_key(key.as_ref()), &times))
    }

    /// The versions of all keys in `keys` with times in `times`: by key, and of each key the latest first. See [`Keyspace::history`].
    ///
    /// # Errors
    /// As for [`Keyspace::history`].
    pub fn changes<K: AsRef<[u8]>>(
        &self,
        keys: impl RangeBounds<K>,
        times: impl RangeBounds<Time>,
    ) -> Result<Versions> {
        self.versions(VersionQuery::window(Bounds::new(&keys), &times))
    }

    /// The entries in `keys` as they were at `time`: of each key the version that was the newest, unless it is a delete.
    /// See [`Keyspace::history`].
    ///
    /// Leaves out tables, and blocks of them, of which all versions are later than `time`, or had ended before. Where a block has few values,
    /// it reads one or two blocks for each key. [`Keyspace::get_at`] also tells until when an entry was valid.
    ///
    /// # Errors
    /// As for [`Keyspace::history`].
    pub fn range_at<K: AsRef<[u8]>>(&self, time: Time, keys: impl RangeBounds<K>) -> Result<RangeAt> {
        self.versions(Some(VersionQuery::as_of(Bounds::new(&keys), time))).map(RangeAt::new)
    }

    /// The newest version of each key in `keys`, unless it is a delete: the entries that [`Keyspace::range`] shows, with their times. (Mneme,
    /// section 3.2: *GetRecentKeys*.)
    ///
    /// # Errors
    /// As for [`Keyspace::history`].
    pub fn recent<K: AsRef<[u8]>>(&self, keys: impl RangeBounds<K>) -> Result<RangeAt> {
        self.range_at(Time::MAX, keys)
    }

    /// The version of `key` that was the newest at `time`; `None` if there was none, or it is a delete.
    ///
    /// Costs what [`Keyspace::get`] does if the newest version of all is that old and no delete, and otherwise also a seek as that of
    /// [`Keyspace::history`].
    ///
    /// # Errors
    /// As for [`Keyspace::get`]; `InvalidArgument` when the keyspace has no history.
    pub fn get_at(&self, key: impl AsRef<[u8]>, time: Time) -> Result<Option<Version>> {
        self.as_of(time)?.get(key.as_ref())
    }

    /// [`Keyspace::get_at`] for several keys, as of one state, in the order of the keys.
    ///
    /// # Errors
    /// As for [`Keyspace::get_at`]: the error of the first key that has one.
    pub fn multi_get_at<K: AsRef<[u8]>>(&self, keys: &[K], time: Time) -> Result<Vec<Option<Version>>> {
        let state = self.as_of(time)?;
        keys.iter().map(|key| state.get(key.as_ref())).collect()
    }

    /// All entries, in the order in which the keyspace has them: by key, or, with `engine` = `hash_log`, in no order. The iterator shows the state at its
    /// creation.
    ///
    /// Without order it reads the files with entries from front to back, overwritten entries included. While it lives, these files stay on the disk, though
    /// collections may move what is in them, and the memtables of its beginning stay in memory. Over a keyspace that is dropped it goes on.
    ///
    /// ```
    /// # fn main() -> cairn::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = cairn::Database::open(dir.path())?;
    /// use cairn::{KeyspaceOptions, Preset};
    /// let accounts = db.keyspace("accounts", KeyspaceOptions::preset(Preset::HashLog))?;
    /// accounts.put("17", "Ada")?;
    /// accounts.put("18", "Grace")?;
    /// assert_eq!(accounts.entries().count(), 2);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The iterator yields those of [`Keyspace::get`].
    pub fn entries(&self) -> Entries {
        match &self.inner.hash_log {
            None => Entries::ordered(self.iter()),
            Some(log) => {
                let (held, db) = self.held();
                Entries::hashed(held, db, log)
            }
        }
    }

    pub(crate) fn held(&self) -> (HeldSeq, Reader) {
        let db = Reader::new(self.database());
        (HeldSeq::newest(&self.inner, &db), db)
    }

    fn versions(&self, query: Option<VersionQuery>) -> Result<Versions> {
        let (held, db) = self.held();
        Versions::new(held, db, query)
    }

    fn as_of(&self, time: Time) -> Result<AsOf> {
        let (held, db) = self.held();
        AsOf::new(held, db, time)
    }

    /// Flushes the memtables to tables, or to the index of a hash log, and waits for it. Writes made during the call are not waited for.
    ///
    /// # Errors
    /// As for [`Database::flush`](crate::Database::flush); also `Closed` when the keyspace was dropped.
    pub fn flush(&self) -> Result<()> {
        self.database().flush_keyspace(&self.inner)
    }

    /// Compacts everything that was written before the call, and waits. Afterwards these entries lie in the last level, in one sorted run
    /// for each guard, and the space of overwritten and deleted entries is free, except for versions that a snapshot or an iterator
    /// holds. When there are no concurrent writes, the tables contain nothing else.
    ///
    /// Entries written during the call may be compacted along, but no compaction is started for them only. So the call ends even with
    /// writers that never pause, after a number of compactions that depends on the tables present at the call. Newer entries then lie in
    /// upper levels, and tombstones that were merged with newer entries may be left.
    ///
    /// With a [compaction filter](crate::CompactionFilter) each call rewrites all tables, so that the filter meets all entries.
    ///
    /// Where the keyspace has no order, all keyspaces are flushed, and its files in which entries are overwritten or deleted are copied without
    /// these, whatever their share.
    ///
    /// # Errors
    /// `Corruption` when a table cannot be read, after everything else was compacted; `NoSpace`, `Io`; `ReadOnly` after a sync failed;
    /// `Locked` in a forked child; `Closed`.
    pub fn compact(&self) -> Result<()> {
        self.compact_range::<&[u8]>(..)
    }

    /// Compacts the guards that overlap `bounds`, and waits. See [`Keyspace::compact`].
    ///
    /// # Errors
    /// As for [`Keyspace::compact`]; `InvalidArgument` if there are bounds, and the keyspace has no order.
    pub fn compact_range<K: AsRef<[u8]>>(&self, bounds: impl RangeBounds<K>) -> Result<()> {
        let bounds = Bounds::new(&bounds);
        self.database().compact_keyspace(&self.inner, (&bounds.from, bounds.to.as_deref()), false)
    }

    /// [`Keyspace::compact`], which writes every table again, also those that compactions would leave as they are: in the form that the present
    /// options ask for, after [`Keyspace::alter`], or to have every byte read and written anew. Values outside of the tree stay where they are.
    /// Where the keyspace has no order, all keyspaces are flushed, and all of its files collected, whatever is dead in them.
    ///
    /// Cost: the keyspace is read and written once; of a hash log the hint files are read several times (`docs/hash-log.md`).
    ///
    /// # Errors
    /// As for [`Keyspace::compact`].
    pub fn rewrite(&self) -> Result<()> {
        self.database().compact_keyspace(&self.inner, (b"", None), true)
    }

    /// The statistics of the keyspace.
    pub fn stats(&self) -> KeyspaceStats {
        let cursors = self.inner.readers.look(self.database().env.monotonic());
        keyspace_stats(self.database(), &self.inner, cursors)
    }

    /// Every guard with its tables, by level. Level 0 is shown as one guard.
    pub fn guards(&self) -> Vec<GuardInfo> {
        let read_state = self.inner.read_state.load();
        let info = |t: &Arc<tree::LiveTable>| TableInfo {
            number: t.meta.number,
            bytes: t.meta.file_size,
            entries: t.meta.entries,
            tombstones: t.meta.tombstones,
            smallest: Slice::copy_from(&t.meta.smallest),
            largest: Slice::copy_from(&t.meta.largest),
        };
        let stacks = read_state.version.stacks().map(|(level, key, tables)| GuardInfo {
            level,
            key: key.cloned().unwrap_or_default(),
            tables: tables.iter().map(info).collect(),
        });
        stacks.collect()
    }
}

impl std::fmt::Debug for Keyspace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Keyspace({:?})", self.inner.name())
    }
}
