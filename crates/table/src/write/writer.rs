//! Writing a table: entries come in order and are written in data blocks; filter, index, properties and footer follow.
//! `block_align.rs` decides where data blocks end.
//!
//! The file is appended to in large pieces. Memory: one block, one output buffer, eight bytes per distinct key for the
//! filter, and a few dozen bytes per data block for the index.

use crate::format::compression::Compressor;
use crate::format::filter::{self, FilterShape};
use crate::format::footer;
use crate::format::footer::Footer;
use crate::format::frame::{self, Handle, Kind};
use crate::format::node_builder::NodeBuilder;
use crate::format::options::{TableMeta, TableOptions};
use crate::format::options::{TableOwner, filter_hash, table_file_name};
use crate::format::properties;
use crate::write::block_align::BlockAligner;
use base::checksum::Place;
use base::limits::{MAX_KEY_LEN, MAX_VALUE_LEN};
use base::planted::{Bug, planted};
use base::{Error, Result, Trailer, shared_prefix};
use env::{Env, WriteFile};
use std::cmp::Ordering;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes gathered before they are appended to the file.
const OUTPUT: usize = 512 << 10;

/// Bytes of an index node. Larger nodes make fewer levels; smaller ones waste less cache.
const INDEX_NODE: usize = 8 << 10;

/// Minimum children of an index node, however long their keys, so that each level is smaller than the one below.
const MIN_CHILDREN: usize = 4;

/// Bounds that [`TableOptions::block_size`] is clamped to.
const BLOCK_SIZES: std::ops::RangeInclusive<usize> = 64..=1 << 20;

/// Writes one table.
///
/// A writer that is dropped without [`TableWriter::finish`] or [`TableWriter::abandon`] leaves its file behind. After an
/// error the file is incomplete: abandon it.
pub struct TableWriter {
    env: Arc<dyn Env>,
    path: PathBuf,
    file: Box<dyn WriteFile>,
    out: Output,
    bits_per_key: u32,
    block: NodeBuilder,
    /// Maximum bytes of the node that is being built.
    limit: usize,
    pages: BlockAligner,
    /// Lower bound of the block that is being built.
    bound: (Vec<u8>, Trailer),
    index: Level,
    hashes: Vec<u64>,
    /// Last entry of the previous block.
    last: Option<(Vec<u8>, Trailer)>,
    meta: TableMeta,
    owner: Option<TableOwner>,
    failed: bool,
}

/// Bytes that were built and not yet appended to the file.
struct Output {
    number: u64,
    bytes: Vec<u8>,
    /// Offset in the file of the first of `bytes`.
    offset: u64,
    compressor: Compressor,
}

/// The bounds and handles of the nodes of one level of the tree, in order.
#[derive(Default)]
struct Level {
    keys: Vec<u8>,
    children: Vec<Child>,
}

struct Child {
    key_end: usize,
    trailer: Trailer,
    handle: Handle,
}

impl TableWriter {
    /// Creates the file of table `number` in `dir`; it must not exist.
    pub fn create(
        env: &Arc<dyn Env>,
        dir: &Path,
        number: u64,
        options: &TableOptions,
    ) -> Result<TableWriter> {
        let path = dir.join(table_file_name(number));
        let compressor = Compressor::new(options.compression)?;
        let file = env.create(&path)?;
        Ok(TableWriter {
            env: Arc::clone(env),
            path,
            file,
            out: Output { number, bytes: Vec::new(), offset: 0, compressor },
            bits_per_key: options.filter_bits_per_key,
            block: NodeBuilder::new(false),
            limit: 0,
            pages: BlockAligner::new(options.block_size.clamp(*BLOCK_SIZES.start(), *BLOCK_SIZES.end())),
            bound: (Vec::new(), Trailer(u64::MAX)),
            index: Level::default(),
            hashes: Vec::new(),
            last: None,
            meta: TableMeta::empty(number, 0),
            owner: options.owner.clone(),
            failed: false,
        })
    }

    /// Adds an entry, which must come after the last one in the order of [`base::compare`].
    #[inline]
    pub fn add(&mut self, key: &[u8], trailer: Trailer, value: &[u8]) -> Result<()> {
        let hash = if self.bits_per_key > 0 { filter_hash(self.owner.as_ref(), key) } else { 0 };
        self.add_hashed(key, hash, trailer, value)
    }

    /// Like [`TableWriter::add`], for a caller that already has the key's hash ([`TableOptions::filter_hash`]).
    #[inline]
    pub fn add_hashed(&mut self, key: &[u8], hash: u64, trailer: Trailer, value: &[u8]) -> Result<()> {
        if key.len() > MAX_KEY_LEN || value.len() > MAX_VALUE_LEN {
            return Err(self.too_long(key, value));
        }
        let same_key = match self.block.last_key() {
            Some(last) => self.check_order(last, (key, trailer))?,
            None => self.begin_block(key, trailer)?,
        };
        if self.block.count() > 0 && !self.block.fits(key, trailer, value, self.limit) {
            self.finish_block(NodeBuilder::len_alone(key, value))?;
            self.begin_block(key, trailer)?;
        }
        // Versions of one key in a row have one hash.
        if !same_key && self.bits_per_key > 0 && self.hashes.last() != Some(&hash) {
            self.hashes.push(hash);
        }
        self.block.add(key, trailer, value);
        self.meta.count(same_key, trailer, key.len(), value.len());
        match trailer.is_reference() && !self.meta.count_reference(value) {
            true => Err(Error::invalid(format!("{}: a reference is malformed", self.path.display()))),
            false => Ok(()),
        }
    }

