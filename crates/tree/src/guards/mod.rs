//! Which keys become guards.

pub(crate) mod adaptive;
#[cfg(test)]
pub(crate) mod adaptive_tests;
pub(crate) mod hash;
