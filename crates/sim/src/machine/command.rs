//! The commands that repeat these tests, and those of their children.

use super::child::{ScriptArgs, run_script};
use super::full::{self, FullArgs, Scenario};
use super::limits::{self, Limit, LimitArgs};
use super::memory::{self, MemoryArgs};
use super::processes::{self, HoldArgs};
use super::strace::{self, Injection};
use crate::finding::Outcome;
use clap::Subcommand;
use std::path::Path;

/// The commands of `cairn-sim` for machine tests.
#[derive(Subcommand)]
pub enum Command {
    /// Run a process under strace that makes one of its system calls fail; or a series of such runs
    Strace {
        /// Seed of the script and the injections of a series
        #[arg(long, default_value_t = 0)]
        seed: u64,
        /// Number of injections
        #[arg(long, default_value_t = 20)]
        injections: u64,
        /// A single injection, such as `fsync:error=EIO:when=3`
        #[arg(long, requires = "script")]
        injection: Option<Injection>,
        /// Seed of the script for a single injection
        #[arg(long)]
        script: Option<u64>,
        /// Number of background threads
        #[arg(long, default_value_t = 0)]
        threads: usize,
    },
    /// Fill a small disk and free space again
    Full {
        /// Seed of sizes, options and data
        #[arg(long)]
        seed: u64,
        /// What the database does when the disk is full
        #[arg(long)]
        scenario: Scenario,
    },
    /// Write and read under a limit of the process
    Limit {
        /// Seed of the limit, the options and the data
        #[arg(long)]
        seed: u64,
        /// The limit
        #[arg(long)]
        limit: Limit,
    },
    /// Run a script: a child of the machine tests
    #[command(hide = true)]
    ScriptChild(ScriptArgs),
    /// Fill the disk that it mounts: a child of the machine tests
    #[command(hide = true)]
    FullChild(FullArgs),
    /// Write and read under a limit: a child of the machine tests
    #[command(hide = true)]
    LimitChild(LimitArgs),
    /// Write and read with little memory: a child of the machine tests
    #[command(hide = true)]
    MemoryChild(MemoryArgs),
    /// Hold a database open: a child of the machine tests
    #[command(hide = true)]
    HoldChild(HoldArgs),
}

/// Runs a command. `program` is started as the child.
pub fn run(command: Command, program: &Path) -> Outcome {
    match command {
        Command::Strace { seed, injections, injection, script, threads } => {
            let injected = match (injection, script) {
                (Some(injection), Some(script)) => strace::inject(program, script, threads, &injection)?,
                _ => strace::run(program, seed, injections)?,
            };
            println!("injections: {injected}");
        }
        Command::Full { seed, scenario } => println!("full disks: {}", full::run(program, seed, scenario)?),
        Command::ScriptChild(args) => run_script(args)?,
        Command::Limit { seed, limit } => println!("calls refused: {}", limits::run(program, seed, limit)?),
        Command::FullChild(args) => full::child(&args)?,
        Command::LimitChild(args) => limits::child(&args)?,
        Command::MemoryChild(args) => memory::child(&args)?,
        Command::HoldChild(args) => processes::child(&args)?,
    }
    Ok(())
}
