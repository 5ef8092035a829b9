//! All limits are supported or rejected with an error that names the cause, and no process aborts.

use sim::extreme::case::{Case, LEFT_OUT};
use sim::extreme::job;
use sim::jobs::{Job, run_all};
use sim::machine::skip;
use sim::random::{derive, fresh_seed};
use std::path::PathBuf;
use std::time::Duration;

/// A case that takes longer hangs.
const HANG: Duration = Duration::from_secs(1200);

/// The program for child processes.
fn program() -> PathBuf {
    env!("CARGO_BIN_EXE_cairn-sim").into()
}

/// Traps 7, 31 and 33. At full length: all cases, and more seeds for each limit.
#[test]
fn every_limit_is_held_or_refused_by_name_and_nothing_aborts() {
    let full = sim::is_full();
    let fresh = fresh_seed();
    println!("fresh seed: {fresh}");
    let seed = |i: u64| if i.is_multiple_of(2) { i } else { derive(fresh, i) };
    LEFT_OUT.iter().for_each(|(what, why)| skip(what, why));
    let mut jobs: Vec<Job> = Vec::new();
    for case in Case::all(full) {
        let seeds = if full && matches!(case, Case::Limit(..)) { 8 } else { 2 };
        let seeds = if case.is_large() || matches!(case, Case::Keyspaces(_)) { 1 } else { seeds };
        jobs.extend((0..seeds).map(|i| job(program(), seed(i), case)));
    }
    let cases = jobs.len() as u64;
    let report = run_all(jobs, HANG);
    sim::count("extremes", report.count);
    report.expect_clean();
    assert_eq!(report.count, cases);
}
