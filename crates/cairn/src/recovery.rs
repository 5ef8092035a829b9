//! Opening: reads the manifest, then replays the log in the order of sequence numbers. `docs/recovery.md` states what is assumed of
//! disks, and why each crash point is safe.
//!
//! Recovery does not assume that the files that it finds are durable: a killed process may have left them only in the page cache. So it
//! writes the contents of the logs to new tables and the state to a new manifest, and syncs both, before any old file is removed. Until
//! then nothing is removed or changed, and a crash leaves the old state.

mod keep_logs;

use crate::commit::new_commit;
use crate::counters::Counters;
use crate::db_inner::DbInner;
use crate::db_state::{ImmutableMemtable, KeyspaceState, State};
use crate::disk_reserve::DiskReserve;
use crate::file_names::{Files, LOCK_FILE_NAME};
use crate::log::{ClosedLogs, KeptLog, Log, Logs, MAX_OPEN_LOGS, log_file_name};
use crate::memtable_size::{allocate, capacity_for};
use crate::recovered_tables::Recovered;
use crate::recycled_log::RecycledLogs;
use crate::replay::{LogRecord, check_dropped, replay};
use crate::snapshot::Snapshots;
use crate::sync::{AtomicBool, AtomicU64, Condvar, Mutex, Ordering};
use crate::visible_seq::VisibleSeq;
use crate::writer::Writer;
use crate::{KeyspaceOptions, Options};
use base::planted::{Bug, planted};
use base::{Error, ErrorKind, RangeSet, Result, Seq};
use env::{Env, FileLock, ForkGuard};
use memtable::Memtable;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use table::{BlockCache, TableCache};
use tree::{
    DatabaseEdit, JobContext, LiveTable, Manifest, ManifestError, ObsoleteFiles, Tree, manifest_file_name,
};

/// The next [`DbInner::identity`].
static IDENTITIES: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);

/// Largest accepted number of a file or keyspace.
const MAX_NUMBER: u64 = 1 << 62;

/// Opens or creates the database in `dir`.
pub(crate) fn open(env: Arc<dyn Env>, dir: &Path, options: Options) -> Result<Arc<DbInner>> {
    options.validate()?;
    if !env.exists(dir)? {
        if !options.create {
            return Err(no_database(dir));
        }
        env.create_dir(dir)?;
    }
    if !options.create && Files::list(&env, dir)?.is_empty() {
        // Checked before locking, which would create the lock file.
        return Err(no_database(dir));
    }
    // Files are found by path while the database is open: a change of the working directory or of a link must not lead elsewhere.
    let dir = &env.canonical(dir)?;
    let lock = env.lock(&dir.join(LOCK_FILE_NAME))?;
    let files = Files::list(&env, dir)?;
    let space = TableSpace::new(&env, dir, &options);
    let state = match files.manifests.last() {
        Some(&number) => Manifest::read(&env, dir, number, &mut |meta| space.open_table(meta))?,
        None => fresh_state(dir, &files, &options)?,
    };
    let lacking = note_missing(&state, &files);
    // Longer than the largest memtable and its log overhead, but only a part of a small log cap.
    let longest_spare = (options.memory_budget / 4).min(options.log_cap / 4);
    let recycled = Arc::new(RecycledLogs::new(&env, dir, longest_spare));
    let disk_reserve = DiskReserve::new(&env, dir, options.reserve_bytes(), recycled.clone());
    disk_reserve.adopt();
    let next_file = AtomicU64::new(files.next_number(&state));
    let dir = dir.to_owned();
    let (kept, idle) = (Vec::new(), Memtable::empty());
    Recovery {
        env,
        dir,
        options,
        lock,
        files,
        lacking,
        space,
        state,
        disk_reserve,
        recycled,
        next_file,
        kept,
        idle,
    }
    .run()
}

/// Missing tables do not prevent opening: each read that needs one fails with an error. They are recorded as damage at once, so that the
/// statistics show them before a read fails. Returns whether there are any.
fn note_missing(state: &tree::ManifestState, files: &Files) -> bool {
    let mut lacking = false;
    for (_, table) in state.keyspaces.values().flat_map(|k| k.version.tables()) {
        if files.tables.binary_search(&table.meta.number).is_err() {
            let missing = Error::corruption(table.table.path(), 0, "the table is missing");
            tracing::error!(error = %missing, "opened all the same");
            table.note_damage(&missing);
            lacking = true;
        }
    }
    lacking
}

