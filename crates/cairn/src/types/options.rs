//! All options with default, range and description, in two tables.
//!
//! The structs, their setters, the text form in the manifest, the output of `cairn options` and `docs/options.md` are generated
//! from these tables, so an option is added in one place.

use super::merge::Merge;
use base::duration::{duration_text, parse_duration};
use base::{Error, ErrorKind, Result, Time};
use history::Retention;
use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

pub use table::{Compression, TableFormat};

/// What a write survives once the call has returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Durability {
    /// The write is in the memory of this process and reaches the log file in groups: a crash of the process may lose the
    /// newest writes (a suffix of them, never one from the middle).
    Buffered,
    /// The operating system has the write: it survives the end of this process, however it ends. A power cut may
    /// lose the newest writes (a suffix).
    Os,
    /// The write is on disk: it survives a power cut.
    Sync,
}

/// A named set of option values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Preset {
    /// The default, for most workloads: see `docs/adr/0002-balanced-shape.md`.
    #[default]
    Balanced,
    /// The tree of the PebblesDB paper (SOSP 2017), with the paper's parameters.
    PebblesDb,
    /// One table per guard: a leveled LSM tree.
    Leveled,
    /// Large values in the log and the other records in a leveled tree that grows by 8 from level to level, as in the thesis of Parallax
    /// (sections 2.1.2, 3.0.2), but without transient segments for medium values: see `docs/adr/0023-no-transient-segments.md`.
    Parallax,
    /// The balanced tree, and all versions of all keys, as in the thesis of Mneme (chapter 4), but other than there without merging older
    /// versions into the historical layer when they are dropped: see `docs/adr/0025-history.md`.
    Mneme,
    /// A hash table in memory over entries that stay in the log: the log database of Pristupin's report (section 2), made for data larger than
    /// memory. See `docs/adr/0027-hash-log.md`.
    HashLog,
    /// The balanced tree over size-class tables, without compression: the sstable database of Pristupin's report (section 3), with the merging
    /// that its conclusion asks for. See `docs/adr/0028-size-class-tables.md`.
    SsTable,
}

impl Preset {
    /// All presets.
    pub const ALL: [Preset; 7] = [
        Preset::Balanced,
        Preset::PebblesDb,
        Preset::Leveled,
        Preset::Parallax,
        Preset::Mneme,
        Preset::HashLog,
        Preset::SsTable,
    ];
}

/// How a tree chooses its guards: the keys that divide its levels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum GuardPolicy {
    /// By the hash of inserted keys (PebblesDB, section 4.5).
    Hash,
    /// By compactions, from the data, so that guards have useful sizes whatever the keys are.
    #[default]
    Adaptive,
}

/// What finds the entries of a keyspace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Engine {
    /// A tree of sorted tables.
    #[default]
    Tree,
    /// A hash table in memory over entries that stay in the log: no order, so no ranges, cursors, range deletes and history. An entry takes 12 to
    /// 14 bytes of the memory budget, overwritten ones and deletes included until a collection; a get that finds it on the disk takes one
    /// read, or two if it is longer than its neighbours in the file, and one more for each 4 MiB of its value. `docs/hash-log.md` helps to choose, and to find the memory.
    ///
    /// A snapshot or iterator sees the keyspace as it was, as everywhere. While it is held, the entries that it sees keep their space on the disk and
    /// in the index, and a read through it of a key that was overwritten since reads the newer entries first: one read of the disk for each.
    HashLog,
}

/// Where the values of a keyspace are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PlacementPolicy {
    /// Beside their keys.
    #[default]
    InPlace,
    /// Large values in the log, the others beside their keys (Parallax, section 3.0.2).
    Hybrid,
}

/// How long entries live that are put without a time to live of their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Ttl {
    /// For ever.
    #[default]
    None,
    /// So long after they are put.
    After(Duration),
}

impl Ttl {
    /// The time to live, if it ends.
    pub fn duration(self) -> Option<Duration> {
        match self {
            Ttl::None => None,
            Ttl::After(duration) => Some(duration),
        }
    }

    /// Whether it is a whole number of microseconds, at least 1: others are not written as text.
    fn is_valid(&self) -> bool {
        self.to_string().parse().is_ok_and(|parsed: Ttl| parsed == *self)
    }
}

