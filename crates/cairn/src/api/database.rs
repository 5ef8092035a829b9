//! [`Database`], the public handle of an open database. It delegates to [`DbInner`] and starts the [background
//! threads](crate::background).

use super::close::Handle;
use super::collect_stats::stats;
use super::keyspace::Keyspace;
use super::snapshot::{Snapshot, SnapshotHold};
use crate::check::check_open;
use crate::disk::missing;
use crate::state::{Batch, DbInner, KeyspaceInner};
use crate::types::{
    BackupGeneration, BackupOptions, CheckProgress, CheckReport, CheckpointReport, CopyProgress, Durability,
    KeyspaceOptions, Options, Stats,
};
use base::{Error, ErrorKind, Result};
use env::RealEnv;
use std::path::Path;
use std::sync::Arc;

/// A database: a directory with one log, one manifest and any number of [keyspaces](Keyspace), open for writing in one process at a time, and for
/// [reading](Database::open_read_only) in any number of others. The handle
/// is cheap: clone it and share it between threads. Dropping the last handle (of the database or of a keyspace) closes the database; call
/// [`Database::close`] to learn of errors. Iterators, cursors and snapshots are not handles: they do not keep the database open.
///
/// ```
/// use cairn::{Database, Durability, KeyspaceOptions};
///
/// # fn main() -> cairn::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// let db = Database::open(dir.path().join("db"))?;
/// let users = db.keyspace("users", KeyspaceOptions::default())?;
/// let cities = db.keyspace("cities", KeyspaceOptions::default())?;
/// let mut batch = db.batch();
/// batch.put(&users, "alice", "lives in Oslo");
/// batch.put(&cities, "Oslo", "alice lives here");
/// db.write(batch, Durability::Sync)?;
/// db.close()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Database {
    pub(crate) handle: Arc<Handle>,
}

impl Database {
    /// Opens the database in `path`, and creates it if it does not exist.
    ///
    /// Opening replays the log, which takes time in proportion to the log that still has data not flushed: mostly a few memtables, at most
    /// `log_cap`.
    ///
    /// # Errors
    /// `Locked` when the database is already open, in this process or another; `Corruption` when damage is found (opening then changes
    /// nothing); `Unsupported` when a newer version wrote the database, or it needs a feature that this program was built without; `InvalidArgument` when a keyspace needs a merge operator that is not
    /// registered (`Builder::merge_operator`).
    pub fn open(path: impl AsRef<Path>) -> Result<Database> {
        Database::open_with(path, Options::default())
    }

    /// [`Database::open`] with options.
    ///
    /// # Errors
    /// As for [`Database::open`]; `InvalidArgument` when an option is out of its range; `NotFound` when there is no database and the option
    /// `create_if_missing` is off.
    pub fn open_with(path: impl AsRef<Path>, options: Options) -> Result<Database> {
        Database::open_in(RealEnv::new(), path, options)
    }

    pub(super) fn inner(&self) -> &Arc<DbInner> {
        &self.handle.db
    }

    /// Closes the database: makes the log durable, stops background work, and waits for calls that still use the directory, so that it
    /// can be opened again at once.
    ///
    /// Writes that have begun finish first. Other calls that have begun in other threads (`flush`, `compact`, `wait_idle`, creating or
    /// dropping a keyspace, making a copy) end as soon as they can, with their result or with `Closed`, and `close` waits for them. A call concurrent
    /// with `close` either takes effect completely or fails with `Closed`. After `close` has returned, every handle fails with `Closed`,
    /// and so do every further move of an iterator or a cursor and every read of a snapshot; entries that they have already returned stay
    /// valid. Dropping the last handle does the same.
    ///
    /// # Errors
    /// An error of the background work that was not reported before, or of closing itself. The database is closed even then. A second
    /// call does nothing.
    pub fn close(self) -> Result<()> {
        self.inner().shut_down(&self.handle.background)
    }

