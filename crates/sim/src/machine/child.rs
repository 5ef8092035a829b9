//! The child under `strace`: runs a [`script`](super::script) while system calls fail, and checks all answers.
//!
//! It reports on standard output how each step ended ([`Report`]), prints findings, and fails if there are any.

use super::script::{Ending, Mismatch, State, Step, compare, keyspace_options, options, steps};
use crate::finding::{Finding, Outcome, ensure};
use cairn::{Database, Durability, Error, ErrorKind};
use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// The arguments that the parent passes to the child.
#[derive(Args)]
pub struct ScriptArgs {
    /// Directory of the database.
    #[arg(long)]
    pub dir: PathBuf,
    /// Seed of the steps.
    #[arg(long)]
    pub seed: u64,
    /// Number of steps.
    #[arg(long)]
    pub steps: usize,
    /// Background threads.
    #[arg(long, default_value_t = 0)]
    pub threads: usize,
    /// The expected effect of a failure.
    #[arg(long)]
    pub expect: Expect,
}

/// The expected effect of the first failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Expect {
    /// Writes are disabled: a sync failed.
    ReadOnly,
    /// A failed step leaves no trace. Writes continue, or are disabled for good.
    Passing,
}

/// Number of failures after which the child stops: the parent tries all subsets of the failed steps.
const MAX_FAILURES: usize = 6;

/// How many times a failed read is tried.
const READ_ATTEMPTS: usize = 3;

/// The report of a child.
#[derive(Debug, Default)]
pub struct Report {
    /// How each step ended.
    pub endings: Vec<Ending>,
    /// The errors in order: of steps, of reads, of closing.
    pub errors: Vec<String>,
}

impl Report {
    fn print(&self) {
        let letter = |ending: &Ending| match ending {
            Ending::Done => 'd',
            Ending::Failed => 'f',
            Ending::NotTried => 'n',
        };
        println!("endings {}", self.endings.iter().map(letter).collect::<String>());
        self.errors.iter().for_each(|e| println!("error {e}"));
    }

    /// Parses the output of a child.
    pub fn parse(text: &str) -> Outcome<Report> {
        let mut report = Report::default();
        let mut whole = false;
        for line in text.lines() {
            if let Some(letters) = line.strip_prefix("endings ") {
                whole = true;
                report.endings.extend(letters.chars().map(|c| match c {
                    'd' => Ending::Done,
                    'f' => Ending::Failed,
                    _ => Ending::NotTried,
                }));
            }
            report.errors.extend(line.strip_prefix("error ").map(str::to_owned));
        }
        ensure!(whole, "the child did not report: {text:?}");
        Ok(report)
    }
}

struct Child {
    args: ScriptArgs,
    report: Report,
    /// The acknowledged state. Failed writes must be invisible.
    state: State,
}

/// Runs the script.
pub fn run_script(args: ScriptArgs) -> Outcome {
    let steps = steps(args.seed, args.steps);
    let mut child = Child { args, report: Report::default(), state: State::new() };
    let outcome = child.run(&steps);
    child.report.print();
    outcome
}

impl Child {
    fn run(&mut self, steps: &[Step]) -> Outcome {
        let mut db = match self.open()? {
            Some(db) => db,
            None => return Ok(()),
        };
        for (i, step) in steps.iter().enumerate() {
            let place = |f: Finding| f.context(format_args!("step {i}, {}", name(step)));
            if !step.fits(&self.state) {
                self.report.endings.push(Ending::NotTried);
                continue;
            }
            if *step == Step::Reopen {
                self.report.endings.push(Ending::NotTried);
                if let Err(e) = db.close() {
                    self.note("closing", &e)?;
                    return Ok(());
                }
                match self.open()? {
                    Some(opened) => db = opened,
                    None => return Ok(()),
                }
                self.look(&db).map_err(place)?;
                continue;
            }
            let Err(error) = step.run(&db) else {
                step.apply(&mut self.state);
                self.report.endings.push(Ending::Done);
                continue;
            };
            self.report.endings.push(Ending::Failed);
            self.note("a step", &error).map_err(place)?;
            self.look(&db).map_err(place)?;
            let stopped = error.kind() == ErrorKind::ReadOnly;
            ensure!(
                stopped || self.args.expect == Expect::Passing,
                "P4: step {i}, {}: a sync failed, and the error is {error:?}",
                name(step)
            );
            if stopped {
                self.check_read_only(&db).map_err(place)?;
                break;
            }
            if self.report.errors.len() >= MAX_FAILURES {
                break;
            }
        }
        if let Err(e) = db.close() {
            self.note("closing", &e)?;
        }
        Ok(())
    }

    fn open(&mut self) -> Outcome<Option<Database>> {
        match Database::open_with(&self.args.dir, options(self.args.threads)) {
            Ok(db) => Ok(Some(db)),
            Err(error) => {
                self.note("opening", &error)?;
                Ok(None)
            }
        }
    }

    /// Records an error, which must name its file.
    fn note(&mut self, what: &str, error: &Error) -> Outcome {
        self.report.errors.push(format!("{what}: {error:?}").replace('\n', " "));
        let dir = self.args.dir.to_string_lossy();
        ensure!(error.to_string().contains(&*dir), "{what}: the error names no file: {error:?}");
        Ok(())
    }

    /// All reads must be right. A read that failed by injection is repeated.
    fn look(&mut self, db: &Database) -> Outcome {
        for _ in 0..READ_ATTEMPTS {
            match compare(db, &self.state) {
                Ok(()) => return Ok(()),
                Err(Mismatch::Wrong(finding)) => return Err(finding.context("P3")),
                Err(Mismatch::Unreadable(error)) => self.note("reading", &error)?,
            }
        }
        Err(Finding::new(format!("P5: reads do not go on: {:?}", self.report.errors)))
    }

    /// After a failed sync, writes must fail and reads must work.
    fn check_read_only(&mut self, db: &Database) -> Outcome {
        let refused = |what: &str, result: cairn::Result<()>| match result {
            Err(e) if e.kind() == ErrorKind::ReadOnly => Ok(()),
            Err(e) => Err(Finding::new(format!("P4: {what} after a failed sync: {e:?}"))),
            Ok(()) => Err(Finding::new(format!("P4: {what} succeeds after a failed sync"))),
        };
        for (name, _) in self.state.iter().take(1) {
            let keyspace = db.open_keyspace(name)?;
            for durability in [Durability::Sync, Durability::Os, Durability::Buffered] {
                refused("a put", keyspace.put_with("never", "there", durability))?;
            }
            refused("a delete", keyspace.delete("k00"))?;
            refused("a flush", keyspace.flush())?;
            refused("dropping a keyspace", db.drop_keyspace(name))?;
        }
        refused("a sync", db.sync())?;
        refused("creating a keyspace", db.create_keyspace("never", keyspace_options("never")).map(drop))?;
        self.look(db)
    }
}

fn name(step: &Step) -> &'static str {
    match step {
        Step::Write(..) => "a write",
        Step::Create(_) => "creating a keyspace",
        Step::Drop(_) => "dropping a keyspace",
        Step::Flush => "a flush",
        Step::Compact => "a compaction",
        Step::Sync => "a sync",
        Step::Reopen => "reopening",
    }
}
