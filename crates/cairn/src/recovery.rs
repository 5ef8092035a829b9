//! Opening: manifest, then log, in the order of sequence numbers. What is assumed of disks, and why each crash point is safe, is
//! in `docs/recovery.md`.
//!
//! Nothing that recovery finds is trusted to be durable, because a process that was killed may have left it in the page
//! cache only. So what the logs hold is written to new tables, and the state to a new manifest, both synced, before any
//! old file goes. Until then nothing is removed or changed, and a crash leaves what there was.

use crate::commit::new_commit;
use crate::core::{Core, KeyspaceState, State};
use crate::counters::Counters;
use crate::log::{ClosedLogs, Log, LogCounters, LogHeader, decode_batch, log_file_name, parse_log_file_name};
use crate::snapshot::Snapshots;
use crate::sync::{AtomicBool, AtomicU64, Condvar, Mutex, Ordering};
use crate::visible::Visible;
use crate::{KeyspaceOptions, Options};
use base::planted::{Bug, planted};
use base::{Error, ErrorKind, Result, Seq, Trailer};
use env::{Env, FileLock};
use memtable::Memtable;
use record::{SegmentKind, SegmentReader, Tail};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use table::{BlockCache, Tables, parse_table_file_name};
use tree::{
    Context, DatabaseEdit, Garbage, Manifest, ManifestError, TableFile, Tree, manifest_file_name,
    parse_manifest_file_name,
};

/// Where the identities of databases come from.
static IDENTITIES: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);

/// Name of the lock file.
pub(crate) const LOCK_FILE_NAME: &str = "LOCK";

/// Largest number of a file or keyspace that is believed.
const MAX_NUMBER: u64 = 1 << 62;

/// The files of a database directory, by kind, each ascending. Files that are not ours are left alone.
#[derive(Debug, Default)]
pub(crate) struct Files {
    pub manifests: Vec<u64>,
    pub logs: Vec<u64>,
    pub tables: Vec<u64>,
    /// Half-written manifests.
    pub temporary: Vec<String>,
}

impl Files {
    pub(crate) fn list(env: &Arc<dyn Env>, dir: &Path) -> Result<Files> {
        let mut files = Files::default();
        for name in env.list(dir)? {
            if let Some(number) = parse_manifest_file_name(&name) {
                files.manifests.push(number);
            } else if let Some(number) = parse_log_file_name(&name) {
                files.logs.push(number);
            } else if let Some(number) = parse_table_file_name(&name) {
                files.tables.push(number);
            } else if name.strip_suffix(".tmp").is_some_and(|n| parse_manifest_file_name(n).is_some()) {
                files.temporary.push(name);
            }
        }
        files.manifests.sort_unstable();
        files.logs.sort_unstable();
        files.tables.sort_unstable();
        files.temporary.sort_unstable();
        Ok(files)
    }

    /// Larger than every file number in use, on disk or in `state`: a number is never used again.
    fn next_number(&self, state: &tree::State) -> u64 {
        let temporary =
            self.temporary.iter().filter_map(|n| parse_manifest_file_name(n.strip_suffix(".tmp")?));
        let used = self.manifests.iter().chain(&self.tables).copied().chain(temporary).max();
        let used = used.filter(|_| !planted(Bug::ReuseFileNumber));
        state.next_file.max(used.map_or(1, |n| n.saturating_add(1))).max(1)
    }

    /// The logs that recovery needs: from `min_log` on, without a gap.
    pub(crate) fn needed_logs(&self, dir: &Path, state: &tree::State) -> Result<Vec<u64>> {
        let needed: Vec<u64> = self.logs.iter().copied().filter(|&n| n >= state.min_log).collect();
        let newest = needed.last().copied().unwrap_or(0).max(state.newest_log);
        let mut expected = state.min_log..=newest;
        if let Some(missing) = expected.find(|n| needed.binary_search(n).is_err()) {
            return Err(Error::corruption(
                &dir.join(log_file_name(missing)),
                0,
                "this part of the log is missing, and the writes in it with it",
            ));
        }
        Ok(needed)
    }
}