impl From<Duration> for Ttl {
    fn from(duration: Duration) -> Ttl {
        Ttl::After(duration)
    }
}

/// As options are written: `none`, `7d`.
impl fmt::Display for Ttl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ttl::None => f.write_str("none"),
            Ttl::After(duration) => f.write_str(&duration_text(*duration)),
        }
    }
}

impl FromStr for Ttl {
    type Err = Error;

    fn from_str(text: &str) -> Result<Ttl> {
        match (text, parse_duration(text)) {
            ("none", _) => Ok(Ttl::None),
            (_, Some(duration)) => Ok(Ttl::After(duration)),
            _ => {
                let forms = "none, or a number with d, h, min, s, ms or us";
                Err(Error::invalid(format!("{text:?} is no time to live: {forms}")))
            }
        }
    }
}

base::named_enum!(Durability, "durability", "buffered" => Durability::Buffered, "os" => Durability::Os, "sync" => Durability::Sync);
base::named_enum!(Engine, "engine", "tree" => Engine::Tree, "hash_log" => Engine::HashLog);
base::named_enum!(GuardPolicy, "guard policy", "hash" => GuardPolicy::Hash, "adaptive" => GuardPolicy::Adaptive);
base::named_enum!(PlacementPolicy, "placement", "in_place" => PlacementPolicy::InPlace, "hybrid" => PlacementPolicy::Hybrid);
base::named_enum!(Preset, "preset", "balanced" => Preset::Balanced, "pebblesdb" => Preset::PebblesDb, "leveled" => Preset::Leveled, "parallax" => Preset::Parallax, "mneme" => Preset::Mneme, "hash_log" => Preset::HashLog, "sstable" => Preset::SsTable);

/// One row of an option table.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct OptionSpec {
    /// The name, as in the struct, in the manifest and on the command line.
    pub name: &'static str,
    /// The default, as text.
    pub default: String,
    /// The allowed values, as text for users.
    pub range: &'static str,
    /// The description.
    pub doc: &'static str,
    /// From when a change of it holds: "the next opening" for options of a database; "the next put", "the next memtable", "the next compaction" or
    /// "the next table" for those of a keyspace that [`Keyspace::alter`](crate::Keyspace::alter) changes, "fixed" for the others.
    pub changes: &'static str,
}

