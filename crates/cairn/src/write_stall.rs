//! Memory and log space for writes: creates, grows and seals memtables, switches the log, keeps memory and logs within their limits, and
//! makes writers wait when flushes or compactions are behind. Called only by a holder of the writer while no batch has reserved memory,
//! nearly always by the leader of a commit.
//!
//! ```text
//!   idle (one for all) --- first write ---> 4 KiB --- full: copied ---> 64 KiB ---> 1 MiB ---> memtable_bytes
//!        ^                                    |                                                    | full
//!        +---- sealed: flush, log, memory ----+----------------------------------------------------+
//! ```
//!
//! Keyspaces with nothing in memory share one memtable without capacity. `memtable_size.rs` chooses the capacities; after sealing a
//! keyspace starts with the size that it had, so one with many writes never copies.

use crate::background::RETRY_PAUSE;
use crate::db_inner::DbInner;
use crate::db_state::{ImmutableMemtable, KeyspaceState, State};
use crate::keyspace::KeyspaceInner;
use crate::memtable_size::{allocate, capacity_for};
use crate::read_cost;
use crate::sync::Ordering;
use crate::writer::Writer;
use base::planted::{Bug, planted};
use base::{ErrorKind, Result};
use std::sync::Arc;
use std::time::Duration;

/// Maximum number of times that a delete waits for background work when the disk is full.
const ROUNDS_FOR_ROOM: u32 = 5;
/// Maximum wait for a running job, each time.
const LONGEST_JOB: Duration = Duration::from_secs(1);

/// Slowdowns below this are accumulated: shorter sleeps are not worthwhile.
const MIN_SLEEP: Duration = Duration::from_millis(1);
/// Maximum sleep of a single write because compaction is behind.
const LONGEST_SLEEP: Duration = Duration::from_millis(20);

impl DbInner {
    /// Makes a writer wait for its share of the slowdown.
    #[inline]
    pub(crate) fn throttle(&self, writer: &mut Writer, bytes: u64) {
        let slowdown = self.slowdown.load(Ordering::Relaxed) + writer.log_slowdown;
        if slowdown > 0 {
            self.pay(writer, slowdown * bytes / 1024);
        }
    }

    #[cold]
    fn pay(&self, writer: &mut Writer, nanos: u64) {
        writer.owed += nanos;
        if writer.owed >= MIN_SLEEP.as_nanos() as u64 {
            let before = self.env.monotonic();
            self.env.sleep(Duration::from_nanos(writer.owed).min(LONGEST_SLEEP));
            let slept = self.env.monotonic().saturating_sub(before);
            // A long sleep is not carried over: it reflects an earlier state.
            writer.owed =
                writer.owed.saturating_sub(slept.as_nanos() as u64).min(LONGEST_SLEEP.as_nanos() as u64);
            self.counters.note_slowdown(slept);
        }
    }

    /// Ensures that a keyspace's memtable has room for `need` more bytes: makes one, or a larger one, or seals a full one and makes the
    /// next. Waits while immutable memtables use up the budget.
    ///
    /// # Errors
    /// `Io` when memory cannot be allocated: nothing is lost, and the next write retries.
    pub(crate) fn make_room(
        &self,
        writer: &mut Writer,
        keyspace: &Arc<KeyspaceInner>,
        need: usize,
    ) -> Result<()> {
        // A writer that panicked may have left sequence numbers that never become visible.
        self.check_running()?;
        let full = keyspace.memtable_bytes;
        let old = keyspace.read_state.load().memtable.clone();
        let wanted = old.reserved() + need;
        if !old.is_empty() && old.capacity() < full && wanted <= full {
            let capacity = capacity_for(full, wanted.max(old.capacity() + 1));
            self.await_memory(capacity)?;
            self.await_inserts(writer);
            // If memory for that cannot be allocated, sealing and flushing frees some.
            if let Ok(grown) = old.grown(capacity) {
                self.state.lock().switch(keyspace.id, grown, None);
                // After the read state is published without the old memtable, as after a flush.
                keyspace.generation.advance();
                self.retired.add([&old].into_iter());
                return Ok(());
            }
        }
        let used = if old.is_empty() { keyspace.last_used.load(Ordering::Relaxed) } else { wanted };
        let capacity = capacity_for(full, used.min(full).max(need));
        self.await_memory(capacity)?;
        if old.capacity() > 0 {
            self.seal(writer, std::slice::from_ref(keyspace))?;
        }
        let memtable = allocate(capacity, need)?;
        self.state.lock().switch(keyspace.id, memtable, None);
        writer.note_memtable(keyspace);
        if self.is_inline() && !old.is_empty() {
            self.run_pending();
        }
        Ok(())
    }

