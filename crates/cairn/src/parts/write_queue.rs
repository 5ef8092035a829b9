//! The queue for the writer, with group commit.
//!
//! One thread at a time holds the writer. A thread that does not get it within a moment queues its request, the *job*, and soon sleeps:
//! the writer may be held over a sync, or its holder may have lost its processor. The next thread to hold the writer, the *leader*, does
//! the queued jobs that suit its own (or all of them if its own job is in the queue) and delivers the result of each. So with more
//! threads than processors no thread spins for long, and the writer need not pass through every thread.
//!
//! No thread waits forever: every holder has the writer as a [`Lead`], which wakes the head of the queue after it has released the writer;
//! and every thread, after it has queued, checks whether the writer is free. A fence on either side guarantees that at least one of the
//! two notices. Loom tests the interleavings of a few threads, with a bound on preemptions (`loom_tests.rs`).
//!
//! Never wake a waiter while holding the writer: the woken thread often preempts its waker, and the writer is then held by a thread
//! without a processor. The leader stores the result of a job at once and wakes its thread with a [`Wake`], which it drops after it has
//! released the writer.
//!
//! This module does not know what is written or what a job is.

use super::task_jobs::Completion;
use crate::sync::{AtomicBool, AtomicUsize, Condvar, Mutex, MutexGuard, Ordering, fence, spin_loop};
use base::planted::{Bug, planted};
use std::collections::VecDeque;
use std::sync::Arc;

/// A model checker needs few rounds of spinning: only the order of the checks matters to it.
const CHECKED: bool = cfg!(any(loom, shuttle));

/// Rounds of spinning before a thread queues, or sleeps: some microseconds.
pub(crate) const SPINS: u32 = if CHECKED { 1 } else { 200 };
/// Rounds of spinning after a thread has queued. By then the holder of the writer has most likely lost its processor, and could use this
/// thread's. (With 200 rounds four threads on two processors wrote 156,000 records of 1 KiB a second, with 10 it was 187,000.)
const LOOKS: u32 = if CHECKED { 1 } else { 10 };

/// The writer `W` and its queue of jobs `J` with results `R`.
pub(crate) struct WriteQueue<W, J, R> {
    pub writer: Mutex<W>,
    queue: Mutex<VecDeque<Arc<Waiter<J, R>>>>,
    queued: AtomicUsize,
    /// The result of a job whose leader panicked.
    abandoned: fn() -> R,
}

/// A thread's place in the queue. A thread needs only one.
pub(crate) struct Waiter<J, R> {
    phase: Mutex<Phase<J, R>>,
    /// Set when the phase becomes one that the thread waits for. A thread that still spins reads this instead of locking the phase.
    told: AtomicBool,
    wake: Condvar,
}

/// State of a waiting thread's job.
enum Phase<J, R> {
    /// In the queue.
    Queued(J),
    /// In the queue, and the writer is free: this thread may lead.
    MayLead(J),
    /// Not in the queue: taken by the leader, or the thread is not waiting.
    Taken,
    /// Done, with its result.
    Done(R),
}

/// A job that the leader does. Its thread or task waits until [`Member::done`] is called.
pub(crate) struct Member<J, R> {
    waits: Waits<J, R>,
    pub job: J,
    told: bool,
    abandoned: fn() -> R,
}

/// What waits for a job.
enum Waits<J, R> {
    /// A thread that was in the queue.
    Thread(Arc<Waiter<J, R>>),
    /// A task, which is woken by the thread that does its job.
    Task(Arc<Completion<R>>),
}

impl<J, R> Member<J, R> {
    /// A job of a task. The caller wakes the task when it has released the writer.
    pub(crate) fn of_task<W>(task: Arc<Completion<R>>, job: J, queue: &WriteQueue<W, J, R>) -> Member<J, R> {
        Member { waits: Waits::Task(task), job, told: false, abandoned: queue.abandoned }
    }

    /// Stores the result of the job. The thread may see it at once; if it sleeps, dropping the [`Wake`] wakes it.
    pub(crate) fn done(mut self, result: R) -> Wake<J, R> {
        self.tell(result)
    }

    fn tell(&mut self, result: R) -> Wake<J, R> {
        self.told = true;
        match &self.waits {
            Waits::Thread(waiter) => {
                *waiter.phase.lock() = Phase::Done(result);
                waiter.told.store(true, Ordering::Release);
                Wake(Some(waiter.clone()))
            }
            Waits::Task(task) => {
                task.complete(result);
                Wake(None)
            }
        }
    }
}

/// Wakes a waiting thread, if it sleeps, when dropped. Drop it without holding a lock.
#[must_use = "dropping it wakes a thread: not while the writer is held, unless that takes long"]
pub(crate) struct Wake<J, R>(Option<Arc<Waiter<J, R>>>);

impl<J, R> Drop for Wake<J, R> {
    fn drop(&mut self) {
        // The thread may wait for another job by now: it then checks its phase and sleeps again.
        if let Some(waiter) = &self.0
            && !planted(Bug::ForgetToWakeServed)
        {
            waiter.wake.notify_one();
        }
    }
}

impl<J, R> Drop for Member<J, R> {
    fn drop(&mut self) {
        if !self.told {
            // Reached only when the leader panics: without a result the thread would wait forever.
            drop(self.tell((self.abandoned)()));
        }
    }
}