    /// The directory of the database.
    pub fn path(&self) -> &Path {
        &self.inner().dir
    }

    /// The options with which the database was opened.
    pub fn options(&self) -> &Options {
        &self.inner().options
    }

    pub(crate) fn keyspace_handle(&self, inner: Arc<KeyspaceInner>) -> Keyspace {
        Keyspace { inner, handle: self.handle.clone() }
    }

    /// Opens the keyspace `name`, or creates it with `options`. A keyspace that exists keeps its options; options that
    /// are not the defaults must be those. Creating costs one small synced write, independent of the size of the database.
    ///
    /// # Errors
    /// As for [`Database::create_keyspace`] without `AlreadyExists`; `InvalidArgument` when the keyspace exists with other options, which are
    /// named. [`Database::open_keyspace`] opens it whatever they are.
    pub fn keyspace(&self, name: &str, options: KeyspaceOptions) -> Result<Keyspace> {
        // Other threads may create or drop the keyspace between the two calls.
        loop {
            match self.open_keyspace(name) {
                Err(e) if e.kind() == ErrorKind::NotFound => {}
                opened => {
                    let keyspace = opened?;
                    let difference = options.difference(&keyspace.options());
                    let words =
                        difference.map(|words| format!("keyspace {name:?} has other options: {words}"));
                    return words.map_or(Ok(keyspace), |words| Err(Error::invalid(words)));
                }
            }
            match self.create_keyspace(name, options.clone()) {
                Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
                created => return created,
            }
        }
    }

    /// Creates the keyspace `name`.
    ///
    /// # Errors
    /// `AlreadyExists` when a keyspace has this name; `InvalidArgument` when the name is empty or too long, or an option is out of its
    /// range, or its merge operator is not registered; `NoSpace`, `Io`: nothing was created; `Locked` in a forked child; `ReadOnly` after a sync failed; `Closed`.
    pub fn create_keyspace(&self, name: &str, options: KeyspaceOptions) -> Result<Keyspace> {
        self.inner().create_keyspace(name, options).map(|inner| self.keyspace_handle(inner))
    }

    /// Opens the keyspace `name`.
    ///
    /// # Errors
    /// `NotFound` when there is no such keyspace; `Closed` when the database is closed.
    pub fn open_keyspace(&self, name: &str) -> Result<Keyspace> {
        self.inner().status.check_not_closed()?;
        let inner = self.inner().state.lock().by_name(name).map(|k| k.inner.clone());
        inner.map(|inner| self.keyspace_handle(inner)).ok_or_else(|| missing(name))
    }

    /// The names of all keyspaces, sorted.
    pub fn keyspaces(&self) -> Vec<String> {
        let mut names: Vec<String> = self.inner().keyspaces().iter().map(|k| k.name()).collect();
        names.sort_unstable();
        names
    }

    /// Renames the keyspace `name` to `new`. Its handles, snapshots and cursors go on, and [`Keyspace::name`] is the new name. Renaming costs one small
    /// synced write, independent of the size of the keyspace. A name that is already the present one is no change.
    ///
    /// ```
    /// use cairn::{Database, KeyspaceOptions};
    ///
    /// # fn main() -> cairn::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// let db = Database::open(dir.path().join("db"))?;
    /// let users = db.keyspace("users", KeyspaceOptions::default())?;
    /// db.rename_keyspace("users", "people")?;
    /// users.put("alice", "1")?;
    /// assert_eq!(db.keyspaces(), ["people"]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `NotFound` when there is no keyspace `name`; `AlreadyExists` when there is one with the name `new`; `InvalidArgument` when `new` is empty or too
    /// long, or the database was opened with a compaction filter for either name, since filters go by names; `NoSpace`, `Io`: nothing was renamed;
    /// `Locked` in a forked child; `ReadOnly` after a sync failed; `Closed`.
    pub fn rename_keyspace(&self, name: &str, new: &str) -> Result<()> {
        self.inner().rename_keyspace(name, new)
    }

