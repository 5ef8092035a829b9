//! [`Reader`]: the database as reads see it.

use super::db_inner::DbInner;
use super::keyspace_inner::KeyspaceInner;
use crate::parts::{FoundRun, Latency};
use crate::sync::Ordering;
use base::{Error, Result, Seq};
use env::Env;
use std::sync::Arc;

/// The database as reads see it. The methods are all that a read may do: it looks, and leaves notes. What else the database does, such as
/// commits, flushes and compactions, is out of its reach.
#[derive(Clone)]
pub(crate) struct Reader(Arc<DbInner>);

impl Reader {
    pub(crate) fn new(db: &Arc<DbInner>) -> Reader {
        Reader(db.clone())
    }

    /// Distinguishes this opening from others.
    pub(crate) fn identity(&self) -> u64 {
        self.0.identity
    }

    /// The newest visible sequence number.
    pub(crate) fn newest(&self) -> Seq {
        self.0.visible.newest()
    }

    /// Holds the newest visible sequence number in a keyspace. Returns the number, and its slot if it has one.
    #[inline]
    pub(crate) fn hold_newest(&self, keyspace: &KeyspaceInner) -> (Seq, Option<usize>) {
        keyspace.readers.hold_newest(&self.0.visible)
    }

    /// Through which files are read.
    pub(crate) fn env(&self) -> &Arc<dyn Env> {
        &self.0.env
    }

    /// # Errors
    /// `Closed` once the database is closed.
    #[inline]
    pub(crate) fn check_not_closed(&self) -> Result<()> {
        self.0.status.check_not_closed()
    }

    /// The error to report when a read has failed: `Closed` once the database is closed.
    pub(crate) fn read_error(&self, error: Error) -> Error {
        self.0.status.read_error(error)
    }

    /// Where the times of reads are noted.
    #[inline]
    pub(crate) fn latency(&self) -> &Latency {
        &self.0.counters.latency
    }

    /// Notes that the charges of some active memtable have reached its price. The flush thread or the next writer seals it.
    pub(crate) fn note_due_memtable(&self) {
        self.0.signals.memtables_due.store(true, Ordering::Relaxed);
    }

    /// Notes a run of deleted keys in the dead ranges of a keyspace, if the run is worth it and no write is going on. Otherwise a later
    /// cursor may record it.
    pub(crate) fn record_dead(&self, run: &FoundRun<'_>, keyspace: &KeyspaceInner) {
        if keyspace.dead.is_worth_a_note(run)
            && let Some(writer) = self.0.try_writer()
        {
            keyspace.dead.note(run, writer.next_seq - 1);
        }
    }

    /// A planted bug: a cursor that is dropped deletes obsolete files.
    #[cold]
    pub(crate) fn delete_obsolete_tables(&self) {
        self.0.collect_obsolete();
    }
}
