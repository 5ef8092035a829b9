//! `salvage`: copies the readable content of a damaged database into a new one.

use crate::failure::{Failure, Result};
use crate::output::{print_json, stdout};
use crate::text::hex;
use serde_json::{Value, json};
use std::io::Write;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  cairn salvage /tmp/damaged /tmp/new
  cairn salvage /tmp/damaged /tmp/new --json | jq .losses

SRC is not changed and must not be open. DST must be empty or must not exist. Damaged parts are skipped; the report says where,
which keys may be missing, and whether older versions of them may have come back. The exit code is 3 if data is lost. Do not
use DST before it has ended.";

/// Arguments of `salvage`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct SalvageArgs {
    /// Directory of the damaged database
    #[arg(value_name = "SRC")]
    from: PathBuf,
    /// Directory of the new database
    #[arg(value_name = "DST")]
    to: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Salvages a database.
pub fn salvage(args: SalvageArgs) -> Result<()> {
    let report = cairn::salvage(&args.from, &args.to)?;
    // Losses determine the exit code, even if the output could not be written.
    let printed = print_report(&report, args.json);
    match report.losses.len() {
        0 => printed,
        1 => Err(Failure::damage(format!("{}: 1 part of it is lost", args.from.display()))),
        n => Err(Failure::damage(format!("{}: {n} parts of it are lost", args.from.display()))),
    }
}

fn print_report(report: &cairn::SalvageReport, json: bool) -> Result<()> {
    let mut out = stdout();
    match json {
        true => print_json(&mut out, &as_json(report))?,
        false => write!(out, "{report}")?,
    }
    Ok(out.flush()?)
}

fn as_json(report: &cairn::SalvageReport) -> Value {
    let files: Vec<Value> = (report.files.iter())
        .map(|f| json!({ "file": f.name, "bytes": f.bytes, "read": f.read, "outcome": f.outcome }))
        .collect();
    let keyspaces: Vec<Value> = (report.keyspaces.iter())
        .map(|k| json!({ "name": k.name, "entries": k.entries, "bytes": k.bytes }))
        .collect();
    let key = |key: &Option<Vec<u8>>| key.as_ref().map(|key| hex(key));
    let losses: Vec<Value> = (report.losses.iter())
        .map(|l| {
            json!({
                "file": l.file, "offset": l.offset, "bytes": l.bytes, "keyspace": l.keyspace,
                "from_hex": key(&l.from), "to_hex": key(&l.to),
                "older_versions": l.older, "what": l.what,
            })
        })
        .collect();
    json!({
        "complete": report.is_complete(), "files": files, "keyspaces": keyspaces,
        "losses": losses, "notes": report.notes,
    })
}
