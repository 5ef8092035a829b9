//! The option sets of the model test: all presets, and corner cases of the options with which a few thousand
//! operations cause hundreds of flushes and compactions.

use crate::data::Sizes;
use cairn::{
    Compression, Durability, GuardPolicy, KeyspaceOptions, Merge, Options, PlacementPolicy, Preset,
    Retention, TableFormat,
};
use std::time::Duration;

/// One configuration.
#[derive(Clone, Debug)]
pub struct OptionSet {
    /// Its name in messages and on the command line.
    pub name: &'static str,
    /// Options of the database.
    pub options: Options,
    /// Options of its keyspaces, assigned in turn.
    pub keyspaces: Vec<KeyspaceOptions>,
    /// The sizes of the data.
    pub sizes: Sizes,
    /// Whether it uses the real file system instead of the simulated disk.
    pub real: bool,
}

const SMALL: Sizes = Sizes { keys: 400, huge_keys: false, value_bytes_max: 2000, huge_value_every: 0 };
const MEDIUM: Sizes = Sizes { keys: 1500, huge_keys: false, value_bytes_max: 10_000, huge_value_every: 0 };
const LARGE: Sizes = Sizes { keys: 300, huge_keys: true, value_bytes_max: 100 << 10, huge_value_every: 4000 };

/// All placements.
pub const PLACEMENTS: [PlacementPolicy; 2] = [PlacementPolicy::InPlace, PlacementPolicy::Hybrid];

fn tiny() -> KeyspaceOptions {
    KeyspaceOptions::default().memtable_bytes(8 << 10).block_size(256).top_level_bits(6).bit_decrement(1)
}

/// The same with values outside of the tree where the key has at most this share of the record.
fn hybrid(large_up_to: f64) -> KeyspaceOptions {
    tiny().placement(PlacementPolicy::Hybrid).large_up_to(large_up_to)
}

/// The same with size-class tables.
fn size_class(options: &KeyspaceOptions) -> KeyspaceOptions {
    options.clone().table_format(TableFormat::SizeClass)
}

/// The same with guards selected by key hash.
fn hashed() -> KeyspaceOptions {
    tiny().guard_policy(GuardPolicy::Hash)
}

fn set(name: &'static str, threads: usize, keyspaces: &[KeyspaceOptions], sizes: Sizes) -> OptionSet {
    let options = Options::default()
        .memory_budget(2 << 20)
        .log_cap(256 << 10)
        .manifest_cap(16 << 10)
        .background_threads(threads)
        // Runs of two or more deleted entries are recorded.
        .dead_range_entries(2);
    OptionSet { name, options, keyspaces: keyspaces.to_vec(), sizes, real: false }
}

