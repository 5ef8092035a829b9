//! The result of one workload on one engine: a JSON object on one line.
//!
//! Times are in seconds, latencies in microseconds, sizes in bytes. The kernel's counters are read in the same way
//! for all engines.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One run of one workload on one engine.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Record {
    /// The name of the engine, such as `rocksdb-blob`.
    pub engine: String,
    /// The engine's version.
    pub engine_version: String,
    /// The name of the workload, such as `fillrandom`.
    pub workload: String,
    /// The group of workloads that share one database, such as `dbbench` or `ycsb`; empty if the workload runs
    /// alone.
    pub group: String,
    /// The round of the run, from 1.
    pub round: u32,
    /// Operations done.
    pub ops: u64,
    /// Operations requested. More than were done if the time limit ended the workload or a scan reached the end.
    pub ops_asked: u64,
    /// Whether the time limit ended the workload.
    pub cut_short: bool,
    /// Time from the first operation to the last.
    pub seconds: f64,
    /// `ops` / `seconds`.
    pub ops_per_s: f64,
    /// Time from the first operation until no flush and no compaction was pending; 0 if that was not waited for.
    pub settled_seconds: f64,
    /// `ops` / `settled_seconds`; 0 likewise.
    pub settled_ops_per_s: f64,
    /// Latency of all operations.
    pub lat_us: Latency,
    /// Latency of the calls alone, where operations follow a schedule and `lat_us` counts from their scheduled times.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call_us: Option<Latency>,
    /// Latency by kind of operation (`read`, `update`, `insert`, `scan`, `modify`, `delete`), if there are several
    /// kinds.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub lat_us_by_kind: BTreeMap<String, Latency>,
    /// The latency curve: fractions of the operations, each with the latency that this fraction did not exceed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub curve_us: Vec<(f64, f64)>,
    /// Bytes of keys and values put, and of keys deleted.
    pub user_bytes: u64,
    /// Bytes of keys and values returned by reads.
    pub user_bytes_read: u64,
    /// Bytes dirtied in the page cache until the engine had settled: the kernel's `write_bytes`, or the engine's
    /// own count where the kernel has none.
    pub write_bytes: u64,
    /// The part of `write_bytes` that never reached the disk, because its file was removed first.
    pub cancelled_write_bytes: u64,
    /// Bytes requested from the disk, including those of background threads: the kernel's `read_bytes`.
    pub read_bytes: Option<u64>,
    /// Read requests that the disk served meanwhile. `None` if unknown, or if other processes read from the disk
    /// too.
    pub disk_reads: Option<u64>,
    /// Fraction of the reading operations whose own thread read from the disk, sampled at every 256th such
    /// operation. `None` if the kernel does not count it or no operation was sampled.
    pub disk_share: Option<f64>,
    /// Number of operations sampled for `disk_share`.
    pub disk_share_of: u64,
    /// Keys in the database afterwards: those of the fill, or those counted by the last scan of the contents.
    /// `None` if later writes may have changed the number.
    pub distinct_keys: Option<u64>,
    /// Bytes of these keys and their values.
    pub data_bytes: Option<u64>,
    /// `write_bytes` / `user_bytes`; `None` if nothing was put.
    pub write_amp: Option<f64>,
    /// Reads and writes of the device (`read_bytes` + `write_bytes` - `cancelled_write_bytes`) / user bytes put and
    /// read.
    pub io_amp: Option<f64>,
    /// Bytes passed to `write` and similar system calls: the kernel's `wchar`.
    pub kernel_wchar: Option<u64>,
    /// Bytes written according to the engine.
    pub engine_write_bytes: Option<u64>,
    /// Total length of all files of the database at the end.
    pub space_bytes: u64,
    /// Disk space allocated to these files.
    pub space_allocated_bytes: u64,
    /// Lengths of the files with the extension that has most bytes: those that hold the entries.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub files: Option<FileLengths>,
    /// Processor time of the process until the engine had settled.
    pub cpu_seconds: f64,
    /// Peak resident memory of the process during the workload.
    pub rss_peak_bytes: Option<u64>,
    /// Fraction of the machine's processor time that other processes used meanwhile, 0 to 1.
    pub busy_others: Option<f64>,
    /// Reads and seeks that found their key; cursor steps that found an entry.
    pub found: u64,
    /// Conflicts that transactions have met, each of which repeated one.
    #[serde(default)]
    pub conflicts: u64,
    /// Values compared with the written ones. A difference ends the run with an error.
    pub verified: u64,
    /// The threads that write beside the readers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub writer: Option<Writer>,
    /// Time that writers were stalled, as the engine counts it.
    pub stall_seconds: Option<f64>,
    /// The longest stall since the database was opened.
    pub longest_stall_seconds: Option<f64>,
    /// The content of the database at the end, from an untimed scan, if requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub contents: Option<Contents>,
    /// Progress over time: one sample per `sample_seconds`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub samples: Vec<Sample>,
    /// The workload's parameters.
    pub settings: Settings,
    /// The engine's settings by its own names, and its restrictions.
    pub engine_settings: BTreeMap<String, String>,
}

