//! All operations of many scripts fail, one after the other, in all ways.

use sim::fault;
use sim::jobs::run_all;
use sim::random::{derive, fresh_seed};
use sim::sets::tiny_shapes;
use std::time::Duration;

/// Minimum number of failed operations.
fn min_failed() -> u64 {
    sim::scaled(50_000, 5_000)
}

/// A seed modulo this selects the options of its keyspaces.
fn shapes() -> u64 {
    tiny_shapes().len() as u64
}

/// Number of scripts started together. A round of a full run has all options.
fn scripts_per_round() -> u64 {
    sim::scaled(shapes(), 4)
}

/// A script takes seconds. One that takes longer than this hangs.
const HANG: Duration = Duration::from_secs(900);

/// Half of the seeds are new in each run.
#[test]
fn whatever_fails_no_answer_is_wrong_and_nothing_is_lost() {
    let fresh = fresh_seed();
    println!("fresh seed: {fresh}");
    let mut failed = 0;
    for round in 0.. {
        let scripts = round * scripts_per_round()..(round + 1) * scripts_per_round();
        let seed = |i: u64| match i.is_multiple_of(2) {
            true => i + round % 2,
            false if sim::is_full() => derive(fresh, i) / shapes() * shapes() + i % shapes(),
            false => derive(fresh, i),
        };
        let report = run_all(scripts.map(|i| fault::job(seed(i))).collect(), HANG);
        report.expect_clean();
        failed += report.count;
        if failed >= min_failed() {
            break;
        }
    }
    sim::count("failed operations", failed);
}

/// Content found in a database that was opened read-only on a full disk must survive a power failure.
#[test]
fn what_was_found_once_is_not_found_again() {
    run_all(vec![fault::job(2_808_628_627_188_532_155)], HANG).expect_clean();
}
