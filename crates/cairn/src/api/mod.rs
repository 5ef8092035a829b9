//! The public handles: [`Database`], [`Keyspace`], [`Snapshot`], what they collect, and closing. Each method delegates to a room below.
//!
//! Imports all rooms below but `wal`. Absent: anything that another room would need, except `salvage`, which writes its new database as any
//! user does.

mod batch;
mod close;
mod collect_stats;
mod database;
mod keyspace;
mod snapshot;

pub use database::Database;
pub use keyspace::Keyspace;
pub use snapshot::Snapshot;
