//! Keyspaces with history, compared with a map from key to time to value: all queries, under flushes, compactions, reopening, power cuts, late
//! writes, a clock that steps back, snapshots held across retention, and salvage.

use crate::finding::Outcome;
use crate::jobs::Job;
use crate::random::Rng;
use cairn::env::{Env, SimEnv, Survival};
use cairn::{
    CursorAt, Database, Durability, EntryAt, ErrorKind, IngestOptions, Keyspace, KeyspaceOptions, Options,
    PlacementPolicy, Preset, Result, Retention, Slice, Snapshot, Time, Transaction, Version, VersionCursor,
    Versions,
};
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

/// Rounds of writes.
const ROUNDS: u64 = 24;

/// The n-th job. It counts comparisons of a whole keyspace with the model.
pub fn job(n: u64) -> Job {
    let replay = format!("cargo run --release -p sim -- versions --seed {n}");
    Job { name: format!("versions, seed {n}"), replay, run: Box::new(move || execute(n)) }
}

/// Runs the n-th job: one of five kinds in turn, each with all shapes of trees.
pub fn execute(n: u64) -> Outcome<u64> {
    let (kind, seed) = (n % 5, n / 5);
    let shape = seed % SHAPES;
    let done = match kind {
        0 => run(n, shape, 0)?,
        1 => run(n, shape, 2)?,
        2 => {
            let (mut at, mut cuts) = (seed % 31, 0);
            while power_cut(seed / 31, shape, at)? {
                (at, cuts) = (at + 31 + at / 100, cuts + 1);
            }
            cuts
        }
        3 => {
            let age = Duration::from_millis(20);
            let retention = [Retention::Age(age), Retention::Versions(3), Retention::VersionsOrAge(2, age)];
            retain(
                n,
                retention[(seed / SHAPES % 3) as usize],
                [0, 0, 2][(seed / SHAPES / 3 % 3) as usize],
                shape,
            )?
        }
        _ => salvage(n, shape, (1..3).contains(&shape))?,
    };
    Ok(done)
}

/// What was written to each key at each time.
#[derive(Clone, Default)]
struct Model {
    versions: BTreeMap<Vec<u8>, BTreeMap<Time, Written>>,
    /// What a later write to the same key at the same time replaced.
    replaced: Vec<(Vec<u8>, Time, Written)>,
    /// The range deletes, whether a key was there or not.
    ranges: Vec<(Vec<u8>, Vec<u8>, Time)>,
    last: Time,
    /// By key: an earlier retention may have removed the version of this time, and those before it.
    forgotten: BTreeMap<Vec<u8>, Time>,
    /// What was the newest before this time may have been forgotten because of its age: late writes from before may be refused.
    forgotten_until: Time,
}

#[derive(Clone, PartialEq)]
enum Written {
    Value(Vec<u8>),
    Deleted,
    /// By a range delete: that is no version where a late delete came before it.
    DeletedByRange,
}

fn slice(bytes: &[u8]) -> Slice {
    Slice::copy_from(bytes)
}

impl Model {
    fn write(&mut self, key: &[u8], time: Time, value: Option<Vec<u8>>) {
        let written = value.map_or(Written::Deleted, Written::Value);
        let replaced = self.versions.entry(key.to_vec()).or_default().insert(time, written);
        self.replaced.extend(replaced.map(|replaced| (key.to_vec(), time, replaced)));
        self.last = self.last.max(time);
    }

    fn delete_range(&mut self, from: &[u8], to: &[u8], time: Time) {
        for (_, versions) in self.versions.range_mut(from.to_vec()..to.to_vec().max(from.to_vec())) {
            if matches!(versions.values().next_back(), Some(Written::Value(_))) {
                versions.insert(time, Written::DeletedByRange);
            }
        }
        self.ranges.push((from.to_vec(), to.to_vec(), time));
        self.last = self.last.max(time);
    }

    /// The versions of a key, the latest first.
    fn of_key(&self, key: &[u8], from: Time, to: Time) -> Vec<Version> {
        let (mut versions, mut until) = (Vec::new(), None);
        let all: Vec<(&Time, &Written)> = self.versions.get(key).into_iter().flatten().collect();
        for (i, (time, written)) in all.iter().enumerate().rev() {
            let value = match written {
                Written::Value(value) => Some(slice(value)),
                Written::DeletedByRange if i > 0 && !matches!(all[i - 1].1, Written::Value(_)) => continue,
                Written::Deleted | Written::DeletedByRange => None,
            };
            if (from..=to).contains(*time) {
                versions.push(Version::new(slice(key), **time, until, value));
            }
            until = Some(**time);
        }
        versions
    }

    fn changes(&self, keys: (&[u8], Option<&[u8]>), from: Time, to: Time) -> Vec<Version> {
        let all = self.versions.keys().filter(|k| &k[..] >= keys.0 && keys.1.is_none_or(|to| &k[..] < to));
        all.flat_map(|key| self.of_key(key, from, to)).collect()
    }

    fn at(&self, key: &[u8], time: Time) -> Option<Version> {
        self.of_key(key, Time::MIN, time).into_iter().next().filter(|version| version.value.is_some())
    }

    fn range_at(&self, keys: (&[u8], Option<&[u8]>), time: Time) -> Vec<EntryAt> {
        let all = self.versions.keys().filter(|k| &k[..] >= keys.0 && keys.1.is_none_or(|to| &k[..] < to));
        let entry = |v: Version| Some(EntryAt::new(v.key, v.time, v.value?));
        all.filter_map(|key| self.at(key, time).and_then(entry)).collect()
    }
}

/// A keyspace, now, in a snapshot, or in a transaction.
enum Reads<'a> {
    Now(&'a Keyspace),
    Then(&'a Snapshot, &'a Keyspace),
    Within(&'a Transaction, &'a Keyspace),
}

type Found<'a, T> = Box<dyn DoubleEndedIterator<Item = Result<T>> + 'a>;

