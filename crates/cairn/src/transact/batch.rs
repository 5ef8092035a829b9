//! Writing batches. One with a merge that reads the value is a transaction with the same writes.

use super::retry::TransactionOptions;
use crate::api::{Database, Keyspace};
use crate::state::{Batch, Written};
use crate::types::Durability;
use crate::wal::Entries;
use base::{Error, Result};

impl Database {
    /// Applies a batch atomically: all of it, or nothing on an error. An empty batch is a barrier: it gives all writes acknowledged
    /// before it at least `durability`; with `Sync` it does what [`Database::sync`] does.
    ///
    /// # Errors
    /// As for [`Keyspace::put`]; when writes of the batch have times, as for [`Keyspace::put_at`]; when it has merges, as for [`Keyspace::merge`]. `Conflict` if
    /// it has merges, and the first put that expires is written to one of their keyspaces at the same time: nothing was written, and the batch can be
    /// made again.
    pub fn write(&self, batch: Batch, durability: Durability) -> Result<()> {
        if batch.merges_read() {
            return self.write_merging(batch, durability);
        }
        self.handle.db.write_batch(batch, None, durability)
    }

    /// [`Database::write`] of a batch with a merge that reads the value. It is repeated until no other write comes in between: each time one does,
    /// another thread has got on.
    pub(super) fn write_merging(&self, mut batch: Batch, durability: Durability) -> Result<()> {
        if let Some(error) = batch.error.take() {
            return Err(error);
        }
        if batch.earliest.is_some() {
            let what = "a batch with times of its own cannot have merges that read the value";
            return Err(Error::invalid(what));
        }
        // Entries name their keyspaces by numbers that those of other databases have, too.
        let is_ours = |written: &Written| written.keyspace.check_of(self.handle.db.identity);
        batch.keyspaces.iter().try_for_each(is_ours)?;
        let keyspaces: Vec<Keyspace> =
            batch.keyspaces.iter().map(|written| self.keyspace_handle(written.keyspace.clone())).collect();
        let until_it_commits = TransactionOptions::default().durability(durability).retries(u32::MAX);
        self.transaction_with(&until_it_commits, |transaction| {
            let mut entries = Entries::new(&batch.entries);
            while let Some(entry) = entries.next() {
                transaction.write_entry(&keyspaces[batch.place_of(&entry)], &entry)?;
            }
            Ok(())
        })
    }
}
