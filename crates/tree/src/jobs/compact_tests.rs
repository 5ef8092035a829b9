//! What a compaction reports: written bytes to the rate limiter, and the oldest reader.

use crate::test_support::{DIR, Entry, TestStack, table_options, tree_options};
use crate::{JobContext, JobOutput, Plan, Reason, TreeOptions, compact};
use base::{EntryKind, RangeSet, RangeTombstone, Seq, Trailer};
use env::Env;
use std::path::Path;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use table::Compression;

/// Merges all tables of a stack. Also returns the arguments of the rate limiter's calls.
fn merge(stack: &TestStack, range_tombstones: &RangeSet, snapshots: &[Seq]) -> (JobOutput, Vec<u64>) {
    let env: Arc<dyn Env> = stack.sim.clone();
    let next = AtomicU64::new(100);
    let reported = Mutex::new(Vec::new());
    let options = TreeOptions { table: table_options(4096, Compression::None), ..tree_options() };
    let context = JobContext {
        env: &env,
        dir: Path::new(DIR),
        options: &options,
        next_number: &|| next.fetch_add(1, Ordering::Relaxed),
        snapshots,
        rate_limiter: &|bytes| reported.lock().unwrap().push(bytes),
        range_tombstones,
        inline_values: false,
        cancelled: &AtomicBool::new(false),
    };
    let inputs = stack.guard.tables.iter().map(|t| (1, t.clone())).collect();
    let plan = Plan { source: 1, target: 1, inputs, bottom: vec![true], ..Plan::empty(Reason::Manual) };
    let outcome = compact(&plan, &context).unwrap();
    let reported = reported.lock().unwrap().clone();
    (outcome, reported)
}

fn stack(entries: usize, value: usize) -> TestStack {
    let entry = |i: usize| -> Entry {
        (format!("{i:08}").into_bytes(), Trailer::new(i as u64 + 1, EntryKind::Put), vec![7; value])
    };
    let tables = (0..2).map(|t| (0..entries).filter(|i| i % 2 == t).map(entry).collect()).collect();
    TestStack::new(tables, &table_options(4096, Compression::None), 1 << 20)
}

#[test]
fn the_rate_limiter_is_told_every_byte_in_portions_for_any_size_of_values() {
    for (entries, value) in [(40, 1 << 20), (50_000, 100), (3, 10)] {
        let (outcome, reported) = merge(&stack(entries, value), &RangeSet::default(), &[]);
        let all: u64 = reported.iter().sum();
        let written = outcome.bytes();
        assert!(all.abs_diff(written) <= written / 100, "{all} of {written}");
        assert!(
            reported.iter().all(|&bytes| bytes <= (2 << 20) + 8192),
            "{entries} of {value}: {reported:?}"
        );
    }
}

/// A snapshot taken during a merge reads at the newest range tombstone that the merge knew, or later. So the result of
/// the merge must not assume that all readers read the present.
#[test]
fn a_merge_expects_snapshots_that_are_taken_meanwhile() {
    let mut range_tombstones = RangeSet::default();
    for seq in [200, 150] {
        range_tombstones =
            range_tombstones.with(RangeTombstone { from: b"a"[..].into(), to: Some(b"b"[..].into()), seq });
    }
    for (snapshots, oldest) in [(&[][..], 200), (&[7, 300], 7)] {
        let (outcome, _) = merge(&stack(10, 10), &range_tombstones, snapshots);
        assert_eq!(outcome.oldest_reader, Some(oldest));
    }
}
