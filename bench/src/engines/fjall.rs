//! fjall: a leveled log-structured merge tree in Rust.
//!
//! Every write goes to the journal, and from there to the operating system before it returns. A synced write calls
//! `persist` after it. The journal has one lock, so writers run one after the other, and synced writes do not share
//! an `fdatasync`.
//!
//! Gets read the newest state, without a snapshot. Scans take a snapshot: a `range` of the keyspace itself shows
//! some of the concurrent writes and not others.
//!
//! Only flushes trigger compactions: each flush lets the worker threads look for work as many times as there are
//! threads, and the rest waits for the next flush. The engine has settled when nothing is running or queued,
//! perhaps before its levels have their target shape.

use super::{idle, locked};
use crate::engine::{Engine, Error, Kind, RequestedSettings, Result, Visit};
use fjall::config::{BloomConstructionPolicy, CompressionPolicy, FilterPolicy, FilterPolicyEntry};
use fjall::{
    CompressionType, Database, Guard, Keyspace, KeyspaceCreateOptions, OptimisticTxDatabase, PersistMode,
    Readable,
};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::Path;
use std::time::Duration;

/// fjall's default limit of all journals together. A journal is kept until all memtables with its writes are
/// flushed, so large memtables need a higher limit.
const JOURNALS_BYTES: u64 = 512 << 20;

/// fjall.
pub fn kinds() -> Vec<Kind> {
    vec![Kind { name: "fjall", title: "fjall", version: || locked::version("fjall").to_string(), open }]
}

fn open(dir: &Path, requested: &RequestedSettings) -> Result<Box<dyn Engine>> {
    Ok(Box::new(open_at(dir, requested)?))
}

fn open_at(dir: &Path, requested: &RequestedSettings) -> Result<Fjall> {
    let journals_bytes = JOURNALS_BYTES.max(4 * requested.memtable_bytes);
    let transactions = OptimisticTxDatabase::builder(dir)
        .cache_size(requested.cache_bytes)
        .worker_threads(requested.background_threads.max(1))
        .max_journaling_size(journals_bytes)
        .journal_compression(CompressionType::None)
        .manual_journal_persist(false)
        .open()
        .map_err(error)?;
    let db = transactions.inner().clone();
    let keyspace = db.keyspace("bench", || keyspace_options(requested)).map_err(error)?;
    let fjall = Fjall { transactions, db, keyspace, requested: requested.clone(), journals_bytes };
    // Background work caused by the opening must not count for the workload.
    fjall.settle()?;
    Ok(fjall)
}

fn keyspace_options(requested: &RequestedSettings) -> KeyspaceCreateOptions {
    let filter = match requested.filter_bits_per_key {
        0 => FilterPolicy::disabled(),
        bits => FilterPolicy::all(FilterPolicyEntry::Bloom(BloomConstructionPolicy::BitsPerKey(bits as f32))),
    };
    KeyspaceCreateOptions::default()
        .max_memtable_size(requested.memtable_bytes)
        .filter_policy(filter)
        .data_block_compression_policy(CompressionPolicy::disabled())
        .index_block_compression_policy(CompressionPolicy::disabled())
        .manual_journal_persist(false)
}

fn error(e: fjall::Error) -> Error {
    Error::new(e.to_string())
}

struct Fjall {
    /// For transactions alone: all else goes to the database under it.
    transactions: OptimisticTxDatabase,
    db: Database,
    keyspace: Keyspace,
    requested: RequestedSettings,
    journals_bytes: u64,
}

impl Fjall {
    fn persist(&self, sync: bool) -> Result<()> {
        if sync { self.db.persist(PersistMode::SyncData).map_err(error) } else { Ok(()) }
    }

    /// Whether a flush or a compaction is running or queued, according to fjall. Between two compactions of a
    /// series, fjall reports nothing.
    fn busy(&self) -> bool {
        self.db.outstanding_flushes() > 0
            || self.keyspace.sealed_memtable_count() > 0
            || self.db.active_compactions() > 0
    }
}

