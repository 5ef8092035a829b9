//! [`DbInner`], the shared state of an open database. The rooms above define its methods, each those of its task.

use super::db_state::State;
use super::filter_jobs::{FilterJobs, KeyspaceFilter};
use super::hash_log::HashLog;
use super::keyspace_inner::{AppliedRetention, KeyspaceInner, OPEN, Role};
use super::read_state::ReadState;
use super::settings::{Settings, WriteSettings};
use super::status::{Signals, Status};
use super::tables::Tables;
use super::writer::{Commit, TaskJob};
use crate::events;
use crate::parts::{
    ActiveCall, ActiveCalls, Counters, DeadRanges, DiskReserve, ExpiryClock, KeptFiles, KeyspaceCounters,
    Moments, RateLimiter, RetiredMemtables, Scrub, Snapshots, TaskJobs, VisibleSeq, whole,
};
use crate::sync::{ArcSwap, AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Mutex, Ordering};
use crate::types::{Filters, IoStats, Limits, Operators, Options};
use crate::wal::Logs;
use base::planted::{Bug, planted};
use base::{Error, ErrorKind, MergeOperator, Result, Seq, Time};
use env::{Env, FileLock, ForkGuard};
use history::Retention;
use memtable::{Memtable, SpareMemory};
use record::LastRecord;
use std::path::PathBuf;
use std::sync::Arc;
use tree::{LogClosed, Manifest};

/// The logs of a moment of a database to which another process may write.
pub(crate) struct MomentLogs {
    /// Entries in older logs are in tables.
    pub min_log: u64,
    /// The logs with what is in the memtables of the moment, ascending, each up to where it belongs to the moment. The process that writes may go on
    /// to write behind that.
    pub logs: Vec<LogClosed>,
    /// The last record of the last one, if that may be written to. It may be taken back when a later record of its group could not be written.
    pub last_record: Option<LastRecord>,
}

/// An open database. Threads, handles, iterators and snapshots share it.
///
/// Lock order: the writer, `manifest`, `state`. The locks of the closed logs, of the reserve and of the recycled logs may be taken under
/// any of these; their holders take no other lock of this crate. `ARCHITECTURE.md` has all locks.
pub(crate) struct DbInner {
    pub env: Arc<dyn Env>,
    pub dir: PathBuf,
    pub options: Options,
    pub filters: Filters,
    pub operators: Operators,
    /// The compactions that run with one of them.
    pub filter_jobs: Arc<FilterJobs>,
    /// Unique for each opening of a database in this process.
    pub identity: u64,
    /// Of one moment of a database to which another process may write: nothing in the directory is changed.
    pub moment: Option<MomentLogs>,
    /// The process that opened the database.
    pub origin: ForkGuard,
    pub tables: Tables,
    pub snapshots: Snapshots,
    /// When readers began.
    pub moments: Moments,
    /// By which entries expire.
    pub clock: Arc<ExpiryClock>,
    /// Memtables that cursors still hold although they were flushed or their keyspace dropped.
    pub retired: RetiredMemtables,
    /// Memory of flushed memtables, for the next ones.
    pub spare_memory: Arc<SpareMemory>,
    /// The newest visible sequence number.
    pub visible: VisibleSeq,
    pub commit: Commit,
    /// Batches of asynchronous tasks.
    pub task_jobs: TaskJobs<TaskJob, Result<()>>,
    /// The latest time of a version in use, in microseconds. A holder of the writer advances it, and so does a
    /// compaction that removes versions by age.
    pub last_time: AtomicU64,
    /// Retention has removed versions as of times up to this one, in microseconds.
    pub retention_time: AtomicU64,
    pub logs: Arc<Logs>,
    pub manifest: Mutex<Manifest>,
    /// Files that readers in other processes may need.
    pub kept_files: KeptFiles,
    pub disk_reserve: DiskReserve,
    pub state: Mutex<State>,
    pub signals: Signals,
    pub next_file: AtomicU64,
    pub counters: Counters,
    pub scrub: Scrub,
    /// The database counts as idle until the total bytes of written keys and values pass this.
    pub idle_until: AtomicU64,
    /// Nanoseconds that a writer waits per KiB because compactions are behind: 2,000 at a debt of 2, 32,000 at a debt of 5
    /// (`background/install.rs`).
    pub slowdown: AtomicU64,
    /// How near an index of a keyspace without order is to the end of its memory, in thousandths: the nearest of them, of those that collections
    /// would make smaller.
    pub index_pressure: AtomicU64,
    /// No small files are merged before this time, in milliseconds of the monotonic clock.
    pub next_merge: AtomicU64,
    /// Bytes of values that collections could free, when a compaction or collection last ended, or nothing was due.
    pub dead_values: AtomicU64,
    /// Bytes of all immutable memtables: shared with the state, which changes it.
    pub waiting_bytes: Arc<AtomicU64>,
    /// The lock on the directory, held until the database is closed. This mutex may be taken under any other lock, and is held for at
    /// most a system call.
    pub lock: Mutex<Option<Box<dyn FileLock>>>,
    /// Calls of the application that use the directory.
    pub calls: ActiveCalls,
    pub status: Status,
    /// Limits the write rate of compactions.
    pub rate_limiter: RateLimiter,
}

