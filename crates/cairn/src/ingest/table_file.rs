//! Tables in files of their own: made anywhere, without a database, and loaded by [`Ingest::put_table`](super::Ingest::put_table).

use crate::types::Limits;
use crate::wal::Entry;
use base::expiry::{expiry_bytes, split_expiry};
use base::{Cursor, EntryKind, Error, Result, Time, Trailer};
use env::{Env, RealEnv};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use table::{Compression, ScanCursor, Table, TableFormat, TableOptions, TableWriter};

/// The entries have no order in time.
const SEQ: u64 = 1;

/// Writes a file of sorted entries, for [`Ingest::put_table`](crate::Ingest::put_table): on another machine, in other processes, in many threads,
/// each of which makes a file of its own. It needs no database.
///
/// The file is a table as those of a database, compressed by LZ4, with a checksum for each block. Loading it reads and verifies it once, and writes tables
/// that fit the options and the guards of the keyspace.
///
/// ```
/// use cairn::{Database, IngestOptions, KeyspaceOptions, TableBuilder};
///
/// # fn main() -> cairn::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let (one, two) = (dir.path().join("one.tbl"), dir.path().join("two.tbl"));
/// for (path, keys) in [(&one, 0..500u32), (&two, 500..1000)] {
///     let mut table = TableBuilder::create(path)?;
///     for key in keys {
///         table.put(key.to_be_bytes(), "value")?;
///     }
///     table.finish()?;
/// }
///
/// let db = Database::open(dir.path().join("db"))?;
/// let keyspace = db.keyspace("numbers", KeyspaceOptions::default())?;
/// let mut load = db.ingest(IngestOptions::default());
/// load.put_table(&keyspace, &one)?;
/// load.put_table(&keyspace, &two)?;
/// assert_eq!(load.commit()?.entries, 1000);
/// # Ok(())
/// # }
/// ```
///
/// A builder that is dropped without [`TableBuilder::finish`] removes its file.
pub struct TableBuilder {
    env: Arc<dyn Env>,
    path: PathBuf,
    writer: Option<TableWriter>,
    limits: Limits,
    stored: Vec<u8>,
}

impl TableBuilder {
    /// Creates the file `path`, which must not exist.
    ///
    /// # Errors
    /// `AlreadyExists`, `NotFound` if its directory does not exist, and others of creating a file.
    pub fn create(path: impl AsRef<Path>) -> Result<TableBuilder> {
        TableBuilder::create_in(RealEnv::new(), path)
    }

    /// [`TableBuilder::create`] in any environment.
    ///
    /// # Errors
    /// As for [`TableBuilder::create`].
    pub fn create_in(env: Arc<dyn Env>, path: impl AsRef<Path>) -> Result<TableBuilder> {
        let options = TableOptions {
            format: TableFormat::BTree,
            block_size: 16 << 10,
            compression: Compression::Lz4,
            filter_bits_per_key: 0,
            owner: None,
        };
        let path = path.as_ref().to_owned();
        let writer = Some(TableWriter::create_at(&env, &path, &options)?);
        Ok(TableBuilder { env, path, writer, limits: Limits::PLAIN, stored: Vec::new() })
    }

    /// Adds an entry.
    ///
    /// # Errors
    /// `InvalidArgument` if the key does not come after the last one, and if key or value are too long; errors of writing. After one the builder takes
    /// nothing more.
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.add(key.as_ref(), EntryKind::Put, value.as_ref(), None)
    }

    /// Adds an entry that lives until `expiry`: see [`Keyspace::put_until`](crate::Keyspace::put_until).
    ///
    /// # Errors
    /// As for [`TableBuilder::put`].
    pub fn put_until(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>, expiry: Time) -> Result<()> {
        self.add(key.as_ref(), EntryKind::ExpiringPut, value.as_ref(), Some(expiry))
    }

    fn add(&mut self, key: &[u8], kind: EntryKind, value: &[u8], expiry: Option<Time>) -> Result<()> {
        let added = self.limits.check(key, value).and_then(|()| {
            let writer = self.writer.as_mut().ok_or_else(|| ended(&self.path))?;
            let value = match expiry {
                None => value,
                Some(expiry) => {
                    self.stored.clear();
                    self.stored.extend_from_slice(value);
                    self.stored.extend_from_slice(&expiry_bytes(expiry));
                    &self.stored
                }
            };
            writer.add(key, Trailer::new(SEQ, kind), value)
        });
        if added.is_err() {
            self.abandon();
        }
        added
    }

    /// Ends the file, and syncs it. Returns its length. There must be at least one entry.
    ///
    /// # Errors
    /// `InvalidArgument` without entries or after an error; errors of writing. The file is removed, if possible.
    pub fn finish(mut self) -> Result<u64> {
        let writer = self.writer.take().ok_or_else(|| ended(&self.path))?;
        let table = writer.finish()?;
        let dir = self.path.parent().filter(|dir| *dir != Path::new("")).unwrap_or(Path::new("."));
        self.env.sync_dir(dir).inspect_err(|_| drop(self.env.remove(&self.path)))?;
        Ok(table.file_size)
    }

    fn abandon(&mut self) {
        // Best effort: what stays has no end, so it is no table.
        let _ = self.writer.take().map(TableWriter::abandon);
    }
}

impl Drop for TableBuilder {
    fn drop(&mut self) {
        self.abandon();
    }
}

fn ended(path: &Path) -> Error {
    Error::invalid(format!("{}: the table was ended by an error", path.display()))
}

/// Reads such a file.
pub(super) struct TableReader {
    table: Arc<Table>,
    cursor: ScanCursor,
}

impl TableReader {
    pub(super) fn open(env: &Arc<dyn Env>, path: &Path) -> Result<TableReader> {
        let table = Table::open_at(env, path)?;
        let mut cursor = table.scan();
        cursor.seek_to_first()?;
        Ok(TableReader { table, cursor })
    }

    /// The present entry; `None` at the end.
    pub(super) fn entry(&self) -> Result<Option<Entry<'_>>> {
        if !self.cursor.valid() {
            return Ok(None);
        }
        let (key, stored) = (self.cursor.key(), self.cursor.value());
        let trailer = self.cursor.trailer();
        if trailer == Trailer::new(trailer.seq(), EntryKind::Put) {
            return Ok(Some(Entry::put(key, stored)));
        }
        let wrong = || Error::corruption(self.table.path(), 0, "the table has an entry that is no put");
        if trailer != Trailer::new(trailer.seq(), EntryKind::ExpiringPut) {
            return Err(wrong());
        }
        let (value, expiry) = split_expiry(stored).ok_or_else(wrong)?;
        Ok(Some(Entry::put(key, value).until(Some(expiry))))
    }

    pub(super) fn next(&mut self) -> Result<()> {
        self.cursor.next()
    }
}

crate::types::debug_of! {
    [] TableBuilder, "TableBuilder";
}
