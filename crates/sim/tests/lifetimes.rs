//! However a database is closed and reopened, no acknowledged write is lost, and the old opening does not affect the
//! new one.

use sim::jobs::{Job, Report, run_all};
use sim::lifetime::{self, LIFETIMES, Tally};
use sim::random::{derive, fresh_seed};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Number of databases, with [`LIFETIMES`] openings each.
fn databases() -> u64 {
    sim::scaled(700, 30)
}

/// A database takes a fraction of a second. One that takes longer than this hangs.
const HANG: Duration = Duration::from_secs(300);

/// The program for child processes.
fn program() -> PathBuf {
    env!("CARGO_BIN_EXE_cairn-sim").into()
}

/// Runs all jobs, two per core: the threads of a job wait for each other half of the time.
fn run_twice_as_many_at_once(job: impl Fn(u64) -> Job) -> Report {
    let half = |rest: u64| (0..databases()).filter(|i| i % 2 == rest).map(&job).collect::<Vec<_>>();
    let (even, odd) = (half(0), half(1));
    let [even, odd] = std::thread::scope(|scope| {
        [even, odd].map(|jobs| scope.spawn(move || run_all(jobs, HANG))).map(|half| half.join().unwrap())
    });
    Report { count: even.count + odd.count, findings: [even.findings, odd.findings].concat() }
}

/// Traps 27, 34 and 35. Half of the seeds are new in each run.
#[test]
fn what_was_acknowledged_outlives_every_opening_and_no_opening_outlives_its_lock() {
    let fresh = fresh_seed();
    println!("fresh seed: {fresh}");
    let databases = databases();
    let tally = Arc::new(Tally::default());
    let seed = |i: u64| if i.is_multiple_of(2) { i } else { derive(fresh, i) };
    let report = run_twice_as_many_at_once(|i| lifetime::job(program(), seed(i), &tally));
    let [calls, late, processes] =
        [&tally.calls, &tally.late_calls, &tally.processes].map(|count| count.load(Ordering::Relaxed));
    sim::count("lifetimes", report.count);
    sim::count("lifetimes: calls before the end", calls);
    sim::count("lifetimes: calls after the end", late);
    println!("{processes} openings in other processes");
    report.expect_clean();
    assert_eq!(report.count, databases * LIFETIMES);
    let least = [calls / 500, late / 100, processes * 5].into_iter().min();
    assert!(least >= Some(databases), "too few were drawn: {tally:?}");
}
