//! Keyspaces with compaction filters compared with a map.

use sim::filters::job;
use sim::jobs::run_all;
use sim::random::fresh_seed;
use std::time::Duration;

/// Jobs with fixed seeds, and as many with new ones.
#[test]
fn a_filter_changes_nothing_that_a_reader_sees() {
    let (count, fresh) = (sim::scaled(60, 10), fresh_seed() >> 8);
    println!("fresh seed: {fresh}");
    let jobs = (0..count).chain((0..count).map(|n| fresh + n)).map(job).collect();
    let report = run_all(jobs, Duration::from_secs(900));
    sim::count("calls beside compaction filters", report.count);
    report.expect_clean();
}