fn no_database(dir: &Path) -> Error {
    Error::new(ErrorKind::NotFound, format!("{}: there is no database", dir.display()))
}

/// The initial state. A directory without a manifest has no database yet: at most a lock file and a manifest that was not renamed.
fn fresh_state(dir: &Path, files: &Files, options: &Options) -> Result<tree::ManifestState> {
    if !files.logs.is_empty() || !files.tables.is_empty() {
        return Err(Error::corruption(
            &dir.join(manifest_file_name(1)),
            0,
            "the manifest is missing, though there are tables or logs: nothing is created over them",
        ));
    }
    if !options.create {
        return Err(no_database(dir));
    }
    Ok(tree::ManifestState { next_file: 1, next_keyspace: 1, min_log: 1, ..tree::ManifestState::default() })
}

/// Files that are open beside the tables being read: logs, the manifest, the lock, and tables being written.
const OTHER_FILES: usize = MAX_OPEN_LOGS + 4;

/// The shared structures for reading tables.
pub(crate) struct TableSpace {
    pub tables: Arc<TableCache>,
    pub garbage: Arc<ObsoleteFiles>,
}

impl TableSpace {
    pub(crate) fn new(env: &Arc<dyn Env>, dir: &Path, options: &Options) -> TableSpace {
        let cache = Arc::new(BlockCache::new(options.memory_budget / 2));
        // The other half is for the rest of the process.
        let most = match options.max_open_files {
            0 => (env.max_open_files() / 2).clamp(16, 100_000),
            n => n,
        };
        let most = most.saturating_sub(OTHER_FILES).max(4);
        TableSpace {
            tables: TableCache::new(env.clone(), dir.to_owned(), cache, most),
            garbage: Arc::default(),
        }
    }

    pub(crate) fn open_table(&self, meta: &table::TableMeta) -> Result<Arc<LiveTable>> {
        let table = self.tables.open(meta.number, meta.file_size)?;
        Ok(LiveTable::new(meta.clone(), table, self.garbage.clone()))
    }
}

/// A keyspace during replay.
struct Replayed {
    /// The version in the manifest.
    found: Arc<tree::Version>,
    tree: Tree,
    options: KeyspaceOptions,
    name: String,
    memtable: Arc<Memtable>,
    /// Full memtables that could not be written to tables, oldest first.
    full: Vec<Arc<Memtable>>,
    recovered: Recovered,
}

impl Replayed {
    /// Discards everything that was replayed.
    fn reset(&mut self, idle: &Arc<Memtable>) {
        self.tree = Tree::new(self.tree.options().clone(), self.found.clone());
        self.memtable = idle.clone();
        self.full.clear();
        self.recovered = Recovered::default();
    }
}

type Keyspaces = BTreeMap<u64, Replayed>;

/// What happens to full memtables.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Spill {
    Tables,
    /// The disk is full: they stay in memory, and nothing is written.
    Nowhere,
}

struct Recovery {
    env: Arc<dyn Env>,
    dir: PathBuf,
    options: Options,
    lock: Box<dyn FileLock>,
    files: Files,
    /// Whether tables that the manifest names are missing.
    lacking: bool,
    space: TableSpace,
    state: tree::ManifestState,
    disk_reserve: DiskReserve,
    recycled: Arc<RecycledLogs>,
    next_file: AtomicU64,
    /// Logs that are kept, because there is no space for tables with their contents.
    kept: Vec<KeptLog>,
    /// The empty memtable that all keyspaces with nothing in memory share.
    idle: Arc<Memtable>,
}

impl Recovery {
    /// Recovers into new files. If the disk is too full for them even without the reserve, the replayed data stays in memory, and the
    /// logs on disk; if that is impossible, too, nothing on disk is changed, and the database is read-only.
    fn run(mut self) -> Result<Arc<DbInner>> {
        let logs = self.files.needed_logs(&self.dir, &self.state)?;
        self.check_numbers(self.next_file.load(Ordering::Relaxed))?;
        let mut keyspaces = self.open_trees()?;
        loop {
            let first_new = self.next_file.load(Ordering::Relaxed);
            match self.recover(&mut keyspaces, &logs) {
                Ok((last_seq, manifest)) => return self.start(keyspaces, last_seq, manifest),
                Err(e) if e.kind() == ErrorKind::NoSpace && !self.files.manifests.is_empty() => {
                    self.take_back(&mut keyspaces, first_new);
                    if self.remove_spares() {
                        continue;
                    }
                    if !self.disk_reserve.release_for(&e) {
                        return self.open_with_little_room(keyspaces, &logs, &e);
                    }
                }
                Err(e) => return Err(e),
            }
        }
    }

