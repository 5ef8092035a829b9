//! Reads of a version, and what they cost.

pub(crate) mod charge;
pub(crate) mod level_cursor;
pub(crate) mod lookup;
pub(crate) mod merge;
#[cfg(test)]
pub(crate) mod small_level_tests;
