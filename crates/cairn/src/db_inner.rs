//! [`DbInner`], the shared state of an open database; creating and dropping keyspaces; closing.

use crate::active_calls::{ActiveCall, ActiveCalls};
use crate::background::Background;
use crate::begun_log::BegunLog;
use crate::commit::Commit;
use crate::counters::Counters;
use crate::db_state::{FLUSHED_ALL, FlushedCounts, KeyspaceState, State};
use crate::dead_ranges::DeadRanges;
use crate::disk_reserve::DiskReserve;
use crate::keyspace::{CLOSED, DROPPED, KeyspaceInner, OPEN, ReadState, check_name};
use crate::log::{ClosedLogs, LogCounters};
use crate::recycled_log::RecycledLogs;
use crate::snapshot::Snapshots;
use crate::sync::{ArcSwap, AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Condvar, Mutex, Ordering};
use crate::visible_seq::VisibleSeq;
use crate::writer::{PanicGuard, Writer};
use crate::{KeyspaceOptions, Options};
use base::planted::{Bug, planted};
use base::{Error, ErrorKind, Result};
use env::{Env, FileLock, ForkGuard};
use memtable::Memtable;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use table::{TableCache, TableMeta};
use tree::{
    DatabaseEdit, KeyspaceCreated, LiveTable, Manifest, ManifestError, ObsoleteFiles, Tree, VersionEdit,
};

/// An open database. Threads, handles, iterators and snapshots share it.
///
/// Lock order: the writer, `manifest`, `state`. The locks of the closed logs, of the reserve and of the recycled logs may be taken under
/// any of these; they take no other lock, except the one of the recycled logs.
pub(crate) struct DbInner {
    pub env: Arc<dyn Env>,
    pub dir: PathBuf,
    pub options: Options,
    /// Unique for each opening of a database in this process.
    pub identity: u64,
    /// The process that opened the database.
    pub origin: ForkGuard,
    pub tables: Arc<TableCache>,
    pub garbage: Arc<ObsoleteFiles>,
    pub snapshots: Snapshots,
    /// Memtables that cursors still hold although they were flushed or their keyspace dropped.
    pub retired: crate::held_seqs::RetiredMemtables,
    /// The newest visible sequence number.
    pub visible: VisibleSeq,
    pub commit: Commit,
    pub closed_logs: Arc<ClosedLogs>,
    pub recycled: Arc<RecycledLogs>,
    pub begun_log: Arc<BegunLog>,
    pub log_counters: Arc<LogCounters>,
    pub manifest: Mutex<Manifest>,
    pub disk_reserve: DiskReserve,
    pub state: Mutex<State>,
    /// The empty memtable that all keyspaces with nothing in memory share.
    pub idle: Arc<Memtable>,
    /// Signalled when there may be something to flush, or to compact.
    pub flush_work: Condvar,
    pub compact_work: Condvar,
    /// Signalled when a job has ended.
    pub progress: Condvar,
    /// Signalled when writing ends: for threads that pause after a failure.
    pub end: Condvar,
    pub next_file: AtomicU64,
    pub counters: Counters,
    pub scrub: crate::scrub::Scrub,
    /// The database counts as at rest until the total bytes of written keys and values pass this.
    pub rest_until: AtomicU64,
    /// Nanoseconds that a writer waits per KiB because compaction is behind.
    pub slowdown: AtomicU64,
    /// Held while tables are deleted.
    pub collecting: Mutex<()>,
    /// The lock on the directory, held until the database is closed. This mutex may be taken under any other lock, and is held for at
    /// most a system call.
    pub lock: Mutex<Option<Box<dyn FileLock>>>,
    /// Calls of the application that use the directory.
    pub calls: ActiveCalls,
    /// The error that ended all writing.
    pub fatal: OnceLock<Error>,
    /// Whether `fatal` is set or the database is closed: each write checks this.
    pub stopped: AtomicBool,
    pub closed: AtomicBool,
    /// Set when the read charges of a memtable have reached its price, or tombstones on a full disk are to be flushed: see
    /// [`DbInner::seal_due`].
    pub memtables_due: AtomicBool,
    /// The same for a guard or level 0 of some tree (`tree::ReadCharges`).
    pub trees_due: Arc<std::sync::atomic::AtomicBool>,
    /// Limits the write rate of compactions.
    pub rate_limiter: crate::rate_limiter::RateLimiter,
    /// Tells running jobs to stop.
    pub cancelled: std::sync::atomic::AtomicBool,
}

