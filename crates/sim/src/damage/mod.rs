//! The damage test: every way in which the files of a small database may change under it, and what it answers then.
//!
//! ```text
//!   script --> Fixture: files, all synced, and the truth      (seeded: options, contents, logs, how it ended)
//!                 |
//!                 v
//!   wounds: each bit, each length, garbage, zeros, swaps, old versions, files that are gone
//!                 |
//!                 v
//!   open, get every key and absent ones, scan both ways:  each answer is right, or an error that names a file
//! ```
//!
//! What a wound may do in silence is nothing (P3), but for one thing: the end of the newest log (or manifest) may be gone where
//! nothing intact that was written later proves that it was there. `excuse.rs` works out, from the layout of the files alone, whether that is
//! so and what exactly must be found then; the database may not lose one commit more.

mod excuse;
mod fixture;
mod layout;
mod verdict;
mod wounds;

use crate::finding::{Finding, Outcome};
use crate::jobs::{Job, panicked};
use fixture::Fixture;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use verdict::Fate;

/// Findings after which a fixture gives up: they are mostly the same bug.
const MAX_FINDINGS: usize = 3;

/// How often the wounds of many fixtures had each fate. Shared by the jobs of a test.
#[derive(Default)]
pub struct Tally {
    detected: AtomicU64,
    harmless: AtomicU64,
    tail: AtomicU64,
}

impl Tally {
    /// Images of which some call said that they are damaged.
    pub fn detected(&self) -> u64 {
        self.detected.load(Ordering::Relaxed)
    }

    /// Images that gave every answer right: what was changed is not needed.
    pub fn harmless(&self) -> u64 {
        self.harmless.load(Ordering::Relaxed)
    }

    /// Images in which the end of a log or manifest is gone and nothing proves that it was there.
    pub fn tail(&self) -> u64 {
        self.tail.load(Ordering::Relaxed)
    }

    fn note(&self, fate: Fate) {
        let slot = match fate {
            Fate::Detected => &self.detected,
            Fate::Harmless => &self.harmless,
            Fate::Tail => &self.tail,
        };
        slot.fetch_add(1, Ordering::Relaxed);
    }
}

/// Builds the database of `seed` and applies each of its wounds to it, or only number `wound`. Returns how many.
pub fn run(seed: u64, wound: Option<usize>, trace: bool, tally: &Tally) -> Outcome<u64> {
    let fixture = Fixture::build(seed).map_err(|f| f.context("building the database"))?;
    if trace {
        println!("{fixture}");
    }
    // Without a wound everything must be right: otherwise the test tests nothing.
    let sound =
        verdict::judge(&fixture, &|| fixture.image(), seed).map_err(|f| f.context("without damage"))?;
    if sound != Fate::Harmless {
        return Err(Finding::new("without damage: an error"));
    }
    let (mut count, mut findings) = (0, Vec::new());
    for (number, inflicted) in wounds::all(&fixture, seed).into_iter().enumerate() {
        if wound.is_some_and(|only| only != number) {
            continue;
        }
        count += 1;
        let make = || inflicted.apply(&fixture);
        let judged = catch_unwind(AssertUnwindSafe(|| verdict::judge(&fixture, &make, seed ^ number as u64)))
            .unwrap_or_else(|payload| Err(panicked(&*payload)));
        match judged {
            Ok(fate) => {
                tally.note(fate);
                if trace && wound.is_some() {
                    println!("{inflicted}: {fate:?}");
                }
            }
            Err(finding) => findings.push(format!("--wound {number}: {inflicted}: {finding}")),
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

/// [`run`] as a job; it counts the images.
pub fn job(seed: u64, tally: std::sync::Arc<Tally>) -> Job {
    let replay = format!(
        "cargo run --release -p sim -- damage --seed {seed}   (--wound N: that one only; --trace: what is in the files)"
    );
    Job {
        name: format!("damage, seed {seed}"),
        replay,
        run: Box::new(move || run(seed, None, false, &tally)),
    }
}
