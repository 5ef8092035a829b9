//! The arguments of `bench`.

use crate::args::{CreateArgs, DbArgs};
use ::bench::generate::Sizes;
use ::bench::workload::Workload;
use cairn::Compression;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};

const EXAMPLES: &str = "\
Fill workloads start with an empty database; the others use the existing one.

Examples:
  cairn bench --db /tmp/b                                         a million records, the common workloads
  cairn bench --db /tmp/b --workloads fillrandom,readrandom --num 5000000 --json
  cairn bench --db /tmp/b --workloads seekrandom --seek-nexts 50 --reads 100000 --threads 2
  cairn bench --db /tmp/b --workloads fillrandom --preset leveled --set block_size=8192 --compression none
  cairn bench --db /tmp/b --workloads ycsb-load,ycsb-a,ycsb-e --threads 4 --value-size '9:60 104:20 1004:20'";

/// Arguments of `cairn bench`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    pub db: DbArgs,
    /// Workloads to run, in this order
    #[arg(long, value_name = "NAMES", value_parser = names(), value_delimiter = ',', default_values = DEFAULT_WORKLOADS)]
    pub workloads: Vec<Workload>,
    /// Number of keys; also the number of puts or deletes of a workload that writes
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub num: u64,
    /// Number of reads, seeks or cursor steps of a workload that reads [default: --num; for a history, the queries
    /// scheduled until the last put]
    #[arg(long, value_name = "N")]
    pub reads: Option<u64>,
    /// Entries that seekrandom reads after each seek
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seek_nexts: u64,
    /// Length of a key, in bytes [default: 16; 24 for the keys of YCSB, ten-each and aging]
    #[arg(long, value_name = "BYTES")]
    pub key_size: Option<usize>,
    /// Length of a value in bytes, or a mix with percentages, such as '9:60 104:20 1004:20'; values are not
    /// compressible
    #[arg(long, value_name = "BYTES", default_value = "128")]
    pub value_size: Sizes,
    /// Threads that share the operations
    #[arg(long, value_name = "T", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    pub threads: u16,
    /// Puts per second of a history
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub puts_per_second: u32,
    /// Queries per second of a history
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..))]
    pub queries_per_second: u32,
    #[command(flatten)]
    pub create: CreateArgs,
    /// Number of compaction threads
    #[arg(long, value_name = "N")]
    pub background_threads: Option<usize>,
    /// Compression of the keyspace: none, lz4 or zstd
    #[arg(long, value_name = "C")]
    pub compression: Option<Compression>,
    /// The same seed gives the same keys in the same order
    #[arg(long, value_name = "S", default_value_t = 0)]
    pub seed: u64,
    /// Fill the existing database instead of an empty one
    #[arg(long)]
    pub use_existing: bool,
    /// Print one JSON object per workload
    #[arg(long)]
    pub json: bool,
}

const DEFAULT_WORKLOADS: [&str; 9] = [
    "fillseq",
    "fillrandom",
    "overwrite",
    "readrandom",
    "readmissing",
    "readseq",
    "seekrandom",
    "readwhilewriting",
    "deleterandom",
];

/// The names of all workloads, with descriptions.
fn names() -> impl TypedValueParser<Value = Workload> {
    let name = |workload: &Workload| PossibleValue::new(workload.name()).help(workload.about());
    PossibleValuesParser::new(Workload::ALL.iter().map(name)).try_map(|name| name.parse::<Workload>())
}

impl Args {
    /// Number of reads, seeks or steps of a workload that reads.
    pub fn reads(&self) -> u64 {
        self.reads.unwrap_or(self.num)
    }
}
