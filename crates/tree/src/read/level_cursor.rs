//! A cursor over one level of guards.
//!
//! A seek charges the guard that it searches (`charge.rs`).

use super::charge::ReadCharges;
use super::key_range::KeyRange;
use super::merge::MergeCursor;
use super::table_cursor::LiveTableCursor;
use crate::version::{Guard, Level, key_bounds};
use base::{Cursor, Result, Seq, Slice, Trailer, shared_prefix};
use std::sync::Arc;
use table::TableCursor;

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
