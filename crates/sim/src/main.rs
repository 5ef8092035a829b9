//! `cairn-sim`: repeats a seed of one of the suites, or runs new seeds for a given time.

use clap::{Parser, Subcommand};
use sim::crash::{Coverage, Focus};
use sim::damage::Tally;
use sim::extreme::ExtremeArgs;
use sim::extreme::case::Case;
use sim::kill::{self, ChildArgs, KillCounts, ReaderArgs};
use sim::random::fresh_seed;
use sim::sets::option_sets;
use sim::{
    Finding, Outcome, copies, crash, damage, extreme, fault, filters, history, lifetime, loads, machine,
    readers, session, soak, threads, versions,
};
use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

/// Tests Cairn with random histories, crashes, damage and kills. A failing test prints the command that repeats it.
#[derive(Parser)]
#[command(
    version,
    max_term_width = 100,
    args_conflicts_with_subcommands = true,
    arg_required_else_help = true
)]
struct Args {
    /// Run all suites with new seeds for this many hours; 0.1 is six minutes
    #[arg(long)]
    hours: Option<f64>,
    /// Base of the seeds of every other round [default: a new one]
    #[arg(long, requires = "hours")]
    seed: Option<u64>,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Run random operations on the store and on a sorted map
    Model {
        /// The option set; `cairn-sim list` shows them
        #[arg(long, default_value = "inline")]
        set: String,
        /// Seed of the run
        #[arg(long)]
        seed: u64,
        /// Number of operations
        #[arg(long, default_value_t = 20_000)]
        operations: u64,
    },
    /// Run a random history on a simulated disk and crash at each of its operations
    Crash {
        /// Seed of the run
        #[arg(long)]
        seed: u64,
        /// Test one kind of surviving disk per crash point, in turn, starting with this number [default: all kinds at
        /// each point]
        #[arg(long)]
        turn: Option<u64>,
        /// Crash only at the operation with this index
        #[arg(long)]
        at: Option<u64>,
        /// Print each call, and each operation that changes the disk
        #[arg(long)]
        trace: bool,
    },
    /// Damage the files of a small database in all ways, and check its answers
    Damage {
        /// Seed of the database and the damage
        #[arg(long)]
        seed: u64,
        /// Apply only the damage with this number
        #[arg(long)]
        mutation: Option<usize>,
        /// Print the files
        #[arg(long)]
        trace: bool,
    },
    /// Fail each operation of a script of calls, in all ways
    Fault {
        /// Seed of the calls
        #[arg(long)]
        seed: u64,
        /// Fail only the operation with this index
        #[arg(long)]
        at: Option<u64>,
        /// Use only the fault with this number in the list for the operation
        #[arg(long)]
        fault: Option<usize>,
        /// Print each call and each operation
        #[arg(long)]
        trace: bool,
    },
    /// Lose the end of a log although the next log survives
    Hole {
        /// Seed of the surviving disks
        #[arg(long)]
        seed: u64,
    },
    /// Kill a process that writes to a real database, repeatedly
    Kill {
        /// Seed of the run; the speed of the machine also matters
        #[arg(long)]
        seed: u64,
        /// Number of kills
        #[arg(long, default_value_t = 20)]
        kills: u64,
    },
    /// Run writers, readers and background work concurrently
    Threads {
        /// Seed of the options and the data; does not determine how threads interleave
        #[arg(long)]
        seed: u64,
        /// Duration in seconds
        #[arg(long, default_value_t = 10)]
        seconds: u64,
    },
    /// Record the operations of threads, with or without crashes, and search for an order that explains them
    History {
        /// Seed of the operations, the options and the crashes; does not determine how threads interleave
        #[arg(long)]
        seed: u64,
        /// End each epoch with a crash
        #[arg(long)]
        crashes: bool,
        /// Number of runs, each with another interleaving of threads
        #[arg(long, default_value_t = 20)]
        times: u64,
    },
    /// Close and reopen a database while threads continue to call it
    Lifetimes {
        /// Seed of the calls and the options; does not determine how threads interleave
        #[arg(long)]
        seed: u64,
        /// Number of runs, each with another interleaving of threads
        #[arg(long, default_value_t = 20)]
        times: u64,
    },
    /// Test the limits of sizes, options and the process
    Extreme {
        /// Seed of options and data
        #[arg(long, default_value_t = 0)]
        seed: u64,
        /// A single case, such as `keyspaces:10000` or `limit:open-files:16` [default: all]
        #[arg(long)]
        case: Option<Case>,
    },
    #[command(flatten)]
    Machine(machine::Command),
    /// List the option sets of the model test
    List,
    /// Compare checkpoints and backups with maps of their moments
    Copies {
        /// Seed of the run; does not determine how background work interleaves
        #[arg(long)]
        seed: u64,
    },
    /// Compare bulk loads with maps
    Loads {
        /// Seed of the run; does not determine how background work interleaves
        #[arg(long)]
        seed: u64,
    },
    /// Compare readers beside a writer with maps
    Readers {
        /// Seed of the run; does not determine how background work interleaves
        #[arg(long)]
        seed: u64,
    },
    /// Compare a keyspace with a compaction filter with a map
    Filters {
        /// Seed of the run; does not determine how compactions interleave
        #[arg(long)]
        seed: u64,
    },
    /// Compare a keyspace with history with a map of versions
    Versions {
        /// Seed of the run
        #[arg(long)]
        seed: u64,
    },
    /// Write until killed: the child of the kill test
    #[command(hide = true)]
    KillChild(ChildArgs),
    /// Read beside it until killed: the reader of the kill test
    #[command(hide = true)]
    KillReader(ReaderArgs),
    /// Open a database between two openings of another process: a child of the lifetimes suite
    #[command(hide = true)]
    LifetimeChild(lifetime::child::ChildArgs),
    /// Test one limit: a child of the extremes suite
    #[command(hide = true)]
    ExtremeChild(ExtremeArgs),
}

