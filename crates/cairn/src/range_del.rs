//! What range tombstones hide from a cursor.
//!
//! A cursor asks for each entry that it meets. The answer is the same over stretches of keys, and the cursor moves in order; so
//! the stretch in which it last asked is kept, and most questions are two comparisons.

use crate::keyspace::hides;
use base::{Cursor, RangeSet, Result, Seq};

/// Hidden entries of a stretch that are stepped over before it is skipped.
const STEPS: u32 = 8;

/// The range tombstones of a keyspace as one reader sees them.
pub(crate) struct RangeDelFilter {
    ranges: RangeSet,
    /// As of when it reads.
    upto: Seq,
    /// The newest tombstone over the keys from `from` to `to`.
    seq: Seq,
    from: Vec<u8>,
    to: Vec<u8>,
    /// Whether `to` is the end of all keys.
    endless: bool,
    known: bool,
    /// Entries passed since it last looked.
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

    /// Whether an entry of `key`, which the reader would see otherwise, is hidden.
    #[inline]
    pub(crate) fn hides(&mut self, key: &[u8], entry: Seq) -> bool {
        if !self.known || key < &self.from[..] || !(self.endless || key < &self.to[..]) {
            self.look(key);
        }
        hides(self.seq, entry)
    }

    /// Moves `merge` forward from an entry that is hidden, over the others that are hidden with it: a few are passed one by one,
    /// for a seek costs as much as a dozen steps.
    pub(crate) fn pass(&mut self, merge: &mut impl Cursor) -> Result<()> {
        self.passed += 1;
        match self.passed > STEPS {
            false => merge.next(),
            true => merge.skip((!self.endless).then_some(&self.to[..]), self.seq),
        }
    }

    /// The same, going back.
    pub(crate) fn pass_back(&mut self, merge: &mut impl Cursor) -> Result<()> {
        self.passed += 1;
        match self.passed > STEPS {
            false => merge.prev(),
            true => merge.skip_back(&self.from, self.seq),
        }
    }

    fn look(&mut self, key: &[u8]) {
        let stretch = self.ranges.at(key, self.upto);
        self.seq = stretch.seq;
        self.from.clear();
        self.from.extend_from_slice(stretch.from);
        self.to.clear();
        self.to.extend_from_slice(stretch.to.unwrap_or_default());
        self.endless = stretch.to.is_none();
        self.known = true;
        self.passed = 0;
    }
}
