//! Range tombstones in the tree.
//!
//! A version has one set of range tombstones beside its tables; tables contain none. So it does not matter where a
//! hidden entry lies: readers consult the set, and every flush and merge, at every level, drops the entries that range
//! tombstones hide from all readers. A range tombstone frees space without moving down through the levels, is not cut
//! at guards, and does not widen the key ranges of tables.
//!
//! ```text
//!   delete_range -> log, memtable -> (flush) -> the version's set, in the manifest -> removed, when it hides nothing more
//! ```
//!
//! - A table whose keys all lie under newer range tombstones, and that no reader older than these can see, is removed
//!   without being read: by a plan without output
//!   (`compaction/range_tombstones.rs`).
//! - A table records up to which range tombstone its entries are filtered ([`table::TableMeta::cleared_seq`]): the
//!   newest of the set when it was written, or the oldest snapshot if that is older, for which entries may have been
//!   kept.
//! - A range tombstone is removed when every table that overlaps its range is newer than it, or filtered by it. No
//!   older memtable exists: a range tombstone enters the set with the flush of its memtable, and memtables are flushed
//!   in order.

use super::Version;
use super::edit::VersionEdit;
use base::planted::{Bug, planted};
use base::{MAX_SEQ, RangeSet, RangeTombstone};
use std::sync::Arc;
use table::TableMeta;

/// Whether a table inside the range may have an entry that the range tombstone hides.
fn may_lie_under(meta: &TableMeta, range: &RangeTombstone) -> bool {
    meta.min_seq < range.seq && meta.cleared_seq < range.seq
}

impl Version {
    /// The range tombstones after an edit.
    pub(crate) fn range_tombstones_after(&self, edit: &VersionEdit) -> Arc<RangeSet> {
        if edit.range_tombstones_added.is_empty() && edit.range_tombstones_removed.is_empty() {
            return self.range_tombstones.clone();
        }
        let left = match edit.range_tombstones_removed.is_empty() {
            true => RangeSet::clone(&self.range_tombstones),
            false => self.range_tombstones.without(&edit.range_tombstones_removed),
        };
        let all = edit.range_tombstones_added.iter().fold(left, |set, range| set.with(range.clone()));
        Arc::new(all.settled(edit.oldest_reader.unwrap_or(MAX_SEQ)))
    }

    /// Whether any table may have an entry that the range tombstone hides.
    fn needs(&self, range: &RangeTombstone) -> bool {
        let to = range.to.as_deref();
        let level0 = self.level0.iter().filter(|t| t.overlaps_range(&range.from, to));
        let below = self.levels.iter().flat_map(|level| level.tables_in(&range.from, to));
        level0.chain(below).any(|t| may_lie_under(&t.meta, range))
    }

    /// The range tombstones of a flush that may hide an entry of this version, or of the tables that the flush wrote.
    pub(crate) fn needed_range_tombstones(
        &self,
        range_tombstones: &[RangeTombstone],
        tables: &[TableMeta],
    ) -> Vec<RangeTombstone> {
        let own = |range: &RangeTombstone| tables.iter().any(|meta| may_lie_under(meta, range));
        range_tombstones.iter().filter(|range| own(range) || self.needs(range)).cloned().collect()
    }

    /// The range tombstones over keys in `[from, to)` that hide nothing in this version; `to` of `None` is the end of all keys.
    pub(crate) fn unneeded_range_tombstones(&self, from: &[u8], to: Option<&[u8]>) -> Vec<RangeTombstone> {
        if self.range_tombstones.is_empty() {
            return Vec::new();
        }
        let mut tombstones = self.range_tombstones.tombstones();
        tombstones.retain(|range| to.is_none_or(|to| &range.from[..] < to));
        tombstones.retain(|range| range.to.as_ref().is_none_or(|end| &end[..] > from));
        tombstones.retain(|range| !self.needs(range) || planted(Bug::ForgetRangeTombstone));
        tombstones
    }
}
