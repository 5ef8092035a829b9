//! Opening: reads the manifest, then replays the log in the order of sequence numbers. `docs/recovery.md` states what is assumed of
//! disks, and why each crash point is safe.
//!
//! Recovery does not assume that the files that it finds are durable: a killed process may have left them only in the page cache. So it
//! writes the contents of the logs to new tables and the state to a new manifest, and syncs both, before any old file is removed. Until
//! then nothing is removed or changed, and a crash leaves the old state.

use super::assemble::Parts;
use super::file_names::{Files, LOCK_FILE_NAME};
use super::insert_batches::Inserter;
use super::replayed::{Keyspaces, Recovered, Replayed, Spill};
use crate::events;
use crate::parts::{DiskReserve, KeptFiles};
use crate::state::{DbInner, HashLog, HashLogs, Tables};
use crate::sync::{AtomicU64, Ordering};
use crate::types::{Filters, KeyspaceOptions, Operators, Options};
use crate::wal::{KeptLog, LogEnd, LogRecord, RecycledLogs, replay};
use base::planted::{Bug, planted};
use base::{Error, ErrorKind, Result, Seq};
use env::Env;
use hashlog::hint_file_name;
use memtable::{Memtable, SpareMemory};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use tree::{DatabaseEdit, Manifest, ManifestError, Tree, manifest_file_name, tables_of};
use values::{SegmentFile, value_file_name};

/// Largest accepted number of a file or keyspace.
const MAX_NUMBER: u64 = 1 << 62;

/// Opens or creates the database in `dir`.
pub(crate) fn open(
    env: Arc<dyn Env>,
    dir: &Path,
    options: Options,
    (filters, operators): (Filters, Operators),
) -> Result<Arc<DbInner>> {
    options.validate()?;
    let started = env.monotonic();
    // Checked before locking, which would create the lock file.
    if !options.create_if_missing && (!env.exists(dir)? || Files::list(&env, dir)?.is_empty()) {
        return Err(no_database(dir));
    }
    if !env.exists(dir)? {
        env.create_dir(dir)?;
    }
    // Files are found by path while the database is open: a change of the working directory or of a link must not lead elsewhere.
    let dir = &env.canonical(dir)?;
    let lock = env.lock(&dir.join(LOCK_FILE_NAME))?;
    let files = Files::list(&env, dir)?;
    let space = Tables::new(&env, dir, &options);
    let state = match files.manifests.last() {
        Some(&number) => Manifest::read(&env, dir, number, &mut |meta| space.open(meta))?,
        None => fresh_state(dir, &files, &options)?,
    };
    let hash_logs = space.load_hash_logs(&env, dir, &state)?;
    space.add_value_files(&state);
    let lacking = note_missing(&state, &files);
    // Longer than the largest memtable and its log overhead, but only a part of a small log cap.
    let max_recycled_len = (options.memory_budget / 4).min(options.log_cap / 4);
    let recycled = Arc::new(RecycledLogs::new(&env, dir, max_recycled_len));
    let disk_reserve = DiskReserve::new(&env, dir, options.reserve_bytes(), recycled.clone());
    disk_reserve.adopt();
    let next_file = AtomicU64::new(files.next_number(&state));
    let kept_files = KeptFiles::new(&env, dir);
    let spare_memory = Arc::new(SpareMemory::new(options.memory_budget / 8 * 3));
    let dir = dir.to_owned();
    let parts = Parts {
        env,
        dir,
        options,
        filters,
        operators,
        lock,
        tables: space,
        disk_reserve,
        kept_files,
        spare_memory,
        next_file,
        moment: None,
    };
    let clock = parts.env.clone();
    let db = Recovery { parts, files, lacking, state, recycled, hash_logs, kept: Vec::new() }.run()?;
    let seconds = clock.monotonic().saturating_sub(started).as_secs_f64();
    let keyspaces = db.keyspaces().len();
    events::info!(path = %db.dir.display(), keyspaces, last_seq = db.visible.newest(), seconds, "opened");
    Ok(db)
}

/// Missing tables do not prevent opening: each read that needs one fails with an error. They are recorded as damage at once, so that the
/// statistics show them before a read fails. Returns whether there are any.
fn note_missing(state: &tree::ManifestState, files: &Files) -> bool {
    let mut lacking = false;
    for table in tables_of(state.keyspaces.values().map(|k| &*k.version)) {
        if files.tables.binary_search(&table.meta.number).is_err() {
            let missing = Error::corruption(table.table.path(), 0, "the table is missing");
            events::error!(error = %missing, "opened all the same");
            table.damage.note(&missing);
            lacking = true;
        }
    }
    lacking
}

