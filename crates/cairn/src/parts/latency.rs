//! Measures how long calls take.
//!
//! One call in 64 of each thread is measured. A call that is not costs the countdown of its thread: reading the clock twice takes about as long
//! as a short get. The distances are drawn at random, since a program may repeat a sequence of calls whose length divides 64.
//!
//! The clock is [`Stopwatch`]: nothing depends on these times.

use crate::types::{BUCKETS, Durability, Histogram, LatencyStats, bucket};
use env::Stopwatch;
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// What is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Operation {
    Get,
    MultiGet,
    Seek,
    Write,
    SyncWrite,
}

impl Operation {
    pub(crate) fn write(durability: Durability) -> Operation {
        match durability {
            Durability::Sync => Operation::SyncWrite,
            Durability::Buffered | Durability::Os => Operation::Write,
        }
    }
}

/// The beginning of a call, if it is measured.
#[derive(Clone, Copy)]
pub(crate) struct Begun(Option<Stopwatch>);

thread_local! {
    /// Calls until the next one that is measured.
    static LEFT: Cell<u32> = const { Cell::new(0) };
    /// State of the generator; 0 in a new thread.
    static RANDOM: Cell<u64> = const { Cell::new(0) };
}

/// Begins a call.
#[inline]
pub(crate) fn begin() -> Begun {
    let left = LEFT.get();
    LEFT.set(left.wrapping_sub(1));
    Begun(if left == 0 { draw() } else { None })
}

/// Draws the distance to the next call that is measured. Each call is with a chance of 1 in 64, whatever was before, so distances are
/// geometric, also that of the first call of a thread.
#[cold]
fn draw() -> Option<Stopwatch> {
    static THREADS: AtomicU64 = AtomicU64::new(1);
    let mut random = RANDOM.get();
    let is_new = random == 0;
    if is_new {
        random = THREADS.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    }
    let mut distance = || {
        // Marsaglia, "Xorshift RNGs" (2003), section 3.
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let uniform = ((random >> 11) as f64 + 1.0) / (1u64 << 53) as f64;
        (uniform.ln() / (1.0 - 1.0 / Histogram::CALLS_PER_SAMPLE as f64).ln()) as u32
    };
    let this = if is_new { distance() } else { 0 };
    LEFT.set(if this == 0 { distance() } else { this - 1 });
    RANDOM.set(random);
    (this == 0).then(Stopwatch::start)
}

/// The samples of one operation.
struct Samples {
    counts: [AtomicU64; BUCKETS],
    total_ns: AtomicU64,
}

impl Default for Samples {
    fn default() -> Samples {
        Samples { counts: [const { AtomicU64::new(0) }; BUCKETS], total_ns: AtomicU64::new(0) }
    }
}

impl Samples {
    fn histogram(&self) -> Histogram {
        let counts = self.counts.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        Histogram::new(counts, Duration::from_nanos(self.total_ns.load(Ordering::Relaxed)))
    }
}

/// What was measured since the opening, by operation.
#[derive(Default)]
pub(crate) struct Latency([Box<Samples>; 5]);

impl Latency {
    /// A call that has begun ends.
    #[inline]
    pub(crate) fn end(&self, operation: Operation, begun: Begun) {
        if let Begun(Some(begun)) = begun {
            self.note(operation, begun.elapsed());
        }
    }

    /// A call from now until what is returned is dropped.
    #[inline]
    pub(crate) fn measure(&self, operation: Operation) -> Measured<'_> {
        Measured { latency: self, operation, begun: begin() }
    }

    #[cold]
    fn note(&self, operation: Operation, time: Duration) {
        let samples = &self.0[operation as usize];
        samples.counts[bucket(time)].fetch_add(1, Ordering::Relaxed);
        samples.total_ns.fetch_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    pub(crate) fn stats(&self) -> LatencyStats {
        let of = |operation: Operation| self.0[operation as usize].histogram();
        LatencyStats {
            get: of(Operation::Get),
            multi_get: of(Operation::MultiGet),
            seek: of(Operation::Seek),
            write: of(Operation::Write),
            sync_write: of(Operation::SyncWrite),
        }
    }
}

/// A call that goes on.
pub(crate) struct Measured<'a> {
    latency: &'a Latency,
    operation: Operation,
    begun: Begun,
}

impl Drop for Measured<'_> {
    #[inline]
    fn drop(&mut self) {
        self.latency.end(self.operation, self.begun);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_call_in_64_is_measured_also_of_a_short_repeated_sequence() {
        let latency = Latency::default();
        let calls = 64 * 3000;
        for n in 0..calls {
            let operation = [Operation::Get, Operation::Write][n % 2];
            drop(latency.measure(operation));
        }
        let stats = latency.stats();
        for histogram in [&stats.get, &stats.write] {
            let samples = histogram.samples();
            assert!((1340..=1660).contains(&samples), "{samples} of 1,500");
        }
        assert_eq!(stats.seek.samples() + stats.multi_get.samples() + stats.sync_write.samples(), 0);
    }

    #[test]
    fn short_threads_are_measured_as_often_as_long_ones() {
        let latency = Latency::default();
        for _ in 0..1000 {
            std::thread::scope(|scope| {
                scope.spawn(|| (0..64).for_each(|_| drop(latency.measure(Operation::Get))));
            });
        }
        let samples = latency.stats().get.samples();
        assert!((850..=1150).contains(&samples), "{samples}");
    }
}
