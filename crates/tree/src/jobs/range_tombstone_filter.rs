//! Drops entries that range tombstones hide from all readers, in flushes and merges.

use base::{MAX_SEQ, RangeSet, Seq, Slice, Trailer};

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
