//! Writing into a [`Batch`] by the handles of keyspaces.

use super::keyspace::Keyspace;
use crate::state::Batch;
use crate::types::Bounds;
use crate::wal::Entry;
use base::{EntryKind, Result, Time};
use std::ops::RangeBounds;
use std::time::Duration;

impl Batch {
    /// Sets `key` to `value`.
    pub fn put(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        let entry = Entry::put(key.as_ref(), value.as_ref());
        self.push(&keyspace.inner, entry.until(keyspace.inner.default_expiry()));
    }

    /// Sets `key` to `value` for the duration `ttl`, from this call on. See [`Keyspace::put_with_ttl`].
    pub fn put_with_ttl(
        &mut self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        ttl: Duration,
    ) {
        let expiry = keyspace.inner.clock.after(ttl);
        self.push(&keyspace.inner, Entry::put(key.as_ref(), value.as_ref()).until(Some(expiry)));
    }

    /// Sets `key` to `value` until the time `expiry`. See [`Keyspace::put_until`].
    pub fn put_until(
        &mut self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        expiry: Time,
    ) {
        self.push(&keyspace.inner, Entry::put(key.as_ref(), value.as_ref()).until(Some(expiry)));
    }

    /// Sets `key` to `value` as of `time`. See [`Keyspace::put_at`].
    pub fn put_at(
        &mut self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        time: Time,
    ) {
        let entry = Entry::put(key.as_ref(), value.as_ref()).at(Some(time));
        self.push(&keyspace.inner, entry.until(keyspace.inner.expiry_at(time)));
    }

    /// Sets `key` to `value` as of `time` until the time `expiry`; [`Time::MAX`] is never. See [`Batch::put_at`] and [`Batch::put_until`].
    pub fn put_at_until(
        &mut self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        time: Time,
        expiry: Time,
    ) {
        let entry = Entry::put(key.as_ref(), value.as_ref()).at(Some(time));
        self.push(&keyspace.inner, entry.until(Some(expiry)));
    }

    /// Joins `operand` to the value of `key`. See [`Keyspace::merge`].
    ///
    /// In a keyspace with history, without order, or in which a value may expire, a merge reads the value. Then [`Database::write`](crate::Database::write) reads it,
    /// writes the batch as a transaction, and repeats it after a conflict. Such a batch cannot have times of its own ([`Batch::put_at`]), and the values that
    /// its merges make may have 1 GiB together: `InvalidArgument`.
    pub fn merge(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>, operand: impl AsRef<[u8]>) {
        self.push(&keyspace.inner, Entry::merge(key.as_ref(), operand.as_ref()));
    }

    /// Deletes `key`.
    pub fn delete(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>) {
        self.push(&keyspace.inner, Entry::delete(key.as_ref()));
    }

    /// Deletes `key` as of `time`. See [`Keyspace::put_at`].
    pub fn delete_at(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>, time: Time) {
        self.push(&keyspace.inner, Entry::delete(key.as_ref()).at(Some(time)));
    }

    /// Deletes all keys in `bounds`: those in the database, and those put earlier in this batch. See [`Keyspace::delete_range`].
    ///
    /// In a keyspace with history the delete has the time of the batch. So it also hides writes of this batch with an earlier time of their own,
    /// whether they come before it or after it, from reads as of the batch and later; reads as of their times find them.
    ///
    /// ```
    /// # fn main() -> cairn::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = cairn::Database::open(dir.path())?;
    /// # let queue = db.keyspace("queue", cairn::KeyspaceOptions::default())?;
    /// # let done = db.keyspace("done", cairn::KeyspaceOptions::default())?;
    /// for job in 0..100u32 {
    ///     queue.put(job.to_be_bytes(), "work")?;
    /// }
    /// let mut batch = db.batch();
    /// batch.delete_range(&queue, ..50u32.to_be_bytes());
    /// batch.put(&done, "up to", "50");
    /// db.write(batch, cairn::Durability::Sync)?;
    /// assert_eq!(queue.iter().count(), 50);
    /// # Ok(())
    /// # }
    /// ```
    pub fn delete_range<K: AsRef<[u8]>>(&mut self, keyspace: &Keyspace, bounds: impl RangeBounds<K>) {
        self.push_range(keyspace, Bounds::of_deleted(&bounds, keyspace.inner.limits));
    }

    /// Deletes all keys that begin with `prefix`. See [`Batch::delete_range`].
    pub fn delete_prefix(&mut self, keyspace: &Keyspace, prefix: impl AsRef<[u8]>) {
        let prefix = prefix.as_ref();
        let bounds = keyspace.inner.limits.check(prefix, &[]).map(|()| Some(Bounds::prefix(prefix)));
        self.push_range(keyspace, bounds);
    }

    /// Adds a range tombstone, unless the range is empty.
    fn push_range(&mut self, keyspace: &Keyspace, bounds: Result<Option<Bounds>>) {
        match bounds {
            Ok(None) => {}
            Ok(Some(Bounds { from, to })) => {
                let to = to.unwrap_or_default();
                self.push(&keyspace.inner, Entry::new(EntryKind::DeleteRange, &from, &to));
            }
            Err(e) => {
                self.error.get_or_insert(e);
            }
        }
    }
}
