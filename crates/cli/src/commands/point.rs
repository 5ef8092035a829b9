//! `put`, `get` and `delete`: operations on single keys.

use super::condition::{Condition, first_unmet};
use crate::args::{CreateArgs, DbArgs, FormArgs, KeyspaceArgs, NewKeyspaceArgs, TypeArgs};
use crate::failure::{Failure, Result};
use crate::format::lines::{self, Lines};
use crate::output::{Form, Parts, Printer, json_field, print_json, stdout};
use crate::store::{Create, NewKeyspace, Store};
use crate::text::{escape_short, unescape, unhex};
use crate::times::{format_expiry, parse_time, parse_ttl};
use crate::types::{KeyType, ValueType};
use cairn::Time;
use cairn::limits::MAX_KEY_LEN;
use cairn::typed::{EncodeValue, check_operand, check_value};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

const PUT_EXAMPLES: &str = "\
Examples:
  cairn put --db /tmp/d fruit/apple red
  cairn put --db /tmp/d fruit/apple green fruit/pear yellow   several in one batch: all or none
  cairn put --db /tmp/d photo - < photo.jpg                   the value is standard input, byte for byte
  cairn put --db /tmp/d --hex 00ff 0102                       key and value in hexadecimal
  cairn put --db /tmp/d -k users --create 17 Ada              create the keyspace `users`
  cairn put --db /tmp/d --durability sync k v                 on disk before the command ends
  cairn put --db /tmp/d -k prices --at -2h tea 3              as of two hours ago, in a keyspace with history
  cairn put --db /tmp/d -k sessions --ttl 30min alice token   for half an hour
  cairn put --db /tmp/d --if-absent lock/printer alice        exit code 1 if it has a value
  cairn put --db /tmp/d --if-value alice lock/printer bob     exit code 1 if its value is another one
  cairn put --db /tmp/d --key-type string,i64 --type double roof,-5 21.5   typed: see `cairn::typed`
  cairn put --db /tmp/d -- -5 minus                           after -- nothing is an option";

/// Arguments of `put`.
#[derive(Debug, clap::Args)]
#[command(after_help = PUT_EXAMPLES)]
pub struct PutArgs {
    #[command(flatten)]
    db: DbArgs,
    #[command(flatten)]
    keyspace: KeyspaceArgs,
    #[command(flatten)]
    new_keyspace: NewKeyspaceArgs,
    #[command(flatten)]
    create: CreateArgs,
    #[command(flatten)]
    form: FormArgs,
    #[command(flatten)]
    types: TypeArgs,
    /// Put as of this time, which may lie in the past, in a keyspace with history
    #[arg(long, value_name = "TIME", value_parser = parse_time, allow_hyphen_values = true)]
    at: Option<Time>,
    /// How long the entries live, such as 7d, 12h, 30min, 10s or 500ms [default: the option ttl of the keyspace]
    #[arg(long, value_name = "DURATION", value_parser = parse_ttl, conflicts_with = "at")]
    ttl: Option<Duration>,
    /// Until when the entries live
    #[arg(long, value_name = "TIME", value_parser = parse_time, allow_hyphen_values = true, conflicts_with_all = ["at", "ttl"])]
    until: Option<Time>,
    /// If one of the keys has a value, put nothing and end with exit code 1
    #[arg(long, conflicts_with = "at")]
    if_absent: bool,
    /// Unless each of the keys has this value, put nothing and end with exit code 1
    #[arg(long, value_name = "VALUE", allow_hyphen_values = true, conflicts_with_all = ["at", "if_absent"])]
    if_value: Option<OsString>,
    /// Pairs of key and value. A value of `-` is read from standard input, byte for byte
    #[arg(value_names = ["KEY", "VALUE"], required = true, num_args = 2.., allow_negative_numbers = true)]
    pairs: Vec<OsString>,
}

/// The keys and values of `put` and `merge`.
fn records(
    command: &str,
    pairs: &[OsString],
    form: FormArgs,
    types: &TypeArgs,
) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    if !pairs.len().is_multiple_of(2) {
        return Err(Failure::usage(format!("{command} takes pairs: KEY VALUE [KEY VALUE]...")));
    }
    if pairs.iter().skip(1).step_by(2).filter(|v| *v == "-").count() > 1 {
        return Err(Failure::usage("only one value can be read from standard input"));
    }
    let mut records = Vec::new();
    for pair in pairs.chunks_exact(2) {
        let value = match pair[1] == "-" {
            true => match types.value_type {
                None => value_from_stdin(form.hex)?,
                Some(value_type) => typed_value_from_stdin(value_type)?,
            },
            false => types.value(&pair[1], form.hex)?,
        };
        records.push((types.key(&pair[0], form.hex)?, value));
    }
    Ok(records)
}

