//! The report of a workload: one JSON object, or one line of text.
//!
//! The object is a [`Record`], so that `cairn bench` and the program that compares engines use the same names. The
//! settings are fields of the same object, together with settings that only Cairn has.

use crate::text::{human_bytes, human_count};
use ::bench::record::{Latency, Record};
use ::bench::workload::{Kind, Work, Workload};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;

/// All results of one run of one workload.
#[derive(Debug, Serialize)]
pub struct Report {
    #[serde(skip)]
    pub workload: Workload,
    #[serde(flatten)]
    pub record: Record,
    #[serde(flatten)]
    pub settings: Settings,
}

/// The settings of the run.
#[derive(Clone, Debug, Serialize)]
pub struct Settings {
    pub num: u64,
    pub reads: u64,
    pub seek_nexts: u64,
    pub key_size: usize,
    /// The setting as given: a number, or the text of a mix.
    pub value_size: Value,
    /// The same setting, always as text.
    pub value_sizes: String,
    pub threads: usize,
    /// The preset of the keyspace; `custom` if its options match none.
    pub preset: String,
    pub durability: String,
    pub compression: String,
    pub memory_budget: u64,
    pub memtable_bytes: usize,
    pub filter_bits_per_key: u32,
    pub background_threads: usize,
    pub seed: u64,
    pub sample_seconds: f64,
    /// All options of the keyspace.
    pub options: BTreeMap<&'static str, String>,
}

impl Report {
    /// The report as one JSON object, with the settings as top-level fields.
    pub fn to_json(&self) -> serde_json::Result<Value> {
        let mut value = serde_json::to_value(self)?;
        if let Some(fields) = value.as_object_mut() {
            fields.remove("settings");
        }
        Ok(value)
    }
}

/// Describes the difference between the bytes written as counted by the kernel and by the engine, if it exceeds 2 %.
///
/// The kernel has two counters:
/// - `wchar`: bytes passed to `write`. The engine counts the same bytes, so a difference means that the engine misses
///   some. (Standard output and error are included. Writes through a memory map or io_uring are not. Cairn writes its
///   log through a map, over zeros that were passed to `write` before, so these bytes are counted, plus up to
///   [`AHEAD`] for each log and each pause in writing. A recycled log needs no zeros, so its bytes are not counted at
///   all.) Measured without the map: equal except for the 30 bytes of the first log's header, which is written when
///   the database is opened and counted with the first commit.
/// - `write_bytes`: pages of the page cache, 4 KiB each, whenever one turns from clean to dirty. Measured on ext4:
///   0.02 % over `wchar` with the default options, 0.4 % with memtables of 1 MiB, and 3.6 % with memtables of 64 KiB,
///   since each of thousands of small files ends with a partial page. A synced append dirties the last page of the
///   log again, however few bytes it adds: with `sync` and records of 144 bytes the count is 24 times `wchar`. In
///   runs of a few hundred KiB the pages of the file system itself are visible. A page whose file is removed before
///   write-back stays counted, and is also counted in `cancelled_write_bytes`: mostly old logs, a quarter to a half
///   of all bytes in a short run. A file system in memory counts nothing.
///
/// So `wchar` must agree. The reported amplification uses `write_bytes`, which counts all engines alike, however they
/// write.
pub fn disagreement(record: &Record) -> Option<String> {
    let (ours, wchar) = record.engine_write_bytes.zip(record.kernel_wchar)?;
    // Not in `wchar`: zeros that an earlier workload wrote ahead, and bytes written to recycled logs.
    let unseen = AHEAD + record.user_bytes + RECORD_BYTES * record.ops;
    let counted = ours.saturating_sub(unseen)..=ours + zeros_ahead(record);
    let beside = counted.start().saturating_sub(wchar).max(wchar.saturating_sub(*counted.end()));
    (beside > wchar / 50 + SLACK).then(|| {
        let (ours, wchar) = (human_count(ours), human_count(wchar));
        format!("the engine counted {ours} written bytes, the kernel {wchar} (wchar)")
    })
}

/// Maximum overhead of an entry in the log, and in a memtable, in bytes.
const RECORD_BYTES: u64 = 40;
const ENTRY_BYTES: u64 = 120;

