//! A view against the merge that it stands for: the same entries in the same order, from everywhere, in both directions.

use crate::cursor::FileCursor;
use crate::merge::MergeCursor;
use crate::sorted_view::SEGMENT;
use crate::sorted_view_cursor::SortedViewCursor;
use crate::version::{Garbage, Guard, TableFile};
use crate::{Built, KeyRange, build_view};
use base::{Cursor, EntryKind, ErrorKind, Seq, Slice, Trailer};
use env::{Env, Rng, SimEnv};
use std::path::Path;
use std::sync::Arc;
use table::{BlockCache, Compression, TableCache, TableOptions, TableWriter};

pub(crate) const DIR: &str = "/db";

/// A stack of tables on a simulated disk.
pub(crate) struct Stack {
    pub(crate) sim: Arc<SimEnv>,
    pub(crate) guard: Arc<Guard>,
}

pub(crate) type Entry = (Vec<u8>, Trailer, Vec<u8>);

pub(crate) fn options(block_size: usize, compression: Compression) -> TableOptions {
    TableOptions { block_size, compression, filter_bits_per_key: 10, owner: None }
}

impl Stack {
    /// Tables of these entries, oldest first. Each table's are brought into order.
    pub(crate) fn new(tables: Vec<Vec<Entry>>, options: &TableOptions, cache_bytes: u64) -> Stack {
        let sim = SimEnv::new(1);
        let env: Arc<dyn Env> = sim.clone();
        env.create_dir(Path::new(DIR)).unwrap();
        let cache = Arc::new(BlockCache::new(cache_bytes));
        let directory = TableCache::new(env.clone(), DIR.into(), cache, 100);
        let garbage = Arc::new(Garbage::default());
        let mut files = Vec::new();
        for (number, mut entries) in tables.into_iter().enumerate() {
            entries.sort_by(|a, b| base::compare(&a.0, a.1, &b.0, b.1));
            let number = number as u64 + 1;
            let mut writer = TableWriter::create(&env, Path::new(DIR), number, options).unwrap();
            for (key, trailer, value) in &entries {
                writer.add(key, *trailer, value).unwrap();
            }
            let meta = writer.finish().unwrap();
            let table = directory.open(number, meta.file_size).unwrap();
            files.push(TableFile::new(meta, table, garbage.clone()));
        }
        files.reverse();
        Stack { sim, guard: Guard::new(Slice::default(), files) }
    }

    /// Up to eight tables of random shape, with keys of a few kinds.
    fn random(rng: &mut Rng) -> Stack {
        let kind = rng.below(5);
        let mut seq = 0;
        let tables = 2 + rng.below(7);
        let tables = (0..tables).map(|_| {
            let count = [1, 3, 40, 300][rng.below(4) as usize];
            let mut table = Vec::new();
            for _ in 0..count {
                let key = random_key(rng, kind);
                // Now and then more versions of a key than a segment holds.
                let versions = if rng.chance(1, 100) { 2 * SEGMENT as u64 } else { 1 + rng.below(2) };
                for _ in 0..versions {
                    seq += 1;
                    let kind = if rng.chance(1, 5) { EntryKind::Delete } else { EntryKind::Put };
                    let len = if rng.chance(1, 50) { 3000 } else { rng.below(30) };
                    let value =
                        if kind == EntryKind::Put { vec![seq as u8; len as usize] } else { Vec::new() };
                    table.push((key.clone(), Trailer::new(seq, kind), value));
                }
            }
            table
        });
        let tables: Vec<_> = tables.collect();
        let compression = [Compression::None, Compression::Lz4, Compression::Zstd][rng.below(3) as usize];
        let block_size = [128, 512, 4096][rng.below(3) as usize];
        Stack::new(tables, &options(block_size, compression), [0, 1 << 20][rng.below(2) as usize])
    }

    fn merge(&self, range: &KeyRange) -> MergeCursor<FileCursor<table::TableCursor>> {
        let tables = self.guard.tables.iter().filter(|t| range.meets(t));
        MergeCursor::new(tables.map(|t| FileCursor::new(t.clone(), t.table.cursor())).collect(), 0)
    }

