//! The store compared with a sorted map with versions: two million random calls over all option sets.

use sim::jobs::{Job, run_all};
use sim::random::fresh_seed;
use sim::session;
use sim::sets::option_sets;
use std::time::Duration;

/// Number of calls per option set and seed.
fn operations() -> u64 {
    sim::scaled(42_000, 4_000)
}

/// One fixed seed, and one new seed.
#[test]
fn the_store_answers_like_a_sorted_map() {
    let sets = option_sets();
    let fresh = fresh_seed();
    println!("{} option sets, fresh seed: {fresh}", sets.len());
    let jobs: Vec<Job> = [1, fresh]
        .into_iter()
        .flat_map(|seed| sets.iter().map(move |set| session::job(set.clone(), seed, operations())))
        .collect();
    let report = run_all(jobs, Duration::from_secs(900));
    sim::count("model operations", report.count);
    sim::count("option sets", sets.len() as u64);
    report.expect_clean();
    assert!(report.count >= 2 * sets.len() as u64 * operations());
}
