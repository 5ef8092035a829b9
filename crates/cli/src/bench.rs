//! `bench`: runs the workloads of the crate `bench`: those of LevelDB's `db_bench`, of YCSB, and others.
//!
//! A workload runs its operations in a number of threads and then waits until no flush and no compaction is pending.
//! The measured time includes that wait, so the result includes all compaction debt. Memtables are not flushed at the
//! end.
//!
//! ```text
//!   bench -- plan        from arguments to runs; which workloads go together
//!     |  \-- fresh       an empty directory to start with
//!     |  \-- crate bench    threads, latencies, counters of the kernel      (bar: progress)
//!     \----- report      the result
//! ```

mod bar;
mod fresh;
mod plan;
mod report;

use crate::args::{CreateArgs, DbArgs};
use crate::failure::{Failure, Result};
use crate::output::{print_json, stdout};
use crate::store::{database_options, keyspace_options};
use ::bench::engine::Engine;
use ::bench::engines::cairn::Cairn;
use ::bench::generate::Sizes;
use ::bench::session::Session;
use ::bench::suite::Step;
use ::bench::workload::Workload;
use bar::Bar;
use cairn::{Compression, Durability, KeyspaceOptions, Preset, limits};
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use plan::{Keys, Stretch};
use report::{Report, Settings};
use serde_json::Value;
use std::io::Write;
use std::process::ExitCode;

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
    db: DbArgs,
    /// Workloads to run, in this order
    #[arg(long, value_name = "NAMES", value_parser = names(), value_delimiter = ',', default_values = DEFAULT_WORKLOADS)]
    workloads: Vec<Workload>,
    /// Number of keys; also the number of puts or deletes of a workload that writes
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    num: u64,
    /// Reads, seeks or steps of a workload that reads [default: --num; for a history, the queries due while it runs]
    #[arg(long, value_name = "N")]
    reads: Option<u64>,
    /// Entries that seekrandom reads after each seek
    #[arg(long, value_name = "N", default_value_t = 0)]
    seek_nexts: u64,
    /// Length of a key, in bytes [default: 16; 24 for the keys of YCSB, ten-each and aging]
    #[arg(long, value_name = "BYTES")]
    key_size: Option<usize>,
    /// Length of a value in bytes, or a mix with percentages, such as '9:60 104:20 1004:20'; values are not
    /// compressible
    #[arg(long, value_name = "BYTES", default_value = "128")]
    value_size: Sizes,
    /// Threads that share the operations
    #[arg(long, value_name = "T", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    threads: u16,
    /// Puts per second of a history
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    puts_per_second: u32,
    /// Queries per second of a history
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..))]
    queries_per_second: u32,
    #[command(flatten)]
    create: CreateArgs,
    /// Number of compaction threads
    #[arg(long, value_name = "N")]
    background_threads: Option<usize>,
    /// Compression of the keyspace: none, lz4 or zstd
    #[arg(long, value_name = "C")]
    compression: Option<Compression>,
    /// The same seed gives the same keys in the same order
    #[arg(long, value_name = "S", default_value_t = 0)]
    seed: u64,
    /// Fill the existing database instead of an empty one
    #[arg(long)]
    use_existing: bool,
    /// Print one JSON object per workload
    #[arg(long)]
    json: bool,
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
    fn reads(&self) -> u64 {
        self.reads.unwrap_or(self.num)
    }
}

