//! The run of deleted entries that a cursor is passing over: what it asks of [`DeadRanges`], and what it tells them.

use crate::db_inner::DbInner;
use crate::dead_ranges::{DeadRange, DeadRanges, FoundRun, Known, LONG};
use crate::keyspace::KeyspaceInner;
use crate::sync::Ordering;
use base::Seq;
use std::sync::Arc;

/// One run: from a position of the cursor to the next one.
pub(crate) struct DeletedRun {
    passed: u32,
    /// At so many it looks what is known of where it is.
    look_at: u32,
    /// Dead ranges that it came upon and left out.
    left_out: u32,
    /// A key from which on (going back: up to which) all were deleted.
    edge: Vec<u8>,
    has_edge: bool,
}

impl DeletedRun {
    pub(crate) fn new(dead: &DeadRanges) -> DeletedRun {
        let look_at = if dead.noted == 0 { u32::MAX } else { dead.first_look() };
        DeletedRun { passed: 0, look_at, left_out: 0, edge: Vec::new(), has_edge: false }
    }

    /// The cursor begins where a dead range ends: what it meets first may be in the next one.
    pub(crate) fn look_soon(&mut self) {
        self.look_at = self.passed + 1;
    }

    /// One more deleted entry; whether to look what is known of its place.
    #[inline]
    pub(crate) fn pass(&mut self) -> bool {
        self.passed = self.passed.saturating_add(1);
        self.passed == self.look_at
    }

    #[inline]
    pub(crate) fn has_begun(&self) -> bool {
        self.passed > 0
    }

    /// Looks what a cursor at `seq` over `[from, to)` knows of `key`, which is deleted. Where nothing is known, and the run is long, what lies
    /// ahead of it is watched from now on: then the run can be noted at its end though others write meanwhile.
    #[cold]
    pub(crate) fn look(
        &mut self,
        key: &[u8],
        seq: Seq,
        (from, to): (&[u8], Option<&[u8]>),
        backward: bool,
        keyspace: &KeyspaceInner,
        core: &DbInner,
    ) -> Option<Arc<DeadRange>> {
        let dead = &keyspace.dead;
        if !self.has_edge {
            self.edge.clear();
            self.edge.extend_from_slice(key);
            self.has_edge = true;
        }
        let is_long = self.passed >= LONG * dead.noted;
        self.look_at = self.passed.saturating_add(if is_long { LONG } else { 1 } * dead.noted);
        match dead.at(key, seq) {
            Known::Dead(range) => {
                self.left_out += 1;
                self.look_soon();
                return Some(range);
            }
            Known::Nothing if is_long => {
                let edge = &self.edge[..];
                let (from, to) = if backward { (from, Some(edge)) } else { (edge, to) };
                let run = FoundRun { from, to, seq, passed: u64::from(self.passed), backward };
                if dead.is_worth_a_note(&run)
                    && let Some(writer) = core.try_writer()
                {
                    dead.watch(&run, writer.next_seq - 1);
                }
            }
            _ => {}
        }
        None
    }

    /// The cursor over `[.., to)` has come to the end of the run: it stands at `to`, or there is nothing more before that. It was sent to `sought`, where the
    /// run begins, or began it on its way. `seq`: as of when it reads, unless it failed.
    pub(crate) fn end(
        &mut self,
        seq: Option<Seq>,
        sought: Option<&[u8]>,
        to: Option<&[u8]>,
        keyspace: &KeyspaceInner,
        core: &DbInner,
    ) {
        if let (Some(passed), Some(seq)) = (self.finish(&keyspace.dead), seq) {
            let from = sought.unwrap_or(&self.edge);
            core.note_dead(&FoundRun { from, to, seq, passed, backward: false }, keyspace);
        }
    }

    /// The same, going back: of a cursor over `[from, ..)` that was sent to before `sought`.
    pub(crate) fn end_back(
        &mut self,
        seq: Option<Seq>,
        sought: Option<Option<&[u8]>>,
        from: &[u8],
        keyspace: &KeyspaceInner,
        core: &DbInner,
    ) {
        if let (Some(passed), Some(seq)) = (self.finish(&keyspace.dead), seq) {
            // Of the key where it looked first older versions came first; now it is known that none is a value.
            self.edge.push(0);
            let to = sought.unwrap_or(Some(&self.edge));
            core.note_dead(&FoundRun { from, to, seq, passed, backward: true }, keyspace);
        }
    }

    /// Begins anew. What was passed, if that is worth a note.
    fn finish(&mut self, dead: &DeadRanges) -> Option<u64> {
        let (passed, left_out) = (self.passed, self.left_out);
        dead.passed.fetch_add(u64::from(passed), Ordering::Relaxed);
        *self = DeletedRun { edge: std::mem::take(&mut self.edge), ..DeletedRun::new(dead) };
        // To leave out a range costs a seek.
        let cost = passed.saturating_add(left_out.saturating_mul(dead.first_look()));
        (dead.noted > 0 && cost >= dead.noted && passed >= dead.first_look()).then_some(u64::from(cost))
    }
}

impl DbInner {
    /// Notes a run, if the writer is free: otherwise a cursor that comes by later will.
    fn note_dead(&self, run: &FoundRun<'_>, keyspace: &KeyspaceInner) {
        if keyspace.dead.is_worth_a_note(run)
            && let Some(writer) = self.try_writer()
        {
            keyspace.dead.note(run, writer.next_seq - 1);
        }
    }
}