/// Shared by the handles of the database and of its keyspaces: dropping the last one closes the database.
pub(crate) struct Handle {
    pub core: Arc<DbInner>,
    pub background: Mutex<Background>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        // Errors are dropped here; `close` returns them.
        let _ = self.core.shut_down(&self.background);
    }
}

impl DbInner {
    pub(crate) fn is_inline(&self) -> bool {
        self.options.background_threads == 0
    }

    /// Budget of all memtables together: half of the memory budget.
    pub(crate) fn write_budget(&self) -> u64 {
        self.options.memory_budget / 2
    }

    pub(crate) fn new_number(&self) -> u64 {
        self.next_file.fetch_add(1, Ordering::Relaxed)
    }

    /// The error that ended all writing, or else that the database is closed.
    #[cold]
    pub(crate) fn stop_reason(&self) -> Error {
        match self.fatal.get() {
            Some(fatal) => fatal.clone(),
            None => self.closed_error(),
        }
    }

    /// Ends all writing, because the state on disk is unknown or a thread is gone. Reads go on.
    pub(crate) fn stop(&self, cause: &Error) -> Error {
        let message = format!("the database is read-only until it is reopened, because: {cause}");
        self.refuse(Error::new(ErrorKind::ReadOnly, message))
    }

    /// Ends all writing with `reason`, unless it has already ended. Returns the error that all writers get.
    pub(crate) fn refuse(&self, reason: Error) -> Error {
        let fatal = self.fatal.get_or_init(|| reason).clone();
        tracing::error!(error = %fatal, "writing stopped");
        self.stopped.store(true, Ordering::SeqCst);
        let _state = self.state.lock();
        self.flush_work.notify_all();
        self.compact_work.notify_all();
        self.progress.notify_all();
        self.end.notify_all();
        fatal
    }

    /// Fails in a process that was forked from the one that opened the database: both would write to the same files.
    #[inline]
    pub(crate) fn check_process(&self) -> Result<()> {
        match self.origin.is_here() {
            true => Ok(()),
            false => Err(self.forked()),
        }
    }

    #[cold]
    fn forked(&self) -> Error {
        let message = format!(
            "{}: the database was opened by process {} and cannot be used in its child {}",
            self.dir.display(),
            self.origin.process(),
            std::process::id()
        );
        Error::new(ErrorKind::Locked, message)
    }

    /// Ends all writing when `error` is that of a failed sync; other errors may be temporary.
    pub(crate) fn poison_on_sync_error(&self, error: Error) -> Error {
        match error.kind() {
            ErrorKind::ReadOnly => self.stop(&error),
            _ => error,
        }
    }

    /// Opens the reader of a table for a version.
    pub(crate) fn open_table(&self, meta: &TableMeta) -> Result<Arc<LiveTable>> {
        let table = self.tables.open(meta.number, meta.file_size)?;
        Ok(LiveTable::new(meta.clone(), table, self.garbage.clone()))
    }

    /// Ends all writing if the path of the directory now leads elsewhere: files are created and removed by path, and could be another
    /// database's. Called before such operations. (A move between this check and the operation is not detected.)
    pub(crate) fn check_place(&self) -> Result<()> {
        let moved = self.lock.lock().as_ref().map_or(Ok(()), |lock| lock.check_place());
        moved.map_err(|e| self.stop(&e))
    }

    /// Makes an edit durable. The caller holds the manifest.
    pub(crate) fn log_edit(&self, manifest: &mut Manifest, edit: &mut DatabaseEdit) -> Result<()> {
        self.check_process()?;
        self.check_place()?;
        let _watch = PanicGuard::new(self, "a writer of the manifest");
        edit.next_file = self.next_file.load(Ordering::Relaxed);
        let before = manifest.len();
        let result = loop {
            match manifest.log(edit) {
                Err(ManifestError::Rejected(e)) if self.disk_reserve.release_for(&e) => {}
                result => break result,
            }
        };
        self.counters.manifest_bytes.fetch_add(manifest.len().saturating_sub(before), Ordering::Relaxed);
        match result {
            Ok(()) => Ok(()),
            Err(ManifestError::Rejected(e)) => Err(e),
            Err(ManifestError::Unknown(e)) => Err(self.stop(&e)),
        }
    }

