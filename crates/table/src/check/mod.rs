//! Checking a whole table, and reading what is intact in a damaged one.

mod checked_entries;
mod intact_blocks;
mod leaf_salvage;
mod row_salvage;
pub(crate) mod salvage;
pub(crate) mod survey;
pub(crate) mod verify;
mod verify_leaves;
mod verify_rows;