type Range<'a> = (Bound<&'a [u8]>, Bound<&'a [u8]>);

fn range<'a>((from, to): (&'a [u8], Option<&'a [u8]>)) -> Range<'a> {
    (Bound::Included(from), to.map_or(Bound::Unbounded, Bound::Excluded))
}

impl Reads<'_> {
    fn history(&self, key: &[u8], from: Time, to: Time) -> Result<Found<'_, Version>> {
        Ok(match self {
            Reads::Now(k) => Box::new(k.history(key, from..=to)?),
            Reads::Then(snapshot, k) => Box::new(snapshot.history(k, key, from..=to)?),
            Reads::Within(transaction, k) => Box::new(transaction.history(k, key, from..=to)?),
        })
    }

    fn changes(&self, keys: (&[u8], Option<&[u8]>), from: Time, to: Time) -> Result<Found<'_, Version>> {
        Ok(match self {
            Reads::Now(k) => Box::new(k.changes::<&[u8]>(range(keys), from..=to)?),
            Reads::Then(snapshot, k) => Box::new(snapshot.changes::<&[u8]>(k, range(keys), from..=to)?),
            Reads::Within(transaction, k) => {
                Box::new(transaction.changes::<&[u8]>(k, range(keys), from..=to)?)
            }
        })
    }

    /// A cursor over the same versions; transactions have none.
    fn cursor(&self, keys: (&[u8], Option<&[u8]>)) -> Result<Option<VersionCursor>> {
        Ok(match self {
            Reads::Now(k) => Some(k.changes::<&[u8]>(range(keys), ..)?.cursor()),
            Reads::Then(snapshot, k) => Some(snapshot.changes::<&[u8]>(k, range(keys), ..)?.cursor()),
            Reads::Within(..) => None,
        })
    }

    fn range_at(&self, time: Time, keys: (&[u8], Option<&[u8]>)) -> Result<Found<'_, EntryAt>> {
        Ok(match self {
            Reads::Now(k) => Box::new(k.range_at::<&[u8]>(time, range(keys))?),
            Reads::Then(snapshot, k) => Box::new(snapshot.range_at::<&[u8]>(k, time, range(keys))?),
            Reads::Within(transaction, k) => Box::new(transaction.range_at::<&[u8]>(k, time, range(keys))?),
        })
    }

    fn cursor_at(&self, time: Time, keys: (&[u8], Option<&[u8]>)) -> Result<Option<CursorAt>> {
        Ok(match self {
            Reads::Now(k) => Some(k.range_at::<&[u8]>(time, range(keys))?.cursor()),
            Reads::Then(snapshot, k) => Some(snapshot.range_at::<&[u8]>(k, time, range(keys))?.cursor()),
            Reads::Within(..) => None,
        })
    }

    fn recent(&self, keys: (&[u8], Option<&[u8]>)) -> Result<Found<'_, EntryAt>> {
        Ok(match self {
            Reads::Now(k) => Box::new(k.recent::<&[u8]>(range(keys))?),
            Reads::Then(snapshot, k) => Box::new(snapshot.recent::<&[u8]>(k, range(keys))?),
            Reads::Within(transaction, k) => Box::new(transaction.recent::<&[u8]>(k, range(keys))?),
        })
    }

    fn get_at(&self, key: &[u8], time: Time) -> Result<Option<Version>> {
        match self {
            Reads::Now(k) => k.get_at(key, time),
            Reads::Then(snapshot, k) => snapshot.get_at(k, key, time),
            Reads::Within(transaction, k) => transaction.get_at(k, key, time),
        }
    }

    fn multi_get_at(&self, keys: &[Vec<u8>], time: Time) -> Result<Vec<Option<Version>>> {
        match self {
            Reads::Now(k) => k.multi_get_at(keys, time),
            Reads::Then(snapshot, k) => snapshot.multi_get_at(k, keys, time),
            Reads::Within(transaction, k) => transaction.multi_get_at(k, keys, time),
        }
    }

    fn entries(&self) -> Result<Vec<(Slice, Slice)>> {
        match self {
            Reads::Now(k) => k.iter().collect(),
            Reads::Then(snapshot, k) => snapshot.iter(k).collect(),
            Reads::Within(transaction, k) => transaction.iter(k).collect(),
        }
    }

    fn get(&self, key: &[u8]) -> Result<Option<Slice>> {
        match self {
            Reads::Now(k) => k.get(key),
            Reads::Then(snapshot, k) => snapshot.get(k, key),
            Reads::Within(transaction, k) => transaction.get(k, key),
        }
    }
}

fn same<T: PartialEq + Debug>(
    what: &str,
    found: impl Iterator<Item = Result<T>>,
    expected: &[T],
) -> Result<()> {
    let found: Vec<T> = found.collect::<Result<_>>()?;
    let differ = found.iter().zip(expected).position(|(a, b)| a != b);
    assert!(
        found == expected,
        "{what}: {} versions instead of {}; {differ:?}: {:?} instead of {:?}",
        found.len(),
        expected.len(),
        differ.map(|i| &found[i]),
        differ.map(|i| &expected[i])
    );
    Ok(())
}

fn reversed<T>(mut found: Vec<T>) -> Vec<T> {
    found.reverse();
    found
}

fn entry_of(cursor: &CursorAt) -> Option<EntryAt> {
    let slice = Slice::copy_from;
    let entry = || EntryAt::new(slice(cursor.key()), cursor.time(), slice(cursor.value()));
    cursor.valid().then(entry)
}

