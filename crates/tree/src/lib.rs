//! The tree: a fragmented log-structured merge tree (PebblesDB, SOSP 2017), as pure data and plans.
//!
//! A [`Version`] is an immutable picture of one keyspace's tables: level 0 with flushed tables, and levels of guards, each
//! guard a stack of tables. A [`VersionEdit`] leads from one version to the next, and a log of edits is the
//! [`Manifest`]. [`pick`](Tree::pick) is a function of a version and the options and returns a [`Plan`];
//! [`compact`] runs a plan and returns what it wrote; [`Tree::install`] turns that into an edit.
//!
//! What is absent: this crate starts no threads, never sleeps, reads no clock, and branches on no metric. Whoever calls it
//! decides when things run, and holds the locks.

mod adaptive;
#[cfg(test)]
mod adaptive_tests;
mod around;
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
mod guards;
mod lookup;
mod manifest;
mod merge;
#[cfg(test)]
mod move_tests;
mod moves;
mod options;
mod order;
#[cfg(test)]
mod order_tests;
#[cfg(test)]
mod owed_tests;
#[cfg(test)]
mod paid_tests;
mod pick;
#[cfg(test)]
mod pick_tests;
mod ranges;
mod rest;
#[cfg(test)]
mod rest_tests;
mod salvage;
mod shape;
mod sketch;
mod space;
#[cfg(test)]
mod space_tests;
mod tight;
#[cfg(test)]
mod upper_tests;
mod version;
mod view;
mod view_build;
mod view_cursor;
#[cfg(test)]
mod view_tests;

pub use check::check_version;
pub use compact::{Context, Flushed, Outcome, compact, flush, merge_flushed};
pub use cursor::{KeyRange, LevelCursor, SeekNotice, TreeSource};
pub use edit::VersionEdit;
pub use guards::{Candidates, GuardHash};
pub use lookup::{LookUp, Sought};
pub use manifest::{
    DatabaseEdit, KeyspaceCreated, KeyspaceState, LogClosed, Manifest, ManifestError, State,
    manifest_file_name, parse_manifest_file_name,
};
pub use merge::MergeCursor;
pub use options::TreeOptions;
pub use pick::{Obstacle, Plan, Reason};
pub use salvage::SalvagedManifest;
pub use shape::Tree;
pub use sketch::Sketch;
pub use version::{COST_OF_JOB, Garbage, Guard, Level, TableFile, Version};
pub use view::View;
pub use view_build::{Built, build_view};
