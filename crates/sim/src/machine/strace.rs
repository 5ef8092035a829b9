//! Failing system calls: the child runs under `strace`, which makes the k-th call of a kind fail without effect.
//!
//! A run without failures counts the calls of each kind. Each further run fails one of them, and the parent checks
//! three things: the answers that the child got, whether the trace shows another sync of a file whose sync failed,
//! and the content of the database afterwards.

use super::child::{Expect, Report};
use super::script::{options, steps, verify};
use crate::finding::{Finding, Outcome, ensure};
use crate::jobs::Job;
use crate::random::{Draw, Rng, derive};
use cairn::{Database, Durability};
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;
use tempfile::TempDir;

/// Number of steps in a script.
const STEPS: usize = 110;

/// A failure of one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Injection {
    /// The system call.
    pub call: String,
    /// The effect in the syntax of strace: `error=EIO`, `retval=0`.
    pub what: String,
    /// The number of the call among those of its kind, from 1.
    pub nth: u64,
    /// Whether all later calls fail too.
    pub on: bool,
}

impl fmt::Display for Injection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:when={}{}", self.call, self.what, self.nth, if self.on { "+" } else { "" })
    }
}

impl FromStr for Injection {
    type Err = String;

    fn from_str(text: &str) -> Result<Injection, String> {
        let parse = || {
            let [call, what, when] = text.split(':').collect::<Vec<_>>().try_into().ok()?;
            let when = when.strip_prefix("when=")?;
            let nth = when.trim_end_matches('+').parse().ok()?;
            Some(Injection { call: call.to_owned(), what: what.to_owned(), nth, on: when.ends_with('+') })
        };
        parse().ok_or_else(|| format!("{text:?} is not an injection, such as fsync:error=EIO:when=3"))
    }
}

impl Injection {
    fn expect(&self) -> Expect {
        match self.call.contains("sync") {
            true => Expect::ReadOnly,
            false => Expect::Passing,
        }
    }
}

/// The injections, with their weights.
const KINDS: &[(&str, &str, u32)] = &[
    ("fdatasync", "error=EIO", 20),
    ("msync", "error=EIO", 10),
    ("fsync", "error=EIO", 20),
    // Tables go to the disk by this call while they are written.
    ("sync_file_range", "error=EIO", 10),
    ("pwrite64", "error=ENOSPC", 10),
    ("pwrite64", "error=EIO", 6),
    ("pwrite64", "error=EINTR", 4),
    ("pwrite64", "retval=0", 4),
    ("rename", "error=EIO", 6),
    ("unlink", "error=EIO", 3),
    ("ftruncate", "error=EIO", 3),
    ("openat", "error=EMFILE", 7),
    ("pread64", "error=EIO", 4),
    ("pread64", "error=EINTR", 3),
];

/// Why this test cannot run here; `None` if it can.
pub fn missing() -> Option<String> {
    let tried = Command::new("strace").args(["-f", "-qq", "-o", "/dev/null", "true"]).output();
    match tried {
        Err(e) => Some(format!("strace cannot be started: {e}")),
        Ok(output) if output.status.success() => None,
        Ok(output) => Some(format!("strace fails: {}", String::from_utf8_lossy(&output.stderr).trim())),
    }
}

/// A system call in a trace.
struct Call<'a> {
    name: &'a str,
    rest: &'a str,
}

/// The calls of a trace, in order. Each line begins with a thread id.
fn calls(trace: &str) -> impl Iterator<Item = Call<'_>> {
    trace.lines().filter_map(|line| {
        let line = line.trim_start_matches(|c: char| c.is_ascii_digit()).trim_start();
        let (name, rest) = line.split_once('(')?;
        name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_').then_some(Call { name, rest })
    })
}

/// The file of a call: strace prints it after the descriptor.
fn file<'a>(call: &Call<'a>) -> &'a str {
    call.rest.split_once('<').and_then(|(_, rest)| rest.split_once('>')).map_or("", |(file, _)| file)
}

