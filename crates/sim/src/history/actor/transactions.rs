//! Transactions and single steps on a key, as operations of a history: a commit has seen what it has read, and sets what it has written, at one
//! moment. So the order that explains a history is a serial order of its transactions.

use super::Actor;
use crate::awaiting;
use crate::finding::{Outcome, ensure};
use crate::history::operation::{ABSENT, Action, KeyIndex, Operation, Value};
use crate::history::world::{KEYS, KEYSPACES, bytes_of, draw_durability, locate, parse, value_of};
use crate::ordering::has_order;
use crate::random::Draw;
use cairn::{ErrorKind, Slice, Transaction};
use std::collections::BTreeMap;

/// What a transaction has read of others, and what it has written.
#[derive(Default)]
struct Progress {
    seen: BTreeMap<KeyIndex, Value>,
    own: BTreeMap<KeyIndex, Value>,
}

impl Progress {
    /// A read has returned this value.
    fn note(&mut self, index: KeyIndex, value: Value) -> Outcome {
        match self.own.get(&index) {
            Some(&own) => {
                ensure!(own == value, "a transaction that has written {index}={own} reads {index}={value}")
            }
            None => {
                let before = *self.seen.entry(index).or_insert(value);
                ensure!(
                    before == value,
                    "a transaction that has read {index}={before} reads {index}={value} later"
                );
            }
        }
        Ok(())
    }
}

fn parsed(value: Option<&Slice>) -> Outcome<Value> {
    value.map_or(Ok(ABSENT), |bytes| value_of(bytes))
}

