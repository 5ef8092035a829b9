//! Counters behind the statistics. The engine branches on none of them, except that `user_bytes` shows whether writers pause.

use crate::db_inner::DbInner;
use crate::held_seqs::HeldCursors;
use crate::keyspace::KeyspaceInner;
use crate::stats::*;
use crate::sync::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Counters of one kind of job.
#[derive(Default)]
pub(crate) struct JobCounter {
    jobs: AtomicU64,
    bytes_read: AtomicU64,
    bytes_written: AtomicU64,
    nanos: AtomicU64,
}

impl JobCounter {
    pub(crate) fn note(&self, bytes_read: u64, bytes_written: u64, time: Duration) {
        self.jobs.fetch_add(1, Ordering::Relaxed);
        self.bytes_read.fetch_add(bytes_read, Ordering::Relaxed);
        self.bytes_written.fetch_add(bytes_written, Ordering::Relaxed);
        self.nanos.fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
    }

    fn stats(&self) -> IoStats {
        IoStats {
            jobs: self.jobs.load(Ordering::Relaxed),
            bytes_read: self.bytes_read.load(Ordering::Relaxed),
            bytes_written: self.bytes_written.load(Ordering::Relaxed),
            seconds: seconds(&self.nanos),
        }
    }
}

fn seconds(nanos: &AtomicU64) -> f64 {
    Duration::from_nanos(nanos.load(Ordering::Relaxed)).as_secs_f64()
}

/// Counters of the whole database.
#[derive(Default)]
pub(crate) struct Counters {
    writes: AtomicU64,
    user_bytes: AtomicU64,
    pub manifest_bytes: AtomicU64,
    slowdowns: AtomicU64,
    slowdown_nanos: AtomicU64,
    memtable_waits: AtomicU64,
    memtable_wait_nanos: AtomicU64,
    log_waits: AtomicU64,
    log_wait_nanos: AtomicU64,
    longest_nanos: AtomicU64,
    /// Flushes and compactions of dropped keyspaces.
    dropped: Mutex<(IoStats, IoStats)>,
    /// 0: none; 1: slowdown; 2: memtables; 3: the log.
    last_reason: AtomicU64,
}

impl Counters {
    /// Only the leader of a commit calls this, so no other thread adds at the same time.
    #[inline]
    pub(crate) fn note_writes(&self, count: u64, user_bytes: u64) {
        self.writes.store(self.writes.load(Ordering::Relaxed) + count, Ordering::Relaxed);
        self.user_bytes.store(self.user_bytes.load(Ordering::Relaxed) + user_bytes, Ordering::Relaxed);
    }

    /// Bytes of keys and values written since the database was opened.
    pub(crate) fn user_bytes(&self) -> u64 {
        self.user_bytes.load(Ordering::Relaxed)
    }

    /// Keeps the counts of a keyspace that is dropped.
    pub(crate) fn note_dropped(&self, keyspace: &KeyspaceInner) {
        let mut dropped = self.dropped.lock();
        add(&mut dropped.0, &keyspace.counters.flush.stats());
        keyspace.counters.compactions.iter().for_each(|jobs| add(&mut dropped.1, &jobs.stats()));
    }

    pub(crate) fn note_slowdown(&self, time: Duration) {
        self.slowdowns.fetch_add(1, Ordering::Relaxed);
        self.slowdown_nanos.fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
        self.note_wait(time, 1);
    }

    pub(crate) fn note_memtable_wait(&self, time: Duration) {
        self.memtable_waits.fetch_add(1, Ordering::Relaxed);
        self.memtable_wait_nanos.fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
        self.note_wait(time, 2);
    }

    pub(crate) fn note_log_wait(&self, time: Duration) {
        self.log_waits.fetch_add(1, Ordering::Relaxed);
        self.log_wait_nanos.fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
        self.note_wait(time, 3);
    }

