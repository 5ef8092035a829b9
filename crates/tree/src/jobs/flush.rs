//! Executes a flush: writes memtables as one table of level 0.

use super::job::{JobContext, JobOutput};
use super::write::{Kept, write_tables};
use crate::compaction::{Plan, Reason};
use crate::guards::GuardHash;
use crate::read::{LiveTableCursor, MergeCursor};
use crate::version::LiveTable;
use base::{Cursor, RangeSet, Result, Slice};
use std::sync::Arc;

/// Writes the entries of `memtables` (one, or a merge of several) as one table for level 0, and collects the keys that
/// are selected as guards by their hash. The table is durable on return, its directory entry is not: the caller syncs the directory
/// once for all tables that it flushes. `kept`: all versions, if compactions evict them.
pub fn flush(mut memtables: impl Cursor, context: &JobContext<'_>, kept: Kept) -> Result<JobOutput> {
    let flushed = JobOutput {
        range_tombstones: context.range_tombstones.flattened(context.snapshots),
        oldest_reader: context.snapshots.first().copied(),
        ..JobOutput::default()
    };
    let rule = GuardHash::new(context.options);
    let mut uncommitted = Vec::new();
    let select = |key: &[u8], hash: u64, value_len: usize| {
        if let Some(rule) = &rule
            && let Some(level) = rule.level(hash, key.len() + value_len)
            && !key.is_empty()
        {
            uncommitted.push((level, Slice::copy_from(key)));
        }
    };
    let plan = Plan::empty(Reason::Level0);
    // Entries under range tombstones are kept, too.
    let unfiltered = JobContext { range_tombstones: &RangeSet::default(), ..*context };
    let context = if kept == Kept::All { &unfiltered } else { context };
    let flushed = write_tables(&mut memtables, &plan, context, flushed, kept, None, select)?;
    Ok(JobOutput { uncommitted, ..flushed })
}

/// Writes the entries of consecutive tables of level 0 as one table that can replace them. The table is durable on
/// return. Entries under the range tombstones of the version stay in it.
///
/// Cost: one sequential read of the tables and one sequential write.
pub fn merge_flushed(tables: &[Arc<LiveTable>], context: &JobContext<'_>, kept: Kept) -> Result<JobOutput> {
    let cursors = tables.iter().map(|t| LiveTableCursor::new(t.clone(), t.table.scan(), true)).collect();
    flush(MergeCursor::new(cursors, 0), context, kept)
}