    /// The number of value segments that its entries refer to.
    #[inline]
    pub fn segments(&self) -> usize {
        self.meta.segments.len()
    }

    /// Approximate size of the file if it were finished now.
    pub fn estimated_size(&self) -> u64 {
        let filter = self.hashes.len() as u64 * u64::from(self.bits_per_key) / 8;
        let index = (self.index.keys.len() + 20 * self.index.children.len()) as u64;
        self.out.end() + self.block.estimated_len() as u64 + filter + index + footer::LEN as u64
    }

    /// Writes what is left, and syncs the file; the caller syncs the directory. There must be at least one entry.
    ///
    /// After an error there is no table, and the file is removed if possible.
    pub fn finish(mut self) -> Result<TableMeta> {
        let finished = self.write_rest();
        if finished.is_err() {
            // The first error is returned; recovery removes files that the manifest does not name.
            let _ = self.abandon();
        }
        finished
    }

    fn write_rest(&mut self) -> Result<TableMeta> {
        if self.failed || self.meta.entries == 0 {
            let why = if self.failed { "finished after an error" } else { "a table without entries" };
            return Err(Error::invalid(format!("{}: {why}", self.path.display())));
        }
        self.finish_block(0)?;
        self.meta.largest = self.last.take().map_or_else(Vec::new, |(key, _)| key);
        let data_size = self.out.end();
        let filter = self.write_filter()?;
        let (root, levels) = self.write_index()?;
        let properties = self
            .out
            .block(Kind::Properties, true, |out| properties::encode(&self.meta, self.owner.as_ref(), out));
        let file_size = self.out.end() + footer::LEN as u64;
        let footer = Footer {
            version: footer::VERSION,
            file: self.meta.number,
            file_size,
            data_size,
            root,
            levels,
            filter,
            properties,
        };
        self.out.bytes.extend_from_slice(&footer.encode());
        self.out.append_to(&mut *self.file)?;
        if !planted(Bug::SkipTableSync) {
            self.file.sync().map_err(|e| e.sync_failed())?;
        }
        Ok(TableMeta { file_size, ..self.meta.clone() })
    }

    /// Removes the file.
    pub fn abandon(self) -> Result<()> {
        let TableWriter { env, path, file, .. } = self;
        drop(file);
        env.remove(&path)
    }

    /// Whether two entries in a row have the same key; an error if they are out of order.
    #[inline]
    fn check_order(&self, last: (&[u8], Trailer), next: (&[u8], Trailer)) -> Result<bool> {
        match base::compare_keys(last.0, next.0) {
            Ordering::Less => Ok(false),
            Ordering::Equal if last.1 > next.1 => Ok(true),
            _ => Err(self.out_of_order(next.0)),
        }
    }

    #[cold]
    fn out_of_order(&self, key: &[u8]) -> Error {
        let (path, key) = (self.path.display(), &key[..key.len().min(100)]);
        Error::invalid(format!(
            "{path}: key {:?} is not after the one before it",
            key.escape_ascii().to_string()
        ))
    }

    #[cold]
    fn too_long(&self, key: &[u8], value: &[u8]) -> Error {
        let (path, key, value) = (self.path.display(), key.len(), value.len());
        Error::invalid(format!("{path}: a key of {key} or a value of {value} bytes is too long"))
    }

    /// Decides the bound of the block that begins with this entry. Returns whether the previous block ends with the same key.
    fn begin_block(&mut self, key: &[u8], trailer: Trailer) -> Result<bool> {
        self.limit = self.pages.limit(self.out.end()).saturating_sub(frame::HEADER_LEN);
        self.bound.0.clear();
        let Some((last_key, last)) = &self.last else {
            // Nothing precedes the first block: its bound is the empty key.
            self.bound.1 = Trailer(u64::MAX);
            self.meta.smallest = key.to_vec();
            return Ok(false);
        };
        let same_key = self.check_order((last_key, *last), (key, trailer))?;
        if same_key {
            // Just after the last version in the previous block, so that a search between the two leads here.
            self.bound.0.extend_from_slice(key);
            self.bound.1 = Trailer(last.0 - 1);
        } else {
            let len = shared_prefix(last_key, key) + 1;
            self.bound.0.extend_from_slice(&key[..len]);
            self.bound.1 = Trailer(u64::MAX);
        }
        Ok(same_key)
    }

