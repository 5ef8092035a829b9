//! Commits for asynchronous tasks: one thread, the *committer*, commits what they have queued, as groups, and wakes them.
//!
//! It does what a thread does that writes (`commit.rs`), for many batches at once: it waits where a write is not admitted, takes the writer, and commits
//! its batches in one group with those of the threads that wait for the writer. So the order of the queue is that of the commits, and a group
//! costs one sync, however many tasks wait for it.
//!
//! Without background threads there is none: the caller commits.

use super::group::Member;
use crate::parts::{Begun, Completion, Operation, begin};
use crate::state::{Batch, DbInner, Job, PanicGuard, TaskJob, panicked};
use crate::sync::thread;
use crate::types::Durability;
use base::planted::{Bug, planted};
use base::{Error, ErrorKind, Result};
use std::collections::VecDeque;
use std::sync::Arc;

/// What a task waits for.
type Waited = Arc<Completion<Result<()>>>;

/// Ends the waiting of the tasks whose jobs were taken, when it is dropped.
struct Tasks(Vec<Waited>);

impl Drop for Tasks {
    fn drop(&mut self) {
        if !planted(Bug::ForgetToWakeTasks) {
            self.0.iter().for_each(|task| task.wake());
        }
    }
}

/// The committer ends. After a panic no other thread does what is queued.
struct Abandoned<'a>(&'a DbInner);

impl Drop for Abandoned<'_> {
    fn drop(&mut self) {
        self.0.task_jobs.abandon(&Err(panicked("the committer")));
    }
}

impl DbInner {
    /// Queues a batch for the committer.
    pub(crate) fn write_async(self: &Arc<Self>, batch: Batch, durability: Durability) -> Waited {
        if self.is_inline() || self.is_moment {
            return Completion::done(self.write_batch(batch, None, durability));
        }
        let queued = self.check_process().and_then(|()| self.queue_task(batch, durability));
        queued.unwrap_or_else(|error| Completion::done(Err(error)))
    }

    fn queue_task(self: &Arc<Self>, batch: Batch, durability: Durability) -> Result<Waited> {
        self.status.check_running()?;
        let job = TaskJob { job: Job { batch, reads: None, durability }, begun: begin() };
        let db = self.clone();
        let start = || thread::Builder::new().name("cairn-commit".to_owned()).spawn(move || db.committer());
        let started = self.task_jobs.push(job, start);
        let failed = |e| Error::new(ErrorKind::Io, format!("starting a thread: {e}"));
        started.map_err(failed)?.ok_or_else(|| self.status.closed_error())
    }

    /// The body of the committer.
    fn committer(&self) {
        let _watch = PanicGuard::new(self, "the committer");
        let _abandoned = Abandoned(self);
        while let Some(jobs) = self.task_jobs.take() {
            self.commit_tasks(jobs);
        }
    }

    /// Commits what is queued, and refuses what comes later. A committer that closes the database itself, because a task that it wakes has dropped
    /// the last handle, commits it here.
    pub(crate) fn end_tasks(&self) -> Result<()> {
        if planted(Bug::RefuseTasksAtClose) {
            self.task_jobs.abandon(&Err(self.status.closed_error()));
        }
        let has_panicked = self.task_jobs.end();
        while let Some(jobs) = self.task_jobs.take() {
            self.commit_tasks(jobs);
        }
        if has_panicked { Err(panicked("the committer")) } else { Ok(()) }
    }

    fn commit_tasks(&self, jobs: VecDeque<(TaskJob, Waited)>) {
        // Dropped at the end, after the writer: what wakes a task is code of its executor.
        let tasks = Tasks(jobs.iter().map(|(_, task)| task.clone()).collect());
        let begun: Vec<(Begun, Durability)> =
            jobs.iter().map(|(job, _)| (job.begun, job.job.durability)).collect();
        let mut members: Vec<Member> = Vec::with_capacity(jobs.len());
        for (TaskJob { mut job, .. }, task) in jobs {
            match self.admit_batch(&mut job.batch).and_then(|()| self.prepare_times(&job.batch)) {
                // What is empty asks for the durability of what was written before.
                Ok(()) if job.batch.is_empty() => task.complete(self.barrier(job.durability)),
                Ok(()) => members.push(Member::of_task(task, job, &self.commit)),
                Err(error) => task.complete(Err(error)),
            }
        }
        if !members.is_empty() {
            let mut writer = self.writer();
            members.extend(self.commit.take_while(|_| true));
            let wakes = self.commit_members(&mut writer, members);
            drop(writer);
            drop(wakes);
        }
        for (begun, durability) in begun {
            self.counters.latency.end(Operation::write(durability), begun);
        }
        drop(tasks);
    }
}
