//! One table, open for reading.
//!
//! A table that was never used costs its struct. The first use reads the footer and the root of the index, which stay
//! with the table (the root is at most a few KiB). The first look for a key reads filter and index, which stay, too, where the
//! budget allows it (`pinned_index.rs`); where not, index nodes and filter partitions come through the cache, as data blocks do. A get
//! costs one line of the filter, a search in one index node per level, and one data block.

use crate::cache::block_cache::{BlockClass, BlockKey};
use crate::cache::buffer_pool::Buffer;
use crate::cache::table_cache::{self, TableCache, TableFile};
use crate::format::decode_error::DecodeError;
use crate::format::filter;
use crate::format::footer::{self, Footer};
use crate::format::frame::{self, Handle, Kind};
use crate::format::node::{self, Layout};
use crate::format::options::TableMeta;
use crate::format::properties;
use crate::read::block::{Block, MAX_OWN, Payload};
use crate::read::nonblocking_read::{PendingRead, Reading};
use crate::read::pinned_index::PinnedIndex;
use crate::read::prefetch::Prefetcher;
use base::checksum::Place;
use base::{Error, Result, Seq, Slice, Trailer};
use env::ReadFile;
use std::path::Path;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};

/// An immutable sorted table. Shared between threads; readers take no lock.
pub struct Table {
    tables: Arc<TableCache>,
    file: TableFile,
    root: OnceLock<Box<Root>>,
    /// Filter and index, once they were read; `None` when they cannot stay.
    resident: OnceLock<Option<Box<PinnedIndex>>>,
    /// The file, where it is not to come from those that are held open.
    own_file: Option<Arc<dyn ReadFile>>,
    pub(crate) warm: Prefetcher,
    /// How often, of late, who sought a block here went on to the next one: from 0 to [`MAX_WALKED`].
    walked: AtomicU8,
}

/// Where the count of walks ends. A seek expects a walk from half of it on.
const MAX_WALKED: u8 = 8;

impl Drop for Table {
    fn drop(&mut self) {
        self.tables.bytes.fetch_sub(self.file.size, Ordering::Relaxed);
    }
}

/// What stays with a table once it was used.
pub(crate) struct Root {
    pub footer: Footer,
    pub node: Node,
}

/// A node of the tree in memory, with its structure checked.
#[derive(Clone)]
pub(crate) struct Node {
    pub bytes: Slice,
    pub layout: Layout,
    /// Where it lies in the file, for messages.
    pub offset: u64,
}

impl Node {
    /// The child with that number, of an index node.
    #[inline]
    pub(crate) fn handle(&self, child: usize) -> std::result::Result<Handle, DecodeError> {
        self.layout.handle(&self.bytes, child)
    }
}

impl TableCache {
    /// The table in file `number`, which is `file_size` bytes long. Does no I/O: what is wrong with the file shows when it
    /// is first used.
    pub fn open(self: &Arc<Self>, number: u64, file_size: u64) -> Result<Arc<Table>> {
        Table::new(Arc::clone(self), self.table_file(number, file_size)).map(Arc::new)
    }
}

impl Table {
    pub(crate) fn new(tables: Arc<TableCache>, file: TableFile) -> Result<Table> {
        if file.size < footer::LEN as u64 {
            return Err(Error::corruption(&file.path, file.size, "too short for a table"));
        }
        let (root, resident) = (OnceLock::new(), OnceLock::new());
        tables.bytes.fetch_add(file.size, Ordering::Relaxed);
        let (own_file, warm, walked) = (None, Prefetcher::default(), AtomicU8::new(0));
        Ok(Table { tables, file, root, resident, own_file, warm, walked })
    }