macro_rules! option_table {
    (
        $(#[$meta:meta])* $struct:ident, $changes:expr;
        $( $(#[doc = $doc:literal])+ $name:ident : $type:ty = $default:expr, $range:literal, $valid:expr; )+
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq)]
        #[non_exhaustive]
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
                    changes: $changes(stringify!($name)),
                } ),+]
            }

            /// Sets an option by name from text. After an error the options are unchanged.
            ///
            /// # Errors
            /// `InvalidArgument` if there is no option of this name, or the value cannot be parsed or is out of range.
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

            /// All options as pairs of name and text, as the manifest keeps them.
            pub fn to_pairs(&self) -> Vec<(&'static str, String)> {
                vec![$( (stringify!($name), self.$name.to_string()) ),+]
            }

            /// Checks every option against its range.
            ///
            /// # Errors
            /// `InvalidArgument` names the first option that is out of range.
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
    Options, |_| "the next opening";

    /// Bytes of memory for memtables and the block cache. One half is for memtables, the other for cached data blocks, filters and
    /// index nodes. Filters and indexes of the tables in use stay in memory while they need no more than half of the cache's part.
    /// With the indexes of hash logs seven eighths of that part may be taken: count 32 to 60 bytes of the budget for each key there (`docs/hash-log.md`).
    /// Raise it when the data that is read often does not fit, or when flushes are frequent. While a flush runs, writes are slowed once
    /// memtables take more than half of their part, more the nearer the limit, so that none waits for a whole flush. Memory outside of the
    /// budget is listed in `docs/limits.md`.
    memory_budget: u64 = 512 << 20, "1 MiB to 1 TiB", |v| (1 << 20..=1 << 40).contains(v);
    /// Compaction threads. Flushes have a thread of their own. More threads help when compaction is slower than the writers and
    /// processors are idle. With 0 there are no background threads at all: flushes and compactions run in the thread that triggers
    /// them, nearly always a writer, which is slower; the order of all I/O then depends on the calls alone.
    background_threads: usize = 2, "0 to 64", |v| *v <= 64;
    /// What a write survives when the call does not specify it. `buffered`: a crash of the process may lose the newest writes. `os`:
    /// the write survives the process; a power cut may lose the newest writes. `sync`: the write survives a power cut; each group of
    /// writes costs one sync of the log.
    durability: Durability = Durability::Os, "buffered, os, sync", |_| true;
    /// Bytes of all write-ahead log files together, but for those that are kept for large values and hash logs alone. A larger log means fewer and larger flushes, and a longer recovery. At half of the
    /// cap, the keyspaces with entries in the oldest logs are flushed together; from three quarters on, writes are slowed, more the
    /// nearer the cap; at the cap they wait for a flush. The log exceeds the cap by at most 4 KiB and one group of writes (1 MiB, or
    /// one larger batch).
    log_cap: u64 = 1 << 30, "64 KiB to 1 TiB", |v| (64 << 10..=1 << 40).contains(v);
    /// A new manifest is started when the old one is longer than twice the description of the whole database plus this many bytes. A
    /// larger value writes manifests less often and makes opening read more.
    manifest_cap: u64 = 1 << 20, "1 KiB to 1 GiB", |v| (1 << 10..=1 << 30).contains(v);
    /// Create the database if the directory contains none. With `false`, opening a directory without a database is an error.
    create_if_missing: bool = true, "true, false", |_| true;
    /// Limit for the bytes per second that all compactions together write. 0 is no limit. Set it to leave disk bandwidth to other
    /// programs: while reads of this database wait for the disk, compactions that are not far behind leave them two thirds of the time
    /// anyway. A rate that is too low slows writers: compactions write nearly every flushed byte at least once.
    compaction_rate: u64 = 0, "0 and more", |_| true;
    /// The share of dead bytes among all files of large values (`placement` = `hybrid`) and of keyspaces without order (`engine` = `hash_log`)
    /// at which a collection copies what is alive in the files of which most is dead, and removes these. A lower value saves space and writes
    /// more.
    value_garbage_percent: u32 = 20, "1 to 90", |v| (1..=90).contains(v);
    /// Bytes per second at which a background thread reads and verifies all files, round after round. 0 turns it off, and so does
    /// `background_threads` = 0. It finds damage before a read needs the data, and costs disk bandwidth.
    scrub_rate: u64 = 0, "0 and more", |_| true;
    /// Upper limit for the disk reserve: a file that holds disk space back, from the first flush on. On a full disk deletes, flushes
    /// and compactions use this space, and puts are refused until the reserve can be made again. Its size is that of tables and logs
    /// together, rounded up to a power of two, at least 1 MiB; it shrinks when a quarter is enough. The default is reduced to an eighth
    /// of `memory_budget` if that is smaller; any other value holds as given, also one below 1 MiB. 0 holds nothing back: a full disk
    /// then also stops deletes.
    disk_reserve: u64 = DEFAULT_RESERVE, "0 to 1 TiB", |v| *v <= 1 << 40;
    /// Limit for open files, not counting those that threads read from at this moment. 0 takes half of what the process may open, 16 to
    /// 100000. Logs, the manifest and new tables come first, tables get the rest; the table handle that was used longest ago is closed.
    /// A low limit makes reads open tables again.
    max_open_files: usize = 0, "0, or 16 and more", |v| *v == 0 || *v >= 16;
    /// A cursor that skips this many deleted entries in a row records the range in memory, and later cursors jump over it until a key
    /// in it is put again. This makes queues and scans over deleted data fast, and costs at most 128 recorded ranges per keyspace and a
    /// check in each put. 0 turns it off.
    dead_range_entries: u32 = 16, "0 to 1000000", |v| *v <= 1_000_000;
}

