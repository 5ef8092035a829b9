//! Range tombstones in the tree.
//!
//! A version has one set of them, beside its tables; they are in no table. What hides an entry does not depend on where the entry
//! lies: whoever reads asks the set, and every flush and every merge leaves out what nobody can see any more, in whatever
//! level. So a tombstone need not sink through the levels before it gives space back, is not cut at guards, and does not widen
//! the ranges of tables.
//!
//! ```text
//!   delete_range -> log, memtable -> (flush) -> the version's set, in the manifest -> gone, when it hides nothing more
//! ```
//!
//! - A table that lies under newer tombstones with all its keys, and that nobody reads as of a time before them, goes without being
//!   read: a plan without output ([`Picker::pick_hidden`]).
//! - A table says of itself up to which tombstone its entries have been sifted ([`table::TableMeta::cleared_seq`]): that is the newest of
//!   the set when it was written, or the oldest snapshot if that is older, for which entries may have been kept.
//! - A tombstone goes when every table that meets its range is newer than it, or has been sifted for it. Older memtables there are none:
//!   it came with the flush of its memtable, and they are flushed in order.

use crate::edit::VersionEdit;
use crate::pick::{Picker, Plan, Reason};
use crate::version::{Guard, TableFile, Version};
use base::planted::{Bug, planted};
use base::{MAX_SEQ, RangeSet, RangeTombstone, Seq, Slice, Trailer};
use std::collections::HashSet;
use std::sync::Arc;
use table::TableMeta;

/// Tells a merge which entries range tombstones hide from everybody. Entries come in the order of their keys.
pub(crate) struct RangeDelFilter<'a> {
    ranges: &'a RangeSet,
    snapshots: &'a [Seq],
    /// For readers at each of the snapshots, and for the rest: the newest tombstone over the keys before `to`.
    known: Vec<Known>,
}

struct Known {
    upto: Seq,
    seq: Seq,
    to: Option<Slice>,
    valid: bool,
}

impl<'a> RangeDelFilter<'a> {
    pub(crate) fn new(ranges: &'a RangeSet, snapshots: &'a [Seq]) -> RangeDelFilter<'a> {
        let readers = snapshots.iter().copied().chain([MAX_SEQ]);
        let known = |upto| Known { upto, seq: 0, to: None, valid: false };
        let known = if ranges.is_empty() { Vec::new() } else { readers.map(known).collect() };
        RangeDelFilter { ranges, snapshots, known }
    }

    /// Whether nobody can see this entry because of a range tombstone. It is hidden from all who see the tombstone; left are
    /// those who see the entry and not the tombstone: if there is one, then the oldest who sees the entry.
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
            let stretch = self.ranges.at(key, known.upto);
            known.seq = stretch.seq;
            known.to = stretch.to.map(Slice::copy_from);
            known.valid = true;
        }
        known.seq
    }
}

impl TableFile {
    /// Whether it may have an entry that the tombstone hides.
    fn may_lie_under(&self, range: &RangeTombstone) -> bool {
        may_lie_under(&self.meta, range) && self.overlaps_range(&range.from, range.to.as_deref())
    }
}

fn may_lie_under(meta: &TableMeta, range: &RangeTombstone) -> bool {
    meta.min_seq < range.seq && meta.cleared_seq < range.seq
}

impl Version {
    /// The range tombstones after an edit.
    pub(crate) fn ranges_after(&self, edit: &VersionEdit) -> Arc<RangeSet> {
        if edit.ranges_added.is_empty() && edit.ranges_done.is_empty() {
            return self.ranges.clone();
        }
        let left = match edit.ranges_done.is_empty() {
            true => RangeSet::clone(&self.ranges),
            false => self.ranges.without(&edit.ranges_done),
        };
        let all = edit.ranges_added.iter().fold(left, |set, range| set.with(range.clone()));
        Arc::new(all.settled(edit.oldest_reader.unwrap_or(MAX_SEQ)))
    }

    /// Whether any table may have an entry that the tombstone hides.
    fn needs(&self, range: &RangeTombstone) -> bool {
        let to = range.to.as_deref();
        self.level0.iter().any(|t| t.may_lie_under(range))
            || self.levels.iter().filter(|level| level.tables() > 0).any(|level| {
                let guards = &level.guards[level.overlapping(&range.from, to)];
                guards.iter().any(|guard| guard.tables.iter().any(|t| t.may_lie_under(range)))
            })
    }

