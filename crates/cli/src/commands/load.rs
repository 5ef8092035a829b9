//! `load`: loads records from a file or standard input into a keyspace.

use crate::args::{CreateArgs, DbArgs, KeyspaceArgs, NewKeyspaceArgs};
use crate::failure::{Failure, Result};
use crate::format::{Format, Mapping, Reader, Record, Step};
use crate::output::{print_json, stdout};
use crate::progress::Progress;
use crate::store::{Create, NewKeyspace, Store};
use crate::text::{counted, escape_short, human_bytes};
use crate::times::TimeUnit;
use cairn::{Batch, ErrorKind, Ingest, IngestOptions, Time};
use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

const EXAMPLES: &str = "\
Examples:
  cairn load --db /tmp/d cities.tsv                             the first column is the key, the line is the value
  cairn load --db /tmp/d people.csv --key email                 a column by the name in the header
  cairn load --db /tmp/d people.csv --key country,city --value phone
  cairn load --db /tmp/d -k people --create people.csv          create the keyspace `people`
  cairn load --db /tmp/d events.jsonl --key id --skip-bad
  cairn load --db /tmp/d words.txt                              each line is a key
  zcat Packages.gz | cairn load --db /tmp/d --format paragraphs --key Package,Version,Architecture
  cairn dump --db /tmp/a | cairn load --db /tmp/b               copy a keyspace
  cairn load --db /tmp/d -k prices prices.csv --key item --timestamp time     records with times, in any order
  cairn load --db /tmp/d -k words --create --bulk words.txt     into tables directly: all of the file, or nothing
  cairn load --db /tmp/d -k sessions --expiry 2 sessions.tsv    what `dump --expiry` wrote: the second column is the expiry
  cairn load --db /tmp/d -k prices --create --set history=all --history prices.tsv   what `dump --history` wrote

The key is the first column, unless --key names others. The value is the column that --value names; without --value, the
other one of two columns, or otherwise the whole record without its line end. In TSV, \\t \\n \\r \\\\ and \\xHH in a key or
value column are escapes for bytes. JSON lines without --key have the fields key and value, or key_hex and value_hex.
A file without a known extension, and standard input, are TSV unless --format names another format.

A bad line ends the load with exit code 6. The records before it are loaded, and the message says how many; with --bulk nothing is loaded.";

/// Limits of a batch, in records and in bytes: large enough to amortize the cost of a write, small enough for memory.
const BATCH_RECORDS: usize = 1000;
const BATCH_BYTES: usize = 4 << 20;

/// Memory for sorting what is loaded in bulk, at most; a quarter of the memory budget, if that is less.
const SORT_BYTES: u64 = 256 << 20;

/// Arguments of `load`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct LoadArgs {
    #[command(flatten)]
    db: DbArgs,
    #[command(flatten)]
    keyspace: KeyspaceArgs,
    #[command(flatten)]
    new_keyspace: NewKeyspaceArgs,
    #[command(flatten)]
    create: CreateArgs,
    #[command(flatten)]
    input: InputArgs,
    /// Count and skip bad lines
    #[arg(long)]
    skip_bad: bool,
    /// Treat a key that exists or occurs twice as a bad line [default: the last value wins]
    #[arg(long, conflicts_with_all = ["timestamp", "history"])]
    unique: bool,
    /// Leave records out whose times lie before what the retention of the keyspace keeps [default: the load ends there]. The summary
    /// counts them among the records
    #[arg(long, requires = "timestamp")]
    skip_expired: bool,
    /// Write the records to tables directly, as one commit: all of them are loaded or none. They may come in any order. Not for keyspaces
    /// without order
    #[arg(long, conflicts_with_all = ["timestamp", "history", "unique"])]
    bulk: bool,
    /// With --bulk: the keys ascend, so nothing is sorted, and the data is written only once
    #[arg(long, requires = "bulk")]
    sorted: bool,
    /// Print the summary as JSON
    #[arg(long)]
    json: bool,
}

