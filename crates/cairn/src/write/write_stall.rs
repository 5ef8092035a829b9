//! Write stalls: writers are slowed while compactions or collections are behind, memory for memtables runs short, or the log is near its cap
//! (ADR 24); and puts wait where an index in memory is full. And writes on a full disk: puts are refused once the reserve is spent, and deletes wait for background jobs that free space.
//!
//! Without background threads a refused put flushes the tombstones that are only in memory, at least a second after an attempt that freed
//! nothing; with them the flush thread does so about once a second (`DbInner::look_for_space`).

use crate::background::RETRY_PAUSE;
use crate::parts::Stall;
use crate::state::{DbInner, HashLog, KeyspaceInner, State, Writer};
use crate::sync::Ordering;
use base::{ErrorKind, Result};
use std::time::Duration;

/// Maximum number of times that a delete waits for background work when the disk is full.
const ROUNDS_FOR_SPACE: u32 = 5;
/// Maximum wait for a running job, each time.
const LONGEST_JOB: Duration = Duration::from_secs(1);
/// Without background threads: the time from an attempt that freed nothing to the next one.
const PATIENCE: Duration = Duration::from_secs(1);

/// Slowdowns below this are accumulated: shorter sleeps are not worthwhile.
const MIN_SLEEP: Duration = Duration::from_millis(1);
/// Wait for a write of 1 KiB when so much memory is used that only one more memtable fits, in nanoseconds.
const MEMORY_SLOWDOWN_NANOS: f64 = 64_000.0;
/// Maximum sleep of a single write.
const LONGEST_SLEEP: Duration = Duration::from_millis(20);

impl DbInner {
    /// Makes a writer wait for its share of the slowdown.
    #[inline]
    pub(crate) fn throttle(&self, writer: &mut Writer, bytes: u64) {
        let slowdown =
            self.slowdown.load(Ordering::Relaxed) + writer.log_slowdown + self.memory_slowdown(writer);
        if slowdown > 0 {
            self.delay(writer, slowdown * bytes / 1024);
        }
    }

    /// Nanoseconds that a writer waits per KiB because memory for memtables runs short. Writers slow down to the speed of flushes before
    /// they would have to wait for a whole flush. A flush that takes as long as the next memtable takes to fill does not slow them: full-sized
    /// memtables are a quarter of the budget at most, so the two use half of it. Of many small active memtables no more is counted.
    #[inline]
    fn memory_slowdown(&self, writer: &Writer) -> u64 {
        let waiting = self.waiting_bytes.load(Ordering::Relaxed);
        let budget = self.write_budget();
        let used = waiting + writer.active_bytes.min(budget / 4);
        match waiting > 0 && used > budget / 2 && !self.is_inline() {
            true => memory_slowdown(used, budget),
            false => 0,
        }
    }

    #[cold]
    fn delay(&self, writer: &mut Writer, nanos: u64) {
        writer.delay_nanos += nanos;
        if writer.delay_nanos >= MIN_SLEEP.as_nanos() as u64 {
            let before = self.env.monotonic();
            self.env.sleep(Duration::from_nanos(writer.delay_nanos).min(LONGEST_SLEEP));
            let slept = self.env.monotonic().saturating_sub(before);
            // A long sleep is not carried over: it reflects an earlier state.
            writer.delay_nanos = writer
                .delay_nanos
                .saturating_sub(slept.as_nanos() as u64)
                .min(LONGEST_SLEEP.as_nanos() as u64);
            self.counters.note_stall(Stall::Slowdown, slept);
        }
    }

    /// Waits until `done`, which flushes bring about. The caller holds the writer, which no flush needs.
    pub(super) fn stall_until(&self, stall: Stall, done: impl Fn(&State) -> bool) -> Result<()> {
        if done(&self.state.lock()) {
            return Ok(());
        }
        let before = self.env.monotonic();
        let waited = self.wait_for(|state| done(state), |state| state.flush_error.clone());
        self.counters.note_stall(stall, self.env.monotonic().saturating_sub(before));
        waited.and_then(|()| self.status.check_running())
    }

    /// Admits puts to a keyspace. While the index of one without order is full, they wait for collections.
    ///
    /// # Errors
    /// `NoMemory` if collections would not help; the error of a collection.
    #[inline]
    pub(crate) fn admit_to_index(&self, keyspace: &KeyspaceInner) -> Result<()> {
        match &keyspace.hash_log {
            Some(log) if log.is_full() => self.await_index(keyspace, log),
            _ => Ok(()),
        }
    }

