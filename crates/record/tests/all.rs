//! The tests of the crate as one program: each module is a file beside this one.

mod format;
mod large;
mod segments;