/// Compares all queries with the model.
fn compare(reads: &Reads<'_>, model: &Model, rng: &mut Rng) -> Result<()> {
    let mut times = vec![Time::MIN, model.last, Time::MAX];
    let all: Vec<Time> = model.versions.values().flat_map(|versions| versions.keys().copied()).collect();
    for _ in 0..4.min(all.len()) {
        let time = all[rng.below(all.len() as u64) as usize];
        times.push(Time::from_micros((time.micros() + rng.below(3)).saturating_sub(1)));
    }
    let keys: Vec<Vec<u8>> = (0..KEYS).map(key).collect();
    let (a, b) = (&keys[rng.below(KEYS) as usize], &keys[rng.below(KEYS) as usize]);
    let part = (&a.min(b)[..], Some(&a.max(b)[..]));
    let whole = (&b""[..], None);
    for &time in &times {
        for keys in [whole, part] {
            let expected = model.range_at(keys, time);
            same("range_at", reads.range_at(time, keys)?, &expected)?;
            if let Some(mut cursor) = reads.cursor_at(time, keys)? {
                let target = key(rng.below(KEYS));
                let at = expected.partition_point(|entry| entry.key[..] < target[..]);
                cursor.seek(&target)?;
                assert_eq!(entry_of(&cursor).as_ref(), expected.get(at), "seek as of a time");
                if cursor.valid() {
                    cursor.prev()?;
                    assert_eq!(
                        entry_of(&cursor).as_ref(),
                        at.checked_sub(1).map(|i| &expected[i]),
                        "then back"
                    );
                }
            }
            let backward: Vec<EntryAt> = reads.range_at(time, keys)?.rev().collect::<Result<_>>()?;
            assert!(backward == reversed(expected), "range_at, backward");
        }
        let found = reads.multi_get_at(&keys, time)?;
        assert!(keys.iter().zip(&found).all(|(key, found)| *found == model.at(key, time)), "multi_get_at");
    }
    for (i, &from) in times.iter().enumerate() {
        let to = times[(i + 1) % times.len()];
        for keys in [whole, part] {
            let expected = model.changes(keys, from, to);
            same("changes", reads.changes(keys, from, to)?, &expected)?;
            let backward: Vec<Version> = reads.changes(keys, from, to)?.rev().collect::<Result<_>>()?;
            assert!(backward == reversed(expected), "changes, backward");
        }
        let key = key(rng.below(KEYS));
        let expected = model.of_key(&key, from, to);
        same("history", reads.history(&key, from, to)?, &expected)?;
        same("history, backward", reads.history(&key, from, to)?.rev(), &reversed(expected))?;
        assert!(reads.get_at(&key, from)? == model.at(&key, from), "get_at");
    }
    for keys in [whole, part] {
        let expected = model.range_at(keys, Time::MAX);
        same("recent", reads.recent(keys)?, &expected)?;
        same("recent, backward", reads.recent(keys)?.rev(), &reversed(expected))?;
    }
    let newest = model.range_at(whole, Time::MAX);
    let entries = reads.entries()?;
    assert!(entries.len() == newest.len());
    assert!(entries.iter().zip(&newest).all(|(a, b)| a.0 == b.key && a.1 == b.value));
    for key in &keys {
        assert!(reads.get(key)? == model.at(key, Time::MAX).and_then(|version| version.value));
    }
    // Both ends at once, and a cursor that goes here and there.
    let expected = model.changes(part, Time::MIN, Time::MAX);
    let mut both = reads.changes(part, Time::MIN, Time::MAX)?;
    let (mut front, mut back) = (0, expected.len());
    while front < back {
        match rng.below(2) {
            0 => {
                assert_eq!(both.next().transpose()?.as_ref(), Some(&expected[front]));
                front += 1;
            }
            _ => {
                back -= 1;
                assert_eq!(both.next_back().transpose()?.as_ref(), Some(&expected[back]));
            }
        }
    }
    assert!(both.next().is_none() && both.next_back().is_none());
    let Some(mut cursor) = reads.cursor(part)? else { return Ok(()) };
    let mut at: Option<usize> = None;
    for _ in 0..30 {
        let target = &keys[rng.below(KEYS) as usize];
        at = match (rng.below(6), at) {
            (0, _) => {
                cursor.seek(target)?;
                Some(expected.partition_point(|version| version.key[..] < target[..]))
            }
            (1, _) => {
                cursor.seek_for_prev(target)?;
                expected.partition_point(|version| version.key[..] <= target[..]).checked_sub(1)
            }
            (_, None) => {
                assert_eq!(cursor.next().unwrap_err().kind(), ErrorKind::InvalidArgument);
                cursor.seek_to_last()?;
                expected.len().checked_sub(1)
            }
            (2 | 3, Some(i)) => {
                cursor.next()?;
                Some(i + 1)
            }
            (_, Some(i)) => {
                cursor.prev()?;
                i.checked_sub(1)
            }
        };
        at = at.filter(|i| *i < expected.len());
        assert_eq!(cursor.valid().then(|| cursor.version()).as_ref(), at.map(|i| &expected[i]));
    }
    Ok(())
}

const KEYS: u64 = 60;

/// Keys in which zero bytes, and keys that begin like others, are frequent.
fn key(i: u64) -> Vec<u8> {
    let mut key = format!("k{}", i / 3).into_bytes();
    key.extend([&b""[..], &[0], &[0, 1]][(i % 3) as usize]);
    key
}

fn value(rng: &mut Rng) -> Vec<u8> {
    let len = match rng.below(8) {
        0 => 0,
        1..7 => rng.below(60),
        _ => 1000 + rng.below(3000),
    };
    let mut value = vec![0; len as usize];
    rng.fill(&mut value);
    value
}

/// Number of shapes of trees.
const SHAPES: u64 = 8;

fn options(shape: u64) -> KeyspaceOptions {
    let options = match shape % 4 {
        0 => KeyspaceOptions::preset(Preset::Mneme),
        1 => KeyspaceOptions::preset(Preset::PebblesDb),
        2 => KeyspaceOptions::preset(Preset::Leveled),
        // Many small tables on all levels, so that compactions have only some of the versions of a key.
        _ => KeyspaceOptions::default().block_size(128).levels(4).skip_levels(false).level0_tables(1),
    };
    let placement = if shape < 4 { PlacementPolicy::InPlace } else { PlacementPolicy::Hybrid };
    options
        .history(Retention::All)
        .placement(placement)
        .memtable_bytes(if shape % 4 < 3 { 16 << 10 } else { 4 << 10 })
        .top_level_bits(4)
        .bit_decrement(1)
}

