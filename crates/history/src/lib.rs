//! Versions of keys by time, for keyspaces with history: how they are stored and ordered, and which are kept.
//!
//! A keyspace with history has two trees. The *primary tree* has the newest version of each key, as without history. The *historical tree*
//! has the older ones, which compactions of the primary tree drop, under keys that consist of key and time
//! ([`version_key`]). `docs/adr/0025-history.md` has the design.
//!
//! Source: Mneme (Theodorakis, University of Ioannina, 2015), chapter 4. Other than there, older versions are not merged into the historical
//! layer when they are dropped.
//!
//! [`Evictions`] makes the versions of the historical tree of what is dropped, [`VersionWalk`] walks over both trees at once, and
//! [`check_versions`] verifies that they fit together.
//!
//! This crate uses no files, clocks or threads.

mod check;
mod evictions;
mod filtered;
mod primary_versions;
mod retention;
mod stored;
#[cfg(test)]
mod test_entries;
pub mod version_key;
mod walk;

pub use check::{BothTrees, check_versions};
pub use evictions::Evictions;
pub use filtered::{HistoricalVersion, PrimaryVersion};
pub use primary_versions::PrimaryVersions;
pub use retention::{Met, Retention, RetentionSink};
pub use stored::{
    Ended, MAX_SUFFIX, PRIMARY_SUFFIX, primary_suffix, primary_times_of, put_historical, split_historical,
    split_primary, times_of,
};
pub use walk::{KeyVersion, Shown, VersionWalk};
