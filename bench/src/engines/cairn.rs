//! Cairn, with each of its presets.

use crate::engine::{Engine, Kind, RequestedSettings, Result, Stalls, Visit, version_key};
use cairn::{
    Cursor, Database, Durability, Keyspace, KeyspaceOptions, Options, PlacementPolicy, Preset, Time,
    TransactionOptions, Versions,
};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// The measured keyspace.
pub const KEYSPACE: &str = "bench";

/// Cairn with default options, and with its other presets.
pub fn kinds() -> Vec<Kind> {
    vec![
        Kind {
            name: "cairn",
            title: "Cairn",
            version,
            open: |dir, requested| open(dir, requested, Preset::Balanced),
        },
        Kind {
            name: "cairn-hybrid",
            title: "Cairn, large values in the log",
            version,
            open: |dir, requested| {
                let keyspace = keyspace(requested, Preset::Balanced).placement(PlacementPolicy::Hybrid);
                open_with(dir, requested, keyspace)
            },
        },
        Kind {
            name: "cairn-hybrid-medium",
            title: "Cairn, medium and large values in the log",
            version,
            open: |dir, requested| {
                let keyspace = keyspace(requested, Preset::Balanced).placement(PlacementPolicy::Hybrid);
                open_with(dir, requested, keyspace.large_up_to(0.2))
            },
        },
        Kind {
            name: "cairn-history",
            title: "Cairn with history",
            version,
            open: |dir, requested| {
                let keyspace = keyspace(requested, Preset::Mneme);
                Ok(Box::new(History(open_cairn(dir, requested, keyspace)?)) as Box<dyn Engine>)
            },
        },
        Kind {
            name: "cairn-hash-log",
            title: "Cairn, hash log",
            version,
            open: |dir, requested| open(dir, requested, Preset::HashLog),
        },
        Kind {
            name: "cairn-sstable",
            title: "Cairn, size-class tables",
            version,
            open: |dir, requested| open(dir, requested, Preset::SsTable),
        },
        Kind {
            name: "cairn-sstable-no-filter",
            title: "Cairn, size-class tables without filters",
            version,
            open: |dir, requested| {
                open_with(dir, requested, keyspace(requested, Preset::SsTable).filter_bits_per_key(0))
            },
        },
        Kind {
            name: "cairn-parallax",
            title: "Cairn, preset parallax",
            version,
            open: |dir, requested| open(dir, requested, Preset::Parallax),
        },
        Kind {
            name: "cairn-leveled",
            title: "Cairn, leveled",
            version,
            open: |dir, requested| open(dir, requested, Preset::Leveled),
        },
        Kind {
            name: "cairn-pebblesdb",
            title: "Cairn, as in the PebblesDB paper",
            version,
            open: |dir, requested| open(dir, requested, Preset::PebblesDb),
        },
        Kind {
            name: "cairn-pebblesdb-1",
            title: "Cairn, as in the PebblesDB paper with one table in a guard",
            version,
            open: |dir, requested| {
                open_with(dir, requested, keyspace(requested, Preset::PebblesDb).max_tables_per_guard(1))
            },
        },
        Kind {
            name: "cairn-pebblesdb-no-filter",
            title: "Cairn, as in the PebblesDB paper without filters",
            version,
            open: |dir, requested| {
                open_with(dir, requested, keyspace(requested, Preset::PebblesDb).filter_bits_per_key(0))
            },
        },
        Kind {
            name: "cairn-pebblesdb-no-seek-cost",
            title: "Cairn, as in the PebblesDB paper without seek-based compaction",
            version,
            open: |dir, requested| {
                open_with(dir, requested, keyspace(requested, Preset::PebblesDb).seek_cost(0))
            },
        },
    ]
}

fn version() -> String {
    env!("CARGO_PKG_VERSION").to_string()
}

fn open(dir: &Path, requested: &RequestedSettings, preset: Preset) -> Result<Box<dyn Engine>> {
    open_with(dir, requested, keyspace(requested, preset))
}

fn open_with(
    dir: &Path,
    requested: &RequestedSettings,
    keyspace: KeyspaceOptions,
) -> Result<Box<dyn Engine>> {
    Ok(Box::new(open_cairn(dir, requested, keyspace)?))
}

fn open_cairn(dir: &Path, requested: &RequestedSettings, keyspace: KeyspaceOptions) -> Result<Cairn> {
    // Half of the budget is for the cache, the other half for memtables; two of them are in use at a time. The index of a keyspace without order takes
    // the place of the cache, and does not fit into that of the largest groups.
    let halves = if keyspace.engine == cairn::Engine::HashLog { 6 } else { 2 };
    let mut options = Options::default()
        .memory_budget(halves * requested.cache_bytes.max(2 * requested.memtable_bytes))
        .background_threads(requested.background_threads);
    if keyspace.engine == cairn::Engine::HashLog {
        // Collections of less copy more, and keep less space.
        options = options.value_garbage_percent(40);
    }
    Ok(Cairn::open(dir, options, keyspace)?)
}

