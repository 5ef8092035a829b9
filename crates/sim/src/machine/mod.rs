//! What no simulated disk can show: the engine on this machine, with its limits and its failures.
//!
//! | module | what happens to the database |
//! | --- | --- |
//! | [`strace`] | one system call fails: a sync, a write, a rename, an opening (traps 4, 5, 7, 32, 33) |
//! | [`full`] | the disk is full, and then it is not (traps 31, 32) |
//! | [`limits`] | files may not grow, or not be opened (traps 7, 33) |
//! | [`memory`] | there is little memory |
//! | [`processes`] | other processes want it, too (trap 34) |
//!
//! All of it runs in child processes that this program starts as itself. What a machine does not offer is skipped, and said
//! ([`skip`]).

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

/// Says what is not tested and why, where the test runner does not hide it.
pub fn skip(what: &str, why: &str) {
    // Nobody to tell is no failure.
    let _ = writeln!(std::io::stderr(), "SKIPPED: {what}: {why}");
}

/// What a program printed.
fn said(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim().to_owned()
}

/// Runs a program to its end, which must be a good one. Returns what it printed.
fn start(command: &mut std::process::Command) -> Outcome<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|e| Finding::new(format!("cannot start {name}: {e}")))?;
    ensure!(output.status.success(), "{name} ({}): {}", output.status, said(&output.stderr));
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
