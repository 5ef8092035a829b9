//! Bulk loads compared with maps.

use sim::jobs::run_all;
use sim::loads::job;
use sim::random::fresh_seed;
use std::time::Duration;

/// Jobs with fixed seeds, and as many with new ones.
#[test]
fn loads_are_there_as_a_whole_whatever_comes_between() {
    let (count, fresh) = (sim::scaled(60, 10), fresh_seed() >> 8);
    println!("fresh seed: {fresh}");
    let jobs = (0..count).chain((0..count).map(|n| fresh + n)).map(job).collect();
    let report = run_all(jobs, Duration::from_secs(900));
    sim::count("bulk loads compared with a map", report.count);
    report.expect_clean();
}
