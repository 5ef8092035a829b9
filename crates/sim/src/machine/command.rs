//! The commands that run these tests again, and those of their children.

use super::child::{ScriptArgs, run_script};
use super::full::{self, FullArgs, Scenario};
use super::limits::{self, Limit, LimitArgs};
use super::memory::{self, MemoryArgs};
use super::processes::{self, HoldArgs};
use super::strace::{self, Injection};
use crate::finding::Outcome;
use clap::Subcommand;
use std::path::Path;

/// What `cairn-sim` is asked for.
#[derive(Subcommand)]
pub enum Command {
    /// Let a process write under strace, which makes one of its system calls fail; or a series of them.
    Strace {
        /// Draws the script and the injections of a series.
        #[arg(long, default_value_t = 0)]
        seed: u64,
        /// How many injections.
        #[arg(long, default_value_t = 20)]
        injections: u64,
        /// One only, such as `fsync:error=EIO:when=3`.
        #[arg(long, requires = "script")]
        injection: Option<Injection>,
        /// Draws the script that it is put into.
        #[arg(long)]
        script: Option<u64>,
        /// Background threads of its database.
        #[arg(long, default_value_t = 0)]
        threads: usize,
    },
    /// Fill a small disk, and make it less full again.
    Full {
        /// Draws sizes, options and data.
        #[arg(long)]
        seed: u64,
        /// What meets the full disk.
        #[arg(long)]
        scenario: Scenario,
    },
    /// Write and read under a limit of the process.
    Limit {
        /// Draws the limit, the options and the data.
        #[arg(long)]
        seed: u64,
        /// Which limit.
        #[arg(long)]
        limit: Limit,
    },
    /// Go through a script: a child of the machine tests.
    #[command(hide = true)]
    ScriptChild(ScriptArgs),
    /// Fill the disk that it mounts: a child of the machine tests.
    #[command(hide = true)]
    FullChild(FullArgs),
    /// Write and read under a limit: a child of the machine tests.
    #[command(hide = true)]
    LimitChild(LimitArgs),
    /// Write and read with little memory: a child of the machine tests.
    #[command(hide = true)]
    MemoryChild(MemoryArgs),
    /// Hold a database open: a child of the machine tests.
    #[command(hide = true)]
    HoldChild(HoldArgs),
}

/// Does it; `program` is started as the child.
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
