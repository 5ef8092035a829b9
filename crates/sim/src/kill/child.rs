//! The child of the kill test: writes until it is killed, and reports completed writes on standard output.

use super::bank::{Bank, TELLERS};
use super::kill_point::{KillPoint, KillPointEnv};
use super::record::{OPENING, READY, Record};
use super::script::{
    BACKUP, CATALOG, CHECKPOINT, COPIER, COUNTS, LOADED, LOADER, NAMES, WRITERS, change_catalog,
    counts_options, durability, load, loaded_options, number_of, options, write,
};
use crate::finding::{Finding, Outcome};
use crate::ordering::sorted_entries;
use cairn::env::RealEnv;
use cairn::{BackupOptions, Database, Durability, Keyspace};
use clap::Args;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Checkpoints of a child at most: they take space.
const MAX_CHECKPOINTS: u64 = 3;

/// Pause between copies, and between loads: each of them ends with syncs, behind which writers would wait all the time.
const PAUSE: Duration = Duration::from_millis(3);

/// The arguments that the parent passes to the child.
#[derive(Args)]
pub struct ChildArgs {
    /// Directory of the database.
    #[arg(long)]
    pub dir: PathBuf,
    /// Seed of the options.
    #[arg(long)]
    pub seed: u64,
    /// Number of steps that the catalog thread has already done.
    #[arg(long)]
    pub catalog_steps: u64,
    /// The operation at which the child kills itself.
    #[arg(long)]
    pub kill_point: Option<KillPoint>,
}

fn report(record: Record) -> Outcome {
    record.report().map_err(|e| Finding::new(format!("the parent does not listen: {e}")))
}

/// Opens the database and writes until killed. Returns only on an error.
pub fn child(args: ChildArgs) -> Outcome {
    let (options, keyspace_options) = options(args.seed);
    let env = args.kill_point.map_or_else(RealEnv::new, KillPointEnv::new);
    report(Record { thread: OPENING, promised: false, number: 0 })?;
    let db = Database::open_in(env, &args.dir, options)?;
    let mut spaces = Vec::new();
    for name in NAMES {
        spaces.push(db.keyspace(name, keyspace_options.clone())?);
    }
    spaces.push(db.keyspace(COUNTS, counts_options())?);
    let spaces: [Keyspace; 4] = spaces.try_into().map_err(|_| Finding::new("there are four names"))?;
    let loaded = LOADED.map(|name| db.keyspace(name, loaded_options()));
    let loaded = loaded.into_iter().collect::<cairn::Result<Vec<_>>>()?;
    let bank = Bank::open(&db, &keyspace_options)?;
    report(Record { thread: READY, promised: false, number: 0 })?;
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for thread in 0..WRITERS {
            let (db, spaces) = (&db, &spaces);
            threads.push(scope.spawn(move || writer(db, spaces, thread)));
        }
        for teller in TELLERS {
            let (db, bank) = (&db, &bank);
            threads.push(scope.spawn(move || exit_on_finding(teller, bank.transfer(db, teller))));
        }
        let (loading, loaded) = (&db, &loaded);
        threads.push(scope.spawn(move || exit_on_finding(LOADER, load_on(loading, loaded))));
        let (copied, path) = (&db, &args.dir);
        threads.push(scope.spawn(move || exit_on_finding(COPIER, copy(copied, path))));
        let mut number = args.catalog_steps;
        let catalog: Outcome = loop {
            number += 1;
            let record = Record { thread: CATALOG, promised: true, number };
            let done = change_catalog(&db, &keyspace_options, number).map_err(Finding::from);
            if let Err(finding) = done.and_then(|()| report(record)) {
                break Err(finding);
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        };
        // The writer threads would continue forever.
        if let Err(finding) = catalog {
            eprintln!("{finding}");
            std::process::exit(1);
        }
        Ok(())
    })
}

/// Makes checkpoints and backups beside the database until the process is killed.
fn copy(db: &Database, path: &Path) -> Outcome {
    for n in 0.. {
        if n < MAX_CHECKPOINTS {
            db.checkpoint(path.with_file_name(format!("{CHECKPOINT}{}-{n}", std::process::id())))?;
        }
        db.backup_with(path.with_file_name(BACKUP), &BackupOptions::default().keep(2), &mut |_| ())?;
        std::thread::sleep(PAUSE);
    }
    Ok(())
}

/// Loads in bulk until the process is killed.
fn load_on(db: &Database, spaces: &[Keyspace]) -> Outcome {
    let last = spaces[0].get("00")?.map(|value| String::from_utf8_lossy(&value).parse::<u64>());
    let mut number = last.transpose().map_err(|e| Finding::new(format!("a load: {e}")))?.unwrap_or(0);
    loop {
        number += 1;
        load(db, spaces, number)?;
        report(Record { thread: LOADER, promised: true, number })?;
        std::thread::sleep(PAUSE);
    }
}

/// Continues the writes of one thread after the last one in the database.
fn writer(db: &Database, spaces: &[Keyspace; 4], thread: u32) {
    exit_on_finding(thread, write_on(db, spaces, thread));
}

fn exit_on_finding(thread: u32, outcome: Outcome) {
    if let Err(finding) = outcome {
        eprintln!("thread {thread}: {finding}");
        std::process::exit(1);
    }
}

fn write_on(db: &Database, spaces: &[Keyspace; 4], thread: u32) -> Outcome {
    let own = format!("{thread}/");
    let mut entries = sorted_entries(&spaces[0], None)?;
    entries.retain(|(key, _)| key.starts_with(own.as_bytes()));
    let last = entries.pop();
    let mut number = last.and_then(|(key, _)| number_of(&key)).unwrap_or(0);
    loop {
        number += 1;
        write(db, spaces, thread, number)?;
        report(Record { thread, promised: durability(thread, number) != Durability::Buffered, number })?;
        if thread == 0 && number.is_multiple_of(500) {
            spaces[0].flush()?;
        }
        if thread == 1 && number.is_multiple_of(1200) {
            spaces[0].compact()?;
        }
    }
}
