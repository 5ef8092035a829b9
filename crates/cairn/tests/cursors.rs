//! Long-lived cursors and iterators: they show the state at their creation, and the resources that they hold are bounded and counted.

use cairn::env::SimEnv;
use cairn::{Cursor, Database, Keyspace, KeyspaceOptions, Options, Range, Result};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// A pseudo-random generator of small numbers, from a seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % n
    }

    fn key(&mut self) -> Vec<u8> {
        format!("{:03}", self.below(200)).into_bytes()
    }
}

fn open(seed: u64) -> Result<(Arc<SimEnv>, Database)> {
    let sim = SimEnv::new(seed);
    let options = Options::default().memory_budget(4 << 20).background_threads(0);
    let db = Database::open_in(sim.clone(), "/db", options)?;
    Ok((sim, db))
}

fn keyspace(db: &Database) -> Result<Keyspace> {
    db.keyspace("k", KeyspaceOptions::default().memtable_bytes(16 << 10).level0_tables(3))
}

/// Writes some entries to the database and to the model.
fn write(ks: &Keyspace, model: &mut Model, dice: &mut Dice) -> Result<()> {
    for _ in 0..dice.below(40) {
        let key = dice.key();
        match dice.below(10) {
            0 => {
                let to = dice.key();
                ks.delete_range(&key[..]..&to[..])?;
                model.retain(|k, _| !(*k >= key && *k < to));
            }
            1..4 => {
                ks.delete(&key)?;
                model.remove(&key);
            }
            _ => {
                let value = vec![dice.below(256) as u8; dice.below(300) as usize];
                ks.put(&key, &value)?;
                model.insert(key, value);
            }
        }
    }
    match dice.below(6) {
        0..3 => ks.flush(),
        3 => ks.compact(),
        _ => Ok(()),
    }
}

/// A cursor, the entries that it must show, and its key.
struct Held {
    cursor: Cursor,
    shows: Model,
    at: Option<Vec<u8>>,
}

impl Held {
    fn new(cursor: Cursor, shows: &Model) -> Held {
        Held { cursor, shows: shows.clone(), at: None }
    }

    fn walk(&mut self, dice: &mut Dice) -> Result<()> {
        for _ in 0..1 + dice.below(4) {
            let want = match (self.at.take(), dice.below(8)) {
                (Some(at), 0..4) => {
                    self.cursor.next()?;
                    self.shows.range(at..).nth(1)
                }
                (Some(at), 4..7) => {
                    self.cursor.prev()?;
                    self.shows.range(..at).next_back()
                }
                (_, n) => {
                    let key = dice.key();
                    match n % 4 {
                        0 => self.cursor.seek_to_first()?,
                        1 => self.cursor.seek_to_last()?,
                        2 => self.cursor.seek(&key)?,
                        _ => self.cursor.seek_for_prev(&key)?,
                    }
                    match n % 4 {
                        0 => self.shows.iter().next(),
                        1 => self.shows.iter().next_back(),
                        2 => self.shows.range(key..).next(),
                        _ => self.shows.range(..=key).next_back(),
                    }
                }
            };
            let got = self.cursor.valid().then(|| (self.cursor.key(), self.cursor.value()));
            assert_eq!(got, want.map(|(key, value)| (&key[..], &value[..])));
            self.at = want.map(|(key, _)| key.clone());
        }
        Ok(())
    }
}

/// An iterator, and the entries that it has still to yield.
struct HeldRange {
    range: Range,
    left: Model,
}

impl HeldRange {
    fn walk(&mut self, dice: &mut Dice) -> Result<()> {
        for _ in 0..1 + dice.below(4) {
            let (got, want) = match dice.below(2) {
                0 => (self.range.next(), self.left.pop_first()),
                _ => (self.range.next_back(), self.left.pop_last()),
            };
            let got = got.transpose()?.map(|(key, value)| (key.to_vec(), value.to_vec()));
            assert_eq!(got, want);
        }
        Ok(())
    }
}

