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
//!   without being read: by a plan without output ([`Picker::pick_hidden_tables`]).
//! - A table records up to which range tombstone its entries are filtered ([`table::TableMeta::cleared_seq`]): the
//!   newest of the set when it was written, or the oldest snapshot if that is older, for which entries may have been
//!   kept.
//! - A range tombstone is removed when every table that overlaps its range is newer than it, or filtered by it. No
//!   older memtable exists: a range tombstone enters the set with the flush of its memtable, and memtables are flushed
//!   in order.

use crate::compaction::pick::{Picker, Plan, Reason};
use crate::version::edit::VersionEdit;
use crate::version::{Guard, LiveTable, Version};
use base::planted::{Bug, planted};
use base::{MAX_SEQ, RangeSet, RangeTombstone, Seq, Slice, Trailer};
use std::collections::HashSet;
use std::sync::Arc;
use table::TableMeta;

/// Tells a flush or a merge which entries range tombstones hide from all readers. Entries must come in the order of
/// their keys.
pub(crate) struct RangeTombstoneFilter<'a> {
    range_tombstones: &'a RangeSet,
    snapshots: &'a [Seq],
    /// For a reader at each snapshot, and for all newer readers: the newest range tombstone over the keys before `to`.
    known: Vec<Known>,
}

struct Known {
    upto: Seq,
    seq: Seq,
    to: Option<Slice>,
    valid: bool,
}

impl<'a> RangeTombstoneFilter<'a> {
    pub(crate) fn new(range_tombstones: &'a RangeSet, snapshots: &'a [Seq]) -> RangeTombstoneFilter<'a> {
        let readers = snapshots.iter().copied().chain([MAX_SEQ]);
        let known = |upto| Known { upto, seq: 0, to: None, valid: false };
        let known = if range_tombstones.is_empty() { Vec::new() } else { readers.map(known).collect() };
        RangeTombstoneFilter { range_tombstones, snapshots, known }
    }

    /// Whether range tombstones hide this entry from all readers. It suffices to check the oldest reader that sees the
    /// entry: if this one sees a range tombstone over it, all newer readers do.
    #[inline]
    pub(crate) fn hides(&mut self, key: &[u8], trailer: Trailer) -> bool {
        if self.known.is_empty() {
            return false;
        }
        let oldest = self.snapshots.partition_point(|&s| s < trailer.seq());
        self.newest(key, oldest) > trailer.seq()
    }

    fn newest(&mut self, key: &[u8], reader: usize) -> Seq {
        let known = &mut self.known[reader];
        if !known.valid || known.to.as_ref().is_some_and(|to| key >= &to[..]) {
            let fragment = self.range_tombstones.at(key, known.upto);
            known.seq = fragment.seq;
            known.to = fragment.to.map(Slice::copy_from);
            known.valid = true;
        }
        known.seq
    }
}

impl LiveTable {
    /// Whether the table may have an entry that the range tombstone hides.
    fn may_lie_under(&self, range: &RangeTombstone) -> bool {
        may_lie_under(&self.meta, range) && self.overlaps_range(&range.from, range.to.as_deref())
    }
}

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
        self.level0.iter().any(|t| t.may_lie_under(range))
            || self.levels.iter().filter(|level| level.tables() > 0).any(|level| {
                let guards = &level.guards[level.overlapping(&range.from, to)];
                guards.iter().any(|guard| guard.tables.iter().any(|t| t.may_lie_under(range)))
            })
    }

    /// The range tombstones of a flush that may hide an entry of this version, or of the table that the flush wrote.
    pub(crate) fn needed_range_tombstones(
        &self,
        range_tombstones: &[RangeTombstone],
        table: &Option<TableMeta>,
    ) -> Vec<RangeTombstone> {
        let own = |range: &RangeTombstone| table.iter().any(|meta| may_lie_under(meta, range));
        range_tombstones.iter().filter(|range| own(range) || self.needs(range)).cloned().collect()
    }

    /// The range tombstones that hide nothing in this version, the result of `plan`.
    pub(crate) fn range_tombstones_removed(&self, plan: &Plan) -> Vec<RangeTombstone> {
        if self.range_tombstones.is_empty() {
            return Vec::new();
        }
        let mut met = self.range_tombstones.tombstones();
        met.retain(|range| plan.to.as_ref().is_none_or(|to| range.from < *to));
        met.retain(|range| range.to.as_ref().is_none_or(|to| *to > plan.from));
        met.retain(|range| !self.needs(range) || planted(Bug::ForgetRangeTombstone));
        met
    }
}

