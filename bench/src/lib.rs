//! Workloads, the engines they run on, and what is measured.
//!
//! ```text
//!   program          run, report, list          (the program `cairn-bench`, in `program/`; not part of this library)
//!     |-- runner     engines take turns, in processes of their own: cgroup, machine
//!     |-- report     JSON lines to HTML and pictures
//!     |
//!   session          runs the workloads of a group on an open engine    (`cairn bench` starts here)
//!     |-- suite      which workloads follow each other on one database
//!     |-- workload   the workloads
//!     |-- drive      runs one workload: threads, the choice of keys, timing, samples, histories
//!     |   |-- generate    keys, values, their order
//!     |   \-- process     what the kernel counts;  disk: which reads went to the disk
//!     |-- engine     what a store must be able to do;  engines: Cairn and its peers
//!     \-- record     the result; agreement: whether all engines hold the same
//!
//!   model          predicts write and I/O amplification    (`cairn model`)
//! ```

pub mod agreement;
pub mod cgroup;
pub mod disk;
pub mod drive;
pub mod engine;
pub mod engines;
pub mod generate;
pub mod machine;
pub mod model;
pub mod papers;
pub mod process;
pub mod record;
#[cfg(feature = "report")]
pub mod report;
pub mod session;
pub mod suite;
pub mod workload;
