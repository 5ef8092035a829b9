//! Snapshot isolation and linearizable keys with concurrent writers, readers, flushes and compactions.

use sim::jobs::run_all;
use sim::random::{derive, fresh_seed};
use sim::threads;
use std::time::Duration;

#[test]
fn every_view_is_one_state() {
    let fresh = fresh_seed();
    println!("fresh seed: {fresh}");
    let jobs = (0..sim::scaled(12, 4))
        .map(|i| threads::job(derive(fresh, i), Duration::from_millis(2500)))
        .collect();
    let report = run_all(jobs, Duration::from_secs(600));
    sim::count("observations", report.count);
    report.expect_clean();
    assert!(report.count > 1000);
}
