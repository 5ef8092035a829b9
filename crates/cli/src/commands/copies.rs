//! `checkpoint`, `backup`, `backups` and `restore`: copies of a database.

use crate::args::DbArgs;
use crate::failure::{Failure, Result};
use crate::output::{print_json, stdout};
use crate::progress::Progress;
use crate::store::open_to_read;
use crate::text::{counted, human_bytes, parse_size};
use crate::times::format_time;
use cairn::{BackupGeneration, BackupOptions, Backups, CheckpointReport, CopyProgress};
use serde_json::{Value, json};
use std::io::Write;
use std::path::{Path, PathBuf};

const CHECKPOINT_EXAMPLES: &str = "\
Examples:
  cairn checkpoint --db /tmp/d /tmp/monday
  cairn get --db /tmp/monday fruit/apple

The checkpoint is a database of its own, which shares the files that neither changes, by hard links. DIR must be empty or must not exist.
On another file system the files are copied. Another process may write to the database meanwhile: the checkpoint has what that has handed
to the operating system.";

/// Arguments of `checkpoint`.
#[derive(Debug, clap::Args)]
#[command(after_help = CHECKPOINT_EXAMPLES)]
pub struct CheckpointArgs {
    #[command(flatten)]
    db: DbArgs,
    /// Directory of the checkpoint
    #[arg(value_name = "DIR")]
    to: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Shows the progress of a copy.
struct Copying(Progress);

impl Copying {
    fn new() -> Copying {
        Copying(Progress::bytes(Some(0)))
    }

