//! `bench`: measures, with the workloads of LevelDB's `db_bench`.
//!
//! A workload runs its operations in some threads, then waits until no flush and no compaction is left to do; what is
//! reported runs from its first operation to that moment, so that no debt stays hidden. Memtables stay as they are.
//!
//! ```text
//!   bench -- workload    what there is
//!     |  \-- generate    keys, values, their order
//!     |  \-- fresh       an empty directory to begin with
//!     |  \-- drive       threads, latencies      (bar: progress)
//!     |  \-- process     what the kernel counts
//!     \----- report      the result
//! ```

mod bar;
mod drive;
mod fresh;
mod generate;
mod process;
mod report;
mod workload;

use crate::args::{CreateArgs, DbArgs};
use crate::failure::{Failure, Result};
use crate::output::{print_json, stdout};
use crate::store::{keyspace_options, open_database};
use bar::Bar;
use cairn::{Compression, Database, Durability, Keyspace, KeyspaceOptions, Preset, limits};
use drive::{Job, Outcome};
use generate::{Values, digits, seed_of};
use process::KernelIo;
use report::{Latency, Report, Settings, Writer, rate};
use std::io::Write;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use workload::Workload;

const EXAMPLES: &str = "\
Workloads that fill begin with an empty database; the others work on what is there.

Examples:
  cairn bench --db /tmp/b                                         a million records, the common workloads
  cairn bench --db /tmp/b --workloads fillrandom,readrandom --num 5000000 --json
  cairn bench --db /tmp/b --workloads seekrandom --seek-nexts 50 --reads 100000 --threads 2
  cairn bench --db /tmp/b --workloads fillrandom --preset leveled --set block_size=8192 --compression none";

/// The keyspace that is measured.
const KEYSPACE: &str = "bench";

/// Arguments of `cairn bench`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    db: DbArgs,
    /// What to run, in this order
    #[arg(long, value_name = "NAMES", value_enum, value_delimiter = ',', default_values = DEFAULT_WORKLOADS)]
    workloads: Vec<Workload>,
    /// Keys; and puts or deletes of a workload that writes
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    num: u64,
    /// Reads, seeks or steps of a workload that reads [default: as many as --num]
    #[arg(long, value_name = "N")]
    reads: Option<u64>,
    /// Entries that seekrandom walks on from where it seeks
    #[arg(long, value_name = "N", default_value_t = 0)]
    seek_nexts: u64,
    /// Bytes of a key
    #[arg(long, value_name = "BYTES", default_value_t = 16)]
    key_size: usize,
    /// Bytes of a value; values cannot be compressed
    #[arg(long, value_name = "BYTES", default_value_t = 128)]
    value_size: usize,
    /// Threads that share the operations
    #[arg(long, value_name = "T", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    threads: u16,
    #[command(flatten)]
    create: CreateArgs,
    /// Threads that compact
    #[arg(long, value_name = "N")]
    background_threads: Option<usize>,
    /// Compression of the keyspace: none, lz4 or zstd
    #[arg(long, value_name = "C")]
    compression: Option<Compression>,
    /// The same seed gives the same keys in the same order
    #[arg(long, value_name = "S", default_value_t = 0)]
    seed: u64,
    /// Fill the database that is there instead of an empty one
    #[arg(long)]
    use_existing: bool,
    /// Print one JSON object for each workload
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

