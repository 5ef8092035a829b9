//! The entries of a size-class table in order: the classes, each of which is sorted, are merged by comparing keys.
//!
//! The position in each class is one number: that of its first row that does not come before the current entry. So a step in either
//! direction moves one of these numbers by one, and a change of direction costs nothing.

use crate::format::decode_error::DecodeError;
use crate::format::rows::{ClassRows, Page, Row};
use base::{Error, Result, Slice, Trailer, head};
use std::cmp::Ordering;

/// Where pages of rows come from.
pub(crate) trait RowPages {
    /// The payload of page `page` of the class with number `class` in the table, which was checked to be this page.
    fn load(&mut self, class: usize, rows: &ClassRows, page: u64) -> Result<Slice>;
    /// The error for a fault in the block at `offset`.
    fn fault(&self, fault: DecodeError, offset: u64) -> Error;
}

/// A page that was loaded.
pub(crate) struct Loaded {
    pub number: u64,
    payload: Slice,
}

impl Loaded {
    pub(crate) fn load(
        pages: &mut impl RowPages,
        class: usize,
        rows: &ClassRows,
        number: u64,
    ) -> Result<Loaded> {
        pages.load(class, rows, number).map(|payload| Loaded { number, payload })
    }

    fn page<'a>(&'a self, pages: &'a impl RowPages, rows: &ClassRows) -> Result<Page<'a>> {
        let offset = rows.handle(self.number).offset;
        Page::parse(&self.payload, rows.seq_shift).map_err(|f| pages.fault(f, offset))
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

/// The number of the first row of a class at or after (`key`, `trailer`); that of all rows if there is none. A plain binary search,
/// first over the first rows of pages, then in one page, which is returned, too.
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
    let (mut low, mut high) = (0, rows.pages());
    while low < high {
        let middle = low + (high - low) / 2;
        let loaded = Loaded::load(pages, class, rows, middle)?;
        let first = loaded.row(pages, rows, 0)?.compare(key, first_head, trailer);
        match first.map_err(|f| pages.fault(f, rows.handle(middle).offset))? {
            Ordering::Less => (low, page) = (middle + 1, Some(loaded)),
            _ => high = middle,
        }
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
        for (class, position) in self.positions.iter_mut().enumerate() {
            let (at, page) = lower_bound(&mut self.pages, class, &position.rows, key, trailer)?;
            (position.at, position.page) = (at, page.or(position.page.take()));
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
        self.current.map(|class| self.row_at(class, self.positions[class].at)).transpose()
    }

    /// Makes the first of the rows at the positions the current entry; `back`: the last of the rows before them.
    #[inline]
    fn select(&mut self, back: bool) -> Result<()> {
        self.current = None;
        let mut best: Option<(usize, u64)> = None;
        for i in 0..self.positions.len() {
            let Position { rows, at, .. } = &self.positions[i];
            let row = if back { at.checked_sub(1) } else { Some(*at) };
            let Some(row) = row.filter(|row| *row < rows.rows) else { continue };
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
    fn load(&mut self, class: usize, row: u64) -> Result<()> {
        let Position { rows, page, .. } = &mut self.positions[class];
        let (number, _) = rows.place(row);
        if page.as_ref().is_none_or(|page| page.number != number) {
            *page = None;
            *page = Some(Loaded::load(&mut self.pages, class, rows, number)?);
        }
        Ok(())
    }

    /// A row whose page is loaded.
    #[inline]
    fn row_at(&self, class: usize, row: u64) -> Result<Row<'_>> {
        let Position { rows, page, .. } = &self.positions[class];
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
        let of = |(class, row): (usize, u64)| -> Result<(&[u8], Trailer)> {
            let found = self.row_at(class, row)?;
            let entry = found.key().and_then(|key| Ok((key, found.trailer()?)));
            entry.map_err(|f| self.fault(class, row, f))
        };
        let ((a, a_trailer), (b, b_trailer)) = (of(a)?, of(b)?);
        Ok(base::compare(a, a_trailer, b, b_trailer))
    }

    fn fault(&self, class: usize, row: u64, fault: DecodeError) -> Error {
        let rows = &self.positions[class].rows;
        self.pages.fault(fault, rows.handle(rows.place(row).0).offset)
    }

    /// The error for a fault in the current row.
    #[cold]
    pub(crate) fn fault_here(&self, fault: DecodeError) -> Error {
        match self.current {
            Some(class) => self.fault(class, self.positions[class].at, fault),
            None => self.pages.fault(fault, 0),
        }
    }
}
