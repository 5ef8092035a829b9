//! Runs of deleted keys: how many entries cursors skip because of them, and that no live key is skipped.

use cairn::env::{Rng, SimEnv};
use cairn::{
    Cursor, Database, Durability, Keyspace, KeyspaceOptions, Options, Range, Result, Slice, Snapshot,
};
use std::collections::BTreeMap;
use std::ops::Bound;

fn key(i: u64) -> [u8; 8] {
    i.to_be_bytes()
}

fn open(dead_range_entries: u32) -> Result<(Database, Keyspace)> {
    let options = Options::default().background_threads(0).dead_range_entries(dead_range_entries);
    let db = Database::open_in(SimEnv::new(1), "/db", options)?;
    let keyspace = db.keyspace("k", KeyspaceOptions::default())?;
    Ok((db, keyspace))
}

/// Number of deleted entries that cursors skip while `run` runs.
fn passed(keyspace: &Keyspace, run: impl FnOnce() -> Result<()>) -> Result<u64> {
    let before = keyspace.stats().deleted_passed;
    run()?;
    Ok(keyspace.stats().deleted_passed - before)
}

/// Takes the first entry.
fn take(keyspace: &Keyspace) -> Result<Option<Slice>> {
    let Some((first, _)) = keyspace.iter().next().transpose()? else { return Ok(None) };
    keyspace.delete(&first)?;
    Ok(Some(first))
}

/// Takes an entry of a queue of 1,000 and adds another at the end, the given number of times.
fn queue(keyspace: &Keyspace, takes: u64) -> Result<u64> {
    (0..1_000).try_for_each(|i| keyspace.put(key(i), "job"))?;
    passed(keyspace, || {
        (0..takes).try_for_each(|i| {
            assert_eq!(take(keyspace)?.as_deref(), Some(&key(i)[..]));
            keyspace.put(key(1_000 + i), "job")
        })
    })
}

#[test]
fn the_consumer_of_a_queue_skips_few_of_the_entries_that_were_taken() -> Result<()> {
    const TAKES: u64 = 100_000;
    let (_db, keyspace) = open(16)?;
    let count = queue(&keyspace, TAKES)?;
    assert!(count <= 12 * TAKES, "{count} entries passed for {TAKES} takes");
    assert!(keyspace.stats().dead_ranges < 10);

    let (_db, keyspace) = open(0)?;
    let count = queue(&keyspace, 2_000)?;
    assert!(count > 400 * 2_000, "{count} where nothing is noted");
    assert_eq!(keyspace.stats().dead_ranges, 0);
    Ok(())
}

/// The key is put while the consumer seeks it: between the creation of its iterator and the seek.
#[test]
fn a_write_during_a_seek_does_not_prevent_a_dead_range() -> Result<()> {
    const TAKES: u64 = 20_000;
    let (_db, keyspace) = open(16)?;
    (0..1_000).try_for_each(|i| keyspace.put(key(i), "job"))?;
    let count = passed(&keyspace, || {
        (0..TAKES).try_for_each(|i| {
            let mut look = keyspace.iter();
            keyspace.put(key(1_000 + i), "job")?;
            let (first, _) = look.next().expect("a thousand are there")?;
            assert_eq!(first, key(i)[..]);
            keyspace.delete(&first)
        })
    })?;
    assert!(count <= 32 * TAKES, "{count} entries passed for {TAKES} takes");
    Ok(())
}

