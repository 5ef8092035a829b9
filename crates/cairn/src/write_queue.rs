//! Whose turn it is to write.
//!
//! One thread at a time holds the writer. Who does not get it within a moment queues with what he wants done, his *job*, and sleeps
//! soon: the writer is held over a sync, or its holder has lost his processor. The next one to hold the writer, the *leader*, does
//! the jobs of those who queue on the way, or all of them if he is one of them, and tells each what came of it. So with more
//! threads than processors nobody spends his time on looking whose turn it is, and the writer need not pass through every thread.
//!
//! Nobody queues for ever: whoever lets go of the writer calls [`WriteQueue::pass_on`] afterwards, which wakes the first in the queue, and
//! whoever has queued looks himself whether the writer is free. A fence on either side sees to it that one of the two notices. Loom
//! tries every interleaving of a few threads (`loom_tests.rs`).
//!
//! Nobody is woken by who holds the writer: the operating system likes to run who wakes in the place of who woke him, and then the
//! writer is held by a thread without a processor. What came of a job is written down at once; its thread is woken by a [`Wake`], which
//! the leader drops when he has let go.
//!
//! What is written, and what a job is, is not known here.

use crate::sync::{AtomicBool, AtomicUsize, Condvar, Mutex, MutexGuard, Ordering, fence, spin_loop};
use base::planted::{Bug, planted};
use std::collections::VecDeque;
use std::sync::Arc;

/// A model checker needs few looks: what matters is who looks when.
const CHECKED: bool = cfg!(any(loom, shuttle));

/// How often a thread looks whether it is its turn before it queues, or sleeps: some microseconds.
pub(crate) const SPINS: u32 = if CHECKED { 1 } else { 200 };
/// How often it looks once it has queued. By then the writer's holder most likely has no processor, and could have this thread's. (With
/// 200 looks four threads on two processors wrote 156,000 records of 1 KiB a second, with 10 it was 187,000.)
const LOOKS: u32 = if CHECKED { 1 } else { 10 };

/// The writer `W`, and the queue behind the leader: of jobs `J`, of which `R` comes.
pub(crate) struct WriteQueue<W, J, R> {
    pub writer: Mutex<W>,
    queue: Mutex<VecDeque<Arc<Waiter<J, R>>>>,
    queued: AtomicUsize,
    /// What comes of a job whose leader panicked.
    abandoned: fn() -> R,
}

/// A thread that can wait for a leader to do its job. Each thread needs but one.
pub(crate) struct Waiter<J, R> {
    phase: Mutex<Phase<J, R>>,
    /// The phase is one that the thread waits for. Told to one that is still looking, and has the lock on the phase to thank for it.
    told: AtomicBool,
    wake: Condvar,
}

/// Where a waiting thread's job is.
enum Phase<J, R> {
    /// With nobody: this thread is not waiting.
    Idle,
    /// In the queue.
    Queued(J),
    /// In the queue, and nobody holds the writer any more: this thread may lead.
    MayLead(J),
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
    /// Says what came of the job. Its thread may see that at once; if it sleeps, the [`Wake`] wakes it.
    pub(crate) fn done(mut self, result: R) -> Wake<J, R> {
        self.tell(result)
    }

    fn tell(&mut self, result: R) -> Wake<J, R> {
        self.told = true;
        *self.waiter.phase.lock() = Phase::Done(result);
        self.waiter.told.store(true, Ordering::Release);
        Wake(self.waiter.clone())
    }
}

/// Wakes a thread that waits, if it sleeps by now, when it is dropped: best by somebody who holds nothing.
#[must_use = "dropping it wakes a thread: not while the writer is held, unless that takes long"]
pub(crate) struct Wake<J, R>(Arc<Waiter<J, R>>);

impl<J, R> Drop for Wake<J, R> {
    fn drop(&mut self) {
        // It may be waiting for another job by now: then it looks, and sleeps on.
        if !planted(Bug::ForgetToWakeServed) {
            self.0.wake.notify_one();
        }
    }
}

impl<J, R> Drop for Member<J, R> {
    fn drop(&mut self) {
        if !self.told {
            // Only a leader that panics lets it fall. Nobody but its thread would ever wait for it again.
            drop(self.tell((self.abandoned)()));
        }
    }
}

/// Does jobs for who queues them; gives who is to be woken then.
pub(crate) trait LeaderFn<W, J, R>: Fn(&mut W, Vec<Member<J, R>>) -> Vec<Wake<J, R>> {}

impl<W, J, R, F: Fn(&mut W, Vec<Member<J, R>>) -> Vec<Wake<J, R>>> LeaderFn<W, J, R> for F {}

/// The writer in the hands of a leader. However he ends, the lead is passed on.
struct LeaderGuard<'a, W, J, R> {
    // Dropped in this order.
    writer: MutexGuard<'a, W>,
    _pass_on: LeaderHandoff<'a, W, J, R>,
}

struct LeaderHandoff<'a, W, J, R>(&'a WriteQueue<W, J, R>);

impl<W, J, R> Drop for LeaderHandoff<'_, W, J, R> {
    fn drop(&mut self) {
        self.0.pass_on();
    }
}

impl<J, R> Waiter<J, R> {
    /// Tells the thread, if it queues, that it may try to lead.
    fn may_lead(&self) {
        let mut phase = self.phase.lock();
        *phase = match std::mem::replace(&mut *phase, Phase::Taken) {
            Phase::Queued(job) => Phase::MayLead(job),
            other => other,
        };
        self.told.store(true, Ordering::Release);
    }
}

