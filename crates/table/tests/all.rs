//! The tests of the crate as one program: each module is a file beside this one.
#![allow(missing_docs)]

mod common;

mod damage;
mod faults;
mod format;
mod model;
mod nonblocking_read;
mod padding;
mod resident;
mod salvage;
mod shifted;
mod size_class;
mod times;
