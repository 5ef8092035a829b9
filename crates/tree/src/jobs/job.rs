//! The arguments and the results of flushes and compactions.

use super::filter::{Filtered, JobFilter};
use crate::TreeOptions;
use crate::version::Sketch;
use base::{Error, ErrorKind, MergeOperator, RangeSet, RangeTombstone, Result, Seq, Slice, Time};
use env::Env;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use table::{TableMeta, TimesOf};

/// What a flush or a compaction needs from its caller.
pub struct JobContext<'a> {
    /// The environment of the files.
    pub env: &'a Arc<dyn Env>,
    /// The database's directory.
    pub dir: &'a Path,
    /// The options of the tree.
    pub options: &'a TreeOptions,
    /// Gives each new file its number.
    pub next_number: &'a (dyn Fn() -> u64 + Sync),
    /// The sequence numbers of all snapshots and cursors, ascending.
    pub snapshots: &'a [Seq],
    /// Called regularly by a compaction with the number of bytes written since the last call. It may sleep.
    pub rate_limiter: &'a dyn Fn(u64),
    /// Range tombstones: entries that they hide from every reader are dropped.
    pub range_tombstones: &'a RangeSet,
    /// Whether a compaction for scans ([`Plan::inlines_values`](crate::Plan::inlines_values)) may write values into its tables: there is
    /// room for them on the disk.
    pub inline_values: bool,
    /// Whether operands may be joined to values outside of the tree: there is room for these on the disk.
    pub joins_values: bool,
    /// Set when the job should stop because the database is closing.
    pub cancelled: &'a AtomicBool,
    /// Tells the time of an entry and when it ended, in a tree whose keys have times.
    pub times: Option<TimesOf>,
    /// An entry whose expiry is not after this time has expired for all readers.
    pub expired_by: Time,
    /// Whether entries may be late: see [`table::TableTimes::late`].
    pub late: bool,
    /// Decides about the entries of a compaction that no reader in `snapshots` sees.
    pub filter: Option<JobFilter<'a>>,
    /// Joins operands. `None`: there are none, or they stay as they are because it is not known.
    pub operator: Option<&'a dyn MergeOperator>,
}

impl JobContext<'_> {
    /// # Errors
    /// `Closed` if the job was cancelled.
    pub(super) fn check_cancelled(&self) -> Result<()> {
        match self.cancelled.load(Ordering::Relaxed) {
            true => Err(Error::new(ErrorKind::Closed, "the database is closing")),
            false => Ok(()),
        }
    }
}

/// The result of a flush or a compaction.
#[derive(Debug, Default)]
pub struct JobOutput {
    /// The tables, in order of their keys. A flush writes one, or none if no entry is left.
    pub added: Vec<TableMeta>,
    /// The sketches of their keys, by table number.
    pub sketches: Vec<(u64, Sketch)>,
    /// Of a flush: keys that are selected as guards by their hash, with the shallowest level of each.
    pub uncommitted: Vec<(usize, Slice)>,
    /// Of a flush: the range tombstones of the memtables, merged into as few as possible.
    pub range_tombstones: Vec<RangeTombstone>,
    /// The oldest sequence number at which a reader reads or, after a compaction, will read; `None` if there are no readers of old
    /// versions.
    pub oldest_reader: Option<Seq>,
    /// Entries that were dropped, or became tombstones, because they had expired.
    pub expired: u64,
    /// What the filter has done.
    pub filtered: Filtered,
    /// Bytes of the values that a compaction for scans, or a filter, has read outside of the tree.
    pub values_read: u64,
    /// Why a value outside of the tree could not be read, and stays there: the first error.
    pub value_error: Option<Error>,
}

impl JobOutput {
    /// Bytes of the tables.
    pub fn bytes(&self) -> u64 {
        self.added.iter().map(|meta| meta.file_size).sum()
    }
}