/// A table with this many range tombstones over parts of it is due to be rewritten.
const MAX_PARTIAL: u64 = 64;

impl Picker<'_> {
    /// Whether a merge of the guard would drop entries because of range tombstones, as far as can be told without
    /// reading.
    pub(crate) fn has_range_deleted_entries(&self, guard: &Guard) -> bool {
        !self.version.range_tombstones.is_empty() && guard.tables.iter().any(|t| self.uncleared(t).0 > 0)
    }

    /// Whether that is worth a compaction. A range tombstone over a table's first or last key most likely covers more
    /// than this table, so many of its entries. Of those over the middle only their number is known.
    pub(crate) fn range_tombstones_due(&self, guard: &Guard) -> bool {
        let percent = u64::from(self.options.tombstone_percent);
        !self.version.range_tombstones.is_empty()
            && percent > 0
            && guard.tables.iter().any(|t| {
                let (uncleared, at_edge) = self.uncleared(t);
                at_edge
                    || uncleared >= MAX_PARTIAL
                    || (uncleared > 0 && uncleared * 100 >= t.meta.entries * percent)
            })
    }

    /// The number of range tombstones over a table that it is not filtered by, and could be; and whether one lies over
    /// its first or last key.
    fn uncleared(&self, table: &LiveTable) -> (u64, bool) {
        let (meta, upto) = (&table.meta, self.oldest_snapshot.unwrap_or(MAX_SEQ).min(self.requested_seq));
        let least = meta.cleared_seq.max(meta.min_seq);
        let (mut uncleared, mut at_edge) = (0, false);
        if self.version.range_tombstones.max_seq() <= least {
            return (uncleared, at_edge);
        }
        let mut key = &meta.smallest[..];
        loop {
            let fragment = self.version.range_tombstones.at(key, upto);
            let is_last = fragment.to.is_none_or(|to| to > &meta.largest[..]);
            if fragment.seq > least {
                uncleared += 1;
                at_edge |= is_last || key == &meta.smallest[..];
            }
            match fragment.to {
                Some(to) if !is_last => key = to,
                _ => return (uncleared, at_edge),
            }
            if uncleared >= MAX_PARTIAL {
                return (uncleared, at_edge);
            }
        }
    }

    /// A plan for the tables whose entries range tombstones hide from all readers.
    pub(crate) fn pick_hidden_tables(&self, busy: &HashSet<u64>) -> Option<Plan> {
        let range_tombstones = &self.version.range_tombstones;
        if range_tombstones.is_empty() {
            return None;
        }
        let newest = range_tombstones.max_seq();
        let oldest_reader = self.oldest_snapshot.unwrap_or(MAX_SEQ);
        let hidden = |t: &LiveTable| {
            let meta = &t.meta;
            meta.max_seq < newest
                && !busy.contains(&meta.number)
                && range_tombstones.covers(&meta.smallest, &meta.largest, meta.max_seq, oldest_reader)
        };
        let tables = self.version.tables().filter(|(_, t)| hidden(t));
        let inputs: Vec<(usize, Arc<LiveTable>)> = tables.map(|(level, t)| (level, t.clone())).collect();
        let level = inputs.first()?.0;
        let smallest = inputs.iter().map(|(_, t)| &t.meta.smallest[..]).min().unwrap_or_default();
        let largest = inputs.iter().map(|(_, t)| &t.meta.largest[..]).max().unwrap_or_default();
        Some(Plan {
            id: 0,
            reason: Reason::RangeTombstones,
            source: level,
            target: level,
            // The plan writes nothing to this range, but may remove guards that become empty.
            from: Slice::copy_from(smallest),
            to: Some([largest, &[0]].concat().into()),
            inputs,
            cuts: Vec::new(),
            bottom: vec![false],
            piece_bytes: 0,
            guards_removed: Vec::new(),
        })
    }
}
