//! Group commit: the leader commits the queued batches as one group.

use super::append::insert;
use crate::parts::Waiter;
use crate::state::{Batch, DbInner, Job, PanicGuard, Publishing, ReadSet, Writer};
use crate::sync::thread_local;
use crate::types::Durability;
use base::planted::{Bug, planted};
use base::{ErrorKind, Result};
use std::sync::Arc;

/// A group of this many bytes is committed before more batches join it.
const MAX_IN_GROUP: u64 = 1 << 20;

/// A queued batch that the leader has taken.
pub(super) type Member = crate::parts::Member<Job, Result<()>>;

/// The threads to wake when the writer is released.
pub(super) type Wakes = Vec<crate::parts::Wake<Job, Result<()>>>;

thread_local! {
    static WAITER: Arc<Waiter<Job, Result<()>>> = Arc::default();
}

impl DbInner {
    /// Queues a batch and waits, or leads.
    pub(crate) fn commit_queued(
        &self,
        batch: Batch,
        reads: Option<Box<ReadSet>>,
        durability: Durability,
    ) -> Result<()> {
        if let Some(error) = batch.error {
            return Err(error);
        }
        // In the destructor of a caller's thread-local this thread's waiter may already be destroyed.
        let waiter = WAITER.try_with(Arc::clone).unwrap_or_default();
        let job = Job { batch, reads, durability };
        self.commit.queue(&waiter, job, |writer, members| self.commit_members(writer, members))
    }

    /// Commits the queued batches, as one group where memory allows. Returns the wakes of the last group.
    pub(crate) fn commit_members(&self, writer: &mut Writer, members: Vec<Member>) -> Wakes {
        let _watch = PanicGuard::new(self, "a writer");
        let mut ready: Vec<Member> = Vec::new();
        let mut bytes = 0;
        for mut member in members {
            let Job { batch, reads, .. } = &mut member.job;
            let checked = reads.as_mut().map_or(Ok(()), |reads| self.check_member(writer, reads, &ready));
            let reserved = checked.and_then(|()| self.give_times(writer, batch, &mut ready)).and_then(|()| {
                self.retry_after_freeing(!batch.has_puts, || self.reserve_for(writer, batch, &mut ready))
            });
            match reserved {
                Ok(()) => {
                    bytes = if ready.is_empty() { 0 } else { bytes } + batch.user_bytes;
                    ready.push(member);
                    if bytes >= MAX_IN_GROUP {
                        // Woken now, so that they do not wait for the next group.
                        drop(self.commit_group(writer, std::mem::take(&mut ready)));
                    }
                }
                Err(e) => drop(member.done(Err(e))),
            }
        }
        self.commit_group(writer, ready)
    }

    /// Compares a transaction with all commits, and with the `ready` ones of its group.
    fn check_member(&self, writer: &Writer, reads: &mut ReadSet, ready: &[Member]) -> Result<()> {
        self.check_reads(writer, reads)?;
        match planted(Bug::IgnoreGroup) {
            true => Ok(()),
            false => ready.iter().try_for_each(|member| reads.check_batch(&member.job.batch)),
        }
    }

    /// Reserves memory for a batch, after the `ready` ones of its group. If a memtable has to be sealed for it, the group so far is committed
    /// first: its reservations are in that memtable.
    pub(super) fn reserve_for(
        &self,
        writer: &mut Writer,
        batch: &Batch,
        ready: &mut Vec<Member>,
    ) -> Result<()> {
        self.status.check_running()?;
        batch.note_expiries()?;
        self.throttle(writer, batch.user_bytes);
        if ready.is_empty() {
            self.keep_in_bounds(writer)?;
        }
        while let Some((keyspace, need)) = self.reserve_batch(writer, batch)? {
            drop(self.commit_group(writer, std::mem::take(ready)));
            self.make_room(writer, &keyspace, need)?;
        }
        Ok(())
    }

    /// Commits the members of a group with the highest durability among them, and inserts them. If the disk is too full for the group,
    /// only the batches without puts are committed.
    pub(super) fn commit_group(&self, writer: &mut Writer, mut members: Vec<Member>) -> Wakes {
        let deletes = members.iter().all(|m| !m.job.batch.has_puts);
        let committed =
            self.retry_after_freeing(deletes, || self.log_and_insert(writer, &mut members, deletes));
        match committed {
            Err(e) if e.kind() == ErrorKind::NoSpace && !deletes => {
                let (puts, deletes): (Vec<_>, Vec<_>) =
                    members.into_iter().partition(|m| m.job.batch.has_puts);
                puts.into_iter().for_each(|member| drop(member.done(Err(e.clone()))));
                self.commit_group(writer, deletes)
            }
            committed => {
                let tell = |(i, member): (usize, Member)| match i > 0 && planted(Bug::FollowersSucceed) {
                    true => member.done(Ok(())),
                    false => member.done(committed.clone()),
                };
                members.into_iter().enumerate().map(tell).collect()
            }
        }
    }

    fn log_and_insert(&self, writer: &mut Writer, members: &mut [Member], deletes: bool) -> Result<()> {
        if members.is_empty() {
            return Ok(());
        }
        let durability = members.iter().map(|m| m.job.durability).max().unwrap_or(Durability::Os);
        let mut batches = members.iter().map(|m| &m.job.batch);
        let append = |writer: &mut Writer| batches.try_for_each(|batch| self.append_batch(writer, batch));
        let first_seq = self.log(writer, durability, deletes, append)?;
        let publishing = Publishing::new(self, first_seq, writer.next_seq - 1);
        let mut seq = first_seq;
        for Job { batch, .. } in members.iter_mut().map(|m| &mut m.job) {
            insert(batch, seq);
            seq += batch.numbers();
        }
        drop(publishing);
        let count = members.iter().map(|m| m.job.batch.count).sum();
        self.counters.note_writes(count, members.iter().map(|m| m.job.batch.user_bytes).sum());
        Ok(())
    }
}
