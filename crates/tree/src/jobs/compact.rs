//! Executes a compaction: merges the inputs of a plan, drops what no reader can see, and writes the output tables.

use super::job::{CANCEL_INTERVAL, CompactionOutput, JobContext};
use super::output::{self, Output};
use super::range_tombstone_filter::RangeTombstoneFilter;
use super::retention::Retention;
use crate::compaction::{Plan, Reason};
use crate::read::{LiveTableCursor, MergeCursor};
use crate::version::{LiveTable, key_bounds};
use base::planted::{Bug, planted};
use base::{Cursor, Result, hash, shared_prefix};
use std::sync::Arc;

/// A piece whose range overlaps other tables is cut only at this many times `piece_bytes`: the cut cannot become a
/// guard, but it bounds the size of files.
const MAX_PIECE_FACTOR: u64 = 4;

/// The number of output bytes between two calls of the rate limiter.
const RATE_LIMITER_INTERVAL: u64 = 1 << 20;

/// The largest input in bytes of an idle compaction that evicts its inputs from the page cache as it reads them.
const MAX_EVICTED_INPUT: u64 = 128 << 20;

/// Merges the plan's tables and cuts the output at the plan's keys. A move needs no work here. On an error the output
/// files are removed; the kind `ReadOnly` means that a sync failed.
///
/// Cost: one sequential read of the inputs and one sequential write of the kept entries; a heap of the inputs, and no
/// allocation per record.
pub fn compact(plan: &Plan, context: &JobContext<'_>) -> Result<CompactionOutput> {
    // A snapshot taken during the merge is not in the list. It reads at the newest of these range tombstones, or later.
    let oldest_reader = context.snapshots.first().copied().unwrap_or(context.range_tombstones.max_seq());
    let mut outcome = CompactionOutput { oldest_reader: Some(oldest_reader), ..CompactionOutput::default() };
    if plan.is_move() || plan.reason == Reason::RangeTombstones {
        return Ok(outcome); // the inputs are moved or removed unread
    }
    outcome.bytes_read = plan.input_bytes();
    let result = merge_inputs(plan, context, &mut outcome).and_then(|()| match outcome.added.is_empty() {
        true => Ok(()),
        false => context.env.sync_dir(context.dir).map_err(|e| e.sync_failed()),
    });
    if let Err(e) = result {
        output::remove_tables(context, &outcome.added);
        return Err(e);
    }
    Ok(outcome)
}

fn merge_inputs(plan: &Plan, context: &JobContext<'_>, outcome: &mut CompactionOutput) -> Result<()> {
    // An idle compaction in place makes room in the page cache for its output: it evicts its inputs, which are about to
    // be deleted. A longer compaction does not, because readers use its inputs in the meantime.
    let evicts =
        plan.reason == Reason::Idle && plan.source == plan.target && plan.input_bytes() <= MAX_EVICTED_INPUT;
    let scan = |live: &Arc<LiveTable>| {
        let table = &live.table;
        LiveTableCursor::for_merging(live.clone(), if evicts { table.last_scan() } else { table.scan() })
    };
    let (smallest, largest) = key_bounds(plan.input_tables());
    let children = plan.input_tables().map(scan).collect();
    let mut merge = MergeCursor::new(children, shared_prefix(smallest, largest));
    let snapshots = if planted(Bug::IgnoreSnapshots) { &[] } else { context.snapshots };
    let mut retention = Retention::new(snapshots);
    let mut range_filter = RangeTombstoneFilter::new(context.range_tombstones, snapshots);
    let mut output = Output::new(context, outcome);
    let mut piece = 0;
    let mut countdown = CANCEL_INTERVAL;
    let result = (|| {
        merge.seek_to_first()?;
        while merge.valid() {
            let (key, trailer) = (merge.key(), merge.trailer());
            while plan.cuts.get(piece).is_some_and(|cut| is_at_or_after(key, cut)) {
                output.finish()?;
                piece += 1;
            }
            let max_len =
                if plan.bottom[piece] { plan.piece_bytes } else { plan.piece_bytes * MAX_PIECE_FACTOR };
            // All versions of a key stay in one table: in two tables, the older ones could hide the newer.
            if max_len > 0
                && output.len() >= max_len
                && (!retention.has_seen(key) || planted(Bug::CutBetweenVersions))
            {
                output.finish()?;
            }
            let kept = retention.keeps(key, trailer, plan.bottom[piece] || planted(Bug::DropTombstoneEarly));
            if kept && !range_filter.hides(key, trailer) {
                output.add(plan.bottom[piece], key, hash(key), trailer, merge.value())?;
            }
            context.check_cancelled(&mut countdown)?;
            // With large values, many bytes come before many entries.
            if countdown.is_multiple_of(CANCEL_INTERVAL)
                || kept && output.unreported() >= RATE_LIMITER_INTERVAL
            {
                output.call_rate_limiter();
            }
            merge.next()?;
        }
        output.finish()?;
        output.call_rate_limiter();
        Ok(())
    })();
    if result.is_err() {
        output.abandon();
    }
    result
}

/// Whether `key` belongs to the piece that begins with `cut`, or to a later piece.
#[inline]
fn is_at_or_after(key: &[u8], cut: &[u8]) -> bool {
    match planted(Bug::GuardKeyToTheLeft) {
        true => key > cut,
        false => key >= cut,
    }
}
