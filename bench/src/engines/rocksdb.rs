//! RocksDB: with values in its tables, with values in blob files, and with user-defined timestamps.
//!
//! Uses the requested memory, threads and filters, no compression, and RocksDB's defaults for everything else.
//! [`Engine::settings`] lists the settings that differ from the defaults.
//!
//! RocksDB's statistics have a small cost per operation, so they are off. With `CAIRN_BENCH_ENGINE_STATS=1` in the
//! environment they are on, and [`Engine::written_bytes`] returns a value, to verify the kernel's count.

use super::locked;
use crate::engine::{Engine, Error, Kind, RequestedSettings, Result, Stalls, Visit};
use ::rocksdb::statistics::{StatsLevel, Ticker};
use ::rocksdb::{
    BlockBasedOptions, Cache, DB, DBAccess, DBCompressionType, DBRawIterator, DBRawIteratorWithThreadMode,
    Options, ReadOptions, WaitForCompactOptions, WriteOptions, properties,
};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// Enables RocksDB's statistics if it is `1`.
const STATISTICS: &str = "CAIRN_BENCH_ENGINE_STATS";

/// Minimum length of values in blob files, in bytes.
const MIN_BLOB_SIZE: u64 = 512;

/// RocksDB with default options, with blob files, and with timestamps.
pub fn kinds() -> Vec<Kind> {
    vec![
        Kind {
            name: "rocksdb",
            title: "RocksDB",
            version,
            open: |dir, requested| open(dir, requested, Variant::Plain),
        },
        Kind {
            name: "rocksdb-blob",
            title: "RocksDB with blob files",
            version,
            open: |dir, requested| open(dir, requested, Variant::BlobFiles),
        },
    ]
}

/// The version of the library follows the version of its crate: `0.19.0+11.8.1`.
pub(super) fn version() -> String {
    let version = locked::version("librocksdb-sys");
    version.split_once('+').map_or(version, |(_, of_library)| of_library).to_string()
}

/// What differs from the default options.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Variant {
    Plain,
    /// Large values are stored in blob files.
    BlobFiles,
    /// Keys have timestamps, and all versions are kept.
    Timestamps,
}

fn open(dir: &Path, requested: &RequestedSettings, variant: Variant) -> Result<Box<dyn Engine>> {
    Ok(Box::new(RocksDb::open(dir, requested, variant)?))
}

pub(super) struct RocksDb {
    pub(super) db: DB,
    /// Also holds the statistics.
    options: Options,
    statistics: bool,
    read: ReadOptions,
    write: WriteOptions,
    write_sync: WriteOptions,
    settings: BTreeMap<String, String>,
}

impl RocksDb {
    pub(super) fn open(dir: &Path, requested: &RequestedSettings, variant: Variant) -> Result<RocksDb> {
        let statistics = std::env::var(STATISTICS).is_ok_and(|value| value == "1");
        let jobs = background_jobs(requested.background_threads);
        let mut options = options(requested, variant);
        if statistics {
            options.enable_statistics();
            options.set_statistics_level(StatsLevel::ExceptHistogramOrTimers);
        }

        let mut write_sync = WriteOptions::default();
        write_sync.set_sync(true);
        let db = DB::open(&options, dir)?;
        let mut settings = settings(requested, variant, jobs, statistics);
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
        // Background work caused by the opening must not count for the workload.
        rocksdb.settle()?;
        Ok(rocksdb)
    }

    pub(super) fn write_options(&self, sync: bool) -> &WriteOptions {
        if sync { &self.write_sync } else { &self.write }
    }
}

/// The options of RocksDB.
pub(super) fn options(requested: &RequestedSettings, variant: Variant) -> Options {
    let jobs = background_jobs(requested.background_threads);
    let cache = Cache::new_lru_cache(requested.cache_bytes as usize);

    let mut table = BlockBasedOptions::default();
    table.set_block_cache(&cache);
    table.set_bloom_filter(f64::from(requested.filter_bits_per_key), false);

    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_compression_type(DBCompressionType::None);
    options.set_write_buffer_size(requested.memtable_bytes as usize);
    options.set_max_background_jobs(jobs);
    options.set_max_open_files(-1);
    options.set_block_based_table_factory(&table);
    if variant == Variant::BlobFiles {
        options.set_enable_blob_files(true);
        options.set_min_blob_size(MIN_BLOB_SIZE);
        options.set_enable_blob_gc(true);
        options.set_blob_cache(&cache);
    }
    if variant == Variant::Timestamps {
        set_comparator(&mut options);
    }
    options
}

/// Bytes of a timestamp: microseconds, big-endian. RocksDB takes zero bytes for the earliest time and 255 for the latest.
pub(super) const TIME_BYTES: usize = 8;

