//! The shape of a tree and the triggers of its compactions. The option table of the library has the default and the
//! range of each.
/// meaning, the default and the range of each.
#[derive(Clone, Debug, PartialEq)]
pub struct TreeOptions {
    /// The number of levels of guards below level 0.
    pub levels: usize,
    /// The number of tables in level 0 that triggers its compaction.
    pub level0_tables: usize,
    /// The number of runs of a guard that triggers its compaction; 1 is a leveled tree.
    pub max_tables_per_guard: usize,
    /// For guards by hash: the trailing ones in the hash of a key that make it a guard of level 1.
    pub top_level_bits: u32,
    /// For guards by hash: each deeper level needs this many ones fewer.
    pub bit_decrement: u32,
    /// For guards by hash: each doubling of a record beyond 128 bytes needs one bit less.
    pub guards_by_size: bool,
    /// The share of the next level's size at which a level is compacted, in per cent; 0 is off.
    pub level_size_percent: u32,
    /// The cost of searching one more run in a seek, in bytes of compaction (`read/charge.rs`). The bytes that the seek
    /// reads from files for it are added. 0 is off.
    pub seek_cost: u32,
    /// A guard of the last level but one is rewritten in place if moving it down would cost this many times its size.
    pub last_level_merge_factor: u32,
    /// The share of tombstones among a table's entries at which its guard is compacted, in per cent; 0 is off.
    pub tombstone_percent: u32,
    /// Whether level 0 may be compacted into a deeper level than 1.
    pub skip_levels: bool,
    /// The smallest useful size of a piece, in bytes: level 0 is compacted into a shallower level if its pieces would
    /// be smaller.
    pub min_piece_bytes: u64,
    /// The target size of a guard of the last level, in bytes, with adaptive guards; 0 for guards by hash.
    pub guard_bytes: u64,
    /// The limit of the tree's size as a multiple of the size of its newest versions; beyond it, guards are merged to
    /// free space.
    pub space_target: f64,
    /// In an unordered tree: whether merges may drop versions because a key has later ones. If not, all are kept that have not ended long ago.
    pub counts_versions: bool,
    /// The options of the tables.
    pub table: table::TableOptions,
}
