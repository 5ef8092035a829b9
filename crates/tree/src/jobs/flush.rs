//! Executes a flush: writes memtables as one table of level 0.

use super::job::{CANCEL_INTERVAL, CompactionOutput, FlushOutput, JobContext};
use super::output::{self, Output};
use super::range_tombstone_filter::RangeTombstoneFilter;
use super::retention::Retention;
use crate::guards::GuardHash;
use crate::read::{LiveTableCursor, MergeCursor};
use crate::version::LiveTable;
use base::{Cursor, Result, Slice, hash};
use std::sync::Arc;

/// Writes the entries of `memtables` (one, or a merge of several) as one table for level 0, and collects the keys that
/// `rule` selects as guards. The table is durable on return, its directory entry is not: the caller syncs the directory
/// once for all tables that it flushes.
pub fn flush(mut memtables: impl Cursor, rule: &GuardHash, context: &JobContext<'_>) -> Result<FlushOutput> {
    let mut flushed = FlushOutput {
        range_tombstones: context.range_tombstones.flattened(context.snapshots),
        oldest_reader: context.snapshots.first().copied(),
        ..FlushOutput::default()
    };
    let mut outcome = CompactionOutput::default();
    let mut retention = Retention::new(context.snapshots);
    let mut range_filter = RangeTombstoneFilter::new(context.range_tombstones, context.snapshots);
    let mut output = Output::new(context, &mut outcome);
    let mut countdown = CANCEL_INTERVAL;
    let result = (|| {
        memtables.seek_to_first()?;
        while memtables.valid() {
            let (key, trailer, value) = (memtables.key(), memtables.trailer(), memtables.value());
            if retention.keeps(key, trailer, false) && !range_filter.hides(key, trailer) {
                let hash = hash(key);
                output.add(false, key, hash, trailer, value)?;
                if let Some(level) = rule.level(hash, key.len() + value.len()).filter(|_| !key.is_empty()) {
                    flushed.uncommitted.push((Slice::copy_from(key), level));
                }
            }
            context.check_cancelled(&mut countdown)?;
            memtables.next()?;
        }
        output.finish()
    })();
    if let Err(e) = result {
        output.abandon();
        output::remove_tables(context, &outcome.added);
        return Err(e);
    }
    flushed.table = outcome.added.pop();
    flushed.sketches = outcome.sketches;
    Ok(flushed)
}

/// Writes the entries of consecutive tables of level 0 as one table that can replace them. The table is durable on
/// return. Entries under the range tombstones of the version stay in it.
///
/// Cost: one sequential read of the tables and one sequential write.
pub fn merge_flushed(
    tables: &[Arc<LiveTable>],
    rule: &GuardHash,
    context: &JobContext<'_>,
) -> Result<FlushOutput> {
    let cursors = tables.iter().map(|t| LiveTableCursor::for_merging(t.clone(), t.table.scan())).collect();
    flush(MergeCursor::new(cursors, 0), rule, context)
}