struct Open {
    env: Arc<SimEnv>,
    db: Database,
    keyspace: Keyspace,
    /// Without history, to be written to in the same batches.
    plain: Keyspace,
}

fn open(env: Arc<SimEnv>, shape: u64, threads: usize) -> Result<Open> {
    let options_of_db = Options::default()
        .background_threads(threads)
        .memory_budget(1 << 20)
        .manifest_cap(4 << 10)
        .value_garbage_percent(5);
    let db = Database::open_in(env.clone(), "/db", options_of_db)?;
    let keyspace = db.keyspace("k", options(shape))?;
    let plain = db.keyspace("plain", KeyspaceOptions::default())?;
    Ok(Open { env, db, keyspace, plain })
}

/// A write to a key: its time, if it is not that of its batch, and the value, if it is no delete.
type Write = (Vec<u8>, Option<Time>, Option<Vec<u8>>);

/// Keys from the first to before the second are deleted.
type Deleted = (Vec<u8>, Vec<u8>);

/// A time of a caller: near the last one, long ago, that of a version, or in the future.
fn time(model: &Model, key: &[u8], rng: &mut Rng) -> Time {
    let of_key = model.versions.get(key).and_then(|versions| versions.keys().next());
    let last = model.last.micros();
    Time::from_micros(match (rng.below(6), of_key) {
        (0, _) => last + rng.below(50),
        (1, Some(first)) => first.micros(),
        (2, Some(first)) => first.micros() - rng.below(first.micros().min(3)),
        (3, _) => rng.below(last + 1),
        (4, _) => 5,
        _ => last.saturating_sub(rng.below(3000)),
    })
}

/// A batch of up to six writes to a few keys, some of them more than once. `n`: its number.
fn batch(open: &Open, model: &Model, rng: &mut Rng, n: u64) -> (cairn::Batch, Vec<Write>, Option<Deleted>) {
    let (mut batch, mut writes) = (open.db.batch(), Vec::new());
    let range = (rng.below(12) == 0).then(|| (key(rng.below(KEYS)), key(rng.below(KEYS))));
    if let Some((from, to)) = &range {
        batch.delete_range(&open.keyspace, &from[..]..&to[..]);
    }
    for _ in 0..rng.below(6) + 1 {
        // Some keys are written often.
        let key = key(if rng.below(2) == 0 { rng.below(5) } else { rng.below(KEYS) });
        let value = (rng.below(5) > 0).then(|| value(rng));
        // A range delete in the batch counts as later than writes with times of their own.
        let time = (range.is_none() && rng.below(3) == 0).then(|| time(model, &key, rng));
        match (&value, time) {
            (Some(value), None) => batch.put(&open.keyspace, &key, value),
            (None, None) => batch.delete(&open.keyspace, &key),
            (Some(value), Some(time)) => batch.put_at(&open.keyspace, &key, value, time),
            (None, Some(time)) => batch.delete_at(&open.keyspace, &key, time),
        }
        writes.push((key, time, value));
    }
    batch.put(&open.plain, "batches", n.to_string());
    (batch, writes, range)
}

/// The model after a batch. Writes without a time get that of the clock, or one after all others, those of the batch included.
fn after(model: &Model, written: (Vec<Write>, Option<Deleted>), clock: Time) -> Model {
    let time = time_of_batch(model, &written.0, clock);
    after_at(model, written, time)
}

/// The time of the writes of a batch that have none of their own.
fn time_of_batch(model: &Model, writes: &[Write], clock: Time) -> Time {
    let latest = writes.iter().filter_map(|write| write.1).max().unwrap_or_default().max(model.last);
    clock.max(Time::from_micros(latest.micros() + 1))
}

/// The model after a batch with this time.
fn after_at(model: &Model, (writes, range): (Vec<Write>, Option<Deleted>), time: Time) -> Model {
    let mut model = model.clone();
    if let Some((from, to)) = range {
        model.delete_range(&from, &to, time);
    }
    for (key, own, value) in writes {
        model.write(&key, own.unwrap_or(time), value);
    }
    model
}

/// Writes, and adds what was written to the model.
fn write(open: &Open, model: &mut Model, rng: &mut Rng, clock: Time) -> Result<()> {
    if rng.below(2) == 0 {
        let (batch, writes, range) = batch(open, model, rng, 0);
        open.db.write(batch, Durability::Os)?;
        *model = after(model, (writes, range), clock);
        return Ok(());
    }
    let (key, value) = (key(rng.below(KEYS)), (rng.below(5) > 0).then(|| value(rng)));
    let time = (rng.below(3) == 0).then(|| time(model, &key, rng));
    match (&value, time) {
        (Some(value), None) => open.keyspace.put(&key, value)?,
        (None, None) => open.keyspace.delete(&key)?,
        (Some(value), Some(time)) => open.keyspace.put_at(&key, value, time)?,
        (None, Some(time)) => open.keyspace.delete_at(&key, time)?,
    }
    *model = after(model, (vec![(key, time, value)], None), clock);
    Ok(())
}

