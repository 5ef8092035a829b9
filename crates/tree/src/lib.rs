//! The tree: a fragmented log-structured merge tree (PebblesDB, SOSP 2017), as pure data and plans.
//!
//! A [`Version`] is an immutable picture of one keyspace's tables: level 0 with flushed tables, and levels of guards, each
//! guard a stack of tables. A [`VersionEdit`] leads from one version to the next, and a log of edits is the
//! [`Manifest`]. [`pick`](Tree::pick) is a function of a version and the options and returns a [`Plan`];
//! [`compact`] runs a plan and returns what it wrote; [`Tree::install`] turns that into an edit.
//!
//! What is absent: this crate starts no threads, never sleeps, reads no clock, and branches on no metric. Whoever calls it
//! decides when things run, and holds the locks.

mod adaptive_guards;
#[cfg(test)]
mod adaptive_guards_tests;
mod unreadable;
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
mod lookup;
mod manifest;
mod merge;
#[cfg(test)]
mod trivial_move_tests;
mod trivial_move;
mod options;
mod seqno_order;
#[cfg(test)]
mod seqno_order_tests;
#[cfg(test)]
mod manual_compaction_tests;
#[cfg(test)]
mod read_cost_tests;
mod pick;
#[cfg(test)]
mod pick_tests;
mod range_tombstones;
mod idle_compaction;
#[cfg(test)]
mod idle_compaction_tests;
mod salvage;
mod tree;
mod sketch;
mod space_amp;
#[cfg(test)]
mod space_amp_tests;
mod low_space;
#[cfg(test)]
mod small_level_tests;
mod version;
mod sorted_view;
mod sorted_view_build;
mod sorted_view_cursor;
#[cfg(test)]
mod sorted_view_tests;

pub use check::check_version;
pub use compact::{Context, Flushed, Outcome, compact, flush, merge_flushed};
pub use cursor::{KeyRange, LevelCursor, SeekNotice, TreeSource};
pub use edit::VersionEdit;
pub use hash_guards::{Candidates, GuardHash};
pub use lookup::{LookUp, Sought};
pub use manifest::{
    DatabaseEdit, KeyspaceCreated, KeyspaceState, LogClosed, Manifest, ManifestError, State,
    manifest_file_name, parse_manifest_file_name,
};
pub use merge::MergeCursor;
pub use options::TreeOptions;
pub use pick::{Obstacle, Plan, Reason};
pub use salvage::SalvagedManifest;
pub use tree::Tree;
pub use sketch::Sketch;
pub use version::{COST_OF_JOB, Garbage, Guard, Level, TableFile, Version};
pub use sorted_view::View;
pub use sorted_view_build::{Built, build_view};
