//! Versions: the tables of a keyspace, and the edits between them.

pub(crate) mod check;
pub(crate) mod damage;
pub(crate) mod edit;
pub(crate) mod fences;
pub(crate) mod level;
pub(crate) mod range_tombstones;
pub(crate) mod sketch;

pub(crate) use level::runs;
pub use level::{Guard, Level, LiveTable, ObsoleteFiles, Version};
