//! Deletes on a full disk: they free no space while their tombstones are only in memory.
//!
//! A flush moves tombstones into a table: tables that a range tombstone hides completely are then dropped, others are compacted. On a
//! disk with free space a memtable is flushed when it is full, which is soon enough. On a full one, where puts are refused, it does not
//! fill: so memtables with tombstones are sealed and flushed while the reserve is spent. The flush thread does this about once a second;
//! without background threads a refused put does it, at least a second after an attempt that freed nothing.

use crate::state::{DbInner, FlushedCounts, ImmutableMemtable, KeyspaceInner};
use crate::sync::Ordering;
use base::{Error, ErrorKind, Result};

impl DbInner {
    /// Periodic work of the flush thread: removes an old recycled log and trims a long one; while the reserve is spent, makes it again if
    /// there is room, and otherwise seals memtables with tombstones.
    pub(crate) fn look_for_space(&self) {
        if self.check_place().is_err() {
            return;
        }
        self.logs.recycled.forget_old();
        self.trim_log();
        if !self.disk_reserve.retake() {
            // If another thread holds the writer, the next group commit leader seals them.
            self.signals.memtables_due.store(true, Ordering::Release);
            self.try_seal_due();
        }
    }

    /// While the reserve is spent: refuses a flush that frees no log, deletes nothing, and takes more than half of the free space.
    /// Several keyspaces share a log: flushing only some of them frees nothing and would leave no room for deletes.
    pub(crate) fn check_flush_space(
        &self,
        keyspace: &KeyspaceInner,
        memtables: &[ImmutableMemtable],
    ) -> Result<()> {
        if memtables.iter().any(|sealed| sealed.memtable.has_deletes()) {
            return Ok(());
        }
        let gives_log_back = {
            let state = self.state.lock();
            let flushed = FlushedCounts::from([(keyspace.id, memtables.len())]);
            self.min_log(&state, &flushed) > self.min_log(&state, &FlushedCounts::default())
        };
        let bytes: u64 = memtables.iter().map(|sealed| sealed.memtable.user_bytes()).sum();
        match self.env.free_space(&self.dir) {
            Some(free) if !gives_log_back && bytes > free / 2 => {
                let message = format!(
                    "{}: {bytes} bytes wait to be flushed, which would give no log back, and {free} are free",
                    self.dir.display()
                );
                Err(Error::new(ErrorKind::NoSpace, message))
            }
            _ => Ok(()),
        }
    }
}
