//! Sealing: ends active memtables and switches the log, so that a flush can write the memtables to tables and remove the old log. Called
//! only by a holder of the writer while no batch has reserved memory.
//!
//! A memtable is sealed because it is full or the memory budget is used up (`memory.rs` in `write`), because it holds the oldest log
//! (`log_bound.rs` there), because the application asks for a flush, because reads have charged it its price, or because it has deletes
//! while the disk is full: they free no space before a flush moves their tombstones into a table.

use crate::state::{DbInner, ImmutableMemtable, KeyspaceInner, State, Writer};
use crate::sync::Ordering;
use base::Result;
use base::planted::{Bug, planted};
use memtable::Memtable;
use std::sync::Arc;

impl DbInner {
    /// Waits until everything that has a sequence number is inserted.
    pub(crate) fn await_inserts(&self, writer: &Writer) {
        if !planted(Bug::SwitchUnderInsert) {
            self.visible.wait_for(writer.next_seq - 1);
        }
    }

    /// Seals the nonempty memtables of some keyspaces and switches the log once, so that the old log can be removed when they are
    /// flushed.
    pub(crate) fn seal(&self, writer: &mut Writer, keyspaces: &[Arc<KeyspaceInner>]) -> Result<()> {
        self.check_process()?;
        self.status.check_running()?;
        // Older commits may still be inserting.
        self.await_inserts(writer);
        if keyspaces.iter().any(|keyspace| !keyspace.read_state.load().memtable.is_empty()) {
            self.switch_log(writer)?;
        }
        let last_seq = writer.next_seq - 1;
        let mut state = self.state.lock();
        for keyspace in keyspaces {
            let old = keyspace.read_state.load().memtable.clone();
            if old.capacity() == 0 {
                continue;
            }
            writer.forget(&old);
            keyspace.last_used.store(old.reserved(), Ordering::Relaxed);
            let sealed = (!old.is_empty()).then(|| ImmutableMemtable { memtable: old, last_seq });
            state.replace_memtable(keyspace.id, Memtable::empty(), sealed);
        }
        self.signals.flush_work.notify_one();
        Ok(())
    }

    /// Begins the next log. Everything that has a sequence number is inserted. The current log is established first, so that at most the
    /// newest log is not; usually the flush thread has already done so.
    fn switch_log(&self, writer: &mut Writer) -> Result<()> {
        self.check_place()?;
        self.establish_log()?;
        let last_seq = writer.next_seq - 1;
        self.disk_reserve
            .retry_after_freeing(|| writer.log.switch(last_seq))
            .map_err(|e| self.poison_on_sync_error(e))?;
        writer.check_log_at = 0;
        writer.check_holders_at = 0;
        Ok(())
    }

    /// Switches the log although no memtable is sealed, and lets the flush thread remove the logs that no keyspace needs.
    pub(crate) fn free_logs(&self, writer: &mut Writer) -> Result<()> {
        self.check_process()?;
        self.status.check_running()?;
        self.await_inserts(writer);
        self.switch_log(writer)?;
        self.state.lock().logs_to_free = true;
        self.signals.flush_work.notify_one();
        Ok(())
    }

    /// Whether the immutable memtables leave no room in the budget for another one of `capacity` bytes.
    pub(crate) fn is_over_budget(&self, state: &State, capacity: usize) -> bool {
        let limit = self.write_budget().saturating_sub(capacity as u64);
        let bytes = state.waiting_bytes.load(Ordering::Relaxed);
        bytes > 0 && bytes + capacity as u64 > limit
    }
}
