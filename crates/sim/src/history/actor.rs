//! A thread of a history: writes and reads, and records its operations.

mod transactions;

use super::operation::{ABSENT, Action, DELETED, KeyIndex, Operation, Value};
use super::world::{
    ALL_COUNT, KEY_COUNT, KEYS, KEYSPACES, TIMED_KEYS, TIMES, World, bytes_of, draw_durability, locate,
    locate_timed, parse, parse_version, time_of, value_of, versions_of,
};
use crate::awaiting;
use crate::finding::{Finding, Outcome, ensure};
use crate::ordering::has_order;
use crate::random::{Draw, Rng};
use cairn::{Durability, Entries, ErrorKind, Range, Snapshot, Time, Versions};
use std::collections::BTreeMap;

/// The result of a thread.
pub struct Ended {
    /// Its operations.
    pub record: Vec<Operation>,
    /// The snapshots that it took.
    pub snapshots: Vec<SnapshotTaken>,
    /// Its iterators that are still open.
    pub open: Vec<Held>,
}

/// When a snapshot was taken, and its sequence number.
#[derive(Clone, Debug)]
pub struct SnapshotTaken {
    /// Clock value before the call.
    pub called: u64,
    /// Clock value after the call.
    pub returned: u64,
    /// The sequence number of the snapshot.
    pub seq: u64,
}

/// A snapshot or iterator that is read later than it was created.
pub struct Held {
    thread: usize,
    called: u64,
    returned: u64,
    /// Number of operations of the thread until it is read.
    wait: u64,
    /// Whether it reached its end.
    ended: bool,
    reader: HeldReader,
}

enum HeldReader {
    Snapshot(Snapshot),
    /// An iterator over a keyspace, the entries that it returned, and whether it moves backward.
    Range(usize, Box<Range>, BTreeMap<KeyIndex, Value>, bool),
    /// The same for a keyspace without order.
    Entries(usize, Box<Entries>, BTreeMap<KeyIndex, Value>),
    /// The same for all versions.
    Versions(Box<Versions>, BTreeMap<KeyIndex, Value>, bool),
}

/// A thread of a history.
pub struct Actor<'a> {
    world: &'a World,
    thread: usize,
    rng: Rng,
    /// Whether a write failed. The thread then stops writing.
    refused: bool,
    /// The number of the times that all threads write versions at now, in most cases.
    present: usize,
    /// The kinds of errors that are expected.
    expected: &'a [ErrorKind],
    held: Vec<Held>,
    ended: Ended,
}

