//! The entries of a size-class table: value blocks, and the rows that follow them.

use crate::format::frame::{self, Handle, Kind};
use crate::format::rows::{self, CLASSES, ClassRows, MAX_BLOCK_OFFSET, RowBuilder, SizeClass};
use crate::write::block_align::BlockAligner;
use crate::write::output::Output;
use base::{Result, Trailer};

/// Writes value blocks, and gathers the rows. Memory: one block, and all rows.
pub(super) struct Rows {
    /// The values of the block that is being built.
    block: Vec<u8>,
    /// Maximum bytes of that block, unless it has one value.
    limit: usize,
    pages: BlockAligner,
    classes: [RowBuilder; CLASSES],
    /// The rows with values in the block that is being built: class, and place in its builder.
    pending: Vec<(SizeClass, usize)>,
    /// The last entry.
    last: Option<(Vec<u8>, Trailer)>,
}

impl Rows {
    pub(super) fn new(block_size: usize) -> Rows {
        Rows {
            block: Vec::new(),
            limit: 0,
            pages: BlockAligner::new(block_size),
            classes: SizeClass::all().map(RowBuilder::new),
            pending: Vec::new(),
            last: None,
        }
    }

    /// Adds an entry. Returns whether the entry before has the same key.
    pub(super) fn add(
        &mut self,
        out: &mut Output,
        key: &[u8],
        trailer: Trailer,
        value: &[u8],
    ) -> Result<bool> {
        let same_key = match &mut self.last {
            Some((last_key, last)) => {
                let same_key = out.check_order((last_key, *last), (key, trailer))?;
                last_key.clear();
                last_key.extend_from_slice(key);
                *last = trailer;
                same_key
            }
            None => {
                self.last = Some((key.to_vec(), trailer));
                false
            }
        };
        let (class, len) = (SizeClass::of(key.len()), value.len() as u32);
        let rows = &mut self.classes[class.number()];
        if value.is_empty() {
            rows.add(key, trailer, 0, 0);
            return Ok(same_key);
        }
        if !self.block.is_empty() && self.block.len() + value.len() > self.limit {
            self.finish_block(out, value.len())?;
        }
        if self.block.is_empty() {
            self.limit = self.pages.limit(out.end()).saturating_sub(frame::HEADER_LEN);
        }
        let rows = &mut self.classes[class.number()];
        self.pending.push((class, rows.add(key, trailer, self.block.len() as u32, len)));
        self.block.extend_from_slice(value);
        Ok(same_key)
    }

    /// Approximate bytes of the block that is being built, and of the rows.
    pub(super) fn estimated_len(&self) -> u64 {
        self.block.len() as u64 + self.classes.iter().map(RowBuilder::len).sum::<u64>()
    }

    /// Writes the block that was built. The next value has `next` bytes; 0: there is none.
    fn finish_block(&mut self, out: &mut Output, next: usize) -> Result<()> {
        if self.block.is_empty() {
            return Ok(());
        }
        let values = &self.block;
        let handle =
            out.aligned_block(Kind::Values, &mut self.pages, next, |bytes| bytes.extend_from_slice(values));
        if handle.offset >= MAX_BLOCK_OFFSET {
            return Err(out.invalid("the table is too large"));
        }
        for (class, at) in self.pending.drain(..) {
            self.classes[class.number()].set_block(at, handle);
        }
        // An outsized value must not hold its memory for the rest of the table.
        self.block.clear();
        self.block.shrink_to(1 << 20);
        out.flush()
    }

    /// Writes the last block. Returns the largest key.
    pub(super) fn finish(&mut self, out: &mut Output) -> Result<Vec<u8>> {
        self.finish_block(out, 0)?;
        Ok(self.last.take().map_or_else(Vec::new, |(key, _)| key))
    }

    /// Writes the pages of rows, class by class, and the directory; returns the latter.
    pub(super) fn write_rows(&mut self, out: &mut Output) -> Result<Handle> {
        out.zeros_to(rows::pages_start(out.end()));
        let mut written = Vec::new();
        for class in SizeClass::all() {
            let empty = RowBuilder::new(class);
            let builder = std::mem::replace(&mut self.classes[class.number()], empty);
            if builder.rows() == 0 {
                continue;
            }
            written.push(ClassRows::new(class, builder.rows(), out.end(), 0));
            builder.write_pages(|page| {
                out.block(Kind::Rows, false, |bytes| bytes.extend_from_slice(page));
                out.flush()
            })?;
        }
        Ok(out.block(Kind::Directory, false, |bytes| rows::encode_directory(&written, bytes)))
    }
}