#[test]
fn a_stack_a_queue_that_runs_empty_and_many_queues_in_one_keyspace() -> Result<()> {
    const TAKES: u64 = 20_000;
    // A stack with ascending keys: the deleted keys lie between the remaining ones and the new ones.
    let (_db, keyspace) = open(16)?;
    (0..1_000).try_for_each(|i| keyspace.put(key(i), "job"))?;
    let count = passed(&keyspace, || {
        (0..TAKES).try_for_each(|i| {
            keyspace.put(key(1_000 + i), "job")?;
            let (last, _) = keyspace.iter().next_back().expect("there are some")?;
            assert_eq!(last, key(1_000 + i)[..]);
            keyspace.delete(&last)?;
            assert_eq!(keyspace.iter().next_back().expect("there are some")?.0, key(999)[..]);
            Ok(())
        })
    })?;
    assert!(count <= 32 * TAKES, "stack: {count}");

    let (_db, keyspace) = open(16)?;
    let count = passed(&keyspace, || {
        (0..TAKES).try_for_each(|i| {
            assert_eq!(take(&keyspace)?, None);
            keyspace.put(key(i), "job")?;
            assert_eq!(take(&keyspace)?.as_deref(), Some(&key(i)[..]));
            Ok(())
        })
    })?;
    assert!(count <= 32 * TAKES, "empty: {count}");

    let (_db, keyspace) = open(16)?;
    let name = |queue: u64, i: u64| [key(queue), key(i)].concat();
    (0..100).try_for_each(|queue| (0..300).try_for_each(|i| keyspace.put(name(queue, i), "job")))?;
    let count = passed(&keyspace, || {
        (0..TAKES).try_for_each(|i| {
            let (queue, i) = (i % 100, i / 100);
            let (first, _) = keyspace.prefix(key(queue)).next().expect("there are some")?;
            assert_eq!(first, name(queue, i)[..]);
            keyspace.delete(&first)
        })
    })?;
    assert!(count <= 32 * TAKES, "many queues: {count}");
    Ok(())
}

#[test]
fn the_second_scan_over_deleted_keys_skips_few_of_them() -> Result<()> {
    const DELETED: u64 = 200_000;
    // Concurrent writes: to other keys, which does not matter, or into the range, which splits it.
    for writes in [0, 1, 5] {
        for backward in [false, true] {
            let (_db, keyspace) = open(16)?;
            (0..DELETED + 10).try_for_each(|i| keyspace.put(key(i), "value"))?;
            (0..DELETED).try_for_each(|i| keyspace.delete(key(i)))?;
            let scan = |found: usize| {
                let mut range = keyspace.iter();
                // The first scan reads at an older sequence number.
                (0..writes).try_for_each(|i| keyspace.put(key(2 * DELETED + i), "value"))?;
                let count = if backward { range.rev().count() } else { range.by_ref().count() };
                assert_eq!(count, found);
                Ok(())
            };
            let count = passed(&keyspace, || scan(10))?;
            assert!(count >= DELETED);
            if writes > 0 {
                passed(&keyspace, || scan(10 + writes as usize))?;
            }
            let found = 10 + writes as usize;
            let count = passed(&keyspace, || scan(found))?;
            assert!(count <= 32, "{count} passed, {writes} writes, backward {backward}");
            keyspace.put(key(DELETED / 2), "again")?;
            let count = passed(&keyspace, || scan(found + 1))?;
            assert!(count <= 32, "{count} passed when one was put again, {writes} {backward}");
        }
    }
    Ok(())
}

/// Concurrent writes elsewhere in the keyspace during the first scan do not keep the second one from being fast.
#[test]
fn writes_during_a_scan_of_a_long_run_do_not_prevent_a_dead_range() -> Result<()> {
    let (_db, keyspace) = open(16)?;
    (0..20_010).try_for_each(|i| keyspace.put(key(i), "value"))?;
    (0..20_000).filter(|i| i % 2_000 != 0).try_for_each(|i| keyspace.delete(key(i)))?;
    // Every step of the scan skips a run; writes come between the steps.
    let scan = || {
        let mut range = keyspace.iter();
        let mut found = 0;
        while range.next().transpose()?.is_some() {
            found += 1;
            keyspace.put(key(30_000 + found), "value")?;
        }
        Ok(())
    };
    assert!(passed(&keyspace, scan)? > 19_000);
    passed(&keyspace, scan)?;
    let third = passed(&keyspace, scan)?;
    assert!(third <= 10 * 32, "{third}");
    Ok(())
}