impl<'a> Actor<'a> {
    /// The thread with this number.
    pub fn new(world: &'a World, thread: usize, rng: Rng, expected: &'a [ErrorKind]) -> Actor<'a> {
        let ended = Ended { record: Vec::new(), snapshots: Vec::new(), open: Vec::new() };
        Actor { world, thread, rng, refused: false, present: 0, expected, held: Vec::new(), ended }
    }

    /// Does `steps` operations, unless it is stopped or the database is closed.
    pub fn run(mut self, steps: u64) -> Outcome<Ended> {
        for step in 0..steps {
            self.present = TIMES * step as usize / steps as usize;
            if !self.world.running() || self.step()?.is_none() {
                break;
            }
        }
        for held in std::mem::take(&mut self.held) {
            match held.reader {
                HeldReader::Snapshot(_) => {
                    self.finish(held)?;
                }
                HeldReader::Range(..) | HeldReader::Entries(..) | HeldReader::Versions(..) => {
                    self.ended.open.push(held)
                }
            }
        }
        Ok(self.ended)
    }

    /// Does one operation. `None` if the database is closed.
    fn step(&mut self) -> Outcome<Option<()>> {
        self.held.iter_mut().for_each(|held| held.wait = held.wait.saturating_sub(1));
        if let Some(due) = self.held.iter().position(|held| held.wait == 0) {
            let held = self.held.swap_remove(due);
            return self.finish(held);
        }
        let write = !self.refused && self.rng.chance(1, 2);
        match (write, self.rng.below(30)) {
            (true, 22..27) => self.transaction(),
            (true, 27..) => self.update_key(),
            (false, 22..) => self.get(),
            (true, 0..7) => self.put(),
            (true, 7..10) => self.delete(),
            (true, 10..15) => self.batch(),
            (true, 15) => self.sync(),
            (true, 16..18) => self.remove_at(),
            (true, _) => self.write_at(),
            (false, 0..7) => self.get(),
            (false, 7..9) => self.multi_get(),
            (false, 9..11) => self.hold_range(),
            (false, 11..13) => self.hold_snapshot(),
            (false, 13..16) => self.scan(),
            (false, 16) => self.hold_versions(),
            (false, 17..20) => self.versions(),
            (false, _) => self.newest_version(),
        }
    }

    fn draw_index(&mut self) -> KeyIndex {
        self.rng.between(0, KEY_COUNT - 1)
    }

    /// Does a write with `call` and records it.
    fn write(
        &mut self,
        name: &'static str,
        sets: Vec<(KeyIndex, Value)>,
        durability: Durability,
        call: impl FnOnce(&World) -> cairn::Result<()>,
    ) -> Outcome<Option<()>> {
        let called = self.world.clock.tick();
        let result = call(self.world);
        let returned = result.is_ok().then(|| self.world.clock.tick());
        let action = Action::Write { seen: Vec::new(), sets, durability };
        self.ended.record.push(Operation { thread: self.thread, name, called, returned, action });
        self.refused |= result.is_err();
        self.judge(result)
    }

    /// A key, and a time: often one that other threads use at the same moment, the latest so far or one beside it.
    fn draw_version(&mut self) -> KeyIndex {
        let any = self.rng.between(KEY_COUNT, ALL_COUNT - 1);
        match self.rng.chance(2, 3) {
            true => any - any % TIMES + (self.present + self.rng.between(0, 2)).min(TIMES - 1),
            false => any,
        }
    }

    /// A put or delete with a time of its own.
    fn write_at(&mut self) -> Outcome<Option<()>> {
        let (index, durability) = (self.draw_version(), draw_durability(&mut self.rng));
        let (key, time) = locate_timed(index);
        let time = time_of(time);
        if self.rng.chance(1, 4) {
            let call = |world: &World| world.timed.delete_at_with(key, time, durability);
            return self.write("delete_at", vec![(index, DELETED)], durability, call);
        }
        let value = self.world.new_value_at(index);
        let call = |world: &World| world.timed.put_at_with(key, bytes_of(value), time, durability);
        self.write("put_at", vec![(index, value)], durability, call)
    }

    /// A delete that returns the version before it.
    fn remove_at(&mut self) -> Outcome<Option<()>> {
        let (index, durability) = (self.draw_version(), draw_durability(&mut self.rng));
        let (key, time) = locate_timed(index);
        let called = self.world.clock.tick();
        let result = self.world.timed.remove_at_with(key, time_of(time), durability);
        let returned = result.is_ok().then(|| self.world.clock.tick());
        let seen = match &result {
            Ok(Some(version)) => {
                let (found, value) = parse_version(version)?;
                ensure!(
                    found <= index && found / TIMES == index / TIMES,
                    "{version:?} was removed at {time}"
                );
                newest_of(found, index + 1, value)
            }
            // No version, or a delete.
            Ok(None) | Err(_) => Vec::new(),
        };
        let action = Action::Write { seen, sets: vec![(index, DELETED)], durability };
        let (thread, name) = (self.thread, "remove_at");
        self.ended.record.push(Operation { thread, name, called, returned, action });
        self.refused |= result.is_err();
        self.judge(result)
    }

    /// All versions of a key, or of all keys, read at once.
    fn versions(&mut self) -> Outcome<Option<()>> {
        let (called, key) = (self.world.clock.tick(), self.rng.between(0, TIMED_KEYS));
        let timed = &self.world.timed;
        let (indexes, versions) = match key < TIMED_KEYS {
            true => (versions_of(key), timed.history(format!("key/{key}"), ..)),
            false => (KEY_COUNT..ALL_COUNT, timed.changes::<&[u8]>(.., ..)),
        };
        let backward = self.rng.chance(1, 2);
        let versions = versions.and_then(|versions| match backward {
            true => versions.rev().collect::<cairn::Result<Vec<_>>>(),
            false => versions.collect(),
        });
        let returned = self.world.clock.tick();
        if let Ok(versions) = &versions {
            let mut seen: BTreeMap<_, _> = indexes.map(|index| (index, ABSENT)).collect();
            for version in versions {
                let (index, value) = parse_version(version)?;
                ensure!(
                    seen.insert(index, value) == Some(ABSENT),
                    "{version:?} is there twice, or elsewhere"
                );
            }
            self.saw("versions", called, returned, seen.into_iter().collect());
        }
        self.judge(versions)
    }

    /// The newest version of a key, of all or as of a time.
    fn newest_version(&mut self) -> Outcome<Option<()>> {
        let (index, called) = (self.draw_version(), self.world.clock.tick());
        let (key, time) = locate_timed(index);
        let timed = &self.world.timed;
        let all = self.rng.chance(1, 2);
        let found = match all {
            // The value tells its time.
            true => timed.get(&key).and_then(|value| {
                let at = |value: cairn::Slice| Ok(value_of(&value).map(|n| (n as usize % TIMES, n)));
                value.map(at).transpose()
            }),
            false => timed.get_at(&key, time_of(time)).map(|version| {
                version.map(|version| parse_version(&version).map(|(index, n)| (locate_timed(index).1, n)))
            }),
        };
        let returned = self.world.clock.tick();
        // Nothing tells whether there is no version, or a delete.
        if let Ok(Some(found)) = &found {
            let (found, value) = found.clone()?;
            let end = if all { index - time + TIMES } else { index + 1 };
            ensure!(index - time + found < end, "a version at {found} as of {time}");
            let name = if all { "get" } else { "get_at" };
            self.saw(name, called, returned, newest_of(index - time + found, end, value));
        }
        self.judge(found)
    }

    fn hold_versions(&mut self) -> Outcome<Option<()>> {
        let called = self.world.clock.tick();
        let versions = self.world.timed.changes::<&[u8]>(.., ..);
        let returned = self.world.clock.tick();
        let versions = match versions {
            Ok(versions) => Box::new(versions),
            Err(e) => return self.judge(Err::<(), _>(e)),
        };
        let reader = HeldReader::Versions(versions, BTreeMap::new(), self.rng.chance(1, 2));
        let (thread, wait) = (self.thread, self.rng.below(60));
        let mut held = Held { thread, called, returned, wait, ended: false, reader };
        for _ in 0..self.rng.below(3) {
            if held.advance(self.expected)? == Step::Closed {
                return Ok(None);
            }
        }
        self.held.push(held);
        Ok(Some(()))
    }

    /// Records the values read between `called` and `returned`.
    fn saw(&mut self, name: &'static str, called: u64, returned: u64, seen: Vec<(KeyIndex, Value)>) {
        let (thread, returned) = (self.thread, Some(returned));
        self.ended.record.push(Operation { thread, name, called, returned, action: Action::Read(seen) });
    }

    /// Accepts expected errors. `None` if the database is closed, which ends this thread.
    fn judge<T>(&self, result: cairn::Result<T>) -> Outcome<Option<()>> {
        match result {
            Ok(_) => Ok(Some(())),
            Err(e) if !self.expected.contains(&e.kind()) => Err(e.into()),
            Err(e) => Ok((e.kind() != ErrorKind::Closed).then_some(())),
        }
    }

    fn put(&mut self) -> Outcome<Option<()>> {
        let (index, value, durability) =
            (self.draw_index(), self.world.new_value(), draw_durability(&mut self.rng));
        let (space, key) = locate(index);
        let bytes = bytes_of(value);
        let call = |world: &World| world.spaces[space].put_with(key, bytes, durability);
        self.write("put", vec![(index, value)], durability, call)
    }

    fn delete(&mut self) -> Outcome<Option<()>> {
        let (index, durability) = (self.draw_index(), draw_durability(&mut self.rng));
        let (space, key) = locate(index);
        let call = |world: &World| world.spaces[space].delete_with(key, durability);
        self.write("delete", vec![(index, ABSENT)], durability, call)
    }

    /// A batch of writes to several keys. a key may occur twice; the last entry wins.
    fn batch(&mut self) -> Outcome<Option<()>> {
        let durability = draw_durability(&mut self.rng);
        let mut batch = self.world.db.batch();
        let mut sets = BTreeMap::new();
        for _ in 0..self.rng.between(2, 5) {
            if self.rng.chance(1, 4) {
                let index = self.draw_version();
                let (key, time) = locate_timed(index);
                let value = self.world.new_value_at(index);
                batch.put_at(&self.world.timed, key, bytes_of(value), time_of(time));
                sets.insert(index, value);
                continue;
            }
            let index = self.draw_index();
            let (space, key) = locate(index);
            let keyspace = &self.world.spaces[space];
            match self.rng.chance(1, 5) {
                true => {
                    batch.delete(keyspace, key);
                    sets.insert(index, ABSENT);
                }
                false => {
                    let value = self.world.new_value();
                    batch.put(keyspace, key, bytes_of(value));
                    sets.insert(index, value);
                }
            }
        }
        let as_task = self.rng.chance(1, 3);
        let call = |world: &World| awaiting::write(&world.db, batch, durability, as_task);
        self.write("batch", sets.into_iter().collect(), durability, call)
    }

    fn sync(&mut self) -> Outcome<Option<()>> {
        self.write("sync", Vec::new(), Durability::Sync, |world| world.db.sync())
    }

    fn get(&mut self) -> Outcome<Option<()>> {
        let index = self.draw_index();
        let (space, key) = locate(index);
        let called = self.world.clock.tick();
        let got = self.world.spaces[space].get(key);
        let returned = self.world.clock.tick();
        if let Ok(got) = &got {
            let value = got.as_ref().map_or(Ok(ABSENT), |bytes| value_of(bytes))?;
            self.saw("get", called, returned, vec![(index, value)]);
        }
        self.judge(got)
    }

    fn multi_get(&mut self) -> Outcome<Option<()>> {
        let space = self.rng.between(0, KEYSPACES - 1);
        let indexes: Vec<KeyIndex> = (0..KEYS).map(|i| space * KEYS + i).collect();
        let keys: Vec<String> = indexes.iter().map(|&index| locate(index).1).collect();
        let called = self.world.clock.tick();
        let got = self.world.spaces[space].multi_get(&keys);
        let returned = self.world.clock.tick();
        if let Ok(got) = &got {
            let values = got.iter().map(|v| v.as_ref().map_or(Ok(ABSENT), |bytes| value_of(bytes)));
            let values = values.collect::<Outcome<Vec<_>>>()?;
            self.saw("multi_get", called, returned, indexes.into_iter().zip(values).collect());
        }
        self.judge(got)
    }

    /// An iterator that is read immediately.
    fn scan(&mut self) -> Outcome<Option<()>> {
        if self.hold_range()?.is_none() {
            return Ok(None);
        }
        match self.held.pop() {
            Some(held) => self.finish(held),
            None => Ok(None),
        }
    }

    fn hold_range(&mut self) -> Outcome<Option<()>> {
        let space = self.rng.between(0, KEYSPACES - 1);
        let keyspace = &self.world.spaces[space];
        let backward = self.rng.chance(1, 2);
        let called = self.world.clock.tick();
        let reader = match has_order(keyspace) {
            true => HeldReader::Range(space, Box::new(keyspace.iter()), BTreeMap::new(), backward),
            false => HeldReader::Entries(space, Box::new(keyspace.entries()), BTreeMap::new()),
        };
        let returned = self.world.clock.tick();
        let mut held =
            Held { thread: self.thread, called, returned, wait: self.rng.below(60), ended: false, reader };
        // Some iterators have already moved before they wait.
        for _ in 0..self.rng.below(3) {
            if held.advance(self.expected)? == Step::Closed {
                return Ok(None);
            }
        }
        self.held.push(held);
        Ok(Some(()))
    }

    fn hold_snapshot(&mut self) -> Outcome<Option<()>> {
        let called = self.world.clock.tick();
        let snapshot = self.world.db.snapshot();
        let returned = self.world.clock.tick();
        self.ended.snapshots.push(SnapshotTaken { called, returned, seq: snapshot.seq() });
        let wait = if self.rng.chance(1, 2) { 1 } else { self.rng.below(60) };
        let reader = HeldReader::Snapshot(snapshot);
        self.held.push(Held { thread: self.thread, called, returned, wait, ended: false, reader });
        Ok(Some(()))
    }

    /// Reads the held snapshot or iterator.
    fn finish(&mut self, held: Held) -> Outcome<Option<()>> {
        let (called, returned) = (held.called, held.returned);
        match held.reader {
            HeldReader::Range(..) | HeldReader::Entries(..) | HeldReader::Versions(..) => {
                if let Some(operation) = held.exhaust(self.expected)? {
                    self.ended.record.push(operation);
                }
                Ok(Some(()))
            }
            HeldReader::Snapshot(snapshot) => {
                let mut seen = Vec::new();
                for space in 0..KEYSPACES {
                    match self.look(&snapshot, space) {
                        Ok(part) => seen.extend(part?),
                        Err(e) => return self.judge(Err::<(), _>(e)),
                    }
                }
                match self.look_at_versions(&snapshot) {
                    Ok(part) => seen.extend(part?),
                    Err(e) => return self.judge(Err::<(), _>(e)),
                }
                self.saw("snapshot", called, returned, seen);
                Ok(Some(()))
            }
        }
    }

    /// Reads all versions in a snapshot.
    fn look_at_versions(&mut self, snapshot: &Snapshot) -> cairn::Result<Outcome<BTreeMap<KeyIndex, Value>>> {
        let timed = &self.world.timed;
        let mut versions = Vec::new();
        match self.rng.below(3) {
            0 => versions = snapshot.changes::<&[u8]>(timed, .., ..)?.collect::<cairn::Result<_>>()?,
            1 => versions = snapshot.changes::<&[u8]>(timed, .., ..)?.rev().collect::<cairn::Result<_>>()?,
            _ => {
                for key in 0..TIMED_KEYS {
                    let of_key = snapshot.history(timed, format!("key/{key}"), Time::MIN..)?;
                    versions.extend(of_key.collect::<cairn::Result<Vec<_>>>()?);
                }
            }
        }
        let parsed = versions.iter().map(parse_version).collect::<Outcome<Vec<_>>>();
        Ok(parsed.map(|parsed| {
            let mut seen: BTreeMap<_, _> = (KEY_COUNT..ALL_COUNT).map(|index| (index, ABSENT)).collect();
            seen.extend(parsed);
            seen
        }))
    }

    /// Reads one keyspace in a snapshot, in one of four ways.
    fn look(
        &mut self,
        snapshot: &Snapshot,
        space: usize,
    ) -> cairn::Result<Outcome<BTreeMap<KeyIndex, Value>>> {
        let keyspace = &self.world.spaces[space];
        let indexes = space * KEYS..(space + 1) * KEYS;
        let keys: Vec<String> = indexes.clone().map(|index| locate(index).1).collect();
        let way = self.rng.below(4);
        let entries = match way {
            0 | 1 if !has_order(keyspace) => snapshot.entries(keyspace).collect::<cairn::Result<Vec<_>>>()?,
            0 => snapshot.iter(keyspace).collect::<cairn::Result<Vec<_>>>()?,
            1 => snapshot.iter(keyspace).rev().collect::<cairn::Result<Vec<_>>>()?,
            2 => {
                let got = snapshot.multi_get(keyspace, &keys)?;
                let keyed =
                    keys.iter().zip(got).filter_map(|(key, value)| Some((key.as_bytes().into(), value?)));
                keyed.collect()
            }
            _ => {
                let mut entries = Vec::new();
                for key in &keys {
                    entries.extend(snapshot.get(keyspace, key)?.map(|value| (key.as_bytes().into(), value)));
                }
                entries
            }
        };
        let parsed = entries.iter().map(|entry| parse(space, entry)).collect::<Outcome<Vec<_>>>();
        Ok(parsed.map(|parsed| {
            let mut seen: BTreeMap<_, _> = indexes.map(|index| (index, ABSENT)).collect();
            seen.extend(parsed);
            seen
        }))
    }
}

