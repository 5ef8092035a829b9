//! Pages of rows: pinned, through the block cache, or streamed past it; and look-ups in them.

use crate::cache::table_cache;
use crate::format::decode_error::DecodeError;
use crate::format::frame::{self, HEADER_LEN, Handle, Kind};
use crate::format::rows::{ClassRows, Page, PageHeads, SizeClass, ValuePlace};
use crate::read::pinned_rows::PinnedRows;
use crate::read::row_merge::{Loaded, RowPage, RowPages, lower_bound};
use crate::read::table::Table;
use crate::read::window::Window;
use base::planted::{Bug, planted};
use base::{Error, Result, Slice, Trailer};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl RowPages for &Table {
    #[inline]
    fn load(&mut self, _class: usize, rows: &ClassRows, page: u64) -> Result<RowPage> {
        let handle = rows.handle(page);
        if let Some(start) = self.pinned_rows().and_then(|rows| rows.place(handle)) {
            return Ok(RowPage::Pinned(start, handle.size as usize - HEADER_LEN));
        }
        let payload = self.cached(handle, Kind::Rows, handle.size as usize)?;
        rows.page(&payload, page).map_err(|f| Table::fault(self, f, handle.offset))?;
        Ok(RowPage::Own(payload))
    }

    #[inline]
    fn pages_with(&self, class: usize, rows: &ClassRows, key: &[u8]) -> Range<u64> {
        let heads = self.pinned_rows().and_then(|pinned| pinned.heads(class));
        heads.map_or(0..rows.pages(), |heads| heads.pages_with(key))
    }

    #[inline]
    fn payload<'a>(&'a self, page: &'a RowPage) -> &'a [u8] {
        match page {
            RowPage::Own(payload) => payload,
            RowPage::Pinned(start, len) => self.pinned_rows().map_or(&[], |rows| rows.payload(*start, *len)),
        }
    }

    fn fault(&self, fault: DecodeError, offset: u64) -> Error {
        Table::fault(self, fault, offset)
    }
}

/// The pages of a cursor.
pub(crate) struct TablePages {
    pub(crate) table: Arc<Table>,
    /// Windows of the file, one for each class, if the pages are streamed past the cache.
    windows: Option<Vec<Window>>,
}

impl TablePages {
    /// `streams`: past the cache.
    pub(crate) fn new(table: Arc<Table>, streams: Option<usize>) -> TablePages {
        let windows = streams.map(|classes| (0..classes).map(|_| Window::default()).collect());
        TablePages { table, windows }
    }
}

impl RowPages for TablePages {
    fn load(&mut self, class: usize, rows: &ClassRows, page: u64) -> Result<RowPage> {
        let Some(windows) = &mut self.windows else { return (&*self.table).load(class, rows, page) };
        let handle = rows.handle(page);
        let range = windows[class].frame(&self.table, handle.offset, rows.end())?;
        let page = rows.open(&windows[class].bytes[range], self.table.number(), page);
        let page = page.map_err(|f| self.table.fault(f, handle.offset))?;
        Ok(RowPage::Own(Slice::copy_from(page.payload)))
    }

    #[inline]
    fn pages_with(&self, class: usize, rows: &ClassRows, key: &[u8]) -> Range<u64> {
        (&*self.table).pages_with(class, rows, key)
    }

    #[inline]
    fn payload<'a>(&'a self, page: &'a RowPage) -> &'a [u8] {
        match page {
            RowPage::Own(payload) => payload,
            RowPage::Pinned(start, len) => {
                self.table.pinned_rows().map_or(&[], |rows| rows.payload(*start, *len))
            }
        }
    }

    fn fault(&self, fault: DecodeError, offset: u64) -> Error {
        self.table.fault(fault, offset)
    }
}

/// A version that was found: its trailer, and where its value is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FoundRow {
    pub trailer: Trailer,
    pub value: ValuePlace,
}

