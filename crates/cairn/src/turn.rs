//! Whose turn it is to write.
//!
//! One thread at a time holds the writer. Who cannot wait for it asleep for a short time, because it is held over a sync, queues with
//! what he wants done, his *job*; the next one of those who queue that gets hold of the writer, the *leader*, does the jobs of all of
//! them at once and tells each what came of it.
//!
//! Nobody queues for ever: whoever lets go of the writer calls [`Turn::pass_on`] afterwards, which wakes the first in the queue, and
//! whoever has queued looks himself whether the writer is free. A fence on either side sees to it that one of the two notices. Loom
//! tries every interleaving of a few threads (`loom_tests.rs`).
//!
//! What is written, and what a job is, is not known here.

use crate::sync::{AtomicUsize, Condvar, Mutex, MutexGuard, Ordering, fence, spin_loop, yield_now};
use base::planted::{Bug, planted};
use std::collections::VecDeque;
use std::sync::Arc;

/// A model checker needs few looks: what matters is who looks when.
const CHECKED: bool = cfg!(any(loom, shuttle));

/// How often a thread looks whether it is its turn before it lets other threads run between looks: some microseconds.
pub(crate) const SPINS: u32 = if CHECKED { 1 } else { 200 };
/// How often it looks before it sleeps.
const LOOKS: u32 = if CHECKED { 2 } else { 400 };

/// The writer `W`, and the queue behind the leader: of jobs `J`, of which `R` comes.
pub(crate) struct Turn<W, J, R> {
    pub writer: Mutex<W>,
    queue: Mutex<VecDeque<Arc<Waiter<J, R>>>>,
    queued: AtomicUsize,
    /// What comes of a job whose leader panicked.
    abandoned: fn() -> R,
}

/// A thread that can wait for a leader to do its job. Each thread needs but one.
pub(crate) struct Waiter<J, R> {
    phase: Mutex<Phase<J, R>>,
    wake: Condvar,
}

/// Where a waiting thread's job is.
enum Phase<J, R> {
    /// With nobody: this thread is not waiting.
    Idle,
    /// In the queue.
    Queued(J),
    /// In the queue, and nobody holds the writer any more: this thread may lead.
    Lead(J),
    /// With the leader.
    Taken,
    /// Done with.
    Done(R),
}

/// A queued job that the leader has taken. Its thread waits until it is [`Member::done`].
pub(crate) struct Member<J, R> {
    waiter: Arc<Waiter<J, R>>,
    pub job: J,
    told: bool,
    abandoned: fn() -> R,
}

impl<J, R> Member<J, R> {
    /// Tells the thread that waits what came of its job.
    pub(crate) fn done(mut self, result: R) {
        self.tell(result);
    }

    fn tell(&mut self, result: R) {
        self.told = true;
        *self.waiter.phase.lock() = Phase::Done(result);
        self.waiter.wake.notify_one();
    }
}

impl<J, R> Drop for Member<J, R> {
    fn drop(&mut self) {
        if !self.told {
            // Only a leader that panics lets it fall. Nobody but its thread would ever wait for it again.
            self.tell((self.abandoned)());
        }
    }
}

/// The writer in the hands of a leader. However he ends, the lead is passed on.
struct Led<'a, W, J, R> {
    // Dropped in this order.
    writer: MutexGuard<'a, W>,
    _pass_on: PassOn<'a, W, J, R>,
}

struct PassOn<'a, W, J, R>(&'a Turn<W, J, R>);

impl<W, J, R> Drop for PassOn<'_, W, J, R> {
    fn drop(&mut self) {
        self.0.pass_on();
    }
}

impl<J, R> Default for Waiter<J, R> {
    fn default() -> Self {
        Waiter { phase: Mutex::new(Phase::Idle), wake: Condvar::new() }
    }
}

impl<W, J, R> Turn<W, J, R> {
    /// `abandoned`: what comes of a job whose leader panicked.
    pub(crate) fn new(writer: W, abandoned: fn() -> R) -> Turn<W, J, R> {
        let (queue, queued) = (Mutex::new(VecDeque::new()), AtomicUsize::new(0));
        Turn { writer: Mutex::new(writer), queue, queued, abandoned }
    }

