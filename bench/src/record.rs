//! What is reported of one workload on one engine: a JSON object, one line.
//!
//! Times are in seconds, latencies in microseconds, sizes in bytes. The kernel counts for all engines alike.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One run of one workload on one engine.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Record {
    /// The engine, as `rocksdb-blob`.
    pub engine: String,
    /// The engine's version.
    pub engine_version: String,
    /// The workload, as `fillrandom`.
    pub workload: String,
    /// The group of workloads that share one database, as `dbbench` or `ycsb`; empty when the workload runs alone.
    pub group: String,
    /// Which round of the run this is, from 1.
    pub round: u32,
    /// Operations that were done.
    pub ops: u64,
    /// Operations that were asked for; more than were done when the time limit ended the workload or a walk met the end.
    pub ops_asked: u64,
    /// Whether the time limit ended the workload.
    pub cut_short: bool,
    /// From the first operation to the last.
    pub seconds: f64,
    /// Operations over `seconds`.
    pub ops_per_s: f64,
    /// From the first operation until no flush and no compaction was left to do.
    pub settled_seconds: f64,
    /// Operations over `settled_seconds`.
    pub settled_ops_per_s: f64,
    /// Latency of all operations.
    pub lat_us: Latency,
    /// Latency by kind of operation (`read`, `update`, `insert`, `scan`, `modify`, `delete`), where there are several.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub lat_us_by_kind: BTreeMap<String, Latency>,
    /// The latency curve: fraction of the operations, and the latency that they did not exceed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub curve_us: Vec<(f64, f64)>,
    /// Bytes of keys and values that were put, and of keys that were deleted.
    pub user_bytes: u64,
    /// Bytes of keys and values that reads gave.
    pub user_bytes_read: u64,
    /// Bytes that became dirty in the page cache, until it settled: the kernel's `write_bytes` (where the kernel does not count, the
    /// engine's own).
    pub write_bytes: u64,
    /// The part of these that never reached the disk, because its file was removed first.
    pub cancelled_write_bytes: u64,
    /// Bytes that the disk was asked for, by background threads, too: the kernel's `read_bytes`.
    pub read_bytes: Option<u64>,
    /// Requests to read that the disk served meanwhile. `None` where it is not known, or others read from the disk, too.
    pub disk_reads: Option<u64>,
    /// The share of the operations that read whose thread had the disk read for them, of every 256th such operation. `None` where the
    /// kernel does not tell, or nothing was asked.
    pub disk_share: Option<f64>,
    /// How many operations `disk_share` is taken of.
    pub disk_share_of: u64,
    /// Keys in the database afterwards: those that the fill put, each once, or those that the last scan of the contents counted. `None`
    /// where writes since then may have changed it.
    pub distinct_keys: Option<u64>,
    /// Bytes of the keys and values of these.
    pub data_bytes: Option<u64>,
    /// `write_bytes` over `user_bytes`; `None` when nothing was put.
    pub write_amp: Option<f64>,
    /// Device reads and writes (`read_bytes` + `write_bytes` - `cancelled_write_bytes`) over user bytes, put and read.
    pub io_amp: Option<f64>,
    /// Bytes passed to `write` and its kin: the kernel's `wchar`.
    pub kernel_wchar: Option<u64>,
    /// What the engine says that it wrote.
    pub engine_write_bytes: Option<u64>,
    /// Lengths of all files of the database at the end.
    pub space_bytes: u64,
    /// What these files take on the disk.
    pub space_allocated_bytes: u64,
    /// Processor time of the whole process until it settled.
    pub cpu_seconds: f64,
    /// The most that the process had in memory during the workload.
    pub rss_peak_bytes: Option<u64>,
    /// Share of the machine's processor time that others used meanwhile, 0 to 1.
    pub busy_others: Option<f64>,
    /// Reads and seeks that found their key; steps that found an entry.
    pub found: u64,
    /// Values that were compared with what was written. One that differs ends the run with an error.
    pub verified: u64,
    /// What the threads beside the readers did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub writer: Option<Writer>,
    /// Seconds that writers were made to wait, as the engine counts them.
    pub stall_seconds: Option<f64>,
    /// The longest wait since the database was opened.
    pub longest_stall_seconds: Option<f64>,
    /// What is in the database at the end, by a scan that is not timed; where it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub contents: Option<Contents>,
    /// The course of the run: one sample for each `sample_seconds`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub samples: Vec<Sample>,
    /// The workload's parameters.
    pub settings: Settings,
    /// The engine's settings, by its own names, and what it lacks.
    pub engine_settings: BTreeMap<String, String>,
}

