//! Commits: how writes become durable, ordered and visible.
//!
//! One thread at a time holds the [`Writer`]. While it does, it reserves memtable memory, assigns the next sequence numbers to its batch,
//! appends the batch to the log and persists the log as the durability demands. Then it releases the writer, inserts into the memtable
//! concurrently with other threads, and publishes its batch when all older ones are inserted. So the order in the log, the order of
//! sequence numbers and the order of visibility are the same, and a reader sees all of a batch or nothing.
//!
//! A thread that does not get the writer within a moment queues its batch, and the next thread to hold the writer, the *leader*, commits
//! the queued batches as one group, with one sync if any of them demands one. A leader that was not queued takes only batches along that
//! demand no sync. The leader also inserts the batches of queued threads, which may be asleep.
//!
//! Only a holder of the writer seals a memtable, and only when everything that has a sequence number is inserted. So an immutable
//! memtable contains only visible entries.

use super::append::insert;
use crate::parts::Operation;
use crate::state::{
    Batch, DbInner, KeyspaceInner, Publishing, ReadSet, ReadState, Tail, Writer, WriterGuard, check_time,
};
use crate::sync::{Guard, yield_now};
use crate::types::Durability;
use crate::wal::{Entries, Entry};
use base::planted::{Bug, planted};
use base::{EntryKind, Error, ErrorKind, Result, Seq, Time};
use record::LARGE_LEN;
use std::sync::Arc;

