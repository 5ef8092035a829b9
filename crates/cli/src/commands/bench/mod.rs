//! `bench`: runs the workloads of the crate `bench`: those of LevelDB's `db_bench`, of YCSB, and others.
//!
//! A workload runs its operations in a number of threads and then waits until no flush and no compaction is pending.
//! The measured time includes that wait, so the result includes all compaction debt. Memtables are not flushed at the
//! end.
//!
//! ```text
//!   bench -- args        the arguments
//!     |  |-- plan        from arguments to runs; which workloads go together
//!     |  \-- fresh       an empty directory to start with
//!     |  \-- crate bench    threads, latencies, counters of the kernel      (bar: progress)
//!     \----- report      the result
//! ```

mod args;
mod bar;
mod fresh;
mod plan;
mod report;

use crate::failure::{Failure, Result};
use crate::output::{print_json, stdout};
use crate::store::{database_options, keyspace_options};
use ::bench::engine::Engine;
use ::bench::engines::cairn::Cairn;
use ::bench::session::Session;
use ::bench::suite::Step;
pub use args::Args;
use bar::Bar;
use cairn::{Durability, KeyspaceOptions, Preset, limits};
use plan::{Keys, Sequence};
use report::{Report, Settings};
use serde_json::Value;
use std::io::Write;
use std::process::ExitCode;

/// Runs the workloads.
pub fn run(mut args: Args) -> Result<ExitCode> {
    let sequences = plan::sequences(&args);
    check(&args, &sequences)?;
    // These come first, so that `--set` overrides them.
    let named = [
        args.background_threads.map(|n| format!("background_threads={n}")),
        args.compression.map(|c| format!("compression={c}")),
    ];
    args.create.set.splice(0..0, named.into_iter().flatten());
    let options = keyspace_options(&args.create)?;
    for sequence in &sequences {
        let store = Store::open(&args, sequence, &options)?;
        run_sequence(&args, sequence, &store)?;
        store.close()?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Rejects contradictory arguments before any file is removed.
fn check(args: &Args, sequences: &[Sequence]) -> Result<()> {
    if args.value_size.max() > limits::MAX_VALUE_LEN {
        return Err(Failure::usage(format!(
            "--value-size {}: a value may have {} bytes",
            args.value_size,
            limits::MAX_VALUE_LEN
        )));
    }
    sequences.iter().try_for_each(|sequence| match sequence.keys(args) {
        Some(keys) => sequence.check(args, keys),
        None => Ok(()),
    })
}

/// Runs workloads on one database and prints the result of each.
fn run_sequence(args: &Args, sequence: &Sequence, store: &Store) -> Result<()> {
    // The keys in the database decide, whatever the arguments say.
    let keys = store.keys()?.or(sequence.keys(args)).unwrap_or(Keys::Decimal);
    sequence.check(args, keys)?;
    let group = plan::group(args, keys);
    let session = Session::new(&store.cairn, &group, &args.db.db);
    let mut out = stdout();
    for at in sequence.steps.clone() {
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
    /// Opens the database of a sequence: an empty one for a fill, otherwise the existing one.
    fn open(args: &Args, sequence: &Sequence, options: &KeyspaceOptions) -> Result<Store> {
        let (dir, first) = (&args.db.db, args.workloads[sequence.steps.start]);
        if sequence.fresh {
            fresh::empty(dir)?;
        } else if !first.is_fill() && !fresh::holds_database(dir) {
            return Err(Failure::usage(format!(
                "{first} needs a database, and {} has none: fill one first, with --workloads {},{first}",
                dir.display(),
                sequence.keys(args).unwrap_or(Keys::Decimal).fill(),
            )));
        }
        let cairn = Cairn::open(dir, database_options(&args.db, &args.create, true)?, options.clone())?;
        let requested = args.create.preset.unwrap_or_default();
        let found = cairn.keyspace().options();
        let preset = if &found == options { Some(requested) } else { preset_of(&found) };
        let preset = preset.map_or("custom".to_string(), |preset| preset.to_string());
        Ok(Store { cairn, preset })
    }

    /// The kind of the keys in the database; `None` if it is empty.
    fn keys(&self) -> Result<Option<Keys>> {
        let mut keys = None;
        self.cairn.scan(None, &mut |key, _| {
            keys = Some(Keys::of_key(key));
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
    Preset::ALL.into_iter().find(same)
}

/// Runs one workload and waits until compactions have settled.
fn measure(args: &Args, store: &Store, session: &Session<'_>, at: usize) -> Result<Report> {
    let step = &session.group.steps[at];
    let name = step.name();
    let bar = Bar::new(&name, step.ops);
    let record = session.run(at, step, &mut |event| bar.show(&event));
    drop(bar);
    let mut record = record.map_err(|e| Failure::from(e).context(&name))?;
    if let Some(difference) = report::disagreement(&record) {
        eprintln!("cairn: warning: {name}: {difference}");
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
