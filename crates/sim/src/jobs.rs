//! Runs many seeds on all cores, and turns panics and hangs into findings that name the seed.

use crate::finding::{Finding, Outcome};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

/// One seed of one test.
pub struct Job {
    /// A name, for messages.
    pub name: String,
    /// The command that repeats it.
    pub replay: String,
    /// Runs the job. Returns a count (operations, recoveries, kills).
    pub run: Box<dyn FnOnce() -> Outcome<u64> + Send>,
}

/// The result of a list of jobs.
#[derive(Default)]
pub struct Report {
    /// The sum of their counts.
    pub count: u64,
    /// Their findings, each with the command to repeat it.
    pub findings: Vec<String>,
}

impl Report {
    /// Panics with all findings, if there are any.
    pub fn expect_clean(&self) {
        assert!(self.findings.is_empty(), "{} found:\n\n{}", self.findings.len(), self.findings.join("\n\n"));
    }
}

/// Runs the jobs on as many threads as there are cores. A job that takes longer than `limit` counts as hanging; its
/// thread is abandoned.
pub fn run_all(jobs: Vec<Job>, limit: Duration) -> Report {
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    let total = jobs.len();
    let labels: Vec<_> = jobs.iter().map(|j| (j.name.clone(), j.replay.clone())).collect();
    let slots: Arc<Vec<Mutex<Option<Job>>>> =
        Arc::new(jobs.into_iter().map(|j| Mutex::new(Some(j))).collect());
    let next = Arc::new(AtomicUsize::new(0));
    let (sender, events) = mpsc::channel();
    for _ in 0..threads.min(total) {
        let (slots, next, sender) = (slots.clone(), next.clone(), sender.clone());
        std::thread::spawn(move || {
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                let Some(slot) = slots.get(index) else { break };
                let job = slot.lock().unwrap_or_else(|e| e.into_inner()).take();
                let Some(job) = job else { continue };
                let _ = sender.send((index, None));
                let outcome = catch_unwind(AssertUnwindSafe(job.run)).unwrap_or_else(|p| Err(panicked(&*p)));
                let _ = sender.send((index, Some(outcome)));
            }
        });
    }
    drop(sender);
    collect(&events, &labels, limit)
}

type Event = (usize, Option<Outcome<u64>>);

fn collect(events: &mpsc::Receiver<Event>, labels: &[(String, String)], limit: Duration) -> Report {
    let mut report = Report::default();
    let mut running: BTreeMap<usize, Instant> = BTreeMap::new();
    let mut finding = |index: usize, what: String| {
        let (name, replay) = &labels[index];
        report.findings.push(format!("{name}: {what}\n  replay: {replay}"));
    };
    let mut done = 0;
    let mut count = 0;
    while done < labels.len() {
        match events.recv_timeout(Duration::from_secs(1)) {
            Ok((index, None)) => {
                running.insert(index, Instant::now());
            }
            Ok((index, Some(outcome))) => {
                running.remove(&index);
                done += 1;
                match outcome {
                    Ok(counted) => count += counted,
                    Err(what) => finding(index, what.to_string()),
                }
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
            Err(mpsc::RecvTimeoutError::Timeout) => {
                let hanging: Vec<_> =
                    running.iter().filter(|r| r.1.elapsed() > limit).map(|r| *r.0).collect();
                if !hanging.is_empty() {
                    for index in hanging {
                        finding(index, format!("still running after {} s: it hangs", limit.as_secs()));
                    }
                    break;
                }
            }
        }
    }
    report.count = count;
    report
}

/// Converts a panic payload from `catch_unwind` or `join` into a finding.
pub(crate) fn panicked(payload: &(dyn std::any::Any + Send)) -> Finding {
    let words = payload.downcast_ref::<String>().map(String::as_str);
    let words = words.or_else(|| payload.downcast_ref::<&str>().copied());
    Finding::new(format!("panic: {}", words.unwrap_or("no message")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(name: &str, run: impl FnOnce() -> Outcome<u64> + Send + 'static) -> Job {
        Job { name: name.into(), replay: format!("again {name}"), run: Box::new(run) }
    }

    #[test]
    fn counts_add_up_and_findings_and_panics_are_reported() {
        let mut jobs: Vec<_> = (0..20).map(|i| job("fine", move || Ok(i))).collect();
        jobs.push(job("bad", || Err(Finding::new("a hole"))));
        jobs.push(job("worse", || panic!("a bug {}", 7)));
        let report = run_all(jobs, Duration::from_secs(60));
        assert_eq!(report.count, 190);
        let found = report.findings.join("\n");
        assert_eq!(report.findings.len(), 2);
        assert!(
            found.contains("bad: a hole\n  replay: again bad") && found.contains("worse: panic: a bug 7")
        );
    }

    #[test]
    fn hangs_are_reported() {
        let jobs = vec![job("endless", || {
            std::thread::sleep(Duration::from_secs(30));
            Ok(1)
        })];
        assert!(run_all(jobs, Duration::from_millis(100)).findings[0].contains("it hangs"));
    }
}