impl<J, R> Default for Waiter<J, R> {
    fn default() -> Self {
        Waiter { phase: Mutex::new(Phase::Idle), told: AtomicBool::new(false), wake: Condvar::new() }
    }
}

impl<W, J, R> WriteQueue<W, J, R> {
    /// `abandoned`: what comes of a job whose leader panicked.
    pub(crate) fn new(writer: W, abandoned: fn() -> R) -> WriteQueue<W, J, R> {
        let (queue, queued) = (Mutex::new(VecDeque::new()), AtomicUsize::new(0));
        WriteQueue { writer: Mutex::new(writer), queue, queued, abandoned }
    }

    /// The writer, if it is free and nobody queues for it. For those who would rather queue than wait.
    #[inline]
    pub(crate) fn try_now(&self) -> Option<MutexGuard<'_, W>> {
        match self.has_queue() {
            false => self.writer.try_lock(),
            true => None,
        }
    }

    /// The writer, if it comes free within a moment and nobody queues for it. For those who would rather queue than sleep.
    #[inline]
    pub(crate) fn try_briefly(&self) -> Option<MutexGuard<'_, W>> {
        for _ in 0..SPINS {
            if self.has_queue() {
                return None;
            }
            if let Some(writer) = self.writer.try_lock() {
                return Some(writer);
            }
            spin_loop();
        }
        None
    }

    /// The writer. For those who need it for more than a job.
    pub(crate) fn wait(&self) -> MutexGuard<'_, W> {
        self.writer.lock()
    }

    /// Whether anybody queues.
    #[inline]
    pub(crate) fn has_queue(&self) -> bool {
        self.queued.load(Ordering::SeqCst) > 0
    }

    /// Makes the thread at the head of the queue the leader. To be called whenever the writer was let go: whoever queued while it
    /// was held relies on it.
    pub(crate) fn pass_on(&self) {
        // Pairs with the fence in `queue`: either we see who queued, or he sees that the writer is free.
        fence(Ordering::SeqCst);
        if self.queued.load(Ordering::SeqCst) == 0 || planted(Bug::ForgetToPassOn) {
            return;
        }
        let first = self.queue.lock().front().cloned();
        // By now it may have been taken, or even queue with another job: then it leads that one, or finds that somebody else does.
        if let Some(waiter) = first {
            waiter.may_lead();
            waiter.wake.notify_one();
        }
    }

    /// Queues a job, and waits until a leader has done it; or leads, with `lead`, which has to do all jobs that it is given, and gives
    /// who is to be woken when the writer is let go.
    pub(crate) fn queue(&self, waiter: &Arc<Waiter<J, R>>, job: J, lead: impl LeaderFn<W, J, R>) -> R {
        *waiter.phase.lock() = Phase::Queued(job);
        waiter.told.store(false, Ordering::Relaxed);
        {
            let mut queue = self.queue.lock();
            queue.push_back(waiter.clone());
            self.queued.store(queue.len(), Ordering::SeqCst);
        }
        fence(Ordering::SeqCst);
        self.try_to_lead(&lead);
        self.await_done(waiter, &lead)
    }

    fn await_done(&self, waiter: &Waiter<J, R>, lead: &impl LeaderFn<W, J, R>) -> R {
        for _ in 0..LOOKS {
            if waiter.told.load(Ordering::Acquire) {
                break;
            }
            spin_loop();
        }
        let mut phase = waiter.phase.lock();
        loop {
            match std::mem::replace(&mut *phase, Phase::Taken) {
                Phase::Done(result) => {
                    *phase = Phase::Idle;
                    return result;
                }
                Phase::MayLead(job) => {
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
    fn try_to_lead(&self, lead: &impl LeaderFn<W, J, R>) {
        let Some(writer) = self.writer.try_lock() else { return };
        let mut led = LeaderGuard { writer, _pass_on: LeaderHandoff(self) };
        let wakes = lead(&mut led.writer, self.take_queue());
        drop(led);
        drop(wakes);
    }

    fn take_queue(&self) -> Vec<Member<J, R>> {
        self.take_while(|_| true)
    }

    /// Takes jobs from the head of the queue for who holds the writer, as long as they suit him. He has to do them.
    pub(crate) fn take_while(&self, suits: impl Fn(&J) -> bool) -> Vec<Member<J, R>> {
        let mut queue = self.queue.lock();
        let mut members = Vec::new();
        while let Some(waiter) = queue.front() {
            let mut phase = waiter.phase.lock();
            match &*phase {
                Phase::Queued(job) | Phase::MayLead(job) if !suits(job) => break,
                _ => {}
            }
            let taken = std::mem::replace(&mut *phase, Phase::Taken);
            drop(phase);
            let Some(waiter) = queue.pop_front() else { break };
            if let Phase::Queued(job) | Phase::MayLead(job) = taken {
                members.push(Member { waiter, job, told: false, abandoned: self.abandoned });
            }
        }
        self.queued.store(queue.len(), Ordering::SeqCst);
        members
    }

    /// Ends the waiting of all who queue.
    pub(crate) fn turn_away(&self, result: impl Fn() -> R) {
        if planted(Bug::CloseWithoutTurningAway) {
            return;
        }
        self.take_queue().into_iter().for_each(|member| drop(member.done(result())));
    }
}
