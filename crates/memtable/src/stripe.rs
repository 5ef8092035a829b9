//! State that would be contended if all threads shared it, split into stripes: counters, and the node of the last
//! insert.

use crate::node::NodeId;
use crate::sync::{AtomicU32, Ordering};
use base::Seq;
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize};

/// Number of stripes in a memtable. Threads are assigned round-robin.
pub(crate) const STRIPES: usize = if cfg!(loom) { 1 } else { 8 };

/// Bits of a count that hold user bytes; the bits above count entries. The maximum capacity bounds both.
const BYTES_BITS: u32 = 34;

/// One stripe of a memtable's counters. Takes two cache lines, since the hardware prefetcher loads lines in pairs.
#[repr(align(128))]
pub(crate) struct Stripe {
    /// Entries (upper 30 bits) and user bytes (lower 34 bits), in one integer because each costs a locked instruction.
    counts: AtomicU64,
    seq_min: AtomicU64,
    seq_max: AtomicU64,
    /// The node of the last insert: the first place to look for the position of the next one.
    finger: AtomicU32,
}

/// Sums over all stripes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) entries: usize,
    pub(crate) user_bytes: u64,
}

impl Stripe {
    pub(crate) fn new() -> Stripe {
        Stripe {
            counts: AtomicU64::new(0),
            seq_min: AtomicU64::new(Seq::MAX),
            seq_max: AtomicU64::new(0),
            finger: AtomicU32::new(0),
        }
    }

    /// Counts one entry. Returns the previous count: a number that is unique in this stripe.
    #[inline]
    pub(crate) fn count(&self, seq: Seq, user_bytes: usize) -> u64 {
        if seq < self.seq_min.load(Ordering::Relaxed) {
            self.seq_min.fetch_min(seq, Ordering::Relaxed);
        }
        if seq > self.seq_max.load(Ordering::Relaxed) {
            self.seq_max.fetch_max(seq, Ordering::Relaxed);
        }
        self.counts.fetch_add(1 << BYTES_BITS | user_bytes as u64, Ordering::Relaxed)
    }

    /// Copies the counts of another stripe.
    pub(crate) fn copy_counts(&self, from: &Stripe) {
        for (to, from) in
            [(&self.counts, &from.counts), (&self.seq_min, &from.seq_min), (&self.seq_max, &from.seq_max)]
        {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    /// The node of the last insert.
    #[inline]
    pub(crate) fn finger(&self) -> Option<NodeId> {
        // Acquire, paired with the release below: the node's bytes were written before it became the finger.
        NodeId::from_raw(self.finger.load(Ordering::Acquire))
    }

    /// Stores the node of the last insert.
    #[inline]
    pub(crate) fn set_finger(&self, node: NodeId) {
        self.finger.store(node.raw(), Ordering::Release);
    }
}

/// The stripe of the calling thread.
#[inline]
pub(crate) fn index() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static INDEX: Cell<usize> = const { Cell::new(usize::MAX) });
    INDEX.with(|index| {
        if index.get() == usize::MAX {
            index.set(NEXT.fetch_add(1, Ordering::Relaxed) % STRIPES);
        }
        index.get()
    })
}

/// The entries and user bytes of all stripes.
pub(crate) fn counts(stripes: &[Stripe]) -> Counts {
    stripes.iter().fold(Counts { entries: 0, user_bytes: 0 }, |sum, stripe| {
        let counts = stripe.counts.load(Ordering::Relaxed);
        Counts {
            entries: sum.entries + (counts >> BYTES_BITS) as usize,
            user_bytes: sum.user_bytes + (counts & ((1 << BYTES_BITS) - 1)),
        }
    })
}

/// Smallest and largest sequence number of all stripes; `None` if there is no entry.
pub(crate) fn seqs(stripes: &[Stripe]) -> Option<(Seq, Seq)> {
    if counts(stripes).entries == 0 {
        return None;
    }
    let min = stripes.iter().map(|s| s.seq_min.load(Ordering::Relaxed)).min()?;
    let max = stripes.iter().map(|s| s.seq_max.load(Ordering::Relaxed)).max()?;
    Some((min, max))
}