    fn view(&self, range: &KeyRange) -> SortedViewCursor {
        let Ok(Built::SortedView(view)) = build_view(&self.guard, u64::MAX, &mut || false) else {
            panic!("no view")
        };
        SortedViewCursor::new(self.guard.clone(), Arc::new(view), range)
    }
}

fn random_key(rng: &mut Rng, kind: u64) -> Vec<u8> {
    let letters = |rng: &mut Rng, len: u64, alphabet: &[u8]| -> Vec<u8> {
        (0..len).map(|_| alphabet[rng.below(alphabet.len() as u64) as usize]).collect()
    };
    match kind {
        0 => format!("user{:012}", rng.below(800)).into_bytes(),
        1 => {
            let len = rng.below(6);
            letters(rng, len, b"ab\0")
        }
        2 => {
            let len = rng.below(14);
            letters(rng, len, b"\0\xff")
        }
        3 => {
            let len = if rng.chance(1, 10) { rng.below(5000) } else { rng.below(30) };
            letters(rng, len, b"k")
        }
        _ => rng.below(1 << 40).to_be_bytes().to_vec(),
    }
}

fn everything() -> KeyRange {
    KeyRange::new(&[], None)
}

fn at(cursor: &impl Cursor) -> Option<Entry> {
    cursor.valid().then(|| (cursor.key().to_vec(), cursor.trailer(), cursor.value_slice().to_vec()))
}

/// Moves both in the same way; what they show must be the same.
fn walk(rng: &mut Rng, merge: &mut impl Cursor, view: &mut impl Cursor, pool: &[Vec<u8>], steps: u64) {
    for _ in 0..steps {
        let mut key = pool[rng.below(pool.len() as u64) as usize].clone();
        match rng.below(4) {
            0 => key.push(0),
            1 => {
                key.pop();
            }
            _ => {}
        }
        let seq: Seq = if rng.chance(1, 3) { base::MAX_SEQ } else { rng.below(3000) };
        let what = rng.below(15);
        match what {
            0 => (merge.seek_to_first().unwrap(), view.seek_to_first().unwrap()),
            1 => (merge.seek_to_last().unwrap(), view.seek_to_last().unwrap()),
            2 | 3 => (merge.seek_before(&key).unwrap(), view.seek_before(&key).unwrap()),
            4 | 5 => (merge.seek(&key, seq).unwrap(), view.seek(&key, seq).unwrap()),
            _ if !merge.valid() => continue,
            6..9 => (merge.next().unwrap(), view.next().unwrap()),
            9 => {
                let old = merge.key().to_vec();
                while merge.valid() && merge.key() == old {
                    merge.next().unwrap();
                }
                (view.next_key().unwrap(), ())
            }
            10 | 11 => (merge.prev().unwrap(), view.prev().unwrap()),
            // All is older than the newest sequence number, so all is passed over.
            12 if merge.key() < &key[..] => {
                (merge.seek(&key, base::MAX_SEQ).unwrap(), view.skip(Some(&key), base::MAX_SEQ).unwrap())
            }
            13 if merge.key() >= &key[..] => {
                (merge.seek_before(&key).unwrap(), view.skip_back(&key, base::MAX_SEQ).unwrap())
            }
            14 if rng.chance(1, 20) => {
                merge.seek_to_last().unwrap();
                (merge.next().unwrap(), view.skip(None, base::MAX_SEQ).unwrap())
            }
            _ => continue,
        };
        assert_eq!(at(merge), at(view), "after move {what} with {key:?} at {seq}");
    }
}

#[test]
fn a_view_shows_what_the_merge_shows() {
    for seed in 0..60 {
        let mut rng = Rng::new(seed);
        let stack = Stack::random(&mut rng);
        let (mut merge, mut view) = (stack.merge(&everything()), stack.view(&everything()));
        let mut pool = Vec::new();
        merge.seek_to_first().unwrap();
        view.seek_to_first().unwrap();
        while merge.valid() {
            assert_eq!(at(&merge), at(&view), "seed {seed}");
            pool.push(merge.key().to_vec());
            merge.next().unwrap();
            view.next().unwrap();
        }
        assert!(!view.valid());
        merge.seek_to_last().unwrap();
        view.seek_to_last().unwrap();
        while merge.valid() {
            assert_eq!(at(&merge), at(&view), "seed {seed}");
            merge.prev().unwrap();
            view.prev().unwrap();
        }
        walk(&mut rng, &mut merge, &mut view, &pool, 2000);
        // Some tables are none of a range's concern.
        let (mut from, mut to) = (pool[rng.below(pool.len() as u64) as usize].clone(), None);
        if rng.chance(1, 2) {
            let other = pool[rng.below(pool.len() as u64) as usize].clone();
            (from, to) = (from.clone().min(other.clone()), Some(from.max(other)));
        }
        let range = KeyRange::new(&from, to.as_deref());
        let (mut merge, mut view) = (stack.merge(&range), stack.view(&range));
        walk(&mut rng, &mut merge, &mut view, &pool, 500);
    }
}