    /// Those of the tombstones of a flush that have something to hide in this version, or in the table that the flush wrote.
    pub(crate) fn still_needed(
        &self,
        ranges: &[RangeTombstone],
        table: &Option<TableMeta>,
    ) -> Vec<RangeTombstone> {
        let own = |range: &RangeTombstone| table.iter().any(|meta| may_lie_under(meta, range));
        ranges.iter().filter(|range| own(range) || self.needs(range)).cloned().collect()
    }

    /// The tombstones that have nothing left to hide in this version, to which `plan` has led.
    pub(crate) fn ranges_done(&self, plan: &Plan) -> Vec<RangeTombstone> {
        if self.ranges.is_empty() {
            return Vec::new();
        }
        let mut met = self.ranges.tombstones();
        met.retain(|range| plan.to.as_ref().is_none_or(|to| range.from < *to));
        met.retain(|range| range.to.as_ref().is_none_or(|to| *to > plan.from));
        met.retain(|range| !self.needs(range) || planted(Bug::ForgetRangeTombstone));
        met
    }
}

/// A table with so many tombstones over parts of it is due to be rewritten.
const MANY: u64 = 64;

impl Picker<'_> {
    /// Whether merging a guard would leave out entries that range tombstones hide from everybody, as far as that can be told
    /// without reading.
    pub(crate) fn has_range_deleted_entries(&self, guard: &Guard) -> bool {
        !self.version.ranges.is_empty() && guard.tables.iter().any(|t| self.over(t).0 > 0)
    }

    /// Whether that is worth a compaction. What hides a table's first key or its last has most likely come to hide more than this
    /// one; of what hides parts in between nothing is known but how much there is.
    pub(crate) fn range_deletes_due(&self, guard: &Guard) -> bool {
        let percent = u64::from(self.options.tombstone_percent);
        !self.version.ranges.is_empty()
            && percent > 0
            && guard.tables.iter().any(|t| {
                let (over, at_edge) = self.over(t);
                at_edge || over >= MANY || (over > 0 && over * 100 >= t.meta.entries * percent)
            })
    }

    /// How many tombstones lie over a table that it has not been sifted for and could be; and whether over one of its ends.
    fn over(&self, table: &TableFile) -> (u64, bool) {
        let (meta, upto) = (&table.meta, self.oldest_snapshot.unwrap_or(MAX_SEQ).min(self.requested_seq));
        let least = meta.cleared_seq.max(meta.min_seq);
        let (mut over, mut at_edge) = (0, false);
        if self.version.ranges.max_seq() <= least {
            return (over, at_edge);
        }
        let mut key = &meta.smallest[..];
        loop {
            let stretch = self.version.ranges.at(key, upto);
            let is_last = stretch.to.is_none_or(|to| to > &meta.largest[..]);
            if stretch.seq > least {
                over += 1;
                at_edge |= is_last || key == &meta.smallest[..];
            }
            match stretch.to {
                Some(to) if !is_last => key = to,
                _ => return (over, at_edge),
            }
            if over >= MANY {
                return (over, at_edge);
            }
        }
    }

    /// A plan for tables that range tombstones hide whole, from everybody who reads.
    pub(crate) fn pick_hidden(&self, busy: &HashSet<u64>) -> Option<Plan> {
        let ranges = &self.version.ranges;
        if ranges.is_empty() {
            return None;
        }
        let newest = ranges.max_seq();
        let oldest_reader = self.oldest_snapshot.unwrap_or(MAX_SEQ);
        let hidden = |t: &TableFile| {
            let meta = &t.meta;
            meta.max_seq < newest
                && !busy.contains(&meta.number)
                && ranges.covers(&meta.smallest, &meta.largest, meta.max_seq, oldest_reader)
        };
        let tables = self.version.tables().filter(|(_, t)| hidden(t));
        let inputs: Vec<(usize, Arc<TableFile>)> = tables.map(|(level, t)| (level, t.clone())).collect();
        let level = inputs.first()?.0;
        let smallest = inputs.iter().map(|(_, t)| &t.meta.smallest[..]).min().unwrap_or_default();
        let largest = inputs.iter().map(|(_, t)| &t.meta.largest[..]).max().unwrap_or_default();
        Some(Plan {
            id: 0,
            reason: Reason::RangeDeletes,
            source: level,
            target: level,
            // Nothing is written here, but guards may go that are empty then.
            from: Slice::copy_from(smallest),
            to: Some([largest, &[0]].concat().into()),
            inputs,
            cuts: Vec::new(),
            bottom: vec![false],
            piece_bytes: 0,
            joins: Vec::new(),
        })
    }
}
