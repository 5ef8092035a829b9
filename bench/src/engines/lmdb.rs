//! LMDB, through heed: a copy-on-write B-tree in C, in a file that is mapped into memory.
//!
//! Each put and each delete is its own write transaction. It writes the changed pages with `pwrite`, never through
//! the map (no `MDB_WRITEMAP`), so the file is as long as its used part, and the operating system has a write when
//! it returns. Unsynced writes use `MDB_NOSYNC`. With this flag the pages reach the disk in any order: a power
//! failure may damage the file, not only lose recent writes. Synced writes clear the flag and use LMDB's default:
//! the pages are synced, then the page that points to them. (`mdb_env_sync` after a commit with `MDB_NOSYNC` would
//! be one sync instead of two, but a power failure during it can damage earlier synced writes.)

// Opening a map is unsafe, and so is every flag that weakens durability; see the three blocks.
#![allow(unsafe_code)]

use super::locked;
use crate::engine::{Engine, Error, Kind, RequestedSettings, Result, Visit};
use heed::types::Bytes;
use heed::{CommitOrAbort, Env, EnvFlags, EnvOpenOptions, FlagSetMode, WithTls};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

/// Added to four times the size of the data for the size of the map: for half-full pages, and pages that readers
/// keep from reuse.
const MAP_BYTES_MORE: u64 = 1 << 30;

/// Maximum number of concurrent reading threads: LMDB's default.
const READERS: u32 = 126;

type Database = heed::Database<'static, Bytes, Bytes>;

/// LMDB.
pub fn kinds() -> Vec<Kind> {
    vec![Kind { name: "lmdb", title: "LMDB", version, open }]
}

fn version() -> String {
    let lmdb = heed::lmdb_version();
    format!("{}.{}.{} (heed {})", lmdb.major, lmdb.minor, lmdb.patch, locked::version("heed"))
}

fn open(dir: &Path, requested: &RequestedSettings) -> Result<Box<dyn Engine>> {
    Ok(Box::new(open_at(dir, requested.data_bytes_max)?))
}

fn open_at(dir: &Path, data_bytes_max: u64) -> Result<Lmdb> {
    // LMDB requires whole pages of the system, which have at most 64 KiB.
    let map_bytes = (4 * data_bytes_max + MAP_BYTES_MORE).next_multiple_of(64 << 10);
    let mut options = EnvOpenOptions::new();
    options.map_size(map_bytes as usize).max_readers(READERS);
    // SAFETY: this flag is a hint for the kernel. heed warns of flags that skip locks or syncs.
    unsafe { options.flags(EnvFlags::NO_READ_AHEAD) };
    // SAFETY: nothing else changes the file behind the map. The directory belongs to this run, which gives it to
    // one process at a time, and this process writes to it through LMDB only.
    let env = unsafe { options.open(dir) }.map_err(error)?;
    let transaction = env.write_txn().map_err(error)?;
    let db = env
        .create_databases_and_commit(transaction, |opener, transaction| {
            opener.create_database(transaction, None).map(CommitOrAbort::<_, ()>::Commit)
        })
        .map_err(error)?
        .unwrap_commit();
    Ok(Lmdb { env, db, map_bytes, syncs: Mutex::new(true) })
}

fn error(e: heed::Error) -> Error {
    Error::new(e.to_string())
}

struct Lmdb {
    /// Read transactions are bound to their thread, as is LMDB's default: the thread keeps its slot in the reader
    /// table, which makes them cheap. A thread has at most one.
    env: Env<WithTls>,
    db: Database,
    map_bytes: u64,
    /// Whether commits sync. Writers hold the lock from before the choice until the commit; without the lock they
    /// would wait for each other in LMDB.
    syncs: Mutex<bool>,
}

