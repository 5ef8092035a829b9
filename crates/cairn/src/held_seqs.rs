//! Cursors as flushes and compactions see them: the sequence numbers that are read in a keyspace, and the memtables that cursors keep in memory.
//!
//! A cursor takes its sources from one view of its keyspace. Memtables of that view that are flushed meanwhile stay in memory for as long as
//! the cursor has them. So it gives them up at its next move: it takes its sources anew, from the present view, at its own
//! sequence number. That shows the same, because a cursor holds its sequence number from the beginning, and no flush or compaction drops
//! a version that is seen at a number that is held.
//!
//! To hold one has to cost next to nothing, for most cursors live for one seek. Each keyspace has some slots for that; a thread comes back
//! to the one it had last, so that its cache line stays with its processor. Cursors that find no slot free go into a map behind a lock.
//!
//! ```text
//!   cursor       slot := seq             |  if visible is still seq: held; else again, with the newer one
//!   compaction   inputs (all visible)    |  fence; list the snapshots, then the slots
//! ```
//!
//! What a compaction drops lies under something newer among its inputs, and these were visible before it listed the slots. Either it
//! sees the slot, or the cursor sees, after its slot is set, that these are visible, and reads as of them or later.

use crate::db_inner::DbInner;
use crate::keyspace::KeyspaceInner;
use crate::snapshot::Snapshots;
use crate::sync::{AtomicU64, Mutex, Ordering, fence, thread_local};
use crate::visible_seq::VisibleSeq;
use base::Seq;
use base::planted::{Bug, planted};
use memtable::Memtable;
use std::cell::Cell;
use std::ops::Deref;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

/// Slots of a keyspace: a KiB of them, which a keyspace gets with its first cursor.
const SLOTS: usize = 64;

/// Slots in a cache line.
const OF_LINE: usize = 4;

const FREE: u64 = 0;

/// A cursor's entry. Its place in memory is next to those of other threads only where there are many.
#[derive(Default)]
struct Slot {
    /// The sequence number plus one, or [`FREE`].
    held: AtomicU64,
    /// Since when it is known, in nanoseconds of [`env::Env::monotonic`] plus one; 0 before the first look.
    since: AtomicU64,
}

#[repr(align(64))]
#[derive(Default)]
struct Line([Slot; OF_LINE]);

/// The cursors of a keyspace.
#[derive(Default)]
pub(crate) struct HeldSeqs {
    lines: OnceLock<Box<[Line; SLOTS / OF_LINE]>>,
    /// Those for which there was no slot.
    more: Snapshots,
}

/// What several cursors are, taken together.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HeldCursors {
    pub count: usize,
    /// Since when the oldest of them is held.
    pub since: Option<Duration>,
}

impl HeldCursors {
    pub(crate) fn add(&mut self, count: usize, since: Option<Duration>) {
        self.count += count;
        self.since = self.since.into_iter().chain(since).min();
    }
}

thread_local! {
    /// The slot that this thread had last.
    static LAST: Cell<usize> = Cell::new(first_slot());
}

/// Threads begin in lines of their own.
fn first_slot() -> usize {
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    THREADS.fetch_add(1, Ordering::Relaxed) * OF_LINE % SLOTS
}

impl HeldSeqs {
    #[inline]
    fn slot(lines: &[Line; SLOTS / OF_LINE], number: usize) -> &Slot {
        &lines[number / OF_LINE].0[number % OF_LINE]
    }

    fn slots(&self) -> impl Iterator<Item = &Slot> {
        self.lines.get().into_iter().flat_map(|lines| lines.iter().flat_map(|line| &line.0))
    }

    /// Holds the newest sequence number that is visible: the number, and the slot that has it, if it is in one.
    fn hold_newest(&self, visible: &VisibleSeq) -> (Seq, Option<usize>) {
        let mut seq = visible.newest();
        let Some((slot, number)) = self.take(seq) else { return (self.more.take(visible, None), None) };
        loop {
            // In one order with the store into the slot and with the fence of a compaction.
            let newest = visible.newest_in_order();
            if newest == seq || planted(Bug::HoldOldNumber) {
                return (seq, Some(number));
            }
            seq = newest;
            slot.held.store(seq + 1, Ordering::SeqCst);
        }
    }

    /// Holds a number that is held elsewhere and stays so while this runs.
    fn hold(&self, seq: Seq) -> Option<usize> {
        match self.take(seq) {
            Some((_, number)) => Some(number),
            None => {
                self.more.hold(seq, None);
                None
            }
        }
    }

    /// A free slot, which has `seq` now.
    #[inline]
    fn take(&self, seq: Seq) -> Option<(&Slot, usize)> {
        let lines = self.lines.get_or_init(Box::default);
        let last = LAST.with(Cell::get);
        for number in (last..SLOTS).chain(0..last) {
            let slot = HeldSeqs::slot(lines, number);
            if slot.held.load(Ordering::Relaxed) == FREE
                && slot.held.compare_exchange(FREE, seq + 1, Ordering::SeqCst, Ordering::Relaxed).is_ok()
            {
                slot.since.store(0, Ordering::Relaxed);
                LAST.with(|last| last.set(number));
                return Some((slot, number));
            }
        }
        None
    }

