//! A cursor over one level of guards.
//!
//! A seek charges the guard that it searches (`charge.rs`).

use super::charge::ReadCharges;
use super::merge::MergeCursor;
use super::table_cursor::LiveTableCursor;
use crate::version::{Guard, Level, LiveTable, key_bounds};
use base::{Cursor, Result, Seq, Slice, Time, Trailer, shared_prefix};
use std::sync::Arc;
use table::{TableCursor, Wanted};

/// The keys that a reader requests, from an inclusive start to an exclusive end. Tables outside of it are not read, so
/// their damage does not affect the reader.
#[derive(Clone, Debug)]
pub struct KeyRange {
    from: Slice,
    to: Option<Slice>,
    /// The hash that the filters of tables have for all keys of the range.
    hash: Option<u64>,
    /// The first time that a query needs.
    since: Option<Time>,
    /// The last time.
    until: Option<Time>,
    /// Only entries with a larger sequence number are wanted.
    newer_than: Seq,
}

impl KeyRange {
    /// The keys in `[from, to)`; `to` of `None` is the end of all keys.
    pub fn new(from: &[u8], to: Option<&[u8]>) -> KeyRange {
        let (from, to) = (Slice::copy_from(from), to.map(Slice::copy_from));
        KeyRange { from, to, hash: None, since: None, until: None, newer_than: 0 }
    }

    /// The same range of keys, all of which have this hash in the filters of tables ([`table::TableOptions::filter_hash`]). Tables whose
    /// filters do not have it are not read.
    pub fn with_hash(self, hash: Option<u64>) -> KeyRange {
        KeyRange { hash, ..self }
    }

    /// The same range of keys, for a query that needs versions that had not ended by then. Tables and blocks that have none are left out where their times tell it.
    pub fn since(self, time: Time) -> KeyRange {
        KeyRange { since: Some(time), ..self }
    }

    /// The same range of keys, for a query that needs no version after this time, neither the end of one before, if that is the next one.
    /// Tables and blocks that begin later are left out where their times tell it.
    pub fn until(self, time: Option<Time>) -> KeyRange {
        KeyRange { until: time, ..self }
    }

    /// The same range of keys, for a reader that wants entries newer than `seq` only. Tables that have none are not read.
    pub fn newer_than(self, seq: Seq) -> KeyRange {
        KeyRange { newer_than: seq, ..self }
    }

    /// What is needed of a table, unless it is everything.
    pub(crate) fn wanted(&self, table: &LiveTable) -> Option<Wanted> {
        let times = table.meta.times?.wanted(self.since, self.until);
        (!times.is_all()).then(|| Wanted { times, from: self.from.clone(), to: self.to.clone() })
    }

    pub(crate) fn meets(&self, table: &LiveTable) -> bool {
        table.overlaps_range(&self.from, self.to.as_deref())
            && table.meta.max_seq > self.newer_than
            && table.meta.times.is_none_or(|times| times.meet(self.since, self.until))
            // A filter that cannot be read: the read of the table meets the error.
            && self.hash.is_none_or(|hash| table.table.may_contain(hash).unwrap_or(true))
    }
}

/// A cursor over the entries of one guard: over its only table, or over its tables, merged. A level cursor holds one of
/// these, so the size of the largest variant costs less than an indirection.
#[allow(clippy::large_enum_variant)]
enum GuardCursor {
    One(LiveTableCursor<TableCursor>),
    Merge(MergeCursor<LiveTableCursor<TableCursor>>),
}

base::delegate_cursor!(GuardCursor { One, Merge });

/// A cursor over one level: guard after guard. It merges the tables of its current guard.
pub struct LevelCursor {
    level: Arc<Level>,
    charges: Arc<ReadCharges>,
    range: KeyRange,
    /// The guards whose ranges meet `range`.
    guards: std::ops::Range<usize>,
    /// Index of the guard that `tables` shows.
    guard: usize,
    tables: GuardCursor,
    /// Whether `tables` belongs to the guard; false before the first move.
    open: bool,
    nonblocking: bool,
    /// Bytes that a deferred seek has read.
    read: u64,
}

impl LevelCursor {
    /// A cursor over `level`. It shows the keys in `range` and possibly others.
    pub fn new(level: Arc<Level>, charges: Arc<ReadCharges>, range: KeyRange) -> LevelCursor {
        let guards = level.overlapping(&range.from, range.to.as_deref());
        let tables = GuardCursor::Merge(MergeCursor::new(Vec::new(), 0));
        LevelCursor {
            level,
            charges,
            range,
            guards,
            guard: 0,
            tables,
            open: false,
            nonblocking: false,
            read: 0,
        }
    }

