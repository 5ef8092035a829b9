//! Commits for asynchronous tasks: one thread, the *committer*, commits what they have queued, as groups, and wakes them.
//!
//! It does what a thread does that writes (`commit.rs`), for many batches at once: it waits where a write is not admitted, takes the writer, and commits
//! its batches in one group with those of the threads that wait for the writer. So the order of the queue is that of the commits, and a group
//! costs one sync, however many tasks wait for it.
//!
//! Without background threads there is none: the caller commits.

use super::group::Member;
use crate::parts::{Begun, Completion, Operation, begin};
use crate::state::{Batch, DbInner, Job, KeyspaceInner, PanicGuard, ReadSet, TaskJob, panicked};
use crate::sync::{thread, thread_local};
use crate::types::Durability;
use base::planted::{Bug, planted};
use base::{Error, ErrorKind, Result};
use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::Arc;

/// What a task waits for.
type Waited = Arc<Completion<Result<()>>>;

/// A take of the queue has at most so many bytes, or is one batch: then the writer is free again, and puts are admitted anew.
const MOST: u64 = 1 << 20;
/// What a batch counts beside its keys and values.
const BASE_BYTES: u64 = 64;
/// The same for that of a transaction, which is compared with all others of its group: so a group has at most 64 of them.
const COMPARED_BYTES: u64 = MOST / 64;

thread_local! {
    /// The database for which this thread is the committer.
    static COMMITS_FOR: Cell<u64> = Cell::default();
}

/// The tasks whose jobs were taken. Their waiting ends when this is dropped, even by a panic.
struct Tasks(Vec<Waited>);

impl Tasks {
    fn wake(&self) {
        if !planted(Bug::ForgetToWakeTasks) {
            self.0.iter().for_each(|task| task.wake());
        }
    }
}

impl Drop for Tasks {
    fn drop(&mut self) {
        self.0.iter().for_each(|task| task.complete_if_queued(|| Err(panicked("the committer"))));
        self.wake();
    }
}

/// The transactions of a take that have not ended, each with what it holds.
#[derive(Default)]
struct Transactions(Vec<(Waited, Arc<dyn Send + Sync>)>);

