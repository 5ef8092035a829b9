//! Counters behind the statistics. The engine branches on none of them, except that `user_bytes` shows whether writers pause.

use crate::sync::Mutex;
use crate::types::{IoStats, Problem, ScrubStats, StallStats};
use std::collections::BTreeMap;
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

    pub(crate) fn stats(&self) -> IoStats {
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
    pub writes: AtomicU64,
    pub user_bytes: AtomicU64,
    pub manifest_bytes: AtomicU64,
    slowdowns: AtomicU64,
    slowdown_nanos: AtomicU64,
    memtable_waits: AtomicU64,
    memtable_wait_nanos: AtomicU64,
    log_waits: AtomicU64,
    log_wait_nanos: AtomicU64,
    longest_nanos: AtomicU64,
    /// Flushes and compactions of dropped keyspaces.
    pub dropped: Mutex<(IoStats, IoStats)>,
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
    pub(crate) fn note_dropped(&self, keyspace: &KeyspaceCounters) {
        let mut dropped = self.dropped.lock();
        add(&mut dropped.0, &keyspace.flush.stats());
        keyspace.compactions.iter().for_each(|jobs| add(&mut dropped.1, &jobs.stats()));
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

    pub(crate) fn stalls(&self) -> StallStats {
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

/// What a keyspace counts.
#[derive(Default)]
pub(crate) struct KeyspaceCounters {
    pub flush: JobCounter,
    /// By output level; a compaction that avoids an unreadable table counts for level 0.
    pub compactions: Vec<JobCounter>,
    pub reasons: Mutex<BTreeMap<tree::Reason, u64>>,
}

/// Progress of scrubbing, and damage of logs and manifest. Damage of a table is recorded in the table.
#[derive(Default)]
pub(crate) struct Scrub {
    pub rounds: AtomicU64,
    pub bytes: AtomicU64,
    pub findings: Mutex<BTreeMap<String, Problem>>,
}

impl Scrub {
    pub(crate) fn stats(&self) -> ScrubStats {
        ScrubStats { rounds: self.rounds.load(Ordering::Relaxed), bytes: self.bytes.load(Ordering::Relaxed) }
    }

    pub(crate) fn findings(&self) -> Vec<Problem> {
        self.findings.lock().values().cloned().collect()
    }
}

pub(crate) fn add(sum: &mut IoStats, more: &IoStats) {
    sum.jobs += more.jobs;
    sum.bytes_read += more.bytes_read;
    sum.bytes_written += more.bytes_written;
    sum.seconds += more.seconds;
}
