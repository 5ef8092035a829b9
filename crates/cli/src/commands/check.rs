//! `check`: verifies a database offline, without writing to it.

use crate::args::DirArgs;
use crate::failure::{Failure, Result};
use crate::output::{print_json, stdout};
use crate::progress::Progress;
use crate::text::{human_bytes, human_count};
use cairn::{Database, ErrorKind};
use std::io::Write;
use std::path::Path;

const EXAMPLES: &str = "\
Examples:
  cairn check /tmp/d
  cairn check --db /tmp/d --json | jq .problems

It reads every byte of the database, verifies every checksum and invariant, and names the files and offsets of
damage. The exit code is 3 if there is any. Of a database that is open in another process it verifies the tables, values and indexes of the
present moment, and reads its log.";

/// Arguments of `check`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct CheckArgs {
    #[command(flatten)]
    dir: DirArgs,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Verifies a database.
pub fn check(args: CheckArgs) -> Result<()> {
    let dir = args.dir.path()?;
    let report = {
        let progress = Progress::bytes(Some(0));
        let mut at = |at: &cairn::CheckProgress| {
            progress.total(at.bytes_total);
            progress.at(at.bytes_done, || at.file.clone());
        };
        match cairn::check(dir, &mut at) {
            Err(e) if e.kind() == ErrorKind::Locked => check_moment(dir, &mut at)?,
            report => report?,
        }
    };
    // Damage determines the exit code, even if the output could not be written.
    let printed = print_report(&report, args.json);
    verdict(dir, &report)?;
    printed
}

/// Verifies the present moment of a database that another process has open.
fn check_moment(dir: &Path, progress: &mut dyn FnMut(&cairn::CheckProgress)) -> Result<cairn::CheckReport> {
    let db = Database::builder().without_merge_operators().open_read_only(dir)?;
    let mut report = db.check(progress)?;
    report.notes.push("the database is open in another process: this is a moment of it".to_owned());
    Ok(report)
}

/// Prints the report.
pub fn print_report(report: &cairn::CheckReport, json: bool) -> Result<()> {
    let mut out = stdout();
    if json {
        print_json(&mut out, &serde_json::json!(report))?;
    } else {
        for problem in &report.problems {
            match problem.offset {
                Some(offset) => writeln!(out, "{}, offset {offset}: {}", problem.file, problem.what)?,
                None => writeln!(out, "{}: {}", problem.file, problem.what)?,
            }
        }
        for note in &report.notes {
            writeln!(out, "note: {note}")?;
        }
        writeln!(
            out,
            "checked {} in {} keyspaces: {} tables with {} entries, {} log records",
            human_bytes(report.bytes),
            report.keyspaces,
            human_count(report.tables),
            human_count(report.entries),
            human_count(report.log_records)
        )?;
        if report.problems.is_empty() {
            writeln!(out, "no problems found")?;
        }
    }
    Ok(out.flush()?)
}

/// Fails if there is damage, or something that this program cannot read.
pub fn verdict(path: &Path, report: &cairn::CheckReport) -> Result<()> {
    let places = |n: usize| if n == 1 { "1 place".to_owned() } else { format!("{n} places") };
    let unsupported = report.problems.iter().filter(|problem| problem.unsupported).count();
    match report.problems.len() - unsupported {
        0 if unsupported == 0 => Ok(()),
        0 => Err(Failure::damage(format!(
            "{} cannot be checked in {}: these need another program",
            path.display(),
            places(unsupported)
        ))),
        damaged => Err(Failure::damage(format!("{} is damaged in {}", path.display(), places(damaged)))),
    }
}
