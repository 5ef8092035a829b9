//! Running plans: flushing memtables and compacting tables.

use crate::cursor::FileCursor;
use crate::hash_guards::GuardHash;
use crate::merge::{MergeCursor, shared_prefix};
use crate::pick::Plan;
use crate::pick::Reason;
use crate::range_tombstones::RangeDelFilter;
use crate::sketch::Sketch;
use crate::version::TableFile;
use base::planted::{Bug, planted};
use base::{Cursor, Error, ErrorKind, RangeSet, RangeTombstone, Result, Seq, Slice, Trailer, hash};
use env::Env;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use table::{TableMeta, TableOptions, TableWriter};

/// What a running job needs from outside.
pub struct Context<'a> {
    /// Where files are.
    pub env: &'a Arc<dyn Env>,
    /// The database's directory.
    pub dir: &'a Path,
    /// How to write tables.
    pub table: &'a TableOptions,
    /// Gives each new file its number.
    pub next_number: &'a (dyn Fn() -> u64 + Sync),
    /// Sequence numbers at which somebody may still read, ascending.
    pub snapshots: &'a [Seq],
    /// Told every now and then how many bytes a compaction has written since it was told last; may take its time.
    pub rate_limiter: &'a (dyn Fn(u64) + Sync),
    /// Range tombstones: what one of them hides from everybody is left out.
    pub ranges: &'a RangeSet,
    /// Set when the job should stop: the database is closing.
    pub cancelled: &'a AtomicBool,
}

/// What a compaction wrote. The tables are durable, and so are their directory entries.
#[derive(Debug, Default)]
pub struct Outcome {
    /// The tables, in order of their keys.
    pub added: Vec<TableMeta>,
    /// What tells how many keys they share with others, by number.
    pub sketches: Vec<(u64, Sketch)>,
    /// Bytes of the tables that were read.
    pub bytes_read: u64,
    /// Bytes of the tables that were written.
    pub bytes_written: u64,
    /// The oldest time as of which somebody reads, if not the present.
    pub oldest_reader: Option<Seq>,
}

/// What a flush wrote.
#[derive(Debug, Default)]
pub struct Flushed {
    /// The table; `None` when nothing had to be kept.
    pub table: Option<TableMeta>,
    /// Keys that are guards by the rule of the tree, with their shallowest level.
    pub uncommitted: Vec<(Slice, usize)>,
    /// What tells how many keys the table shares with others, by its number.
    pub sketches: Vec<(u64, Sketch)>,
    /// The range tombstones of the memtables, as few as will do.
    pub ranges: Vec<RangeTombstone>,
    /// The oldest time as of which somebody reads, if not the present.
    pub oldest_reader: Option<Seq>,
}

/// Decides which versions of a key somebody can still see. Entries come in order, newest version first.
struct Retention<'a> {
    snapshots: &'a [Seq],
    key: Vec<u8>,
    /// Whether `key` holds a key at all.
    started: bool,
    /// How many snapshots are older than the version seen last.
    stripe: usize,
}

impl<'a> Retention<'a> {
    fn new(snapshots: &'a [Seq]) -> Self {
        debug_assert!(snapshots.is_sorted());
        Retention { snapshots, key: Vec::new(), started: false, stripe: 0 }
    }

    /// Whether a version of this key was seen last.
    fn has_seen(&self, key: &[u8]) -> bool {
        self.started && self.key == key
    }

    /// Whether to keep this entry. `bottom` says that no older version of the key exists outside of the merge.
    #[inline]
    fn keeps(&mut self, key: &[u8], trailer: Trailer, bottom: bool) -> bool {
        let stripe = match self.snapshots {
            [] => 0,
            snapshots => snapshots.partition_point(|&s| s < trailer.seq()),
        };
        let same = self.started && self.key == key;
        // A newer version of the key that every reader of this one sees instead.
        let shadowed = same && stripe == self.stripe;
        self.stripe = stripe;
        if !same {
            self.key.clear();
            self.key.extend_from_slice(key);
            self.started = true;
        }
        // A tombstone hides older versions; where there are none, and nobody reads between them, it can go.
        let has_done_its_work = bottom && stripe == 0 && trailer.is_delete();
        !(shadowed || has_done_its_work)
    }
}

/// A piece that other tables lie across is cut only when it has so many times the bytes that it should have: the cut cannot become a
/// guard, but files have an end.
const MAX_PIECE: u64 = 4;