    #[inline]
    fn release(&self, seq: Seq, slot: Option<usize>) {
        match (slot, self.lines.get()) {
            (Some(number), Some(lines)) => {
                HeldSeqs::slot(lines, number).held.store(FREE, Ordering::Release);
            }
            _ => self.more.release(seq),
        }
    }

    /// The numbers in slots. What the caller has found to be visible before is not newer than any that is held and not among these.
    fn in_slots(&self) -> impl Iterator<Item = Seq> {
        fence(Ordering::SeqCst);
        let held = self.slots().map(|slot| slot.held.load(Ordering::Acquire));
        held.filter(|&held| held != FREE && !planted(Bug::ForgetCursors)).map(|held| held - 1)
    }

    /// Notes `now` for those of which it is not known since when they are held. Cursors do not read the clock themselves: that would
    /// cost as much as all else here.
    pub(crate) fn look(&self, now: Duration) -> HeldCursors {
        let mut all = HeldCursors::default();
        for slot in self.slots().filter(|slot| slot.held.load(Ordering::Acquire) != FREE) {
            let since = match slot.since.load(Ordering::Relaxed) {
                0 => {
                    slot.since.store(now.as_nanos() as u64 + 1, Ordering::Relaxed);
                    now
                }
                since => Duration::from_nanos(since - 1),
            };
            all.add(1, Some(since));
        }
        let more = self.more.look(now);
        all.add(more.count, more.since);
        all
    }
}

/// A keyspace, and a sequence number that is held in it.
pub(crate) struct HeldSeq {
    keyspace: Arc<KeyspaceInner>,
    pub seq: Seq,
    by: By,
}

enum By {
    Slot(usize),
    Map,
    /// Another `HeldSeq`, which lives longer.
    Other,
}

impl HeldSeq {
    fn new(keyspace: &Arc<KeyspaceInner>, seq: Seq, slot: Option<usize>) -> HeldSeq {
        HeldSeq { keyspace: keyspace.clone(), seq, by: slot.map_or(By::Map, By::Slot) }
    }

    /// Holds the newest sequence number that is visible.
    pub(crate) fn newest(keyspace: &Arc<KeyspaceInner>, core: &DbInner) -> HeldSeq {
        let (seq, slot) = keyspace.readers.hold_newest(&core.visible);
        HeldSeq::new(keyspace, seq, slot)
    }

    /// Holds a number that a snapshot holds while this runs.
    pub(crate) fn of_snapshot(keyspace: &Arc<KeyspaceInner>, seq: Seq) -> HeldSeq {
        HeldSeq::new(keyspace, seq, keyspace.readers.hold(seq))
    }

    /// The same for something that goes before this does.
    pub(crate) fn lend(&self) -> HeldSeq {
        HeldSeq { keyspace: self.keyspace.clone(), seq: self.seq, by: By::Other }
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

/// How many times memtables of a keyspace have gone from its view. In a line of its own: cursors look at it each time that they move.
#[repr(align(64))]
#[derive(Default)]
pub(crate) struct FlushGeneration(AtomicU64);

impl FlushGeneration {
    #[inline]
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// The view is without them now.
    pub(crate) fn advance(&self) {
        self.0.fetch_add(1, Ordering::Release);
    }
}

/// Memtables that have gone from the views, as long as something holds them.
#[derive(Default)]
pub(crate) struct RetiredMemtables(Mutex<Vec<Weak<Memtable>>>);

impl RetiredMemtables {
    pub(crate) fn add<'a>(&self, memtables: impl Iterator<Item = &'a Arc<Memtable>>) {
        let mut retired = self.0.lock();
        retired.retain(|memtable| memtable.strong_count() > 0);
        retired.extend(memtables.map(Arc::downgrade));
    }

    /// Bytes of those that are still held.
    pub(crate) fn pinned_bytes(&self) -> u64 {
        let held: Vec<_> = self.0.lock().iter().filter_map(Weak::upgrade).collect();
        held.iter()
            .map(|m| (m.used_bytes() + m.ranges().map_or(0, |ranges| ranges.memory_bytes())) as u64)
            .sum()
    }
}

impl DbInner {
    /// The sequence numbers at which the keyspace is read, by snapshots and by cursors: ascending, each once. Who begins to read
    /// after this does so as of all that was visible before, or later.
    pub(crate) fn readers_of(&self, keyspace: &KeyspaceInner) -> Vec<Seq> {
        // Snapshots first: a cursor that is made of a snapshot holds its number before the snapshot can go.
        let mut seqs = self.snapshots.list();
        seqs.extend(keyspace.readers.in_slots());
        seqs.extend(keyspace.readers.more.list());
        seqs.sort_unstable();
        seqs.dedup();
        seqs
    }

    /// The smallest of these.
    pub(crate) fn oldest_reader(&self, keyspace: &KeyspaceInner) -> Option<Seq> {
        let snapshot = self.snapshots.oldest();
        let cursor = keyspace.readers.in_slots().min();
        [snapshot, cursor, keyspace.readers.more.oldest()].into_iter().flatten().min()
    }
}
