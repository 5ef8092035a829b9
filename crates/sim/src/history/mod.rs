//! Recorded histories: threads work on a few keys, one clock records all operations, and then a search looks for an
//! order of the commits that explains all results (P6).
//!
//! | module | |
//! | --- | --- |
//! | [`operation`] | the records |
//! | [`world`] | the database under test, so small that it constantly flushes, compacts and switches logs |
//! | [`actor`] | a thread: puts, deletes, batches, reads, scans, and held iterators and snapshots |
//! | [`epoch`] | from an open to a close, kill, power failure or failed sync, and the reopen |
//! | [`order`] | the search for an order |
//! | [`mod@check`] | the checks of an epoch: each key alone, all keys together, the recovered state |
//!
//! A third keyspace has history, and takes writes with one of a few times, in any order: late ones. There the version of a key at a time is what
//! a key is elsewhere, and every query tells the values of some of them.
//!
//! Transactions are operations that see and set keys at one moment, that of their commit: so the order is a serial one of all transactions, and
//! in it they come in the order of time (strict serializability).
//!
//! Each key alone must be linearizable: no read returns a value other than the newest. All keys together must be
//! linearizable too, with batches, snapshots and iterators as single operations. This covers snapshot isolation,
//! atomic batches, and views that never go back in time. A crash must leave a state of the same order that includes
//! every write acknowledged as durable (P1, P2).

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
use world::{ALL_COUNT, Site};

/// Counts over many histories.
#[derive(Default)]
pub struct Tally {
    /// Recoveries from crashes.
    pub crashes: AtomicU64,
    /// Flushes.
    pub flushes: AtomicU64,
    /// Compactions.
    pub compactions: AtomicU64,
    /// Transactions that have committed, and single steps that have read and written a key.
    pub transactions: AtomicU64,
    /// Transactions that have met a conflict.
    pub conflicts: AtomicU64,
}

/// [`run`] as a job, which counts operations.
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

/// A history of several epochs. Returns the number of operations checked. The seed determines the operations of each
/// thread, the options and the crash points, but not how the threads interleave.
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
    let mut state = vec![operation::ABSENT; ALL_COUNT].into();
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
        tally.transactions.fetch_add(next.transactions[0], Ordering::Relaxed);
        tally.conflicts.fetch_add(next.transactions[1], Ordering::Relaxed);
    }
    let world = site.open(&clock, &values)?;
    let report = world.db.check(&mut |_| {})?;
    ensure!(report.problems.is_empty(), "check finds {:?}", report.problems);
    Ok(operations)
}
