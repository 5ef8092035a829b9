//! `keyspaces`, `size`, `rename`, `clone`, `alter` and `drop`: what keyspaces there are, what a range of one takes, changing and removing one.

use crate::args::{BoundsArgs, CreateArgs, DbArgs, KeyspaceArgs};
use crate::failure::{Failure, Result};
use crate::output::{print_json, stdout};
use crate::store::{Store, altered, open_database, open_keyspace, open_to_read};
use crate::text::{counted, escape_short, human_bytes, human_count};
use cairn::{Engine, Keyspace};
use std::io::{self, IsTerminal, Write};
use std::ops::Bound;

const KEYSPACES_EXAMPLES: &str = "\
Examples:
  cairn keyspaces --db /tmp/d
  cairn keyspaces --db /tmp/d --json | jq -r .name";

/// Arguments of `keyspaces`.
#[derive(Debug, clap::Args)]
#[command(after_help = KEYSPACES_EXAMPLES)]
pub struct KeyspacesArgs {
    #[command(flatten)]
    db: DbArgs,
    /// Print one JSON object per keyspace
    #[arg(long)]
    json: bool,
}

/// What a keyspace has, approximately.
struct Contents {
    keys: u64,
    /// `None` without order: its entries share files with those of other keyspaces.
    bytes: Option<u64>,
}

impl Contents {
    fn of(keyspace: &Keyspace) -> Result<Contents> {
        let bytes = match keyspace.options().engine {
            Engine::Tree => Some(keyspace.approximate_bytes::<&[u8]>(..)?),
            Engine::HashLog => None,
        };
        Ok(Contents { keys: keyspace.approximate_len::<&[u8]>(..)?, bytes })
    }
}

/// Lists the keyspaces.
pub fn keyspaces(args: KeyspacesArgs) -> Result<()> {
    let db = open_to_read(&args.db)?;
    let mut names = db.keyspaces();
    names.sort();
    let mut out = stdout();
    if !args.json && !names.is_empty() {
        writeln!(out, "{:>14} {:>10}  {:<8}  name", "keys", "bytes", "engine")?;
    }
    for name in names {
        let keyspace = db.open_keyspace(&name)?;
        let Contents { keys, bytes } = Contents::of(&keyspace)?;
        let engine = keyspace.options().engine;
        if args.json {
            let line = serde_json::json!({
                "name": name, "keys": keys, "bytes": bytes, "engine": engine.to_string(),
            });
            print_json(&mut out, &line)?;
        } else {
            let (keys, bytes) = (human_count(keys), bytes.map_or_else(|| "-".to_owned(), human_bytes));
            writeln!(out, "{keys:>14} {bytes:>10}  {engine:<8}  {}", escape_short(name.as_bytes(), 200))?;
        }
    }
    out.flush()?;
    Ok(db.close()?)
}

const SIZE_EXAMPLES: &str = "\
Examples:
  cairn size --db /tmp/d
  cairn size --db /tmp/d --prefix FR/
  cairn size --db /tmp/d -k readings --from 2026-01 --to 2026-02 --json

Keys and bytes are estimates: nothing but indexes is read. `cairn scan --count` counts.";