/// What a read tells that found a version as the newest of those before `end`.
fn newest_of(found: KeyIndex, end: KeyIndex, value: Value) -> Vec<(KeyIndex, Value)> {
    (found..end).map(|index| (index, if index == found { value } else { ABSENT })).collect()
}

/// The result of moving an iterator.
#[derive(PartialEq, Eq)]
enum Step {
    Entry,
    End,
    /// The database was closed.
    Closed,
}

impl Held {
    /// Moves an iterator by one step.
    fn advance(&mut self, expected: &[ErrorKind]) -> Outcome<Step> {
        let (entry, seen, backward) = match &mut self.reader {
            HeldReader::Snapshot(_) => return Ok(Step::End),
            HeldReader::Entries(space, entries, seen) => {
                (entries.next().map(|entry| entry.map(|entry| parse(*space, &entry))), seen, None)
            }
            HeldReader::Range(space, range, seen, backward) => {
                let entry = if *backward { range.next_back() } else { range.next() };
                (entry.map(|entry| entry.map(|entry| parse(*space, &entry))), seen, Some(*backward))
            }
            HeldReader::Versions(versions, seen, backward) => {
                let version = if *backward { versions.next_back() } else { versions.next() };
                (version.map(|version| version.map(|version| parse_version(&version))), seen, Some(*backward))
            }
        };
        let (index, value) = match entry {
            None => {
                self.ended = true;
                return Ok(Step::End);
            }
            Some(Err(e)) if e.kind() == ErrorKind::Closed && expected.contains(&e.kind()) => {
                return Ok(Step::Closed);
            }
            Some(entry) => entry??,
        };
        // Of one key the latest version comes first.
        let place = |index: KeyIndex| match index.checked_sub(KEY_COUNT) {
            Some(timed) => (timed / TIMES, TIMES - timed % TIMES),
            None => (index, 0),
        };
        let follows = |other| backward.is_none_or(|backward| (place(index) < place(other)) == backward);
        let in_order = seen.keys().all(|&other| follows(other) && index != other);
        ensure!(in_order, "an iterator gives key {index} after {seen:?}");
        seen.insert(index, value);
        Ok(Step::Entry)
    }

