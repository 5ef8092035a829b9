//! The manifest: the log of edits.

pub(crate) mod manifest_file;
pub(crate) mod salvage;

pub use manifest_file::*;
