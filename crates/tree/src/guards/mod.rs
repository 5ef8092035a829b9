//! Which keys become guards: the two policies. [`GuardHash`] selects keys while they are flushed, as in the paper; [`AdaptiveGuards`]
//! takes them from the data while it is compacted, and removes guards that have become small.
//!
//! Imports `version`. What is absent: plans, and edits: `compaction` cuts the output of its plans at these keys, and
//! [`Tree::install`](crate::Tree::install) makes them guards.

mod adaptive;
#[cfg(test)]
mod adaptive_tests;
mod hash;

pub(crate) use adaptive::{AdaptiveGuards, is_too_large, split_keys};
pub(crate) use hash::GuardHash;
