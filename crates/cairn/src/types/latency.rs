//! Histograms of latency: how many calls took how long.
//!
//! Log-linear buckets: eight for each power of two of nanoseconds, so what a bucket says is at most an eighth too much. The last one also has
//! what took longer.

use std::fmt;
use std::time::Duration;

/// Buckets for each power of two are `1 << SUB_BITS`.
const SUB_BITS: u32 = 3;
/// Longer times count as about 68 seconds.
const MAX_BITS: u32 = 36;
/// Number of buckets.
pub(crate) const BUCKETS: usize = ((MAX_BITS - SUB_BITS + 1) << SUB_BITS) as usize;

/// The bucket of a time.
pub(crate) fn bucket(time: Duration) -> usize {
    let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).min((1 << MAX_BITS) - 1);
    match nanos.checked_ilog2().and_then(|bits| bits.checked_sub(SUB_BITS)) {
        None => nanos as usize,
        Some(shift) => ((shift as usize) << SUB_BITS) + (nanos >> shift) as usize,
    }
}

/// The least number of nanoseconds beyond a bucket.
fn end_of(bucket: usize) -> u64 {
    let (shift, next) = ((bucket >> SUB_BITS).saturating_sub(1), bucket + 1);
    match bucket >> SUB_BITS {
        0 => next as u64,
        row => (next - ((row - 1) << SUB_BITS)) as u64 * (1 << shift),
    }
}

/// How long the calls of an operation took, of those that were measured: one in 64 of each thread, chosen at random. Measuring each would cost
/// more than some of the calls.
#[derive(Clone, Default, PartialEq)]
pub struct Histogram {
    /// Calls by bucket, without empty ones at the end.
    counts: Vec<u64>,
    /// The sum of their times.
    total: Duration,
}

impl Histogram {
    /// One call in so many is measured.
    pub const CALLS_PER_SAMPLE: u64 = 64;

    pub(crate) fn new(mut counts: Vec<u64>, total: Duration) -> Histogram {
        counts.truncate(counts.iter().rposition(|count| *count > 0).map_or(0, |last| last + 1));
        Histogram { counts, total }
    }

    /// The sum of their times.
    pub(crate) fn total(&self) -> Duration {
        self.total
    }

    /// Number of the calls that were measured.
    pub fn samples(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Estimated number of all calls.
    pub fn calls(&self) -> u64 {
        self.samples() * Self::CALLS_PER_SAMPLE
    }

    /// The mean; 0 without samples.
    pub fn mean(&self) -> Duration {
        match self.samples() {
            0 => Duration::ZERO,
            samples => Duration::from_secs_f64(self.total.as_secs_f64() / samples as f64),
        }
    }

    /// The time that a share `quantile` of the calls, between 0 and 1, did not pass, or up to an eighth more; 0 without samples. A share outside
    /// of this range counts as its nearer end.
    pub fn quantile(&self, quantile: f64) -> Duration {
        let rank = (quantile.clamp(0.0, 1.0) * self.samples() as f64).ceil().max(1.0) as u64;
        let mut passed = 0;
        let reached = self.counts.iter().position(|count| {
            passed += count;
            passed >= rank
        });
        reached.map_or(Duration::ZERO, |bucket| Duration::from_nanos(end_of(bucket)))
    }

    /// The longest one, or up to an eighth more; 0 without samples. Longer ones than 68 seconds count as these.
    pub fn max(&self) -> Duration {
        self.quantile(1.0)
    }

    /// What was measured since `earlier`, a histogram of the same operation in the same opening.
    pub fn since(&self, earlier: &Histogram) -> Histogram {
        let before = earlier.counts.iter().chain(std::iter::repeat(&0));
        let counts = self.counts.iter().zip(before).map(|(now, before)| now.saturating_sub(*before));
        Histogram::new(counts.collect(), self.total.saturating_sub(earlier.total))
    }

    /// For each power of two of nanoseconds between a quarter of a microsecond and half a minute: the samples that took less.
    pub(crate) fn below_powers(&self) -> impl Iterator<Item = (Duration, u64)> {
        let below = |bits: u32| {
            let end = bucket(Duration::from_nanos(1 << bits));
            (Duration::from_nanos(1 << bits), self.counts.iter().take(end).sum())
        };
        (8..MAX_BITS).map(below)
    }
}

impl fmt::Debug for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (p50, p99) = (self.quantile(0.5), self.quantile(0.99));
        f.debug_struct("Histogram")
            .field("samples", &self.samples())
            .field("mean", &self.mean())
            .field("p50", &p50)
            .field("p99", &p99)
            .field("max", &self.max())
            .finish()
    }
}

