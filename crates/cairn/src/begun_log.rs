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

use crate::db_inner::DbInner;
use crate::sync::Mutex;
use crate::writer::PanicGuard;
use base::Result;
use base::planted::{Bug, planted};
use env::FileFront;
use std::sync::Arc;
use tree::DatabaseEdit;

/// The state of the newest log. No other lock is taken under its lock.
#[derive(Default)]
pub(crate) struct BegunLog(Mutex<Newest>);

#[derive(Default)]
struct Newest {
    /// Number of the newest established log; 0 when there is none.
    established: u64,
    /// The next log, if it is begun, with its header.
    begun: Option<(u64, Arc<dyn FileFront>)>,
}

impl BegunLog {
    /// Records that log `number` is written to from now on.
    pub(crate) fn begin(&self, number: u64, header: Arc<dyn FileFront>) {
        self.0.lock().begun = Some((number, header));
    }

    /// Records that log `number`, the newest, is established.
    pub(crate) fn note_established(&self, number: u64) {
        *self.0.lock() = Newest { established: number, begun: None };
    }

    /// The newest log that the manifest may name.
    pub(crate) fn established(&self) -> u64 {
        self.0.lock().established
    }

    /// Closes the file.
    pub(crate) fn forget(&self) {
        self.0.lock().begun = None;
    }

    fn begun(&self) -> Option<(u64, Arc<dyn FileFront>)> {
        self.0.lock().begun.clone()
    }
}

impl DbInner {
    /// Establishes the newest log, unless it is established. The caller must not hold the manifest. If the caller holds the writer, no
    /// other log is begun meanwhile.
    ///
    /// # Errors
    /// A failed sync ends all writing. Any other error, such as that of a full disk, leaves the log as it is, for the next call.
    pub(crate) fn establish_log(&self) -> Result<()> {
        if self.begun_log.begun().is_none() {
            return Ok(());
        }
        self.check_process()?;
        let mut manifest = self.manifest.lock();
        // On a panic, ends writing before the manifest is unlocked.
        let _watch = PanicGuard::new(self, "a thread that establishes a log");
        // Another thread may have established it, or have failed.
        let Some((number, header)) = self.begun_log.begun() else { return Ok(()) };
        if let Some(fatal) = self.fatal.get() {
            return Err(fatal.clone());
        }
        self.check_place()?;
        let synced = header.sync().and_then(|()| self.env.sync_dir(&self.dir));
        synced.map_err(|e| self.poison_on_sync_error(e.sync_failed()))?;
        let newest_log = if planted(Bug::NameLogLate) { number - 1 } else { number };
        let closed = self.closed_logs.synced();
        let mut edit = DatabaseEdit { newest_log, closed, ..DatabaseEdit::default() };
        self.log_edit(&mut manifest, &mut edit)?;
        self.begun_log.note_established(number);
        Ok(())
    }
}
