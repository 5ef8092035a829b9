//! Workloads, the engines they run on, and what is measured.
//!
//! ```text
//!   main: run, report, list, check             (the program; `cairn bench` uses the rest, too)
//!     |-- runner     engines take turns, in processes of their own    cgroup, machine
//!     |-- report     JSON lines to HTML and pictures
//!     |
//!   suite            which workloads follow each other on one database
//!     |-- workload   what there is
//!     |-- drive      threads and what they do        choose, timer, sampling, history
//!     |   |-- generate    keys, values, their order
//!     |   \-- process     what the kernel counts;  disk: which reads went to the disk
//!     |-- engine     what a store must be able to do;  engines: Cairn and its peers
//!     \-- record     the result; agreement: whether all engines hold the same
//! ```

pub mod agreement;
pub mod cgroup;
mod choose;
pub mod disk;
pub mod drive;
pub mod engine;
pub mod engines;
pub mod generate;
mod history;
pub mod machine;
pub mod process;
pub mod record;
#[cfg(feature = "report")]
pub mod report;
pub mod sampling;
pub mod session;
pub mod suite;
mod timer;
pub mod workload;
