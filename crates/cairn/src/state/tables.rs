//! The shared structures for reading tables.

use super::hash_log::HashLog;
use crate::sync::Mutex;
use crate::types::Options;
use crate::wal::{MAX_OPEN_LOGS, log_file_name};
use base::planted::{Bug, planted};
use base::{Error, ErrorKind, Result, Seq};
use env::Env;
use hashlog::{HintFile, HintReader};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use table::{BlockCache, TableCache};
use tree::{LiveTable, ObsoleteFiles};
use values::{SegmentFile, Segments, ValueFile};

/// The indexes of keyspaces without order, by keyspace.
pub(crate) type HashLogs = BTreeMap<u64, Arc<HashLog>>;

/// Files that are open beside the tables being read: logs, the manifest, the lock, and tables being written.
const OTHER_FILES: usize = MAX_OPEN_LOGS + 4;

/// Maximum number of open files with values; an eighth of those for tables, if that is less.
const MAX_VALUE_FILES: usize = 256;

/// The shared structures for reading tables.
pub(crate) struct Tables {
    pub cache: Arc<TableCache>,
    pub obsolete: Arc<ObsoleteFiles>,
    /// The logs that have values of entries in tables.
    pub segments: Arc<Segments>,
    /// Held while tables are deleted.
    pub deleting: Mutex<()>,
    /// Maximum number of open files with values.
    of_values: usize,
}

impl Tables {
    pub(crate) fn new(env: &Arc<dyn Env>, dir: &Path, options: &Options) -> Tables {
        let cache = Arc::new(BlockCache::new(options.memory_budget / 2));
        // The other half is for the rest of the process.
        let most = match options.max_open_files {
            0 => (env.max_open_files() / 2).clamp(16, 100_000),
            n => n,
        };
        let most = most.saturating_sub(OTHER_FILES).max(4);
        let of_values = (most / 8).clamp(1, MAX_VALUE_FILES);
        let cache = TableCache::new(env.clone(), dir.to_owned(), cache, most - of_values);
        let waiting_reads = cache.waiting_reads().clone();
        Tables {
            cache,
            obsolete: Arc::default(),
            segments: Segments::new(env.clone(), dir.to_owned(), log_file_name, of_values, waiting_reads),
            deleting: Mutex::default(),
            of_values,
        }
    }

    /// The same tables and cache, with segments of a moment of a database to which another process writes.
    pub(crate) fn with_segments(&self, segments: Arc<Segments>) -> Tables {
        Tables {
            cache: self.cache.clone(),
            obsolete: self.obsolete.clone(),
            segments,
            deleting: Mutex::default(),
            of_values: self.of_values,
        }
    }

    /// Segments with these value files, of such a moment.
    pub(crate) fn segments_of_moment<'a>(
        &self,
        (env, dir): (&Arc<dyn Env>, &Path),
        files: impl Iterator<Item = &'a ValueFile>,
    ) -> Arc<Segments> {
        let waiting_reads = self.cache.waiting_reads().clone();
        let segments =
            Segments::new(env.clone(), dir.to_owned(), log_file_name, self.of_values, waiting_reads);
        files.for_each(|file| segments.add_value_file(file.clone()));
        segments
    }

    /// Loads the indexes of keyspaces without order.
    ///
    /// # Errors
    /// Those of reading their hint files.
    pub(crate) fn load_hash_logs(
        &self,
        env: &Arc<dyn Env>,
        dir: &Path,
        state: &tree::ManifestState,
    ) -> Result<HashLogs> {
        let with_hints = state.keyspaces.iter().filter(|(_, keyspace)| !keyspace.hints.is_empty());
        let load = |(id, keyspace): (&u64, &tree::KeyspaceState)| {
            let log = self.load_hash_log(env, dir, *id, &keyspace.hints, &state.value_files)?;
            self.share(&log, None);
            Ok((*id, log))
        };
        with_hints.map(load).collect()
    }

    /// Loads the index of a keyspace. The caller tells the segments and the cache of it.
    pub(crate) fn load_hash_log(
        &self,
        env: &Arc<dyn Env>,
        dir: &Path,
        id: u64,
        hints: &BTreeMap<u64, HintFile>,
        value_files: &BTreeMap<u64, ValueFile>,
    ) -> Result<Arc<HashLog>> {
        let reader = HintReader { env: env.clone(), dir: dir.to_owned() };
        let len_of = |file: SegmentFile| match file {
            SegmentFile::Log(number) => {
                let path = dir.join(log_file_name(number));
                env.len(&path).map_err(|e| match e.kind() {
                    ErrorKind::NotFound => {
                        Error::corruption(&path, 0, "the log is missing, with entries that a hint file names")
                    }
                    _ => e,
                })
            }
            SegmentFile::Values(number) => Ok(value_files.get(&number).map_or(0, |file| file.len)),
        };
        let log = HashLog::load(id, hints, &reader, &len_of)?;
        Ok(Arc::new(log))
    }

    /// Tells the segments and the cache what an index needs: see [`HashLog::share`].
    pub(crate) fn share(&self, log: &HashLog, oldest_reader: Option<Seq>) {
        log.share(&self.segments, self.cache.cache(), oldest_reader);
    }

    /// Takes the value files over that the manifest names and a table refers to.
    pub(crate) fn add_value_files(&self, state: &tree::ManifestState) {
        for file in state.value_files.values().filter(|_| !planted(Bug::ForgetMovedValues)) {
            if file.segments.iter().any(|&segment| self.segments.is_held(segment)) {
                self.segments.add_value_file(file.clone());
            }
        }
        self.segments.opened();
    }

    /// Opens the reader of a table for a moment, which needs no holders of segments.
    pub(crate) fn open_for_moment(&self, meta: &table::TableMeta) -> Result<Arc<LiveTable>> {
        Ok(LiveTable::new(meta.clone(), self.cache.open(meta)?, self.obsolete.clone(), None))
    }

    /// Opens the reader of a table for a version.
    pub(crate) fn open(&self, meta: &table::TableMeta) -> Result<Arc<LiveTable>> {
        let table = self.cache.open(meta)?;
        Ok(LiveTable::new(meta.clone(), table, self.obsolete.clone(), Some(&self.segments)))
    }
}
