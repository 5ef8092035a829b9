//! RocksDB, with values in its tables and with values in blob files.
//!
//! It is set up as someone who knows it would: the asked-for memory, threads and filters, no compression, and its own
//! defaults for everything else. What deviates from the defaults stands in [`Engine::settings`].
//!
//! RocksDB's statistics cost every operation a little, so they are off. With `CAIRN_BENCH_ENGINE_STATS=1` in the
//! environment they are on, and [`Engine::written_bytes`] answers: for checks that the kernel's count is right.

use super::locked;
use crate::engine::{Asked, Engine, Error, Kind, Result, Stalls, Visit};
use ::rocksdb::statistics::{StatsLevel, Ticker};
use ::rocksdb::{
    BlockBasedOptions, Cache, DB, DBCompressionType, DBRawIterator, Options, ReadOptions,
    WaitForCompactOptions, WriteOptions, properties,
};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// Switches RocksDB's statistics on, if it is `1`.
const STATISTICS: &str = "CAIRN_BENCH_ENGINE_STATS";

/// Values of at least this many bytes go to blob files, where there are some.
const MIN_BLOB_SIZE: u64 = 512;

/// RocksDB as it comes, and with blob files.
pub fn kinds() -> Vec<Kind> {
    vec![
        Kind {
            name: "rocksdb",
            title: "RocksDB",
            version,
            open: |dir, asked| open(dir, asked, Values::InTables),
        },
        Kind {
            name: "rocksdb-blob",
            title: "RocksDB with blob files",
            version,
            open: |dir, asked| open(dir, asked, Values::InBlobFiles),
        },
    ]
}

/// The version of the library stands behind that of the crate that builds it: `0.19.0+11.8.1`.
fn version() -> String {
    let version = locked::version("librocksdb-sys");
    version.split_once('+').map_or(version, |(_, of_library)| of_library).to_string()
}

/// Where large values are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Values {
    InTables,
    InBlobFiles,
}

fn open(dir: &Path, asked: &Asked, values: Values) -> Result<Box<dyn Engine>> {
    Ok(Box::new(RocksDb::open(dir, asked, values)?))
}

struct RocksDb {
    db: DB,
    /// Holds the statistics, too.
    options: Options,
    statistics: bool,
    read: ReadOptions,
    write: WriteOptions,
    write_sync: WriteOptions,
    settings: BTreeMap<String, String>,
}

impl RocksDb {
    fn open(dir: &Path, asked: &Asked, values: Values) -> Result<RocksDb> {
        let statistics = std::env::var(STATISTICS).is_ok_and(|value| value == "1");
        let jobs = background_jobs(asked.background_threads);
        let cache = Cache::new_lru_cache(asked.cache_bytes as usize);

        let mut table = BlockBasedOptions::default();
        table.set_block_cache(&cache);
        table.set_bloom_filter(f64::from(asked.filter_bits_per_key), false);

        let mut options = Options::default();
        options.create_if_missing(true);
        options.set_compression_type(DBCompressionType::None);
        options.set_write_buffer_size(asked.memtable_bytes as usize);
        options.set_max_background_jobs(jobs);
        options.set_max_open_files(-1);
        options.set_block_based_table_factory(&table);
        if values == Values::InBlobFiles {
            options.set_enable_blob_files(true);
            options.set_min_blob_size(MIN_BLOB_SIZE);
            options.set_enable_blob_gc(true);
            options.set_blob_cache(&cache);
        }
        if statistics {
            options.enable_statistics();
            options.set_statistics_level(StatsLevel::ExceptHistogramOrTimers);
        }

        let mut write_sync = WriteOptions::default();
        write_sync.set_sync(true);
        let db = DB::open(&options, dir)?;
        let mut settings = settings(asked, values, jobs, statistics);
        settings.insert("fast CRC32C".to_string(), fast_crc(dir));
        let rocksdb = RocksDb {
            db,
            options,
            statistics,
            read: ReadOptions::default(),
            write: WriteOptions::default(),
            write_sync,
            settings,
        };
        // What opening left to do is not the workload's.
        rocksdb.settle()?;
        Ok(rocksdb)
    }