impl Engine for Fjall {
    fn settings(&self) -> BTreeMap<String, String> {
        let RequestedSettings {
            memtable_bytes, cache_bytes, background_threads, filter_bits_per_key, ..
        } = self.requested;
        let pairs = [
            ("cache_size", cache_bytes.to_string()),
            ("compaction_strategy", "Leveled, tables of 64 MiB (its default)".to_string()),
            ("data_block_compression_policy", "None".to_string()),
            ("data_block_size_policy", "4 KiB (its default)".to_string()),
            (
                "durability",
                "Buffer: each write is passed to the operating system before it returns".to_string(),
            ),
            ("durability of synced writes", "SyncData after each write; no group commit".to_string()),
            ("filter_policy", format!("Bloom, {filter_bits_per_key} bits per key")),
            ("journal_compression", "None".to_string()),
            ("journal files", "made 64 MiB long in advance, without taking the room".to_string()),
            ("max_journaling_size", self.journals_bytes.to_string()),
            ("max_memtable_size", memtable_bytes.to_string()),
            ("worker_threads", background_threads.max(1).to_string()),
            ("lacks", "counts of bytes written and of stalls; keys are of 1 to 65535 bytes".to_string()),
        ];
        pairs.into_iter().map(|(name, value)| (name.to_string(), value)).collect()
    }

    fn put(&self, key: &[u8], value: &[u8], sync: bool) -> Result<()> {
        self.keyspace.insert(key, value).map_err(error)?;
        self.persist(sync)
    }

    fn delete(&self, key: &[u8], sync: bool) -> Result<()> {
        self.keyspace.remove(key).map_err(error)?;
        self.persist(sync)
    }

    fn get(&self, key: &[u8], show: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let value = self.keyspace.get(key).map_err(error)?;
        Ok(value.inspect(|value| show(value)).is_some())
    }

    fn scan(&self, from: Option<&[u8]>, visit: &mut Visit<'_>) -> Result<()> {
        let from = from.map_or(Bound::Unbounded, Bound::Included);
        visit_all(self.db.snapshot().range::<&[u8], _>(&self.keyspace, (from, Bound::Unbounded)), visit)
    }

    fn scan_back(&self, from: Option<&[u8]>, visit: &mut Visit<'_>) -> Result<()> {
        let from = from.map_or(Bound::Unbounded, Bound::Included);
        visit_all(self.db.snapshot().range::<&[u8], _>(&self.keyspace, (Bound::Unbounded, from)).rev(), visit)
    }

    fn update_both(&self, keys: [&[u8]; 2], values: [&[u8]; 2], sync: bool) -> Result<(u64, u64)> {
        let mut conflicts = 0;
        loop {
            let mut tx = self.transactions.write_tx().map_err(error)?;
            if sync {
                tx = tx.durability(Some(PersistMode::SyncData));
            }
            let mut found = 0;
            for key in keys {
                found += u64::from(tx.get(&self.keyspace, key).map_err(error)?.is_some());
            }
            for (key, value) in keys.into_iter().zip(values) {
                tx.insert(&self.keyspace, key, value);
            }
            if tx.commit().map_err(error)?.is_ok() {
                return Ok((found, conflicts));
            }
            conflicts += 1;
        }
    }

    fn settle(&self) -> Result<Duration> {
        loop {
            let idle_time = idle::wait();
            if !self.busy() {
                return Ok(idle_time);
            }
        }
    }

    fn close(self: Box<Self>) -> Result<()> {
        // Dropping the database does the same, but ignores errors.
        self.db.persist(PersistMode::SyncAll).map_err(error)
    }
}

/// Passes keys and values as references into a block or a memtable.
fn visit_all(entries: impl Iterator<Item = Guard>, visit: &mut Visit<'_>) -> Result<()> {
    for entry in entries {
        let (key, value) = entry.into_inner().map_err(error)?;
        if !visit(&key, &value) {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_settles_when_full_memtables_are_tables() {
        let dir = tempfile::tempdir().unwrap();
        let requested = RequestedSettings {
            memtable_bytes: 256 << 10,
            cache_bytes: 1 << 20,
            background_threads: 1,
            filter_bits_per_key: 10,
            data_bytes_max: 1 << 20,
        };
        let fjall = open_at(dir.path(), &requested).unwrap();
        for key in 0..1000u32 {
            fjall.put(&key.to_be_bytes(), &[0; 1000], false).unwrap();
        }
        fjall.settle().unwrap();
        assert!(!fjall.busy());
        assert!(fjall.keyspace.disk_space() > 256 << 10, "what was put fills several memtables");
        assert!(fjall.db.write_buffer_size() <= 512 << 10, "full memtables were flushed");
    }
}
