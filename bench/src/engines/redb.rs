//! redb: a copy-on-write B-tree in one file, in Rust.
//!
//! Each put and each delete is its own write transaction. redb has two kinds of durability: `Immediate` syncs the
//! file, and `None` guarantees nothing: the written pages stay in redb's cache until the next `Immediate` commit,
//! and are lost when the process ends. There is none between the two that would pass the write to the operating
//! system. Unsynced writes use `None`, except that a write [`MAX_UNSYNCED_TIME`] or longer after the last `Immediate` commit
//! is an `Immediate` one, for two reasons:
//!
//! - a program that keeps data needs it, and
//! - pages used by the last durable state are not freed before the next durable state: without one, every modified
//!   page of the tree takes space twice.
//!
//! The writer itself makes that commit, so it is included in the latencies.

use super::locked;
use crate::engine::{Engine, Error, Kind, RequestedSettings, Result, Visit};
use redb::{AccessGuard, Cursor, Database, Durability, ReadOnlyTable, ReadableDatabase, ReadableTable};
use redb::{Table, TableDefinition};
use std::collections::BTreeMap;
use std::fmt::Display;
use std::ops::Bound;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const TABLE: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("bench");
const FILE: &str = "redb";

/// Maximum time between durable commits while writes continue.
const MAX_UNSYNCED_TIME: Duration = Duration::from_secs(1);

/// redb.
pub fn kinds() -> Vec<Kind> {
    vec![Kind { name: "redb", title: "redb", version: || locked::version("redb").to_string(), open }]
}

fn open(dir: &Path, requested: &RequestedSettings) -> Result<Box<dyn Engine>> {
    let mut builder = Database::builder();
    builder.set_cache_size(requested.cache_bytes as usize);
    let db = builder.create(dir.join(FILE)).map_err(error)?;
    let redb = Redb {
        db,
        cache_bytes: requested.cache_bytes,
        opened: Instant::now(),
        durable_millis: AtomicU64::new(0),
    };
    // Creates the table, because readers cannot open a missing one.
    redb.write(true, |_| Ok(()))?;
    Ok(Box::new(redb))
}

fn error(e: impl Display) -> Error {
    Error::new(e.to_string())
}

struct Redb {
    db: Database,
    cache_bytes: u64,
    opened: Instant,
    /// When the last durable commit ended, relative to `opened`. Changed only in a write transaction; there is one
    /// at a time.
    durable_millis: AtomicU64,
}

type Entry<'a> = (AccessGuard<'a, &'static [u8]>, AccessGuard<'a, &'static [u8]>);

impl Redb {
    /// Makes one change in its own transaction.
    fn write(
        &self,
        sync: bool,
        change: impl FnOnce(&mut Table<'_, &[u8], &[u8]>) -> Result<()>,
    ) -> Result<()> {
        let mut transaction = self.db.begin_write().map_err(error)?;
        let durable = sync || self.unsafe_for() >= MAX_UNSYNCED_TIME;
        let durability = if durable { Durability::Immediate } else { Durability::None };
        transaction.set_durability(durability).map_err(error)?;
        change(&mut transaction.open_table(TABLE).map_err(error)?)?;
        transaction.commit().map_err(error)?;
        if durable {
            self.durable_millis.store(self.opened.elapsed().as_millis() as u64, Ordering::Relaxed);
        }
        Ok(())
    }

    fn unsafe_for(&self) -> Duration {
        let durable = Duration::from_millis(self.durable_millis.load(Ordering::Relaxed));
        self.opened.elapsed().saturating_sub(durable)
    }

    /// The present state of the table. Holds its read transaction.
    fn table(&self) -> Result<ReadOnlyTable<&'static [u8], &'static [u8]>> {
        self.db.begin_read().map_err(error)?.open_table(TABLE).map_err(error)
    }
}

impl Engine for Redb {
    fn settings(&self) -> BTreeMap<String, String> {
        let pairs = [
            ("cache_size", self.cache_bytes.to_string()),
            (
                "durability",
                "None: a write is in redb's own memory when it returns, and lost when the process dies; one a second is \
                 Immediate, which makes all before it durable. Weaker than the engines whose writes reach the operating \
                 system"
                    .to_string(),
            ),
            ("durability of synced writes", "Immediate, 1 phase with checksums (its default)".to_string()),
            ("page size", "4 KiB (its default)".to_string()),
            ("transactions", "one for each put, delete, get and scan; one writer at a time".to_string()),
            (
                "lacks",
                "memtables, Bloom filters and compression: a B-tree; background threads; counts of bytes written"
                    .to_string(),
            ),
        ];
        pairs.into_iter().map(|(name, value)| (name.to_string(), value)).collect()
    }

