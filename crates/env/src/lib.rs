//! Files, directories, locks and clocks behind one trait, [`Env`].
//!
//! [`RealEnv`] is the operating system. [`SimEnv`] is a disk in memory that separates synced from unsynced state. It
//! can crash at any operation and return one of the disks that may survive ([`SimEnv::crash_clone`]), and it fails
//! operations by rule. All crates above this one access the operating system only through [`Env`].

mod checks;
mod mapped;
mod real;
mod rng;
mod sim;
mod stopwatch;
mod traits;
mod waiting_reads;

pub use mapped::ForkGuard;
pub use real::RealEnv;
pub use rng::Rng;
pub use sim::{Fault, Hook, OpInfo, OpKind, Phase, Repeat, SimEnv, Survival};
pub use stopwatch::Stopwatch;
pub use traits::{Env, FileLock, FileStamp, FrontSync, LOG_END, ReadFile, WriteFile};
pub use waiting_reads::WaitingReads;
