//! `kill -9` on the real file system while several threads write.

use sim::jobs::{Job, run_all};
use sim::kill::{self, KillCounts};
use sim::random::{derive, fresh_seed};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Total number of kills.
fn kills() -> u64 {
    sim::scaled(1500, 120)
}

/// Number of kills per seed. Each seed has its own databases.
const KILLS_PER_SEED: u64 = 30;

#[test]
fn nothing_acknowledged_is_lost_to_a_kill() {
    let fresh = fresh_seed();
    println!("fresh seed: {fresh}");
    let program = || env!("CARGO_BIN_EXE_cairn-sim").into();
    let seed = |i: u64| if i.is_multiple_of(2) { i } else { derive(fresh, i) };
    let counts = Arc::new(KillCounts::default());
    let job = |i| kill::job(program(), seed(i), KILLS_PER_SEED, counts.clone());
    let jobs: Vec<Job> = (0..kills() / KILLS_PER_SEED).map(job).collect();
    let report = run_all(jobs, Duration::from_secs(900));
    sim::count("kills", report.count);
    for (what, many) in [
        ("kills while opening", &counts.opening),
        ("kills that left unfinished tables", &counts.tables),
        ("kills in the switch of a manifest", &counts.manifests),
        ("kills at a chosen operation", &counts.kill_points),
        ("sums of a bank after kills", &counts.banks),
        ("copies after kills", &counts.copies),
        ("bulk loads after kills", &counts.loads),
        ("moments of readers beside kills", &counts.moments),
    ] {
        let many = many.load(Ordering::Relaxed);
        sim::count(what, many);
        assert!(many >= kills() / 100 || !report.findings.is_empty(), "only {many} {what}");
    }
    report.expect_clean();
    assert_eq!(report.count, kills());
}
