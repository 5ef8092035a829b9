//! What the database counts: typed, and as text.
//!
//! Counters are written by the engine and read by people; nothing in the engine branches on them.

use base::Slice;

/// I/O of one kind of background job.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct IoStats {
    /// Jobs that finished.
    pub jobs: u64,
    /// Bytes read from tables.
    pub bytes_read: u64,
    /// Bytes written to tables.
    pub bytes_written: u64,
    /// Seconds that the jobs took, added up over threads.
    pub seconds: f64,
}

/// The write-ahead log.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct LogStats {
    /// Bytes appended, framing included.
    pub bytes_written: u64,
    /// Syncs.
    pub syncs: u64,
    /// Segments on disk.
    pub segments: usize,
    /// Bytes in these segments.
    pub live_bytes: u64,
}

/// The block cache.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct CacheStats {
    /// Bytes that it may hold.
    pub capacity: u64,
    /// Bytes that it holds.
    pub used_bytes: u64,
    /// Lookups of data blocks that found them.
    pub data_hits: u64,
    /// Lookups of data blocks that had to read.
    pub data_misses: u64,
    /// Lookups of index nodes that found them.
    pub index_hits: u64,
    /// Lookups of index nodes that had to read.
    pub index_misses: u64,
    /// Lookups of filter partitions that found them.
    pub filter_hits: u64,
    /// Lookups of filter partitions that had to read.
    pub filter_misses: u64,
    /// Bytes read from tables by point reads and cursors.
    pub bytes_read: u64,
}

/// How useful the filters are.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct FilterStats {
    /// Questions asked of filters.
    pub probes: u64,
    /// Answers "not here": each saved a search of a table.
    pub useful: u64,
    /// Answers "maybe" for a key that was not there.
    pub false_positives: u64,
}

/// What scrubbing has done.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct ScrubStats {
    /// Rounds that came to their end.
    pub rounds: u64,
    /// Bytes read and verified.
    pub bytes: u64,
}

/// Time that writers were made to wait, by reason.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct StallStats {
    /// Writes slowed down because compaction is behind, or the log near its cap.
    pub slowdowns: u64,
    /// Seconds of it.
    pub slowdown_seconds: f64,
    /// Writes that waited for a flush because all memtable memory was in use.
    pub memtable_waits: u64,
    /// Seconds of it.
    pub memtable_wait_seconds: f64,
    /// Writes that waited for a flush because the log had reached its cap.
    pub log_waits: u64,
    /// Seconds of it.
    pub log_wait_seconds: f64,
    /// Longest single wait, in seconds.
    pub longest_seconds: f64,
    /// Why the newest one happened.
    pub last_reason: Option<String>,
}

/// Memory in use, by part, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct MemoryStats {
    /// The budget.
    pub budget: u64,
    /// Memtables, those being flushed included.
    pub memtables: u64,
    /// Block cache: data, index nodes, filters.
    pub cache: u64,
    /// Guards and table metadata of the current versions, and deleted ranges, those in memtables included.
    pub metadata: u64,
    /// Memtables that were flushed and that cursors or iterators hold on to, until they are moved or dropped. They are not in the
    /// budget.
    pub pinned: u64,
}

/// Space of the disk that is held back, for deletes, flushes and compactions when the disk is full.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct ReserveStats {
    /// Bytes that are held back.
    pub held_bytes: u64,
    /// Whether they were given up because the disk was full: puts are refused until they are held again.
    pub spent: bool,
    /// Why they could not be had, the last time that it was tried; `None` while they are held.
    pub trouble: Option<String>,
}

/// One level of a keyspace.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct LevelStats {
    /// The level; 0 has no guards.
    pub level: usize,
    /// Guards, guard 0 included.
    pub guards: usize,
    /// Guards without a table.
    pub empty_guards: usize,
    /// Tables.
    pub tables: usize,
    /// Bytes of these tables.
    pub bytes: u64,
    /// Entries, tombstones included.
    pub entries: u64,
    /// Tombstones.
    pub tombstones: u64,
    /// Most tables that any guard holds.
    pub max_tables_in_guard: usize,
    /// Bytes of the guard that holds most.
    pub largest_guard_bytes: u64,
    /// Compactions that wrote into this level.
    pub compactions: IoStats,
}

