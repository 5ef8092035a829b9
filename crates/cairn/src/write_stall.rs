//! Room for writes: making, growing and sealing memtables, switching the log, keeping memory and logs within their bounds, and making
//! writers wait when flushing or compaction is behind. Only a holder of the writer calls this, when no batch has memory set aside:
//! nearly always the leader of a commit.
//!
//! ```text
//!   idle (one for all) --- first write ---> 4 KiB --- full: copied ---> 64 KiB ---> 1 MiB ---> memtable_bytes
//!        ^                                    |                                                    | full
//!        +---- sealed: flush, log, memory ----+----------------------------------------------------+
//! ```
//!
//! A keyspace without anything in memory shares one memtable with all others like it, which has no room. The capacities are a matter of
//! `memtable_size.rs`; a keyspace that was sealed begins at the size that it had, so one that is written to much never copies.

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

/// How often a delete waits for the background when the disk is full.
const ROUNDS_FOR_ROOM: u32 = 5;
/// How long it waits each time for a job that runs.
const LONGEST_JOB: Duration = Duration::from_secs(1);

/// A writer that owes less than this goes on: shorter sleeps are not worth it.
const MIN_SLEEP: Duration = Duration::from_millis(1);
/// No single write sleeps longer than this for compaction's sake.
const LONGEST_SLEEP: Duration = Duration::from_millis(20);

impl DbInner {
    /// Makes a writer wait for its share of the time that compaction is behind.
    #[inline]
    pub(crate) fn rate_limiter(&self, writer: &mut Writer, bytes: u64) {
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
            // A long debt is not carried along: it was the state of a moment ago.
            writer.owed =
                writer.owed.saturating_sub(slept.as_nanos() as u64).min(LONGEST_SLEEP.as_nanos() as u64);
            self.counters.note_slowdown(slept);
        }
    }

    /// Sees to it that a keyspace's memtable has room for `need` bytes more: makes one, or a larger one, or seals one that is full and
    /// makes the next. Waits while memtables that are to be flushed take all memory.
    ///
    /// # Errors
    /// `Io` where there is no memory for it: then nothing is lost, and the next write tries again.
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
            // Where there is no memory for that, the flush makes some.
            if let Ok(grown) = old.grown(capacity) {
                self.state.lock().switch(keyspace.id, grown, None);
                // After the view is without it, as when it was flushed.
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

    /// Waits until all that has a sequence number is inserted.
    fn await_inserts(&self, writer: &Writer) {
        if !planted(Bug::SwitchUnderInsert) {
            self.visible.wait_for(writer.next_seq - 1);
        }
    }

    /// Keeps active memtables and logs within their bounds. Only the leader calls this, when no member of its group has memory
    /// set aside.
    #[inline]
    pub(crate) fn keep_in_bounds(&self, writer: &mut Writer) -> Result<()> {
        if self.memtables_due.load(Ordering::Relaxed) {
            self.seal_due(writer);
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

    /// Seals a memtable whose read charges have reached its price; and on a full disk those with deletes. A memtable stays
    /// active while an older one of its keyspace waits for its flush, or the memory budget has no room for its successor, so no writer waits
    /// because of reads. The next charge sets `memtables_due` again.
    #[cold]
    pub(crate) fn seal_due(&self, writer: &mut Writer) {
        self.switch_deletes(writer);
        let keyspace = {
            let mut state = self.state.lock();
            let due = |k: &&KeyspaceState| {
                k.flushing.is_empty()
                    && read_cost::is_due(&k.core.read_state.load().memtable)
                    && !self.is_over_budget(&state, k.core.memtable_bytes)
            };
            let mut due = state.dirty().filter(due).map(|k| k.core.clone());
            let (first, more) = (due.next(), due.next().is_some());
            drop(due);
            // `wait_idle` looks at both under the lock.
            self.memtables_due.store(more, Ordering::Release);
            let Some(first) = first else { return };
            state.jobs += 1;
            first
        };
        if let Err(e) = self.seal(writer, std::slice::from_ref(&keyspace)) {
            tracing::warn!(error = %e, keyspace = keyspace.name, "a memtable was not sealed");
            // Tried again when it is due again.
            keyspace.read_state.load().memtable.charges().store(0, Ordering::Relaxed);
        }
        self.state.lock().jobs -= 1;
        self.progress.notify_all();
    }

    /// Hands the memtables of some keyspaces to the flush, those that have entries, and switches the log with them, once: so that the log
    /// can go when they are flushed.
    pub(crate) fn seal(&self, writer: &mut Writer, keyspaces: &[Arc<KeyspaceInner>]) -> Result<()> {
        self.check_process()?;
        self.check_running()?;
        // Some that committed before may still be inserting.
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

    /// Begins the next log. All that has a sequence number is inserted. The log before is established first, so that at most the newest
    /// one is not; in most cases the flush thread has done that.
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

    /// Starts the next log though nothing is to be flushed, and has those freed that no keyspace needs.
    pub(crate) fn free_logs(&self, writer: &mut Writer) -> Result<()> {
        self.check_process()?;
        self.check_running()?;
        self.await_inserts(writer);
        self.rotate_log(writer)?;
        self.state.lock().logs_to_free = true;
        self.flush_work.notify_one();
        Ok(())
    }

    /// Has memtables flushed when all of them together, or the logs, have grown past their share.
    #[cold]
    fn flush_if_over_limit(&self, writer: &mut Writer) -> Result<()> {
        // A log, or the table that is made of it, must not come near the length at which the system lets no file grow.
        let longest = self.env.max_file_len() / 2;
        if writer.active_bytes > self.write_budget() / 2 || writer.log.len() > longest {
            self.relieve_memory(writer)?;
        }
        self.bound_log(writer, self.options.log_cap.min(longest))
    }

    /// Seals the largest memtables, as many as have a quarter of what all of them may have: so that of very many small ones not each
    /// next write seals one.
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

    /// Does `work`, which may need room on the disk. What only deletes is tried again when the disk is too full for it because the
    /// background has all of the reserve at the moment.
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

    /// Waits until some job in the background ends, or is tried again; whether there is any.
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

    /// Whether memtables that are being flushed take so much that another one of `capacity` bytes would break the budget.
    pub(crate) fn is_over_budget(&self, state: &State, capacity: usize) -> bool {
        let limit = self.write_budget().saturating_sub(capacity as u64);
        let bytes = state.waiting_bytes;
        bytes > 0 && bytes + capacity as u64 > limit
    }

    /// Waits while that is so.
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

    /// Without threads this thread flushes, unless another one is at it.
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
