//! Verification of a whole table: the file is opened anew, nothing is taken from memory, and every byte of the file is checked.

use crate::check::checked_entries::CheckedEntries;
use crate::check::verify_leaves::verify_leaves;
use crate::check::verify_rows::verify_rows;
use crate::format::decode_error::DecodeError;
use crate::format::options::{TableMeta, TimesOf};
use crate::read::index::read_filter;
use crate::read::table::{Index, Table};
use base::Result;
use std::sync::Arc;

impl Table {
    /// Opens the file anew, reads all of it and checks all of it: its length, every checksum, the order of the entries, that index, filter
    /// and properties agree with them, and that every byte belongs to a part of the table. Returns what was found, which equals the
    /// properties. Calls `step` after each data block with the number of bytes that are done, and returns its error when it fails: for
    /// verifications that are throttled or cancelled.
    pub fn verify(&self, step: &mut dyn FnMut(u64) -> Result<()>) -> Result<TableMeta> {
        self.verify_with(None, step)
    }

    /// The same for a table of versions, whose times it compares with those in the index, and returns with the properties.
    pub fn verify_with(
        &self,
        times_of: Option<TimesOf>,
        step: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<TableMeta> {
        verify(&Arc::new(self.anew()?), times_of, step)
    }
}

fn verify(
    table: &Arc<Table>,
    times_of: Option<TimesOf>,
    step: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<TableMeta> {
    let root = table.root()?;
    let footer = root.footer;
    let filter = read_filter(table, &footer.filter)?;
    let mut entries = CheckedEntries::new(table, filter, footer.filter.probes, times_of)?;
    match &root.index {
        Index::Tree(_) => verify_leaves(table, &mut entries, step)?,
        Index::Rows(classes) => verify_rows(table, classes, &mut entries, step)?,
    }
    let mut found = entries.finish();
    let stored = table.meta()?;
    if stored.shadowed == 0 {
        // Earlier Cairns did not count older versions.
        found.shadowed = 0;
    }
    if stored != (TableMeta { times: None, ..found.clone() }) {
        return Err(
            table.fault(DecodeError::Corrupt("properties and data do not agree"), footer.properties.offset)
        );
    }
    step(table.file_size())?;
    Ok(found)
}
