//! Lifetimes: handles are opened, cloned, dropped and closed, also from another thread, while any other call of the library runs; the
//! database is opened again at once, in this process or in another, and used on, while threads of the opening before still call.
//!
//! ```text
//!   thread 0  put flush .. compact ----------> Closed Closed .. (iterators, snapshots and handles of the first opening)
//!   thread 1  batch create_keyspace .. close()--+ Closed ..
//!   main      waits                             | opens again: all there?  writes, compacts: the right files?  ends
//! ```
//!
//! | module | |
//! | --- | --- |
//! | [`ledger`] | what a thread knows to be there: it alone writes its keys, and its values have numbers |
//! | [`actor`] | a thread: any call until the end, and those that must fail after it |
//! | [`held`] | iterators, cursors and snapshots that outlive the database |
//! | [`gate`] | the disk of one opening: what comes after its lock was released is found |
//! | [`stage`] | what the threads share, and how an opening ends |
//! | [`round`] | one lifetime, and the opening after it |
//! | [`mod@child`] | the opening in another process |
//!
//! What must hold: when `close` has returned, or the last handle is gone, everything acknowledged is there and durable, and nothing
//! else; no batch is torn; no call or move that begins later succeeds, hangs, or fails with anything but `Closed`; nothing touches the disk
//! after the lock is released; and the files are those that the state names.

pub mod actor;
pub mod child;
pub mod gate;
pub mod held;
pub mod ledger;
pub mod round;
pub mod stage;

use crate::finding::{Finding, Outcome};
use crate::jobs::Job;
use crate::random::{Draw, Rng};
use cairn::env::{Env, RealEnv, SimEnv};
use cairn::{Durability, KeyspaceOptions, Options};
use ledger::Ledger;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use tempfile::TempDir;

/// Threads of an opening; the main thread closes it, and opens it again.
pub const THREADS: usize = 3;

/// Lifetimes in one directory.
pub const LIFETIMES: u64 = 6;

/// A file system in memory. Where there is none, everything lies in the directory for temporary files.
const MEMORY: &str = "/dev/shm";

/// Counts over many runs.
#[derive(Debug, Default)]
pub struct Tally {
    /// Openings that came to their end under threads.
    pub lifetimes: AtomicU64,
    /// Calls before the end.
    pub calls: AtomicU64,
    /// Calls and moves after it.
    pub late_calls: AtomicU64,
    /// Openings in other processes in between.
    pub processes: AtomicU64,
}

/// Where a database lies.
pub struct Site {
    /// The disk.
    pub disk: Arc<dyn Env>,
    /// The same, if it is a simulated one.
    pub sim: Option<Arc<SimEnv>>,
    /// The directory.
    pub path: PathBuf,
    /// The program that is the other process, where one can see the disk.
    pub program: Option<PathBuf>,
    /// Draws the options of the keyspaces of all.
    pub seed: u64,
}

/// Options so small that a few dozen writes switch memtables, logs and manifests.
pub fn options(seed: u64) -> Options {
    let mut rng = Rng::new(seed);
    Options::default()
        .memory_budget(1 << 20)
        .log_cap(64 << 10)
        .manifest_cap(*rng.pick(&[1 << 10, 1 << 10, 1 << 20]))
        .background_threads(*rng.pick(&[0, 1, 1, 2]))
        .durability(*rng.pick(&[Durability::Buffered, Durability::Os]))
        .scrub_rate(*rng.pick(&[0, 0, 0, 1 << 20]))
}

/// Options of a keyspace: a few writes fill a memtable, and a few tables are compacted.
pub fn keyspace_options(rng: &mut Rng) -> KeyspaceOptions {
    KeyspaceOptions::default()
        .memtable_bytes(*rng.pick(&[4 << 10, 8 << 10, 16 << 10]))
        .block_size(*rng.pick(&[128, 512]))
        .levels(rng.between(1, 3))
        .level0_tables(rng.between(1, 3))
        .max_tables_per_guard(rng.between(1, 3))
}

/// [`run`] as a job; it counts the lifetimes.
pub fn job(program: PathBuf, seed: u64, tally: &Arc<Tally>) -> Job {
    let tally = tally.clone();
    Job {
        name: format!("lifetimes, seed {seed}"),
        replay: format!(
            "cargo run --release -p sim -- lifetimes --seed {seed}   (another interleaving, though: repeat it)"
        ),
        run: Box::new(move || run(&program, seed, &tally)),
    }
}

/// Some lifetimes of one database; returns how many. The seed draws the calls and the options, not how the threads interleave.
pub fn run(program: &Path, seed: u64, tally: &Tally) -> Outcome<u64> {
    let mut rng = Rng::new(seed);
    let real = rng.chance(1, 3);
    let memory = if rng.chance(1, 8) { None } else { TempDir::new_in(MEMORY).ok() };
    let scratch = memory.map_or_else(TempDir::new, Ok);
    let scratch = scratch.map_err(|e| Finding::new(format!("no temporary directory: {e}")))?;
    let sim = (!real).then(|| SimEnv::new(seed));
    let site = match &sim {
        Some(sim) => {
            Site { disk: sim.clone(), sim: Some(sim.clone()), path: "/db".into(), program: None, seed }
        }
        None => {
            let (disk, path) = (RealEnv::new(), scratch.path().join("db"));
            Site { disk, sim: None, path, program: Some(program.to_owned()), seed }
        }
    };
    let mut ledgers: Vec<Ledger> = (0..=THREADS).map(Ledger::new).collect();
    for number in 0..LIFETIMES {
        round::run(&site, &mut ledgers, &mut rng, tally)
            .map_err(|f| f.context(format_args!("lifetime {number}")))?;
    }
    Ok(LIFETIMES)
}
