//! Which entries a flush or a merge keeps: the versions of a key that readers see and that range tombstones do not hide.

use base::{MAX_SEQ, RangeSet, Seq, Slice, Trailer};

/// Decides which entries a reader can still see. Entries come in order, the newest version of a key first.
pub(super) struct Retention<'a> {
    snapshots: &'a [Seq],
    key: Vec<u8>,
    /// Whether `key` holds a key.
    started: bool,
    /// The number of snapshots that are older than the last version.
    stripe: usize,
    /// Whether that version, or one before it that the same readers see, hides older ones: all do but operands.
    hides: bool,
    range_tombstones: &'a RangeSet,
    /// For a reader at each snapshot, and for all newer readers: the newest range tombstone over the keys before `to`. Empty if there
    /// are no range tombstones.
    known: Vec<Known>,
}

struct Known {
    upto: Seq,
    seq: Seq,
    to: Option<Slice>,
    valid: bool,
}

impl<'a> Retention<'a> {
    pub(super) fn new(snapshots: &'a [Seq], range_tombstones: &'a RangeSet) -> Self {
        debug_assert!(snapshots.is_sorted());
        let readers = snapshots.iter().copied().chain([MAX_SEQ]);
        let known = |upto| Known { upto, seq: 0, to: None, valid: false };
        let known = if range_tombstones.is_empty() { Vec::new() } else { readers.map(known).collect() };
        Retention {
            snapshots,
            key: Vec::new(),
            started: false,
            stripe: 0,
            hides: false,
            range_tombstones,
            known,
        }
    }

    /// Whether the last entry was a version of this key.
    pub(super) fn has_seen(&self, key: &[u8]) -> bool {
        self.started && self.key == key
    }

    /// Whether to keep this entry, which is a tombstone if it has expired. `bottom`: no older version of the key exists outside of the merge.
    #[inline]
    pub(super) fn keeps(&mut self, key: &[u8], trailer: Trailer, bottom: bool) -> bool {
        let stripe = match self.snapshots {
            [] => 0,
            snapshots => snapshots.partition_point(|&s| s < trailer.seq()),
        };
        let same = self.started && self.key == key;
        // Every reader that could see this version sees a newer one instead.
        let shadowed = same && stripe == self.stripe && self.hides;
        self.hides = shadowed || !trailer.is_merge();
        self.stripe = stripe;
        if !same {
            self.key.clear();
            self.key.extend_from_slice(key);
            self.started = true;
        }
        // A tombstone is droppable if there is no older version that it hides from a reader.
        let is_droppable = bottom && stripe == 0 && trailer.is_delete();
        // Of range tombstones, only those matter that the oldest reader of the entry sees: all newer readers see them, too.
        // Where there is history, a tombstone stays above the older versions that ended with it, until it goes with them.
        let stays = self.range_tombstones.has_times() && trailer.is_delete();
        let mut is_hidden =
            || !stays && !self.known.is_empty() && self.newest_over(key, stripe) > trailer.seq();
        !(shadowed || is_droppable || is_hidden())
    }

    /// The newest range tombstone over `key` that a reader sees; 0 if there is none.
    fn newest_over(&mut self, key: &[u8], reader: usize) -> Seq {
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

#[cfg(test)]
mod tests {
    use super::*;
    use base::EntryKind;

    fn kept(snapshots: &[Seq], entries: &[(&str, Seq, EntryKind)], bottom: bool) -> Vec<(String, Seq)> {
        let none = RangeSet::default();
        let mut retention = Retention::new(snapshots, &none);
        let mut kept = Vec::new();
        for (key, seq, kind) in entries {
            if retention.keeps(key.as_bytes(), Trailer::new(*seq, *kind), bottom) {
                kept.push((key.to_string(), *seq));
            }
        }
        kept
    }

    #[test]
    fn only_versions_that_a_reader_sees_are_kept() {
        use EntryKind::{Delete, Put};
        let entries = [("a", 9, Put), ("a", 5, Put), ("a", 2, Put), ("b", 8, Delete), ("b", 3, Put)];
        let numbers = |snapshots: &[Seq], bottom| -> Vec<Seq> {
            kept(snapshots, &entries, bottom).into_iter().map(|(_, seq)| seq).collect()
        };
        assert_eq!(numbers(&[], false), [9, 8]);
        assert_eq!(numbers(&[], true), [9]);
        assert_eq!(numbers(&[5], true), [9, 5, 8, 3]);
        assert_eq!(numbers(&[4], true), [9, 2, 8, 3]);
        assert_eq!(numbers(&[1], true), [9, 8]);
        assert_eq!(numbers(&[8], true), [9, 5]);
        assert_eq!(numbers(&[9], true), [9]);
        assert_eq!(numbers(&[2, 5], false), [9, 5, 2, 8, 3]);
    }

    #[test]
    fn operands_do_not_hide_what_is_below_them() {
        use EntryKind::{Delete, Merge, Put};
        let entries = [("a", 9, Merge), ("a", 7, Merge), ("a", 5, Put), ("a", 4, Merge), ("a", 2, Put)];
        let numbers = |snapshots: &[Seq]| -> Vec<Seq> {
            kept(snapshots, &entries, true).into_iter().map(|(_, seq)| seq).collect()
        };
        assert_eq!(numbers(&[]), [9, 7, 5]);
        assert_eq!(numbers(&[4]), [9, 7, 5, 4, 2]);
        assert_eq!(numbers(&[8]), [9, 7, 5]);
        let below = [("a", 9, Merge), ("a", 7, Delete), ("a", 5, Merge)];
        assert_eq!(kept(&[], &below, true), [("a".to_owned(), 9)]);
    }
}
