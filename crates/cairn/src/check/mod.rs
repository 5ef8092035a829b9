//! Verification of files and trees: of a closed database, of an open one, and scrubbing.
//!
//! Imports `types`, `wal`, `state`, and `open` for the names of files. Absent: changes on disk.

mod hash_logs;
mod offline;
mod report;
mod scrub;

pub(crate) use offline::check_open;
pub use offline::{check, check_in};
