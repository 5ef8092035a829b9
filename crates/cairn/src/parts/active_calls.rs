//! Counts the calls of the application that use the directory of a database, so that closing can wait for them.
//!
//! Flushing, compacting, creating and dropping keyspaces write to the manifest and create and remove files, in the calling thread. Each
//! such call [begins](ActiveCalls::begin) here and is counted until its [`ActiveCall`] is dropped. [`ActiveCalls::end`], called by
//! closing, refuses later calls and waits for running ones. Afterwards only closing itself uses the directory, so the lock on it may be
//! released. (Writes are not counted: they hold the writer, which closing takes as well.)
//!
//! A call inside of another one of the same thread is counted a second time. If closing has begun in between, it is refused, and the
//! outer call ends with that error.

use crate::sync::{Condvar, Mutex};
use base::planted::{Bug, planted};

#[derive(Default)]
struct State {
    running: usize,
    ended: bool,
}

/// The counted calls of a database.
#[derive(Default)]
pub(crate) struct ActiveCalls {
    state: Mutex<State>,
    /// Signalled when the last running call has returned.
    all_returned: Condvar,
}

impl ActiveCalls {
    /// Counts a call until the returned value is dropped; `None` once closing has begun.
    pub(crate) fn begin(&self) -> Option<ActiveCall<'_>> {
        let mut state = self.state.lock();
        if state.ended {
            return None;
        }
        state.running += 1;
        Some(ActiveCall(self))
    }

    /// Refuses further calls, and waits for the running ones.
    pub(crate) fn end(&self) {
        let mut state = self.state.lock();
        state.ended = true;
        while state.running > 0 && !planted(Bug::CloseWithoutWaiting) {
            self.all_returned.wait(&mut state);
        }
    }
}

/// A running call.
#[must_use = "the call ends when this goes"]
pub(crate) struct ActiveCall<'a>(&'a ActiveCalls);

impl Drop for ActiveCall<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.running -= 1;
        if state.running == 0 {
            self.0.all_returned.notify_all();
        }
    }
}
