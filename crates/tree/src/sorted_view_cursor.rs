//! A cursor over a guard by way of its view.
//!
//! It stands between two entries of the merged order, by number, and knows for each table how many of its entries lie before. So
//! moving is counting: forward it takes the next entry of the table that the selector names, back the one before, and turning
//! round costs nothing. Tables are opened when an entry of theirs is first needed.

use crate::cursor::KeyRange;
use crate::sorted_view::SortedView;
use crate::version::{Guard, TableFile};
use base::{Cursor, Error, MAX_SEQ, Result, Seq, Slice, Trailer, compare};
use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;
use table::PlaceCursor;

/// See the top of the file, and [`base::Cursor`].
pub struct SortedViewCursor {
    guard: Arc<Guard>,
    view: Arc<SortedView>,
    runs: Vec<RunCursor>,
    /// Number of the entry that it stands on, or would if it were valid.
    at: usize,
    /// The run of that entry.
    run: usize,
    valid: bool,
    /// Whether it may not wait for the disk, and whether the last move was put off for that.
    hurry: bool,
    waits: bool,
    /// See [`PlaceCursor::fill_cache`].
    keeps: bool,
    error: Option<Error>,
    /// What it stood on last, to check that the order is one.
    #[cfg(debug_assertions)]
    before: Option<(usize, Vec<u8>, Trailer)>,
}

struct RunCursor {
    cursor: Option<PlaceCursor>,
    /// Entries of the table that lie before `at`.
    entries: u32,
    /// The block that was asked for last.
    block: usize,
    /// The table has no keys in the range that somebody wants to see: its entries are passed over, and it is left alone.
    hidden: bool,
}

impl SortedViewCursor {
    pub(crate) fn new(guard: Arc<Guard>, view: Arc<SortedView>, range: &KeyRange) -> SortedViewCursor {
        debug_assert_eq!(guard.tables.len(), view.runs(), "a view of another guard");
        let run =
            |t: &Arc<TableFile>| RunCursor { cursor: None, entries: 0, block: 0, hidden: !range.meets(t) };
        let runs = guard.tables.iter().map(run).collect();
        SortedViewCursor {
            guard,
            view,
            runs,
            at: 0,
            run: 0,
            valid: false,
            hurry: false,
            waits: false,
            keeps: false,
            error: None,
            #[cfg(debug_assertions)]
            before: None,
        }
    }

    /// The same, whose blocks are to be cached, or not: see [`PlaceCursor::fill_cache`].
    pub(crate) fn fill_cache(self, keeps: bool) -> SortedViewCursor {
        SortedViewCursor { keeps, ..self }
    }

    /// Goes before entry `at`, without looking at it.
    fn go(&mut self, at: usize) {
        self.at = at;
        let runs = &mut self.runs;
        self.view.entries_before(at, |run, entries| runs[run].entries = entries);
    }

    /// Lets the run of entry `at` stand on it; in a hurry it may have to wait.
    #[inline]
    fn stand(&mut self) -> Result<()> {
        self.run = self.view.run(self.at);
        let run = &mut self.runs[self.run];
        let (block, entry) = self.view.place(self.run, run.entries, &mut run.block);
        let file = &self.guard.tables[self.run];
        let cursor = run.cursor.get_or_insert_with(|| file.table.places().fill_cache(self.keeps));
        if self.hurry {
            cursor.set_nonblocking(true);
            let stood = cursor.stand_at(block, entry);
            cursor.set_nonblocking(false);
            self.waits = stood.is_ok() && cursor.would_block();
            return stood.inspect_err(|e| file.note_damage(e));
        }
        cursor.stand_at(block, entry).inspect_err(|e| file.note_damage(e))
    }

    #[inline]
    fn advance(&mut self) {
        self.runs[self.view.run(self.at)].entries += 1;
        self.at += 1;
    }

    #[inline]
    fn retreat(&mut self) {
        self.at -= 1;
        self.runs[self.view.run(self.at)].entries -= 1;
    }

    /// Stands on the first entry at or behind `at` that is to be seen.
    #[inline]
    fn land(&mut self) -> Result<()> {
        while self.at < self.view.len() {
            if !self.runs[self.view.run(self.at)].hidden {
                return self.settle();
            }
            self.advance();
        }
        Ok(())
    }

    /// Stands on the last entry before `at` that is to be seen.
    fn land_before(&mut self) -> Result<()> {
        while self.at > 0 {
            self.retreat();
            if !self.runs[self.view.run(self.at)].hidden {
                return self.settle();
            }
        }
        Ok(())
    }

    #[inline]
    fn settle(&mut self) -> Result<()> {
        self.stand()?;
        if self.waits {
            return Ok(());
        }
        self.valid = true;
        #[cfg(debug_assertions)]
        self.check_order();
        Ok(())
    }

