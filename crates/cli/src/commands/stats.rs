//! `stats`: prints the tree and the counters, as text or JSON.

use crate::args::DbArgs;
use crate::db_files::db_files;
use crate::draw;
use crate::failure::Result;
use crate::output::{print_json, stdout};
use crate::store::{open_keyspace, open_to_read};
use crate::text::hex;
use cairn::{Database, GuardInfo};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::Write;

const EXAMPLES: &str = "\
Examples:
  cairn stats --db /tmp/d
  cairn stats --db /tmp/d --keyspace default --guards       every guard with its tables
  cairn stats --db /tmp/d --json | jq '.stats.keyspaces[].levels'
  cairn stats --db /tmp/d --prometheus                      metrics, as a program gives them to Prometheus

The tree and the files show the state on disk. The counters start when the database is opened, so here they show the cost
of opening it only (`.stats` in the shell, and statistics in a program, show more).";

/// Arguments of `stats`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct StatsArgs {
    #[command(flatten)]
    db: DbArgs,
    /// Only this keyspace
    #[arg(short, long, value_name = "NAME")]
    keyspace: Option<String>,
    /// List each guard with its tables
    #[arg(long)]
    guards: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Print metrics in the text format of Prometheus
    #[arg(long, conflicts_with_all = ["json", "guards", "keyspace"])]
    prometheus: bool,
}

/// Prints statistics.
pub fn stats(args: StatsArgs) -> Result<()> {
    let db = open_to_read(&args.db)?;
    let mut out = stdout();
    match args.json {
        _ if args.prometheus => out.write_all(db.metrics().as_bytes())?,
        true => print_json(&mut out, &as_json(&db, args.keyspace.as_deref(), args.guards)?)?,
        false => print(&mut out, &db, args.keyspace.as_deref(), args.guards)?,
    }
    out.flush()?;
    Ok(db.close()?)
}

/// Prints all statistics as text.
pub fn print(out: &mut impl Write, db: &Database, only: Option<&str>, list: bool) -> Result<()> {
    let stats = db.stats();
    if let Some(name) = only {
        open_keyspace(db, name, "")?;
    }
    let selected = stats.keyspaces.iter().filter(|k| only.is_none_or(|name| k.name == name));
    for keyspace in selected {
        let handle = db.open_keyspace(&keyspace.name)?;
        let guards = handle.guards();
        draw::keyspace(out, keyspace, &handle.options())?;
        draw::tree(out, &keyspace.levels)?;
        match list {
            true => draw::guard_list(out, &guards)?,
            false => draw::guard_sizes(out, &guards)?,
        }
        writeln!(out)?;
    }
    draw::files(out, &db_files(db.path())?)?;
    writeln!(out)?;
    writeln!(out, "since it was opened:")?;
    draw::counters(out, &stats)?;
    Ok(())
}

/// All statistics as JSON.
pub fn as_json(db: &Database, only: Option<&str>, list: bool) -> Result<Value> {
    let mut stats = db.stats();
    if let Some(name) = only {
        open_keyspace(db, name, "")?;
        stats.keyspaces.retain(|k| k.name == name);
    }
    let files: BTreeMap<_, _> = db_files(db.path())?
        .into_iter()
        .map(|(kind, (bytes, count))| (kind, json!({ "bytes": bytes, "files": count })))
        .collect();
    let mut keyspaces = serde_json::Map::new();
    for keyspace in &stats.keyspaces {
        let handle = db.open_keyspace(&keyspace.name)?;
        let options: BTreeMap<_, _> = handle.options().to_pairs().into_iter().collect();
        let mut entry = json!({ "options": options });
        if list {
            entry["guards"] = handle.guards().iter().map(guard_json).collect();
        }
        keyspaces.insert(keyspace.name.clone(), entry);
    }
    let mut all = json!({ "stats": stats, "keyspaces": keyspaces, "files": files });
    all["stats"]["bytes_written"] = stats.bytes_written().into();
    Ok(all)
}

fn guard_json(guard: &GuardInfo) -> Value {
    let tables: Vec<Value> = guard
        .tables
        .iter()
        .map(|t| {
            json!({
                "number": t.number, "bytes": t.bytes, "entries": t.entries, "tombstones": t.tombstones,
                "smallest_hex": hex(&t.smallest), "largest_hex": hex(&t.largest),
            })
        })
        .collect();
    json!({ "level": guard.level, "key_hex": hex(&guard.key), "tables": tables })
}
