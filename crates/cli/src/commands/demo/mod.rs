//! `demo`: a tour in under a minute, on real data, with comments.
//!
//! Loads the cities of the world, looks some up, scans, and holds a snapshot. Then it starts a second process that
//! writes, kills it at a random moment (SIGKILL, so without cleanup), reopens the database and compares its content
//! with the acknowledged writes; several times. See [`ledger`] for the data and the checks.

mod ledger;
mod setup;

use crate::db_files::db_files;
use crate::draw;
use crate::failure::{Failure, Result};
use crate::format::{Format, Mapping, Reader, Record, Step};
use crate::output::stdout;
use crate::text::{escape, human_bytes, human_count};
use cairn::{Database, Keyspace, Stats};
use setup::{Random, open, small_scale};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const EXAMPLES: &str = "\
Examples:
  cairn demo                                  in a temporary directory, which is removed at the end
  cairn demo --db /tmp/demo                   keep the database for inspection:
  cairn shell --db /tmp/demo -k cities 'scan prefix IS/'";

/// Cities with 29,000 or more people (GeoNames; see examples/data/README.md): key TAB JSON, 20,035 lines.
const CITIES: &[u8] = include_bytes!("../../../../../examples/data/cities.tsv");

/// Arguments of `demo`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct DemoArgs {
    /// Keep the database in this directory
    #[arg(long, value_name = "DIR")]
    db: Option<PathBuf>,
    /// How many times to kill the writer
    #[arg(long, value_name = "N", default_value_t = 3)]
    rounds: u64,
    /// Seed of the moments of the kills [default: from the clock]
    #[arg(long)]
    seed: Option<u64>,
    /// Be the writer that is killed
    #[arg(long, hide = true, requires = "db")]
    writer: Option<u64>,
}

/// Runs the demonstration.
pub fn demo(args: DemoArgs) -> Result<()> {
    if let (Some(round), Some(dir)) = (args.writer, &args.db) {
        return ledger::write_until_killed(dir, round);
    }
    let temporary = match args.db {
        Some(_) => None,
        None => Some(
            tempfile::Builder::new()
                .prefix("cairn-demo-")
                .tempdir()
                .map_err(|e| Failure::file("create", &std::env::temp_dir(), &e))?,
        ),
    };
    let dir = match (&args.db, &temporary) {
        (Some(dir), _) => dir.as_path(),
        (None, Some(temporary)) => temporary.path(),
        (None, None) => unreachable!("one of the two was just set"),
    };
    let seed = args
        .seed
        .unwrap_or_else(|| std::time::UNIX_EPOCH.elapsed().map_or(1, |since| since.as_nanos() as u64));
    Demo { out: stdout(), dir, seed, started: Instant::now() }.run(args.rounds, temporary.is_none())
}

struct Demo<'a, W: Write> {
    out: W,
    dir: &'a Path,
    seed: u64,
    started: Instant,
}

