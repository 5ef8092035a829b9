//! Jobs of asynchronous tasks, and the thread that does them.
//!
//! A task that has queued a job has a [`Completion`], of which it polls the result. Jobs are done in the order in which they were queued, by one thread,
//! which is started with the first of them. Closing waits until all that were queued are done.
//!
//! This module does not know what a job is.

use crate::sync::{Condvar, Mutex, thread, thread::JoinHandle};
use std::collections::VecDeque;
use std::io;
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
        let mut progress = self.0.lock();
        match &mut *progress {
            Progress::Done(result, _) => Poll::Ready(result.clone()),
            Progress::Queued(Some(waker)) if waker.will_wake(context.waker()) => Poll::Pending,
            Progress::Queued(waker) => {
                let old = waker.replace(context.waker().clone());
                drop(progress);
                // Dropping it runs code of the caller.
                drop(old);
                Poll::Pending
            }
        }
    }
}

impl<R> Completion<R> {
    /// Stores the result. A task that polls sees it at once; [`Completion::wake`] wakes one that waits.
    pub(crate) fn complete(&self, result: R) {
        let mut progress = self.0.lock();
        let waker = match &mut *progress {
            Progress::Queued(waker) => waker.take(),
            Progress::Done(_, waker) => waker.take(),
        };
        *progress = Progress::Done(result, waker);
    }

    /// Wakes the task, if it waits. Runs code of its executor: not under a lock.
    pub(crate) fn wake(&self) {
        let waker = match &mut *self.0.lock() {
            Progress::Done(_, waker) => waker.take(),
            Progress::Queued(_) => None,
        };
        if let Some(waker) = waker {
            waker.wake();
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

    /// For the thread: waits for jobs, and takes all. `None` when the queue has ended and all jobs were taken.
    pub(crate) fn take(&self) -> Option<Queued<J, R>> {
        let mut queue = self.queue.lock();
        while queue.jobs.is_empty() {
            if queue.ended {
                return None;
            }
            self.change.wait(&mut queue);
        }
        Some(std::mem::take(&mut queue.jobs))
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

    /// Refuses further jobs, and waits until the thread has done those that were queued. If the caller is that thread, because a task that it wakes
    /// drops the last handle of the database, nothing is waited for: `take` returns what is left.
    ///
    /// Returns whether the thread has panicked.
    pub(crate) fn end(&self) -> bool {
        let thread = {
            let mut queue = self.queue.lock();
            queue.ended = true;
            self.change.notify_all();
            queue.thread.take()
        };
        let is_other = |thread: &JoinHandle<()>| thread.thread().id() != thread::current().id();
        thread.filter(is_other).is_some_and(|thread| thread.join().is_err())
    }
}
