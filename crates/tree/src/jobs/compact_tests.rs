//! What a compaction reports: written bytes to the rate limiter, and the oldest reader.

use crate::test_support::{DIR, Entry, TestStack, table_options, tree_options};
use crate::{
    EvictedCuts, EvictedTables, EvictionSink, JobContext, JobOutput, Plan, Reason, TreeOptions, compact,
};
use base::expiry::expiry_bytes;
use base::{Cursor, EntryKind, Error, RangeSet, RangeTombstone, Result, Seq, Time, Trailer};
use env::Env;
use std::path::Path;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use table::{Compression, TableMeta};

/// Merges all tables of a stack. Also returns the arguments of the rate limiter's calls.
fn merge(stack: &TestStack, range_tombstones: &RangeSet, snapshots: &[Seq]) -> (JobOutput, Vec<u64>) {
    let (outcome, reported) = merge_into(stack, range_tombstones, snapshots, None);
    (outcome.unwrap(), reported)
}

fn merge_into(
    stack: &TestStack,
    range_tombstones: &RangeSet,
    snapshots: &[Seq],
    sink: Option<&mut (dyn EvictionSink + '_)>,
) -> (Result<JobOutput>, Vec<u64>) {
    merge_at(stack, range_tombstones, snapshots, (Time::MIN, true), sink)
}

/// `expired_by`, and whether nothing older of the keys is left elsewhere.
fn merge_at(
    stack: &TestStack,
    range_tombstones: &RangeSet,
    snapshots: &[Seq],
    (expired_by, bottom): (Time, bool),
    sink: Option<&mut (dyn EvictionSink + '_)>,
) -> (Result<JobOutput>, Vec<u64>) {
    let env: Arc<dyn Env> = stack.sim.clone();
    let next = AtomicU64::new(100 + 10 * stack.sim.list_files().len() as u64);
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
        joins_values: true,
        cancelled: &AtomicBool::new(false),
        times: None,
        expired_by,
        late: false,
        filter: None,
        operator: None,
    };
    let inputs = stack.guard.tables.iter().map(|t| (1, t.clone())).collect();
    let plan = Plan { source: 1, target: 1, inputs, bottom: vec![bottom], ..Plan::empty(Reason::Manual) };
    let outcome = compact(&plan, &context, sink);
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
        range_tombstones = range_tombstones.with(RangeTombstone {
            from: b"a"[..].into(),
            to: Some(b"b"[..].into()),
            seq,
            time: Time::MIN,
        });
    }
    for (snapshots, oldest) in [(&[][..], 200), (&[7, 300], 7)] {
        let (outcome, _) = merge(&stack(10, 10), &range_tombstones, snapshots);
        assert_eq!(outcome.oldest_reader, Some(oldest));
    }
}

/// Notes what it sees, and fails on the key `bad`.
#[derive(Default)]
struct Noted(Vec<(String, Seq, bool)>);

impl EvictionSink for Noted {
    fn see(&mut self, key: &[u8], trailer: Trailer, value: &[u8], kept: bool) -> Result<bool> {
        let key = String::from_utf8(key.to_vec()).unwrap();
        assert_eq!(value, format!("{key}{}", trailer.seq()).as_bytes());
        if key == "bad" {
            return Err(Error::invalid("refused"));
        }
        self.0.push((key, trailer.seq(), kept));
        Ok(kept)
    }

    fn takes_expired(&self, _: &[u8], _: Trailer) -> bool {
        false
    }

    fn take_expired(&mut self, _: &[u8], _: Trailer, _: &[u8]) -> Result<()> {
        unreachable!("it takes none")
    }
}

fn versions(entries: &[(&str, Seq, EntryKind)]) -> Vec<Entry> {
    let entry = |(key, seq, kind): &(&str, Seq, EntryKind)| -> Entry {
        (key.as_bytes().to_vec(), Trailer::new(*seq, *kind), format!("{key}{seq}").into_bytes())
    };
    entries.iter().map(entry).collect()
}

