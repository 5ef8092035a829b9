//! [`Follower`]: reads a database to which another process may write, without its lock, and changes nothing.
//!
//! It reads one *moment* after the other: the state in the manifest, and behind it the logs, up to what the writer has handed to the operating
//! system. Each moment is a [`DbInner`] of its own, which never changes: its keyspaces have the versions of the manifest, and memtables with what the
//! logs have beyond them. Moments share the block cache, the open tables, and memtables that are appended to: entries of a later moment
//! have larger sequence numbers than an earlier one shows.
//!
//! A file of a moment stays until the moment ends, because of a shared lock on the manifest ([`KeptFiles`]):
//!
//! 1. Lock byte 0 of the newest manifest: from now on nothing that it names is removed, if it still is the newest.
//! 2. Read its edits, and look up to where the logs have been written; again, until no edit came between.
//! 3. Check that there is no newer manifest. Read the logs from the one on that the state needs, up to there.
//! 4. Lock the byte behind the last edit, and release byte 0.
//!
//! While the manifest is the same, only new edits and new records of the logs are read. Whatever does not fit together (another manifest, a log
//! that does not follow, an entry of a keyspace that the state does not have) makes it read everything anew.

use super::assemble::Parts;
use super::file_names::Files;
use super::insert_batches::Inserter;
use super::recovery::{check_seq, keyspaces_of, missing_manifest, no_database, unfinished};
use super::replayed::{Keyspaces, Replayed};
use crate::parts::{DiskReserve, KeptFiles};
use crate::state::{DbInner, HashLogs, MomentLogs, Tables};
use crate::sync::AtomicU64;
use crate::types::{Filters, Operators, Options};
use crate::wal::{Log, LogBound, LogEnd, LogTail, Logs, RecycledLogs, Replay, replay};
use base::planted::{Bug, planted};
use base::{Error, ErrorKind, Result, Seq};
use env::{Env, FileLock};
use memtable::{Memtable, SpareMemory};
use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tree::{LiveTable, LogClosed, Manifest, ManifestReader, ManifestState, manifest_file_name};
use values::{Segments, ValueFile};

/// How often it reads everything anew before it returns an error of what it has read: files may change and be replaced while it reads.
const ATTEMPTS: u32 = 8;

/// Pause before it does so, four times as long each time.
const PAUSE: Duration = Duration::from_millis(1);

/// See the module.
pub(crate) struct Follower {
    at: Place,
    /// What was read; `None` after an error.
    read: Option<Read>,
}

/// Where the database is, and what its moments share.
struct Place {
    env: Arc<dyn Env>,
    dir: PathBuf,
    options: Options,
    operators: Operators,
    tables: Tables,
    spare_memory: Arc<SpareMemory>,
}

/// What was read.
struct Read {
    manifest: ManifestReader,
    keyspaces: Keyspaces,
    /// The logs before that of `tail`, or all if there is none.
    logs: Vec<LogClosed>,
    tail: Option<LogTail>,
    /// The end of the logs.
    end: LogEnd,
    segments: Arc<Segments>,
}

impl Follower {
    /// Opens the database in `dir`, which must exist. Reads nothing yet.
    pub(crate) fn new(
        env: Arc<dyn Env>,
        dir: &Path,
        options: Options,
        operators: Operators,
    ) -> Result<Follower> {
        options.validate()?;
        if !env.exists(dir)? {
            return Err(no_database(dir));
        }
        let dir = env.canonical(dir)?;
        let tables = Tables::new(&env, &dir, &options);
        let spare_memory = Arc::new(SpareMemory::new(0));
        let at = Place { env, dir, options, operators, tables, spare_memory };
        Ok(Follower { at, read: None })
    }

    /// The newest moment; `None` if nothing has changed since the last one, of which a database is still open.
    ///
    /// # Errors
    /// Those of opening a database; `Unsupported` where there are no shared locks.
    pub(crate) fn advance(&mut self, has_last: bool) -> Result<Option<Arc<DbInner>>> {
        let (mut attempt, mut pause) = (1, PAUSE);
        loop {
            let error = match self.try_advance(has_last) {
                Ok(moment) => return Ok(moment),
                Err(e) => e,
            };
            // What was applied in part is of no use.
            let read = self.read.take();
            read.iter().for_each(|read| mark_obsolete(&read.keyspaces, &Keyspaces::new()));
            let may_pass = matches!(error.kind(), ErrorKind::Corruption | ErrorKind::NotFound);
            if !may_pass || attempt == ATTEMPTS || self.at.newest_manifest()?.is_none() {
                return Err(error);
            }
            self.at.env.sleep(pause);
            (attempt, pause) = (attempt + 1, pause * 4);
        }
    }

