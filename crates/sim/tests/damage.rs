//! Damages every bit, length, range and file of small databases, one image at a time.

use sim::damage::{self, Tally};
use sim::jobs::{Job, run_all};
use sim::random::{derive, fresh_seed};
use sim::sets::tiny_shapes;
use std::sync::Arc;
use std::time::Duration;

/// Minimum number of images in this test.
fn min_images() -> u64 {
    sim::scaled(200_000, 10_000)
}

/// A seed modulo the number of shapes, and modulo 3, selects the options of a database and its ending: so many cover each pair once.
fn pairs() -> u64 {
    3 * tiny_shapes().len() as u64
}

/// Number of databases.
fn fixtures() -> u64 {
    sim::scaled(pairs(), 3)
}

/// A database takes seconds. One that takes longer than this hangs.
const HANG: Duration = Duration::from_secs(900);

/// Half of the seeds are new in each run.
#[test]
fn damage_is_never_a_wrong_answer() {
    let fresh = fresh_seed();
    println!("fresh seed: {fresh}");
    let tally = Arc::new(Tally::default());
    let report = run_all((0..fixtures()).map(|i| job(i, fresh, &tally)).collect(), HANG);
    sim::count("silently wrong or missing", report.findings.len() as u64);
    report.expect_clean();
    let images = report.count;
    sim::count("corrupted images", images);
    sim::count("of them detected", tally.detected());
    sim::count("harmless", tally.harmless());
    sim::count("indistinguishable tail", tally.tail());
    assert!(images >= min_images());
    assert_eq!(images, tally.detected() + tally.harmless() + tally.tail());
    assert!(tally.detected() > images / 2 && tally.tail() > 0);
}

/// Consecutive fixtures have consecutive options and endings, with fresh seeds too.
fn job(fixture: u64, fresh: u64, tally: &Arc<Tally>) -> Job {
    let fresh = derive(fresh, fixture) / pairs() * pairs() + fixture % pairs();
    damage::job(if fixture.is_multiple_of(2) { fixture } else { fresh }, tally.clone())
}
