//! Memory for writes: creates and grows memtables, seals full ones, and keeps all of them within the memory budget. Called only by a
//! holder of the writer while no batch has reserved memory, nearly always by the leader of a commit.
//!
//! ```text
//!   empty (one for all) --- first write ---> 4 KiB --- full: copied ---> 64 KiB ---> 1 MiB ---> memtable_bytes
//!        ^                                     |                                                    | full
//!        +---- sealed: flush, log, memory -----+----------------------------------------------------+
//! ```
//!
//! Keyspaces with nothing in memory share one memtable without capacity. `memtable_limits.rs` chooses the capacities; after sealing a
//! keyspace starts with the size that it had, so one with many writes never copies.

use crate::parts::{Stall, allocate, capacity_for};
use crate::state::{Batch, DbInner, KeyspaceInner, Writer, Written, reserved_by};
use crate::sync::Ordering;
use base::{Error, Result};
use std::sync::Arc;

/// A log is closed when it has so many bytes: an index has places below [`hashlog::MAX_OFFSET`] only, and a batch may take 1 GiB.
const LONGEST_LOG: u64 = hashlog::MAX_OFFSET / 2;

impl DbInner {
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
        self.status.check_running()?;
        let full = keyspace.for_writes.memtable_bytes();
        let old = keyspace.read_state.load().memtable.clone();
        let wanted = old.reserved() + need;
        if !old.is_empty() && old.capacity() < full && wanted <= full {
            let capacity = capacity_for(full, wanted.max(old.capacity() + 1));
            self.await_memory(capacity)?;
            self.await_inserts(writer);
            // If memory for that cannot be allocated, sealing and flushing frees some.
            if let Ok(grown) = old.grown(capacity) {
                writer.active_bytes += grown.overhead() - old.overhead();
                self.state.lock().replace_memtable(keyspace.id, grown, None);
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
        let memtable = allocate(capacity, need, keyspace.hash_log.is_none(), &self.spare_memory)?;
        let overhead = memtable.overhead();
        self.state.lock().replace_memtable(keyspace.id, memtable, None);
        let others = writer.active_bytes + self.waiting_bytes.load(Ordering::Relaxed);
        if others + capacity as u64 + self.spare_memory.bytes() > self.write_budget() {
            self.spare_memory.clear();
        }
        writer.active_bytes += overhead;
        if !old.is_empty() {
            self.run_pending();
        }
        Ok(())
    }

    /// Keeps active memtables and logs within their limits. Only the leader calls this, when no member of its group has reserved memory.
    #[inline]
    pub(crate) fn keep_in_bounds(&self, writer: &mut Writer) -> Result<()> {
        let memtables_due = self.signals.memtables_due.load(Ordering::Relaxed);
        if memtables_due || self.signals.trees_due.load(Ordering::Relaxed) && self.is_inline() {
            if memtables_due {
                self.seal_due(writer);
            }
            self.run_pending();
            self.status.check_running()?;
        }
        match writer.active_bytes > self.write_budget() / 2 || writer.log.len() >= writer.check_log_at {
            true => self.flush_if_over_limit(writer),
            false => Ok(()),
        }
    }

    /// Seals memtables when all of them together, or the logs, have exceeded their limit.
    #[cold]
    fn flush_if_over_limit(&self, writer: &mut Writer) -> Result<()> {
        // A log, or the table made from it, must stay far below the system's limit for file lengths.
        let longest = self.env.max_file_len() / 2;
        if writer.active_bytes > self.write_budget() / 2 || writer.log.len() > longest.min(LONGEST_LOG) {
            self.relieve_memory(writer)?;
        }
        self.bound_log(writer, self.options.log_cap.min(longest))
    }

    /// Seals the largest memtables, until a quarter of the budget of all is sealed: so that with very many small ones not every write
    /// seals one.
    fn relieve_memory(&self, writer: &mut Writer) -> Result<()> {
        let mut largest: Vec<_> = {
            let state = self.state.lock();
            state
                .dirty()
                .map(|k| (reserved_by(&k.inner.read_state.load().memtable), k.inner.clone()))
                .collect()
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
                self.await_memory(first.for_writes.memtable_bytes())?;
                let keyspaces: Vec<_> = largest.into_iter().map(|(_, keyspace)| keyspace).collect();
                self.seal(writer, &keyspaces)?;
            }
        }
        self.run_pending();
        Ok(())
    }

    /// Waits while the memory budget is exceeded.
    fn await_memory(&self, capacity: usize) -> Result<()> {
        self.stall_until(Stall::Memtables, |state| !self.is_over_budget(state, capacity))
    }

    /// Reserves memory for a batch; if a memtable is full, returns that keyspace and the bytes needed.
    pub(super) fn reserve_batch(
        &self,
        writer: &mut Writer,
        batch: &Batch,
    ) -> Result<Option<(Arc<KeyspaceInner>, usize)>> {
        self.status.check_running()?;
        batch.keyspaces.iter().try_for_each(|written| written.keyspace.check_of(self.identity))?;
        // All or nothing: a reservation in one memtable would be lost if another one were switched.
        for Written { keyspace, need, .. } in &batch.keyspaces {
            if *need > memtable::MAX_CAPACITY {
                return Err(Error::invalid(format!(
                    "the batch needs {need} bytes of memory in one keyspace"
                )));
            }
            if !keyspace.read_state.load().memtable.has_room(*need) {
                return Ok(Some((keyspace.clone(), *need)));
            }
        }
        for Written { keyspace, need, .. } in &batch.keyspaces {
            let reserved = writer.reserve(&keyspace.read_state.load().memtable, *need);
            debug_assert!(reserved, "only the leader reserves, and there was room");
        }
        Ok(None)
    }
}