impl DbInner {
    pub(crate) fn is_inline(&self) -> bool {
        self.options.background_threads == 0
    }

    /// Budget of all memtables together: half of the memory budget.
    pub(crate) fn write_budget(&self) -> u64 {
        self.options.memory_budget / 2
    }

    /// The latest time of a version in use.
    pub(crate) fn last_time(&self) -> Time {
        Time::from_micros(self.last_time.load(Ordering::Acquire))
    }

    /// The present time, not before that of any version.
    pub(crate) fn now(&self) -> Time {
        self.env.wall_clock().max(self.last_time())
    }

    /// See the field.
    pub(crate) fn retention_time(&self) -> Time {
        Time::from_micros(self.retention_time.load(Ordering::Acquire))
    }

    /// A time before the present one, for retention and expiry. By the clock alone: a caller's time after it makes no version expire.
    pub(crate) fn moment(&self) -> Time {
        let wall = self.env.wall_clock();
        self.clock.note(wall);
        Time::from_micros(wall.micros().saturating_sub(1))
    }

    /// The retention of a keyspace, for a job that removes versions as of a [`DbInner::moment`]. This is noted before they are. Then all that is
    /// written from now on is later, also if the clock is set back, and writes whose times lie before what was kept are told from others.
    ///
    /// Both under one lock: an alteration that has replaced the retention finds what jobs with the old one have noted. The job lists the readers
    /// after this call: so it finds those from before the alteration that gave it its retention.
    pub(crate) fn note_retention(&self, keyspace: &KeyspaceInner, moment: Time) -> AppliedRetention {
        let applied = keyspace.retention.lock();
        self.note_age(applied.retention, moment);
        *applied
    }

    fn note_age(&self, retention: Retention, moment: Time) {
        if retention.age().is_some() {
            self.retention_time.fetch_max(moment.micros(), Ordering::AcqRel);
            self.last_time.fetch_max(moment.micros(), Ordering::AcqRel);
        }
    }

    /// Notes the newest visible number for [`Moments`].
    pub(crate) fn note_moment(&self) {
        // The times first: readers at a later number began after them, also by the clock of expiries.
        let now = self.env.wall_clock();
        self.clock.note(now);
        self.moments.note(self.visible.newest(), now);
    }

    /// The time up to which versions of a historical keyspace must have ended, or the expiries of other entries must lie, to have expired, if time
    /// alone makes any expire: for the moment at which its oldest reader began. `now` was read before the readers were listed.
    pub(crate) fn horizon(&self, keyspace: &KeyspaceInner, now: Time, oldest: Option<Seq>) -> Option<Time> {
        self.horizon_by(keyspace, now, oldest, |retention| self.note_age(retention, now))
    }