pub(crate) fn no_database(dir: &Path) -> Error {
    Error::new(ErrorKind::NotFound, format!("{}: there is no database", dir.display()))
}

/// The error of a directory with files of a database, and no manifest.
pub(crate) fn missing_manifest(dir: &Path) -> Error {
    let what = "the manifest is missing, though there are tables or logs: nothing is created over them";
    Error::corruption(&dir.join(manifest_file_name(1)), 0, what)
}

/// The error of a directory in which a copy of a database was begun.
pub(crate) fn unfinished(dir: &Path) -> Error {
    let what = "a copy of a database was begun here and has not been finished: make it again, or remove the directory";
    Error::new(ErrorKind::NotFound, format!("{}: {what}", dir.display()))
}

/// The initial state. A directory without a manifest has no database yet: at most a lock file and a manifest that was not renamed.
fn fresh_state(dir: &Path, files: &Files, options: &Options) -> Result<tree::ManifestState> {
    if files.unfinished {
        return Err(unfinished(dir));
    }
    if !files.logs.is_empty() || !files.tables.is_empty() {
        return Err(missing_manifest(dir));
    }
    if !options.create_if_missing {
        return Err(no_database(dir));
    }
    Ok(tree::ManifestState { next_file: 1, next_keyspace: 1, min_log: 1, ..tree::ManifestState::default() })
}

fn check_number(dir: &Path, number: u64, most: u64) -> Result<()> {
    if number > most {
        let what = format!("the number {number} is in use, which no database reaches");
        return Err(Error::corruption(&dir.join("manifest"), 0, what));
    }
    Ok(())
}

/// Refuses a sequence number that no database reaches.
pub(super) fn check_seq(dir: &Path, seq: Seq) -> Result<()> {
    check_number(dir, seq, base::MAX_SEQ / 2)
}

pub(crate) struct Recovery {
    pub parts: Parts,
    pub files: Files,
    /// Whether tables that the manifest names are missing.
    pub lacking: bool,
    pub state: tree::ManifestState,
    pub recycled: Arc<RecycledLogs>,
    /// Those with hint files, until their keyspaces have them.
    pub hash_logs: HashLogs,
    /// Logs that are kept, because there is no space for tables with their contents.
    pub kept: Vec<KeptLog>,
}

impl Recovery {
    /// Recovers into new files. If the disk is too full for them even without the reserve, the replayed data stays in memory, and the
    /// logs on disk; if that is impossible, too, nothing on disk is changed, and the database is read-only.
    fn run(mut self) -> Result<Arc<DbInner>> {
        let logs = self.files.needed_logs(&self.parts.dir, &self.state)?;
        self.check_numbers(self.parts.next_file.load(Ordering::Relaxed))?;
        let mut keyspaces = self.open_trees()?;
        loop {
            let first_new = self.parts.next_file.load(Ordering::Relaxed);
            match self.recover(&mut keyspaces, &logs) {
                Ok((end, manifest)) => return self.start(keyspaces, end, manifest),
                Err(e) if e.kind() == ErrorKind::NoSpace && !self.files.manifests.is_empty() => {
                    self.take_back(&mut keyspaces, first_new)?;
                    if self.remove_recycled() {
                        continue;
                    }
                    if !self.parts.disk_reserve.release_for(&e) {
                        return self.open_with_little_space(keyspaces, &logs, &e);
                    }
                }
                Err(e) => return Err(e),
            }
        }
    }

    /// Removes the recycled logs that an earlier process left. Returns whether there were any.
    fn remove_recycled(&mut self) -> bool {
        let recycled = std::mem::take(&mut self.files.recycled);
        self.remove(&recycled);
        !recycled.is_empty()
    }

    /// Refuses numbers so large that counting on would overflow: no database reaches them, so they are damage.
    fn check_numbers(&self, next_file: u64) -> Result<()> {
        let tree::ManifestState { next_keyspace, newest_log, min_log, .. } = self.state;
        let log = self.files.logs.last().copied().unwrap_or(0).max(newest_log).max(min_log);
        let largest = next_file.max(next_keyspace).max(log);
        check_number(&self.parts.dir, largest, MAX_NUMBER)
    }

