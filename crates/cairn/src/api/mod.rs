//! The public handles: [`Database`], [`Keyspace`], [`Snapshot`] and what they collect and close. Each method delegates to a room below.
//!
//! Imports all other rooms but `salvage`. Absent: anything that another room would need.

mod batch;
mod close;
mod collect_stats;
mod database;
mod keyspace;
mod snapshot;

pub use database::Database;
pub use keyspace::Keyspace;
pub use snapshot::Snapshot;