    /// Starts a new manifest when the present one is long. On a failure the old one stays in use.
    pub(crate) fn renew_manifest(&self, manifest: &mut Manifest) {
        if !manifest.is_long(self.options.manifest_cap) {
            return;
        }
        let edit = {
            let state = self.state.lock();
            let mut edit = self.whole_state(&state);
            edit.min_log = self.min_log(&state, &FlushedCounts::default());
            edit.newest_log = self.begun_log.established();
            edit
        };
        let old = manifest.number();
        let _watch = PanicGuard::new(self, "a writer of the manifest");
        match Manifest::create(&self.env, &self.dir, self.new_number(), &edit) {
            Ok(new) => {
                self.counters.manifest_bytes.fetch_add(new.len(), Ordering::Relaxed);
                *manifest = new;
                let _ = self.env.remove(&self.dir.join(tree::manifest_file_name(old)));
            }
            Err(ManifestError::Rejected(_)) => {}
            // It is undetermined which manifest a crash would leave: no edit may be written to either.
            Err(ManifestError::Unknown(e)) => {
                self.stop(&e);
            }
        }
    }

    /// The edit that produces the present state from an empty one, without the logs.
    pub(crate) fn whole_state(&self, state: &State) -> DatabaseEdit {
        let created = |k: &KeyspaceState| created_edit(&k.core);
        DatabaseEdit {
            created: state.keyspaces.values().map(created).collect(),
            trees: (state.keyspaces.iter())
                .map(|(id, k)| (*id, VersionEdit::snapshot(k.tree.version())))
                .collect(),
            next_file: self.next_file.load(Ordering::Relaxed),
            next_keyspace: state.next_keyspace,
            last_seq: self.visible.newest(),
            closed: self.closed_logs.synced(),
            ..DatabaseEdit::default()
        }
    }

    /// Number of the oldest log that is needed once `flushed` is in tables.
    pub(crate) fn min_log(&self, state: &State, flushed: &FlushedCounts) -> u64 {
        // Read first: concurrent writes go to this log or a newer one.
        let current = self.log_counters.current.load(Ordering::Acquire);
        if planted(Bug::FreeLogEarly) {
            return current;
        }
        let oldest = state.oldest_unflushed(flushed);
        oldest.and_then(|seq| self.closed_logs.holding(seq)).unwrap_or(current).min(current)
    }

    /// Removes the logs that the durable manifest no longer needs.
    pub(crate) fn remove_logs(&self, min_log: u64) {
        let gone = self.closed_logs.release(min_log);
        for log in &gone {
            match self.disk_reserve.is_spent() {
                false => self.recycled.offer(log.number, log.len),
                // Logs that are not removed here are removed by the next opening.
                true => _ = self.env.remove(&self.dir.join(crate::log::log_file_name(log.number))),
            }
        }
        self.made_room(!gone.is_empty());
    }

    /// Called when files may have been removed: the reserve may shrink, or be made again if it is spent.
    fn made_room(&self, gone: bool) {
        if gone {
            self.disk_reserve.fit(self.log_bytes());
            self.trim_log();
            self.disk_reserve.retake();
        }
    }

    /// Bytes of all needed logs.
    pub(crate) fn log_bytes(&self) -> u64 {
        self.closed_logs.bytes() + self.log_counters.current_len.load(Ordering::Relaxed)
    }

    /// Deletes the tables that no version uses any more.
    pub(crate) fn collect_garbage(&self) {
        // One thread at a time: when this returns, everything that was garbage before is deleted.
        let _collecting = self.collecting.lock();
        let gone = self.garbage.take();
        // Tables that are not removed here are removed by the next opening.
        if gone.is_empty() || self.check_place().is_err() {
            return;
        }
        for &number in &gone {
            self.tables.forget(number);
            let _ = self.env.remove(&self.dir.join(table::table_file_name(number)));
        }
        self.made_room(!gone.is_empty());
    }

    pub(crate) fn create_keyspace(&self, name: &str, options: KeyspaceOptions) -> Result<Arc<KeyspaceInner>> {
        check_name(name)?;
        options.validate()?;
        let late = planted(Bug::CreateAfterClose);
        let _call = if late { self.check_running().map(|()| None)? } else { Some(self.begin_call()?) };
        let mut manifest = self.manifest.lock();
        if !late {
            self.check_running()?;
        }
        let id = {
            let state = self.state.lock();
            if state.by_name(name).is_some() {
                let message = format!("keyspace {name:?} exists already");
                return Err(Error::new(ErrorKind::AlreadyExists, message));
            }
            state.next_keyspace
        };
        let core = self.new_keyspace_core(id, name.to_owned(), options, tree::Version::empty);
        let mut edit =
            DatabaseEdit { created: vec![created_edit(&core)], next_keyspace: id + 1, ..Default::default() };
        self.log_edit(&mut manifest, &mut edit)?;
        let mut state = self.state.lock();
        state.next_keyspace = id + 1;
        let tree = Tree::new(core.options.tree_options(id, name), core.read_state.load().version.clone());
        state.insert(KeyspaceState::new(core.clone(), tree));
        drop(state);
        self.renew_manifest(&mut manifest);
        Ok(core)
    }

