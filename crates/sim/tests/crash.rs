//! Power failures and kills before and after each I/O operation of random histories.

use sim::crash::{self, Coverage};
use sim::jobs::{Job, run_all};
use sim::random::{derive, fresh_seed};
use std::time::Duration;

/// Minimum number of recoveries in this test, including those from a second crash. No further histories start after
/// that.
fn min_recoveries() -> u64 {
    sim::scaled(250_000, 15_000)
}

/// Number of histories started together.
fn histories_per_round() -> u64 {
    sim::scaled(16, 6)
}

/// A history takes seconds. One that takes longer than this hangs.
const HANG: Duration = Duration::from_secs(900);

/// One history in eight tries all kinds of surviving disks at each crash point. The others take the kinds in turn,
/// each with a different first kind, so that six histories cover all kinds at each point. Half of the seeds are new
/// in each run.
#[test]
fn recovery_yields_a_prefix_with_everything_synced() {
    let fresh = fresh_seed();
    println!("fresh seed: {fresh}");
    let mut recoveries = 0;
    for round in 0.. {
        let histories = round * histories_per_round()..(round + 1) * histories_per_round();
        let report = run_all(histories.map(|i| job(i, fresh)).collect(), HANG);
        report.expect_clean();
        recoveries += report.count;
        if recoveries >= min_recoveries() {
            break;
        }
    }
    sim::count("recoveries", recoveries);
}

fn job(history: u64, fresh: u64) -> Job {
    let seed = if history.is_multiple_of(2) { history } else { derive(fresh, history) };
    let coverage = match history % 16 {
        0 | 9 => Coverage::EveryKind,
        _ => Coverage::InTurn(history / 2 % 6),
    };
    crash::job(seed, coverage)
}

/// Trap 11.
#[test]
fn no_log_is_replayed_over_a_hole_in_the_one_before() {
    let report = run_all([1, fresh_seed()].map(crash::hole::job).into(), HANG);
    sim::count("recoveries", report.count);
    report.expect_clean();
}

/// A printed seed is useful only if it replays.
#[test]
fn a_history_replays_from_its_seed() {
    let count = || {
        let report = run_all(vec![crash::job(7, Coverage::InTurn(0))], HANG);
        report.expect_clean();
        report.count
    };
    assert_eq!(count(), count());
}
