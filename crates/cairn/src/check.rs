//! Checks every checksum of every file in use, and the invariants of every tree. Writes nothing. Behind `cairn::check` and
//! `Database::check`.

use crate::db_inner::DbInner;
use crate::file_names::{Files, LOCK_FILE_NAME};
use crate::recovery::{TableSpace, keyspace_options};
use crate::replay::{LogRecord, check_dropped, replay};
use crate::{CheckProgress, CheckReport, Options, Problem};
use base::{Error, ErrorKind, Result};
use env::{Env, RealEnv};
use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use table::TableMeta;
use tree::{LiveTable, Manifest, Version, manifest_file_name};

/// Checks the database in `path`, which must not be open, without changing anything. See [`check_in`].
///
/// # Errors
/// As for [`check_in`].
pub fn check(path: impl AsRef<Path>, progress: &mut dyn FnMut(&CheckProgress)) -> Result<CheckReport> {
    check_in(RealEnv::new(), path, progress)
}

/// Checks the database in `path` of an environment: the manifest, every table (all blocks, the order of keys, the filter, the metadata in
/// the manifest), the order of guards and levels, and the log. Damage does not end the check: the report lists all of it.
///
/// # Errors
/// `NotFound` when there is no database; `Locked` when it is open; `Io`.
pub fn check_in(
    env: Arc<dyn Env>,
    path: impl AsRef<Path>,
    progress: &mut dyn FnMut(&CheckProgress),
) -> Result<CheckReport> {
    let dir = path.as_ref();
    let nothing = || Error::new(ErrorKind::NotFound, format!("{}: there is no database", dir.display()));
    if !env.exists(dir)? || !env.exists(&dir.join(LOCK_FILE_NAME))? {
        return Err(nothing());
    }
    let _lock = env.lock_read_only(&dir.join(LOCK_FILE_NAME))?;
    let files = Files::list(&env, dir)?;
    let mut report = Report::default();
    let Some(&number) = files.manifests.last() else {
        if files.tables.is_empty() && files.logs.is_empty() {
            return Err(nothing());
        }
        report.problem(&manifest_file_name(1), None, "there are tables or logs, but no manifest".into());
        return Ok(report.report);
    };
    let space = TableSpace::new(&env, dir, &Options::default());
    let state = match Manifest::read(&env, dir, number, &mut |meta| space.open_table(meta)) {
        Ok(state) => state,
        Err(e) => {
            report.error(&manifest_file_name(number), &e);
            return Ok(report.report);
        }
    };
    let versions: Vec<&Version> = state.keyspaces.values().map(|k| &k.version).collect();
    for keyspace in state.keyspaces.values() {
        report.check_invariants(&keyspace.created.name, &keyspace.version);
        if let Err(e) = keyspace_options(dir, keyspace) {
            report.error("manifest", &e);
        }
    }
    report.check_tables(&versions, progress, &|| Ok(()))?;
    report.check_unnamed(&files, &versions);
    match files.needed_logs(dir, &state) {
        Err(e) => report.error("log", &e),
        Ok(logs) => {
            let mut records = 0;
            let replayed = replay(&env, dir, &state, &logs, &mut |record| {
                records += 1;
                check_batch(record, &state)
            });
            report.report.log_records = records;
            if let Err(e) = replayed {
                report.error("log", &e);
            }
        }
    }
    Ok(report.report)
}

/// Checks that a record is a batch that recovery can replay.
fn check_batch(mut record: LogRecord<'_>, state: &tree::ManifestState) -> Result<()> {
    let malformed = || Error::corruption(record.path, record.offset, "this record is no batch");
    for _ in 0..record.batch.count {
        let entry = record.batch.entries.next().ok_or_else(malformed)?;
        if !state.keyspaces.contains_key(&entry.keyspace) {
            check_dropped(entry.keyspace, state, record.path, record.offset)?;
        }
    }
    match record.batch.entries.is_empty() {
        true => Ok(()),
        false => Err(malformed()),
    }
}

