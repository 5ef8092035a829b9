//! A whole database under a scheduler that decides at every lock, atomic and disk operation which thread goes on, and replays what
//! it decided. Built only for that:
//!
//! ```text
//! RUSTFLAGS="--cfg shuttle" CARGO_TARGET_DIR=target/shuttle cargo test -p sim --test shuttle
//! ```
//!
//! With `--features planted-bugs` the same program proves that it can fail: first `-- --skip planted`, then `-- planted`.
//!
//! Each scenario runs under random schedules and under those of PCT (few, well-placed preemptions), half of them from a seed that is
//! the same in every run. `CAIRN_SHUTTLE_PERCENT` says how many schedules, of the usual number. A schedule that fails is written to a
//! file, whose name is printed; with that name in `CAIRN_SCHEDULE`, and the scenario's test alone, it runs again. (Threads, locks,
//! time and randomness of the scenario come from the schedule, and the disk is simulated, so it runs exactly as before.)
#![cfg(shuttle)]

mod commits;
mod histories;
mod lifetimes;
#[cfg(feature = "planted-bugs")]
mod planted;
mod readers;
mod stage;
