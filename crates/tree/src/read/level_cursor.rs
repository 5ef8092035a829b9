//! Cursors over the tables of a version: over one table, over one level, and the list of sources that the library
//! merges with its memtables.
//!
//! A seek charges the guard that it searches (`read_charge.rs`). Cursors change nothing else but the marks of tables:
//! damage that a read has met, and the number of blocks that seeks have read from small levels.

use crate::read::charge::{LEVEL0_LOOK, ReadCharges};
use crate::read::merge::{MergeCursor, shared_prefix};
use crate::version::{Guard, Level, LiveTable, Version};
use base::{Cursor, MAX_SEQ, Result, Seq, Slice, Trailer, compare_keys};
use std::sync::Arc;
use table::TableCursor;

/// A cursor over one table. It does not read the file if the table's key range decides a seek, and prevents the
/// deletion of the file.
pub struct LiveTableCursor<C> {
    file: Arc<LiveTable>,
    inner: C,
    valid: bool,
    /// Whether the last move was deferred: see [`Cursor::would_block`].
    blocked: bool,
    /// Whether a compaction reads through the cursor.
    merges: bool,
    /// Whether the table belongs to a level (or level 0) that is small compared to the levels below.
    small: bool,
}

impl<C: Cursor> LiveTableCursor<C> {
    pub(crate) fn new(file: Arc<LiveTable>, inner: C) -> Self {
        LiveTableCursor { file, inner, valid: false, blocked: false, merges: false, small: false }
    }

    /// For a compaction. If it fails, later compactions leave the table out.
    pub(crate) fn for_merging(file: Arc<LiveTable>, inner: C) -> Self {
        LiveTableCursor { file, inner, valid: false, blocked: false, merges: true, small: false }
    }

    /// Sets whether the level is small compared to the levels below: see [`LiveTable::note_seek_reads`].
    pub(crate) fn small_level(self, small: bool) -> Self {
        LiveTableCursor { small, ..self }
    }

    /// Runs a seek in the table.
    fn seeking(&mut self, seek: impl FnOnce(&mut C) -> Result<()>) -> Result<()> {
        let before = table::blocks_read_by_this_thread();
        let moved = seek(&mut self.inner);
        if self.small {
            self.file.note_seek_reads(table::blocks_read_by_this_thread().wrapping_sub(before));
        }
        self.settle_seek(moved)
    }

    /// The table's key range shows that there is no such entry.
    fn set_invalid(&mut self) -> Result<()> {
        (self.valid, self.blocked) = (false, false);
        Ok(())
    }

    /// Handles the result of a seek, which may be deferred.
    fn settle_seek(&mut self, moved: Result<()>) -> Result<()> {
        let moved = self.settle(moved);
        self.blocked = moved.is_ok() && self.inner.would_block();
        moved
    }

    /// Handles the result of a move. A single step is never deferred.
    #[inline]
    fn settle(&mut self, moved: Result<()>) -> Result<()> {
        self.valid = moved.is_ok() && self.inner.valid();
        if let Err(e) = &moved {
            match self.merges {
                true => self.file.note_failed_merge(e),
                false => self.file.note_damage(e),
            }
        }
        moved
    }
}

impl<C: Cursor> Cursor for LiveTableCursor<C> {
    fn seek_to_first(&mut self) -> Result<()> {
        let moved = self.inner.seek_to_first();
        self.settle_seek(moved)
    }

    fn seek_to_last(&mut self) -> Result<()> {
        let moved = self.inner.seek_to_last();
        self.settle_seek(moved)
    }

    fn seek(&mut self, key: &[u8], seq: Seq) -> Result<()> {
        if compare_keys(key, &self.file.meta.largest).is_gt() {
            return self.set_invalid();
        }
        let first = compare_keys(key, &self.file.meta.smallest).is_lt();
        self.seeking(|inner| if first { inner.seek_to_first() } else { inner.seek(key, seq) })
    }

    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        if compare_keys(key, &self.file.meta.smallest).is_le() {
            return self.set_invalid();
        }
        let last = compare_keys(key, &self.file.meta.largest).is_gt();
        self.seeking(|inner| if last { inner.seek_to_last() } else { inner.seek_before(key) })
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        let moved = self.inner.next();
        self.settle(moved)
    }

    #[inline]
    fn prev(&mut self) -> Result<()> {
        let moved = self.inner.prev();
        self.settle(moved)
    }

    fn skip(&mut self, to: Option<&[u8]>, below: Seq) -> Result<()> {
        match to {
            _ if !self.valid || self.file.meta.max_seq >= below => self.next(),
            Some(to) => self.seek(to, MAX_SEQ),
            None => self.set_invalid(),
        }
    }

    fn skip_back(&mut self, from: &[u8], below: Seq) -> Result<()> {
        match !self.valid || self.file.meta.max_seq >= below {
            true => self.prev(),
            false => self.seek_before(from),
        }
    }

    #[inline]
    fn set_nonblocking(&mut self, on: bool) {
        self.inner.set_nonblocking(on);
    }

    #[inline]
    fn would_block(&self) -> bool {
        self.blocked
    }

    #[inline]
    fn valid(&self) -> bool {
        self.valid
    }

    #[inline]
    fn key(&self) -> &[u8] {
        self.inner.key()
    }

    #[inline]
    fn trailer(&self) -> Trailer {
        self.inner.trailer()
    }

    #[inline]
    fn value(&self) -> &[u8] {
        self.inner.value()
    }

    fn value_slice(&self) -> Slice {
        self.inner.value_slice()
    }
}

/// The keys that a reader requests, from an inclusive start to an exclusive end. Tables outside of it are not read, so
/// their damage does not affect the reader.
#[derive(Clone, Debug)]
pub struct KeyRange {
    from: Slice,
    to: Option<Slice>,
}

