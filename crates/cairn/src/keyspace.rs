//! Keyspaces: what a handle refers to, and reading from it.

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

/// Everything that a reader of a keyspace looks at, from new to old. Immutable; readers load it with one atomic operation.
pub(crate) struct ReadState {
    pub memtable: Arc<Memtable>,
    /// Full memtables that are being flushed, newest first.
    pub flushing: Vec<Arc<Memtable>>,
    pub version: Arc<Version>,
}

impl ReadState {
    /// Its memtables, newest first.
    pub(crate) fn memtables(&self) -> impl Iterator<Item = &Arc<Memtable>> {
        std::iter::once(&self.memtable).chain(&self.flushing)
    }

    /// All range tombstones, if there are any.
    pub(crate) fn ranges(&self) -> Option<RangeSet> {
        let recent: Vec<Arc<RangeSet>> = self.memtables().filter_map(|m| m.ranges()).collect();
        let all = RangeSet::union(recent.iter().map(|set| &**set).chain([&*self.version.ranges]));
        (!all.is_empty()).then_some(all)
    }

    /// The newest range tombstone over `key` that a reader at `seq` sees: what is older is deleted. 0 when there is none.
    #[inline]
    pub(crate) fn deleted_before(&self, key: &[u8], seq: Seq) -> Seq {
        // Nearly always there is nothing to look at, and this is all.
        let version = match self.version.ranges.is_empty() {
            true => 0,
            false => self.version.ranges.newest(key, seq),
        };
        self.memtables().fold(version, |newest, memtable| newest.max(memtable.deleted_before(key, seq)))
    }

    /// What the memtables say of `key`, over which the newest range tombstone is `deleted`: its value, or that it has none. `None`: they
    /// say nothing.
    #[inline]
    pub(crate) fn get_recent(&self, key: &[u8], seq: Seq, deleted: Seq) -> Option<Option<Slice>> {
        let (trailer, value) = self.memtables().find_map(|memtable| memtable.get(key, seq))?;
        Some(shows(trailer, deleted).then(|| Slice::copy_from(value)))
    }
}

/// A keyspace inside of the database. Handles and batches share it.
pub(crate) struct KeyspaceInner {
    pub id: u64,
    /// The database that it belongs to: see [`DbInner::identity`].
    pub database: u64,
    pub name: String,
    pub options: KeyspaceOptions,
    /// Bytes of a new memtable: the option, or less when the memory budget is small.
    pub memtable_bytes: usize,
    pub read_state: ArcSwap<ReadState>,
    /// How many times memtables have gone from the view because they are in a table.
    pub generation: FlushGeneration,
    /// The cursors that are open.
    pub readers: HeldSeqs,
    /// The costs of its reads.
    pub charges: Arc<ReadCharges>,
    /// One of [`OPEN`], [`DROPPED`], [`CLOSED`].
    pub state: AtomicU8,
    /// Bytes that were reserved in the active memtable, with what it takes itself.
    pub reserved: AtomicU64,
    /// Bytes that had been reserved in the memtable before: the next one will need about as many.
    pub last_used: AtomicUsize,
    /// Keys that cursors need not pass over.
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
    /// By the level that compactions write to: level 0 where they go around a table that cannot be read.
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

    /// Whether it belongs to the database, and can be used.
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