    fn try_advance(&mut self, has_last: bool) -> Result<Option<Arc<DbInner>>> {
        let at = &self.at;
        let number = at.newest_manifest()?.ok_or_else(|| no_database(&at.dir))?;
        let path = at.dir.join(manifest_file_name(number));
        let begun = at.env.lock_shared(&path, 0)?;
        let follows = |read: &Read| read.manifest.number() == number && read.tail.is_some();
        let is_new = !self.read.as_ref().is_some_and(follows);
        if is_new {
            let known = self.read.take();
            self.read = Some(Read::new(at, number, known)?);
        }
        let read = self.read.as_mut().expect("there is one by now");
        let changed = read.go_on(at)? || is_new;
        for number in at.tables.obsolete.take() {
            at.tables.cache.forget(number);
        }
        if !changed && has_last {
            return Ok(None);
        }
        let lock = at.env.lock_shared(&path, read.manifest.end())?;
        drop(begun);
        read.moment(at, lock).map(Some)
    }
}

impl Place {
    fn newest_manifest(&self) -> Result<Option<u64>> {
        let files = Files::list(&self.env, &self.dir)?;
        match files.manifests.last() {
            None if files.unfinished => Err(unfinished(&self.dir)),
            None if !files.is_empty() => Err(missing_manifest(&self.dir)),
            newest => Ok(newest.copied()),
        }
    }

    /// Fails if there is a newer manifest: what was read is not the newest state, and its files may be removed.
    fn check_newest(&self, number: u64) -> Result<()> {
        if self.newest_manifest()? == Some(number) {
            return Ok(());
        }
        Err(self.replaced(number))
    }

    /// The error of a state that is not the newest any more.
    fn replaced(&self, number: u64) -> Error {
        let path = self.dir.join(manifest_file_name(number));
        Error::new(ErrorKind::NotFound, format!("{}: it was replaced while it was read", path.display()))
    }

    fn segments(&self, files: &BTreeMap<u64, ValueFile>) -> Arc<Segments> {
        self.tables.segments_of_moment((&self.env, &self.dir), files.values())
    }

    /// The keyspaces of a state, with nothing in memory. Indexes are those of `known`, where nothing has changed.
    fn keyspaces(&self, state: &ManifestState, known: &Keyspaces) -> Result<Keyspaces> {
        let mut hash_logs = HashLogs::new();
        for (id, found) in &state.keyspaces {
            let same = known.get(id).filter(|known| known.hints_found == found.hints);
            let log = match same.and_then(|known| known.hash_log.clone()) {
                Some(log) => log,
                None if found.hints.is_empty() => continue,
                None => self.load_index(*id, found, state)?,
            };
            hash_logs.insert(*id, log);
        }
        keyspaces_of(&self.dir, state, &self.operators, &mut hash_logs)
    }

    fn load_index(
        &self,
        id: u64,
        found: &tree::KeyspaceState,
        state: &ManifestState,
    ) -> Result<Arc<crate::state::HashLog>> {
        let log = self.tables.load_hash_log(&self.env, &self.dir, id, &found.hints, &state.value_files)?;
        log.account(self.tables.cache.cache());
        Ok(log)
    }

    /// Inserts into the memtables of keyspaces, which stay in memory.
    fn inserter(&self, state: &ManifestState) -> Inserter<'_> {
        Inserter {
            options: &self.options,
            spare_memory: &self.spare_memory,
            next_keyspace: state.next_keyspace,
            flush: &seal,
            most: u64::MAX,
            notes_places: false,
            held: Cell::new(0),
        }
    }
}

/// Puts the memtable of a keyspace among the full ones.
fn seal(keyspace: &mut Replayed) -> Result<()> {
    let memtable = std::mem::replace(&mut keyspace.memtable, Memtable::empty());
    if !memtable.is_empty() {
        keyspace.full.push(memtable);
    }
    Ok(())
}

/// Seals all memtables, because a log has ended. A flush is of whole memtables, and those end with a log: so what is in tables later is in
/// whole memtables here, too.
fn seal_all(keyspaces: &mut Keyspaces) {
    keyspaces.values_mut().for_each(|keyspace| drop(seal(keyspace)));
}

