//! The crash test: a random history on a simulated disk, interrupted at every I/O operation.
//!
//! ```text
//!   history --calls--> library --I/O--> disk --hook, before and after each write--> clone of what survives
//!      |                                                                                   |
//!      v                                                                                   v
//!   Ledger: all commits and acknowledgements  ------------- expectation ------>  recover the clone and judge it
//! ```
//!
//! The library runs all background work inline, so the order of I/O and every crash point follow from the seed. A
//! crash before or after a read-only operation leaves the same disk as its neighbours, so such operations are not
//! crash points.
//!
//! The files import each other in this order: `history` plays the calls, `trials` crashes at each operation, `recover` opens and judges a
//! surviving disk, `ledger` and `setup` are below. `hole` is a separate test: a hole between two logs.

mod history;
pub mod hole;
mod ledger;
mod recover;
mod setup;
mod trials;

pub use history::{job, run};
pub use ledger::{Catalog, Content, Cut, Expectation, Ledger, Recovered, Versions};
pub use setup::{Coverage, Focus};