/// Random writes, and all queries beside them, with flushes, compactions, reopening and power cuts. Returns the number of comparisons.
fn run(seed: u64, shape: u64, threads: usize) -> Result<u64> {
    let mut rng = Rng::new(seed);
    let mut open = self::open(SimEnv::new(shape), shape, threads)?;
    let mut model = Model::default();
    let mut clock = Time::from_micros(1_700_000_000_000_000);
    for round in 0..ROUNDS {
        // A clock that steps back in every third round, by as much as it has advanced in many.
        let step = rng.below(1000);
        clock = Time::from_micros(clock.micros() + 900 - if round % 3 == 2 { 10 * step } else { 0 } + step);
        open.env.set_wall_clock(clock);
        let snapshot = open.db.snapshot();
        let (before, mut held) = (model.clone(), open.keyspace.changes::<&[u8]>(.., ..)?);
        let mut held_back = open.keyspace.range_at::<&[u8]>(model.last, ..)?.rev();
        let firsts = (held.next().transpose()?, held_back.next().transpose()?);
        for _ in 0..30 + rng.below(200) {
            write(&open, &mut model, &mut rng, clock)?;
        }
        if rng.below(3) == 0 {
            load(&open, &mut model, &mut rng, clock)?;
        }
        if round % 2 == 0 {
            open.keyspace.flush()?;
        }
        compare(&Reads::Now(&open.keyspace), &model, &mut rng)?;
        compare(&Reads::Then(&snapshot, &open.keyspace), &before, &mut rng)?;
        within_a_transaction(&open, &mut model, &mut rng, clock)?;
        // Iterators that began before the flushes go on.
        let whole = (&b""[..], None);
        let rest: Vec<Version> = firsts.0.into_iter().map(Ok).chain(held).collect::<Result<_>>()?;
        assert!(rest == before.changes(whole, Time::MIN, Time::MAX), "an iterator held across flushes");
        let rest: Vec<EntryAt> = firsts.1.into_iter().map(Ok).chain(held_back).collect::<Result<_>>()?;
        assert!(rest == reversed(before.range_at(whole, before.last)), "another one, backward");
        let held_snapshot = (rng.below(2) == 0).then_some(snapshot);
        match round % 5 {
            0 => {
                drop(held_snapshot);
                open.keyspace.compact()?;
                let tables = open.keyspace.guards().into_iter().flat_map(|guard| guard.tables);
                let (entries, live) =
                    (tables.map(|t| t.entries).sum::<u64>(), open.keyspace.iter().count() as u64);
                assert_eq!(entries, live, "entries and keys of the primary tree");
            }
            1 => open.db.wait_idle()?,
            2 => {
                let Open { env, db, .. } = open;
                db.close()?;
                open = self::open(env, shape, threads)?;
                // What was not flushed is in tables now, and was evicted on the way.
                open.env.set_wall_clock(clock);
            }
            3 => {
                open.db.sync()?;
                let env = open.env.crash_clone(Survival::Nothing, round);
                drop(open);
                open = self::open(env, shape, threads)?;
            }
            _ => {}
        }
        open.env.set_wall_clock(clock);
        compare(&Reads::Now(&open.keyspace), &model, &mut rng)?;
        let report = open.db.check(&mut |_| ())?;
        assert!(report.problems.is_empty(), "{:?}", report.problems);
        at_the_newest(&open, &mut model)?;
    }
    let Open { env, db, .. } = open;
    db.close()?;
    let report = cairn::check_in(env, "/db", &mut |_| ())?;
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    Ok(3 * ROUNDS)
}

/// A bulk load, beside which others write or not: its versions have the time of its beginning, unless one is as late, and then it is refused.
fn load(open: &Open, model: &mut Model, rng: &mut Rng, clock: Time) -> Result<()> {
    let mut entries = BTreeMap::new();
    for _ in 0..rng.below(40) + 1 {
        entries.insert(key(rng.below(KEYS)), value(rng));
    }
    let options = IngestOptions::default();
    let mut load = open.db.ingest(if rng.below(2) == 0 { options } else { options.unsorted(0) });
    if rng.below(2) == 0 {
        write(open, model, rng, clock)?;
    }
    let time = time_of_batch(model, &[], clock);
    for (key, value) in &entries {
        load.put(&open.keyspace, key, value)?;
    }
    model.last = time;
    if rng.below(2) == 0 {
        write(open, model, rng, clock)?;
    }
    let later = model.versions.values().any(|versions| versions.keys().any(|other| *other >= time));
    if later || model.ranges.iter().any(|range| range.2 >= time) {
        assert_eq!(load.commit().map_err(|e| e.kind()).err(), Some(ErrorKind::Conflict));
        return Ok(());
    }
    assert_eq!(load.commit()?.entries, entries.len() as u64);
    entries.into_iter().for_each(|(key, value)| model.write(&key, time, Some(value)));
    Ok(())
}

/// The queries in a transaction that has written: its writes are the newest versions. Its commit makes of them what it has shown.
fn within_a_transaction(open: &Open, model: &mut Model, rng: &mut Rng, clock: Time) -> Result<()> {
    let (mut transaction, mut within) = (open.db.begin(), model.clone());
    let time = transaction.time();
    assert_eq!(time, time_of_batch(model, &[], clock));
    for _ in 0..rng.below(8) {
        match rng.below(5) {
            0 => {
                let (a, b) = (key(rng.below(KEYS)), key(rng.below(KEYS)));
                transaction.delete_range(&open.keyspace, &a[..]..&b[..])?;
                if a < b {
                    // What it has written there before is no version.
                    for (_, versions) in within.versions.range_mut(a.clone()..b.clone()) {
                        versions.remove(&time);
                    }
                    within.delete_range(&a, &b, time);
                }
            }
            write => {
                let (key, value) = (key(rng.below(KEYS)), (write > 1).then(|| value(rng)));
                match &value {
                    Some(value) => transaction.put(&open.keyspace, &key, value)?,
                    None => transaction.delete(&open.keyspace, &key)?,
                }
                within.write(&key, time, value);
            }
        }
    }
    compare(&Reads::Within(&transaction, &open.keyspace), &within, rng)?;
    if rng.below(2) == 0 {
        transaction.commit()?;
        *model = within;
    }
    compare(&Reads::Now(&open.keyspace), model, rng)
}

