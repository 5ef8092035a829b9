//! Copies of a moment of an open database: checkpoints and backups; and databases made from backups. And clones of keyspaces.
//!
//! A copy of a database is what a power cut would leave at that moment if all that was written had been synced: an opening recovers it as it recovers a
//! database after a crash. So nothing is flushed for it, and nothing but a log is closed.
//!
//! Imports `types`, `wal`, `parts`, `state`, `disk` and `open`, and calls methods of `background` and `seal`. Absent: changes of what is in the tables and logs of a
//! database.

mod backup;
mod backups;
mod checkpoint;
mod clone_keyspace;
mod moment;
mod new_directory;

pub use backups::Backups;
pub(crate) use new_directory::check_apart;