option_table! {
    /// Options of one keyspace. The manifest keeps them: a keyspace has the options with which it was created, until
    /// [`Keyspace::alter`](crate::Keyspace::alter) changes them.
    ///
    /// ```
    /// use cairn::{Compression, KeyspaceOptions, Preset};
    /// let options = KeyspaceOptions::preset(Preset::PebblesDb).compression(Compression::None);
    /// assert_eq!(options.max_tables_per_guard, 8);
    /// ```
    KeyspaceOptions, KeyspaceOptions::changes;

    /// What finds entries. `tree`: sorted tables, for everything. `hash_log`: a hash table in memory, over entries that stay in the log: for
    /// reads and writes of single keys, with data larger than memory, and 12 to 14 bytes of memory for each key. It has no order: ranges, cursors and
    /// `history` are refused. Other options of trees and tables, `compression` and `placement` too, are ignored. See `docs/hash-log.md`.
    engine: Engine = Engine::Tree, "tree, hash_log", |_| true;
    /// How entries lie in tables. `btree`: in order, in data blocks with an index, for everything. `size_class`: values first, then rows of one
    /// width for each class of keys by their length, which are searched by binary search (Pristupin's report, section 3.2.1): a simple format
    /// that other programs can read. Each entry has a row with its key, padded to the next power of two, and 28 bytes. Gets in memory take
    /// 2.2 to 4.9 times as long.
    table_format: TableFormat = TableFormat::BTree, "btree, size_class", |_| true;
    /// Compression of data blocks. `zstd` is smaller and slower than `lz4`, and needs a program that was built with the feature `zstd`; `none`
    /// saves processor time for data that does not compress.
    compression: Compression = Compression::Lz4, "none, lz4, zstd", |_| true;
    /// Bytes of a data block before compression: the unit that a point read loads from disk. Larger blocks compress better and need
    /// less index memory; smaller ones make single reads cheaper.
    block_size: usize = 4096, "128 B to 1 MiB", |v| (128..=1 << 20).contains(v);
    /// Filter bits per key. With 10, about one in a hundred lookups of a missing key reads a table for nothing; more bits make it rarer
    /// and cost memory. 0 means no filters. Tables with older tables below them get four bits more: they are small, and most lookups in
    /// them find nothing.
    filter_bits_per_key: u32 = 10, "0 to 32", |v| *v <= 32;
    /// Size at which a memtable is flushed to a table of level 0. Larger memtables mean fewer tables and less rewriting, and need more
    /// of the log. At most an eighth of `memory_budget` is used.
    memtable_bytes: usize = 64 << 20, "4 KiB to 2 GiB", |v| (4 << 10..=2 << 30).contains(v);
    /// Number of tables in level 0 that starts its compaction. A higher number gives larger pieces in the levels below and less
    /// rewriting, but more tables that a read has to search.
    level0_tables: usize = 8, "1 to 64", |v| (1..=64).contains(v);
    /// Number of levels below level 0. Unused levels cost nothing with `skip_levels`.
    levels: usize = 6, "1 to 15", |v| (1..=base::limits::MAX_LEVELS).contains(v);
    /// Number of overlapping tables (sorted runs) in a guard that starts its compaction. More tables mean less write amplification, but
    /// slower seeks and more space; 1 makes the tree a leveled LSM tree.
    max_tables_per_guard: usize = 8, "1 to 64", |v| (1..=64).contains(v);
    /// How guard keys are chosen. `adaptive`: by compactions, from the data, so that guards have about equal sizes in bytes. `hash`: by
    /// the hash of the inserted keys, as in the PebblesDB paper, with the three options that follow.
    guard_policy: GuardPolicy = GuardPolicy::Adaptive, "hash, adaptive", |_| true;
    /// With `guard_policy` = `hash`: a key is a guard of level 1 when this many low bits of its hash are set (PebblesDB, section 4.5).
    /// More bits mean fewer guards.
    top_level_bits: u32 = 31, "1 to 60", |v| (1..=60).contains(v);
    /// With `guard_policy` = `hash`: each deeper level needs this many set bits fewer, so it has more guards.
    bit_decrement: u32 = 3, "0 to 16", |v| *v <= 16;
    /// With `guard_policy` = `hash`: need one bit less for each doubling of the record size over 128 bytes, so that guards hold about
    /// the same number of bytes whatever the size of the records.
    guards_by_size: bool = true, "true, false", |_| true;
    /// Compact a level when its size reaches this percentage of the next non-empty level. 0 turns the trigger off. It bounds the size
    /// of upper levels and costs additional rewriting.
    level_size_percent: u32 = 0, "0 to 1000", |v| *v <= 1000;
    /// Charge, in bytes, for read-triggered compaction. A seek charges a guard this much for each sorted run after the first, plus their
    /// share of the bytes that it reads from files; a deleted entry that a cursor skips charges an eighth. When the charges of a guard
    /// reach the bytes that its compaction would read and write, a background thread compacts it. Skipped entries also cause flushes of
    /// memtables and compactions of level 0 (the latter not in leveled trees, nor with `guard_policy` = `hash`). With `placement` =
    /// `hybrid`, a step of a scan that waits for a large value charges 32 times as much to a counter of its own; a compaction moves such
    /// values into tables when that reaches what it costs. Reads themselves never wait for this. A higher value makes slow ranges fast
    /// sooner, at the cost of more compaction. 0 turns read-triggered compaction off.
    seek_cost: u32 = 256, "0 and more", |_| true;
    /// Compact a guard of the level above the last one within its own level, if moving it to the last level would rewrite more than
    /// this many times its bytes there.
    last_level_merge_factor: u32 = 25, "1 to 1000", |v| (1..=1000).contains(v);
    /// Compact a guard when this percentage of the entries of a table are tombstones. A lower value frees space sooner and compacts
    /// more. 0 turns the trigger off.
    tombstone_percent: u32 = 50, "0 to 100", |v| *v <= 100;
    /// Target for space amplification: bytes of the tree, and of values outside of it, over the bytes of the newest versions. Above it,
    /// guards with many old versions are compacted, those first that free most per byte rewritten. Old versions are estimated: half of the
    /// data above the last level counts as old, memtables do not count. Where all bytes are in values outside of the tree, half of what the
    /// target allows (its square root) is for these, and the other half for dead values that are not collected yet. A lower value saves
    /// space and writes more. When writers pause, a guard of the last level is merged as soon as the data added to it reaches
    /// `space_target` - 1 of the rest, and those above move down sooner. Writers that put faster than compactions and collections free space
    /// are slowed from twice the target on, more the larger it is, if more than twice the memory budget could be freed beside that.
    space_target: f64 = 1.5, "1.05 to 10", |v| (1.05..=10.0).contains(v);
    /// Compact level 0 straight into the deepest level in which the pieces still have a useful size, instead of level 1. `false` moves
    /// data through every level, as in the PebblesDB paper, and writes more.
    skip_levels: bool = true, "true, false", |_| true;
    /// Where values are. `in_place`: beside their keys. `hybrid`: large values stay in the log, which is kept for them, and compactions
    /// move references to them; this saves writing, and makes the first scans of larger-than-memory data slower.
    placement: PlacementPolicy = PlacementPolicy::InPlace, "in_place, hybrid", |_| true;
    /// With `placement` = `hybrid`: a value is large if its key has at most this share of the record. The default is `T_ML` of Parallax:
    /// 0.02, as the thesis rounds it. With 0.2 medium values are in the log, too: about half as much is written, and more scans are slow at
    /// first. Values that compress well take more space there, because the log is not compressed.
    large_up_to: f64 = 0.025, "0 to 1", |v| (0.0..=1.0).contains(v);
    /// Which older versions of a key are kept, to be read by their time. `none`: only the newest, as in other stores. `all`; the newest
    /// `versions(n)` of each key, the newest one included; or those that were the newest within an `age(d)`, such as `age(7d)`. Each
    /// version takes eight bytes more where it is the newest, and the bytes of its key and up to nine more where older versions are.
    history: Retention = Retention::None, "none, all, versions(n), age(d), versions(n) or age(d)", |v| v.is_valid();
    /// How long an entry lives that is put without a time to live of its own, such as `7d`. After that it counts as deleted, and a compaction
    /// drops it. `none`: for ever. An entry with an expiry takes eight bytes more. With `history`, a version put as of a time lives so long after that time.
    ttl: Ttl = Ttl::None, "none, or a number with d, h, min, s, ms or us", |v| v.is_valid();
    /// What joins operands to values: with it, `merge` changes a value, such as a counter, without reading it. Integers have 8 bytes,
    /// little-endian; `or` is bitwise; another name, of 1 to 64 letters, digits, `_`, `-` and `.`, is that of an operator of the application
    /// (`Builder::merge_operator`), without which the database does not open. Puts are checked, too: a value must be one that the operator
    /// can use. `docs/merge.md` has the rules.
    merge: Merge = Merge::None, "none, u64_add, i64_add, u64_max, u64_min, i64_max, i64_min, bytes_max, bytes_min, append, or, set_union, another name", |v| v.is_valid();
}

