//! Runs one workload: divides its operations among threads, measures each of them, and merges the results.
//!
//! A thread reads the clock once per operation: the end of one operation is the start of the next. Generating a key
//! or a value takes a few nanoseconds and counts as part of the operation, as in `db_bench`. Another thread
//! periodically reads the kernel's counters and reports progress.
//!
//! The files of this folder, from the bottom: `job` has the input and the counts, `choose` the keys, `sampling` the
//! samples over time, `timer` the measurement of a thread; `history` is the one workload with a schedule. They
//! import the engine and the generators, and nothing of sessions and results except samples.

mod choose;
mod history;
mod job;
mod sampling;
mod timer;

pub use job::{Job, Tally};
pub use sampling::Course;

use crate::disk::ThreadReads;
use crate::engine::{Engine, Result, split_version_key};
use crate::generate::{Key, below, random, seed_of};
use crate::workload::{Keys, Kind, Work, Workload};
use choose::{Chooser, Picker};
use hdrhistogram::Histogram;
use std::ops::Range;
use std::thread;
use std::time::{Duration, Instant};
use timer::{Common, Share, Timer};

/// Every so many operations, one that may read is checked for disk reads. The time of the check is not counted.
const PROBE_EVERY: u64 = 256;
/// Maximum number of entries of a scan.
const MAX_SCAN_ENTRIES: u64 = 100;

/// The result of a run.
pub struct Outcome {
    /// When the first thread started.
    pub started: Instant,
    /// Time from then until the last thread ended.
    pub time: Duration,
    /// Latencies in nanoseconds.
    pub latency: Histogram<u64>,
    /// The same from the call, where operations follow a schedule.
    pub of_calls: Option<Histogram<u64>>,
    /// The same by kind of operation, if there are several kinds.
    pub by_kind: Vec<(Kind, Histogram<u64>)>,
    /// Counts of the operations.
    pub tally: Tally,
    /// Counts and latencies of the threads that write beside the readers, and the time that they took.
    pub writer: Option<(Tally, Histogram<u64>, Duration)>,
    /// Whether the time limit ended the run.
    pub cut_short: bool,
    /// Samples over time.
    pub course: Course,
}

/// Runs a workload. Periodically calls `progress` with the number of operations done.
pub fn run(job: &Job<'_>, progress: &mut (dyn FnMut(u64) + Send)) -> Result<Outcome> {
    let writers = match job.workload.work() {
        Work::History { .. } => 1,
        _ if job.workload == Workload::ReadWhileWriting => job.writers,
        _ => 0,
    };
    let common = &Common::new(job.threads, writers);
    let (shares, beside, kernel) = thread::scope(|scope| {
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let watch = scope.spawn(move || {
            let mut show = || progress(common.ops());
            let put = || common.bytes_put();
            Course::watch(job.sample, &ended, &mut show, &put, job.space)
        });
        let threads: Vec<_> = (0..job.threads).map(|t| scope.spawn(move || worker(job, common, t))).collect();
        let beside = (0..writers).map(|w| {
            scope.spawn(move || {
                let share = match job.workload.work() {
                    Work::History { keys } => history::put_at_rate(job, common, keys),
                    _ => write_until_stopped(job, common, w),
                };
                share.inspect_err(|_| common.fail())
            })
        });
        let beside: Vec<_> = beside.collect();
        let shares: Vec<_> = threads.into_iter().map(join).collect();
        let beside: Vec<_> = beside.into_iter().map(join).collect();
        drop(end);
        (shares, beside, join(watch))
    });
    let sum = add_up(shares)?.expect("there is at least one thread");
    let writer = add_up(beside)?;
    let mut course = kernel;
    course.join(&sum.intervals, writer.as_ref().map(|writer| &writer.intervals));
    let several = sum.by_kind.iter().flatten().count() > 1;
    let by_kind = Kind::ALL.into_iter().zip(sum.by_kind).filter_map(|(kind, latency)| Some((kind, latency?)));
    Ok(Outcome {
        started: sum.started,
        time: sum.ended - sum.started,
        latency: sum.latency,
        of_calls: sum.of_calls,
        by_kind: if several { by_kind.collect() } else { Vec::new() },
        tally: sum.tally,
        writer: writer.map(|writer| (writer.tally, writer.latency, writer.ended - writer.started)),
        cut_short: common.was_cut_short(),
        course,
    })
}

/// Merges the measurements of threads; `None` if there are none.
fn add_up(shares: Vec<Result<Share>>) -> Result<Option<Share>> {
    let mut sum: Option<Share> = None;
    for share in shares {
        let share = share?;
        match &mut sum {
            None => sum = Some(share),
            Some(sum) => sum.add(share),
        }
    }
    Ok(sum)
}