/// Entries between two looks at whether the job was cancelled.
const CANCEL_INTERVAL: u32 = 1024;
/// Bytes of output between two words to the pace.
const PACE_BYTES: u64 = 1 << 20;

/// Most bytes of the inputs of a merge at rest that has the operating system forget what it has read.
const MAX_YIELDED: u64 = 128 << 20;

fn check_cancelled(context: &Context<'_>, countdown: &mut u32) -> Result<()> {
    *countdown = countdown.wrapping_sub(1);
    if (*countdown).is_multiple_of(CANCEL_INTERVAL) && context.cancelled.load(Ordering::Relaxed) {
        return Err(Error::new(ErrorKind::Closed, "the database is closing"));
    }
    Ok(())
}

/// Merges the plan's tables and cuts the result at the plan's keys; for a move there is nothing to do. On an error, what was written is removed again; one of
/// kind `ReadOnly` says that a sync failed.
///
/// Cost: one sequential read of the inputs and one sequential write of what is kept; a heap of the inputs, no allocation per
/// record.
pub fn compact(plan: &Plan, context: &Context<'_>) -> Result<Outcome> {
    // Who takes a snapshot while this runs is not among them, and reads as of the newest of these range tombstones, or later.
    let oldest_reader = context.snapshots.first().copied().unwrap_or(context.ranges.max_seq());
    let mut outcome = Outcome { oldest_reader: Some(oldest_reader), ..Outcome::default() };
    if plan.is_move() || plan.reason == Reason::RangeDeletes {
        return Ok(outcome); // its tables go down, or away, as they are
    }
    outcome.bytes_read = plan.input_bytes();
    let result = merge_inputs(plan, context, &mut outcome).and_then(|()| match outcome.added.is_empty() {
        true => Ok(()),
        false => context.env.sync_dir(context.dir).map_err(|e| e.sync_failed()),
    });
    if let Err(e) = result {
        for table in &outcome.added {
            // Best effort: what stays behind is removed when the database is next opened.
            let _ = context.env.remove(&context.dir.join(table::table_file_name(table.number)));
        }
        return Err(e);
    }
    Ok(outcome)
}

fn merge_inputs(plan: &Plan, context: &Context<'_>, outcome: &mut Outcome) -> Result<()> {
    let smallest = plan.inputs.iter().map(|(_, t)| &t.meta.smallest[..]).min().unwrap_or(&[]);
    let largest = plan.inputs.iter().map(|(_, t)| &t.meta.largest[..]).max().unwrap_or(&[]);
    // What a guard becomes at rest is to find room in memory beside all that readers use: its tables, which are about to go, give theirs up.
    // Compactions that take longer do not: what they read is in use meanwhile.
    let yields =
        plan.reason == Reason::Rest && plan.source == plan.target && plan.input_bytes() <= MAX_YIELDED;
    let scan = |file: &Arc<TableFile>| {
        let table = &file.table;
        FileCursor::for_merging(file.clone(), if yields { table.last_scan() } else { table.scan() })
    };
    let children = plan.inputs.iter().map(|(_, t)| scan(t)).collect();
    let mut merge = MergeCursor::new(children, shared_prefix(smallest, largest));
    let snapshots = if planted(Bug::IgnoreSnapshots) { &[] } else { context.snapshots };
    let mut retention = Retention::new(snapshots);
    let mut range_del = RangeDelFilter::new(context.ranges, snapshots);
    let mut output = Output { context, writer: None, sketch: Sketch::default(), told: 0, done: outcome };
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
            let most = if plan.bottom[piece] { plan.piece_bytes } else { plan.piece_bytes * MAX_PIECE };
            // The versions of a key stay together: in two tables, the older ones could hide the newer.
            if most > 0
                && output.len() >= most
                && (!retention.has_seen(key) || planted(Bug::CutBetweenVersions))
            {
                output.finish()?;
            }
            let kept = retention.keeps(key, trailer, plan.bottom[piece] || planted(Bug::DropTombstoneEarly));
            if kept && !range_del.hides(key, trailer) {
                output.add(plan.bottom[piece], key, hash(key), trailer, merge.value())?;
            }
            check_cancelled(context, &mut countdown)?;
            // Of large values there are many bytes before there are many entries.
            if countdown.is_multiple_of(CANCEL_INTERVAL) || kept && output.untold() >= PACE_BYTES {
                output.keep_pace();
            }
            merge.next()?;
        }
        output.finish()?;
        output.keep_pace();
        Ok(())
    })();
    if result.is_err() {
        output.abandon();
    }
    result
}