/// Opens or creates the database in `dir`.
pub(crate) fn open(env: Arc<dyn Env>, dir: &Path, options: Options) -> Result<Arc<Core>> {
    options.validate()?;
    if !env.exists(dir)? {
        if !options.create {
            let message = format!("{}: there is no database", dir.display());
            return Err(Error::new(ErrorKind::NotFound, message));
        }
        env.create_dir(dir)?;
    }
    let lock = env.lock(&dir.join(LOCK_FILE_NAME))?;
    let files = Files::list(&env, dir)?;
    let space = Space::new(&env, dir, &options);
    let state = match files.manifests.last() {
        Some(&number) => Manifest::read(&env, dir, number, &mut |meta| space.open_table(meta))?,
        None => fresh_state(dir, &files, &options)?,
    };
    note_missing(&state, &files);
    Recovery { env, dir: dir.to_owned(), options, lock, files, space, state }.run()
}

/// Tables that are not there do not keep a database from being opened: every read that needs one fails, and says so. They are
/// noted at once, so that the statistics tell before anybody reads.
fn note_missing(state: &tree::State, files: &Files) {
    for (_, table) in state.keyspaces.values().flat_map(|k| k.version.tables()) {
        if files.tables.binary_search(&table.meta.number).is_err() {
            let missing = Error::corruption(table.table.path(), 0, "the table is missing");
            tracing::error!(error = %missing, "opened all the same");
            table.note_damage(&missing);
        }
    }
}

/// A directory without a manifest holds no database yet: at most a lock file and a manifest that never got its name.
fn fresh_state(dir: &Path, files: &Files, options: &Options) -> Result<tree::State> {
    if !files.logs.is_empty() || !files.tables.is_empty() {
        return Err(Error::corruption(
            &dir.join(manifest_file_name(1)),
            0,
            "the manifest is missing, though there are tables or logs: nothing is created over them",
        ));
    }
    if !options.create {
        return Err(Error::new(ErrorKind::NotFound, format!("{}: there is no database", dir.display())));
    }
    Ok(tree::State { next_file: 1, next_keyspace: 1, min_log: 1, ..tree::State::default() })
}

/// What tables need to be read.
pub(crate) struct Space {
    pub tables: Arc<Tables>,
    pub garbage: Arc<Garbage>,
}

impl Space {
    pub(crate) fn new(env: &Arc<dyn Env>, dir: &Path, options: &Options) -> Space {
        let cache = Arc::new(BlockCache::new(options.memory_budget / 2));
        // The log, the manifest, new tables and the rest of the process need some, too.
        let most = match options.max_open_files {
            0 => (env.max_open_files() / 2).clamp(16, 100_000),
            n => n,
        };
        Space { tables: Tables::new(env.clone(), dir.to_owned(), cache, most), garbage: Arc::default() }
    }

    pub(crate) fn open_table(&self, meta: &table::TableMeta) -> Result<Arc<TableFile>> {
        let table = self.tables.open(meta.number, meta.file_size)?;
        Ok(TableFile::new(meta.clone(), table, self.garbage.clone()))
    }
}

/// A keyspace while its part of the log is replayed.
struct Replayed {
    tree: Tree,
    options: KeyspaceOptions,
    name: String,
    memtable: Arc<Memtable>,
}

struct Recovery {
    env: Arc<dyn Env>,
    dir: PathBuf,
    options: Options,
    lock: Box<dyn FileLock>,
    files: Files,
    space: Space,
    state: tree::State,
}

