//! Executes flushes and compactions.

pub(crate) mod compact;
#[cfg(test)]
pub(crate) mod compact_tests;
