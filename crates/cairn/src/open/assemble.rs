//! The [`DbInner`] of a database that is opened, of its [`Parts`].

use super::replayed::Keyspaces;
use crate::parts::{
    ActiveCalls, Counters, DiskReserve, ExpiryClock, KeptFiles, RateLimiter, Scrub, Snapshots, VisibleSeq,
};
use crate::state::{
    DbInner, ImmutableMemtable, KeyspaceState, MomentLogs, Role, Settings, Signals, State, Status, Tables,
    Writer, new_commit,
};
use crate::sync::{AtomicU64, Mutex, Ordering};
use crate::types::{Filters, Operators, Options};
use crate::wal::{Log, LogEnd, Logs};
use base::planted::{Bug, planted};
use env::{Env, FileLock, ForkGuard};
use memtable::{Memtable, SpareMemory};
use std::path::PathBuf;
use std::sync::Arc;
use tree::{Manifest, ManifestState};

/// The next [`DbInner::identity`].
static IDENTITIES: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);

/// What a database is made of, beside its keyspaces, its manifest and its log.
pub(super) struct Parts {
    pub env: Arc<dyn Env>,
    pub dir: PathBuf,
    pub options: Options,
    pub filters: Filters,
    pub operators: Operators,
    /// The lock of the directory, or of the moment.
    pub lock: Box<dyn FileLock>,
    pub tables: Tables,
    pub disk_reserve: DiskReserve,
    pub kept_files: KeptFiles,
    pub spare_memory: Arc<SpareMemory>,
    pub next_file: AtomicU64,
    /// See [`DbInner::moment`].
    pub moment: Option<MomentLogs>,
}

impl Parts {
    pub(super) fn assemble(
        self,
        state: &ManifestState,
        keyspaces: Keyspaces,
        end: LogEnd,
        manifest: Manifest,
        log: Log,
        logs: Arc<Logs>,
    ) -> Arc<DbInner> {
        let waiting_bytes = Arc::<AtomicU64>::default();
        let db = Arc::new(DbInner {
            tables: self.tables,
            snapshots: Snapshots::default(),
            moments: Default::default(),
            clock: Arc::new(ExpiryClock::new(self.env.clone())),
            retired: Default::default(),
            spare_memory: self.spare_memory,
            visible: VisibleSeq::new(end.seq),
            commit: new_commit(Writer::new(log, end.seq + 1)),
            task_jobs: Default::default(),
            last_time: AtomicU64::new(end.time.micros()),
            retention_time: AtomicU64::new(state.retention_time.micros()),
            logs,
            manifest: Mutex::new(manifest),
            kept_files: self.kept_files,
            disk_reserve: self.disk_reserve,
            state: Mutex::new(State::new(state.next_keyspace, waiting_bytes.clone())),
            signals: Signals::default(),
            origin: ForkGuard::here(),
            next_file: self.next_file,
            counters: Counters::default(),
            scrub: Scrub::default(),
            idle_until: AtomicU64::new(0),
            slowdown: AtomicU64::new(0),
            index_pressure: AtomicU64::new(0),
            next_merge: AtomicU64::new(0),
            dead_values: AtomicU64::new(0),
            waiting_bytes,
            calls: ActiveCalls::default(),
            lock: Mutex::new(Some(self.lock)),
            status: Status::new(&self.dir),
            rate_limiter: RateLimiter::new(self.options.compaction_rate),
            env: self.env,
            dir: self.dir,
            moment: self.moment,
            options: self.options,
            filters: self.filters,
            operators: self.operators,
            filter_jobs: Default::default(),
            identity: IDENTITIES.fetch_add(1, Ordering::Relaxed),
        });
        db.adopt(keyspaces);
        db
    }
}

impl DbInner {
    fn adopt(&self, keyspaces: Keyspaces) {
        let mut state = self.state.lock();
        // A primary keyspace refers to its historical one.
        let (historical, others): (Vec<_>, Vec<_>) =
            keyspaces.into_iter().partition(|(_, k)| k.history_of.is_some());
        for (id, k) in historical.into_iter().chain(others) {
            self.disk_reserve.note_tables(0, k.tree.version().bytes());
            let role = match (k.history_of, k.historical.and_then(|id| state.keyspaces.get(&id))) {
                (Some(primary), _) => Role::Historical(primary),
                (None, Some(historical)) => Role::Primary(historical.inner.clone()),
                (None, None) => Role::Plain,
            };
            let inner = {
                let settings = Settings { name: k.name, options: k.options, kept_since: k.kept_since };
                self.new_keyspace(id, settings, role, k.operator, k.hash_log)
            };
            // What is in the files of a keyspace without order is not known.
            let of_tables = || k.tree.version().tables().any(|(_, table)| table.meta.expiry.is_some());
            // Walks over versions in both trees use the clock of the primary keyspace.
            let of_older = || inner.historical().is_some_and(|historical| historical.may_expire());
            if k.has_expiries || inner.hash_log.is_some() || of_tables() || of_older() {
                inner.note_expiries();
            }
            // The times of its versions are not known, but not later than this.
            if !planted(Bug::ForgetNewestTime) {
                inner.newest_time.store(self.last_time().micros(), Ordering::Relaxed);
            }
            let mut keyspace = KeyspaceState::new(inner, k.tree);
            // In most cases there are none: all that was replayed is in tables.
            let memtables = k.full.into_iter().chain([k.memtable]).filter(|m| !m.is_empty());
            keyspace.immutable = memtables
                .map(|memtable| {
                    let last_seq = memtable.max_seq().unwrap_or(0);
                    ImmutableMemtable { memtable, last_seq }
                })
                .collect();
            keyspace.publish(Memtable::empty());
            state.insert(keyspace);
        }
    }
}
