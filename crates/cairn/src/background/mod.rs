//! Background work: flushes, compactions, their installation, the threads that run them, and the calls that request them.
//!
//! Imports `parts` and `state`, and calls `disk`, `seal` and the scrub of `check`. Absent: commits. No job waits for the `Writer`:
//! background threads only try to take it; a requested flush waits for it, in the thread of the caller.

mod collect;
mod collect_hashed;
mod compact;
mod flush;
mod flush_hints;
mod install;
mod outcome;
mod requests;
mod threads;

pub(crate) use compact::RETRY_PAUSE;
pub(crate) use threads::Background;
