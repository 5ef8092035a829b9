//! Tests on the real machine, with its limits and failures, which a simulated disk cannot show.
//!
//! | module | what happens to the database |
//! | --- | --- |
//! | [`strace`] | one system call fails: a sync, a write, a rename, an opening (traps 4, 5, 7, 32, 33) |
//! | [`full`] | the disk is full, and space is freed (traps 31, 32) |
//! | [`limits`] | files may not grow, or not be opened (traps 7, 33) |
//! | [`memory`] | there is little memory |
//! | [`processes`] | other processes try to open it (trap 34) |
//!
//! All tests run in child processes of the same program. Tests that the machine does not support are skipped with a
//! message ([`skip`]).

pub mod child;
mod command;
pub mod full;
pub mod limits;
pub(crate) mod load;
pub mod memory;
pub mod processes;
pub mod script;
pub mod strace;

pub use command::{Command, run};

use crate::finding::{Finding, Outcome, ensure};
use std::io::Write;
use std::process::Stdio;

/// Prints what is not tested and why, on standard error, which the test runner does not capture.
pub fn skip(what: &str, why: &str) {
    // Ignore the error: standard error may be closed.
    let _ = writeln!(std::io::stderr(), "SKIPPED: {what}: {why}");
}

/// The output of a program.
fn said(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim().to_owned()
}

/// Runs a program, which must succeed. Returns its output.
fn start(command: &mut std::process::Command) -> Outcome<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|e| Finding::new(format!("cannot start {name}: {e}")))?;
    ensure!(output.status.success(), "{name} ({}): {}", output.status, said(&output.stderr));
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