/// Stores values under keys, in one batch.
pub fn put(args: PutArgs) -> Result<()> {
    let records = records("put", &args.pairs, args.form, &args.types)?;
    let create = match args.if_value {
        // What is created has no values.
        Some(_) => Create::NOTHING,
        None => Create { database: true, keyspace: NewKeyspace::by_flag(args.new_keyspace.create_keyspace) },
    };
    let condition = Condition::of(args.if_absent, args.if_value.as_ref(), args.form.hex, &args.types)?;
    let store = Store::open_with(&args.db, &args.keyspace, &args.create, create)?;
    if args.types.value_type.is_some() {
        records.iter().try_for_each(|(_, value)| check_value(&store.keyspace, value))?;
    }
    let unmet = match args.at {
        Some(time) => {
            let mut batch = store.db.batch();
            records.iter().for_each(|(key, value)| batch.put_at(&store.keyspace, key, value, time));
            store.db.write(batch, store.db.options().durability)?;
            None
        }
        None => store.db.transaction(|tx| -> cairn::Result<Option<Failure>> {
            let keys = records.iter().map(|(key, _)| &key[..]);
            let unmet = first_unmet(tx, &store.keyspace, condition.as_ref(), keys)?;
            if unmet.is_none() {
                for (key, value) in &records {
                    match (args.ttl, args.until) {
                        (Some(ttl), _) => tx.put_with_ttl(&store.keyspace, key, value, ttl)?,
                        (_, Some(until)) => tx.put_until(&store.keyspace, key, value, until)?,
                        _ => tx.put(&store.keyspace, key, value)?,
                    }
                }
            }
            Ok(unmet)
        })?,
    };
    store.close()?;
    unmet.map_or(Ok(()), Err)?;
    if args.form.json {
        print_json(&mut stdout(), &serde_json::json!({ "put": records.len() }))?;
    }
    Ok(())
}

const MERGE_EXAMPLES: &str = "\
Examples:
  cairn put --db /tmp/d -k lists --create --set merge=append alice a,
  cairn merge --db /tmp/d -k lists alice b, bob c,            several in one step: all or none
  cairn merge --db /tmp/d -k sums --create --set merge=i64_add --type int visits 1
  cairn merge --db /tmp/d -k counts --hex 6b 0100000000000000   eight bytes, for u64_add";

/// Arguments of `merge`.
#[derive(Debug, clap::Args)]
#[command(after_help = MERGE_EXAMPLES)]
pub struct MergeArgs {
    #[command(flatten)]
    db: DbArgs,
    #[command(flatten)]
    keyspace: KeyspaceArgs,
    #[command(flatten)]
    new_keyspace: NewKeyspaceArgs,
    #[command(flatten)]
    create: CreateArgs,
    #[command(flatten)]
    form: FormArgs,
    #[command(flatten)]
    types: TypeArgs,
    /// Pairs of key and operand. An operand of `-` is read from standard input, byte for byte
    #[arg(value_names = ["KEY", "OPERAND"], required = true, num_args = 2.., allow_negative_numbers = true)]
    pairs: Vec<OsString>,
}

/// Joins operands to the values of keys, in one step.
pub fn merge(args: MergeArgs) -> Result<()> {
    let records = records("merge", &args.pairs, args.form, &args.types)?;
    // A keyspace gets its merge operator when it is created: none is created without being asked for.
    let create = match args.new_keyspace.create_keyspace {
        true => Create { database: true, keyspace: NewKeyspace::Any },
        false => Create::NOTHING,
    };
    let store = Store::open_with(&args.db, &args.keyspace, &args.create, create)?;
    if args.types.value_type.is_some() {
        records.iter().try_for_each(|(_, operand)| check_operand(&store.keyspace, operand))?;
    }
    store.db.transaction(|tx| {
        records.iter().try_for_each(|(key, operand)| tx.merge(&store.keyspace, key, operand))
    })?;
    store.close()?;
    if args.form.json {
        print_json(&mut stdout(), &serde_json::json!({ "merged": records.len() }))?;
    }
    Ok(())
}

fn typed_value_from_stdin(value_type: ValueType) -> Result<Vec<u8>> {
    if value_type != ValueType::Bytes {
        return value_type.encode(&value_from_stdin(false)?);
    }
    // Two digits for each byte.
    let mut encoded = Vec::new();
    value_from_stdin(true)?.encode_value(&mut encoded)?;
    Ok(encoded)
}