/// Checks the tables and trees of an open database.
pub(crate) fn check_open(core: &DbInner, progress: &mut dyn FnMut(&CheckProgress)) -> Result<CheckReport> {
    core.check_not_closed()?;
    let keyspaces: Vec<_> = core.state.lock().keyspaces.values().map(|k| k.core.clone()).collect();
    let views: Vec<_> = keyspaces.iter().map(|k| k.read_state.load_full()).collect();
    let mut report = Report::default();
    for (keyspace, read_state) in keyspaces.iter().zip(&views) {
        report.check_invariants(&keyspace.name, &read_state.version);
    }
    let versions: Vec<&Version> = views.iter().map(|v| &*v.version).collect();
    report.check_tables(&versions, progress, &|| core.check_not_closed())?;
    Ok(report.report)
}

impl Problem {
    /// The problem that an error describes, in the file that it names, otherwise in `file`.
    pub(crate) fn of(file: &str, error: &Error) -> Problem {
        let place = error.place();
        let named =
            place.and_then(|(path, _)| path.file_name()).map(|name| name.to_string_lossy().into_owned());
        Problem {
            file: named.unwrap_or_else(|| file.to_owned()),
            offset: place.map(|(_, offset)| offset),
            what: error.to_string(),
        }
    }
}

/// A report under construction, for checks and scrubs.
#[derive(Default)]
pub(crate) struct Report {
    pub report: CheckReport,
}

impl Report {
    fn problem(&mut self, file: &str, offset: Option<u64>, what: String) {
        self.report.problems.push(Problem { file: file.to_owned(), offset, what });
    }

    /// Records an error, in the file that it names if it names one.
    pub(crate) fn error(&mut self, file: &str, error: &Error) {
        self.report.problems.push(Problem::of(file, error));
    }

    fn check_invariants(&mut self, keyspace: &str, version: &Version) {
        self.report.keyspaces += 1;
        for problem in tree::check_version(version) {
            self.problem("manifest", None, format!("keyspace {keyspace:?}: {problem}"));
        }
    }

    /// Checks all tables. When `go_on` fails, the caller may no longer read the files: the check ends and records nothing.
    fn check_tables(
        &mut self,
        versions: &[&Version],
        progress: &mut dyn FnMut(&CheckProgress),
        go_on: &dyn Fn() -> Result<()>,
    ) -> Result<()> {
        let tables: Vec<&Arc<LiveTable>> = versions.iter().flat_map(|v| v.tables().map(|(_, t)| t)).collect();
        let bytes_total = tables.iter().map(|t| t.meta.file_size).sum();
        let mut done = 0;
        for table in tables {
            let file = table::table_file_name(table.meta.number);
            let mut step = |bytes: u64| {
                let bytes_done = done + bytes.min(table.meta.file_size);
                progress(&CheckProgress { bytes_done, bytes_total, file: file.clone() });
                go_on()
            };
            step(0)?;
            self.verify_table(table, &mut step)?;
            done += table.meta.file_size;
        }
        progress(&CheckProgress { bytes_done: done, bytes_total, file: String::new() });
        go_on()
    }

    /// Verifies one table, and records the findings here and in the table. Fails only when `step`, which gets the number of verified
    /// bytes, fails with `Closed`; `step` is called once more before damage is recorded.
    pub(crate) fn verify_table(
        &mut self,
        table: &LiveTable,
        step: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<()> {
        let file = table::table_file_name(table.meta.number);
        match table.table.verify_by_steps(step) {
            // The file does not record which range tombstones have been applied to it.
            Ok(found) if found == (TableMeta { cleared_seq: 0, ..table.meta.clone() }) => {
                table.clear_damage();
                self.report.entries += found.entries;
            }
            Ok(found) => {
                let what = format!("the manifest has {:?}, the table is {found:?}", table.meta);
                self.problem(&file, None, what);
            }
            Err(e) if e.kind() == ErrorKind::Closed => return Err(e),
            Err(e) => {
                step(table.meta.file_size)?;
                table.note_damage(&e);
                self.error(&file, &e);
            }
        }
        self.report.tables += 1;
        self.report.bytes += table.meta.file_size;
        Ok(())
    }

    /// Tables that no version names are not damage: a crash leaves them behind, and the next opening removes them.
    fn check_unnamed(&mut self, files: &Files, versions: &[&Version]) {
        let named: HashSet<u64> = versions
            .iter()
            .flat_map(|v| v.tables().map(|(_, t)| t.meta.number).collect::<Vec<_>>())
            .collect();
        let unnamed = files.tables.iter().filter(|n| !named.contains(n)).count();
        if unnamed > 0 {
            self.report.notes.push(format!("{unnamed} tables are not in use; the next opening removes them"));
        }
    }
}
