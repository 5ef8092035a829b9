//! Salvage: a new database from what can be had of a damaged one, which is not touched.
//!
//! Asked for, never done by itself; and it tells what it could not have. In this order:
//!
//! 1. `sources`: the manifest says which tables and keyspaces there are. Where it is damaged, what is intact of it says it in
//!    part; and then every table on disk counts, but those that it says are gone. A table says itself whose it is.
//! 2. Each table is read from front to back, past everything that is damaged (`table::SalvageCursor`).
//! 3. `logs`: as opening does, if it would; otherwise every intact batch counts, in front of damage and behind it.
//! 4. All of it is merged by key, and of each key the version with the largest sequence number goes into the new database,
//!    unless it is a tombstone, or a range tombstone of the manifest or the logs hides it.
//!
//! Cost: the tables are read twice, once to see what they hold and once to merge; what comes the second time is held against what
//! came the first, so that a disk that fails in between is a loss in the report. Memory: what the logs hold, and for each
//! table a block and 64 KiB.

mod logs;
mod report;
mod sources;

pub use report::{Loss, SalvageReport, SalvagedFile, SalvagedKeyspace};

use crate::file_names::{Files, LOCK_FILE_NAME};
use crate::{Database, Durability, Options};
use base::{Cursor as _, Error, ErrorKind, MAX_SEQ, RangeSet, Result};
use env::{Env, RealEnv};
use memtable::MemtableCursor;
use sources::{KeyspaceSource, Sources, TableSource};
use std::path::Path;
use std::sync::Arc;
use table::SalvageCursor;
use tree::MergeCursor;

/// Writes a new database to `to` from what can be had of the one in `from`. See [`salvage_in`].
///
/// # Errors
/// As for [`salvage_in`].
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
/// `NotFound` when there is no database; `Locked` when it is open; `AlreadyExists` when there is something at the destination; `InvalidArgument` when
/// one of the directories lies in the other;
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
    check_destination(&env, from, to)?;
    let mut report = SalvageReport::default();
    let mut sources = Sources::find(&env, from, &files, &mut report)?;
    logs::read(&env, from, &files, &mut sources, &mut report)?;
    sources.judge_logs(&mut report);
    let db = Database::open_in(env.clone(), to, options.create(true))?;
    for id in sources.ids() {
        write(&db, &env, from, &sources.keyspaces[&id], &mut report)?;
    }
    db.flush()?;
    db.close()?;
    Ok(report)
}

/// The new database must not come to lie among other files, least of all those of the old one.
fn check_destination(env: &Arc<dyn Env>, from: &Path, to: &Path) -> Result<()> {
    if env.exists(to)? && !env.is_empty_dir(to)? {
        let message = format!("{}: not empty; salvage writes a new database", to.display());
        return Err(Error::new(ErrorKind::AlreadyExists, message));
    }
    let (old, new) = (env.canonical(from)?, env.canonical(to)?);
    if old.starts_with(&new) || new.starts_with(&old) {
        let message = format!("{} and {}: one lies in the other", from.display(), to.display());
        return Err(Error::new(ErrorKind::InvalidArgument, message));
    }
    Ok(())
}

impl Database {
    /// See [`salvage`](crate::salvage()).
    ///
    /// # Errors
    /// As for [`salvage`](crate::salvage()).
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
    source: &KeyspaceSource,
    report: &mut SalvageReport,
) -> Result<()> {
    let keyspace = db.create_keyspace(&source.name, source.options.clone())?;
    let mut written = SalvagedKeyspace { name: source.name.clone(), ..SalvagedKeyspace::default() };
    let mut runs = Vec::new();
    for table in &source.tables {
        match SalvageCursor::open(env, from, table.number) {
            Ok(cursor) => runs.push(Run::Table(cursor)),
            Err(e) => report.losses.push(unlike_before(source, table, &e.to_string())),
        }
    }
    runs.extend(source.memtables.iter().map(|memtable| Run::Log(memtable.cursor())));
    let recent: Vec<_> = source.memtables.iter().filter_map(|memtable| memtable.ranges()).collect();
    let ranges = RangeSet::union(recent.iter().map(|set| &**set).chain([&source.ranges]));
    let mut merge = MergeCursor::new(runs, 0);
    let mut last: Option<Vec<u8>> = None;
    merge.seek_to_first()?;
    while merge.valid() {
        if last.as_deref() != Some(merge.key()) {
            let last = last.get_or_insert_default();
            last.clear();
            last.extend_from_slice(merge.key());
            let deleted = ranges.newest(merge.key(), MAX_SEQ) > merge.trailer().seq();
            if !merge.trailer().is_delete() && !deleted {
                keyspace.put_with(merge.key(), merge.value(), Durability::Buffered)?;
                written.entries += 1;
                written.bytes += (merge.key().len() + merge.value().len()) as u64;
            }
        }
        merge.next()?;
    }
    for run in merge.children() {
        let Run::Table(cursor) = run else { continue };
        let table = source.tables.iter().find(|table| table.number == cursor.number());
        if let Some(table) = table.filter(|table| table.fingerprint != cursor.fingerprint()) {
            report.losses.push(unlike_before(source, table, "it gave other entries"));
        }
    }
    report.keyspaces.push(written);
    Ok(())
}

/// What was surveyed of a table was not there when it was to be written: the disk does not give the same twice.
fn unlike_before(source: &KeyspaceSource, table: &TableSource, why: &str) -> Loss {
    Loss {
        file: table::table_file_name(table.number),
        keyspace: Some(source.name.clone()),
        from: Some(table.smallest.clone()),
        to: Some(table.largest.clone()),
        older: true,
        what: format!(
            "read twice, it was not the same ({why}): the disk may be failing; salvage it once more"
        ),
        ..Loss::default()
    }
}
