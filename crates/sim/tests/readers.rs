//! Readers beside a writer, compared with maps.

use sim::jobs::run_all;
use sim::random::fresh_seed;
use sim::readers::job;
use std::time::Duration;

/// Jobs with fixed seeds, and as many with new ones.
#[test]
fn moments_show_what_was_there_for_as_long_as_they_are_held() {
    let (count, fresh) = (sim::scaled(60, 10), fresh_seed() >> 8);
    println!("fresh seed: {fresh}");
    let jobs = (0..count).chain((0..count).map(|n| fresh + n)).map(job).collect();
    let report = run_all(jobs, Duration::from_secs(900));
    sim::count("moments of readers compared with maps", report.count);
    report.expect_clean();
}
