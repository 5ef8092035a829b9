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
//! | [`site`] | where the database is, its options, the counts over many runs |
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
pub mod site;
pub mod stage;

use crate::finding::{Finding, Outcome};
use crate::jobs::Job;
use crate::random::Rng;
use cairn::env::{RealEnv, SimEnv};
use ledger::Ledger;
use site::{Site, THREADS};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::TempDir;

pub use site::Tally;

/// Number of lifetimes in one directory.
pub const LIFETIMES: u64 = 6;

/// A file system in memory. If there is none, the directory for temporary files is used.
const MEMORY: &str = "/dev/shm";

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
