//! Writes that a task waits for: [`Database::write_async`].

use crate::api::Database;
use crate::parts::Completion;
use crate::state::Batch;
use crate::types::Durability;
use base::Result;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// The result of [`Database::write_async`]: ready when the batch is committed with its durability, or has failed. Needs no runtime of its own.
///
/// It can be dropped: the write goes on, and its result is lost. It can be polled again after it was ready.
#[must_use = "the write goes on without it, but its result is lost"]
pub struct WriteFuture(Arc<Completion<Result<()>>>);

impl Future for WriteFuture {
    type Output = Result<()>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        self.0.poll(context)
    }
}

impl fmt::Debug for WriteFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WriteFuture").finish_non_exhaustive()
    }
}

impl Database {
    /// Applies a batch atomically, as [`Database::write`] does, without blocking the caller: the batch is queued, and the future is ready when it is
    /// committed with `durability`. Works with every asynchronous runtime.
    ///
    /// A batch with a merge that reads the value ([`Batch::merge`]) is committed by the call itself, which blocks, perhaps before batches that are queued: await
    /// earlier writes to its keys first.
    ///
    /// Other batches are committed in the order of the calls, by one thread for the database, which begins with the first call. It commits those
    /// that are queued as a group, together with the batches of threads that write: a group costs one sync. What is written is visible when the
    /// future is ready, or shortly before.
    ///
    /// The write happens whether or not the future is awaited. Closing the database waits for all that were queued before. The batches that are queued
    /// take memory beside the budget: a task that awaits each write has at most one.
    ///
    /// Meant for [`Durability::Sync`], which waits for the disk. Other writes mostly take less time than handing them to another thread, but may
    /// have to wait for flushes and compactions, and for a sync that another write has demanded. Without background threads
    /// (`background_threads` = 0) the call itself commits.
    ///
    /// ```
    /// use cairn::{Database, Durability, KeyspaceOptions};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// let db = Database::open(dir.path().join("db"))?;
    /// let users = db.keyspace("users", KeyspaceOptions::default())?;
    /// let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    /// runtime.block_on(async {
    ///     let mut batch = db.batch();
    ///     batch.put(&users, "alice", "1");
    ///     db.write_async(batch, Durability::Sync).await
    /// })?;
    /// assert_eq!(users.get("alice")?.unwrap(), "1");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The future has those of [`Database::write`]; `Io` when the thread cannot be started: nothing was written then.
    pub fn write_async(&self, batch: Batch, durability: Durability) -> WriteFuture {
        if batch.merges_read() {
            return WriteFuture(Completion::done(self.write_merging(batch, durability)));
        }
        WriteFuture(self.handle.db.write_async(batch, durability))
    }
}
