//! The tree: a fragmented log-structured merge tree (PebblesDB, SOSP 2017), as pure data and plans.
//!
//! A [`Version`] is an immutable list of the tables of one keyspace: level 0 with flushed tables, and levels of guards,
//! each guard a stack of tables. A [`VersionEdit`] is the difference between two versions, and the [`Manifest`] is a
//! log of edits. [`Tree::pick`] is a function of a version and the options and returns a [`Plan`]; [`compact`] executes
//! a plan; [`Tree::install`] turns the result into an edit.
//!
//! What is absent: this crate starts no threads, never sleeps, reads no clock, and branches on no metric. The library
//! decides when things happen, and holds the locks.
//!
//! The rooms, each of which imports only those below it:
//!
//! ```text
//!   tree            the tree of a keyspace: its version, plans in progress, edits
//!   jobs            executes flushes and compactions
//!   compaction      picks compactions: a file for each policy
//!   read            lookups, cursors, read charges
//!   guards          which keys become guards
//!   manifest        the log of edits, and the state that they add up to
//!   version         tables, guards, levels, edits
//!   options
//! ```

mod compaction;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod guards;
mod jobs;
mod manifest;
mod options;
mod read;
#[cfg(test)]
mod test_support;
mod tree;
mod version;

pub use compaction::{PickBlocked, Plan, Reason, Space, bytes_beyond, expired_bytes, stale_bytes};
pub use jobs::{
    CompactionFilter, EvictedCuts, EvictedTables, EvictionSink, FilterDecision, FilterEntry, Filtered,
    FoldedCursor, IngestWriter, JobContext, JobFilter, JobOutput, Kept, StoredVersion, StoredVersions,
    compact, flush, merge_flushed,
};
pub use manifest::{
    DatabaseEdit, KeyspaceDescription, KeyspaceState, LogClosed, Manifest, ManifestError, ManifestReader,
    ManifestState, SalvagedManifest, manifest_file_name, parse_manifest_file_name,
};
pub use options::TreeOptions;
pub use read::{
    Estimate, KeyRange, LevelCursor, LookupKey, MergeCursor, PendingLookup, ReadCharges, SkipCharge,
    TreeSource, charge, flush_price,
};
pub use tree::Tree;
pub use version::{
    Damage, Guard, Level, LiveTable, ObsoleteFiles, Sketch, Version, VersionEdit, check_version, tables_of,
};
