//! Writing a table.

pub(crate) mod block_align;
mod leaves;
mod output;
mod rows;
pub(crate) mod writer;
