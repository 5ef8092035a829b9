//! The kill test: a child process writes to a database on the real file system with several threads, and reports each
//! write that returned. The parent kills it at a random moment, opens the database and verifies it.
//!
//! ```text
//!   parent --spawns--> child: opens the database, threads write (see [`script`]) --pipe: "thread 2 did write 17"--> parent
//!      |                 ^
//!      +--kill -9--------+    then: every reported write is there, at most one more per thread, no holes, batches whole
//! ```
//!
//! The next child continues in the same directory, so each recovery builds on earlier ones. A child dies in one of
//! three ways: some time after it starts to write; some time after it starts to open the database; or it kills itself
//! at a chosen operation on a chosen kind of file (see [`kill_point`]): during a flush, a compaction, a switch of the
//! manifest, a recovery.
//!
//! In some rounds a reader, another process, reads moments meanwhile ([`reader()`]), and is killed, too, before or after the database was opened again.
//!
//! Beside these threads, others move money between the accounts of a bank by transactions.
//!
//! A kill does not affect the page cache, so the file system does not matter. Most directories are in memory
//! (`/dev/shm`), where a child does many times as much work before it dies; one in eight is on the disk.

mod bank;
mod child;
pub mod kill_point;
mod parent;
mod reader;
mod record;
mod reports;
pub mod script;
mod verify;

pub use child::{ChildArgs, child};
pub use parent::{job, run};
pub use reader::{ReaderArgs, reader};
pub use reports::KillCounts;
