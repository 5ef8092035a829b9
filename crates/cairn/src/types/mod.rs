//! Plain data that users see: the options, the statistics, ranges of keys and the limits of keys and values.
//!
//! Imports no other room. Absent: state, locks, files.

mod bounds;
mod copies;
mod debug;
mod filters;
mod latency;
mod merge;
mod metrics;
mod options;
mod stats;
mod stats_text;

pub(crate) use bounds::{Bounds, Limits, successor};
pub use copies::{BackupGeneration, BackupOptions, BackupProblem, CheckpointReport, CopyProgress};
pub(crate) use debug::debug_of;
pub(crate) use filters::Filters;
pub use history::Retention;
pub(crate) use latency::{BUCKETS, bucket};
pub use latency::{Histogram, LatencyStats};
pub(crate) use merge::Operators;
pub use merge::{ByteSet, Merge};
pub use options::{
    Compression, Durability, Engine, GuardPolicy, KeyspaceOptions, OptionSpec, Options, PlacementPolicy,
    Preset, TableFormat, Ttl,
};
pub use stats::*;
