//! What the tables of one directory share: file names, open files, the block cache and the counters.
//!
//! [`TableCache`] holds a bounded number of files open. When the process has no file handle left, it closes its files, halves the
//! bound and tries once more. It checks the length of each file that it opens.

use crate::cache::block_cache::BlockCache;
use crate::cache::counters::Counters;
use crate::format::options::table_file_name;
use base::{Error, ErrorKind, Result};
use env::{Env, ReadFile, WaitingReads};
use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{DefaultHashBuilder, OptionsBuilder, UnitWeighter};
use std::cell::Cell;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Counters of the tables of a directory since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableStats {
    /// Bytes read from files.
    pub bytes_read: u64,
    /// Reads of files.
    pub reads: u64,
    /// Filter probes.
    pub filter_probes: u64,
    /// Filter probes that excluded the key, so that no block was read.
    pub filter_negatives: u64,
    /// Filter probes that let a key pass, after which the get found no visible version.
    pub filter_false_positives: u64,
}

pub(crate) const BYTES_READ: usize = 0;
pub(crate) const READS: usize = 1;
pub(crate) const FILTER_POSITIVES: usize = 2;
pub(crate) const FILTER_NEGATIVES: usize = 3;
pub(crate) const FILTER_FALSE_POSITIVES: usize = 4;

thread_local! {
    static READ_HERE: Cell<u64> = const { Cell::new(0) };
}

/// Bytes that this thread has read from tables' files since it started, without what a seek has read ahead. The difference of two
/// calls is the cost of the reads between them.
#[inline]
pub fn bytes_read_by_this_thread() -> u64 {
    READ_HERE.get()
}

#[inline]
pub(crate) fn note_read(bytes: usize) {
    READ_HERE.set(READ_HERE.get().wrapping_add(bytes as u64));
}

/// Takes off bytes that a seek has read ahead of its block.
#[inline]
pub(crate) fn note_ahead(bytes: u64) {
    READ_HERE.set(READ_HERE.get().wrapping_sub(bytes));
}

/// Minimum of the bound on open files, however few file handles the process has left.
const FEWEST_OPEN_FILES: u64 = 4;

/// Names the file of one table, and says how long it must be.
pub(crate) struct TableFile {
    pub path: PathBuf,
    pub number: u64,
    /// Length of the file, in bytes.
    pub size: u64,
    /// What readers add to its sequence numbers.
    pub seq_shift: u64,
}

/// The tables in one directory. Shared between threads.
pub struct TableCache {
    env: Arc<dyn Env>,
    dir: PathBuf,
    pub(crate) cache: Arc<BlockCache>,
    files: Cache<u64, Arc<dyn ReadFile>>,
    pub(crate) counters: Counters<5>,
    /// Bytes of all tables that exist as [`Table`](crate::Table), and the memory that the process may use.
    pub(crate) bytes: AtomicU64,
    pub(crate) memory: u64,
    pub(crate) waiting_reads: Arc<WaitingReads>,
}

impl TableCache {
    /// The tables in `dir`, whose blocks go through `cache`, with at most `max_open_files` files held open (at least one;
    /// a file that is being read while it is put out of the set stays open until the read ends). The tables of another directory need
    /// a cache of their own.
    pub fn new(
        env: Arc<dyn Env>,
        dir: PathBuf,
        cache: Arc<BlockCache>,
        max_open_files: usize,
    ) -> Arc<TableCache> {
        let limit = max_open_files.max(1);
        let options = OptionsBuilder::new()
            .estimated_items_capacity(limit)
            .weight_capacity(limit as u64)
            .shards(1)
            .build()
            .expect("both capacities are given");
        let files = Cache::with_options(
            options,
            UnitWeighter,
            DefaultHashBuilder::default(),
            DefaultLifecycle::default(),
        );
        let memory = env.memory();
        let (counters, bytes) = (Counters::new(), AtomicU64::new(0));
        let waiting_reads = Arc::default();
        Arc::new(TableCache { env, dir, cache, files, counters, bytes, memory, waiting_reads })
    }

    /// The file of table `number`, which must be `size` bytes long.
    pub(crate) fn table_file(&self, number: u64, size: u64, seq_shift: u64) -> TableFile {
        TableFile { path: self.dir.join(table_file_name(number)), number, size, seq_shift }
    }

    /// Closes the file of a deleted table once no read uses it. Its blocks age out of the cache.
    pub fn forget(&self, number: u64) {
        self.files.remove(&number);
    }

    /// The reads of callers that wait for the disk.
    pub fn waiting_reads(&self) -> &Arc<WaitingReads> {
        &self.waiting_reads
    }

    /// The cache that blocks go through.
    pub fn cache(&self) -> &Arc<BlockCache> {
        &self.cache
    }

    /// Counters since the directory was opened.
    pub fn stats(&self) -> TableStats {
        let sum = |which| self.counters.sum(which);
        TableStats {
            bytes_read: sum(BYTES_READ),
            reads: sum(READS),
            filter_probes: sum(FILTER_POSITIVES) + sum(FILTER_NEGATIVES),
            filter_negatives: sum(FILTER_NEGATIVES),
            filter_false_positives: sum(FILTER_FALSE_POSITIVES),
        }
    }

    /// Called when the process has no file handle left: closes all files that no read uses now, and halves the bound.
    #[cold]
    fn hold_fewer(&self) {
        let half = self.files.len() as u64 / 2;
        self.files.clear();
        self.files.set_capacity(half.max(FEWEST_OPEN_FILES).min(self.files.capacity()));
    }

    /// The open file of `table`; its length is checked when it is opened.
    pub(crate) fn file(&self, table: &TableFile) -> Result<Arc<dyn ReadFile>> {
        if let Some(file) = self.files.get(&table.number) {
            return Ok(file);
        }
        let file = self.open_file(table)?;
        // Otherwise the kernel takes neighbouring cached pages for a sequential reader, and reads ahead. Readers that walk
        // a table request readahead themselves.
        file.expect_random();
        self.files.insert(table.number, Arc::clone(&file));
        Ok(file)
    }

    /// The file that has the name of `table` now, opened anew. Its length is checked.
    pub(crate) fn open_file(&self, table: &TableFile) -> Result<Arc<dyn ReadFile>> {
        let opened = match self.env.open(&table.path) {
            Err(e) if e.is_too_many_open_files() => {
                self.hold_fewer();
                self.env.open(&table.path)
            }
            opened => opened,
        };
        let file = opened.map_err(|e| match e.kind() {
            // The caller has the number from a manifest: a missing file is damage.
            ErrorKind::NotFound => Error::corruption(&table.path, 0, "the table is missing"),
            _ => e,
        })?;
        let len = file.len()?;
        if len != table.size {
            let what = format!("the file is {len} bytes long, the table {}", table.size);
            return Err(Error::corruption(&table.path, len.min(table.size), what));
        }
        Ok(file)
    }
}