fn main() -> ExitCode {
    match start(Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(finding) => {
            eprintln!("{finding}");
            ExitCode::FAILURE
        }
    }
}

fn start(args: Args) -> Outcome {
    if let Some(hours) = args.hours {
        let time = Duration::try_from_secs_f64(hours * 3600.0)
            .map_err(|e| Finding::new(format!("--hours {hours}: {e}")))?;
        return soak::run(time, args.seed.unwrap_or_else(fresh_seed), &this_program()?);
    }
    args.command.map_or(Ok(()), run)
}

fn run(command: Command) -> Outcome {
    match command {
        Command::Model { set, seed, operations } => {
            let set = option_sets().into_iter().find(|s| s.name == set);
            let set =
                set.ok_or_else(|| Finding::new("there is no such option set; `cairn-sim list` shows them"))?;
            session::run(&set, seed, operations)?;
            println!("operations: {operations}");
        }
        Command::Crash { seed, turn, at, trace } => {
            let coverage = turn.map_or(Coverage::EveryKind, Coverage::InTurn);
            println!("recoveries: {}", crash::run(seed, coverage, Focus { at, trace })?);
        }
        Command::Damage { seed, mutation, trace } => {
            let tally = Tally::default();
            println!("corrupted images: {}", damage::run(seed, mutation, trace, &tally)?);
            let (detected, harmless, tail) = (tally.detected(), tally.harmless(), tally.tail());
            println!("of them detected: {detected}, harmless: {harmless}, indistinguishable tail: {tail}");
        }
        Command::Fault { seed, at, fault, trace } => {
            println!("failed operations: {}", fault::run(seed, fault::Focus { at, fault, trace })?);
        }
        Command::Copies { seed } => println!("copies compared: {}", copies::run(seed)?),
        Command::Loads { seed } => println!("loads compared: {}", loads::run(seed)?),
        Command::Readers { seed } => println!("moments compared: {}", readers::run(seed)?),
        Command::Filters { seed } => println!("calls: {}", filters::run(seed)?),
        Command::Versions { seed } => println!("comparisons: {}", versions::execute(seed)?),
        Command::Hole { seed } => println!("recoveries: {}", crash::hole::run(seed)?),
        Command::Kill { seed, kills } => {
            println!("kills: {}", kill::run(&this_program()?, seed, kills, &KillCounts::default())?)
        }
        Command::Threads { seed, seconds } => {
            println!("observations: {}", threads::run(seed, Duration::from_secs(seconds))?);
        }
        Command::History { seed, crashes, times } => {
            let operations = (0..times).map(|_| history::run(seed, crashes, &history::Tally::default()));
            println!("operations checked: {}", operations.sum::<Outcome<u64>>()?);
        }
        Command::List => {
            let mut out = std::io::stdout().lock();
            let listed = option_sets().iter().try_for_each(|set| {
                writeln!(out, "{:12} {} keyspace(s), {} keys", set.name, set.keyspaces.len(), set.sizes.keys)
            });
            // A reader of the list may have read enough of it.
            match listed {
                Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => {
                    return Err(Finding::new(format!("the list: {e}")));
                }
                _ => {}
            }
        }
        Command::Machine(command) => machine::run(command, &this_program()?)?,
        Command::Lifetimes { seed, times } => {
            let (program, tally) = (this_program()?, lifetime::Tally::default());
            (0..times).try_for_each(|_| lifetime::run(&program, seed, &tally).map(drop))?;
            println!("{tally:?}");
        }
        Command::Extreme { seed, case } => {
            let cases = case.map_or_else(|| Case::all(true), |case| vec![case]);
            for case in cases {
                println!("{case}: {} refused", extreme::run(&this_program()?, seed, case)?);
            }
        }
        Command::ExtremeChild(args) => extreme::child(&args)?,
        Command::KillChild(args) => kill::child(args)?,
        Command::KillReader(args) => kill::reader(args)?,
        Command::LifetimeChild(args) => lifetime::child::child(&args)?,
    }
    Ok(())
}

fn this_program() -> Outcome<std::path::PathBuf> {
    std::env::current_exe().map_err(|e| Finding::new(format!("this program has no path: {e}")))
}