#[test]
fn a_sink_sees_every_entry_and_whether_it_is_kept() {
    use EntryKind::{Delete, Put};
    let tables = vec![
        versions(&[("a", 1, Put), ("b", 2, Put), ("c", 3, Put)]),
        versions(&[("a", 5, Put), ("a", 4, Put), ("b", 6, Delete), ("d", 7, Delete)]),
    ];
    let stack = TestStack::new(tables, &table_options(4096, Compression::None), 1 << 20);
    let seen = |snapshots: &[Seq]| {
        let mut sink = Noted::default();
        let outcome = merge_into(&stack, &RangeSet::default(), snapshots, Some(&mut sink)).0.unwrap();
        let kept = sink.0.iter().filter(|(_, _, kept)| *kept).count() as u64;
        assert_eq!(outcome.added.iter().map(|meta| meta.entries).sum::<u64>(), kept);
        sink.0.iter().map(|(key, seq, kept)| format!("{key}{seq}{}", if *kept { "+" } else { "" })).collect()
    };
    let all: Vec<String> = seen(&[]);
    assert_eq!(all, ["a5+", "a4", "a1", "b6", "b2", "c3+", "d7"]);
    let with_snapshot: Vec<String> = seen(&[4]);
    assert_eq!(with_snapshot, ["a5+", "a4+", "a1", "b6+", "b2+", "c3+", "d7+"]);
}

/// Takes expired entries, but those of the key `left`.
#[derive(Default)]
struct Taking {
    taken: Vec<Seq>,
    seen: Vec<(Seq, bool)>,
}

impl EvictionSink for Taking {
    fn see(&mut self, _: &[u8], trailer: Trailer, _: &[u8], kept: bool) -> Result<bool> {
        self.seen.push((trailer.seq(), kept));
        Ok(kept)
    }

    fn takes_expired(&self, key: &[u8], _: Trailer) -> bool {
        key != b"left"
    }

    fn take_expired(&mut self, _: &[u8], trailer: Trailer, stored: &[u8]) -> Result<()> {
        assert!(trailer.expires() && stored.starts_with(b"value"));
        self.taken.push(trailer.seq());
        Ok(())
    }
}

#[test]
fn a_sink_takes_what_has_expired_where_nothing_older_is_left_and_otherwise_it_stays_as_it_is() {
    let entry = |key: &str, seq, expiry: u64| -> Entry {
        let stored = [&b"value"[..], &expiry_bytes(Time::from_micros(expiry))].concat();
        (key.as_bytes().to_vec(), Trailer::new(seq, EntryKind::ExpiringPut), stored)
    };
    let older = ("gone".as_bytes().to_vec(), Trailer::new(1, EntryKind::Put), b"value".to_vec());
    let tables = vec![vec![entry("gone", 5, 10), older, entry("left", 6, 10), entry("stays", 7, 11)]];
    let stack = TestStack::new(tables, &table_options(4096, Compression::None), 1 << 20);
    let cases = [
        (10, true, &[][..], &[5][..], &[(1, false), (6, true), (7, true)][..]),
        (10, true, &[5], &[5], &[(1, false), (6, true), (7, true)]),
        (11, true, &[], &[5, 7], &[(1, false), (6, true)]),
        // Older entries may be elsewhere; a reader does not see it; nothing has expired.
        (10, false, &[], &[], &[(5, true), (1, false), (6, true), (7, true)]),
        (10, true, &[4], &[], &[(5, true), (1, true), (6, true), (7, true)]),
        (9, true, &[], &[], &[(5, true), (1, false), (6, true), (7, true)]),
    ];
    for (expired_by, bottom, snapshots, taken, seen) in cases {
        let mut sink = Taking::default();
        let by = (Time::from_micros(expired_by), bottom);
        let done = merge_at(&stack, &RangeSet::default(), snapshots, by, Some(&mut sink)).0.unwrap();
        assert_eq!((&sink.taken[..], &sink.seen[..]), (taken, seen), "{expired_by} {bottom} {snapshots:?}");
        let added = |of: fn(&TableMeta) -> u64| done.added.iter().map(of).sum::<u64>();
        let kept = seen.iter().filter(|(_, kept)| *kept).count() as u64;
        assert_eq!((added(|t| t.entries), added(|t| t.tombstones)), (kept, 0));
        assert_eq!(done.expired, taken.len() as u64);
    }
}