    /// Makes a keyspace `new` with the content and the options of the keyspace `name`. From then on the two are independent: each can be
    /// written to, altered and dropped.
    ///
    /// The clone has the state after one of the commits, with all that was written before the call, and it is durable on return. Older
    /// versions (`history`) are cloned, too. A snapshot that began before shows in the clone what it shows in the other one.
    ///
    /// Cost: what the keyspace has in memory is flushed, mostly while writers go on. They wait while the rest is flushed, and for one synced
    /// write, with some hundred bytes for each table. Nothing is copied: the two have their tables in common until compactions of one of them
    /// replace these, and a file goes when neither has it. So at first the clone takes no disk space, and later as much as the two differ,
    /// and what their compactions have written anew.
    ///
    /// ```
    /// use cairn::{Database, KeyspaceOptions};
    ///
    /// # fn main() -> cairn::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// let db = Database::open(dir.path().join("db"))?;
    /// let accounts = db.keyspace("accounts", KeyspaceOptions::default())?;
    /// accounts.put("alice", "100")?;
    ///
    /// let trial = db.clone_keyspace("accounts", "trial")?;
    /// trial.put("alice", "0")?;
    /// assert_eq!(accounts.get("alice")?.unwrap(), "100");
    /// db.drop_keyspace("trial")?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `NotFound` when there is no keyspace `name`; `AlreadyExists` when there is one with the name `new`; `InvalidArgument` when `new` is empty or too
    /// long, the keyspace has no order (`engine` = `hash_log`), or has an option that excludes a compaction filter while the database was opened with one for
    /// `new`; those of a flush; `NoSpace`, `Io`: nothing was made; `Locked` in a forked child; `ReadOnly` after a sync failed; `Closed`.
    pub fn clone_keyspace(&self, name: &str, new: &str) -> Result<Keyspace> {
        self.inner().clone_keyspace(name, new).map(|inner| self.keyspace_handle(inner))
    }