    /// Removes the recycled logs that an earlier process left. Returns whether there were any.
    fn remove_spares(&mut self) -> bool {
        let recycled = std::mem::take(&mut self.files.recycled);
        self.remove(&recycled);
        !recycled.is_empty()
    }

    /// Refuses numbers so large that counting on would overflow: no database reaches them, so they are damage.
    fn check_numbers(&self, next_file: u64) -> Result<()> {
        let tree::ManifestState { next_keyspace, newest_log, min_log, .. } = self.state;
        let log = self.files.logs.last().copied().unwrap_or(0).max(newest_log).max(min_log);
        let largest = next_file.max(next_keyspace).max(log);
        self.check_number(largest, MAX_NUMBER)
    }

    fn check_number(&self, number: u64, most: u64) -> Result<()> {
        if number > most {
            let what = format!("the number {number} is in use, which no database reaches");
            return Err(Error::corruption(&self.dir.join("manifest"), 0, what));
        }
        Ok(())
    }

    /// Replays the logs, and makes the result durable under a new manifest.
    fn recover(&self, keyspaces: &mut Keyspaces, logs: &[u64]) -> Result<(Seq, Manifest)> {
        let first_new = self.next_file.load(Ordering::Relaxed);
        let last_seq = self.replay(keyspaces, logs, Spill::Tables, &mut |_| ())?;
        keyspaces.values_mut().try_for_each(|k| self.flush(k, Spill::Tables))?;
        if self.next_file.load(Ordering::Relaxed) > first_new {
            self.env.sync_dir(&self.dir).map_err(|e| e.sync_failed())?;
        }
        Ok((last_seq, self.create_manifest(keyspaces, last_seq)?))
    }

    fn create_manifest(&self, keyspaces: &Keyspaces, last_seq: Seq) -> Result<Manifest> {
        // The manifest before the log: a log without a manifest would look like the rest of a lost database. The manifest names the log
        // only once it exists, so that from then on its absence is damage.
        let number = self.next_file.fetch_add(1, Ordering::Relaxed);
        let next_file = self.next_file.load(Ordering::Relaxed);
        let mut edit = whole_state(keyspaces, &self.state, last_seq, self.next_log(), next_file);
        self.name_kept_logs(&mut edit);
        Manifest::create(&self.env, &self.dir, number, &edit).map_err(|e| match e {
            ManifestError::Rejected(e) => e,
            // The new manifest may be in force already, and name the new tables.
            ManifestError::Unknown(e) => e.with_kind(ErrorKind::ReadOnly),
        })
    }

    /// The number of the new log.
    fn next_log(&self) -> u64 {
        let newest = self.files.logs.last().copied().unwrap_or(0).max(self.state.newest_log);
        newest.saturating_add(1).max(self.state.min_log)
    }

    /// Removes the tables from `first_new` on, which no manifest names, and resets the replay.
    fn take_back(&self, keyspaces: &mut Keyspaces, first_new: u64) {
        keyspaces.values_mut().for_each(|k| k.reset(&self.idle));
        for number in first_new..self.next_file.load(Ordering::Relaxed) {
            self.space.tables.forget(number);
            let _ = self.env.remove(&self.dir.join(table::table_file_name(number)));
        }
    }

