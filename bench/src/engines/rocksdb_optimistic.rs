//! RocksDB's `OptimisticTransactionDB`: transactions that take no locks on keys. It keeps flushed memtables in memory, to compare commits with.
//!
//! A read counts for the comparison if it is made by `GetForUpdate`. With a snapshot that is taken at the beginning, in which these reads are made, a
//! transaction of single keys is serializable.

use super::rocksdb::{self, Variant, visit_all};
use crate::engine::{Engine, Kind, RequestedSettings, Result, Visit};
use ::rocksdb::{
    DBRawIteratorWithThreadMode, ErrorKind, OptimisticTransactionDB, OptimisticTransactionOptions,
    ReadOptions, WaitForCompactOptions, WriteOptions,
};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// RocksDB with optimistic transactions.
pub fn kinds() -> Vec<Kind> {
    vec![Kind {
        name: "rocksdb-optimistic",
        title: "RocksDB with optimistic transactions",
        version: rocksdb::version,
        open: |dir, requested| Ok(Box::new(Optimistic::open(dir, requested)?)),
    }]
}

struct Optimistic {
    db: OptimisticTransactionDB,
    write: WriteOptions,
    write_sync: WriteOptions,
    settings: BTreeMap<String, String>,
}

impl Optimistic {
    fn open(dir: &Path, requested: &RequestedSettings) -> Result<Optimistic> {
        let db = OptimisticTransactionDB::open(&rocksdb::options(requested, Variant::Plain), dir)?;
        let mut write_sync = WriteOptions::default();
        write_sync.set_sync(true);
        let settings =
            [("transactions", "optimistic, with a snapshot and GetForUpdate"), ("else", "as rocksdb")];
        let settings =
            settings.into_iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        Ok(Optimistic { db, write: WriteOptions::default(), write_sync, settings })
    }

    fn write_options(&self, sync: bool) -> &WriteOptions {
        if sync { &self.write_sync } else { &self.write }
    }
}

type Cursor<'a> = DBRawIteratorWithThreadMode<'a, OptimisticTransactionDB>;

impl Engine for Optimistic {
    fn settings(&self) -> BTreeMap<String, String> {
        self.settings.clone()
    }

    fn put(&self, key: &[u8], value: &[u8], sync: bool) -> Result<()> {
        Ok(self.db.put_opt(key, value, self.write_options(sync))?)
    }

    fn delete(&self, key: &[u8], sync: bool) -> Result<()> {
        Ok(self.db.delete_opt(key, self.write_options(sync))?)
    }

    fn get(&self, key: &[u8], show: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let value = self.db.get_pinned(key)?;
        Ok(value.inspect(|value| show(value)).is_some())
    }

    fn scan(&self, from: Option<&[u8]>, visit: &mut Visit<'_>) -> Result<()> {
        let mut cursor = self.db.raw_iterator();
        match from {
            Some(key) => cursor.seek(key),
            None => cursor.seek_to_first(),
        }
        visit_all(cursor, Cursor::next, visit)
    }

    fn scan_back(&self, from: Option<&[u8]>, visit: &mut Visit<'_>) -> Result<()> {
        let mut cursor = self.db.raw_iterator();
        match from {
            Some(key) => cursor.seek_for_prev(key),
            None => cursor.seek_to_last(),
        }
        visit_all(cursor, Cursor::prev, visit)
    }

    fn update_both(&self, keys: [&[u8]; 2], values: [&[u8]; 2], sync: bool) -> Result<(u64, u64)> {
        let mut options = OptimisticTransactionOptions::default();
        options.set_snapshot(true);
        let mut conflicts = 0;
        loop {
            let tx = self.db.transaction_opt(self.write_options(sync), &options);
            let snapshot = tx.snapshot();
            let mut found = 0;
            for key in keys {
                let mut read = ReadOptions::default();
                read.set_snapshot(&snapshot);
                found += u64::from(tx.get_pinned_for_update_opt(key, true, &read)?.is_some());
            }
            for (key, value) in keys.into_iter().zip(values) {
                tx.put(key, value)?;
            }
            drop(snapshot);
            match tx.commit() {
                Ok(()) => return Ok((found, conflicts)),
                // `TryAgain`: the memtables do not reach back to the beginning.
                Err(e) if matches!(e.kind(), ErrorKind::Busy | ErrorKind::TryAgain) => conflicts += 1,
                Err(e) => return Err(e.into()),
            }
        }
    }

    fn flush(&self) -> Result<()> {
        Ok(self.db.flush()?)
    }

    fn settle(&self) -> Result<Duration> {
        self.db.wait_for_compact(&WaitForCompactOptions::default())?;
        Ok(Duration::ZERO)
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(self.db.flush_wal(false)?)
    }
}
