//! Room for writes: switching memtables and logs, keeping memory and logs within their bounds, and making writers wait when
//! flushing or compaction is behind. Only who holds the writer calls this, when nobody has memory set aside: nearly
//! always the leader of a commit.

use crate::background::RETRY_PAUSE;
use crate::core::{Core, Sealed, State};
use crate::keyspace::KeyspaceCore;
use crate::sync::Ordering;
use crate::writer::Writer;
use base::planted::{Bug, planted};
use base::{ErrorKind, Result, Seq};
use memtable::Memtable;
use std::sync::Arc;
use std::time::Duration;
use tree::DatabaseEdit;

/// How often a delete waits for the background when the disk is full.
const ROUNDS_FOR_ROOM: u32 = 5;
/// How long it waits each time for a job that runs.
const LONGEST_JOB: Duration = Duration::from_secs(1);

/// A writer that owes less than this goes on: shorter sleeps are not worth it.
const LEAST_SLEEP: Duration = Duration::from_millis(1);
/// No single write sleeps longer than this for compaction's sake.
const LONGEST_SLEEP: Duration = Duration::from_millis(20);

impl Core {
    /// Makes a writer wait for its share of the time that compaction is behind.
    #[inline]
    pub(crate) fn pace(&self, writer: &mut Writer, bytes: u64) {
        let slowdown = self.slowdown.load(Ordering::Relaxed);
        if slowdown > 0 {
            self.pay(writer, slowdown * bytes / 1024);
        }
    }

    #[cold]
    fn pay(&self, writer: &mut Writer, nanos: u64) {
        writer.owed += nanos;
        if writer.owed >= LEAST_SLEEP.as_nanos() as u64 {
            let before = self.env.monotonic();
            self.env.sleep(Duration::from_nanos(writer.owed).min(LONGEST_SLEEP));
            let slept = self.env.monotonic().saturating_sub(before);
            // A long debt is not carried along: it was the state of a moment ago.
            writer.owed =
                writer.owed.saturating_sub(slept.as_nanos() as u64).min(LONGEST_SLEEP.as_nanos() as u64);
            self.counters.note_slowdown(slept);
        }
    }

    /// Puts a new memtable with room for `need` bytes in front of a keyspace, hands the old one to the flush, and waits while
    /// all memtables together are over their budget. Only the leader calls this, between groups.
    pub(crate) fn make_room(
        &self,
        writer: &mut Writer,
        keyspace: &Arc<KeyspaceCore>,
        need: usize,
    ) -> Result<()> {
        self.await_memory(keyspace)?;
        self.switch_memtable(writer, keyspace, need)?;
        if self.is_inline() {
            self.run_pending();
        }
        Ok(())
    }

    /// Keeps active memtables and logs within their bounds. Only the leader calls this, when no member of its group has memory
    /// set aside.
    #[inline]
    pub(crate) fn keep_in_bounds(&self, writer: &mut Writer) -> Result<()> {
        if self.memtables_paid.load(Ordering::Relaxed) {
            self.switch_paid(writer);
            if self.is_inline() {
                self.run_pending();
            }
            self.check_running()?;
        }
        match writer.active_bytes > self.write_budget() / 2 || writer.log.len() >= writer.check_log_at {
            true => self.relieve(writer),
            false => Ok(()),
        }
    }

    /// Switches a keyspace's memtable and the log with it, so that the log can go when the memtable is flushed.
    pub(crate) fn switch_memtable(
        &self,
        writer: &mut Writer,
        keyspace: &Arc<KeyspaceCore>,
        need: usize,
    ) -> Result<()> {
        self.check_process()?;
        // A writer that panicked may have left sequence numbers that never become visible.
        self.check_running()?;
        // Whoever committed before may still be inserting into the old memtable.
        if !planted(Bug::SwitchUnderInsert) {
            self.visible.wait_for(writer.next_seq - 1);
        }
        let old = keyspace.view.load().memtable.clone();
        if !old.is_empty() {
            let last_seq = writer.next_seq - 1;
            self.rotate_log(writer, last_seq)?;
            writer.check_log_at = 0;
        }
        writer.forget(keyspace);
        let mut state = self.state.lock();
        if let Some(k) = state.keyspaces.get_mut(&keyspace.id) {
            if !old.is_empty() {
                k.flushing.push_back(Sealed { memtable: old, last_seq: writer.next_seq - 1 });
            }
            k.publish(Memtable::new(keyspace.memtable_bytes.max(need)));
        }
        self.flush_work.notify_one();
        Ok(())
    }

