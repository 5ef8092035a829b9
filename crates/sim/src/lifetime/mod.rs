//! Lifetimes: handles are opened, cloned, dropped and closed, from several threads, while all other calls of the
//! library run. The database is reopened at once, in this process or in another, and used, while threads of the
//! previous opening still call it.
//!
//! ```text
//!   thread 0  put flush .. compact ----------> Closed Closed .. (iterators, snapshots and handles of the first opening)
//!   thread 1  batch create_keyspace .. close()--+ Closed ..
//!   main      waits                             | reopens: all there?  writes, compacts: the right files?  ends
//! ```
//!
//! | module | |
//! | --- | --- |
//! | [`ledger`] | the expected content: each thread has its own keys, and values have numbers |
//! | [`actor`] | a thread: any call before the close, and calls that must fail after it |
//! | [`held`] | iterators, cursors and snapshots that outlive the database |
//! | [`gate`] | the disk of one opening: finds operations after its lock was released |
//! | [`stage`] | the state shared by the threads, and how an opening ends |
//! | [`round`] | one lifetime, and the opening after it |
//! | [`mod@child`] | the opening in another process |
//!
//! Guarantees: when `close` has returned, or the last handle is dropped, exactly the acknowledged writes exist and
//! are durable. No batch is torn. No call or move that begins later succeeds, hangs, or fails with an error other
//! than `Closed`. The disk does not change after the lock is released, and the files are those that the state names.

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

/// Number of threads of an opening. The main thread closes and reopens the database.
pub const THREADS: usize = 3;

/// Number of lifetimes in one directory.
pub const LIFETIMES: u64 = 6;

/// A file system in memory. If there is none, the directory for temporary files is used.
const MEMORY: &str = "/dev/shm";

/// Counts over many runs.
#[derive(Debug, Default)]
pub struct Tally {
    /// Openings that ended while threads used them.
    pub lifetimes: AtomicU64,
    /// Calls before the close.
    pub calls: AtomicU64,
    /// Calls and moves after the close.
    pub late_calls: AtomicU64,
    /// Openings in other processes.
    pub processes: AtomicU64,
}

/// The location of a database.
pub struct Site {
    /// The disk.
    pub disk: Arc<dyn Env>,
    /// The same disk, if it is simulated.
    pub sim: Option<Arc<SimEnv>>,
    /// The directory.
    pub path: PathBuf,
    /// The program for the other process, if the disk is visible to it.
    pub program: Option<PathBuf>,
    /// Seed of the options of the shared keyspaces.
    pub seed: u64,
}

/// Small options: a few dozen writes switch memtables, logs and manifests.
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

/// Options of a keyspace: a few writes fill a memtable, and a few tables start a compaction.
pub fn keyspace_options(rng: &mut Rng) -> KeyspaceOptions {
    KeyspaceOptions::default()
        .memtable_bytes(*rng.pick(&[4 << 10, 8 << 10, 16 << 10]))
        .block_size(*rng.pick(&[128, 512]))
        .levels(rng.between(1, 3))
        .level0_tables(rng.between(1, 3))
        .max_tables_per_guard(rng.between(1, 3))
}

/// [`run`] as a job, which counts lifetimes.
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

/// Runs several lifetimes of one database and returns their number. The seed determines calls and options, but not
/// how the threads interleave.
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
