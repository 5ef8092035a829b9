//! Verification of a size-class table: each page of rows, then all entries in order, with their values. The values must fill the value
//! blocks, in the order of the entries.

use crate::check::checked_entries::{CheckedEntries, check_zeros, read_block};
use crate::format::decode_error::DecodeError;
use crate::format::frame::Handle;
use crate::format::rows::{ClassRows, Page, ValuePlace};
use crate::read::row_merge::RowMerge;
use crate::read::row_pages::TablePages;
use crate::read::table::Table;
use base::{Result, Slice};
use std::sync::Arc;

/// Rows after which a verification reports, if they have no values.
const ROWS_PER_STEP: u64 = 1024;

/// Checks rows and values of a size-class table.
pub(super) fn verify_rows(
    table: &Arc<Table>,
    classes: &[ClassRows],
    entries: &mut CheckedEntries,
    step: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<()> {
    let footer = table.root()?.footer;
    let (mut end, mut done) = (footer.index_start(), 0);
    for rows in classes {
        check_zeros(table, end, rows.offset)?;
        for page in 0..rows.pages() {
            check_page(table, rows, page)?;
            done += u64::from(rows.handle(page).size);
            step(done)?;
        }
        end = rows.end();
    }
    let pages = TablePages::new(Arc::clone(table), Some(classes.len()));
    let mut rows = RowMerge::new(pages, classes);
    let mut values = Values { table, block: None, at: 0, next: 0 };
    rows.seek_to_first()?;
    let mut count = 0u64;
    while let Some(row) = rows.row()? {
        let entry = row.key().and_then(|key| Ok((key, row.trailer()?)));
        let (key, trailer) = entry.map_err(|f| rows.fault_here(f))?;
        let before = values.next;
        let value = values.take(row.value())?;
        entries.add(key, trailer, value).map_err(|f| rows.fault_here(f))?;
        count += 1;
        if values.next != before || count.is_multiple_of(ROWS_PER_STEP) {
            step((done + values.next).min(table.file_size()))?;
        }
        rows.next()?;
    }
    values.end_block()?;
    match values.next == footer.data_size {
        true => Ok(()),
        false => Err(table.fault(DecodeError::Corrupt("a value block without rows"), values.next)),
    }
}

/// Checks a page alone: that its rows belong to its class, and that all other bytes are zeros.
fn check_page(table: &Table, rows: &ClassRows, page: u64) -> Result<()> {
    let handle = rows.handle(page);
    let frame = table.read_frame(handle, handle.size as usize)?;
    let canonical = |page: Page<'_>| {
        (0..page.count).try_fold(page.ends_with_zeros(), |all, i| Ok(page.row(i).is_canonical()? && all))
    };
    match rows.open(&frame, table.number(), page).and_then(canonical) {
        Ok(true) => Ok(()),
        Ok(false) => {
            Err(table.fault(DecodeError::Corrupt("a page of rows has bytes of no row"), handle.offset))
        }
        Err(fault) => Err(table.fault(fault, handle.offset)),
    }
}

/// The value blocks, which are taken value by value.
struct Values<'a> {
    table: &'a Table,
    block: Option<(Handle, Slice)>,
    /// Where the next value begins in the block.
    at: usize,
    /// Where the next block begins in the file.
    next: u64,
}

impl Values<'_> {
    /// The value at `place`, which must follow the one before.
    fn take(&mut self, place: ValuePlace) -> Result<&[u8]> {
        let fault = DecodeError::Corrupt("values and rows do not agree");
        if place.len == 0 {
            return Ok(&[]);
        }
        if self.block.as_ref().is_none_or(|(handle, _)| *handle != place.block) {
            self.end_block()?;
            if place.block.offset != self.next {
                return Err(self.table.fault(fault, self.next));
            }
            let (payload, next) = read_block(self.table, place.block)?;
            self.block = Some((place.block, payload));
            (self.at, self.next) = (0, next);
        }
        let Some((_, payload)) = self.block.as_ref().filter(|_| place.start as usize == self.at) else {
            return Err(self.table.fault(fault, place.block.offset));
        };
        let value = place.of(payload).map_err(|f| self.table.fault(f, place.block.offset))?;
        self.at += value.len();
        Ok(value)
    }

    /// Checks that the values have filled the block.
    fn end_block(&self) -> Result<()> {
        match &self.block {
            Some((handle, payload)) if payload.len() != self.at => {
                let fault = DecodeError::Corrupt("a value block has bytes of no value");
                Err(self.table.fault(fault, handle.offset))
            }
            _ => Ok(()),
        }
    }
}
