//! Runs all suites with new seeds for a given time, for example overnight.
//!
//! Rounds are repeated until the time is over. The seeds of every other round are the same in every soak, so that a
//! changed engine meets the same cases again. Those of the other rounds derive from the given seed, or from a new
//! one.

use crate::crash::Coverage;
use crate::extreme::case::Case;
use crate::finding::{Finding, Outcome};
use crate::jobs::{Job, run_all};
use crate::random::derive;
use crate::sets::option_sets;
use crate::{
    copies, crash, damage, extreme, fault, filters, history, kill, lifetime, loads, readers, session,
    threads, versions,
};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A job that takes longer hangs.
const HANG: Duration = Duration::from_secs(3600);

/// Number of findings after which a soak ends: more usually have the same cause.
const MAX_FINDINGS: usize = 10;

/// A suite that runs in each round.
pub struct Suite {
    /// What its jobs count.
    pub counts: &'static str,
    /// The jobs of a round with this seed. The path is that of a program with the command `kill-child`.
    pub jobs: fn(seed: u64, program: &Path) -> Vec<Job>,
}

/// All suites.
pub fn suites() -> Vec<Suite> {
    vec![
        Suite { counts: "model operations", jobs: model_jobs },
        Suite { counts: "recoveries", jobs: crash_jobs },
        Suite { counts: "failed operations", jobs: |seed, _| vec![fault::job(seed)] },
        Suite { counts: "corrupted images", jobs: |seed, _| vec![damage::job(seed, Arc::default())] },
        Suite { counts: "kills", jobs: kill_jobs },
        Suite { counts: "observations", jobs: |seed, _| vec![threads::job(seed, Duration::from_secs(10))] },
        Suite { counts: "recorded operations", jobs: history_jobs },
        Suite { counts: "comparisons of histories", jobs: versions_jobs },
        Suite {
            counts: "copies compared",
            jobs: |seed, _| (0..20).map(|i| copies::job(derive(seed, i) >> 8)).collect(),
        },
        Suite {
            counts: "bulk loads compared",
            jobs: |seed, _| (0..20).map(|i| loads::job(derive(seed, i) >> 8)).collect(),
        },
        Suite {
            counts: "moments of readers compared",
            jobs: |seed, _| (0..20).map(|i| readers::job(derive(seed, i) >> 8)).collect(),
        },
        Suite {
            counts: "calls beside filters",
            jobs: |seed, _| (0..20).map(|i| filters::job(derive(seed, i) >> 8)).collect(),
        },
        Suite { counts: "lifetimes", jobs: lifetime_jobs },
        Suite { counts: "extremes", jobs: extreme_jobs },
    ]
}

fn model_jobs(seed: u64, _: &Path) -> Vec<Job> {
    let sets = option_sets().into_iter().zip(0..);
    sets.map(|(set, i)| session::job(set, derive(seed, i), 10_000)).collect()
}

fn crash_jobs(seed: u64, _: &Path) -> Vec<Job> {
    (0..24).map(|i| crash::job(derive(seed, i), Coverage::InTurn(i % 6))).collect()
}

fn kill_jobs(seed: u64, program: &Path) -> Vec<Job> {
    let job = |i| kill::job(PathBuf::from(program), derive(seed, i), 60, Arc::default());
    (0..4).map(job).collect()
}

fn history_jobs(seed: u64, _: &Path) -> Vec<Job> {
    let tally = Arc::default();
    (0..60).map(|i| history::job(derive(seed, i), i % 3 > 0, &tally)).collect()
}

fn versions_jobs(seed: u64, _: &Path) -> Vec<Job> {
    // Consecutive jobs have consecutive kinds and shapes.
    let first = derive(seed, 0) >> 8;
    (0..40).map(|i| versions::job(first + i)).collect()
}

fn lifetime_jobs(seed: u64, program: &Path) -> Vec<Job> {
    let tally = Arc::default();
    (0..60).map(|i| lifetime::job(PathBuf::from(program), derive(seed, i), &tally)).collect()
}

fn extreme_jobs(seed: u64, program: &Path) -> Vec<Job> {
    let cases = Case::all(false).into_iter().zip(0..);
    cases.map(|(case, i)| extreme::job(PathBuf::from(program), derive(seed, i), case)).collect()
}

/// Runs rounds of all suites until `time` is over, and prints a summary after each. Fails with all findings.
pub fn run(time: Duration, base: u64, program: &Path) -> Outcome {
    let start = Instant::now();
    println!("base seed: {base}");
    let suites: Vec<_> = suites().into_iter().map(|s| (s, Arc::new(AtomicU64::new(0)))).collect();
    let mut findings = Vec::new();
    let mut round = 0;
    while start.elapsed() < time && findings.len() < MAX_FINDINGS {
        let round_seed = derive(if round % 2 == 0 { 0 } else { base }, round);
        let jobs = suites.iter().zip(0..).flat_map(|((suite, count), i)| {
            let jobs = (suite.jobs)(derive(round_seed, i), program);
            jobs.into_iter().map(|job| counted(job, count.clone()))
        });
        let report = run_all(jobs.collect(), HANG);
        report.findings.iter().for_each(|f| println!("\n{f}\n"));
        findings.extend(report.findings);
        let counts: Vec<_> =
            suites.iter().map(|(s, n)| format!("{} {}", n.load(Ordering::Relaxed), s.counts)).collect();
        println!(
            "{:6} s: {} rounds, {} findings; {}",
            start.elapsed().as_secs(),
            round + 1,
            findings.len(),
            counts.join(", ")
        );
        round += 1;
    }
    match findings.is_empty() {
        true => Ok(()),
        false => Err(Finding::new(format!("{} findings:\n\n{}", findings.len(), findings.join("\n\n")))),
    }
}

fn counted(job: Job, sum: Arc<AtomicU64>) -> Job {
    let run = job.run;
    let run = Box::new(move || {
        let count = run()?;
        sum.fetch_add(count, Ordering::Relaxed);
        Ok(count)
    });
    Job { run, ..job }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_count_for_their_suite() {
        let sum = Arc::new(AtomicU64::new(1));
        let job = Job { name: "a".into(), replay: "b".into(), run: Box::new(|| Ok(41)) };
        let report = run_all(vec![counted(job, sum.clone())], HANG);
        assert_eq!((report.count, sum.load(Ordering::Relaxed)), (41, 42));
    }
}
