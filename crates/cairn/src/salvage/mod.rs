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
use crate::copies::check_apart;
use crate::open::{Files, LOCK_FILE_NAME, no_database};
use crate::state::split_value;
use crate::types::{Durability, Merge, Options};
use base::{Cursor as _, Error, ErrorKind, MAX_SEQ, RangeSet, Result, Slice, Time};
use by_time::ByTime;
use env::{Env, RealEnv};
use history::{Shown, VersionWalk};
use memtable::MemtableCursor;
use operands::FoundOperands;
use sources::{KeyspaceSource, Salvage, TableSource};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use table::SalvageCursor;
use tree::MergeCursor;
use values::Values;

mod by_time;
mod hash_logs;
mod logs;
mod operands;
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
/// `InvalidArgument` when one of the directories lies inside the other; `Unsupported` when a newer Cairn wrote the database, or it needs a feature that this program
/// was built without: then nothing was created; errors of writing the new database.
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
    for source in salvage.keyspaces.values() {
        source.options.check_readable(&source.name, from)?;
    }
    let builder = Database::builder().options(options.create_if_missing(true)).env(env.clone());
    let db = builder.with_unchecked_operands().open(to)?;
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
    check_apart(env, to, from)
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
        if source.options.merge != Merge::None {
            // First, because a merge is no operand once an entry may expire.
            self.write_keys(&keyspace, source, values, Keys::WithOperands, &mut written)?;
        }
        self.write_keys(&keyspace, source, values, Keys::Others, &mut written)?;
        self.report.keyspaces.push(written);
        Ok(())
    }

    fn write_keys(
        &mut self,
        keyspace: &Keyspace,
        source: &KeyspaceSource,
        values: &mut Values,
        keys: Keys,
        written: &mut SalvagedKeyspace,
    ) -> Result<()> {
        let ranges = ranges_of(source);
        let mut merge = self.runs(source);
        let mut last: Option<Vec<u8>> = None;
        merge.seek_to_first()?;
        while merge.valid() {
            if last.as_deref() == Some(merge.key()) {
                merge.next()?;
                continue;
            }
            let key = last.get_or_insert_default();
            key.clear();
            key.extend_from_slice(merge.key());
            let deleted = ranges.newest(key, MAX_SEQ);
            let operands = FoundOperands::gather(&mut merge, key, deleted)?;
            let is_wanted = match keys {
                Keys::WithOperands => operands.are_found(),
                Keys::Others => !operands.are_found() || source.options.merge == Merge::None,
            };
            let has_value = merge.valid()
                && merge.key() == &key[..]
                && !merge.trailer().is_delete()
                && merge.trailer().seq() >= deleted;
            if !is_wanted {
                continue;
            }
            let outcome = match &operands {
                _ if operands.is_ambiguous => Err(FoundOperands::ambiguous(key)),
                operands => {
                    let value = match has_value {
                        true => value_of(&merge, &source.name, values).map(|found| found.map(Some)),
                        false => Ok(Some(None)),
                    };
                    value.and_then(|value| match value {
                        // Without the value below them operands would make a wrong one.
                        None => Ok(()),
                        Some(value) => put_back(keyspace, key, value, operands, written),
                    })
                }
            };
            match outcome {
                Ok(()) => {}
                // No Cairn writes such an entry.
                Err(e) if matches!(e.kind(), ErrorKind::InvalidArgument | ErrorKind::Corruption) => {
                    let loss = Loss { keyspace: Some(source.name.clone()), ..Loss::of("tables", &e) };
                    self.report.losses.push(Loss { from: Some(key.clone()), ..loss });
                }
                Err(e) => return Err(e),
            }
        }
        if keys == Keys::Others {
            self.compare_reads(source, &merge);
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
        if source.kept_since > Time::MIN {
            keyspace.database().keep_since(&keyspace.inner, source.kept_since)?;
        }
        let mut written = SalvagedKeyspace { name: source.name.clone(), ..SalvagedKeyspace::default() };
        // Without a manifest the numbers of bulk loads are not known.
        let sorts = source.tables.iter().any(|table| !table.is_named);
        let newest = ByTime::new(self.runs(source), sorts);
        let (older_runs, ranges) = (ByTime::new(self.runs(older), false), ranges_of(source));
        let all = Shown::Window(Time::MIN, Time::MAX);
        let mut walk = VersionWalk::new(newest, older_runs, ranges, (MAX_SEQ, Time::MIN), all, (b"", None));
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
                        let expiry = version.expiry().unwrap_or(Time::MAX);
                        batch.put_at_until(&keyspace, &key, &value, version.time, expiry);
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
            self.compare_reads(source, merge.inner());
        }
        self.report.keyspaces.push(written);
        Ok(())
    }

    /// The sorted runs of a keyspace, merged. A table that can no longer be opened is a loss.
    fn runs(&mut self, source: &KeyspaceSource) -> MergeCursor<Run> {
        let mut runs = Vec::new();
        for table in &source.tables {
            match SalvageCursor::open(self.env, self.dir, table.number, table.seq_shift) {
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

/// The keys that a pass over a keyspace writes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Keys {
    WithOperands,
    Others,
}

/// The value on which a merge stands, and its expiry; `None` if it is outside of the tree and cannot be read, which is reported.
fn value_of(
    merge: &MergeCursor<Run>,
    keyspace: &str,
    values: &mut Values,
) -> Result<Option<(Slice, Option<Time>)>> {
    let (stored, expiry) = split_value(merge.trailer(), merge.value())?;
    let value = match merge.trailer().is_reference() {
        true => values.read(keyspace, merge.key(), stored),
        false => Some(Slice::copy_from(stored)),
    };
    Ok(value.map(|value| (value, expiry)))
}

/// Writes the value of a key, if it has one, and the operands above it.
fn put_back(
    keyspace: &Keyspace,
    key: &[u8],
    value: Option<(Slice, Option<Time>)>,
    operands: &FoundOperands,
    written: &mut SalvagedKeyspace,
) -> Result<()> {
    if value.is_none() && !operands.are_found() {
        return Ok(());
    }
    if let Some((value, expiry)) = value {
        keyspace.put_until_with(key, &value, expiry.unwrap_or(Time::MAX), Durability::Buffered)?;
        written.bytes += (key.len() + value.len()) as u64;
    }
    // They are written again, since their operator may be known to the application alone.
    for operand in operands.oldest_first() {
        keyspace.merge_with(key, operand, Durability::Buffered)?;
        written.bytes += (key.len() + operand.len()) as u64;
    }
    written.entries += 1;
    Ok(())
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