#[test]
fn kept_cursors_show_their_moment_and_no_memtable_that_was_flushed() -> Result<()> {
    let (mut held, mut moved) = (0, 0);
    for seed in 0..12 {
        let (_, db) = open(seed)?;
        let (ks, mut model, mut dice) = (keyspace(&db)?, Model::new(), Dice(seed));
        let (mut cursors, mut ranges) = (Vec::new(), Vec::new());
        for round in 0..150 {
            write(&ks, &mut model, &mut dice)?;
            match dice.below(4) {
                0 => cursors.push(Held::new(ks.cursor(), &model)),
                // The snapshot is dropped, and its cursor stays.
                1 => cursors.push(Held::new(db.snapshot().cursor(&ks), &model)),
                2 => ranges.push(HeldRange { range: ks.iter(), left: model.clone() }),
                _ => {}
            }
            if round % 5 == 0 {
                held += (db.stats().memory.pinned > 0) as usize;
                for one in &mut cursors {
                    one.walk(&mut dice)?;
                }
                for one in &mut ranges {
                    one.walk(&mut dice)?;
                }
                ranges.retain(|one| !one.left.is_empty());
                let stats = db.stats();
                assert_eq!(stats.memory.pinned, 0, "all were moved");
                assert_eq!(stats.cursors, cursors.len() + ranges.len());
                assert_eq!(stats.keyspaces[0].cursors, stats.cursors);
                moved += 1;
            }
            while cursors.len() > 80 {
                cursors.swap_remove(dice.below(80) as usize);
            }
        }
    }
    assert!(held * 2 > moved, "{held} of {moved} times something was held");
    Ok(())
}

#[test]
fn a_cursor_over_a_keyspace_that_was_dropped_goes_on() -> Result<()> {
    let (_, db) = open(1)?;
    let ks = keyspace(&db)?;
    (0..100).try_for_each(|i| ks.put([i], "old"))?;
    let (mut cursor, mut range, mut late) = (ks.cursor(), ks.iter(), ks.iter());
    cursor.seek([10])?;
    range.next().unwrap()?;
    ks.flush()?;
    ks.put([1], "new")?;
    db.drop_keyspace("k")?;
    assert!(db.stats().memory.pinned > 0);
    cursor.next()?;
    assert_eq!((cursor.key(), cursor.value()), (&[11][..], &b"old"[..]));
    assert_eq!((range.count(), late.next_back().unwrap()?.0), (99, [99][..].into()));
    drop((cursor, late));
    assert_eq!(db.stats().memory.pinned, 0);
    Ok(())
}

#[test]
fn versions_that_cursors_show_are_kept_and_no_others() -> Result<()> {
    let (_, db) = open(2)?;
    let (ks, other) = (keyspace(&db)?, db.keyspace("other", KeyspaceOptions::default())?);
    let entries = |ks: &Keyspace| ks.stats().levels.iter().map(|level| level.entries).sum::<u64>();
    let overwrite = || {
        for ks in [&ks, &other] {
            (0..50).try_for_each(|i| ks.put([i], "value"))?;
            ks.flush()?;
        }
        Ok::<_, cairn::Error>(())
    };
    overwrite()?;
    let early: Vec<Cursor> = (0..100).map(|_| ks.cursor()).collect();
    overwrite()?;
    overwrite()?;
    ks.compact()?;
    other.compact()?;
    assert_eq!((entries(&ks), entries(&other)), (100, 50), "a cursor is no reader of another keyspace");
    drop(early);
    assert_eq!(db.stats().cursors, 0);
    overwrite()?;
    let now = ks.cursor();
    ks.compact()?;
    assert_eq!(entries(&ks), 50, "the newest versions are what a new cursor shows");
    drop(now);
    Ok(())
}

#[test]
fn readers_are_counted_with_their_age() -> Result<()> {
    let (sim, db) = open(3)?;
    let ks = keyspace(&db)?;
    let age = |stats: &cairn::Stats| (stats.snapshots, stats.cursors, stats.oldest_reader_seconds as u64);
    assert_eq!(age(&db.stats()), (0, 0, 0));
    ks.put("a", "1")?;
    let cursor = ks.cursor();
    ks.flush()?;
    cairn::env::Env::sleep(&*sim, Duration::from_secs(20));
    let stats = db.stats();
    assert_eq!(age(&stats), (0, 1, 20));
    assert!(stats.memory.pinned > 0);
    let text = stats.to_string();
    assert!(text.contains("1 open cursors; the oldest is held for 20.0 s"), "{text}");
    assert!(text.contains("flushed memtables that cursors hold"), "{text}");
    let snapshot = db.snapshot();
    cairn::env::Env::sleep(&*sim, Duration::from_secs(5));
    assert_eq!(age(&db.stats()), (1, 1, 25));
    drop(cursor);
    assert_eq!(age(&db.stats()), (1, 0, 5));
    assert_eq!(db.stats().memory.pinned, 0);
    drop(snapshot);
    assert_eq!(age(&db.stats()), (0, 0, 0));
    Ok(())
}