    /// Starts the next log. The manifest names it, durably, before anything is written to it: so a newest log that is missing or
    /// empty is damage, and not taken for a database without recent writes. That costs one small synced edit for each log.
    fn rotate_log(&self, writer: &mut Writer, last_seq: Seq) -> Result<()> {
        self.check_place()?;
        let name = |number| {
            if planted(Bug::NameLogLate) {
                return Ok(());
            }
            let closed = self.closed_logs.synced();
            let mut edit = DatabaseEdit { newest_log: number, closed, ..DatabaseEdit::default() };
            self.log_edit(&mut self.manifest.lock(), &mut edit)
        };
        self.reserve.insist(|| writer.log.rotate(last_seq, name)).map_err(|e| self.judge(e))
    }

    /// Flushes when all active memtables together, or the logs, have grown past their share: the largest memtable, and the
    /// one that holds the oldest log. A log that comes near the length at which the system lets no file grow is switched, too.
    #[cold]
    fn relieve(&self, writer: &mut Writer) -> Result<()> {
        let longest = self.env.max_file_len() / 2;
        if writer.active_bytes > self.write_budget() / 2 || writer.log.len() > longest {
            let largest = {
                let state = self.state.lock();
                let cores = state.keyspaces.values().map(|k| &k.core);
                cores.max_by_key(|core| core.reserved.load(Ordering::Relaxed)).cloned()
            };
            if let Some(keyspace) = largest {
                self.make_room(writer, &keyspace, 0)?;
            }
        }
        let log_bytes = self.closed_logs.bytes() + writer.log.len();
        // The table that they are flushed to must not become too long, either.
        let log_cap = self.options.log_cap.min(longest);
        if log_bytes > log_cap {
            let holder = {
                let state = self.state.lock();
                let oldest = state.keyspaces.values().filter_map(|k| Some((k.oldest_unflushed(0)?, k)));
                // Where the oldest is being flushed already, there is only waiting.
                oldest
                    .min_by_key(|(seq, _)| *seq)
                    .filter(|(_, k)| k.flushing.is_empty())
                    .map(|(_, k)| k.core.clone())
            };
            if let Some(keyspace) = holder {
                self.make_room(writer, &keyspace, 0)?;
            }
        }
        writer.check_log_at = writer.log.len() + (log_cap / 64).max(4 << 10);
        Ok(())
    }

    /// Does `work`, which may need room on the disk. What only deletes is tried again when the disk is too full for it because the
    /// background has all of the reserve at the moment.
    #[inline]
    pub(crate) fn insist<T>(&self, deletes: bool, mut work: impl FnMut() -> Result<T>) -> Result<T> {
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

    /// Whether memtables that are being flushed take so much that another one would break the budget.
    pub(crate) fn is_over_budget(&self, state: &State, keyspace: &KeyspaceCore) -> bool {
        let limit = self.write_budget().saturating_sub(keyspace.memtable_bytes as u64);
        let waiting = state.keyspaces.values().flat_map(|k| &k.flushing);
        let bytes: u64 = waiting.map(|s| s.memtable.used_bytes() as u64).sum();
        bytes > 0 && bytes + keyspace.memtable_bytes as u64 > limit
    }

    /// Waits while that is so.
    fn await_memory(&self, keyspace: &KeyspaceCore) -> Result<()> {
        let over = |state: &State| self.is_over_budget(state, keyspace);
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