    #[cold]
    fn await_index(&self, keyspace: &KeyspaceInner, log: &HashLog) -> Result<()> {
        keyspace.check_of(self.identity)?;
        // Without background threads this thread runs collections, and closing must wait for them.
        let _call = self.begin_call()?;
        let has_room = || {
            // Others may have given memory back.
            log.account(self.tables.cache.cache());
            !log.is_full() || keyspace.is_dropped()
        };
        if has_room() {
            return Ok(());
        }
        {
            // Readers may have ended for which collections had kept entries.
            let _manifest = self.manifest.lock();
            if !keyspace.is_dropped() {
                self.tables.share(log, self.oldest_reader(keyspace));
            }
        }
        self.update_slowdown(&self.state.lock());
        self.tables.segments.note_change();
        self.signals.compact_work.notify_all();
        let before = self.env.monotonic();
        let waited = self.wait_for(
            |_| has_room(),
            |state| match &state.collection_error {
                Some(error) => Some(error.clone()),
                None if state.collecting || state.index_pressure() > 0.0 && self.collection_is_due() => None,
                None => Some(keyspace.no_memory()),
            },
        );
        self.counters.note_stall(Stall::Index, self.env.monotonic().saturating_sub(before));
        self.update_slowdown(&self.state.lock());
        waited.and_then(|()| self.status.check_running())
    }

    /// Runs `work`, which may need disk space. Work that only deletes is retried when the disk is full because background jobs use all of
    /// the reserve at the moment.
    #[inline]
    pub(crate) fn retry_after_freeing<T>(
        &self,
        deletes: bool,
        mut work: impl FnMut() -> Result<T>,
    ) -> Result<T> {
        let mut done = work();
        if deletes {
            for _ in 0..ROUNDS_FOR_SPACE {
                match &done {
                    Err(e) if e.kind() == ErrorKind::NoSpace && self.await_background() => done = work(),
                    _ => break,
                }
            }
        }
        done
    }

    /// Waits until a background job ends or is retried; returns whether there is any.
    #[cold]
    fn await_background(&self) -> bool {
        let mut state = self.state.lock();
        if self.is_inline() || self.status.stopped.load(Ordering::Acquire) {
            return false;
        }
        let patience = match (state.jobs, state.background_error()) {
            (0, None) => return false,
            (0, Some(_)) => RETRY_PAUSE,
            _ => LONGEST_JOB,
        };
        self.signals.progress.wait_for(&mut state, patience);
        true
    }

    /// Admits a put, unless the reserve is spent.
    #[inline]
    pub(crate) fn admit(&self) -> Result<()> {
        match self.disk_reserve.is_spent() {
            false => Ok(()),
            // When writing has ended, return that error, not the full disk.
            true => self.status.check_running().and_then(|()| self.admit_on_full_disk()),
        }
    }

    /// Admits a put while the reserve is spent, if the reserve can be made again; otherwise returns the error.
    #[cold]
    pub(crate) fn admit_on_full_disk(&self) -> Result<()> {
        match self.disk_reserve.admit() {
            Err(e) if e.kind() == ErrorKind::NoSpace && self.is_inline() && self.flush_deletes() => {
                self.disk_reserve.admit()
            }
            admitted => admitted,
        }
    }

    /// Without background threads: flushes tombstones that are only in memory, and compacts. Returns whether anything was done.
    fn flush_deletes(&self) -> bool {
        let now = self.env.monotonic();
        if self.check_process().is_err() || !self.disk_reserve.may_look(now) {
            return false;
        }
        // Closing the database waits for the writer.
        let Some(mut writer) = self.try_writer_briefly() else { return false };
        let done = self.seal_deletes(&mut writer);
        if done {
            self.run_pending();
            if !self.disk_reserve.retake() {
                self.disk_reserve.look_at(self.env.monotonic() + PATIENCE);
            }
        }
        done
    }
}

/// [`DbInner::memory_slowdown`]: from half of the budget on, it grows with the square of what is used up to three quarters.
#[cold]
fn memory_slowdown(used: u64, budget: u64) -> u64 {
    let excess = (used.saturating_sub(budget / 2) as f64 / (budget as f64 / 4.0)).min(1.0);
    (MEMORY_SLOWDOWN_NANOS * excess * excess) as u64
}

#[cfg(test)]
mod tests {
    use super::memory_slowdown;

    #[test]
    fn writers_slow_down_between_half_and_three_quarters_of_the_budget() {
        let nanos = [0, 50, 60, 75, 100, 500].map(|used| memory_slowdown(used << 20, 100 << 20));
        assert_eq!(nanos, [0, 0, 10_240, 64_000, 64_000, 64_000]);
    }
}
