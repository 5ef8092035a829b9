//! The damage test: all kinds of changes to the files of a small database, and its answers afterwards.
//!
//! ```text
//!   script --> Fixture: files, all synced, and true content   (seeded: options, contents, logs, ending)
//!                 |
//!                 v
//!   mutations: each bit, each length, garbage, zeros, swaps, old versions, removed files
//!                 |
//!                 v
//!   open, get all keys and absent ones, scan both ways:  each answer is right, or an error that names a file
//! ```
//!
//! No mutation may change an answer without an error (P3), with one exception: the end of the newest log (or manifest)
//! may be lost if no later, intact data proves that it existed. `undetectable.rs` decides that from the layout of the files
//! alone, and which content must be found then. The database must not lose any commit beyond that.

mod fixture;
mod layout;
mod mutations;
mod undetectable;
mod verdict;

use crate::finding::{Finding, Outcome};
use crate::jobs::{Job, panicked};
use fixture::Fixture;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use verdict::ImageOutcome;

/// Number of findings after which a fixture stops: they usually have the same cause.
const MAX_FINDINGS: usize = 3;

/// Counts the outcomes of mutations over many fixtures. Shared by the jobs of a test.
#[derive(Default)]
pub struct Tally {
    detected: AtomicU64,
    harmless: AtomicU64,
    tail: AtomicU64,
}

impl Tally {
    /// Number of images for which a call reported damage.
    pub fn detected(&self) -> u64 {
        self.detected.load(Ordering::Relaxed)
    }

    /// Number of images with all answers right: the changed bytes are not used.
    pub fn harmless(&self) -> u64 {
        self.harmless.load(Ordering::Relaxed)
    }

    /// Number of images in which the end of a log or manifest is lost without proof.
    pub fn tail(&self) -> u64 {
        self.tail.load(Ordering::Relaxed)
    }

    fn note(&self, outcome: ImageOutcome) {
        let slot = match outcome {
            ImageOutcome::Detected => &self.detected,
            ImageOutcome::Harmless => &self.harmless,
            ImageOutcome::Tail => &self.tail,
        };
        slot.fetch_add(1, Ordering::Relaxed);
    }
}

/// Builds the database of `seed` and applies each of its mutations, or only number `only`. Returns the number of
/// mutations.
pub fn run(seed: u64, only: Option<usize>, trace: bool, tally: &Tally) -> Outcome<u64> {
    let fixture = Fixture::build(seed).map_err(|f| f.context("building the database"))?;
    if trace {
        println!("{fixture}");
    }
    // The undamaged database must pass, otherwise the test proves nothing.
    let sound =
        verdict::judge(&fixture, &|| fixture.image(), seed).map_err(|f| f.context("without damage"))?;
    if sound != ImageOutcome::Harmless {
        return Err(Finding::new("without damage: an error"));
    }
    let (mut count, mut findings) = (0, Vec::new());
    for (number, mutation) in mutations::all(&fixture, seed).into_iter().enumerate() {
        if only.is_some_and(|only| only != number) {
            continue;
        }
        count += 1;
        let make = || mutation.apply(&fixture);
        let judged = catch_unwind(AssertUnwindSafe(|| verdict::judge(&fixture, &make, seed ^ number as u64)))
            .unwrap_or_else(|payload| Err(panicked(&*payload)));
        match judged {
            Ok(outcome) => {
                tally.note(outcome);
                if trace && only.is_some() {
                    println!("{mutation}: {outcome:?}");
                }
            }
            Err(finding) => findings.push(format!("--mutation {number}: {mutation}: {finding}")),
        }
        if findings.len() >= MAX_FINDINGS {
            break;
        }
    }
    match findings.is_empty() {
        true => Ok(count),
        false => Err(Finding::new(format!("{fixture}\n  {}", findings.join("\n  ")))),
    }
}

/// [`run`] as a job, which counts images.
pub fn job(seed: u64, tally: std::sync::Arc<Tally>) -> Job {
    let replay = format!(
        "cargo run --release -p sim -- damage --seed {seed}   (--mutation N: that one only; --trace: what is in the files)"
    );
    Job {
        name: format!("damage, seed {seed}"),
        replay,
        run: Box::new(move || run(seed, None, false, &tally)),
    }
}
