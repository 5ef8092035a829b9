//! The shared structures for reading tables.

use crate::sync::Mutex;
use crate::types::Options;
use crate::wal::{MAX_OPEN_LOGS, log_file_name};
use base::Result;
use base::planted::{Bug, planted};
use env::Env;
use std::path::Path;
use std::sync::Arc;
use table::{BlockCache, TableCache};
use tree::{LiveTable, ObsoleteFiles};
use values::Segments;

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
        }
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

    /// Opens the reader of a table for a version.
    pub(crate) fn open(&self, meta: &table::TableMeta) -> Result<Arc<LiveTable>> {
        let table = self.cache.open(meta.number, meta.file_size)?;
        Ok(LiveTable::new(meta.clone(), table, self.obsolete.clone(), Some(&self.segments)))
    }
}