    fn put(&self, key: &[u8], value: &[u8], sync: bool) -> Result<()> {
        self.write(sync, |table| table.insert(key, value).map(drop).map_err(error))
    }

    fn delete(&self, key: &[u8], sync: bool) -> Result<()> {
        self.write(sync, |table| table.remove(key).map(drop).map_err(error))
    }

    fn update_both(&self, keys: [&[u8]; 2], values: [&[u8]; 2], sync: bool) -> Result<(u64, u64)> {
        let mut found = 0;
        self.write(sync, |table| {
            for key in keys {
                found += u64::from(table.get(key).map_err(error)?.is_some());
            }
            for (key, value) in keys.into_iter().zip(values) {
                table.insert(key, value).map_err(error)?;
            }
            Ok(())
        })?;
        // One writer at a time meets no other.
        Ok((found, 0))
    }

    fn get(&self, key: &[u8], show: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let value = self.table()?.get(key).map_err(error)?;
        Ok(value.inspect(|value| show(value.value())).is_some())
    }

    fn scan(&self, from: Option<&[u8]>, visit: &mut Visit<'_>) -> Result<()> {
        let table = self.table()?;
        let from = from.map_or(Bound::Unbounded, Bound::Included);
        let mut cursor = table.lower_bound(from).map_err(error)?;
        visit_all(|| Cursor::next(&mut cursor), visit)
    }

    fn scan_back(&self, from: Option<&[u8]>, visit: &mut Visit<'_>) -> Result<()> {
        let table = self.table()?;
        let from = from.map_or(Bound::Unbounded, Bound::Included);
        let mut cursor = table.upper_bound(from).map_err(error)?;
        visit_all(|| Cursor::prev(&mut cursor), visit)
    }

    /// Makes a durable commit, which writes everything; there is no other background work.
    fn settle(&self) -> Result<Duration> {
        self.write(true, |_| Ok(()))?;
        Ok(Duration::ZERO)
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.db.close().map_err(error)
    }
}

fn visit_all<'a, E: Display>(
    mut next: impl FnMut() -> std::result::Result<Option<Entry<'a>>, E>,
    visit: &mut Visit<'_>,
) -> Result<()> {
    while let Some((key, value)) = next().map_err(error)? {
        if !visit(key.value(), value.value()) {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open_at(dir: &Path, opened: Instant) -> Redb {
        let db = Database::create(dir.join(FILE)).unwrap();
        Redb { db, cache_bytes: 0, opened, durable_millis: AtomicU64::new(0) }
    }

    /// Whether a process that started now would find the key.
    fn is_durable(dir: &Path, key: &[u8]) -> bool {
        let copy = tempfile::tempdir().unwrap();
        std::fs::copy(dir.join(FILE), copy.path().join(FILE)).unwrap();
        let copied = open_at(copy.path(), Instant::now());
        copied.table().is_ok_and(|table| table.get(key).unwrap().is_some())
    }

    #[test]
    fn settling_makes_writes_durable() {
        let dir = tempfile::tempdir().unwrap();
        let redb = open_at(dir.path(), Instant::now());
        redb.put(b"key", b"value", false).unwrap();
        assert!(!is_durable(dir.path(), b"key"), "this is what the settings say");
        redb.settle().unwrap();
        assert!(is_durable(dir.path(), b"key"));
    }

    #[test]
    fn a_write_a_second_is_durable() {
        let dir = tempfile::tempdir().unwrap();
        let redb = open_at(dir.path(), Instant::now().checked_sub(MAX_UNSYNCED_TIME).unwrap());
        redb.put(b"first", b"value", false).unwrap();
        redb.put(b"second", b"value", false).unwrap();
        assert!(is_durable(dir.path(), b"first"));
        assert!(!is_durable(dir.path(), b"second"), "the second began anew");
    }
}
