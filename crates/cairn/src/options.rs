//! Every option there is, with its default, its range and what it does, in two tables.
//!
//! The structs, their setters, the text form that the manifest keeps and the list that `cairn options` prints all come
//! from these tables: an option is added in one place.

use base::{Error, Result};
use std::fmt;
use std::str::FromStr;

pub use table::Compression;

/// What an acknowledged write has survived by the time the call returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Durability {
    /// The write is in the memory of this process and reaches the log in groups: a crash of the process may lose the
    /// newest writes (a suffix of them, never one from the middle).
    Buffered,
    /// The operating system has the write: it survives the end of this process, however it ends. A power cut may
    /// lose the newest writes (a suffix).
    Os,
    /// The write is on disk: it survives a power cut.
    Sync,
}

/// A whole configuration by name. A preset is nothing but values of the options.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Preset {
    /// What we found best for most work: see `docs/adr/0002-balanced-shape.md`.
    #[default]
    Balanced,
    /// The tree of the PebblesDB paper (SOSP 2017), with the paper's parameters.
    PebblesDb,
    /// One table per guard: a leveled LSM tree.
    Leveled,
}

/// How the guards of a tree are chosen: the keys that divide its levels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum GuardPolicy {
    /// By the hash of inserted keys (PebblesDB, section 4.5).
    Hash,
    /// While compacting, from the data itself, so that guards have useful sizes whatever the keys are.
    #[default]
    Adaptive,
}

macro_rules! named_enum {
    ($type:ty, $what:literal, $($name:literal => $value:path),+) => {
        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $($value => $name),+ })
            }
        }
        impl FromStr for $type {
            type Err = Error;
            fn from_str(text: &str) -> Result<Self> {
                match text {
                    $($name => Ok($value),)+
                    _ => Err(Error::invalid(format!(
                        concat!("{:?} is no ", $what, ": choose one of {}"), text, [$($name),+].join(", ")
                    ))),
                }
            }
        }
    };
}
named_enum!(Durability, "durability", "buffered" => Durability::Buffered, "os" => Durability::Os, "sync" => Durability::Sync);
named_enum!(GuardPolicy, "guard policy", "hash" => GuardPolicy::Hash, "adaptive" => GuardPolicy::Adaptive);
named_enum!(Preset, "preset", "balanced" => Preset::Balanced, "pebblesdb" => Preset::PebblesDb, "leveled" => Preset::Leveled);

/// One row of an option table.
#[derive(Clone, Debug)]
pub struct OptionSpec {
    /// Its name, as in the struct, in the manifest and on the command line.
    pub name: &'static str,
    /// The default, as text.
    pub default: String,
    /// What values are allowed, for people.
    pub range: &'static str,
    /// What it does.
    pub doc: &'static str,
}

