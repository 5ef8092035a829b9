//! Whether a database is open, closed, or stopped by an error; and what threads tell each other about work that is to be done, or is done.

use crate::sync::{AtomicBool, Condvar, Ordering};
use base::{Error, ErrorKind, Result};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// The status of a database, which every call checks.
pub(crate) struct Status {
    /// The directory of the database, for messages.
    dir: PathBuf,
    /// The error that ended all writing.
    pub fatal: OnceLock<Error>,
    /// Whether `fatal` is set or the database is closed: each write checks this.
    pub stopped: AtomicBool,
    pub closed: AtomicBool,
    /// Tells running jobs to stop.
    pub cancelled: std::sync::atomic::AtomicBool,
}

impl Status {
    pub(crate) fn new(dir: &Path) -> Status {
        Status {
            dir: dir.to_owned(),
            fatal: OnceLock::new(),
            stopped: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            cancelled: std::sync::atomic::AtomicBool::new(false),
        }
    }

    /// The error that ended all writing, or else that the database is closed.
    #[cold]
    pub(crate) fn stop_reason(&self) -> Error {
        match self.fatal.get() {
            Some(fatal) => fatal.clone(),
            None => self.closed_error(),
        }
    }

    /// Fails when writing has ended.
    #[inline]
    pub(crate) fn check_running(&self) -> Result<()> {
        match self.stopped.load(Ordering::Acquire) {
            true => Err(self.stop_reason()),
            false => Ok(()),
        }
    }

    /// Fails once closing has begun. For readers, for which closing does not wait: they end at their next step.
    #[inline]
    pub(crate) fn check_not_closed(&self) -> Result<()> {
        match self.closed.load(Ordering::Acquire) {
            true => Err(self.closed_error()),
            false => Ok(()),
        }
    }

    #[cold]
    pub(crate) fn closed_error(&self) -> Error {
        Error::new(ErrorKind::Closed, format!("{}: the database is closed", self.dir.display()))
    }

    /// The error of a read. After closing the files may be removed, which is not damage.
    #[cold]
    pub(crate) fn read_error(&self, error: Error) -> Error {
        self.check_not_closed().err().unwrap_or(error)
    }

    /// Whether writing has ended.
    #[inline]
    pub(crate) fn ends(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }
}

/// Condition variables of the lock on [`State`](super::State), and flags that readers set without a lock.
#[derive(Default)]
pub(crate) struct Signals {
    /// Signalled when there may be something to flush, or to compact.
    pub flush_work: Condvar,
    pub compact_work: Condvar,
    /// Signalled when a job has ended.
    pub progress: Condvar,
    /// Signalled when writing ends: for threads that pause after a failure.
    pub end: Condvar,
    /// Set when the read charges of a memtable have reached its price, or tombstones on a full disk are to be flushed: the next leader
    /// or the flush thread seals the memtables.
    pub memtables_due: Arc<AtomicBool>,
    /// The same for a guard or level 0 of some tree (`tree::ReadCharges`): a compaction is to be picked.
    pub trees_due: Arc<std::sync::atomic::AtomicBool>,
}

impl Signals {
    /// Wakes all threads that wait for anything. The caller holds the lock on the state.
    pub(crate) fn notify_all(&self) {
        for signal in [&self.flush_work, &self.compact_work, &self.progress, &self.end] {
            signal.notify_all();
        }
    }
}
