//! The ends of a keyspace, and what a range of it has.

use super::keyspace::Keyspace;
use crate::state::ReadState;
use crate::types::Bounds;
use base::{Result, Slice};
use std::ops::RangeBounds;
use std::sync::Arc;
use tree::Estimate;

impl Keyspace {
    /// The first entry; `None` if there is none.
    ///
    /// ```
    /// # fn main() -> cairn::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = cairn::Database::open(dir.path())?;
    /// let jobs = db.keyspace("jobs", cairn::KeyspaceOptions::default())?;
    /// assert!(jobs.is_empty()?);
    /// for number in 0..1000u32 {
    ///     jobs.put(number.to_be_bytes(), "a job")?;
    /// }
    /// let (first, _) = jobs.first()?.unwrap();
    /// assert_eq!(first, 0u32.to_be_bytes());
    /// assert_eq!(jobs.approximate_len(500u32.to_be_bytes()..)?, 500);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As for [`Keyspace::get`]; `InvalidArgument` for a keyspace without order.
    pub fn first(&self) -> Result<Option<(Slice, Slice)>> {
        self.iter().next().transpose()
    }

    /// The last entry; `None` if there is none.
    ///
    /// # Errors
    /// As for [`Keyspace::first`].
    pub fn last(&self) -> Result<Option<(Slice, Slice)>> {
        self.iter().next_back().transpose()
    }

    /// Whether no key has a value. In a keyspace without order this may read whole files.
    ///
    /// # Errors
    /// As for [`Keyspace::get`].
    pub fn is_empty(&self) -> Result<bool> {
        match self.inner.hash_log {
            None => Ok(self.iter().keys().next().transpose()?.is_none()),
            Some(_) => Ok(self.entries().next().transpose()?.is_none()),
        }
    }

    /// The approximate number of keys with a value in `bounds`, without reading data.
    ///
    /// A key that was put again, or [merged](Keyspace::merge) into, counts several times until compactions have merged these entries, and one that a
    /// [range delete](Keyspace::delete_range) has deleted, or that has [expired](Keyspace::put_with_ttl), until they have dropped it. Where nothing
    /// of this waits, the error is that of the ends: half a block of each table there. After [`Keyspace::compact`] the number of all keys is exact.
    /// Where there is history only the newest versions count. In a keyspace without order `bounds` must be `..`; a key that was deleted counts, too, until a
    /// collection has met it.
    ///
    /// Cost: two searches in the index of each table at the ends of the range, a look at a thousand entries of each memtable, and reads of index
    /// blocks that are not in memory. With 5 million entries of 108 bytes in memory 10 us, and 135 us beside full memtables.
    ///
    /// # Errors
    /// As for [`Keyspace::get`]; `InvalidArgument` for a part of a keyspace without order.
    pub fn approximate_len<K: AsRef<[u8]>>(&self, bounds: impl RangeBounds<K>) -> Result<u64> {
        let bounds = Bounds::new(&bounds);
        match &self.inner.hash_log {
            Some(log) if bounds.is_all() => {
                // The memtables first: what is flushed meanwhile counts twice, and not never.
                let recent: usize = self.inner.read_state.load().memtables().map(|m| m.entries()).sum();
                self.inner.check_open()?;
                Ok(recent as u64 + log.stats().newest)
            }
            _ => Ok(self.estimate(bounds)?.keys.round().max(0.0) as u64),
        }
    }

    /// The approximate number of bytes that `bounds` takes, without reading data: of tables, as they are on the disk, of values outside of them,
    /// and of keys and values in memory. What compactions have not dropped yet counts. In a keyspace with history, older versions that were evicted do
    /// not.
    ///
    /// Cost: as for [`Keyspace::approximate_len`].
    ///
    /// # Errors
    /// As for [`Keyspace::get`]; `InvalidArgument` for a keyspace without order, whose entries are in files with those of others.
    pub fn approximate_bytes<K: AsRef<[u8]>>(&self, bounds: impl RangeBounds<K>) -> Result<u64> {
        Ok(self.estimate(Bounds::new(&bounds))?.bytes.round().max(0.0) as u64)
    }

    /// Keys that divide `bounds` into at most `parts` parts of about equal size, ascending, for threads that each scan one: without reading
    /// data. Fewer than `parts` - 1 where there is little data. Values outside of tables count as evenly spread over the entries of their table;
    /// where there is history only the newest versions count.
    ///
    /// ```
    /// use cairn::{Database, KeyspaceOptions};
    /// use std::ops::Bound;
    ///
    /// # fn main() -> cairn::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// let db = Database::open(dir.path().join("db"))?;
    /// let numbers = db.keyspace("numbers", KeyspaceOptions::default())?;
    /// for n in 0..10_000 {
    ///     numbers.put(format!("{n:05}"), "a value")?;
    /// }
    /// let snapshot = db.snapshot(); // all threads see one state
    /// let points = numbers.split_points::<&str>(.., 4)?;
    /// let ends = points.iter().map(|key| Bound::Excluded(&key[..])).chain([Bound::Unbounded]);
    /// let begins = [Bound::Unbounded].into_iter().chain(points.iter().map(|key| Bound::Included(&key[..])));
    /// let parts: Vec<_> = begins.zip(ends).collect();
    /// let sum: usize = std::thread::scope(|scope| {
    ///     let count = |part| snapshot.range::<&[u8]>(&numbers, part).count();
    ///     let threads: Vec<_> = parts.into_iter().map(|part| scope.spawn(move || count(part))).collect();
    ///     threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    /// });
    /// assert_eq!(sum, 10_000);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Cost: reads of index blocks that are not in memory, as many as have sixteen entries for each part, and one of each table.
    ///
    /// # Errors
    /// As for [`Keyspace::first`].
    pub fn split_points<K: AsRef<[u8]>>(
        &self,
        bounds: impl RangeBounds<K>,
        parts: usize,
    ) -> Result<Vec<Slice>> {
        let Some((read_state, bounds)) = self.present(Bounds::new(&bounds))? else { return Ok(Vec::new()) };
        let found = self.inner.split_points(&read_state, &bounds.from, bounds.to.as_deref(), parts);
        found.map_err(|e| self.read_error(e))
    }

    fn estimate(&self, bounds: Bounds) -> Result<Estimate> {
        let Some((read_state, bounds)) = self.present(bounds)? else { return Ok(Estimate::default()) };
        let found = self.inner.estimate(&read_state, &bounds.from, bounds.to.as_deref());
        found.map_err(|e| self.read_error(e))
    }

    /// What readers have now; `None` for an empty range.
    fn present(&self, bounds: Bounds) -> Result<Option<(Arc<ReadState>, Bounds)>> {
        self.inner.check_order()?;
        let read_state = self.inner.read_state.load_full();
        self.inner.check_open()?;
        let is_empty = bounds.to.as_ref().is_some_and(|to| *to <= bounds.from);
        Ok((!is_empty).then_some((read_state, bounds)))
    }
}