/// Runs the workloads.
pub fn run(mut args: Args) -> Result<ExitCode> {
    check(&args)?;
    // In front, so that what `--set` says wins.
    let named = [
        args.background_threads.map(|n| format!("background_threads={n}")),
        args.compression.map(|c| format!("compression={c}")),
    ];
    args.create.set.splice(0..0, named.into_iter().flatten());
    let options = keyspace_options(&args.create)?;
    let values = Values::new(args.value_size, args.seed);
    let mut out = stdout();
    let mut store: Option<Store> = None;
    for (i, &workload) in args.workloads.iter().enumerate() {
        let ready = match store.take() {
            Some(open) if !workload.is_fill() || args.use_existing => open,
            open => {
                open.map_or(Ok(()), Store::close)?;
                Store::open(&args, workload, &options)?
            }
        };
        let occurrence = args.workloads[..i].iter().filter(|w| **w == workload).count() as u64;
        let report = measure(&args, &ready, workload, occurrence, &values)?;
        match args.json {
            true => print_json(&mut out, &serde_json::to_value(&report).map_err(std::io::Error::from)?)?,
            false => writeln!(out, "{report}")?,
        }
        out.flush()?;
        store = Some(ready);
    }
    store.map_or(Ok(()), Store::close)?;
    Ok(ExitCode::SUCCESS)
}

/// Refuses arguments that contradict each other before anything is removed.
fn check(args: &Args) -> Result<()> {
    let needed = digits(args.num - 1);
    if args.key_size < needed || args.key_size >= limits::MAX_KEY_LEN {
        return Err(Failure::usage(format!(
            "--key-size {}: {} keys need {needed} bytes at least, and fewer than {} are allowed",
            args.key_size,
            args.num,
            limits::MAX_KEY_LEN
        )));
    }
    if args.value_size > limits::MAX_VALUE_LEN {
        return Err(Failure::usage(format!(
            "--value-size {}: a value may have {} bytes",
            args.value_size,
            limits::MAX_VALUE_LEN
        )));
    }
    Ok(())
}

/// The open database.
struct Store {
    db: Database,
    keyspace: Keyspace,
    preset: String,
}

impl Store {
    /// Opens a database for `workload`: an empty one for a fill, else the one that is there.
    fn open(args: &Args, workload: Workload, options: &KeyspaceOptions) -> Result<Store> {
        let dir = &args.db.db;
        if workload.is_fill() && !args.use_existing {
            fresh::empty(dir)?;
        } else if !workload.is_fill() && !fresh::holds_database(dir) {
            return Err(Failure::usage(format!(
                "{} needs a database and there is none in {}: fill one first, with --workloads fillrandom,{0}",
                workload.name(),
                dir.display()
            )));
        }
        let db = open_database(&args.db, &args.create, true)?;
        let keyspace = db.keyspace(KEYSPACE, options.clone())?;
        let asked = args.create.preset.unwrap_or_default();
        let preset = if keyspace.options() == options { Some(asked) } else { preset_of(keyspace.options()) };
        let preset = preset.map_or("custom".to_string(), |preset| preset.to_string());
        // What opening left to do is not the workload's.
        db.wait_idle()?;
        Ok(Store { db, keyspace, preset })
    }

    fn close(self) -> Result<()> {
        drop(self.keyspace);
        Ok(self.db.close()?)
    }
}

/// The preset that has these options, whatever the compression.
fn preset_of(options: &KeyspaceOptions) -> Option<Preset> {
    let same =
        |preset: &Preset| KeyspaceOptions::preset(*preset).compression(options.compression) == *options;
    [Preset::Balanced, Preset::PebblesDb, Preset::Leveled].into_iter().find(same)
}

/// What is counted from the database's opening on, or from the start of the process.
struct Counts {
    written: u64,
    stalled: f64,
    longest_stall: f64,
    kernel: Option<KernelIo>,
    cpu: Duration,
}

impl Counts {
    fn now(db: &Database) -> Counts {
        let stats = db.stats();
        let stalls = &stats.stalls;
        Counts {
            written: stats.bytes_written(),
            stalled: stalls.slowdown_seconds + stalls.memtable_wait_seconds,
            longest_stall: stalls.longest_seconds,
            kernel: KernelIo::now(),
            cpu: process::cpu_time(),
        }
    }
}

