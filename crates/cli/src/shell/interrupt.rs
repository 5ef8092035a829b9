//! Ctrl-C while a statement runs at the prompt: it ends the statement, and not the shell.
//!
//! Statements that go from record to record look between two of them ([`check`]). Others, such as `.compact`, run to their end. A second Ctrl-C ends
//! the process: the database takes that as it takes every end of a process, and the history is kept line by line.

use crate::failure::{Failure, Result};
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether a statement runs.
static RUNS: AtomicBool = AtomicBool::new(false);
/// Whether it is to end.
static ASKED: AtomicBool = AtomicBool::new(false);

/// What a shell ends with that was interrupted, by convention: 128 and the number of the signal.
const INTERRUPTED: i32 = 130;

/// From now on Ctrl-C does not end the process.
pub fn watch() -> Result<()> {
    ctrlc::set_handler(interrupt).map_err(|e| Failure::usage(format!("the prompt: {e}")))
}

/// What a signal does. At the prompt Ctrl-C is a key, so a signal comes from another process, and ends this one.
pub fn interrupt() {
    if !RUNS.load(Ordering::SeqCst) || ASKED.swap(true, Ordering::SeqCst) {
        std::process::exit(INTERRUPTED);
    }
}

/// Runs a statement, which Ctrl-C may end.
pub fn during<T>(statement: impl FnOnce() -> T) -> T {
    ASKED.store(false, Ordering::SeqCst);
    RUNS.store(true, Ordering::SeqCst);
    let done = statement();
    RUNS.store(false, Ordering::SeqCst);
    done
}

/// Fails when Ctrl-C was pressed since the statement began.
pub fn check() -> Result<()> {
    match ASKED.load(Ordering::Relaxed) && RUNS.load(Ordering::Relaxed) {
        true => Err(Failure::bad_input("interrupted")),
        false => Ok(()),
    }
}