    fn note_wait(&self, time: Duration, reason: u64) {
        self.longest_nanos.fetch_max(time.as_nanos() as u64, Ordering::Relaxed);
        self.last_reason.store(reason, Ordering::Relaxed);
    }

    fn stalls(&self) -> StallStats {
        let reason = match self.last_reason.load(Ordering::Relaxed) {
            0 => None,
            1 => Some("compaction of level 0 is behind, or the log is near its cap"),
            2 => Some("all memtable memory is waiting to be flushed"),
            _ => Some("the log has reached its cap, and waits for a flush"),
        };
        StallStats {
            slowdowns: self.slowdowns.load(Ordering::Relaxed),
            slowdown_seconds: seconds(&self.slowdown_nanos),
            memtable_waits: self.memtable_waits.load(Ordering::Relaxed),
            memtable_wait_seconds: seconds(&self.memtable_wait_nanos),
            log_waits: self.log_waits.load(Ordering::Relaxed),
            log_wait_seconds: seconds(&self.log_wait_nanos),
            longest_seconds: seconds(&self.longest_nanos),
            last_reason: reason.map(str::to_owned),
        }
    }
}

pub(crate) fn keyspace_stats(core: &KeyspaceInner, cursors: HeldCursors) -> KeyspaceStats {
    let read_state = core.read_state.load();
    let version = &read_state.version;
    let mut levels = vec![LevelStats {
        level: 0,
        guards: 1,
        tables: version.level0.len(),
        bytes: version.level0.iter().map(|t| t.meta.file_size).sum(),
        max_tables_in_guard: version.level0.len(),
        compactions: core.counters.compactions[0].stats(),
        ..LevelStats::default()
    }];
    for (i, level) in version.levels.iter().enumerate() {
        levels.push(LevelStats {
            level: i + 1,
            guards: level.guards.len(),
            empty_guards: level.guards.iter().filter(|g| g.tables.is_empty()).count(),
            tables: level.tables(),
            bytes: level.bytes(),
            max_tables_in_guard: level.guards.iter().map(|g| g.tables.len()).max().unwrap_or(0),
            largest_guard_bytes: level.guards.iter().map(|g| g.bytes()).max().unwrap_or(0),
            compactions: core.counters.compactions[i + 1].stats(),
            ..LevelStats::default()
        });
    }
    for (level, table) in version.tables() {
        levels[level].entries += table.meta.entries;
        levels[level].tombstones += table.meta.tombstones;
    }
    let reasons = core.counters.reasons.lock();
    KeyspaceStats {
        name: core.name.clone(),
        memtable_bytes: read_state.memtable.used_bytes() as u64,
        immutable_memtables: read_state.flushing.len(),
        table_bytes: version.bytes(),
        flush: core.counters.flush.stats(),
        levels,
        uncommitted_guards: version.uncommitted.len(),
        cursors: cursors.count,
        range_tombstones: read_state.ranges().map_or(0, |ranges| ranges.len()),
        compactions_by_reason: reasons.iter().map(|(reason, n)| (reason.to_string(), *n)).collect(),
        deleted_passed: core.dead.passed.load(Ordering::Relaxed),
        dead_ranges: core.dead.len(),
    }
}

/// Approximate memory of a version: metadata and handles of its tables, keys and lists of its guards.
fn metadata_bytes(core: &KeyspaceInner) -> u64 {
    let read_state = core.read_state.load();
    let tables: usize =
        read_state.version.tables().map(|(_, t)| 400 + t.meta.smallest.len() + t.meta.largest.len()).sum();
    let guards: usize =
        read_state.version.levels.iter().flat_map(|l| &l.guards).map(|g| 120 + g.key.len()).sum();
    (tables + guards + read_state.ranges().map_or(0, |ranges| ranges.memory_bytes())) as u64
}

/// The damaged tables of a version.
fn damaged_tables(version: &tree::Version) -> Vec<Problem> {
    let problem = |table: &tree::LiveTable| {
        Some(Problem::of(&table::table_file_name(table.meta.number), &table.damage()?))
    };
    version.tables().filter_map(|(_, table)| problem(table)).collect()
}

