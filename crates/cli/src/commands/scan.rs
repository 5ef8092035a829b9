//! `scan`: prints keys and values in order.

use crate::args::{BoundsArgs, DbArgs, FormArgs, KeyspaceArgs, TypeArgs};
use crate::failure::Result;
use crate::output::{Form, Parts, Printer, print_json, stdout};
use crate::store::{Store, entries, entries_at};
use crate::times::parse_time;
use cairn::Time;
use std::io::Write;

const EXAMPLES: &str = "\
Examples:
  cairn scan --db /tmp/d --prefix FR/ --limit 5
  cairn scan --db /tmp/d --from b --to d --reverse    from the last key before d down to b
  cairn scan --db /tmp/d --parts key | head -3
  cairn scan --db /tmp/d --count --prefix FR/
  cairn scan --db /tmp/d --json | jq .key
  cairn scan --db /tmp/d -k prices --at -2h           as it was two hours ago, in a keyspace with history
  cairn scan --db /tmp/d --key-type string,i64 --type any --prefix roof   typed keys and values

A record is a line: key, tab, value. Tabs, line ends, backslashes, control characters and bytes that are not UTF-8
are escaped as \\t \\n \\r \\\\ \\xHH.";

/// Arguments of `scan`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct ScanArgs {
    #[command(flatten)]
    db: DbArgs,
    #[command(flatten)]
    keyspace: KeyspaceArgs,
    #[command(flatten)]
    bounds: BoundsArgs,
    #[command(flatten)]
    form: FormArgs,
    #[command(flatten)]
    types: TypeArgs,
    /// The records as of this time, in a keyspace with history
    #[arg(long, value_name = "TIME", value_parser = parse_time, allow_hyphen_values = true)]
    at: Option<Time>,
    /// What to print of each record
    #[arg(long, value_name = "PARTS", value_enum, default_value = "both")]
    parts: PartsArg,
    /// Print the number of records instead of the records
    #[arg(long)]
    count: bool,
}

/// What is printed of each record.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum PartsArg {
    /// Key and value
    Both,
    /// Only keys
    Key,
    /// Only values
    Value,
}

/// Prints records in order.
pub fn scan(args: ScanArgs) -> Result<()> {
    let bounds = args.bounds.typed_bounds(&args.types, args.form.hex)?;
    let store = Store::open_to_read(&args.db, &args.keyspace)?;
    let parts = match args.parts {
        PartsArg::Both => Parts::Both,
        PartsArg::Key => Parts::Key,
        PartsArg::Value => Parts::Value,
    };
    let mut printer = Printer::new(Form::from(args.form), parts).with_types(args.types);
    let mut out = stdout();
    let mut count = 0u64;
    let entries = match args.at {
        None => entries(&store.keyspace, &bounds),
        Some(time) => entries_at(&store.keyspace, time, &bounds)?,
    };
    for entry in entries {
        let (key, value) = entry?;
        count += 1;
        if !args.count {
            printer.print(&mut out, &key, &value)?;
        }
    }
    match (args.count, args.form.json) {
        (true, true) => print_json(&mut out, &serde_json::json!({ "count": count }))?,
        (true, false) => writeln!(out, "{count}")?,
        (false, _) => {}
    }
    out.flush()?;
    store.close()
}