macro_rules! option_table {
    (
        $(#[$meta:meta])* $struct:ident;
        $( $(#[doc = $doc:literal])+ $name:ident : $type:ty = $default:expr, $range:literal, $valid:expr; )+
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq)]
        pub struct $struct {
            $( $(#[doc = $doc])+ #[doc = concat!("\n\nAllowed: ", $range, ".")] pub $name: $type, )+
        }

        impl Default for $struct {
            fn default() -> Self {
                $struct { $( $name: $default, )+ }
            }
        }

        impl $struct {
            $(
                $(#[doc = $doc])+
                #[doc = concat!("\n\nAllowed: ", $range, ".")]
                #[must_use]
                pub fn $name(mut self, value: $type) -> Self {
                    self.$name = value;
                    self
                }
            )+

            /// The table: every option in order.
            pub fn specs() -> Vec<OptionSpec> {
                let default = $struct::default();
                vec![$( OptionSpec {
                    name: stringify!($name),
                    default: default.$name.to_string(),
                    range: $range,
                    doc: concat!($($doc),+).trim(),
                } ),+]
            }

            /// Sets an option by name from text. A value that is refused changes nothing.
            ///
            /// # Errors
            /// `InvalidArgument` when there is no such option, or the value is no value of it or out of its range.
            pub fn set(&mut self, name: &str, value: &str) -> Result<()> {
                let mut changed = self.clone();
                match name {
                    $( stringify!($name) => {
                        changed.$name = value.parse().map_err(|e| {
                            Error::invalid(format!("option {name}: {value:?} is not allowed ({e}); allowed: {}", $range))
                        })?;
                    } )+
                    _ => return Err(Error::invalid(format!("there is no option {name:?}"))),
                }
                changed.validate()?;
                *self = changed;
                Ok(())
            }

            /// Every option as text, by name: what the manifest keeps.
            pub fn to_pairs(&self) -> Vec<(&'static str, String)> {
                vec![$( (stringify!($name), self.$name.to_string()) ),+]
            }

            /// Checks every option against its range.
            ///
            /// # Errors
            /// `InvalidArgument` names the first option that is out of its range.
            pub fn validate(&self) -> Result<()> {
                $( {
                    let valid: fn(&$type) -> bool = $valid;
                    if !valid(&self.$name) {
                        return Err(Error::invalid(format!(
                            "option {}: {} is not allowed; allowed: {}", stringify!($name), self.$name, $range
                        )));
                    }
                } )+
                Ok(())
            }
        }
    };
}

option_table! {
    /// Options of a database as a whole.
    ///
    /// ```
    /// use cairn::{Durability, Options};
    /// let options = Options::default().memory_budget(128 << 20).durability(Durability::Sync);
    /// assert!(options.validate().is_ok());
    /// ```
    Options;

    /// Bytes of memory for memtables and the block cache (data, index nodes and filters) together. Half of it
    /// is for memtables, half for the cache; indexes and filters of the tables in use stay in memory as long as they take no more than half
    /// of the cache's part.
    memory_budget: u64 = 512 << 20, "1 MiB to 1 TiB", |v| (1 << 20..=1 << 40).contains(v);
    /// Threads that compact. Flushes have a thread of their own. 0 runs all background work in the thread that
    /// caused it, a writer's nearly always: slower, and the order of all I/O is then determined by the calls alone.
    background_threads: usize = 2, "0 to 64", |v| *v <= 64;
    /// What a write survives when the call does not say.
    durability: Durability = Durability::Os, "buffered, os, sync", |_| true;
    /// Bytes of write-ahead log, all of its files together. When it has half of that, the keyspaces that hold the oldest part are flushed,
    /// together; from three quarters on writers are slowed down, the more the nearer the cap; at the cap they wait for a flush. The log
    /// passes it by what is written at once: a group of writes, of 1 MiB or one batch that is larger, and 4 KiB.
    log_cap: u64 = 1 << 30, "64 KiB to 1 TiB", |v| (64 << 10..=1 << 40).contains(v);
    /// Bytes of manifest, beyond twice what describes the whole database, after which a new one is started.
    manifest_cap: u64 = 1 << 20, "1 KiB to 1 GiB", |v| (1 << 10..=1 << 30).contains(v);
    /// Create the database when the directory holds none.
    create: bool = true, "true, false", |_| true;
    /// Bytes per second that compactions write at most, all of them together. 0 is no limit. Too low a rate makes writers wait: each byte that
    /// is flushed is written by compactions once or more.
    compaction_rate: u64 = 0, "0 and more", |_| true;
    /// Bytes per second at which everything on disk is read and verified in the background, round after round. 0 is off, and so
    /// is any rate without background threads.
    scrub_rate: u64 = 0, "0 and more", |_| true;
    /// Bytes of the disk that are held back at most, in a file of their own, from the first flush on: when the disk is full, deletes, flushes
    /// and compactions use them, and puts are refused until they can be held back again. As many are held back as tables and logs have together, but at
    /// least 1 MiB, rounded up to a power of two; fewer again when that has fallen to a quarter. 64 MiB are cut to an eighth of
    /// `memory_budget` where that is less; any other value is taken as it is, also one below 1 MiB. 0 holds nothing back.
    reserve: u64 = DEFAULT_RESERVE, "0 to 1 TiB", |v| *v <= 1 << 40;
    /// Files held open at most, but for those that threads are reading from at the moment; 0 takes half of what the process may
    /// open, 16 to 100000. Tables get what logs, the manifest and new tables leave; the handle that was used longest ago is closed.
    max_open_files: usize = 0, "0, or 16 and more", |v| *v == 0 || *v >= 16;
    /// A cursor that has passed over so many deleted entries in a row notes, in memory, that their keys are gone, and later cursors
    /// leave them out until one of them is put again. 0 notes nothing.
    skip_deleted: u32 = 16, "0 to 1000000", |v| *v <= 1_000_000;
}

option_table! {
    /// Options of one keyspace. They are kept with the keyspace: what it was created with is what it has when it is opened again.
    ///
    /// ```
    /// use cairn::{Compression, KeyspaceOptions, Preset};
    /// let options = KeyspaceOptions::preset(Preset::PebblesDb).compression(Compression::Zstd);
    /// assert_eq!(options.max_tables_per_guard, 8);
    /// ```
    KeyspaceOptions;

    /// Compression of data blocks.
    compression: Compression = Compression::Lz4, "none, lz4, zstd", |_| true;
    /// Bytes of a data block before compression: what one uncached point read waits for.
    block_size: usize = 4096, "128 B to 1 MiB", |v| (128..=1 << 20).contains(v);
    /// Bits of filter per key; 10 let about one in a hundred useless reads through. 0 means no filters. Tables that lie above older
    /// ones have four bits more: they are small, and asked for most of what they do not have.
    filter_bits_per_key: u32 = 10, "0 to 32", |v| *v <= 32;
    /// Bytes of a memtable. When it is full it is flushed to level 0.
    memtable_bytes: usize = 64 << 20, "4 KiB to 2 GiB", |v| (4 << 10..=2 << 30).contains(v);
    /// Tables in level 0 that start its compaction. The more, the larger the pieces that guards get, and the less is rewritten.
    level0_tables: usize = 8, "1 to 64", |v| (1..=64).contains(v);
    /// Levels of guards below level 0.
    levels: usize = 6, "1 to 15", |v| (1..=base::limits::MAX_LEVELS).contains(v);
    /// Tables in a guard before it is compacted; 1 makes the tree a leveled LSM tree.
    max_tables_per_guard: usize = 8, "1 to 64", |v| (1..=64).contains(v);
    /// How guards are chosen: `adaptive`, while compacting, from the data itself, so that guards have useful sizes; or by the `hash` of inserted
    /// keys, by the three options that follow.
    guard_policy: GuardPolicy = GuardPolicy::Adaptive, "hash, adaptive", |_| true;
    /// A key is a guard of level 1 when this many low bits of its hash are set (PebblesDB, section 4.5).
    top_level_bits: u32 = 31, "1 to 60", |v| (1..=60).contains(v);
    /// How many bits fewer each deeper level asks for.
    bit_decrement: u32 = 3, "0 to 16", |v| *v <= 16;
    /// Ask one bit less for each doubling of a record over 128 bytes, so that guards hold about as many bytes whatever the size
    /// of the records.
    guards_by_size: bool = true, "true, false", |_| true;
    /// Compact a level when its size reaches this share (in per cent) of the next non-empty one. 0 is off.
    level_size_percent: u32 = 0, "0 to 1000", |v| *v <= 1000;
    /// Bytes of compaction that a seek is worth for each sorted run that it looks through in a guard beside the first; what it reads
    /// from files for it counts besides. An entry that a cursor has to pass over, because it is deleted, counts an eighth. A guard
    /// is compacted, level 0 brought down (not in leveled trees, nor with guards by hash), and a memtable flushed when readers have
    /// paid what that takes. 0 is off.
    seek_cost: u32 = 256, "0 and more", |_| true;
    /// Note the order of all entries of a guard in memory (a view: about five bytes an entry) when seeks have paid this share, in per
    /// cent, of the bytes of its tables: 256 bytes for each sorted run beside the first, and what they read from files for it. Views
    /// take up to a quarter of the block cache. 0 is off.
    views: u32 = 12, "0 to 10000", |v| *v <= 10_000;
    /// Rewrite a guard of the last level but one in place when pushing it down would read and write this many times more.
    last_level_merge_factor: u32 = 25, "1 to 1000", |v| (1..=1000).contains(v);
    /// Compact a guard when this share (in per cent) of a table's entries are tombstones. 0 is off.
    tombstone_percent: u32 = 50, "0 to 100", |v| *v <= 100;
    /// How many times the bytes of its newest versions a tree may have. Above that, the guards that have most older versions are compacted,
    /// those first that give back most for what is rewritten. What waits in memtables and in level 0 is not known and counts half.
    /// While hardly anybody writes, guards are merged as soon as what was added to them has reached `space_target` - 1 of what they had.
    space_target: f64 = 1.5, "1.05 to 10", |v| (1.05..=10.0).contains(v);
    /// Compact level 0 straight into the deepest level where the pieces still have a useful size, instead of level 1.
    skip_levels: bool = true, "true, false", |_| true;
}

/// Bytes of the reserve by default, where the memory budget is not small.
const DEFAULT_RESERVE: u64 = 64 << 20;

impl Options {
    /// Bytes that are held back at most. By default as many as the largest memtable: it can always be flushed then, and its log goes.
    pub(crate) fn reserve_bytes(&self) -> u64 {
        match self.reserve {
            DEFAULT_RESERVE => DEFAULT_RESERVE.min(self.memory_budget / 8),
            bytes => bytes,
        }
    }
}

/// Level 0 is cut into pieces of at least this size, in bytes, while that is possible.
const MIN_PIECE_BYTES: u64 = 1 << 20;

/// Bytes of a guard of the last level that is chosen from the data: half a memtable, and no more than this.
const GUARD_BYTES: u64 = 32 << 20;

impl KeyspaceOptions {
    /// What the tree is told of them, and of the keyspace that it is the tree of.
    pub(crate) fn tree_options(&self, id: u64, name: &str) -> tree::TreeOptions {
        tree::TreeOptions {
            levels: self.levels,
            level0_tables: self.level0_tables,
            max_tables_per_guard: self.max_tables_per_guard,
            top_level_bits: self.top_level_bits,
            bit_decrement: self.bit_decrement,
            guards_by_size: self.guards_by_size,
            level_size_percent: self.level_size_percent,
            seek_cost: self.seek_cost,
            last_level_merge_factor: self.last_level_merge_factor,
            tombstone_percent: self.tombstone_percent,
            skip_levels: self.skip_levels,
            // A small memtable means small data: then pieces are small, too.
            space_target: self.space_target,
            guard_bytes: match self.guard_policy {
                GuardPolicy::Hash => 0,
                GuardPolicy::Adaptive => GUARD_BYTES.min(self.memtable_bytes as u64 / 2),
            },
            min_piece_bytes: MIN_PIECE_BYTES.min(self.memtable_bytes as u64 / 64),
            table: table::TableOptions {
                block_size: self.block_size,
                compression: self.compression,
                filter_bits_per_key: self.filter_bits_per_key,
                owner: Some(table::TableOwner { number: id, name: name.into() }),
            },
        }
    }

    /// Sets an option as a database kept it, which may have been an older one: what an option that is gone has said is translated.
    pub(crate) fn set_kept(&mut self, name: &str, value: &str) -> Result<()> {
        match (name, value) {
            // A number of seeks, or none at all.
            ("seek_compaction", "0") => self.set("seek_cost", "0"),
            ("seek_compaction", _) if value.parse::<u32>().is_ok() => Ok(()),
            _ => self.set(name, value),
        }
    }

    /// The options of a preset.
    pub fn preset(preset: Preset) -> KeyspaceOptions {
        let options = KeyspaceOptions::default();
        match preset {
            Preset::Balanced => options,
            Preset::PebblesDb => options
                .guard_policy(GuardPolicy::Hash)
                .level0_tables(4)
                .space_target(10.0)
                .top_level_bits(27)
                .bit_decrement(2)
                .guards_by_size(false)
                .level_size_percent(25)
                .skip_levels(false),
            Preset::Leveled => {
                options.level0_tables(4).max_tables_per_guard(1).level_size_percent(10).seek_cost(0)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Found by the fuzz target `options`: the value stayed, and only the next use of the options was refused.
    #[test]
    fn an_option_that_is_refused_stays_as_it_was() {
        let mut options = KeyspaceOptions::default();
        assert!(options.set("levels", "99").is_err() && options.set("levels", "x").is_err());
        assert_eq!(options, KeyspaceOptions::default());
        options.set("levels", "3").unwrap();
        assert_eq!(options.levels, 3);
    }

    #[test]
    fn what_an_older_database_kept_of_an_option_that_is_gone_still_counts() {
        let mut options = KeyspaceOptions::default();
        assert!(options.set("seek_compaction", "10").is_err(), "only what is kept may have it");
        options.set_kept("seek_compaction", "10").unwrap();
        assert_eq!(options, KeyspaceOptions::default());
        options.set_kept("seek_compaction", "0").unwrap();
        assert_eq!(options.seek_cost, 0);
        assert!(options.set_kept("seek_compaction", "x").is_err());
        options.set_kept("levels", "3").unwrap();
        assert!(options.levels == 3 && options.set_kept("levels", "99").is_err());
    }
}
