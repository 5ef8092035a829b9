//! All recorded histories have an order that explains them: linearizable keys, snapshot isolation, and a prefix after
//! crashes.

use sim::history::{self, Tally};
use sim::jobs::{Job, run_all};
use sim::random::{derive, fresh_seed};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Number of histories without crashes.
fn histories() -> u64 {
    sim::scaled(60, 6)
}

/// Number of histories with four crashes each.
fn crashing() -> u64 {
    sim::scaled(120, 12)
}

/// A history takes a fraction of a second. One that takes longer than this hangs.
const HANG: Duration = Duration::from_secs(600);

/// Half of the seeds are new in each run.
#[test]
fn every_history_has_an_order_that_explains_it() {
    let fresh = fresh_seed();
    println!("fresh seed: {fresh}");
    let tally = Arc::new(Tally::default());
    let seed = |i: u64| if i.is_multiple_of(2) { i } else { derive(fresh, i) };
    let jobs: Vec<Job> =
        (0..histories() + crashing()).map(|i| history::job(seed(i), i >= histories(), &tally)).collect();
    let report = run_all(jobs, HANG);
    sim::count("linearizability: operations checked", report.count);
    sim::count("histories with crashes", crashing());
    report.expect_clean();
    let [crashes, flushes, compactions] =
        [&tally.crashes, &tally.flushes, &tally.compactions].map(|count| count.load(Ordering::Relaxed));
    let [transactions, conflicts] =
        [&tally.transactions, &tally.conflicts].map(|count| count.load(Ordering::Relaxed));
    println!("{crashes} crashes, {flushes} flushes, {compactions} compactions");
    println!("{transactions} transactions, {conflicts} conflicts");
    sim::count("serializability: transactions", transactions);
    assert!(
        transactions > sim::scaled(5_000, 500) && conflicts > sim::scaled(500, 50),
        "{transactions} transactions, {conflicts} conflicts"
    );
    assert!(report.count > sim::scaled(100_000, 10_000) && crashes == 4 * crashing());
    assert!(
        flushes > sim::scaled(5_000, 500) && compactions > sim::scaled(2_000, 200),
        "{flushes} flushes, {compactions} compactions"
    );
}
