//! Salvage: writes a new database from the intact parts of a damaged one, which it does not change.
//!
//! It runs only on request, and reports what it could not read. The steps:
//!
//! 1. `sources`: an intact manifest names the tables and keyspaces. Of a damaged one the intact edits count; then every table on disk is
//!    used, except those that these edits delete. Each table names its keyspace.
//! 2. Each table is read from front to back, skipping everything that is damaged (`table::SalvageCursor`).
//! 3. `logs`: ordinary replay if it succeeds; otherwise every intact batch counts, before and after damage.
//! 4. Everything is merged by key, and the newest version of each key goes into the new database, unless it is a tombstone or is hidden by
//!    a range tombstone of the manifest or the logs. Of keyspaces with history all versions go there, with their times.
//!
//! Cost: the tables are read twice, once to survey them and once to merge; the two results are compared, so that a disk that fails in
//! between is a loss in the report. Memory: the contents of the logs, and for each table a block and 64 KiB.
//!
//! Imports `types`, `wal`, `state`, `open` and `api`. Absent: changes of the damaged database; other rooms import nothing from here.

use crate::api::{Database, Keyspace};
use crate::open::{Files, LOCK_FILE_NAME, no_database};
use crate::state::split_value;
use crate::types::{Durability, Options};
use base::{Cursor as _, Error, ErrorKind, MAX_SEQ, Operands, RangeSet, Result, Time};
use env::{Env, RealEnv};
use history::{Shown, VersionWalk};
use memtable::MemtableCursor;
use sources::{KeyspaceSource, Salvage, TableSource};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use table::SalvageCursor;
use tree::MergeCursor;
use values::Values;

mod hash_logs;
mod logs;
mod report;
mod sources;
mod values;

pub use report::{Loss, SalvageReport, SalvagedFile, SalvagedKeyspace};

