//! The metrics of a report: source, meaning, and format of each.

use super::format;
use super::stats::Spread;
use crate::record::Record;

/// A metric of a record.
#[derive(Clone, Copy)]
pub struct Metric {
    /// Its part of a file name.
    pub key: &'static str,
    /// Its name, such as `Write amplification`.
    pub name: &'static str,
    /// Its column title.
    pub head: &'static str,
    /// Its explanation, for readers who do not know the field.
    pub means: &'static str,
    /// Whether higher values are better.
    pub more_is_better: bool,
    /// Whether several rounds are represented by the maximum instead of the median.
    pub highest: bool,
    /// Its value.
    pub of: fn(&Record) -> Option<f64>,
    /// Formats a value.
    pub show: fn(f64) -> String,
}

/// Acknowledged operations per second.
pub const THROUGHPUT: Metric = Metric {
    key: "throughput",
    name: "Throughput",
    head: "ops/s",
    means: "Operations that the engine acknowledged, over the time from the first to the last of them.",
    more_is_better: true,
    highest: false,
    of: |record| positive(record.ops_per_s),
    show: format::count,
};

/// Operations per second, including the time to settle.
pub const SETTLED: Metric = Metric {
    key: "settled",
    name: "Settled throughput",
    head: "settled ops/s",
    means: "The same operations, over the time until no flush and no compaction was left to do: an engine that puts work \
            off pays for it here.",
    more_is_better: true,
    highest: false,
    of: |record| positive(record.settled_ops_per_s),
    show: format::count,
};

/// Duration of a workload.
pub const SECONDS: Metric = Metric {
    key: "seconds",
    name: "Duration",
    head: "time",
    means: "Time from the first operation to the last.",
    more_is_better: false,
    highest: false,
    of: |record| positive(record.seconds),
    show: format::seconds,
};

/// Puts per second of the threads that write beside others.
pub const PUTS: Metric = Metric {
    key: "puts",
    name: "Puts beside the operations",
    head: "puts/s",
    means: "Puts of the threads that write beside the measured operations, over their time.",
    more_is_better: true,
    highest: false,
    of: |record| record.writer.as_ref().and_then(|writer| positive(writer.ops_per_s)),
    show: format::count,
};

/// Bytes written per byte put.
pub const WRITE_AMP: Metric = Metric {
    key: "write-amplification",
    name: "Write amplification",
    head: "write amp.",
    means: "Bytes written to files until the engine had settled, as counted by the kernel, per byte of keys and values put.",
    more_is_better: false,
    highest: false,
    of: |record| record.write_amp,
    show: format::times,
};

/// Bytes to and from the device per byte of the user.
pub const IO_AMP: Metric = Metric {
    key: "io-amplification",
    name: "I/O amplification",
    head: "I/O amp.",
    means: "Bytes read from and written to the device, per byte of keys and values put or read. Reads from the page cache \
            cost no I/O.",
    more_is_better: false,
    highest: false,
    of: |record| record.io_amp,
    show: format::times,
};

/// Read requests to the device per operation.
pub const DISK_READS: Metric = Metric {
    key: "disk-reads",
    name: "Disk reads per operation",
    head: "disk reads/op",
    means: "Read requests served by the disk until the engine had settled, including those of compactions, per operation. \
            Unknown if other processes read from the disk too.",
    more_is_better: false,
    highest: false,
    of: |record| per_op(record, record.disk_reads?),
    show: format::short,
};

/// Bytes read from the device per operation.
pub const READ_BYTES: Metric = Metric {
    key: "read-bytes",
    name: "Bytes read per operation",
    head: "B read/op",
    means: "Bytes that the process read from the disk until the engine had settled, including compactions, per operation. \
            Reads from the page cache do not count.",
    more_is_better: false,
    highest: false,
    of: |record| per_op(record, record.read_bytes?),
    show: format::bytes,
};

/// Fraction of operations that read from the disk.
pub const DISK_SHARE: Metric = Metric {
    key: "disk-share",
    name: "Operations that read from the disk",
    head: "ops from disk",
    means: "Fraction of the operations whose own thread read from the disk, sampled at every 256th reading operation.",
    more_is_better: false,
    highest: false,
    of: |record| record.disk_share,
    show: format::percent,
};

/// Number of keys.
pub const KEYS: Metric = Metric {
    key: "keys",
    name: "Distinct keys",
    head: "keys",
    means: "Distinct keys in the database after the workload.",
    more_is_better: true,
    highest: false,
    of: |record| record.distinct_keys.map(|keys| keys as f64),
    show: format::count,
};

/// Ratio of the data to the memory.
pub const DATA_RATIO: Metric = Metric {
    key: "data-ratio",
    name: "Data over the memory limit",
    head: "data / memory",
    means: "Bytes of the keys and values in the database after the workload, relative to the memory limit. Well below 1, the data is \
            in memory; above 1, some reads need the disk.",
    more_is_better: true,
    highest: false,
    of: |record| {
        Some(
            record.data_bytes? as f64 / record.settings.memory_limit_bytes.filter(|limit| *limit > 0)? as f64,
        )
    },
    show: format::times,
};

/// Processor time per operation.
pub const CPU: Metric = Metric {
    key: "cpu",
    name: "Processor time per operation",
    head: "CPU µs/op",
    means: "Processor time of all threads of the process per operation, including background work until the engine had settled.",
    more_is_better: false,
    highest: false,
    of: |record| (record.ops > 0).then(|| record.cpu_seconds * 1e6 / record.ops as f64),
    show: format::micros,
};