impl<W: Write> Demo<'_, W> {
    fn run(mut self, rounds: u64, keep: bool) -> Result<()> {
        writeln!(self.out, "Cairn {}, a demonstration in {}", env!("CARGO_PKG_VERSION"), self.dir.display())?;
        let db = open(self.dir)?;
        // Drop the keyspaces of an earlier run in the same directory.
        for name in
            db.keyspaces().iter().filter(|n| ["cities", "ledger", "ledger-index"].contains(&n.as_str()))
        {
            db.drop_keyspace(name)?;
        }
        let cities = db.keyspace("cities", small_scale())?;
        let records = self.load(&db, &cities)?;
        self.look_up(&cities)?;
        self.scan(&cities)?;
        self.snapshot(&db, &cities, records)?;
        drop(cities);
        db.wait_idle()?;
        let so_far = db.stats();
        db.close()?;
        self.crash(rounds, records)?;
        self.show(rounds, &so_far)?;
        let seconds = self.started.elapsed().as_secs_f64();
        writeln!(self.out, "\nDone in {seconds:.1} s.")?;
        if keep {
            let dir = self.dir.display();
            writeln!(self.out, "Look around: cairn shell --db {dir} --keyspace cities 'scan prefix IS/'")?;
        }
        Ok(self.out.flush()?)
    }

    fn title(&mut self, number: u32, title: &str) -> Result<()> {
        writeln!(self.out, "\n{number}. {title}")?;
        Ok(self.out.flush()?)
    }

    fn load(&mut self, db: &Database, cities: &Keyspace) -> Result<u64> {
        self.title(1, "Load the cities of the world (GeoNames, CC BY 4.0)")?;
        let started = Instant::now();
        let mut reader = Reader::new(CITIES, Format::Tsv, Mapping::default()).map_err(Failure::bad_input)?;
        let (mut record, mut batch, mut records, mut bytes) = (Record::default(), db.batch(), 0, 0);
        loop {
            match reader.next(&mut record) {
                Ok(Step::Record) => batch.put(cities, &record.key, &record.value),
                Ok(Step::End) => break,
                other => {
                    return Err(Failure::bad_input(format!("cities.tsv, line {}: {other:?}", record.line)));
                }
            }
            records += 1;
            bytes += (record.key.len() + record.value.len()) as u64;
            if batch.len() == 100 {
                db.write(std::mem::replace(&mut batch, db.batch()), db.options().durability)?;
            }
        }
        db.write(batch, db.options().durability)?;
        let seconds = started.elapsed().as_secs_f64();
        writeln!(
            self.out,
            "   {} records, {}, in {seconds:.2} s; the shortest way to do the same:\n   \
             cairn load --db DIR --keyspace cities --create examples/data/cities.tsv",
            human_count(records),
            human_bytes(bytes)
        )?;
        Ok(records)
    }

    fn look_up(&mut self, cities: &Keyspace) -> Result<()> {
        self.title(2, "Look up")?;
        for key in ["IS/Reykjavík", "KE/Nairobi", "XX/Atlantis"] {
            let value = cities.get(key)?.map_or_else(|| "(not found)".into(), |v| escape(&v));
            writeln!(self.out, "   {key}  {value:.76}{}", if value.len() > 76 { "…" } else { "" })?;
        }
        let keys: Vec<&[u8]> = CITIES
            .split(|b| *b == b'\n')
            .filter_map(|line| line.split(|b| *b == b'\t').next().filter(|key| !key.is_empty()))
            .collect();
        let started = Instant::now();
        let mut random = Random(self.seed);
        for _ in 0..keys.len() {
            let key = keys[random.below(keys.len() as u64) as usize];
            if cities.get(key)?.is_none() {
                return Err(Failure::damage(format!("{} was loaded and is not there", escape(key))));
            }
        }
        let each = started.elapsed().as_secs_f64() * 1e6 / keys.len() as f64;
        writeln!(
            self.out,
            "   {} look-ups in random order: {each:.2} µs each",
            human_count(keys.len() as u64)
        )?;
        Ok(())
    }

    fn scan(&mut self, cities: &Keyspace) -> Result<()> {
        self.title(3, "Scan, forwards and backwards: keys are in order")?;
        let show = |entry: cairn::Result<(cairn::Slice, cairn::Slice)>| entry.map(|(key, _)| escape(&key));
        let first = cities.prefix("NZ/").take(4).map(show).collect::<cairn::Result<Vec<_>>>()?;
        let last = cities.prefix("NZ/").rev().take(4).map(show).collect::<cairn::Result<Vec<_>>>()?;
        writeln!(self.out, "   prefix NZ/            {}, …", first.join(", "))?;
        writeln!(self.out, "   prefix NZ/, reversed  {}, …", last.join(", "))?;
        let started = Instant::now();
        let mut records = 0u64;
        for entry in cities.iter() {
            entry?;
            records += 1;
        }
        let each = started.elapsed().as_secs_f64() * 1e9 / records.max(1) as f64;
        writeln!(self.out, "   all {} records: {each:.0} ns each", human_count(records))?;
        Ok(())
    }

    fn snapshot(&mut self, db: &Database, cities: &Keyspace, records: u64) -> Result<()> {
        self.title(4, "Snapshot: readers see one state while others write")?;
        let snapshot = db.snapshot();
        let mut batch = db.batch();
        for entry in cities.prefix("FR/") {
            batch.delete(cities, entry?.0);
        }
        let deleted = batch.len();
        db.write(batch, db.options().durability)?;
        let (now, then) = (cities.iter().count() as u64, snapshot.iter(cities).count() as u64);
        writeln!(
            self.out,
            "   deleted the {deleted} cities of France: {} records now, {} in the snapshot",
            human_count(now),
            human_count(then)
        )?;
        if (now, then) != (records - deleted as u64, records) {
            return Err(Failure::damage("the snapshot moved"));
        }
        let mut batch = db.batch();
        for entry in snapshot.prefix(cities, "FR/") {
            let (key, value) = entry?;
            batch.put(cities, key, value);
        }
        db.write(batch, db.options().durability)?;
        writeln!(
            self.out,
            "   put them back from the snapshot, in one batch: {} records",
            human_count(cities.iter().count() as u64)
        )?;
        Ok(())
    }

    fn crash(&mut self, rounds: u64, records: u64) -> Result<()> {
        self.title(5, "Crash: a second process writes batches into two keyspaces; it is killed (kill -9)")?;
        let mut random = Random(self.seed ^ 0x9e37_79b9_7f4a_7c15);
        let mut entries = 0;
        for round in 0..rounds {
            let delay = Duration::from_millis(150 + random.below(1500));
            let crash = ledger::crash(self.dir, round, delay)?;
            let opened = Instant::now();
            let db = open(self.dir)?;
            let recovery = opened.elapsed();
            let found = ledger::verify(&db, round, crash.acknowledged)?;
            entries += found;
            let all = db.open_keyspace("ledger")?.iter().count() as u64;
            if all != entries {
                return Err(Failure::damage(format!("{all} entries of all rounds are there, not {entries}")));
            }
            let cities = db.open_keyspace("cities")?;
            let left = cities.iter().count() as u64;
            if left != records {
                return Err(Failure::damage(format!("{left} of {records} cities are left")));
            }
            drop(cities);
            db.close()?;
            writeln!(
                self.out,
                "   killed process {} after {:.2} s: {} batches acknowledged; recovered in {:.0} ms: {} are there{}",
                crash.process,
                delay.as_secs_f64(),
                human_count(crash.acknowledged),
                recovery.as_secs_f64() * 1e3,
                human_count(found),
                if found > crash.acknowledged { ", one was in flight" } else { "" }
            )?;
            self.out.flush()?;
        }
        writeln!(self.out, "   Nothing acknowledged was lost, no batch was torn, there are no holes.")?;
        Ok(())
    }

    /// Prints the tree, and the counters of the first part: counters end with their process.
    fn show(&mut self, rounds: u64, so_far: &Stats) -> Result<()> {
        self.title(6, "The tree (made small: memtables of 128 KiB), and what it holds")?;
        let db = open(self.dir)?;
        db.wait_idle()?;
        let stats = db.stats();
        for keyspace in &stats.keyspaces {
            let handle = db.open_keyspace(&keyspace.name)?;
            draw::keyspace(&mut self.out, keyspace, &handle.options())?;
            draw::tree(&mut self.out, &keyspace.levels)?;
        }
        draw::files(&mut self.out, &db_files(self.dir)?)?;
        writeln!(self.out, "in steps 1 to 4:")?;
        draw::counters(&mut self.out, so_far)?;
        db.close()?;
        let report = cairn::check(self.dir, &mut |_| {})?;
        if let Some(problem) = report.problems.first() {
            return Err(Failure::damage(format!("{}: {}", problem.file, problem.what)));
        }
        writeln!(
            self.out,
            "\n7. Check: {} in {} tables, every checksum and invariant holds after {rounds} crashes",
            human_bytes(report.bytes),
            human_count(report.tables)
        )?;
        Ok(())
    }
}
