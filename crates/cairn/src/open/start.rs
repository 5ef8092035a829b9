//! The last steps of an opening: a new log under the new manifest, removal of the files that they replace, and the [`DbInner`] itself.

use super::recovery::Recovery;
use super::replayed::Keyspaces;
use crate::parts::{ActiveCalls, Counters, ExpiryClock, RateLimiter, Scrub, Snapshots, VisibleSeq};
use crate::state::{
    DbInner, ImmutableMemtable, KeyspaceState, Role, Signals, State, Status, Writer, new_commit,
};
use crate::sync::{AtomicU64, Mutex, Ordering};
use crate::wal::{ClosedLogs, Log, LogEnd, Logs, log_file_name};
use base::planted::{Bug, planted};
use base::{Error, ErrorKind, Result, Seq};
use env::ForkGuard;
use memtable::Memtable;
use std::sync::Arc;
use tree::{DatabaseEdit, Manifest, ManifestError, manifest_file_name};

/// The next [`DbInner::identity`].
static IDENTITIES: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);

impl Recovery {
    /// Starts a new log under the new manifest, then removes the files that they replace. What was recovered is durable by now.
    pub(crate) fn start(
        self,
        keyspaces: Keyspaces,
        end: LogEnd,
        mut manifest: Manifest,
    ) -> Result<Arc<DbInner>> {
        let versions = keyspaces.values().map(|k| k.tree.version());
        let named = versions.flat_map(|v| v.tables().map(|(_, t)| t.meta.number).collect::<Vec<_>>());
        let hints = keyspaces.values().filter_map(|k| k.hash_log.as_ref()).flat_map(|log| log.hints());
        let named = named.chain(hints.map(|hints| hints.number)).collect();
        let mut leftovers = self.files.leftovers(&named, self.lacking);
        leftovers.retain(|name| !self.keeps(name) && !self.has_values(name));
        let logs = self.logs();
        let log = match self.start_log(&logs, end.seq, &mut manifest) {
            // Then files that are no longer needed are removed first.
            Err(e) if e.kind() == ErrorKind::NoSpace => {
                self.remove(&leftovers);
                self.disk_reserve.release_for(&e);
                self.start_log(&logs, end.seq, &mut manifest)
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
        if refusal.is_none() {
            // Before the next edit: were the new manifest lost later, an old one must not come back and be taken for the newest.
            self.env.sync_dir(&self.dir).map_err(|e| e.sync_failed())?;
        }
        let db = self.build(keyspaces, end, manifest, log, logs);
        if let Some(refusal) = refusal {
            db.refuse(refusal);
        }
        db.disk_reserve.fit(db.log_bytes());
        db.disk_reserve.retake();
        Ok(db)
    }

    fn logs(&self) -> Arc<Logs> {
        let (closed, recycled) = (ClosedLogs::keeping(&self.kept), self.recycled.clone());
        Arc::new(Logs { closed, recycled, begun: Default::default(), counters: Default::default() })
    }

    fn start_log(&self, logs: &Arc<Logs>, last_seq: Seq, manifest: &mut Manifest) -> Result<Log> {
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
    fn no_log(&self, logs: &Arc<Logs>, cause: &Error) -> (Log, Error) {
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
    pub(crate) fn start_without_space(
        self,
        keyspaces: Keyspaces,
        end: LogEnd,
        cause: &Error,
    ) -> Result<Arc<DbInner>> {
        self.sync_what_was_found()?;
        let logs = self.logs();
        let (log, refusal) = self.no_log(&logs, cause);
        let number = self.files.manifests.last().copied().unwrap_or(0);
        let manifest = Manifest::refusing(&self.dir, number, refusal.clone());
        let db = self.build(keyspaces, end, manifest, log, logs);
        db.refuse(refusal);
        Ok(db)
    }

    /// Syncs the files that reads depend on and that are not rewritten: data that was read must not be lost in a power cut. Tables were
    /// durable before the manifest named them.
    pub(crate) fn sync_what_was_found(&self) -> Result<()> {
        let manifest = self.files.manifests.last().map(|&n| manifest_file_name(n));
        let logs = self.files.logs.iter().filter(|&&n| n >= self.state.min_log).map(|&n| log_file_name(n));
        manifest.into_iter().chain(logs).try_for_each(|name| self.env.sync_file(&self.dir.join(name)))?;
        self.env.sync_dir(&self.dir)
    }

    /// Best effort: the next opening removes the rest.
    pub(crate) fn remove(&self, names: &[String]) {
        for name in names {
            let _ = self.env.remove(&self.dir.join(name));
        }
    }

    fn build(
        self,
        keyspaces: Keyspaces,
        end: LogEnd,
        manifest: Manifest,
        log: Log,
        logs: Arc<Logs>,
    ) -> Arc<DbInner> {
        let waiting_bytes = Arc::<AtomicU64>::default();
        let db = Arc::new(DbInner {
            tables: self.space,
            snapshots: Snapshots::default(),
            moments: Default::default(),
            clock: Arc::new(ExpiryClock::new(self.env.clone())),
            retired: Default::default(),
            spare_memory: self.spare_memory,
            visible: VisibleSeq::new(end.seq),
            commit: new_commit(Writer::new(log, end.seq + 1)),
            last_time: AtomicU64::new(end.time.micros()),
            retention_time: AtomicU64::new(self.state.retention_time.micros()),
            logs,
            manifest: Mutex::new(manifest),
            disk_reserve: self.disk_reserve,
            state: Mutex::new(State::new(self.state.next_keyspace, waiting_bytes.clone())),
            signals: Signals::default(),
            origin: ForkGuard::here(),
            next_file: self.next_file,
            counters: Counters::default(),
            scrub: Scrub::default(),
            idle_until: AtomicU64::new(0),
            slowdown: AtomicU64::new(0),
            index_pressure: AtomicU64::new(0),
            dead_values: AtomicU64::new(0),
            waiting_bytes,
            calls: ActiveCalls::default(),
            lock: Mutex::new(Some(self.lock)),
            status: Status::new(&self.dir),
            rate_limiter: RateLimiter::new(self.options.compaction_rate),
            env: self.env,
            dir: self.dir,
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
            let inner = self.new_keyspace(id, k.name, k.options, role, k.operator, k.hash_log);
            // What is in the files of a keyspace without order is not known.
            let of_tables = || k.tree.version().tables().any(|(_, table)| table.meta.expiry.is_some());
            if k.has_expiries || inner.hash_log.is_some() || of_tables() {
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