/// For each key, reads and then writes just before its newest version.
fn at_the_newest(open: &Open, model: &mut Model) -> Result<()> {
    let before = model.clone();
    for (key, versions) in &before.versions {
        let Some((newest, _)) = versions.last_key_value() else { continue };
        let time = Time::from_micros(newest.micros().saturating_sub(1));
        let found = open.keyspace.get_at(key, time)?;
        assert!(found == before.at(key, time), "{}: {found:?}", key.escape_ascii());
        open.keyspace.put_at(key, "just before", time)?;
        *model =
            after(model, (vec![(key.clone(), Some(time), Some(b"just before".to_vec()))], None), Time::MIN);
        assert!(open.keyspace.get(key)? == model.at(key, Time::MAX).and_then(|version| version.value));
    }
    Ok(())
}

/// Returns whether the power cut came before the end.
fn power_cut(seed: u64, shape: u64, at: u64) -> Result<bool> {
    let mut rng = Rng::new(seed);
    let env = SimEnv::new(3);
    env.crash_at(at);
    // The model after each batch that was begun, and how many of these were acknowledged.
    let (mut models, mut acknowledged) = (vec![Model::default()], 0);
    let clock = Time::from_micros(1_800_000_000_000_000);
    env.set_wall_clock(clock);
    let mut script = || -> Result<()> {
        let open = self::open(env.clone(), shape, 0)?;
        for n in 1..=160 {
            let model = &models[models.len() - 1];
            let (batch, writes, range) = batch(&open, model, &mut rng, n);
            models.push(after(model, (writes, range), clock));
            open.db.write(batch, Durability::Sync)?;
            acknowledged = n;
            match n % 40 {
                0 => open.keyspace.compact()?,
                20 => open.keyspace.flush()?,
                _ => {}
            }
        }
        open.db.close()
    };
    let ended = script().is_ok();
    let survival = [Survival::Nothing, Survival::Everything, Survival::Torn][(at % 3) as usize];
    let open = self::open(env.crash_clone(survival, at), shape, 0)?;
    let count = open
        .plain
        .get("batches")?
        .map_or(0, |count| std::str::from_utf8(&count).expect("a number").parse::<u64>().expect("a number"));
    assert!(count == acknowledged || count == acknowledged + 1, "{count} batches of {acknowledged}");
    let mut model = models[count as usize].clone();
    let mut rng = Rng::new(at);
    compare(&Reads::Now(&open.keyspace), &model, &mut rng)?;
    // The clock of the new disk is behind: later versions still get later times.
    assert!(open.env.wall_clock() < model.last || model.last == Time::MIN);
    open.keyspace.put("k0", "after")?;
    let newest = open.keyspace.get_at("k0", Time::MAX)?.expect("it was just put");
    assert!(newest.time > model.last);
    model.write(b"k0", newest.time, Some(b"after".to_vec()));
    open.keyspace.compact()?;
    compare(&Reads::Now(&open.keyspace), &model, &mut rng)?;
    let report = open.db.check(&mut |_| ())?;
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    Ok(!ended)
}

/// The versions that a retention keeps for certain at `now`.
fn kept(model: &Model, retention: Retention, now: Time) -> Vec<Version> {
    let mut kept = Vec::new();
    for key in model.versions.keys() {
        for (i, version) in model.of_key(key, Time::MIN, Time::MAX).into_iter().enumerate() {
            // A delete may expire by its own time.
            let end = match version.value {
                Some(_) => version.until.unwrap_or(Time::MAX),
                None => version.time,
            };
            let by_age = |age| end > now.saturating_sub(age);
            let is_kept = match retention {
                Retention::All => true,
                Retention::None => i == 0,
                Retention::Versions(n) => (i as u64) < n,
                Retention::Age(age) => by_age(age),
                Retention::VersionsOrAge(n, age) => (i as u64) < n || by_age(age),
            };
            if is_kept && model.forgotten.get(key).is_none_or(|time| version.time > *time) {
                kept.push(version);
            }
        }
    }
    kept
}

/// What is found has been written, and what retention keeps is found, with its end. What has expired may be found, also if it was replaced by
/// a write at the same time.
fn keeps(found: &[Version], model: &Model, retention: Retention, now: Time) {
    let all = model.changes((b"", None), Time::MIN, Time::MAX);
    let kept = kept(model, retention, now);
    for (i, version) in found.iter().enumerate() {
        let written = all.iter().find(|w| (&w.key, w.time) == (&version.key, version.time));
        let is_kept = kept.iter().any(|w| (&w.key, w.time) == (&version.key, version.time));
        let was_replaced = !is_kept
            && model.replaced.iter().any(|(key, time, written)| {
                let value = match written {
                    Written::Value(value) => Some(&value[..]),
                    Written::Deleted | Written::DeletedByRange => None,
                };
                (&key[..], *time, value) == (&version.key[..], version.time, version.value.as_deref())
            });
        // Where what followed has expired, a version ends as if it had been deleted then. There is a later version.
        let ended = found.get(i + 1).is_some_and(|v| v.key == version.key && v.until == Some(version.time));
        let is_end = version.value.is_none() && version.until.is_some() && ended;
        // Where a delete between a value and a range delete has expired, the range delete is the end.
        let covers = |(from, to, time): &(Vec<u8>, Vec<u8>, Time)| {
            *time == version.time && from[..] <= version.key[..] && version.key[..] < to[..]
        };
        let is_range_delete = version.value.is_none() && ended && model.ranges.iter().any(covers);
        let was_written = written.is_some_and(|w| w.value == version.value);
        assert!(was_written || was_replaced || is_end || is_range_delete, "{version:?} was not written");
    }
    let mut rest = found.iter();
    for version in kept {
        assert!(
            rest.any(|found| *found == version),
            "{retention}: {version:?} is lost at {now:?}: {:?}",
            found.iter().filter(|found| found.key == version.key).collect::<Vec<_>>()
        );
    }
}

