//! The crash test: a random history on a simulated disk, cut at every I/O operation.
//!
//! ```text
//!   history --calls--> library --I/O--> disk --hook, before and after each write--> clone of what survives
//!      |                                                                                   |
//!      v                                                                                   v
//!   Ledger: all commits, what was acknowledged how  ------ expectation ------>  recover the clone and judge it
//! ```
//!
//! The library runs with all background work inline, so the order of I/O and every crash point follow from the seed. A
//! crash before or after an operation that only reads leaves the disk that its neighbours leave, so these are left out.

mod history;
pub mod hole;
mod ledger;
mod recover;
mod trials;

pub use history::{job, run};
pub use ledger::{Catalog, Cut, Expectation, Ledger, Recovered};
pub use trials::{Coverage, Focus};
