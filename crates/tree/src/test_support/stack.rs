//! A stack of tables on a simulated disk, for tests.

use crate::version::{Guard, LiveTable, ObsoleteFiles};
use base::{Slice, Trailer};
use env::{Env, SimEnv};
use std::path::Path;
use std::sync::Arc;
use table::{BlockCache, Compression, TableCache, TableOptions, TableWriter};

pub(crate) const DIR: &str = "/db";

/// A stack of tables on a simulated disk.
pub(crate) struct TestStack {
    pub(crate) sim: Arc<SimEnv>,
    pub(crate) guard: Arc<Guard>,
}

pub(crate) type Entry = (Vec<u8>, Trailer, Vec<u8>);

pub(crate) fn table_options(block_size: usize, compression: Compression) -> TableOptions {
    TableOptions { block_size, compression, ..TableOptions::default() }
}

impl TestStack {
    /// Creates tables with these entries, oldest table first. Sorts the entries of each table.
    pub(crate) fn new(tables: Vec<Vec<Entry>>, options: &TableOptions, cache_bytes: u64) -> TestStack {
        let sim = SimEnv::new(1);
        let env: Arc<dyn Env> = sim.clone();
        env.create_dir(Path::new(DIR)).unwrap();
        let cache = Arc::new(BlockCache::new(cache_bytes));
        let directory = TableCache::new(env.clone(), DIR.into(), cache, 100);
        let obsolete_files = Arc::new(ObsoleteFiles::default());
        let mut files = Vec::new();
        for (number, mut entries) in tables.into_iter().enumerate() {
            entries.sort_by(|a, b| base::compare(&a.0, a.1, &b.0, b.1));
            let number = number as u64 + 1;
            let mut writer = TableWriter::create(&env, Path::new(DIR), number, options).unwrap();
            for (key, trailer, value) in &entries {
                writer.add(key, *trailer, value).unwrap();
            }
            let meta = writer.finish().unwrap();
            let table = directory.open(&meta).unwrap();
            files.push(LiveTable::new(meta, table, obsolete_files.clone(), None));
        }
        files.reverse();
        TestStack { sim, guard: Guard::new(Slice::default(), files) }
    }
}
