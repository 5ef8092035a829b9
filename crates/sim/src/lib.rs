//! Black-box tests of Cairn: random histories, crashes and kills verify the guarantees that users rely on.
//!
//! | module | what it shows |
//! | --- | --- |
//! | [`session`] | the store answers like a sorted map with versions, over every option set of [`sets`] |
//! | [`crash`] | after a power cut at any I/O operation, recovery yields a prefix of the commits with all synced ones (P1 to P3) |
//! | [`damage`] | after any change of bytes in the files, each answer is right or an error that names a file (P3) |
//! | [`fault`] | after any failure of any operation, no answer is wrong and no acknowledged write is lost (P1 to P5) |
//! | [`extreme`] | maximum and minimum sizes and low process limits work, or are rejected with an error that names them (P3, P5) |
//! | [`threads`] | with many threads every snapshot, iterator and cursor shows one state, and no read goes back (P6) |
//! | [`history`] | recorded histories of many threads have one order that explains all results, and the states after crashes (P1, P2, P6) |
//! | [`lifetime`] | however a database is closed and reopened, no acknowledged write is lost, and no old handle affects it (P1 to P3) |
//! | [`copies`] | checkpoints and backups have the content of their moment, also after power cuts at any operation of a copy (P1 to P3) |
//! | [`loads`] | bulk loads are there as a whole or not at all, above everything before them, also after power cuts at any operation of a load (P1 to P3) |
//! | [`readers`] | moments beside a writer show what was there for as long as they are held, and all that had reached the operating system (P1 to P3) |
//! | [`filters`] | a keyspace with a compaction filter answers like a map in which entries may be filtered, to readers beside compactions, too (P5, P6) |
//! | [`versions`] | keyspaces with history answer like a map of versions, through crashes, late writes and retention (P1 to P3) |
//! | [`kill`] | after `kill -9` on the real file system no acknowledged write is lost |
//! | [`machine`] | failing system calls, full disks, limits and little memory on the real machine (P1, P4, P5) |
//!
//! [`soak`] runs all of them for a given time.
//!
//! All suites derive their choices from a seed, print it when they fail, and replay it with `cargo run --release -p
//! sim`. They use only the public library. The models that they compare it with are in [`model`] and
//! [`crash::Ledger`].

mod alterations;
mod awaiting;
pub mod copies;
pub mod crash;
pub mod damage;
pub mod data;
pub mod extreme;
pub mod fault;
pub mod filters;
pub mod finding;
pub mod history;
pub mod jobs;
pub mod kill;
pub mod lifetime;
pub mod loads;
pub mod machine;
pub mod model;
pub mod ordering;
pub mod random;
pub mod readers;
pub mod session;
pub mod sets;
pub mod soak;
pub mod threads;
pub mod versions;

pub use finding::{Finding, Outcome};

/// Whether the suites run at their full length, as in the continuous integration: the variable `CAIRN_TESTS` is `full`.
/// Otherwise they run for seconds, each with all its kinds of faults.
pub fn is_full() -> bool {
    std::env::var_os("CAIRN_TESTS").is_some_and(|length| length == "full")
}

/// `full` at full length, otherwise `quick`.
pub fn scaled(full: u64, quick: u64) -> u64 {
    if is_full() { full } else { quick }
}

/// Reports how much a test has done, on standard error, which the test runner does not capture. If `CAIRN_COUNTS`
/// names a file, also appends a line to it (the name, a tab, the count): the summary table of the continuous
/// integration is made of these lines.
pub fn count(what: &str, many: u64) {
    use std::io::Write;
    // Ignore the error: standard error may be closed.
    let _ = writeln!(std::io::stderr(), "{what}: {many}");
    if let Some(path) = std::env::var_os("CAIRN_COUNTS") {
        let file = std::fs::OpenOptions::new().create(true).append(true).open(&path);
        let written = file.and_then(|mut file| file.write_all(format!("{what}\t{many}\n").as_bytes()));
        written.unwrap_or_else(|e| panic!("{}: {e}", path.to_string_lossy()));
    }
}
