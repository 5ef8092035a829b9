//! A reader beside the child of the kill test: a process that reads moments of the database until it is killed, verifies each, holds some, and copies
//! some, while the child writes, is killed, and its database is opened by others.

use super::bank::TELLERS;
use super::record::{READER, Record};
use super::reports::{ANY, KillCounts, Reports};
use super::script::{LOADER, WRITERS, temporary};
use super::verify::{temporary_names, verify_contents};
use crate::finding::{Finding, Outcome, ensure};
use crate::random::Rng;
use cairn::{Database, ErrorKind, Options};
use clap::Args;
use std::path::PathBuf;
use std::time::Duration;

/// Moments that are held at most.
const HELD: usize = 3;

/// Pause before it looks again for a database.
const PAUSE: Duration = Duration::from_millis(1);

/// The arguments that the parent passes to the reader.
#[derive(Args)]
pub struct ReaderArgs {
    /// Directory of the database.
    #[arg(long)]
    pub dir: PathBuf,
    /// Seed of what it does.
    #[arg(long)]
    pub seed: u64,
}

/// Reads until killed. Returns only on an error.
pub fn reader(args: ReaderArgs) -> Outcome {
    let mut rng = Rng::new(args.seed);
    let mut db = open(&args)?;
    let mut known = Reports::new();
    let mut held: Vec<(Database, Reports)> = Vec::new();
    for number in 1.. {
        verify(&db, &mut known)?;
        let record = Record { thread: READER, promised: false, number };
        record.report().map_err(|e| Finding::new(format!("the parent does not listen: {e}")))?;
        if rng.chance(1, 4) {
            held.push((db.clone(), known.clone()));
        }
        if held.len() > HELD || rng.chance(1, 8) && !held.is_empty() {
            let at = rng.below(held.len() as u64) as usize;
            let (db, mut then) = held.swap_remove(at);
            verify(&db, &mut then).map_err(|f| f.context("a moment that was held"))?;
            if rng.chance(1, 4) {
                copy(&args, &db, then)?;
            }
        }
        db = match rng.chance(1, 16) {
            true => open(&args)?,
            false => db.refresh().map_err(|e| Finding::from(e).context("P3: refreshing"))?,
        };
    }
    Ok(())
}

/// Opens the database as soon as there is one.
fn open(args: &ReaderArgs) -> Outcome<Database> {
    loop {
        let options = Options::default().memory_budget(4 << 20);
        match Database::builder().options(options).open_read_only(&args.dir) {
            Err(e) if e.kind() == ErrorKind::NotFound => std::thread::sleep(PAUSE),
            opened => return opened.map_err(|e| Finding::from(e).context("P3: opening for reading")),
        }
    }
}

/// Makes a checkpoint of a moment, which has what the moment has. A reader before may have been killed in the midst of one.
fn copy(args: &ReaderArgs, db: &Database, mut then: Reports) -> Outcome {
    let dir = args.dir.with_file_name("reader-copy");
    let removed = std::fs::remove_dir_all(&dir);
    let absent = removed.as_ref().is_err_and(|e| e.kind() == std::io::ErrorKind::NotFound);
    ensure!(removed.is_ok() || absent, "removing {}: {removed:?}", dir.display());
    db.checkpoint(&dir).map_err(|e| Finding::from(e).context("P3: a checkpoint of a moment"))?;
    let options = Options::default().memory_budget(4 << 20);
    let copy = Database::open_with(&dir, options).map_err(|e| Finding::from(e).context("P3: a copy"))?;
    verify(&copy, &mut then).map_err(|f| f.context("a copy of a moment"))?;
    Ok(copy.close()?)
}

/// Verifies a moment. It is not older than one that was seen before.
fn verify(db: &Database, known: &mut Reports) -> Outcome {
    // More may have been written than was seen.
    for thread in (0..WRITERS).chain(TELLERS).chain([LOADER]) {
        known.entry(thread).or_default().reported = ANY;
    }
    let names = temporary_names(db);
    let number = names.first().and_then(|name| name.strip_prefix("tmp-")?.parse::<u64>().ok());
    let steps = number.map_or(0, |number| 2 * number - 1);
    ensure!(temporary(steps) == names, "P2: the temporary keyspaces of a moment are {names:?}");
    verify_contents(db, known, &KillCounts::default())
}
