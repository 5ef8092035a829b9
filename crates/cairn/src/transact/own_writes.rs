//! The writes of a transaction before its commit.

use crate::state::{Batch, KeyspaceInner};
use crate::types::Bounds;
use crate::wal::Entry;
use base::{EntryKind, MAX_SEQ, RangeSet, RangeTombstone, Slice, Time};
use std::collections::{BTreeMap, btree_map};
use std::ops::Bound;
use std::sync::Arc;

/// What a transaction has written to one keyspace.
#[derive(Default)]
pub(super) struct OwnWrites {
    /// The newest write to each key; `None` is a delete.
    entries: BTreeMap<Slice, Option<OwnValue>>,
    /// Ranges that were deleted before what is in `entries` was written.
    deleted: RangeSet,
}

/// A value, and when it expires.
#[derive(Clone)]
pub(super) struct OwnValue {
    pub value: Slice,
    pub expiry: Option<Time>,
}

impl OwnValue {
    /// Whether it had not expired at the time of the transaction.
    pub(super) fn is_seen(&self, now: Time) -> bool {
        self.expiry.is_none_or(|expiry| expiry > now)
    }
}

/// What the writes of a transaction say of a key.
pub(super) enum Own {
    /// Nothing.
    None,
    Deleted,
    Value(Slice),
}

impl OwnWrites {
    /// Sets a key to a value with an expiry, or deletes it.
    pub(super) fn write(&mut self, key: &[u8], value: Option<(&[u8], Option<Time>)>) {
        let value = value.map(|(value, expiry)| OwnValue { value: Slice::copy_from(value), expiry });
        match self.entries.get_mut(key) {
            Some(own) => *own = value,
            None => drop(self.entries.insert(Slice::copy_from(key), value)),
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
            Some(Some(own)) if own.is_seen(now) => Own::Value(own.value.clone()),
            Some(_) => Own::Deleted,
            None if self.deletes(key) => Own::Deleted,
            None => Own::None,
        }
    }

    /// Whether a range that was deleted has the key.
    pub(super) fn deletes(&self, key: &[u8]) -> bool {
        !self.deleted.is_empty() && self.deleted.newest(key, MAX_SEQ) > 0
    }

    pub(super) fn range(&self, bounds: &Bounds) -> btree_map::Range<'_, Slice, Option<OwnValue>> {
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
                Some(own) => batch.push(keyspace, Entry::put(key, &own.value).until(own.expiry)),
                None => batch.push(keyspace, Entry::delete(key)),
            }
        }
    }
}

/// The same range, but that a range whose end lies before its start is empty.
fn std_bounds(bounds: &Bounds) -> (Bound<&[u8]>, Bound<&[u8]>) {
    let from = &bounds.from[..];
    let to = bounds.to.as_deref().map(|to| to.max(from));
    (Bound::Included(from), to.map_or(Bound::Unbounded, Bound::Excluded))
}
