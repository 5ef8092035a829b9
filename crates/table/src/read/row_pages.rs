//! Pages of rows, through the block cache or streamed past it; and look-ups in them.

use crate::cache::table_cache;
use crate::format::decode_error::DecodeError;
use crate::format::frame::{self, Handle, Kind};
use crate::format::rows::{ClassRows, SizeClass, ValuePlace};
use crate::read::row_merge::{Loaded, RowPages, lower_bound};
use crate::read::table::Table;
use crate::read::window::Window;
use base::planted::{Bug, planted};
use base::{Error, Result, Slice, Trailer};
use std::sync::Arc;

impl RowPages for &Table {
    fn load(&mut self, _class: usize, rows: &ClassRows, page: u64) -> Result<Slice> {
        let handle = rows.handle(page);
        let payload = self.cached(handle, Kind::Rows, handle.size as usize)?;
        rows.page(&payload, page).map_err(|f| Table::fault(self, f, handle.offset))?;
        Ok(payload)
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
    fn load(&mut self, class: usize, rows: &ClassRows, page: u64) -> Result<Slice> {
        let Some(windows) = &mut self.windows else { return (&*self.table).load(class, rows, page) };
        let handle = rows.handle(page);
        let range = windows[class].frame(&self.table, handle.offset, rows.end())?;
        let page = rows.open(&windows[class].bytes[range], self.table.number(), page);
        let page = page.map_err(|f| self.table.fault(f, handle.offset))?;
        Ok(Slice::copy_from(page.payload))
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
    /// The newest version of `key` at or after `trailer` in the order of entries: one binary search, in the class of the key. `pages` are those
    /// of this table.
    pub(crate) fn find_row(
        &self,
        pages: &mut impl RowPages,
        classes: &[ClassRows],
        key: &[u8],
        trailer: Trailer,
    ) -> Result<Option<FoundRow>> {
        let class = SizeClass::of(key.len() + usize::from(planted(Bug::WrongSizeClass)));
        let Some(number) = classes.iter().position(|rows| rows.class == class) else {
            self.note_false_positive()?;
            return Ok(None);
        };
        let rows = &classes[number];
        let (at, page) = lower_bound(pages, number, rows, key, trailer)?;
        if at == rows.rows {
            self.note_false_positive()?;
            return Ok(None);
        }
        let (wanted, i) = rows.place(at);
        let page = match page.filter(|page| page.number == wanted) {
            Some(page) => page,
            None => Loaded::load(pages, number, rows, wanted)?,
        };
        let offset = rows.handle(wanted).offset;
        let row = page.row(pages, rows, i)?;
        let entry = row.key().and_then(|found| Ok((found, row.trailer()?)));
        let (found, trailer) = entry.map_err(|f| self.fault(f, offset))?;
        if found != key {
            self.note_false_positive()?;
            return Ok(None);
        }
        Ok(Some(FoundRow { trailer, value: row.value() }))
    }

    /// Checks that a row's value block can lie at `handle`, before memory is allocated for it, and before the cache is asked for a block at this
    /// offset: beyond the value blocks it may have others.
    #[inline]
    pub(crate) fn check_value_block(&self, handle: Handle) -> Result<()> {
        let has_payload = handle.size as usize > frame::HEADER_LEN;
        match has_payload && handle.end() <= self.root()?.footer.data_size {
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
