//! A whole database under a scheduler that selects the running thread at each lock, atomic and disk operation, and
//! can replay its choices. Built only with:
//!
//! ```text
//! RUSTFLAGS="--cfg shuttle" CARGO_TARGET_DIR=target/shuttle cargo test -p sim --test shuttle
//! ```
//!
//! With `--features planted-bugs` the same program proves that it can fail: first `-- --skip planted`, then `--
//! planted`.
//!
//! Each scenario runs under random schedules and under PCT schedules (few, well-placed preemptions). Half of them use
//! a fixed seed. `CAIRN_SHUTTLE_PERCENT` scales the number of schedules. A failing schedule is written to a file,
//! whose name is printed. To replay it, set `CAIRN_SCHEDULE` to that name and run only the test of the scenario.
//! (Threads, locks, time and randomness of the scenario come from the schedule, and the disk is simulated, so the run
//! is identical.)
#![cfg(shuttle)]

mod commits;
mod histories;
mod lifetimes;
#[cfg(feature = "planted-bugs")]
mod planted;
mod readers;
mod stage;