/// Memory.
pub const MEMORY: Metric = Metric {
    key: "memory",
    name: "Peak memory",
    head: "peak memory",
    means: "Peak resident memory of the process, including the resident part of mapped files.",
    more_is_better: false,
    highest: false,
    of: |record| record.rss_peak_bytes.map(|bytes| bytes as f64),
    show: format::bytes,
};

/// Disk space.
pub const SPACE: Metric = Metric {
    key: "space",
    name: "Space",
    head: "space",
    means: "Total length of all files of the database after the workload.",
    more_is_better: false,
    highest: false,
    of: |record| (record.space_bytes > 0).then_some(record.space_bytes as f64),
    show: format::bytes,
};

/// Disk space relative to the data.
pub const SPACE_AMP: Metric = Metric {
    key: "space-amplification",
    name: "Space over live data",
    head: "space / live",
    means: "Total length of all files, relative to the bytes of keys and values that a full scan finds.",
    more_is_better: false,
    highest: false,
    of: |record| {
        let live = record.contents.filter(|contents| contents.bytes > 0)?.bytes;
        Some(record.space_bytes as f64 / live as f64)
    },
    show: format::times,
};

/// Mean length of the files with the extension that has most bytes.
pub const FILE_MEAN: Metric =
    file_length("file-mean", "Mean file", "mean file", |record| record.files.map(|files| files.mean));

/// The median of these lengths.
pub const FILE_MEDIAN: Metric =
    file_length("file-median", "Median file", "median file", |record| record.files.map(|files| files.p50));

/// Their 90th percentile.
pub const FILE_P90: Metric =
    file_length("file-p90", "90th percentile of files", "p90 file", |record| record.files.map(|f| f.p90));

/// Their 95th percentile.
pub const FILE_P95: Metric =
    file_length("file-p95", "95th percentile of files", "p95 file", |record| record.files.map(|f| f.p95));

const fn file_length(
    key: &'static str,
    name: &'static str,
    head: &'static str,
    of: fn(&Record) -> Option<f64>,
) -> Metric {
    Metric {
        key,
        name,
        head,
        means: "Length of the files with the extension that has most bytes. Neither long nor short ones are better.",
        more_is_better: false,
        highest: false,
        of,
        show: format::bytes,
    }
}

/// Use of the machine by other processes.
pub const BUSY_OTHERS: Metric = Metric {
    key: "busy-others",
    name: "Others' share of the machine",
    head: "others",
    means: "Fraction of the machine's processor time used by other processes. More than a few per cent disturb the results.",
    more_is_better: false,
    highest: false,
    of: |record| record.busy_others,
    show: format::percent,
};

/// A quantile of the latency, as a column.
macro_rules! latency {
    ($name:ident, $field:ident, $head:literal, $highest:literal) => {
        #[doc = concat!("Latency: ", $head, ".")]
        pub const $name: Metric = Metric {
            key: $head,
            name: concat!("Latency, ", $head),
            head: $head,
            means: "Duration of single operations, measured by the caller: 99 of 100 operations took at most the p99.",
            more_is_better: false,
            highest: $highest,
            of: |record| positive(record.lat_us.$field),
            show: format::micros,
        };
    };
}
latency!(MEAN, mean, "mean", false);
latency!(P50, p50, "p50", false);
latency!(P95, p95, "p95", false);
latency!(P99, p99, "p99", false);
latency!(P999, p999, "p99.9", false);
latency!(MAX, max, "max", true);

/// The columns of the complete tables.
pub const COLUMNS: [Metric; 18] = [
    THROUGHPUT,
    SETTLED,
    P50,
    P99,
    P999,
    MAX,
    DISK_READS,
    DISK_SHARE,
    READ_BYTES,
    WRITE_AMP,
    IO_AMP,
    CPU,
    MEMORY,
    SPACE,
    SPACE_AMP,
    KEYS,
    DATA_RATIO,
    BUSY_OTHERS,
];

/// The metrics that the page explains, in order.
pub const EXPLAINED: [Metric; 15] = [
    THROUGHPUT,
    SETTLED,
    P99,
    DISK_READS,
    DISK_SHARE,
    READ_BYTES,
    WRITE_AMP,
    IO_AMP,
    CPU,
    MEMORY,
    SPACE,
    SPACE_AMP,
    KEYS,
    DATA_RATIO,
    BUSY_OTHERS,
];

impl Metric {
    /// Whether engines are compared by it; otherwise it describes the run.
    pub fn is_compared(&self) -> bool {
        ![KEYS.key, DATA_RATIO.key, BUSY_OTHERS.key].contains(&self.key)
    }

    /// The value that represents several rounds.
    pub fn figure(&self, spread: &Spread) -> f64 {
        if self.highest { spread.max } else { spread.median }
    }

    /// `value` relative to `other`: above 1, it is better.
    pub fn advantage(&self, value: f64, other: f64) -> f64 {
        if self.more_is_better { value / other } else { other / value }
    }
}

/// The primary metric of the workloads of a group: latency if the operations come at a fixed rate, otherwise
/// throughput; of a history whose puts follow no rate, that of the puts.
pub fn primary(group: &str) -> &'static Metric {
    match group {
        "history-newest" => &THROUGHPUT,
        _ if group.starts_with("history") && group.ends_with("full-speed") => &PUTS,
        _ if group.starts_with("history") => &P99,
        _ => &THROUGHPUT,
    }
}

fn per_op(record: &Record, count: u64) -> Option<f64> {
    (record.ops > 0).then(|| count as f64 / record.ops as f64)
}

fn positive(value: f64) -> Option<f64> {
    (value > 0.0).then_some(value)
}