    /// Replays the logs, and makes the result durable under a new manifest.
    fn recover(&self, keyspaces: &mut Keyspaces, logs: &[u64]) -> Result<(LogEnd, Manifest)> {
        let first_new = self.parts.next_file.load(Ordering::Relaxed);
        let end = self.replay(keyspaces, logs, Spill::Tables, &mut |_| ())?;
        keyspaces.values_mut().try_for_each(|k| self.flush(k, Spill::Tables))?;
        if self.parts.next_file.load(Ordering::Relaxed) > first_new {
            self.parts.env.sync_dir(&self.parts.dir).map_err(|e| e.sync_failed())?;
        }
        Ok((end, self.create_manifest(keyspaces, end)?))
    }

    pub(crate) fn create_manifest(&self, keyspaces: &Keyspaces, end: LogEnd) -> Result<Manifest> {
        // The manifest before the log: a log without a manifest would look like the rest of a lost database. The manifest names the log
        // only once it exists, so that from then on its absence is damage.
        let number = self.parts.next_file.fetch_add(1, Ordering::Relaxed);
        let mut edit = DatabaseEdit {
            created: keyspaces
                .iter()
                .map(|(id, k)| k.options.description(*id, &k.name, k.history_of, k.kept_since))
                .collect(),
            next_file: self.parts.next_file.load(Ordering::Relaxed),
            next_keyspace: self.state.next_keyspace,
            last_seq: end.seq,
            last_time: end.time,
            retention_time: self.state.retention_time,
            min_log: self.next_log(),
            value_files: self.parts.tables.segments.value_files(),
            hints: keyspaces.iter().flat_map(|(id, k)| k.hints(*id)).collect(),
            ..DatabaseEdit::default()
        }
        .with_trees(keyspaces.iter().map(|(id, k)| (*id, &**k.tree.version())));
        self.name_kept_logs(&mut edit);
        Manifest::create(&self.parts.env, &self.parts.dir, number, &edit).map_err(|e| match e {
            ManifestError::Rejected(e) => e,
            // The new manifest may be in force already, and name the new tables.
            ManifestError::Unknown(e) => e.with_kind(ErrorKind::ReadOnly),
        })
    }

    /// The number of the new log.
    pub(crate) fn next_log(&self) -> u64 {
        let newest = self.files.logs.last().copied().unwrap_or(0).max(self.state.newest_log);
        newest.saturating_add(1).max(self.state.min_log)
    }

    /// Removes the tables from `first_new` on, which no manifest names, and resets the replay.
    fn take_back(&self, keyspaces: &mut Keyspaces, first_new: u64) -> Result<()> {
        for (id, keyspace) in keyspaces {
            keyspace.reset();
            if let Some(log) = &mut keyspace.hash_log {
                log.abandon(&self.parts.tables.segments);
                let (hints, values) = (&keyspace.hints_found, &self.state.value_files);
                *log =
                    self.parts.tables.load_hash_log(&self.parts.env, &self.parts.dir, *id, hints, values)?;
                self.parts.tables.share(log, None);
            }
        }
        let new = first_new..self.parts.next_file.load(Ordering::Relaxed);
        let files: Vec<SegmentFile> = new.clone().map(SegmentFile::Values).collect();
        self.parts.tables.segments.replace(&files, None);
        for number in new {
            self.parts.tables.cache.forget(number);
            for name in [table::table_file_name(number), value_file_name(number), hint_file_name(number)] {
                let _ = self.parts.env.remove(&self.parts.dir.join(name));
            }
        }
        Ok(())
    }