    /// The table as a first opening would see it: the file that is there now, and nothing of it known.
    pub(crate) fn anew(&self) -> Result<Table> {
        let own_file = self.tables.open_file(&self.file)?;
        let file = self.tables.table_file(self.file.number, self.file.size);
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

    /// Whether the key with this hash ([`base::hash`]) may be in the table. `false` is certain. A table without a filter
    /// says `true`.
    #[inline]
    pub fn may_contain(&self, hash: u64) -> Result<bool> {
        let Some(resident) = self.resident() else { return self.may_contain_by_cache(hash) };
        let may = resident.may_contain(hash);
        if resident.has_filter() {
            self.note_probe(may);
        }
        Ok(may)
    }

    /// Has the processor load what [`Table::may_contain`] will look at, if it is in memory: for those who are about to ask several
    /// tables. What it returns depends on that memory, and means nothing.
    #[inline]
    pub fn touch_filter(&self, hash: u64) -> u8 {
        self.resident.get().and_then(Option::as_ref).map_or(0, |resident| resident.touch(hash))
    }

    #[inline]
    fn note_probe(&self, may: bool) {
        self.tables
            .counters
            .add(if may { table_cache::FILTER_POSITIVES } else { table_cache::FILTER_NEGATIVES }, 1);
    }

    fn may_contain_by_cache(&self, hash: u64) -> Result<bool> {
        let shape = &self.root()?.footer.filter;
        if shape.probes == 0 {
            return Ok(true);
        }
        let (partition, line) = shape.locate(hash);
        let handle = shape.handle(partition);
        let block =
            self.block_or(handle, Kind::Filter, || self.read(handle, Kind::Filter, shape.partition_len()))?;
        let may = filter::may_contain(&block, line, hash, shape.probes).ok_or_else(|| {
            self.fault(DecodeError::Corrupt("filter partition is too short"), handle.offset)
        })?;
        self.note_probe(may);
        Ok(may)
    }

    /// The newest version of `key` that is not newer than `seq`, be it a value or a tombstone. `hash` is the key's
    /// ([`base::hash`]); the filter is asked first. The slice borrows the cached block; from a block that is not cached it is a copy.
    #[inline]
    pub fn get(&self, key: &[u8], hash: u64, seq: Seq) -> Result<Option<(Trailer, Slice)>> {
        self.look(key, hash, seq, Reading::Waits)
    }

    /// [`Table::get`]. Where it does not wait, and would have to, it finds nothing, and notes what it wants.
    pub(crate) fn look(
        &self,
        key: &[u8],
        hash: u64,
        seq: Seq,
        mut reading: Reading<'_>,
    ) -> Result<Option<(Trailer, Slice)>> {
        if !self.may_contain(hash)? {
            return Ok(None);
        }
        let trailer = Trailer::seek(seq);
        let handle = self.data_handle(key, trailer)?;
        let cached = self.block_key(handle);
        let found = match self.tables.cache.get(cached, BlockClass::Data) {
            Some(bytes) => {
                node::touch(&bytes);
                self.find(Payload::Shared(bytes), handle, key, trailer)?
            }
            None => {
                let found = self.look_in(self.want(handle), key, trailer, &mut reading)?;
                if let Reading::Asks(Some(_)) = reading {
                    return Ok(None);
                }
                found
            }
        };
        self.note_found(found.is_some())?;
        Ok(found)
    }

    /// What a data block that is not cached has of a key.
    pub(crate) fn look_in(
        &self,
        wanted: PendingRead,
        key: &[u8],
        trailer: Trailer,
        reading: &mut Reading<'_>,
    ) -> Result<Option<(Trailer, Slice)>> {
        match self.read_block(wanted, reading)? {
            Some(payload) => self.find(payload, wanted.handle, key, trailer),
            None => Ok(None),
        }
    }

    /// Told whether a table whose filter let a key through had it.
    #[inline]
    pub(crate) fn note_found(&self, found: bool) -> Result<()> {
        if !found && self.root()?.footer.filter.probes > 0 {
            self.tables.counters.add(table_cache::FILTER_FALSE_POSITIVES, 1);
        }
        Ok(())
    }

    /// What a data block has of a key.
    #[inline]
    pub(crate) fn find(
        &self,
        payload: Payload,
        handle: Handle,
        key: &[u8],
        trailer: Trailer,
    ) -> Result<Option<(Trailer, Slice)>> {
        let Block { payload, layout, offset } = self.block(payload, handle)?;
        let found = layout.find(&payload, key, trailer).map_err(|f| self.fault(f, offset))?;
        Ok(found.map(|entry| (entry.trailer, payload.slice_of(entry.value(&payload)))))
    }

    pub(crate) fn block_key(&self, handle: Handle) -> BlockKey {
        BlockKey { space: self.tables.space, file: self.file.number, offset: handle.offset }
    }

    /// Who had to read the block that he sought went on to the next one, or did not. Threads that meet here may lose a count.
    #[inline]
    pub(crate) fn note_walk(&self, walked: bool) {
        let before = self.walked.load(Ordering::Relaxed);
        let after = if walked { (before + 1).min(MAX_WALKED) } else { before.saturating_sub(1) };
        // Where all do the same nothing is written.
        if after != before {
            self.walked.store(after, Ordering::Relaxed);
        }
    }

    /// Whether who seeks a block will go on to the next one, as far as others tell.
    #[inline]
    pub(crate) fn expects_walk(&self) -> bool {
        self.walked.load(Ordering::Relaxed) >= MAX_WALKED / 2
    }

    /// What the properties block says. Reads it from the file each time.
    pub fn meta(&self) -> Result<TableMeta> {
        let handle = self.root()?.footer.properties;
        let payload = self.read(handle, Kind::Properties, properties::MAX_LEN)?;
        properties::decode(&payload, self.file.number, self.file.size)
            .map_err(|f| self.fault(f, handle.offset))
    }

    /// Asks the operating system to forget what it has of the file in memory, so that what is read next comes from the disk.
    pub fn forget_pages(&self) {
        if let Ok(file) = self.tables.open_file(&self.file) {
            file.wont_need(0, self.file.size);
        }
    }

    /// Asks the operating system to bring into memory what it does not have of these bytes of the file.
    pub fn load(&self, offset: u64, len: u64) {
        self.will_need(offset, len.min(self.file.size.saturating_sub(offset)));
    }

    /// About how many bytes of the file lie before `key`: for choosing where to cut. Reads index nodes only.
    pub fn approximate_offset(&self, key: &[u8]) -> Result<u64> {
        Ok(self.data_handle(key, Trailer(u64::MAX))?.offset)
    }

    /// Footer and root, read on first use. Threads that meet here read twice and keep one.
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
        self.read_at(&mut bytes, offset)?;
        let footer =
            Footer::decode(&bytes, self.file.number, self.file.size).map_err(|f| self.fault(f, offset))?;
        let root = self.read(footer.root, Kind::Index, frame::MAX_PAYLOAD)?;
        let node = self.parse(root, Kind::Index, footer.root.offset)?;
        Ok(self.root.get_or_init(|| Box::new(Root { footer, node })))
    }

