//! Writes: commits, group commit, and what they wait for: memory, the log's cap, compactions that are behind, space on a full disk.
//!
//! Imports `types`, `wal`, `parts`, `state`, `disk`, `seal` and `background`: without background threads a writer flushes and compacts
//! itself. Absent: reads.

mod admit;
mod append;
mod commit;
mod group;
mod log_bound;
mod memory;
mod write_stall;
