//! Sealing memtables and switching the log.
//!
//! Imports `parts` and `state`, and calls `disk` to establish the log. Absent: flushing what is sealed, and waiting for flushes.

mod due;
mod seal_memtables;
