//! The visible sequence number: readers see all commits up to it.
//!
//! Commits are inserted concurrently and become visible in order: a commit is published when it and all older ones are inserted. A reader
//! at this number sees exactly the commits up to it.
//!
//! Mostly the older commits are published already, or within a microsecond. But a thread may lose its processor between its place in the
//! log and its insertion, and run again only after milliseconds. The threads behind it must not spin meanwhile, which would delay it
//! further: each records that its commit is inserted and sleeps, and the thread that publishes the commit before it publishes this one,
//! too. (Polling with yields in between was tried: four writers on two processors spent two thirds of their time on it.)

use super::write_queue::SPINS;
use crate::sync::{AtomicU64, AtomicUsize, Condvar, Mutex, Ordering, fence, spin_loop};
use base::Seq;
use base::planted::{Bug, planted};

/// The newest visible sequence number.
pub(crate) struct VisibleSeq {
    newest: AtomicU64,
    /// Threads that sleep or are about to.
    asleep: AtomicUsize,
    /// Inserted commits that wait for older ones: first and last sequence number of each. Their threads sleep.
    early: Mutex<Vec<(Seq, Seq)>>,
    /// Notified when the newest number has changed.
    moved: Condvar,
}

impl VisibleSeq {
    pub(crate) fn new(seq: Seq) -> VisibleSeq {
        VisibleSeq {
            newest: AtomicU64::new(seq),
            asleep: AtomicUsize::new(0),
            early: Mutex::new(Vec::new()),
            moved: Condvar::new(),
        }
    }

    /// The newest visible sequence number. Everything up to it is inserted.
    #[inline]
    pub(crate) fn newest(&self) -> Seq {
        self.newest.load(Ordering::Acquire)
    }

    /// The same, sequentially consistent with all other such operations.
    #[inline]
    pub(crate) fn newest_in_order(&self) -> Seq {
        self.newest.load(Ordering::SeqCst)
    }

    /// Makes the commit with these sequence numbers visible as soon as all older ones are.
    #[inline]
    pub(crate) fn publish(&self, first_seq: Seq, last_seq: Seq) {
        if !planted(Bug::PublishOutOfOrder) && !self.has_come(first_seq - 1) {
            return self.publish_early(first_seq, last_seq);
        }
        self.newest.store(last_seq, Ordering::Release);
        // Pairs with the fence in `sleep`: either this thread sees the sleeper, or the sleeper sees the stored number.
        fence(Ordering::SeqCst);
        if self.asleep.load(Ordering::Relaxed) > 0 && !planted(Bug::ForgetToWake) {
            self.wake();
        }
    }

    /// Waits until everything up to `seq` is visible. The threads with older sequence numbers are inserting, which takes microseconds
    /// unless one of them has lost its processor.
    #[inline]
    pub(crate) fn wait_for(&self, seq: Seq) {
        if !self.has_come(seq) {
            self.sleep(seq, None);
        }
    }

    /// Whether everything up to `seq` is visible, or becomes so within a moment of spinning.
    #[inline]
    fn has_come(&self, seq: Seq) -> bool {
        for _ in 0..SPINS {
            if self.newest() >= seq {
                return true;
            }
            spin_loop();
        }
        self.newest() >= seq
    }

    #[cold]
    fn publish_early(&self, first_seq: Seq, last_seq: Seq) {
        self.sleep(last_seq, Some((first_seq, last_seq)));
    }

    /// Sleeps until everything up to `seq` is visible. `inserted`: a commit of this thread to publish in its order.
    #[cold]
    fn sleep(&self, seq: Seq, inserted: Option<(Seq, Seq)>) {
        let mut early = self.early.lock();
        self.asleep.fetch_add(1, Ordering::Relaxed);
        early.extend(inserted);
        fence(Ordering::SeqCst);
        // The number may have advanced before this thread was counted as asleep.
        if self.advance(&mut early) {
            self.moved.notify_all();
        }
        while self.newest() < seq {
            self.moved.wait(&mut early);
        }
        self.asleep.fetch_sub(1, Ordering::Relaxed);
    }

    /// Publishes the recorded commits that are next in order. A commit is published by its thread or, once recorded, by the holder of
    /// this lock; so no other thread stores a number that directly follows `newest` and is in the list.
    fn advance(&self, early: &mut Vec<(Seq, Seq)>) -> bool {
        let before = self.newest();
        let mut newest = before;
        while let Some(next) = early.iter().position(|(first, _)| *first == newest + 1) {
            newest = early.swap_remove(next).1;
            self.newest.store(newest, Ordering::Release);
        }
        newest > before
    }

    #[cold]
    fn wake(&self) {
        self.advance(&mut self.early.lock());
        self.moved.notify_all();
    }
}
