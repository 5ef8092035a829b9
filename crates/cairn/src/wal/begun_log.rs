//! The newest log while it is begun, but not yet established: see `establish_log.rs`.

use crate::sync::Mutex;
use env::FrontSync;

/// The state of the newest log. No other lock is taken under its lock.
#[derive(Default)]
pub(crate) struct BegunLog(Mutex<Newest>);

#[derive(Default)]
struct Newest {
    /// Number of the newest established log; 0 when there is none.
    established: u64,
    /// The next log, if it is begun, with the sync of its header.
    begun: Option<(u64, FrontSync)>,
}

impl BegunLog {
    /// Records that log `number` is written to from now on.
    pub(crate) fn begin(&self, number: u64, sync_header: FrontSync) {
        self.0.lock().begun = Some((number, sync_header));
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

    pub(crate) fn begun(&self) -> Option<(u64, FrontSync)> {
        self.0.lock().begun.clone()
    }
}
