//! Cairn, under each of its presets.

use crate::engine::{Asked, Engine, Kind, Result, Stalls, Visit};
use cairn::{Cursor, Database, Durability, Keyspace, KeyspaceOptions, Options, Preset};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// The keyspace that is measured.
pub const KEYSPACE: &str = "bench";

/// Cairn as it comes, and its other presets.
pub fn kinds() -> Vec<Kind> {
    vec![
        Kind {
            name: "cairn",
            title: "Cairn",
            version,
            open: |dir, asked| open(dir, asked, Preset::Balanced),
        },
        Kind {
            name: "cairn-leveled",
            title: "Cairn, leveled",
            version,
            open: |dir, asked| open(dir, asked, Preset::Leveled),
        },
        Kind {
            name: "cairn-pebblesdb",
            title: "Cairn, as in the PebblesDB paper",
            version,
            open: |dir, asked| open(dir, asked, Preset::PebblesDb),
        },
    ]
}

fn version() -> String {
    env!("CARGO_PKG_VERSION").to_string()
}

fn open(dir: &Path, asked: &Asked, preset: Preset) -> Result<Box<dyn Engine>> {
    // Half of the budget is the cache; the other half is room for memtables, of which two are in use at a time.
    let options = Options::default()
        .memory_budget(2 * asked.cache_bytes.max(2 * asked.memtable_bytes))
        .background_threads(asked.background_threads);
    let keyspace = KeyspaceOptions::preset(preset)
        .compression(cairn::Compression::None)
        .memtable_bytes(asked.memtable_bytes as usize)
        .filter_bits_per_key(asked.filter_bits_per_key);
    Ok(Box::new(Cairn::open(dir, options, keyspace)?))
}

/// An open database and its keyspace.
pub struct Cairn {
    db: Database,
    keyspace: Keyspace,
}

impl Cairn {
    /// Opens the database with these options, and the keyspace with these if it is to be created.
    pub fn open(dir: &Path, options: Options, keyspace: KeyspaceOptions) -> cairn::Result<Cairn> {
        let db = Database::open_with(dir, options)?;
        let keyspace = db.keyspace(KEYSPACE, keyspace)?;
        // What opening left to do is not the workload's.
        db.wait_idle()?;
        Ok(Cairn { db, keyspace })
    }

    /// The database.
    pub fn database(&self) -> &Database {
        &self.db
    }

    /// The keyspace.
    pub fn keyspace(&self) -> &Keyspace {
        &self.keyspace
    }

    fn durability(&self, sync: bool) -> Durability {
        if sync { Durability::Sync } else { self.db.options().durability }
    }
}

impl Engine for Cairn {
    fn settings(&self) -> BTreeMap<String, String> {
        let pairs = self.db.options().to_pairs().into_iter().chain(self.keyspace.options().to_pairs());
        pairs.map(|(name, value)| (name.to_string(), value)).collect()
    }

    #[inline]
    fn put(&self, key: &[u8], value: &[u8], sync: bool) -> Result<()> {
        Ok(self.keyspace.put_with(key, value, self.durability(sync))?)
    }

    fn delete(&self, key: &[u8], sync: bool) -> Result<()> {
        Ok(self.keyspace.delete_with(key, self.durability(sync))?)
    }

    fn get(&self, key: &[u8], show: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let value = self.keyspace.get(key)?;
        Ok(value.inspect(|value| show(value)).is_some())
    }

    fn scan(&self, from: Option<&[u8]>, visit: &mut Visit<'_>) -> Result<()> {
        let mut cursor = self.keyspace.cursor();
        match from {
            Some(key) => cursor.seek(key)?,
            None => cursor.seek_to_first()?,
        }
        while cursor.valid() && visit(cursor.key(), cursor.value()) {
            cursor.next()?;
        }
        Ok(())
    }

    fn scan_back(&self, from: Option<&[u8]>, visit: &mut Visit<'_>) -> Result<()> {
        let mut cursor: Cursor = self.keyspace.cursor();
        match from {
            Some(key) => cursor.seek_for_prev(key)?,
            None => cursor.seek_to_last()?,
        }
        while cursor.valid() && visit(cursor.key(), cursor.value()) {
            cursor.prev()?;
        }
        Ok(())
    }

    fn settle(&self) -> Result<Duration> {
        self.db.wait_idle()?;
        Ok(Duration::ZERO)
    }

    fn written_bytes(&self) -> Option<u64> {
        Some(self.db.stats().bytes_written())
    }

    fn stalls(&self) -> Option<Stalls> {
        let stalls = self.db.stats().stalls;
        Some(Stalls {
            seconds: stalls.slowdown_seconds + stalls.memtable_wait_seconds + stalls.log_wait_seconds,
            longest_seconds: Some(stalls.longest_seconds),
        })
    }

    fn close(self: Box<Self>) -> Result<()> {
        drop(self.keyspace);
        Ok(self.db.close()?)
    }
}
