//! Recorded histories: threads work on a few keys, all that they do and see is written down by one clock, and then an order of the
//! commits is looked for that explains all of it (P6).
//!
//! | module | |
//! | --- | --- |
//! | [`operation`] | what is recorded |
//! | [`world`] | the database that the threads work on, so small that it flushes, compacts and switches logs all the time |
//! | [`actor`] | a thread: puts, deletes, batches, reads, scans, iterators and snapshots that are held for a while |
//! | [`epoch`] | from opening to closing, a kill, a power cut, or a failed sync, and opening again |
//! | [`order`] | the search for an order |
//! | [`mod@check`] | what is asked of an epoch: each key alone, all together, what was recovered |
//!
//! Each key alone must be linearizable: the store has told nobody a value that was not its newest. All keys together must be, too,
//! with batches and views as single operations: that is snapshot isolation, and batches all or nothing, and views that never go back.
//! What a crash leaves must be a state of that same order, with every write in it that was acknowledged as durable (P1, P2).

pub mod actor;
pub mod check;
pub mod epoch;
pub mod operation;
pub mod order;
#[cfg(test)]
mod order_tests;
pub mod world;

use crate::finding::{Finding, Outcome, ensure};
use crate::jobs::Job;
use crate::random::Rng;
use cairn::env::{Env, RealEnv, SimEnv};
use epoch::Ending;
use operation::Clock;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use tempfile::TempDir;
use world::{PLACES, Site};

/// Threads that are recorded. One more flushes and compacts.
pub const THREADS: usize = 5;

/// Operations of each thread in one epoch, at most.
pub const STEPS: u64 = 120;

/// Counts over many histories.
#[derive(Default)]
pub struct Tally {
    /// Crashes that were recovered from.
    pub crashes: AtomicU64,
    /// Flushes.
    pub flushes: AtomicU64,
    /// Compactions.
    pub compactions: AtomicU64,
}

/// [`run`] as a job; it counts the operations.
pub fn job(seed: u64, crashes: bool, tally: &Arc<Tally>) -> Job {
    let flag = if crashes { " --crashes" } else { "" };
    let replay = format!(
        "cargo run --release -p sim -- history --seed {seed}{flag}   (another interleaving, though: repeat it)"
    );
    let tally = tally.clone();
    Job {
        name: format!("history, seed {seed}{flag}"),
        replay,
        run: Box::new(move || run(seed, crashes, &tally)),
    }
}

/// One history of several epochs; returns how many operations were checked. The seed draws what each thread does, the options, and
/// where the crashes come, not how the threads interleave.
pub fn run(seed: u64, crashes: bool, tally: &Tally) -> Outcome<u64> {
    let mut rng = Rng::new(seed);
    let scratch = TempDir::new().map_err(|e| Finding::new(format!("no temporary directory: {e}")))?;
    let real = !crashes && rng.chance(1, 4);
    let mut disk = (!real).then(|| SimEnv::new(seed));
    let (env, path): (Arc<dyn Env>, _) = match &disk {
        Some(disk) => (disk.clone(), Path::new("/db").to_owned()),
        None => (RealEnv::new(), scratch.path().join("db")),
    };
    let mut site = Site::draw(env, &path, &mut rng);
    let (clock, values) = (Arc::new(Clock::default()), Arc::new(AtomicU32::new(0)));
    let mut state = vec![operation::ABSENT; PLACES].into();
    let mut operations = 0;
    for number in 0..4 {
        let ending = if crashes { Ending::draw_crash(&mut rng) } else { Ending::draw_close(&mut rng) };
        let world = site.open(&clock, &values)?;
        let (next, next_disk) = epoch::run(&site, disk.as_ref(), &state, ending, world, &mut rng)
            .map_err(|f| f.context(format_args!("epoch {number}")))?;
        (site, state, disk) = (next.site, next.state, next_disk);
        operations += next.operations;
        tally.flushes.fetch_add(next.jobs[0], Ordering::Relaxed);
        tally.compactions.fetch_add(next.jobs[1], Ordering::Relaxed);
        tally.crashes.fetch_add(u64::from(crashes), Ordering::Relaxed);
    }
    let world = site.open(&clock, &values)?;
    let report = world.db.check(&mut |_| {})?;
    ensure!(report.problems.is_empty(), "check finds {:?}", report.problems);
    Ok(operations)
}