/// Four tables whose keys, even numbers, alternate.
fn alternating(keys: usize, value: usize) -> Stack {
    let entry = |i: usize| {
        (format!("{:08}", 2 * i).into_bytes(), Trailer::new(i as u64 + 1, EntryKind::Put), vec![7; value])
    };
    let tables = (0..4).map(|t| (0..keys).filter(|i| i % 4 == t).map(entry).collect()).collect();
    Stack::new(tables, &options(1024, Compression::None), 1 << 20)
}

#[test]
fn a_seek_reads_the_one_block_with_the_answer() {
    let stack = alternating(8000, 100);
    // Nobody waits for the disk, and so reads more than he needs.
    stack.sim.set_in_memory(100);
    let mut view = stack.view(&everything());
    let tables = stack.guard.tables[0].table.tables().clone();
    let mut reads = Vec::new();
    // 8 entries of each table are in a block: so far apart, none is met twice, and not one after its neighbour, which would look like a walk.
    // Some of the keys are there, and some are not.
    for i in (0..81usize).map(|n| 1 + 97 * (n * 37 % 81)) {
        let before = tables.stats().reads;
        view.seek(format!("{i:08}").as_bytes(), base::MAX_SEQ).unwrap();
        assert_eq!(view.key(), format!("{:08}", i.next_multiple_of(2)).as_bytes());
        reads.push(tables.stats().reads - before);
    }
    // Not even the footer of a table is looked at, nor its index.
    assert!(reads.iter().all(|&n| n == 1), "{reads:?}");
}

#[test]
fn a_view_takes_few_bytes() {
    let stack = alternating(20_000, 100);
    let Ok(Built::SortedView(view)) = build_view(&stack.guard, u64::MAX, &mut || false) else {
        panic!("no view")
    };
    let each = view.bytes() as f64 / view.len() as f64;
    assert!((2.0..8.0).contains(&each), "{each:.1} bytes an entry");
    let Ok(Built::TooLarge) = build_view(&stack.guard, view.bytes() / 2, &mut || false) else {
        panic!("too large")
    };
    let mut looks = 0;
    let mut abandoned = || {
        looks += 1;
        looks == 3
    };
    let Ok(Built::Abandoned) = build_view(&stack.guard, u64::MAX, &mut abandoned) else {
        panic!("not abandoned")
    };
}

#[test]
fn what_is_damaged_fails_where_it_is_needed_and_nowhere_else() {
    let stack = alternating(4000, 100);
    let mut view = stack.view(&everything());
    // In the middle of the second table from above: of key 2 in each four.
    let file = &stack.guard.tables[1];
    let path = file.table.path().to_owned();
    let at = file.meta.file_size / 3;
    stack.sim.flip_bit(&path, at, 3);
    let mut seeks_that_fail = 0;
    for i in 0..4000 {
        let key = format!("{:08}", 2 * i);
        match view.seek(key.as_bytes(), base::MAX_SEQ) {
            Ok(()) => assert_eq!(view.key(), key.as_bytes()),
            Err(e) => {
                assert_eq!((e.kind(), i % 4), (ErrorKind::Corruption, 2));
                assert!(!view.valid() && view.next().is_err() && view.prev().is_err());
                seeks_that_fail += 1;
            }
        }
    }
    assert!((1..20).contains(&seeks_that_fail), "{seeks_that_fail}: the keys of one block");
    assert!(file.damage().is_some() && stack.guard.is_damaged());
    assert!(build_view(&stack.guard, u64::MAX, &mut || false).is_err());
}
