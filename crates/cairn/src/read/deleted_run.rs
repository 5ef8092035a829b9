//! The run of deleted entries that a cursor is skipping: looks up dead ranges in [`DeadRanges`], and records new ones there.

use crate::parts::{DeadRange, DeadRanges, FoundRun};
use crate::state::{KeyspaceInner, Reader};
use crate::sync::Ordering;
use base::Seq;
use std::sync::Arc;

/// One run: from one position of the cursor to the next.
pub(crate) struct DeletedRun {
    passed: u32,
    /// The number of skipped entries at which dead ranges are looked up.
    look_at: u32,
    /// Dead ranges that the cursor met and skipped as a whole.
    left_out: u32,
    /// A key from which on (going back: up to which) all keys were deleted.
    edge: Vec<u8>,
    has_edge: bool,
}

impl DeletedRun {
    pub(crate) fn new(dead: &DeadRanges) -> DeletedRun {
        let look_at = if dead.noted == 0 { u32::MAX } else { dead.first_look() };
        DeletedRun { passed: 0, look_at, left_out: 0, edge: Vec::new(), has_edge: false }
    }

    /// Called where a dead range ends: the next entry may be in another one, so the lookup is due at once.
    pub(crate) fn look_soon(&mut self) {
        self.look_at = self.passed + 1;
    }

    /// Counts a deleted entry; returns whether to look up dead ranges.
    #[inline]
    pub(crate) fn pass(&mut self) -> bool {
        self.passed = self.passed.saturating_add(1);
        self.passed == self.look_at
    }

    #[inline]
    pub(crate) fn has_begun(&self) -> bool {
        self.passed > 0
    }

    /// Looks up the dead range over the deleted `key` for a cursor at `seq`.
    #[cold]
    pub(crate) fn look(&mut self, key: &[u8], seq: Seq, dead: &DeadRanges) -> Option<Arc<DeadRange>> {
        if !self.has_edge {
            self.edge.clear();
            self.edge.extend_from_slice(key);
            self.has_edge = true;
        }
        self.look_at = self.passed.saturating_add(dead.noted);
        let range = dead.over(key, seq)?;
        self.left_out += 1;
        self.look_soon();
        Some(range)
    }

    /// Ends a run of a cursor: the cursor is at `bound`, or nothing lies before it (going back: from it on). The run begins at `sought`
    /// (going back: before it) if the cursor was sent there, otherwise on its way. `seq`: the cursor's sequence number; `None` when the
    /// cursor failed.
    pub(crate) fn end(
        &mut self,
        seq: Option<Seq>,
        sought: Option<Option<&[u8]>>,
        bound: Option<&[u8]>,
        backward: bool,
        keyspace: &KeyspaceInner,
        db: &Reader,
    ) {
        let (Some(passed), Some(seq)) = (self.finish(&keyspace.dead), seq) else { return };
        if backward {
            // Older versions of the edge key came first; now it is known that none of them is a value.
            self.edge.push(0);
        }
        let begin = sought.unwrap_or(Some(&self.edge));
        let (from, to) = if backward { (bound, begin) } else { (begin, bound) };
        let run = FoundRun { from: from.unwrap_or_default(), to, seq, passed };
        db.record_dead(&run, keyspace);
    }

    /// Starts a new run. Returns what the old one skipped, if it is worth recording.
    fn finish(&mut self, dead: &DeadRanges) -> Option<u64> {
        let (passed, left_out) = (self.passed, self.left_out);
        dead.passed.fetch_add(u64::from(passed), Ordering::Relaxed);
        *self = DeletedRun { edge: std::mem::take(&mut self.edge), ..DeletedRun::new(dead) };
        // Skipping a dead range costs a seek.
        let cost = passed.saturating_add(left_out.saturating_mul(dead.first_look()));
        (dead.noted > 0 && cost >= dead.noted && passed >= dead.first_look()).then_some(u64::from(cost))
    }
}