/// The same, of all versions, and of the newest ones, which no retention removes. Returns the number of versions.
fn reads_keep(reads: &Reads<'_>, model: &Model, retention: Retention, now: Time) -> Result<usize> {
    let whole = (&b""[..], None);
    let found: Vec<Version> = reads.changes(whole, Time::MIN, Time::MAX)?.collect::<Result<_>>()?;
    keeps(&found, model, retention, now);
    let back: Vec<Version> = reads.changes(whole, Time::MIN, Time::MAX)?.rev().collect::<Result<_>>()?;
    keeps(&reversed(back), model, retention, now);
    same("newest", reads.range_at(Time::MAX, whole)?, &model.range_at(whole, Time::MAX))?;
    for key in (0..KEYS).map(key) {
        assert!(reads.get(&key)? == model.at(&key, Time::MAX).and_then(|version| version.value));
    }
    Ok(found.len())
}

/// Gives the keyspace another retention: what the one before did not keep may be gone.
fn alter(
    open: &Open,
    model: &mut Model,
    retention: &mut Retention,
    rng: &mut Rng,
    clock: Clock,
) -> Result<()> {
    let kept = kept(model, *retention, clock.latest);
    for key in model.versions.keys() {
        let all = model.of_key(key, Time::MIN, Time::MAX).into_iter();
        let gone = all.filter(|v| !kept.iter().any(|k| (&k.key, k.time) == (&v.key, v.time)));
        if let Some(time) = gone.map(|version| version.time).max() {
            let forgotten = model.forgotten.entry(key.clone()).or_default();
            *forgotten = time.max(*forgotten);
        }
    }
    if let Some(age) = retention.age() {
        model.forgotten_until = model.forgotten_until.max(clock.latest.saturating_sub(age));
    }
    *retention = match rng.below(4) {
        0 => Retention::All,
        1 => Retention::Versions(rng.below(4) + 1),
        2 => Retention::Age(Duration::from_millis(rng.below(30) + 1)),
        _ => Retention::VersionsOrAge(rng.below(3) + 1, Duration::from_millis(rng.below(30) + 1)),
    };
    open.keyspace.alter(|options| options.history(*retention))
}

/// Writes to each deleted key just before its delete, which may have been forgotten. Such a write is late, or refused.
fn before_deletes(open: &Open, model: &mut Model) -> Result<()> {
    let before = model.clone();
    for key in before.versions.keys() {
        let newest = before.of_key(key, Time::MIN, Time::MAX).into_iter().next();
        let Some(delete) = newest.filter(|version| version.value.is_none()) else { continue };
        let Some(time) = delete.time.micros().checked_sub(1).map(Time::from_micros) else { continue };
        match open.keyspace.put_at(key, "before", time) {
            Ok(()) => model.write(key, time, Some(b"before".to_vec())),
            Err(error) if error.kind() == ErrorKind::Expired => {}
            Err(error) => return Err(error),
        }
        assert!(open.keyspace.get(key)?.is_none(), "{}, before {delete:?}", key.escape_ascii());
    }
    Ok(())
}

/// A clock that a test moves in both directions.
#[derive(Clone, Copy)]
struct Clock {
    now: Time,
    latest: Time,
}

impl Clock {
    fn set(&mut self, env: &SimEnv, now: Time) {
        (self.now, self.latest) = (now, self.latest.max(now));
        env.set_wall_clock(now);
    }
}

/// Writes a batch to a keyspace with this retention, and adds it to the model.
fn write_retained(
    open: &Open,
    model: &mut Model,
    retention: Retention,
    rng: &mut Rng,
    clock: Clock,
) -> Result<()> {
    let age = retention.age().unwrap_or(Duration::MAX);
    let (from, to) = (clock.now.saturating_sub(age), clock.latest.saturating_sub(age));
    let (mut batch, mut writes, range) = loop {
        let drawn = batch(open, model, rng, 0);
        // Whether something expired while the clock was ahead decides about times in between.
        if drawn.1.iter().filter_map(|write| write.1).all(|time| time < from || time >= to) {
            break drawn;
        }
    };
    // An earlier retention may have removed what such a write would be compared with: it is taken if not.
    let is_unsure = writes.iter().filter_map(|write| write.1).any(|t| t >= from && t < model.forgotten_until);
    let skips = !is_unsure && rng.below(2) == 0;
    if skips {
        batch.skip_expired();
    }
    let expires = |write: &Write| write.1.is_some_and(|time| time < from);
    let is_refused = !skips && writes.iter().any(expires);
    match open.db.write(batch, Durability::Os) {
        Err(error) if (is_refused || is_unsure) && error.kind() == ErrorKind::Expired => return Ok(()),
        result => result?,
    }
    assert!(!is_refused, "a write from before {from:?} was taken");
    let mut time = time_of_batch(model, &writes, clock.now);
    writes.retain(|write| !expires(write));
    if let Some((key, ..)) = writes.iter().find(|write| write.1.is_none()) {
        // Retention and batches that were refused move the clock of the database, too.
        let newest = open.keyspace.history(key, ..)?.next().transpose()?.expect("it was just written");
        assert!(newest.time >= time, "{newest:?}, not at {time:?} or later");
        time = newest.time;
    }
    *model = after_at(model, (writes, range), time);
    Ok(())
}

