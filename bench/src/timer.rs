//! Takes the time of each operation, thread by thread, and holds what the threads of a run share.

use crate::drive::{Job, Tally};
use crate::sampling::Stretches;
use crate::workload::{Kind, Work};
use hdrhistogram::Histogram;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Barrier, Mutex};
use std::time::{Duration, Instant};

/// What one thread measured.
pub(crate) struct Share {
    pub(crate) started: Instant,
    pub(crate) ended: Instant,
    pub(crate) latency: Histogram<u64>,
    pub(crate) by_kind: Vec<Option<Histogram<u64>>>,
    pub(crate) tally: Tally,
    pub(crate) stretches: Stretches,
}

impl Share {
    /// Adds what another thread measured.
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
        self.tally.add(&other.tally);
        self.stretches.add(&other.stretches);
    }
}

/// A counter with a cache line of its own, so that the threads do not slow each other down.
#[repr(align(128))]
#[derive(Default)]
struct Counter {
    ops: AtomicU64,
    bytes_put: AtomicU64,
}

/// What the threads of a run share.
pub(crate) struct Common {
    start: Barrier,
    /// When the first thread passed the barrier.
    started: Mutex<Option<Instant>>,
    /// Set when a thread fails, when time is up, or when the last reader has ended and the writers beside it may.
    stop: AtomicBool,
    cut_short: AtomicBool,
    failed: AtomicBool,
    readers_left: AtomicUsize,
    threads: usize,
    /// Of the threads that do the operations, then of those beside them.
    done: Vec<Counter>,
}

impl Common {
    /// For so many threads that do the operations, and so many beside them.
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

    /// Operations that are done, those of threads beside the others left out.
    pub(crate) fn ops(&self) -> u64 {
        self.done[..self.threads].iter().map(|n| n.ops.load(Relaxed)).sum()
    }

    /// Bytes that were put, by all threads.
    pub(crate) fn bytes_put(&self) -> u64 {
        self.done.iter().map(|n| n.bytes_put.load(Relaxed)).sum()
    }

    /// A thread has done its operations. After the last one the writers beside them have no reason to go on.
    pub(crate) fn one_is_done(&self) {
        if self.readers_left.fetch_sub(1, Relaxed) == 1 {
            self.stop.store(true, Relaxed);
        }
    }

    fn begin(&self) -> Instant {
        self.start.wait();
        *self.started.lock().unwrap_or_else(|e| e.into_inner()).get_or_insert_with(Instant::now)
    }

    /// Whether everybody is to stop.
    pub(crate) fn stopped(&self) -> bool {
        self.stop.load(Relaxed)
    }

    /// Whether the time was up, or a thread failed.
    pub(crate) fn ended_early(&self) -> bool {
        self.cut_short.load(Relaxed) || self.failed.load(Relaxed)
    }

    /// Whether the time was up.
    pub(crate) fn was_cut_short(&self) -> bool {
        self.cut_short.load(Relaxed)
    }

    fn cut_short(&self) {
        self.cut_short.store(true, Relaxed);
        self.stop.store(true, Relaxed);
    }

    /// A thread failed: all stop.
    pub(crate) fn fail(&self) {
        self.failed.store(true, Relaxed);
        self.stop.store(true, Relaxed);
    }
}

/// Takes the time of each operation of a thread.
pub(crate) struct Timer<'a> {
    common: &'a Common,
    counter: &'a Counter,
    pub(crate) started: Instant,
    last: Instant,
    left_out: Duration,
    until: Option<Instant>,
    latency: Histogram<u64>,
    by_kind: Vec<Option<Histogram<u64>>>,
    mixed: bool,
    pub(crate) tally: Tally,
    stretches: Stretches,
}

impl<'a> Timer<'a> {
    /// Waits until all threads are ready, and starts.
    pub(crate) fn new(common: &'a Common, t: usize, job: &Job<'_>) -> Timer<'a> {
        let kinds = match job.workload.work() {
            Work::Mix(kinds, _) => kinds,
            _ => &[],
        };
        let mixed = kinds.len() > 1;
        let has = |kind: Kind| mixed && kinds.iter().any(|k| k.0 == kind);
        let by_kind = Kind::ALL.map(|kind| has(kind).then(new_histogram)).into();
        let (latency, stretches) = (new_histogram(), Stretches::new(job.sample));
        let started = common.begin();
        Timer {
            common,
            counter: &common.done[t],
            started,
            last: started,
            left_out: Duration::ZERO,
            until: job.time_max.map(|time| started + time),
            latency,
            by_kind,
            mixed,
            tally: Tally::default(),
            stretches,
        }
    }

    /// Whether to stop: somebody failed, or time is up.
    #[inline]
    pub(crate) fn is_over(&self) -> bool {
        self.is_late() || self.common.stopped()
    }

    /// Whether time is up; then it is for all.
    #[inline]
    pub(crate) fn is_late(&self) -> bool {
        let late = self.until.is_some_and(|until| self.last >= until);
        if late {
            self.common.cut_short();
        }
        late
    }

    /// An operation ended: it took the time since the last one ended.
    #[inline]
    pub(crate) fn lap(&mut self, kind: Kind) {
        let now = Instant::now();
        let nanos = (now - self.last).as_nanos() as u64;
        self.last = now;
        self.record(kind, nanos);
    }

    /// The time from the last operation to here counts for nothing: neither for the next one nor for the run.
    pub(crate) fn resume(&mut self) {
        let now = Instant::now();
        self.left_out += now - self.last;
        self.last = now;
    }

    /// An operation ended now that was due at `due`.
    pub(crate) fn lap_since(&mut self, kind: Kind, due: Instant) {
        self.last = Instant::now();
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
        self.stretches.record(self.last - self.started, nanos);
        self.tally.ops += 1;
        self.counter.ops.store(self.tally.ops, Relaxed);
        self.counter.bytes_put.store(self.tally.bytes_put, Relaxed);
    }

    pub(crate) fn end(self) -> Share {
        Share {
            started: self.started,
            ended: Instant::now() - self.left_out,
            latency: self.latency,
            by_kind: self.by_kind,
            tally: self.tally,
            stretches: self.stretches,
        }
    }
}

/// From 1 ns to an hour, three digits: about 250 KiB.
fn new_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 3_600_000_000_000, 3).expect("the bounds are constant and right")
}