    /// Moves an iterator of a closed database. It must return an error, unless it had reached its end before.
    pub fn refuse(mut self) -> Outcome {
        let ended = self.ended;
        match self.advance(&[ErrorKind::Closed])? {
            Step::Closed => Ok(()),
            Step::End if ended => Ok(()),
            Step::End => {
                Err(Finding::new("an iterator ends because its database was closed, and does not say so"))
            }
            Step::Entry => Err(Finding::new("an iterator goes on though its database was closed")),
        }
    }

    /// Reads an iterator to its end, for the record. `None` if the database was closed before the end.
    pub fn exhaust(mut self, expected: &[ErrorKind]) -> Outcome<Option<Operation>> {
        loop {
            match self.advance(expected)? {
                Step::Entry => {}
                Step::End => break,
                Step::Closed => return Ok(None),
            }
        }
        let (name, indexes, seen) = match self.reader {
            HeldReader::Snapshot(_) => return Ok(None),
            HeldReader::Range(space, _, seen, _) | HeldReader::Entries(space, _, seen) => {
                ("iterator", space * KEYS..(space + 1) * KEYS, seen)
            }
            HeldReader::Versions(_, seen, _) => ("versions held", KEY_COUNT..ALL_COUNT, seen),
        };
        let of = |index| (index, seen.get(&index).copied().unwrap_or(ABSENT));
        Ok(Some(Operation {
            thread: self.thread,
            name,
            called: self.called,
            returned: Some(self.returned),
            action: Action::Read(indexes.map(of).collect()),
        }))
    }
}
