//! A history of versions: puts at a fixed rate, and queries for the versions of one key in a range of time (the
//! Mneme thesis, chapter 6).
//!
//! Both threads follow a schedule. The latency of an operation counts from its scheduled time, so operations that
//! are delayed by a stall of the engine have high latencies. A sleeping thread wakes late, by 50 to 100 us on an idle
//! machine, which is more than many queries take: so the latency of the calls alone is recorded beside it.
//!
//! Where an engine has no history, the key is key and time, as in the thesis with LevelDB: [`crate::engine::version_key`].

use super::job::Job;
use super::timer::{Common, Share, Timer};
use crate::engine::Result;
use crate::generate::{Key, Shuffle, Stream, Zipf, below, random, seed_of};
use crate::workload::{HistoryKeys, Kind, Rates};
use std::thread;
use std::time::{Duration, Instant};

/// Maximum number of versions that a query reads; the thesis has queries of 1 to 200.
const MAX_VERSIONS: u64 = 200;

/// Chooses the keys of a history.
struct Chooser {
    seed: u64,
    num: u64,
    zipf: Option<(Zipf, Shuffle)>,
}

impl Chooser {
    fn new(job: &Job<'_>, keys: HistoryKeys, part: &str) -> Chooser {
        let zipf = match keys {
            // Puts and queries have the same frequent keys.
            HistoryKeys::Zipf => {
                Some((Zipf::new(job.num, rates(job).exponent), Shuffle::new(job.num, job.seed)))
            }
            HistoryKeys::Uniform => None,
        };
        Chooser { seed: seed_of(job.seed, part, 0), num: job.num, zipf }
    }

    /// The key of operation `op` if `known` keys have versions.
    fn number(&self, op: u64, known: u64) -> u64 {
        match &self.zipf {
            Some((zipf, shuffle)) => {
                shuffle.of(zipf.number(&mut Stream::new(self.seed, op)).min(self.num - 1))
            }
            None => below(random(self.seed, op), known.max(1)),
        }
    }
}

/// The scheduled time of operation `op`.
fn due(started: Instant, op: u64, rate: f64) -> Instant {
    started + Duration::from_secs_f64(op as f64 / rate)
}

fn wait_until(due: Instant) {
    let now = Instant::now();
    if now < due {
        thread::sleep(due - now);
    }
}

/// Microseconds from the start to the scheduled time of operation `op`: the time of its version.
fn time_of(op: u64, rate: f64) -> u64 {
    (op as f64 * 1e6 / rate) as u64
}

fn keys_of(job: &Job<'_>) -> Key {
    // The number of keys is unknown: puts create keys. Allow all numbers that fit.
    let room = 10u64.pow(job.key_size.min(19) as u32);
    Key::new(job.shape, job.key_size, room)
}

fn rates(job: &Job<'_>) -> Rates {
    job.rates.expect("a history has rates")
}

/// The thread that puts versions. It completes all puts, even after the last query, so that all engines have the
/// same content.
pub(crate) fn put_at_rate(job: &Job<'_>, common: &Common, keys: HistoryKeys) -> Result<Share> {
    let rates = rates(job);
    let (rate, puts) = (rates.puts, rates.puts_beside(job.ops));
    let chooser = Chooser::new(job, keys, "puts");
    let (phase, news) = (seed_of(job.seed, "values", 0), seed_of(job.seed, "new", 0));
    let mut key = keys_of(job);
    let mut known = 0;
    let mut timer = Timer::new(common, job.threads, job);
    for op in 0..puts {
        if timer.is_late() || common.ended_early() {
            break;
        }
        let due = due(timer.started, op, rate);
        wait_until(due);
        let is_new =
            chooser.zipf.is_none() && (known == 0 || below(random(news, op), 100) < rates.new_percent);
        let number = if is_new { known } else { chooser.number(op, known) };
        known += u64::from(is_new);
        let (key, value) = (key.of(number), job.values.of(phase, op));
        let called = Instant::now();
        job.engine.put_version(key, time_of(op, rate), value, job.sync)?;
        timer.tally.bytes_put += (key.len() + value.len()) as u64;
        timer.lap_since(Kind::Update, due, called);
    }
    Ok(timer.end())
}

/// The thread that queries versions.
pub(crate) fn query_at_rate(job: &Job<'_>, common: &Common, keys: HistoryKeys) -> Result<Share> {
    let Rates { puts, queries: rate, new_percent, .. } = rates(job);
    let chooser = Chooser::new(job, keys, "queries");
    let times = seed_of(job.seed, "times", 0);
    let mut key = keys_of(job);
    let mut timer = Timer::new(common, 0, job);
    for op in 0..job.ops {
        if timer.is_over() {
            break;
        }
        let due = due(timer.started, op, rate);
        wait_until(due);
        let elapsed = time_of(op, rate);
        // With a uniform choice, so many of the puts so far created a key.
        let known = (elapsed as f64 / 1e6 * puts * new_percent as f64 / 100.0) as u64;
        let number = chooser.number(op, known);
        let from = below(random(times, op), elapsed - elapsed / 3 + 1);
        let called = Instant::now();
        versions(job, op, key.of(number), (from, from + elapsed / 3), &mut timer)?;
        timer.lap_since(Kind::Scan, due, called);
    }
    Ok(timer.end())
}

/// Reads the versions of a key between two times.
fn versions(job: &Job<'_>, op: u64, key: &[u8], times: (u64, u64), timer: &mut Timer<'_>) -> Result<()> {
    let mut left = MAX_VERSIONS;
    let mut checked = Ok(());
    let tally = &mut timer.tally;
    job.engine.versions(key, times, &mut |version, value| {
        tally.found += 1;
        checked = tally.got(op, version, value);
        left -= 1;
        left > 0 && checked.is_ok()
    })?;
    checked
}