/// The source of the records, and how they map to keys and values.
#[derive(Debug, clap::Args)]
struct InputArgs {
    /// The file to load; `-` or none for standard input
    file: Option<PathBuf>,
    /// Its format [default: by the extension of the file]
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// Key column or field: a name or a number from 1; several, separated by commas, are joined
    #[arg(long, value_name = "COLUMN", value_delimiter = ',')]
    key: Vec<String>,
    /// Separator between the parts of a key of several columns
    #[arg(long, value_name = "TEXT", default_value = "/")]
    key_separator: String,
    /// Column or field with the time of a record, for a keyspace with history: RFC 3339, or a number
    #[arg(long, value_name = "COLUMN")]
    timestamp: Option<String>,
    /// Column or field with the time until which an entry lives: RFC 3339, a number, or `never`. `dump --expiry` writes it [default: as
    /// the option ttl of the keyspace says]
    #[arg(long, value_name = "COLUMN", conflicts_with = "timestamp")]
    expiry: Option<String>,
    /// Unit of times that are numbers
    #[arg(long, value_name = "UNIT", value_enum, default_value = "us")]
    time_unit: TimeUnit,
    /// The input has all versions of a history, as `dump --history` writes them: key, time, put or delete, value. They are taken
    /// whatever retention the keyspace has
    #[arg(long, conflicts_with_all = ["timestamp", "expiry", "key", "value", "key_separator"])]
    history: bool,
    /// Value column or field
    #[arg(long, value_name = "COLUMN")]
    value: Option<String>,
    /// The first line names the columns (the default in CSV, and if a column is given by name)
    #[arg(long)]
    header: bool,
    /// The first line is a record
    #[arg(long, conflicts_with = "header")]
    no_header: bool,
    /// TSV: backslashes are plain characters
    #[arg(long)]
    no_escapes: bool,
    /// Key and value columns are hexadecimal
    #[arg(long)]
    hex: bool,
}

impl InputArgs {
    fn name(&self) -> &Path {
        match &self.file {
            Some(path) if path != Path::new("-") => path,
            _ => Path::new("standard input"),
        }
    }

    fn open(&self) -> Result<(Box<dyn BufRead>, Option<u64>)> {
        let (input, len): (Box<dyn Read>, _) = match &self.file {
            Some(path) if path != Path::new("-") => {
                let wrong = |e| Failure::file("open", path, &e);
                let file = File::open(path).map_err(wrong)?;
                let metadata = file.metadata().map_err(wrong)?;
                if metadata.is_dir() {
                    return Err(Failure::usage(format!("{} is a directory", path.display())));
                }
                (Box::new(file), metadata.is_file().then_some(metadata.len()))
            }
            _ => (Box::new(io::stdin()), None),
        };
        let mut input = BufReader::with_capacity(256 << 10, input);
        let start = input.fill_buf().map_err(|e| Failure::file("read", self.name(), &e))?;
        if start.starts_with(b"\x1f\x8b") {
            let name = self.name().display();
            return Err(Failure::usage(format!("{name} is compressed: zcat FILE | cairn load ...")));
        }
        Ok((Box::new(input), len))
    }

    fn format(&self) -> Format {
        let by_name = || self.file.as_deref().and_then(Format::of_file);
        self.format.or_else(by_name).unwrap_or(Format::Tsv)
    }

    fn mapping(&self) -> Mapping {
        Mapping {
            key: self.key.clone(),
            separator: self.key_separator.clone(),
            value: self.value.clone(),
            header: match (self.header, self.no_header) {
                (true, _) => Some(true),
                (_, true) => Some(false),
                _ => None,
            },
            no_escapes: self.no_escapes,
            hex: self.hex,
            time: self.timestamp.clone(),
            expiry: self.expiry.clone(),
            time_unit: self.time_unit,
            versions: self.history,
        }
    }
}

/// What was loaded.
#[derive(Clone, Debug, Default, serde::Serialize)]
struct Summary {
    records: u64,
    key_bytes: u64,
    value_bytes: u64,
    bad: u64,
    /// The first bad line and the reason.
    first_bad: Option<String>,
    seconds: f64,
}

