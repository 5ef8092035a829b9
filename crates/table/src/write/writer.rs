//! Writing a table: entries come in order and are written in blocks; filter, index or rows, properties and footer follow. `leaves.rs`
//! writes the entries of a B+-tree, `rows.rs` those of a size-class table.
//!
//! The file is appended to in large pieces. Memory: one block, one output buffer, eight bytes per distinct key for the filter, and the
//! index or the rows.

use crate::format::filter::{self, FilterShape};
use crate::format::footer::{self, Footer};
use crate::format::frame::{Handle, Kind};
use crate::format::options::{
    BlockTimes, TableFormat, TableMeta, TableOptions, TableOwner, UNNUMBERED, filter_hash, table_file_name,
};
use crate::format::properties;
use crate::write::leaves::Leaves;
use crate::write::output::Output;
use crate::write::rows::Rows;
use base::limits::{MAX_KEY_LEN, MAX_VALUE_LEN};
use base::planted::{Bug, planted};
use base::{Error, Result, Time, Trailer};
use env::Env;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bounds that [`TableOptions::block_size`] is clamped to.
const BLOCK_SIZES: std::ops::RangeInclusive<usize> = 64..=1 << 20;

/// Writes one table.
///
/// A writer that is dropped without [`TableWriter::finish`] or [`TableWriter::abandon`] leaves its file behind. After an
/// error the file is incomplete: abandon it.
pub struct TableWriter {
    env: Arc<dyn Env>,
    out: Output,
    body: Body,
    bits_per_key: u32,
    hashes: Vec<u64>,
    /// The last entry is an operand.
    after_operand: bool,
    meta: TableMeta,
    owner: Option<TableOwner>,
}

/// The file of a table that is finished and not synced. If it is dropped, the file stays as it is.
pub struct UnsyncedTable {
    env: Arc<dyn Env>,
    out: Output,
}

impl UnsyncedTable {
    /// Syncs the file; the caller syncs the directory. After an error the file is removed if possible.
    pub fn sync(mut self) -> Result<()> {
        if planted(Bug::SkipTableSync) {
            return Ok(());
        }
        let synced = self.out.sync();
        if synced.is_err() {
            let Output { path, .. } = self.out;
            let _ = self.env.remove(&path);
        }
        synced
    }
}

/// The entries, as the format of the table wants them.
enum Body {
    Leaves(Box<Leaves>),
    Rows(Box<Rows>),
}

impl TableWriter {
    /// Creates the file of table `number` in `dir`; it must not exist.
    pub fn create(
        env: &Arc<dyn Env>,
        dir: &Path,
        number: u64,
        options: &TableOptions,
    ) -> Result<TableWriter> {
        TableWriter::new(env, dir.join(table_file_name(number)), number, options)
    }

    /// Creates a table in the file `path`, which must not exist, outside of any directory of tables: for [`Table::open_at`](crate::Table::open_at).
    pub fn create_at(env: &Arc<dyn Env>, path: &Path, options: &TableOptions) -> Result<TableWriter> {
        TableWriter::new(env, path.to_owned(), UNNUMBERED, options)
    }

    fn new(env: &Arc<dyn Env>, path: PathBuf, number: u64, options: &TableOptions) -> Result<TableWriter> {
        let block_size = options.block_size.clamp(*BLOCK_SIZES.start(), *BLOCK_SIZES.end());
        Ok(TableWriter {
            env: Arc::clone(env),
            out: Output::create(env, path, number, options)?,
            body: match options.format {
                TableFormat::BTree => Body::Leaves(Box::new(Leaves::new(block_size))),
                TableFormat::SizeClass => Body::Rows(Box::new(Rows::new(block_size))),
            },
            bits_per_key: options.filter_bits_per_key,
            hashes: Vec::new(),
            after_operand: false,
            meta: TableMeta::empty(number, 0),
            owner: options.owner.clone(),
        })
    }

    /// Appends to the file in larger pieces, which takes 4 MiB of memory more: for a writer that is not to be slow for the sake of reads.
    pub fn append_large_pieces(&mut self) {
        self.out.append_large_pieces();
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
        self.add_timed(key, hash, trailer, value, None)
    }