    /// Writes the block that was built. A node with the next entry alone would have `next` bytes; 0: there is no next entry.
    fn finish_block(&mut self, next: usize) -> Result<()> {
        let Some((key, trailer)) = self.block.last_key() else { return Ok(()) };
        let (last_key, last) = self.last.get_or_insert_with(|| (Vec::new(), trailer));
        last_key.clear();
        last_key.extend_from_slice(key);
        *last = trailer;
        let handle = self.out.data_block(&mut self.block, &mut self.pages, next);
        self.index.push(&self.bound.0, self.bound.1, handle);
        self.flush()
    }

    /// Appends to the file once enough bytes have gathered.
    fn flush(&mut self) -> Result<()> {
        if self.out.bytes.len() < OUTPUT {
            return Ok(());
        }
        let appended = self.out.append_to(&mut *self.file);
        self.failed |= appended.is_err();
        appended
    }

    fn write_filter(&mut self) -> Result<FilterShape> {
        let shape = FilterShape::new(self.out.end(), self.hashes.len() as u64, self.bits_per_key);
        if shape.probes > 0 {
            let lines = filter::build(&shape, &std::mem::take(&mut self.hashes));
            for partition in lines.chunks_exact(shape.partition_len()) {
                self.out.block(Kind::Filter, false, |out| out.extend_from_slice(partition));
                self.flush()?;
            }
        }
        Ok(shape)
    }

    /// Writes the index from the level above the data up to the root; returns the root and the number of levels.
    fn write_index(&mut self) -> Result<(Handle, u8)> {
        let mut below = std::mem::take(&mut self.index);
        let mut levels = 0;
        loop {
            below = self.write_level(&below)?;
            levels += 1;
            if let [root] = &below.children[..] {
                return Ok((root.handle, levels));
            }
        }
    }

    /// Writes the index nodes over one level.
    fn write_level(&mut self, below: &Level) -> Result<Level> {
        let mut level = Level::default();
        let mut node = NodeBuilder::new(true);
        let mut first: Option<(&[u8], Trailer)> = None;
        let mut key_start = 0;
        for child in &below.children {
            let key = &below.keys[key_start..child.key_end];
            key_start = child.key_end;
            if node.count() >= MIN_CHILDREN
                && node.estimated_len() + node.estimated_cost(key, &[0; 9]) > INDEX_NODE
            {
                let (key, trailer) = first.take().unwrap_or((b"", Trailer(u64::MAX)));
                level.push(key, trailer, self.out.block(Kind::Index, true, |out| node.write_to(out)));
                self.flush()?;
            }
            first.get_or_insert((key, child.trailer));
            node.add_child(key, child.trailer, child.handle);
        }
        let (key, trailer) = first.unwrap_or((b"", Trailer(u64::MAX)));
        level.push(key, trailer, self.out.block(Kind::Index, true, |out| node.write_to(out)));
        Ok(level)
    }
}

impl Output {
    /// Where the next block begins in the file.
    fn end(&self) -> u64 {
        self.offset + self.bytes.len() as u64
    }

    /// Builds a block in place.
    fn block(&mut self, kind: Kind, compress: bool, payload: impl FnOnce(&mut Vec<u8>)) -> Handle {
        let offset = self.end();
        let start = frame::begin(&mut self.bytes);
        payload(&mut self.bytes);
        let place = Place { file: self.number, offset, kind: kind as u8 };
        let compressor = compress.then_some(&mut self.compressor);
        let size = frame::seal(&mut self.bytes, start, place, compressor, |_| false);
        Handle { offset, size }
    }

    /// Builds a data block in place, with the padding that follows it. See [`TableWriter::finish_block`] for `next`.
    fn data_block(&mut self, block: &mut NodeBuilder, pages: &mut BlockAligner, next: usize) -> Handle {
        let offset = self.end();
        let start = frame::begin(&mut self.bytes);
        block.write_to(&mut self.bytes);
        let raw = self.bytes.len() - start;
        let place = Place { file: self.number, offset, kind: Kind::Data as u8 };
        let mut padded = false;
        let size = frame::seal(&mut self.bytes, start, place, Some(&mut self.compressor), |stored| {
            let end = offset + u64::from(stored);
            padded = next > 0 && pages.pad(raw, stored, end, next + frame::HEADER_LEN);
            padded
        });
        if padded {
            let end = frame::next_offset(offset, &self.bytes[start..]);
            self.bytes.resize((end - self.offset) as usize, 0);
        }
        Handle { offset, size }
    }

    fn append_to(&mut self, file: &mut dyn WriteFile) -> Result<()> {
        file.append(&self.bytes)?;
        self.offset += self.bytes.len() as u64;
        self.bytes.clear();
        self.bytes.shrink_to(4 * OUTPUT);
        self.compressor.shrink(4 * OUTPUT);
        Ok(())
    }
}

impl Level {
    fn push(&mut self, key: &[u8], trailer: Trailer, handle: Handle) {
        self.keys.extend_from_slice(key);
        self.children.push(Child { key_end: self.keys.len(), trailer, handle });
    }
}
