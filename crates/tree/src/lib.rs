//! The tree: a fragmented log-structured merge tree (PebblesDB, SOSP 2017), as pure data and plans.
//!
//! A [`Version`] is an immutable list of the tables of one keyspace: level 0 with flushed tables, and levels of guards,
//! each guard a stack of tables. A [`VersionEdit`] is the difference between two versions, and the [`Manifest`] is a
//! log of edits. [`Tree::pick`] is a function of a version and the options and returns a [`Plan`]; [`compact`] executes
//! a plan; [`Tree::install`] turns the result into an edit.
//!
//! What is absent: this crate starts no threads, never sleeps, reads no clock, and branches on no metric. The library
//! decides when things happen, and holds the locks.

mod adaptive_guards;
#[cfg(test)]
mod adaptive_guards_tests;
mod check;
mod compact;
#[cfg(test)]
mod compact_tests;
mod cursor;
mod damage;
mod edit;
mod fences;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod hash_guards;
mod idle_compaction;
#[cfg(test)]
mod idle_compaction_tests;
mod lookup;
mod low_space;
mod manifest;
#[cfg(test)]
mod manual_compaction_tests;
mod merge;
mod options;
mod pick;
#[cfg(test)]
mod pick_tests;
mod range_tombstones;
mod read_charge;
#[cfg(test)]
mod read_charge_tests;
mod salvage;
mod seqno_order;
#[cfg(test)]
mod seqno_order_tests;
mod sketch;
#[cfg(test)]
mod small_level_tests;
mod space_amp;
#[cfg(test)]
mod space_amp_tests;
#[cfg(test)]
mod test_stack;
mod tree;
mod trivial_move;
#[cfg(test)]
mod trivial_move_tests;
mod unreadable;
mod version;

pub use check::check_version;
pub use compact::{CompactionOutput, FlushOutput, JobContext, compact, flush, merge_flushed};
pub use cursor::{KeyRange, LevelCursor, TreeSource};
pub use edit::VersionEdit;
pub use hash_guards::{GuardHash, UncommittedGuards};
pub use lookup::{LookupKey, PendingLookup};
pub use manifest::{
    DatabaseEdit, KeyspaceCreated, KeyspaceState, LogClosed, Manifest, ManifestError, ManifestState,
    manifest_file_name, parse_manifest_file_name,
};
pub use merge::MergeCursor;
pub use options::TreeOptions;
pub use pick::{PickBlocked, Plan, Reason};
pub use read_charge::{ReadCharges, SkipCharge, charge, flush_price};
pub use salvage::SalvagedManifest;
pub use sketch::Sketch;
pub use tree::Tree;
pub use version::{Guard, Level, LiveTable, ObsoleteFiles, Version};
