//! What readers see: all commits up to a sequence number.
//!
//! Commits are inserted beside each other and become visible one after another: a commit is published when it is inserted and all
//! older ones are published. So whoever reads the number sees, of all commits up to it, everything, and of none after it anything.
//!
//! Mostly the older ones are published already, or within a microsecond. But a thread may lose its processor between its place in the
//! log and its insertion, and be back after milliseconds. Those behind it do not stand about meanwhile, which would keep it from coming
//! back: they leave word that they are inserted and sleep, and whoever publishes the commit before theirs publishes theirs with it.
//! (To look again, yielding between looks, was tried: four writers on two processors spent two thirds of their time on it.)

use crate::sync::{AtomicU64, AtomicUsize, Condvar, Mutex, Ordering, fence, spin_loop};
use crate::write_queue::SPINS;
use base::Seq;
use base::planted::{Bug, planted};

/// The newest sequence number that readers see.
pub(crate) struct VisibleSeq {
    newest: AtomicU64,
    /// Threads that sleep, or are about to.
    asleep: AtomicUsize,
    /// Commits that are inserted while older ones are not: first and last sequence number. Their threads sleep.
    early: Mutex<Vec<(Seq, Seq)>>,
    /// The newest number has changed.
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

    /// The newest sequence number that readers see now. Everything up to it was inserted before.
    #[inline]
    pub(crate) fn newest(&self) -> Seq {
        self.newest.load(Ordering::Acquire)
    }

    /// The same, in one order with all other sequentially consistent operations.
    #[inline]
    pub(crate) fn newest_in_order(&self) -> Seq {
        self.newest.load(Ordering::SeqCst)
    }

    /// Makes the commit with these sequence numbers visible, as soon as all older ones are.
    #[inline]
    pub(crate) fn publish(&self, first_seq: Seq, last_seq: Seq) {
        if !planted(Bug::PublishOutOfOrder) && !self.has_come(first_seq - 1) {
            return self.publish_early(first_seq, last_seq);
        }
        self.newest.store(last_seq, Ordering::Release);
        // Pairs with the fence in `sleep`: either we see who sleeps, or he sees what we stored.
        fence(Ordering::SeqCst);
        if self.asleep.load(Ordering::Relaxed) > 0 && !planted(Bug::ForgetToWake) {
            self.wake();
        }
    }

    /// Waits until everything up to `seq` is visible. Those who have older sequence numbers are inserting: it takes
    /// microseconds, unless one of them has lost its processor.
    #[inline]
    pub(crate) fn wait_for(&self, seq: Seq) {
        if !self.has_come(seq) {
            self.sleep(seq, None);
        }
    }

    /// Whether everything up to `seq` is visible, or becomes so within a moment.
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

    /// Sleeps until everything up to `seq` is visible; leaves word of a commit that is.
    #[cold]
    fn sleep(&self, seq: Seq, inserted: Option<(Seq, Seq)>) {
        let mut early = self.early.lock();
        self.asleep.fetch_add(1, Ordering::Relaxed);
        early.extend(inserted);
        fence(Ordering::SeqCst);
        // What we wait for may have come before anybody could see us.
        if self.advance(&mut early) {
            self.moved.notify_all();
        }
        while self.newest() < seq {
            self.moved.wait(&mut early);
        }
        self.asleep.fetch_sub(1, Ordering::Relaxed);
    }

    /// Publishes those whose turn has come. Each commit is published by its thread or, once that has left word, by who holds the lock,
    /// so nobody else stores a number that follows on the newest one of the list's.
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