impl Recovery {
    fn run(mut self) -> Result<Arc<Core>> {
        let logs = self.files.needed_logs(&self.dir, &self.state)?;
        let next_file = AtomicU64::new(self.files.next_number(&self.state));
        self.check_numbers(next_file.load(Ordering::Relaxed))?;
        let mut keyspaces = self.open_trees()?;
        let held = Cell::new(0);
        let replayed = replay(&self.env, &self.dir, &self.state, &logs, &mut |record| {
            self.replay_batch(&mut keyspaces, record, &next_file, &held)
        })?;
        let flushed = keyspaces.values().map(|k| k.tree.version().flushed_seq).max();
        let mut last_seq = self.state.last_seq.max(replayed).max(flushed.unwrap_or(0));
        self.check_number(last_seq, base::MAX_SEQ / 2)?;
        for keyspace in keyspaces.values_mut() {
            self.flush(keyspace, &next_file)?;
        }
        if planted(Bug::ReuseSequenceNumber) {
            last_seq = self.state.last_seq;
        }
        self.start(keyspaces, last_seq, next_file)
    }

    /// Refuses numbers so large that counting on from them would overflow: no database gets there, so somebody made them up.
    fn check_numbers(&self, next_file: u64) -> Result<()> {
        let tree::State { next_keyspace, newest_log, min_log, .. } = self.state;
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

    fn open_trees(&mut self) -> Result<BTreeMap<u64, Replayed>> {
        let mut keyspaces = BTreeMap::new();
        for (id, found) in std::mem::take(&mut self.state.keyspaces) {
            let options = keyspace_options(&self.dir, &found)?;
            let tree = Tree::new(options.tree_options(id, &found.created.name), Arc::new(found.version));
            let replayed = Replayed { tree, options, name: found.created.name, memtable: Memtable::new(0) };
            keyspaces.insert(id, replayed);
        }
        Ok(keyspaces)
    }

    /// Inserts what a batch says of keyspaces that do not have it in tables already. `held`: bytes set aside in memtables so far.
    fn replay_batch(
        &self,
        keyspaces: &mut BTreeMap<u64, Replayed>,
        record: LogRecord<'_>,
        next_file: &AtomicU64,
        held: &Cell<u64>,
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
            let need = Memtable::entry_cost(entry.key.len(), entry.value.len());
            if !keyspace.memtable.reserve(need) {
                self.flush(keyspace, next_file)?;
                let bytes = keyspace.options.memtable_bytes.min((self.options.memory_budget / 8) as usize);
                keyspace.memtable = Memtable::new(bytes.max(need));
                if !keyspace.memtable.reserve(need) {
                    return Err(malformed());
                }
            }
            keyspace.memtable.insert(entry.key, Trailer::new(seq, entry.kind), entry.value);
            held.set(held.get() + need as u64);
            if held.get() > self.options.memory_budget / 2 {
                // More than all of them may have together: all go, and the count begins anew.
                keyspaces.values_mut().try_for_each(|k| self.flush(k, next_file))?;
                held.set(0);
            }
        }
        match entries.is_empty() {
            true => Ok(()),
            false => Err(malformed()),
        }
    }

    /// Writes a keyspace's memtable to a table. No manifest names it yet.
    fn flush(&self, keyspace: &mut Replayed, next_file: &AtomicU64) -> Result<()> {
        let memtable = std::mem::replace(&mut keyspace.memtable, Memtable::new(0));
        let Some(newest) = memtable.max_seq() else { return Ok(()) };
        let next_number = || next_file.fetch_add(1, Ordering::Relaxed);
        let context = Context {
            env: &self.env,
            dir: &self.dir,
            table: &keyspace.tree.options().table,
            next_number: &next_number,
            snapshots: &[],
            cancelled: &std::sync::atomic::AtomicBool::new(false),
        };
        let flushed = tree::flush(memtable.cursor(), keyspace.tree.rule(), &context)?;
        let edit = keyspace.tree.install_flush(&flushed, newest);
        keyspace.tree.apply(&edit, &mut |meta| self.space.open_table(meta))?;
        Ok(())
    }