impl Summary {
    fn text(&self) -> String {
        let bytes = human_bytes(self.key_bytes + self.value_bytes);
        format!("{} ({bytes})", counted(self.records, "record"))
    }
}

/// Loads records.
pub fn load(args: LoadArgs) -> Result<()> {
    let (input, len) = args.input.open()?;
    let reader = Reader::new(input, args.input.format(), args.input.mapping()).map_err(Failure::usage)?;
    let create = Create { database: true, keyspace: NewKeyspace::by_flag(args.new_keyspace.create_keyspace) };
    let store = Store::open_with(&args.db, &args.keyspace, &args.create, create)?;
    let started = Instant::now();
    let mut loader = Loader::new(&store, &args);
    let read = loader.read(reader, len);
    match (&read, args.bulk) {
        (Ok(()), true) => loader.commit()?,
        // While the database is open, so that its files go.
        (Err(_), true) => drop(loader.ingest.take()),
        // Write the records before a bad line too, even if they are in the same batch.
        (_, false) => loader.write()?,
    }
    let mut summary = loader.summary;
    let keyspace = store.keyspace.name().to_string();
    let closed = store.close();
    summary.seconds = started.elapsed().as_secs_f64();
    if let Err(failure) = read {
        return Err(match summary.records {
            0 => failure,
            _ => failure.with_note(format!("; loaded before it: {}", summary.text())),
        });
    }
    closed?;
    let mut out = stdout();
    if args.json {
        print_json(&mut out, &serde_json::json!(summary))?;
    } else {
        let left_out = if args.skip_expired { ", those left out included," } else { "" };
        writeln!(
            out,
            "loaded {}{left_out} into keyspace {keyspace:?} in {:.1} s",
            summary.text(),
            summary.seconds
        )?;
    }
    out.flush()?;
    if let Some(first) = &summary.first_bad {
        eprintln!("cairn: skipped {}; the first: {first}", counted(summary.bad, "bad line"));
    }
    Ok(())
}

/// A batch that takes times as the arguments say.
fn new_batch(store: &Store, args: &LoadArgs) -> Batch {
    let mut batch = store.db.batch();
    if args.input.history {
        batch.take_any_time();
    } else if args.skip_expired {
        batch.skip_expired();
    }
    batch
}

/// A bulk load as the arguments say.
fn new_ingest(store: &Store, args: &LoadArgs) -> Option<Ingest> {
    let sort_bytes = (store.db.options().memory_budget / 4).min(SORT_BYTES) as usize;
    let options = match args.sorted {
        true => IngestOptions::default(),
        false => IngestOptions::default().unsorted(sort_bytes),
    };
    args.bulk.then(|| store.db.ingest(options))
}

/// Collects records into batches and writes them; or gives them to a bulk load.
struct Loader<'a> {
    store: &'a Store,
    args: &'a LoadArgs,
    batch: Batch,
    ingest: Option<Ingest>,
    /// Keys of the batch, if keys must be unique.
    keys: Option<HashSet<Vec<u8>>>,
    pending: Summary,
    summary: Summary,
}