    /// The [statistics](Database::stats) in the text format of Prometheus (`text/plain; version=0.0.4`), to be answered to a program that asks
    /// for them over HTTP.
    ///
    /// All names begin with `cairn_`; units are bytes and seconds. Counters begin at 0 with each opening. Metrics of keyspaces have the labels
    /// `keyspace` and `tree`: `newest`, or `older` for the older versions of one with history. Cost: that of [`Database::stats`], and about 70
    /// bytes for each line.
    ///
    /// ```
    /// # fn main() -> cairn::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// let db = cairn::Database::open(dir.path())?;
    /// db.keyspace("users", cairn::KeyspaceOptions::default())?.put("alice", "1")?;
    /// let text = db.metrics();
    /// assert!(text.contains("cairn_user_writes_total 1\n"));
    /// assert!(text.contains("cairn_immutable_memtables{keyspace=\"users\",tree=\"newest\"} 0\n"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn metrics(&self) -> String {
        self.stats().to_prometheus()
    }

    /// Drops the keyspace `name` with all its data. The space is freed once no iterator reads it, and no snapshot is left
    /// that began beside a compaction of it with a filter. Handles of the keyspace fail with
    /// `Closed` from then on.
    ///
    /// # Errors
    /// `NotFound` when there is no such keyspace; `NoSpace`, `Io`: nothing was dropped; `Locked` in a forked child; `ReadOnly` after a
    /// sync failed; `Closed`.
    pub fn drop_keyspace(&self, name: &str) -> Result<()> {
        self.inner().drop_keyspace(name)
    }

    /// An empty batch.
    pub fn batch(&self) -> Batch {
        Batch::default()
    }

    /// Takes a snapshot of the present state of all keyspaces.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot(SnapshotHold::new(self.inner().clone()))
    }

    /// Makes every write acknowledged so far durable.
    ///
    /// # Errors
    /// `NoSpace`, `Io` when the buffered part of the log cannot be written (it stays buffered); `ReadOnly` when the sync fails, and from
    /// then on; `Locked` in a forked child; `Closed`.
    pub fn sync(&self) -> Result<()> {
        self.inner().barrier(Durability::Sync)
    }

    /// Flushes all memtables to tables and waits for it. Writes made during the call are not waited for. The cost is one table and its
    /// sync for each keyspace with a nonempty memtable, and a few further syncs for every 256 of them.
    ///
    /// # Errors
    /// `NoSpace`, `Io`: the memtables are kept, their writes stay in the log, and the flush is retried later; `ReadOnly` after a sync
    /// failed; `Locked` in a forked child; `Closed`.
    pub fn flush(&self) -> Result<()> {
        self.inner().flush_all()
    }

    /// Compacts all present keyspaces, one after another, and waits. For each keyspace with an order it covers the writes made before the keyspace's
    /// own compaction begins, for the others those made before the call. See [`Keyspace::compact`].
    ///
    /// # Errors
    /// As for [`Keyspace::compact`]; a keyspace dropped during the call is not an error.
    pub fn compact(&self) -> Result<()> {
        let _call = self.inner().begin_call()?;
        // One flush of all keyspaces costs less than a flush of each.
        self.inner().flush_all()?;
        let keyspaces = self.inner().keyspaces();
        keyspaces.iter().try_for_each(|keyspace| {
            let compacted = match &keyspace.hash_log {
                Some(log) => self.inner().collect_keyspace(keyspace, log, false),
                None => self.inner().compact_keyspace(keyspace, (b"", None), false),
            };
            match compacted {
                Err(e) if e.kind() == ErrorKind::Closed && keyspace.is_dropped() => Ok(()),
                compacted => compacted,
            }
        })
    }

    /// Waits until no flush and no compaction is due or running, including idle compactions: those merge guards that have grown, and
    /// otherwise begin when writers have paused for a second, and those that are due for what has expired by the call. Concurrent writers may
    /// keep this call from returning.
    ///
    /// # Errors
    /// The error that keeps the work from being done: `NoSpace`, `Io`; `ReadOnly` after a sync failed; `Locked` in a forked child;
    /// `Closed`. A damaged table that compactions avoid is not an error here.
    pub fn wait_idle(&self) -> Result<()> {
        self.inner().wait_idle()
    }

    /// Makes a checkpoint: a second database in `dir`, with the content of this moment, while writes go on. `dir` must be absent or empty, or
    /// have what an interrupted checkpoint has left.
    ///
    /// All that was acknowledged before the call is in it, with whole batches, and it is durable on return. It is independent of this
    /// database: each can be written to and removed. They share the files that neither changes, by hard links, so a checkpoint takes the disk
    /// space of what either drops later. Where there are no hard links, as on another file system, files are copied.
    ///
    /// Cost: writers wait while a log is begun, as for a flush. Then each file is linked, and what was written last
    /// is synced. Nothing is flushed: an opening of the checkpoint replays the logs that this database would replay, so a
    /// [`Database::flush`] before makes that short. No file of this moment is removed before the call returns, which takes disk space
    /// where files are copied.
    ///
    /// *Of a database that was opened by [`Database::open_read_only`]* the content is the moment that this handle shows, whatever the process that writes does
    /// meanwhile: what that had handed to the operating system when the handle was opened or refreshed. No log is begun, and writers do not wait. The logs that
    /// an opening replays are copied and synced: `log_cap` bytes at most.
    ///
    /// ```
    /// use cairn::{Database, KeyspaceOptions};
    ///
    /// # fn main() -> cairn::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// let db = Database::open(dir.path().join("db"))?;
    /// let users = db.keyspace("users", KeyspaceOptions::default())?;
    /// users.put("alice", "1")?;
    /// db.checkpoint(dir.path().join("monday"))?;
    /// users.put("alice", "2")?;
    ///
    /// let monday = Database::open(dir.path().join("monday"))?.open_keyspace("users")?;
    /// assert_eq!(monday.get("alice")?.unwrap(), "1");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `AlreadyExists` when `dir` has other files; `InvalidArgument` when one directory lies in the other; `Locked` while another call makes
    /// a checkpoint there, or in a forked child; `Corruption` when a file of this database is missing; `NoSpace`, `Io`: there is no
    /// checkpoint (after a failed sync of `dir` a power cut may leave a whole one), and this database goes on; `ReadOnly` after a sync of this
    /// database failed; `Closed`. `Io`, too, when this handle is for reading only and the process that writes has taken back the last commit that it shows, which
    /// could not be written.
    pub fn checkpoint(&self, dir: impl AsRef<Path>) -> Result<CheckpointReport> {
        self.checkpoint_with(dir, &mut |_| ())
    }

    /// [`Database::checkpoint`], which reports its progress. The callback must not close the database, which waits for this call.
    ///
    /// # Errors
    /// As for [`Database::checkpoint`].
    pub fn checkpoint_with(
        &self,
        dir: impl AsRef<Path>,
        progress: &mut dyn FnMut(&CopyProgress),
    ) -> Result<CheckpointReport> {
        self.inner().checkpoint(dir.as_ref(), progress)
    }

    /// Makes a backup of this moment in `dir`, while writes go on: a new generation, which shares with the earlier ones in `dir` all files that
    /// they have in common. `dir` is created if it is absent or empty. [`Backups`](crate::Backups) lists, verifies and restores generations.
    ///
    /// What is in a backup is what is in a [checkpoint](Database::checkpoint), copied: damage to the disk of the one does not reach the other.
    /// Several databases may have their backups in one directory. A file that was copied before is not read again; each other one is read
    /// with all its checksums first, so that a damaged table or log ends the backup, and does not replace an intact copy. A database that was opened by
    /// [`Database::open_read_only`] makes a backup of the moment that the handle shows, as for [`Database::checkpoint`].
    ///
    /// Cost: two reads and one write of each file that is new since the newest generations, and a sync for each; a look at the names and times
    /// of the others. No file of this moment is removed before the call returns: a database that is written to quickly takes more disk
    /// space meanwhile.
    ///
    /// # Errors
    /// `AlreadyExists` when `dir` has other files; `InvalidArgument` when one directory lies in the other; `Locked` while the backups are in use
    /// elsewhere, or in a forked child; `Corruption` when a file of the database is damaged or missing; `Unsupported` when a table has a compression
    /// that this program was built without, since it cannot be verified; `NoSpace`, `Io`: there is no new
    /// generation (or a whole one, if removing old ones or the last sync failed), the others are whole, and this database goes on; `ReadOnly` after a sync of this database failed; `Closed`. `Io`, too, of a
    /// handle for reading only, as for [`Database::checkpoint`].
    pub fn backup(&self, dir: impl AsRef<Path>) -> Result<BackupGeneration> {
        self.backup_with(dir, &BackupOptions::default(), &mut |_| ())
    }

    /// [`Database::backup`] with options, which reports its progress. The callback must not close the database, which waits for this call.
    ///
    /// # Errors
    /// As for [`Database::backup`]; `InvalidArgument` when no generation would be kept.
    pub fn backup_with(
        &self,
        dir: impl AsRef<Path>,
        options: &BackupOptions,
        progress: &mut dyn FnMut(&CopyProgress),
    ) -> Result<BackupGeneration> {
        self.inner().backup(dir.as_ref(), options, progress)
    }

    /// The statistics of the database. Their `Display` is for people.
    pub fn stats(&self) -> Stats {
        stats(self.inner())
    }

    /// Reads and verifies everything on disk (tables, closed logs, the manifest) at `rate` bytes per second; 0 means no limit. Writers
    /// and readers go on, and the block cache is not used. Problems found are also in [`Stats::damage`] from then on. The option
    /// `scrub_rate` does the same continuously in the background.
    ///
    /// # Errors
    /// `Closed` when the database is closed during the call. Damage is in the report, not an error.
    pub fn scrub(&self, rate: u64) -> Result<CheckReport> {
        self.inner().scrub_round(rate)
    }

    /// Verifies every checksum of every table in use, the invariants of every tree, and that the versions in the two trees of a keyspace with
    /// history fit together. Reads the whole database, and the tables of keyspaces with history twice; writers go on.
    ///
    /// # Errors
    /// `Io` when the manifest cannot be listed; `Closed`. Damage is in the report.
    pub fn check(&self, progress: &mut dyn FnMut(&CheckProgress)) -> Result<CheckReport> {
        check_open(self.inner(), progress)
    }
}

