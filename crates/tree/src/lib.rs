//! The tree: a fragmented log-structured merge tree (PebblesDB, SOSP 2017), as pure data and plans.
//!
//! A [`Version`] is an immutable list of the tables of one keyspace: level 0 with flushed tables, and levels of guards,
//! each guard a stack of tables. A [`VersionEdit`] is the difference between two versions, and the [`Manifest`] is a
//! log of edits. [`Tree::pick`] is a function of a version and the options and returns a [`Plan`]; [`compact`] executes
//! a plan; [`Tree::install`] turns the result into an edit.
//!
//! What is absent: this crate starts no threads, never sleeps, reads no clock, and branches on no metric. The library
//! decides when things happen, and holds the locks.

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

pub use compaction::pick::{PickBlocked, Plan, Reason};
pub use guards::hash::{GuardHash, UncommittedGuards};
pub use jobs::compact::{CompactionOutput, FlushOutput, JobContext, compact, flush, merge_flushed};
pub use manifest::salvage::SalvagedManifest;
pub use manifest::{
    DatabaseEdit, KeyspaceCreated, KeyspaceState, LogClosed, Manifest, ManifestError, ManifestState,
    manifest_file_name, parse_manifest_file_name,
};
pub use options::TreeOptions;
pub use read::charge::{ReadCharges, SkipCharge, charge, flush_price};
pub use read::level_cursor::{KeyRange, LevelCursor, TreeSource};
pub use read::lookup::{LookupKey, PendingLookup};
pub use read::merge::MergeCursor;
pub use tree::Tree;
pub use version::check::check_version;
pub use version::edit::VersionEdit;
pub use version::sketch::Sketch;
pub use version::{Guard, Level, LiveTable, ObsoleteFiles, Version};
