//! The ends of a keyspace, and what a range of it has.

use super::keyspace::Keyspace;
use crate::types::Bounds;
use base::{Result, Slice};
use std::ops::RangeBounds;
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
    /// Where there is history only the newest versions count.
    ///
    /// Cost: two searches in the index of each table at the ends of the range, ten microseconds for some dozen tables, and a look at a thousand entries of each memtable, a hundred
    /// microseconds, and reads of index blocks that are not in memory.
    ///
    /// # Errors
    /// As for [`Keyspace::get`]; `InvalidArgument` for a keyspace without order.
    pub fn approximate_len<K: AsRef<[u8]>>(&self, bounds: impl RangeBounds<K>) -> Result<u64> {
        Ok(self.estimate(&Bounds::new(&bounds))?.keys.round().max(0.0) as u64)
    }

    /// The approximate number of bytes that `bounds` takes, without reading data: of tables, as they are on the disk, of values outside of them,
    /// and of keys and values in memory. What compactions have not dropped yet counts. In a keyspace with history, older versions that were evicted do
    /// not.
    ///
    /// Cost: as for [`Keyspace::approximate_len`].
    ///
    /// # Errors
    /// As for [`Keyspace::approximate_len`].
    pub fn approximate_bytes<K: AsRef<[u8]>>(&self, bounds: impl RangeBounds<K>) -> Result<u64> {
        Ok(self.estimate(&Bounds::new(&bounds))?.bytes.round().max(0.0) as u64)
    }

    fn estimate(&self, bounds: &Bounds) -> Result<Estimate> {
        self.inner.check_order()?;
        let read_state = self.inner.read_state.load_full();
        self.inner.check_open()?;
        if bounds.to.as_ref().is_some_and(|to| *to <= bounds.from) {
            return Ok(Estimate::default());
        }
        let found = self.inner.estimate(&read_state, &bounds.from, bounds.to.as_deref());
        found.map_err(|e| self.read_error(e))
    }
}