impl std::fmt::Debug for Database {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Database({})", self.inner().dir.display())
    }
}

#[cfg(all(test, not(loom), not(shuttle)))]
mod tests {
    use super::*;
    use env::{ForkGuard, OpInfo, OpKind, Phase, SimEnv};
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// A forked child has a copy of the buffer and of the memtable: a write acknowledged there would be lost.
    #[test]
    fn a_forked_child_is_refused_writes_and_work_on_files() {
        for durability in [Durability::Buffered, Durability::Os, Durability::Sync] {
            let options = Options::default().background_threads(0);
            let mut db = Database::open_in(SimEnv::new(1), "/db", options).unwrap();
            drop(db.create_keyspace("k", KeyspaceOptions::default()).unwrap());
            let inner = Arc::get_mut(&mut db.handle).and_then(|handle| Arc::get_mut(&mut handle.db));
            inner.expect("no other handle is there").origin = ForkGuard::elsewhere();
            let keyspace = db.open_keyspace("k").unwrap();
            let mut batch = db.batch();
            batch.put(&keyspace, "b", "2");
            let refused = [
                keyspace.put_with("a", "1", durability),
                keyspace.delete_with("a", durability),
                db.write(batch, durability),
                keyspace.flush(),
                keyspace.compact(),
                db.flush(),
                db.compact(),
                db.wait_idle(),
            ];
            for refused in refused {
                assert_eq!(refused.unwrap_err().kind(), ErrorKind::Locked, "{durability}");
            }
            assert_eq!(keyspace.iter().count(), 0);
        }
    }

