//! [`ByTime`]: the entries of a primary tree whose sequence numbers need not be in the order of their times.
//!
//! In a primary tree they are, and walks over versions rely on it. But the tables of a bulk load have in their files the number that was the newest when
//! the load began, and only the manifest says what it became. Without that, an entry that was written meanwhile looks newer than one with a later time.

use base::expiry::without_expiry;
use base::{Cursor, Result, Slice, Time, Trailer, same_key};
use history::split_primary;

/// An entry: its time, its trailer and its value.
type Version = (Time, Trailer, Slice);

/// A cursor that reads forward only, and can sort the entries of each key by time, the latest first. Then it has all entries of one key in memory.
pub(super) struct ByTime<C> {
    cursor: C,
    sorts: bool,
    key: Vec<u8>,
    /// Those of `key` that are left, the latest last.
    versions: Vec<Version>,
}

impl<C: Cursor> ByTime<C> {
    /// `sorts`: whether the order of sequence numbers may be another one.
    pub(super) fn new(cursor: C, sorts: bool) -> ByTime<C> {
        ByTime { cursor, sorts, key: Vec::new(), versions: Vec::new() }
    }

    /// The cursor over the entries.
    pub(super) fn inner(&self) -> &C {
        &self.cursor
    }

    /// Takes the entries of the key on which the cursor stands.
    fn collect(&mut self) -> Result<()> {
        self.versions.clear();
        if !self.sorts || !self.cursor.valid() {
            return Ok(());
        }
        self.key.clear();
        self.key.extend_from_slice(self.cursor.key());
        let mut versions = Vec::new();
        while self.cursor.valid() && same_key(self.cursor.key(), &self.key) {
            let stored = without_expiry(self.cursor.trailer(), self.cursor.value());
            let time =
                stored.and_then(|(stored, _)| split_primary(stored)).map_or(Time::MIN, |(_, time)| time);
            versions.push((time, self.cursor.trailer(), self.cursor.value_slice()));
            self.cursor.next()?;
        }
        let order = |version: &Version| (version.0, version.1.seq());
        versions.sort_by_key(order);
        self.versions = versions;
        Ok(())
    }

    fn version(&self) -> &Version {
        self.versions.last().expect("the cursor is valid")
    }
}

impl<C: Cursor> Cursor for ByTime<C> {
    fn seek_to_first(&mut self) -> Result<()> {
        self.versions.clear();
        self.cursor.seek_to_first()?;
        self.collect()
    }

    fn next(&mut self) -> Result<()> {
        if !self.sorts {
            return self.cursor.next();
        }
        self.versions.pop();
        if self.versions.is_empty() { self.collect() } else { Ok(()) }
    }

    fn valid(&self) -> bool {
        if self.sorts { !self.versions.is_empty() } else { self.cursor.valid() }
    }

    fn key(&self) -> &[u8] {
        if self.sorts { &self.key } else { self.cursor.key() }
    }

    fn trailer(&self) -> Trailer {
        if self.sorts { self.version().1 } else { self.cursor.trailer() }
    }

    fn value(&self) -> &[u8] {
        if self.sorts { &self.version().2 } else { self.cursor.value() }
    }

    fn value_slice(&self) -> Slice {
        if self.sorts { self.version().2.clone() } else { self.cursor.value_slice() }
    }
}
