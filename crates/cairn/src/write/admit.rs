//! Admits puts: all of them, unless the disk is full and the reserve is spent.
//!
//! Without background threads a refused put flushes the tombstones that are only in memory, at least a second after an attempt that freed
//! nothing; with them the flush thread does so (`low_space.rs`).

use crate::state::DbInner;
use base::{ErrorKind, Result};
use std::time::Duration;

/// Without background threads: the time from an attempt that freed nothing to the next one.
const PATIENCE: Duration = Duration::from_secs(1);

impl DbInner {
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