    /// The guard of the current position.
    pub(super) fn current_guard(&self) -> &Guard {
        &self.level.guards[self.guard]
    }

    fn enter(&mut self, guard: usize) {
        if self.open && self.guard == guard {
            return;
        }
        self.tables = self.guard_cursor(&self.level.guards[guard]);
        (self.guard, self.open) = (guard, true);
        self.tables.set_nonblocking(self.nonblocking);
    }

    /// A cursor over the tables of a guard that have keys in the range.
    fn guard_cursor(&self, guard: &Arc<Guard>) -> GuardCursor {
        let mut tables = guard.tables.iter().filter(|t| self.range.meets(t));
        let (first, second) = (tables.next(), tables.next());
        if let (Some(table), None) = (first, second) {
            return GuardCursor::One(LiveTableCursor::of(table, &self.range));
        }
        let found: Vec<_> = first.into_iter().chain(second).chain(tables).collect();
        let (smallest, largest) = key_bounds(found.iter().copied());
        let children = found.into_iter().map(|t| LiveTableCursor::of(t, &self.range)).collect();
        GuardCursor::Merge(MergeCursor::new(children, shared_prefix(smallest, largest)))
    }

    /// Enters the guard that owns `key`.
    fn enter_at(&mut self, key: &[u8]) {
        self.enter(self.level.find(key));
    }

    /// If the cursor has left the tables of its guard, enters the next guard that has tables, at its first entry. The cursor becomes
    /// invalid if there is none.
    fn forward(&mut self) -> Result<()> {
        while !self.tables.valid() && !self.tables.would_block() && self.guard + 1 < self.guards.end {
            self.enter(self.guard + 1);
            self.tables.seek_to_first()?;
        }
        Ok(())
    }

    fn back(&mut self) -> Result<()> {
        while !self.tables.valid() && !self.tables.would_block() && self.guard > self.guards.start {
            self.enter(self.guard - 1);
            self.tables.seek_to_last()?;
        }
        Ok(())
    }

    /// Charges the guard for a seek, during which this thread has read bytes from files since `read_before`.
    fn charge_seek(&mut self, read_before: u64) {
        let read = table::bytes_read_by_this_thread().wrapping_sub(read_before);
        if self.tables.would_block() {
            self.read += read;
            return;
        }
        let read = read + std::mem::take(&mut self.read);
        self.charges.charge_seek(self.current_guard(), read);
    }
}

impl Cursor for LevelCursor {
    fn seek_to_first(&mut self) -> Result<()> {
        self.enter(self.guards.start);
        self.tables.seek_to_first()?;
        self.forward()
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.enter(self.guards.end - 1);
        self.tables.seek_to_last()?;
        self.back()
    }

    fn seek(&mut self, key: &[u8], seq: Seq) -> Result<()> {
        self.enter_at(key);
        let read_before = table::bytes_read_by_this_thread();
        self.tables.seek(key, seq)?;
        self.charge_seek(read_before);
        self.forward()
    }

    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        self.enter_at(key);
        let read_before = table::bytes_read_by_this_thread();
        self.tables.seek_before(key)?;
        self.charge_seek(read_before);
        self.back()
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        self.tables.next()?;
        match self.tables.valid() {
            true => Ok(()),
            false => self.forward(),
        }
    }

    #[inline]
    fn prev(&mut self) -> Result<()> {
        self.tables.prev()?;
        match self.tables.valid() {
            true => Ok(()),
            false => self.back(),
        }
    }

    fn skip(&mut self, to: Option<&[u8]>, below: Seq) -> Result<()> {
        self.tables.skip(to, below)?;
        self.forward()
    }

    fn skip_back(&mut self, from: &[u8], below: Seq) -> Result<()> {
        self.tables.skip_back(from, below)?;
        self.back()
    }

    fn set_nonblocking(&mut self, on: bool) {
        self.nonblocking = on;
        self.tables.set_nonblocking(on);
    }

    fn would_block(&self) -> bool {
        self.tables.would_block()
    }

    #[inline]
    fn valid(&self) -> bool {
        self.tables.valid()
    }

    #[inline]
    fn key(&self) -> &[u8] {
        self.tables.key()
    }

    #[inline]
    fn trailer(&self) -> Trailer {
        self.tables.trailer()
    }

    #[inline]
    fn value(&self) -> &[u8] {
        self.tables.value()
    }

    fn value_slice(&self) -> Slice {
        self.tables.value_slice()
    }
}
