//! What readers see: all commits up to a sequence number.
//!
//! Commits are inserted beside each other and become visible one after another: a commit is published when it is inserted and all
//! older ones are published. So whoever reads the number sees, of all commits up to it, everything, and of none after it anything.

use crate::sync::{AtomicU64, Ordering, spin_loop, yield_now};
use crate::turn::SPINS;
use base::Seq;
use base::planted::{Bug, planted};

/// The newest sequence number that readers see.
pub(crate) struct Visible(AtomicU64);

impl Visible {
    pub(crate) fn new(seq: Seq) -> Visible {
        Visible(AtomicU64::new(seq))
    }

    /// The newest sequence number that readers see now. Everything up to it was inserted before.
    #[inline]
    pub(crate) fn newest(&self) -> Seq {
        self.0.load(Ordering::Acquire)
    }

    /// Makes the commit with these sequence numbers visible, as soon as all older ones are.
    #[inline]
    pub(crate) fn publish(&self, first_seq: Seq, last_seq: Seq) {
        if !planted(Bug::PublishOutOfOrder) {
            self.wait_for(first_seq - 1);
        }
        self.0.store(last_seq, Ordering::Release);
    }

    /// Waits until everything up to `seq` is visible. Those who have older sequence numbers are inserting: it takes
    /// microseconds.
    #[inline]
    pub(crate) fn wait_for(&self, seq: Seq) {
        let mut looks = 0;
        while self.newest() < seq {
            looks += 1;
            match looks < SPINS {
                true => spin_loop(),
                false => yield_now(),
            }
        }
    }
}
