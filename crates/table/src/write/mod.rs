//! Writing a table.

pub(crate) mod block_align;
pub(crate) mod writer;
