//! Establishes logs: makes the loss of a new log detectable, outside of the thread that switches to it.
//!
//! A switch begins a log without a sync: records of `Os` and `Buffered` writes follow at once. It is *established* later, once: its
//! header is synced, then its directory, then the edit of the manifest that names it. From then on a log that is missing, empty or
//! without its header is damage.
//!
//! ```text
//!   switch --- begun: Os and Buffered writes --- established: Sync writes are acknowledged, the next switch is possible
//! ```
//!
//! [`DbInner::establish_log`] is called by the flush thread after each switch, before a `Sync` write or a drop of a keyspace, at closing,
//! and before the next switch, so that at most the newest log is not established and a gap in the numbers is damage. The manifest's
//! lock makes it one thread at a time; the others wait for it. A flush does not need the new log: all that its tables hold, and all
//! that its edit frees, is older.

use crate::state::{DbInner, PanicGuard, Writer};
use base::Result;
use base::planted::{Bug, planted};
use tree::DatabaseEdit;

impl DbInner {
    /// Establishes the newest log, unless it is established. The caller must not hold the manifest. If the caller holds the writer, no
    /// other log is begun meanwhile.
    ///
    /// # Errors
    /// A failed sync ends all writing. Any other error, such as that of a full disk, leaves the log as it is, for the next call.
    pub(crate) fn establish_log(&self) -> Result<()> {
        if self.logs.begun.begun().is_none() {
            return Ok(());
        }
        self.check_process()?;
        let mut manifest = self.manifest.lock();
        // On a panic, ends writing before the manifest is unlocked.
        let _watch = PanicGuard::new(self, "a thread that establishes a log");
        // Another thread may have established it, or have failed.
        let Some((number, sync_header)) = self.logs.begun.begun() else { return Ok(()) };
        if let Some(fatal) = self.status.fatal.get() {
            return Err(fatal.clone());
        }
        self.check_place()?;
        let synced = sync_header().and_then(|()| self.env.sync_dir(&self.dir));
        synced.map_err(|e| self.poison_on_sync_error(e.sync_failed()))?;
        let newest_log = if planted(Bug::NameLogLate) { number - 1 } else { number };
        let closed = self.logs.closed.synced();
        let mut edit = DatabaseEdit { newest_log, closed, ..DatabaseEdit::default() };
        self.log_edit(&mut manifest, &mut edit)?;
        self.logs.begun.note_established(number);
        Ok(())
    }

    /// Hands acknowledged, buffered log records to the operating system, if necessary with the space of the reserve.
    pub(crate) fn flush_log(&self, writer: &mut Writer) -> Result<()> {
        self.disk_reserve.retry_after_freeing(|| writer.log.flush()).map_err(|e| self.poison_on_sync_error(e))
    }

    /// Makes every acknowledged write durable. An error of the sync ends all writing.
    pub(crate) fn sync_log(&self, writer: &mut Writer) -> Result<()> {
        self.check_process()?;
        self.flush_log(writer)?;
        let established = self.establish_log();
        // On a full disk the manifest may not take the name of the log; the writes in it need no space to be durable.
        self.sync_flushed(writer)?;
        established
    }

    /// Syncs what has been handed to the operating system. An error ends all writing.
    pub(crate) fn sync_flushed(&self, writer: &mut Writer) -> Result<()> {
        match writer.log.sync() {
            Err(e) if planted(Bug::GoOnAfterFailedSync) => Err(e),
            synced => synced.map_err(|e| self.stop(&e)),
        }
    }

    /// Truncates the newest log, a recycled one, behind its end, if the rest is long compared with the database. Skipped while another
    /// thread writes.
    pub(crate) fn trim_log(&self) {
        if self.logs.recycled.taken() > self.disk_reserve.max_recycled_len(self.log_bytes())
            && let Some(mut writer) = self.try_writer()
            && !self.status.ends()
        {
            writer.log.trim();
            self.logs.recycled.note_trimmed();
        }
    }
}
