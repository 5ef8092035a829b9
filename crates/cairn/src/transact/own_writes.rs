//! The writes of a transaction before its commit.

use crate::state::{Batch, KeyspaceInner};
use crate::types::Bounds;
use crate::wal::Entry;
use base::{EntryKind, MAX_SEQ, MergeOperator, RangeSet, RangeTombstone, Result, Slice, Time};
use std::collections::{BTreeMap, btree_map};
use std::ops::Bound;
use std::sync::Arc;

/// What a transaction has written to one keyspace.
#[derive(Default)]
pub(super) struct OwnWrites {
    entries: BTreeMap<Slice, OwnEntry>,
    /// Ranges that were deleted before what is in `entries` was written.
    deleted: RangeSet,
}

/// What the writes to a key have made of it.
#[derive(Clone)]
pub(super) enum OwnEntry {
    Deleted,
    Value(OwnValue),
    /// This is joined to what the key has in the database.
    Operand(Slice),
}

impl OwnEntry {
    /// Its value, if it is one that has not expired by then.
    pub(super) fn value_at(&self, time: Time) -> Option<&OwnValue> {
        match self {
            OwnEntry::Value(own) => Some(own).filter(|own| own.is_seen(time)),
            OwnEntry::Deleted | OwnEntry::Operand(_) => None,
        }
    }
}

/// A value, and when it expires.
#[derive(Clone)]
pub(super) struct OwnValue {
    pub value: Slice,
    pub expiry: Option<Time>,
}

impl OwnValue {
    /// Whether it has not expired at this time.
    pub(super) fn is_seen(&self, now: Time) -> bool {
        self.expiry.is_none_or(|expiry| expiry > now)
    }
}

/// What the writes of a transaction say of a key.
pub(super) enum Own {
    /// Nothing.
    None,
    Deleted,
    Value(OwnValue),
    /// This is joined to the value in the database.
    Operand(Slice),
}

impl OwnWrites {
    /// Sets a key to a value with an expiry, or deletes it.
    pub(super) fn write(&mut self, key: &[u8], value: Option<(&[u8], Option<Time>)>) {
        self.set(
            key,
            match value {
                Some((value, expiry)) => OwnEntry::Value(OwnValue { value: Slice::copy_from(value), expiry }),
                None => OwnEntry::Deleted,
            },
        );
    }

    /// Notes an operand, which is joined to what was written of the key before.
    pub(super) fn merge(
        &mut self,
        key: &[u8],
        operand: &[u8],
        operator: &dyn MergeOperator,
        now: Time,
    ) -> Result<()> {
        let begin = || OwnEntry::Value(OwnValue { value: Slice::copy_from(operand), expiry: None });
        let joined = match self.entries.get(key) {
            Some(OwnEntry::Value(own)) if own.is_seen(now) => {
                let value = base::join(operator, key, &own.value, operand)?.into();
                OwnEntry::Value(OwnValue { value, expiry: own.expiry })
            }
            Some(OwnEntry::Operand(earlier)) => {
                OwnEntry::Operand(base::join(operator, key, earlier, operand)?.into())
            }
            Some(OwnEntry::Deleted | OwnEntry::Value(_)) => begin(),
            None if self.deletes(key) => begin(),
            None => OwnEntry::Operand(Slice::copy_from(operand)),
        };
        self.set(key, joined);
        Ok(())
    }

    fn set(&mut self, key: &[u8], entry: OwnEntry) {
        match self.entries.get_mut(key) {
            Some(own) => *own = entry,
            None => drop(self.entries.insert(Slice::copy_from(key), entry)),
        }
    }

    pub(super) fn delete_range(&mut self, bounds: &Bounds) {
        let to = bounds.to.as_deref();
        let inside = self.entries.range::<[u8], _>(std_bounds(bounds)).map(|(key, _)| key.clone());
        for key in inside.collect::<Vec<_>>() {
            self.entries.remove(&key);
        }
        let tombstone = RangeTombstone::new(&bounds.from, to.unwrap_or_default(), 1, Time::MIN);
        self.deleted = self.deleted.with(tombstone);
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len() + self.deleted.len()
    }

