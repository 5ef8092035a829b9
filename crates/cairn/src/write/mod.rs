//! Writes: commits, group commit, and what they wait for: memory, the cap of the log, compactions that are behind, space on a full disk.
//!
//! Imports `types`, `wal`, `parts`, `state` and `background`, and calls `disk` and `seal`, and a look-up of `read`: without background threads a writer flushes and
//! compacts itself. Absent: reads.

mod append;
mod commit;
mod group;
mod log_bound;
mod memory;
mod tasks;
mod times;
mod write_stall;
