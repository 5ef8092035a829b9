//! Where a key lies among the entries of a table, found without reading data.

use crate::read::row_merge::lower_bound;
use crate::read::table::Table;
use base::{MAX_SEQ, Result, Trailer};

impl Table {
    /// The share of the entries with smaller keys than `key`, from 0 to 1: by rows in a size-class table, and in a B+-tree by the bytes of
    /// data blocks. There the key counts as the middle of its block.
    ///
    /// Cost: a search in the index; in a size-class table a binary search in the rows of each class. What of these is not in memory is read.
    pub fn share_before(&self, key: &[u8]) -> Result<f64> {
        let root = self.root()?;
        let trailer = Trailer::seek(MAX_SEQ);
        if !root.footer.is_size_class() {
            let block = self.data_handle(key, trailer)?;
            let middle = block.offset as f64 + f64::from(block.size) / 2.0;
            return Ok(middle / root.footer.data_size.max(1) as f64);
        }
        let (mut before, mut all, mut pages) = (0, 0, self);
        for (class, rows) in root.classes().iter().enumerate() {
            before += lower_bound(&mut pages, class, rows, key, trailer)?.0;
            all += rows.rows;
        }
        Ok(before as f64 / all.max(1) as f64)
    }
}
