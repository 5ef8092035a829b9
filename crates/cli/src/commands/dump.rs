//! `dump`: writes a keyspace as text that `load` reads.

use crate::args::{Bounds, BoundsArgs, DbArgs, FormArgs, KeyspaceArgs};
use crate::failure::{Failure, Result};
use crate::format::{Format, Mapping, Unwritten, Writer};
use crate::output::stdout;
use crate::store::{Store, entries, entries_with_expiry, versions};
use cairn::{Slice, Time, Version};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

const EXAMPLES: &str = "\
Examples:
  cairn dump --db /tmp/d > d.tsv
  cairn dump --db /tmp/d --output d.jsonl --prefix FR/
  cairn dump --db /tmp/d --format csv | gzip > d.csv.gz
  cairn dump --db /tmp/d --format paragraphs --key Package,Version,Architecture > Packages
  cairn dump --db /tmp/a | cairn load --db /tmp/b        copy a keyspace
  cairn dump --db /tmp/a -k sessions --expiry | cairn load --db /tmp/b --expiry 2      with expiries
  cairn dump --db /tmp/a -k prices --history > prices.tsv     all versions: key, time, put or delete, value

TSV, CSV and JSON lines can express any bytes: `load` reads them back as the same keys and values. The format `lines` has
keys without values, and `paragraphs` has values that contain the key. A record that the format cannot express ends the
dump with exit code 6.";

/// Arguments of `dump`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct DumpArgs {
    #[command(flatten)]
    db: DbArgs,
    #[command(flatten)]
    keyspace: KeyspaceArgs,
    #[command(flatten)]
    bounds: BoundsArgs,
    #[command(flatten)]
    form: FormArgs,
    /// The format [default: by the extension of the output file, otherwise TSV]
    #[arg(long, value_enum, conflicts_with = "json")]
    format: Option<Format>,
    /// Write to this file instead of standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Write all versions with their times, of a keyspace with history. Of each key the latest comes first, or with
    /// --reverse the earliest. `load --history` reads it
    #[arg(long)]
    history: bool,
    /// Write when each record expires, or `never`, between key and value. `load --expiry 2` reads it, for JSON lines `--expiry expiry`
    #[arg(long, conflicts_with = "history")]
    expiry: bool,
    /// For paragraphs: the fields that form the key
    #[arg(long, value_name = "FIELD", value_delimiter = ',')]
    key: Vec<String>,
    /// For paragraphs: the separator between the fields of a key
    #[arg(long, value_name = "TEXT", default_value = "/")]
    key_separator: String,
}

/// What is behind a key.
enum Rest {
    Value(Slice),
    /// A value, and its expiry.
    Expiring(Slice, Option<Time>),
    /// A version, without a value if it is a delete, and its expiry.
    Version(Time, Option<Slice>, Option<Time>),
}

type Records = Box<dyn Iterator<Item = cairn::Result<(Slice, Rest)>>>;

/// Writes a keyspace as text.
pub fn dump(args: DumpArgs) -> Result<()> {
    let bounds = args.bounds.bounds(args.form.hex)?;
    let store = Store::open_to_read(&args.db, &args.keyspace)?;
    let keyspace = &store.keyspace;
    let records: Records = match (args.history, args.expiry) {
        (true, _) => {
            // Before the reader begins: what it shows to have ended by then has expired.
            let now = Time::from(SystemTime::now());
            let all = Bounds { limit: u64::MAX, ..bounds.clone() };
            let versions = without_ends(versions(keyspace, &all)?, bounds.reverse, now);
            let limit = usize::try_from(bounds.limit).unwrap_or(usize::MAX);
            Box::new(
                versions
                    .take(limit)
                    .map(|found| found.map(|v| (v.key, Rest::Version(v.time, v.value, v.expiry)))),
            )
        }
        (_, true) => Box::new(
            entries_with_expiry(keyspace, &bounds)
                .map(|found| found.map(|(key, value, expiry)| (key, Rest::Expiring(value, expiry)))),
        ),
        _ => Box::new(entries(keyspace, &bounds).map(|e| e.map(|(key, value)| (key, Rest::Value(value))))),
    };
    match &args.output {
        None => write_all(records, &args, &mut stdout(), Failure::from)?,
        Some(path) => {
            let wrong = |operation: &'static str| move |e| Failure::file(operation, path, &e);
            let file = File::create(path).map_err(wrong("create"))?;
            write_all(records, &args, &mut BufWriter::with_capacity(256 << 10, &file), wrong("write"))?;
            file.sync_all().or_else(only_for_files(path)).map_err(wrong("sync"))?;
        }
    }
    store.close()
}

/// Leaves deletes out that only show that a version has expired by `now`: the expiry is written with the version.
fn without_ends(
    versions: impl Iterator<Item = cairn::Result<Version>>,
    reverse: bool,
    now: Time,
) -> impl Iterator<Item = cairn::Result<Version>> {
    let is_end = move |end: &Version, of: &Version| {
        end.value.is_none() && of.key == end.key && of.expiry == Some(end.time) && end.time <= now
    };
    let (mut versions, mut last) = (versions.peekable(), None::<Version>);
    std::iter::from_fn(move || {
        loop {
            let found = versions.next()?;
            let Ok(version) = &found else { return Some(found) };
            let of = match reverse {
                true => last.as_ref(),
                false => versions.peek().and_then(|next| next.as_ref().ok()),
            };
            let is_left_out = of.is_some_and(|of| is_end(version, of));
            last = reverse.then(|| version.clone());
            if !is_left_out {
                return Some(found);
            }
        }
    })
}

/// Ignores a failed sync of a device or pipe, which cannot be synced.
fn only_for_files(path: &Path) -> impl FnOnce(std::io::Error) -> std::io::Result<()> {
    move |error| if path.is_file() { Err(error) } else { Ok(()) }
}

fn write_all(
    records: Records,
    args: &DumpArgs,
    out: &mut impl Write,
    io_failure: impl Fn(std::io::Error) -> Failure,
) -> Result<()> {
    let by_name = || args.output.as_deref().and_then(Format::of_file);
    let format = match args.form.json {
        true => Format::Jsonl,
        false => args.format.or_else(by_name).unwrap_or(Format::Tsv),
    };
    let mapping = Mapping {
        key: args.key.clone(),
        separator: args.key_separator.clone(),
        hex: args.form.hex,
        expiry: args.expiry.then(|| "expiry".to_owned()),
        versions: args.history,
        ..Mapping::default()
    };
    let mut writer = Writer::new(format, mapping);
    let wrong = |e| match e {
        Unwritten::Refused(why) => Failure::bad_input(why),
        Unwritten::Io(e) => io_failure(e),
    };
    for record in records {
        let (key, rest) = record?;
        let written = match rest {
            Rest::Value(value) => writer.write(out, &key, &value),
            Rest::Expiring(value, expiry) => writer.write_expiring(out, &key, expiry, &value),
            Rest::Version(time, value, expiry) => {
                writer.write_version(out, &key, time, value.as_deref(), expiry)
            }
        };
        written.map_err(&wrong)?;
    }
    writer.finish(out).map_err(io_failure)
}
