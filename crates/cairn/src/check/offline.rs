//! Checks every checksum of every file in use, and the invariants of every tree. Writes nothing. Behind `cairn::check` and
//! `Database::check`.

use super::hash_logs::HashLogCheck;
use super::report::CheckedTree;
use crate::open::{Files, LOCK_FILE_NAME, keyspace_options, no_database, unfinished};
use crate::state::{DbInner, KeyspaceInner, KeyspaceState, ReadState, Tables, times_of};
use crate::types::{CheckProgress, CheckReport, Options};
use crate::wal::{LogRecord, check_dropped, replay};
use base::{Error, ErrorKind, Result};
use env::{Env, RealEnv};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use tree::{Manifest, Version, manifest_file_name};

/// Checks the database in `path`, which must not be open, without changing anything. See [`check_in`].
///
/// # Errors
/// As for [`check_in`].
pub fn check(path: impl AsRef<Path>, progress: &mut dyn FnMut(&CheckProgress)) -> Result<CheckReport> {
    check_in(RealEnv::new(), path, progress)
}

/// Checks the database in `path` of an environment: the manifest, every table (all blocks, the order of keys, the filter, the metadata in
/// the manifest), the order of guards and levels, the log, and that the versions in the two trees of a keyspace with history fit together.
/// Damage does not end the check: the report lists all of it.
///
/// # Errors
/// `NotFound` when there is no database; `Locked` when it is open; `Unsupported` when a keyspace has options that only a newer version or a
/// program with another feature knows; `Io`.
pub fn check_in(
    env: Arc<dyn Env>,
    path: impl AsRef<Path>,
    progress: &mut dyn FnMut(&CheckProgress),
) -> Result<CheckReport> {
    let dir = path.as_ref();
    if !env.exists(dir)? || !env.exists(&dir.join(LOCK_FILE_NAME))? {
        return Err(no_database(dir));
    }
    let _lock = env.lock_read_only(&dir.join(LOCK_FILE_NAME))?;
    let files = Files::list(&env, dir)?;
    let mut report = CheckReport::default();
    let Some(&number) = files.manifests.last() else {
        if files.unfinished {
            return Err(unfinished(dir));
        }
        if files.tables.is_empty() && files.logs.is_empty() {
            return Err(no_database(dir));
        }
        report.problem(&manifest_file_name(1), None, "there are tables or logs, but no manifest".into());
        return Ok(report);
    };
    let space = Tables::new(&env, dir, &Options::default());
    let state = match Manifest::read(&env, dir, number, &mut |meta| space.open(meta)) {
        Ok(state) => state,
        Err(e) => {
            report.error(&manifest_file_name(number), &e);
            return Ok(report);
        }
    };
    for (id, keyspace) in &state.keyspaces {
        // Without it no value file with its entries would be known; what is wrong with its hint files is found below.
        if let Ok(log) = space.load_hash_log(&env, dir, *id, &keyspace.hints, &state.value_files) {
            space.share(&log, None);
        }
    }
    space.add_value_files(&state);
    let versions: Vec<&Version> = state.keyspaces.values().map(|k| &*k.version).collect();
    report.keyspaces = state.keyspaces.values().filter(|k| k.description.history_of.is_none()).count();
    for keyspace in state.keyspaces.values() {
        report.check_invariants(&keyspace.description.name, &keyspace.version);
        match keyspace_options(dir, keyspace) {
            // Not damage: another version or build can read it.
            Err(e) if e.kind() == ErrorKind::Unsupported => return Err(e),
            Err(e) => report.error("manifest", &e),
            Ok(_) => {}
        }
    }
    let histories: BTreeSet<u64> =
        state.keyspaces.values().filter_map(|k| k.description.history_of).collect();
    let trees = state.keyspaces.iter().map(|(id, keyspace)| {
        let is_historical = keyspace.description.history_of.is_some();
        let times_of = times_of(is_historical, histories.contains(id));
        CheckedTree { version: &keyspace.version, times_of }
    });
    report.check_tables(&trees.collect::<Vec<_>>(), &space.segments, progress, &|| Ok(()))?;
    for historical in state.keyspaces.values() {
        let primary = historical.description.history_of.and_then(|id| state.keyspaces.get(&id));
        if let Some(primary) = primary {
            let name = &primary.description.name;
            report.check_versions(name, &primary.version, &historical.version, &|| Ok(()))?;
        }
    }
    for (id, keyspace) in &state.keyspaces {
        let check = HashLogCheck { env: &env, segments: &space.segments, keyspace: *id };
        keyspace.hints.values().try_for_each(|hints| check.check(hints, &mut report, &mut |_| Ok(())))?;
    }
    report.check_unnamed(&files, &versions);
    match files.needed_logs(dir, &state) {
        Err(e) => report.error("log", &e),
        Ok(logs) => {
            let mut records = 0;
            let replayed = replay(&env, dir, &state, &logs, &mut |record| {
                records += 1;
                check_batch(record, &state)
            });
            report.log_records = records;
            if let Err(e) = replayed {
                report.error("log", &e);
            }
        }
    }
    Ok(report)
}

