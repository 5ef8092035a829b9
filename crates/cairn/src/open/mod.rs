//! Opening: the manifest, replay of the logs into memtables and tables, and the [`DbInner`](crate::state::DbInner) made of them; and moments of a
//! database to which another process may write.
//!
//! Imports `types`, `wal`, `parts` and `state`. Absent: threads (the room `api` starts them), and changes of old files before the new ones
//! are durable.

mod assemble;
mod file_names;
mod flush_replayed;
mod follower;
mod insert_batches;
mod keep_logs;
mod recovery;
mod replay_values;
mod replayed;
mod start;

pub(crate) use file_names::{Files, LOCK_FILE_NAME, UNFINISHED};
pub(crate) use follower::Follower;
pub(crate) use recovery::{keyspace_options, no_database, open, unfinished};