impl Transactions {
    /// Counts those that are committed or refused, and gives up what they hold.
    fn end(&mut self, db: &DbInner) {
        self.0.retain(|(task, _)| {
            let result = task.result();
            result.iter().for_each(|result| db.counters.note_transaction(result));
            result.is_none()
        });
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
    /// Queues a batch for the committer. That of a transaction comes with what it has read, and its snapshot, which is held until it is committed.
    pub(crate) fn write_async(
        self: &Arc<Self>,
        batch: Batch,
        transaction: Option<(Box<ReadSet>, Arc<dyn Send + Sync>)>,
        durability: Durability,
    ) -> Waited {
        let (reads, held) = transaction.unzip();
        if self.is_inline() || self.is_moment() {
            return Completion::done(self.write_batch(batch, reads, durability));
        }
        let job = TaskJob { job: Job { batch, reads, durability }, begun: begin(), held };
        let queued = self.check_process().and_then(|()| self.queue_task(job));
        queued.unwrap_or_else(|error| Completion::done(Err(error)))
    }

    fn queue_task(self: &Arc<Self>, mut job: TaskJob) -> Result<Waited> {
        self.status.check_running()?;
        if planted(Bug::TasksForgetReads) {
            job.job.reads = None;
        }
        let db = self.clone();
        let start = || thread::Builder::new().name("cairn-commit".to_owned()).spawn(move || db.committer());
        let started = self.task_jobs.push(job, start);
        let failed = |e| Error::new(ErrorKind::Io, format!("starting a thread: {e}"));
        started.map_err(failed)?.ok_or_else(|| self.status.stop_reason())
    }

    /// The body of the committer.
    fn committer(&self) {
        COMMITS_FOR.with(|of| of.set(self.identity));
        // Dropped in the reverse order: a task that is woken after a panic finds that writing has ended.
        let _abandoned = Abandoned(self);
        let _watch = PanicGuard::new(self, "the committer");
        self.commit_all_tasks();
    }

    /// Whether this thread is the committer of this database.
    pub(crate) fn is_committer(&self) -> bool {
        COMMITS_FOR.try_with(|of| of.get() == self.identity).unwrap_or(false)
    }

    /// Refuses what comes later, and waits until what is queued is committed. A committer that closes the database itself, because a task that it
    /// wakes does or drops the last handle, commits it here.
    pub(crate) fn end_tasks(&self) -> Result<()> {
        if planted(Bug::RefuseTasksAtClose) {
            self.task_jobs.abandon(&Err(self.status.closed_error()));
        }
        let has_panicked = self.task_jobs.end(!self.is_committer());
        self.commit_all_tasks();
        if has_panicked { Err(panicked("the committer")) } else { Ok(()) }
    }

    fn commit_all_tasks(&self) {
        let base = |job: &TaskJob| if job.job.reads.is_some() { COMPARED_BYTES } else { BASE_BYTES };
        let size = |job: &TaskJob| job.job.batch.user_bytes + base(job);
        while let Some(jobs) = self.task_jobs.take(size, MOST) {
            self.commit_tasks(jobs);
        }
    }

    fn commit_tasks(&self, jobs: VecDeque<(TaskJob, Waited)>) {
        let tasks = Tasks(jobs.iter().map(|(_, task)| task.clone()).collect());
        let begun: Vec<(Begun, Durability)> =
            jobs.iter().map(|(job, _)| (job.begun, job.job.durability)).collect();
        let mut members: Vec<Member> = Vec::with_capacity(jobs.len());
        // Empty batches, and the highest durability among them.
        let mut barriers: Vec<Waited> = Vec::new();
        let mut lowest = Durability::Buffered;
        let mut transactions = Transactions::default();
        for (TaskJob { mut job, held, .. }, task) in jobs {
            if self.may_wait(&job.batch) {
                // Not for what this one waits for.
                self.commit_tasks_of(&mut members);
                transactions.end(self);
                tasks.wake();
            }
            if let Some(held) = held {
                transactions.0.push((task.clone(), held));
            }
            let admitted = self.admit_batch(&mut job.batch);
            let compared =
                admitted.and_then(|()| job.reads.as_mut().map_or(Ok(()), |reads| self.compare(reads)));
            match compared.and_then(|()| self.prepare_times(&job.batch)) {
                Ok(()) if job.batch.is_empty() => {
                    lowest = lowest.max(job.durability);
                    barriers.push(task);
                }
                Ok(()) => members.push(Member::of_task(task, job, &self.commit)),
                Err(error) => task.complete(Err(error)),
            }
        }
        self.commit_tasks_of(&mut members);
        if !barriers.is_empty() {
            // What was queued before them is written by now.
            let result = self.barrier(lowest);
            barriers.iter().for_each(|task| task.complete(result.clone()));
        }
        transactions.end(self);
        for (begun, durability) in begun {
            self.counters.latency.end(Operation::write(durability), begun);
        }
        // After the writer was released: what wakes a task is code of its executor.
        drop(tasks);
    }

    /// Commits batches of tasks, with those of the threads that wait for the writer.
    fn commit_tasks_of(&self, members: &mut Vec<Member>) {
        if members.is_empty() {
            return;
        }
        let mut writer = self.writer();
        members.extend(self.commit.take_while(|_| true));
        let wakes = self.commit_members(&mut writer, std::mem::take(members));
        drop(writer);
        drop(wakes);
    }

    /// Whether the puts of a batch may have to wait before they are admitted.
    fn may_wait(&self, batch: &Batch) -> bool {
        let is_full = |keyspace: &KeyspaceInner| keyspace.hash_log.as_ref().is_some_and(|log| log.is_full());
        batch.has_puts
            && (self.disk_reserve.is_spent()
                || batch.keyspaces.iter().any(|written| is_full(&written.keyspace)))
    }
}
