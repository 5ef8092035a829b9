//! `delete-range`: deletes all keys in a range, as one write.

use crate::args::{BoundsArgs, CreateArgs, DbArgs, FormArgs, KeyspaceArgs, TypeArgs};
use crate::failure::{Failure, Result};
use crate::output::{print_json, stdout};
use crate::store::{Create, Store};
use crate::types::KeyType;
use std::ffi::OsString;
use std::ops::Bound;

const EXAMPLES: &str = "\
Examples:
  cairn delete-range --db /tmp/d --prefix fruit/
  cairn delete-range --db /tmp/d --from 2024-01 --to 2024-02    all keys of January; those of February stay
  cairn delete-range --db /tmp/d --to 2024-01 --durability sync
  cairn delete-range --db /tmp/d --all

It takes as long as deleting one key, however many keys are in the range, and does not count them.";

/// Arguments of `delete-range`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
#[command(group(clap::ArgGroup::new("range").required(true).multiple(true).args(["from", "to", "prefix", "all"])))]
pub struct DeleteRangeArgs {
    #[command(flatten)]
    db: DbArgs,
    #[command(flatten)]
    keyspace: KeyspaceArgs,
    #[command(flatten)]
    form: FormArgs,
    /// Type of the keys: see `cairn put --help`
    #[arg(long, value_name = "TYPES", conflicts_with = "hex")]
    key_type: Option<KeyType>,
    /// What the acknowledged deletion survives: buffered, os or sync
    #[arg(long, value_name = "D")]
    durability: Option<cairn::Durability>,
    /// First key (inclusive)
    #[arg(long, value_name = "KEY", allow_hyphen_values = true)]
    from: Option<OsString>,
    /// End key (exclusive)
    #[arg(long, value_name = "KEY", allow_hyphen_values = true)]
    to: Option<OsString>,
    /// Only keys with this prefix
    #[arg(long, value_name = "PREFIX", allow_hyphen_values = true)]
    prefix: Option<OsString>,
    /// All keys of the keyspace
    #[arg(long, conflicts_with_all = ["from", "to", "prefix"])]
    all: bool,
}

/// Deletes a range of keys.
pub fn delete_range(args: DeleteRangeArgs) -> Result<()> {
    let DeleteRangeArgs { from, to, prefix, key_type, .. } = args;
    let types = TypeArgs { key_type, value_type: None };
    // Also where the least key of a type has bytes, as the empty string has.
    let from_empty = from.as_ref().is_some_and(|from| from.is_empty());
    let bounds =
        BoundsArgs { from, to, prefix, ..BoundsArgs::default() }.typed_bounds(&types, args.form.hex)?;
    if bounds.is_empty() && !args.all {
        return Err(Failure::usage("the range is empty: it ends before it begins"));
    }
    let from_the_first = match &bounds.lower {
        Bound::Included(key) => from_empty || key.is_empty(),
        Bound::Excluded(_) => false,
        Bound::Unbounded => true,
    };
    if from_the_first && bounds.upper == Bound::Unbounded && !args.all {
        return Err(Failure::usage("the range includes all keys of the keyspace: use --all to delete them"));
    }
    let create = CreateArgs { durability: args.durability, ..CreateArgs::default() };
    let store = Store::open_with(&args.db, &args.keyspace, &create, Create::NOTHING)?;
    store.keyspace.delete_range::<Vec<u8>>((bounds.lower, bounds.upper))?;
    store.close()?;
    if args.form.json {
        print_json(&mut stdout(), &serde_json::json!({ "deleted_range": true }))?;
    }
    Ok(())
}
