//! Merges: operands for the merge operator of a keyspace.

use super::transaction::is_conflict;
use crate::api::Keyspace;
use crate::types::Durability;
use crate::wal::Entry;
use base::Result;

impl Keyspace {
    /// Joins `operand` to the value of `key` with the merge operator of the keyspace (option [`merge`](crate::Merge)), without reading it: adds to a
    /// counter, or appends to a list. The operand is the value if there is none. Merges of several threads all count.
    ///
    /// Costs what [`Keyspace::put`] costs. A read of the key joins the operands that no flush or compaction has joined yet: a step for each in
    /// memory, and at most a block for each table with some. In a keyspace with history, without order, or in which a value may expire, a merge
    /// reads the value and writes the result, as [`Keyspace::fetch_update`] does; the expiry of the value stays.
    ///
    /// ```
    /// use cairn::{KeyspaceOptions, Merge};
    ///
    /// # fn main() -> cairn::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = cairn::Database::open(dir.path())?;
    /// let visits = db.keyspace("visits", KeyspaceOptions::default().merge(Merge::U64Add))?;
    /// std::thread::scope(|scope| {
    ///     for _ in 0..4 {
    ///         scope.spawn(|| (0..100).try_for_each(|_| visits.merge("page", 1u64.to_le_bytes())));
    ///     }
    /// });
    /// assert_eq!(visits.get("page")?.unwrap(), 400u64.to_le_bytes());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As for [`Keyspace::put`]; `InvalidArgument` if the keyspace has no merge operator, or it does not take the operand. Operands that together make a
    /// longer value than is allowed are an error of reads, until the key is put or deleted.
    pub fn merge(&self, key: impl AsRef<[u8]>, operand: impl AsRef<[u8]>) -> Result<()> {
        self.merge_with(key, operand, self.database().options.durability)
    }

    /// [`Keyspace::merge`] with the given durability.
    ///
    /// # Errors
    /// As for [`Keyspace::merge`].
    pub fn merge_with(
        &self,
        key: impl AsRef<[u8]>,
        operand: impl AsRef<[u8]>,
        durability: Durability,
    ) -> Result<()> {
        let (key, operand) = (key.as_ref(), operand.as_ref());
        if !self.inner.merges_at_once() {
            match self.database().write_one(&self.inner, Entry::merge(key, operand), durability) {
                // Entries may expire since a moment ago.
                Err(error) if is_conflict(&error) => {}
                written => return written,
            }
        }
        self.merge_at_once(key, operand, durability)
    }
}