/// Latencies of single operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Latency {
    /// The mean.
    pub mean: f64,
    /// The median.
    pub p50: f64,
    /// 95th percentile.
    pub p95: f64,
    /// 99th percentile.
    pub p99: f64,
    /// 99.9th percentile.
    pub p999: f64,
    /// The maximum.
    pub max: f64,
}

/// Lengths of files, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FileLengths {
    /// Number of files.
    pub count: u64,
    /// The mean.
    pub mean: f64,
    /// The median.
    pub p50: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 95th percentile.
    pub p95: f64,
}

/// The threads that write beside the readers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Writer {
    /// Puts.
    pub ops: u64,
    /// Puts per second.
    pub ops_per_s: f64,
    /// Latency of the puts.
    pub lat_us: Latency,
}

/// The result of a complete scan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contents {
    /// Entries.
    pub entries: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
    /// A hash of all keys and values in order.
    pub checksum: u64,
}

/// One sample interval of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Sample {
    /// End of the interval, in seconds since the first operation.
    pub at: f64,
    /// Operations in the interval.
    pub ops: u64,
    /// Mean latency of these operations, in microseconds.
    pub mean_us: f64,
    /// 95th percentile, accurate to about 10 %.
    pub p95_us: f64,
    /// 99th percentile, accurate to about 10 %.
    pub p99_us: f64,
    /// Maximum.
    pub max_us: f64,
    /// Puts of the threads beside the readers.
    pub writer_ops: u64,
    /// Bytes that users put since the start of the run.
    pub user_bytes: u64,
    /// The kernel's `write_bytes` since the start of the run.
    pub write_bytes: u64,
    /// The kernel's `read_bytes` since the start of the run.
    pub read_bytes: u64,
    /// Total length of the files at the end of the interval.
    pub space_bytes: u64,
}

/// The workload's parameters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Settings {
    /// Number of keys.
    pub num: u64,
    /// Operations of workloads that read.
    pub reads: u64,
    /// Entries that a seek reads after the first.
    pub seek_nexts: u64,
    /// Length of a key in bytes.
    pub key_size: usize,
    /// Length of a value in bytes, or lengths with their percentages: `9:60 104:20 1004:20`.
    pub value_sizes: String,
    /// Threads that share the operations.
    pub threads: usize,
    /// Threads that write beside them.
    pub writers: usize,
    /// `os` or `sync`.
    pub durability: String,
    /// Seed of the keys, the values and their order.
    pub seed: u64,
    /// Requested size of a memtable, in bytes.
    pub memtable_bytes: u64,
    /// Requested size of the cache, in bytes.
    pub cache_bytes: u64,
    /// Requested number of background threads.
    pub background_threads: usize,
    /// Requested number of filter bits per key.
    pub filter_bits_per_key: u32,
    /// Memory limit of the process, including its page cache.
    pub memory_limit_bytes: Option<u64>,
    /// Length of a sample interval.
    pub sample_seconds: f64,
}

