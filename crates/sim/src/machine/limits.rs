//! Limits of a process: file length (`RLIMIT_FSIZE`) and open files (`RLIMIT_NOFILE`).
//!
//! The child sets its own limit. For file length, half of the children ignore SIGXFSZ and lower the limit while a
//! database is open: the kernel then accepts part of a write and rejects the rest.

use super::full::again;
use super::load::Load;
use super::start;
use crate::finding::{Finding, Outcome, ensure};
use crate::jobs::Job;
use crate::random::{Draw, Rng};
use cairn::{Database, Durability, Error, ErrorKind, Keyspace, KeyspaceOptions, Options};
use clap::{Args, ValueEnum};
use rustix::process::{Resource, getrlimit, setrlimit};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use tempfile::TempDir;

/// The kind of limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Limit {
    /// The length of a file.
    FileSize,
    /// The length of a file, lowered while the database is open.
    FileSizeLowered,
    /// The number of open files.
    OpenFiles,
}

/// The arguments that the parent passes to the child.
#[derive(Args)]
pub struct LimitArgs {
    /// Directory of the database.
    #[arg(long)]
    pub dir: PathBuf,
    /// Seed of the limit, the options and the data.
    #[arg(long)]
    pub seed: u64,
    /// The kind of limit.
    #[arg(long)]
    pub limit: Limit,
}

/// Writes and reads under a limit, in a child. Returns how many calls met the limit.
pub fn run(program: &Path, seed: u64, limit: Limit) -> Outcome<u64> {
    let dir = TempDir::new().map_err(|e| Finding::new(format!("no temporary directory: {e}")))?;
    let name = limit.to_possible_value().map_or_else(String::new, |v| v.get_name().to_owned());
    let mut command = match limit {
        Limit::FileSizeLowered => {
            let mut env = Command::new("env");
            env.arg("--ignore-signal=XFSZ").arg(program);
            env
        }
        _ => Command::new(program),
    };
    command.arg("limit-child").arg("--dir").arg(dir.path().join("db"));
    command.args(["--seed", &seed.to_string(), "--limit", &name]);
    let words = start(&mut command)?;
    words.trim().parse().map_err(|_| Finding::new(format!("the child says {words:?}")))
}

/// [`run`] as a job, which counts calls that met the limit.
pub fn job(program: PathBuf, seed: u64, limit: Limit) -> Job {
    let name = limit.to_possible_value().map_or_else(String::new, |v| v.get_name().to_owned());
    Job {
        name: format!("limit, {name}, seed {seed}"),
        replay: format!("cargo run --release -p sim -- limit --seed {seed} --limit {name}"),
        run: Box::new(move || run(&program, seed, limit)),
    }
}

/// The child.
pub fn child(args: &LimitArgs) -> Outcome {
    let mut rng = Rng::new(args.seed);
    let met = match args.limit {
        Limit::FileSize => file_size(args, &mut rng, false)?,
        Limit::FileSizeLowered => file_size(args, &mut rng, true)?,
        Limit::OpenFiles => open_files(args, &mut rng)?,
    };
    println!("{met}");
    Ok(())
}

fn set(resource: Resource, current: Option<u64>) -> Outcome {
    let limit = rustix::process::Rlimit { current, maximum: getrlimit(resource).maximum };
    setrlimit(resource, limit).map_err(|e| Finding::new(format!("cannot set a limit: {e}")))
}

/// An error must name its file.
fn check_error(error: &Error, kind: ErrorKind, dir: &Path) -> Outcome {
    ensure!(error.kind() == kind, "P5: {error:?} instead of {kind:?}");
    let names = error.to_string().contains(&*dir.to_string_lossy());
    ensure!(names, "P3: the error names no file: {error:?}");
    Ok(())
}

fn open(dir: &Path, options: &Options, keyspace: &KeyspaceOptions) -> cairn::Result<(Database, Keyspace)> {
    let db = Database::open_with(dir, options.clone())?;
    let keyspace = db.keyspace("k", keyspace.clone())?;
    Ok((db, keyspace))
}

fn file_size(args: &LimitArgs, rng: &mut Rng, lowered: bool) -> Outcome<u64> {
    let limit = *rng.pick(&[20_000, 100_000, 300_000]) + rng.below(5000);
    let keyspace = KeyspaceOptions::default().memtable_bytes(*rng.pick(&[64 << 10, 1 << 20]));
    let options = Options::default().memory_budget(8 << 20).background_threads(rng.below(3) as usize);
    let durability = *rng.pick(&[Durability::Sync, Durability::Os]);
    let mut load = Load::new(args.seed, 0, durability, (0, 3000));
    let mut met = 0;
    for _ in 0..3 {
        if !lowered {
            set(Resource::Fsize, Some(limit))?;
        }
        let (db, space) = match open(&args.dir, &options, &keyspace) {
            Ok(opened) => opened,
            Err(e) => {
                check_error(&e, ErrorKind::NoSpace, &args.dir)?;
                met += 1;
                set(Resource::Fsize, None)?;
                open(&args.dir, &options, &keyspace)?
            }
        };
        load.settle(&space).map_err(|f| f.context("reopened"))?;
        if lowered {
            (0..20).try_for_each(|_| load.put(&space))?;
            set(Resource::Fsize, Some(limit))?;
        }
        let written = (0..400).map(|_| load.put(&space)).collect::<Vec<_>>();
        for error in written.into_iter().chain([db.flush()]).filter_map(Result::err) {
            check_error(&error, ErrorKind::NoSpace, &args.dir)?;
            met += 1;
        }
        load.verify(&space).map_err(|f| f.context("under the limit"))?;
        set(Resource::Fsize, None)?;
        again("a put", || load.put(&space))?;
        again("a flush", || db.flush())?;
        again("idleness", || db.wait_idle())?;
        load.verify(&space).map_err(|f| f.context("without the limit"))?;
        let checked = db.check(&mut |_| {})?;
        ensure!(checked.problems.is_empty(), "P3: check finds {:?}", checked.problems);
        drop(space);
        db.close()?;
    }
    let (_db, space) = open(&args.dir, &options, &keyspace)?;
    load.settle(&space).map_err(|f| f.context("reopened"))?;
    Ok(met)
}

