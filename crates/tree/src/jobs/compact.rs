//! Executes flushes and compactions: merges memtables or tables and writes the result as new tables.
//!
//! The library calls [`flush`], [`merge_flushed`] and [`compact`] on its background threads, without locks. They drop
//! entries that no reader can see, and create, sync and on failure remove files. They change neither a version nor the
//! manifest: the caller turns their results into edits.

use crate::compaction::pick::Plan;
use crate::compaction::pick::Reason;
use crate::guards::hash::GuardHash;
use crate::read::level_cursor::LiveTableCursor;
use crate::read::merge::{MergeCursor, shared_prefix};
use crate::version::LiveTable;
use crate::version::range_tombstones::RangeTombstoneFilter;
use crate::version::sketch::Sketch;
use base::planted::{Bug, planted};
use base::{Cursor, Error, ErrorKind, RangeSet, RangeTombstone, Result, Seq, Slice, Trailer, hash};
use env::Env;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use table::{TableMeta, TableOptions, TableWriter};

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

/// Decides which versions of a key a reader can still see. Entries come in order, the newest version of a key first.
struct Retention<'a> {
    snapshots: &'a [Seq],
    key: Vec<u8>,
    /// Whether `key` holds a key.
    started: bool,
    /// The number of snapshots that are older than the last version.
    stripe: usize,
}

impl<'a> Retention<'a> {
    fn new(snapshots: &'a [Seq]) -> Self {
        debug_assert!(snapshots.is_sorted());
        Retention { snapshots, key: Vec::new(), started: false, stripe: 0 }
    }

    /// Whether the last entry was a version of this key.
    fn has_seen(&self, key: &[u8]) -> bool {
        self.started && self.key == key
    }

    /// Whether to keep this entry. `bottom`: no older version of the key exists outside of the merge.
    #[inline]
    fn keeps(&mut self, key: &[u8], trailer: Trailer, bottom: bool) -> bool {
        let stripe = match self.snapshots {
            [] => 0,
            snapshots => snapshots.partition_point(|&s| s < trailer.seq()),
        };
        let same = self.started && self.key == key;
        // Every reader that could see this version sees a newer one instead.
        let shadowed = same && stripe == self.stripe;
        self.stripe = stripe;
        if !same {
            self.key.clear();
            self.key.extend_from_slice(key);
            self.started = true;
        }
        // A tombstone is droppable if there is no older version that it hides from a reader.
        let is_droppable = bottom && stripe == 0 && trailer.is_delete();
        !(shadowed || is_droppable)
    }
}

/// A piece whose range overlaps other tables is cut only at this many times `piece_bytes`: the cut cannot become a
/// guard, but it bounds the size of files.
const MAX_PIECE_FACTOR: u64 = 4;

/// The number of entries between two checks for cancellation.
const CANCEL_INTERVAL: u32 = 1024;
/// The number of output bytes between two calls of the rate limiter.
const RATE_LIMITER_INTERVAL: u64 = 1 << 20;

/// The largest input in bytes of an idle compaction that evicts its inputs from the page cache as it reads them.
const MAX_EVICTED_INPUT: u64 = 128 << 20;

fn check_cancelled(context: &JobContext<'_>, countdown: &mut u32) -> Result<()> {
    *countdown = countdown.wrapping_sub(1);
    if (*countdown).is_multiple_of(CANCEL_INTERVAL) && context.cancelled.load(Ordering::Relaxed) {
        return Err(Error::new(ErrorKind::Closed, "the database is closing"));
    }
    Ok(())
}

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
        for table in &outcome.added {
            // Best effort: the next opening of the database removes files that remain.
            let _ = context.env.remove(&context.dir.join(table::table_file_name(table.number)));
        }
        return Err(e);
    }
    Ok(outcome)
}

