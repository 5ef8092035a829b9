//! The command line of Cairn as a library. The program only calls [`main`].
//!
//! `args` defines the command line. Each command has its own module, which runs it and returns, or fails with a
//! `failure::Failure`: one line on standard error and an exit code. Results go to standard output, all other messages
//! to standard error. This crate uses only the public API of the engine.
//!
//! ```text
//!   main -- args -- point delete_range scan load dump stats check salvage compact shell demo bench info
//!                     |               |    |    |
//!                   store           format   draw      store: opens databases; format: text formats; draw: drawings
//!                     |               |
//!                   output ------- text                output: records on stdout; text: escapes, sizes
//! ```

mod args;
mod bench;
mod check;
mod compact;
mod delete_range;
mod demo;
mod draw;
mod dump;
mod failure;
mod format;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod info;
mod load;
mod output;
mod point;
mod progress;
mod salvage;
mod scan;
mod scrub;
mod shell;
mod stats;
mod store;
mod text;

use args::{Cli, Command};
use clap::Parser;
use failure::Result;
use std::process::ExitCode;

/// Runs the command in the arguments of the process.
pub fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(code) => code,
        Err(failure) => failure.report(),
    }
}

fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::Put(args) => point::put(args)?,
        Command::Get(args) => point::get(args)?,
        Command::Delete(args) => point::delete(args)?,
        Command::DeleteRange(args) => delete_range::delete_range(args)?,
        Command::Scan(args) => scan::scan(args)?,
        Command::Load(args) => load::load(args)?,
        Command::Dump(args) => dump::dump(args)?,
        Command::Stats(args) => stats::stats(args)?,
        Command::Check(args) => check::check(args)?,
        Command::Salvage(args) => salvage::salvage(args)?,
        Command::Scrub(args) => scrub::scrub(args)?,
        Command::Compact(args) => compact::compact(args)?,
        Command::Shell(args) => return shell::shell(args),
        Command::Demo(args) => demo::demo(args)?,
        Command::Bench(args) => return bench::run(args),
        Command::Completions(args) => info::completions(args)?,
        Command::Options(args) => info::options(args)?,
    }
    Ok(ExitCode::SUCCESS)
}