/// The machine and the method of a run: the first line of a results file.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RunInfo {
    /// Start of the run, such as `2026-03-01 12:00 UTC`.
    pub started: String,
    /// The set of sizes: `quick`, `full`, or `custom`.
    pub scale: String,
    /// Number of rounds.
    pub rounds: u32,
    /// Name of the processor, from the kernel.
    pub cpu: String,
    /// Number of processors.
    pub cpus: usize,
    /// Memory of the machine, in bytes.
    pub memory_bytes: u64,
    /// Memory limit of each engine, including its page cache.
    pub memory_limit_bytes: Option<u64>,
    /// Version of the kernel.
    pub kernel: String,
    /// File system of the databases, and its device.
    pub file_system: String,
    /// The measured commit, and whether the work tree had changes.
    pub commit: String,
    /// Titles of the engines, by name.
    pub engines: BTreeMap<String, String>,
    /// Warnings for readers of the results: no memory limit, a busy machine, a failed engine.
    pub warnings: Vec<String>,
}

/// A line of a results file.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    /// The run. The first line, and repeated at the end if there were warnings.
    Run(RunInfo),
    /// A result.
    Result(Box<Record>),
    /// An engine that did not finish a group.
    Failure {
        /// The engine.
        engine: String,
        /// The group.
        group: String,
        /// The round.
        round: u32,
        /// The error message.
        message: String,
    },
}

impl FileLengths {
    /// Of these lengths; `None` without any.
    pub fn of(mut lengths: Vec<u64>) -> Option<FileLengths> {
        lengths.sort_unstable();
        let last = lengths.len().checked_sub(1)?;
        let at = |quantile: f64| lengths[(quantile * last as f64).round() as usize] as f64;
        let count = lengths.len() as u64;
        let mean = lengths.iter().sum::<u64>() as f64 / count as f64;
        Some(FileLengths { count, mean, p50: at(0.5), p90: at(0.9), p95: at(0.95) })
    }
}

impl Latency {
    /// The latencies of a histogram of nanoseconds.
    pub fn of(nanos: &Histogram<u64>) -> Latency {
        let us = |nanos: u64| nanos as f64 / 1000.0;
        let at = |quantile| us(nanos.value_at_quantile(quantile));
        Latency {
            mean: nanos.mean() / 1000.0,
            p50: at(0.5),
            p95: at(0.95),
            p99: at(0.99),
            p999: at(0.999),
            max: us(nanos.max()),
        }
    }
}

/// The latency curve of a histogram of nanoseconds, at fractions that are evenly spaced on a scale of nines.
pub fn curve(nanos: &Histogram<u64>) -> Vec<(f64, f64)> {
    const AT: [f64; 15] =
        [0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998, 0.999, 0.9999, 0.99999, 1.0];
    if nanos.is_empty() {
        return Vec::new();
    }
    AT.iter().map(|&q| (q, nanos.value_at_quantile(q) as f64 / 1000.0)).collect()
}

/// Operations per second; 0 for no operations.
pub fn rate(ops: u64, seconds: f64) -> f64 {
    if ops == 0 { 0.0 } else { ops as f64 / seconds.max(1e-9) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_in_microseconds() {
        let mut nanos = Histogram::new_with_bounds(1, 1 << 40, 3).unwrap();
        (1..=1000u64).for_each(|us| nanos.record(us * 1000).unwrap());
        let lat = Latency::of(&nanos);
        let near = |a: f64, b: f64| (a - b).abs() <= b / 500.0;
        assert!(near(lat.p50, 500.0) && near(lat.p95, 950.0) && near(lat.p99, 990.0), "{lat:?}");
        assert!(near(lat.p999, 999.0) && near(lat.max, 1000.0) && near(lat.mean, 500.5), "{lat:?}");
        let curve = curve(&nanos);
        assert!(curve.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1), "{curve:?}");
    }

    #[test]
    fn lengths_of_files() {
        let lengths = FileLengths::of((0..=100).rev().collect()).unwrap();
        assert_eq!(lengths, FileLengths { count: 101, mean: 50.0, p50: 50.0, p90: 90.0, p95: 95.0 });
        assert_eq!(FileLengths::of(vec![7]).unwrap().p95, 7.0);
        assert_eq!(FileLengths::of(Vec::new()), None);
    }

    #[test]
    fn lines_can_be_read_again() {
        let line = Line::Result(Box::new(Record { engine: "a".into(), ops: 3, ..Record::default() }));
        let text = serde_json::to_string(&line).unwrap();
        let Line::Result(back) = serde_json::from_str(&text).unwrap() else { panic!("{text}") };
        assert_eq!((back.engine.as_str(), back.ops), ("a", 3));
        assert!(!text.contains("samples"), "what is not there takes no room: {text}");
    }
}
