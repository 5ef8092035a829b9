//! Background work: flushes, compactions, their installation, the threads that run them, and the calls that request them.
//!
//! Imports `parts` and `state`, and calls `disk`, `seal` and the scrub of `check`. Absent: commits. A job never waits for a writer: threads
//! only try to take it, and a requested flush takes it to seal.

mod compact;
mod flush;
mod install;
mod low_space;
mod requests;
mod threads;

pub(crate) use compact::RETRY_PAUSE;
pub(crate) use threads::Background;