    #[cfg(debug_assertions)]
    fn check_order(&mut self) {
        let (key, trailer) = (self.key().to_vec(), self.trailer());
        if let Some((at, before, older)) = &self.before {
            let order = compare(before, *older, &key, trailer);
            assert_eq!(order, at.cmp(&self.at), "a view has entries in the wrong order");
        }
        self.before = Some((self.at, key, trailer));
    }

    /// The first entry at or after a target; if it has to wait, any.
    fn find(&mut self, key: &[u8], trailer: Trailer) -> Result<usize> {
        self.view.touch();
        let Range { mut start, mut end } = self.view.narrow(key, trailer);
        while start < end {
            let middle = start + (end - start) / 2;
            let order = self.compare_at(middle, key, trailer)?;
            if self.waits {
                break;
            }
            match order {
                Ordering::Less => start = middle + 1,
                _ => end = middle,
            }
        }
        Ok(start)
    }

    /// Compares entry `at` with a target. A table that is hidden is left alone where its bounds decide.
    fn compare_at(&mut self, at: usize, key: &[u8], trailer: Trailer) -> Result<Ordering> {
        let run = self.view.run(at);
        if self.runs[run].hidden {
            let meta = &self.guard.tables[run].meta;
            if &meta.largest[..] < key {
                return Ok(Ordering::Less);
            }
            if compare(&meta.smallest, Trailer::seek(meta.max_seq), key, trailer) == Ordering::Greater {
                return Ok(Ordering::Greater);
            }
        }
        self.go(at);
        self.stand()?;
        if self.waits {
            return Ok(Ordering::Equal);
        }
        Ok(compare(self.key(), self.trailer(), key, trailer))
    }

    /// Whether all that the guard has is older than `below`.
    fn is_older_than(&self, below: Seq) -> bool {
        self.guard.tables.iter().all(|t| t.meta.max_seq < below)
    }

    /// Runs a move that decides anew whether the cursor stands somewhere.
    #[inline]
    fn moving(&mut self, run: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        self.valid = false;
        self.waits = false;
        self.error = None;
        run(self).inspect_err(|e| self.error = Some(e.clone()))
    }

    /// What a step reports when the cursor stands nowhere.
    #[cold]
    fn nowhere(&self) -> Result<()> {
        debug_assert!(self.error.is_some(), "a step from nowhere");
        self.error.clone().map_or(Ok(()), Err)
    }

    fn current(&self) -> Option<&PlaceCursor> {
        self.runs[self.run].cursor.as_ref()
    }
}

impl Cursor for SortedViewCursor {
    fn seek_to_first(&mut self) -> Result<()> {
        self.moving(|c| {
            c.go(0);
            c.land()
        })
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.moving(|c| {
            c.go(c.view.len());
            c.land_before()
        })
    }

    fn seek(&mut self, key: &[u8], seq: Seq) -> Result<()> {
        self.moving(|c| {
            let at = c.find(key, Trailer::seek(seq))?;
            if c.waits {
                return Ok(());
            }
            c.go(at);
            c.land()
        })
    }

    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        self.moving(|c| {
            let at = c.find(key, Trailer::seek(MAX_SEQ))?;
            if c.waits {
                return Ok(());
            }
            c.go(at);
            c.land_before()
        })
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        if !self.valid {
            return self.nowhere();
        }
        self.moving(|c| {
            c.advance();
            c.land()
        })
    }

    #[inline]
    fn next_key(&mut self) -> Result<()> {
        if !self.valid {
            return self.nowhere();
        }
        self.moving(|c| {
            c.advance();
            while c.at < c.view.len() && c.view.is_older_version(c.at) {
                c.advance();
            }
            c.land()
        })
    }

    #[inline]
    fn prev(&mut self) -> Result<()> {
        if !self.valid {
            return self.nowhere();
        }
        self.moving(Self::land_before)
    }

    fn skip(&mut self, to: Option<&[u8]>, below: Seq) -> Result<()> {
        if !self.valid || !self.is_older_than(below) {
            return self.next();
        }
        match to {
            Some(to) => self.seek(to, MAX_SEQ),
            None => self.moving(|c| {
                c.go(c.view.len());
                Ok(())
            }),
        }
    }

    fn skip_back(&mut self, from: &[u8], below: Seq) -> Result<()> {
        if !self.valid || !self.is_older_than(below) {
            return self.prev();
        }
        self.seek_before(from)
    }

    fn set_nonblocking(&mut self, on: bool) {
        self.hurry = on;
    }

    fn would_block(&self) -> bool {
        self.waits
    }

    #[inline]
    fn valid(&self) -> bool {
        self.valid
    }

    #[inline]
    fn key(&self) -> &[u8] {
        self.current().map_or(&[], PlaceCursor::key)
    }

    #[inline]
    fn trailer(&self) -> Trailer {
        self.current().map_or(Trailer(0), PlaceCursor::trailer)
    }

    #[inline]
    fn value(&self) -> &[u8] {
        self.current().map_or(&[], PlaceCursor::value)
    }

    fn value_slice(&self) -> Slice {
        self.current().map_or_else(Slice::default, PlaceCursor::value_slice)
    }
}
