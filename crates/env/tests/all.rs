//! The tests of the crate as one program: each module is a file beside this one. Tests that start processes are in the program
//! `processes`: a child has copies of all descriptors until it runs its program, and so keeps the leases that `cut` tests.

mod conformance;
#[cfg(target_os = "linux")]
mod cut;
mod sim;
