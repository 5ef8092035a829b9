//! Cairn: an embedded, persistent, ordered key-value store for write-heavy state.
//!
//! A [`Database`] is a directory that holds any number of named maps of bytes to bytes, the [`Keyspace`]s. Writes go to one write-ahead
//! log and to memtables, which are flushed into a fragmented log-structured merge tree (PebblesDB, SOSP 2017) with low write
//! amplification. Reads wait for no writer and no background work.
//!
//! ```
//! use cairn::{Database, Durability, KeyspaceOptions};
//!
//! # fn main() -> cairn::Result<()> {
//! # let dir = tempfile::tempdir().unwrap();
//! # let path = dir.path().join("db");
//! let db = Database::open(path)?;
//! let users = db.keyspace("users", KeyspaceOptions::default())?;
//! users.put("alice", "1")?;
//! assert_eq!(users.get("alice")?.unwrap(), "1");
//!
//! let mut batch = db.batch();
//! batch.put(&users, "bob", "2");
//! batch.delete(&users, "alice");
//! db.write(batch, Durability::Sync)?;
//!
//! let snapshot = db.snapshot();
//! users.put("carol", "3")?;
//! assert_eq!(users.iter().count(), 2);
//! assert_eq!(snapshot.iter(&users).count(), 1);
//! db.close()?;
//! # Ok(())
//! # }
//! ```
//!
//! `docs/reliability.md` states what is guaranteed about crashes, full disks and damage; `ARCHITECTURE.md` describes how the layers fit
//! together.

#![warn(missing_debug_implementations)]
// Without events some variables and arms have no use.
#![cfg_attr(not(feature = "tracing"), allow(unused_variables, clippy::single_match))]
#![warn(clippy::missing_errors_doc)]

mod api;
mod background;
mod check;
mod copies;
mod disk;
mod events;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod ingest;
#[cfg(all(test, loom))]
mod loom_tests;
mod open;
mod parts;
mod read;
mod salvage;
mod seal;
mod state;
mod sync;
mod transact;
pub mod typed;
mod types;
mod wal;
mod write;

pub use api::{AutoRefresh, Builder, Database, Keyspace, Snapshot};
#[cfg(feature = "planted-bugs")]
pub use base::planted;
pub use base::{Error, ErrorKind, MergeOperator, Result, Seq, Slice, Time, limits};
pub use check::{check, check_in};
pub use copies::Backups;
pub use ingest::{Ingest, IngestOptions, Ingested, TableBuilder};
pub use read::{Cursor, CursorAt, Entries, EntryAt, Keys, Range, RangeAt, Version, VersionCursor, Versions};
pub use salvage::{Loss, SalvageReport, SalvagedFile, SalvagedKeyspace, salvage, salvage_in};
pub use state::Batch;
pub use transact::{
    Transaction, TransactionOptions, TransactionRange, TransactionRangeAt, TransactionVersions, WriteFuture,
};
pub use tree::{CompactionFilter, FilterDecision, FilterEntry};
pub use types::*;

/// The engine's interface to the operating system: files, directories, locks, clock. [`Database::open_in`], [`check_in`] and
/// [`salvage_in`] take any [`Env`](env::Env); the operating system itself is [`RealEnv`](env::RealEnv).
///
/// ```
/// use cairn::{Database, Options, env::RealEnv};
///
/// # fn main() -> cairn::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("db");
/// let db = Database::open_in(RealEnv::new(), path, Options::default())?;
/// # Ok(())
/// # }
/// ```
///
/// The macro `env!` of the standard library is not exported here:
///
/// ```compile_fail
/// let path = cairn::env!("PATH");
/// ```
pub mod env {
    #[doc(inline)]
    pub use ::env::{Env, FileLock, FileStamp, FrontSync, LOG_END, ReadFile, RealEnv, WriteFile};

    /// The simulated disk, for the tests of this repository.
    #[doc(hidden)]
    pub use ::env::{Fault, ForkGuard, Hook, OpInfo, OpKind, Phase, Repeat, Rng, SimEnv, Survival};
}

/// The Rust code of the README is a test.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// And that of the page on histories.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/history.md")]
struct HistoryPage;

/// And that of the page on expiry.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/expiry.md")]
struct ExpiryPage;

/// And that of the page on compaction filters.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/compaction-filters.md")]
struct CompactionFiltersPage;

/// And that of the page on merges.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/merge.md")]
struct MergePage;

/// And that of the page on checkpoints and backups.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/backup.md")]
struct BackupPage;

/// And that of the page on bulk loads.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/bulk-load.md")]
struct BulkLoadPage;

/// And that of the page on keyspaces.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/keyspaces.md")]
struct KeyspacesPage;

/// And that of the page on hash logs.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/hash-log.md")]
struct HashLogPage;

/// And that of the page on statistics, metrics and events.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/seeing-inside.md")]
struct SeeingInsidePage;

/// And that of the page on asynchronous programs.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/async.md")]
struct AsyncPage;

/// And that of the page on readers.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/readers.md")]
struct ReadersPage;

/// And that of the page on transactions.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/transactions.md")]
struct TransactionsPage;
