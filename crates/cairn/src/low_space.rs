//! A full disk, and what is deleted on it: a tombstone gives nothing back while it is in memory only.
//!
//! A flush takes tombstones to where compactions and readers of versions see them: tables that are hidden whole go then, the others are compacted. On a
//! disk with room a memtable is flushed when it is full, which is soon enough. On a full one, where puts are refused, nothing fills it: so
//! memtables with tombstones are switched and flushed while the reserve is spent. The flush thread asks for that about once a second; without
//! threads a put that is refused does it, after an attempt that gave nothing back no sooner than a second later.

use crate::db_inner::DbInner;
use crate::db_state::{FlushedCounts, ImmutableMemtable, KeyspaceState};
use crate::keyspace::KeyspaceInner;
use crate::sync::Ordering;
use crate::writer::Writer;
use base::{Error, ErrorKind, Result};
use std::time::Duration;

/// Without threads: how long after an attempt that gave nothing back the next one comes.
const PATIENCE: Duration = Duration::from_secs(1);

/// So many memtables of a keyspace may wait when one with a deleted range is switched all the same: flushed with them it may leave
/// nothing of what they have, where for them alone there is no room.
const MAX_WAITING: usize = 16;

impl DbInner {
    /// What the flush thread does now and then: a spare log that is old goes, and what is left of one that is large; and where the reserve is spent it is made again, if there is room;
    /// else what was deleted in memory is to be flushed.
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

    /// Cuts off what the newest log has behind its end from its time as a spare, when that is much beside all else that the database holds; not
    /// while another thread writes.
    pub(crate) fn trim_log(&self) {
        if self.recycled.taken() > self.disk_reserve.longest_spare(self.log_bytes())
            && let Some(mut writer) = self.try_writer()
            && !self.ends()
        {
            writer.log.trim();
            self.recycled.note_trimmed();
        }
    }

    /// While the reserve is spent: fails for a flush that gives no log back, deletes nothing, and takes more than half of what room there is. Several
    /// keyspaces share a log: to flush some of them, and not all, would leave no room for deletes.
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

    /// Lets a put go on although the reserve is spent, if there is room for it again; or says why not.
    #[cold]
    pub(crate) fn admit_on_full_disk(&self) -> Result<()> {
        match self.disk_reserve.admit() {
            Err(e) if e.kind() == ErrorKind::NoSpace && self.is_inline() && self.flush_deletes() => {
                self.disk_reserve.admit()
            }
            admitted => admitted,
        }
    }

    /// Without threads: flushes what was deleted and is in memory only, and compacts. Whether anything was done.
    fn flush_deletes(&self) -> bool {
        let now = self.env.monotonic();
        if self.check_process().is_err() || !self.disk_reserve.may_look(now) {
            return false;
        }
        // Who closes the database waits for the writer.
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

    /// While the reserve is spent: switches every memtable with tombstones, so that it is flushed. Whether there was any.
    #[cold]
    pub(crate) fn switch_deletes(&self, writer: &mut Writer) -> bool {
        if !self.disk_reserve.take_deletes() {
            return false;
        }
        // What was noted may still be on its way into a memtable.
        self.visible.wait_for(writer.next_seq - 1);
        let (now, later): (Vec<_>, Vec<_>) = {
            let mut state = self.state.lock();
            let with_deletes = state.dirty().filter(|k| k.core.read_state.load().memtable.has_deletes());
            let (now, later) =
                with_deletes.map(|k| (may_switch(k), k.core.clone())).partition(|(may, _)| *may);
            // A thread that waits until nothing is to be done sees that it is being done.
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

/// Whether one more memtable of a keyspace may wait to be flushed.
fn may_switch(keyspace: &KeyspaceState) -> bool {
    let memtable = &keyspace.core.read_state.load().memtable;
    let waiting: usize = keyspace.flushing.iter().map(|sealed| sealed.memtable.used_bytes()).sum();
    match memtable.ranges() {
        Some(_) => keyspace.flushing.len() < MAX_WAITING,
        // One that has little beside those that wait does not help them.
        None => memtable.used_bytes() >= waiting / 8,
    }
}
