//! The cursors that together show all tables of a version. The library merges them with those of its memtables.

use super::charge::{LEVEL0_CHECK, MAX_INLINE_LEN, ReadCharges};
use super::key_range::KeyRange;
use super::level_cursor::LevelCursor;
use super::table_cursor::LiveTableCursor;
use crate::version::Version;
use std::sync::Arc;
use table::TableCursor;

/// A sorted run of a version.
pub enum TreeSource {
    /// A table of level 0.
    Table(LiveTableCursor<TableCursor>),
    /// A level of guards.
    Level(LevelCursor),
}

impl TreeSource {
    /// Charges deleted entries, which a cursor has skipped, to the table or guard where it stands.
    pub fn charge_skipped(&self, bytes: u64, charges: &ReadCharges) {
        match self {
            TreeSource::Table(cursor) => charges.charge(&cursor.table.charges, bytes, LEVEL0_CHECK),
            TreeSource::Level(cursor) => {
                let guard = cursor.current_guard();
                charges.charge(&guard.charges, bytes, guard.price(0));
            }
        }
    }

    /// Charges the table or guard where the cursor stands for a value outside of the tree of `len` bytes, which the disk had to read.
    pub fn charge_value(&self, len: u32, charges: &ReadCharges) {
        let cost = charges.value_cost();
        if cost == 0 || len > MAX_INLINE_LEN {
            return;
        }
        match self {
            TreeSource::Table(cursor) => {
                let table = &cursor.table;
                charges.charge(&table.value_charges, cost, table.inline_cost(charges.seek_cost()));
            }
            TreeSource::Level(cursor) => {
                let guard = cursor.current_guard();
                charges.charge(&guard.value_charges, cost, guard.inline_price(charges.seek_cost()));
            }
        }
    }
}

impl Version {
    /// The largest number of cursors that [`Version::sources`] returns.
    pub fn max_sources(&self) -> usize {
        self.level0.len() + self.levels.iter().filter(|l| l.tables() > 0).count()
    }

    /// Cursors over every table of level 0 that has keys in `range`, and over every level that has tables; not yet positioned.
    pub fn sources<'a>(
        &'a self,
        charges: &'a Arc<ReadCharges>,
        range: &'a KeyRange,
    ) -> impl Iterator<Item = TreeSource> + 'a {
        let level0 = self.level0.iter().filter(|t| range.meets(t)).map(|t| LiveTableCursor::of(t, range));
        let levels = self.levels.iter().filter(|l| l.tables() > 0);
        let levels = levels.map(|l| LevelCursor::new(l.clone(), charges.clone(), range.clone()));
        level0.map(TreeSource::Table).chain(levels.map(TreeSource::Level))
    }
}

base::delegate_cursor!(TreeSource { Table, Level });
