//! The tests of the program as one test program: each module is a file beside this one.

mod common;

mod bench;
mod history;
mod load_dump;
mod model;
mod paths;
mod points;
mod shell;
mod top;
mod whole;
#[cfg(not(feature = "zstd"))]
mod without_zstd;
