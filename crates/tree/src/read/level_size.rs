//! Small levels: every seek reads every level, so the tables of a level that is small compared to the levels below are loaded into
//! memory.

use super::table_cursor::LiveTableCursor;
use crate::version::LiveTable;
use std::sync::Arc;
use table::TableCursor;

/// The size of a level (or level 0), as far as cursors over its tables depend on it.
#[derive(Clone, Copy, Default)]
pub(crate) struct LevelSize {
    /// Whether it is small compared to the levels below: its tables are loaded for seeks ([`LiveTable::note_seek_reads`]).
    small: bool,
    /// Its bytes.
    bytes: u64,
}

/// A level is small compared to the levels below, or to the block cache, when these have at least this many times its bytes.
const SMALL_LEVEL_FACTOR: u64 = 4;

impl LevelSize {
    /// For a level of `bytes` bytes, with `below` bytes in the levels below.
    pub(crate) fn new(bytes: u64, below: u64) -> LevelSize {
        LevelSize { small: bytes <= below / SMALL_LEVEL_FACTOR, bytes }
    }

    /// Whether it is also small compared to the block cache. Then the cache admits all blocks that seeks read of its
    /// tables, because every seek reads this level and needs all of it soon.
    fn is_kept(self, live: &LiveTable) -> bool {
        self.small && self.bytes <= live.table.tables().cache().capacity() / SMALL_LEVEL_FACTOR
    }

    /// A cursor over a table of the level.
    pub(crate) fn cursor(self, live: &Arc<LiveTable>) -> LiveTableCursor<TableCursor> {
        LiveTableCursor::new(live.clone(), live.table.cursor().fill_cache(self.is_kept(live)))
            .small_level(self.small)
    }
}
