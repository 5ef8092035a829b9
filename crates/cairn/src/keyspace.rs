//! Keyspaces: the public handle [`Keyspace`], the shared [`KeyspaceInner`] behind it, and the [`ReadState`] that every read loads. Point
//! reads are here; scans are in [`cursor`](crate::cursor) and [`range`](crate::range), batched reads in [`multi_get`](crate::multi_get).

use crate::batch::Batch;
use crate::cursor::{Bounds, Cursor, ReadView};
use crate::db_inner::DbInner;
use crate::db_inner::Handle;
use crate::dead_ranges::DeadRanges;
use crate::held_seqs::{FlushGeneration, HeldSeq, HeldSeqs};
use crate::range::Range;
use crate::sync::{ArcSwap, AtomicU8, AtomicU64, AtomicUsize, Mutex, Ordering};
use crate::{Durability, GuardInfo, KeyspaceOptions, KeyspaceStats, TableInfo};
use base::limits::MAX_KEYSPACE_NAME_LEN;
use base::planted::{Bug, planted};
use base::{EntryKind, Error, ErrorKind, RangeSet, Result, Seq, Slice, Trailer, hash};
use memtable::Memtable;
use std::ops::RangeBounds;
use std::sync::Arc;
use tree::{ReadCharges, Version};

/// The memtables and the version that a read of a keyspace searches, from new to old. Immutable; readers load it with one atomic
/// operation.
pub(crate) struct ReadState {
    pub memtable: Arc<Memtable>,
    /// Full memtables that are being flushed, newest first.
    pub flushing: Vec<Arc<Memtable>>,
    pub version: Arc<Version>,
}

impl ReadState {
    /// The active memtable and the immutable ones, newest first.
    pub(crate) fn memtables(&self) -> impl Iterator<Item = &Arc<Memtable>> {
        std::iter::once(&self.memtable).chain(&self.flushing)
    }

    /// All range tombstones; `None` when there are none.
    pub(crate) fn ranges(&self) -> Option<RangeSet> {
        let recent: Vec<Arc<RangeSet>> = self.memtables().filter_map(|m| m.ranges()).collect();
        let all = RangeSet::union(recent.iter().map(|set| &**set).chain([&*self.version.range_tombstones]));
        (!all.is_empty()).then_some(all)
    }

    /// The sequence number of the newest range tombstone over `key` visible at `seq`: it hides all older entries. 0 when there is none.
    #[inline]
    pub(crate) fn deleted_before(&self, key: &[u8], seq: Seq) -> Seq {
        // Most keyspaces have no range tombstones: this comparison is then the whole cost.
        let version = match self.version.range_tombstones.is_empty() {
            true => 0,
            false => self.version.range_tombstones.newest(key, seq),
        };
        self.memtables().fold(version, |newest, memtable| newest.max(memtable.deleted_before(key, seq)))
    }

    /// The result of looking `key` up in the memtables, where `deleted` is the newest range tombstone over it: its value, or that it has
    /// none. `None` when no memtable has an entry for the key.
    #[inline]
    pub(crate) fn get_recent(&self, key: &[u8], seq: Seq, deleted: Seq) -> Option<Option<Slice>> {
        let (trailer, value) = self.memtables().find_map(|memtable| memtable.get(key, seq))?;
        Some(shows(trailer, deleted).then(|| Slice::copy_from(value)))
    }
}

/// The state of a keyspace that its handles, batches and cursors share.
pub(crate) struct KeyspaceInner {
    pub id: u64,
    /// [`DbInner::identity`] of its database.
    pub database: u64,
    pub name: String,
    pub options: KeyspaceOptions,
    /// Capacity of a new memtable: the option, or less when the memory budget is small.
    pub memtable_bytes: usize,
    pub read_state: ArcSwap<ReadState>,
    /// Number of times that a flush has removed memtables from the read state.
    pub generation: FlushGeneration,
    /// The sequence numbers that open cursors hold.
    pub readers: HeldSeqs,
    /// Read costs that are charged to tables and guards.
    pub charges: Arc<ReadCharges>,
    /// One of [`OPEN`], [`DROPPED`], [`CLOSED`].
    pub state: AtomicU8,
    /// Bytes reserved in the active memtable, its own overhead included.
    pub reserved: AtomicU64,
    /// Bytes that were reserved in the previous memtable: the estimate for the next one.
    pub last_used: AtomicUsize,
    /// Ranges of deleted keys that cursors skip.
    pub dead: DeadRanges,
    pub counters: KeyspaceCounters,
}

/// The keyspace can be used.
pub(crate) const OPEN: u8 = 0;
/// It was dropped.
pub(crate) const DROPPED: u8 = 1;
/// Its database was closed.
pub(crate) const CLOSED: u8 = 2;

/// What a keyspace counts.
#[derive(Default)]
pub(crate) struct KeyspaceCounters {
    pub flush: crate::counters::JobCounter,
    /// By output level; a compaction that avoids an unreadable table counts for level 0.
    pub compactions: Vec<crate::counters::JobCounter>,
    pub reasons: Mutex<std::collections::BTreeMap<tree::Reason, u64>>,
}