    #[test]
    fn a_sync_with_nothing_new_does_nothing() {
        let sim = SimEnv::new(1);
        let options = Options::default().background_threads(0);
        let db = Database::open_in(sim.clone(), "/db", options).unwrap();
        let keyspace = db.create_keyspace("k", KeyspaceOptions::default()).unwrap();
        let ops = Arc::new(AtomicUsize::new(0));
        let count = ops.clone();
        sim.set_hook(Some(Box::new(move |op: OpInfo<'_>| {
            let changes = matches!(op.kind, OpKind::Append | OpKind::Sync | OpKind::SyncDir);
            count.fetch_add(usize::from(changes && op.phase == Phase::Before), Ordering::SeqCst);
            None
        })));
        let of_sync = || {
            let before = ops.load(Ordering::SeqCst);
            db.sync().unwrap();
            ops.load(Ordering::SeqCst) - before
        };
        of_sync();
        assert_eq!((of_sync(), of_sync()), (0, 0));
        for durability in [Durability::Buffered, Durability::Os] {
            keyspace.put_with("a", "1", durability).unwrap();
            assert!(of_sync() > 0, "{durability}");
            assert_eq!((of_sync(), of_sync()), (0, 0), "{durability}");
        }
        // A closed log that is not synced counts, too.
        keyspace.put_with("a", "2", Durability::Os).unwrap();
        let mut writer = db.inner().writer();
        db.inner().seal(&mut writer, std::slice::from_ref(&keyspace.inner)).unwrap();
        drop(writer);
        assert!(of_sync() > 0);
        assert_eq!(of_sync(), 0);
        keyspace.put_with("a", "3", Durability::Sync).unwrap();
        assert_eq!(of_sync(), 0, "a write that is synced leaves nothing to be synced");
    }
}