    /// Filter and index, if they stay in memory. Read on first use; threads that meet here read twice and keep one.
    #[inline]
    pub(crate) fn resident(&self) -> Option<&PinnedIndex> {
        match self.resident.get() {
            Some(resident) => resident.as_deref(),
            None => self.load_resident(),
        }
    }

    #[cold]
    fn load_resident(&self) -> Option<&PinnedIndex> {
        let footer = self.root().ok()?.footer;
        // Where there is no room now there may be some later; what fails, or is larger in memory than there is room for, is not
        // tried again.
        if !self.tables.cache.may_pin(footer.root.offset - footer.data_size) {
            return None;
        }
        // Of an error those will hear who need the very block that it is about.
        let loaded = PinnedIndex::load(self).ok().flatten();
        self.resident.get_or_init(|| loaded.map(Box::new)).as_deref()
    }

    /// The index node at `handle`, from memory or through the cache. `hint`: which child of its parent it may be.
    #[inline]
    pub(crate) fn index_node(&self, handle: Handle, hint: usize) -> Result<Node> {
        match self.resident().and_then(|resident| resident.node(handle, hint)) {
            Some(node) => Ok(node.clone()),
            None => self.node(handle, Kind::Index),
        }
    }

    /// The data block where (`key`, `trailer`) belongs.
    pub(crate) fn data_handle(&self, key: &[u8], trailer: Trailer) -> Result<Handle> {
        let root = self.root()?;
        let (mut handle, mut child) = self.child(&root.node, key, trailer)?;
        for _ in 1..root.footer.levels {
            (handle, child) = match self.resident().and_then(|resident| resident.node(handle, child)) {
                Some(node) => self.child(node, key, trailer)?,
                None => self.child(&self.node(handle, Kind::Index)?, key, trailer)?,
            };
        }
        Ok(handle)
    }

    #[inline]
    fn child(&self, node: &Node, key: &[u8], trailer: Trailer) -> Result<(Handle, usize)> {
        let child = node.layout.child(&node.bytes, key, trailer);
        let child = child.and_then(|i| Ok((node.handle(i)?, i)));
        child.map_err(|f| self.fault(f, node.offset))
    }

    /// A node, through the cache.
    #[inline]
    pub(crate) fn node(&self, handle: Handle, kind: Kind) -> Result<Node> {
        let bytes = self.block_or(handle, kind, || self.read(handle, kind, frame::MAX_PAYLOAD))?;
        node::touch(&bytes);
        self.parse(bytes, kind, handle.offset)
    }

