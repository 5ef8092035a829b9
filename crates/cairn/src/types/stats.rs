//! Statistics of the database as typed values; `stats_text.rs` renders them.
//!
//! They are for users: nothing in the engine depends on them.

use super::latency::LatencyStats;
use base::{Error, ErrorKind, Slice};
use std::time::Duration;

/// I/O of one kind of background job.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct IoStats {
    /// Finished jobs.
    pub jobs: u64,
    /// Bytes read from tables.
    pub bytes_read: u64,
    /// Bytes written to tables.
    pub bytes_written: u64,
    /// Seconds of run time, summed over all threads.
    pub seconds: f64,
}

impl IoStats {
    /// Adds a job that took `time`.
    pub(crate) fn note(&mut self, bytes_read: u64, bytes_written: u64, time: Duration) {
        self.jobs += 1;
        self.bytes_read += bytes_read;
        self.bytes_written += bytes_written;
        self.seconds += time.as_secs_f64();
    }
}

impl std::ops::AddAssign for IoStats {
    fn add_assign(&mut self, other: IoStats) {
        self.jobs += other.jobs;
        self.bytes_read += other.bytes_read;
        self.bytes_written += other.bytes_written;
        self.seconds += other.seconds;
    }
}

/// The write-ahead log.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
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

/// Large values, which are outside of the tree (`placement` = `hybrid`).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct ValueStats {
    /// Logs that recovery does not need and that are kept for the values in them.
    pub logs: usize,
    /// Files with values that collections have copied.
    pub files: usize,
    /// Bytes of these logs and files.
    pub bytes: u64,
    /// Bytes of the values in them that tables refer to.
    pub live_bytes: u64,
    /// Bytes of these files that a collection would free, about: those of dead values, and of small entries in the logs.
    pub dead_bytes: u64,
    /// Bytes of those that wait for a reader: a table that only readers use refers to values in them.
    pub waiting_bytes: u64,
    /// Bytes of memory that tell where the values in the files were first written: about 4 for each. They are in memory once a value of
    /// the file was read, and not in the budget.
    pub map_bytes: u64,
    /// Collections.
    pub collections: IoStats,
}

/// The block cache.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct CacheStats {
    /// Capacity in bytes.
    pub capacity: u64,
    /// Bytes in use.
    pub used_bytes: u64,
    /// Lookups of data blocks that hit.
    pub data_hits: u64,
    /// Lookups of data blocks that missed.
    pub data_misses: u64,
    /// Lookups of index nodes that hit.
    pub index_hits: u64,
    /// Lookups of index nodes that missed.
    pub index_misses: u64,
    /// Lookups of filter partitions that hit.
    pub filter_hits: u64,
    /// Lookups of filter partitions that missed.
    pub filter_misses: u64,
    /// Bytes read from tables, by gets, cursors, compactions and checks; those in the page cache of the operating system included.
    pub bytes_read: u64,
}

/// Effectiveness of the filters.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct FilterStats {
    /// Filter probes.
    pub probes: u64,
    /// Negative answers: each saved a search of a table.
    pub useful: u64,
    /// Positive answers for a key that the table did not have.
    pub false_positives: u64,
}

/// Scrubbing.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct ScrubStats {
    /// Completed rounds.
    pub rounds: u64,
    /// Bytes read and verified.
    pub bytes: u64,
}

/// Write stalls, by reason.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct StallStats {
    /// Writes slowed down because flushes, compactions or collections are behind, or the log is near its cap.
    pub slowdowns: u64,
    /// Seconds of these slowdowns.
    pub slowdown_seconds: f64,
    /// Writes that waited for a flush because all memtable memory was in use.
    pub memtable_waits: u64,
    /// Seconds of these waits.
    pub memtable_wait_seconds: f64,
    /// Writes that waited for a flush because the log had reached its cap.
    pub log_waits: u64,
    /// Seconds of these waits.
    pub log_wait_seconds: f64,
    /// Puts that waited for a collection because the index of a keyspace without order had taken its part of the memory budget.
    pub index_waits: u64,
    /// Seconds of these waits.
    pub index_wait_seconds: f64,
    /// Longest single wait, in seconds.
    pub longest_seconds: f64,
    /// The reason of the newest stall.
    pub last_reason: Option<String>,
}

/// Memory in use, by part, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct MemoryStats {
    /// The budget.
    pub budget: u64,
    /// Memtables, those being flushed included.
    pub memtables: u64,
    /// Memory of flushed memtables, kept for the next ones. With what is used again at most three quarters of the memtables' part of the
    /// budget; kept for at most a minute, if there are background threads.
    pub spare: u64,
    /// Block cache: data, index nodes, filters.
    pub cache: u64,
    /// Guards and table metadata of the current versions, and deleted ranges, those in memtables included.
    pub metadata: u64,
    /// Flushed memtables that open cursors or iterators keep in memory, until they are moved or dropped, or that readers keep which began beside a
    /// compaction with a filter. Not part of the budget.
    pub pinned: u64,
}