fn keyspace(requested: &RequestedSettings, preset: Preset) -> KeyspaceOptions {
    KeyspaceOptions::preset(preset)
        .compression(cairn::Compression::None)
        .memtable_bytes(requested.memtable_bytes as usize)
        .filter_bits_per_key(requested.filter_bits_per_key)
}

/// An open database and its keyspace.
pub struct Cairn {
    db: Database,
    keyspace: Keyspace,
}

impl Cairn {
    /// Opens the database with these options. Creates the keyspace with its options if it is missing.
    pub fn open(dir: &Path, options: Options, keyspace: KeyspaceOptions) -> cairn::Result<Cairn> {
        let db = Database::open_with(dir, options)?;
        let keyspace = db.keyspace(KEYSPACE, keyspace)?;
        // Background work caused by the opening must not count for the workload.
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

    fn has_order(&self) -> bool {
        self.keyspace.options().engine != cairn::Engine::HashLog
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
        // A keyspace without order can be read as a whole.
        if from.is_none() && !self.has_order() {
            for entry in self.keyspace.entries() {
                let (key, value) = entry?;
                if !visit(&key, &value) {
                    break;
                }
            }
            return Ok(());
        }
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

    fn update_both(&self, keys: [&[u8]; 2], values: [&[u8]; 2], sync: bool) -> Result<(u64, u64)> {
        let options = TransactionOptions::default().durability(self.durability(sync)).retries(u32::MAX);
        let mut runs = 0;
        let found = self.db.transaction_with(&options, |tx| {
            runs += 1;
            let mut found = 0;
            for key in keys {
                found += u64::from(tx.get(&self.keyspace, key)?.is_some());
            }
            for (key, value) in keys.into_iter().zip(values) {
                tx.put(&self.keyspace, key, value)?;
            }
            cairn::Result::Ok(found)
        })?;
        Ok((found, runs - 1))
    }

    fn flush(&self) -> Result<()> {
        Ok(self.db.flush()?)
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

/// A database whose keyspace has history: versions are versions, and all else is as without.
struct History(Cairn);

impl History {
    fn visit(versions: Versions, visit: &mut Visit<'_>) -> Result<()> {
        let mut cursor = versions.cursor();
        cursor.seek_to_first()?;
        while cursor.valid()
            && visit(&version_key(cursor.key(), cursor.time().micros()), cursor.value().unwrap_or_default())
        {
            cursor.next()?;
        }
        Ok(())
    }
}

impl Engine for History {
    fn settings(&self) -> BTreeMap<String, String> {
        self.0.settings()
    }

    fn put(&self, key: &[u8], value: &[u8], sync: bool) -> Result<()> {
        self.0.put(key, value, sync)
    }

    fn delete(&self, key: &[u8], sync: bool) -> Result<()> {
        self.0.delete(key, sync)
    }

    fn get(&self, key: &[u8], show: &mut dyn FnMut(&[u8])) -> Result<bool> {
        self.0.get(key, show)
    }

    fn scan(&self, from: Option<&[u8]>, visit: &mut Visit<'_>) -> Result<()> {
        self.0.scan(from, visit)
    }

    fn scan_back(&self, from: Option<&[u8]>, visit: &mut Visit<'_>) -> Result<()> {
        self.0.scan_back(from, visit)
    }

    fn put_version(&self, key: &[u8], time: u64, value: &[u8], sync: bool) -> Result<()> {
        let durability = self.0.durability(sync);
        Ok(self.0.keyspace.put_at_with(key, value, Time::from_micros(time), durability)?)
    }

    fn versions(&self, key: &[u8], (from, to): (u64, u64), visit: &mut Visit<'_>) -> Result<()> {
        let times = Time::from_micros(from)..=Time::from_micros(to);
        History::visit(self.0.keyspace.history(key, times)?, visit)
    }

    fn scan_as_of(&self, time: u64, from: &[u8], visit: &mut Visit<'_>) -> Result<()> {
        let mut cursor = self.0.keyspace.range_at(Time::from_micros(time), from..)?.cursor();
        cursor.seek_to_first()?;
        while cursor.valid() && visit(cursor.key(), cursor.value()) {
            cursor.next()?;
        }
        Ok(())
    }

    fn all_versions(&self, visit: &mut Visit<'_>) -> Result<()> {
        History::visit(self.0.keyspace.changes::<&[u8]>(.., ..)?, visit)
    }

    fn flush(&self) -> Result<()> {
        self.0.flush()
    }

    fn settle(&self) -> Result<Duration> {
        self.0.settle()
    }

    fn written_bytes(&self) -> Option<u64> {
        self.0.written_bytes()
    }

    fn stalls(&self) -> Option<Stalls> {
        self.0.stalls()
    }

    fn close(self: Box<Self>) -> Result<()> {
        Box::new(self.0).close()
    }
}
