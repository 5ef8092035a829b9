//! The figures that a report shows: where each comes from, what it means, and how it is written.

use super::format;
use super::stats::Spread;
use crate::record::Record;

/// A figure of a record.
#[derive(Clone, Copy)]
pub struct Metric {
    /// Its part of a file's name.
    pub key: &'static str,
    /// Its name, as `Write amplification`.
    pub name: &'static str,
    /// As the head of a column.
    pub head: &'static str,
    /// What it means, for people who do not know the field.
    pub means: &'static str,
    /// Whether more is better.
    pub more_is_better: bool,
    /// Whether several rounds are told by the highest, not by the median.
    pub highest: bool,
    /// Its value.
    pub of: fn(&Record) -> Option<f64>,
    /// Its value in words.
    pub show: fn(f64) -> String,
}

/// What was acknowledged.
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

/// What was acknowledged and tidied up.
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

/// What is written for a byte that is put.
pub const WRITE_AMP: Metric = Metric {
    key: "write-amplification",
    name: "Write amplification",
    head: "write amp.",
    means: "Bytes that the engine wrote to files until it had settled, as the kernel counts them, for each byte of keys and \
            values that was put.",
    more_is_better: false,
    highest: false,
    of: |record| record.write_amp,
    show: format::times,
};

/// What goes to and from the device for a byte of the user's.
pub const IO_AMP: Metric = Metric {
    key: "io-amplification",
    name: "I/O amplification",
    head: "I/O amp.",
    means: "Bytes read from and written to the device, for each byte of keys and values that was put or read. Reads that \
            the page cache answers cost no I/O.",
    more_is_better: false,
    highest: false,
    of: |record| record.io_amp,
    show: format::times,
};

/// Requests to the device for an operation.
pub const DISK_READS: Metric = Metric {
    key: "disk-reads",
    name: "Disk reads per operation",
    head: "disk reads/op",
    means: "Requests to read that the disk served until the engine had settled, those of compactions included, over the \
            operations. Not known where others read from the disk, too.",
    more_is_better: false,
    highest: false,
    of: |record| per_op(record, record.disk_reads?),
    show: format::short,
};

/// Bytes from the device for an operation.
pub const READ_BYTES: Metric = Metric {
    key: "read-bytes",
    name: "Bytes read per operation",
    head: "B read/op",
    means: "Bytes that the process had the disk read until the engine had settled, compactions included, over the operations. \
            Reads that the page cache answers are none.",
    more_is_better: false,
    highest: false,
    of: |record| per_op(record, record.read_bytes?),
    show: format::bytes,
};

/// The share of operations that went to the disk.
pub const DISK_SHARE: Metric = Metric {
    key: "disk-share",
    name: "Operations that read from the disk",
    head: "ops from disk",
    means: "The share of the operations whose own thread had the disk read for them, of every 256th operation that reads.",
    more_is_better: false,
    highest: false,
    of: |record| record.disk_share,
    show: format::percent,
};

/// How many keys there are.
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

/// How much data there is beside the memory.
pub const DATA_RATIO: Metric = Metric {
    key: "data-ratio",
    name: "Data over the memory limit",
    head: "data / memory",
    means: "Bytes of the keys and values in the database after the workload, over the memory limit. Well below 1 the data are in \
            memory; above it some reads have to go to the disk.",
    more_is_better: true,
    highest: false,
    of: |record| {
        Some(
            record.data_bytes? as f64 / record.settings.memory_limit_bytes.filter(|limit| *limit > 0)? as f64,
        )
    },
    show: format::times,
};

/// Processor time for an operation.
pub const CPU: Metric = Metric {
    key: "cpu",
    name: "Processor time per operation",
    head: "CPU µs/op",
    means: "Processor time of all threads of the process, background work until it had settled included, over the operations.",
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
    means: "The most that the process had in memory (resident set; of mapped files the part that was in use).",
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
    means: "Lengths of all files of the database after the workload.",
    more_is_better: false,
    highest: false,
    of: |record| (record.space_bytes > 0).then_some(record.space_bytes as f64),
    show: format::bytes,
};

/// Disk space over what is in it.
pub const SPACE_AMP: Metric = Metric {
    key: "space-amplification",
    name: "Space over live data",
    head: "space / live",
    means: "That space, over the bytes of the keys and values that a full scan finds.",
    more_is_better: false,
    highest: false,
    of: |record| {
        let live = record.contents.filter(|contents| contents.bytes > 0)?.bytes;
        Some(record.space_bytes as f64 / live as f64)
    },
    show: format::times,
};

/// What others did to the machine meanwhile.
pub const BUSY_OTHERS: Metric = Metric {
    key: "busy-others",
    name: "Others' share of the machine",
    head: "others",
    means: "Processor time that other processes of the machine used meanwhile, as a share of all there is. More than a few \
            per cent disturb the figures.",
    more_is_better: false,
    highest: false,
    of: |record| record.busy_others,
    show: format::percent,
};

/// A quantile of latency, as a column.
macro_rules! latency {
    ($name:ident, $field:ident, $head:literal, $highest:literal) => {
        #[doc = concat!("Latency: ", $head, ".")]
        pub const $name: Metric = Metric {
            key: $head,
            name: concat!("Latency, ", $head),
            head: $head,
            means: "How long single operations took, seen by the caller: p99 is the time that 99 of 100 did not exceed.",
            more_is_better: false,
            highest: $highest,
            of: |record| positive(record.lat_us.$field),
            show: format::micros,
        };
    };
}
latency!(P50, p50, "p50", false);
latency!(P99, p99, "p99", false);
latency!(P999, p999, "p99.9", false);
latency!(MAX, max, "max", true);

/// The columns of the full tables.
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

/// What the page explains, in this order.
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
    /// Whether one engine is better than another in it; otherwise it describes the run.
    pub fn is_compared(&self) -> bool {
        ![KEYS.key, DATA_RATIO.key, BUSY_OTHERS.key].contains(&self.key)
    }

    /// What stands for several rounds.
    pub fn figure(&self, spread: &Spread) -> f64 {
        if self.highest { spread.max } else { spread.median }
    }

    /// How well `value` does beside `other`: above 1 it is better.
    pub fn advantage(&self, value: f64, other: f64) -> f64 {
        if self.more_is_better { value / other } else { other / value }
    }
}

/// What counts first in the workloads of a group: latency where the operations come at a fixed rate.
pub fn primary(group: &str) -> &'static Metric {
    if group.starts_with("history") { &P99 } else { &THROUGHPUT }
}

fn per_op(record: &Record, count: u64) -> Option<f64> {
    (record.ops > 0).then(|| count as f64 / record.ops as f64)
}

fn positive(value: f64) -> Option<f64> {
    (value > 0.0).then_some(value)
}
