//! What a compaction reports: written bytes to the rate limiter, and the oldest reader.

use crate::test_stack::{DIR, Entry, Stack, options};
use crate::{Context, Outcome, Plan, Reason, compact};
use base::{EntryKind, RangeSet, RangeTombstone, Seq, Slice, Trailer};
use env::Env;
use std::path::Path;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use table::Compression;

/// Merges all tables of a stack. Also returns the arguments of the rate limiter's calls.
fn merge(stack: &Stack, ranges: &RangeSet, snapshots: &[Seq]) -> (Outcome, Vec<u64>) {
    let env: Arc<dyn Env> = stack.sim.clone();
    let next = AtomicU64::new(100);
    let told = Mutex::new(Vec::new());
    let options = options(4096, Compression::None);
    let context = Context {
        env: &env,
        dir: Path::new(DIR),
        table: &options,
        next_number: &|| next.fetch_add(1, Ordering::Relaxed),
        snapshots,
        rate_limiter: &|bytes| told.lock().unwrap().push(bytes),
        ranges,
        cancelled: &AtomicBool::new(false),
    };
    let plan = Plan {
        id: 1,
        reason: Reason::Manual,
        source: 1,
        target: 1,
        from: Slice::default(),
        to: None,
        inputs: stack.guard.tables.iter().map(|t| (1, t.clone())).collect(),
        cuts: Vec::new(),
        bottom: vec![true],
        piece_bytes: 0,
        joins: Vec::new(),
    };
    let outcome = compact(&plan, &context).unwrap();
    let told = told.lock().unwrap().clone();
    (outcome, told)
}

fn stack(entries: usize, value: usize) -> Stack {
    let entry = |i: usize| -> Entry {
        (format!("{i:08}").into_bytes(), Trailer::new(i as u64 + 1, EntryKind::Put), vec![7; value])
    };
    let tables = (0..2).map(|t| (0..entries).filter(|i| i % 2 == t).map(entry).collect()).collect();
    Stack::new(tables, &options(4096, Compression::None), 1 << 20)
}

#[test]
fn the_pace_is_told_of_every_byte_in_portions_whatever_the_size_of_values() {
    for (entries, value) in [(40, 1 << 20), (50_000, 100), (3, 10)] {
        let (outcome, told) = merge(&stack(entries, value), &RangeSet::default(), &[]);
        let all: u64 = told.iter().sum();
        let written = outcome.bytes_written;
        assert!(all.abs_diff(written) <= written / 100, "{all} of {written}");
        assert!(told.iter().all(|&bytes| bytes <= (2 << 20) + 8192), "{entries} of {value}: {told:?}");
    }
}

/// A snapshot taken during a merge reads at the newest range tombstone that the merge knew, or later. So the result of
/// the merge must not assume that all readers read the present.
#[test]
fn a_merge_counts_on_readers_that_come_while_it_runs() {
    let mut ranges = RangeSet::default();
    for seq in [200, 150] {
        ranges = ranges.with(RangeTombstone { from: b"a"[..].into(), to: Some(b"b"[..].into()), seq });
    }
    for (snapshots, oldest) in [(&[][..], 200), (&[7, 300], 7)] {
        let (outcome, _) = merge(&stack(10, 10), &ranges, snapshots);
        assert_eq!(outcome.oldest_reader, Some(oldest));
    }
}
