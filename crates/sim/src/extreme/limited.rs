//! A small workload under a limit of the process.
//!
//! The child sets the soft limit, runs all kinds of operations, and restores the limit. Under the limit each call
//! must return the right answer or an error of a kind documented for it. Afterwards all acknowledged data must exist,
//! and all operations must succeed.

use super::case::Limit;
use crate::finding::{Finding, Outcome, ensure};
use crate::machine::load::Load;
use crate::random::{Draw, Rng};
use crate::sets::PLACEMENTS;
use cairn::{Database, Durability, Error, ErrorKind, Keyspace, KeyspaceOptions, Options};
use rustix::process::{Resource, getrlimit, setrlimit};
use std::path::Path;

/// Number of records written under a limit.
const RECORDS: u64 = 500;

/// Number of failed writes after which writing stops.
const MAX_FAILURES: u64 = 40;

/// Number of keyspaces in addition to the one with the records.
const KEYSPACES: u64 = 12;

/// With less additional address space than this, a process cannot rely on starting threads.
const THREADS_MIB: u64 = 256;

struct Work<'a> {
    dir: &'a Path,
    limit: Limit,
    options: Options,
    keyspace: KeyspaceOptions,
    load: Load,
    refused: u64,
}

/// Sets a soft limit; `None` restores it.
fn set(resource: Resource, current: Option<u64>) -> Outcome {
    let maximum = getrlimit(resource).maximum;
    let limit = rustix::process::Rlimit { current: current.or(maximum), maximum };
    setrlimit(resource, limit).map_err(|e| Finding::new(format!("cannot set a limit: {e}")))
}

/// The address space of the process, in bytes.
fn address_space() -> Outcome<u64> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmSize:"));
    let kib: Option<u64> = line.and_then(|l| l.trim().trim_end_matches("kB").trim().parse().ok());
    let kib = kib.ok_or_else(|| Finding::new("the kernel does not tell how much memory the process has"))?;
    Ok(kib << 10)
}

impl Limit {
    fn resource(self) -> Resource {
        match self {
            Limit::AddressSpace => Resource::As,
            Limit::OpenFiles => Resource::Nofile,
            Limit::FileSize => Resource::Fsize,
            Limit::Threads => Resource::Nproc,
        }
    }

    /// Whether a call may fail with this error under the limit.
    fn allows(self, error: &Error, dir: &Path) -> bool {
        let words = error.to_string();
        let names_file = words.contains(&*dir.to_string_lossy());
        match (self, error.kind()) {
            (Limit::AddressSpace, ErrorKind::Io) => words.contains("memory") || names_file,
            (Limit::OpenFiles, ErrorKind::Io) => names_file,
            // A database that opens without space for its tables is read-only.
            (Limit::FileSize, ErrorKind::NoSpace | ErrorKind::ReadOnly) => names_file,
            (Limit::Threads, ErrorKind::Io) => words.contains("thread"),
            _ => false,
        }
    }
}

/// Runs the workload. Returns the number of calls that failed.
pub fn run(dir: &Path, seed: u64, limit: Limit, level: u64) -> Outcome<u64> {
    let mut rng = Rng::new(seed);
    let threads = match limit {
        Limit::Threads => *rng.pick(&[1, 2, 4, 64]),
        Limit::AddressSpace if level < THREADS_MIB => 0,
        _ => rng.below(3) as usize,
    };
    let mut work = Work {
        dir,
        limit,
        options: Options::default()
            .memory_budget(*rng.pick(&[1 << 20, 8 << 20, 512 << 20]))
            .background_threads(threads),
        keyspace: KeyspaceOptions::default()
            .memtable_bytes(*rng.pick(&[16 << 10, 256 << 10, 64 << 20]))
            .placement(*rng.pick(&PLACEMENTS)),
        load: Load::new(seed, 0, *rng.pick(&[Durability::Sync, Durability::Os]), (0, 6000)),
        refused: 0,
    };
    let level = match limit {
        Limit::AddressSpace => address_space()? + (level << 20),
        _ => level,
    };
    for round in 0..2 {
        set(limit.resource(), Some(level))?;
        let limited = work.limited();
        set(limit.resource(), None)?;
        limited.map_err(|f| f.context(format_args!("round {round}, under the limit")))?;
        work.free().map_err(|f| f.context(format_args!("round {round}, without the limit")))?;
    }
    Ok(work.refused)
}