    /// Waits until everything that has a sequence number is inserted.
    fn await_inserts(&self, writer: &Writer) {
        if !planted(Bug::SwitchUnderInsert) {
            self.visible.wait_for(writer.next_seq - 1);
        }
    }

    /// Keeps active memtables and logs within their limits. Only the leader calls this, when no member of its group has reserved memory.
    #[inline]
    pub(crate) fn keep_in_bounds(&self, writer: &mut Writer) -> Result<()> {
        let memtables_due = self.memtables_due.load(Ordering::Relaxed);
        if memtables_due || self.trees_due.load(Ordering::Relaxed) && self.is_inline() {
            if memtables_due {
                self.seal_due(writer);
            }
            if self.is_inline() {
                self.run_pending();
            }
            self.check_running()?;
        }
        match writer.active_bytes > self.write_budget() / 2 || writer.log.len() >= writer.check_log_at {
            true => self.flush_if_over_limit(writer),
            false => Ok(()),
        }
    }

    /// [`DbInner::seal_due`], unless the writer is busy: then the next group commit leader does it.
    pub(crate) fn try_seal_due(&self) {
        if self.memtables_due.load(Ordering::Relaxed)
            && let Some(mut writer) = self.try_writer_briefly()
        {
            self.seal_due(&mut writer);
        }
    }

    /// Seals the memtables whose read charges have reached their price, all at once; on a full disk also those with deletes. A memtable stays
    /// active while an older one of its keyspace waits for its flush, or the memory budget has no room for its successor. The next
    /// charge sets `memtables_due` again.
    #[cold]
    pub(crate) fn seal_due(&self, writer: &mut Writer) {
        self.switch_deletes(writer);
        let keyspaces: Vec<_> = {
            let mut state = self.state.lock();
            let mut successors = 0;
            let due = |k: &&KeyspaceState| {
                let is_due = k.flushing.is_empty() && read_cost::is_due(&k.core.read_state.load().memtable);
                let fits = is_due && !self.is_over_budget(&state, successors + k.core.memtable_bytes);
                successors += if fits { k.core.memtable_bytes } else { 0 };
                fits
            };
            let due: Vec<_> = state.dirty().filter(due).map(|k| k.core.clone()).collect();
            // `wait_idle` checks both under the lock.
            self.memtables_due.store(false, Ordering::Release);
            if due.is_empty() {
                return;
            }
            state.jobs += 1;
            due
        };
        if let Err(e) = self.seal(writer, &keyspaces) {
            tracing::warn!(error = %e, memtables = keyspaces.len(), "memtables were not sealed");
            // Retried when they are due again.
            for keyspace in &keyspaces {
                keyspace.read_state.load().memtable.charges().store(0, Ordering::Relaxed);
            }
        }
        self.state.lock().jobs -= 1;
        self.progress.notify_all();
    }

    /// Seals the nonempty memtables of some keyspaces and switches the log once, so that the old log can be removed when they are
    /// flushed.
    pub(crate) fn seal(&self, writer: &mut Writer, keyspaces: &[Arc<KeyspaceInner>]) -> Result<()> {
        self.check_process()?;
        self.check_running()?;
        // Older commits may still be inserting.
        self.await_inserts(writer);
        if keyspaces.iter().any(|keyspace| !keyspace.read_state.load().memtable.is_empty()) {
            self.rotate_log(writer)?;
        }
        let last_seq = writer.next_seq - 1;
        let mut state = self.state.lock();
        for keyspace in keyspaces {
            let old = keyspace.read_state.load().memtable.clone();
            if old.capacity() == 0 {
                continue;
            }
            writer.forget(keyspace);
            keyspace.last_used.store(old.reserved(), Ordering::Relaxed);
            let sealed = (!old.is_empty()).then(|| ImmutableMemtable::new(old, last_seq));
            state.switch(keyspace.id, self.idle.clone(), sealed);
        }
        self.flush_work.notify_one();
        Ok(())
    }

    /// Begins the next log. Everything that has a sequence number is inserted. The current log is established first, so that at most the
    /// newest log is not; usually the flush thread has already done so.
    fn rotate_log(&self, writer: &mut Writer) -> Result<()> {
        self.check_place()?;
        self.establish_log()?;
        let last_seq = writer.next_seq - 1;
        self.disk_reserve
            .retry_after_freeing(|| writer.log.rotate(last_seq))
            .map_err(|e| self.poison_on_sync_error(e))?;
        writer.check_log_at = 0;
        writer.check_holders_at = 0;
        Ok(())
    }

