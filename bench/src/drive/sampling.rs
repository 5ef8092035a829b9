//! Samples over time: operations and latencies of each interval, and the kernel's counters at its end.
//!
//! Each thread records its operations in small histograms of its own, so the threads share nothing while they run.
//! Another thread reads the kernel's counters.

use crate::process::KernelIo;
use crate::record::Sample;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// Buckets of the small histograms: eight per power of two.
const BUCKETS: usize = 8 * 44;

/// The operations of one thread in each interval.
pub struct Intervals {
    length: Duration,
    /// The end of the current interval.
    end: Duration,
    all: Vec<Interval>,
}

#[derive(Clone)]
struct Interval {
    ops: u64,
    nanos: u64,
    max_nanos: u64,
    buckets: Box<[u32; BUCKETS]>,
}

impl Interval {
    fn new() -> Interval {
        Interval { ops: 0, nanos: 0, max_nanos: 0, buckets: Box::new([0; BUCKETS]) }
    }

    fn add(&mut self, other: &Interval) {
        self.ops += other.ops;
        self.nanos += other.nanos;
        self.max_nanos = self.max_nanos.max(other.max_nanos);
        self.buckets.iter_mut().zip(other.buckets.iter()).for_each(|(sum, other)| *sum += other);
    }

    /// The latency that this fraction of the operations did not exceed, in microseconds.
    fn quantile_us(&self, quantile: f64) -> f64 {
        let mut left = (self.ops as f64 * quantile).ceil() as u64;
        for (bucket, &count) in self.buckets.iter().enumerate() {
            left = left.saturating_sub(count.into());
            if left == 0 {
                return upper_bound(bucket) as f64 / 1000.0;
            }
        }
        0.0
    }
}

/// The bucket of a latency: its highest bit and the next three bits.
fn bucket(nanos: u64) -> usize {
    let shifted = nanos.max(8);
    let top = 63 - shifted.leading_zeros();
    let below = (shifted >> (top - 3)) & 7;
    ((top as usize - 3) * 8 + below as usize).min(BUCKETS - 1)
}

/// The maximum latency of a bucket.
fn upper_bound(bucket: usize) -> u64 {
    let (top, below) = (bucket / 8, bucket as u64 % 8);
    ((8 + below + 1) << top) - 1
}

impl Intervals {
    /// Intervals of this length.
    pub fn new(length: Duration) -> Intervals {
        Intervals { length: length.max(Duration::from_millis(1)), end: Duration::ZERO, all: Vec::new() }
    }

    /// Records an operation that ended at `at` after the start and took `nanos` nanoseconds.
    #[inline]
    pub fn record(&mut self, at: Duration, nanos: u64) {
        while at >= self.end {
            self.all.push(Interval::new());
            self.end += self.length;
        }
        if let Some(interval) = self.all.last_mut() {
            interval.ops += 1;
            interval.nanos += nanos;
            interval.max_nanos = interval.max_nanos.max(nanos);
            interval.buckets[bucket(nanos)] += 1;
        }
    }

    /// Adds the operations of another thread.
    pub fn add(&mut self, other: &Intervals) {
        if self.all.len() < other.all.len() {
            self.all.resize(other.all.len(), Interval::new());
        }
        self.all.iter_mut().zip(&other.all).for_each(|(sum, other)| sum.add(other));
    }
}

/// The samples of a run.
pub struct Course {
    /// One sample per interval.
    pub samples: Vec<Sample>,
}

impl Course {
    /// Reads the kernel's counters at the end of each interval until `ended` is closed, and calls `show` several
    /// times per second. `put` returns the number of bytes put by users so far, `space` the length of all files now.
    pub fn watch(
        length: Duration,
        ended: &Receiver<()>,
        show: &mut dyn FnMut(),
        put: &dyn Fn() -> u64,
        space: &dyn Fn() -> u64,
    ) -> Course {
        const SHOW_EVERY: Duration = Duration::from_millis(200);
        let (started, before) = (Instant::now(), KernelIo::now().unwrap_or_default());
        let mut samples = Vec::new();
        let sample = || {
            let kernel = KernelIo::now().unwrap_or_default().since(before);
            Sample {
                at: started.elapsed().as_secs_f64(),
                user_bytes: put(),
                write_bytes: kernel.write_bytes,
                read_bytes: kernel.read_bytes,
                space_bytes: space(),
                ..Sample::default()
            }
        };
        let mut next = length;
        loop {
            let wait = next.saturating_sub(started.elapsed()).min(SHOW_EVERY);
            let over = ended.recv_timeout(wait) != Err(RecvTimeoutError::Timeout);
            show();
            if over || started.elapsed() >= next {
                samples.push(sample());
                next += length;
            }
            if over {
                return Course { samples };
            }
        }
    }

    /// Adds the operations recorded by the threads.
    pub fn join(&mut self, ops: &Intervals, writer: Option<&Intervals>) {
        for (sample, interval) in self.samples.iter_mut().zip(&ops.all) {
            sample.ops = interval.ops;
            sample.mean_us = interval.nanos as f64 / 1000.0 / interval.ops.max(1) as f64;
            sample.p95_us = interval.quantile_us(0.95);
            sample.p99_us = interval.quantile_us(0.99);
            sample.max_us = interval.max_nanos as f64 / 1000.0;
        }
        for (sample, interval) in self.samples.iter_mut().zip(writer.iter().flat_map(|writer| &writer.all)) {
            sample.writer_ops = interval.ops;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_hold_what_they_should() {
        for nanos in (0..5000).chain((13..43).flat_map(|bit| [(1 << bit) - 1, 1 << bit, (1 << bit) + 12_345]))
        {
            let bucket = bucket(nanos);
            assert!(nanos <= upper_bound(bucket), "{nanos} in {bucket}");
            assert!(nanos < 8 || upper_bound(bucket) as f64 <= nanos as f64 * 1.125, "{nanos} in {bucket}");
        }
    }

    #[test]
    fn intervals_follow_the_clock() {
        let ms = Duration::from_millis;
        let mut intervals = Intervals::new(ms(10));
        (1..=100).for_each(|op| intervals.record(ms(1), op * 1000));
        intervals.record(ms(35), 5_000_000);
        let mut other = Intervals::new(ms(10));
        other.record(ms(12), 7_000);
        intervals.add(&other);
        let mut course = Course { samples: vec![Sample::default(); 4] };
        course.join(&intervals, Some(&other));
        let ops: Vec<_> = course.samples.iter().map(|sample| (sample.ops, sample.writer_ops)).collect();
        assert_eq!(ops, [(100, 0), (1, 1), (0, 0), (1, 0)]);
        let first = &course.samples[0];
        assert!((50.0..51.0).contains(&first.mean_us), "{first:?}");
        assert_eq!((first.max_us, course.samples[1].max_us, course.samples[3].max_us), (100.0, 7.0, 5000.0));
        assert!((95.0..107.0).contains(&first.p95_us) && (99.0..112.0).contains(&first.p99_us), "{first:?}");
    }
}
