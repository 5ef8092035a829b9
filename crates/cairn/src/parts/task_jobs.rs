//! Jobs of asynchronous tasks, and the thread that does them.
//!
//! A task that has queued a job has a [`Completion`], of which it polls the result. Jobs are done in the order in which they were queued, by one thread,
//! which is started with the first of them. Closing waits until all that were queued are done.
//!
//! This module does not know what a job is.

use crate::events;
use crate::sync::{Condvar, Mutex, thread::JoinHandle};
use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// The result of a job, for the task that waits for it.
pub(crate) struct Completion<R>(Mutex<Progress<R>>);

enum Progress<R> {
    Queued(Option<Waker>),
    /// Done, and the task is to be woken with this.
    Done(R, Option<Waker>),
}

impl<R: Clone> Completion<R> {
    fn queued() -> Arc<Completion<R>> {
        Arc::new(Completion(Mutex::new(Progress::Queued(None))))
    }

    /// A job that is done.
    pub(crate) fn done(result: R) -> Arc<Completion<R>> {
        Arc::new(Completion(Mutex::new(Progress::Done(result, None))))
    }

    /// The result, or the task of `context` is woken when there is one.
    pub(crate) fn poll(&self, context: &Context<'_>) -> Poll<R> {
        match &*self.0.lock() {
            Progress::Done(result, _) => return Poll::Ready(result.clone()),
            Progress::Queued(Some(waker)) if waker.will_wake(context.waker()) => return Poll::Pending,
            Progress::Queued(_) => {}
        }
        // Cloning and dropping wakers runs code of the caller: not under the lock, for which a thread may wait that commits.
        let mut waker = Some(context.waker().clone());
        let result = match &mut *self.0.lock() {
            Progress::Done(result, _) => Poll::Ready(result.clone()),
            Progress::Queued(old) => {
                std::mem::swap(old, &mut waker);
                Poll::Pending
            }
        };
        drop(waker);
        result
    }
}

impl<R> Completion<R> {
    /// Stores the result. A task that polls sees it at once; [`Completion::wake`] wakes one that waits.
    pub(crate) fn complete(&self, result: R) {
        let mut progress = self.0.lock();
        let (Progress::Queued(waker) | Progress::Done(_, waker)) = &mut *progress;
        let waker = waker.take();
        *progress = Progress::Done(result, waker);
    }

    /// The result, if the job is done.
    pub(crate) fn result(&self) -> Option<R>
    where
        R: Clone,
    {
        match &*self.0.lock() {
            Progress::Done(result, _) => Some(result.clone()),
            Progress::Queued(_) => None,
        }
    }

    /// [`Completion::complete`] for a job that is not done.
    pub(crate) fn complete_if_queued(&self, result: impl FnOnce() -> R) {
        let is_queued = matches!(&*self.0.lock(), Progress::Queued(_));
        if is_queued {
            self.complete(result());
        }
    }

    /// Wakes the task, if it waits and the job is done. Runs code of its executor: not under a lock. A panic there is not the committer's.
    pub(crate) fn wake(&self) {
        let waker = match &mut *self.0.lock() {
            Progress::Done(_, waker) => waker.take(),
            Progress::Queued(_) => None,
        };
        if let Some(waker) = waker
            && catch_unwind(AssertUnwindSafe(|| waker.wake())).is_err()
        {
            events::error!("waking a task has panicked");
        }
    }
}

/// The queue of jobs `J`, each with its completion.
pub(crate) struct TaskJobs<J, R> {
    queue: Mutex<Queue<J, R>>,
    /// Signalled when there are jobs, or the queue has ended.
    change: Condvar,
}

/// Jobs with their completions.
pub(crate) type Queued<J, R> = VecDeque<(J, Arc<Completion<R>>)>;

struct Queue<J, R> {
    jobs: Queued<J, R>,
    thread: Option<JoinHandle<()>>,
    ended: bool,
}

impl<J, R> Default for TaskJobs<J, R> {
    fn default() -> Self {
        let queue = Queue { jobs: VecDeque::new(), thread: None, ended: false };
        TaskJobs { queue: Mutex::new(queue), change: Condvar::new() }
    }
}

impl<J, R: Clone> TaskJobs<J, R> {
    /// Queues a job, and starts the thread with `start` if it does not run. `None` once the queue has ended.
    ///
    /// # Errors
    /// Those of starting the thread: the job is not queued.
    pub(crate) fn push(
        &self,
        job: J,
        start: impl FnOnce() -> io::Result<JoinHandle<()>>,
    ) -> io::Result<Option<Arc<Completion<R>>>> {
        let mut queue = self.queue.lock();
        if queue.ended {
            return Ok(None);
        }
        if queue.thread.is_none() {
            queue.thread = Some(start()?);
        }
        let completion = Completion::queued();
        let wakes = queue.jobs.is_empty();
        queue.jobs.push_back((job, completion.clone()));
        drop(queue);
        if wakes {
            self.change.notify_one();
        }
        Ok(Some(completion))
    }

    /// For the thread: waits for jobs, and takes the first of them, whose sizes are together less than `most`, or one. `None` when the queue has
    /// ended and all jobs were taken.
    pub(crate) fn take(&self, size: impl Fn(&J) -> u64, most: u64) -> Option<Queued<J, R>> {
        let mut queue = self.queue.lock();
        while queue.jobs.is_empty() {
            if queue.ended {
                return None;
            }
            self.change.wait(&mut queue);
        }
        let mut bytes = 0;
        let beyond = queue.jobs.iter().position(|(job, _)| {
            bytes += size(job);
            bytes >= most
        });
        let taken = beyond.unwrap_or(queue.jobs.len()).max(1);
        let rest = queue.jobs.split_off(taken);
        Some(std::mem::replace(&mut queue.jobs, rest))
    }

    /// Refuses further jobs, and those that are queued, with `result`.
    pub(crate) fn abandon(&self, result: &R) {
        let jobs = {
            let mut queue = self.queue.lock();
            queue.ended = true;
            std::mem::take(&mut queue.jobs)
        };
        for (_, task) in jobs {
            task.complete(result.clone());
            task.wake();
        }
    }

    /// Refuses further jobs. With `joins` waits until the thread has done those that were queued; the thread itself does not wait for itself.
    ///
    /// Returns whether the thread has panicked.
    pub(crate) fn end(&self, joins: bool) -> bool {
        let thread = {
            let mut queue = self.queue.lock();
            queue.ended = true;
            self.change.notify_all();
            queue.thread.take()
        };
        thread.filter(|_| joins).is_some_and(|thread| thread.join().is_err())
    }
}
