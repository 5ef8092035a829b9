//! Extremes: as many keyspaces, as long keys and values, as small budgets and as hard limits of the process as there can be.
//!
//! | module | |
//! | --- | --- |
//! | [`case`] | what is tried, by name |
//! | [`sizes`] | the limits of [`cairn::limits`] and of the options: each is held, and what is beyond is refused by name |
//! | [`options`] | every option at its lower bound, at its upper bound, and beyond |
//! | [`limited`] | a small workload under `RLIMIT_AS`, `RLIMIT_NOFILE`, `RLIMIT_FSIZE` or `RLIMIT_NPROC` |
//!
//! Each case runs in a child process, which must end by itself, with right answers and errors of the kinds that are
//! documented; an abort, a signal, a panic and a hang are findings. What was acknowledged under a limit is there when the limit is gone.

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

/// A file system in memory. Where there is none, everything lies in the directory for temporary files.
const MEMORY: &str = "/dev/shm";

/// Users from this number on have no processes: a limit on threads counts those of a user.
const USERS: u32 = 61_000;

/// What the parent tells the child.
#[derive(Args)]
pub struct ExtremeArgs {
    /// Where the database is.
    #[arg(long)]
    pub dir: PathBuf,
    /// Draws options and data.
    #[arg(long)]
    pub seed: u64,
    /// What is tried.
    #[arg(long)]
    pub case: Case,
}

/// What the child does. It prints how many calls were refused.
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

/// Runs one case in a child; returns how many calls were refused.
pub fn run(program: &Path, seed: u64, case: Case) -> Outcome<u64> {
    let memory = if case.is_large() { None } else { TempDir::new_in(MEMORY).ok() };
    let scratch = memory.map_or_else(TempDir::new, Ok);
    let scratch = scratch.map_err(|e| Finding::new(format!("no temporary directory: {e}")))?;
    let mut command = Command::new(program);
    command.arg("extreme-child").arg("--dir").arg(scratch.path().join("db"));
    command.args(["--seed", &seed.to_string(), "--case", &case.to_string()]);
    if case.is_of_users() && rustix::process::geteuid().is_root() {
        // The limit does not bind the superuser.
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

/// [`run`] as a job; it counts one case.
pub fn job(program: PathBuf, seed: u64, case: Case) -> Job {
    Job {
        name: format!("extreme, {case}, seed {seed}"),
        replay: format!("cargo run --release -p sim -- extreme --seed {seed} --case {case}"),
        run: Box::new(move || run(&program, seed, case).map(|_| 1)),
    }
}