impl Read {
    /// Reads manifest `number` and the logs behind it. `known`: what was read before, of which indexes are used where nothing has changed.
    fn new(at: &Place, number: u64, known: Option<Read>) -> Result<Read> {
        let open = &mut |meta: &table::TableMeta| at.tables.open_for_moment(meta);
        let manifest = ManifestReader::open(&at.env, &at.dir, number, open)?;
        let state = &manifest.state;
        let known = known.map_or_else(Keyspaces::new, |known| known.keyspaces);
        let mut keyspaces = at.keyspaces(state, &known)?;
        mark_obsolete(&known, &keyspaces);
        // After the manifest: a log that it names is there. And after the indexes, which may take long.
        let logs = Files::list(&at.env, &at.dir)?.needed_logs(&at.dir, state)?;
        let inserter = at.inserter(state);
        let mut log = 0;
        let replayed = replay(&at.env, &at.dir, state, &logs, &mut |record| {
            if std::mem::replace(&mut log, record.number) != record.number {
                seal_all(&mut keyspaces);
            }
            inserter.insert(&mut keyspaces, record)
        })?;
        let segments = at.segments(&state.value_files);
        let Replay { end, mut logs, tail } = replayed;
        if tail.is_some() {
            logs.pop();
        }
        Ok(Read { manifest, keyspaces, logs, tail, end, segments })
    }

    /// Reads what was added since. Returns whether there was anything.
    fn go_on(&mut self, at: &Place) -> Result<bool> {
        let open = &mut |meta: &table::TableMeta| at.tables.open_for_moment(meta);
        let mut has_edits = self.manifest.go_on(open)?;
        // Up to where the logs have been written, at a time when there are no other edits: so both are of one moment. A bulk load, which is in no log,
        // would be missing before commits that came after it.
        let mut ahead = self.tail.as_ref().map(LogTail::look_ahead);
        let bound = loop {
            let min_log = self.manifest.state.min_log;
            let bound = ahead.as_mut().map(|ahead| ahead.find_end(&at.env, &at.dir, min_log)).transpose()?;
            if !self.manifest.go_on(open)? || planted(Bug::ReadManifestOnce) {
                break bound;
            }
            has_edits = true;
        };
        at.check_newest(self.manifest.number())?;
        if has_edits && bound.is_none() {
            // There may be logs now.
            return Err(at.replaced(self.manifest.number()));
        }
        if has_edits {
            self.apply_edits(at)?;
        }
        let has_records = bound.map(|bound| self.go_on_in_logs(at, bound)).transpose()?;
        Ok(has_edits || has_records == Some(true))
    }

