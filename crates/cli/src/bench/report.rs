//! What is reported of a workload: one JSON object, or one line for people.

use super::drive::Tally;
use super::process::KernelIo;
use crate::text::{human_bytes, human_count};
use hdrhistogram::Histogram;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// Everything about one run of one workload. Times are in seconds, latencies in microseconds, sizes in bytes.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Which store this is.
    pub engine: &'static str,
    pub workload: &'static str,
    /// Operations that were done; a `readseq` that meets the end does fewer than it was asked for.
    pub ops: u64,
    /// From the first operation to the last.
    pub seconds: f64,
    pub ops_per_s: f64,
    /// From the first operation until no flush and no compaction was left to do.
    pub settled_seconds: f64,
    pub lat_us: Latency,
    /// Keys and values that were put, and keys that were deleted.
    pub user_bytes: u64,
    /// Keys and values that reads gave.
    pub user_bytes_read: u64,
    /// All that the process wrote until it settled, by the engine's own count: log, flushes, compactions, manifest.
    pub write_bytes: u64,
    /// What came from the disk, by the kernel's count; `null` where it does not count.
    pub read_bytes: Option<u64>,
    /// `write_bytes` over `user_bytes`; `null` when nothing was put.
    pub write_amp: Option<f64>,
    /// Lengths of all files of the database.
    pub space_bytes: u64,
    /// What these files take on the disk.
    pub space_allocated_bytes: u64,
    /// Of the whole process, until it settled.
    pub cpu_seconds: f64,
    /// The most that the process had in memory during the workload.
    pub rss_peak_bytes: Option<u64>,
    /// The kernel's count of writes where it counts pages (`write_bytes` of `/proc/self/io`).
    pub kernel_write_bytes: Option<u64>,
    /// The kernel's count of writes where it counts bytes (`wchar` of `/proc/self/io`).
    pub kernel_wchar: Option<u64>,
    /// Dirty pages that never reached the disk, because their file went first.
    pub kernel_cancelled_write_bytes: Option<u64>,
    /// Reads and seeks that found their key; steps that found an entry.
    pub found: u64,
    /// Values that were compared with what was written. One that differs ends the run with an error.
    pub verified: u64,
    /// What the thread beside the readers did (`readwhilewriting`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub writer: Option<Writer>,
    /// Time that writers were made to wait, added up, and the longest wait since the database was opened.
    pub stall_seconds: f64,
    pub longest_stall_seconds: f64,
    #[serde(flatten)]
    pub settings: Settings,
}

/// Latencies of single operations.
#[derive(Debug, Serialize)]
pub struct Latency {
    pub p50: f64,
    pub p95: f64,
    pub p99: f64,
    pub p999: f64,
    pub max: f64,
}

/// The writer of `readwhilewriting`.
#[derive(Debug, Serialize)]
pub struct Writer {
    pub ops: u64,
    pub ops_per_s: f64,
}

/// What the run was asked for.
#[derive(Clone, Debug, Serialize)]
pub struct Settings {
    pub num: u64,
    pub reads: u64,
    pub seek_nexts: u64,
    pub key_size: usize,
    pub value_size: usize,
    pub threads: usize,
    /// The preset that the keyspace has: `custom` for none of them.
    pub preset: String,
    pub durability: String,
    pub compression: String,
    pub memory_budget: u64,
    pub background_threads: usize,
    pub seed: u64,
    /// Every option of the keyspace.
    pub options: BTreeMap<&'static str, String>,
}

impl Latency {
    /// From a histogram of nanoseconds.
    pub fn of(nanos: &Histogram<u64>) -> Latency {
        let us = |nanos: u64| nanos as f64 / 1000.0;
        let at = |quantile| us(nanos.value_at_quantile(quantile));
        Latency { p50: at(0.5), p95: at(0.95), p99: at(0.99), p999: at(0.999), max: us(nanos.max()) }
    }
}

impl Writer {
    /// From what the writer did in so many seconds.
    pub fn of(tally: &Tally, seconds: f64) -> Writer {
        Writer { ops: tally.ops, ops_per_s: rate(tally.ops, seconds) }
    }
}

/// So many a second; 0 for none.
pub fn rate(ops: u64, seconds: f64) -> f64 {
    if ops == 0 { 0.0 } else { ops as f64 / seconds.max(1e-9) }
}

