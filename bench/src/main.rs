//! `cairn-bench`: the same workloads on Cairn and its peers, side by side.
//!
//! ```text
//!   main -- args            what can be asked for
//!     |-- runner            engines take turns     (place, turn, child, results, summary)
//!     |   \-- progress      bars, time left
//!     \-- list              what there is
//! ```
//!
//! What is measured, and how, is the library's.

mod args;
mod list;
mod progress;
mod runner;

use args::{Cli, Command, ReportArgs};
use clap::Parser;
use std::process::ExitCode;

/// How a command ends that did not do its work.
#[derive(Debug)]
pub enum Failure {
    /// The arguments are wrong.
    Usage(String),
    /// The system failed.
    System(String),
    /// The user ended it.
    Interrupted,
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Run(args) => runner::run(&args),
        Command::Report(args) => report(&args),
        Command::List(args) => list::list(&args),
        Command::Child => return runner::child::main(),
    };
    match result {
        Ok(code) => code,
        Err(Failure::Usage(message)) => tell(&message, 2),
        Err(Failure::System(message)) => tell(&message, 5),
        Err(Failure::Interrupted) => tell("interrupted", 130),
    }
}

fn tell(message: &str, code: u8) -> ExitCode {
    eprintln!("cairn-bench: {message}");
    ExitCode::from(code)
}

/// Makes a page of results that are there.
fn report(args: &ReportArgs) -> Result<ExitCode, Failure> {
    let mut lines = Vec::new();
    for path in &args.results {
        lines.extend(runner::results::read(path).map_err(Failure::Usage)?);
    }
    if let Some(out) = &args.out {
        runner::write_report(&lines, out)?;
    }
    if let Some(page) = &args.page {
        runner::write_page(&lines, page)?;
    }
    Ok(ExitCode::SUCCESS)
}
