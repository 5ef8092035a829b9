//! A cursor over one table of a version, which marks damage that it meets.

use super::key_range::KeyRange;
use crate::version::LiveTable;
use base::{Cursor, MAX_SEQ, Result, Seq, Slice, Trailer, compare_keys};
use std::sync::Arc;
use table::TableCursor;

/// A cursor over one table. It does not read the file if the table's key range decides a seek, and prevents the
/// deletion of the file.
pub struct LiveTableCursor<C> {
    pub(super) table: Arc<LiveTable>,
    inner: C,
    valid: bool,
    /// Whether the last move was deferred: see [`Cursor::would_block`].
    blocked: bool,
    /// Whether a compaction reads through the cursor.
    merges: bool,
}

impl<C: Cursor> LiveTableCursor<C> {
    /// `merges`: for a compaction. If it fails, later compactions leave the table out.
    pub(crate) fn new(table: Arc<LiveTable>, inner: C, merges: bool) -> Self {
        LiveTableCursor { table, inner, valid: false, blocked: false, merges }
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
                true => self.table.damage.note_merge(e),
                false => self.table.damage.note(e),
            }
        }
        moved
    }
}

impl LiveTableCursor<TableCursor> {
    /// A cursor over a table, for readers of a range, which shows the entries of the range and possibly others.
    pub(crate) fn of(table: &Arc<LiveTable>, range: &KeyRange) -> Self {
        LiveTableCursor::new(table.clone(), table.table.cursor_for(range.wanted(table)), false)
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
        if compare_keys(key, &self.table.meta.largest).is_gt() {
            return self.set_invalid();
        }
        let first = compare_keys(key, &self.table.meta.smallest).is_lt();
        let moved = if first { self.inner.seek_to_first() } else { self.inner.seek(key, seq) };
        self.settle_seek(moved)
    }

    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        if compare_keys(key, &self.table.meta.smallest).is_le() {
            return self.set_invalid();
        }
        let last = compare_keys(key, &self.table.meta.largest).is_gt();
        let moved = if last { self.inner.seek_to_last() } else { self.inner.seek_before(key) };
        self.settle_seek(moved)
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
            _ if !self.valid || self.table.meta.max_seq >= below => self.next(),
            Some(to) => self.seek(to, MAX_SEQ),
            None => self.set_invalid(),
        }
    }

    fn skip_back(&mut self, from: &[u8], below: Seq) -> Result<()> {
        match !self.valid || self.table.meta.max_seq >= below {
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
