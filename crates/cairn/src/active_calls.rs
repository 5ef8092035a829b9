//! Calls of the application that work on the directory of a database, counted, so that closing can wait for them.
//!
//! Flushing, compacting, creating and dropping keyspaces write to the manifest and create and remove files, in the thread that asks
//! for it. Each such call [begins](ActiveCalls::begin) here and is counted until its [`ActiveCall`] goes. [`ActiveCalls::end`], which closing calls,
//! refuses calls from then on and waits for those that are under way. After it nothing but closing itself touches the directory, so
//! the lock on it may go. (Writes need no entry here: they hold the writer, which closing takes as well.)
//!
//! A call that begins inside of another one of the same thread is counted a second time. When closing has begun in between, it is
//! refused, and the outer call ends with that error.

use crate::sync::{Condvar, Mutex};
use base::planted::{Bug, planted};

#[derive(Default)]
struct State {
    running: usize,
    ended: bool,
}

/// See the module.
#[derive(Default)]
pub(crate) struct ActiveCalls {
    state: Mutex<State>,
    /// The last call that was under way has returned.
    idle: Condvar,
}

impl ActiveCalls {
    /// Counts a call, until the value that is returned goes; `None` once closing has begun.
    pub(crate) fn begin(&self) -> Option<ActiveCall<'_>> {
        let mut state = self.state.lock();
        if state.ended {
            return None;
        }
        state.running += 1;
        Some(ActiveCall(self))
    }

    /// Lets no more calls begin, and waits for those that are under way.
    pub(crate) fn end(&self) {
        let mut state = self.state.lock();
        state.ended = true;
        while state.running > 0 && !planted(Bug::CloseWithoutWaiting) {
            self.idle.wait(&mut state);
        }
    }
}

/// A call that is under way.
#[must_use = "the call ends when this goes"]
pub(crate) struct ActiveCall<'a>(&'a ActiveCalls);

impl Drop for ActiveCall<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.running -= 1;
        if state.running == 0 {
            self.0.idle.notify_all();
        }
    }
}