/// The disk reserve: space held back for deletes, flushes and compactions on a full disk.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct ReserveStats {
    /// Bytes held back.
    pub held_bytes: u64,
    /// Whether the reserve was released because the disk was full: puts are refused until it is held again.
    pub spent: bool,
    /// Why the last attempt to make the reserve failed; `None` while it is held.
    pub trouble: Option<String>,
}

/// One level of a keyspace.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
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
    /// Most tables in one guard.
    pub max_tables_in_guard: usize,
    /// Bytes of the largest guard.
    pub largest_guard_bytes: u64,
    /// Compactions into this level.
    pub compactions: IoStats,
}

/// One keyspace.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct KeyspaceStats {
    /// Its name.
    pub name: String,
    /// Bytes in the active memtable.
    pub memtable_bytes: u64,
    /// Memtables waiting to be flushed.
    pub immutable_memtables: usize,
    /// Bytes of all its tables.
    pub table_bytes: u64,
    /// Bytes of those that it has in common with others ([`Database::clone_keyspace`](crate::Database::clone_keyspace)), which take disk space once.
    pub shared_bytes: u64,
    /// Flushes.
    pub flush: IoStats,
    /// Level 0 and the levels of guards.
    pub levels: Vec<LevelStats>,
    /// Guards chosen from inserted keys that no compaction has created yet.
    pub uncommitted_guards: usize,
    /// Open cursors and iterators.
    pub cursors: usize,
    /// Range tombstones, in tables and in memory, that may still hide entries.
    pub range_tombstones: usize,
    /// Number of compactions by reason.
    pub compactions_by_reason: Vec<(String, u64)>,
    /// Deleted entries that cursors have skipped.
    pub deleted_passed: u64,
    /// Recorded ranges of deleted keys, and those being watched: see the option `dead_range_entries`.
    pub dead_ranges: usize,
    /// Estimated bytes of older versions in these tables, with their values. Compactions have not met them yet, or keep them for a snapshot or
    /// a cursor; then they are freed, or move to the tree of the older versions. In that tree itself: 0.
    pub waiting_bytes: u64,
    /// The estimated bytes of entries, with their values, that have expired, and that compactions have not removed yet. In the tree of the older
    /// versions: those that are older than the age that the keyspace keeps, or beyond the number of versions of their keys; 0 if it keeps what
    /// either of the two does.
    pub expired_bytes: u64,
    /// Entries with an expiry that flushes and compactions have dropped, replaced by tombstones or, with history, moved to the tree of the older versions,
    /// because they had expired. Those of tables that were removed as a whole are counted, too.
    pub expired_entries: u64,
    /// Late writes from before what the retention keeps that [`Batch::skip_expired`](crate::Batch::skip_expired) has left out since the opening.
    pub skipped_writes: u64,
    /// Whether it has a [compaction filter](crate::CompactionFilter).
    pub has_filter: bool,
    /// Entries that the [compaction filter](crate::CompactionFilter) has dropped since the opening. One whose older versions lie deeper counts once;
    /// with history each version counts, in whichever tree it is.
    pub filter_dropped: u64,
    /// How often it has given another value to an entry since the opening: once each time that a compaction meets the entry, if it replaces what it has
    /// made.
    pub filter_replaced: u64,
    /// The index, if the keyspace has no order (`engine` = `hash_log`).
    pub hash_log: Option<HashLogStats>,
    /// The tree of the older versions, if the keyspace has history. What compactions have evicted into it counts as flushed. What a filter does
    /// there counts for the keyspace, and not here.
    pub history: Option<Box<KeyspaceStats>>,
}

/// The index of a keyspace without order.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct HashLogStats {
    /// Flushed entries that it has, overwritten ones included until a collection meets them, and deletes.
    pub entries: u64,
    /// Those of them that no newer one with the same hash hides, but for deletes behind which nothing is: about the number of keys.
    pub newest: u64,
    /// Bytes of memory.
    pub index_bytes: u64,
    /// Logs and value files with entries.
    pub files: usize,
    /// Hint files, and their bytes.
    pub hint_files: usize,
    /// See `hint_files`.
    pub hint_bytes: u64,
    /// The memory budget has no room for more: puts wait for collections, or are refused if too little is overwritten or deleted.
    pub is_full: bool,
}