/// How the kernel's count of written bytes differs from the engine's, when it does by more than 2 %.
///
/// The kernel counts at two places:
/// - `wchar`: the bytes that the process passed to `write`. The engine counts the same thing, so a difference means that it
///   forgot something. (What goes to standard output and error counts here, too. What is written by way of a memory map or
///   io_uring does not; Cairn uses neither.) Measured: equal but for the 30 bytes of the first log's header, which is
///   written when the database is opened and counted with the first commit.
/// - `write_bytes`: pages of the page cache, 4 KiB each, whenever one turns from clean to dirty. Measured on ext4: 0.02 % over
///   `wchar` with the default options, 0.4 % with memtables of 1 MiB, 3.6 % with memtables of 64 KiB, since each of
///   thousands of small files ends with a part of a page. A synced append makes the log's last page dirty anew, however
///   few bytes it adds: with `sync` and records of 144 bytes it is 24 times `wchar`. In runs of a few hundred KiB the
///   file system's own pages show. A page whose file is removed before it was written back stays counted, and
///   is counted once more in `cancelled_write_bytes`: the old logs, mostly, a quarter to a half of all that a short run writes.
///
/// So `wchar` is the count to agree with, and amplification is told by it, as in the papers. What syncing adds on the disk is
/// to be read from `kernel_write_bytes`.
pub fn disagreement(write_bytes: u64, kernel: KernelIo) -> Option<String> {
    let difference = write_bytes.abs_diff(kernel.wchar);
    (difference > kernel.wchar / 50 + SLACK).then(|| {
        format!(
            "the engine counted {} written bytes, the kernel {} (wchar)",
            human_count(write_bytes),
            human_count(kernel.wchar)
        )
    })
}

/// The terminal's share of `wchar`, and what a moment between two readings may do.
const SLACK: u64 = 64 << 10;

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lat = &self.lat_us;
        write!(f, "{:<16} {:>10} ops/s", self.workload, human_count(self.ops_per_s as u64))?;
        write!(f, "  us p50 {} p99 {} p99.9 {}", micros(lat.p50), micros(lat.p99), micros(lat.p999))?;
        write!(f, " max {}", micros(lat.max))?;
        write!(f, "  {:.1} s, settled {:.1} s", self.seconds, self.settled_seconds)?;
        write!(f, "  wrote {}", human_bytes(self.write_bytes))?;
        if let Some(amplification) = self.write_amp {
            write!(f, " ({amplification:.2}x)")?;
        }
        if let Some(bytes) = self.read_bytes {
            write!(f, "  read {}", human_bytes(bytes))?;
        }
        write!(f, "  space {}  cpu {:.1} s", human_bytes(self.space_bytes), self.cpu_seconds)?;
        if let Some(bytes) = self.rss_peak_bytes {
            write!(f, "  rss {}", human_bytes(bytes))?;
        }
        if self.found > 0 {
            write!(f, "  found {} of {}", human_count(self.found), human_count(self.ops))?;
        }
        match &self.writer {
            Some(writer) => write!(f, "  beside it {} puts/s", human_count(writer.ops_per_s as u64)),
            None => Ok(()),
        }
    }
}

/// Microseconds with about three digits.
fn micros(us: f64) -> String {
    match us {
        us if us < 10.0 => format!("{us:.2}"),
        us if us < 100.0 => format!("{us:.1}"),
        us => human_count(us as u64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_that_differ_are_told() {
        let kernel = |wchar| KernelIo { wchar, ..KernelIo::default() };
        assert_eq!(disagreement(100 << 20, kernel(100 << 20)), None);
        assert_eq!(disagreement(99 << 20, kernel(100 << 20)), None);
        assert_eq!(disagreement(0, kernel(1000)), None);
        let told = disagreement(97_000_000, kernel(100_000_000)).unwrap();
        assert!(told.contains("97,000,000") && told.contains("100,000,000"), "{told}");
        assert!(disagreement(103_000_000, kernel(100_000_000)).is_some());
    }

    #[test]
    fn latencies_in_microseconds() {
        let mut nanos = Histogram::new_with_bounds(1, 1 << 40, 3).unwrap();
        (1..=1000u64).for_each(|us| nanos.record(us * 1000).unwrap());
        let lat = Latency::of(&nanos);
        let near = |a: f64, b: f64| (a - b).abs() <= b / 500.0;
        assert!(near(lat.p50, 500.0) && near(lat.p95, 950.0) && near(lat.p99, 990.0), "{lat:?}");
        assert!(near(lat.p999, 999.0) && near(lat.max, 1000.0), "{lat:?}");
    }
}
