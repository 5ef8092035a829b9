//! Keyspaces with history, compared with a map from key to time to value: all queries, under flushes, compactions, reopening, power cuts, late
//! writes, a clock that steps back, snapshots held across retention, and salvage.
//!
//! `model` and `queries` are the two sides of each comparison. `rounds`, `power_cut`, `retention` and `salvage` are the kinds of jobs, with what
//! `stage` opens and `writes` draws.

mod model;
mod power_cut;
mod queries;
mod retention;
mod rounds;
mod salvage;
mod stage;
mod writes;

pub use model::{Model, Written};

use crate::finding::Outcome;
use crate::jobs::Job;
use cairn::Retention;
use power_cut::power_cut;
use retention::retain;
use rounds::run;
use salvage::salvage;
use stage::SHAPES;
use std::time::Duration;

/// The n-th job. It counts comparisons of a whole keyspace with the model.
pub fn job(n: u64) -> Job {
    let replay = format!("cargo run --release -p sim -- versions --seed {n}");
    Job { name: format!("versions, seed {n}"), replay, run: Box::new(move || execute(n)) }
}

/// Runs the n-th job: one of five kinds in turn, each with all shapes of trees.
pub fn execute(n: u64) -> Outcome<u64> {
    let (kind, seed) = (n % 5, n / 5);
    let shape = seed % SHAPES;
    let done = match kind {
        0 => run(n, shape, 0)?,
        1 => run(n, shape, 2)?,
        2 => {
            let (mut at, mut cuts) = (seed % 31, 0);
            while power_cut(seed / 31, shape, at)? {
                (at, cuts) = (at + 31 + at / 100, cuts + 1);
            }
            cuts
        }
        3 => {
            let age = Duration::from_millis(20);
            let retention = [Retention::Age(age), Retention::Versions(3), Retention::VersionsOrAge(2, age)];
            retain(
                n,
                retention[(seed / SHAPES % 3) as usize],
                [0, 0, 2][(seed / SHAPES / 3 % 3) as usize],
                shape,
            )?
        }
        _ => salvage(n, shape, (1..3).contains(&shape))?,
    };
    Ok(done)
}
