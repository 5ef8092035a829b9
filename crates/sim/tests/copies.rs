//! Checkpoints and backups compared with maps of their moments.

use sim::copies::job;
use sim::jobs::run_all;
use sim::random::fresh_seed;
use std::time::Duration;

/// Jobs with fixed seeds, and as many with new ones.
#[test]
fn copies_have_their_moment_whatever_comes_after_it() {
    let (count, fresh) = (sim::scaled(60, 10), fresh_seed() >> 8);
    println!("fresh seed: {fresh}");
    let jobs = (0..count).chain((0..count).map(|n| fresh + n)).map(job).collect();
    let report = run_all(jobs, Duration::from_secs(900));
    sim::count("copies compared with their moments", report.count);
    report.expect_clean();
}
