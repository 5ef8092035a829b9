//! [`Group`] and [`Step`]: what runs on one database, and in which order.

use crate::engine::RequestedSettings;
use crate::generate::{Shape, Sizes};
use crate::workload::{Rates, Workload};
use serde::{Deserialize, Serialize};

/// Workloads that run one after the other on one database.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Group {
    /// Its name, such as `ycsb`.
    pub name: String,
    /// Its title, for a heading.
    pub title: String,
    /// Its purpose, in a sentence or two.
    pub about: String,
    /// Number of keys in the database before any workload inserts more.
    pub num: u64,
    /// How numbers map to keys.
    pub shape: Shape,
    /// Length of a key in bytes.
    pub key_size: usize,
    /// Lengths of values.
    pub sizes: Sizes,
    /// Seed of the keys, the values and their order.
    pub seed: u64,
    /// Size of a memtable, whatever size is requested of other groups.
    pub memtable_bytes: Option<u64>,
    /// Time limit of a workload in seconds, without settling; the workload is cut short after it.
    pub seconds_max: Option<f64>,
    /// Length of a sample interval, in seconds.
    pub sample_seconds: f64,
    /// Whether it runs only when it is named: it takes long, and few users need it.
    pub on_request: bool,
    /// The workloads, in order.
    pub steps: Vec<Step>,
}

/// A workload with its parameters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// The workload.
    pub workload: Workload,
    /// The name in results, if the name of the workload is ambiguous.
    pub label: Option<String>,
    /// Number of operations of all threads.
    pub ops: u64,
    /// Threads that share the operations.
    pub threads: usize,
    /// Threads that put beside them, in `readwhilewriting`.
    pub writers: usize,
    /// First key number ...
    pub first: u64,
    /// ... and end of the key numbers (exclusive).
    pub num: u64,
    /// Entries that a seek reads after the first.
    pub seek_nexts: u64,
    /// The schedule of a history.
    pub rates: Option<Rates>,
    /// Whether memtables are flushed before it, outside of the measurement.
    pub after_flush: bool,
    /// Whether the next step waits until the engine has settled.
    pub settles: bool,
    /// Whether it runs until the time limit of its group, however many operations that takes.
    pub timed: bool,
    /// Whether the content of the database is read and hashed afterwards, if it is the same for all engines.
    pub sum_up: bool,
}

impl Step {
    /// A workload of one thread over `num` keys.
    pub fn new(workload: Workload, num: u64, ops: u64) -> Step {
        Step {
            workload,
            label: None,
            ops,
            threads: 1,
            writers: usize::from(workload == Workload::ReadWhileWriting),
            first: 0,
            num,
            seek_nexts: 0,
            rates: None,
            after_flush: false,
            settles: true,
            timed: false,
            sum_up: false,
        }
    }

    /// Its name in results.
    pub fn name(&self) -> String {
        self.label.clone().unwrap_or_else(|| self.workload.name().to_string())
    }

    pub(super) fn label(mut self, label: impl Into<String>) -> Step {
        self.label = Some(label.into());
        self
    }

    pub(super) fn summed_up(mut self) -> Step {
        self.sum_up = true;
        self
    }
}

/// The part of a name that related groups share: `parallax` of `parallax-sd`.
pub fn family_of(group: &str) -> &str {
    group.split_once('-').map_or(group, |(family, _)| family)
}

impl Group {
    /// Its family: see [`family_of`].
    pub fn family(&self) -> &str {
        family_of(&self.name)
    }

    /// Whether the content of the database after step `at` follows from its content before. The writer of
    /// `readwhilewriting` puts as much as it can, so the content is determined only if these puts repeat those of
    /// an earlier `overwrite`.
    pub fn is_repeatable(&self, at: usize) -> bool {
        let overwrite = |step: &Step| step.workload == Workload::Overwrite;
        self.steps[at].workload != Workload::ReadWhileWriting || self.steps[..at].iter().any(overwrite)
    }

    /// Maximum number of bytes of keys and values stored, without overwritten ones.
    pub fn data_bytes_max(&self) -> u64 {
        let history = |step: &Step| step.rates.map_or(0, |rates| rates.puts_beside(step.ops));
        let keys = |step: &Step| match step.workload {
            Workload::YcsbD | Workload::YcsbE => self.num + step.ops / 10,
            _ => step.first.max(step.num) + step.ops * u64::from(step.first > 0),
        };
        let entries = self.steps.iter().map(|step| keys(step).max(history(step))).max().unwrap_or(0);
        (entries as f64 * (self.key_size as f64 + 8.0 + self.sizes.mean())) as u64
    }
}

impl RequestedSettings {
    /// Memtable size, cache size, threads and filters requested of all engines by default.
    pub fn new(group: &Group) -> RequestedSettings {
        RequestedSettings {
            memtable_bytes: group.memtable_bytes.unwrap_or(64 << 20),
            cache_bytes: 256 << 20,
            background_threads: 2,
            filter_bits_per_key: 10,
            data_bytes_max: group.data_bytes_max(),
        }
    }
}