    pub(crate) fn new_keyspace_core(
        &self,
        id: u64,
        name: String,
        options: KeyspaceOptions,
        version: impl FnOnce(usize) -> tree::Version,
    ) -> Arc<KeyspaceInner> {
        let memtable_bytes = memtable_bytes(&self.options, &options);
        let read_state = ReadState {
            memtable: self.idle.clone(),
            flushing: Vec::new(),
            version: Arc::new(version(options.levels)),
        };
        let counters = crate::keyspace::KeyspaceCounters {
            compactions: (0..=options.levels).map(|_| Default::default()).collect(),
            ..Default::default()
        };
        Arc::new(KeyspaceInner {
            id,
            database: self.identity,
            name,
            memtable_bytes,
            read_state: ArcSwap::from_pointee(read_state),
            generation: Default::default(),
            readers: Default::default(),
            charges: tree::ReadCharges::new(options.seek_cost, self.trees_due.clone()),
            state: AtomicU8::new(OPEN),
            reserved: AtomicU64::new(0),
            last_used: AtomicUsize::new(0),
            dead: DeadRanges::new(self.options.skip_deleted),
            counters,
            options,
        })
    }

    /// Drops a keyspace, holding the writer so that no write runs meanwhile. The log may still name the keyspace: recovery skips entries
    /// of dropped keyspaces, and their numbers are not used again.
    pub(crate) fn drop_keyspace(&self, name: &str) -> Result<()> {
        let _call = self.begin_call()?;
        let mut writer = self.writer();
        self.check_running()?;
        // Batches that have a sequence number may still be inserting into memtables.
        self.visible.wait_for(writer.next_seq - 1);
        // Before the manifest is locked, because this locks it. The log stays the newest while the writer is held.
        self.establish_log()?;
        let mut manifest = self.manifest.lock();
        let id = self.state.lock().by_name(name).map(|k| k.core.id);
        let id = id.ok_or_else(|| missing(name))?;
        // Older writes to other keyspaces must not be lost if the drop survives.
        writer.sync_log(self)?;
        let min_log = self.min_log_without(&self.state.lock(), id);
        let mut edit = DatabaseEdit {
            dropped: vec![id],
            last_seq: self.visible.newest(),
            min_log,
            closed: self.closed_logs.synced(),
            ..Default::default()
        };
        self.log_edit(&mut manifest, &mut edit)?;
        let mut state = self.state.lock();
        if let Some(mut keyspace) = state.remove(id) {
            self.disk_reserve.note_tables(keyspace.tree.version().bytes(), 0);
            keyspace.core.state.store(DROPPED, Ordering::Release);
            writer.forget(&keyspace.core);
            self.counters.note_dropped(&keyspace.core);
            keyspace.tree.abandon();
            self.retired
                .add(keyspace.core.read_state.load().memtables().filter(|memtable| memtable.capacity() > 0));
            keyspace.flushing.clear();
            keyspace.publish(self.idle.clone());
            // The error may have been this keyspace's. An error of another one reappears when its job is retried.
            state.compaction_trouble = None;
            if state.waiting().next().is_none() {
                state.flush_trouble = None;
            }
        }
        self.progress.notify_all();
        drop(state);
        drop(manifest);
        drop(writer);
        self.remove_logs(min_log);
        self.collect_garbage();
        Ok(())
    }

    /// Number of the oldest log that is needed once the keyspace is dropped.
    fn min_log_without(&self, state: &State, id: u64) -> u64 {
        if planted(Bug::DropFreesLogs) {
            return self.log_counters.current.load(Ordering::Acquire);
        }
        self.min_log(state, &FlushedCounts::from([(id, FLUSHED_ALL)]))
    }

    pub(crate) fn check_running(&self) -> Result<()> {
        match self.stopped.load(Ordering::Acquire) {
            true => Err(self.stop_reason()),
            false => Ok(()),
        }
    }