impl Actor<'_> {
    /// A transaction of some steps, which is committed or rolled back.
    pub(super) fn transaction(&mut self) -> Outcome<Option<()>> {
        let (mut progress, durability) = (Progress::default(), draw_durability(&mut self.rng));
        let called = self.world.clock.tick();
        let mut transaction = self.world.db.begin();
        let begun = self.world.clock.tick();
        for _ in 0..self.rng.between(1, 6) {
            match self.rng.below(10) {
                0..4 => {
                    if let Err(error) = self.read_one(&transaction, &mut progress)? {
                        return self.judge(Err::<(), _>(error));
                    }
                }
                4..6 => {
                    if let Err(error) = self.read_range(&transaction, &mut progress)? {
                        return self.judge(Err::<(), _>(error));
                    }
                }
                _ => {
                    if let Err(error) = self.write_one(&mut transaction, &mut progress) {
                        return self.judge(Err::<(), _>(error));
                    }
                }
            }
        }
        let (thread, name) = (self.thread, "transaction");
        let seen: Vec<_> = progress.seen.into_iter().collect();
        if self.rng.chance(1, 8) || progress.own.is_empty() {
            // What it has seen is the state at its beginning.
            self.saw("rolled back", called, begun, seen);
            return Ok(Some(()));
        }
        let result = awaiting::commit(transaction, durability, self.rng.chance(1, 2));
        let returned = self.world.clock.tick();
        match result {
            Err(error) if error.kind() == ErrorKind::Conflict => {
                self.saw("conflict", called, begun, seen);
                Ok(Some(()))
            }
            result => {
                let action = Action::Write { seen, sets: progress.own.into_iter().collect(), durability };
                let returned = result.is_ok().then_some(returned);
                self.ended.record.push(Operation { thread, name, called, returned, action });
                self.refused |= result.is_err();
                self.judge(result)
            }
        }
    }

    fn read_one(&mut self, transaction: &Transaction, progress: &mut Progress) -> Outcome<cairn::Result<()>> {
        let index = self.draw_index();
        let (space, key) = locate(index);
        let keyspace = &self.world.spaces[space];
        let found = match self.rng.chance(1, 3) {
            true => transaction.multi_get(keyspace, &[key]).map(|mut found| found.remove(0)),
            false => transaction.get(keyspace, key),
        };
        match found {
            Ok(found) => progress.note(index, parsed(found.as_ref())?).map(Ok),
            Err(error) => Ok(Err(error)),
        }
    }

    /// Reads some entries of a range of keys from one end. It has seen them, and that the keys before them are absent.
    fn read_range(
        &mut self,
        transaction: &Transaction,
        progress: &mut Progress,
    ) -> Outcome<cairn::Result<()>> {
        let drawn = self.rng.between(0, KEYSPACES - 1);
        // The first one has an order.
        let space = if has_order(&self.world.spaces[drawn]) { drawn } else { 0 };
        let (from, to) = (self.rng.between(0, KEYS - 1), self.rng.between(0, KEYS));
        let key = |number: usize| format!("key/{number}");
        let (count, backward) = (self.rng.between(1, KEYS + 1), self.rng.chance(1, 2));
        let mut range = transaction.range(&self.world.spaces[space], key(from)..key(to));
        let mut indexes: Vec<KeyIndex> = (from..to).map(|number| space * KEYS + number).collect();
        if backward {
            indexes.reverse();
        }
        let mut left = indexes.into_iter();
        for _ in 0..count {
            let found = match if backward { range.next_back() } else { range.next() } {
                Some(Ok(entry)) => Some(parse(space, &entry)?),
                Some(Err(error)) => return Ok(Err(error)),
                None => None,
            };
            loop {
                match (left.next(), found) {
                    (Some(index), Some((there, value))) if index == there => {
                        progress.note(index, value)?;
                        break;
                    }
                    (Some(index), _) => progress.note(index, ABSENT)?,
                    (None, None) => return Ok(Ok(())),
                    (None, Some(found)) => {
                        ensure!(false, "a range of a transaction gives {found:?}, in no order or twice");
                    }
                }
            }
        }
        Ok(Ok(()))
    }

    fn write_one(&mut self, transaction: &mut Transaction, progress: &mut Progress) -> cairn::Result<()> {
        let index = self.draw_index();
        let (space, key) = locate(index);
        let keyspace = &self.world.spaces[space];
        match self.rng.below(8) {
            0..5 => {
                let value = self.world.new_value();
                progress.own.insert(index, value);
                transaction.put(keyspace, key, bytes_of(value))
            }
            7 if has_order(keyspace) => {
                let end = self.rng.between(index % KEYS, KEYS);
                progress.own.extend((index..space * KEYS + end).map(|index| (index, ABSENT)));
                transaction.delete_range(keyspace, key..format!("key/{end}"))
            }
            _ => {
                progress.own.insert(index, ABSENT);
                transaction.delete(keyspace, key)
            }
        }
    }

    /// A step that reads a key and writes it.
    pub(super) fn update_key(&mut self) -> Outcome<Option<()>> {
        let (index, durability, value) =
            (self.draw_index(), draw_durability(&mut self.rng), self.world.new_value());
        let (space, key) = locate(index);
        let keyspace = self.world.spaces[space].clone();
        let new = (!self.rng.chance(1, 4)).then(|| bytes_of(value));
        let sets = if new.is_some() { value } else { ABSENT };
        let way = self.rng.below(3);
        // What it is compared with: often what is there.
        let (guess, is_guessed) = match way == 1 {
            true => match keyspace.get(&key) {
                Ok(found) => (found, true),
                Err(error) => return self.judge(Err::<(), _>(error)),
            },
            false => (None, way == 2),
        };
        // A step from nothing to nothing is a read: it syncs nothing either.
        let writes = |before: &Option<Slice>| before.is_some() || new.is_some();
        let called = self.world.clock.tick();
        // What it has found, and whether it has written.
        let result = match way {
            0 => {
                let result = keyspace.fetch_update_with(&key, |_| new.clone(), durability);
                result.map(|before| (before.clone(), writes(&before)))
            }
            1 => match keyspace.compare_and_swap_with(&key, guess.as_deref(), new.as_deref(), durability) {
                Ok(Ok(())) => Ok((guess.clone(), writes(&guess))),
                Ok(Err(other)) => Ok((other, false)),
                Err(error) => Err(error),
            },
            _ => keyspace
                .put_if_absent_with(&key, bytes_of(value), durability)
                .map(|found| (found.clone(), found.is_none())),
        };
        let returned = self.world.clock.tick();
        let sets = if way == 2 { value } else { sets };
        let (thread, name) =
            (self.thread, ["fetch_update", "compare_and_swap", "put_if_absent"][way as usize]);
        match &result {
            Ok((found, true)) => {
                let seen = vec![(index, parsed(found.as_ref())?)];
                let action = Action::Write { seen, sets: vec![(index, sets)], durability };
                self.ended.record.push(Operation { thread, name, called, returned: Some(returned), action });
            }
            Ok((found, false)) => {
                self.saw(name, called, returned, vec![(index, parsed(found.as_ref())?)]);
            }
            Err(_) => {
                let seen = if is_guessed { vec![(index, parsed(guess.as_ref())?)] } else { Vec::new() };
                let action = Action::Write { seen, sets: vec![(index, sets)], durability };
                self.ended.record.push(Operation { thread, name, called, returned: None, action });
                self.refused = true;
            }
        }
        self.judge(result)
    }
}
