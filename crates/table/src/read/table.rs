//! One table, open for reading: its file, its root, and reads of single blocks.
//!
//! An unused table costs its struct. The first use reads the footer and the root of the index, which stay with the table (the root is
//! at most a few KiB; in a size-class table, the directory of its rows, a few bytes). The first look-up reads and pins filter and index where the budget allows it (`pinned_index.rs`); otherwise index
//! nodes and filter partitions come through the cache, as data blocks do. A get costs one line of the filter, a search in one index node
//! per level, and one data block.
//!
//! Look-ups (`get.rs`), the index (`index.rs`), the cursors and the verification add methods to [`Table`]; this module does not call
//! them.

use crate::cache::block_cache::{BlockCache, BlockClass, BlockKey};
use crate::cache::read_policy::{Prefetch, ReadOn};
use crate::cache::table_cache::{self, TableCache, TableFile};
use crate::format::decode_error::DecodeError;
use crate::format::footer::{self, Footer};
use crate::format::frame::{self, Handle, Kind};
use crate::format::node::{self, Layout};
use crate::format::options::{TableMeta, TableOwner, UNNUMBERED};
use crate::format::properties;
use crate::format::rows::{self, ClassRows};
use crate::read::block::Node;
use crate::read::pinned_index::PinnedIndex;
use base::checksum::Place;
use base::{Error, Result, Slice};
use env::{Env, ReadFile};
use std::ops::Deref;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

/// An immutable sorted table. Shared between threads without locks.
pub struct Table {
    pub(crate) tables: Arc<TableCache>,
    pub(crate) file: TableFile,
    pub(crate) root: OnceLock<Box<Root>>,
    /// Filter and index, once loaded; `None` when they cannot be pinned.
    pub(crate) resident: OnceLock<Option<Box<PinnedIndex>>>,
    /// The file, if it is not one of those that the table cache holds open.
    own_file: Option<Arc<dyn ReadFile>>,
    pub(crate) prefetch: Prefetch,
    pub(crate) read_on: ReadOn,
}

impl Drop for Table {
    fn drop(&mut self) {
        self.tables.bytes.fetch_sub(self.file.size, Ordering::Relaxed);
    }
}

/// What stays with a table after its first use.
pub(crate) struct Root {
    pub footer: Footer,
    pub index: Index,
}

/// The way to the entries.
pub(crate) enum Index {
    /// The root of a B+-tree.
    Tree(Node),
    /// The rows of a size-class table, class by class.
    Rows(Vec<ClassRows>),
}

impl Root {
    /// The classes of a size-class table; none in a B+-tree.
    #[inline]
    pub(crate) fn classes(&self) -> &[ClassRows] {
        match &self.index {
            Index::Rows(classes) => classes,
            Index::Tree(_) => &[],
        }
    }
}

impl TableCache {
    /// The table that `meta` describes; only number, length and [`TableMeta::seq_shift`] count. Does no I/O: what is wrong with the file
    /// shows when it is first used.
    pub fn open(self: &Arc<Self>, meta: &TableMeta) -> Result<Arc<Table>> {
        let file = self.table_file(meta.number, meta.file_size, meta.seq_shift);
        Table::new(Arc::clone(self), file).map(Arc::new)
    }
}

impl Table {
    pub(crate) fn new(tables: Arc<TableCache>, file: TableFile) -> Result<Table> {
        if file.size < footer::LEN as u64 {
            return Err(Error::corruption(&file.path, file.size, "too short for a table"));
        }
        let (root, resident) = (OnceLock::new(), OnceLock::new());
        tables.bytes.fetch_add(file.size, Ordering::Relaxed);
        let (own_file, prefetch, read_on) = (None, Prefetch::default(), ReadOn::default());
        Ok(Table { tables, file, root, resident, own_file, prefetch, read_on })
    }

    /// The table in the file `path`, which [`TableWriter::create_at`](crate::TableWriter::create_at) has written.
    ///
    /// # Errors
    /// Those of opening the file; `Corruption` if it is too short.
    pub fn open_at(env: &Arc<dyn Env>, path: &Path) -> Result<Arc<Table>> {
        let file = env.open(path)?;
        let size = file.len()?;
        let dir = path.parent().unwrap_or(Path::new("")).to_owned();
        let tables = TableCache::new(Arc::clone(env), dir, Arc::new(BlockCache::new(0)), 1);
        let of_file = TableFile { path: path.to_owned(), number: UNNUMBERED, size, seq_shift: 0 };
        let mut table = Table::new(tables, of_file)?;
        table.own_file = Some(file);
        Ok(Arc::new(table))
    }