    /// The same with the time of the entry, and the one at which it ended ([`Time::MAX`]: it has not, or that is not known), not before it. A B+-tree
    /// whose entries all have times lets walks leave blocks out ([`Table::cursor_for`](crate::Table::cursor_for)).
    #[inline]
    pub fn add_timed(
        &mut self,
        key: &[u8],
        hash: u64,
        trailer: Trailer,
        value: &[u8],
        times: Option<(Time, Time)>,
    ) -> Result<()> {
        debug_assert!(times.is_none_or(|(time, end)| time <= end), "an end before the time");
        if key.len() > MAX_KEY_LEN || value.len() > MAX_VALUE_LEN {
            return Err(self.too_long(key, value));
        }
        let same_key = match &mut self.body {
            Body::Leaves(leaves) => {
                let times = times.map(|(earliest, last_end)| BlockTimes { earliest, last_end });
                leaves.add(&mut self.out, key, trailer, value, times)?
            }
            Body::Rows(rows) => rows.add(&mut self.out, key, trailer, value)?,
        };
        if self.meta.entries == 0 {
            self.meta.smallest = key.to_vec();
        }
        // Versions of one key in a row have one hash.
        if !same_key && self.bits_per_key > 0 && self.hashes.last() != Some(&hash) {
            self.hashes.push(hash);
        }
        self.meta.count(same_key && !self.after_operand, trailer, key.len(), value.len());
        self.after_operand = trailer.is_merge();
        if trailer.is_reference() && !self.meta.count_reference(value) {
            return Err(self.out.invalid("a reference is malformed"));
        }
        match trailer.expires() && !self.meta.count_expiry(value) {
            true => Err(self.out.invalid("an entry has no expiry")),
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
        let body = match &self.body {
            Body::Leaves(leaves) => leaves.estimated_len(),
            Body::Rows(rows) => rows.estimated_len(),
        };
        self.out.end() + body + filter + footer::LEN as u64
    }

    /// Writes what is left, and syncs the file; the caller syncs the directory. There must be at least one entry.
    ///
    /// After an error there is no table, and the file is removed if possible.
    pub fn finish(self) -> Result<TableMeta> {
        let (meta, unsynced) = self.finish_unsynced()?;
        unsynced.sync().map(|()| meta)
    }

    /// [`TableWriter::finish`] without the sync, which can so be made when more of the file was written to the disk.
    pub fn finish_unsynced(mut self) -> Result<(TableMeta, UnsyncedTable)> {
        match self.write_rest() {
            Ok(meta) => {
                self.out.free();
                Ok((meta, UnsyncedTable { env: self.env, out: self.out }))
            }
            Err(error) => {
                // The first error is returned; recovery removes files that the manifest does not name.
                let _ = self.abandon();
                Err(error)
            }
        }
    }

    fn write_rest(&mut self) -> Result<TableMeta> {
        if self.out.failed || self.meta.entries == 0 {
            let why = if self.out.failed { "finished after an error" } else { "a table without entries" };
            return Err(self.out.invalid(why));
        }
        self.meta.largest = match &mut self.body {
            Body::Leaves(leaves) => leaves.finish(&mut self.out)?,
            Body::Rows(rows) => rows.finish(&mut self.out)?,
        };
        let data_size = self.out.end();
        let filter = self.write_filter()?;
        let (version, root, levels) = self.write_index()?;
        let (meta, owner) = (&self.meta, self.owner.as_ref());
        let properties =
            self.out.block(Kind::Properties, true, |bytes| properties::encode(meta, owner, bytes));
        let file_size = self.out.end() + footer::LEN as u64;
        let file = self.meta.number;
        let footer = Footer { version, file, file_size, data_size, root, levels, filter, properties };
        self.out.raw(&footer.encode());
        self.out.append()?;
        Ok(TableMeta { file_size, ..self.meta.clone() })
    }

    /// Writes the index or the rows. Returns the version of the format, the root or the directory, and the number of levels.
    fn write_index(&mut self) -> Result<(u32, Handle, u8)> {
        match &mut self.body {
            Body::Leaves(leaves) => leaves.write_index(&mut self.out),
            Body::Rows(rows) => Ok((footer::SIZE_CLASS, rows.write_rows(&mut self.out)?, 0)),
        }
    }

    /// Removes the file.
    pub fn abandon(self) -> Result<()> {
        let TableWriter { env, out, .. } = self;
        let path = out.path.clone();
        drop(out);
        env.remove(&path)
    }

    #[cold]
    fn too_long(&self, key: &[u8], value: &[u8]) -> Error {
        let (key, value) = (key.len(), value.len());
        self.out.invalid(&format!("a key of {key} or a value of {value} bytes is too long"))
    }

    fn write_filter(&mut self) -> Result<FilterShape> {
        let shape = FilterShape::new(self.out.end(), self.hashes.len() as u64, self.bits_per_key);
        if shape.probes > 0 {
            let lines = filter::build(&shape, &std::mem::take(&mut self.hashes));
            for partition in lines.chunks_exact(shape.partition_len()) {
                self.out.block(Kind::Filter, false, |bytes| bytes.extend_from_slice(partition));
                self.out.flush()?;
            }
        }
        Ok(shape)
    }
}
