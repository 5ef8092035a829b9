//! Applies range tombstones to the entries that a cursor meets.
//!
//! The newest tombstone is the same over whole fragments of keys, and the cursor moves in order; so the filter caches the fragment of its
//! last lookup, and most calls are two comparisons.

use crate::state::hides;
use base::{Cursor, RangeSet, Result, Seq};

/// Hidden entries of a fragment that are stepped over one by one before the filter seeks past the fragment.
const STEPS: u32 = 8;

/// The range tombstones of a keyspace that a reader sees.
pub(crate) struct RangeDelFilter {
    ranges: RangeSet,
    /// The reader's sequence number.
    upto: Seq,
    /// The newest tombstone over the keys from `from` to `to`.
    seq: Seq,
    from: Vec<u8>,
    to: Vec<u8>,
    /// Whether `to` is the end of all keys.
    endless: bool,
    known: bool,
    /// Entries skipped since the last seek.
    passed: u32,
}

impl RangeDelFilter {
    pub(crate) fn new(ranges: RangeSet, upto: Seq) -> RangeDelFilter {
        RangeDelFilter {
            ranges,
            upto,
            seq: 0,
            from: Vec::new(),
            to: Vec::new(),
            endless: false,
            known: false,
            passed: 0,
        }
    }

    /// Whether an entry of `key`, visible otherwise, is hidden.
    #[inline]
    pub(crate) fn hides(&mut self, key: &[u8], entry: Seq) -> bool {
        if !self.known || key < &self.from[..] || !(self.endless || key < &self.to[..]) {
            self.look(key);
        }
        hides(self.seq, entry)
    }

    /// Moves `merge` forward from a hidden entry, over the others hidden with it: the first few one by one, because a seek costs as much
    /// as a dozen steps.
    pub(crate) fn pass(&mut self, merge: &mut impl Cursor) -> Result<()> {
        self.passed += 1;
        match self.passed > STEPS {
            false => merge.next(),
            true => merge.skip((!self.endless).then_some(&self.to[..]), self.seq),
        }
    }

    /// [`RangeDelFilter::pass`] going back.
    pub(crate) fn pass_back(&mut self, merge: &mut impl Cursor) -> Result<()> {
        self.passed += 1;
        match self.passed > STEPS {
            false => merge.prev(),
            true => merge.skip_back(&self.from, self.seq),
        }
    }

    fn look(&mut self, key: &[u8]) {
        let fragment = self.ranges.at(key, self.upto);
        self.seq = fragment.seq;
        self.from.clear();
        self.from.extend_from_slice(fragment.from);
        self.to.clear();
        self.to.extend_from_slice(fragment.to.unwrap_or_default());
        self.endless = fragment.to.is_none();
        self.known = true;
        self.passed = 0;
    }
}
