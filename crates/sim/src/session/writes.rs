//! Calls that change the database or its storage.

use super::state::{Open, Session};
use crate::alterations::altered;
use crate::awaiting;
use crate::data::{self, Value};
use crate::finding::{Outcome, ensure, show};
use crate::model::{Incarnation, Write, prefix_end};
use crate::ordering::has_order;
use crate::random::Draw;
use cairn::{Database, Durability, ErrorKind, IngestOptions, Keyspace, KeyspaceOptions, Merge, limits};
use std::collections::BTreeMap;
use std::ops::Bound;

/// Longer values get no operands.
const MAX_APPENDED: usize = 20_000;

const DURABILITIES: [Durability; 3] = [Durability::Buffered, Durability::Os, Durability::Sync];

impl Session {
    pub(super) fn draw_value(&mut self) -> Value {
        data::value(&mut self.rng, self.set.sizes)
    }

    fn commit_one(&mut self, keyspace: Incarnation, key: Vec<u8>, value: Option<Value>) {
        self.commit(&[Write { keyspace, key, value }]);
    }

    pub(super) fn put(&mut self) -> Outcome {
        let (open, key, value) = (self.draw_keyspace(), self.draw_key(), self.draw_value());
        self.note(|| format!("put {} {} {}", open.keyspace.name(), show(&key), show(&value)));
        if self.rng.chance(1, 4) {
            let durability = *self.rng.pick(&DURABILITIES);
            open.keyspace.put_with(&key, &value[..], durability)?;
        } else {
            open.keyspace.put(&key, &value[..])?;
        }
        self.commit_one(open.incarnation, key, Some(value));
        Ok(())
    }

    /// A merge, alone or in a transaction with others, in a keyspace that appends.
    pub(super) fn merge(&mut self) -> Outcome {
        let open = self.draw_keyspace();
        if open.keyspace.options().merge != Merge::Append {
            return Ok(());
        }
        let mut writes = Vec::new();
        let mut transaction = self.rng.chance(1, 4).then(|| self.db().begin());
        let steps = if transaction.is_some() { self.rng.between(1, 4) } else { 1 };
        for _ in 0..steps {
            let (key, operand) = (self.draw_key(), self.draw_value());
            self.note(|| format!("merge {} {} {}", open.keyspace.name(), show(&key), show(&operand)));
            let old = self.latest(open.incarnation, &key, &writes);
            let value = [old.as_deref().unwrap_or_default(), &operand[..]].concat();
            match &mut transaction {
                _ if value.len() > MAX_APPENDED => continue,
                Some(transaction) => transaction.merge(&open.keyspace, &key, &operand[..])?,
                None => open.keyspace.merge_with(&key, &operand[..], *self.rng.pick(&DURABILITIES))?,
            }
            writes.push(Write { keyspace: open.incarnation, key, value: Some(value.into()) });
        }
        if let Some(transaction) = transaction {
            let read = self.keys.probe(&mut self.rng);
            let expected = self.latest(open.incarnation, &read, &writes);
            let found = transaction.get(&open.keyspace, &read)?;
            ensure!(
                found.as_deref() == expected.as_deref(),
                "a transaction reads {} as {found:?}",
                show(&read)
            );
            let durability = self.db().options().durability;
            awaiting::commit(transaction, durability, writes.len().is_multiple_of(2))?;
        }
        self.commit(&writes);
        Ok(())
    }

    /// The value of a key after the writes `before` of the same batch.
    fn latest(&self, keyspace: Incarnation, key: &[u8], before: &[Write]) -> Option<Value> {
        match before.iter().rev().find(|write| write.keyspace == keyspace && write.key == key) {
            Some(write) => write.value.clone(),
            None => self.model.get(keyspace, key, self.model.version()).cloned(),
        }
    }

    pub(super) fn delete(&mut self) -> Outcome {
        let open = self.draw_keyspace();
        let key = self.keys.probe(&mut self.rng);
        self.note(|| format!("delete {} {}", open.keyspace.name(), show(&key)));
        if self.rng.chance(1, 4) {
            let durability = *self.rng.pick(&DURABILITIES);
            open.keyspace.delete_with(&key, durability)?;
        } else {
            open.keyspace.delete(&key)?;
        }
        self.commit_one(open.incarnation, key, None);
        Ok(())
    }