    /// The value of `key` as of `seq`, in this view.
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
        let tables = |tables: &[Arc<tree::TableFile>]| {
            let info = |t: &Arc<tree::TableFile>| TableInfo {
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

/// Whether a keyspace may have this name.
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

/// A named, ordered map of bytes to bytes. A cheap handle: clone it and share it between threads.
///
/// Keys order bytewise and have up to 64 KiB; values have up to 256 MiB. Reads take no lock and see everything that
/// was acknowledged before they began; a read that spans several keys (an iterator, [`Keyspace::multi_get`]) sees one
/// moment.
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

    /// Its name.
    pub fn name(&self) -> &str {
        &self.core.name
    }

    /// The options that it was created with.
    pub fn options(&self) -> &KeyspaceOptions {
        &self.core.options
    }

    /// Sets `key` to `value`, with the default durability. To write several keys at once, see
    /// [`Database::batch`](crate::Database::batch).
    ///
    /// # Errors
    /// `InvalidArgument` for a key or value over the limit; `NoSpace` when the disk is full (nothing was written, try again
    /// later); `ReadOnly` after a sync failed; `Closed`.
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.put_with(key, value, self.database().options.durability)
    }

    /// [`Keyspace::put`] with a durability of its own.
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

    /// Removes `key`; that it was not there is no error.
    ///
    /// # Errors
    /// As for [`Keyspace::put`]. On a full disk deletes may use the reserve.
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<()> {
        self.delete_with(key, self.database().options.durability)
    }

    /// [`Keyspace::delete`] with a durability of its own.
    ///
    /// # Errors
    /// As for [`Keyspace::delete`].
    pub fn delete_with(&self, key: impl AsRef<[u8]>, durability: Durability) -> Result<()> {
        self.database().write_one(&self.core, EntryKind::Delete, key.as_ref(), &[], durability)
    }

    /// Removes all keys that lie in `bounds`, as one write; that there are none is no error, nor are bounds that cross. Snapshots
    /// and iterators that were made before go on showing the keys.
    ///
    /// Costs what [`Keyspace::delete`] costs, however many keys there are. Their space is given back by compaction, and for tables
    /// that lie in the range with all their keys as soon as the write is flushed, without their being read. Until then a read
    /// looks for its key among the ranges: O(log n) of those that still hide something. They are kept in memory, some hundred bytes
    /// each. So this is for ranges that hold many keys; for single ones [`Keyspace::delete`] is the better call.
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

    /// [`Keyspace::delete_range`] with a durability of its own.
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

    /// Removes all keys that begin with `prefix`. See [`Keyspace::delete_range`].
    ///
    /// # Errors
    /// As for [`Keyspace::delete`].
    pub fn delete_prefix(&self, prefix: impl AsRef<[u8]>) -> Result<()> {
        self.delete_prefix_with(prefix, self.database().options.durability)
    }

    /// [`Keyspace::delete_prefix`] with a durability of its own.
    ///
    /// # Errors
    /// As for [`Keyspace::delete`].
    pub fn delete_prefix_with(&self, prefix: impl AsRef<[u8]>, durability: Durability) -> Result<()> {
        let mut batch = Batch::default();
        batch.delete_prefix(self, prefix);
        self.write_range(batch, durability)
    }

    fn write_range(&self, batch: Batch, durability: Durability) -> Result<()> {
        // Nothing may be left of it, and a keyspace that is gone is an error all the same.
        self.core.check_open()?;
        self.database().write_batch(batch, durability)
    }

    /// The value of `key`. From tables it is a view into the cached block, without a copy; a value is copied out of a block that is
    /// not cached and not worth it yet.
    ///
    /// Costs one look at the memtables, a filter probe for each table that may hold the key, and at most one disk read for
    /// the value when index and filters are in memory.
    ///
    /// # Errors
    /// `Corruption`, with the file, when what was read is not what was written; `Io`; `Closed` when the keyspace was dropped.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Slice>> {
        // The view first: it must not be older than what the sequence number promises to everybody else; and a keyspace that
        // is dropped in between must not look empty.
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

    /// The values of several keys, all as of one moment, in the order of the keys; a key may come more than once.
    ///
    /// Costs what [`Keyspace::get`] costs for each key, but for the waiting: blocks that are not in memory are asked for all at once, of a
    /// hundred or so keys at a time, so that the disk works on them together. Where it takes many requests at once,
    /// that makes a batch several times as fast as its keys one by one.
    ///
    /// # Errors
    /// As for [`Keyspace::get`]: the error of the first key, in their order, that has one.
    pub fn multi_get<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Slice>>> {
        let read_state = self.core.read_state.load_full();
        self.core.check_open()?;
        let seq = self.database().visible.newest();
        self.core.multi_get_in(&read_state, keys, seq).map_err(|e| self.database().read_error(e))
    }

    /// The entries whose keys lie in `bounds`, in order; `.rev()` for the other order, and from both ends at once.
    /// Sees the moment at which it was made.
    ///
    /// While it lives, compaction keeps the versions that it shows, and the tables that it reads stay on the disk. A memtable that it reads stays in
    /// memory until the iterator is moved for the first time after that was flushed (see [`MemoryStats::pinned`](crate::MemoryStats)).
    ///
    /// What is left of deleted keys has to be passed over, in some 0.1 us each. Runs of them are noted, and left out by those who come later, until one of
    /// their keys is put again (option `skip_deleted`): so to look for the first entry, and to delete it, takes some microseconds however often that
    /// was done.
    pub fn range<K: AsRef<[u8]>>(&self, bounds: impl RangeBounds<K>) -> Range {
        Range::new(self.read_view(), Bounds::new(&bounds))
    }

    /// The entries whose keys begin with `prefix`.
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Range {
        Range::new(self.read_view(), Bounds::prefix(prefix.as_ref()))
    }

    /// All entries.
    pub fn iter(&self) -> Range {
        self.range::<&[u8]>(..)
    }

    /// A cursor that can be sent anywhere and turned round. Sees the moment at which it was made, and holds what an iterator does: see
    /// [`Keyspace::range`].
    pub fn cursor(&self) -> Cursor {
        self.cursor_bounded::<&[u8]>(..)
    }

    /// A cursor over `bounds` only.
    pub fn cursor_bounded<K: AsRef<[u8]>>(&self, bounds: impl RangeBounds<K>) -> Cursor {
        Cursor::new(self.read_view(), Bounds::new(&bounds))
    }

    /// Writes what is in memory to tables, and waits for it; not for what is written meanwhile.
    ///
    /// # Errors
    /// As for [`Database::flush`](crate::Database::flush); `Closed` when the keyspace was dropped, too.
    pub fn flush(&self) -> Result<()> {
        self.database().flush_keyspace(&self.core)
    }

    /// Compacts everything that was written before the call, and waits: afterwards all of that lies in the last level, where each guard has one
    /// sorted run of it, and the space of what was overwritten or deleted is free, except for what a snapshot or an iterator holds. When
    /// nothing is written meanwhile, nothing else is left in the tables.
    ///
    /// What is written meanwhile is not owed. Some of it is compacted along; no compaction is begun for it alone. So the call ends beside
    /// writers that never pause, after a number of compactions that depends on the tables there were when it was called. Then newer entries lie above, and
    /// tombstones may be left that were merged with newer entries in between.
    ///
    /// # Errors
    /// `Corruption` when a table cannot be read, after everything else was compacted; `NoSpace`, `Io`; `ReadOnly` after a sync failed; `Closed`.
    pub fn compact(&self) -> Result<()> {
        self.compact_range::<&[u8]>(..)
    }

    /// Compacts the guards that meet `bounds`, and waits. See [`Keyspace::compact`].
    ///
    /// # Errors
    /// As for [`Keyspace::compact`].
    pub fn compact_range<K: AsRef<[u8]>>(&self, bounds: impl RangeBounds<K>) -> Result<()> {
        let bounds = Bounds::new(&bounds);
        self.database().compact_keyspace(&self.core, &bounds.from, bounds.to.as_deref())
    }

    /// What the keyspace counts and consists of.
    pub fn stats(&self) -> KeyspaceStats {
        let cursors = self.core.readers.look(self.database().env.monotonic());
        crate::counters::keyspace_stats(&self.core, cursors)
    }

    /// Every guard with its tables, level after level. Level 0 is shown as one guard.
    pub fn guards(&self) -> Vec<GuardInfo> {
        self.core.guards()
    }
}

impl std::fmt::Debug for Keyspace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Keyspace({:?})", self.core.name)
    }
}