    /// The writer, if it is free and nobody queues for it. For those who would rather queue than wait.
    #[inline]
    pub(crate) fn try_now(&self) -> Option<MutexGuard<'_, W>> {
        match self.queued.load(Ordering::SeqCst) {
            0 => self.writer.try_lock(),
            _ => None,
        }
    }

    /// The writer. Whoever holds it commits in a microsecond, unless he syncs or makes room; to sleep and be woken takes many. So
    /// a thread looks again for a while, then lets other threads run between looks, and only then sleeps.
    #[inline]
    pub(crate) fn wait(&self) -> MutexGuard<'_, W> {
        for look in 0..LOOKS {
            if let Some(writer) = self.writer.try_lock() {
                return writer;
            }
            match look < SPINS {
                true => spin_loop(),
                false => yield_now(),
            }
        }
        self.writer.lock()
    }

    /// Makes the thread at the head of the queue the leader. To be called whenever the writer was let go: whoever queued while it
    /// was held relies on it.
    pub(crate) fn pass_on(&self) {
        // Pairs with the fence in `queue`: either we see who queued, or he sees that the writer is free.
        fence(Ordering::SeqCst);
        if self.queued.load(Ordering::SeqCst) == 0 || planted(Bug::ForgetToPassOn) {
            return;
        }
        let queue = self.queue.lock();
        if let Some(waiter) = queue.front() {
            let mut phase = waiter.phase.lock();
            *phase = match std::mem::replace(&mut *phase, Phase::Taken) {
                Phase::Queued(job) => Phase::Lead(job),
                other => other,
            };
            waiter.wake.notify_one();
        }
    }

    /// Queues a job, and waits until a leader has done it; or leads, with `lead`, which has to do all jobs that it is given.
    pub(crate) fn queue(
        &self,
        waiter: &Arc<Waiter<J, R>>,
        job: J,
        lead: impl Fn(&mut W, Vec<Member<J, R>>),
    ) -> R {
        *waiter.phase.lock() = Phase::Queued(job);
        {
            let mut queue = self.queue.lock();
            queue.push_back(waiter.clone());
            self.queued.store(queue.len(), Ordering::SeqCst);
        }
        fence(Ordering::SeqCst);
        self.try_to_lead(&lead);
        self.await_done(waiter, &lead)
    }

    fn await_done(&self, waiter: &Waiter<J, R>, lead: &impl Fn(&mut W, Vec<Member<J, R>>)) -> R {
        let mut phase = waiter.phase.lock();
        loop {
            match std::mem::replace(&mut *phase, Phase::Taken) {
                Phase::Done(result) => {
                    *phase = Phase::Idle;
                    return result;
                }
                Phase::Lead(job) => {
                    *phase = Phase::Queued(job);
                    drop(phase);
                    self.try_to_lead(lead);
                    phase = waiter.phase.lock();
                }
                other => {
                    *phase = other;
                    waiter.wake.wait(&mut phase);
                }
            }
        }
    }

    /// Does everything that is queued, if nobody else holds the writer: otherwise he passes the lead on when he lets go.
    fn try_to_lead(&self, lead: &impl Fn(&mut W, Vec<Member<J, R>>)) {
        let Some(writer) = self.writer.try_lock() else { return };
        let mut led = Led { writer, _pass_on: PassOn(self) };
        lead(&mut led.writer, self.take_queue());
    }

    fn take_queue(&self) -> Vec<Member<J, R>> {
        let mut queue = self.queue.lock();
        self.queued.store(0, Ordering::SeqCst);
        let take = |waiter: Arc<Waiter<J, R>>| {
            let phase = std::mem::replace(&mut *waiter.phase.lock(), Phase::Taken);
            match phase {
                Phase::Queued(job) | Phase::Lead(job) => {
                    Some(Member { waiter, job, told: false, abandoned: self.abandoned })
                }
                _ => None,
            }
        };
        queue.drain(..).filter_map(take).collect()
    }

    /// Ends the waiting of all who queue.
    pub(crate) fn turn_away(&self, result: impl Fn() -> R) {
        if planted(Bug::CloseWithoutTurningAway) {
            return;
        }
        self.take_queue().into_iter().for_each(|member| member.done(result()));
    }
}