    /// Makes what was recovered durable under a new manifest and a new log, then removes what they replace.
    fn start(
        self,
        keyspaces: BTreeMap<u64, Replayed>,
        last_seq: Seq,
        next_file: AtomicU64,
    ) -> Result<Arc<Core>> {
        let Recovery { env, dir, options, lock, files, space, state } = self;
        let closed_logs = Arc::new(ClosedLogs::default());
        let log_counters = Arc::new(LogCounters::default());
        let newest = files.logs.last().copied().unwrap_or(0).max(state.newest_log);
        let number = newest.saturating_add(1).max(state.min_log);
        // The manifest first: a log without a manifest would look like what is left of a lost database. That the log exists is
        // said when it does, so that from then on its absence is damage.
        let manifest_number = next_file.fetch_add(1, Ordering::Relaxed);
        let edit = whole_state(&keyspaces, &state, last_seq, number, next_file.load(Ordering::Relaxed));
        let mut manifest =
            Manifest::create(&env, &dir, manifest_number, &edit).map_err(ManifestError::into_error)?;
        let header = LogHeader { previous_len: 0, last_seq };
        let log = Log::create(&env, &dir, number, header, closed_logs.clone(), log_counters.clone())?;
        let exists = DatabaseEdit { newest_log: number, ..DatabaseEdit::default() };
        manifest.log(&exists).map_err(ManifestError::into_error)?;
        let Space { tables, garbage } = space;
        let core = Arc::new(Core {
            tables,
            garbage,
            snapshots: Snapshots::default(),
            visible: Visible::new(last_seq),
            commit: new_commit(log, last_seq + 1, lock),
            closed_logs,
            log_counters,
            manifest: Mutex::new(manifest),
            state: Mutex::new(State { next_keyspace: state.next_keyspace, ..State::default() }),
            flush_work: Condvar::new(),
            compact_work: Condvar::new(),
            progress: Condvar::new(),
            end: Condvar::new(),
            process: std::process::id(),
            next_file,
            counters: Counters::default(),
            scrub: crate::scrub::Scrub::default(),
            slowdown: AtomicU64::new(0),
            collecting: Mutex::new(()),
            fatal: OnceLock::new(),
            stopped: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            cancelled: std::sync::atomic::AtomicBool::new(false),
            env,
            dir,
            options,
            identity: IDENTITIES.fetch_add(1, Ordering::Relaxed),
        });
        core.adopt(keyspaces);
        core.remove_leftovers(&files);
        Ok(core)
    }
}

