//! Collects the statistics of an open database.

use crate::parts::HeldCursors;
use crate::state::{DbInner, KeyspaceInner};
use crate::sync::Ordering;
use crate::types::{
    CacheStats, FilterStats, IoStats, KeyspaceStats, LevelStats, LogStats, MemoryStats, Problem, Stats,
    ValueStats,
};
use std::sync::Arc;
use tree::{LiveTable, Version, bytes_beyond, expired_bytes, stale_bytes, tables_of};
use values::SegmentFile;

pub(crate) fn keyspace_stats(db: &DbInner, keyspace: &KeyspaceInner, cursors: HeldCursors) -> KeyspaceStats {
    let now = db.moment();
    let horizon = db.horizon_at(keyspace, now, db.oldest_reader(keyspace));
    let read_state = keyspace.read_state.load();
    let version = &read_state.version;
    let mut levels: Vec<LevelStats> = (keyspace.counters.compactions.lock().iter().enumerate())
        .map(|(level, compactions)| LevelStats { level, compactions: *compactions, ..Default::default() })
        .collect();
    for (n, guard, tables) in version.stacks() {
        let level = &mut levels[n];
        let bytes = tables.iter().map(|t| t.meta.file_size).sum();
        level.guards += 1;
        level.tables += tables.len();
        level.bytes += bytes;
        level.entries += tables.iter().map(|t| t.meta.entries).sum::<u64>();
        level.tombstones += tables.iter().map(|t| t.meta.tombstones).sum::<u64>();
        level.max_tables_in_guard = level.max_tables_in_guard.max(tables.len());
        if guard.is_some() {
            level.empty_guards += usize::from(tables.is_empty());
            level.largest_guard_bytes = level.largest_guard_bytes.max(bytes);
        }
    }
    let flush = *keyspace.counters.flush.lock();
    let compactions_by_reason =
        keyspace.counters.reasons.lock().iter().map(|(reason, n)| (reason.to_string(), *n)).collect();
    let kept = keyspace.options().history.most_kept().filter(|_| keyspace.is_historical());
    let beyond = kept.map_or(0, |kept| bytes_beyond(version, kept));
    KeyspaceStats {
        name: keyspace.name(),
        memtable_bytes: read_state.memtable.used_bytes() as u64,
        immutable_memtables: read_state.immutable.len(),
        table_bytes: version.bytes(),
        shared_bytes: shared_bytes(version),
        flush,
        levels,
        uncommitted_guards: version.uncommitted.len(),
        cursors: cursors.count,
        range_tombstones: read_state.ranges().map_or(0, |ranges| ranges.len()),
        compactions_by_reason,
        deleted_passed: keyspace.dead.passed.load(Ordering::Relaxed),
        dead_ranges: keyspace.dead.len(),
        waiting_bytes: if keyspace.is_historical() { 0 } else { stale_bytes(version) },
        expired_bytes: horizon.map_or(0, |horizon| expired_bytes(version, horizon)) + beyond,
        expired_entries: keyspace.counters.expired.load(Ordering::Relaxed),
        skipped_writes: keyspace.counters.skipped.load(Ordering::Relaxed),
        has_filter: keyspace.filter.is_some() && !keyspace.is_historical(),
        filter_dropped: keyspace.counters.filter_dropped.load(Ordering::Relaxed),
        filter_replaced: keyspace.counters.filter_replaced.load(Ordering::Relaxed),
        hash_log: keyspace.hash_log.as_ref().map(|log| log.stats()),
        history: keyspace.historical().map(|k| Box::new(keyspace_stats(db, k, HeldCursors::default()))),
    }
}

/// Approximate memory of a version: metadata and handles of its tables, keys and lists of its guards.
fn metadata_bytes(keyspace: &KeyspaceInner) -> u64 {
    let read_state = keyspace.read_state.load();
    let tables: usize =
        read_state.version.tables().map(|(_, t)| 400 + t.meta.smallest.len() + t.meta.largest.len()).sum();
    let guards: usize =
        read_state.version.levels.iter().flat_map(|l| &l.guards).map(|g| 120 + g.key.len()).sum();
    (tables + guards + read_state.ranges().map_or(0, |ranges| ranges.memory_bytes())) as u64
}

/// Bytes of the tables that other keyspaces have, too.
fn shared_bytes(version: &Version) -> u64 {
    let shared = version.tables().filter(|(_, table)| table.is_shared());
    shared.map(|(_, table)| table.meta.file_size).sum()
}