/// The number of samples, and times in seconds: the mean, quantiles, the longest.
#[cfg(feature = "serde")]
impl serde::Serialize for Histogram {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct;
        let mut fields = serializer.serialize_struct("Histogram", 7)?;
        fields.serialize_field("samples", &self.samples())?;
        fields.serialize_field("mean", &self.mean().as_secs_f64())?;
        for (name, quantile) in [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p999", 0.999), ("max", 1.0)] {
            fields.serialize_field(name, &self.quantile(quantile).as_secs_f64())?;
        }
        fields.end()
    }
}

/// How long calls took, from their beginning to their end: waiting, reads of the disk and syncs included, errors as well.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct LatencyStats {
    /// Reads of one key: `get`, `contains` and their like, of keyspaces, snapshots and transactions.
    pub get: Histogram,
    /// `multi_get`.
    pub multi_get: Histogram,
    /// Positioning a cursor, or the first step of an iterator.
    pub seek: Histogram,
    /// Writes, batches and commits of transactions, without [`Durability::Sync`](crate::Durability::Sync).
    pub write: Histogram,
    /// Those with it.
    pub sync_write: Histogram,
}

impl LatencyStats {
    /// The operations with their names.
    pub fn operations(&self) -> [(&'static str, &Histogram); 5] {
        [
            ("get", &self.get),
            ("multi_get", &self.multi_get),
            ("seek", &self.seek),
            ("write", &self.write),
            ("sync_write", &self.sync_write),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(nanos: &[u64]) -> Histogram {
        let (mut counts, mut total) = (vec![0; BUCKETS], Duration::ZERO);
        for time in nanos.iter().map(|nanos| Duration::from_nanos(*nanos)) {
            counts[bucket(time)] += 1;
            total += time;
        }
        Histogram::new(counts, total)
    }

    #[test]
    fn a_bucket_ends_where_the_next_begins_and_is_at_most_an_eighth_wide() {
        let mut begin = 0;
        for n in 0..BUCKETS {
            let end = end_of(n);
            assert_eq!(bucket(Duration::from_nanos(begin)), n);
            assert_eq!(bucket(Duration::from_nanos(end - 1)), n);
            assert!(end - begin == 1 || (end - begin) * 8 <= begin, "{begin} to {end}");
            begin = end;
        }
        assert_eq!(begin, 1 << MAX_BITS);
        assert_eq!(bucket(Duration::MAX), BUCKETS - 1);
    }

    #[test]
    fn quantiles_are_those_of_the_samples_up_to_an_eighth() {
        let times: Vec<u64> = (1..=1000).map(|n| n * 1000).collect();
        let histogram = of(&times);
        for (quantile, exact) in [(0.0, 1), (0.5, 500), (0.99, 990), (0.999, 999), (1.0, 1000), (7.0, 1000)] {
            let (found, exact) = (histogram.quantile(quantile), Duration::from_micros(exact));
            assert!(found >= exact && found <= exact * 9 / 8, "{quantile}: {found:?}, exactly {exact:?}");
        }
        assert_eq!((histogram.samples(), histogram.calls()), (1000, 64_000));
        assert_eq!(histogram.mean(), Duration::from_nanos(500_500));
        assert_eq!(Histogram::default().quantile(0.5), Duration::ZERO);
        assert_eq!(
            (Histogram::default().mean(), Histogram::default().max()),
            (Duration::ZERO, Duration::ZERO)
        );
    }

    #[test]
    fn what_was_measured_before_is_taken_off() {
        let (before, now) = (of(&[5_000, 9_000]), of(&[5_000, 9_000, 70_000]));
        assert_eq!(now.since(&before), of(&[70_000]));
        assert_eq!(now.since(&Histogram::default()), now);
        assert_eq!(Histogram::default().since(&now).samples(), 0);
    }

    #[test]
    fn powers_of_two_have_what_is_below_them() {
        let histogram = of(&[255, 256, 1 << 20, u64::MAX]);
        let below: Vec<u64> = histogram.below_powers().map(|(_, samples)| samples).collect();
        let at =
            |nanos: u64| histogram.below_powers().find(|(d, _)| *d == Duration::from_nanos(nanos)).unwrap().1;
        assert!(below.is_sorted());
        assert_eq!((at(256), at(512), at(1 << 20), at(1 << 21), at(1 << 35)), (1, 2, 2, 3, 3));
    }
}