/// All option sets.
pub fn option_sets() -> Vec<OptionSet> {
    let tiny = tiny();
    let preset = |preset| KeyspaceOptions::preset(preset).memtable_bytes(32 << 10).block_size(1024);
    let pebbles = preset(Preset::PebblesDb).top_level_bits(7).bit_decrement(1);
    let leveled = preset(Preset::Leveled).top_level_bits(7).bit_decrement(2);
    let parallax = preset(Preset::Parallax).large_up_to(0.2);
    let balanced = preset(Preset::Balanced).top_level_bits(9).bit_decrement(2);
    let hash_log = KeyspaceOptions::preset(Preset::HashLog).memtable_bytes(8 << 10);
    let mut sets = vec![
        set("balanced", 1, std::slice::from_ref(&balanced), MEDIUM),
        set("pebblesdb", 1, std::slice::from_ref(&pebbles), MEDIUM),
        set("leveled", 1, std::slice::from_ref(&leveled), MEDIUM),
        set("parallax", 1, std::slice::from_ref(&parallax), MEDIUM),
        set("mneme", 1, &[preset(Preset::Mneme).top_level_bits(9).bit_decrement(2)], MEDIUM),
        set("presets", 2, &[balanced.clone(), pebbles.clone(), leveled.clone(), parallax], SMALL),
        // Batches, snapshots and collections over keyspaces with an order and without.
        set("hash-log", 2, &[hash_log.clone(), tiny.clone()], MEDIUM),
        set("hash-log-inline", 0, &[hash_log.clone(), hash_log.clone(), hybrid(0.3)], SMALL),
        set("hash-log-large", 1, &[hash_log.memtable_bytes(64 << 10), tiny.clone()], LARGE),
        // Tables with keys of several size classes.
        set("sstable", 1, &[preset(Preset::SsTable).top_level_bits(9).bit_decrement(2)], MEDIUM),
        set(
            "size-class",
            0,
            &[
                size_class(&tiny).compression(Compression::Zstd),
                size_class(&hybrid(0.3)).filter_bits_per_key(0),
                size_class(&tiny).history(Retention::Versions(2)),
            ],
            SMALL,
        ),
        // The defaults of users: flushes happen only on request.
        set("defaults", 2, &[KeyspaceOptions::default()], MEDIUM),
        // All work inline, so that a failure replays exactly.
        set("inline", 0, &[tiny.clone().memtable_bytes(4 << 10), tiny.clone().level0_tables(1)], SMALL),
        set("inline-large", 0, &[tiny.clone().memtable_bytes(64 << 10), leveled.clone()], LARGE),
        // Almost every key is a guard.
        set("guards", 1, &[hashed().top_level_bits(3).bit_decrement(1).max_tables_per_guard(2)], SMALL),
        set(
            "guards-deep",
            2,
            &[hashed().top_level_bits(12).bit_decrement(3).levels(5).max_tables_per_guard(3)],
            MEDIUM,
        ),
        set("one-level", 0, &[hashed().levels(1), tiny.clone().levels(1).max_tables_per_guard(1)], SMALL),
        set("two-levels", 1, &[hashed().levels(2).level0_tables(2).level_size_percent(25)], MEDIUM),
        set(
            "no-skip",
            1,
            &[hashed().skip_levels(false).levels(4).level0_tables(3).guards_by_size(false)],
            MEDIUM,
        ),
        set(
            "no-filters",
            1,
            &[tiny.clone().filter_bits_per_key(0).compression(Compression::None).block_size(128)],
            SMALL,
        ),
        set(
            "zstd",
            2,
            &[tiny.clone().compression(Compression::Zstd).block_size(4096).filter_bits_per_key(20)],
            LARGE,
        ),
        set(
            "seeks",
            1,
            &[tiny.clone().seek_cost(1 << 20), tiny.clone().seek_cost(1 << 10), tiny.clone().seek_cost(0)],
            SMALL,
        ),
        set(
            "merges",
            0,
            &[
                tiny.clone().last_level_merge_factor(1).tombstone_percent(10),
                tiny.clone().tombstone_percent(0),
            ],
            SMALL,
        ),
        set("stack", 2, &[tiny.clone().max_tables_per_guard(16).level0_tables(4).seek_cost(0)], SMALL),
        set("real-files", 2, &[tiny.clone(), balanced.clone()], MEDIUM),
        // Adaptive guards, so small that they are split and merged all the time, on several levels.
        set(
            "adaptive",
            1,
            &[
                tiny.clone().memtable_bytes(4 << 10).max_tables_per_guard(2).level0_tables(2),
                tiny.clone().memtable_bytes(4 << 10).skip_levels(false).levels(3).level0_tables(1),
                hashed(),
            ],
            MEDIUM,
        ),
        // Compactions for space amplification: all the time, and never.
        set(
            "space",
            1,
            &[tiny.clone().space_target(1.05), tiny.clone().space_target(10.0).level0_tables(1)],
            SMALL,
        ),
        set(
            "adaptive-inline",
            0,
            &[tiny.clone().space_target(1.2).memtable_bytes(4 << 10).max_tables_per_guard(3)],
            MEDIUM,
        ),
        // More tables than files may be open.
        set("few-files", 1, &[tiny.clone().max_tables_per_guard(16).memtable_bytes(4 << 10)], MEDIUM),
        set("sync-threads", 2, &[tiny.clone().level0_tables(2), balanced.clone()], SMALL),
        set("large-blocks", 1, &[tiny.clone().block_size(16 << 10).memtable_bytes(64 << 10)], LARGE),
        // A new log after a few writes, and a new manifest after a few flushes.
        set("short-log", 0, &[tiny.clone().memtable_bytes(16 << 10), balanced.clone(), tiny.clone()], SMALL),
        set(
            "strict",
            0,
            &[leveled
                .clone()
                .max_tables_per_guard(1)
                .level0_tables(1)
                .memtable_bytes(4 << 10)
                .block_size(128)],
            SMALL,
        ),
        // Large values, and all values, outside of the tree.
        set("values", 1, &[hybrid(0.02), hybrid(1.0), tiny.clone()], MEDIUM),
        set("values-inline", 0, &[hybrid(0.2).memtable_bytes(4 << 10), hybrid(1.0).level0_tables(1)], SMALL),
        // A scan that waits for a value pays for a compaction that moves the values of its guard into tables.
        set("values-scans", 1, &[hybrid(0.02).seek_cost(1 << 20), hybrid(1.0).seek_cost(1 << 16)], MEDIUM),
        set("values-threads", 2, &[hybrid(0.05)], LARGE),
        // Operands above values, in tables and outside of the tree.
        set("appends", 1, &[tiny.clone().merge(Merge::Append), hybrid(0.2).merge(Merge::Append)], SMALL),
        // Where merges read: in batches, too.
        set(
            "appends-reading",
            1,
            &[
                KeyspaceOptions::preset(Preset::HashLog).memtable_bytes(8 << 10).merge(Merge::Append),
                tiny.clone().merge(Merge::Append).history(Retention::Versions(2)),
            ],
            SMALL,
        ),
        set(
            "appends-inline",
            0,
            &[
                tiny.clone().memtable_bytes(4 << 10).max_tables_per_guard(3).merge(Merge::Append),
                size_class(&tiny).level0_tables(1).merge(Merge::Append),
                tiny.clone().merge(Merge::Append).history(Retention::All),
            ],
            SMALL,
        ),
        // Older versions in a second tree.
        set(
            "history",
            2,
            &[
                tiny.clone().history(Retention::All),
                balanced.clone().history(Retention::Versions(2)),
                hybrid(0.2).history(Retention::Age(Duration::from_micros(1000))),
            ],
            MEDIUM,
        ),
        set(
            "history-all",
            2,
            &[tiny.clone().history(Retention::All), hybrid(0.2).level0_tables(1).history(Retention::All)],
            SMALL,
        ),
        set(
            "history-inline",
            0,
            &[
                tiny.clone().memtable_bytes(4 << 10).history(Retention::All),
                hybrid(0.5).level0_tables(1).history(Retention::Versions(3)),
            ],
            SMALL,
        ),
        set(
            "lazy",
            1,
            &[
                tiny.clone().max_tables_per_guard(64).level0_tables(32).tombstone_percent(0),
                tiny.clone().level_size_percent(1000).last_level_merge_factor(1000),
            ],
            SMALL,
        ),
    ];
    for set in &mut sets {
        match set.name {
            "real-files" => set.real = true,
            "defaults" => set.options.dead_range_entries = Options::default().dead_range_entries,
            "inline-large" | "stack" | "lazy" => set.options.dead_range_entries = 1,
            "merges" => set.options.dead_range_entries = 0,
            "presets" => set.options.durability = Durability::Buffered,
            "inline" => set.options.durability = Durability::Sync,
            "guards" => set.options.log_cap = 64 << 10,
            "seeks" => {
                set.options.memory_budget = 1 << 20;
                set.options.dead_range_entries = 0;
            }
            "values" | "hash-log" | "hash-log-large" => set.options.value_garbage_percent = 5,
            "values-inline" | "hash-log-inline" => {
                set.options.value_garbage_percent = 1;
                set.options.max_open_files = 16;
            }
            "few-files" => set.options.max_open_files = 16,
            "sync-threads" => set.options.durability = Durability::Sync,
            "short-log" => {
                set.options.log_cap = 64 << 10;
                set.options.manifest_cap = 1 << 10;
                set.options.durability = Durability::Buffered;
            }
            _ => {}
        }
    }
    sets
}