/// Arguments of `size`.
#[derive(Debug, clap::Args)]
#[command(after_help = SIZE_EXAMPLES)]
pub struct SizeArgs {
    #[command(flatten)]
    db: DbArgs,
    #[command(flatten)]
    keyspace: KeyspaceArgs,
    #[command(flatten)]
    bounds: BoundsArgs,
    /// Keys are hexadecimal
    #[arg(long)]
    hex: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Prints how many keys a range has, and what they take.
pub fn size(args: SizeArgs) -> Result<()> {
    if args.bounds.limit.is_some() || args.bounds.reverse {
        return Err(Failure::usage("size takes --from, --to and --prefix only"));
    }
    let bounds = args.bounds.bounds(args.hex)?;
    let store = Store::open_to_read(&args.db, &args.keyspace)?;
    let (keys, bytes) = match bounds.is_empty() {
        true => (0, 0),
        false => approximate_size(&store.keyspace, (bounds.lower, bounds.upper))?,
    };
    let mut out = stdout();
    match args.json {
        true => print_json(&mut out, &serde_json::json!({ "keys": keys, "bytes": bytes }))?,
        false => writeln!(out, "{}", in_words(keys, bytes))?,
    }
    out.flush()?;
    store.close()
}

/// Two ends of a range of keys.
type Ends = (Bound<Vec<u8>>, Bound<Vec<u8>>);

fn approximate_size(keyspace: &Keyspace, ends: Ends) -> Result<(u64, u64)> {
    Ok((keyspace.approximate_len(ends.clone())?, keyspace.approximate_bytes(ends)?))
}

fn in_words(keys: u64, bytes: u64) -> String {
    format!("about {}, {}", counted(keys, "key"), human_bytes(bytes))
}

/// A line about the size of a range of a keyspace.
pub fn size_in_words(keyspace: &Keyspace, ends: Ends) -> Result<String> {
    let (keys, bytes) = approximate_size(keyspace, ends)?;
    Ok(in_words(keys, bytes))
}

const RENAME_EXAMPLES: &str = "\
Examples:
  cairn rename --db /tmp/d users people";

/// Arguments of `rename`.
#[derive(Debug, clap::Args)]
#[command(after_help = RENAME_EXAMPLES)]
pub struct RenameArgs {
    #[command(flatten)]
    db: DbArgs,
    /// The keyspace
    old: String,
    /// Its new name
    new: String,
}

/// Renames a keyspace.
pub fn rename(args: RenameArgs) -> Result<()> {
    let db = open_database(&args.db, &CreateArgs::default(), false)?;
    open_keyspace(&db, &args.old, "")?;
    db.rename_keyspace(&args.old, &args.new)?;
    Ok(db.close()?)
}

const CLONE_EXAMPLES: &str = "\
Examples:
  cairn clone --db /tmp/d accounts trial     nothing is copied: the two have their tables in common";

/// Arguments of `clone`.
#[derive(Debug, clap::Args)]
#[command(after_help = CLONE_EXAMPLES)]
pub struct CloneArgs {
    #[command(flatten)]
    db: DbArgs,
    /// The keyspace
    name: String,
    /// The name of the new one
    new: String,
}

/// Clones a keyspace.
pub fn clone_keyspace(args: CloneArgs) -> Result<()> {
    let db = open_database(&args.db, &CreateArgs::default(), false)?;
    open_keyspace(&db, &args.name, "")?;
    db.clone_keyspace(&args.name, &args.new)?;
    Ok(db.close()?)
}

const ALTER_EXAMPLES: &str = "\
Examples:
  cairn alter --db /tmp/d events --set compression=zstd --set ttl=30d
  cairn compact --db /tmp/d -k events --rewrite     what is there already, too

`cairn options` lists the options, and from when a change of each holds.";

/// Arguments of `alter`.
#[derive(Debug, clap::Args)]
#[command(after_help = ALTER_EXAMPLES)]
pub struct AlterArgs {
    #[command(flatten)]
    db: DbArgs,
    /// The keyspace
    name: String,
    /// Change an option (repeatable); the others stay
    #[arg(long, value_name = "NAME=VALUE", required = true)]
    set: Vec<String>,
}

/// Changes options of a keyspace.
pub fn alter(args: AlterArgs) -> Result<()> {
    let db = open_database(&args.db, &CreateArgs::default(), false)?;
    let keyspace = open_keyspace(&db, &args.name, "")?;
    let options = altered(keyspace.options(), &args.set)?;
    keyspace.alter(|_| options.clone())?;
    drop(keyspace);
    Ok(db.close()?)
}

const DROP_EXAMPLES: &str = "\
Examples:
  cairn drop --db /tmp/d old            asks, on a terminal
  cairn drop --db /tmp/d old --yes";

/// Arguments of `drop`.
#[derive(Debug, clap::Args)]
#[command(after_help = DROP_EXAMPLES)]
pub struct DropArgs {
    #[command(flatten)]
    db: DbArgs,
    /// The keyspace
    name: String,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
}

/// Drops a keyspace with all its data.
pub fn drop_keyspace(args: DropArgs) -> Result<()> {
    let db = open_database(&args.db, &CreateArgs::default(), false)?;
    let keyspace = open_keyspace(&db, &args.name, "")?;
    if !args.yes {
        let keys = Contents::of(&keyspace)?.keys;
        let what = format!("keyspace {:?}: about {}", args.name, counted(keys, "key"));
        if !io::stdin().is_terminal() {
            return Err(Failure::usage(format!("{what}; --yes drops it without asking")));
        }
        eprint!("{what}. Drop it? [y/N] ");
        let mut answer = String::new();
        io::stdin().read_line(&mut answer)?;
        if !["y", "yes"].contains(&answer.trim().to_lowercase().as_str()) {
            return Err(Failure::usage("nothing was dropped"));
        }
    }
    drop(keyspace);
    db.drop_keyspace(&args.name)?;
    Ok(db.close()?)
}