    #[inline]
    pub(crate) fn parse(&self, bytes: Slice, kind: Kind, offset: u64) -> Result<Node> {
        let layout = Layout::parse(&bytes, kind == Kind::Index).map_err(|f| self.fault(f, offset))?;
        Ok(Node { bytes, layout, offset })
    }

    #[inline]
    pub(crate) fn block(&self, payload: Payload, handle: Handle) -> Result<Block> {
        let layout = Layout::parse(&payload, false).map_err(|f| self.fault(f, handle.offset))?;
        Ok(Block { payload, layout, offset: handle.offset })
    }

    /// The payload of a block, through the cache, or else by way of `read`.
    #[inline]
    fn block_or(&self, handle: Handle, kind: Kind, read: impl FnOnce() -> Result<Slice>) -> Result<Slice> {
        let class = match kind {
            Kind::Data => BlockClass::Data,
            Kind::Filter => BlockClass::Filter,
            _ => BlockClass::Index,
        };
        let key = self.block_key(handle);
        if let Some(block) = self.tables.cache.get(key, class) {
            return Ok(block);
        }
        let block = read()?;
        if class != BlockClass::Data || self.tables.cache.admits(key) {
            self.tables.cache.insert(key, class, block.clone());
        }
        Ok(block)
    }

    /// The payload of a block, from the file.
    pub(crate) fn read(&self, handle: Handle, kind: Kind, cap: usize) -> Result<Slice> {
        let bytes = self.read_frame(handle, cap)?;
        frame::open(bytes, self.place(handle.offset, kind), cap).map_err(|f| self.fault(f, handle.offset))
    }

    /// The payload of a data block, from the file; `None` when it was asked for. What the cache is to have is put in.
    pub(crate) fn read_block(
        &self,
        wanted: PendingRead,
        reading: &mut Reading<'_>,
    ) -> Result<Option<Payload>> {
        let handle = wanted.handle;
        self.check_handle(handle, frame::MAX_PAYLOAD)?;
        let mut frame = self.buffer_for(wanted);
        if !self.fetch(&mut frame, wanted, reading)? {
            return Ok(None);
        }
        self.open_block(frame, wanted).map(Some)
    }

    /// Where the frame of a data block goes: a buffer that is used again, or, where the block is to be shared, one of its very size.
    pub(crate) fn buffer_for(&self, wanted: PendingRead) -> Buffer {
        let size = wanted.handle.size as usize;
        if wanted.admitted || size > MAX_OWN { Buffer::new(size) } else { Buffer::of(size) }
    }

    /// The payload of the data block whose frame this is.
    pub(crate) fn open_block(&self, frame: Buffer, wanted: PendingRead) -> Result<Payload> {
        let PendingRead { handle, admitted } = wanted;
        let (place, fault) = (self.place(handle.offset, Kind::Data), |f| self.fault(f, handle.offset));
        if !admitted && frame.len() <= MAX_OWN {
            return Payload::open(frame, place).map_err(fault);
        }
        let bytes = frame::open(frame.into_vec(), place, frame::MAX_PAYLOAD).map_err(fault)?;
        if admitted {
            self.tables.cache.insert(self.block_key(handle), BlockClass::Data, bytes.clone());
        }
        Ok(Payload::Shared(bytes))
    }

    /// The frame of a block, from the file, unverified.
    pub(crate) fn read_frame(&self, handle: Handle, cap: usize) -> Result<Vec<u8>> {
        self.check_handle(handle, cap)?;
        let mut bytes = vec![0; handle.size as usize];
        self.read_at(&mut bytes, handle.offset)?;
        Ok(bytes)
    }

    /// Makes sure that a block can lie where an index says, before memory is set aside for it.
    pub(crate) fn check_handle(&self, handle: Handle, cap: usize) -> Result<()> {
        if handle.end() > self.file.size || handle.size as usize > cap + frame::HEADER_LEN {
            return Err(self.fault(DecodeError::Corrupt("block lies outside its table"), handle.offset));
        }
        Ok(())
    }

    pub(crate) fn read_at(&self, bytes: &mut [u8], offset: u64) -> Result<()> {
        self.note_read(bytes.len());
        self.file()?.read_exact_at(bytes, offset)
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

    /// Hints that these bytes of the file will not be read again.
    pub(crate) fn wont_need(&self, offset: u64, len: u64) {
        if self.own_file.is_none()
            && let Ok(file) = self.tables.file(&self.file)
        {
            file.wont_need(offset, len);
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