#[test]
fn dead_ranges_are_bounded_and_the_longest_stay() -> Result<()> {
    let (_db, keyspace) = open(4)?;
    // One long run, and 2,000 short ones.
    (0..50_000).try_for_each(|i| keyspace.put(key(i), "value"))?;
    (0..10_000).try_for_each(|i| keyspace.delete(key(i)))?;
    (10_000..50_000).filter(|i| i % 20 != 0).try_for_each(|i| keyspace.delete(key(i)))?;
    for _ in 0..5 {
        assert_eq!(keyspace.iter().count(), 2_000);
    }
    assert!((64..=128).contains(&keyspace.stats().dead_ranges));
    let count = passed(&keyspace, || keyspace.iter().next().expect("there are some").map(drop))?;
    assert!(count <= 32, "{count}");
    // Ranges with longer keys are not recorded.
    let (_db, keyspace) = open(4)?;
    let long = |i: u64| [&[7; 600][..], &key(i)].concat();
    (0..100).try_for_each(|i| keyspace.delete(long(i)))?;
    keyspace.put([9; 600], "value")?;
    let mut cursor = keyspace.cursor();
    cursor.seek(long(0))?;
    assert_eq!((cursor.key(), keyspace.stats().dead_ranges), (&[9; 600][..], 0));
    Ok(())
}

type Model = BTreeMap<u64, u64>;

const KEYS: u64 = 40;

fn entry((k, v): (Slice, Slice)) -> (u64, u64) {
    let number = |bytes: &[u8]| u64::from_be_bytes(bytes.try_into().expect("eight bytes"));
    (number(&k), number(&v))
}

struct Reader {
    snapshot: Snapshot,
    model: Model,
}

/// A cursor that is held during writes, with the entries that it must show and its position.
struct Held {
    cursor: Cursor,
    model: Model,
    at: Option<u64>,
    from: u64,
    to: u64,
}

impl Held {
    fn walk(&mut self, rng: &mut Rng, steps: u64) -> Result<()> {
        for _ in 0..steps {
            let inside = || self.model.range(self.from..self.to);
            let sought = rng.below(KEYS);
            let found = match (self.at, rng.below(8)) {
                (Some(at), 0..=2) => {
                    self.cursor.next()?;
                    inside().find(|(k, _)| **k > at)
                }
                (Some(at), 3..=5) => {
                    self.cursor.prev()?;
                    inside().rfind(|(k, _)| **k < at)
                }
                (_, 6) => {
                    self.cursor.seek(key(sought))?;
                    inside().find(|(k, _)| **k >= sought)
                }
                (_, 7) => {
                    self.cursor.seek_for_prev(key(sought))?;
                    inside().rfind(|(k, _)| **k <= sought)
                }
                (_, n) if n % 2 == 0 => {
                    self.cursor.seek_to_first()?;
                    inside().next()
                }
                _ => {
                    self.cursor.seek_to_last()?;
                    inside().next_back()
                }
            };
            let got =
                self.cursor.valid().then(|| entry((self.cursor.key().into(), self.cursor.value().into())));
            assert_eq!(got, found.map(|(k, v)| (*k, *v)));
            self.at = got.map(|(k, _)| k);
        }
        Ok(())
    }
}

/// A range from both ends.
fn compare(rng: &mut Rng, mut range: Range, model: &Model, (from, to): (u64, u64)) -> Result<()> {
    let mut want = model.range(from..to);
    let back = rng.below(3);
    loop {
        let (got, want) = match back == 1 || back == 2 && rng.chance(1, 2) {
            true => (range.next_back(), want.next_back()),
            false => (range.next(), want.next()),
        };
        let got = got.transpose()?.map(entry);
        assert_eq!(got, want.map(|(k, v)| (*k, *v)));
        if got.is_none() {
            return Ok(());
        }
    }
}