    /// What is written of a key, at the time of the transaction.
    pub(super) fn get(&self, key: &[u8], now: Time) -> Own {
        match self.entries.get(key) {
            Some(OwnEntry::Value(own)) if own.is_seen(now) => Own::Value(own.clone()),
            Some(OwnEntry::Operand(operand)) => Own::Operand(operand.clone()),
            Some(_) => Own::Deleted,
            None if self.deletes(key) => Own::Deleted,
            None => Own::None,
        }
    }

    /// Whether a range that was deleted has the key.
    pub(super) fn deletes(&self, key: &[u8]) -> bool {
        !self.deleted.is_empty() && self.deleted.newest(key, MAX_SEQ) > 0
    }

    /// Whether the key itself was written.
    pub(super) fn names(&self, key: &[u8]) -> bool {
        self.entries.contains_key(key)
    }

    /// Whether the key was written, or a range that was deleted has it.
    pub(super) fn writes_to(&self, key: &[u8]) -> bool {
        self.names(key) || self.deletes(key)
    }

    /// The value that the key was given, if it has not expired by then.
    pub(super) fn value_at(&self, key: &[u8], time: Time) -> Option<&OwnValue> {
        self.entries.get(key)?.value_at(time)
    }

    /// The parts of `bounds` that were deleted, ascending and apart from each other.
    pub(super) fn deleted_in(&self, bounds: &Bounds) -> Vec<Bounds> {
        let mut ranges = self.deleted.tombstones();
        ranges.sort_by(|a, b| a.from.cmp(&b.from));
        let mut parts: Vec<Bounds> = Vec::new();
        for range in ranges {
            let Some(part) = bounds.part(&range.from, range.to.as_deref()) else { continue };
            match parts.last_mut().filter(|last| last.to.as_ref().is_none_or(|to| *to >= part.from)) {
                Some(last) => last.to = last.to.take().zip(part.to).map(|(a, b)| a.max(b)),
                None => parts.push(part),
            }
        }
        parts
    }

    pub(super) fn range(&self, bounds: &Bounds) -> btree_map::Range<'_, Slice, OwnEntry> {
        self.entries.range::<[u8], _>(std_bounds(bounds))
    }

    /// Adds the writes to a batch.
    pub(super) fn push_to(&self, keyspace: &Arc<KeyspaceInner>, batch: &mut Batch) {
        for RangeTombstone { from, to, .. } in self.deleted.tombstones() {
            let to = to.as_deref().unwrap_or_default();
            batch.push(keyspace, Entry::new(EntryKind::DeleteRange, &from, to));
        }
        for (key, value) in &self.entries {
            match value {
                OwnEntry::Value(own) => batch.push(keyspace, Entry::put(key, &own.value).until(own.expiry)),
                OwnEntry::Operand(operand) => batch.push(keyspace, Entry::merge(key, operand)),
                OwnEntry::Deleted => batch.push(keyspace, Entry::delete(key)),
            }
        }
    }
}

/// What an operand of the transaction makes of the value that is stored.
pub(super) fn join(
    keyspace: &KeyspaceInner,
    key: &[u8],
    stored: Option<Slice>,
    operand: Slice,
) -> Result<Slice> {
    match stored {
        None => Ok(operand),
        Some(stored) => base::join(keyspace.known_operator()?, key, &stored, &operand).map(Slice::from),
    }
}

/// The same range, but that a range whose end lies before its start is empty.
fn std_bounds(bounds: &Bounds) -> (Bound<&[u8]>, Bound<&[u8]>) {
    let from = &bounds.from[..];
    let to = bounds.to.as_deref().map(|to| to.max(from));
    (Bound::Included(from), to.map_or(Bound::Unbounded, Bound::Excluded))
}