#[test]
fn a_job_whose_sink_fails_leaves_no_file() {
    let tables = vec![versions(&[("a", 1, EntryKind::Put), ("bad", 2, EntryKind::Put)])];
    let stack = TestStack::new(tables, &table_options(4096, Compression::None), 1 << 20);
    let files = stack.sim.list_files();
    let mut sink = Noted::default();
    assert!(merge_into(&stack, &RangeSet::default(), &[], Some(&mut sink)).0.is_err());
    assert_eq!((sink.0.len(), stack.sim.list_files()), (1, files));
}

#[test]
fn evicted_entries_become_tables_of_bounded_size_or_none_at_all() {
    let stack = TestStack::new(Vec::new(), &table_options(4096, Compression::None), 1 << 20);
    let env: Arc<dyn Env> = stack.sim.clone();
    let next = AtomicU64::new(100);
    let options = TreeOptions { table: table_options(4096, Compression::None), ..tree_options() };
    let cancelled = AtomicBool::new(false);
    let context = JobContext {
        env: &env,
        dir: Path::new(DIR),
        options: &options,
        next_number: &|| next.fetch_add(1, Ordering::Relaxed),
        snapshots: &[],
        rate_limiter: &|_| {},
        range_tombstones: &RangeSet::default(),
        inline_values: false,
        joins_values: true,
        cancelled: &cancelled,
        times: None,
        expired_by: Time::MIN,
        late: false,
        filter: None,
        operator: None,
    };
    let cuts = |keys: &[u64]| EvictedCuts {
        keys: keys.iter().map(|key| key.to_be_bytes()[..].into()).collect(),
        min_bytes: 16 << 10,
        max_bytes: 64 << 10,
    };
    let written = |entries: u64| {
        let mut tables = EvictedTables::new(&context, cuts(&[]));
        for i in 0..entries {
            tables.add(&i.to_be_bytes(), Trailer::new(i + 1, EntryKind::Put), &[7; 1000]).unwrap();
        }
        tables
    };
    let done = written(200).finish().unwrap();
    assert_eq!((done.added.len(), done.added.iter().map(|meta| meta.entries).sum::<u64>()), (4, 200));
    assert!(done.added.iter().all(|meta| meta.file_size < 80 << 10));
    let mut cursor =
        table::TableCache::new(env.clone(), DIR.into(), Arc::new(table::BlockCache::new(1 << 20)), 9)
            .open(&done.added[1])
            .unwrap()
            .scan();
    cursor.seek_to_first().unwrap();
    assert!(cursor.value() == [7; 1000] && cursor.key() == &done.added[1].smallest[..]);
    assert!(written(0).finish().unwrap().added.is_empty());
    // At a guard, if the piece before it is large enough; a key that is a guard begins a table.
    let mut tables = EvictedTables::new(&context, cuts(&[30, 31, 80, 1 << 40]));
    for i in 0..100u64 {
        tables.add(&i.to_be_bytes(), Trailer::new(i + 1, EntryKind::Put), &[7; 1000]).unwrap();
    }
    let firsts: Vec<_> = tables.finish().unwrap().added.iter().map(|meta| meta.smallest.clone()).collect();
    assert_eq!(firsts, [0u64, 30, 80].map(|i| i.to_be_bytes().to_vec()));
    let files = stack.sim.list_files();
    written(200).abandon();
    assert_eq!(stack.sim.list_files(), files);
    cancelled.store(true, Ordering::Relaxed);
    let mut tables = EvictedTables::new(&context, cuts(&[]));
    let stopped =
        (0..5000u64).find_map(|i| tables.add(&i.to_be_bytes(), Trailer::new(1, EntryKind::Put), b"").err());
    assert!(stopped.is_some());
    tables.abandon();
    assert_eq!(stack.sim.list_files(), files);
}
