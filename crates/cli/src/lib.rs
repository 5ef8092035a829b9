//! The command line of Cairn as a library. The program only calls [`main`].
//!
//! `command_line` defines the program, `commands` has a module for each command, which runs it and returns, or fails with a
//! `failure::Failure`: one line on standard error and an exit code. Results go to standard output, all other messages
//! to standard error. This crate uses only the public API of the engine.
//!
//! ```text
//!   main -- command_line -- commands: point delete_range scan load dump stats top check salvage copies compact shell demo bench model info
//!                              |
//!            args   store   format   draw   progress     arguments; opens databases; text formats; drawings; progress bars
//!              \       |        |       |
//!               +---- text, output, failure, db_files    escapes and sizes; records on stdout; errors; files on disk
//! ```

mod args;
mod command_line;
mod commands;
mod db_files;
mod draw;
mod failure;
mod format;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod output;
mod progress;
mod store;
mod text;
mod times;
mod types;

use clap::{CommandFactory, Parser};
use command_line::{Cli, Command};
use commands::{
    bench, check, compact, copies, delete_range, demo, dump, history, info, keyspaces, load, model, point,
    salvage, scan, scrub, shell, stats, top,
};
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
        Command::Merge(args) => point::merge(args)?,
        Command::Get(args) => point::get(args)?,
        Command::Delete(args) => point::delete(args)?,
        Command::DeleteRange(args) => delete_range::delete_range(args)?,
        Command::Scan(args) => scan::scan(args)?,
        Command::History(args) => history::history(args)?,
        Command::Load(args) => load::load(args)?,
        Command::Dump(args) => dump::dump(args)?,
        Command::Keyspaces(args) => keyspaces::keyspaces(args)?,
        Command::Size(args) => keyspaces::size(args)?,
        Command::Rename(args) => keyspaces::rename(args)?,
        Command::Clone(args) => keyspaces::clone_keyspace(args)?,
        Command::Alter(args) => keyspaces::alter(args)?,
        Command::Drop(args) => keyspaces::drop_keyspace(args)?,
        Command::Stats(args) => stats::stats(args)?,
        Command::Top(args) => top::top(args)?,
        Command::Check(args) => check::check(args)?,
        Command::Salvage(args) => salvage::salvage(args)?,
        Command::Checkpoint(args) => copies::checkpoint(args)?,
        Command::Backup(args) => copies::backup(args)?,
        Command::Backups(args) => copies::backups(args)?,
        Command::Restore(args) => copies::restore(args)?,
        Command::Scrub(args) => scrub::scrub(args)?,
        Command::Compact(args) => compact::compact(args)?,
        Command::Shell(args) => return shell::shell(args),
        Command::Demo(args) => demo::demo(args)?,
        Command::Bench(args) => return bench::run(args),
        Command::Model(args) => model::model(args)?,
        Command::Completions(args) => info::completions(args, Cli::command())?,
        Command::Options(args) => info::options(args)?,
    }
    Ok(ExitCode::SUCCESS)
}
