//! What is reported of a workload: one JSON object, or one line for people.
//!
//! The object is a [`Record`], so that `cairn bench` and the program that compares engines call the same things by the same names;
//! its settings stand beside the results, together with those that only Cairn has.

use crate::text::{human_bytes, human_count};
use ::bench::record::{Latency, Record};
use ::bench::workload::{Kind, Work, Workload};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;

/// Everything about one run of one workload.
#[derive(Debug, Serialize)]
pub struct Report {
    #[serde(skip)]
    pub workload: Workload,
    #[serde(flatten)]
    pub record: Record,
    #[serde(flatten)]
    pub settings: Settings,
}

/// What the run was asked for.
#[derive(Clone, Debug, Serialize)]
pub struct Settings {
    pub num: u64,
    pub reads: u64,
    pub seek_nexts: u64,
    pub key_size: usize,
    /// As it was asked for: a number, or the text of a mix.
    pub value_size: Value,
    /// The same as text in any case, as in a record.
    pub value_sizes: String,
    pub threads: usize,
    /// The preset that the keyspace has: `custom` for none of them.
    pub preset: String,
    pub durability: String,
    pub compression: String,
    pub memory_budget: u64,
    pub memtable_bytes: usize,
    pub filter_bits_per_key: u32,
    pub background_threads: usize,
    pub seed: u64,
    pub sample_seconds: f64,
    /// Every option of the keyspace.
    pub options: BTreeMap<&'static str, String>,
}

impl Report {
    /// As one JSON object, without levels for the settings.
    pub fn to_json(&self) -> serde_json::Result<Value> {
        let mut value = serde_json::to_value(self)?;
        if let Some(fields) = value.as_object_mut() {
            fields.remove("settings");
        }
        Ok(value)
    }
}

/// How the kernel's count of written bytes differs from the engine's, when it does by more than 2 %.
///
/// The kernel counts at two places:
/// - `wchar`: the bytes that the process passed to `write`. The engine counts the same thing, so a difference means that it
///   forgot something. (What goes to standard output and error counts here, too. What is written by way of a
///   memory map or io_uring does not. Cairn's log is written by way of a map, over zeros that went through `write` before: so the
///   bytes are counted, up to [`AHEAD`] too many for each log and each time that writing has paused. A log that is written over an older
///   one needs no zeros: what it takes is not counted at all.) Measured before there was a map:
///   equal but for the 30 bytes of the first log's header, which is written when the database is opened and counted with the first
///   commit.
/// - `write_bytes`: pages of the page cache, 4 KiB each, whenever one turns from clean to dirty. Measured on ext4: 0.02 % over
///   `wchar` with the default options, 0.4 % with memtables of 1 MiB, 3.6 % with memtables of 64 KiB, since each of
///   thousands of small files ends with a part of a page. A synced append makes the log's last page dirty anew, however
///   few bytes it adds: with `sync` and records of 144 bytes it is 24 times `wchar`. In runs of a few hundred KiB the
///   file system's own pages show. A page whose file is removed before it was written back stays counted, and
///   is counted once more in `cancelled_write_bytes`: the old logs, mostly, a quarter to a half of all that a short run writes.
///   A file system in memory counts nothing.
///
/// So `wchar` is the count to agree with. Amplification is told by `write_bytes`, which counts for every engine alike, whatever
/// way it writes.
pub fn disagreement(record: &Record) -> Option<String> {
    let (ours, wchar) = record.engine_write_bytes.zip(record.kernel_wchar)?;
    // What the workload before had written ahead, this one need not write; nor what went over older logs.
    let unseen = AHEAD + record.user_bytes + RECORD_BYTES * record.ops;
    let counted = ours.saturating_sub(unseen)..=ours + zeros_ahead(record);
    let beside = counted.start().saturating_sub(wchar).max(wchar.saturating_sub(*counted.end()));
    (beside > wchar / 50 + SLACK).then(|| {
        let (ours, wchar) = (human_count(ours), human_count(wchar));
        format!("the engine counted {ours} written bytes, the kernel {wchar} (wchar)")
    })
}

/// What a write takes at most besides its key and value: in the log, and in a memtable.
const RECORD_BYTES: u64 = 40;
const ENTRY_BYTES: u64 = 120;

/// The most zeros that are written ahead of the end of a log.
const AHEAD: u64 = 256 << 10;

/// The most zeros that the log never got to: some for each log, and for each tenth of a second, since the map is made anew so often.
fn zeros_ahead(record: &Record) -> u64 {
    let in_memtables = record.user_bytes + ENTRY_BYTES * record.ops;
    let logs = 2 + in_memtables / record.settings.memtable_bytes.max(1);
    let pauses = (record.settled_seconds.max(record.seconds) * 10.0) as u64;
    (logs + pauses) * AHEAD
}

/// The terminal's share of `wchar`, and what a moment between two readings may do.
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
                write!(f, "  wrote {} (by its own count: the kernel has none here)", human_bytes(bytes))?;
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

/// Whether each operation looks for one entry.
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