impl KeyspaceInner {
    #[inline]
    pub(crate) fn check_open(&self) -> Result<()> {
        match self.state.load(Ordering::Acquire) {
            OPEN => Ok(()),
            other => Err(self.gone(other)),
        }
    }

    /// Checks that the keyspace belongs to `database` and can be used.
    #[inline]
    pub(crate) fn check_of(&self, database: u64) -> Result<()> {
        match self.database == database {
            true => self.check_open(),
            false => Err(Error::invalid(format!("keyspace {:?} belongs to another database", self.name))),
        }
    }

    #[cold]
    fn gone(&self, state: u8) -> Error {
        let how = if state == DROPPED { "was dropped" } else { "is closed, with its database" };
        Error::new(ErrorKind::Closed, format!("keyspace {:?} {how}", self.name))
    }

    pub(crate) fn is_dropped(&self) -> bool {
        self.state.load(Ordering::Acquire) == DROPPED
    }

    /// The value of `key` as of `seq`, in `read_state`.
    pub(crate) fn get_in(&self, read_state: &ReadState, key: &[u8], seq: Seq) -> Result<Option<Slice>> {
        let deleted = read_state.deleted_before(key, seq);
        if let Some(value) = read_state.get_recent(key, seq, deleted) {
            return Ok(value);
        }
        let found = read_state.version.get_above(key, hash(key), seq, deleted)?;
        Ok(found.and_then(|(trailer, value)| shows(trailer, deleted).then_some(value)))
    }

    pub(crate) fn guards(&self) -> Vec<GuardInfo> {
        let read_state = self.read_state.load();
        let tables = |tables: &[Arc<tree::LiveTable>]| {
            let info = |t: &Arc<tree::LiveTable>| TableInfo {
                number: t.meta.number,
                bytes: t.meta.file_size,
                entries: t.meta.entries,
                tombstones: t.meta.tombstones,
                smallest: Slice::copy_from(&t.meta.smallest),
                largest: Slice::copy_from(&t.meta.largest),
            };
            tables.iter().map(info).collect()
        };
        let mut guards =
            vec![GuardInfo { level: 0, key: Slice::default(), tables: tables(&read_state.version.level0) }];
        for (i, level) in read_state.version.levels.iter().enumerate() {
            let info = |g: &Arc<tree::Guard>| GuardInfo {
                level: i + 1,
                key: g.key.clone(),
                tables: tables(&g.tables),
            };
            guards.extend(level.guards.iter().map(info));
        }
        guards
    }
}

/// Whether a range tombstone (0: none) hides an entry.
#[inline]
pub(crate) fn hides(tombstone: Seq, entry: Seq) -> bool {
    entry < tombstone || (tombstone > 0 && planted(Bug::RangeHidesNewer))
}

/// Whether an entry is a value that a range tombstone (0: none) does not hide.
#[inline]
pub(crate) fn shows(entry: Trailer, tombstone: Seq) -> bool {
    !entry.is_delete() && !hides(tombstone, entry.seq())
}

/// Checks that `name` is allowed for a keyspace.
pub(crate) fn check_name(name: &str) -> Result<()> {
    match name {
        "" => Err(Error::invalid("the name of a keyspace must not be empty")),
        _ if name.len() > MAX_KEYSPACE_NAME_LEN => Err(Error::invalid(format!(
            "the name of a keyspace may have {MAX_KEYSPACE_NAME_LEN} bytes; this one has {}",
            name.len()
        ))),
        _ => Ok(()),
    }
}

/// A named, ordered map of bytes to bytes. The handle is cheap: clone it and share it between threads.
///
/// Keys are ordered bytewise and have up to 64 KiB; values have up to 256 MiB. Reads wait for no writer, and see every write acknowledged before
/// they began; a read of several keys (an iterator, [`Keyspace::multi_get`]) sees one consistent state.
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
    pub(crate) core: Arc<KeyspaceInner>,
    pub(crate) handle: Arc<Handle>,
}

impl Keyspace {
    fn database(&self) -> &Arc<DbInner> {
        &self.handle.core
    }

    fn read_view(&self) -> ReadView {
        ReadView::new(self.database(), HeldSeq::newest(&self.core, self.database()))
    }

    /// The name of the keyspace.
    pub fn name(&self) -> &str {
        &self.core.name
    }

    /// The options with which the keyspace was created.
    pub fn options(&self) -> &KeyspaceOptions {
        &self.core.options
    }