    /// The same, for statistics: nothing is removed because of it.
    pub(crate) fn horizon_at(
        &self,
        keyspace: &KeyspaceInner,
        now: Time,
        oldest: Option<Seq>,
    ) -> Option<Time> {
        self.horizon_by(keyspace, now, oldest, |_| ())
    }

    fn horizon_by(
        &self,
        keyspace: &KeyspaceInner,
        now: Time,
        oldest: Option<Seq>,
        note: impl FnOnce(Retention),
    ) -> Option<Time> {
        if !keyspace.is_historical() {
            return keyspace.may_expire().then(|| self.expired_by(keyspace, now, oldest));
        }
        let moment = oldest.map_or(now, |seq| self.moments.before(seq).min(now));
        let applied = keyspace.retention.lock();
        let retention = applied.beside(oldest);
        let age = retention.only_age()?;
        note(retention);
        Some(moment.saturating_sub(age))
    }

    /// An entry whose expiry is not after this has expired for all readers. `now` is a [`DbInner::moment`] from before
    /// the readers were listed.
    pub(crate) fn expired_by(&self, keyspace: &KeyspaceInner, now: Time, oldest: Option<Seq>) -> Time {
        // Versions that have left the primary tree stay as long as others.
        match keyspace.may_expire() && !keyspace.is_historical() {
            false => Time::MIN,
            true if planted(Bug::DropExpiredDespiteReaders) => whole(now),
            true => whole(oldest.map_or(now, |seq| self.moments.before(seq).min(now))),
        }
    }

    pub(crate) fn new_number(&self) -> u64 {
        self.next_file.fetch_add(1, Ordering::Relaxed)
    }

    /// Ends all writing, because the state on disk is unknown or a thread has ended. Reads go on.
    pub(crate) fn stop(&self, cause: &Error) -> Error {
        let message = format!("the database is read-only until it is reopened, because: {cause}");
        self.refuse(Error::new(ErrorKind::ReadOnly, message))
    }

    /// Ends all writing with `reason`, unless it has already ended. Returns the error that all writers get.
    pub(crate) fn refuse(&self, reason: Error) -> Error {
        let fatal = self.end_writing(reason);
        events::error!(error = %fatal, "writing stopped");
        fatal
    }