impl<'a> Loader<'a> {
    fn new(store: &'a Store, args: &'a LoadArgs) -> Loader<'a> {
        let keys = args.unique.then(HashSet::new);
        Loader {
            store,
            args,
            batch: new_batch(store, args),
            ingest: new_ingest(store, args),
            keys,
            pending: Summary::default(),
            summary: Summary::default(),
        }
    }

    fn read(&mut self, mut reader: Reader<Box<dyn BufRead>>, len: Option<u64>) -> Result<()> {
        let args = self.args;
        let name = args.input.name();
        let progress = Progress::bytes(len);
        let mut record = Record::default();
        loop {
            let step = reader.next(&mut record).map_err(|e| {
                Failure::file("read", name, &e).context(format!("after line {}", reader.lines_read()))
            })?;
            let why = match step {
                Step::Record => match self.add(&record)? {
                    None => {
                        if reader.lines_read().is_multiple_of(256) {
                            let records = self.summary.records + self.pending.records;
                            progress.at(reader.bytes_read(), || counted(records, "record"));
                        }
                        continue;
                    }
                    Some(why) => why,
                },
                Step::Bad(why) => why,
                Step::Unfit(why) => return Err(Failure::usage(format!("{}: {why}", name.display()))),
                Step::End => return Ok(()),
            };
            let bad = format!("{}, line {}: {why}", name.display(), record.line);
            if !args.skip_bad {
                return Err(Failure::bad_input(bad));
            }
            self.summary.bad += 1;
            self.summary.first_bad.get_or_insert(bad);
        }
    }

    /// Adds a record to the batch, or returns what is wrong with it.
    fn add(&mut self, record: &Record) -> Result<Option<String>> {
        if let Some(keys) = &mut self.keys {
            if keys.contains(&record.key) || self.store.keyspace.contains(&record.key)? {
                return Ok(Some(format!("key \"{}\" exists already", escape_short(&record.key, 80))));
            }
            keys.insert(record.key.clone());
        }
        let keyspace = &self.store.keyspace;
        match (record.time, &mut self.ingest) {
            (_, Some(ingest)) => match record.expiry {
                None => ingest.put(keyspace, &record.key, &record.value)?,
                Some(expiry) => ingest.put_until(keyspace, &record.key, &record.value, expiry)?,
            },
            (None, None) if record.expiry.is_some() => {
                let expiry = record.expiry.unwrap_or(Time::MAX);
                self.batch.put_until(keyspace, &record.key, &record.value, expiry);
            }
            (None, None) => self.batch.put(keyspace, &record.key, &record.value),
            (Some(time), None) if record.is_delete => self.batch.delete_at(keyspace, &record.key, time),
            (Some(time), None) => match record.expiry {
                // A version of a history has the expiry that it had.
                None if self.args.input.history => {
                    self.batch.put_at_until(keyspace, &record.key, &record.value, time, Time::MAX);
                }
                None => self.batch.put_at(keyspace, &record.key, &record.value, time),
                Some(expiry) => {
                    self.batch.put_at_until(keyspace, &record.key, &record.value, time, expiry);
                }
            },
        }
        self.pending.records += 1;
        self.pending.key_bytes += record.key.len() as u64;
        self.pending.value_bytes += record.value.len() as u64;
        if self.ingest.is_some() {
            return Ok(None);
        }
        if self.batch.len() >= BATCH_RECORDS || self.batch.byte_len() >= BATCH_BYTES {
            self.write()?;
        }
        Ok(None)
    }

    /// Commits the bulk load.
    fn commit(&mut self) -> Result<()> {
        if let Some(ingest) = self.ingest.take() {
            ingest.commit()?;
            let Summary { records, key_bytes, value_bytes, .. } = std::mem::take(&mut self.pending);
            self.summary = Summary { records, key_bytes, value_bytes, ..std::mem::take(&mut self.summary) };
        }
        Ok(())
    }

    /// Writes the batch. Its records count as loaded only after that.
    fn write(&mut self) -> Result<()> {
        let pending = std::mem::take(&mut self.pending);
        if pending.records == 0 {
            return Ok(());
        }
        let batch = std::mem::replace(&mut self.batch, new_batch(self.store, self.args));
        self.store.db.write(batch, self.store.db.options().durability).map_err(|e| {
            let failure = match e.kind() {
                ErrorKind::Expired => {
                    Failure::bad_input(format!("{e}; --skip-expired leaves such records out"))
                }
                _ => Failure::from(e),
            };
            failure.with_note(format!("; loaded before: {}", self.summary.text()))
        })?;
        self.summary.records += pending.records;
        self.summary.key_bytes += pending.key_bytes;
        self.summary.value_bytes += pending.value_bytes;
        self.keys.iter_mut().for_each(HashSet::clear);
        Ok(())
    }
}