/// Runs one workload until it has settled.
fn measure(
    args: &Args,
    store: &Store,
    workload: Workload,
    occurrence: u64,
    values: &Values,
) -> Result<Report> {
    let settings = settings(args, store);
    let job = Job {
        keyspace: &store.keyspace,
        workload,
        seed: seed_of(args.seed, workload.name(), occurrence),
        ops: workload.ops(args.num, settings.reads),
        num: args.num,
        key_size: args.key_size,
        values,
        seek_nexts: args.seek_nexts,
        threads: settings.threads,
        durability: durability(store, workload),
    };
    let bar = Bar::new(workload.name(), job.ops);
    process::reset_peak_memory();
    let before = Counts::now(&store.db);
    let outcome = drive::run(&job, &bar).map_err(|e| Failure::from(e).context(workload.name()))?;
    bar.settling();
    store.db.wait_idle()?;
    let settled = Instant::now() - outcome.started;
    let after = Counts::now(&store.db);
    drop(bar);
    let settings = Settings { durability: job.durability.to_string(), ..settings };
    report(args, workload, &outcome, settled, (&before, &after), settings)
}

fn report(
    args: &Args,
    workload: Workload,
    outcome: &Outcome,
    settled: Duration,
    (before, after): (&Counts, &Counts),
    settings: Settings,
) -> Result<Report> {
    let (space_bytes, space_allocated_bytes) = fresh::space(&args.db.db)?;
    let (tally, seconds) = (&outcome.tally, outcome.time.as_secs_f64());
    let user_bytes = tally.bytes_put + outcome.writer.map_or(0, |w| w.bytes_put);
    let write_bytes = after.written - before.written;
    let kernel = after.kernel.zip(before.kernel).map(|(after, before)| after.since(before));
    if let Some(told) = kernel.and_then(|kernel| report::disagreement(write_bytes, kernel)) {
        eprintln!("cairn: warning: {}: {told}", workload.name());
    }
    Ok(Report {
        engine: "cairn",
        workload: workload.name(),
        ops: tally.ops,
        seconds,
        ops_per_s: rate(tally.ops, seconds),
        settled_seconds: settled.as_secs_f64(),
        lat_us: Latency::of(&outcome.latency),
        user_bytes,
        user_bytes_read: tally.bytes_got,
        write_bytes,
        read_bytes: kernel.map(|k| k.read_bytes),
        write_amp: (user_bytes > 0).then(|| write_bytes as f64 / user_bytes as f64),
        space_bytes,
        space_allocated_bytes,
        cpu_seconds: (after.cpu - before.cpu).as_secs_f64(),
        rss_peak_bytes: process::peak_memory(),
        kernel_write_bytes: kernel.map(|k| k.write_bytes),
        kernel_wchar: kernel.map(|k| k.wchar),
        kernel_cancelled_write_bytes: kernel.map(|k| k.cancelled_write_bytes),
        found: tally.found,
        verified: tally.verified,
        writer: outcome.writer.map(|writer| Writer::of(&writer, seconds)),
        stall_seconds: after.stalled - before.stalled,
        longest_stall_seconds: after.longest_stall,
        settings,
    })
}

fn durability(store: &Store, workload: Workload) -> Durability {
    match workload {
        Workload::FillSync => Durability::Sync,
        _ => store.db.options().durability,
    }
}

fn settings(args: &Args, store: &Store) -> Settings {
    let (database, keyspace) = (store.db.options(), store.keyspace.options());
    Settings {
        num: args.num,
        reads: args.reads.unwrap_or(args.num),
        seek_nexts: args.seek_nexts,
        key_size: args.key_size,
        value_size: args.value_size,
        threads: args.threads.into(),
        preset: store.preset.clone(),
        durability: database.durability.to_string(),
        compression: keyspace.compression.to_string(),
        memory_budget: database.memory_budget,
        background_threads: database.background_threads,
        seed: args.seed,
        options: keyspace.to_pairs().into_iter().collect(),
    }
}
