//! The complete command line: the program, its commands and their help. Each command defines its own arguments.

use crate::commands::{
    bench, check, compact, copies, delete_range, demo, dump, history, info, keyspaces, load, model, point,
    salvage, scan, scrub, shell, stats, top,
};
use crate::failure;
use clap::{Parser, Subcommand};

const ABOUT: &str = "Cairn, a persistent ordered key-value store: the command line.

A database is a directory. It holds keyspaces. A keyspace maps keys to values; both are bytes, and keys are sorted \
bytewise. Commands take the directory of the database as --db or from the environment variable CAIRN_DB; check and scrub \
also accept it as an argument; salvage and restore take two directories, and backups takes that of the backups. The commands put and load create a missing database and \
report it; shell does so with --create. They create the keyspace `default`; a keyspace of another name must exist, or be \
created with --create.";

const EXAMPLES: &str = "\
Examples:
  cairn demo                                      see it all, in under a minute
  cairn put --db /tmp/d fruit/apple red           create a database, store a value
  cairn get --db /tmp/d fruit/apple
  cairn load --db /tmp/d cities.tsv               load a file: TSV, CSV, JSON lines, ...
  cairn scan --db /tmp/d --prefix FR/ --limit 5
  cairn stats --db /tmp/d                         see the tree
  cairn shell --db /tmp/d                         work in it by hand";

/// The command line.
#[derive(Debug, Parser)]
#[command(name = "cairn", version, about = ABOUT, after_help = format!("{EXAMPLES}\n\n{}", failure::EXIT_CODES))]
#[command(disable_help_subcommand = false, max_term_width = 100)]
pub struct Cli {
    /// The command to run.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Store values under keys
    Put(point::PutArgs),
    /// Join operands to the values of keys, such as counts: with the merge operator of the keyspace
    Merge(point::MergeArgs),
    /// Print the value of a key
    Get(point::GetArgs),
    /// Delete keys
    Delete(point::DeleteArgs),
    /// Delete all keys in a range or with a prefix, as one write
    DeleteRange(delete_range::DeleteRangeArgs),
    /// Print keys and values in order
    Scan(scan::ScanArgs),
    /// Print the versions of a key, with their times
    History(history::HistoryArgs),
    /// Load records from a file or standard input
    Load(load::LoadArgs),
    /// Write a keyspace in a form that `load` reads
    Dump(dump::DumpArgs),
    /// List the keyspaces, with about what each has
    Keyspaces(keyspaces::KeyspacesArgs),
    /// Estimate how many keys a range has, and what they take
    Size(keyspaces::SizeArgs),
    /// Rename a keyspace
    Rename(keyspaces::RenameArgs),
    /// Make a keyspace with the content of another one
    Clone(keyspaces::CloneArgs),
    /// Change options of a keyspace
    Alter(keyspaces::AlterArgs),
    /// Remove a keyspace with all its data
    Drop(keyspaces::DropArgs),
    /// Show the tree: levels, guards, tables, and where the bytes went
    Stats(stats::StatsArgs),
    /// Watch a database: rates, latencies, stalls, the cache, the tree
    Top(top::TopArgs),
    /// Verify every checksum and invariant of a database, without writing to it
    Check(check::CheckArgs),
    /// Copy the readable content of a damaged database into a new one
    Salvage(salvage::SalvageArgs),
    /// Make a second database of this moment, which shares files with the first
    Checkpoint(copies::CheckpointArgs),
    /// Make a backup: a copy of this moment, which shares with earlier ones what has not changed
    Backup(copies::BackupArgs),
    /// List, verify and remove backups
    Backups(copies::BackupsArgs),
    /// Make a database from a backup
    Restore(copies::RestoreArgs),
    /// Read and verify a database at a limited rate, without writing to it
    Scrub(scrub::ScrubArgs),
    /// Merge the tables of a keyspace
    Compact(compact::CompactArgs),
    /// Run statements on a database, interactively or from a script
    Shell(shell::ShellArgs),
    /// A tour in under a minute: load, look up, scan, crash, recover
    Demo(demo::DemoArgs),
    /// Run benchmarks: the workloads of db_bench, YCSB and others
    Bench(bench::Args),
    /// Predict write and I/O amplification for values in place, separated and placed by size
    Model(model::ModelArgs),
    /// Print a completion script for a shell
    Completions(info::CompletionsArgs),
    /// List every option of databases and keyspaces, with defaults and ranges
    Options(info::OptionsArgs),
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_has_examples() {
        for command in Cli::command().get_subcommands() {
            let help = command.get_after_help().map(|h| h.to_string()).unwrap_or_default();
            assert!(help.contains("cairn "), "{} has no example", command.get_name());
        }
    }
}