    /// Sets `key` to `value`, with the default durability. To write several keys at once, see
    /// [`Database::batch`](crate::Database::batch).
    ///
    /// # Errors
    /// `InvalidArgument` for a key or value over its limit; `NoSpace` when the disk is full (nothing was written, try again later);
    /// `ReadOnly` after a sync failed; `Closed`.
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
        self.database().write_one(&self.core, EntryKind::Put, key.as_ref(), value.as_ref(), durability)
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
        self.database().write_one(&self.core, EntryKind::Delete, key.as_ref(), &[], durability)
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
        self.core.check_open()?;
        self.database().write_batch(batch, durability)
    }

    /// The value of `key`. A value in a table is a reference into the cached block, without a copy; it is copied when the block is
    /// neither cached nor admitted to the cache.
    ///
    /// Costs a search of the memtables, a filter probe for each table that may hold the key, and, while index and filters are in memory, one
    /// block read from the disk or the cache. Each false positive of a filter (one in a hundred probes) reads one more.
    ///
    /// # Errors
    /// `Corruption`, with the file, when a block is damaged; `Io`; `Closed` when the keyspace was dropped or the database is closed.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Slice>> {
        // The read state is loaded before the sequence number: it must contain every write up to that number. The check that the keyspace
        // is open comes after the load, because the read state of a dropped keyspace is empty.
        let read_state = self.core.read_state.load();
        self.core.check_open()?;
        let seq = self.database().visible.newest();
        self.core.get_in(&read_state, key.as_ref(), seq).map_err(|e| self.database().read_error(e))
    }

    /// Whether `key` has a value. Costs what [`Keyspace::get`] costs.
    ///
    /// # Errors
    /// As for [`Keyspace::get`].
    pub fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        Ok(self.get(key)?.is_some())
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
        let read_state = self.core.read_state.load_full();
        self.core.check_open()?;
        let seq = self.database().visible.newest();
        self.core.multi_get_in(&read_state, keys, seq).map_err(|e| self.database().read_error(e))
    }

    /// The entries whose keys lie in `bounds`, in order; `.rev()` reverses the order, and both ends can be used at once. The iterator
    /// shows the state at its creation.
    ///
    /// While an iterator lives, compaction keeps the versions that it shows, and the tables that it reads stay on disk. A memtable that
    /// it reads stays in memory until the iterator is first moved after the flush of that memtable (see
    /// [`MemoryStats::pinned`](crate::MemoryStats)).
    ///
    /// The iterator has to skip the tombstones of deleted keys, at about 0.1 us each. It records runs of them, and later iterators skip a
    /// recorded run as a whole until one of its keys is put again (option `skip_deleted`): so finding the first entry and deleting it
    /// takes some microseconds, however often that is repeated.
    pub fn range<K: AsRef<[u8]>>(&self, bounds: impl RangeBounds<K>) -> Range {
        Range::new(self.read_view(), Bounds::new(&bounds))
    }

    /// The entries whose keys begin with `prefix`. See [`Keyspace::range`].
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Range {
        Range::new(self.read_view(), Bounds::prefix(prefix.as_ref()))
    }

    /// All entries.
    pub fn iter(&self) -> Range {
        self.range::<&[u8]>(..)
    }

    /// A cursor, which can seek to any key and move in both directions. It shows the state at its creation, and holds the same resources
    /// as an iterator: see [`Keyspace::range`].
    pub fn cursor(&self) -> Cursor {
        self.cursor_bounded::<&[u8]>(..)
    }

    /// A cursor over `bounds` only.
    pub fn cursor_bounded<K: AsRef<[u8]>>(&self, bounds: impl RangeBounds<K>) -> Cursor {
        Cursor::new(self.read_view(), Bounds::new(&bounds))
    }

    /// Flushes the memtables to tables and waits for it. Writes made during the call are not waited for.
    ///
    /// # Errors
    /// As for [`Database::flush`](crate::Database::flush); also `Closed` when the keyspace was dropped.
    pub fn flush(&self) -> Result<()> {
        self.database().flush_keyspace(&self.core)
    }

    /// Compacts everything that was written before the call, and waits. Afterwards these entries lie in the last level, in one sorted run
    /// for each guard, and the space of overwritten and deleted entries is free, except for versions that a snapshot or an iterator
    /// holds. When there are no concurrent writes, the tables contain nothing else.
    ///
    /// Entries written during the call may be compacted along, but no compaction is started for them only. So the call ends even with
    /// writers that never pause, after a number of compactions that depends on the tables present at the call. Newer entries then lie in
    /// upper levels, and tombstones that were merged with newer entries may be left.
    ///
    /// # Errors
    /// `Corruption` when a table cannot be read, after everything else was compacted; `NoSpace`, `Io`; `ReadOnly` after a sync failed;
    /// `Closed`.
    pub fn compact(&self) -> Result<()> {
        self.compact_range::<&[u8]>(..)
    }

    /// Compacts the guards that overlap `bounds`, and waits. See [`Keyspace::compact`].
    ///
    /// # Errors
    /// As for [`Keyspace::compact`].
    pub fn compact_range<K: AsRef<[u8]>>(&self, bounds: impl RangeBounds<K>) -> Result<()> {
        let bounds = Bounds::new(&bounds);
        self.database().compact_keyspace(&self.core, &bounds.from, bounds.to.as_deref())
    }

    /// The statistics of the keyspace.
    pub fn stats(&self) -> KeyspaceStats {
        let cursors = self.core.readers.look(self.database().env.monotonic());
        crate::counters::keyspace_stats(&self.core, cursors)
    }

    /// Every guard with its tables, by level. Level 0 is shown as one guard.
    pub fn guards(&self) -> Vec<GuardInfo> {
        self.core.guards()
    }
}

impl std::fmt::Debug for Keyspace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Keyspace({:?})", self.core.name)
    }
}
