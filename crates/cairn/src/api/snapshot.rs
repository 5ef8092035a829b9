//! Snapshots: consistent read-only states of the whole database. The list of those that exist is in `parts/snapshots.rs`.

use super::keyspace::Keyspace;
use crate::read::{Cursor, HeldSeq, Range, ReadView};
use crate::state::{DbInner, Reader};
use crate::types::Bounds;
use base::{Result, Seq, Slice};
use std::ops::RangeBounds;
use std::sync::Arc;

/// Holds a sequence number until it is dropped.
pub(crate) struct SnapshotHold {
    db: Arc<DbInner>,
    pub seq: Seq,
}

impl SnapshotHold {
    pub(crate) fn new(db: Arc<DbInner>) -> Arc<SnapshotHold> {
        let seq = db.snapshots.take(&db.visible, Some(db.env.monotonic()));
        Arc::new(SnapshotHold { db, seq })
    }
}

impl Drop for SnapshotHold {
    fn drop(&mut self) {
        self.db.snapshots.release(self.seq);
    }
}

/// A consistent, read-only state of all keyspaces. Taking a snapshot costs no I/O; while it lives, compaction keeps the versions that it
/// shows.
///
/// ```
/// # fn main() -> cairn::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = cairn::Database::open(dir.path())?;
/// # let users = db.keyspace("users", cairn::KeyspaceOptions::default())?;
/// users.put("alice", "1")?;
/// let snapshot = db.snapshot();
/// users.put("alice", "2")?;
/// assert_eq!(snapshot.get(&users, "alice")?.unwrap(), "1");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Snapshot(pub(crate) Arc<SnapshotHold>);

impl Snapshot {
    /// The sequence number of the newest commit that the snapshot shows.
    pub fn seq(&self) -> Seq {
        self.0.seq
    }

    /// The value that `key` had. See [`Keyspace::get`].
    ///
    /// # Errors
    /// As for [`Keyspace::get`]; `InvalidArgument` when the keyspace is of another database.
    pub fn get(&self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<Option<Slice>> {
        let read_state = keyspace.inner.read_state.load();
        keyspace.inner.check_of(self.0.db.identity)?;
        keyspace
            .inner
            .get_in(&read_state, key.as_ref(), self.0.seq)
            .map_err(|e| self.0.db.status.read_error(e))
    }

    /// Whether `key` had a value.
    ///
    /// # Errors
    /// As for [`Snapshot::get`].
    pub fn contains(&self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<bool> {
        let read_state = keyspace.inner.read_state.load();
        keyspace.inner.check_of(self.0.db.identity)?;
        let found = keyspace.inner.contains_in(&read_state, key.as_ref(), self.0.seq);
        found.map_err(|e| self.0.db.status.read_error(e))
    }

    /// The values that several keys had. See [`Keyspace::multi_get`].
    ///
    /// # Errors
    /// As for [`Keyspace::multi_get`]; `InvalidArgument` when the keyspace is of another database.
    pub fn multi_get<K: AsRef<[u8]>>(&self, keyspace: &Keyspace, keys: &[K]) -> Result<Vec<Option<Slice>>> {
        let read_state = keyspace.inner.read_state.load_full();
        keyspace.inner.check_of(self.0.db.identity)?;
        keyspace.inner.multi_get_in(&read_state, keys, self.0.seq).map_err(|e| self.0.db.status.read_error(e))
    }

    /// See [`Keyspace::range`].
    pub fn range<K: AsRef<[u8]>>(&self, keyspace: &Keyspace, bounds: impl RangeBounds<K>) -> Range {
        self.bounded(keyspace, Bounds::new(&bounds))
    }

    /// See [`Keyspace::prefix`].
    pub fn prefix(&self, keyspace: &Keyspace, prefix: impl AsRef<[u8]>) -> Range {
        self.bounded(keyspace, Bounds::prefix(prefix.as_ref()))
    }

    /// See [`Keyspace::iter`].
    pub fn iter(&self, keyspace: &Keyspace) -> Range {
        self.range::<&[u8]>(keyspace, ..)
    }

    /// See [`Keyspace::cursor`].
    pub fn cursor(&self, keyspace: &Keyspace) -> Cursor {
        Cursor::new(self.read_view(keyspace), Bounds::new::<&[u8], _>(&..), true)
    }

    fn bounded(&self, keyspace: &Keyspace, bounds: Bounds) -> Range {
        Range::new(self.read_view(keyspace), bounds)
    }

    fn read_view(&self, keyspace: &Keyspace) -> ReadView {
        ReadView::new(Reader::new(&self.0.db), HeldSeq::of_snapshot(&keyspace.inner, self.0.seq))
    }
}

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Snapshot({})", self.0.seq)
    }
}
