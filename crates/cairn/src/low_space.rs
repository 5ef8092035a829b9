//! Deletes on a full disk: they free no space while their tombstones are only in memory.
//!
//! A flush moves tombstones into a table: tables that a range tombstone hides completely are then dropped, others are compacted. On a
//! disk with free space a memtable is flushed when it is full, which is soon enough. On a full one, where puts are refused, it does not
//! fill: so memtables with tombstones are sealed and flushed while the reserve is spent. The flush thread does this about once a second;
//! without background threads a refused put does it, at least a second after an attempt that freed nothing.

use crate::db_inner::DbInner;
use crate::db_state::{FlushedCounts, ImmutableMemtable, KeyspaceState};
use crate::keyspace::KeyspaceInner;
use crate::sync::Ordering;
use crate::writer::Writer;
use base::{Error, ErrorKind, Result};
use std::time::Duration;

/// Without background threads: the time from an attempt that freed nothing to the next one.
const PATIENCE: Duration = Duration::from_secs(1);

/// With this many immutable memtables in a keyspace, its active one is sealed only if it has a range deletion: flushed together they may
/// shrink to nothing, where the others alone do not fit.
const MAX_WAITING: usize = 16;

impl DbInner {
    /// Periodic work of the flush thread: removes an old recycled log and trims a long one; while the reserve is spent, makes it again if
    /// there is room, and otherwise seals memtables with tombstones.
    pub(crate) fn look_for_space(&self) {
        if self.check_place().is_err() {
            return;
        }
        self.recycled.forget_old();
        self.trim_log();
        if !self.disk_reserve.retake() {
            // If another thread holds the writer, the next group commit leader seals them.
            self.memtables_due.store(true, Ordering::Release);
            self.try_seal_due();
        }
    }

    /// Truncates the newest log, a recycled one, behind its end, if the rest is long compared with the database. Skipped while another
    /// thread writes.
    pub(crate) fn trim_log(&self) {
        if self.recycled.taken() > self.disk_reserve.longest_spare(self.log_bytes())
            && let Some(mut writer) = self.try_writer()
            && !self.ends()
        {
            writer.log.trim();
            self.recycled.note_trimmed();
        }
    }

    /// While the reserve is spent: refuses a flush that frees no log, deletes nothing, and takes more than half of the free space.
    /// Several keyspaces share a log: flushing only some of them frees nothing and would leave no room for deletes.
    pub(crate) fn check_last_room(
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
        let done = self.switch_deletes(&mut writer);
        if done {
            self.run_pending();
            if !self.disk_reserve.retake() {
                self.disk_reserve.look_at(self.env.monotonic() + PATIENCE);
            }
        }
        done
    }

    /// While the reserve is spent: seals every memtable with tombstones, so that it is flushed. Returns whether there was any.
    #[cold]
    pub(crate) fn switch_deletes(&self, writer: &mut Writer) -> bool {
        if !self.disk_reserve.take_deletes() {
            return false;
        }
        // A recorded delete may still be on its way into a memtable.
        self.visible.wait_for(writer.next_seq - 1);
        let (now, later): (Vec<_>, Vec<_>) = {
            let mut state = self.state.lock();
            let with_deletes = state.dirty().filter(|k| k.core.read_state.load().memtable.has_deletes());
            let (now, later) =
                with_deletes.map(|k| (may_switch(k), k.core.clone())).partition(|(may, _)| *may);
            // Counted as a job, so that a thread waiting for idleness waits for it.
            state.jobs += 1;
            (now, later)
        };
        let now: Vec<_> = now.into_iter().map(|(_, keyspace)| keyspace).collect();
        let switched = self.seal(writer, &now);
        if let Err(e) = &switched {
            tracing::warn!(error = %e, "a memtable was not switched");
        }
        if switched.is_err() || !later.is_empty() {
            self.disk_reserve.note_deletes();
        }
        self.state.lock().jobs -= 1;
        self.progress.notify_all();
        !now.is_empty()
    }
}

/// Whether the active memtable of a keyspace may be added to those that wait for a flush.
fn may_switch(keyspace: &KeyspaceState) -> bool {
    let memtable = &keyspace.core.read_state.load().memtable;
    let waiting: usize = keyspace.flushing.iter().map(|sealed| sealed.memtable.used_bytes()).sum();
    match memtable.ranges() {
        Some(_) => keyspace.flushing.len() < MAX_WAITING,
        // A memtable much smaller than the waiting ones does not help them.
        None => memtable.used_bytes() >= waiting / 8,
    }
}