fn merge_inputs(plan: &Plan, context: &JobContext<'_>, outcome: &mut CompactionOutput) -> Result<()> {
    let smallest = plan.inputs.iter().map(|(_, t)| &t.meta.smallest[..]).min().unwrap_or(&[]);
    let largest = plan.inputs.iter().map(|(_, t)| &t.meta.largest[..]).max().unwrap_or(&[]);
    // An idle compaction in place makes room in the page cache for its output: it evicts its inputs, which are about to
    // be deleted. A longer compaction does not, because readers use its inputs in the meantime.
    let evicts =
        plan.reason == Reason::Idle && plan.source == plan.target && plan.input_bytes() <= MAX_EVICTED_INPUT;
    let scan = |file: &Arc<LiveTable>| {
        let table = &file.table;
        LiveTableCursor::for_merging(file.clone(), if evicts { table.last_scan() } else { table.scan() })
    };
    let children = plan.inputs.iter().map(|(_, t)| scan(t)).collect();
    let mut merge = MergeCursor::new(children, shared_prefix(smallest, largest));
    let snapshots = if planted(Bug::IgnoreSnapshots) { &[] } else { context.snapshots };
    let mut retention = Retention::new(snapshots);
    let mut range_filter = RangeTombstoneFilter::new(context.range_tombstones, snapshots);
    let mut output = Output { context, writer: None, sketch: Sketch::default(), reported: 0, done: outcome };
    let mut piece = 0;
    let mut countdown = CANCEL_INTERVAL;
    let result = (|| {
        merge.seek_to_first()?;
        while merge.valid() {
            let (key, trailer) = (merge.key(), merge.trailer());
            while plan.cuts.get(piece).is_some_and(|cut| is_behind(key, cut)) {
                output.finish()?;
                piece += 1;
            }
            let most =
                if plan.bottom[piece] { plan.piece_bytes } else { plan.piece_bytes * MAX_PIECE_FACTOR };
            // All versions of a key stay in one table: in two tables, the older ones could hide the newer.
            if most > 0
                && output.len() >= most
                && (!retention.has_seen(key) || planted(Bug::CutBetweenVersions))
            {
                output.finish()?;
            }
            let kept = retention.keeps(key, trailer, plan.bottom[piece] || planted(Bug::DropTombstoneEarly));
            if kept && !range_filter.hides(key, trailer) {
                output.add(plan.bottom[piece], key, hash(key), trailer, merge.value())?;
            }
            check_cancelled(context, &mut countdown)?;
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
fn is_behind(key: &[u8], cut: &[u8]) -> bool {
    match planted(Bug::GuardKeyToTheLeft) {
        true => key > cut,
        false => key >= cut,
    }
}

/// Additional filter bits per key of tables above the bottom.
const ADDITIONAL_FILTER_BITS: u32 = 4;

/// The table options for a level. Above the bottom there are several tables, each much smaller than the data below.
/// Each is searched for keys that it does not have, and a false positive of its filter costs a read. So filter bits are
/// worth most and cost least there (Monkey, SIGMOD 2017, section 4).
fn filter_options(options: &TableOptions, bottom: bool) -> TableOptions {
    let base = options.filter_bits_per_key;
    let more = if bottom || base == 0 { 0 } else { ADDITIONAL_FILTER_BITS };
    TableOptions { filter_bits_per_key: base + more, ..options.clone() }
}

/// Writes output tables one after the other.
struct Output<'a> {
    context: &'a JobContext<'a>,
    writer: Option<TableWriter>,
    sketch: Sketch,
    /// Bytes that the rate limiter knows of.
    reported: u64,
    done: &'a mut CompactionOutput,
}

impl Output<'_> {
    /// The writer of the current table. `bottom`: no older table overlaps its range.
    #[inline]
    fn writer(&mut self, bottom: bool) -> Result<&mut TableWriter> {
        if self.writer.is_none() {
            let number = (self.context.next_number)();
            let options = filter_options(self.context.table, bottom);
            let writer = TableWriter::create(self.context.env, self.context.dir, number, &options)?;
            return Ok(self.writer.insert(writer));
        }
        match &mut self.writer {
            Some(writer) => Ok(writer),
            None => unreachable!("it was set above"),
        }
    }

    #[inline]
    fn add(&mut self, bottom: bool, key: &[u8], hash: u64, trailer: Trailer, value: &[u8]) -> Result<()> {
        self.sketch.add(hash);
        self.writer(bottom)?.add_hashed(key, hash, trailer, value)
    }

    /// The approximate size of the current table, in bytes.
    #[inline]
    fn len(&self) -> u64 {
        self.writer.as_ref().map_or(0, |writer| writer.estimated_size())
    }

    fn finish(&mut self) -> Result<()> {
        if let Some(writer) = self.writer.take() {
            let mut meta = writer.finish()?;
            meta.cleared_seq = self.context.range_tombstones.max_seq();
            if let Some(&oldest) = self.context.snapshots.first()
                && !planted(Bug::SiftedDespiteSnapshot)
            {
                meta.cleared_seq = meta.cleared_seq.min(oldest);
            }
            self.done.bytes_written += meta.file_size;
            let sketch = std::mem::take(&mut self.sketch).finish();
            self.done.sketches.extend(sketch.map(|sketch| (meta.number, sketch)));
            self.done.added.push(meta);
        }
        Ok(())
    }

    /// Bytes written that the rate limiter does not know of.
    #[inline]
    fn unreported(&self) -> u64 {
        (self.done.bytes_written + self.len()).saturating_sub(self.reported)
    }

    #[cold]
    fn call_rate_limiter(&mut self) {
        let unreported = self.unreported();
        (self.context.rate_limiter)(unreported);
        self.reported += unreported;
    }

    fn abandon(&mut self) {
        if let Some(writer) = self.writer.take() {
            let _ = writer.abandon();
        }
    }
}

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
    let mut output =
        Output { context, writer: None, sketch: Sketch::default(), reported: 0, done: &mut outcome };
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
            check_cancelled(context, &mut countdown)?;
            memtables.next()?;
        }
        output.finish()
    })();
    if let Err(e) = result {
        output.abandon();
        for table in &outcome.added {
            let _ = context.env.remove(&context.dir.join(table::table_file_name(table.number)));
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use base::EntryKind;

    fn kept(snapshots: &[Seq], entries: &[(&str, Seq, EntryKind)], bottom: bool) -> Vec<(String, Seq)> {
        let mut retention = Retention::new(snapshots);
        let mut kept = Vec::new();
        for (key, seq, kind) in entries {
            if retention.keeps(key.as_bytes(), Trailer::new(*seq, *kind), bottom) {
                kept.push((key.to_string(), *seq));
            }
        }
        kept
    }

    #[test]
    fn filters_above_the_bottom_have_more_bits_where_there_are_filters() {
        let bits = |filter_bits_per_key, bottom| {
            let options = TableOptions { filter_bits_per_key, ..TableOptions::default() };
            filter_options(&options, bottom).filter_bits_per_key
        };
        assert_eq!((bits(10, true), bits(10, false)), (10, 14));
        assert_eq!((bits(0, true), bits(0, false)), (0, 0));
    }

    #[test]
    fn only_versions_that_a_reader_sees_are_kept() {
        use EntryKind::{Delete, Put};
        let entries = [("a", 9, Put), ("a", 5, Put), ("a", 2, Put), ("b", 8, Delete), ("b", 3, Put)];
        let numbers = |snapshots: &[Seq], bottom| -> Vec<Seq> {
            kept(snapshots, &entries, bottom).into_iter().map(|(_, seq)| seq).collect()
        };
        assert_eq!(numbers(&[], false), [9, 8]);
        assert_eq!(numbers(&[], true), [9]);
        assert_eq!(numbers(&[5], true), [9, 5, 8, 3]);
        assert_eq!(numbers(&[4], true), [9, 2, 8, 3]);
        assert_eq!(numbers(&[1], true), [9, 8]);
        assert_eq!(numbers(&[8], true), [9, 5]);
        assert_eq!(numbers(&[9], true), [9]);
        assert_eq!(numbers(&[2, 5], false), [9, 5, 2, 8, 3]);
    }
}
