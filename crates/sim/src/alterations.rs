//! Random changes of the options of a keyspace, for the suites.

use crate::random::{Draw, Rng};
use cairn::{Compression, GuardPolicy, KeyspaceOptions, PlacementPolicy, Retention, TableFormat};
use std::time::Duration;

/// Retentions by which nothing goes that a suite writes.
const ALL: [Retention; 4] = [
    Retention::All,
    Retention::Versions(1 << 40),
    Retention::Age(Duration::from_secs(1 << 40)),
    Retention::VersionsOrAge(1 << 40, Duration::from_secs(1 << 40)),
];

/// Options that differ from `options` in one to three of those that can be changed. Not in `ttl`, and of the retentions only in those that keep all: a suite
/// has to know what expires.
pub fn altered(mut options: KeyspaceOptions, rng: &mut Rng) -> KeyspaceOptions {
    for _ in 0..rng.between(1, 3) {
        options = match rng.between(0, 18) {
            0 => options.table_format(*rng.pick(&[TableFormat::BTree, TableFormat::SizeClass])),
            1 => options.compression(*rng.pick(&[Compression::None, Compression::Lz4, Compression::Zstd])),
            2 => options.block_size(*rng.pick(&[128, 512, 4096])),
            3 => options.filter_bits_per_key(*rng.pick(&[0, 10])),
            4 => options.memtable_bytes(*rng.pick(&[4 << 10, 8 << 10, 16 << 10, 64 << 10])),
            5 => options.level0_tables(rng.between(1, 4)),
            6 | 7 => options.max_tables_per_guard(rng.between(1, 4)),
            8 => options.guard_policy(*rng.pick(&[GuardPolicy::Hash, GuardPolicy::Adaptive])),
            9 => options.top_level_bits(rng.between(2, 8) as u32).bit_decrement(rng.between(0, 2) as u32),
            10 => options.guards_by_size(rng.chance(1, 2)),
            11 => options.level_size_percent(*rng.pick(&[0, 10, 100])),
            12 => options.seek_cost(*rng.pick(&[0, 256, 65536])),
            13 => options.last_level_merge_factor(*rng.pick(&[1, 25])),
            14 => options.tombstone_percent(*rng.pick(&[0, 10, 50])),
            15 => options.space_target(*rng.pick(&[1.05, 1.5, 4.0])).skip_levels(rng.chance(1, 2)),
            16 => options.placement(*rng.pick(&[PlacementPolicy::InPlace, PlacementPolicy::Hybrid])),
            17 => match options.history {
                all if ALL.contains(&all) => options.history(*rng.pick(&ALL)),
                _ => options,
            },
            _ => options.large_up_to(*rng.pick(&[0.02, 0.2, 1.0])),
        };
    }
    options
}
