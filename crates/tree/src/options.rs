/// The shape of a tree and what triggers its compactions. See the option table of the library for the
/// meaning, the default and the range of each.
#[derive(Clone, Debug, PartialEq)]
pub struct TreeOptions {
    /// Levels of guards below level 0.
    pub levels: usize,
    /// Tables in level 0 that start its compaction.
    pub level0_tables: usize,
    /// Tables in a guard before it is compacted; 1 is a leveled tree.
    pub max_tables_per_guard: usize,
    /// Low bits of a key's hash that must be set for a guard of level 1.
    pub top_level_bits: u32,
    /// Bits fewer for each deeper level.
    pub bit_decrement: u32,
    /// One bit less for each doubling of a record over 128 bytes.
    pub guards_by_size: bool,
    /// A level is compacted at this share of the next, in per cent; 0 is off.
    pub level_size_percent: u32,
    /// Bytes of compaction that a seek is worth for each run beside the first that it looks through, besides what it reads
    /// from files for it; 0 is off.
    pub seek_cost: u32,
    /// A guard of the last level but one is rewritten in place when pushing it down costs this many times more.
    pub last_level_merge_factor: u32,
    /// A guard is compacted when this share of a table's entries are tombstones, in per cent; 0 is off.
    pub tombstone_percent: u32,
    /// Whether level 0 may go to a deeper level than 1.
    pub skip_levels: bool,
    /// Pieces smaller than this make level 0 go to a shallower level, in bytes.
    pub min_piece_bytes: u64,
    /// Guards are chosen from the data, so that those of the last level have about so many bytes; 0 chooses them by the hash of
    /// inserted keys instead.
    pub guard_bytes: u64,
    /// How many times the bytes of its newest versions the tree may have, before guards are merged to give space back.
    pub space_target: f64,
    /// How tables are written.
    pub table: table::TableOptions,
}
