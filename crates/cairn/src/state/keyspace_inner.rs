//! [`KeyspaceInner`], the state of a keyspace that its handles, batches and cursors share.

use super::read_state::ReadState;
use crate::parts::{DeadRanges, FlushGeneration, HeldSeqs, KeyspaceCounters};
use crate::sync::{ArcSwap, AtomicU8, AtomicUsize, Ordering};
use crate::types::KeyspaceOptions;
use base::limits::MAX_KEYSPACE_NAME_LEN;
use base::{Error, ErrorKind, Result, Slice, Trailer};
use std::sync::Arc;
use tree::ReadCharges;
use values::Segments;

/// The state of a keyspace that its handles, batches and cursors share.
pub(crate) struct KeyspaceInner {
    pub id: u64,
    /// The identity of its database, which `check_of` compares.
    pub database: u64,
    pub name: String,
    pub options: KeyspaceOptions,
    /// Capacity of a new memtable: the option, or less when the memory budget is small.
    pub memtable_bytes: usize,
    pub read_state: ArcSwap<ReadState>,
    pub segments: Arc<Segments>,
    /// Number of times that a flush has removed memtables from the read state.
    pub generation: FlushGeneration,
    /// The sequence numbers that open cursors hold.
    pub readers: HeldSeqs,
    /// Read costs that are charged to tables and guards.
    pub charges: Arc<ReadCharges>,
    /// One of [`OPEN`], [`DROPPED`], [`CLOSED`].
    pub state: AtomicU8,
    /// Bytes that were reserved in the previous memtable: the estimate for the next one.
    pub last_used: AtomicUsize,
    /// Ranges of deleted keys that cursors skip.
    pub dead: DeadRanges,
    pub counters: KeyspaceCounters,
}

/// The keyspace can be used.
pub(crate) const OPEN: u8 = 0;

/// It was dropped.
pub(crate) const DROPPED: u8 = 1;

/// Its database was closed.
pub(crate) const CLOSED: u8 = 2;

impl KeyspaceInner {
    #[inline]
    pub(crate) fn check_open(&self) -> Result<()> {
        match self.state.load(Ordering::Acquire) {
            OPEN => Ok(()),
            other => Err(self.closed_error(other)),
        }
    }

    /// Checks that the keyspace belongs to `database` and can be used.
    #[inline]
    pub(crate) fn check_of(&self, database: u64) -> Result<()> {
        match self.database == database {
            true => self.check_open(),
            false => Err(Error::invalid(format!("keyspace {:?} belongs to another database", self.name))),
        }
    }

    #[cold]
    fn closed_error(&self, state: u8) -> Error {
        let how = if state == DROPPED { "was dropped" } else { "is closed, with its database" };
        Error::new(ErrorKind::Closed, format!("keyspace {:?} {how}", self.name))
    }

    /// The value of an entry of a table: `value`, or what it refers to.
    #[inline]
    pub(crate) fn resolve(&self, trailer: Trailer, value: Slice) -> Result<Slice> {
        match trailer.is_reference() {
            true => self.segments.read_waiting(&self.segments.decode(&value)?, false),
            false => Ok(value),
        }
    }

    pub(crate) fn is_dropped(&self) -> bool {
        self.state.load(Ordering::Acquire) == DROPPED
    }
}

/// Checks that `name` is allowed for a keyspace.
pub(crate) fn check_name(name: &str) -> Result<()> {
    match name {
        "" => Err(Error::invalid("the name of a keyspace must not be empty")),
        _ if name.len() > MAX_KEYSPACE_NAME_LEN => Err(Error::invalid(format!(
            "the name of a keyspace may have {MAX_KEYSPACE_NAME_LEN} bytes; this one has {}",
            name.len()
        ))),
        _ => Ok(()),
    }
}
