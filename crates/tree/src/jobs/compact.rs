//! Executes a compaction: merges the inputs of a plan, drops what no reader can see, and writes the output tables.

use super::eviction::EvictionSink;
use super::filtered_cursor::FilteredCursor;
use super::folded_cursor::FoldedCursor;
use super::inline_values::InlineValues;
use super::job::{JobContext, JobOutput};
use super::write::{Kept, write_tables};
use crate::compaction::Plan;
use crate::read::{LiveTableCursor, MergeCursor};
use crate::version::{LiveTable, key_bounds};
use base::{Cursor, Result, shared_prefix};
use std::sync::Arc;
use values::Segments;

/// Merges the plan's tables and cuts the output at the plan's keys. A move needs no work here. The tables are
/// synced on return, but not the directory. `sink` is shown all entries. On an error the output files are removed; the kind `ReadOnly` means that a sync failed.
///
/// Cost: one sequential read of the inputs and one sequential write of the kept entries; a heap of the inputs, and no
/// allocation per record. A compaction for scans also reads the values to which its entries refer, one by one.
pub fn compact(
    plan: &Plan,
    context: &JobContext<'_>,
    sink: Option<&mut (dyn EvictionSink + '_)>,
) -> Result<JobOutput> {
    // A snapshot taken during the merge is not in the list. It reads at the newest of these range tombstones, or later.
    let oldest_reader = context.snapshots.first().copied().unwrap_or(context.range_tombstones.max_seq());
    let outcome = JobOutput { oldest_reader: Some(oldest_reader), ..JobOutput::default() };
    if plan.is_unread() {
        return Ok(outcome);
    }
    let scan = |live: &Arc<LiveTable>| LiveTableCursor::new(live.clone(), live.table.scan(), true);
    let (smallest, largest) = key_bounds(plan.input_tables());
    let mut merge =
        MergeCursor::new(plan.input_tables().map(scan).collect(), shared_prefix(smallest, largest));
    let segments = plan.input_tables().find_map(|live| live.segments());
    match segments.filter(|_| plan.inlines_values() && context.inline_values) {
        None => write(&mut merge, segments, plan, context, outcome, sink),
        Some(values) => {
            let mut entries = InlineValues::new(merge, values, context.expired_by);
            let mut outcome = write(&mut entries, segments, plan, context, outcome, sink)?;
            outcome.values_read += entries.read;
            outcome.value_error = outcome.value_error.or(entries.error);
            Ok(outcome)
        }
    }
}

/// Writes the entries that readers can see, with operands joined if there may be any, as the filter leaves them if there is one.
fn write(
    entries: &mut impl Cursor,
    segments: Option<&Segments>,
    plan: &Plan,
    context: &JobContext<'_>,
    outcome: JobOutput,
    sink: Option<&mut (dyn EvictionSink + '_)>,
) -> Result<JobOutput> {
    let Some(operator) = context.operator else {
        return write_left(entries, segments, plan, context, outcome, sink);
    };
    let mut folded = FoldedCursor::of_plan(entries, operator, context, segments, plan);
    let mut outcome = write_left(&mut folded, segments, plan, context, outcome, sink)?;
    outcome.values_read += folded.values_read;
    outcome.value_error = folded.error;
    Ok(outcome)
}

/// Writes the entries that readers can see, as the filter leaves them if there is one.
fn write_left(
    entries: &mut impl Cursor,
    segments: Option<&Segments>,
    plan: &Plan,
    context: &JobContext<'_>,
    outcome: JobOutput,
    sink: Option<&mut (dyn EvictionSink + '_)>,
) -> Result<JobOutput> {
    let Some(filter) = context.filter else {
        return write_tables(entries, plan, context, outcome, Kept::Seen, sink, |_, _, _| {});
    };
    let mut left = FilteredCursor::new(entries, filter, segments, context);
    let mut outcome = write_tables(&mut left, plan, context, outcome, Kept::Seen, sink, |_, _, _| {})?;
    outcome.values_read += left.done.values_read;
    outcome.filtered = left.done;
    Ok(outcome)
}