/// A run of the child.
struct Run {
    scratch: TempDir,
    seed: u64,
    threads: usize,
}

impl Run {
    fn new(seed: u64, threads: usize) -> Outcome<Run> {
        let scratch = TempDir::new().map_err(|e| Finding::new(format!("no temporary directory: {e}")))?;
        Ok(Run { scratch, seed, threads })
    }

    fn dir(&self) -> PathBuf {
        self.scratch.path().join("db")
    }

    /// Runs the child under strace. Returns the trace and its report.
    fn trace(&self, program: &Path, expect: Expect, inject: Option<&Injection>) -> Outcome<(String, Report)> {
        let log = self.scratch.path().join("trace");
        let mut command = Command::new("strace");
        command.args(["-f", "-qq", "-y", "--seccomp-bpf", "-e", "signal=none", "-e"]);
        command.arg(
            "trace=fsync,fdatasync,msync,sync_file_range,pwrite64,rename,unlink,ftruncate,openat,pread64",
        );
        if let Some(injection) = inject {
            command.args(["-e", &format!("inject={injection}")]);
        }
        command.arg("-o").arg(&log).arg("--").arg(program).arg("script-child").arg("--dir").arg(self.dir());
        command.args(["--seed", &self.seed.to_string(), "--steps", &STEPS.to_string()]);
        command.args(["--threads", &self.threads.to_string()]);
        command.args(["--expect", if expect == Expect::ReadOnly { "read-only" } else { "passing" }]);
        let output = command.output().map_err(|e| Finding::new(format!("cannot start strace: {e}")))?;
        let words = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "the child ({}): {}", output.status, words.trim());
        let trace = std::fs::read(&log).map_err(|e| Finding::new(format!("no trace: {e}")))?;
        let report = Report::parse(&String::from_utf8_lossy(&output.stdout))?;
        Ok((String::from_utf8_lossy(&trace).into_owned(), report))
    }

    /// Opens the database that the child left, verifies it against the report, and writes to it.
    fn verify(&self, report: &Report) -> Outcome {
        let db = Database::open_with(self.dir(), options(self.threads));
        let db = db.map_err(|e| Finding::from(e).context("P3: opening"))?;
        verify(&db, &steps(self.seed, STEPS), &report.endings)?;
        let checked = db.check(&mut |_| {})?;
        ensure!(checked.problems.is_empty(), "P3: check finds {:?}", checked.problems);
        if let Some(name) = db.keyspaces().first() {
            db.open_keyspace(name)?.put_with("after", "all", Durability::Sync)?;
        }
        Ok(db.close()?)
    }
}