/// Checks that a record is a batch that recovery can replay.
fn check_batch(mut record: LogRecord<'_>, state: &tree::ManifestState) -> Result<()> {
    let malformed = || Error::corruption(record.path, record.offset, "this record is no batch");
    for _ in 0..record.batch.head.count {
        let entry = record.batch.entries.next().ok_or_else(malformed)?;
        if !state.keyspaces.contains_key(&entry.keyspace) {
            check_dropped(entry.keyspace, state.next_keyspace, record.path, record.offset)?;
        }
    }
    match record.batch.entries.is_empty() {
        true => Ok(()),
        false => Err(malformed()),
    }
}

/// Checks the tables and trees of an open database.
pub(crate) fn check_open(db: &DbInner, progress: &mut dyn FnMut(&CheckProgress)) -> Result<CheckReport> {
    db.status.check_not_closed()?;
    // Of one moment: versions move between two trees.
    let read_states: BTreeMap<u64, (Arc<KeyspaceInner>, Arc<ReadState>)> = {
        let state = db.state.lock();
        let of = |k: &KeyspaceState| (k.inner.clone(), k.inner.read_state.load_full());
        state.keyspaces.iter().map(|(id, k)| (*id, of(k))).collect()
    };
    let keyspaces = read_states.values().filter(|(keyspace, _)| !keyspace.is_historical()).count();
    let mut report = CheckReport { keyspaces, ..CheckReport::default() };
    for (keyspace, read_state) in read_states.values() {
        report.check_invariants(&keyspace.name(), &read_state.version);
    }
    let trees = read_states.values().map(|(keyspace, state)| {
        let times_of = keyspace.times_of();
        CheckedTree { version: &state.version, times_of }
    });
    let trees: Vec<_> = trees.collect();
    let go_on = || db.status.check_not_closed();
    report.check_tables(&trees, &db.tables.segments, progress, &go_on)?;
    for (keyspace, _) in read_states.values() {
        let Some(log) = &keyspace.hash_log else { continue };
        // Collections may move entries meanwhile, and the files stay.
        let _walk = keyspace.segments.begin_walk();
        let check = HashLogCheck { env: &db.env, segments: &db.tables.segments, keyspace: keyspace.id };
        let known = report.problems.len();
        for hints in log.hints() {
            check.check(&hints, &mut report, &mut |_| go_on())?;
        }
        if keyspace.is_dropped() {
            // Its files are gone.
            report.problems.truncate(known);
        }
    }
    for (keyspace, read_state) in read_states.values() {
        let older = keyspace.historical().and_then(|historical| read_states.get(&historical.id));
        if let Some((_, older)) = older {
            report.check_versions(&keyspace.name(), &read_state.version, &older.version, &go_on)?;
        }
    }
    Ok(report)
}
