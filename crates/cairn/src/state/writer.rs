//! The [`Writer`], which a thread holds while it commits. The guard that holds it is in `writer_guard.rs`.

use super::read_set::ReadSet;
use super::write_batch::Batch;
use crate::parts::{Begun, WriteQueue};
use crate::types::Durability;
use crate::wal::Log;
use base::{Error, ErrorKind, Result, Seq};
use memtable::Memtable;
use std::sync::Arc;

/// State of the single writer: the log and the accounting of memtable memory and slowdowns.
pub(crate) struct Writer {
    pub log: Log,
    pub next_seq: Seq,
    pub scratch: Vec<u8>,
    /// Bytes reserved in active memtables, their overhead included, over all keyspaces.
    pub active_bytes: u64,
    /// Slowdown that writers have not yet waited, in nanoseconds.
    pub delay_nanos: u64,
    /// Length of the current log at which the length of all logs is checked again.
    pub check_log_at: u64,
    /// Length of the current log from which on keyspaces may have to be flushed to free older logs.
    pub check_holders_at: u64,
    /// Nanoseconds that a writer waits per KiB because the log is near its cap.
    pub log_slowdown: u64,
}

impl Writer {
    pub(crate) fn new(log: Log, next_seq: Seq) -> Writer {
        Writer {
            log,
            next_seq,
            scratch: Vec::new(),
            active_bytes: 0,
            delay_nanos: 0,
            check_log_at: 0,
            check_holders_at: 0,
            log_slowdown: 0,
        }
    }

    /// Removes an active memtable from the accounting: it is sealed, or its keyspace dropped.
    pub(crate) fn forget(&mut self, memtable: &Memtable) {
        self.active_bytes = self.active_bytes.saturating_sub(reserved_by(memtable));
    }

    /// Reserves memory in a memtable; returns whether there was room.
    #[inline]
    pub(crate) fn reserve(&mut self, memtable: &Memtable, bytes: usize) -> bool {
        let fits = memtable.reserve(bytes);
        if fits {
            self.active_bytes += bytes as u64;
        }
        fits
    }
}

/// Bytes reserved in an active memtable, its own overhead included. The empty memtable that keyspaces share has none.
pub(crate) fn reserved_by(memtable: &Memtable) -> u64 {
    memtable.overhead() + memtable.reserved() as u64
}

/// The error that other threads get after a panic in `what`.
#[cold]
pub(crate) fn panicked(what: &str) -> Error {
    Error::new(ErrorKind::ReadOnly, format!("{what} panicked"))
}

/// The writer, and the queue of batches for it.
pub(crate) type Commit = WriteQueue<Writer, Job, Result<()>>;

/// A queued batch.
pub(crate) struct Job {
    pub batch: Batch,
    /// What the batch depends on, if it is that of a transaction.
    pub reads: Option<Box<ReadSet>>,
    pub durability: Durability,
}

/// A batch that a task has queued.
pub(crate) struct TaskJob {
    pub job: Job,
    pub begun: Begun,
    /// What lives until the batch is committed, or refused: the snapshot of a transaction.
    pub held: Option<Arc<dyn Send + Sync>>,
}

/// For a database whose log is open.
pub(crate) fn new_commit(writer: Writer) -> Commit {
    WriteQueue::new(writer, || Err(panicked("the thread that committed for this one")))
}