    fn write_options(&self, sync: bool) -> &WriteOptions {
        if sync { &self.write_sync } else { &self.write }
    }
}

/// Of how many background jobs RocksDB takes as many for compactions as there are to be threads. It keeps a quarter of
/// the jobs, at least one, for flushes: so these come on top, as Cairn's flush thread does.
fn background_jobs(threads: usize) -> i32 {
    let compactions = |jobs: usize| jobs - (jobs / 4).max(1);
    let jobs = (2..).find(|&jobs| compactions(jobs) >= threads).expect("compactions grow with jobs");
    i32::try_from(jobs).unwrap_or(i32::MAX)
}

/// Whether it was built to compute checksums with the processor's own instructions. Each record of the log has one: without
/// them, a put of 1 KB takes a microsecond longer. RocksDB says it in its info log only.
fn fast_crc(dir: &Path) -> String {
    let log = std::fs::read(dir.join("LOG")).unwrap_or_default();
    let log = String::from_utf8_lossy(&log);
    let line = log.lines().find_map(|line| line.split_once("Fast CRC32 supported: "));
    line.map_or("unknown", |(_, said)| said).to_string()
}

/// What deviates from the defaults, and defaults that someone who compares will ask for.
fn settings(asked: &Asked, values: Values, jobs: i32, statistics: bool) -> BTreeMap<String, String> {
    let mut settings = vec![
        ("write_buffer_size", asked.memtable_bytes.to_string()),
        ("max_write_buffer_number", "2 (default)".to_string()),
        ("block_cache", format!("LRU, {} bytes", asked.cache_bytes)),
        ("cache_index_and_filter_blocks", "false (default): they are in memory beside the cache".to_string()),
        ("filter_policy", format!("Bloom, {} bits per key", asked.filter_bits_per_key)),
        ("block_size", "4096 (default)".to_string()),
        ("compression", "none".to_string()),
        (
            "max_background_jobs",
            format!("{jobs}: {} compactions at a time, and flushes", jobs - (jobs / 4).max(1)),
        ),
        ("max_open_files", "-1 (default)".to_string()),
        (
            "statistics",
            if statistics { "on, without histograms and timers" } else { "off (default)" }.to_string(),
        ),
        ("other options", "default".to_string()),
    ];
    if values == Values::InBlobFiles {
        settings.extend([
            ("enable_blob_files", "true".to_string()),
            ("min_blob_size", MIN_BLOB_SIZE.to_string()),
            ("enable_blob_garbage_collection", "true, from age 0.25 (default) on".to_string()),
            ("blob_cache", "the block cache".to_string()),
        ]);
    }
    settings.into_iter().map(|(name, value)| (name.to_string(), value)).collect()
}

impl Engine for RocksDb {
    fn settings(&self) -> BTreeMap<String, String> {
        self.settings.clone()
    }

    #[inline]
    fn put(&self, key: &[u8], value: &[u8], sync: bool) -> Result<()> {
        Ok(self.db.put_opt(key, value, self.write_options(sync))?)
    }

    fn delete(&self, key: &[u8], sync: bool) -> Result<()> {
        Ok(self.db.delete_opt(key, self.write_options(sync))?)
    }

    fn get(&self, key: &[u8], show: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let value = self.db.get_pinned_opt(key, &self.read)?;
        Ok(value.inspect(|value| show(value)).is_some())
    }

    fn scan(&self, from: Option<&[u8]>, visit: &mut Visit<'_>) -> Result<()> {
        let mut cursor = self.db.raw_iterator();
        match from {
            Some(key) => cursor.seek(key),
            None => cursor.seek_to_first(),
        }
        visit_all(cursor, DBRawIterator::next, visit)
    }

