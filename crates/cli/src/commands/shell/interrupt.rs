//! Ctrl-C during a statement at the prompt ends the statement, not the shell.
//!
//! Statements that iterate over records check for it between records ([`check`]). Others, such as `.compact`, run to
//! their end. A second Ctrl-C ends the process. That is safe for the database, and the history is saved after each
//! line.

use crate::failure::{Failure, Result};
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether a statement is running.
static RUNS: AtomicBool = AtomicBool::new(false);
/// Whether it should end.
static ASKED: AtomicBool = AtomicBool::new(false);

/// Exit code of an interrupted shell, by convention: 128 plus the signal number.
const INTERRUPTED: i32 = 130;

/// Installs the handler: from now on Ctrl-C does not end the process.
pub fn watch() -> Result<()> {
    ctrlc::set_handler(interrupt).map_err(|e| Failure::usage(format!("the prompt: {e}")))
}

/// The signal handler. At the prompt Ctrl-C is a key, so a signal there comes from another process, and ends this
/// one.
pub fn interrupt() {
    if !RUNS.load(Ordering::SeqCst) || ASKED.swap(true, Ordering::SeqCst) {
        std::process::exit(INTERRUPTED);
    }
}

/// Runs a statement that Ctrl-C may end.
pub fn during<T>(statement: impl FnOnce() -> T) -> T {
    ASKED.store(false, Ordering::SeqCst);
    RUNS.store(true, Ordering::SeqCst);
    let done = statement();
    RUNS.store(false, Ordering::SeqCst);
    done
}

/// Fails if Ctrl-C was pressed since the statement began.
pub fn check() -> Result<()> {
    match ASKED.load(Ordering::Relaxed) && RUNS.load(Ordering::Relaxed) {
        true => Err(Failure::bad_input("interrupted")),
        false => Ok(()),
    }
}