/// Runs the workloads.
pub fn run(mut args: Args) -> Result<ExitCode> {
    let stretches = plan::stretches(&args);
    check(&args, &stretches)?;
    // These come first, so that `--set` overrides them.
    let named = [
        args.background_threads.map(|n| format!("background_threads={n}")),
        args.compression.map(|c| format!("compression={c}")),
    ];
    args.create.set.splice(0..0, named.into_iter().flatten());
    let options = keyspace_options(&args.create)?;
    for stretch in &stretches {
        let store = Store::open(&args, stretch, &options)?;
        run_stretch(&args, stretch, &store)?;
        store.close()?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Rejects contradictory arguments before any file is removed.
fn check(args: &Args, stretches: &[Stretch]) -> Result<()> {
    if args.value_size.max() > limits::MAX_VALUE_LEN {
        return Err(Failure::usage(format!(
            "--value-size {}: a value may have {} bytes",
            args.value_size,
            limits::MAX_VALUE_LEN
        )));
    }
    stretches.iter().try_for_each(|stretch| match stretch.keys(args) {
        Some(keys) => stretch.check(args, keys),
        None => Ok(()),
    })
}

/// Runs workloads on one database and prints the result of each.
fn run_stretch(args: &Args, stretch: &Stretch, store: &Store) -> Result<()> {
    // The keys in the database decide, whatever the arguments say.
    let keys = store.keys()?.or(stretch.keys(args)).unwrap_or(Keys::Decimal);
    stretch.check(args, keys)?;
    let group = plan::group(args, keys);
    let session = Session::new(&store.cairn, &group, &args.db.db);
    let mut out = stdout();
    for at in stretch.steps.clone() {
        let report = measure(args, store, &session, at)?;
        match args.json {
            true => print_json(&mut out, &report.to_json().map_err(std::io::Error::from)?)?,
            false => writeln!(out, "{report}")?,
        }
        out.flush()?;
    }
    Ok(())
}

/// The open database.
struct Store {
    cairn: Cairn,
    preset: String,
}

impl Store {
    /// Opens the database of a stretch: an empty one for a fill, otherwise the existing one.
    fn open(args: &Args, stretch: &Stretch, options: &KeyspaceOptions) -> Result<Store> {
        let (dir, first) = (&args.db.db, args.workloads[stretch.steps.start]);
        if stretch.fresh {
            fresh::empty(dir)?;
        } else if !first.is_fill() && !fresh::holds_database(dir) {
            return Err(Failure::usage(format!(
                "{first} needs a database, and {} has none: fill one first, with --workloads {},{first}",
                dir.display(),
                stretch.keys(args).unwrap_or(Keys::Decimal).fill(),
            )));
        }
        let cairn = Cairn::open(dir, database_options(&args.db, &args.create, true)?, options.clone())?;
        let asked = args.create.preset.unwrap_or_default();
        let found = cairn.keyspace().options();
        let preset = if found == options { Some(asked) } else { preset_of(found) };
        let preset = preset.map_or("custom".to_string(), |preset| preset.to_string());
        Ok(Store { cairn, preset })
    }

    /// The kind of the keys in the database; `None` if it is empty.
    fn keys(&self) -> Result<Option<Keys>> {
        let mut keys = None;
        self.cairn.scan(None, &mut |key, _| {
            keys = Some(Keys::look(key));
            false
        })?;
        Ok(keys)
    }

    fn close(self) -> Result<()> {
        Ok(Box::new(self.cairn).close()?)
    }
}

/// The preset with these options, apart from the compression.
fn preset_of(options: &KeyspaceOptions) -> Option<Preset> {
    let same =
        |preset: &Preset| KeyspaceOptions::preset(*preset).compression(options.compression) == *options;
    [Preset::Balanced, Preset::PebblesDb, Preset::Leveled].into_iter().find(same)
}

/// Runs one workload and waits until compactions have settled.
fn measure(args: &Args, store: &Store, session: &Session<'_>, at: usize) -> Result<Report> {
    let step = &session.group.steps[at];
    let name = step.name();
    let bar = Bar::new(&name, step.ops);
    let record = session.run(at, step, &mut |event| bar.show(&event));
    drop(bar);
    let mut record = record.map_err(|e| Failure::from(e).context(&name))?;
    if let Some(told) = report::disagreement(&record) {
        eprintln!("cairn: warning: {name}: {told}");
    }
    record.engine = "cairn".to_string();
    record.engine_version = env!("CARGO_PKG_VERSION").to_string();
    record.round = 1;
    let settings = settings(args, store, session, step);
    Ok(Report { workload: step.workload, record, settings })
}

fn settings(args: &Args, store: &Store, session: &Session<'_>, step: &Step) -> Settings {
    let (database, keyspace) = (store.cairn.database().options(), store.cairn.keyspace().options());
    let durability = if step.workload.syncs() { Durability::Sync } else { database.durability };
    let value_sizes = session.group.sizes.to_string();
    Settings {
        num: step.num - step.first,
        reads: args.reads(),
        seek_nexts: step.seek_nexts,
        key_size: session.group.key_size,
        value_size: value_sizes.parse::<u64>().map_or(Value::from(&*value_sizes), Value::from),
        value_sizes,
        threads: step.threads,
        preset: store.preset.clone(),
        durability: durability.to_string(),
        compression: keyspace.compression.to_string(),
        memory_budget: database.memory_budget,
        memtable_bytes: keyspace.memtable_bytes,
        filter_bits_per_key: keyspace.filter_bits_per_key,
        background_threads: database.background_threads,
        seed: session.group.seed,
        sample_seconds: session.group.sample_seconds,
        options: keyspace.to_pairs().into_iter().collect(),
    }
}
