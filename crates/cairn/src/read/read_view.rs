//! What a cursor reads: [`ReadView`], a read state and a sequence number that is held ([`HeldSeq`]); and the sorted runs in it that the
//! cursor merges: memtables, tables of level 0, and guards.

use super::range_del::RangeDelFilter;
use crate::parts::DeadRanges;
use crate::state::{KeptStates, KeyspaceInner, ReadAt, ReadState, Reader};
use crate::types::Bounds;
use base::{Error, Seq, Time};
use memtable::MemtableCursor;
use std::ops::Deref;
use std::sync::Arc;
use tree::{KeyRange, MergeCursor, TreeSource};

/// The state of one keyspace that a cursor reads: a held sequence number and the read state.
pub(crate) struct ReadView {
    pub(super) keyspace: HeldSeq,
    pub(super) db: Reader,
    pub(super) read_state: Arc<ReadState>,
    /// The flush generation of the keyspace when `read_state` was loaded, or an earlier one.
    pub generation: u64,
    pub(super) closed: Option<Error>,
}

impl ReadView {
    pub(crate) fn new(db: Reader, keyspace: HeldSeq) -> ReadView {
        // The sequence number is held, so a read state loaded later still has every version visible at it. The check that the keyspace is
        // open comes after the load: a keyspace dropped in between must not appear empty.
        let generation = keyspace.generation.get();
        let read_state = keyspace.load_read_state();
        let closed = keyspace.check_of(db.identity()).and_then(|()| keyspace.check_order()).err();
        ReadView { keyspace, db, read_state, generation, closed }
    }

    /// The same state for a cursor that is dropped before `self`.
    pub(crate) fn lend(&self) -> ReadView {
        ReadView {
            keyspace: self.keyspace.lend(),
            db: self.db.clone(),
            read_state: self.read_state.clone(),
            generation: self.generation,
            closed: self.closed.clone(),
        }
    }

    /// Reloads the read state, which releases flushed memtables.
    #[cold]
    pub(crate) fn renew(&mut self) {
        self.generation = self.keyspace.generation.get();
        if let Some(read_state) = self.keyspace.current_read_state() {
            self.read_state = read_state;
        }
    }
}

/// A keyspace, and a sequence number held in it until this is dropped.
pub(crate) struct HeldSeq {
    keyspace: Arc<KeyspaceInner>,
    pub seq: Seq,
    /// What had expired by this time is not seen.
    pub now: Time,
    /// The read states that it keeps, if it began beside a filter: see `state/filter_jobs.rs`.
    kept: Option<KeptStates>,
    by: By,
}

enum By {
    Slot(usize),
    Map,
    /// Another `HeldSeq`, which is dropped later.
    Other,
}

impl HeldSeq {
    fn new(keyspace: &Arc<KeyspaceInner>, (seq, now): (Seq, Time), slot: Option<usize>) -> HeldSeq {
        HeldSeq { keyspace: keyspace.clone(), seq, now, kept: None, by: slot.map_or(By::Map, By::Slot) }
    }

    /// Holds the newest visible sequence number.
    pub(crate) fn newest(keyspace: &Arc<KeyspaceInner>, db: &Reader) -> HeldSeq {
        loop {
            let now = keyspace.read_clock();
            let (seq, slot) = db.hold_newest(keyspace);
            let mut held = HeldSeq::new(keyspace, (seq, now), slot);
            if keyspace.is_current(now) {
                held.kept = keyspace.states_to_keep();
                return held;
            }
        }
    }

    /// Holds a number that a snapshot keeps held during this call, with its time, and the read states that it keeps.
    pub(crate) fn of_snapshot(
        keyspace: &Arc<KeyspaceInner>,
        (seq, now): (Seq, Time),
        kept: Option<KeptStates>,
    ) -> HeldSeq {
        let mut held = HeldSeq::new(keyspace, (seq, now), keyspace.readers.hold(seq));
        held.kept = kept;
        held
    }

    /// The same number for a user that is dropped before `self`.
    pub(crate) fn lend(&self) -> HeldSeq {
        let (keyspace, kept) = (self.keyspace.clone(), self.kept.clone());
        HeldSeq { keyspace, seq: self.seq, now: self.now, kept, by: By::Other }
    }

    /// The read state to read from: the newest, unless it keeps one.
    pub(super) fn load_read_state(&self) -> Arc<ReadState> {
        match &self.kept {
            Some(kept) => kept.read_state.clone(),
            None => self.keyspace.read_state.load_full(),
        }
    }

    /// The read states that it keeps.
    pub(super) fn kept(&self) -> Option<&KeptStates> {
        self.kept.as_ref()
    }

    /// The same, of an open keyspace. `None` when the keyspace was dropped or the database is closed: readers keep the one that they have.
    pub(super) fn current_read_state(&self) -> Option<Arc<ReadState>> {
        // Loaded before the check: the read state of a dropped keyspace is empty.
        let read_state = self.load_read_state();
        self.keyspace.check_open().is_ok().then_some(read_state)
    }

    /// What other readers have noted. In a read state that it keeps, more keys may have values.
    #[inline]
    pub(super) fn dead_ranges(&self) -> Option<&DeadRanges> {
        self.kept.is_none().then_some(&self.keyspace.dead)
    }

    /// The state that its reads see.
    pub(crate) fn at(&self) -> ReadAt {
        ReadAt::new(self.seq, self.now)
    }
}

impl Deref for HeldSeq {
    type Target = KeyspaceInner;
    #[inline]
    fn deref(&self) -> &KeyspaceInner {
        &self.keyspace
    }
}

impl Drop for HeldSeq {
    #[inline]
    fn drop(&mut self) {
        match self.by {
            By::Slot(number) => self.keyspace.readers.release(self.seq, Some(number)),
            By::Map => self.keyspace.readers.release(self.seq, None),
            By::Other => {}
        }
    }
}

/// A sorted run of a keyspace. The variants are not boxed: a cursor has few sources, and an indirection would slow each step.
#[allow(clippy::large_enum_variant)]
pub(crate) enum Source {
    Memtable(MemtableCursor),
    Tree(TreeSource),
}

base::delegate_cursor!(Source { Memtable, Tree });

pub(crate) type Merged = (MergeCursor<Source>, Option<Box<RangeDelFilter>>);

/// The sorted runs of a read state that may have keys within the bounds, and the filter of range tombstones visible at `seq`.
pub(crate) fn sources(read_state: &ReadState, keyspace: &KeyspaceInner, bounds: &Bounds, seq: Seq) -> Merged {
    let range = KeyRange::new(&bounds.from, bounds.to.as_deref());
    sources_in(read_state, keyspace, &range, seq)
}

/// [`sources`] of a range.
pub(super) fn sources_in(
    read_state: &ReadState,
    keyspace: &KeyspaceInner,
    range: &KeyRange,
    seq: Seq,
) -> Merged {
    let mut sources = Vec::with_capacity(1 + read_state.immutable.len() + read_state.version.max_sources());
    // A memtable without capacity is the shared empty one; a seek in it would cost as much as in any other.
    if read_state.memtable.capacity() > 0 {
        sources.push(Source::Memtable(read_state.memtable.cursor()));
    }
    sources.extend(read_state.immutable.iter().map(|m| Source::Memtable(m.cursor())));
    sources.extend(read_state.version.sources(&keyspace.charges, range).map(Source::Tree));
    let range_del = read_state.ranges().map(|ranges| Box::new(RangeDelFilter::new(ranges, seq)));
    (MergeCursor::new(sources, 0), range_del)
}
