//! Counters behind the statistics. The engine branches on none of them, except that `user_bytes` shows whether writers pause.

use super::latency::Latency;
use crate::events;
use crate::sync::Mutex;
use crate::types::{IoStats, Problem, ScrubStats, StallStats};
use base::{ErrorKind, Result};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Counters of the whole database.
#[derive(Default)]
pub(crate) struct Counters {
    pub writes: AtomicU64,
    user_bytes: AtomicU64,
    pub transactions: AtomicU64,
    pub conflicts: AtomicU64,
    pub manifest_bytes: AtomicU64,
    /// Flushes and compactions of all keyspaces, dropped ones included.
    pub flush: Mutex<IoStats>,
    pub compaction: Mutex<IoStats>,
    pub ingest: Mutex<IoStats>,
    pub collections: Mutex<IoStats>,
    pub stalls: Mutex<StallStats>,
    pub latency: Latency,
}

/// Why a writer slept or waited.
#[derive(Clone, Copy)]
pub(crate) enum Stall {
    Slowdown,
    Memtables,
    Log,
    Index,
}

impl Counters {
    /// Only the leader of a commit calls this, so no other thread adds at the same time.
    #[inline]
    pub(crate) fn note_writes(&self, count: u64, user_bytes: u64) {
        self.writes.store(self.writes.load(Ordering::Relaxed) + count, Ordering::Relaxed);
        self.user_bytes.store(self.user_bytes.load(Ordering::Relaxed) + user_bytes, Ordering::Relaxed);
    }

    /// A commit that was compared with others has ended.
    pub(crate) fn note_transaction(&self, result: &Result<()>) {
        match result {
            Ok(()) => drop(self.transactions.fetch_add(1, Ordering::Relaxed)),
            Err(e) if e.kind() == ErrorKind::Conflict => drop(self.conflicts.fetch_add(1, Ordering::Relaxed)),
            Err(_) => {}
        }
    }

    /// Bytes of keys and values written since the database was opened.
    pub(crate) fn user_bytes(&self) -> u64 {
        self.user_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn note_stall(&self, stall: Stall, time: Duration) {
        let mut stalls = self.stalls.lock();
        let stats = &mut *stalls;
        let (count, seconds, reason) = match stall {
            Stall::Slowdown => (
                &mut stats.slowdowns,
                &mut stats.slowdown_seconds,
                "flushes, compactions or collections are behind, or the log is near its cap",
            ),
            Stall::Memtables => (
                &mut stats.memtable_waits,
                &mut stats.memtable_wait_seconds,
                "all memtable memory is waiting to be flushed",
            ),
            Stall::Log => (
                &mut stats.log_waits,
                &mut stats.log_wait_seconds,
                "the log has reached its cap, and waits for a flush",
            ),
            Stall::Index => (
                &mut stats.index_waits,
                &mut stats.index_wait_seconds,
                "the index of a keyspace without order has taken its part of the memory budget, and waits for a collection",
            ),
        };
        *count += 1;
        *seconds += time.as_secs_f64();
        stats.longest_seconds = stats.longest_seconds.max(time.as_secs_f64());
        stats.last_reason = Some(reason.to_owned());
        drop(stalls);
        match stall {
            // Many, and short.
            Stall::Slowdown => events::trace!(reason, seconds = time.as_secs_f64(), "writes are slowed"),
            _ => events::info!(reason, seconds = time.as_secs_f64(), "a write has waited"),
        }
    }
}

/// What a keyspace counts.
#[derive(Default)]
pub(crate) struct KeyspaceCounters {
    pub flush: Mutex<IoStats>,
    /// By output level; a compaction that avoids an unreadable table counts for level 0.
    pub compactions: Mutex<Vec<IoStats>>,
    pub reasons: Mutex<BTreeMap<tree::Reason, u64>>,
    /// Entries that flushes and compactions have dropped, or replaced by tombstones, because they had expired.
    pub expired: AtomicU64,
    /// Late writes that were left out.
    pub skipped: AtomicU64,
    /// Entries that the compaction filter has dropped, and those that it has replaced.
    pub filter_dropped: AtomicU64,
    pub filter_replaced: AtomicU64,
}

/// Progress of scrubbing, and damage of logs and manifest. Damage of a table is recorded in the table.
#[derive(Default)]
pub(crate) struct Scrub {
    pub stats: Mutex<ScrubStats>,
    pub findings: Mutex<BTreeMap<String, Problem>>,
}
