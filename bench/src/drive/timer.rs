//! Measures each operation of a thread, and holds the state that the threads of a run share.

use super::job::{Job, Tally};
use super::sampling::Intervals;
use crate::workload::{Kind, Work};
use hdrhistogram::Histogram;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Barrier, Mutex};
use std::time::{Duration, Instant};

/// The measurements of one thread.
pub(crate) struct Share {
    pub(crate) started: Instant,
    pub(crate) ended: Instant,
    pub(crate) latency: Histogram<u64>,
    /// Of operations that follow a schedule: from the call, and not from the scheduled time.
    pub(crate) of_calls: Option<Histogram<u64>>,
    pub(crate) by_kind: Vec<Option<Histogram<u64>>>,
    pub(crate) tally: Tally,
    pub(crate) intervals: Intervals,
}

impl Share {
    /// Adds the measurements of another thread.
    pub(crate) fn add(&mut self, other: Share) {
        self.started = self.started.min(other.started);
        self.ended = self.ended.max(other.ended);
        self.latency.add(&other.latency).expect("all histograms have the same bounds");
        for (sum, other) in self.by_kind.iter_mut().zip(other.by_kind) {
            match (sum.as_mut(), other) {
                (Some(sum), Some(other)) => sum.add(&other).expect("all histograms have the same bounds"),
                (None, other) => *sum = other,
                (Some(_), None) => {}
            }
        }
        match (self.of_calls.as_mut(), other.of_calls) {
            (Some(sum), Some(other)) => sum.add(&other).expect("all histograms have the same bounds"),
            (None, other) => self.of_calls = other,
            (Some(_), None) => {}
        }
        self.tally.add(&other.tally);
        self.intervals.add(&other.intervals);
    }
}

/// A counter on its own cache line, to avoid false sharing.
#[repr(align(128))]
#[derive(Default)]
struct Counter {
    ops: AtomicU64,
    bytes_put: AtomicU64,
}

/// The state shared by the threads of a run.
pub(crate) struct Common {
    start: Barrier,
    /// When the first thread passed the barrier.
    started: Mutex<Option<Instant>>,
    /// Set when a thread fails, when the time limit is reached, or when the last reader has ended, so that the
    /// writers beside it stop.
    stop: AtomicBool,
    cut_short: AtomicBool,
    failed: AtomicBool,
    readers_left: AtomicUsize,
    threads: usize,
    /// Counters of the threads that run the operations, then of those beside them.
    done: Vec<Counter>,
}

impl Common {
    /// For `threads` threads that run the operations and `beside` others.
    pub(crate) fn new(threads: usize, beside: usize) -> Common {
        Common {
            start: Barrier::new(threads + beside),
            started: Mutex::new(None),
            stop: AtomicBool::new(false),
            cut_short: AtomicBool::new(false),
            failed: AtomicBool::new(false),
            readers_left: AtomicUsize::new(threads),
            threads,
            done: (0..threads + beside).map(|_| Counter::default()).collect(),
        }
    }

    /// Operations done, without those of the threads beside.
    pub(crate) fn ops(&self) -> u64 {
        self.done[..self.threads].iter().map(|n| n.ops.load(Relaxed)).sum()
    }

    /// Bytes put by all threads.
    pub(crate) fn bytes_put(&self) -> u64 {
        self.done.iter().map(|n| n.bytes_put.load(Relaxed)).sum()
    }

    /// A thread has completed its operations. After the last one, the threads beside them stop.
    pub(crate) fn one_is_done(&self) {
        if self.readers_left.fetch_sub(1, Relaxed) == 1 {
            self.stop.store(true, Relaxed);
        }
    }

    fn begin(&self) -> Instant {
        self.start.wait();
        *self.started.lock().unwrap_or_else(|e| e.into_inner()).get_or_insert_with(Instant::now)
    }

    /// Whether all threads must stop.
    pub(crate) fn stopped(&self) -> bool {
        self.stop.load(Relaxed)
    }

    /// Whether the time limit was reached or a thread failed.
    pub(crate) fn ended_early(&self) -> bool {
        self.cut_short.load(Relaxed) || self.failed.load(Relaxed)
    }