/// The damaged tables of some versions.
fn damaged_tables<'a>(versions: impl Iterator<Item = &'a Version>) -> Vec<Problem> {
    let problem = |table: &Arc<LiveTable>| {
        Some(Problem::of(&table::table_file_name(table.meta.number), &table.damage.first()?))
    };
    tables_of(versions).into_iter().filter_map(problem).collect()
}

fn value_stats(db: &DbInner, collections: IoStats) -> ValueStats {
    let map_bytes = db.tables.segments.map_bytes();
    let mut stats = ValueStats { collections, map_bytes, ..ValueStats::default() };
    for file in db.tables.segments.uses(db.oldest_log()) {
        match file.file {
            SegmentFile::Log(_) => stats.logs += 1,
            SegmentFile::Values(_) => stats.files += 1,
        }
        stats.bytes += file.file_bytes;
        stats.live_bytes += file.live_bytes;
        stats.dead_bytes += file.dead_bytes;
        stats.waiting_bytes += if file.pinned { file.file_bytes } else { 0 };
    }
    stats
}

pub(crate) fn stats(db: &DbInner) -> Stats {
    let inners = db.all_keyspaces();
    let now = db.env.monotonic();
    let snapshots = db.snapshots.look(now);
    let mut readers = snapshots;
    let with_cursors = |keyspace: &Arc<KeyspaceInner>| {
        let cursors = keyspace.readers.look(now);
        readers.add(cursors.count, cursors.since);
        keyspace_stats(db, keyspace, cursors)
    };
    let keyspaces: Vec<KeyspaceStats> =
        inners.iter().filter(|keyspace| !keyspace.is_historical()).map(with_cursors).collect();
    // Each lock is released before the next one is taken.
    let flush = *db.counters.flush.lock();
    let compaction = *db.counters.compaction.lock();
    let ingest = *db.counters.ingest.lock();
    let collections = *db.counters.collections.lock();
    let stalls = db.counters.stalls.lock().clone();
    let scrub = *db.scrub.stats.lock();
    let findings: Vec<Problem> = db.scrub.findings.lock().values().cloned().collect();
    let cache = db.tables.cache.cache();
    let classes = cache.stats();
    let tables = db.tables.cache.stats();
    let read_states: Vec<_> = inners.iter().map(|c| c.read_state.load_full()).collect();
    let memtables = read_states.iter().flat_map(|v| std::iter::once(&v.memtable).chain(&v.immutable));
    let error = db.state.lock().background_error().map(|e| e.to_string());
    let log = &db.logs.counters;
    let mut stats = Stats {
        flush,
        compaction,
        ingest,
        user_writes: db.counters.writes.load(Ordering::Relaxed),
        transactions: db.counters.transactions.load(Ordering::Relaxed),
        conflicts: db.counters.conflicts.load(Ordering::Relaxed),
        user_bytes: db.counters.user_bytes(),
        log: LogStats {
            bytes_written: log.bytes.load(Ordering::Relaxed),
            syncs: log.syncs.load(Ordering::Relaxed),
            segments: db.logs.closed.count() + 1,
            live_bytes: db.logs.closed.bytes() + log.current_len.load(Ordering::Relaxed),
        },
        values: value_stats(db, collections),
        manifest_bytes: db.counters.manifest_bytes.load(Ordering::Relaxed),
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
        latency: db.counters.latency.stats(),
        stalls,
        memory: MemoryStats {
            budget: db.options.memory_budget,
            memtables: memtables.map(|m| m.used_bytes() as u64).sum(),
            spare: db.spare_memory.bytes(),
            cache: cache.used_bytes(),
            metadata: inners.iter().map(|c| metadata_bytes(c)).sum(),
            pinned: db.retired.pinned_bytes(),
        },
        reserve: db.disk_reserve.stats(),
        snapshots: snapshots.count,
        cursors: readers.count - snapshots.count,
        oldest_reader_seconds: readers.since.map_or(0.0, |since| now.saturating_sub(since).as_secs_f64()),
        files_for_readers: db.kept_files.count(),
        last_seq: db.visible.newest(),
        background_error: match db.is_moment() {
            true => None,
            false => db.status.fatal.get().map(|e| e.to_string()).or(error),
        },
        scrub,
        damage: damaged_tables(read_states.iter().map(|v| &*v.version)).into_iter().chain(findings).collect(),
        keyspaces,
    };
    if stats.user_bytes > 0 {
        stats.write_amplification = stats.bytes_written() as f64 / stats.user_bytes as f64;
    }
    stats
}