impl Work<'_> {
    /// `None` if the call failed with a documented error.
    fn tolerate<T>(&mut self, what: &str, result: cairn::Result<T>) -> Outcome<Option<T>> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(e) if self.limit.allows(&e, self.dir) => {
                self.refused += 1;
                if self.refused < 4 {
                    eprintln!("{what}: {e}");
                }
                Ok(None)
            }
            Err(e) => Err(Finding::from(e).context(what)),
        }
    }

    fn open(&self) -> cairn::Result<Database> {
        Database::open_with(self.dir, self.options.clone())
    }

    fn limited(&mut self) -> Outcome {
        let opened = self.open();
        let Some(db) = self.tolerate("open", opened)? else { return Ok(()) };
        let created = db.keyspace("k", self.keyspace.clone());
        let Some(space) = self.tolerate("keyspace", created)? else { return Ok(()) };
        for number in 0..KEYSPACES {
            let created = db.keyspace(&format!("more-{number}"), self.keyspace.clone());
            if let Some(more) = self.tolerate("keyspace", created)? {
                let put = more.put("key", vec![1; 2000]);
                self.tolerate("put", put)?;
            }
        }
        let mut failures = 0;
        for record in 0..RECORDS {
            let put = self.load.put(&space);
            failures += u64::from(self.tolerate("put", put)?.is_none());
            if failures == MAX_FAILURES {
                break;
            }
            if record % 100 == 99 {
                let flushed = db.flush();
                self.tolerate("flush", flushed)?;
            }
        }
        self.read(&space)?;
        let (compacted, idle) = (space.compact(), db.wait_idle());
        self.tolerate("compact", compacted)?;
        self.tolerate("wait_idle", idle)?;
        self.read(&space)?;
        drop(space);
        let closed = db.close();
        self.tolerate("close", closed).map(drop)
    }

    /// Point reads, and scans in both directions.
    fn read(&mut self, space: &Keyspace) -> Outcome {
        let (limit, dir) = (self.limit, self.dir);
        let judge = &mut |e: &Error| match limit.allows(e, dir) {
            true => Ok(()),
            false => Err(Finding::from(e.clone()).context("get")),
        };
        self.refused += self.load.look_up_some(space, 200, judge)?;
        let (forward, backward) = (
            space.iter().collect::<cairn::Result<Vec<_>>>(),
            space.iter().rev().collect::<cairn::Result<Vec<_>>>(),
        );
        let forward = self.tolerate("a scan", forward)?;
        let Some(mut backward) = self.tolerate("a scan backward", backward)? else { return Ok(()) };
        backward.reverse();
        let same = forward.is_none_or(|forward| forward == backward);
        ensure!(same, "P3: a scan forward and one backward differ");
        Ok(())
    }

    /// All acknowledged data must exist, and all operations must succeed.
    fn free(&mut self) -> Outcome {
        let db = self.open().map_err(|e| Finding::from(e).context("open"))?;
        let space = db.keyspace("k", self.keyspace.clone())?;
        self.load.settle(&space)?;
        (0..50).try_for_each(|_| self.load.put(&space))?;
        db.flush()?;
        db.wait_idle()?;
        self.load.verify(&space)?;
        let report = db.check(&mut |_| {})?;
        ensure!(report.problems.is_empty(), "P3: check finds {:?}", report.problems);
        drop(space);
        Ok(db.close()?)
    }
}