    /// Whether the time limit was reached.
    pub(crate) fn was_cut_short(&self) -> bool {
        self.cut_short.load(Relaxed)
    }

    fn cut_short(&self) {
        self.cut_short.store(true, Relaxed);
        self.stop.store(true, Relaxed);
    }

    /// Stops all threads because one failed.
    pub(crate) fn fail(&self) {
        self.failed.store(true, Relaxed);
        self.stop.store(true, Relaxed);
    }
}

/// Measures each operation of a thread.
pub(crate) struct Timer<'a> {
    common: &'a Common,
    counter: &'a Counter,
    pub(crate) started: Instant,
    last: Instant,
    left_out: Duration,
    until: Option<Instant>,
    latency: Histogram<u64>,
    of_calls: Option<Histogram<u64>>,
    by_kind: Vec<Option<Histogram<u64>>>,
    mixed: bool,
    pub(crate) tally: Tally,
    intervals: Intervals,
}

impl<'a> Timer<'a> {
    /// Waits until all threads are ready, then starts.
    pub(crate) fn new(common: &'a Common, t: usize, job: &Job<'_>) -> Timer<'a> {
        let kinds = match job.workload.work() {
            Work::Mix(kinds, _) => kinds,
            _ => &[],
        };
        let mixed = kinds.len() > 1;
        let has = |kind: Kind| mixed && kinds.iter().any(|k| k.0 == kind);
        let by_kind = Kind::ALL.map(|kind| has(kind).then(new_histogram)).into();
        let (latency, intervals) = (new_histogram(), Intervals::new(job.sample));
        let started = common.begin();
        Timer {
            common,
            counter: &common.done[t],
            started,
            last: started,
            left_out: Duration::ZERO,
            until: job.time_max.map(|time| started + time),
            latency,
            of_calls: None,
            by_kind,
            mixed,
            tally: Tally::default(),
            intervals,
        }
    }

    /// Whether to stop: a thread failed, or the time limit is reached.
    #[inline]
    pub(crate) fn is_over(&self) -> bool {
        self.is_late() || self.common.stopped()
    }

    /// Whether the time limit is reached. Then all threads are stopped.
    #[inline]
    pub(crate) fn is_late(&self) -> bool {
        let late = self.until.is_some_and(|until| self.last >= until);
        if late {
            self.common.cut_short();
        }
        late
    }

    /// Records an operation that took the time since the last one ended.
    #[inline]
    pub(crate) fn lap(&mut self, kind: Kind) {
        let now = Instant::now();
        let nanos = (now - self.last).as_nanos() as u64;
        self.last = now;
        self.record(kind, nanos);
    }

    /// Excludes the time since the last operation from the next operation and from the run.
    pub(crate) fn resume(&mut self) {
        let now = Instant::now();
        self.left_out += now - self.last;
        self.last = now;
    }

    /// Records an operation that ended now, was scheduled at `due`, and called at `called`.
    pub(crate) fn lap_since(&mut self, kind: Kind, due: Instant, called: Instant) {
        self.last = Instant::now();
        let of_call = self.last.saturating_duration_since(called).as_nanos() as u64;
        self.of_calls.get_or_insert_with(new_histogram).saturating_record(of_call);
        self.record(kind, self.last.saturating_duration_since(due).as_nanos() as u64);
    }

    #[inline]
    fn record(&mut self, kind: Kind, nanos: u64) {
        self.latency.saturating_record(nanos);
        if self.mixed
            && let Some(latency) = &mut self.by_kind[kind as usize]
        {
            latency.saturating_record(nanos);
        }
        self.intervals.record(self.last - self.started, nanos);
        self.tally.ops += 1;
        self.counter.ops.store(self.tally.ops, Relaxed);
        self.counter.bytes_put.store(self.tally.bytes_put, Relaxed);
    }

    pub(crate) fn end(self) -> Share {
        Share {
            started: self.started,
            ended: Instant::now() - self.left_out,
            latency: self.latency,
            of_calls: self.of_calls,
            by_kind: self.by_kind,
            tally: self.tally,
            intervals: self.intervals,
        }
    }
}

/// From 1 ns to an hour, with three digits: about 250 KiB.
fn new_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 3_600_000_000_000, 3).expect("the bounds are constant and right")
}
