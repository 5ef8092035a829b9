//! `kill -9` on the real file system, while several threads write.

use sim::jobs::{Job, run_all};
use sim::kill;
use sim::random::{derive, fresh_seed};
use std::time::Duration;

/// Kills, all in all.
const KILLS: u64 = 200;

/// Kills of one seed; its databases are its own.
const KILLS_PER_SEED: u64 = 20;

#[test]
fn nothing_acknowledged_is_lost_to_a_kill() {
    let fresh = fresh_seed();
    println!("fresh seed: {fresh}");
    let program = || env!("CARGO_BIN_EXE_cairn-sim").into();
    let seed = |i: u64| if i.is_multiple_of(2) { i } else { derive(fresh, i) };
    let jobs: Vec<Job> =
        (0..KILLS / KILLS_PER_SEED).map(|i| kill::job(program(), seed(i), KILLS_PER_SEED)).collect();
    let report = run_all(jobs, Duration::from_secs(300));
    sim::count("kills", report.count);
    report.expect_clean();
    assert_eq!(report.count, KILLS);
}
