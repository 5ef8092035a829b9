//! The program `cairn-bench`: runs the same workloads on Cairn and its peers, and reports the results.
//!
//! ```text
//!   main -- args            the command line
//!     |-- runner            engines take turns     (place, turn, child, results, summary)
//!     |   \-- progress      bars, time left
//!     \-- list              engines, groups and workloads
//!         text, failure     sizes and numbers as text; why a command fails
//! ```
//!
//! Uses the library `bench`, which must not import anything of this folder: the library decides what is measured,
//! and how.

mod args;
mod failure;
mod list;
mod progress;
mod runner;
mod text;

use args::{Cli, Command, ReportArgs};
use clap::Parser;
use failure::Failure;
use std::process::ExitCode;

/// Runs the command in the arguments of the process.
pub fn main() -> ExitCode {
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

/// Writes a report of existing results.
fn report(args: &ReportArgs) -> Result<ExitCode, Failure> {
    let mut lines = Vec::new();
    for path in &args.results {
        lines.extend(runner::results::read(path).map_err(Failure::Usage)?);
    }
    if let Some(out) = &args.out {
        runner::write_report(&lines, out)?;
    }
    if let Some(page) = &args.page {
        runner::write_page(&lines, page, args.papers)?;
    }
    Ok(ExitCode::SUCCESS)
}
