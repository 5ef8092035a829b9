//! The arguments and the results of flushes and compactions.

use crate::version::Sketch;
use base::{Error, ErrorKind, RangeSet, RangeTombstone, Result, Seq, Slice};
use env::Env;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use table::{TableMeta, TableOptions};

/// The number of entries between two checks for cancellation.
pub(super) const CANCEL_INTERVAL: u32 = 1024;

/// What a flush or a compaction needs from its caller.
pub struct JobContext<'a> {
    /// The environment of the files.
    pub env: &'a Arc<dyn Env>,
    /// The database's directory.
    pub dir: &'a Path,
    /// The options of the output tables.
    pub table: &'a TableOptions,
    /// Gives each new file its number.
    pub next_number: &'a (dyn Fn() -> u64 + Sync),
    /// The sequence numbers of all snapshots and cursors, ascending.
    pub snapshots: &'a [Seq],
    /// Called regularly by a compaction with the number of bytes written since the last call. It may sleep.
    pub rate_limiter: &'a (dyn Fn(u64) + Sync),
    /// Range tombstones: entries that they hide from every reader are dropped.
    pub range_tombstones: &'a RangeSet,
    /// Set when the job should stop because the database is closing.
    pub cancelled: &'a AtomicBool,
}

/// The result of a compaction. The tables and their directory entries are durable.
#[derive(Debug, Default)]
pub struct CompactionOutput {
    /// The tables, in order of their keys.
    pub added: Vec<TableMeta>,
    /// The sketches of their keys, by table number.
    pub sketches: Vec<(u64, Sketch)>,
    /// Bytes of the input tables.
    pub bytes_read: u64,
    /// Bytes of the output tables.
    pub bytes_written: u64,
    /// The oldest sequence number at which a reader reads or will read; `None` if there are no readers of old versions.
    pub oldest_reader: Option<Seq>,
}

/// The result of a flush.
#[derive(Debug, Default)]
pub struct FlushOutput {
    /// The table; `None` if no entry is left.
    pub table: Option<TableMeta>,
    /// Keys that `GuardHash` selects as guards, with the shallowest level of each.
    pub uncommitted: Vec<(Slice, usize)>,
    /// The sketch of the table's keys, by table number.
    pub sketches: Vec<(u64, Sketch)>,
    /// The range tombstones of the memtables, merged into as few as possible.
    pub range_tombstones: Vec<RangeTombstone>,
    /// The oldest sequence number at which a reader reads; `None` if there are no readers of old versions.
    pub oldest_reader: Option<Seq>,
}

impl JobContext<'_> {
    /// An error if the job was cancelled. Checks it each time that `countdown` has counted down `CANCEL_INTERVAL` entries.
    #[inline]
    pub(super) fn check_cancelled(&self, countdown: &mut u32) -> Result<()> {
        *countdown = countdown.wrapping_sub(1);
        if (*countdown).is_multiple_of(CANCEL_INTERVAL) && self.cancelled.load(Ordering::Relaxed) {
            return Err(Error::new(ErrorKind::Closed, "the database is closing"));
        }
        Ok(())
    }
}