    fn replay(
        &self,
        keyspaces: &mut Keyspaces,
        logs: &[u64],
        spill: Spill,
        note: &mut dyn FnMut(&LogRecord<'_>),
    ) -> Result<Seq> {
        let held = Cell::new(0);
        let replayed = replay(&self.env, &self.dir, &self.state, logs, &mut |record| {
            note(&record);
            self.replay_batch(keyspaces, record, &held, spill)
        })?;
        let flushed = keyspaces.values().map(|k| k.tree.version().flushed_seq).max();
        if planted(Bug::ReuseSequenceNumber) {
            return Ok(self.state.last_seq);
        }
        let last_seq = self.state.last_seq.max(replayed).max(flushed.unwrap_or(0));
        self.check_number(last_seq, base::MAX_SEQ / 2)?;
        Ok(last_seq)
    }

    fn open_trees(&mut self) -> Result<Keyspaces> {
        let mut keyspaces = BTreeMap::new();
        for (id, found) in std::mem::take(&mut self.state.keyspaces) {
            let options = keyspace_options(&self.dir, &found)?;
            let version = Arc::new(found.version);
            let replayed = Replayed {
                tree: Tree::new(options.tree_options(id, &found.created.name), version.clone()),
                found: version,
                options,
                name: found.created.name,
                memtable: self.idle.clone(),
                full: Vec::new(),
                recovered: Recovered::default(),
            };
            keyspaces.insert(id, replayed);
        }
        Ok(keyspaces)
    }

    /// Inserts the entries of a batch that are not in tables already. `held`: bytes reserved in memtables so far.
    fn replay_batch(
        &self,
        keyspaces: &mut Keyspaces,
        record: LogRecord<'_>,
        held: &Cell<u64>,
        spill: Spill,
    ) -> Result<()> {
        let malformed = || Error::corruption(record.path, record.offset, "this record is no batch");
        let mut entries = record.batch.entries;
        for seq in record.batch.first_seq..record.batch.first_seq + record.batch.count {
            let entry = entries.next().ok_or_else(malformed)?;
            let Some(keyspace) = keyspaces.get_mut(&entry.keyspace) else {
                check_dropped(entry.keyspace, &self.state, record.path, record.offset)?;
                continue;
            };
            if seq <= keyspace.tree.version().flushed_seq {
                continue;
            }
            let need = entry.cost();
            if !keyspace.memtable.reserve(need) {
                self.make_room(keyspace, need, held, spill)?;
                if !keyspace.memtable.reserve(need) {
                    return Err(malformed());
                }
            }
            entry.insert(&keyspace.memtable, seq);
            held.set(held.get() + need as u64);
            if held.get() > self.options.memory_budget / 2 && spill == Spill::Tables {
                // All memtables together exceed their budget: all are flushed, and the count restarts.
                keyspaces.values_mut().try_for_each(|k| self.flush(k, spill))?;
                held.set(0);
            }
        }
        match entries.is_empty() {
            true => Ok(()),
            false => Err(malformed()),
        }
    }

    /// Makes a memtable with room for `need` bytes, or a larger one, or seals a full one and makes the next, like `write_stall.rs`.
    fn make_room(&self, keyspace: &mut Replayed, need: usize, held: &Cell<u64>, spill: Spill) -> Result<()> {
        let full = keyspace.options.memtable_bytes.min((self.options.memory_budget / 8) as usize);
        let wanted = keyspace.memtable.reserved() + need;
        let capacity = capacity_for(full, wanted.min(full).max(need));
        if !keyspace.memtable.is_empty()
            && keyspace.memtable.capacity() < full
            && wanted <= full
            && let Ok(grown) = keyspace.memtable.grown(capacity)
        {
            keyspace.memtable = grown;
            return Ok(());
        }
        self.flush(keyspace, spill)?;
        keyspace.memtable = allocate(capacity, need)?;
        held.set(held.get() + memtable::BASE_BYTES);
        Ok(())
    }

    /// Writes a keyspace's memtable to a table, unless the memtable has to stay in memory. No manifest names the table yet.
    fn flush(&self, keyspace: &mut Replayed, spill: Spill) -> Result<()> {
        let memtable = std::mem::replace(&mut keyspace.memtable, self.idle.clone());
        let Some(newest) = memtable.max_seq() else { return Ok(()) };
        if spill == Spill::Nowhere {
            keyspace.full.push(memtable);
            return Ok(());
        }
        let next_number = || self.next_file.fetch_add(1, Ordering::Relaxed);
        let ranges = memtable.ranges().map_or_else(RangeSet::default, |set| RangeSet::clone(&set));
        let table = keyspace.tree.options().table.clone();
        let context = JobContext {
            env: &self.env,
            dir: &self.dir,
            table: &table,
            next_number: &next_number,
            snapshots: &[],
            rate_limiter: &|_| {},
            range_tombstones: &ranges,
            cancelled: &std::sync::atomic::AtomicBool::new(false),
        };
        let flushed = tree::flush(memtable.cursor(), keyspace.tree.guard_hash(), &context)?;
        let edit = keyspace.tree.install_flush(&flushed, newest);
        let open = &mut |meta: &table::TableMeta| self.space.open_table(meta);
        keyspace.tree.apply(&edit, open)?;
        edit.added.iter().for_each(|_| keyspace.recovered.add());
        keyspace.recovered.merge(&mut keyspace.tree, &context, open)?;
        self.remove_merged();
        Ok(())
    }

    /// Removes tables of this opening that were merged into others. Tables of the old manifest are in use until the new one is in force.
    fn remove_merged(&self) {
        for number in self.space.garbage.take() {
            self.space.tables.forget(number);
            let _ = self.env.remove(&self.dir.join(table::table_file_name(number)));
        }
    }

    /// Starts a new log under the new manifest, then removes the files that they replace. What was recovered is durable by now.
    fn start(self, keyspaces: Keyspaces, last_seq: Seq, mut manifest: Manifest) -> Result<Arc<DbInner>> {
        let versions = keyspaces.values().map(|k| k.tree.version());
        let named =
            versions.flat_map(|v| v.tables().map(|(_, t)| t.meta.number).collect::<Vec<_>>()).collect();
        let mut leftovers = self.files.leftovers(&named, self.lacking);
        leftovers.retain(|name| !self.keeps(name));
        let logs = self.logs();
        let log = match self.start_log(&logs, last_seq, &mut manifest) {
            // Then files that are no longer needed are removed first.
            Err(e) if e.kind() == ErrorKind::NoSpace => {
                self.remove(&leftovers);
                self.disk_reserve.release_for(&e);
                self.start_log(&logs, last_seq, &mut manifest)
            }
            log => log,
        };
        let (log, refusal) = match log {
            Ok(log) => (log, None),
            Err(e) if e.kind() == ErrorKind::NoSpace => {
                let (log, refusal) = self.no_log(&logs, &e);
                (log, Some(refusal))
            }
            Err(e) => return Err(e),
        };
        self.remove(&leftovers);
        let core = self.build(keyspaces, last_seq, manifest, log, logs);
        if let Some(refusal) = refusal {
            core.refuse(refusal);
        }
        core.disk_reserve.fit(core.log_bytes());
        core.disk_reserve.retake();
        Ok(core)
    }

    fn logs(&self) -> Logs {
        let closed = Arc::new(ClosedLogs::keeping(&self.kept));
        Logs { closed, recycled: self.recycled.clone(), begun: Arc::default(), counters: Arc::default() }
    }

    fn start_log(&self, logs: &Logs, last_seq: Seq, manifest: &mut Manifest) -> Result<Log> {
        let header = self.next_header(last_seq);
        let number = self.next_log();
        let path = self.dir.join(log_file_name(number));
        if self.env.exists(&path)? {
            // The manifest did not get the edit that names this log: see below.
            self.env.remove(&path)?;
        }
        let log = Log::create(&self.env, &self.dir, number, header, logs.clone())?;
        let exists = DatabaseEdit { newest_log: number, ..DatabaseEdit::default() };
        manifest.log(&exists).map_err(|e| match e {
            ManifestError::Rejected(e) => e,
            ManifestError::Unknown(e) => e.with_kind(ErrorKind::ReadOnly),
        })?;
        Ok(log)
    }

    /// A log that refuses writes because the disk has no space for a real one, and the error that writers get.
    fn no_log(&self, logs: &Logs, cause: &Error) -> (Log, Error) {
        let message = format!(
            "{}: the disk was full when the database was opened, so it can only be read; free some space and open it again: \
             {cause}",
            self.dir.display()
        );
        let refusal = Error::new(ErrorKind::ReadOnly, message);
        let log = Log::refusing(&self.env, &self.dir, self.next_log(), refusal.clone(), logs.clone());
        (log, refusal)
    }

    /// Opens for reading only, with the tables on disk and the logs replayed into memory; changes nothing on disk.
    fn start_without_room(self, keyspaces: Keyspaces, last_seq: Seq, cause: &Error) -> Result<Arc<DbInner>> {
        self.sync_what_was_found()?;
        let logs = self.logs();
        let (log, refusal) = self.no_log(&logs, cause);
        let number = self.files.manifests.last().copied().unwrap_or(0);
        let manifest = Manifest::refusing(&self.dir, number, refusal.clone());
        let core = self.build(keyspaces, last_seq, manifest, log, logs);
        core.refuse(refusal);
        Ok(core)
    }

    /// Syncs the files that reads depend on and that are not rewritten: data that was read must not be lost in a power cut. Tables were
    /// durable before the manifest named them.
    fn sync_what_was_found(&self) -> Result<()> {
        let manifest = self.files.manifests.last().map(|&n| manifest_file_name(n));
        let logs = self.files.logs.iter().filter(|&&n| n >= self.state.min_log).map(|&n| log_file_name(n));
        manifest.into_iter().chain(logs).try_for_each(|name| self.env.sync_file(&self.dir.join(name)))?;
        self.env.sync_dir(&self.dir)
    }

    /// Best effort: the next opening removes the rest.
    fn remove(&self, names: &[String]) {
        for name in names {
            let _ = self.env.remove(&self.dir.join(name));
        }
    }

    fn build(
        self,
        keyspaces: Keyspaces,
        last_seq: Seq,
        manifest: Manifest,
        log: Log,
        logs: Logs,
    ) -> Arc<DbInner> {
        let TableSpace { tables, garbage } = self.space;
        let core = Arc::new(DbInner {
            tables,
            garbage,
            snapshots: Snapshots::default(),
            retired: Default::default(),
            visible: VisibleSeq::new(last_seq),
            commit: new_commit(Writer::new(log, last_seq + 1)),
            closed_logs: logs.closed,
            recycled: logs.recycled,
            begun_log: logs.begun,
            log_counters: logs.counters,
            manifest: Mutex::new(manifest),
            disk_reserve: self.disk_reserve,
            state: Mutex::new(State::new(self.state.next_keyspace)),
            idle: self.idle,
            flush_work: Condvar::new(),
            compact_work: Condvar::new(),
            progress: Condvar::new(),
            end: Condvar::new(),
            origin: ForkGuard::here(),
            next_file: self.next_file,
            counters: Counters::default(),
            scrub: crate::scrub::Scrub::default(),
            rest_until: AtomicU64::new(0),
            slowdown: AtomicU64::new(0),
            collecting: Mutex::new(()),
            calls: crate::active_calls::ActiveCalls::default(),
            lock: Mutex::new(Some(self.lock)),
            fatal: OnceLock::new(),
            stopped: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            memtables_due: AtomicBool::new(false),
            trees_due: Arc::default(),
            rate_limiter: crate::rate_limiter::RateLimiter::new(self.options.compaction_rate),
            cancelled: std::sync::atomic::AtomicBool::new(false),
            env: self.env,
            dir: self.dir,
            options: self.options,
            identity: IDENTITIES.fetch_add(1, Ordering::Relaxed),
        });
        core.adopt(keyspaces);
        core
    }
}

/// The options of a keyspace, from its state in the manifest.
pub(crate) fn keyspace_options(dir: &Path, found: &tree::KeyspaceState) -> Result<KeyspaceOptions> {
    let mut options = KeyspaceOptions::default();
    for (name, value) in &found.created.options {
        options.set_kept(name, value).map_err(|e| {
            let message = format!("{}, keyspace {:?}: {e}", dir.display(), found.created.name);
            Error::new(ErrorKind::Unsupported, message)
        })?;
    }
    if options.levels != found.version.last_level() {
        let what = format!("keyspace {:?} has two numbers of levels", found.created.name);
        return Err(Error::corruption(&dir.join("manifest"), 0, what));
    }
    Ok(options)
}

fn whole_state(
    keyspaces: &Keyspaces,
    state: &tree::ManifestState,
    last_seq: Seq,
    log: u64,
    next_file: u64,
) -> DatabaseEdit {
    let created = |(id, k): (&u64, &Replayed)| tree::KeyspaceCreated {
        id: *id,
        name: k.name.clone(),
        levels: k.options.levels,
        options: k.options.to_pairs().into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
    };
    DatabaseEdit {
        created: keyspaces.iter().map(created).collect(),
        trees: keyspaces.iter().map(|(id, k)| (*id, tree::VersionEdit::snapshot(k.tree.version()))).collect(),
        next_file,
        next_keyspace: state.next_keyspace,
        last_seq,
        min_log: log,
        ..DatabaseEdit::default()
    }
}

impl DbInner {
    fn adopt(&self, keyspaces: Keyspaces) {
        let mut state = self.state.lock();
        for (id, k) in keyspaces {
            self.disk_reserve.note_tables(0, k.tree.version().bytes());
            let core = self.new_keyspace_core(id, k.name, k.options, tree::Version::empty);
            let mut keyspace = KeyspaceState::new(core, k.tree);
            // In most cases there are none: all that was replayed is in tables.
            let memtables = k.full.into_iter().chain([k.memtable]).filter(|m| !m.is_empty());
            keyspace.flushing = memtables
                .map(|memtable| {
                    let last_seq = memtable.max_seq().unwrap_or(0);
                    ImmutableMemtable::new(memtable, last_seq)
                })
                .collect();
            keyspace.publish(self.idle.clone());
            state.insert(keyspace);
        }
    }
}
