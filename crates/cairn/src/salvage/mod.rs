//! Salvage: a new database from what can be had of a damaged one, which is not touched.
//!
//! Asked for, never done by itself; and it tells what it could not have. In this order:
//!
//! 1. `sources`: the manifest says which tables and keyspaces there are. Where it is damaged, what is intact of it says it in
//!    part; and then every table on disk counts, but those that it says are gone. A table says itself whose it is.
//! 2. Each table is read from front to back, past everything that is damaged (`table::SalvageCursor`).
//! 3. `logs`: as opening does, if it would; otherwise every intact batch counts, in front of damage and behind it.
//! 4. All of it is merged by key, and of each key the version with the largest sequence number goes into the new database,
//!    unless it is a tombstone.
//!
//! Cost: the tables are read twice, once to see what they hold and once to merge. Memory: what the logs hold, and for each
//! table a block and 64 KiB.

mod logs;
mod report;
mod sources;

pub use report::{Loss, SalvageReport, SalvagedFile, SalvagedKeyspace};

use crate::files::{Files, LOCK_FILE_NAME};
use crate::{Database, Durability, Options};
use base::{Cursor as _, Error, ErrorKind, Result};
use env::{Env, RealEnv};
use memtable::MemtableCursor;
use sources::Sources;
use std::path::Path;
use std::sync::Arc;
use table::SalvageCursor;
use tree::MergeCursor;

/// Writes a new database to `to` from what can be had of the one in `from`. See [`salvage_in`].
pub fn salvage(from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<SalvageReport> {
    salvage_in(RealEnv::new(), from, to, Options::default())
}

/// Writes a new database to the directory `to`, which must be empty or not there, from what can be had of the one in `from`, which
/// must not be open and is not changed. The new database is opened with `options`. It must not be used before this has ended.
///
/// A sound database is copied whole. Otherwise the report tells what is lost: where in which file, which keys that may concern,
/// and whether older versions of them may have come back.
///
/// # Errors
/// `NotFound` when there is no database; `Locked` when it is open; `AlreadyExists` when there is something at the destination;
/// `Unsupported` when a newer Cairn wrote it; errors of writing the new database.
pub fn salvage_in(
    env: Arc<dyn Env>,
    from: impl AsRef<Path>,
    to: impl AsRef<Path>,
    options: Options,
) -> Result<SalvageReport> {
    let (from, to) = (from.as_ref(), to.as_ref());
    let nothing = || Error::new(ErrorKind::NotFound, format!("{}: there is no database", from.display()));
    if !env.exists(from)? {
        return Err(nothing());
    }
    let lock = from.join(LOCK_FILE_NAME);
    // Without a lock file nobody has it open.
    let _lock = match env.exists(&lock)? {
        true => Some(env.lock_to_look(&lock)?),
        false => None,
    };
    let files = Files::list(&env, from)?;
    if files.manifests.is_empty() && files.tables.is_empty() && files.logs.is_empty() {
        return Err(nothing());
    }
    if env.exists(to)? && (!env.list(to)?.is_empty() || from == to) {
        let message = format!("{}: not empty; salvage writes a new database", to.display());
        return Err(Error::new(ErrorKind::AlreadyExists, message));
    }
    let mut report = SalvageReport::default();
    let mut sources = Sources::find(&env, from, &files, &mut report)?;
    logs::read(&env, from, &files, &mut sources, &mut report)?;
    sources.judge_logs(&mut report);
    let db = Database::open_in(env.clone(), to, options.create(true))?;
    for id in sources.ids() {
        let written = write(&db, &env, from, &sources, id)?;
        report.keyspaces.push(written);
    }
    db.flush()?;
    db.close()?;
    Ok(report)
}

impl Database {
    /// See [`salvage`](crate::salvage()).
    pub fn salvage(from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<SalvageReport> {
        salvage(from, to)
    }
}

/// One sorted run of what was found.
#[allow(clippy::large_enum_variant)]
enum Run {
    Table(SalvageCursor),
    Log(MemtableCursor),
}

base::delegate_cursor!(Run { Table, Log });

/// Writes one keyspace: the newest version of each key that is no tombstone.
fn write(
    db: &Database,
    env: &Arc<dyn Env>,
    from: &Path,
    sources: &Sources,
    id: u64,
) -> Result<SalvagedKeyspace> {
    let source = &sources.keyspaces[&id];
    let keyspace = db.create_keyspace(&source.name, source.options.clone())?;
    let mut written = SalvagedKeyspace { name: source.name.clone(), ..SalvagedKeyspace::default() };
    let mut runs = Vec::new();
    for number in &source.tables {
        runs.push(Run::Table(SalvageCursor::open(env, from, *number)?));
    }
    runs.extend(source.memtables.iter().map(|memtable| Run::Log(memtable.cursor())));
    let mut merge = MergeCursor::new(runs, 0);
    let mut last: Option<Vec<u8>> = None;
    merge.seek_to_first()?;
    while merge.valid() {
        if last.as_deref() != Some(merge.key()) {
            let last = last.get_or_insert_default();
            last.clear();
            last.extend_from_slice(merge.key());
            if !merge.trailer().is_delete() {
                keyspace.put_with(merge.key(), merge.value(), Durability::Buffered)?;
                written.entries += 1;
                written.bytes += (merge.key().len() + merge.value().len()) as u64;
            }
        }
        merge.next()?;
    }
    Ok(written)
}