impl DbInner {
    /// The writer, if it is free and the queue is empty. Before a write without a sync also waits a moment for it; before a sync it is
    /// better to queue.
    #[inline]
    fn take_writer(&self, durability: Durability) -> Option<WriterGuard<'_>> {
        match durability {
            Durability::Sync => self.try_writer(),
            Durability::Buffered | Durability::Os => self.try_writer_briefly(),
        }
    }

    /// Inserts a commit after releasing the writer, and publishes it. If threads are queued, inserts first, and then commits the queued
    /// batches that demand no sync.
    #[inline]
    fn insert_and_release(
        &self,
        mut writer: WriterGuard<'_>,
        first_seq: Seq,
        last_seq: Seq,
        insert: impl FnOnce(),
    ) {
        let publishing = Publishing::new(self, first_seq, last_seq);
        if !self.commit.has_queue() {
            drop(writer);
            insert();
            return drop(publishing);
        }
        insert();
        drop(publishing);
        let members = self.commit.take_while(|job| job.durability != Durability::Sync);
        let wakes = self.commit_members(&mut writer, members);
        drop(writer);
        drop(wakes);
    }

    /// Commits one put or delete, with a time of its own or without one. The record goes from the caller's bytes directly into the log's
    /// buffer and the memtable, unless the time has to be compared with those of other versions.
    pub(crate) fn write_one(
        &self,
        keyspace: &Arc<KeyspaceInner>,
        entry: Entry<'_>,
        durability: Durability,
    ) -> Result<()> {
        let _measured = self.counters.latency.measure(Operation::write(durability));
        let Entry { kind, key, value, time, .. } = entry;
        keyspace.limits.check(key, value)?;
        keyspace.check_kind(kind, value)?;
        keyspace.check_expiry(entry.expiry, value.len())?;
        check_time(keyspace, time, false)?;
        let as_batch = || {
            let mut batch = Batch::default();
            batch.push(keyspace, entry);
            batch
        };
        if !self.is_newest(keyspace, time) {
            return self.write_compared(as_batch(), None, durability);
        }
        if kind.gives_value() {
            self.admit()?;
            self.admit_to_index(keyspace)?;
        }
        if planted(Bug::TrustEarlyTime) {
            yield_now();
        }
        let taken = match value.len() >= LARGE_LEN {
            // Queueing would copy the large value.
            true => Some(self.writer()),
            false => self.take_writer(durability),
        };
        let Some(mut writer) = taken else { return self.commit_queued(as_batch(), None, durability) };
        // Another thread may have written a later time meanwhile.
        if time.is_some() && !self.is_newest(keyspace, time) && !planted(Bug::TrustEarlyTime) {
            drop(writer);
            return self.write_compared(as_batch(), None, durability);
        }
        let entry = Entry { keyspace: keyspace.id, ..entry };
        let deletes = kind == EntryKind::Delete;
        let log = || self.log_one(&mut writer, keyspace, &entry, durability);
        let (seq, read_state, tail) = self.retry_after_freeing(deletes, log)?;
        let insert = || entry.insert(&read_state.memtable, seq, &tail);
        if planted(Bug::PublishBeforeInsert) {
            drop(writer);
            drop(Publishing::new(self, seq, seq));
            yield_now();
            insert();
            return Ok(());
        }
        self.insert_and_release(writer, seq, seq, insert);
        Ok(())
    }

    /// Commits a batch: that of a transaction only if nothing of what it has read has changed.
    ///
    /// A transaction is compared with the commits up to now before the writer is taken, which may read tables; by the holder of the writer
    /// with those since. For that all of them must be visible.
    pub(crate) fn write_batch(
        &self,
        batch: Batch,
        reads: Option<Box<ReadSet>>,
        durability: Durability,
    ) -> Result<()> {
        let is_compared = reads.is_some();
        let _measured = self.counters.latency.measure(Operation::write(durability));
        let result = self.write_compared(batch, reads, durability);
        if is_compared {
            self.counters.note_transaction(&result);
        }
        result
    }

    /// Waits until the puts of a batch are admitted.
    ///
    /// # Errors
    /// That of the batch; those that refuse its puts.
    pub(super) fn admit_batch(&self, batch: &mut Batch) -> Result<()> {
        if let Some(error) = batch.error.take() {
            return Err(error);
        }
        if batch.has_puts {
            self.admit()?;
            let with_puts = batch.keyspaces.iter().filter(|written| written.has_puts);
            with_puts
                .map(|written| &written.keyspace)
                .try_for_each(|keyspace| self.admit_to_index(keyspace))?;
        }
        Ok(())
    }

    fn write_compared(
        &self,
        mut batch: Batch,
        mut reads: Option<Box<ReadSet>>,
        durability: Durability,
    ) -> Result<()> {
        self.admit_batch(&mut batch)?;
        if batch.is_empty() {
            return self.barrier(durability);
        }
        if planted(Bug::TearBatch) && batch.count > 1 {
            return self.write_torn(&batch, durability);
        }
        if let Some(reads) = &mut reads {
            self.compare(reads)?;
        }
        self.prepare_times(&batch)?;
        match self.take_writer(durability) {
            Some(writer) => {
                if let Some(reads) = &mut reads {
                    self.check_reads(&writer, reads)?;
                }
                self.commit_batch(writer, batch, durability)
            }
            None => self.commit_queued(batch, reads, durability),
        }
    }

    /// Compares a transaction with the commits up to now, which may read tables, before the writer is taken.
    pub(super) fn compare(&self, reads: &mut ReadSet) -> Result<()> {
        self.status.check_running()?;
        self.check_expiry(reads)?;
        reads.check_until(self.visible.newest())
    }

    /// Checks that nothing has expired meanwhile that a transaction has seen.
    fn check_expiry(&self, reads: &ReadSet) -> Result<()> {
        match reads.expiry < Time::MAX
            && reads.expiry <= self.clock.now()
            && !planted(Bug::CommitDespiteExpiry)
        {
            true => {
                Err(Error::new(ErrorKind::Conflict, "an entry that the transaction has read has expired"))
            }
            false => Ok(()),
        }
    }

    /// Compares a transaction with all commits. The caller holds the writer.
    pub(super) fn check_reads(&self, writer: &Writer, reads: &mut ReadSet) -> Result<()> {
        self.status.check_running()?;
        self.check_expiry(reads)?;
        if reads.keyspaces.is_empty() || planted(Bug::CheckBeforeWriter) {
            return Ok(());
        }
        self.visible.wait_for(writer.next_seq - 1);
        reads.check_until(writer.next_seq - 1)
    }

    /// Deletes a key as of a time, and returns what `look` finds: it is called when all earlier writes are visible, and no other can begin.
    /// What it reads should be in memory.
    pub(crate) fn delete_after_look<T>(
        &self,
        batch: Batch,
        durability: Durability,
        look: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let _measured = self.counters.latency.measure(Operation::write(durability));
        if let Some(error) = batch.error {
            return Err(error);
        }
        self.prepare_times(&batch)?;
        if planted(Bug::LookBeforeWriter) {
            let found = look()?;
            self.commit_batch(self.writer(), batch, durability)?;
            return Ok(found);
        }
        let writer = self.writer();
        self.status.check_running()?;
        self.visible.wait_for(writer.next_seq - 1);
        let found = look()?;
        self.commit_batch(writer, batch, durability)?;
        Ok(found)
    }

    fn commit_batch(
        &self,
        mut writer: WriterGuard<'_>,
        mut batch: Batch,
        durability: Durability,
    ) -> Result<()> {
        self.give_times(&mut writer, &mut batch, &mut Vec::new())?;
        let logged = self.retry_after_freeing(!batch.has_puts, || {
            self.reserve_for(&mut writer, &batch, &mut Vec::new())?;
            self.log(&mut writer, durability, !batch.has_puts, |writer| self.append_batch(writer, &batch))
        });
        let first_seq = logged?;
        self.counters.note_writes(batch.count, batch.user_bytes);
        let last_seq = first_seq + batch.numbers() - 1;
        self.insert_and_release(writer, first_seq, last_seq, || insert(&batch, first_seq));
        Ok(())
    }

    /// Gives all writes acknowledged before at least this durability; this is what a write without entries does.
    #[cold]
    pub(crate) fn barrier(&self, durability: Durability) -> Result<()> {
        self.status.check_running()?;
        self.check_process()?;
        if durability == Durability::Buffered {
            return Ok(());
        }
        let mut writer = self.writer();
        self.status.check_running()?;
        match durability {
            Durability::Sync => self.sync_log(&mut writer),
            Durability::Buffered | Durability::Os => self.flush_log(&mut writer),
        }
    }

    /// [`Bug::TearBatch`].
    #[cold]
    fn write_torn(&self, batch: &Batch, durability: Durability) -> Result<()> {
        let mut entries = Entries::new(&batch.entries);
        while let Some(entry) = entries.next() {
            let mut one = Batch::default();
            one.push(batch.keyspace_of(&entry), entry);
            self.write_batch(one, None, durability)?;
        }
        Ok(())
    }

    /// Appends one entry to the log, after reserving memory in the memtable of the returned read state.
    fn log_one(
        &self,
        writer: &mut Writer,
        keyspace: &Arc<KeyspaceInner>,
        entry: &Entry<'_>,
        durability: Durability,
    ) -> Result<(Seq, Guard<Arc<ReadState>>, Tail)> {
        self.status.check_running()?;
        keyspace.check_open()?;
        if entry.expiry.is_some() {
            keyspace.note_expiries();
        } else if entry.kind == EntryKind::Merge {
            keyspace.check_no_expiries()?;
        }
        let user_bytes = (entry.key.len() + entry.value.len()) as u64;
        self.throttle(writer, user_bytes);
        self.keep_in_bounds(writer)?;
        let need = keyspace.cost_of(entry);
        let mut read_state = keyspace.read_state.load();
        while !writer.reserve(&read_state.memtable, need) {
            drop(read_state);
            self.make_room(writer, keyspace, need)?;
            read_state = keyspace.read_state.load();
        }
        let time = (keyspace.tail_len > 0).then(|| self.give_time(keyspace, entry.time));
        // The time of the record is that of its only entry.
        let entry = &Entry { time: None, ..*entry };
        let append =
            |writer: &mut Writer| self.append_one(writer, entry, keyspace, &read_state.memtable, time);
        let seq = self.log(writer, durability, entry.kind == EntryKind::Delete, append)?;
        self.counters.note_writes(1, user_bytes);
        Ok((seq, read_state, keyspace.tail(time)))
    }
}
