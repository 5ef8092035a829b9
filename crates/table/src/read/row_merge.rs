//! The entries of a size-class table in order: the classes, each of which is sorted, are merged by comparing keys.
//!
//! The position in each class is one number: that of its first row that does not come before the current entry. So a step in either
//! direction moves one of these numbers by one, and a change of direction costs nothing.

use crate::format::decode_error::DecodeError;
use crate::format::rows::{ClassRows, Page, Row};
use base::{Error, Result, Slice, Trailer, head};
use std::cmp::Ordering;
use std::ops::Range;

/// The payload of a page of rows.
pub(crate) enum RowPage {
    /// A pinned one: where it begins, and its length.
    Pinned(usize, usize),
    Own(Slice),
}

/// Where pages of rows come from.
pub(crate) trait RowPages {
    /// Loads page `page` of the class with number `class` in the table, and checks that it is this page.
    fn load(&mut self, class: usize, rows: &ClassRows, page: u64) -> Result<RowPage>;
    /// Pages of the class with this number: those before the range begin before `key`, and those behind it after `key`.
    fn pages_with(&self, class: usize, rows: &ClassRows, key: &[u8]) -> Range<u64> {
        let _ = (class, key);
        0..rows.pages()
    }
    /// The payload of a loaded page.
    fn payload<'a>(&'a self, page: &'a RowPage) -> &'a [u8];
    /// The error for a fault in the block at `offset`.
    fn fault(&self, fault: DecodeError, offset: u64) -> Error;
}

/// A page that was loaded.
pub(crate) struct Loaded {
    pub number: u64,
    page: RowPage,
}

impl Loaded {
    pub(crate) fn load(
        pages: &mut impl RowPages,
        class: usize,
        rows: &ClassRows,
        number: u64,
    ) -> Result<Loaded> {
        pages.load(class, rows, number).map(|page| Loaded { number, page })
    }

    fn page<'a>(&'a self, pages: &'a impl RowPages, rows: &ClassRows) -> Result<Page<'a>> {
        let offset = rows.handle(self.number).offset;
        Page::parse(pages.payload(&self.page)).map_err(|f| pages.fault(f, offset))
    }

    /// Row `i` of the page.
    pub(crate) fn row<'a>(&'a self, pages: &'a impl RowPages, rows: &ClassRows, i: usize) -> Result<Row<'a>> {
        let page = self.page(pages, rows)?;
        if i < page.count {
            return Ok(page.row(i));
        }
        let fault = DecodeError::Corrupt("page of rows does not match the directory");
        Err(pages.fault(fault, rows.handle(self.number).offset))
    }
}

/// The number of the first row of a class at or after (`key`, `trailer`); that of all rows if there is none. A binary search, first over
/// the first rows of pages, then in one page, which is returned, too.
pub(crate) fn lower_bound(
    pages: &mut impl RowPages,
    class: usize,
    rows: &ClassRows,
    key: &[u8],
    trailer: Trailer,
) -> Result<(u64, Option<Loaded>)> {
    let first_head = head(key);
    // The last page that is known to begin before the target.
    let mut page: Option<Loaded> = None;
    let Range { start: mut low, end: mut high } = pages.pages_with(class, rows, key);
    while low < high {
        let middle = low + (high - low) / 2;
        let loaded = Loaded::load(pages, class, rows, middle)?;
        let first = loaded.row(pages, rows, 0)?.compare(key, first_head, trailer);
        match first.map_err(|f| pages.fault(f, rows.handle(middle).offset))? {
            Ordering::Less => (low, page) = (middle + 1, Some(loaded)),
            _ => high = middle,
        }
    }
    if page.is_none() && low > 0 {
        page = Some(Loaded::load(pages, class, rows, low - 1)?);
    }
    let Some(loaded) = &page else { return Ok((0, None)) };
    let inside = loaded.page(pages, rows)?.lower_bound(key, first_head, trailer);
    let inside = inside.map_err(|f| pages.fault(f, rows.handle(loaded.number).offset))?;
    Ok((rows.first_row(loaded.number) + inside as u64, page))
}

/// A position in the rows of one class.
struct Position {
    rows: ClassRows,
    /// The number of the first row that does not come before the current entry.
    at: u64,
    page: Option<Loaded>,
}

/// A position among all rows of a table, in the order of entries; or before the first or after the last.
pub(crate) struct RowMerge<P> {
    pub(crate) pages: P,
    positions: Vec<Position>,
    /// The number of the class with the current entry.
    current: Option<usize>,
}

