//! The [`ReadState`]: what a read of a keyspace searches.

use super::read_at::ReadAt;
use base::expiry::EXPIRY_LEN;
use base::planted::{Bug, planted};
use base::{RangeSet, Seq, Slice, Trailer};
use memtable::Memtable;
use std::sync::Arc;
use tree::Version;

/// The memtables and the version that a read of a keyspace searches, from new to old. Immutable; readers load it with one atomic
/// operation.
pub(crate) struct ReadState {
    pub memtable: Arc<Memtable>,
    /// Full memtables that are being flushed, newest first.
    pub immutable: Vec<Arc<Memtable>>,
    pub version: Arc<Version>,
}

impl ReadState {
    /// The active memtable and the immutable ones, newest first.
    pub(crate) fn memtables(&self) -> impl Iterator<Item = &Arc<Memtable>> {
        std::iter::once(&self.memtable).chain(&self.immutable)
    }

    /// All range tombstones; `None` when there are none.
    pub(crate) fn ranges(&self) -> Option<RangeSet> {
        let recent: Vec<Arc<RangeSet>> = self.memtables().filter_map(|m| m.ranges()).collect();
        let all = RangeSet::union(recent.iter().map(|set| &**set).chain([&*self.version.range_tombstones]));
        (!all.is_empty()).then_some(all)
    }

    /// Range tombstones that are not in tables yet, and, if the oldest reader does not see all that are, these.
    pub(crate) fn unsettled_ranges(&self, oldest: Option<Seq>) -> RangeSet {
        let of_tables = Some(&*self.version.range_tombstones);
        let unseen = of_tables.filter(|ranges| oldest.is_some_and(|oldest| ranges.max_seq() > oldest));
        let recent: Vec<Arc<RangeSet>> = self.memtables().filter_map(|m| m.ranges()).collect();
        RangeSet::union(recent.iter().map(|set| &**set).chain(unseen))
    }

    /// The sequence number of the newest range tombstone over `key` visible at `seq`: it hides all older entries. 0 when there is none.
    #[inline]
    pub(crate) fn deleted_before(&self, key: &[u8], seq: Seq) -> Seq {
        // Most keyspaces have no range tombstones: this comparison is then the whole cost.
        let version = match self.version.range_tombstones.is_empty() {
            true => 0,
            false => self.version.range_tombstones.newest(key, seq),
        };
        self.memtables().fold(version, |newest, memtable| newest.max(memtable.deleted_before(key, seq)))
    }

    /// Whether the newest entry of `key` in the memtables is an operand.
    pub(crate) fn has_operand(&self, key: &[u8], seq: Seq) -> bool {
        let newest = self.memtables().find_map(|memtable| memtable.get(key, seq));
        newest.is_some_and(|(trailer, _)| trailer.is_merge())
    }

    /// The result of looking `key` up in the memtables, where `deleted` is the newest range tombstone over it: its value, or that it has
    /// none. `None` when no memtable has an entry for the key. `tail_len`: bytes behind each value that are neither part of it nor an expiry.
    #[inline]
    pub(crate) fn get_recent(
        &self,
        key: &[u8],
        at: &ReadAt,
        deleted: Seq,
        tail_len: usize,
    ) -> Option<Option<Slice>> {
        let (trailer, stored) = self.memtables().find_map(|memtable| memtable.get(key, at.seq))?;
        // A memtable has only what was written with an expiry.
        let is_seen = shows(trailer, deleted) && at.sees(trailer, stored).unwrap_or(false);
        Some(is_seen.then(|| Slice::copy_from(&stored[..stored.len() - tail_len - expiry_len(trailer)])))
    }
}

/// Bytes of the expiry of an entry.
#[inline]
pub(crate) fn expiry_len(trailer: Trailer) -> usize {
    if trailer.expires() { EXPIRY_LEN } else { 0 }
}

/// Whether a range tombstone (0: none) hides an entry.
#[inline]
pub(crate) fn hides(tombstone: Seq, entry: Seq) -> bool {
    entry < tombstone || (tombstone > 0 && planted(Bug::RangeHidesNewer))
}

/// Whether an entry is a value that a range tombstone (0: none) does not hide.
#[inline]
pub(crate) fn shows(entry: Trailer, tombstone: Seq) -> bool {
    !entry.is_delete() && !hides(tombstone, entry.seq())
}
