//! Sequence numbers that cursors hold in a keyspace: flushes and compactions keep every version that is visible at one of them.
//!
//! A cursor takes its sources from one read state. Memtables of that read state that are flushed meanwhile stay in memory until the
//! cursor releases them. It does so at its next move: it takes its sources again from the present read state, at its own sequence number.
//! This shows the same entries, because the number is held from the start, and no flush or compaction drops a version visible at a held
//! number.
//!
//! A compaction with a filter does change such entries for a cursor that began beside it: this cursor keeps its read state, and takes no other
//! (`state/filter_jobs.rs`).
//!
//! Holding must be cheap, because most cursors live for one seek. Each keyspace has an array of slots; a thread first tries the slot that
//! it used last, so the cache line stays with its processor. A cursor that finds no free slot is entered in a map behind a lock.
//!
//! ```text
//!   cursor       slot := seq             |  if visible is still seq: held; else again, with the newer one
//!   compaction   inputs (all visible)    |  fence; list the snapshots, then the slots
//! ```
//!
//! A compaction drops an entry only under a newer one among its inputs, and these were visible before it listed the slots. So either the
//! compaction sees the slot, or the cursor, after setting its slot, sees that the inputs are visible and reads at that number or a later
//! one.

use super::snapshots::{HeldCursors, Snapshots};
use super::visible_seq::VisibleSeq;
use crate::sync::{AtomicU64, Mutex, Ordering, fence, thread_local};
use base::Seq;
use base::planted::{Bug, planted};
use memtable::Memtable;
use std::cell::Cell;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

/// Slots of a keyspace: 1 KiB, allocated with its first cursor.
const SLOTS: usize = 64;

/// Slots per cache line.
const OF_LINE: usize = 4;

const FREE: u64 = 0;

/// The entry of a cursor. Threads use slots in separate cache lines while there are few of them.
#[derive(Default)]
struct Slot {
    /// The held sequence number plus one, or [`FREE`].
    held: AtomicU64,
    /// The time at which the slot was first seen held, in nanoseconds of [`env::Env::monotonic`] plus one; 0 if not seen yet.
    since: AtomicU64,
}

#[repr(align(64))]
#[derive(Default)]
struct Line([Slot; OF_LINE]);

/// The sequence numbers that the cursors of a keyspace hold.
#[derive(Default)]
pub(crate) struct HeldSeqs {
    lines: OnceLock<Box<[Line; SLOTS / OF_LINE]>>,
    /// The cursors that found no free slot.
    pub more: Snapshots,
}

thread_local! {
    /// The slot that this thread used last.
    static LAST: Cell<usize> = Cell::new(first_slot());
}

/// The first slot of a new thread: in a cache line of its own while there are lines left.
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

    /// Holds the newest visible sequence number. Returns the number, and its slot if it has one.
    pub(crate) fn hold_newest(&self, visible: &VisibleSeq) -> (Seq, Option<usize>) {
        let mut seq = visible.newest();
        let Some((slot, number)) = self.take(seq) else { return (self.more.take(visible, None), None) };
        loop {
            // Sequentially consistent with the store into the slot and the fence of a compaction.
            let newest = visible.newest_in_order();
            if newest == seq || planted(Bug::HoldOldNumber) {
                return (seq, Some(number));
            }
            seq = newest;
            slot.held.store(seq + 1, Ordering::SeqCst);
        }
    }

    /// Holds a number that another holder keeps held during this call.
    pub(crate) fn hold(&self, seq: Seq) -> Option<usize> {
        match self.take(seq) {
            Some((_, number)) => Some(number),
            None => {
                self.more.hold(seq, None);
                None
            }
        }
    }

    /// Takes a free slot for `seq`.
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
    pub(crate) fn release(&self, seq: Seq, slot: Option<usize>) {
        match (slot, self.lines.get()) {
            (Some(number), Some(lines)) => {
                HeldSeqs::slot(lines, number).held.store(FREE, Ordering::Release);
            }
            _ => self.more.release(seq),
        }
    }

    /// The numbers in the slots. A cursor that is not among them holds a number no older than what the caller saw as visible before the
    /// call.
    pub(crate) fn in_slots(&self) -> impl Iterator<Item = Seq> {
        fence(Ordering::SeqCst);
        let held = self.slots().map(|slot| slot.held.load(Ordering::Acquire));
        held.filter(|&held| held != FREE && !planted(Bug::ForgetCursors)).map(|held| held - 1)
    }

    /// Counts the held numbers, and records `now` for those seen for the first time. Cursors do not read the clock themselves: it would
    /// cost as much as everything else here.
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

/// Number of flushes that removed memtables from the read state. In its own cache line, since cursors read it at each move.
#[repr(align(64))]
#[derive(Default)]
pub(crate) struct FlushGeneration(AtomicU64);

impl FlushGeneration {
    #[inline]
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// Called after the read state without the memtables is published.
    pub(crate) fn advance(&self) {
        self.0.fetch_add(1, Ordering::Release);
    }
}

/// Memtables that were removed from the read state, while cursors still hold them.
#[derive(Default)]
pub(crate) struct RetiredMemtables(Mutex<Vec<Weak<Memtable>>>);

impl RetiredMemtables {
    pub(crate) fn add<'a>(&self, memtables: impl Iterator<Item = &'a Arc<Memtable>>) {
        let mut retired = self.0.lock();
        retired.retain(|memtable| memtable.strong_count() > 0);
        retired.extend(memtables.map(Arc::downgrade));
    }

    /// Bytes of the retired memtables that are still held.
    pub(crate) fn pinned_bytes(&self) -> u64 {
        let held: Vec<_> = self.0.lock().iter().filter_map(Weak::upgrade).collect();
        held.iter()
            .map(|m| (m.used_bytes() + m.ranges().map_or(0, |ranges| ranges.memory_bytes())) as u64)
            .sum()
    }
}