    /// Reads what was added to the logs since, up to a bound. Returns whether there was anything.
    fn go_on_in_logs(&mut self, at: &Place, bound: LogBound) -> Result<bool> {
        let Read { manifest, keyspaces, logs, tail, end, .. } = self;
        let before = *end;
        let min_log = manifest.state.min_log;
        if tail.as_ref().is_some_and(|tail| tail.number() < min_log) {
            // What it has beyond the place that was read is in tables.
            *tail = Some(LogTail::at_start(&at.env, &at.dir, min_log, end)?);
            seal_all(keyspaces);
        }
        let inserter = at.inserter(&manifest.state);
        let apply = &mut |keyspaces: &mut Keyspaces, record: crate::wal::LogRecord<'_>| {
            inserter.insert(keyspaces, record)
        };
        if let Some(tail) = tail
            && !planted(Bug::IgnoreLogTail)
        {
            let switched = &mut |keyspaces: &mut Keyspaces, ended| {
                if !planted(Bug::CopyWithoutOlderLogs) {
                    logs.push(ended);
                }
                seal_all(keyspaces);
            };
            tail.go_on((&at.env, &at.dir), bound, end, keyspaces, apply, switched)?;
        }
        Ok(*end != before)
    }

    /// Makes the keyspaces those of the present state, and forgets what is in tables.
    fn apply_edits(&mut self, at: &Place) -> Result<()> {
        let state = &self.manifest.state;
        // What they have is in tables.
        self.logs.retain(|log| log.number >= state.min_log);
        let new = at.keyspaces(state, &self.keyspaces)?;
        let known = std::mem::replace(&mut self.keyspaces, new);
        mark_obsolete(&known, &self.keyspaces);
        for (id, known) in known {
            let Some(keyspace) = self.keyspaces.get_mut(&id) else { continue };
            let flushed = keyspace.tree.version().flushed_seq;
            keyspace.has_expiries = known.has_expiries;
            let mut full = Vec::new();
            for memtable in known.full {
                full.extend(unflushed(memtable, flushed, at)?);
            }
            keyspace.full = full;
            keyspace.memtable = unflushed(known.memtable, flushed, at)?.unwrap_or_else(Memtable::empty);
        }
        // Anew, so that files that were removed do not stay open.
        self.segments = at.segments(&state.value_files);
        Ok(())
    }

    /// The moment up to which was read.
    fn moment(&self, at: &Place, lock: Box<dyn FileLock>) -> Result<Arc<DbInner>> {
        let state = &self.manifest.state;
        let flushed = self.keyspaces.values().map(|k| k.tree.version().flushed_seq).max();
        // Not the last number that the manifest knows of: its commit may be in the memory of the writer only.
        let mut seq = self.end.seq.max(flushed.unwrap_or(0));
        if planted(Bug::ShowUnwritten) {
            seq = seq.max(state.last_seq);
        }
        check_seq(&at.dir, seq)?;
        let end = LogEnd { seq, time: state.last_time.max(self.end.time) };
        let message = format!(
            "{}: the database was opened for reading only: another process may write to it",
            at.dir.display()
        );
        let refusal = Error::new(ErrorKind::ReadOnly, message);
        let (env, dir) = (&at.env, &at.dir);
        let recycled = Arc::new(RecycledLogs::new(env, dir, 0));
        let disk_reserve = DiskReserve::new(env, dir, 0, recycled.clone());
        let logs = Arc::new(Logs {
            closed: Default::default(),
            recycled,
            begun: Default::default(),
            counters: Default::default(),
        });
        let log_number = self.tail.as_ref().map_or(state.newest_log, LogTail::number);
        let log = Log::refusing(env, dir, log_number, refusal.clone(), logs.clone());
        let manifest = Manifest::refusing(dir, self.manifest.number(), refusal.clone());
        let parts = Parts {
            env: env.clone(),
            dir: dir.clone(),
            options: at.options.clone(),
            filters: Filters::default(),
            operators: at.operators.clone(),
            lock,
            tables: at.tables.with_segments(self.segments.clone()),
            disk_reserve,
            kept_files: KeptFiles::new(env, dir),
            spare_memory: at.spare_memory.clone(),
            next_file: AtomicU64::new(state.next_file),
            moment: Some(MomentLogs {
                min_log: state.min_log,
                logs: self.logs.iter().copied().chain(self.tail.as_ref().map(LogTail::read)).collect(),
                last_record: self.tail.as_ref().and_then(LogTail::last_record),
            }),
        };
        let keyspaces = self.keyspaces.iter().map(|(id, k)| (*id, k.shared())).collect();
        let db = parts.assemble(state, keyspaces, end, manifest, log, logs);
        db.end_writing(refusal);
        Ok(db)
    }
}

/// A memtable that is not in tables, whose entries are up to `flushed`.
fn unflushed(memtable: Arc<Memtable>, flushed: Seq, at: &Place) -> Result<Option<Arc<Memtable>>> {
    let (Some(oldest), Some(newest)) = (memtable.min_seq(), memtable.max_seq()) else { return Ok(None) };
    if newest <= flushed && !planted(Bug::KeepFlushedMemtables) {
        return Ok(None);
    }
    match oldest <= flushed && newest > flushed {
        true => Err(Error::corruption(&at.dir.join("manifest"), 0, "a memtable is in tables in part")),
        false => Ok(Some(memtable)),
    }
}

/// Tables that no keyspace has any more are closed when no moment has them any more.
fn mark_obsolete(known: &Keyspaces, new: &Keyspaces) {
    let is_changed = |(id, known): &(&u64, &Replayed)| {
        !new.get(id).is_some_and(|new| Arc::ptr_eq(known.tree.version(), new.tree.version()))
    };
    let changed = known.iter().filter(is_changed);
    let tables = changed.flat_map(|(_, known)| known.tree.version().tables());
    let mut gone: HashMap<u64, &Arc<LiveTable>> =
        tables.map(|(_, table)| (table.meta.number, table)).collect();
    if !gone.is_empty() {
        // Also those of other keyspaces, which may have the same tables.
        let still_there = new.values().flat_map(|new| new.tree.version().tables());
        still_there.for_each(|(_, table)| _ = gone.remove(&table.meta.number));
    }
    gone.values().for_each(|table| table.set_obsolete());
}
