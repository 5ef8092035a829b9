//! The public handles: [`Database`], [`Keyspace`], [`Snapshot`], what they collect, and closing. Each method delegates to a room below.
//!
//! Imports all rooms below but `wal`, `write` and `seal`, of which it calls methods of `DbInner`. Absent: what the calls do; the writing of batches, which may take a
//! transaction (`transact`).

mod batch;
mod builder;
mod close;
mod collect_stats;
mod database;
mod ends_and_sizes;
mod follow;
mod keyspace;
mod snapshot;

pub use builder::Builder;
pub use database::Database;
pub use follow::AutoRefresh;
pub use keyspace::Keyspace;
pub use snapshot::Snapshot;