    /// The same table with its file opened anew, and nothing of it in memory.
    pub(crate) fn anew(&self) -> Result<Table> {
        let own_file = self.tables.open_file(&self.file)?;
        let TableFile { number, size, seq_shift, .. } = self.file;
        let file = self.tables.table_file(number, size, seq_shift);
        let mut table = Table::new(Arc::clone(&self.tables), file)?;
        table.own_file = Some(own_file);
        Ok(table)
    }

    /// Number of the file.
    pub fn number(&self) -> u64 {
        self.file.number
    }

    /// Length of the file, in bytes.
    pub fn file_size(&self) -> u64 {
        self.file.size
    }

    /// The directory of tables that this one belongs to.
    pub fn tables(&self) -> &Arc<TableCache> {
        &self.tables
    }

    /// Where the file is.
    pub fn path(&self) -> &Path {
        &self.file.path
    }

    pub(crate) fn block_key(&self, handle: Handle) -> BlockKey {
        BlockKey { file: self.file.number, offset: handle.offset }
    }

    fn properties(&self) -> Result<(Handle, Slice)> {
        let handle = self.root()?.footer.properties;
        Ok((handle, self.read(handle, Kind::Properties, properties::MAX_LEN)?))
    }

    /// The owner in the properties block, if it names one. Reads the block from the file at each call.
    pub(crate) fn owner(&self) -> Result<Option<TableOwner>> {
        Ok(properties::owner(&self.properties()?.1))
    }

    /// The content of the properties block, with the sequence numbers as readers see them. Reads it from the file at each call.
    pub fn meta(&self) -> Result<TableMeta> {
        let (handle, payload) = self.properties()?;
        let decoded = properties::decode(&payload, self.file.number, self.file.size).and_then(|meta| {
            let shifted = meta.shifted(self.file.seq_shift);
            shifted.ok_or(DecodeError::Corrupt("sequence number is too large"))
        });
        decoded.map_err(|f| self.fault(f, handle.offset))
    }

    /// Asks the operating system to drop the file from the page cache, so that the next reads come from the disk.
    pub fn forget_pages(&self) {
        if let Ok(file) = self.tables.open_file(&self.file) {
            file.wont_need(0, self.file.size);
        }
    }

    /// Footer and root, read at first use. Of concurrent reads one is kept.
    #[inline]
    pub(crate) fn root(&self) -> Result<&Root> {
        match self.root.get() {
            Some(root) => Ok(root),
            None => self.load_root(),
        }
    }

    #[cold]
    fn load_root(&self) -> Result<&Root> {
        let mut bytes = [0; footer::LEN];
        let offset = self.file.size - footer::LEN as u64;
        self.read_in_background(&mut bytes, offset)?;
        let footer =
            Footer::decode(&bytes, self.file.number, self.file.size).map_err(|f| self.fault(f, offset))?;
        let index = match footer.is_size_class() {
            true => Index::Rows(self.read_directory(&footer)?),
            false => {
                let root = self.read(footer.root, Kind::Index, frame::MAX_PAYLOAD)?;
                Index::Tree(self.parse(root, Kind::Index, footer.root.offset)?)
            }
        };
        Ok(self.root.get_or_init(|| Box::new(Root { footer, index })))
    }

    fn read_directory(&self, footer: &Footer) -> Result<Vec<ClassRows>> {
        let payload = self.read(footer.root, Kind::Directory, rows::MAX_DIRECTORY)?;
        let start = rows::pages_start(footer.index_start());
        let classes = rows::decode_directory(&payload, start, self.file.seq_shift).and_then(|classes| {
            match classes.last().is_some_and(|last| last.end() == footer.root.offset) {
                true => Ok(classes),
                false => Err(DecodeError::Corrupt("the rows do not fill their part of the table")),
            }
        });
        classes.map_err(|f| self.fault(f, footer.root.offset))
    }

    /// The root of a B+-tree.
    #[inline]
    pub(crate) fn tree_root(&self) -> Result<&Node> {
        let root = self.root()?;
        match &root.index {
            Index::Tree(node) => Ok(node),
            // Cannot be: only cursors and look-ups in a B+-tree ask for it.
            Index::Rows(_) => Err(self.fault(DecodeError::Corrupt("not a B+-tree"), root.footer.root.offset)),
        }
    }

    /// An index node, through the cache.
    #[inline]
    pub(crate) fn node(&self, handle: Handle) -> Result<Node> {
        let bytes = self.cached(handle, Kind::Index, frame::MAX_PAYLOAD)?;
        node::touch(&bytes);
        self.parse(bytes, Kind::Index, handle.offset)
    }

    #[inline]
    pub(crate) fn parse<B: Deref<Target = [u8]>>(
        &self,
        bytes: B,
        kind: Kind,
        offset: u64,
    ) -> Result<Node<B>> {
        let layout = Layout::parse(&bytes, kind == Kind::Index, self.file.seq_shift);
        let layout = layout.map_err(|f| self.fault(f, offset))?;
        Ok(Node { bytes, layout, offset })
    }