    /// Begins a call that uses the directory: closing waits until the returned value is dropped.
    ///
    /// # Errors
    /// `Closed` once closing has begun; the error that ended writing, if it has ended.
    pub(crate) fn begin_call(&self) -> Result<ActiveCall<'_>> {
        let call = self.calls.begin().ok_or_else(|| self.closed_error())?;
        self.check_running()?;
        Ok(call)
    }

    /// Fails once closing has begun. For readers, for which closing does not wait: they end at their next step.
    #[inline]
    pub(crate) fn check_not_closed(&self) -> Result<()> {
        match self.closed.load(Ordering::Acquire) {
            true => Err(self.closed_error()),
            false => Ok(()),
        }
    }

    #[cold]
    fn closed_error(&self) -> Error {
        Error::new(ErrorKind::Closed, format!("{}: the database is closed", self.dir.display()))
    }

    /// The error of a read. After closing the files may be gone, which is not damage.
    #[cold]
    pub(crate) fn read_error(&self, error: Error) -> Error {
        self.check_not_closed().err().unwrap_or(error)
    }

    /// Records the length of the log in the manifest, after its last sync: damage to its very end is then distinguished from a torn tail.
    fn note_end_of_log(&self, writer: &Writer) -> Result<()> {
        let end = writer.log.closed_at();
        if end.len == 0 {
            return Ok(()); // it was never made: the disk was full at the opening
        }
        let mut closed = self.closed_logs.synced();
        closed.push(end);
        let mut edit = DatabaseEdit { closed, ..DatabaseEdit::default() };
        match self.log_edit(&mut self.manifest.lock(), &mut edit) {
            Err(e) if e.kind() == ErrorKind::ReadOnly => Err(e),
            // The recorded length is additional proof; nothing is lost without it.
            _ => Ok(()),
        }
    }

    /// Stops threads and running calls, makes the log durable, releases the lock of the directory, and returns an error that was not
    /// reported before.
    ///
    /// When it returns nothing uses the directory any more: writers and calls are refused, and log and manifest refuse edits.
    pub(crate) fn shut_down(&self, background: &Mutex<Background>) -> Result<()> {
        // A forked child must not touch the threads, the files and the lock, which are the parent's.
        self.check_process()?;
        let mut background = background.lock();
        if self.closed.swap(true, Ordering::SeqCst) {
            return Ok(());
        }
        // Writers that have begun finish first; later ones are refused.
        let mut writer = self.writer();
        self.stopped.store(true, Ordering::SeqCst);
        let synced = match self.fatal.get() {
            None => writer.sync_log(self).and_then(|()| self.note_end_of_log(&writer)),
            Some(fatal) => Err(fatal.clone()),
        };
        // Here, and not when the last handle is dropped: another opening may read the file by then.
        writer.log.trim();
        drop(writer);
        self.commit.turn_away(|| Err(self.stop_reason()));
        self.cancelled.store(true, Ordering::SeqCst);
        {
            let state = self.state.lock();
            state.keyspaces.values().for_each(|k| k.core.state.store(CLOSED, Ordering::Release));
            self.flush_work.notify_all();
            self.compact_work.notify_all();
            self.progress.notify_all();
            self.end.notify_all();
        }
        let joined = background.join();
        self.calls.end();
        self.collect_garbage();
        if self.fatal.get().is_none() && self.check_place().is_ok() {
            self.recycled.give_up();
        }
        self.release_directory();
        self.commit.turn_away(|| Err(self.stop_reason()));
        let trouble = self.state.lock().trouble_or_damage();
        synced.and(joined).and(trouble.map_or(Ok(()), Err))
    }
}

impl DbInner {
    /// Replaces the log and the manifest by ones that refuse everything, and releases the lock of the directory: from then on another
    /// opening may own it.
    fn release_directory(&self) {
        let reason = self.closed_error();
        if !planted(Bug::CloseWithoutWaiting) && !planted(Bug::CreateAfterClose) {
            let mut manifest = self.manifest.lock();
            let number = manifest.number();
            *manifest = Manifest::refusing(&self.dir, number, reason.clone());
        }
        self.writer().log.refuse(reason);
        *self.lock.lock() = None;
    }
}

/// Memtable size of a keyspace: at most an eighth of the memory budget, so that flushing does not stop the writers.
fn memtable_bytes(database: &Options, keyspace: &KeyspaceOptions) -> usize {
    keyspace.memtable_bytes.min((database.memory_budget / 8) as usize)
}

fn created_edit(core: &KeyspaceInner) -> KeyspaceCreated {
    KeyspaceCreated {
        id: core.id,
        name: core.name.clone(),
        levels: core.options.levels,
        options: core.options.to_pairs().into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
    }
}

pub(crate) fn missing(name: &str) -> Error {
    Error::new(ErrorKind::NotFound, format!("there is no keyspace {name:?}"))
}