/// Orders keys with timestamps: by key, and the latest version of a key first.
fn set_comparator(options: &mut Options) {
    fn key(bytes: &[u8], has_time: bool) -> &[u8] {
        if has_time { &bytes[..bytes.len() - TIME_BYTES] } else { bytes }
    }
    options.set_comparator_with_ts(
        "cairn-bench.timestamps",
        TIME_BYTES,
        Box::new(|a, b| {
            let (a, b) = (a.split_at(a.len() - TIME_BYTES), b.split_at(b.len() - TIME_BYTES));
            // The latest version of a key comes first.
            a.0.cmp(b.0).then_with(|| b.1.cmp(a.1))
        }),
        Box::new(<[u8] as Ord>::cmp),
        Box::new(|a, a_has_time, b, b_has_time| -> Ordering { key(a, a_has_time).cmp(key(b, b_has_time)) }),
    );
}

/// The number of background jobs that leaves `threads` jobs for compactions. RocksDB reserves a quarter of the
/// jobs, at least one, for flushes, so these are additional, like Cairn's flush thread.
fn background_jobs(threads: usize) -> i32 {
    let compactions = |jobs: usize| jobs - (jobs / 4).max(1);
    let jobs = (2..).find(|&jobs| compactions(jobs) >= threads).expect("compactions grow with jobs");
    i32::try_from(jobs).unwrap_or(i32::MAX)
}

/// Whether RocksDB was built with hardware instructions for checksums. Each log record has a checksum; without
/// these instructions, a put of 1 KB takes a microsecond longer. RocksDB reports this in its info log only.
fn fast_crc(dir: &Path) -> String {
    let log = std::fs::read(dir.join("LOG")).unwrap_or_default();
    let log = String::from_utf8_lossy(&log);
    let line = log.lines().find_map(|line| line.split_once("Fast CRC32 supported: "));
    line.map_or("unknown", |(_, said)| said).to_string()
}

/// Settings that differ from the defaults, and defaults that matter in a comparison.
fn settings(
    requested: &RequestedSettings,
    variant: Variant,
    jobs: i32,
    statistics: bool,
) -> BTreeMap<String, String> {
    let mut settings = vec![
        ("write_buffer_size", requested.memtable_bytes.to_string()),
        ("max_write_buffer_number", "2 (default)".to_string()),
        ("block_cache", format!("LRU, {} bytes", requested.cache_bytes)),
        ("cache_index_and_filter_blocks", "false (default): they are in memory beside the cache".to_string()),
        ("filter_policy", format!("Bloom, {} bits per key", requested.filter_bits_per_key)),
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
    if variant == Variant::BlobFiles {
        settings.extend([
            ("enable_blob_files", "true".to_string()),
            ("min_blob_size", MIN_BLOB_SIZE.to_string()),
            ("enable_blob_garbage_collection", "true, from age 0.25 (default) on".to_string()),
            ("blob_cache", "the block cache".to_string()),
        ]);
    }
    if variant == Variant::Timestamps {
        settings.extend([
            ("comparator", "bytes, with timestamps of 8 bytes; a callback of the benchmark".to_string()),
            ("full_history_ts_low", "none (default): all versions are kept".to_string()),
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

    fn flush(&self) -> Result<()> {
        Ok(self.db.flush()?)
    }

    fn settle(&self) -> Result<Duration> {
        // Includes queued jobs. By default, memtables are flushed only when they are full.
        self.db.wait_for_compact(&WaitForCompactOptions::default())?;
        Ok(Duration::ZERO)
    }

    fn written_bytes(&self) -> Option<u64> {
        // The counters of flushes and compactions include blob files.
        let tickers = [Ticker::WalFileBytes, Ticker::FlushWriteBytes, Ticker::CompactWriteBytes];
        self.statistics.then(|| tickers.map(|ticker| self.options.get_ticker_count(ticker)).iter().sum())
    }

    fn stalls(&self) -> Option<Stalls> {
        let text = self.db.property_value(properties::DBSTATS).ok()??;
        Some(Stalls { seconds: stall_seconds(&text)?, longest_seconds: None })
    }

    fn close(self: Box<Self>) -> Result<()> {
        // Closing reports no errors, so write the log, which closing would write last, before it.
        Ok(self.db.flush_wal(false)?)
    }
}

/// Visits the entry at the cursor and the following ones. Returns the error that may have ended the iteration.
pub(super) fn visit_all<'db, D: DBAccess>(
    mut cursor: DBRawIteratorWithThreadMode<'db, D>,
    step: impl Fn(&mut DBRawIteratorWithThreadMode<'db, D>),
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

/// Parses `Cumulative stall: HH:MM:SS.mmm H:M:S` of the statistics that RocksDB always keeps per database. They
/// count a stall once for a group of writers, not once per writer.
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

    /// `.cargo/config.toml` enables the instructions.
    #[test]
    #[cfg(target_arch = "x86_64")]
    fn checksums_are_fast() {
        let dir = tempfile::tempdir().unwrap();
        let requested = RequestedSettings {
            memtable_bytes: 1 << 20,
            cache_bytes: 1 << 20,
            background_threads: 2,
            filter_bits_per_key: 10,
            data_bytes_max: 1 << 20,
        };
        let rocksdb = RocksDb::open(dir.path(), &requested, Variant::Plain).unwrap();
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