/// The options of a keyspace, from what the manifest says of it.
pub(crate) fn keyspace_options(dir: &Path, found: &tree::KeyspaceState) -> Result<KeyspaceOptions> {
    let mut options = KeyspaceOptions::default();
    for (name, value) in &found.created.options {
        options.set(name, value).map_err(|e| {
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

/// An entry of the log may be of a keyspace that is gone, but not of one that never was.
pub(crate) fn check_dropped(keyspace: u64, state: &tree::State, log: &Path, offset: u64) -> Result<()> {
    match keyspace < state.next_keyspace {
        true => Ok(()),
        false => Err(Error::corruption(log, offset, format!("keyspace {keyspace} was never created"))),
    }
}

fn whole_state(
    keyspaces: &BTreeMap<u64, Replayed>,
    state: &tree::State,
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

impl Core {
    fn adopt(&self, keyspaces: BTreeMap<u64, Replayed>) {
        let mut state = self.state.lock();
        for (id, k) in keyspaces {
            let core = self.new_keyspace_core(id, k.name, k.options, tree::Version::empty);
            let keyspace = KeyspaceState::new(core, k.tree);
            let memtable = keyspace.core.view.load().memtable.clone();
            keyspace.publish(memtable);
            state.keyspaces.insert(id, keyspace);
        }
    }

    /// Removes the files that the new manifest does not name. What cannot be removed is tried again at the next opening.
    fn remove_leftovers(&self, files: &Files) {
        let named: std::collections::HashSet<u64> = {
            let state = self.state.lock();
            let versions = state.keyspaces.values().map(|k| k.tree.version());
            versions.flat_map(|v| v.tables().map(|(_, t)| t.meta.number).collect::<Vec<_>>()).collect()
        };
        let tables = files.tables.iter().filter(|n| !named.contains(n)).map(|n| table::table_file_name(*n));
        let logs = files.logs.iter().map(|n| log_file_name(*n));
        let manifests = files.manifests.iter().map(|n| manifest_file_name(*n));
        for name in tables.chain(logs).chain(manifests).chain(files.temporary.iter().cloned()) {
            let _ = self.env.remove(&self.dir.join(name));
        }
    }
}

/// A record of the log, and where it stands.
pub(crate) struct LogRecord<'a> {
    pub batch: crate::log::BatchRecord<'a>,
    pub path: &'a Path,
    pub offset: u64,
}

/// Reads the logs one after another up to the first torn end, and gives every batch to `apply`. Returns the newest sequence
/// number that was in use.
///
/// A log that ends before the length that its successor states has a hole behind it: what comes later is dropped, because
/// it was not acknowledged as durable; or, where something later proves that it was synced, the hole is damage.
pub(crate) fn replay(
    env: &Arc<dyn Env>,
    dir: &Path,
    state: &tree::State,
    logs: &[u64],
    apply: &mut dyn FnMut(LogRecord<'_>) -> Result<()>,
) -> Result<Seq> {
    let mut last_seq = 0;
    let mut torn: Option<(PathBuf, u64)> = None;
    let mut read: Option<(PathBuf, u64)> = None;
    let mut record = Vec::new();
    for &number in logs {
        let path = dir.join(log_file_name(number));
        let mut reader = match state.closed.get(&number) {
            Some(&len) => SegmentReader::open_closed(env, &path, SegmentKind::Wal, number, len)?,
            None => SegmentReader::open(env, &path, SegmentKind::Wal, number)?,
        };
        let header_len = reader.valid_len();
        let header = LogHeader::decode(reader.header());
        if header.is_none() && !matches!(reader.tail(), Some(Tail::TornHeader)) {
            return Err(Error::corruption(&path, 0, "the header of the log is malformed"));
        }
        if let (Some(header), Some((previous, len)), None) = (header, &read, &torn)
            && header.previous_len > *len
        {
            torn = Some((previous.clone(), *len));
        }
        if torn.is_none() {
            last_seq = last_seq.max(header.map_or(0, |h| h.last_seq));
        }
        while let Some(span) = reader.next(&mut record)? {
            if record.is_empty() || torn.is_some() && !planted(Bug::ReplayOverHole) {
                continue;
            }
            let batch = decode_batch(&record)
                .ok_or_else(|| Error::corruption(&path, span.start, "this record is no batch"))?;
            if batch.first_seq <= last_seq {
                let what = format!("sequence number {} comes after {last_seq}", batch.first_seq);
                return Err(Error::corruption(&path, span.start, what));
            }
            last_seq = batch.first_seq + batch.count.max(1) - 1;
            apply(LogRecord { batch, path: &path, offset: span.start })?;
        }
        if let Some((hole, offset)) = &torn {
            // The header of every log is synced before the log is used; only what lies behind it proves anything of older logs.
            if reader.proven_synced() > header_len && !planted(Bug::ReplayOverHole) {
                let what = format!("the log ends here, but {} proves that more was synced", path.display());
                return Err(Error::corruption(hole, *offset, what));
            }
        }
        if torn.is_none() && !matches!(reader.tail(), Some(Tail::Clean)) {
            torn = Some((path.clone(), reader.valid_len()));
        }
        read = Some((path, reader.valid_len()));
    }
    Ok(last_seq)
}