/// Keyspace options with which a few dozen writes cause flushes and compactions or collections: all presets and compressions,
/// one-level trees, many guards, no filters, no order.
pub fn tiny_shapes() -> Vec<(&'static str, KeyspaceOptions)> {
    let small = |options: KeyspaceOptions| options.memtable_bytes(4 << 10).block_size(256);
    let least = small(KeyspaceOptions::default()).block_size(128).bit_decrement(1);
    vec![
        ("balanced", small(KeyspaceOptions::preset(Preset::Balanced))),
        ("pebblesdb", small(KeyspaceOptions::preset(Preset::PebblesDb))),
        ("leveled", small(KeyspaceOptions::preset(Preset::Leveled))),
        ("plain", least.clone().compression(Compression::None).filter_bits_per_key(20)),
        ("zstd", least.clone().compression(Compression::Zstd).block_size(512)),
        (
            "guards",
            least
                .clone()
                .guard_policy(GuardPolicy::Hash)
                .top_level_bits(2)
                .levels(2)
                .level0_tables(1)
                .skip_levels(false),
        ),
        (
            "one-level",
            least.clone().levels(1).level0_tables(2).top_level_bits(3).compression(Compression::Lz4),
        ),
        ("values", least.clone().placement(PlacementPolicy::Hybrid).large_up_to(0.5)),
        ("appends", small(KeyspaceOptions::default()).merge(Merge::Append).levels(2)),
        ("history", least.clone().history(Retention::All)),
        (
            "history-values",
            least.clone().placement(PlacementPolicy::Hybrid).large_up_to(0.5).history(Retention::Versions(2)),
        ),
        ("no-filter", least.filter_bits_per_key(0).levels(3).max_tables_per_guard(2)),
        ("hash-log", KeyspaceOptions::preset(Preset::HashLog).memtable_bytes(4 << 10)),
        ("sstable", small(KeyspaceOptions::preset(Preset::SsTable))),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_sets_are_many_valid_and_cover_the_presets() {
        let sets = option_sets();
        let names: BTreeSet<_> = sets.iter().map(|s| s.name).collect();
        assert!(names.len() == sets.len() && sets.len() >= 24);
        for preset in Preset::ALL {
            assert!(names.contains(&preset.to_string().replace('_', "-")[..]));
        }
        for set in &sets {
            set.options.validate().unwrap();
            set.keyspaces.iter().for_each(|k| k.validate().unwrap());
        }
        let threads: BTreeSet<_> = sets.iter().map(|s| s.options.background_threads).collect();
        assert_eq!(threads, BTreeSet::from([0, 1, 2]));
    }
}
