//! `compact`: merges the tables of a keyspace.

use crate::args::{Bounds, CreateArgs, DbArgs, KeyspaceArgs, bytes_of};
use crate::draw;
use crate::failure::Result;
use crate::output::{print_json, stdout};
use crate::store::{Store, open_database};
use crate::text::human_bytes;
use cairn::Keyspace;
use std::ffi::OsString;
use std::io::Write;
use std::time::Instant;

const EXAMPLES: &str = "\
Examples:
  cairn compact --db /tmp/d
  cairn compact --db /tmp/d --from FR/ --to FR0     only the guards that hold these keys
  cairn compact --db /tmp/d --rewrite               in the form that the present options ask for
  cairn compact --db /tmp/d --all                   every keyspace";

/// Arguments of `compact`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct CompactArgs {
    #[command(flatten)]
    db: DbArgs,
    #[command(flatten)]
    keyspace: KeyspaceArgs,
    /// First key (inclusive)
    #[arg(long, value_name = "KEY")]
    from: Option<OsString>,
    /// End key (exclusive)
    #[arg(long, value_name = "KEY")]
    to: Option<OsString>,
    /// All keyspaces, complete
    #[arg(long, conflicts_with_all = ["from", "to", "keyspace"])]
    all: bool,
    /// Write every table again, also those that are in their place already: after `alter`
    #[arg(long, conflicts_with_all = ["from", "to"])]
    rewrite: bool,
    /// Keys are hexadecimal
    #[arg(long)]
    hex: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Runs `compact`.
pub fn compact(args: CompactArgs) -> Result<()> {
    let mut bounds = Bounds::default();
    if let Some(key) = &args.from {
        bounds.from(bytes_of(key, args.hex)?);
    }
    if let Some(key) = &args.to {
        bounds.to(bytes_of(key, args.hex)?);
    }
    let mut out = stdout();
    if args.all {
        let db = open_database(&args.db, &CreateArgs::default(), false)?;
        for name in db.keyspaces() {
            one(&mut out, &db.open_keyspace(&name)?, &bounds, &args)?;
        }
        out.flush()?;
        return Ok(db.close()?);
    }
    let store = Store::open(&args.db, &args.keyspace)?;
    one(&mut out, &store.keyspace, &bounds, &args)?;
    out.flush()?;
    store.close()
}

fn one(out: &mut impl Write, keyspace: &Keyspace, bounds: &Bounds, args: &CompactArgs) -> Result<()> {
    let before = keyspace.stats();
    let started = Instant::now();
    if args.rewrite {
        keyspace.rewrite()?;
    } else if *bounds == Bounds::default() {
        keyspace.compact()?;
    } else if !bounds.is_empty() {
        keyspace.compact_range::<Vec<u8>>((bounds.lower.clone(), bounds.upper.clone()))?;
    }
    let seconds = started.elapsed().as_secs_f64();
    let after = keyspace.stats();
    if args.json {
        let report = serde_json::json!({
            "keyspace": keyspace.name(), "seconds": seconds, "before": before, "after": after,
        });
        return Ok(print_json(out, &report)?);
    }
    writeln!(out, "keyspace {:?} before: {}", keyspace.name(), human_bytes(before.table_bytes))?;
    draw::tree(out, &before.levels)?;
    writeln!(out, "after {seconds:.1} s: {}", human_bytes(after.table_bytes))?;
    Ok(draw::tree(out, &after.levels)?)
}