impl KeyRange {
    /// The keys in `[from, to)`; `to` of `None` is the end of all keys.
    pub fn new(from: &[u8], to: Option<&[u8]>) -> KeyRange {
        KeyRange { from: Slice::copy_from(from), to: to.map(Slice::copy_from) }
    }

    pub(crate) fn meets(&self, table: &LiveTable) -> bool {
        table.overlaps_range(&self.from, self.to.as_deref())
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
    size: LevelSize,
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
        let (size, open) = (LevelSize::default(), false);
        LevelCursor {
            level,
            charges,
            range,
            size,
            guards,
            guard: 0,
            tables,
            open,
            nonblocking: false,
            read: 0,
        }
    }

    /// Sets the size of the level.
    fn with_size(self, size: LevelSize) -> LevelCursor {
        LevelCursor { size, ..self }
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
        let child = |t: &Arc<LiveTable>| self.size.cursor(t);
        let mut tables = guard.tables.iter().filter(|t| self.range.meets(t));
        if let (Some(table), None) = (tables.next(), tables.next()) {
            return GuardCursor::One(child(table));
        }
        let tables = || guard.tables.iter().filter(|t| self.range.meets(t));
        let smallest = tables().map(|t| &t.meta.smallest[..]).min().unwrap_or(&[]);
        let largest = tables().map(|t| &t.meta.largest[..]).max().unwrap_or(&[]);
        let children = tables().map(child).collect();
        GuardCursor::Merge(MergeCursor::new(children, shared_prefix(smallest, largest)))
    }

    /// Enters the guard that owns `key`.
    fn enter_at(&mut self, key: &[u8]) {
        self.enter(self.level.find(key));
    }

    /// Enters the next guard that has tables, at its first entry. The cursor becomes invalid if there is none.
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
        self.charges.charge_seek(&self.level.guards[self.guard], read);
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
    fn next_key(&mut self) -> Result<()> {
        self.tables.next_key()?;
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
        match self.tables.valid() {
            true => Ok(()),
            false => self.forward(),
        }
    }

    fn skip_back(&mut self, from: &[u8], below: Seq) -> Result<()> {
        self.tables.skip_back(from, below)?;
        match self.tables.valid() {
            true => Ok(()),
            false => self.back(),
        }
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

/// The size of a level (or level 0), as far as cursors over its tables depend on it.
#[derive(Clone, Copy, Default)]
pub(crate) struct LevelSize {
    /// Whether it is small compared to the levels below: its tables are loaded for seeks ([`LiveTable::note_seek_reads`]).
    small: bool,
    /// Its bytes.
    bytes: u64,
}

/// A level is small compared to the levels below, or to the block cache, when these have at least this many times its bytes.
const SMALL_LEVEL_FACTOR: u64 = 4;

impl LevelSize {
    /// For a level of `bytes` bytes, with `below` bytes in the levels below.
    pub(crate) fn new(bytes: u64, below: u64) -> LevelSize {
        LevelSize { small: bytes <= below / SMALL_LEVEL_FACTOR, bytes }
    }

    /// Whether it is also small compared to the block cache. Then the cache admits all blocks that seeks read of its tables, because every
    /// seek reads this level and needs all of it soon.
    fn is_kept(self, file: &LiveTable) -> bool {
        self.small && self.bytes <= file.table.tables().cache().capacity() / SMALL_LEVEL_FACTOR
    }

    pub(crate) fn cursor(self, file: &Arc<LiveTable>) -> LiveTableCursor<TableCursor> {
        LiveTableCursor::new(file.clone(), file.table.cursor().fill_cache(self.is_kept(file)))
            .small_level(self.small)
    }
}

/// A sorted run of a version.
pub enum TreeSource {
    /// A table of level 0.
    Table(LiveTableCursor<TableCursor>),
    /// A level of guards.
    Level(LevelCursor),
}

impl TreeSource {
    /// Charges deleted entries, which a cursor has skipped, to the table or guard where it stands.
    pub fn charge_skipped(&self, bytes: u64, charges: &ReadCharges) {
        match self {
            TreeSource::Table(cursor) => charges.charge(&cursor.file.charges, bytes, LEVEL0_LOOK),
            TreeSource::Level(cursor) => {
                let guard = &cursor.level.guards[cursor.guard];
                charges.charge(&guard.charges, bytes, guard.price(0));
            }
        }
    }
}

impl Version {
    /// The largest number of cursors that [`Version::sources`] returns.
    pub fn runs(&self) -> usize {
        self.level0.len() + self.levels.iter().filter(|l| l.tables() > 0).count()
    }

    /// Cursors over every table of level 0 that has keys in `range`, and over every level that has tables; not yet positioned.
    pub fn sources<'a>(
        &'a self,
        charges: &'a Arc<ReadCharges>,
        range: &'a KeyRange,
    ) -> impl Iterator<Item = TreeSource> + 'a {
        let mut below: u64 = self.levels.iter().map(|l| l.bytes()).sum();
        let level0_bytes: u64 = self.level0.iter().map(|t| t.meta.file_size).sum();
        let size = LevelSize::new(level0_bytes, below);
        let level0 = self.level0.iter().filter(|t| range.meets(t)).map(move |t| size.cursor(t));
        let levels = self.levels.iter().filter(|l| l.tables() > 0);
        let levels = levels.map(move |l| {
            below -= l.bytes();
            LevelCursor::new(l.clone(), charges.clone(), range.clone())
                .with_size(LevelSize::new(l.bytes(), below))
        });
        level0.map(TreeSource::Table).chain(levels.map(TreeSource::Level))
    }
}

base::delegate_cursor!(TreeSource { Table, Level });