fn value_from_stdin(hex: bool) -> Result<Vec<u8>> {
    let limit = cairn::limits::MAX_VALUE_LEN as u64;
    let mut value = Vec::new();
    io::stdin()
        .lock()
        .take(if hex { limit * 2 + 2 } else { limit + 1 })
        .read_to_end(&mut value)
        .map_err(|e| Failure::file("read", Path::new("standard input"), &e))?;
    if hex {
        value = unhex(value.trim_ascii()).map_err(Failure::bad_input)?;
    }
    if value.len() as u64 > limit {
        return Err(Failure::usage(format!(
            "the value on standard input is longer than the limit of {limit} bytes"
        )));
    }
    Ok(value)
}

const GET_EXAMPLES: &str = "\
Examples:
  cairn get --db /tmp/d fruit/apple                     the value, and a newline
  cairn get --db /tmp/d --raw photo > photo.jpg         the value, byte for byte
  cairn get --db /tmp/d --json fruit/apple fruit/pear   {\"key\":...,\"value\":...}, null for a missing key
  cairn scan --db /tmp/d --parts key | cairn get --db /tmp/d --keys-from -
  cairn get --db /tmp/d -k prices --at -2h tea          the value two hours ago, in a keyspace with history
  cairn get --db /tmp/d -k sessions --expiry alice      when the entry expires, or `never`
  cairn get --db /tmp/d --key-type string,i64 --type any roof,-5

The exit code is 1 if a key does not exist.";

/// Arguments of `get`.
#[derive(Debug, clap::Args)]
#[command(after_help = GET_EXAMPLES)]
pub struct GetArgs {
    #[command(flatten)]
    db: DbArgs,
    #[command(flatten)]
    keyspace: KeyspaceArgs,
    #[command(flatten)]
    form: FormArgs,
    #[command(flatten)]
    types: TypeArgs,
    /// Print the values byte for byte, without newlines
    #[arg(long, conflicts_with_all = ["json", "hex", "keys_from", "value_type"])]
    raw: bool,
    /// The values as of this time, in a keyspace with history
    #[arg(long, value_name = "TIME", value_parser = parse_time, allow_hyphen_values = true)]
    at: Option<Time>,
    /// Print when the entries expire, or `never`, in place of their values
    #[arg(long, conflicts_with_all = ["at", "raw", "keys_from", "json", "hex"])]
    expiry: bool,
    /// Read keys from a file (`-` for standard input), one per line as printed by `scan`, and print records like
    /// `scan`
    #[arg(long, value_name = "FILE", conflicts_with = "keys")]
    keys_from: Option<PathBuf>,
    /// Keys
    #[arg(value_name = "KEY", required_unless_present = "keys_from", allow_negative_numbers = true)]
    keys: Vec<OsString>,
}

/// Prints values.
pub fn get(args: GetArgs) -> Result<()> {
    // Read all keys before opening the database: they may come from a `scan` of the same database.
    let (keys, parts) = match &args.keys_from {
        Some(path) => (listed_keys(path, args.form.hex, &args.types)?, Parts::Both),
        None => {
            let keys = args.keys.iter().map(|k| args.types.key(k, args.form.hex)).collect::<Result<_>>()?;
            (keys, if args.form.json { Parts::Both } else { Parts::Value })
        }
    };
    let store = Store::open_to_read(&args.db, &args.keyspace)?;
    let mut out = stdout();
    let mut missing = Missing::default();
    let mut printer = Printer::new(Form::from(args.form), parts).with_types(args.types.clone());
    for key in &keys {
        get_one(&args, &store, key, &mut printer, &mut out, &mut missing)?;
    }
    out.flush()?;
    store.close()?;
    missing.verdict()
}

fn get_one(
    args: &GetArgs,
    store: &Store,
    key: &[u8],
    printer: &mut Printer,
    out: &mut impl Write,
    missing: &mut Missing,
) -> Result<()> {
    if args.expiry {
        match store.keyspace.get_with_expiry(key)? {
            Some((_, expiry)) => writeln!(out, "{}", format_expiry(expiry))?,
            None => missing.add(key),
        }
        return Ok(());
    }
    let value = match args.at {
        None => store.keyspace.get(key)?,
        Some(time) => store.keyspace.get_at(key, time)?.and_then(|version| version.value),
    };
    let Some(value) = value else {
        missing.add(key);
        if args.form.json {
            let mut line = vec![b'{'];
            match &args.types.key_type {
                Some(types) => line.extend_from_slice(format!("\"key\":{}", types.json(key)?).as_bytes()),
                None => json_field(&mut line, "key", key, args.form.hex),
            }
            line.extend_from_slice(b",\"value\":null}\n");
            out.write_all(&line)?;
        }
        return Ok(());
    };
    if args.form.json || args.form.hex || args.keys_from.is_some() || args.types.value_type.is_some() {
        return printer.print(out, key, &value);
    }
    out.write_all(&value)?;
    if !args.raw {
        out.write_all(b"\n")?;
    }
    Ok(())
}

/// Reads the keys from a file, one per line as printed by `scan`: an empty line is the empty key, or that of an empty string.
fn listed_keys(path: &Path, hex: bool, types: &TypeArgs) -> Result<Vec<Vec<u8>>> {
    let (input, name): (Box<dyn Read>, _) = match path == Path::new("-") {
        true => (Box::new(io::stdin()), Path::new("standard input")),
        false => (Box::new(File::open(path).map_err(|e| Failure::file("open", path, &e))?), path),
    };
    let mut lines = Lines::new(BufReader::with_capacity(64 << 10, input));
    let (mut line, mut keys) = (Vec::new(), Vec::new());
    loop {
        line.clear();
        let read = lines.append_line(&mut line).map_err(|e| Failure::file("read", name, &e))?;
        let number = lines.number();
        let place = || format!("{}, line {number}", name.display());
        let bad = |why: String| Failure::bad_input(why).context(place());
        match read {
            lines::Read::End => return Ok(keys),
            lines::Read::TooLong => return Err(bad(lines::too_long())),
            lines::Read::Line => line.truncate(lines::content_len(&line)),
        }
        let key = match &types.key_type {
            _ if hex => unhex(&line).map_err(bad)?,
            Some(types) => types.encode(&line, false).map_err(|e| e.context(place()))?,
            None => unescape(&line).map_err(bad)?.into_owned(),
        };
        if key.len() > MAX_KEY_LEN {
            return Err(bad(format!("the key has {} bytes; the limit is {MAX_KEY_LEN}", key.len())));
        }
        keys.push(key);
    }
}

/// Requested keys that do not exist.
#[derive(Default)]
struct Missing {
    count: u64,
    first: String,
}

impl Missing {
    fn add(&mut self, key: &[u8]) {
        if self.count == 0 {
            self.first = escape_short(key, 200);
        }
        self.count += 1;
    }

    fn verdict(self) -> Result<()> {
        match self.count {
            0 => Ok(()),
            1 => Err(Failure::not_found(format!("not found: {}", self.first))),
            n => Err(Failure::not_found(format!("not found: {} and {} more", self.first, n - 1))),
        }
    }
}

const DELETE_EXAMPLES: &str = "\
Examples:
  cairn delete --db /tmp/d fruit/apple fruit/pear   all in one batch: all or none
  cairn delete --db /tmp/d --hex 00ff
  cairn delete --db /tmp/d --check fruit/apple      exit code 1 if it does not exist
  cairn delete --db /tmp/d --if-value bob lock/printer   exit code 1 if its value is another one

Deleting a missing key is not an error, unless --check is given.";

/// Arguments of `delete`.
#[derive(Debug, clap::Args)]
#[command(after_help = DELETE_EXAMPLES)]
pub struct DeleteArgs {
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
    /// If a key does not exist, delete nothing and end with exit code 1
    #[arg(long)]
    check: bool,
    /// Unless each of the keys has this value, delete nothing and end with exit code 1
    #[arg(long, value_name = "VALUE", allow_hyphen_values = true, conflicts_with = "check")]
    if_value: Option<OsString>,
    /// Type of the value that is asked for: see `cairn put --help`
    #[arg(long = "type", value_name = "TYPE", value_enum, conflicts_with = "hex", requires = "if_value")]
    value_type: Option<ValueType>,
    /// Keys
    #[arg(value_name = "KEY", required = true, allow_negative_numbers = true)]
    keys: Vec<OsString>,
}

/// Deletes keys, in one batch.
pub fn delete(args: DeleteArgs) -> Result<()> {
    let types = TypeArgs { key_type: args.key_type, value_type: args.value_type };
    let keys = args.keys.iter().map(|k| types.key(k, args.form.hex)).collect::<Result<Vec<_>>>()?;
    let condition = Condition::of(false, args.if_value.as_ref(), args.form.hex, &types)?;
    let create = CreateArgs { durability: args.durability, ..CreateArgs::default() };
    let store = Store::open_with(&args.db, &args.keyspace, &create, Create::NOTHING)?;
    if args.check {
        let mut missing = Missing::default();
        for key in &keys {
            if !store.keyspace.contains(key)? {
                missing.add(key);
            }
        }
        missing.verdict()?;
    }
    let unmet = store.db.transaction(|tx| -> cairn::Result<Option<Failure>> {
        let named = keys.iter().map(|key| &key[..]);
        let unmet = first_unmet(tx, &store.keyspace, condition.as_ref(), named)?;
        if unmet.is_none() {
            keys.iter().try_for_each(|key| tx.delete(&store.keyspace, key))?;
        }
        Ok(unmet)
    })?;
    store.close()?;
    unmet.map_or(Ok(()), Err)?;
    if args.form.json {
        print_json(&mut stdout(), &serde_json::json!({ "deleted": keys.len() }))?;
    }
    Ok(())
}