/// Default limit of the disk reserve, unless the memory budget is small.
const DEFAULT_RESERVE: u64 = 64 << 20;

impl Options {
    /// Memtable size of a keyspace: at most an eighth of the memory budget, so that flushing does not stop the writers.
    pub(crate) fn memtable_bytes(&self, keyspace: &KeyspaceOptions) -> usize {
        keyspace.memtable_bytes.min((self.memory_budget / 8) as usize)
    }

    /// Largest size of the disk reserve. The default is that of the largest memtable, so that it can be flushed on a full disk and its log
    /// removed.
    pub(crate) fn reserve_bytes(&self) -> u64 {
        match self.disk_reserve {
            DEFAULT_RESERVE => DEFAULT_RESERVE.min(self.memory_budget / 8),
            bytes => bytes,
        }
    }
}

/// [`OptionSpec::changes`] of options that cannot be changed.
const FIXED: &str = "fixed";

/// Smallest useful size, in bytes, of a piece into which level 0 is cut.
const MIN_PIECE_BYTES: u64 = 1 << 20;

/// Upper limit for the target size of an adaptive guard in the last level, which is half a memtable.
const GUARD_BYTES: u64 = 32 << 20;

impl KeyspaceOptions {
    /// How a keyspace with the options `existing` differs from what these ask for, in words; `None` if it does not. Options with their defaults
    /// ask for nothing: so the options of a keyspace need not be repeated, and defaults may change.
    pub(crate) fn difference(&self, existing: &KeyspaceOptions) -> Option<String> {
        let (wanted, has) = (self.to_pairs(), existing.to_pairs());
        let defaults = KeyspaceOptions::default().to_pairs();
        let differs = wanted.iter().zip(&has).zip(&defaults).filter(|((w, h), d)| w.1 != h.1 && w.1 != d.1);
        let words: Vec<String> =
            differs.map(|((w, h), _)| format!("{} is {}, not {}", w.0, h.1, w.1)).collect();
        (!words.is_empty()).then(|| words.join(", "))
    }