fn join<T>(thread: thread::ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// The part of `whole` for thread `t` of `threads`.
fn part(whole: u64, t: usize, threads: usize) -> Range<u64> {
    let cut = |t: usize| (u128::from(whole) * t as u128 / threads as u128) as u64;
    cut(t)..cut(t + 1)
}

fn worker(job: &Job<'_>, common: &Common, t: usize) -> Result<Share> {
    let share = match job.workload.work() {
        Work::Mix(kinds, keys) => mixed(job, common, t, kinds, keys),
        Work::Walk { back } => walk(job, common, t, back),
        Work::History { keys } => history::query_at_rate(job, common, keys),
    };
    common.one_is_done();
    share.inspect_err(|_| common.fail())
}

/// The operations of one thread of a mixed workload.
fn mixed(
    job: &Job<'_>,
    common: &Common,
    t: usize,
    kinds: &'static [(Kind, u64)],
    keys: Keys,
) -> Result<Share> {
    let engine = job.engine;
    let mut chooser = Chooser::new(job, keys, t);
    let picker = Picker::new(job, kinds);
    let phase = seed_of(job.seed, "values", 0);
    let mut key = Key::new(job.shape, job.key_size, job.num);
    let mut other = Key::new(job.shape, job.key_size, job.num);
    let mut missing = Key::missing(job.shape, job.key_size, job.num);
    let put = |number: u64, key: &[u8], tally: &mut Tally| {
        let value = job.values.of(phase, number);
        tally.bytes_put += (key.len() + value.len()) as u64;
        engine.put(key, value, job.sync)
    };
    let get = |op: u64, key: &[u8], tally: &mut Tally| {
        let mut checked = Ok(());
        let found = engine.get(key, &mut |value| checked = tally.got(op, key, value))?;
        tally.found += u64::from(found);
        checked
    };
    let as_of = match kinds.iter().any(|(kind, _)| *kind == Kind::SeekAsOf) {
        true => middle_time(engine, key.of(chooser.number(0)))?,
        false => 0,
    };
    let mut disk = ThreadReads::open();
    let mut timer = Timer::new(common, t, job);
    for op in part(job.ops, t, job.threads) {
        if timer.is_over() {
            break;
        }
        let kind = picker.kind(op);
        let probed = op % PROBE_EVERY == 1 && kind.reads();
        if probed {
            disk.begin();
            timer.resume();
        }
        let tally = &mut timer.tally;
        match kind {
            Kind::Read => get(op, key.of(chooser.number(op)), tally)?,
            Kind::ReadMissing => get(op, missing.of(chooser.number(op)), tally)?,
            Kind::Update => {
                let number = chooser.number(op);
                put(number, key.of(number), tally)?;
            }
            Kind::Insert => {
                let number = chooser.insert();
                put(number, key.of(number), tally)?;
            }
            Kind::Modify => {
                let number = chooser.number(op);
                let key = key.of(number);
                get(op, key, tally)?;
                put(number, key, tally)?;
            }
            Kind::Transfer => {
                let from = chooser.number(op);
                // Another account, chosen like the first.
                let mut others = (1..).map(|i| chooser.number(op + i * job.ops));
                let to = others.find(|to| *to != from).expect("the numbers do not end");
                let (from_key, to_key) = (key.of(from), other.of(to));
                let values = [job.values.of(phase, from), job.values.of(phase, to)];
                tally.bytes_put += (from_key.len() + to_key.len() + values[0].len() + values[1].len()) as u64;
                let (found, conflicts) = engine.update_both([from_key, to_key], values, job.sync)?;
                tally.found += found;
                tally.conflicts += conflicts;
            }
            Kind::Delete => {
                let key = key.of(chooser.number(op));
                tally.bytes_put += key.len() as u64;
                engine.delete(key, job.sync)?;
            }
            Kind::Scan => {
                let entries = 1 + below(random(picker.seed ^ 1, op), MAX_SCAN_ENTRIES);
                scan(engine, op, key.of(chooser.number(op)), entries, tally)?;
            }
            Kind::Seek => scan(engine, op, key.of(chooser.number(op)), job.seek_nexts + 1, tally)?,
            Kind::SeekAsOf => {
                let (from, mut left, mut checked) = (key.of(chooser.number(op)), job.seek_nexts + 1, Ok(()));
                engine.scan_as_of(as_of, from, &mut |key, value| {
                    tally.found += u64::from(left > job.seek_nexts && key == from);
                    checked = tally.got(op, key, value);
                    left -= 1;
                    left > 0 && checked.is_ok()
                })?;
                checked?;
            }
        }
        timer.lap(kind);
        if probed && let Some(from_disk) = disk.has_read() {
            timer.tally.probed += 1;
            timer.tally.from_disk += u64::from(from_disk);
            timer.resume();
        }
    }
    Ok(timer.end())
}

/// The time of the middle one of the versions of a key; 0 if there are none.
fn middle_time(engine: &dyn Engine, key: &[u8]) -> Result<u64> {
    let mut times = Vec::new();
    engine.versions(key, (0, u64::MAX), &mut |version, _| {
        times.extend(split_version_key(version).map(|(_, time)| time));
        true
    })?;
    Ok(times.get(times.len() / 2).copied().unwrap_or_default())
}

/// Positions a cursor and reads up to `entries` entries.
#[inline]
fn scan(engine: &dyn Engine, op: u64, from: &[u8], entries: u64, tally: &mut Tally) -> Result<()> {
    let mut left = entries;
    let mut checked = Ok(());
    engine.scan(Some(from), &mut |key, value| {
        tally.found += u64::from(left == entries && key == from);
        checked = tally.got(op, key, value);
        left -= 1;
        left > 0 && checked.is_ok()
    })?;
    checked
}

/// The steps of one thread of a complete scan. The first and the last thread include keys outside the known range.
fn walk(job: &Job<'_>, common: &Common, t: usize, back: bool) -> Result<Share> {
    let slice = part(job.num, t, job.threads);
    let key = |number| Key::new(job.shape, job.key_size, job.num).of(number).to_vec();
    let (first, last) = (t == 0, t + 1 == job.threads);
    let (from, until) = match back {
        false => ((!first).then(|| key(slice.start)), (!last).then(|| key(slice.end))),
        // In reverse, a slice starts at the last key before the start of the next slice.
        true => ((!last).then(|| key(slice.end)), (!first).then(|| key(slice.start))),
    };
    let steps = part(job.ops, t, job.threads);
    let mut op = steps.start;
    let mut failed = Ok(());
    let mut timer = Timer::new(common, t, job);
    if op < steps.end {
        let mut visit = |key: &[u8], value: &[u8]| {
            let outside = match (&until, back) {
                (Some(until), false) => key >= &until[..],
                (Some(until), true) => key < &until[..],
                (None, _) => false,
            };
            if outside {
                return false;
            }
            if back && from.as_deref() == Some(key) {
                return true;
            }
            timer.tally.found += 1;
            failed = timer.tally.got(op, key, value);
            timer.lap(Kind::Scan);
            op += 1;
            op < steps.end && failed.is_ok() && !timer.is_over()
        };
        match back {
            false => job.engine.scan(from.as_deref(), &mut visit)?,
            true => job.engine.scan_back(from.as_deref(), &mut visit)?,
        }
    }
    failed?;
    Ok(timer.end())
}

/// A thread that puts random keys while others read. It puts at least one.
fn write_until_stopped(job: &Job<'_>, common: &Common, w: usize) -> Result<Share> {
    let job = &Job { seed: job.writer_seed, time_max: None, ..*job };
    let chooser = Chooser::new(job, Keys::Uniform, 0);
    let phase = seed_of(job.seed, "values", 0);
    let mut key = Key::new(job.shape, job.key_size, job.num);
    let mut timer = Timer::new(common, job.threads + w, job);
    // Each writer repeats its part of the `overwrite`, from the start again after its last put.
    for op in part(job.num, w, job.writers).cycle() {
        let number = chooser.number(op);
        let (key, value) = (key.of(number), job.values.of(phase, number));
        job.engine.put(key, value, job.sync)?;
        timer.tally.bytes_put += (key.len() + value.len()) as u64;
        timer.lap(Kind::Update);
        if common.stopped() {
            break;
        }
    }
    Ok(timer.end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_the_whole() {
        for (whole, threads) in [(0, 1), (1, 4), (10, 3), (1000, 7), (u64::MAX, 5)] {
            let parts: Vec<_> = (0..threads).map(|t| part(whole, t, threads)).collect();
            assert_eq!((parts[0].start, parts[threads - 1].end), (0, whole));
            assert!(parts.windows(2).all(|pair| pair[0].end == pair[1].start));
            let lengths = || parts.iter().map(|p| p.end - p.start);
            assert!(lengths().max().unwrap() - lengths().min().unwrap() <= 1);
        }
    }
}