/// Number of open descriptors of this process, including the one that reads the list.
fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").map_or(0, |entries| entries.count())
}

/// Maximum number of descriptors beside the table cache: lock, log, manifest, a spare one, tables being written, and
/// the inputs of two compactions, which stay open while they are read even if the cache evicts them.
const BESIDE_TABLES: usize = 48;

fn open_files(args: &LimitArgs, rng: &mut Rng) -> Outcome<u64> {
    const LIMIT: u64 = 64;
    let bound = *rng.pick(&[0, 16, 24]);
    let before = descriptors();
    // Half of the runs have no limit except the option.
    let limited = bound == 0 || rng.chance(1, 2);
    if limited {
        set(Resource::Nofile, Some(LIMIT))?;
    }
    let keyspace = KeyspaceOptions::default()
        .memtable_bytes(16 << 10)
        .top_level_bits(10)
        .bit_decrement(1)
        .block_size(512);
    let options = Options::default()
        .memory_budget(1 << 20)
        .background_threads(rng.below(3) as usize)
        .max_open_files(bound);
    let mut load = Load::new(args.seed, 0, Durability::Os, (0, 600));
    let (db, space) = open(&args.dir, &options, &keyspace)?;
    let (most, ended) = (AtomicUsize::new(0), AtomicBool::new(false));
    let met = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                most.fetch_max(descriptors(), Ordering::Relaxed);
                std::thread::sleep(Duration::from_micros(500));
            }
        });
        let met = many_tables(&db, &space, &mut load, args, limited);
        ended.store(true, Ordering::Relaxed);
        met
    })?;
    let most = most.load(Ordering::Relaxed).saturating_sub(before);
    let tables = if bound == 0 { LIMIT as usize / 2 } else { bound };
    ensure!(limited || most <= tables + BESIDE_TABLES, "{most} files are open; {tables} tables may be");
    drop(space);
    db.close()?;
    let (db, space) = open(&args.dir, &options, &keyspace)?;
    load.settle(&space).map_err(|f| f.context("reopened"))?;
    drop(space);
    db.close()?;
    Ok(met)
}

/// Creates far more tables than may be open; then takes away the descriptors, as an application might.
fn many_tables(
    db: &Database,
    space: &Keyspace,
    load: &mut Load,
    args: &LimitArgs,
    limited: bool,
) -> Outcome<u64> {
    while space.stats().levels.iter().map(|l| l.tables).sum::<usize>() < 250 {
        (0..200)
            .try_for_each(|_| load.put(space))
            .map_err(|e| Finding::from(e).context("with many tables"))?;
        ensure!(load.numbers().len() < 100_000, "there are never many tables");
    }
    load.verify(space).map_err(|f| f.context("with many tables"))?;
    if !limited {
        return Ok(1);
    }
    let mut met = 0;
    for left in [0, 1, 2, 4] {
        let mut eaten: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
        eaten.truncate(eaten.len().saturating_sub(left));
        for i in 0..300 {
            if let Err(e) = load.put(space) {
                check_error(&e, ErrorKind::Io, &args.dir)?;
                met += 1;
            }
            if i % 30 == 0
                && let Err(e) = db.flush()
            {
                check_error(&e, ErrorKind::Io, &args.dir)?;
                met += 1;
            }
            met += load.look_up_some(space, 20, &mut |e| check_error(e, ErrorKind::Io, &args.dir))?;
        }
        drop(eaten);
        // A background thread may report an earlier error until it has retried.
        let mut tries = 0;
        while let Err(e) = load.put(space).and_then(|()| db.flush()).and_then(|()| db.wait_idle()) {
            check_error(&e, ErrorKind::Io, &args.dir)
                .map_err(|f| f.context("there are descriptors again"))?;
            tries += 1;
            ensure!(tries < 100, "P5: there are descriptors again, and writing does not go on: {e:?}");
            std::thread::sleep(Duration::from_millis(50));
        }
        load.verify(space).map_err(|f| f.context("there are descriptors again"))?;
    }
    ensure!(met > 0, "no call ever met the limit");
    Ok(met)
}
