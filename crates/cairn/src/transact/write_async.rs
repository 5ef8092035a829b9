//! Writes that a task waits for: [`Database::write_async`], [`Transaction::commit_async`].

use super::transaction::Transaction;
use crate::api::{Database, Snapshot};
use crate::parts::Completion;
use crate::state::Batch;
use crate::types::Durability;
use base::Result;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// The result of [`Database::write_async`] or [`Transaction::commit_async`]: ready when the batch is committed with its durability, or has failed. Needs no runtime of its own.
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
        WriteFuture(self.handle.db.write_async(batch, None, durability))
    }
}

impl Transaction {
    /// [`Transaction::commit_with`] without blocking the caller, as [`Database::write_async`] writes a batch: the future is ready when the transaction is
    /// committed with `durability`, or refused. Its snapshot is held until then.
    ///
    /// The thread that commits compares what was read, which may read tables if memtables were flushed since. A batch that the same task has queued before, and not
    /// awaited, counts as a commit meanwhile.
    ///
    /// ```
    /// use cairn::{Database, Durability, ErrorKind, KeyspaceOptions};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// let db = Database::open(dir.path().join("db"))?;
    /// let visits = db.keyspace("visits", KeyspaceOptions::default())?;
    /// let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    /// runtime.block_on(async {
    ///     loop {
    ///         let mut tx = db.begin();
    ///         let count = tx.get(&visits, "alice")?.map_or(0, |count| count[0]);
    ///         tx.put(&visits, "alice", [count + 1])?;
    ///         match tx.commit_async(Durability::Sync).await {
    ///             Err(error) if error.kind() == ErrorKind::Conflict => {} // another commit came first: again
    ///             committed => return committed,
    ///         }
    ///     }
    /// })?;
    /// assert_eq!(visits.get("alice")?.unwrap(), [1]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The future has those of [`Transaction::commit`]; `Io` when the thread cannot be started.
    pub fn commit_async(self, durability: Durability) -> WriteFuture {
        let (Snapshot(held), commit) = self.into_commit();
        let db = held.db.clone();
        WriteFuture(match commit {
            None => Completion::done(db.status.check_not_closed()),
            Some((batch, reads)) => db.write_async(batch, Some((reads, held)), durability),
        })
    }
}
