//! Reading a database to which another process may write: [`Database::open_read_only`], [`Database::refresh`], [`AutoRefresh`].

use super::database::Database;
use crate::sync::{Condvar, Mutex, thread};
use base::{Error, ErrorKind, Result};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

impl Database {
    /// Opens the database in `path` for reading only. Another process may have it open, and write to it; nothing in the directory is changed, and it
    /// may be on a file system that is mounted read-only.
    ///
    /// The handle shows one *moment* of the database: a prefix of its commits, the same in all keyspaces, which does not change while the handle
    /// exists. It has all commits that the writer had handed to the operating system when the call began: those with
    /// [`Durability::Os`](crate::Durability::Os) or more that had returned, and `Buffered` ones a tenth of a second later at most, or when their thread
    /// writes more. It may have commits that a power cut would still lose. [`Database::refresh`] gives a later moment, and
    /// [`Database::auto_refresh`] does that again and again.
    ///
    /// What the writer does not need any more and this moment does stays on disk until the last handle of the moment is dropped, which ends its iterators
    /// and snapshots, or this process ends: a moment that is kept for long costs the writer disk space.
    ///
    /// Cost: the manifest is read, and the log replayed into memory of this process, beyond `memory_budget`: about what the memtables of the
    /// writer take. Keyspaces without order read their indexes. `docs/readers.md` says more.
    ///
    /// ```
    /// use cairn::{Database, Durability, KeyspaceOptions};
    ///
    /// # fn main() -> cairn::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let path = dir.path().join("db");
    /// let db = Database::open(&path)?;
    /// let users = db.keyspace("users", KeyspaceOptions::default())?;
    /// users.put_with("alice", "1", Durability::Os)?;
    ///
    /// // In another process:
    /// let reader = Database::open_read_only(&path)?;
    /// assert_eq!(reader.open_keyspace("users")?.get("alice")?.unwrap(), "1");
    ///
    /// users.put_with("alice", "2", Durability::Os)?;
    /// assert_eq!(reader.open_keyspace("users")?.get("alice")?.unwrap(), "1");
    /// let reader = reader.refresh()?;
    /// assert_eq!(reader.open_keyspace("users")?.get("alice")?.unwrap(), "2");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `NotFound` when there is no database; `Corruption` when damage is found; `Unsupported` when a newer version wrote it, when it needs a feature that this program was built without, or when the system or the
    /// file system has no locks on bytes of a file, which keep the files of a moment; `InvalidArgument` when a keyspace needs a merge operator
    /// that is not registered ([`Builder::open_read_only`](crate::Builder::open_read_only)); `Io`. Every call that would write fails with `ReadOnly`.
    pub fn open_read_only(path: impl AsRef<Path>) -> Result<Database> {
        Database::builder().open_read_only(path)
    }

    /// Whether the database was opened by [`Database::open_read_only`].
    pub fn is_read_only(&self) -> bool {
        self.handle.follower.is_some()
    }

    /// The present moment of a database that was opened by [`Database::open_read_only`]: a handle with everything that the writer had handed to the
    /// operating system when the call began. This handle, and what was made from it, goes on to show the moment that it had. If nothing
    /// has changed, the newest moment is returned again. A database that is open for writing shows everything: it is returned.
    ///
    /// Cost: reads the names in the directory, and what was added to the manifest and to the log. A keyspace without order in which the writer has
    /// flushed or collected has its index read again. After the writer has been restarted, and when its manifest was replaced because it was long,
    /// as for opening; tables stay open, and the cache stays.
    ///
    /// # Errors
    /// As for [`Database::open_read_only`]. This moment can still be used, and the call be repeated.
    pub fn refresh(&self) -> Result<Database> {
        match &self.handle.follower {
            None => Ok(self.clone()),
            Some(follower) => follower.next().map(|handle| Database { handle }),
        }
    }

    /// Starts a thread that calls [`Database::refresh`] at this interval. What [`AutoRefresh::latest`] returns is then older by the interval and the
    /// time of a refresh at most, unless [`AutoRefresh::error`] returns an error.
    ///
    /// # Errors
    /// `InvalidArgument` if the database is open for writing; `Io` if no thread can be started.
    pub fn auto_refresh(&self, interval: Duration) -> Result<AutoRefresh> {
        if !self.is_read_only() {
            return Err(Error::invalid("a database that is open for writing is always as new as it can be"));
        }
        let shared = Arc::new(Refreshed {
            state: Mutex::new(RefreshState { latest: self.clone(), error: None, ended: false }),
            ended: Condvar::new(),
        });
        let of_thread = shared.clone();
        let body = move || of_thread.run(interval);
        let thread = thread::Builder::new().name("cairn-refresh".to_owned()).spawn(body);
        let thread = thread.map_err(|e| Error::new(ErrorKind::Io, format!("starting a thread: {e}")))?;
        Ok(AutoRefresh { shared, thread: Some(thread) })
    }
}

/// Refreshes a database that was opened for reading only: see [`Database::auto_refresh`]. Dropping it ends its thread, and waits for a refresh that is
/// going on.
///
/// ```
/// # use cairn::Database;
/// # use std::time::Duration;
/// # fn main() -> cairn::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("db");
/// # Database::open(&path)?.close()?;
/// let refresh = Database::open_read_only(&path)?.auto_refresh(Duration::from_millis(100))?;
/// // For each request:
/// let db = refresh.latest();
/// assert!(db.keyspaces().is_empty());
/// # Ok(())
/// # }
/// ```
pub struct AutoRefresh {
    shared: Arc<Refreshed>,
    thread: Option<thread::JoinHandle<()>>,
}

struct Refreshed {
    state: Mutex<RefreshState>,
    ended: Condvar,
}

struct RefreshState {
    latest: Database,
    error: Option<Error>,
    ended: bool,
}

impl Refreshed {
    fn run(&self, interval: Duration) {
        let mut state = self.state.lock();
        while !state.ended {
            let before = state.latest.clone();
            drop(state);
            let refreshed = before.refresh();
            state = self.state.lock();
            match refreshed {
                Ok(latest) => (state.latest, state.error) = (latest, None),
                Err(e) => state.error = Some(e),
            }
            // The moment before may end here: not under the lock.
            drop(state);
            drop(before);
            state = self.state.lock();
            if !state.ended {
                self.ended.wait_for(&mut state, interval);
            }
        }
    }
}

impl AutoRefresh {
    /// The newest moment that was read.
    pub fn latest(&self) -> Database {
        self.shared.state.lock().latest.clone()
    }

    /// The error of the last refresh, if it failed. The next one may succeed.
    pub fn error(&self) -> Option<Error> {
        self.shared.state.lock().error.clone()
    }
}

impl Drop for AutoRefresh {
    fn drop(&mut self) {
        self.shared.state.lock().ended = true;
        self.shared.ended.notify_all();
        // A panic of the thread was reported by it.
        let _ = self.thread.take().map(thread::JoinHandle::join);
    }
}

impl std::fmt::Debug for AutoRefresh {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AutoRefresh").field("error", &self.error()).finish_non_exhaustive()
    }
}
