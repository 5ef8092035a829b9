//! The tests of the crate as one program: each module is a file beside this one. `adapters` is a program of its own, because an engine
//! under test may wait until nothing happens in the whole process.

#[cfg(feature = "program")]
mod program;
#[cfg(feature = "report")]
mod report;
#[cfg(feature = "rocksdb")]
mod rocksdb_counts;
mod session;