    /// The options in which `other` differs: names, values here and values there.
    pub(crate) fn changed(&self, other: &KeyspaceOptions) -> Vec<(&'static str, String, String)> {
        let pairs = self.to_pairs().into_iter().zip(other.to_pairs());
        pairs.filter(|(a, b)| a.1 != b.1).map(|(a, b)| (a.0, a.1, b.1)).collect()
    }

    /// See [`OptionSpec::changes`].
    fn changes(name: &str) -> &'static str {
        match name {
            "placement" | "large_up_to" | "ttl" => "the next put",
            "memtable_bytes" => "the next memtable; guards follow by compactions",
            "table_format" | "compression" | "block_size" | "filter_bits_per_key" => "the next table",
            // What is on disk, or in memory, has the form that they ask for.
            "engine" | "levels" | "merge" => FIXED,
            "history" => "the next compaction; not from or to `none`",
            _ => "the next compaction",
        }
    }

    /// The first option whose change to what it is in `other` is refused: name, value here and value there.
    pub(crate) fn refused_change(&self, other: &KeyspaceOptions) -> Option<(&'static str, String, String)> {
        let gets_history = self.has_history() != other.has_history();
        let is_refused = |name| KeyspaceOptions::changes(name) == FIXED || name == "history" && gets_history;
        self.changed(other).into_iter().find(|(name, ..)| is_refused(name))
    }

    /// What the manifest keeps of keyspace `id` with this name.
    pub(crate) fn description(
        &self,
        id: u64,
        name: &str,
        history_of: Option<u64>,
        kept_since: Time,
    ) -> tree::KeyspaceDescription {
        let options = self.to_pairs().into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        let name = name.to_owned();
        tree::KeyspaceDescription { id, name, levels: self.levels, options, history_of, kept_since }
    }

    /// Whether older versions are kept.
    pub(crate) fn has_history(&self) -> bool {
        self.history != Retention::None
    }

    /// The options of the keyspace with the older versions of one with these options. Its tree has the balanced shape, whatever that of the
    /// other is.
    pub(crate) fn historical(&self) -> KeyspaceOptions {
        KeyspaceOptions {
            table_format: self.table_format,
            compression: self.compression,
            block_size: self.block_size,
            memtable_bytes: self.memtable_bytes,
            levels: self.levels,
            history: self.history,
            filter_bits_per_key: self.filter_bits_per_key,
            tombstone_percent: 0,
            ..KeyspaceOptions::default()
        }
    }

    /// Whether entries are found by hash, in the log.
    #[inline]
    pub(crate) fn is_hash_log(&self) -> bool {
        self.engine == Engine::HashLog
    }

    /// Checks that this build has the compression. A keyspace without order has no use for it.
    fn check_compression(&self) -> Result<()> {
        if self.is_hash_log() { Ok(()) } else { self.compression.check_available() }
    }

    /// Checks that this build can read the tables of keyspace `name` in `dir`, which has these options.
    ///
    /// # Errors
    /// `Unsupported` names the feature that is missing.
    pub(crate) fn check_readable(&self, name: &str, dir: &Path) -> Result<()> {
        self.check_compression().map_err(|e| {
            Error::new(ErrorKind::Unsupported, format!("{}, keyspace {name:?}: {e}", dir.display()))
        })
    }

    /// Checks that the options fit together, and to this build.
    ///
    /// # Errors
    /// `InvalidArgument` names those that do not.
    pub(crate) fn check_together(&self) -> Result<()> {
        self.check_compression()?;
        match self.is_hash_log() && self.has_history() {
            true => Err(Error::invalid(
                "a keyspace with engine = hash_log has no history: versions need an order",
            )),
            false => Ok(()),
        }
    }

    /// The options of the tree of keyspace `id` with this name.
    pub(crate) fn tree_options(&self, id: u64, name: &str, history_of: Option<u64>) -> tree::TreeOptions {
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
            space_target: self.space_target,
            counts_versions: self.history.counts_versions(),
            guard_bytes: match self.guard_policy {
                GuardPolicy::Hash => 0,
                GuardPolicy::Adaptive => GUARD_BYTES.min(self.memtable_bytes as u64 / 2),
            },
            // A small memtable means little data: then pieces are small, too.
            min_piece_bytes: MIN_PIECE_BYTES.min(self.memtable_bytes as u64 / 64),
            table: table::TableOptions {
                format: self.table_format,
                block_size: self.block_size,
                compression: self.compression,
                filter_bits_per_key: self.filter_bits_per_key,
                owner: Some(table::TableOwner {
                    number: id,
                    name: name.into(),
                    history_of,
                    has_history: self.has_history() && history_of.is_none(),
                    merge: (self.merge != Merge::None).then(|| self.merge.to_string().into()),
                }),
            },
        }
    }

    /// Sets an option from the manifest, which may be that of an older version: options that no longer exist are translated.
    pub(crate) fn set_kept(&mut self, name: &str, value: &str) -> Result<()> {
        match (name, value) {
            // A number of seeks; 0 turned the trigger off.
            ("seek_compaction", "0") => self.set("seek_cost", "0"),
            ("seek_compaction", _) if value.parse::<u32>().is_ok() => Ok(()),
            // Sorted views of guards, which changed no answer.
            ("views", _) if value.parse::<u32>().is_ok() => Ok(()),
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
            // An eighth, rounded up.
            Preset::Parallax => KeyspaceOptions::preset(Preset::Leveled)
                .level_size_percent(13)
                .seek_cost(options.seek_cost)
                .placement(PlacementPolicy::Hybrid),
            Preset::Mneme => options.history(Retention::All),
            Preset::HashLog => options.engine(Engine::HashLog),
            Preset::SsTable => options.table_format(TableFormat::SizeClass).compression(Compression::None),
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
        options.set_kept("views", "12").unwrap();
        assert!(options.set("views", "12").is_err() && options.set_kept("views", "x").is_err());
        options.set_kept("levels", "3").unwrap();
        assert!(options.levels == 3 && options.set_kept("levels", "99").is_err());
    }
}