fn write(rng: &mut Rng, db: &Database, keyspace: &Keyspace, model: &mut Model, step: u64) -> Result<()> {
    let i = rng.below(KEYS);
    match rng.below(20) {
        0..=6 => {
            keyspace.put(key(i), step.to_be_bytes())?;
            model.insert(i, step);
        }
        7..=14 => {
            keyspace.delete(key(i))?;
            model.remove(&i);
        }
        15 => {
            let to = i + rng.below(12);
            keyspace.delete_range(key(i)..key(to))?;
            model.retain(|k, _| !(i..to).contains(k));
        }
        16 => {
            // The front of a queue.
            if let Some(first) = take(keyspace)? {
                assert_eq!(model.pop_first().map(|(k, _)| key(k)).as_ref().map(|k| &k[..]), Some(&first[..]));
            } else {
                assert!(model.is_empty());
            }
        }
        _ => {
            let mut batch = db.batch();
            for _ in 0..rng.below(6) {
                let i = rng.below(KEYS);
                match rng.chance(1, 3) {
                    true => {
                        batch.put(keyspace, key(i), step.to_be_bytes());
                        model.insert(i, step);
                    }
                    false => {
                        batch.delete(keyspace, key(i));
                        model.remove(&i);
                    }
                }
            }
            db.write(batch, Durability::Buffered)?;
        }
    }
    Ok(())
}

fn bounds(rng: &mut Rng) -> (u64, u64) {
    let from = rng.below(KEYS);
    (from, from + rng.below(KEYS + 2 - from))
}

/// Snapshots and cursors of different ages, over few keys that are put and deleted repeatedly.
#[test]
fn readers_of_any_age_see_what_the_model_says() -> Result<()> {
    let (mut noted, mut reads) = (0, 0);
    for seed in 0..45 {
        let mut rng = Rng::new(seed);
        let (db, keyspace) = open([1, 2, 3][seed as usize % 3])?;
        let mut model = Model::new();
        let mut readers: Vec<Reader> = Vec::new();
        let mut held: Vec<Held> = Vec::new();
        for step in 0..800 {
            write(&mut rng, &db, &keyspace, &mut model, step)?;
            if rng.chance(1, 20) {
                readers.push(Reader { snapshot: db.snapshot(), model: model.clone() });
            }
            if rng.chance(1, 20) {
                let (from, to) = bounds(&mut rng);
                let bounded = (Bound::Included(key(from)), Bound::Excluded(key(to)));
                let cursor = keyspace.cursor_bounded(bounded);
                held.push(Held { cursor, model: model.clone(), at: None, from, to });
            }
            if readers.len() > 6 {
                readers.swap_remove(rng.below(6) as usize);
            }
            if held.len() > 6 {
                held.swap_remove(rng.below(6) as usize);
            }
            let (from, to) = if rng.chance(1, 2) { (0, KEYS) } else { bounds(&mut rng) };
            let range = keyspace.range(key(from)..key(to));
            match rng.chance(1, 2) {
                // The cursor shows the state at its creation, whatever is written meanwhile.
                true => compare(&mut rng, range, &model, (from, to))?,
                false => {
                    let before = model.clone();
                    write(&mut rng, &db, &keyspace, &mut model, step)?;
                    compare(&mut rng, range, &before, (from, to))?;
                }
            }
            if !readers.is_empty() {
                let Reader { snapshot, model } = &readers[rng.below(readers.len() as u64) as usize];
                compare(&mut rng, snapshot.range(&keyspace, key(from)..key(to)), model, (from, to))?;
            }
            if !held.is_empty() {
                let one = rng.below(held.len() as u64) as usize;
                held[one].walk(&mut rng, 6)?;
            }
            if rng.chance(1, 200) {
                keyspace.flush()?;
            }
            if rng.chance(1, 500) {
                keyspace.compact()?;
            }
            noted += keyspace.stats().dead_ranges as u64;
            reads += 1;
        }
    }
    assert!(noted > 2 * reads, "{noted} ranges noted at {reads} reads");
    Ok(())
}