    /// A range of keys to delete: mostly a few, sometimes many, all or none.
    fn draw_range(&mut self, keyspace: Incarnation) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
        if self.rng.chance(1, 6) {
            return self.draw_bounds();
        }
        let from = self.keys.probe(&mut self.rng);
        let behind = (Bound::Excluded(&from[..]), Bound::Unbounded);
        let many = self.rng.between(0, 6);
        let last = self.model.range(keyspace, behind, self.model.version()).nth(many);
        let to = match last {
            Some((key, _)) if self.rng.chance(1, 2) => Bound::Excluded(key.to_vec()),
            Some((key, _)) => Bound::Included(key.to_vec()),
            None => Bound::Unbounded,
        };
        (if self.rng.chance(1, 4) { Bound::Excluded(from) } else { Bound::Included(from) }, to)
    }

    pub(super) fn delete_range(&mut self) -> Outcome {
        let Some(open) = self.draw_ordered() else { return Ok(()) };
        let durability = *self.rng.pick(&DURABILITIES);
        let (low, high) = if self.rng.chance(1, 4) {
            let prefix = self.keys.prefix(&mut self.rng);
            self.note(|| format!("delete_prefix {} {}", open.keyspace.name(), show(&prefix)));
            open.keyspace.delete_prefix_with(&prefix, durability)?;
            let high = prefix_end(&prefix).map_or(Bound::Unbounded, Bound::Excluded);
            (Bound::Included(prefix), high)
        } else {
            let (low, high) = self.draw_range(open.incarnation);
            self.note(|| format!("delete_range {} {low:?} {high:?}", open.keyspace.name()));
            match self.rng.chance(1, 4) {
                true => open.keyspace.delete_range::<Vec<u8>>((low.clone(), high.clone()))?,
                false => open.keyspace.delete_range_with((low.clone(), high.clone()), durability)?,
            }
            (low, high)
        };
        let bounds = (low.as_ref().map(Vec::as_slice), high.as_ref().map(Vec::as_slice));
        let writes = self.model.deletes(open.incarnation, bounds, &[]);
        self.commit(&writes);
        Ok(())
    }

    /// A batch over several keyspaces. The last write to a key wins.
    pub(super) fn batch(&mut self) -> Outcome {
        let mut batch = self.db().batch();
        let mut writes = Vec::new();
        let most = *self.rng.pick(&[2, 8, 8, 40]);
        let (mut len, mut ranges) = (0, 0);
        for _ in 0..self.rng.between(0, most) {
            let (open, key) = (self.draw_keyspace(), self.draw_key());
            len += 1;
            if has_order(&open.keyspace) && self.rng.chance(1, 30) {
                let (low, high) = self.draw_range(open.incarnation);
                let bounds = (low.as_ref().map(Vec::as_slice), high.as_ref().map(Vec::as_slice));
                writes.extend(self.model.deletes(open.incarnation, bounds, &writes));
                ranges += 1;
                batch.delete_range(&open.keyspace, (low, high));
                continue;
            }
            let value = if self.rng.chance(1, 4) { None } else { Some(self.draw_value()) };
            let old = self.latest(open.incarnation, &key, &writes);
            let appends = old.as_ref().is_none_or(|old| old.len() < MAX_APPENDED);
            let (value, operand) = match value {
                Some(value) if appends => {
                    let value = data::appended(&open.keyspace, old.as_ref(), value);
                    let operand = data::operand(&open.keyspace, old.as_ref(), &value).map(<[u8]>::to_vec);
                    (Some(value), operand)
                }
                value => (value, None),
            };
            match (&value, operand) {
                (_, Some(operand)) => batch.merge(&open.keyspace, &key, operand),
                (Some(value), None) => batch.put(&open.keyspace, &key, &value[..]),
                (None, None) => batch.delete(&open.keyspace, &key),
            }
            writes.push(Write { keyspace: open.incarnation, key, value });
        }
        let durability = *self.rng.pick(&DURABILITIES);
        self.note(|| format!("batch of {} {durability}", writes.len()));
        // The batch may omit an empty range.
        let says = batch.len();
        let right = (len - ranges..=len).contains(&says);
        ensure!(right, "a batch of {len}, of them {ranges} ranges, says it has {says}");
        ensure!(batch.is_empty() == (says == 0), "a batch of {says} denies it");
        let as_task = self.rng.chance(1, 3);
        awaiting::write(self.db(), batch, durability, as_task)?;
        self.commit(&writes);
        Ok(())
    }

    /// A bulk load over some keyspaces: a commit with the last entry of each key.
    pub(super) fn ingest(&mut self) -> Outcome {
        let with = match self.rng.chance(1, 2) {
            true => IngestOptions::default(),
            false => IngestOptions::default().unsorted(0),
        };
        let mut writes: BTreeMap<(Incarnation, Vec<u8>), Value> = BTreeMap::new();
        let mut spaces: BTreeMap<Incarnation, Keyspace> = BTreeMap::new();
        for _ in 0..*self.rng.pick(&[1, 5, 40, 150]) {
            let (open, key, value) = (self.draw_keyspace(), self.draw_key(), self.draw_value());
            if !has_order(&open.keyspace) {
                continue;
            }
            let old = self.latest(open.incarnation, &key, &[]);
            let value = data::appended(&open.keyspace, old.as_ref(), value);
            writes.insert((open.incarnation, key), value);
            spaces.insert(open.incarnation, open.keyspace);
        }
        self.note(|| format!("ingest {}", writes.len()));
        let mut load = self.db().ingest(with);
        for ((keyspace, key), value) in &writes {
            load.put(&spaces[keyspace], key, &value[..])?;
        }
        let done = load.commit()?;
        ensure!(done.entries == writes.len() as u64, "a load of {} says {done:?}", writes.len());
        let writes: Vec<Write> = writes
            .into_iter()
            .map(|((keyspace, key), value)| Write { keyspace, key, value: Some(value) })
            .collect();
        self.commit(&writes);
        Ok(())
    }

    pub(super) fn sync(&mut self) -> Outcome {
        self.note(|| "sync".into());
        Ok(self.db().sync()?)
    }

    pub(super) fn flush(&mut self) -> Outcome {
        if self.rng.chance(1, 3) {
            self.note(|| "flush".into());
            return Ok(self.db().flush()?);
        }
        let open = self.draw_keyspace();
        self.note(|| format!("flush {}", open.keyspace.name()));
        Ok(open.keyspace.flush()?)
    }

    pub(super) fn compact(&mut self) -> Outcome {
        match self.rng.below(6) {
            0 => {
                self.note(|| "compact".into());
                self.db().compact()?;
            }
            1 => {
                self.note(|| "wait_idle".into());
                self.db().wait_idle()?;
            }
            _ => {
                let open = self.draw_keyspace();
                self.note(|| format!("compact {}", open.keyspace.name()));
                open.keyspace.compact()?;
            }
        }
        Ok(())
    }

    pub(super) fn compact_range(&mut self) -> Outcome {
        let Some(open) = self.draw_ordered() else { return Ok(()) };
        let (low, high) = self.draw_bounds();
        self.note(|| format!("compact_range {} {low:?} {high:?}", open.keyspace.name()));
        Ok(open.keyspace.compact_range::<Vec<u8>>((low, high))?)
    }

    /// Statistics must be consistent.
    pub(super) fn statistics(&mut self) -> Outcome {
        self.note(|| "stats".into());
        let stats = self.db().stats();
        ensure!(stats.keyspaces.len() == self.open.len(), "stats know {} keyspaces", stats.keyspaces.len());
        ensure!(stats.background_error.is_none(), "the background failed: {:?}", stats.background_error);
        let open = self.draw_keyspace();
        for guard in open.keyspace.guards() {
            for table in &guard.tables {
                let (smallest, largest) = (&table.smallest, &table.largest);
                ensure!(
                    smallest <= largest && (guard.level == 0 || &guard.key <= smallest),
                    "level {}: table {} holds {smallest:?} to {largest:?} in the guard of {:?}",
                    guard.level,
                    table.number,
                    guard.key
                );
            }
        }
        ensure!(open.keyspace.stats().name == open.keyspace.name(), "stats of another keyspace");
        Ok(())
    }

    /// Calls that must be rejected without effect.
    pub(super) fn refused(&mut self) -> Outcome {
        let open = self.draw_keyspace();
        self.note(|| format!("refused calls on {}", open.keyspace.name()));
        let long = vec![b'k'; limits::MAX_KEY_LEN + 1];
        let kind = |result: cairn::Result<()>| result.err().map(|e| e.kind());
        let too_long = kind(open.keyspace.put(&long, "v"));
        ensure!(too_long == Some(ErrorKind::InvalidArgument), "a key past the limit: {too_long:?}");
        let mut batch = self.db().batch();
        batch.put(&open.keyspace, "refused", "v");
        batch.delete(&open.keyspace, &long);
        let batched = kind(self.db().write(batch, Durability::Os));
        ensure!(batched == Some(ErrorKind::InvalidArgument), "a batch with such a key: {batched:?}");
        let again =
            kind(self.db().create_keyspace(&open.keyspace.name(), KeyspaceOptions::default()).map(drop));
        ensure!(again == Some(ErrorKind::AlreadyExists), "creating a keyspace twice: {again:?}");
        let missing = kind(self.db().open_keyspace("missing").map(drop));
        ensure!(missing == Some(ErrorKind::NotFound), "opening a missing keyspace: {missing:?}");
        let dropping = kind(self.db().drop_keyspace("missing"));
        ensure!(dropping == Some(ErrorKind::NotFound), "dropping a missing keyspace: {dropping:?}");
        let twice = kind(Database::open_in(self.env.clone(), &self.path, self.set.options.clone()).map(drop));
        ensure!(twice == Some(ErrorKind::Locked), "opening the database twice: {twice:?}");
        Ok(())
    }

    pub(super) fn create(&mut self, name: &str) -> Outcome {
        let options = self.set.keyspaces[self.created % self.set.keyspaces.len()].clone();
        self.created += 1;
        self.note(|| format!("create {name}"));
        let keyspace = if self.rng.chance(1, 2) {
            self.db().create_keyspace(name, options.clone())?
        } else {
            self.db().keyspace(name, options.clone())?
        };
        ensure!(keyspace.options() == options, "keyspace {name} was not created with its options");
        ensure!(keyspace.name() == name, "keyspace {name} is called {}", keyspace.name());
        let incarnation = self.model.create(name);
        self.options.insert(incarnation, options);
        self.open.insert(name.to_owned(), Open { keyspace, incarnation });
        Ok(())
    }

    /// Drops a keyspace and creates it again, sometimes with others in between. Readers of the old one continue.
    pub(super) fn recreate(&mut self) -> Outcome {
        let name = self.draw_keyspace().keyspace.name().to_owned();
        self.note(|| format!("drop {name}"));
        let dropped = self.open.remove(&name).expect("it was drawn from the open ones");
        self.db().drop_keyspace(&name)?;
        self.model.drop_keyspace(&name);
        let kind = dropped.keyspace.put("key", "value").err().map(|e| e.kind());
        ensure!(kind == Some(ErrorKind::Closed), "a write to a dropped keyspace: {kind:?}");
        let mut batch = self.db().batch();
        batch.put(&dropped.keyspace, "key", "value");
        let kind = self.db().write(batch, Durability::Os).err().map(|e| e.kind());
        ensure!(kind == Some(ErrorKind::Closed), "a batch with a dropped keyspace: {kind:?}");
        if self.open.len() >= 2 && self.rng.chance(1, 8) {
            // Leave it dropped for a while.
            return Ok(());
        }
        self.create(&name)?;
        if self.open.len() < 5 && self.rng.chance(1, 2) {
            let name = ["a", "b", "c", "d", "e"].into_iter().find(|n| !self.open.contains_key(*n));
            self.create(name.expect("there are less than five"))?;
        }
        Ok(())
    }

    /// Renames a keyspace, which its handles and readers survive.
    pub(super) fn rename(&mut self) -> Outcome {
        let name = self.draw_keyspace().keyspace.name();
        let others = ["a", "b", "c", "d", "e"];
        let new = *self.rng.pick(&others);
        self.note(|| format!("rename {name} to {new}"));
        let renamed = self.db().rename_keyspace(&name, new);
        if new != name && self.open.contains_key(new) {
            let kind = renamed.err().map(|e| e.kind());
            ensure!(kind == Some(ErrorKind::AlreadyExists), "renaming {name} to {new}: {kind:?}");
            return Ok(());
        }
        renamed?;
        let open = self.open.remove(&name).expect("it was drawn from the open ones");
        ensure!(open.keyspace.name() == new, "{name} is called {} and not {new}", open.keyspace.name());
        self.open.insert(new.to_owned(), open);
        if new != name {
            self.model.rename(&name, new);
        }
        Ok(())
    }

    /// Clones a keyspace. Where there are as many as a session has, another one is dropped for it.
    pub(super) fn clone_keyspace(&mut self) -> Outcome {
        let source = self.draw_keyspace();
        let (name, names) = (source.keyspace.name(), ["a", "b", "c", "d", "e"]);
        let new = *self.rng.pick(&names);
        self.note(|| format!("clone {name} as {new}"));
        let wanted = match (has_order(&source.keyspace), self.open.contains_key(new)) {
            (_, true) => Some(ErrorKind::AlreadyExists),
            (false, false) => Some(ErrorKind::InvalidArgument),
            (true, false) => None,
        };
        let mut cloned = self.db().clone_keyspace(&name, new);
        if let Some(wanted) = wanted {
            let kind = cloned.err().map(|e| e.kind());
            ensure!(kind == Some(wanted), "cloning {name} as {new}: {kind:?}");
            if wanted == ErrorKind::InvalidArgument || new == name {
                return Ok(());
            }
            self.open.remove(new);
            self.db().drop_keyspace(new)?;
            self.model.drop_keyspace(new);
            if !has_order(&source.keyspace) {
                return Ok(());
            }
            cloned = self.db().clone_keyspace(&name, new);
        }
        let keyspace = cloned?;
        ensure!(keyspace.options() == source.keyspace.options(), "{new} has other options than {name}");
        ensure!(keyspace.name() == new, "{new} is called {}", keyspace.name());
        let incarnation = self.model.clone_keyspace(&name, new);
        self.options.insert(incarnation, keyspace.options());
        let of_source = self.expiries.iter().filter(|((of, _), _)| *of == source.incarnation);
        let expiries: Vec<_> = of_source.map(|((_, key), at)| ((incarnation, key.clone()), *at)).collect();
        self.expiries.extend(expiries);
        self.open.insert(new.to_owned(), Open { keyspace, incarnation });
        if self.rng.chance(1, 4) { self.compare_all() } else { Ok(()) }
    }

    /// Changes options of a keyspace.
    pub(super) fn alter(&mut self) -> Outcome {
        let open = self.draw_keyspace();
        let wanted = altered(open.keyspace.options(), &mut self.rng);
        self.note(|| format!("alter {}", open.keyspace.name()));
        open.keyspace.alter(|_| wanted.clone())?;
        ensure!(open.keyspace.options() == wanted, "{} was not altered", open.keyspace.name());
        self.options.insert(open.incarnation, wanted);
        let fixed = open.keyspace.alter(|options| {
            let levels = if options.levels == 3 { 4 } else { 3 };
            options.levels(levels)
        });
        let kind = fixed.err().map(|e| e.kind());
        ensure!(kind == Some(ErrorKind::InvalidArgument), "other levels: {kind:?}");
        Ok(())
    }

    /// Writes all tables of a keyspace again.
    pub(super) fn rewrite(&mut self) -> Outcome {
        let open = self.draw_keyspace();
        self.note(|| format!("rewrite {}", open.keyspace.name()));
        Ok(open.keyspace.rewrite()?)
    }

    pub(super) fn reopen(&mut self) -> Outcome {
        self.close()?;
        self.open_again()?;
        if self.rng.chance(1, 3) { self.compare_all() } else { Ok(()) }
    }

    /// Releases all readers and closes the database in one of two ways.
    pub(super) fn close(&mut self) -> Outcome {
        let explicit = self.rng.chance(1, 2);
        self.note(|| if explicit { "close".into() } else { "drop the database".into() });
        self.held.release_all(&mut self.model);
        self.open.clear();
        let db = self.db.take().expect("it was open");
        let stats = db.stats();
        self.flushes += stats.flush.jobs;
        self.compactions += stats.compaction.jobs;
        if explicit {
            db.close()?;
        }
        Ok(())
    }

    pub(super) fn open_again(&mut self) -> Outcome {
        self.note(|| "open".into());
        self.db = Some(Database::open_in(self.env.clone(), &self.path, self.set.options.clone())?);
        let names: Vec<_> = self.model.names().iter().map(|(n, i)| (n.clone(), *i)).collect();
        for (name, incarnation) in names {
            let keyspace = self.db().open_keyspace(&name)?;
            if self.rng.chance(1, 2) {
                // A keyspace keeps its options: others that are asked for by their values are refused, none are not.
                let mut wanted = keyspace.options().clone();
                wanted.levels = if wanted.levels == 3 { 4 } else { 3 };
                let refused = self.db().keyspace(&name, wanted).err().map(|e| e.kind());
                ensure!(
                    refused == Some(ErrorKind::InvalidArgument),
                    "opening {name} with others: {refused:?}"
                );
                self.db().keyspace(&name, KeyspaceOptions::default())?;
                self.db().keyspace(&name, keyspace.options().clone())?;
            }
            ensure!(
                self.options.get(&incarnation) == Some(&keyspace.options()),
                "keyspace {name} lost its options: {:?}",
                keyspace.options()
            );
            self.open.insert(name, Open { keyspace, incarnation });
        }
        Ok(())
    }

    /// Bounds of all kinds, sometimes crossed.
    pub(super) fn draw_bounds(&mut self) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
        let mut bound = |open: u64| {
            let key = self.keys.probe(&mut self.rng);
            match self.rng.below(open + 4) {
                0 | 1 => Bound::Included(key),
                2 | 3 => Bound::Excluded(key),
                _ => Bound::Unbounded,
            }
        };
        let (low, high) = (bound(2), bound(2));
        if crate::model::is_empty((low.as_ref().map(Vec::as_slice), high.as_ref().map(Vec::as_slice)))
            && self.rng.chance(7, 8)
        {
            return (high, low);
        }
        (low, high)
    }
}