/// Latencies of single operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Latency {
    /// The average.
    pub mean: f64,
    /// Half of all operations took no longer.
    pub p50: f64,
    /// 95 of 100.
    pub p95: f64,
    /// 99 of 100.
    pub p99: f64,
    /// 999 of 1000.
    pub p999: f64,
    /// The longest.
    pub max: f64,
}

/// The threads that write beside the readers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Writer {
    /// Puts.
    pub ops: u64,
    /// Puts per second.
    pub ops_per_s: f64,
    /// Their latency.
    pub lat_us: Latency,
}

/// What a whole scan found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contents {
    /// Entries.
    pub entries: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
    /// A hash of all keys and values in order.
    pub checksum: u64,
}

/// One stretch of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Sample {
    /// Its end, in seconds since the first operation.
    pub at: f64,
    /// Operations in it.
    pub ops: u64,
    /// Mean latency of these, in microseconds.
    pub mean_us: f64,
    /// 95 of 100 took no longer; to about 10 %.
    pub p95_us: f64,
    /// 99 of 100 took no longer; to about 10 %.
    pub p99_us: f64,
    /// Puts of the threads beside the readers in it.
    pub writer_ops: u64,
    /// Bytes that users put since the start of the run.
    pub user_bytes: u64,
    /// The kernel's `write_bytes` since the start of the run.
    pub write_bytes: u64,
    /// The kernel's `read_bytes` since the start of the run.
    pub read_bytes: u64,
}

/// The workload's parameters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Settings {
    /// Keys.
    pub num: u64,
    /// Operations of workloads that read.
    pub reads: u64,
    /// Entries that a seek walks on.
    pub seek_nexts: u64,
    /// Bytes of a key.
    pub key_size: usize,
    /// Bytes of a value, or of each class of values with its share in per cent: `9:60 104:20 1004:20`.
    pub value_sizes: String,
    /// Threads that share the operations.
    pub threads: usize,
    /// Threads that write beside them.
    pub writers: usize,
    /// `os` or `sync`.
    pub durability: String,
    /// The seed of keys, values and their order.
    pub seed: u64,
    /// Bytes of one memtable, asked for.
    pub memtable_bytes: u64,
    /// Bytes of cache, asked for.
    pub cache_bytes: u64,
    /// Background threads, asked for.
    pub background_threads: usize,
    /// Bits of filter for a key, asked for.
    pub filter_bits_per_key: u32,
    /// The limit of the process and its page cache.
    pub memory_limit_bytes: Option<u64>,
    /// Length of a sample.
    pub sample_seconds: f64,
}

/// The machine and the method of a run: the first line of a file of results.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RunInfo {
    /// When it began, as `2026-03-01 12:00 UTC`.
    pub started: String,
    /// Which set of sizes: `quick`, `full`, or `custom`.
    pub scale: String,
    /// Rounds.
    pub rounds: u32,
    /// Processor, as the kernel names it.
    pub cpu: String,
    /// Processors.
    pub cpus: usize,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// The limit for each engine with its page cache.
    pub memory_limit_bytes: Option<u64>,
    /// Kernel.
    pub kernel: String,
    /// File system of the databases, and what it is on.
    pub file_system: String,
    /// The commit that was measured, and whether there were changes to it.
    pub commit: String,
    /// Titles of the engines, by name.
    pub engines: BTreeMap<String, String>,
    /// What a reader of the results should know: no memory limit, a busy machine, an engine that failed.
    pub warnings: Vec<String>,
}

/// A line of a file of results.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    /// The run; first, and once more at the end when there were warnings.
    Run(RunInfo),
    /// A result.
    Result(Box<Record>),
    /// An engine that did not finish a group, and why.
    Failure {
        /// The engine.
        engine: String,
        /// The group.
        group: String,
        /// The round.
        round: u32,
        /// What it said.
        message: String,
    },
}

impl Latency {
    /// From a histogram of nanoseconds.
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

/// The latency curve of a histogram of nanoseconds, at fractions that look even on a scale of nines.
pub fn curve(nanos: &Histogram<u64>) -> Vec<(f64, f64)> {
    const AT: [f64; 15] =
        [0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998, 0.999, 0.9999, 0.99999, 1.0];
    if nanos.is_empty() {
        return Vec::new();
    }
    AT.iter().map(|&q| (q, nanos.value_at_quantile(q) as f64 / 1000.0)).collect()
}

/// So many a second; 0 for none.
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
    fn lines_can_be_read_again() {
        let line = Line::Result(Box::new(Record { engine: "a".into(), ops: 3, ..Record::default() }));
        let text = serde_json::to_string(&line).unwrap();
        let Line::Result(back) = serde_json::from_str(&text).unwrap() else { panic!("{text}") };
        assert_eq!((back.engine.as_str(), back.ops), ("a", 3));
        assert!(!text.contains("samples"), "what is not there takes no room: {text}");
    }
}