    /// Switches the log although no memtable is sealed, and lets the flush thread remove the logs that no keyspace needs.
    pub(crate) fn free_logs(&self, writer: &mut Writer) -> Result<()> {
        self.check_process()?;
        self.check_running()?;
        self.await_inserts(writer);
        self.rotate_log(writer)?;
        self.state.lock().logs_to_free = true;
        self.flush_work.notify_one();
        Ok(())
    }

    /// Seals memtables when all of them together, or the logs, have exceeded their limit.
    #[cold]
    fn flush_if_over_limit(&self, writer: &mut Writer) -> Result<()> {
        // A log, or the table made from it, must stay far below the system's limit for file lengths.
        let longest = self.env.max_file_len() / 2;
        if writer.active_bytes > self.write_budget() / 2 || writer.log.len() > longest {
            self.relieve_memory(writer)?;
        }
        self.bound_log(writer, self.options.log_cap.min(longest))
    }

    /// Seals the largest memtables, until a quarter of the budget of all is sealed: so that with very many small ones not every write
    /// seals one.
    fn relieve_memory(&self, writer: &mut Writer) -> Result<()> {
        let mut largest: Vec<_> = {
            let state = self.state.lock();
            state.dirty().map(|k| (k.core.reserved.load(Ordering::Relaxed), k.core.clone())).collect()
        };
        largest.retain(|(bytes, _)| *bytes > 0);
        largest.sort_by_key(|(bytes, keyspace)| (std::cmp::Reverse(*bytes), keyspace.id));
        let (mut bytes, enough) = (0, self.write_budget() / 8);
        let is_wanted = |(more, _): &&(u64, Arc<KeyspaceInner>)| {
            let wanted = bytes < enough;
            bytes += more;
            wanted
        };
        let count = largest.iter().take_while(is_wanted).count();
        largest.truncate(count);
        match largest.first() {
            None => self.free_logs(writer)?,
            Some((_, first)) => {
                self.await_memory(first.memtable_bytes)?;
                let keyspaces: Vec<_> = largest.into_iter().map(|(_, keyspace)| keyspace).collect();
                self.seal(writer, &keyspaces)?;
            }
        }
        if self.is_inline() {
            self.run_pending();
        }
        Ok(())
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
            for _ in 0..ROUNDS_FOR_ROOM {
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
        if self.is_inline() || self.stopped.load(Ordering::Acquire) {
            return false;
        }
        let patience = match (state.jobs, state.trouble()) {
            (0, None) => return false,
            (0, Some(_)) => RETRY_PAUSE,
            _ => LONGEST_JOB,
        };
        self.progress.wait_for(&mut state, patience);
        true
    }

    /// Whether the immutable memtables leave no room in the budget for another one of `capacity` bytes.
    pub(crate) fn is_over_budget(&self, state: &State, capacity: usize) -> bool {
        let limit = self.write_budget().saturating_sub(capacity as u64);
        let bytes = state.waiting_bytes;
        bytes > 0 && bytes + capacity as u64 > limit
    }

    /// Waits while the memory budget is exceeded.
    fn await_memory(&self, capacity: usize) -> Result<()> {
        let over = |state: &State| self.is_over_budget(state, capacity);
        let mut state = self.state.lock();
        if !over(&state) {
            return Ok(());
        }
        if self.is_inline() {
            drop(state);
            return self.await_memory_inline(over);
        }
        let before = self.env.monotonic();
        let mut result = Ok(());
        while over(&state) {
            if self.stopped.load(Ordering::Acquire) {
                result = Err(self.stop_reason());
                break;
            }
            if let Some(trouble) = &state.flush_trouble {
                result = Err(trouble.clone());
                break;
            }
            self.progress.wait(&mut state);
        }
        drop(state);
        self.counters.note_memtable_wait(self.env.monotonic().saturating_sub(before));
        result
    }

    /// Without background threads this thread flushes, unless another one already does.
    fn await_memory_inline(&self, over: impl Fn(&State) -> bool) -> Result<()> {
        loop {
            self.run_pending();
            self.check_running()?;
            let mut state = self.state.lock();
            if !over(&state) {
                return Ok(());
            }
            if let Some(trouble) = &state.flush_trouble {
                return Err(trouble.clone());
            }
            if state.jobs > 0 {
                self.progress.wait_for(&mut state, Duration::from_millis(10));
            }
        }
    }
}