/// The writer while a thread holds it. Dropping this releases the writer, and passes the lead on to the queue.
pub(crate) struct Lead<'a, W, J, R> {
    // Dropped in this order.
    pub writer: MutexGuard<'a, W>,
    _handoff: Handoff<'a, W, J, R>,
}

struct Handoff<'a, W, J, R>(&'a WriteQueue<W, J, R>);

impl<W, J, R> Drop for Handoff<'_, W, J, R> {
    #[inline]
    fn drop(&mut self) {
        self.0.pass_on();
    }
}

impl<J, R> Waiter<J, R> {
    /// Tells the thread, if it is still queued, that it may lead.
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
        Waiter { phase: Mutex::new(Phase::Taken), told: AtomicBool::new(false), wake: Condvar::new() }
    }
}

impl<W, J, R> WriteQueue<W, J, R> {
    /// `abandoned`: the result of a job whose leader panicked.
    pub(crate) fn new(writer: W, abandoned: fn() -> R) -> WriteQueue<W, J, R> {
        let (queue, queued) = (Mutex::new(VecDeque::new()), AtomicUsize::new(0));
        WriteQueue { writer: Mutex::new(writer), queue, queued, abandoned }
    }

    #[inline]
    fn lead<'a>(&'a self, writer: MutexGuard<'a, W>) -> Lead<'a, W, J, R> {
        Lead { writer, _handoff: Handoff(self) }
    }

    /// The writer, if it is free and the queue is empty. For callers that prefer queueing to waiting.
    #[inline]
    pub(crate) fn try_now(&self) -> Option<Lead<'_, W, J, R>> {
        match self.has_queue() {
            false => Some(self.lead(self.writer.try_lock()?)),
            true => None,
        }
    }

    /// The writer, if it becomes free within a moment and the queue is empty. For callers that prefer queueing to sleeping.
    #[inline]
    pub(crate) fn try_briefly(&self) -> Option<Lead<'_, W, J, R>> {
        for _ in 0..SPINS {
            if self.has_queue() {
                return None;
            }
            if let Some(writer) = self.writer.try_lock() {
                return Some(self.lead(writer));
            }
            spin_loop();
        }
        None
    }

    /// Waits for the writer. For callers that need it for more than a job.
    pub(crate) fn wait(&self) -> Lead<'_, W, J, R> {
        self.lead(self.writer.lock())
    }

    /// Whether the queue is not empty.
    #[inline]
    pub(crate) fn has_queue(&self) -> bool {
        self.queued.load(Ordering::SeqCst) > 0
    }

    /// Makes the thread at the head of the queue the leader. Called whenever the writer was released: threads that queued meanwhile rely
    /// on it.
    fn pass_on(&self) {
        // Pairs with the fence in `queue`: either this thread sees the queued one, or that one sees that the writer is free.
        fence(Ordering::SeqCst);
        if self.queued.load(Ordering::SeqCst) == 0 || planted(Bug::ForgetToPassOn) {
            return;
        }
        let first = self.queue.lock().front().cloned();
        // Its job may have been taken by now, or it may have queued another: then it leads that one, or finds that another thread leads.
        if let Some(waiter) = first {
            waiter.may_lead();
            waiter.wake.notify_one();
        }
    }

    /// Queues a job and waits until a leader has done it, or leads: `lead` must do all jobs that it is given, and returns the threads to
    /// wake when the writer is released.
    pub(crate) fn queue(
        &self,
        waiter: &Arc<Waiter<J, R>>,
        job: J,
        lead: impl Fn(&mut W, Vec<Member<J, R>>) -> Vec<Wake<J, R>>,
    ) -> R {
        // If the writer is not free, its holder will pass the lead on.
        let try_to_lead = || {
            if let Some(writer) = self.writer.try_lock() {
                let mut held = self.lead(writer);
                let wakes = lead(&mut held.writer, self.take_while(|_| true));
                drop(held);
                drop(wakes);
            }
        };
        *waiter.phase.lock() = Phase::Queued(job);
        waiter.told.store(false, Ordering::Relaxed);
        {
            let mut queue = self.queue.lock();
            queue.push_back(waiter.clone());
            self.queued.store(queue.len(), Ordering::SeqCst);
        }
        fence(Ordering::SeqCst);
        try_to_lead();
        for _ in 0..LOOKS {
            if waiter.told.load(Ordering::Acquire) {
                break;
            }
            spin_loop();
        }
        let mut phase = waiter.phase.lock();
        loop {
            match std::mem::replace(&mut *phase, Phase::Taken) {
                Phase::Done(result) => return result,
                Phase::MayLead(job) => {
                    *phase = Phase::Queued(job);
                    drop(phase);
                    try_to_lead();
                    phase = waiter.phase.lock();
                }
                other => {
                    *phase = other;
                    waiter.wake.wait(&mut phase);
                }
            }
        }
    }

    /// Takes jobs from the head of the queue while `suits` accepts them. The caller holds the writer, and has to do them.
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
                let waits = Waits::Thread(waiter);
                members.push(Member { waits, job, told: false, abandoned: self.abandoned });
            }
        }
        self.queued.store(queue.len(), Ordering::SeqCst);
        members
    }

    /// Ends the waiting of all queued threads with `result`.
    pub(crate) fn turn_away(&self, result: impl Fn() -> R) {
        if planted(Bug::CloseWithoutTurningAway) {
            return;
        }
        self.take_while(|_| true).into_iter().for_each(|member| drop(member.done(result())));
    }
}
