//! Sealing memtables and switching the log.
//!
//! Imports `parts`, `state` and `disk`. Absent: flushing what is sealed, and waiting for flushes.

mod due;
mod seal_memtables;