/// One keyspace.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct KeyspaceStats {
    /// Its name.
    pub name: String,
    /// Bytes in the active memtable.
    pub memtable_bytes: u64,
    /// Memtables waiting to be flushed.
    pub immutable_memtables: usize,
    /// Bytes of all its tables.
    pub table_bytes: u64,
    /// Flushes.
    pub flush: IoStats,
    /// Level 0 and the levels of guards.
    pub levels: Vec<LevelStats>,
    /// Guards chosen from inserted keys that no compaction has taken up yet.
    pub uncommitted_guards: usize,
    /// Cursors and iterators that are open.
    pub cursors: usize,
    /// Deleted ranges that may still hide something, in tables or in memory.
    pub range_tombstones: usize,
    /// Compactions by what started them.
    pub compactions_by_reason: Vec<(String, u64)>,
    /// Deleted entries that cursors have passed over.
    pub deleted_passed: u64,
    /// Ranges of keys that are known to be deleted, and those that are watched for it: see the option `skip_deleted`.
    pub dead_ranges: usize,
}

/// Everything, for the whole database, since it was opened.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Stats {
    /// Each keyspace.
    pub keyspaces: Vec<KeyspaceStats>,
    /// Puts and deletes.
    pub user_writes: u64,
    /// Bytes of their keys and values.
    pub user_bytes: u64,
    /// The write-ahead log.
    pub log: LogStats,
    /// Flushes of all keyspaces.
    pub flush: IoStats,
    /// Compactions of all keyspaces.
    pub compaction: IoStats,
    /// Bytes written to manifests.
    pub manifest_bytes: u64,
    /// All bytes written over user bytes; 0 before the first write.
    pub write_amplification: f64,
    /// The block cache.
    pub cache: CacheStats,
    /// Filters.
    pub filter: FilterStats,
    /// Waiting.
    pub stalls: StallStats,
    /// Memory.
    pub memory: MemoryStats,
    /// Space that is held back.
    pub reserve: ReserveStats,
    /// Snapshots held.
    pub snapshots: usize,
    /// Cursors and iterators that are open, those of snapshots included.
    pub cursors: usize,
    /// Seconds since the oldest of the snapshots and cursors was made, 0 where there are none. Of a cursor or an iterator it counts from the
    /// first flush of its keyspace, or the first look at these statistics, since it was made.
    pub oldest_reader_seconds: f64,
    /// Sequence number of the newest visible commit.
    pub last_seq: u64,
    /// Why writing stopped, if it did; or what keeps background work from being done at present.
    pub background_error: Option<String>,
    /// Scrubbing.
    pub scrub: ScrubStats,
    /// Files that some read, compaction or check found damaged, once each. Everything else can be used.
    pub damage: Vec<Problem>,
}

impl Stats {
    /// Bytes written to log, tables and manifests.
    pub fn bytes_written(&self) -> u64 {
        self.log.bytes_written
            + self.flush.bytes_written
            + self.compaction.bytes_written
            + self.manifest_bytes
    }
}

/// One table of a guard.
#[derive(Clone, Debug, PartialEq)]
pub struct TableInfo {
    /// Number of its file.
    pub number: u64,
    /// Bytes of the file.
    pub bytes: u64,
    /// Entries, tombstones included.
    pub entries: u64,
    /// Tombstones.
    pub tombstones: u64,
    /// Smallest key.
    pub smallest: Slice,
    /// Largest key.
    pub largest: Slice,
}

/// One guard; level 0 is shown as a single guard with the empty key.
#[derive(Clone, Debug, PartialEq)]
pub struct GuardInfo {
    /// Its level.
    pub level: usize,
    /// Where its range starts.
    pub key: Slice,
    /// Its tables, newest first.
    pub tables: Vec<TableInfo>,
}

/// How far a check has come.
#[derive(Clone, Debug, Default)]
pub struct CheckProgress {
    /// Bytes of tables verified.
    pub bytes_done: u64,
    /// Bytes of all tables.
    pub bytes_total: u64,
    /// The file that is being read.
    pub file: String,
}

/// What a check found.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct CheckReport {
    /// Keyspaces.
    pub keyspaces: usize,
    /// Tables verified.
    pub tables: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// Entries in sound tables.
    pub entries: u64,
    /// Records of the log that are not in tables yet.
    pub log_records: u64,
    /// Everything that is wrong; empty for a sound database.
    pub problems: Vec<Problem>,
    /// What is worth knowing and not wrong.
    pub notes: Vec<String>,
}

/// One thing that is wrong.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Problem {
    /// The file.
    pub file: String,
    /// Where in the file, when that is known.
    pub offset: Option<u64>,
    /// What is wrong.
    pub what: String,
}