    fn at(&self, at: &CopyProgress) {
        self.0.total(at.bytes_total);
        self.0.at(at.bytes_done, || at.file.clone());
    }
}

/// Makes a checkpoint.
pub fn checkpoint(args: CheckpointArgs) -> Result<()> {
    let db = open_to_read(&args.db)?;
    let report = {
        let copying = Copying::new();
        db.checkpoint_with(&args.to, &mut |at| copying.at(at))?
    };
    let mut out = stdout();
    match args.json {
        true => print_json(&mut out, &json!(report))?,
        false => writeln!(out, "{}", checkpoint_in_words(&args.to, &report))?,
    }
    out.flush()?;
    Ok(db.close()?)
}

/// A line about a checkpoint.
pub fn checkpoint_in_words(to: &Path, report: &CheckpointReport) -> String {
    let copied = match report.copied_bytes {
        0 => String::new(),
        bytes => format!(", {} of them copied", human_bytes(bytes)),
    };
    let files = counted(report.files as u64, "file");
    format!("{}: {files}, {}{copied}", to.display(), human_bytes(report.bytes))
}

const BACKUP_EXAMPLES: &str = "\
Examples:
  cairn backup --db /tmp/d /backups/d
  cairn backup --db /tmp/d /backups/d --keep 7 --rate 50MiB
  cairn backups /backups/d --verify
  cairn restore /backups/d /tmp/restored

Each call makes a generation, which shares with the earlier ones in BACKUP what has not changed. BACKUP is created if it is empty or does
not exist. New files are verified before they are copied: the exit code is 3 if one is damaged, and there is no new generation then. Another
process may write to the database meanwhile: the generation has what that has handed to the operating system.";

/// Arguments of `backup`.
#[derive(Debug, clap::Args)]
#[command(after_help = BACKUP_EXAMPLES)]
pub struct BackupArgs {
    #[command(flatten)]
    db: DbArgs,
    /// Directory of the backups
    #[arg(value_name = "BACKUP")]
    to: PathBuf,
    /// Keep only so many of the newest generations, this one included
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    keep: Option<u32>,
    /// Read at most so many bytes in a second; new files are read twice; 0 is no limit
    #[arg(long, value_name = "SIZE", default_value = "0", value_parser = parse_size)]
    rate: u64,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Makes a backup.
pub fn backup(args: BackupArgs) -> Result<()> {
    let db = open_to_read(&args.db)?;
    let generation = {
        let copying = Copying::new();
        let options = BackupOptions::default().keep(args.keep.map(|keep| keep as usize)).rate(args.rate);
        db.backup_with(&args.to, &options, &mut |at| copying.at(at))?
    };
    let mut out = stdout();
    match args.json {
        true => print_json(&mut out, &as_json(&generation))?,
        false => writeln!(out, "{}: {}", args.to.display(), in_words(&generation))?,
    }
    out.flush()?;
    Ok(db.close()?)
}

const BACKUPS_EXAMPLES: &str = "\
Examples:
  cairn backups /backups/d
  cairn backups /backups/d --verify
  cairn backups /backups/d --keep 7
  cairn backups /backups/d --json | jq .number

--verify reads everything and compares it with its checksums. The exit code is 3 if anything is damaged.";

/// Arguments of `backups`.
#[derive(Debug, clap::Args)]
#[command(after_help = BACKUPS_EXAMPLES)]
pub struct BackupsArgs {
    /// Directory of the backups
    #[arg(value_name = "BACKUP")]
    dir: PathBuf,
    /// Read and verify everything
    #[arg(long)]
    verify: bool,
    /// First remove all generations but so many of the newest
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    keep: Option<u32>,
    /// Print one JSON object per generation, and per problem
    #[arg(long)]
    json: bool,
}

/// Lists, verifies and removes generations.
pub fn backups(args: BackupsArgs) -> Result<()> {
    let backups = Backups::open(&args.dir)?;
    if let Some(keep) = args.keep {
        for number in backups.keep_newest(keep as usize)? {
            eprintln!("cairn: note: removed generation {number}");
        }
    }
    let mut out = stdout();
    for generation in backups.generations()? {
        match args.json {
            true => print_json(&mut out, &as_json(&generation))?,
            false => writeln!(out, "{}", in_words(&generation))?,
        }
    }
    out.flush()?;
    if !args.verify {
        return Ok(());
    }
    let problems = {
        let copying = Copying::new();
        backups.verify(&mut |at| copying.at(at))?
    };
    // Damage determines the exit code, even if the output could not be written.
    let mut print = || -> Result<()> {
        for problem in &problems {
            match args.json {
                true => print_json(&mut out, &json!(problem))?,
                false => {
                    let numbers: Vec<String> = problem.generations.iter().map(u64::to_string).collect();
                    writeln!(out, "{} (generations {}): {}", problem.file, numbers.join(", "), problem.what)?;
                }
            }
        }
        if problems.is_empty() && !args.json {
            writeln!(out, "no problems found")?;
        }
        Ok(out.flush()?)
    };
    let printed = print();
    match problems.len() {
        0 => printed,
        n => Err(Failure::damage(format!("{}: {} damaged", args.dir.display(), counted(n as u64, "file")))),
    }
}

const RESTORE_EXAMPLES: &str = "\
Examples:
  cairn restore /backups/d /tmp/restored
  cairn restore /backups/d /tmp/restored --generation 12

DIR must be empty or must not exist. Every file is compared with its checksum: the exit code is 3 if one is damaged, and there is no database
in DIR then.";

/// Arguments of `restore`.
#[derive(Debug, clap::Args)]
#[command(after_help = RESTORE_EXAMPLES)]
pub struct RestoreArgs {
    /// Directory of the backups
    #[arg(value_name = "BACKUP")]
    from: PathBuf,
    /// Directory of the new database
    #[arg(value_name = "DIR")]
    to: PathBuf,
    /// Which generation; the newest if this is left out
    #[arg(short, long, value_name = "N")]
    generation: Option<u64>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Makes a database from a generation of a backup.
pub fn restore(args: RestoreArgs) -> Result<()> {
    let backups = Backups::open(&args.from)?;
    let generation = {
        let copying = Copying::new();
        backups.restore(args.generation, &args.to, &mut |at| copying.at(at))?
    };
    let mut out = stdout();
    match args.json {
        true => print_json(&mut out, &as_json(&generation))?,
        false => writeln!(out, "{}: {}", args.to.display(), in_words(&generation))?,
    }
    Ok(out.flush()?)
}

/// A line about a generation.
pub fn in_words(generation: &BackupGeneration) -> String {
    format!(
        "generation {} of {}, {}: {}, {}, {} of them new",
        generation.number,
        format_time(generation.time),
        generation.source.display(),
        counted(generation.files as u64, "file"),
        human_bytes(generation.bytes),
        human_bytes(generation.new_bytes)
    )
}

fn as_json(generation: &BackupGeneration) -> Value {
    json!({
        "number": generation.number,
        "time": format_time(generation.time),
        "seq": generation.seq,
        "source": generation.source.to_string_lossy(),
        "files": generation.files,
        "bytes": generation.bytes,
        "new_bytes": generation.new_bytes,
    })
}
