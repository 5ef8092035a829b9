//! Point look-ups that read nothing for which they would have to wait: neither blocks nor what leads to them.
//!
//! [`Table::get_now`] gives up where [`Table::try_get`] waits: at footer, root and filter of a table that was not used yet, and at index
//! nodes, filter partitions and pages of rows that neither the block cache nor the page cache has. The disk is asked for what was
//! missing. Nothing is pinned here: that takes large reads, which the first look-up that waits makes.

use crate::cache::block_cache::BlockClass;
use crate::format::decode_error::DecodeError;
use crate::format::filter;
use crate::format::footer;
use crate::format::frame::{self, Handle, Kind};
use crate::format::node;
use crate::format::rows::ClassRows;
use crate::read::block::Payload;
use crate::read::nonblocking_read::Reading;
use crate::read::row_merge::RowPages;
use crate::read::table::{Index, Root, Table};
use base::{Error, Result, Seq, Slice, Trailer};
use std::task::Poll;

/// The value of a `Result<Poll<T>>`, or `Pending`.
macro_rules! now {
    ($poll:expr) => {
        match $poll? {
            Poll::Ready(value) => value,
            Poll::Pending => return Ok(Poll::Pending),
        }
    };
}

/// The pages of rows that can be read without waiting.
struct PagesNow<'a> {
    table: &'a Table,
    would_wait: bool,
}

impl RowPages for PagesNow<'_> {
    fn load(&mut self, _class: usize, rows: &ClassRows, page: u64) -> Result<Slice> {
        let handle = rows.handle(page);
        let Poll::Ready(payload) = self.table.cached_now(handle, Kind::Rows, handle.size as usize)? else {
            // The caller looks at this before it looks at the error.
            self.would_wait = true;
            return Err(self
                .table
                .fault(DecodeError::Corrupt("a page that is not in memory"), handle.offset));
        };
        rows.page(&payload, page).map_err(|f| self.table.fault(f, handle.offset))?;
        Ok(payload)
    }

    fn fault(&self, fault: DecodeError, offset: u64) -> Error {
        self.table.fault(fault, offset)
    }
}

impl Table {
    /// [`Table::get`] if nothing has to be waited for; otherwise the disk is asked for what is missing.
    pub fn get_now(&self, key: &[u8], hash: u64, seq: Seq) -> Result<Poll<Option<(Trailer, Slice)>>> {
        let Some(root) = self.root.get() else {
            let first = self.file.size.saturating_sub(footer::LEN as u64);
            self.will_need(first, footer::LEN as u64);
            return Ok(Poll::Pending);
        };
        if !now!(self.may_contain_now(root, hash)) {
            return Ok(Poll::Ready(None));
        }
        let trailer = Trailer::seek(seq);
        let mut wanted = None;
        let mut reading = Reading::Asks(&mut wanted);
        let found = match &root.index {
            Index::Rows(classes) => {
                let mut pages = PagesNow { table: self, would_wait: false };
                let row = self.find_row(&mut pages, classes, key, trailer);
                if pages.would_wait {
                    return Ok(Poll::Pending);
                }
                let Some(row) = row? else { return Ok(Poll::Ready(None)) };
                self.value_of(row, &mut reading)?
            }
            Index::Tree(_) => {
                let handle = now!(self.data_handle_now(root, key, trailer));
                let payload = match self.tables.cache.get(self.block_key(handle), BlockClass::Data) {
                    Some(bytes) => {
                        node::touch(&bytes);
                        Some(Payload::Shared(bytes))
                    }
                    None => self.read_block(self.want(handle), &mut reading)?,
                };
                match payload {
                    Some(payload) => self.find(payload, handle, key, trailer)?,
                    None => None,
                }
            }
        };
        Ok(if wanted.is_some() { Poll::Pending } else { Poll::Ready(found) })
    }

    fn may_contain_now(&self, root: &Root, hash: u64) -> Result<Poll<bool>> {
        if self.resident.get().is_some_and(Option::is_some) {
            return self.may_contain(hash).map(Poll::Ready);
        }
        let shape = &root.footer.filter;
        if shape.probes == 0 {
            return Ok(Poll::Ready(true));
        }
        let (partition, line) = shape.locate(hash);
        let handle = shape.handle(partition);
        let block = now!(self.cached_now(handle, Kind::Filter, shape.partition_len()));
        let may = filter::may_contain(&block, line, hash, shape.probes).ok_or_else(|| {
            self.fault(DecodeError::Corrupt("filter partition is too short"), handle.offset)
        })?;
        self.note_probe(may);
        Ok(Poll::Ready(may))
    }

    /// [`Table::data_handle`].
    fn data_handle_now(&self, root: &Root, key: &[u8], trailer: Trailer) -> Result<Poll<Handle>> {
        let resident = self.resident.get().and_then(Option::as_deref);
        let (mut handle, mut child) = self.child(self.tree_root()?, key, trailer)?;
        for _ in 1..root.footer.levels {
            (handle, child) = match resident.and_then(|resident| resident.node(handle, child)) {
                Some(node) => self.child(node, key, trailer)?,
                None => {
                    let bytes = now!(self.cached_now(handle, Kind::Index, frame::MAX_PAYLOAD));
                    node::touch(&bytes);
                    self.child(&self.parse(bytes, Kind::Index, handle.offset)?, key, trailer)?
                }
            };
        }
        Ok(Poll::Ready(handle))
    }

    /// [`Table::cached`] without waiting.
    fn cached_now(&self, handle: Handle, kind: Kind, cap: usize) -> Result<Poll<Slice>> {
        let class = if kind == Kind::Filter { BlockClass::Filter } else { BlockClass::Index };
        let key = self.block_key(handle);
        if let Some(block) = self.tables.cache.get(key, class) {
            return Ok(Poll::Ready(block));
        }
        self.check_handle(handle, cap)?;
        let mut frame = vec![0; handle.size as usize];
        if !self.try_read_cached(&mut frame, handle.offset)? {
            self.will_need(handle.offset, handle.size.into());
            return Ok(Poll::Pending);
        }
        let block = self.open_frame(frame, handle, kind, cap)?;
        self.tables.cache.insert(key, class, block.clone());
        Ok(Poll::Ready(block))
    }
}
