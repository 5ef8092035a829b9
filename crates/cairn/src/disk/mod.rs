//! Changes of what is on disk, other than by writing tables: edits of the manifest, establishing and syncing the log, removal of files that
//! nothing needs, creating, altering and dropping keyspaces.
//!
//! Imports `types`, `wal`, `parts` and `state`. Absent: choosing and running flushes and compactions.

mod alter;
mod establish_log;
mod keyspaces;
mod manifest;
mod obsolete;

pub(crate) use keyspaces::missing;