impl Lmdb {
    /// Makes one change in its own transaction.
    fn write(
        &self,
        sync: bool,
        change: impl FnOnce(&Database, &mut heed::RwTxn<'_>) -> heed::Result<()>,
    ) -> Result<()> {
        let mut syncs = self.syncs.lock().map_err(|_| Error::new("a thread panicked in a write"))?;
        if *syncs != sync {
            self.set_sync(sync)?;
            *syncs = sync;
        }
        let mut transaction = self.env.write_txn().map_err(error)?;
        change(&self.db, &mut transaction).map_err(error)?;
        transaction.commit().map_err(error)
    }

    /// Sets whether commits sync. Only for the holder of the lock `syncs`.
    fn set_sync(&self, sync: bool) -> Result<()> {
        let mode = if sync { FlagSetMode::Disable } else { FlagSetMode::Enable };
        // SAFETY: LMDB requires that one thread at a time calls this: the holder of the lock. Without syncs a power
        // failure may damage the file, and a damaged file must not be opened again: the data of a run is not used
        // after a power failure.
        unsafe { self.env.set_flags(EnvFlags::NO_SYNC, mode) }.map_err(error)
    }
}

impl Engine for Lmdb {
    fn settings(&self) -> BTreeMap<String, String> {
        let pairs = [
            ("MDB_NORDAHEAD", "set: random reads of more than fits in memory would fetch pages in vain".to_string()),
            ("MDB_NOTLS", "not set (its default): threads keep their places in the table of readers".to_string()),
            ("MDB_WRITEMAP", "not set (its default): the file is as long as what was used of it".to_string()),
            (
                "durability",
                "MDB_NOSYNC: a write is with the operating system when it returns; after a power cut the file may be \
                 damaged"
                    .to_string(),
            ),
            ("durability of synced writes", "MDB_NOSYNC turned off: two syncs a write (its default)".to_string()),
            ("mapsize", self.map_bytes.to_string()),
            ("maxreaders", READERS.to_string()),
            ("transactions", "one for each put, delete, get and scan; one writer at a time".to_string()),
            (
                "lacks",
                "a cache of its own: it uses the page cache; memtables, Bloom filters and compression: a B-tree; \
                 background threads; counts of bytes written; keys are of 1 to 511 bytes"
                    .to_string(),
            ),
        ];
        pairs.into_iter().map(|(name, value)| (name.to_string(), value)).collect()
    }

    fn put(&self, key: &[u8], value: &[u8], sync: bool) -> Result<()> {
        self.write(sync, |db, transaction| db.put(transaction, key, value))
    }

    fn delete(&self, key: &[u8], sync: bool) -> Result<()> {
        self.write(sync, |db, transaction| db.delete(transaction, key).map(drop))
    }

    fn get(&self, key: &[u8], show: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let transaction = self.env.read_txn().map_err(error)?;
        let value = self.db.get(&transaction, key).map_err(error)?;
        Ok(value.inspect(|value| show(value)).is_some())
    }

    fn scan(&self, from: Option<&[u8]>, visit: &mut Visit<'_>) -> Result<()> {
        let transaction = self.env.read_txn().map_err(error)?;
        let from = from.map_or(Bound::Unbounded, Bound::Included);
        visit_all(self.db.range(&transaction, &(from, Bound::Unbounded)).map_err(error)?, visit)
    }

    fn scan_back(&self, from: Option<&[u8]>, visit: &mut Visit<'_>) -> Result<()> {
        let transaction = self.env.read_txn().map_err(error)?;
        let from = from.map_or(Bound::Unbounded, Bound::Included);
        visit_all(self.db.rev_range(&transaction, &(Bound::Unbounded, from)).map_err(error)?, visit)
    }

    /// LMDB has no background work.
    fn settle(&self) -> Result<Duration> {
        Ok(Duration::ZERO)
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.env.prepare_for_closing().wait();
        Ok(())
    }
}

/// Passes keys and values as references into the map.
fn visit_all<'a>(
    entries: impl Iterator<Item = heed::Result<(&'a [u8], &'a [u8])>>,
    visit: &mut Visit<'_>,
) -> Result<()> {
    for entry in entries {
        let (key, value) = entry.map_err(error)?;
        if !visit(key, value) {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commits_sync_when_they_are_to() {
        let dir = tempfile::tempdir().unwrap();
        let lmdb = open_at(dir.path(), 1 << 20).unwrap();
        let syncs = || lmdb.env.get_flags().unwrap() & EnvFlags::NO_SYNC.bits() == 0;
        for sync in [true, false, false, true, true, false] {
            lmdb.put(b"key", b"value", sync).unwrap();
            assert_eq!(syncs(), sync);
        }
    }

    #[test]
    fn the_file_is_as_long_as_what_was_used() {
        let dir = tempfile::tempdir().unwrap();
        let lmdb = open_at(dir.path(), 1 << 30).unwrap();
        assert!(lmdb.env.info().map_size > 4 << 30);
        lmdb.put(b"key", b"value", false).unwrap();
        let file = dir.path().join("data.mdb").metadata().unwrap();
        assert!(file.len() < 1 << 20, "{} bytes for one entry", file.len());
    }
}