/// Retention beside late writes, snapshots, iterators, reopening and a clock that is set back; in half of the jobs it changes. Returns the number of comparisons.
fn retain(seed: u64, mut retention: Retention, threads: usize, shape: u64) -> Result<u64> {
    let mut rng = Rng::new(seed);
    let env = SimEnv::new(1);
    let options_of_db =
        Options::default().background_threads(threads).memory_budget(1 << 20).manifest_cap(4 << 10);
    let (mut model, start) = (Model::default(), Time::from_micros(1_700_000_000_000_000));
    let mut clock = Clock { now: start, latest: start };
    clock.set(&env, start);
    let mut db = Database::open_in(env.clone(), "/db", options_of_db.clone())?;
    let options = options(shape).history(retention);
    let mut keyspace = db.keyspace("k", options.clone())?;
    let mut plain = db.keyspace("plain", KeyspaceOptions::default())?;
    let mut held: Vec<(Snapshot, Model, Retention, Time)> = Vec::new();
    let mut iterators: Vec<(Vec<Version>, Versions, Model, Retention, Time)> = Vec::new();
    let (mut lost, alters) = (0, rng.below(2) == 0);
    for round in 0..30 {
        let open =
            Open { env: env.clone(), db: db.clone(), keyspace: keyspace.clone(), plain: plain.clone() };
        // Deletes are there longer, and expire, if little is written.
        let batches = if alters && rng.below(2) == 0 { 4 } else { 60 };
        for _ in 0..batches {
            clock.set(&env, Time::from_micros(clock.now.micros() + rng.below(100)));
            write_retained(&open, &mut model, retention, &mut rng, clock)?;
        }
        if alters && rng.below(3) == 0 {
            alter(&open, &mut model, &mut retention, &mut rng, clock)?;
            before_deletes(&open, &mut model)?;
        }
        if rng.below(4) == 0 {
            // It may take longer than versions are kept.
            let mut load = db.ingest(IngestOptions::default());
            let loaded: BTreeMap<_, _> = (0..10).map(|_| (key(rng.below(KEYS)), value(&mut rng))).collect();
            loaded.iter().try_for_each(|(key, value)| load.put(&keyspace, key, value))?;
            clock.set(&env, Time::from_micros(clock.now.micros() + rng.below(3_000)));
            load.commit()?;
            for (key, value) in loaded {
                let newest = keyspace.history(&key, ..)?.next().transpose()?.expect("it was just loaded");
                assert!(
                    newest.time >= model.last && newest.value.as_deref() == Some(&value[..]),
                    "{newest:?}"
                );
                model.write(&key, newest.time, Some(value));
            }
        }
        // A note is made at most once a second, and by the threads that look for work.
        clock.set(&env, clock.now.saturating_add(Duration::from_millis(rng.below(30))));
        match rng.below(4) {
            0 => held.push((db.snapshot(), model.clone(), retention, clock.latest)),
            1 => {
                let mut versions = keyspace.changes::<&[u8]>(.., ..)?;
                let first = versions.next().transpose()?.into_iter().collect();
                iterators.push((first, versions, model.clone(), retention, clock.latest));
            }
            _ => {}
        }
        match rng.below(4) {
            0 => keyspace.compact()?,
            1 => keyspace.flush()?,
            2 => db.wait_idle()?,
            _ => {}
        }
        let all = model.changes((b"", None), Time::MIN, Time::MAX).len();
        lost += all.saturating_sub(reads_keep(&Reads::Now(&keyspace), &model, retention, clock.latest)?);
        for (snapshot, model, retention, taken) in &held {
            reads_keep(&Reads::Then(snapshot, &keyspace), model, *retention, *taken)?;
        }
        // As of times within an age everything is as if nothing had expired.
        if let (Retention::Age(age), false) = (retention, alters) {
            for _ in 0..3 {
                let span = age.as_micros() as u64;
                let time = Time::from_micros(clock.latest.micros() - rng.below(span));
                let found: Vec<EntryAt> = keyspace.range_at::<&[u8]>(time, ..)?.collect::<Result<_>>()?;
                assert!(found == model.range_at((b"", None), time), "as of {time:?} at {:?}", clock.latest);
            }
        }
        if rng.below(4) == 0 {
            held.clear();
            for (mut found, mut rest, model, retention, taken) in iterators.drain(..) {
                rest.try_for_each(|version| version.map(|version| found.push(version)))?;
                keeps(&found, &model, retention, taken);
            }
        }
        if rng.below(6) == 0 {
            clock.set(&env, Time::from_micros(clock.now.micros() - rng.below(20_000)));
        }
        if round % 10 == 9 {
            held.clear();
            iterators.clear();
            drop((keyspace, plain, open));
            db.close()?;
            db = Database::open_in(env.clone(), "/db", options_of_db.clone())?;
            (keyspace, plain) = (db.open_keyspace("k")?, db.open_keyspace("plain")?);
            clock.set(&env, clock.now);
            if alters {
                let (db, keyspace, plain) = (db.clone(), keyspace.clone(), plain.clone());
                before_deletes(&Open { env: env.clone(), db, keyspace, plain }, &mut model)?;
            }
        }
    }
    // Where the retention changes, it may be `all` for long.
    assert!(alters || lost > 300, "{retention}, shape {shape}: {lost} versions have expired");
    let report = db.check(&mut |_| ())?;
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    Ok(30)
}

/// Salvage of an intact database, and of one whose manifest is lost: all versions, with their times.
fn salvage(seed: u64, shape: u64, loses_manifest: bool) -> Result<u64> {
    let mut rng = Rng::new(seed);
    let open = self::open(SimEnv::new(1), shape, 0)?;
    let (mut model, clock) = (Model::default(), Time::from_micros(1_700_000_000_000_000));
    open.env.set_wall_clock(clock);
    for i in 0..600 {
        write(&open, &mut model, &mut rng, clock)?;
        if i % 100 == 80 {
            load(&open, &mut model, &mut rng, clock)?;
        }
        if i % 200 == 150 {
            open.keyspace.compact()?;
        }
    }
    if loses_manifest {
        // What is in memory is in tables then, and range tombstones hide nothing more.
        open.keyspace.compact()?;
    }
    let Open { env, db, .. } = open;
    db.close()?;
    if loses_manifest {
        let manifests =
            env.list_files().into_iter().filter(|path| path.to_string_lossy().contains("manifest"));
        manifests.for_each(|path| env.remove_file(path));
    }
    env.set_wall_clock(clock);
    let report = cairn::salvage_in(env.clone(), "/db", "/new", Options::default().background_threads(0))?;
    assert_eq!(report.losses.is_empty(), !loses_manifest, "{report:?}");
    let db = Database::open_in(env, "/new", Options::default().background_threads(0))?;
    let keyspace = db.open_keyspace("k")?;
    compare(&Reads::Now(&keyspace), &model, &mut rng)?;
    Ok(1)
}