impl<P: RowPages> RowMerge<P> {
    pub(crate) fn new(pages: P, classes: &[ClassRows]) -> RowMerge<P> {
        let positions = classes.iter().map(|rows| Position { rows: *rows, at: 0, page: None }).collect();
        RowMerge { pages, positions, current: None }
    }

    pub(crate) fn seek_to_first(&mut self) -> Result<()> {
        self.positions.iter_mut().for_each(|position| position.at = 0);
        self.select(false)
    }

    pub(crate) fn seek_to_last(&mut self) -> Result<()> {
        self.positions.iter_mut().for_each(|position| position.at = position.rows.rows);
        self.select(true)
    }

    /// Moves to the first entry at or after (`key`, `trailer`); `before`: to the last one before it.
    pub(crate) fn seek(&mut self, key: &[u8], trailer: Trailer, before: bool) -> Result<()> {
        self.current = None;
        for (class, walk) in self.positions.iter_mut().enumerate() {
            let (at, page) = lower_bound(&mut self.pages, class, &walk.rows, key, trailer)?;
            (walk.at, walk.page) = (at, page.or(walk.page.take()));
        }
        self.select(before)
    }

    /// Frees the memory of pages. Call it after the end only.
    pub(crate) fn release(&mut self) {
        self.positions.iter_mut().for_each(|position| position.page = None);
    }

    pub(crate) fn next(&mut self) -> Result<()> {
        if let Some(current) = self.current {
            self.positions[current].at += 1;
        }
        self.select(false)
    }

    pub(crate) fn prev(&mut self) -> Result<()> {
        self.select(true)
    }

    /// The current entry.
    #[inline]
    pub(crate) fn row(&self) -> Result<Option<Row<'_>>> {
        self.current.map(|walk| self.row_at(walk, self.positions[walk].at)).transpose()
    }

    /// Makes the first of the rows at the positions the current entry; `back`: the last of the rows before them.
    #[inline]
    fn select(&mut self, back: bool) -> Result<()> {
        self.current = None;
        let mut best: Option<(usize, u64)> = None;
        for i in 0..self.positions.len() {
            let walk = &self.positions[i];
            let row = if back { walk.at.checked_sub(1) } else { Some(walk.at) };
            let Some(row) = row.filter(|row| *row < walk.rows.rows) else { continue };
            self.load(i, row)?;
            let better = match best {
                Some((other, other_row)) => {
                    let wanted = if back { Ordering::Greater } else { Ordering::Less };
                    self.compare((i, row), (other, other_row))? == wanted
                }
                None => true,
            };
            if better {
                best = Some((i, row));
            }
        }
        if let Some((i, row)) = best {
            self.positions[i].at = row;
            self.current = Some(i);
        }
        Ok(())
    }

    /// Loads the page of this row.
    #[inline]
    fn load(&mut self, walk: usize, row: u64) -> Result<()> {
        let Position { rows, page, .. } = &mut self.positions[walk];
        let (number, _) = rows.place(row);
        if page.as_ref().is_none_or(|page| page.number != number) {
            *page = None;
            *page = Some(Loaded::load(&mut self.pages, walk, rows, number)?);
        }
        Ok(())
    }

    /// A row whose page is loaded.
    #[inline]
    fn row_at(&self, walk: usize, row: u64) -> Result<Row<'_>> {
        let Position { rows, page, .. } = &self.positions[walk];
        let (number, i) = rows.place(row);
        match page {
            Some(page) if page.number == number => page.row(&self.pages, rows, i),
            // Cannot be: a page is loaded before its rows are used.
            _ => {
                let fault = DecodeError::Corrupt("a page of rows is gone");
                Err(self.pages.fault(fault, rows.handle(number).offset))
            }
        }
    }

    fn compare(&self, a: (usize, u64), b: (usize, u64)) -> Result<Ordering> {
        let of = |(walk, row): (usize, u64)| -> Result<(&[u8], Trailer)> {
            let found = self.row_at(walk, row)?;
            let entry = found.key().and_then(|key| Ok((key, found.trailer()?)));
            entry.map_err(|f| self.fault(walk, row, f))
        };
        let ((a, a_trailer), (b, b_trailer)) = (of(a)?, of(b)?);
        Ok(base::compare(a, a_trailer, b, b_trailer))
    }

    fn fault(&self, walk: usize, row: u64, fault: DecodeError) -> Error {
        let rows = &self.positions[walk].rows;
        self.pages.fault(fault, rows.handle(rows.place(row).0).offset)
    }

    /// The error for a fault in the current row.
    #[cold]
    pub(crate) fn fault_here(&self, fault: DecodeError) -> Error {
        match self.current {
            Some(walk) => self.fault(walk, self.positions[walk].at, fault),
            None => self.pages.fault(fault, 0),
        }
    }
}
