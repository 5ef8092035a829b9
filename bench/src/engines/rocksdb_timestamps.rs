//! RocksDB with user-defined timestamps: all versions of a key are kept, and read as of a time or between two.
//!
//! The bindings do not offer RocksDB's own comparator with timestamps, so the keys are compared by a function of the adapter, through a
//! pointer. What that costs shows in [`Engine::get`] and [`Engine::put`] beside plain RocksDB.

use super::rocksdb::{self, RocksDb, TIME_BYTES, Variant, visit_all};
use crate::engine::{Engine, Kind, RequestedSettings, Result, Stalls, Visit, version_key};
use ::rocksdb::{DBRawIterator, ReadOptions};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, SystemTime};

/// Bytes behind the key and the time in what an iterator over all versions shows: sequence number and type.
const FOOTER_BYTES: usize = 8;

/// RocksDB with timestamps.
pub fn kinds() -> Vec<Kind> {
    vec![Kind {
        name: "rocksdb-timestamps",
        title: "RocksDB with user-defined timestamps",
        version: rocksdb::version,
        open: |dir, requested| Ok(Box::new(Timestamps::open(dir, requested)?)),
    }]
}

struct Timestamps {
    rocksdb: RocksDb,
    /// The time of the last write that had none of its own.
    last: AtomicU64,
    newest: ReadOptions,
}

fn as_of(time: u64) -> ReadOptions {
    let mut read = ReadOptions::default();
    read.set_timestamp(time.to_be_bytes());
    read
}

impl Timestamps {
    fn open(dir: &Path, requested: &RequestedSettings) -> Result<Timestamps> {
        let rocksdb = RocksDb::open(dir, requested, Variant::Timestamps)?;
        Ok(Timestamps { rocksdb, last: AtomicU64::new(0), newest: as_of(u64::MAX) })
    }

    /// A time after those of all earlier writes.
    fn now(&self) -> [u8; TIME_BYTES] {
        let now = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_micros() as u64);
        let last =
            self.last.fetch_update(Relaxed, Relaxed, |last| Some(now.max(last + 1))).expect("always some");
        now.max(last + 1).to_be_bytes()
    }

    /// All versions at and after `from` with times in between.
    fn visit(&self, from: Option<&[u8]>, times: (u64, u64), visit: &mut Visit<'_>) -> Result<()> {
        let mut read = as_of(times.1);
        read.set_iter_start_ts(times.0.to_be_bytes());
        let mut cursor = self.rocksdb.db.raw_iterator_opt(read);
        match from {
            Some(key) => cursor.seek(key),
            None => cursor.seek_to_first(),
        }
        visit_all(cursor, DBRawIterator::next, &mut |internal, value| {
            let (key, time) = internal[..internal.len() - FOOTER_BYTES]
                .split_last_chunk::<TIME_BYTES>()
                .expect("each key has a time");
            visit(&version_key(key, u64::from_be_bytes(*time)), value)
        })
    }
}

impl Engine for Timestamps {
    fn settings(&self) -> BTreeMap<String, String> {
        self.rocksdb.settings()
    }

    fn put(&self, key: &[u8], value: &[u8], sync: bool) -> Result<()> {
        Ok(self.rocksdb.db.put_with_ts_opt(key, self.now(), value, self.rocksdb.write_options(sync))?)
    }

    fn delete(&self, key: &[u8], sync: bool) -> Result<()> {
        Ok(self.rocksdb.db.delete_with_ts_opt(key, self.now(), self.rocksdb.write_options(sync))?)
    }

    fn get(&self, key: &[u8], show: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let value = self.rocksdb.db.get_pinned_opt(key, &self.newest)?;
        Ok(value.inspect(|value| show(value)).is_some())
    }

    fn scan(&self, from: Option<&[u8]>, visit: &mut Visit<'_>) -> Result<()> {
        self.scan_as_of(u64::MAX, from.unwrap_or_default(), visit)
    }

    fn scan_back(&self, from: Option<&[u8]>, visit: &mut Visit<'_>) -> Result<()> {
        let mut cursor = self.rocksdb.db.raw_iterator_opt(as_of(u64::MAX));
        match from {
            Some(key) => cursor.seek_for_prev(key),
            None => cursor.seek_to_last(),
        }
        visit_all(cursor, DBRawIterator::prev, visit)
    }

    fn put_version(&self, key: &[u8], time: u64, value: &[u8], sync: bool) -> Result<()> {
        let write = self.rocksdb.write_options(sync);
        Ok(self.rocksdb.db.put_with_ts_opt(key, time.to_be_bytes(), value, write)?)
    }

    fn versions(&self, key: &[u8], times: (u64, u64), visit: &mut Visit<'_>) -> Result<()> {
        self.visit(Some(key), times, &mut |version, value| {
            version.strip_prefix(key).is_some_and(|time| time.len() == TIME_BYTES) && visit(version, value)
        })
    }

    fn scan_as_of(&self, time: u64, from: &[u8], visit: &mut Visit<'_>) -> Result<()> {
        let mut cursor = self.rocksdb.db.raw_iterator_opt(as_of(time));
        cursor.seek(from);
        visit_all(cursor, DBRawIterator::next, visit)
    }

    fn all_versions(&self, visit: &mut Visit<'_>) -> Result<()> {
        self.visit(None, (0, u64::MAX), visit)
    }

    fn settle(&self) -> Result<Duration> {
        self.rocksdb.settle()
    }

    fn written_bytes(&self) -> Option<u64> {
        self.rocksdb.written_bytes()
    }

    fn stalls(&self) -> Option<Stalls> {
        self.rocksdb.stalls()
    }

    fn close(self: Box<Self>) -> Result<()> {
        Box::new(self.rocksdb).close()
    }
}