    /// The same, where nothing is wrong.
    pub(crate) fn end_writing(&self, reason: Error) -> Error {
        let fatal = self.status.fatal.get_or_init(|| reason).clone();
        self.status.stopped.store(true, Ordering::SeqCst);
        let _state = self.state.lock();
        self.signals.notify_all();
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

    /// Ends all writing if the path of the directory now leads elsewhere: files are created and removed by path, and could be another
    /// database's. Called before such operations. (A move between this check and the operation is not detected.)
    pub(crate) fn check_place(&self) -> Result<()> {
        let moved = self.lock.lock().as_ref().map_or(Ok(()), |lock| lock.check_place());
        moved.map_err(|e| self.stop(&e))
    }

    /// The present keyspaces, also those that applications do not see.
    pub(crate) fn all_keyspaces(&self) -> Vec<Arc<KeyspaceInner>> {
        self.state.lock().keyspaces.values().map(|k| k.inner.clone()).collect()
    }

    /// The present keyspaces that applications see.
    pub(crate) fn keyspaces(&self) -> Vec<Arc<KeyspaceInner>> {
        let mut keyspaces = self.all_keyspaces();
        keyspaces.retain(|keyspace| !keyspace.is_historical());
        keyspaces
    }

    pub(crate) fn new_keyspace(
        &self,
        id: u64,
        settings: Settings,
        role: Role,
        operator: Option<Arc<dyn MergeOperator>>,
        hash_log: Option<Arc<HashLog>>,
    ) -> Arc<KeyspaceInner> {
        let Settings { name, options, .. } = &settings;
        let hash_log = options.is_hash_log().then(|| hash_log.unwrap_or_else(|| Arc::new(HashLog::new(id))));
        let read_state = ReadState {
            memtable: Memtable::empty(),
            immutable: Vec::new(),
            version: Arc::new(match role {
                Role::Historical(_) => tree::Version::empty_unordered(options.levels),
                Role::Plain | Role::Primary(_) => tree::Version::empty(options.levels),
            }),
        };
        let (tail_len, limits, readers) = match &role {
            Role::Primary(historical) => {
                (history::PRIMARY_SUFFIX, Limits::HISTORY, historical.readers.clone())
            }
            Role::Plain | Role::Historical(_) => (0, Limits::PLAIN, Arc::default()),
        };
        let filter = match &role {
            Role::Primary(historical) => historical.filter.clone(),
            // A historical keyspace has the name of its primary one.
            Role::Plain | Role::Historical(_) => {
                let of_name = self.filters.get(name);
                of_name.map(|filter| KeyspaceFilter::new(filter.clone(), self.filter_jobs.clone()))
            }
        };
        let counters = KeyspaceCounters {
            compactions: Mutex::new(vec![IoStats::default(); options.levels + 1]),
            ..Default::default()
        };
        Arc::new(KeyspaceInner {
            id,
            role,
            hash_log,
            operator,
            takes_unchecked: self.operators.takes_unchecked,
            tail_len,
            limits,
            newest_time: AtomicU64::new(0),
            database: self.identity,
            for_writes: WriteSettings::new(&self.options, &settings),
            merge: options.merge.clone(),
            retention: Mutex::new(AppliedRetention { retention: options.history, since: 0 }),
            read_state: ArcSwap::from_pointee(read_state),
            filter,
            clock: self.clock.clone(),
            has_expiries: AtomicBool::new(false),
            segments: self.tables.segments.clone(),
            generation: Default::default(),
            readers,
            charges: tree::ReadCharges::new(options.seek_cost, self.signals.trees_due.clone()),
            state: AtomicU8::new(OPEN),
            last_used: AtomicUsize::new(0),
            memtables_due: self.signals.memtables_due.clone(),
            dead: DeadRanges::new(self.options.dead_range_entries),
            counters,
            settings: ArcSwap::from_pointee(settings),
        })
    }

    /// Begins a call that uses the directory: closing waits until the returned value is dropped.
    ///
    /// # Errors
    /// `Closed` once closing has begun; the error that ended writing, if it has ended; `Locked` in a forked process.
    pub(crate) fn begin_call(&self) -> Result<ActiveCall<'_>> {
        let call = self.begin_reading()?;
        self.status.check_running()?;
        Ok(call)
    }

    /// Begins a call that reads files of the directory, which closing waits for.
    pub(crate) fn begin_reading(&self) -> Result<ActiveCall<'_>> {
        self.check_process()?;
        self.calls.begin().ok_or_else(|| self.status.closed_error())
    }

    /// Whether this is one moment of a database to which another process may write.
    pub(crate) fn is_moment(&self) -> bool {
        self.moment.is_some()
    }

    /// The sequence numbers that snapshots and cursors of the keyspace hold: ascending, without duplicates. A reader that begins later
    /// reads at a number that is at least the one visible before this call.
    pub(crate) fn readers_of(&self, keyspace: &KeyspaceInner) -> Vec<Seq> {
        // Snapshots first: a cursor made from a snapshot holds its number before the snapshot can be dropped.
        let mut seqs = self.snapshots.list();
        seqs.extend(keyspace.readers.in_slots());
        seqs.extend(keyspace.readers.more.list());
        seqs.sort_unstable();
        seqs.dedup();
        seqs
    }

    /// The smallest number in [`DbInner::readers_of`].
    pub(crate) fn oldest_reader(&self, keyspace: &KeyspaceInner) -> Option<Seq> {
        let snapshot = self.snapshots.oldest();
        let cursor = keyspace.readers.in_slots().min();
        [snapshot, cursor, keyspace.readers.more.oldest()].into_iter().flatten().min()
    }
}