    fn scan_back(&self, from: Option<&[u8]>, visit: &mut Visit<'_>) -> Result<()> {
        let mut cursor = self.db.raw_iterator();
        match from {
            Some(key) => cursor.seek_for_prev(key),
            None => cursor.seek_to_last(),
        }
        visit_all(cursor, DBRawIterator::prev, visit)
    }

    fn settle(&self) -> Result<Duration> {
        // Jobs that are queued count as well. Memtables are flushed only if they are full: that is the default.
        self.db.wait_for_compact(&WaitForCompactOptions::default())?;
        Ok(Duration::ZERO)
    }

    fn written_bytes(&self) -> Option<u64> {
        // What flushes and compactions write to blob files is in their figures.
        let tickers = [Ticker::WalFileBytes, Ticker::FlushWriteBytes, Ticker::CompactWriteBytes];
        self.statistics.then(|| tickers.map(|ticker| self.options.get_ticker_count(ticker)).iter().sum())
    }

    fn stalls(&self) -> Option<Stalls> {
        let text = self.db.property_value(properties::DBSTATS).ok()??;
        Some(Stalls { seconds: stall_seconds(&text)?, longest_seconds: None })
    }

    fn close(self: Box<Self>) -> Result<()> {
        // Closing itself tells of no error: so the log, the last thing that it would write, is written before.
        Ok(self.db.flush_wal(false)?)
    }
}

/// Visits what the cursor stands on and what comes after it, and tells of the error that may have ended it.
fn visit_all<'db>(
    mut cursor: DBRawIterator<'db>,
    step: impl Fn(&mut DBRawIterator<'db>),
    visit: &mut Visit<'_>,
) -> Result<()> {
    while let Some((key, value)) = cursor.item() {
        if !visit(key, value) {
            return Ok(());
        }
        step(&mut cursor);
    }
    Ok(cursor.status()?)
}

/// The line `Cumulative stall: HH:MM:SS.mmm H:M:S` of the statistics that RocksDB keeps of each database, whether others
/// are on or not. They count a wait once for the group of writers that waits, not once for each writer.
fn stall_seconds(text: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix("Cumulative stall: "))?;
    let time = line.split_whitespace().next()?;
    time.split(':').try_fold(0.0, |sum, part| Some(sum * 60.0 + part.parse::<f64>().ok()?))
}

impl From<::rocksdb::Error> for Error {
    fn from(e: ::rocksdb::Error) -> Error {
        Error::new(e.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compactions_get_the_threads_that_were_asked_for() {
        for threads in 1..100 {
            let jobs = background_jobs(threads);
            assert_eq!(jobs - (jobs / 4).max(1), threads as i32);
        }
    }

    /// `.cargo/config.toml` sees to it.
    #[test]
    #[cfg(target_arch = "x86_64")]
    fn checksums_are_fast() {
        let dir = tempfile::tempdir().unwrap();
        let asked = Asked {
            memtable_bytes: 1 << 20,
            cache_bytes: 1 << 20,
            background_threads: 2,
            filter_bits_per_key: 10,
            data_bytes_max: 1 << 20,
        };
        let rocksdb = RocksDb::open(dir.path(), &asked, Values::InTables).unwrap();
        assert!(rocksdb.settings()["fast CRC32C"].starts_with("Supported"), "{:?}", rocksdb.settings());
        assert_eq!(rocksdb.stalls().unwrap().seconds, 0.0);
    }

    #[test]
    fn stalls_are_read_from_the_statistics() {
        let text = "** DB Stats **\nCumulative stall: 01:02:3.500 H:M:S, 0.1 percent\nInterval stall: ...";
        assert_eq!(stall_seconds(text), Some(3723.5));
        assert_eq!(stall_seconds(""), None);
    }

    #[test]
    fn the_version_is_that_of_the_library() {
        assert_eq!(
            version().split('.').filter(|number| number.parse::<u32>().is_ok()).count(),
            3,
            "{}",
            version()
        );
    }
}
