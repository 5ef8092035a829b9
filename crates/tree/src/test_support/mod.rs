//! What several tests of this crate share.

mod fixture;
mod stack;

pub(crate) use fixture::{Fixture, TableSpec, cuts, damage, inputs, slice};
pub(crate) use stack::{DIR, Entry, TestStack, table_options};

use crate::TreeOptions;

/// A small tree with guards by hash, in which reads, sizes and tombstones trigger nothing.
pub(crate) fn tree_options() -> TreeOptions {
    TreeOptions {
        levels: 3,
        level0_tables: 2,
        max_tables_per_guard: 3,
        top_level_bits: 8,
        bit_decrement: 2,
        guards_by_size: false,
        level_size_percent: 0,
        seek_cost: 400,
        last_level_merge_factor: 25,
        tombstone_percent: 0,
        skip_levels: false,
        min_piece_bytes: 0,
        guard_bytes: 0,
        space_target: 10.0,
        counts_versions: false,
        table: table::TableOptions::default(),
    }
}
