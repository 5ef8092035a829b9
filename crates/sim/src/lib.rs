//! Tests of Cairn from outside: what a user may rely on, tried with random histories, crashes and kills.
//!
//! | module | what it shows |
//! | --- | --- |
//! | [`session`] | the store answers like a sorted map with versions, over every option set of [`sets`] |
//! | [`crash`] | after a power cut at any I/O operation, recovery yields a prefix of the commits with all synced ones (P1 to P3) |
//! | [`damage`] | whatever bytes change in the files, each answer is right or an error that names a file (P3) |
//! | [`fault`] | whichever operation fails, and however, no answer is wrong and nothing acknowledged is lost (P1 to P5) |
//! | [`extreme`] | the largest and smallest of everything, and hard limits of the process: held, or refused by name (P3, P5) |
//! | [`threads`] | with many threads every view is one state, and no read goes back (P6) |
//! | [`history`] | recorded histories of many threads have one order that explains all that was seen, and what crashes left (P1, P2, P6) |
//! | [`lifetime`] | however and whenever a database is closed, and opened again, nothing acknowledged is lost and nothing old touches it (P1 to P3) |
//! | [`kill`] | after `kill -9` on the real file system nothing acknowledged is lost |
//! | [`machine`] | failing system calls, full disks, limits and little memory on the real machine (P1, P4, P5) |
//!
//! [`soak`] runs all of them for as long as one likes.
//!
//! All of them draw from a seed, print it when they fail, and replay it with `cargo run --release -p sim`. They use only the
//! public library; what they compare it with is in [`model`] and [`crash::Ledger`].

pub mod crash;
pub mod damage;
pub mod data;
pub mod extreme;
pub mod fault;
pub mod finding;
pub mod history;
pub mod jobs;
pub mod kill;
pub mod lifetime;
pub mod machine;
pub mod model;
pub mod random;
pub mod session;
pub mod sets;
pub mod soak;
pub mod threads;

pub use finding::{Finding, Outcome};

/// Says how much a test has done where the test runner does not hide it: on the standard error itself. Where `CAIRN_COUNTS`
/// names a file, a line goes there too (what, a tab, how many): the table at the end of the continuous integration is made of them.
pub fn count(what: &str, many: u64) {
    use std::io::Write;
    // Nobody to tell is no failure.
    let _ = writeln!(std::io::stderr(), "{what}: {many}");
    if let Some(path) = std::env::var_os("CAIRN_COUNTS") {
        let file = std::fs::OpenOptions::new().create(true).append(true).open(&path);
        let written = file.and_then(|mut file| file.write_all(format!("{what}\t{many}\n").as_bytes()));
        written.unwrap_or_else(|e| panic!("{}: {e}", path.to_string_lossy()));
    }
}
