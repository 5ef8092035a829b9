//! The public handles: [`Database`], [`Keyspace`], [`Snapshot`], what they collect, and closing. Each method delegates to a room below.
//!
//! Imports all rooms below but `wal`, `write` and `seal`, of which it calls methods of `DbInner`. No other room imports it but `salvage`,
//! which writes its new database as any user does. Absent: what the calls do.

mod batch;
mod builder;
mod close;
mod collect_stats;
mod database;
mod ends_and_sizes;
mod follow;
mod keyspace;
mod snapshot;
mod write_async;

pub use builder::Builder;
pub use database::Database;
pub use follow::AutoRefresh;
pub use keyspace::Keyspace;
pub use snapshot::Snapshot;
pub use write_async::WriteFuture;