/// Whether `key` belongs to the piece that begins with `cut`, or to a later one.
#[inline]
fn is_behind(key: &[u8], cut: &[u8]) -> bool {
    match planted(Bug::GuardKeyToTheLeft) {
        true => key > cut,
        false => key >= cut,
    }
}

/// Bits per key that filters have more in tables which lie above others.
const UPPER_FILTER_BITS: u32 = 4;

/// How a table is written. Above the bottom lie several tables, each much smaller than what is below, and each is asked for keys
/// that it does not have, at the price of a read when its filter is wrong: there bits are worth most and cost least (Monkey, SIGMOD
/// 2017, section 4).
fn filter_options(options: &TableOptions, bottom: bool) -> TableOptions {
    let base = options.filter_bits_per_key;
    let more = if bottom || base == 0 { 0 } else { UPPER_FILTER_BITS };
    TableOptions { filter_bits_per_key: base + more, ..options.clone() }
}

/// The table being written, and those that are finished.
struct Output<'a> {
    context: &'a Context<'a>,
    writer: Option<TableWriter>,
    sketch: Sketch,
    /// Bytes that the pace was told of.
    told: u64,
    done: &'a mut Outcome,
}

impl Output<'_> {
    /// The writer of the current table. `bottom` says that older tables hold nothing of its range.
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
            None => unreachable!("it was just put there"),
        }
    }

    #[inline]
    fn add(&mut self, bottom: bool, key: &[u8], hash: u64, trailer: Trailer, value: &[u8]) -> Result<()> {
        self.sketch.add(hash);
        self.writer(bottom)?.add_hashed(key, hash, trailer, value)
    }

    /// Bytes of the table that is being written, about.
    #[inline]
    fn len(&self) -> u64 {
        self.writer.as_ref().map_or(0, |writer| writer.estimated_size())
    }

    fn finish(&mut self) -> Result<()> {
        if let Some(writer) = self.writer.take() {
            let mut meta = writer.finish()?;
            meta.cleared_seq = self.context.ranges.max_seq();
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

    /// Bytes written that the pace was not told of.
    #[inline]
    fn untold(&self) -> u64 {
        (self.done.bytes_written + self.len()).saturating_sub(self.told)
    }

    #[cold]
    fn keep_pace(&mut self) {
        let untold = self.untold();
        (self.context.rate_limiter)(untold);
        self.told += untold;
    }

    fn abandon(&mut self) {
        if let Some(writer) = self.writer.take() {
            let _ = writer.abandon();
        }
    }
}

/// Writes the entries of `memtables` (one, or a merge of several) as one table for level 0, and picks out the keys that are
/// guards. The table is durable when this returns; its directory entry is when the caller has synced the directory, once for all
/// tables that it flushes.
pub fn flush(mut memtables: impl Cursor, rule: &GuardHash, context: &Context<'_>) -> Result<Flushed> {
    let mut flushed = Flushed {
        ranges: context.ranges.flattened(context.snapshots),
        oldest_reader: context.snapshots.first().copied(),
        ..Flushed::default()
    };
    let mut outcome = Outcome::default();
    let mut retention = Retention::new(context.snapshots);
    let mut range_del = RangeDelFilter::new(context.ranges, context.snapshots);
    let mut output = Output { context, writer: None, sketch: Sketch::default(), told: 0, done: &mut outcome };
    let mut countdown = CANCEL_INTERVAL;
    let result = (|| {
        memtables.seek_to_first()?;
        while memtables.valid() {
            let (key, trailer, value) = (memtables.key(), memtables.trailer(), memtables.value());
            if retention.keeps(key, trailer, false) && !range_del.hides(key, trailer) {
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

/// Writes the entries of tables that follow each other in level 0 as one table that can take their place. Durable when this returns. What range
/// tombstones hide stays in it.
///
/// Cost: one sequential read of the tables and one sequential write.
pub fn merge_flushed(tables: &[Arc<TableFile>], rule: &GuardHash, context: &Context<'_>) -> Result<Flushed> {
    let cursors = tables.iter().map(|t| FileCursor::for_merging(t.clone(), t.table.scan())).collect();
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
    fn only_versions_that_somebody_sees_are_kept() {
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
