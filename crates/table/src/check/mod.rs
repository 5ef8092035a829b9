//! Checking a whole table, and reading what is intact in a damaged one.

pub(crate) mod salvage;
pub(crate) mod verify;
