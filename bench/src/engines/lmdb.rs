//! LMDB, by heed: a copy-on-write B-tree in a file that is mapped into memory, in C.
//!
//! Each put and each delete is a write transaction of its own. It writes the pages that it changed with `pwrite`, never through the map
//! (no `MDB_WRITEMAP`), so that the file is as long as what was used of it, and a write that returned is with the
//! operating system. Writes that need not be synced use `MDB_NOSYNC`. With it, nothing orders pages on their way to the disk:
//! after a power cut the file may be damaged, not only old. Synced writes turn the flag off and are as LMDB does them by
//! itself: the pages are synced, then the page that points to them. (`mdb_env_sync` after a commit with
//! `MDB_NOSYNC` would be one sync instead of two, but a power cut while it runs can damage what earlier ones promised.)

// Opening a map is unsafe, and so is every flag that weakens durability: see the three blocks.
#![allow(unsafe_code)]

use super::locked;
use crate::engine::{Asked, Engine, Error, Kind, Result, Visit};
use heed::types::Bytes;
use heed::{CommitOrAbort, Env, EnvFlags, EnvOpenOptions, FlagSetMode, WithTls};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

/// What the map is longer than four times the data: pages that are half full, and pages that readers keep from being
/// used again.
const MAP_BYTES_MORE: u64 = 1 << 30;

/// Threads that can read at a time: LMDB's default.
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

fn open(dir: &Path, asked: &Asked) -> Result<Box<dyn Engine>> {
    Ok(Box::new(open_at(dir, asked.data_bytes_max)?))
}

fn open_at(dir: &Path, data_bytes_max: u64) -> Result<Lmdb> {
    // LMDB wants whole pages of the system; none has larger ones than 64 KiB.
    let map_bytes = (4 * data_bytes_max + MAP_BYTES_MORE).next_multiple_of(64 << 10);
    let mut options = EnvOpenOptions::new();
    options.map_size(map_bytes as usize).max_readers(READERS);
    // SAFETY: this flag is an advice to the kernel. The ones that heed warns of are those that skip locks or syncs.
    unsafe { options.flags(EnvFlags::NO_READ_AHEAD) };
    // SAFETY: nobody changes the file behind the map. The directory belongs to this run, which gives it to one
    // process at a time, and this process writes to it by LMDB alone.
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
    /// Read transactions are bound to their thread, LMDB's default: the thread keeps its place in the table of readers,
    /// which makes them cheap. It can have one at a time.
    env: Env<WithTls>,
    db: Database,
    map_bytes: u64,
    /// Whether commits sync now. Writers hold it from before they choose until they have committed; they would wait for each
    /// other in LMDB otherwise.
    syncs: Mutex<bool>,
}

impl Lmdb {
    /// Makes one change in a transaction of its own.
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

    /// Lets commits sync or not. For holders of the lock `syncs` only.
    fn set_sync(&self, sync: bool) -> Result<()> {
        let mode = if sync { FlagSetMode::Disable } else { FlagSetMode::Enable };
        // SAFETY: one thread at a time calls this, as LMDB asks: the one that holds the lock. Without syncs a power cut may
        // damage the file, and a damaged file must not be opened again: the data of a run do not outlive its machine.
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

    /// There is nothing that it does later.
    fn settle(&self) -> Result<Duration> {
        Ok(Duration::ZERO)
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.env.prepare_for_closing().wait();
        Ok(())
    }
}

/// Shows keys and values where they are: in the map.
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
