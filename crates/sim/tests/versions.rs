//! Keyspaces with history compared with a map of versions.

use sim::jobs::run_all;
use sim::random::fresh_seed;
use sim::versions::job;
use std::time::Duration;

/// Jobs with fixed seeds, and as many with new ones.
#[test]
fn histories_answer_like_a_map_of_versions() {
    let (count, fresh) = (sim::scaled(60, 10), fresh_seed() >> 8);
    println!("fresh seed: {fresh}");
    let jobs = (0..count).chain((0..count).map(|n| fresh + n)).map(job).collect();
    let report = run_all(jobs, Duration::from_secs(900));
    sim::count("comparisons of histories", report.count);
    report.expect_clean();
    assert!(report.count > count);
}