fn add(sum: &mut IoStats, more: &IoStats) {
    sum.jobs += more.jobs;
    sum.bytes_read += more.bytes_read;
    sum.bytes_written += more.bytes_written;
    sum.seconds += more.seconds;
}

pub(crate) fn stats(core: &DbInner) -> Stats {
    let cores: Vec<_> = core.state.lock().keyspaces.values().map(|k| k.core.clone()).collect();
    let now = core.env.monotonic();
    let snapshots = core.snapshots.look(now);
    let mut readers = snapshots;
    let with_cursors = |core: &Arc<KeyspaceInner>| {
        let cursors = core.readers.look(now);
        readers.add(cursors.count, cursors.since);
        keyspace_stats(core, cursors)
    };
    let keyspaces: Vec<KeyspaceStats> = cores.iter().map(with_cursors).collect();
    let (mut flush, mut compaction) = *core.counters.dropped.lock();
    for keyspace in &keyspaces {
        add(&mut flush, &keyspace.flush);
        keyspace.levels.iter().for_each(|level| add(&mut compaction, &level.compactions));
    }
    let cache = core.tables.cache();
    let classes = cache.stats();
    let tables = core.tables.stats();
    let views: Vec<_> = cores.iter().map(|c| c.read_state.load_full()).collect();
    let memtables = views.iter().flat_map(|v| std::iter::once(&v.memtable).chain(&v.flushing));
    let trouble = core.state.lock().trouble().map(|e| e.to_string());
    let log = &core.log_counters;
    let mut stats = Stats {
        flush,
        compaction,
        user_writes: core.counters.writes.load(Ordering::Relaxed),
        user_bytes: core.counters.user_bytes.load(Ordering::Relaxed),
        log: LogStats {
            bytes_written: log.bytes.load(Ordering::Relaxed),
            syncs: log.syncs.load(Ordering::Relaxed),
            segments: core.closed_logs.count() + 1,
            live_bytes: core.closed_logs.bytes() + log.current_len.load(Ordering::Relaxed),
        },
        manifest_bytes: core.counters.manifest_bytes.load(Ordering::Relaxed),
        write_amplification: 0.0,
        cache: CacheStats {
            capacity: cache.capacity(),
            used_bytes: cache.used_bytes(),
            data_hits: classes.data.hits,
            data_misses: classes.data.misses,
            index_hits: classes.index.hits,
            index_misses: classes.index.misses,
            filter_hits: classes.filter.hits,
            filter_misses: classes.filter.misses,
            bytes_read: tables.bytes_read,
        },
        filter: FilterStats {
            probes: tables.filter_probes,
            useful: tables.filter_negatives,
            false_positives: tables.filter_false_positives,
        },
        stalls: core.counters.stalls(),
        memory: MemoryStats {
            budget: core.options.memory_budget,
            memtables: memtables.map(|m| m.used_bytes() as u64).sum(),
            cache: cache.used_bytes(),
            metadata: cores.iter().map(|c| metadata_bytes(c)).sum(),
            pinned: core.retired.pinned_bytes(),
        },
        reserve: core.disk_reserve.stats(),
        snapshots: snapshots.count,
        cursors: readers.count - snapshots.count,
        oldest_reader_seconds: readers.since.map_or(0.0, |since| now.saturating_sub(since).as_secs_f64()),
        last_seq: core.visible.newest(),
        background_error: core.fatal.get().map(|e| e.to_string()).or(trouble),
        scrub: core.scrub.stats(),
        damage: (views.iter().flat_map(|v| damaged_tables(&v.version)))
            .chain(core.scrub.findings())
            .collect(),
        keyspaces,
    };
    if stats.user_bytes > 0 {
        stats.write_amplification = stats.bytes_written() as f64 / stats.user_bytes as f64;
    }
    stats
}