    pub(crate) fn replay(
        &self,
        keyspaces: &mut Keyspaces,
        logs: &[u64],
        spill: Spill,
        note: &mut dyn FnMut(&LogRecord<'_>),
    ) -> Result<LogEnd> {
        let inserter = Inserter {
            options: &self.parts.options,
            spare_memory: &self.parts.spare_memory,
            next_keyspace: self.state.next_keyspace,
            flush: &|keyspace| self.flush(keyspace, spill),
            most: match spill {
                Spill::Tables => self.parts.options.memory_budget / 2,
                Spill::Nowhere => u64::MAX,
            },
            notes_places: spill == Spill::Nowhere,
            held: Cell::new(0),
        };
        let replayed = replay(&self.parts.env, &self.parts.dir, &self.state, logs, &mut |record| {
            note(&record);
            inserter.insert(keyspaces, record)
        })?;
        let replayed = replayed.end;
        let flushed = keyspaces.values().map(|k| k.tree.version().flushed_seq).max();
        if planted(Bug::ReuseSequenceNumber) {
            return Ok(LogEnd { seq: self.state.last_seq, ..replayed });
        }
        let seq = self.state.last_seq.max(replayed.seq).max(flushed.unwrap_or(0));
        check_seq(&self.parts.dir, seq)?;
        Ok(LogEnd { seq, time: self.state.last_time.max(replayed.time) })
    }

    fn open_trees(&mut self) -> Result<Keyspaces> {
        let state = &self.state;
        for found in state.keyspaces.values().filter(|found| found.description.history_of.is_none()) {
            self.parts.filters.check(&found.description.name, &keyspace_options(&self.parts.dir, found)?)?;
        }
        let keyspaces = keyspaces_of(&self.parts.dir, state, &self.parts.operators, &mut self.hash_logs)?;
        self.state.keyspaces.clear();
        Ok(keyspaces)
    }
}

/// The keyspaces in a manifest, with nothing in memory. Indexes are taken from `hash_logs`.
pub(super) fn keyspaces_of(
    dir: &Path,
    state: &tree::ManifestState,
    operators: &Operators,
    hash_logs: &mut HashLogs,
) -> Result<Keyspaces> {
    let mut keyspaces = BTreeMap::new();
    let mut historical = BTreeMap::new();
    for (id, found) in &state.keyspaces {
        historical.extend(found.description.history_of.map(|primary| (primary, *id)));
    }
    for (id, found) in &state.keyspaces {
        let options = keyspace_options(dir, found)?;
        let operator = operators.of(&found.description.name, &options.merge)?;
        let loaded = hash_logs.remove(id);
        let hash_log = options.is_hash_log().then(|| loaded.unwrap_or_else(|| Arc::new(HashLog::new(*id))));
        let tree_options = options.tree_options(*id, &found.description.name, found.description.history_of);
        let replayed = Replayed {
            id: *id,
            tree: Tree::new(tree_options, found.version.clone()),
            found: found.version.clone(),
            options,
            operator,
            name: found.description.name.clone(),
            history_of: found.description.history_of,
            kept_since: found.description.kept_since,
            historical: historical.get(id).copied(),
            hash_log,
            hints_found: found.hints.clone(),
            memtable: Memtable::empty(),
            full: Vec::new(),
            recovered: Recovered::default(),
            has_expiries: false,
        };
        keyspaces.insert(*id, replayed);
    }
    check_pairs(dir, &keyspaces)?;
    Ok(keyspaces)
}

/// Checks that no two keyspaces have the same name, and that each one with history has a historical one, and each of those a keyspace with history.
fn check_pairs(dir: &Path, keyspaces: &Keyspaces) -> Result<()> {
    let mut names = BTreeMap::new();
    for (id, k) in keyspaces {
        if let Some(other) = k.history_of.is_none().then(|| names.insert(&k.name[..], id)).flatten() {
            let what = format!("keyspaces {other} and {id} have the same name, {:?}", k.name);
            return Err(Error::corruption(&dir.join("manifest"), 0, what));
        }
        let is_paired = match k.history_of {
            None => k.options.has_history() == k.historical.is_some(),
            Some(primary) => {
                let primary = keyspaces.get(&primary);
                primary.is_some_and(|k| k.historical == Some(*id) && k.history_of.is_none())
            }
        };
        if !is_paired {
            let what = format!("keyspace {id}, {:?}: what belongs to its history is not there", k.name);
            return Err(Error::corruption(&dir.join("manifest"), 0, what));
        }
    }
    Ok(())
}

/// The options of a keyspace, from its state in the manifest.
pub(crate) fn keyspace_options(dir: &Path, found: &tree::KeyspaceState) -> Result<KeyspaceOptions> {
    let mut options = KeyspaceOptions::default();
    for (name, value) in &found.description.options {
        options.set_kept(name, value).map_err(|e| {
            let message = format!("{}, keyspace {:?}: {e}", dir.display(), found.description.name);
            Error::new(ErrorKind::Unsupported, message)
        })?;
    }
    options.check_readable(&found.description.name, dir)?;
    if options.levels != found.version.last_level() {
        let what = format!("keyspace {:?} has two numbers of levels", found.description.name);
        return Err(Error::corruption(&dir.join("manifest"), 0, what));
    }
    Ok(options)
}
