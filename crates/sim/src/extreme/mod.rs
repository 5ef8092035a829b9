//! Extremes: many keyspaces, long keys and values, small budgets, and low limits of the process.
//!
//! | module | |
//! | --- | --- |
//! | [`case`] | the cases, by name |
//! | [`sizes`] | the limits of [`cairn::limits`] and of the options: each is supported, and larger values are rejected |
//! | [`options`] | every option at its lower bound, at its upper bound, and beyond |
//! | [`limited`] | a small workload under `RLIMIT_AS`, `RLIMIT_NOFILE`, `RLIMIT_FSIZE` or `RLIMIT_NPROC` |
//!
//! Each case runs in a child process, which must exit normally, with right answers and errors of documented kinds. An
//! abort, a signal, a panic or a hang is a finding. Data acknowledged under a limit must exist after the limit is
//! removed.

pub mod case;
pub mod limited;
pub mod options;
pub mod sizes;

use crate::finding::{Finding, Outcome, ensure};
use crate::jobs::Job;
use case::Case;
use clap::Args;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// A file system in memory. If there is none, the directory for temporary files is used.
const MEMORY: &str = "/dev/shm";

/// User ids from this number on have no processes. A limit on threads applies to all processes of a user.
const USERS: u32 = 61_000;

/// The arguments that the parent passes to the child.
#[derive(Args)]
pub struct ExtremeArgs {
    /// Directory of the database.
    #[arg(long)]
    pub dir: PathBuf,
    /// Seed of options and data.
    #[arg(long)]
    pub seed: u64,
    /// The case.
    #[arg(long)]
    pub case: Case,
}

/// The child. Prints the number of calls that failed.
pub fn child(args: &ExtremeArgs) -> Outcome {
    let (dir, seed) = (args.dir.as_path(), args.seed);
    let refused = match args.case {
        Case::Keyspaces(many) => sizes::keyspaces(dir, many)?,
        Case::Keys => sizes::keys(dir, seed)?,
        Case::Value { mib, budget } => sizes::value(dir, seed, mib << 20, budget << 20)?,
        Case::Batch => sizes::batch(dir, seed)?,
        Case::Names => sizes::names(dir)?,
        Case::Options(bounds) => options::run(dir, seed, bounds)?,
        Case::Limit(limit, level) => limited::run(dir, seed, limit, level)?,
    };
    println!("{refused}");
    Ok(())
}

/// Runs a case in a child process. Returns the number of calls that failed.
pub fn run(program: &Path, seed: u64, case: Case) -> Outcome<u64> {
    let memory = if case.is_large() { None } else { TempDir::new_in(MEMORY).ok() };
    let scratch = memory.map_or_else(TempDir::new, Ok);
    let scratch = scratch.map_err(|e| Finding::new(format!("no temporary directory: {e}")))?;
    let mut command = Command::new(program);
    command.arg("extreme-child").arg("--dir").arg(scratch.path().join("db"));
    command.args(["--seed", &seed.to_string(), "--case", &case.to_string()]);
    if case.is_of_users() && rustix::process::geteuid().is_root() {
        // The limit does not apply to the superuser.
        let user = USERS + (seed % 4000) as u32;
        chown(scratch.path(), Some(user), Some(user)).map_err(|e| Finding::new(format!("chown: {e}")))?;
        command.uid(user).gid(user);
    }
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|e| Finding::new(format!("cannot start {}: {e}", program.display())))?;
    let (said, words) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success(), "the child ended with {}: {}", output.status, words.trim());
    ensure!(!words.contains("panicked"), "a thread of the child panicked: {}", words.trim());
    said.trim().parse().map_err(|_| Finding::new(format!("the child says {said:?}")))
}

/// [`run`] as a job, which counts one case.
pub fn job(program: PathBuf, seed: u64, case: Case) -> Job {
    Job {
        name: format!("extreme, {case}, seed {seed}"),
        replay: format!("cargo run --release -p sim -- extreme --seed {seed} --case {case}"),
        run: Box::new(move || run(&program, seed, case).map(|_| 1)),
    }
}