impl Table {
    /// The newest version of `key` at or after `trailer` in the order of entries: one binary search, in the class of the key.
    pub(crate) fn find_row(
        &self,
        classes: &[ClassRows],
        key: &[u8],
        trailer: Trailer,
    ) -> Result<Option<FoundRow>> {
        let class = SizeClass::of(key.len() + usize::from(planted(Bug::WrongSizeClass)));
        let Some(number) = classes.iter().position(|rows| rows.class == class) else {
            self.note_false_positive()?;
            return Ok(None);
        };
        let (rows, mut pages) = (&classes[number], self);
        let (at, page) = lower_bound(&mut pages, number, rows, key, trailer)?;
        if at == rows.rows {
            self.note_false_positive()?;
            return Ok(None);
        }
        let (wanted, i) = rows.place(at);
        let page = match page.filter(|page| page.number == wanted) {
            Some(page) => page,
            None => Loaded::load(&mut pages, number, rows, wanted)?,
        };
        let offset = rows.handle(wanted).offset;
        let row = page.row(&pages, rows, i)?;
        let entry = row.key().and_then(|found| Ok((found, row.trailer()?)));
        let (found, trailer) = entry.map_err(|f| self.fault(f, offset))?;
        if found != key {
            self.note_false_positive()?;
            return Ok(None);
        }
        Ok(Some(FoundRow { trailer, value: row.value() }))
    }

    /// Checks that a row's value block can lie at `handle`, before memory is allocated for it.
    #[inline]
    pub(crate) fn check_value_block(&self, handle: Handle) -> Result<()> {
        match handle.end() <= self.root()?.footer.data_size {
            true => self.check_handle(handle, frame::MAX_PAYLOAD),
            false => {
                Err(self.fault(DecodeError::Corrupt("a value lies outside the value blocks"), handle.offset))
            }
        }
    }

    /// Counts a key that passed the filter and is not there.
    fn note_false_positive(&self) -> Result<()> {
        if self.root()?.footer.filter.probes > 0 {
            self.tables.counters.add(table_cache::FILTER_FALSE_POSITIVES, 1);
        }
        Ok(())
    }
}

impl Table {
    /// The pinned rows, if the budget allows them.
    #[inline]
    pub(crate) fn pinned_rows(&self) -> Option<&PinnedRows> {
        match self.rows.pinned.get() {
            Some(pinned) => Some(pinned),
            None => self.pin_rows(),
        }
    }

    #[cold]
    fn pin_rows(&self) -> Option<&PinnedRows> {
        if self.rows.is_taken.load(Ordering::Relaxed) {
            return None;
        }
        let root = self.root().ok()?;
        let classes = root.classes();
        let first = classes.first()?;
        let bytes = root.footer.root.offset.checked_sub(first.offset)?;
        if !self.tables.cache.may_pin(bytes) || self.rows.is_taken.swap(true, Ordering::AcqRel) {
            return None;
        }
        let heads: u64 = classes.iter().map(|rows| 8 * rows.pages() + rows.class.width() as u64).sum();
        let Some(pin) = self.tables.cache.pin(bytes + heads) else {
            self.rows.is_taken.store(false, Ordering::Release);
            return None;
        };
        // Errors are ignored here, and not tried again: a read of the damaged page reports them.
        let (pages, heads) = read_rows(self, classes, bytes as usize).ok()?;
        let pinned = PinnedRows { pages, offset: first.offset, heads, _pin: pin };
        Some(self.rows.pinned.get_or_init(|| Box::new(pinned)))
    }
}

/// All pages of rows with their frames, `bytes` together, which are stored one after another, and the heads of the pages of each class.
fn read_rows(table: &Table, classes: &[ClassRows], bytes: usize) -> Result<(Vec<u8>, Vec<PageHeads>)> {
    let (mut all, mut heads) = (Vec::with_capacity(bytes), Vec::new());
    let mut window = Window::default();
    for rows in classes {
        let start = all.len();
        for page in 0..rows.pages() {
            let offset = rows.handle(page).offset;
            let range = window.frame(table, offset, rows.end())?;
            let frame = &window.bytes[range];
            rows.open(frame, table.number(), page).map_err(|f| table.fault(f, offset))?;
            all.extend_from_slice(frame);
        }
        heads.push(page_heads(rows, &all[start..]).map_err(|f| table.fault(f, rows.offset))?);
    }
    Ok((all, heads))
}

/// The heads of the pages of one class. `pages`: all of them, with their frames.
fn page_heads(rows: &ClassRows, pages: &[u8]) -> std::result::Result<PageHeads, DecodeError> {
    let page = |number: u64| {
        let handle = rows.handle(number);
        let start = (handle.offset - rows.offset) as usize;
        Page::parse(&pages[start + frame::HEADER_LEN..start + handle.size as usize])
    };
    let last = page(rows.pages() - 1)?;
    let (smallest, largest) = (page(0)?.row(0).key()?, last.row(last.count - 1).key()?);
    let mut heads = PageHeads::new(smallest, largest, rows.pages() as usize);
    for number in 0..rows.pages() {
        heads.push(page(number)?.row(0).key()?);
    }
    Ok(heads)
}