/// The calls in a run without failures: for each kind, the number of the first call on the database, and the total.
#[derive(Clone, Debug, Default)]
pub struct Counts(Vec<(&'static str, u64, u64)>);

impl Counts {
    /// Counts the calls.
    pub fn take(program: &Path, seed: u64) -> Outcome<Counts> {
        let run = Run::new(seed, 0)?;
        let (trace, report) = run.trace(program, Expect::ReadOnly, None)?;
        ensure!(report.errors.is_empty(), "without any failure: {:?}", report.errors);
        run.verify(&report).map_err(|f| f.context("without any failure"))?;
        let dir = run.dir().to_string_lossy().into_owned();
        let mut counts = Vec::new();
        for &(name, ..) in KINDS {
            let own: Vec<_> = calls(&trace).filter(|c| c.name == name).collect();
            let first = own.iter().position(|c| c.rest.contains(&dir)).map_or(u64::MAX, |i| i as u64 + 1);
            counts.push((name, first, own.len() as u64));
        }
        Ok(Counts(counts))
    }

    /// Draws a call that occurs, and a failure for it.
    fn draw(&self, rng: &mut Rng) -> Injection {
        loop {
            let (call, what, _) = KINDS[rng.weighted(&KINDS.iter().map(|k| k.2).collect::<Vec<_>>())];
            let found = self.0.iter().find(|c| c.0 == call);
            let Some(&(_, first, last)) = found.filter(|c| c.1 <= c.2) else { continue };
            let nth = first + rng.below(last - first + 1);
            // A permanent failure must not keep the child from doing anything.
            let on = rng.chance(1, 5) && !matches!(call, "openat" | "pread64" | "pwrite64");
            return Injection { call: call.to_owned(), what: what.to_owned(), nth, on };
        }
    }
}

/// Whether the failed sync is optional: one of a directory above the database, which may belong to another user.
fn is_above(path: &str, dir: &Path) -> bool {
    !Path::new(path).starts_with(dir)
}

/// Fails one call of a script. Returns the number of failed calls.
pub fn inject(program: &Path, seed: u64, threads: usize, injection: &Injection) -> Outcome<u64> {
    let run = Run::new(seed, threads)?;
    let (trace, report) = run.trace(program, injection.expect(), Some(injection))?;
    let said = |f: Finding| f.context(format_args!("the child saw {:?}", report.errors));
    let mut failed: Vec<String> = Vec::new();
    let mut injected = 0;
    for call in calls(&trace) {
        let is_sync = call.name.contains("sync");
        if call.rest.contains("(INJECTED)") {
            injected += 1;
        } else if is_sync && failed.iter().any(|f| f == file(&call)) {
            return Err(said(Finding::new(format!(
                "P4: {} is synced again after its sync failed",
                file(&call)
            ))));
        }
        if is_sync && call.rest.contains("(INJECTED)") && !is_above(file(&call), &run.dir()) {
            ensure!(
                !failed.iter().any(|f| f == file(&call)),
                "P4: a failed sync of {} is tried again",
                file(&call)
            );
            failed.push(file(&call).to_owned());
        }
    }
    ensure!(
        failed.is_empty() || !report.errors.is_empty(),
        "P4: no call returned the error of the failed sync of {failed:?}"
    );
    run.verify(&report).map_err(said)?;
    Ok(injected)
}

/// A series of injections derived from a seed.
pub fn run(program: &Path, seed: u64, injections: u64) -> Outcome<u64> {
    let mut rng = Rng::new(seed);
    let script = derive(seed, 1);
    let counts = Counts::take(program, script)?;
    let mut done = 0;
    for _ in 0..injections {
        let injection = counts.draw(&mut rng);
        // With background threads the order of calls differs, but the guarantees are the same.
        let threads = if rng.chance(1, 4) { 1 } else { 0 };
        let injected = inject(program, script, threads, &injection).map_err(|f| {
            f.context(format_args!("injected {injection}, replay: strace --script {script} --threads {threads} --injection {injection}"))
        })?;
        done += u64::from(injected > 0);
    }
    Ok(done)
}

/// [`run`] as a job, which counts injections.
pub fn job(program: PathBuf, seed: u64, injections: u64) -> Job {
    Job {
        name: format!("strace, seed {seed}"),
        replay: format!("cargo run --release -p sim -- strace --seed {seed} --injections {injections}"),
        run: Box::new(move || run(&program, seed, injections)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_a_trace_are_understood() {
        let trace = "12 fdatasync(7</tmp/db/wal-000001.log>) = -1 EIO (Input/output error) (INJECTED)\n\
                     12 openat(AT_FDCWD</tmp>, \"/tmp/db\", O_RDONLY) = 3</tmp/db>\n13 +++ exited with 0 +++\n";
        let calls: Vec<_> = calls(trace).collect();
        assert_eq!(calls.iter().map(|c| c.name).collect::<Vec<_>>(), ["fdatasync", "openat"]);
        assert_eq!(file(&calls[0]), "/tmp/db/wal-000001.log");
        let injection: Injection = "fsync:error=EIO:when=3+".parse().unwrap();
        assert_eq!((injection.nth, injection.on), (3, true));
        assert_eq!(injection.to_string(), "fsync:error=EIO:when=3+");
    }
}