/// Maximum number of zeros written ahead of the end of a log.
const AHEAD: u64 = 256 << 10;

/// Maximum number of zeros that the log did not overwrite: for each log, and for each tenth of a second, the lifetime
/// of a map.
fn zeros_ahead(record: &Record) -> u64 {
    let in_memtables = record.user_bytes + ENTRY_BYTES * record.ops;
    let logs = 2 + in_memtables / record.settings.memtable_bytes.max(1);
    let pauses = (record.settled_seconds.max(record.seconds) * 10.0) as u64;
    (logs + pauses) * AHEAD
}

/// Output on the terminal, which `wchar` includes, and activity between two readings of counters.
const SLACK: u64 = 64 << 10;

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let record = &self.record;
        write!(f, "{:<16} {:>10} ops/s", record.workload, human_count(record.ops_per_s as u64))?;
        latency(f, "us", &record.lat_us)?;
        write!(f, " max {}", micros(record.lat_us.max))?;
        for (kind, lat) in &record.lat_us_by_kind {
            latency(f, kind, lat)?;
        }
        write!(f, "  {:.1} s, settled {:.1} s", record.seconds, record.settled_seconds)?;
        match (record.engine_write_bytes, record.write_amp) {
            (Some(bytes), _) if record.write_bytes == 0 && bytes > SLACK => {
                write!(
                    f,
                    "  wrote {} (counted by the engine; the kernel has no count here)",
                    human_bytes(bytes)
                )?;
            }
            (_, Some(amplification)) => {
                write!(f, "  wrote {} ({amplification:.2}x)", human_bytes(record.write_bytes))?;
            }
            (_, None) => write!(f, "  wrote {}", human_bytes(record.write_bytes))?,
        }
        if let Some(bytes) = record.read_bytes {
            write!(f, "  read {}", human_bytes(bytes))?;
        }
        write!(f, "  space {}  cpu {:.1} s", human_bytes(record.space_bytes), record.cpu_seconds)?;
        if let Some(bytes) = record.rss_peak_bytes {
            write!(f, "  rss {}", human_bytes(bytes))?;
        }
        if record.found > 0 {
            write!(f, "  found {}", human_count(record.found))?;
        }
        if record.found > 0 && finds_one_at_most(self.workload) {
            write!(f, " of {}", human_count(record.ops))?;
        }
        match &record.writer {
            Some(writer) => write!(f, "  beside it {} puts/s", human_count(writer.ops_per_s as u64)),
            None => Ok(()),
        }
    }
}

/// Whether each operation returns at most one entry.
fn finds_one_at_most(workload: Workload) -> bool {
    match workload.work() {
        Work::Mix(&[(kind, _)], _) => matches!(kind, Kind::Read | Kind::ReadMissing | Kind::Seek),
        Work::Walk { .. } => true,
        Work::Mix(..) | Work::History { .. } => false,
    }
}

fn latency(f: &mut fmt::Formatter<'_>, of: &str, lat: &Latency) -> fmt::Result {
    write!(f, "  {of} p50 {} p99 {} p99.9 {}", micros(lat.p50), micros(lat.p99), micros(lat.p999))
}

/// Microseconds with about three significant digits.
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

    fn record(engine: u64, wchar: Option<u64>) -> Record {
        Record { engine_write_bytes: Some(engine), kernel_wchar: wchar, ..Record::default() }
    }

    #[test]
    fn counts_that_differ_are_told() {
        let told = |engine, wchar| disagreement(&record(engine, Some(wchar)));
        assert_eq!(told(100 << 20, 100 << 20), None);
        assert_eq!(told(99 << 20, 100 << 20), None);
        assert_eq!(told(0, 1000), None);
        let text = told(97_000_000, 100_000_000).unwrap();
        assert!(text.contains("97,000,000") && text.contains("100,000,000"), "{text}");
        assert!(told(103_000_000, 100_000_000).is_some());
        assert_eq!((told(200_000, 0), told(0, 500_000)), (None, None), "zeros ahead of the log");
        assert!(told(400_000, 0).is_some() && told(0, 1_000_000).is_some());
        assert_eq!(disagreement(&record(1 << 30, None)), None);
    }
}
