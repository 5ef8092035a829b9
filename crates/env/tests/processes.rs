//! The tests that start child processes, as one program.

mod limits;
mod lock;
