//! The cursors over a table, whatever its format.
//!
//! A cursor does no I/O before its first move, which reads the footer; only then the format is known.

use crate::format::options::Wanted;
use crate::read::leaf_cursor::LeafCursor;
use crate::read::leaf_scan::LeafScan;
use crate::read::row_cursor::RowCursor;
use crate::read::table::{Index, Table};
use base::{Cursor, Error, Result, Seq, Slice, Trailer};
use std::sync::Arc;

/// Walks a table entry by entry, through the block cache, in both directions. See [`base::Cursor`].
pub struct TableCursor {
    table: Arc<Table>,
    walk: Walk<LeafCursor>,
    /// For the walk.
    wanted: Option<Box<Wanted>>,
}

/// Streams a table from its first entry to its last, past the block cache. See [`base::Cursor`]; it reads forward only.
pub struct ScanCursor {
    table: Arc<Table>,
    walk: Walk<LeafScan>,
}

/// A cursor over either format.
enum Walk<L> {
    Unopened(Unopened),
    Leaves(L),
    Rows(Box<RowCursor>),
}

base::delegate_cursor!(Walk<L> where L { Unopened, Leaves, Rows });

impl<L: Cursor> Walk<L> {
    /// Called before a seek: takes the cursor of the table's format, if there is none yet.
    #[inline]
    fn begin(&mut self, table: &Arc<Table>, leaves: fn(Arc<Table>) -> L, streams: bool) -> Result<()> {
        let Walk::Unopened(before) = self else { return Ok(()) };
        let has_rows = match table.root() {
            Ok(root) => matches!(root.index, Index::Rows(_)),
            Err(error) => {
                before.error = Some(error.clone());
                return Err(error);
            }
        };
        let nonblocking = before.nonblocking;
        *self = match has_rows {
            true => Walk::Rows(Box::new(RowCursor::new(Arc::clone(table), streams))),
            false => Walk::Leaves(leaves(Arc::clone(table))),
        };
        self.set_nonblocking(nonblocking);
        Ok(())
    }
}

/// A cursor before its first move.
#[derive(Default)]
struct Unopened {
    nonblocking: bool,
    /// Why the first move failed.
    error: Option<Error>,
}

impl Cursor for Unopened {
    fn seek_to_first(&mut self) -> Result<()> {
        self.next()
    }

    fn next(&mut self) -> Result<()> {
        debug_assert!(self.error.is_some(), "a step from nowhere");
        self.error.clone().map_or(Ok(()), Err)
    }

    fn prev(&mut self) -> Result<()> {
        self.next()
    }

    fn set_nonblocking(&mut self, on: bool) {
        self.nonblocking = on;
    }

    fn valid(&self) -> bool {
        false
    }

    fn key(&self) -> &[u8] {
        &[]
    }

    fn trailer(&self) -> Trailer {
        Trailer(0)
    }

    fn value(&self) -> &[u8] {
        &[]
    }
}

impl Table {
    /// A cursor through the block cache, for reads. Does no I/O yet.
    pub fn cursor(self: &Arc<Self>) -> TableCursor {
        self.cursor_for(None)
    }

    /// The same, for a walk that needs no other entries than these; `None`: it needs all. It may show others, and may end where no more of
    /// these follow.
    pub fn cursor_for(self: &Arc<Self>, wanted: Option<Wanted>) -> TableCursor {
        let (walk, wanted) = (Walk::Unopened(Unopened::default()), wanted.map(Box::new));
        TableCursor { table: Arc::clone(self), walk, wanted }
    }

    /// A cursor that reads ahead into a buffer of its own and leaves the cache alone. Does no I/O yet.
    pub fn scan(self: &Arc<Self>) -> ScanCursor {
        ScanCursor { table: Arc::clone(self), walk: Walk::Unopened(Unopened::default()) }
    }
}

impl TableCursor {
    #[inline]
    fn begin(&mut self) -> Result<&mut Walk<LeafCursor>> {
        if let Walk::Unopened(_) = &self.walk {
            self.walk.begin(&self.table, LeafCursor::new, false)?;
            if let Walk::Leaves(leaves) = &mut self.walk {
                leaves.wanted = self.wanted.take();
            }
        }
        Ok(&mut self.walk)
    }
}

impl Cursor for TableCursor {
    fn seek_to_first(&mut self) -> Result<()> {
        self.begin()?.seek_to_first()
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.begin()?.seek_to_last()
    }

    fn seek(&mut self, key: &[u8], seq: Seq) -> Result<()> {
        self.begin()?.seek(key, seq)
    }

    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        self.begin()?.seek_before(key)
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        self.walk.next()
    }

    #[inline]
    fn prev(&mut self) -> Result<()> {
        self.walk.prev()
    }

    fn set_nonblocking(&mut self, on: bool) {
        self.walk.set_nonblocking(on);
    }

    #[inline]
    fn would_block(&self) -> bool {
        self.walk.would_block()
    }

    #[inline]
    fn valid(&self) -> bool {
        self.walk.valid()
    }

    #[inline]
    fn key(&self) -> &[u8] {
        self.walk.key()
    }

    #[inline]
    fn trailer(&self) -> Trailer {
        self.walk.trailer()
    }

    #[inline]
    fn value(&self) -> &[u8] {
        self.walk.value()
    }

    fn value_slice(&self) -> Slice {
        self.walk.value_slice()
    }
}

impl Cursor for ScanCursor {
    fn seek_to_first(&mut self) -> Result<()> {
        self.walk.begin(&self.table, LeafScan::new, true)?;
        self.walk.seek_to_first()
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        self.walk.next()
    }

    #[inline]
    fn valid(&self) -> bool {
        self.walk.valid()
    }

    #[inline]
    fn key(&self) -> &[u8] {
        self.walk.key()
    }

    #[inline]
    fn trailer(&self) -> Trailer {
        self.walk.trailer()
    }

    #[inline]
    fn value(&self) -> &[u8] {
        self.walk.value()
    }
}