/// Writes a new database to `to` from the intact parts of the one in `from`. See [`salvage_in`].
///
/// # Errors
/// As for [`salvage_in`].
pub fn salvage(from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<SalvageReport> {
    salvage_in(RealEnv::new(), from, to, Options::default())
}

/// Writes a new database to the directory `to`, which must be empty or absent, from the intact parts of the one in `from`, which must not
/// be open and is not changed. The new database is opened with `options`. Do not use it before this call has returned.
///
/// An intact database is copied completely. Otherwise the report lists the losses: the file and offset, the keys that may be affected,
/// and whether older versions of them may have reappeared.
///
/// # Errors
/// `NotFound` when there is no database; `Locked` when it is open; `AlreadyExists` when `to` exists and is not an empty directory;
/// `InvalidArgument` when one of the directories lies inside the other; `Unsupported` when a newer Cairn wrote the database; errors of
/// writing the new database.
pub fn salvage_in(
    env: Arc<dyn Env>,
    from: impl AsRef<Path>,
    to: impl AsRef<Path>,
    options: Options,
) -> Result<SalvageReport> {
    let (from, to) = (from.as_ref(), to.as_ref());
    if !env.exists(from)? {
        return Err(no_database(from));
    }
    let lock = from.join(LOCK_FILE_NAME);
    // Without a lock file no process has the database open.
    let _lock = match env.exists(&lock)? {
        true => Some(env.lock_read_only(&lock)?),
        false => None,
    };
    let files = Files::list(&env, from)?;
    if files.is_empty() {
        return Err(no_database(from));
    }
    check_destination(&env, from, to)?;
    let mut salvage = Salvage::new(&env, from, &files);
    salvage.find_sources()?;
    let mut values = Values::find(&salvage);
    salvage.read_logs()?;
    salvage.judge_logs();
    let builder = Database::builder().options(options.create_if_missing(true)).env(env.clone());
    let db = builder.without_merge_operators().open(to)?;
    let (historical, sources): (BTreeMap<_, _>, BTreeMap<_, _>) = std::mem::take(&mut salvage.keyspaces)
        .into_iter()
        .partition(|(_, source)| source.history_of.is_some());
    let mut historical: BTreeMap<_, _> =
        historical.into_values().filter_map(|source| Some((source.history_of?, source))).collect();
    for (id, source) in &sources {
        match source.has_times() {
            _ if source.options.is_hash_log() => salvage.write_hash_log(&db, *id, source)?,
            true => {
                let older = historical.remove(id).unwrap_or_default();
                salvage.write_versions(&db, source, &older, &mut values)?;
            }
            false => salvage.write(&db, source, &mut values)?,
        }
    }
    for source in historical.into_values() {
        salvage.note(format!("keyspace {:?} is gone, and its older versions with it", source.name));
    }
    values.report(&mut salvage);
    db.flush()?;
    db.close()?;
    Ok(salvage.report)
}

/// The destination must be empty and outside of the damaged database.
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

/// One sorted run of a salvaged keyspace.
#[allow(clippy::large_enum_variant)]
enum Run {
    Table(SalvageCursor),
    Log(MemtableCursor),
}

base::delegate_cursor!(Run { Table, Log });

impl Salvage<'_> {
    /// Writes one keyspace: the newest version of each key that is not a tombstone.
    fn write(&mut self, db: &Database, source: &KeyspaceSource, values: &mut Values) -> Result<()> {
        let keyspace = db.create_keyspace(&source.name, source.options.clone())?;
        let mut written = SalvagedKeyspace { name: source.name.clone(), ..SalvagedKeyspace::default() };
        let ranges = ranges_of(source);
        let mut merge = self.runs(source);
        let mut last: Option<Vec<u8>> = None;
        merge.seek_to_first()?;
        while merge.valid() {
            if last.as_deref() != Some(merge.key()) {
                let last = last.get_or_insert_default();
                last.clear();
                last.extend_from_slice(merge.key());
                let deleted = ranges.newest(last, MAX_SEQ);
                // They are written again, since their operator may be known to the application alone.
                let mut operands = Operands::default();
                while merge.valid() && merge.key() == &last[..] && merge.trailer().is_merge() {
                    if merge.trailer().seq() < deleted {
                        break;
                    }
                    // The same one may be in two places.
                    if operands.oldest() != Some(merge.trailer()) {
                        operands.push(merge.trailer(), merge.value());
                    }
                    merge.next()?;
                }
                let has_base = merge.valid() && merge.key() == &last[..];
                let deleted = has_base && deleted > merge.trailer().seq();
                let mut is_lost = false;
                if has_base && !merge.trailer().is_delete() && !deleted {
                    let split = split_value(merge.trailer(), merge.value());
                    let (stored, expiry) = match split {
                        Ok((stored, expiry)) => (Some(stored), expiry),
                        Err(e) => {
                            let loss = Loss { keyspace: Some(source.name.clone()), ..Loss::of("tables", &e) };
                            self.report.losses.push(Loss { from: Some(merge.key().to_vec()), ..loss });
                            (None, None)
                        }
                    };
                    let referred = match merge.trailer().is_reference() {
                        true => stored.map(|stored| values.read(&source.name, merge.key(), stored)),
                        false => None,
                    };
                    let value = referred.as_ref().map_or(stored, |value| value.as_deref());
                    is_lost = value.is_none();
                    if let Some(value) = value {
                        let expiry = expiry.unwrap_or(Time::MAX);
                        match keyspace.put_until_with(merge.key(), value, expiry, Durability::Buffered) {
                            Ok(()) => {
                                written.entries += 1;
                                written.bytes += (merge.key().len() + value.len()) as u64;
                            }
                            // No Cairn writes such an entry.
                            Err(e) if e.kind() == ErrorKind::InvalidArgument => {
                                let loss =
                                    Loss { keyspace: Some(source.name.clone()), ..Loss::of("tables", &e) };
                                self.report.losses.push(Loss { from: Some(merge.key().to_vec()), ..loss });
                            }
                            Err(e) => return Err(e),
                        }
                    }
                }
                // Without the value below them they would make a wrong one.
                if !operands.is_empty() && !is_lost {
                    written.entries += u64::from(!has_base || deleted);
                    self.write_operands(&keyspace, last, operands, &mut written)?;
                }
                if !has_base {
                    continue;
                }
            }
            merge.next()?;
        }
        self.compare_reads(source, &merge);
        self.report.keyspaces.push(written);
        Ok(())
    }

    /// Writes the operands of a key, above its value.
    fn write_operands(
        &mut self,
        keyspace: &Keyspace,
        key: &[u8],
        mut operands: Operands,
        written: &mut SalvagedKeyspace,
    ) -> Result<()> {
        let all: Vec<_> = operands.drain().collect();
        for (_, operand) in all.iter().rev() {
            match keyspace.merge_with(key, operand, Durability::Buffered) {
                Ok(()) => written.bytes += (key.len() + operand.len()) as u64,
                // No Cairn writes such an entry.
                Err(e) if e.kind() == ErrorKind::InvalidArgument => {
                    let loss = Loss { keyspace: Some(keyspace.name().to_owned()), ..Loss::of("tables", &e) };
                    self.report.losses.push(Loss { from: Some(key.to_vec()), ..loss });
                }
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Writes one keyspace with history: all versions, with their times.
    fn write_versions(
        &mut self,
        db: &Database,
        source: &KeyspaceSource,
        older: &KeyspaceSource,
        values: &mut Values,
    ) -> Result<()> {
        let keyspace = db.create_keyspace(&source.name, source.options.clone())?;
        let mut written = SalvagedKeyspace { name: source.name.clone(), ..SalvagedKeyspace::default() };
        let (newest, older_runs, ranges) = (self.runs(source), self.runs(older), ranges_of(source));
        let all = Shown::Window(Time::MIN, Time::MAX);
        let mut walk = VersionWalk::new(newest, older_runs, ranges, MAX_SEQ, all, (b"", None));
        let mut key = Vec::new();
        let mut walked = walk.seek_to_first();
        while let (Ok(()), Some(version)) = (&walked, walk.version()) {
            key.clear();
            walk.put_key(&mut key)?;
            let mut batch = db.batch();
            batch.take_any_time();
            batch.is_copy = true;
            if version.is_delete {
                batch.delete_at(&keyspace, &key, version.time);
            } else {
                let referred = match version.trailer.is_reference() {
                    true => values.read(&source.name, &key, &version.value),
                    false => Some(version.value.clone()),
                };
                match referred {
                    Some(value) => {
                        batch.put_at(&keyspace, &key, &value, version.time);
                        written.entries += 1;
                        written.bytes += (key.len() + value.len()) as u64;
                    }
                    // No older version takes the place of a lost value.
                    None => batch.delete_at(&keyspace, &key, version.time),
                }
            }
            db.write(batch, Durability::Buffered)?;
            walked = walk.next();
        }
        let is_whole = walked.is_ok();
        if let Err(e) = walked {
            // Nothing behind the entry can be told to be a version.
            let loss = Loss { keyspace: Some(source.name.clone()), ..Loss::of("tables", &e) };
            self.report.losses.push(Loss { from: Some(key), ..loss });
        }
        for (source, merge) in [source, older].into_iter().zip(walk.cursors()).filter(|_| is_whole) {
            self.compare_reads(source, merge);
        }
        self.report.keyspaces.push(written);
        Ok(())
    }

    /// The sorted runs of a keyspace, merged. A table that can no longer be opened is a loss.
    fn runs(&mut self, source: &KeyspaceSource) -> MergeCursor<Run> {
        let mut runs = Vec::new();
        for table in &source.tables {
            match SalvageCursor::open(self.env, self.dir, table.number) {
                Ok(cursor) => runs.push(Run::Table(cursor)),
                Err(e) => self.report.losses.push(unlike_before(source, table, &e.to_string())),
            }
        }
        runs.extend(source.memtables.iter().map(|memtable| Run::Log(memtable.cursor())));
        MergeCursor::new(runs, 0)
    }

    /// Compares what was read of tables with the survey.
    fn compare_reads(&mut self, source: &KeyspaceSource, merge: &MergeCursor<Run>) {
        for run in merge.children() {
            let Run::Table(cursor) = run else { continue };
            let table = source.tables.iter().find(|table| table.number == cursor.number());
            if let Some(table) = table.filter(|table| table.fingerprint != cursor.fingerprint()) {
                self.report.losses.push(unlike_before(source, table, "it gave other entries"));
            }
        }
    }
}

/// The range tombstones of a keyspace: those of the manifest and of the logs.
fn ranges_of(source: &KeyspaceSource) -> RangeSet {
    let recent: Vec<_> = source.memtables.iter().filter_map(|memtable| memtable.ranges()).collect();
    RangeSet::union(recent.iter().map(|set| &**set).chain([&source.ranges]))
}

/// The loss when a table read differently than in the survey: the disk does not return the same data twice.
fn unlike_before(source: &KeyspaceSource, table: &TableSource, why: &str) -> Loss {
    let what =
        format!("read twice, it was not the same ({why}): the disk may be failing; salvage it once more");
    let loss = Loss::new(table::table_file_name(table.number), what);
    Loss { keyspace: Some(source.name.clone()), older: true, ..loss.within(&table.smallest, &table.largest) }
}