/// Statistics of the whole database since it was opened.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Stats {
    /// Each keyspace.
    pub keyspaces: Vec<KeyspaceStats>,
    /// Puts and deletes.
    pub user_writes: u64,
    /// Bytes of their keys and values.
    pub user_bytes: u64,
    /// Transactions that have committed with writes, single steps on a key that have written
    /// ([`Keyspace::compare_and_swap`](crate::Keyspace::compare_and_swap) and others), and batches with merges that read the value.
    pub transactions: u64,
    /// Conflicts that these have met; each made one fail or run again.
    pub conflicts: u64,
    /// The write-ahead log.
    pub log: LogStats,
    /// Flushes of all keyspaces.
    pub flush: IoStats,
    /// Compactions of all keyspaces.
    pub compaction: IoStats,
    /// Bulk loads, from their beginning to their commit.
    pub ingest: IoStats,
    /// Large values.
    pub values: ValueStats,
    /// Bytes written to manifests.
    pub manifest_bytes: u64,
    /// All bytes written divided by user bytes; 0 before the first write.
    pub write_amplification: f64,
    /// The block cache.
    pub cache: CacheStats,
    /// Filters.
    pub filter: FilterStats,
    /// How long calls took.
    pub latency: LatencyStats,
    /// Write stalls.
    pub stalls: StallStats,
    /// Memory.
    pub memory: MemoryStats,
    /// The disk reserve.
    pub reserve: ReserveStats,
    /// Open snapshots.
    pub snapshots: usize,
    /// Open cursors and iterators, those of snapshots included.
    pub cursors: usize,
    /// Age in seconds of the oldest snapshot or cursor; 0 when there are none. The age of a cursor or an iterator counts from the first
    /// flush of its keyspace, or the first call for statistics, after its creation.
    pub oldest_reader_seconds: f64,
    /// Files that are not needed any more, and stay because readers in other processes may need them
    /// ([`Database::open_read_only`](crate::Database::open_read_only)).
    pub files_for_readers: usize,
    /// Sequence number of the newest visible commit.
    pub last_seq: u64,
    /// The error that stopped writing, or the one that prevents background work at present.
    pub background_error: Option<String>,
    /// Scrubbing.
    pub scrub: ScrubStats,
    /// Files that a read, a compaction or a check found damaged, or that this program cannot read ([`Problem::unsupported`]), each once.
    /// Everything else can be used.
    pub damage: Vec<Problem>,
}

impl Stats {
    /// Bytes written to log, tables, value files and manifests.
    pub fn bytes_written(&self) -> u64 {
        self.log.bytes_written
            + self.flush.bytes_written
            + self.compaction.bytes_written
            + self.ingest.bytes_written
            + self.values.collections.bytes_written
            + self.manifest_bytes
    }
}

/// One table of a guard.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct TableInfo {
    /// File number.
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
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct GuardInfo {
    /// Its level.
    pub level: usize,
    /// Smallest key of its range.
    pub key: Slice,
    /// Its tables, newest first.
    pub tables: Vec<TableInfo>,
}

/// Progress of a check.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct CheckProgress {
    /// Bytes of tables verified.
    pub bytes_done: u64,
    /// Bytes of all tables.
    pub bytes_total: u64,
    /// The file being read.
    pub file: String,
}

/// Result of a check.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct CheckReport {
    /// Keyspaces.
    pub keyspaces: usize,
    /// Verified tables.
    pub tables: u64,
    /// Bytes of these tables.
    pub bytes: u64,
    /// Entries in intact tables.
    pub entries: u64,
    /// Log records that are not in tables yet.
    pub log_records: u64,
    /// Everything that is wrong; empty for an intact database.
    pub problems: Vec<Problem>,
    /// Observations that are not errors.
    pub notes: Vec<String>,
}

/// One defect, or a part that this program cannot read.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Problem {
    /// The file.
    pub file: String,
    /// Offset in the file, if known.
    pub offset: Option<u64>,
    /// What is wrong.
    pub what: String,
    /// Whether it is not damage, but needs another program: a newer version, or one that was built with another feature.
    pub unsupported: bool,
}

impl Problem {
    /// The problem that an error describes, in the file that it names, otherwise in `file`.
    pub(crate) fn of(file: &str, error: &Error) -> Problem {
        let place = error.place();
        let named =
            place.and_then(|(path, _)| path.file_name()).map(|name| name.to_string_lossy().into_owned());
        Problem {
            file: named.unwrap_or_else(|| file.to_owned()),
            offset: place.map(|(_, offset)| offset),
            what: error.to_string(),
            unsupported: error.kind() == ErrorKind::Unsupported,
        }
    }
}