    /// The payload of an index node, a page of rows or a filter partition, at most `cap` bytes, from the cache or else from the file.
    #[inline]
    pub(crate) fn cached(&self, handle: Handle, kind: Kind, cap: usize) -> Result<Slice> {
        let class = if kind == Kind::Filter { BlockClass::Filter } else { BlockClass::Index };
        let key = self.block_key(handle);
        if let Some(block) = self.tables.cache.get(key, class) {
            return Ok(block);
        }
        self.check_handle(handle, cap)?;
        let mut frame = vec![0; handle.size as usize];
        self.read_at(&mut frame, handle.offset, false)?;
        let block = self.open_frame(frame, handle, kind, cap)?;
        self.tables.cache.insert(key, class, block.clone());
        Ok(block)
    }

    /// The payload of a block, from the file, for no caller in particular.
    pub(crate) fn read(&self, handle: Handle, kind: Kind, cap: usize) -> Result<Slice> {
        self.open_frame(self.read_frame(handle, cap)?, handle, kind, cap)
    }

    pub(crate) fn open_frame(&self, frame: Vec<u8>, handle: Handle, kind: Kind, cap: usize) -> Result<Slice> {
        frame::open(frame, self.place(handle.offset, kind), cap).map_err(|f| self.fault(f, handle.offset))
    }

    /// The frame of a block, from the file, unverified, for no caller in particular.
    pub(crate) fn read_frame(&self, handle: Handle, cap: usize) -> Result<Vec<u8>> {
        self.check_handle(handle, cap)?;
        let mut bytes = vec![0; handle.size as usize];
        self.read_in_background(&mut bytes, handle.offset)?;
        Ok(bytes)
    }

    /// Checks that a block can lie at `handle`, before memory is allocated for it.
    pub(crate) fn check_handle(&self, handle: Handle, cap: usize) -> Result<()> {
        if handle.end() > self.file.size || handle.size as usize > cap + frame::HEADER_LEN {
            return Err(self.fault(DecodeError::Corrupt("block lies outside its table"), handle.offset));
        }
        Ok(())
    }

    /// Reads these bytes of the file for a get or a cursor. Announced compactions rest while it waits for the disk. Returns whether it has
    /// waited, if that `counts`; if not, and without compactions, the page cache is not asked first, which takes a system call.
    pub(crate) fn read_at(&self, bytes: &mut [u8], offset: u64, counts: bool) -> Result<bool> {
        let is_seen = self.tables.waiting_reads.has_jobs();
        if (counts || is_seen) && self.try_read_cached(bytes, offset)? {
            return Ok(false);
        }
        let _waiting = is_seen.then(|| self.tables.waiting_reads.begin_wait());
        self.read_in_background(bytes, offset).map(|()| counts)
    }

    /// Reads these bytes of the file for a compaction or a check, or to load what a table needs in memory: no compaction rests meanwhile.
    pub(crate) fn read_in_background(&self, bytes: &mut [u8], offset: u64) -> Result<()> {
        self.note_read(bytes.len());
        self.file()?.read_exact_at(bytes, offset)
    }

    /// Reads these bytes of the file if the page cache has all of them. Returns whether it has.
    pub(crate) fn try_read_cached(&self, bytes: &mut [u8], offset: u64) -> Result<bool> {
        let there = self.file()?.try_read_cached(bytes, offset)?;
        if there {
            self.note_read(bytes.len());
        }
        Ok(there)
    }

    pub(crate) fn note_read(&self, bytes: usize) {
        self.tables().counters.add(table_cache::BYTES_READ, bytes as u64);
        table_cache::note_read(bytes);
        self.tables().counters.add(table_cache::READS, 1);
    }

    /// The file to read from.
    pub(crate) fn file(&self) -> Result<Arc<dyn ReadFile>> {
        self.own_file.clone().map_or_else(|| self.tables.file(&self.file), Ok)
    }

    /// Hints that these bytes of the file will be read next.
    pub(crate) fn will_need(&self, offset: u64, len: u64) {
        if self.own_file.is_none()
            && let Ok(file) = self.tables.file(&self.file)
        {
            file.will_need(offset, len);
        }
    }

    pub(crate) fn place(&self, offset: u64, kind: Kind) -> Place {
        Place { file: self.file.number, offset, kind: kind as u8 }
    }

    /// The error for a fault in the block at `offset`.
    #[cold]
    pub(crate) fn fault(&self, fault: DecodeError, offset: u64) -> Error {
        fault.at(&self.file.path, offset)
    }
}
